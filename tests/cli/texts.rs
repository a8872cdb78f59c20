//! The small texts of the command line: what a table leaves out, how a command ends, what an empty answer says.

use serde_json::json;

use crate::hub::{Hub, code, reach, run, stderr, stdout};

fn hub() -> (Hub, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    (Hub::dev(&folder.path().join("data")), folder)
}

#[test]
fn on_eighty_columns_an_id_is_whole_and_in_a_pipe_everything_is() {
    let (hub, _folder) = hub();
    let agent = "weather-forecast-of-the-north-1";
    hub.register(agent, "weather.forecast.of-tomorrow-and-the-week");
    let task = hub.json(&["submit", "weather.forecast.of-tomorrow-and-the-week", "--session", "travel"]);
    let id = task["reach_id"].as_str().expect("an id").to_owned();
    let list = hub.on_a_terminal(80, &["tasks", "list"]);
    assert!(list.contains(&id) && list.contains('…') && !list.contains("FAILURE"), "{list}");
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
    assert!(hub.on_a_terminal(80, &["agents", "list"]).contains(agent));
    let events = hub.on_a_terminal(80, &["events"]);
    assert!(events.contains(&id) && events.contains("queued for weather.forecast.of-tomorrow"), "{events}");
    assert!(events.lines().all(|line| line.chars().count() <= 80), "{events}");
    let mut piped = reach();
    piped.env("REACH_URL", &hub.url).env("REACH_TOKEN", crate::hub::TOKEN).env("COLUMNS", "60");
    let piped = stdout(&piped.args(["tasks", "list"]).output().expect("the binary starts"));
    assert!(piped.contains(&id) && piped.contains("of-tomorrow-and-the-week") && piped.contains("FAILURE"), "{piped}");
}

#[test]
fn a_command_to_paste_stands_whole_on_its_own_line_where_there_is_no_room_beside() {
    let (hub, _folder) = hub();
    hub.register("a-1", "a.b");
    let offer = json!({"capability": "s.t", "sensitive": true});
    let body = json!({"agent_id": "s-1", "transport": {"kind": "pull"}, "capabilities": [offer]});
    hub.post("/v1/agents", &body.to_string());
    let id = hub.json(&["submit", "s.t"])["reach_id"].as_str().expect("an id").to_owned();
    let narrow = hub.on_a_terminal(60, &["status"]);
    assert!(narrow.contains(&format!("\n    reach explain {id}\n")), "{narrow}");
    let wide = hub.on_a_terminal(120, &["status"]);
    assert!(wide.contains("LOOK AT") && wide.contains(&format!("  reach explain {id}")), "{wide}");
}

#[test]
fn a_value_that_the_hub_does_not_take_is_a_wrong_call_too() {
    let (hub, folder) = hub();
    hub.register("a-1", "a.b");
    let task = hub.json(&["submit", "a.b"])["reach_id"].as_str().expect("an id").to_owned();
    for (args, expected) in [
        (["submit", "a.b", "--lifetime", "900d"].as_slice(), 2),
        (&["submit", "a.b", "--set", "colour=red"], 2),
        (&["tasks", "list", "--since", "1h", "--until", "2h"], 2),
        (&["policies", "set", "lane_bound=0", "--reason", "r"], 2),
        (&["tasks", "show", "reach_01m8nnzkk1evcsb5b2sv8d9zmf"], 3),
        (&["tasks", "list", "--token", "a-token-that-nobody-knows"], 4),
        (&["tasks", "approve", &task], 5),
        (&["tasks", "wait", &task, "--timeout", "0s"], 7),
        (&["tasks", "list", "--url", "http://127.0.0.1:1"], 8),
    ] {
        let output = hub.reach(args);
        assert_eq!(code(&output), expected, "{args:?}: {}", stderr(&output));
    }
    let lines: String = (0..300).map(|_| "{\"capability\":\"a.b\",\"colour\":1}\n").collect();
    let file = folder.path().join("tasks.ndjson");
    std::fs::write(&file, lines).expect("writable");
    let batch = ["submit", "--batch", file.to_str().expect("UTF-8")];
    let refused = hub.reach(&batch);
    assert_eq!(code(&refused), 1);
    let said = stderr(&refused);
    assert!(said.lines().count() < 8 && said.contains("300 lines, index 0, 1, 2, 3, 4, …: unknown-field"), "{said}");
    let whole = hub.reach(&[&batch[..], &["--output", "json"]].concat());
    assert_eq!(stdout(&whole).matches("unknown-field").count() / 300, 2, "code and type of every line");
}

