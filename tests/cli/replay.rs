//! Recovery through the binary: look first, order it, follow it, stop it, and what a mistake is answered.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hub::{Hub, TOKEN, code, reach, stderr, stdout};
use crate::incident::{agent, dead_letters, orphans, report, started, submitted, text, until};

/// A hub on which an incident has been.
struct Scene {
    hub: Hub,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn set() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let hub = Hub::dev(&folder.path().join("data"));
        agent(&hub, "mail-1", "mail.send", 3_600_000);
        Self { hub, _folder: folder }
    }

    /// Orders a plan of the dead letters; its id.
    fn planned(&self, rate: &str) -> String {
        let plan = ["replay", "plan", "--state", "dead-letter", "--rate", rate, "--reason", "the mail server is back"];
        text(&self.hub.json(&plan), "replay_id")
    }

    fn state(&self, plan: &str) -> String {
        text(&self.hub.json(&["replay", "show", plan]), "state")
    }
}

/// The words of a command line as a shell splits it.
fn words(line: &str) -> Vec<&str> {
    let pieces = line.split('\'').enumerate();
    pieces.flat_map(|(n, piece)| if n % 2 == 0 { piece.split_whitespace().collect() } else { vec![piece] }).collect()
}

#[test]
fn a_dry_run_tells_what_would_be_done_and_does_nothing_and_its_command_does_it() {
    let scene = Scene::set();
    let letters = dead_letters(&scene.hub, "mail-1", "mail.send", 12);
    let held = orphans(&scene.hub, "gone-1", "gone.work", 3);

    let dry = ["replay", "plan", "--state", "dead-letter,orphaned", "--submitted-after", "1h", "--rate", "500"];
    let output = scene.hub.reach(&[&dry[..], &["--reason", "it is back", "--dry-run"]].concat());
    let said = stdout(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for told in ["12 tasks", "12 dead-letter", "12 redrive", "by submission", "at 500 a second", "may-have-run"] {
        assert!(said.contains(told), "no {told:?} in {said}");
    }
    assert!(said.contains(&letters[0]) && !said.contains(&letters[11]), "a sample is ten: {said}");
    assert!(said.contains("3 and not declared idempotent, left alone"), "{said}");
    assert_eq!(scene.hub.json(&["replay", "list"]), json!([]), "a dry run keeps nothing");
    assert_eq!(scene.hub.json(&["tasks", "show", &letters[0]])["state"], "dead-letter");

    let start = said.lines().last().expect("the command that starts it");
    assert!(start.starts_with("reach replay plan --state") && !start.contains("1h"), "{start}");
    let started = scene.hub.reach(&words(start)[1..]);
    assert_eq!(code(&started), 0, "{start}: {}", stderr(&started));
    let plan = scene.hub.json(&["replay", "list"])[0]["replay_id"].as_str().expect("one plan").to_owned();
    assert!(
        stdout(&started).contains(&plan) && stderr(&started).contains("reach replay watch"),
        "{}",
        stderr(&started)
    );

    let watched = scene.hub.reach(&["replay", "watch", &plan]);
    assert_eq!(code(&watched), 0, "{}", stderr(&watched));
    let last = stdout(&watched).lines().last().map(str::to_owned).expect("lines");
    assert!(last.starts_with("completed") && last.contains("12 redriven, 0 skipped, 0 pending of 12"), "{last}");

    let items = scene.hub.json(&["replay", "items", &plan, "--outcome", "redriven"]);
    let items = items.as_array().expect("a list");
    let ids: Vec<&str> = items.iter().filter_map(|item| item["reach_id"].as_str()).collect();
    assert_eq!(ids, letters, "all, by submission");
    let successor = items[0]["redriven_as"].as_str().expect("a new task");
    assert_eq!(scene.hub.json(&["tasks", "show", successor])["redrive_of"], json!(letters[0]));
    until(&scene.hub, &held, "orphaned");
}

#[test]
fn a_plan_is_paused_made_faster_resumed_and_watched_to_its_end_in_lines_of_json() {
    let scene = Scene::set();
    dead_letters(&scene.hub, "mail-1", "mail.send", 30);
    let plan = scene.planned("1");
    let paused = scene.hub.reach(&["replay", "pause", &plan, "--reason", "a look"]);
    assert_eq!(code(&paused), 0, "{}", stderr(&paused));
    assert!(stderr(&paused).contains("reach replay resume"), "{}", stderr(&paused));
    let before = scene.hub.json(&["replay", "show", &plan]);
    assert_eq!(before["state"], "paused");
    assert!(before["pending"].as_u64().is_some_and(|pending| pending >= 20), "one a second, and few seconds: {before}");

    assert_eq!(scene.hub.json(&["replay", "rate", &plan, "500"])["rate_per_s"], 500);
    assert_eq!(scene.state(&plan), "paused");
    assert_eq!(scene.hub.json(&["replay", "resume", &plan])["replay_id"], json!(plan));
    let watched = scene.hub.reach(&["replay", "watch", &plan, "--output", "json"]);
    assert_eq!(code(&watched), 0, "{}", stderr(&watched));
    let views: Vec<Value> = stdout(&watched).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = views.last().expect("at least one");
    assert_eq!((&last["state"], &last["redriven"], &last["pending"]), (&json!("completed"), &json!(30), &json!(0)));
    let again = scene.hub.reach(&["replay", "pause", &plan]);
    assert_eq!(code(&again), 5, "{}", stderr(&again));
    assert!(stderr(&again).contains("replay-ended"), "{}", stderr(&again));
}

#[test]
fn a_cancelled_plan_ends_its_watch_with_6_and_leaves_the_rest_as_it_is() {
    let scene = Scene::set();
    dead_letters(&scene.hub, "mail-1", "mail.send", 30);
    let plan = scene.planned("1");
    let cancelled = scene.hub.json(&["replay", "cancel", &plan, "--reason", "the wrong hour"]);
    assert_eq!(cancelled["state"], "cancelled");
    let watched = scene.hub.reach(&["replay", "watch", &plan]);
    assert_eq!(code(&watched), 6, "{}", stderr(&watched));
    assert!(stdout(&watched).starts_with("cancelled"), "{}", stdout(&watched));
    let left = scene.hub.json(&["tasks", "list", "--state", "dead-letter"]);
    assert_eq!(left.as_array().map(Vec::len), Some(30), "what went was made anew, nothing else became of any");
    let listed = stdout(&scene.hub.reach(&["replay", "list", "--state", "cancelled"]));
    assert!(listed.contains(&plan) && listed.contains("the mail server is back"), "{listed}");
}

#[test]
fn whoever_stops_watching_leaves_the_plan_running_and_is_told_so() {
    let scene = Scene::set();
    dead_letters(&scene.hub, "mail-1", "mail.send", 30);
    let plan = scene.planned("1");
    let mut watch = reach()
        .env("REACH_URL", &scene.hub.url)
        .env("REACH_TOKEN", TOKEN)
        .args(["replay", "watch", &plan])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let first = lines.next().expect("a line");
    assert!(first.starts_with("running") && first.contains("of 30") && first.contains("to go"), "{first}");
    kill_process(Pid::from_child(&watch), Signal::INT).expect("it runs");
    let rest = lines.count();
    let ended = watch.wait_with_output().expect("it ends");
    assert_eq!(code(&ended), 7, "after {rest} more lines: {}", stderr(&ended));
    assert!(stderr(&ended).contains("goes on") && stderr(&ended).contains("reach replay pause"), "{}", stderr(&ended));
    assert_eq!(scene.state(&plan), "running");
}

#[test]
fn a_mistake_has_its_exit_code_and_says_what_to_do() {
    let scene = Scene::set();
    let plan = ["replay", "plan"];
    let why = ["--reason", "r"];
    for (args, expected, told) in [
        (&[&plan[..], &["--state", "failed"]].concat()[..], 2, "--reason"),
        (&[&plan[..], &why, &["--state", "succeeded"]].concat(), 2, "dead-letter"),
        (&[&plan[..], &why, &["--failure-class", "nope"]].concat(), 2, "agent-crash"),
        (&[&plan[..], &why, &["--submitted-after", "yesterday"]].concat(), 2, "RFC 3339"),
        (&[&plan[..], &why, &["--rate", "0"]].concat(), 2, "--rate"),
        (&[&plan[..], &why].concat(), 2, "/select"),
        (&[&plan[..], &why, &["--agent", "nobody"]].concat(), 3, "replay-empty"),
        (&["replay", "watch", "replay_01m8nnzkk1evcsb5b2sv8d9zmf"], 3, "replay"),
        (&["replay", "rate", "replay_01m8nnzkk1evcsb5b2sv8d9zmf", "fast"], 2, "fast"),
        (&["replay", "items", "replay_01m8nnzkk1evcsb5b2sv8d9zmf", "--outcome", "nope"], 2, "redriven"),
    ] {
        let refused = scene.hub.reach(args);
        let said = stderr(&refused);
        assert_eq!(code(&refused), expected, "{args:?}: {said}");
        assert!(said.contains(told), "{args:?}: {said}");
    }
    let reader = stdout(&scene.hub.reach(&["tokens", "create", "--name", "r", "--scope", "read"]));
    let mut command = reach();
    command.env("REACH_URL", &scene.hub.url).env("REACH_TOKEN", reader.trim());
    let refused = command.args(["replay", "plan", "--state", "failed", "--dry-run"]).output().expect("starts");
    assert!(code(&refused) == 4 && stderr(&refused).contains("operate"), "{}", stderr(&refused));
}

#[test]
fn a_code_that_nothing_bears_comes_with_the_one_that_was_meant_in_a_list_and_in_a_dry_run() {
    let scene = Scene::set();
    dead_letters(&scene.hub, "mail-1", "mail.send", 2);
    let found = scene.hub.json(&["tasks", "list", "--failure-code", "smtp-down,else"]);
    assert_eq!(found.as_array().map(Vec::len), Some(2), "{found}");
    let told = "--failure-code: no task was found that ended with smtp-dwn, or whose last attempt failed with it; \
                did you mean smtp-down?";
    let none = scene.hub.reach(&["tasks", "list", "--failure-code", "smtp-dwn"]);
    assert!(code(&none) == 0 && stderr(&none).contains(told), "{}", stderr(&none));
    let plan = ["replay", "plan", "--state", "dead-letter", "--failure-code", "smtp-dwn", "--dry-run"];
    let none = scene.hub.reach(&plan);
    assert!(code(&none) == 0 && stdout(&none).contains(told), "{}", stdout(&none));
    let other = scene.hub.reach(&["tasks", "show", "replay_01m8nnzkk1evcsb5b2sv8d9zmf"]);
    assert!(code(&other) == 3 && stderr(&other).contains("that is the id of a replay plan"), "{}", stderr(&other));
}

#[test]
fn one_task_is_redriven_once_and_one_orphan_is_decided() {
    let scene = Scene::set();
    let letter = dead_letters(&scene.hub, "mail-1", "mail.send", 1).remove(0);
    let held = orphans(&scene.hub, "gone-1", "gone.work", 2);

    let redrive = ["tasks", "redrive", &letter, "--reason", "address mended", "--payload", "{\"to\":\"b\"}"];
    let redriven = scene.hub.json(&redrive);
    assert_eq!(redriven["redrive_of"], json!(letter));
    let successor = redriven["reach_id"].as_str().expect("a new task");
    assert_eq!(scene.hub.json(&["tasks", "payload", successor]), json!({"to": "b"}));
    let history = stdout(&scene.hub.reach(&["history", successor]));
    assert!(history.contains(&format!("made of {letter}, with another payload: address mended")), "{history}");
    let shown = stdout(&scene.hub.reach(&["tasks", "show", successor]));
    assert!(shown.contains("redrive.payload") && shown.contains("replaced"), "{shown}");
    let explained = stdout(&scene.hub.reach(&["explain", &letter]));
    assert!(explained.contains(&format!("made anew as {successor}")), "{explained}");
    let again = scene.hub.reach(&["tasks", "redrive", &letter, "--reason", "r"]);
    assert_eq!(code(&again), 5, "{}", stderr(&again));
    assert!(
        stderr(&again).contains("already-redriven") && stderr(&again).contains("reach tasks show"),
        "{}",
        stderr(&again)
    );

    let resolve =
        |task: &str, how: &str| scene.hub.reach(&["tasks", "resolve", task, how, "--reason", "its machine is gone"]);
    let failed = resolve(&held[0], "fail");
    assert_eq!(code(&failed), 0, "{}", stderr(&failed));
    assert_eq!(scene.hub.json(&["tasks", "show", &held[0]])["state"], "dead-letter");
    let handed = resolve(&held[1], "hand-over");
    assert_eq!(code(&handed), 0, "{}", stderr(&handed));
    until(&scene.hub, &held[1..], "queued");
    let late = resolve(&held[1], "fail");
    assert!(code(&late) == 5 && stderr(&late).contains("not-resolvable"), "{}", stderr(&late));
    assert_eq!(code(&resolve(&held[1], "nope")), 2);
}

#[test]
fn the_status_names_plans_under_way_and_what_waits_for_a_decision() {
    let scene = Scene::set();
    dead_letters(&scene.hub, "mail-1", "mail.send", 30);
    orphans(&scene.hub, "gone-1", "gone.work", 2);
    let plan = scene.planned("1");
    let status = stdout(&scene.hub.reach(&["status"]));
    assert!(status.contains("2 held for a decision"), "{status}");
    assert!(status.contains(&format!("reach replay watch {plan}")) && status.contains("pending of 30"), "{status}");
    scene.hub.json(&["replay", "pause", &plan]);
    let status = scene.hub.json(&["status"]);
    assert_eq!(status["orphans"], json!({"waiting": 0, "held": 2, "superseded": 0, "more": false}));
    assert_eq!((&status["replays"][0]["replay_id"], &status["replays"][0]["state"]), (&json!(plan), &json!("paused")));
    let status = stdout(&scene.hub.reach(&["status"]));
    assert!(status.contains(&format!("reach replay show {plan}")), "{status}");
}

#[test]
fn a_patch_from_a_file_or_the_line_is_shown_before_and_after_and_frozen_in_its_plan() {
    let scene = Scene::set();
    let payload = json!({"payload": {"to": "ann", "smtp": {"host": "mail-1", "port": 25}}});
    let ids = submitted(&scene.hub, "mail.send", 2, &payload);
    let held = started(&scene.hub, "mail-1", 2);
    let error = json!({"code": "no-such-host", "message": "mail-1"});
    report(&scene.hub.url, "mail-1", &held, &json!({"op": "fail", "error": error, "retryable": false}));
    until(&scene.hub, &ids, "failed");
    let file = scene._folder.path().join("patch.json");
    std::fs::write(&file, r#"{"smtp":{"host":"mail-2"}}"#).expect("writable");
    let file = file.display().to_string();

    let chosen = ["replay", "plan", "--state", "failed", "--failure-code", "no-such-host", "--payload-patch"];
    let output = scene.hub.reach(&[&chosen[..], &[&file, "--dry-run"]].concat());
    let said = stdout(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let after = r#"after    {"smtp":{"host":"mail-2","port":25},"to":"ann"}"#;
    for told in ["2 tasks", "2 accepted by today's schemas, 0 left alone", "before   {", after, "--payload-patch"] {
        assert!(said.contains(told), "no {told:?} in {said}");
    }
    let wrong = scene.hub.reach(&[&chosen[..], &["no-such-file.json", "--dry-run"]].concat());
    assert_eq!(code(&wrong), 2, "{}", stderr(&wrong));

    let line = [r#"{"smtp":{"host":"mail-2"}}"#, "--reason", "mail-1 is gone"];
    let plan = text(&scene.hub.json(&[&chosen[..], &line].concat()), "replay_id");
    scene.hub.json(&["replay", "watch", &plan]);
    let shown = scene.hub.json(&["replay", "show", &plan]);
    assert_eq!((&shown["redriven"], &shown["payload_patch"]["smtp"]["host"]), (&json!(2), &json!("mail-2")), "{shown}");
    let items = scene.hub.json(&["replay", "items", &plan]);
    let made = text(&items[0], "redriven_as");
    let payload = stdout(&scene.hub.reach(&["tasks", "payload", &made]));
    assert!(payload.contains("mail-2") && payload.contains("25"), "{payload}");
}
