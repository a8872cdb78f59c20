//! `reach bench routing`: anybody's texts, taught and asked.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::hub::{code, run, stderr, stdout};

fn lines(folder: &tempfile::TempDir, name: &str, texts: &[(&str, &str, &str)]) -> PathBuf {
    let path = folder.path().join(name);
    let lines = texts.iter().map(|(domain, task_type, text)| {
        json!({"text": text, "domain": domain, "task_type": task_type}).to_string() + "\n"
    });
    std::fs::write(&path, lines.collect::<String>()).expect("a file");
    path
}

#[test]
fn a_bench_of_routing_says_how_many_texts_found_their_way_and_how_many_rightly_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let flights = ["to rome", "to oslo", "to paris", "on monday", "for two", "back home", "very early", "for my boss"];
    let songs =
        ["jazz", "blues", "my playlist", "the beatles", "it again", "something calm", "the radio", "an old song"];
    let flights: Vec<String> = flights.iter().map(|rest| format!("book a flight {rest}")).collect();
    let songs: Vec<String> = songs.iter().map(|rest| format!("please play {rest}")).collect();
    let train: Vec<_> = flights
        .iter()
        .map(|text| ("travel", "flight", text.as_str()))
        .chain(songs.iter().map(|text| ("music", "play", text.as_str())))
        .chain([("oos", "oos", "how many stars are there")])
        .collect();
    let train = lines(&folder, "train.jsonl", &train);
    let test = [
        ("travel", "flight", "book a flight to berlin"),
        ("music", "play", "play some jazz please"),
        ("oos", "oos", "waar is de sleutel"),
    ];
    let test = lines(&folder, "test.jsonl", &test);
    let (train, test) = (train.to_str().expect("a path"), test.to_str().expect("a path"));

    let output = run(&["bench", "routing", "--train", train, "--test", test, "--output", "json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let row = &report["rows"][0];
    assert_eq!(row["capabilities"], 2, "what is out of scope is no capability: {row}");
    assert_eq!((&row["in_scope"], &row["out_of_scope"], &row["examples"]), (&json!(2), &json!(1), &json!(16)), "{row}");
    assert_eq!((&row["accuracy"], &row["recall"]), (&json!(100.0), &json!(100.0)), "{row}");
    for figure in ["/latency_us/p99", "/training_s", "/memory_bytes"] {
        assert!(row.pointer(figure).and_then(Value::as_f64).is_some_and(|figure| figure > 0.0), "{figure}: {row}");
    }

    let output = run(&["bench", "routing", "--train", train, "--test", test]);
    let table = stdout(&output);
    assert!(table.contains("100.00 % right of 2") && table.contains("100.00 % refused of 1"), "{table}");
}

#[test]
fn a_bench_of_routing_without_its_files_says_which_it_needs_and_which_line_is_wrong() {
    let refused = run(&["bench", "routing"]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    assert!(stderr(&refused).contains("--train FILE and --test FILE"), "{}", stderr(&refused));

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wrong.jsonl");
    std::fs::write(&path, "{\"text\":\"a\",\"domain\":\"b\",\"task_type\":\"c\"}\n{\"text\":1}\n").expect("a file");
    let path = path.to_str().expect("a path");
    let refused = run(&["bench", "routing", "--train", path, "--test", path]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    assert!(stderr(&refused).contains("line 2"), "{}", stderr(&refused));

    let refused = run(&["bench", "submit", "--train", path, "--test", path]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    assert!(stderr(&refused).contains("bench routing"), "{}", stderr(&refused));
}