#[test]
fn a_token_is_called_by_its_name_and_its_id_is_in_json() {
    let (hub, _folder) = hub();
    hub.register("a-1", "a.b");
    let made = hub.json(&["tokens", "create", "--name", "night-desk", "--scope", "submit,read,operate"]);
    let (token, id) = (made["token"].as_str().expect("a token"), &made["token_id"]);
    let task = hub.json(&["submit", "a.b", "--token", token])["reach_id"].as_str().expect("an id").to_owned();
    let history = stdout(&hub.reach(&["history", &task]));
    assert!(history.contains("  night-desk  "), "{history}");
    let event = &hub.json(&["history", &task])["events"][0];
    assert_eq!(event["actor"], json!({"kind": "token", "token_id": id, "name": "night-desk"}), "{event}");
    let set = hub.reach(&["policies", "set", "lane_bound=5000", "--reason", "friday", "--token", token]);
    assert_eq!(code(&set), 0, "{}", stderr(&set));
    let events = stdout(&hub.reach(&["events", "--kind", "policy-changed"]));
    assert!(events.contains("friday; by night-desk"), "{events}");
}

#[test]
fn a_feed_that_has_nothing_says_where_was_looked_and_how_to_look_further() {
    let (hub, _folder) = hub();
    hub.register("a-1", "a.b");
    let output = hub.reach(&["events", "--agent", "a-2"]);
    let said = stderr(&output);
    assert!(code(&output) == 0 && stdout(&output).is_empty(), "{said}");
    assert!(said.starts_with("none of the 3 events after #0, since 20"), "{said}");
    let said = stderr(&hub.reach(&["events", "--agent", "a-2", "--last", "1"]));
    assert!(said.contains("--last 100000") && said.contains("--after 0"), "{said}");
    assert_eq!(stderr(&hub.reach(&["events", "--agent", "a-2", "--quiet"])), "");
    assert_eq!(stderr(&hub.reach(&["events", "--agent", "a-2", "--output", "json"])), "");
}

#[test]
fn tasks_are_listed_by_the_time_of_their_submission() {
    let (hub, _folder) = hub();
    hub.register("a-1", "a.b");
    let task = hub.json(&["submit", "a.b"])["reach_id"].as_str().expect("an id").to_owned();
    assert!(stdout(&hub.reach(&["tasks", "list", "--since", "1h"])).contains(&task));
    assert!(stdout(&hub.reach(&["tasks", "list", "--since", "2026-01-01T00:00:00Z"])).contains(&task));
    let before = hub.reach(&["tasks", "list", "--until", "1h"]);
    assert!(stdout(&before).is_empty() && stderr(&before).contains("none"), "{}", stderr(&before));
    let naive = hub.reach(&["tasks", "list", "--since", "2026-01-01T00:00:00"]);
    assert!(code(&naive) == 2 && stderr(&naive).contains("RFC 3339"), "{}", stderr(&naive));
}

#[test]
fn a_command_that_stands_further_below_is_pointed_to() {
    for (word, meant) in
        [("drain", "reach agents drain"), ("redrive", "reach tasks redrive"), ("rotate", "reach tokens rotate")]
    {
        let output = run(&[word]);
        assert!(code(&output) == 2 && stderr(&output).contains(meant), "{word}: {}", stderr(&output));
        assert!(!stderr(&output).contains("repair"), "{word}: {}", stderr(&output));
    }
}
