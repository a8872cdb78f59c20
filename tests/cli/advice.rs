//! What the command line says when something is wrong: in its own words, not in those of HTTP.

use std::path::Path;
use std::process::Output;

use crate::hub::{Hub, TOKEN, code, reach, stderr, stdout};

fn asked(hub: &Hub, variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = reach();
    command.env("REACH_URL", &hub.url).envs(variables.iter().copied()).args(args);
    command.output().expect("the binary starts")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A hub as in production: its admin token holds everywhere.
fn admin(data: &Path) -> Hub {
    let mut command = reach();
    command.arg("serve");
    Hub::start(command, data)
}

#[test]
fn a_token_that_is_missing_or_wrong_is_answered_with_the_ways_to_give_one() {
    let folder = folder();
    let hub = Hub::dev(&folder.path().join("data"));
    for variables in [[].as_slice(), &[("REACH_TOKEN", "a-token-that-nobody-knows")]] {
        for args in [["agents", "list"].as_slice(), &["status"], &["submit", "a.b"], &["events"]] {
            let refused = asked(&hub, variables, args);
            assert_eq!(code(&refused), 4, "{args:?}");
            let said = stderr(&refused);
            for way in ["--token-file", "REACH_TOKEN_FILE", "REACH_TOKEN "] {
                assert!(said.contains(way), "{args:?} does not name {way}: {said}");
            }
            assert!(!said.contains("Authorization"), "{said}");
        }
    }
}

#[test]
fn a_variable_that_is_empty_is_as_good_as_none() {
    let folder = folder();
    let hub = Hub::dev(&folder.path().join("data"));
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).expect("writable");
    let file = file.to_str().expect("UTF-8");
    for empty in ["REACH_TOKEN", "REACH_NAMESPACE"] {
        let listed = asked(&hub, &[(empty, ""), ("REACH_TOKEN_FILE", file)], &["agents", "list"]);
        assert_eq!(code(&listed), 0, "{empty}: {}", stderr(&listed));
    }
    let listed = asked(&hub, &[("REACH_TOKEN_FILE", ""), ("REACH_TOKEN", TOKEN)], &["agents", "list"]);
    assert_eq!(code(&listed), 0, "{}", stderr(&listed));
    let given = asked(&hub, &[("REACH_TOKEN_FILE", file)], &["agents", "list", "--token", ""]);
    assert!(code(&given) == 2 && stderr(&given).contains("the token is empty"), "{}", stderr(&given));
    std::fs::write(file, "\n").expect("writable");
    let hollow = asked(&hub, &[("REACH_TOKEN_FILE", file)], &["agents", "list"]);
    assert!(code(&hollow) == 4 && stderr(&hollow).contains(file), "{}", stderr(&hollow));
}

#[test]
fn a_namespace_that_is_missing_or_none_is_asked_for_by_the_option() {
    let folder = folder();
    let data = folder.path().join("data");
    let hub = admin(&data);
    let token = data.join("admin-token");
    let token = [("REACH_TOKEN_FILE", token.to_str().expect("UTF-8"))];
    let refused = asked(&hub, &token, &["tasks", "list"]);
    let said = stderr(&refused);
    assert_eq!(code(&refused), 2, "{said}");
    assert!(said.contains("--namespace") && said.contains("REACH_NAMESPACE"), "{said}");
    assert!(!said.to_lowercase().contains("header"), "{said}");
    assert_eq!(code(&asked(&hub, &token, &["tasks", "list", "--namespace", "acme"])), 0);
    let wrong = asked(&hub, &token, &["tasks", "list", "--namespace", "no/such"]);
    assert!(code(&wrong) == 2 && stderr(&wrong).contains("--namespace"), "{}", stderr(&wrong));
}

