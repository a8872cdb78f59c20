//! With a hub.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::json;

use crate::hub::{Hub, TOKEN, code, reach, stderr, stdout, wait_until};

/// Of any disk that holds anything less than the whole is free: the mark stands above it, whatever machine this is.
#[test]
fn semantics_30_a_hub_below_its_mark_refuses_submits_and_the_mark_of_hubs_under_test_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let task = r#"{"capability":"idle.work","wait_for_agent":true}"#;
    let mut command = reach();
    command.env("REACH_DISK__LOW_MILLI", "1000").env("REACH_DEV_TOKEN", TOKEN).args(["serve", "--dev"]);
    let nearly_full = Hub::start(command, &folder.path().join("one"));
    wait_until("it has looked at the disk", || nearly_full.try_post("/v1/tasks", task).starts_with("HTTP/1.1 507"));
    assert_eq!(nearly_full.stop(), 0);
    let effective = reach().args(["config", "--effective"]).output().expect("starts");
    for key in ["low_bytes", "low_milli", "full_bytes", "full_milli"] {
        assert!(stdout(&effective).contains(&format!("{key} = 0\n")), "{}", stdout(&effective));
    }
}

#[test]
fn a_fresh_development_hub_prints_its_token_and_then_that_it_is_ready() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = reach();
    command.args(["serve", "--dev"]);
    let hub = Hub::start(command, &folder.path().join("data"));
    let token = hub.said.iter().find_map(|line| line.strip_prefix("token: ")).expect("a token line");
    assert!(token.len() >= 16);
    let output = reach().env("REACH_URL", &hub.url).env("REACH_TOKEN", token).args(["agents", "list"]).output();
    assert_eq!(code(&output.expect("starts")), 0);
    assert_eq!(hub.stop(), 0);
}

/// What scripts read from a pipe, as `grep '^ready: '`: the form of the logs, on stderr, is another matter.
#[test]
fn stdout_has_plain_token_admin_token_and_ready_lines_whatever_the_form_of_the_logs() {
    let folder = tempfile::tempdir().expect("a folder");
    for form in [None, Some("auto"), Some("json"), Some("text")] {
        let data = folder.path().join(form.unwrap_or("default"));
        let start = |dev: Option<&str>| {
            let mut command = reach();
            command.envs(form.map(|form| ("REACH_LOG__FORM", form))).arg("serve").args(dev);
            command.args(["--listen", "127.0.0.1:0", "--data"]).arg(&data).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().expect("starts");
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
            let said: Vec<String> = lines.take(2).collect();
            child.kill().expect("it runs");
            child.wait().expect("it ends");
            said
        };
        let said = start(None);
        let file = data.join("admin-token");
        assert_eq!(said[0], format!("admin token: written to {}", file.display()), "{form:?}: {said:?}");
        let address = said[1].strip_prefix("ready: http://127.0.0.1:").unwrap_or_default();
        assert!(address.parse::<u16>().is_ok_and(|port| port > 0), "{form:?}: {said:?}");
        let said = start(Some("--dev"));
        assert!(said[0].strip_prefix("token: ").is_some_and(|token| token.len() >= 16), "{form:?}: {said:?}");
        assert!(said[1].starts_with("ready: http://127.0.0.1:"), "{form:?}: {said:?}");
    }
}

#[test]
fn the_first_start_writes_an_admin_token_that_only_its_owner_can_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut command = reach();
    command.arg("serve");
    let hub = Hub::start(command, &data);
    let file = data.join("admin-token");
    assert!(hub.said.iter().any(|line| line.contains("admin-token")), "{:?}", hub.said);
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert_eq!(
        std::fs::metadata(&data).expect("it is there").permissions().mode() & 0o777,
        0o700,
        "payloads lie in it"
    );
    let mut command = reach();
    command.env("REACH_URL", &hub.url).env("REACH_NAMESPACE", "main").arg("--token-file").arg(&file);
    let made = command.args(["tokens", "create", "--name", "ops", "--scope", "read"]).output().expect("starts");
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let made = stdout(&made);
    let listed = reach()
        .env("REACH_URL", &hub.url)
        .env("REACH_TOKEN", made.trim())
        .args(["agents", "list", "--output", "json"])
        .output()
        .expect("starts");
    assert_eq!((code(&listed), stdout(&listed).as_str()), (0, "[]\n"), "{}", stderr(&listed));
}