#[test]
fn what_is_not_there_is_named_and_where_to_look_too() {
    let folder = folder();
    let hub = Hub::dev(&folder.path().join("data"));
    hub.register("weather-1", "weather.forecast");
    let task = "reach_01m8nnzkk1evcsb5b2sv8d9zmf";
    for (args, named) in [
        (["tasks", "show", task].as_slice(), format!("task {task}")),
        (&["tasks", "cancel", task], format!("task {task}")),
        (&["agents", "show", "weather-2"], "agent weather-2".to_owned()),
        (&["agents", "remove", "weather-2"], "agent weather-2".to_owned()),
        (&["tokens", "revoke", "tok_9"], "token tok_9".to_owned()),
        (&["callbacks", "secrets", "remove", "travel"], "callback secret travel".to_owned()),
    ] {
        let refused = hub.reach(args);
        let said = stderr(&refused);
        assert_eq!(code(&refused), 3, "{args:?}: {said}");
        assert!(said.contains(&named) && said.contains("--namespace"), "{args:?}: {said}");
    }
    let unknown = hub.reach(&["explain", "weather.forcast"]);
    let said = stderr(&unknown);
    assert_eq!(code(&unknown), 3, "{said}");
    assert!(said.contains("weather.forcast") && said.contains("did you mean: weather.forecast"), "{said}");
    assert!(said.contains("reach agents list"), "{said}");
    let unknown = hub.reach(&["explain", "weather.forcast", "--output", "json"]);
    assert_eq!(code(&unknown), 3, "{}", stdout(&unknown));
}

#[test]
fn a_mistyped_field_is_answered_with_the_one_that_was_meant_and_said_once() {
    let folder = folder();
    let hub = Hub::dev(&folder.path().join("data"));
    let refused = hub.reach(&["submit", "a.b", "--set", "retry_onn=[]"]);
    let said = stderr(&refused);
    assert!(said.contains("did you mean: retry_on") && said.contains("idempotency_key"), "{said}");
    let refused = hub.reach(&["submit", "a.b", "--lifetime", "900d"]);
    let said = stderr(&refused);
    assert_eq!(said.matches("milliseconds").count(), 1, "{said}");
}

#[test]
fn a_batch_is_shown_line_by_line_and_a_repeat_says_that_it_is_one() {
    let folder = folder();
    let hub = Hub::dev(&folder.path().join("data"));
    hub.register("words-1", "text.words");
    let file = folder.path().join("tasks.ndjson");
    let lines = "{\"capability\":\"text.words\"}\n{\"capability\":\"text.wrds\"}\n{\"capability\":\"text.words\"}\n";
    std::fs::write(&file, lines).expect("writable");
    let submit = ["submit", "--batch", file.to_str().expect("UTF-8"), "--idempotency-key", "night-42"];
    let first = hub.reach(&submit);
    assert_eq!(code(&first), 1, "{}", stderr(&first));
    assert!(!stderr(&first).contains("before"), "{}", stderr(&first));
    let refusals = stderr(&first);
    assert!(refusals.contains("text.wrds") && refusals.contains("did you mean: text.words"), "{refusals}");
    let again = hub.reach(&submit);
    assert!(stderr(&again).contains("submitted before"), "{}", stderr(&again));
    let batch = stdout(&first).lines().nth(1).and_then(|line| line.split_whitespace().next()).map(str::to_owned);
    let batch = batch.expect("an id");
    assert!(stdout(&again).contains(&batch), "{}", stdout(&again));

    let shown = stdout(&hub.reach(&["batches", "show", &batch]));
    let outcomes = hub.json(&["batches", "show", &batch])["outcomes"].as_array().cloned().expect("outcomes");
    assert_eq!(outcomes.len(), 3);
    for outcome in outcomes {
        let id = outcome["reach_id"].as_str().unwrap_or("capability-not-registered");
        let on = shown.lines().filter(|line| line.contains(id)).collect::<Vec<_>>();
        assert!(on.len() == 1 && on[0].starts_with(&outcome["index"].to_string()), "{id} in {shown}");
    }
}

#[test]
fn a_single_repeat_says_that_it_is_one() {
    let folder = folder();
    let hub = Hub::dev(&folder.path().join("data"));
    hub.register("words-1", "text.words");
    let submit = ["submit", "text.words", "--idempotency-key", "one"];
    assert!(!stderr(&hub.reach(&submit)).contains("before"));
    assert!(stderr(&hub.reach(&submit)).contains("submitted before"));
}

#[test]
fn no_cell_of_a_table_is_blank() {
    let folder = folder();
    let hub = Hub::dev(&folder.path().join("data"));
    let made = hub.reach(&["tokens", "create", "--name", "caller", "--scope", "read"]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let listed = stdout(&hub.reach(&["tokens", "list"]));
    let cells = |line: &str| line.split("  ").filter(|cell| !cell.trim().is_empty()).count();
    let counts: Vec<usize> = listed.lines().map(cells).collect();
    assert!(counts.len() == 2 && counts[0] == counts[1], "{listed}");
}