#[test]
fn a_task_is_submitted_shown_cancelled_and_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    hub.register("idle-1", "idle.work");
    let submitted = hub.json(&["submit", "idle.work", "--payload", "{\"n\":1}", "--idempotency-key", "k1"]);
    let id = submitted["reach_id"].as_str().expect("an id");
    let again = hub.json(&["submit", "idle.work", "--payload", "{\"n\":1}", "--idempotency-key", "k1"]);
    assert_eq!((again["reach_id"].as_str(), &again["replayed"]), (Some(id), &json!(true)));
    assert_eq!(hub.json(&["tasks", "show", id])["state"], "queued");
    assert_eq!(hub.json(&["tasks", "list", "--state", "queued"]).as_array().map(Vec::len), Some(1));
    assert_eq!(hub.json(&["tasks", "payload", id]), json!({"n": 1}));
    let waited = hub.reach(&["tasks", "wait", id, "--timeout", "50ms"]);
    assert_eq!(code(&waited), 7, "{}", stderr(&waited));
    assert_eq!(hub.json(&["tasks", "cancel", id, "--reason", "test"])["state"], "cancelled");
    let ended = hub.reach(&["tasks", "wait", id]);
    assert_eq!(code(&ended), 6, "{}", stderr(&ended));
    let again = hub.reach(&["tasks", "cancel", id]);
    assert_eq!(code(&again), 5, "{}", stderr(&again));
    let timeline = stdout(&hub.reach(&["history", id]));
    assert!(timeline.contains("task-submitted") && timeline.contains("task-cancelled"), "{timeline}");
    let kinds = stdout(&hub.reach(&["events", "--kind", "task-cancelled"]));
    assert_eq!(kinds.lines().count(), 1, "{kinds}");
}

#[test]
fn a_wait_that_is_over_prints_the_task_with_its_id_and_ends_with_seven() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    hub.register("idle-1", "idle.work");
    let over = hub.reach(&["submit", "idle.work", "--payload", "1", "--wait", "1s", "--output", "json"]);
    assert_eq!(code(&over), 7, "{}", stderr(&over));
    let task: serde_json::Value = serde_json::from_str(&stdout(&over)).expect("JSON on stdout");
    let id = task["reach_id"].as_str().expect("an id");
    assert_eq!(task["state"], "queued", "{task}");
    assert!(stderr(&over).contains("\"timeout\"") && stderr(&over).contains(id), "{}", stderr(&over));
    let read = hub.reach(&["tasks", "wait", id, "--timeout", "50ms"]);
    assert!(code(&read) == 7 && stdout(&read).contains(id), "{}", stdout(&read));
    assert!(stderr(&read).contains(&format!("reach explain {id}")), "{}", stderr(&read));
}

#[test]
fn a_file_of_submissions_is_taken_and_its_refused_lines_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    hub.register("idle-1", "idle.work");
    let file = folder.path().join("batch.ndjson");
    std::fs::write(&file, "{\"capability\":\"idle.work\"}\n{\"capability\":\"no.body\"}\n").expect("writable");
    let output = hub.reach(&["submit", "--batch", file.to_str().expect("UTF-8"), "--output", "json"]);
    assert_eq!(code(&output), 1);
    let answer: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert!(answer["outcomes"][0]["reach_id"].is_string());
    assert_eq!(answer["outcomes"][1]["problem"]["code"], "capability-not-registered");
    let told = hub.reach(&["submit", "--batch", file.to_str().expect("UTF-8")]);
    assert!(stderr(&told).contains("index 1: capability-not-registered"), "{}", stderr(&told));
}

#[test]
fn refusals_have_their_exit_codes_and_say_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    hub.register("weather-1", "weather.forecast");
    let absent = hub.reach(&["tasks", "show", "reach_01kb0000000000000000000000"]);
    assert_eq!(code(&absent), 3, "{}", stderr(&absent));
    let wrong = reach().env("REACH_URL", &hub.url).env("REACH_TOKEN", "wrong").args(["agents", "list"]).output();
    assert_eq!(code(&wrong.expect("starts")), 4);
    let near = hub.reach(&["submit", "weather.forcast"]);
    assert_eq!(code(&near), 3);
    assert!(
        stderr(&near).contains("capability-not-registered") && stderr(&near).contains("weather.forecast"),
        "{}",
        stderr(&near)
    );
}

#[test]
fn smoke_says_how_many_came_through_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let report = hub.json(&["smoke"]);
    assert_eq!((&report["requests"], &report["succeeded"]), (&json!(10), &json!(10)), "{report}");
    let agents = hub.json(&["agents", "list"]);
    let active = agents.as_array().into_iter().flatten().filter(|agent| agent["standing"] == "active").count();
    assert_eq!(active, 0, "{agents}");
}

#[test]
fn a_stopped_ledger_verifies_and_a_running_one_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let hub = Hub::dev(&data);
    hub.register("idle-1", "idle.work");
    hub.json(&["submit", "idle.work"]);
    let path = data.to_str().expect("UTF-8");
    let busy = hub.reach(&["verify", "--data", path]);
    assert_eq!(code(&busy), 75, "{}", stdout(&busy));
    assert_eq!(hub.stop(), 0);
    let output = reach().args(["verify", "--output", "json", "--data", path]).output().expect("starts");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(report["sound"], true);
    assert!(report["events"].as_u64().is_some_and(|events| events >= 4), "{report}");
}

#[test]
fn policies_are_changed_with_a_reason_and_the_others_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let before = hub.json(&["policies", "show"]);
    let after = hub.json(&["policies", "set", "lane_bound=5000", "--reason", "test"]);
    assert_eq!(after["policy"]["lane_bound"], 5_000);
    assert_eq!(after["policy"]["lost_after"], before["policy"]["lost_after"]);
}

#[test]
fn a_callback_secret_is_shown_once_and_listed_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let secret = stdout(&hub.reach(&["callbacks", "secrets", "create", "travel"]));
    assert!(secret.starts_with("whsec_"), "{secret}");
    let listed = stdout(&hub.reach(&["callbacks", "secrets", "list"]));
    assert!(listed.contains("travel") && !listed.contains(secret.trim()), "{listed}");
}

#[test]
fn a_token_never_reaches_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let hub = Hub::dev(&data);
    hub.register("idle-1", "idle.work");
    hub.json(&["submit", "idle.work", "--payload", "\"a-secret-payload\""]);
    hub.stop();
    let log = std::fs::read_to_string(data.with_extension("log")).expect("a log");
    assert!(!log.contains(TOKEN) && !log.contains("a-secret-payload"));
}

#[test]
fn a_second_process_on_the_same_data_folder_is_refused_clearly_and_the_first_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let hub = Hub::dev(&data);
    let second = reach().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).output().expect("starts");
    assert_eq!(code(&second), 75);
    assert!(stderr(&second).contains("in use by another process"), "{}", stderr(&second));
    assert!(hub.json(&["agents", "list"]).is_array(), "the first one still answers");
    assert_eq!(hub.stop(), 0);
}

#[test]
fn an_unreadable_key_file_and_a_lost_ledger_are_told_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    assert_eq!(Hub::dev(&data).stop(), 0);
    let keys = data.join("keys");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o644)).expect("the file is ours");
    let open = reach().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).output().expect("starts");
    assert_eq!(code(&open), 77);
    assert!(stderr(&open).contains("keys"), "{}", stderr(&open));
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).expect("the file is ours");
    std::fs::remove_dir_all(data.join("ledger")).expect("the folder is ours");
    let lost = reach().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).output().expect("starts");
    assert_eq!(code(&lost), 65);
    let said = stderr(&lost);
    assert!(said.contains("reach verify") && said.contains("--accept-loss"), "{said}");
}

#[test]
fn routing_rules_are_weighed_set_shown_and_undone() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    hub.register("fast-1", "text.count");
    fn to<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["policies", "routing", "text.count"], more].concat()
    }
    let hashed = ["--strategy", "consistent-hash", "--weight", "fast-1=20"];
    let dry = stdout(&hub.reach(&to(&[hashed.as_slice(), &["--dry-run"]].concat())));
    assert!(dry.contains("0 of the last 0 decisions") && dry.contains("consistent-hash; weights fast-1 20"), "{dry}");
    assert_eq!(code(&hub.reach(&to(&hashed))), 2, "a reason is missing");
    assert_eq!(code(&hub.reach(&to(&["--reason", "nothing is said"]))), 2);
    let set = stdout(&hub.reach(&to(&[hashed.as_slice(), &["--reason", "a cache"]].concat())));
    assert!(set.lines().any(|line| line.split_whitespace().eq(["version", "1"])), "{set}");
    let shown = stdout(&hub.reach(&["policies", "show"]));
    assert!(shown.contains("text.count  1") && shown.contains("consistent-hash; weights fast-1 20"), "{shown}");
    let explained = stdout(&hub.reach(&["explain", "text.count"]));
    assert!(explained.contains("consistent-hash (rules, version 1)"), "{explained}");
    let wrong = hub.reach(&to(&["--weight", "fast-1=0", "--reason", "r"]));
    assert!(code(&wrong) == 2 && stderr(&wrong).contains("1 to 1,000"), "{}", stderr(&wrong));
    let wrong = hub.reach(&to(&["--strategy", "scord", "--reason", "r"]));
    assert!(code(&wrong) == 2 && stderr(&wrong).contains("did you mean scored?"), "{}", stderr(&wrong));
    let undone = hub.json(&to(&["--undo", "--reason", "no better"]));
    assert_eq!((&undone["version"], &undone["rules"]), (&serde_json::json!(2), &serde_json::Value::Null));
    assert_eq!(code(&hub.reach(&to(&["--undo", "--reason", "further"]))), 5);
}
