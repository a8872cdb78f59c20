//! What somebody meets who does not know the hub yet: a name that is misspelt, an option that is forgotten, work that
//! nobody can take.

use serde_json::json;

use crate::hub::{Hub, TOKEN, code, reach, run, stderr, stdout};
use crate::incident::{agent, dead_letters, text};

fn hub() -> (Hub, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    (Hub::dev(&folder.path().join("data")), folder)
}

#[test]
fn work_that_nobody_can_take_is_told_by_status_with_the_command_that_says_why() {
    let (hub, _folder) = hub();
    hub.register("a-1", "a.b");
    let waits = text(&hub.json(&["submit", "a.b", "--payload", "1"]), "reach_id");
    let status = stdout(&hub.reach(&["status"]));
    assert!(!status.contains("no agent can take"), "an agent that will ask again only lets it wait: {status}");

    let alone = text(&hub.json(&["submit", "no.body", "--payload", "1", "--wait-for-agent"]), "reach_id");
    assert_eq!(code(&hub.reach(&["agents", "offline", "a-1"])), 0);
    let status = stdout(&hub.reach(&["status"]));
    for (capability, id) in [("a.b", &waits), ("no.body", &alone)] {
        let told = format!("1 task of {capability} that no agent can take, queued for ");
        let line = status.lines().find(|line| line.contains(&told)).unwrap_or_else(|| panic!("{told}: {status}"));
        assert!(line.contains("nobody offers it") && line.contains(&format!("reach explain {id}")), "{line}");
    }
    let unserved = hub.json(&["status"])["unserved"].clone();
    assert_eq!((&unserved["tasks"], &unserved["more"]), (&json!(2), &json!(false)), "{unserved}");
    assert_eq!(unserved["capabilities"][0]["reach_id"], waits, "the one that waits longest comes first: {unserved}");
}

#[test]
fn a_capability_that_was_offered_until_its_last_agent_left_is_no_riddle() {
    let (hub, _folder) = hub();
    hub.register("a-1", "a.b");
    let never = stderr(&hub.reach(&["submit", "a.c", "--payload", "1"]));
    assert!(never.contains("no agent offers a.c\n") && never.contains("suggestions"), "{never}");
    assert_eq!(code(&hub.reach(&["agents", "remove", "a-1"])), 0);
    let refused = hub.reach(&["submit", "a.b", "--payload", "1"]);
    let said = stderr(&refused);
    assert_eq!(code(&refused), 3, "{said}");
    assert!(said.contains("no agent offers a.b now; a-1 offered it until 20"), "{said}");
    assert!(said.contains("drained or removed") && said.contains("Bring an agent for it back"), "{said}");
    let listed = hub.reach(&["agents", "list"]);
    assert!(
        stderr(&listed).contains("1 deregistered: `reach agents list --standing deregistered`"),
        "{}",
        stderr(&listed)
    );
    let gone = stdout(&hub.reach(&["agents", "list", "--standing", "deregistered"]));
    assert!(gone.contains("a-1") && !gone.contains("healthy"), "{gone}");
}

#[test]
fn a_namespace_where_nothing_ever_was_is_told_with_the_one_that_was_meant() {
    let (hub, _folder) = hub();
    let fresh = stdout(&hub.reach(&["status"]));
    assert!(fresh.contains("nothing was ever in the namespace dev: check the name"), "{fresh}");
    hub.register("a-1", "a.b");
    assert!(!stdout(&hub.reach(&["status"])).contains("nothing was ever"));
    let told = "nothing was ever in the namespace dve: did you mean dev?";
    let status = stdout(&hub.reach(&["status", "--namespace", "dve"]));
    assert!(status.contains(told) && status.contains("reach status --namespace dev"), "{status}");
    for list in [["tasks", "list"], ["agents", "list"], ["callbacks", "list"], ["replay", "list"]] {
        let said = stderr(&hub.reach(&[&list[..], &["--namespace", "dve"]].concat()));
        assert!(said.contains("none") && said.contains(told), "{list:?}: {said}");
        let said = stderr(&hub.reach(&[&list[..], &["--namespace", "dve", "--quiet"]].concat()));
        assert_eq!(said, "", "{list:?}");
    }
    assert!(!stderr(&hub.reach(&["tasks", "list"])).contains("nothing was ever"), "an agent was there");
}

#[test]
fn a_misspelt_namespace_is_told_wherever_something_is_looked_for_in_vain() {
    let (hub, _folder) = hub();
    hub.register("a-1", "a.b");
    let told = "nothing was ever in the namespace dve: did you mean dev?";
    let task = text(&hub.json(&["submit", "a.b", "--payload", "1"]), "reach_id");
    for (args, exit) in [
        (["events"].as_slice(), 0),
        (&["replay", "plan", "--state", "failed", "--dry-run"], 0),
        (&["replay", "plan", "--state", "failed", "--reason", "r"], 3),
        (&["submit", "a.b", "--payload", "1"], 3),
        (&["explain", "a.b"], 3),
        (&["explain", &task], 3),
        (&["agents", "drain", "a-1"], 3),
        // Here the namespace comes to be, so that it is told only once.
        (&["submit", "a.b", "--payload", "1", "--wait-for-agent"], 0),
    ] {
        let misspelt = hub.reach(&[args, &["--namespace", "dve"]].concat());
        let said = stderr(&misspelt);
        assert!(code(&misspelt) == exit && said.contains(told), "{args:?}: {said}");
        let right = hub.reach(args);
        assert!(!stderr(&right).contains("nothing was ever"), "{args:?}: {}", stderr(&right));
    }
    assert!(!stderr(&hub.reach(&["explain", "a.c", "--namespace", "dve"])).contains("nothing was ever"));
    // A script reads one JSON document from stderr.
    let refused = hub.reach(&["submit", "x.y", "--namespace", "dvv", "--output", "json"]);
    assert!(serde_json::from_str::<serde_json::Value>(&stderr(&refused)).is_ok(), "{}", stderr(&refused));
}

#[test]
fn rules_of_a_capability_that_nobody_offers_come_with_the_one_that_was_meant() {
    let (hub, _folder) = hub();
    hub.register("a-1", "ocr.read");
    let set = |name: &str| ["policies", "capability", name, "--slow-reach", "wait", "--reason", "r"].map(str::to_owned);
    let asked = |name: &str| hub.reach(&set(name).each_ref().map(String::as_str));
    let slip = stderr(&asked("ocr.raed"));
    assert!(slip.contains("warning: nobody offers ocr.raed now; did you mean ocr.read?"), "{slip}");
    assert!(!stderr(&asked("ocr.read")).contains("warning"));
}

#[test]
fn a_usage_line_asks_for_what_is_missing_and_not_for_what_the_environment_says() {
    let variables = [("REACH_URL", "http://127.0.0.1:1"), ("REACH_TOKEN", TOKEN), ("REACH_NAMESPACE", "acme")];
    for args in [["tasks", "show"].as_slice(), &["tasks", "list", "--sate", "queued"], &["agents", "breaker", "a-1"]] {
        let output = reach().envs(variables).args(args).output().expect("the binary starts");
        let said = stderr(&output);
        assert_eq!(code(&output), 2, "{args:?}: {said}");
        assert!(said.contains("Usage: reach "), "{args:?}: {said}");
        for option in ["--url", "--token", "--namespace"] {
            assert!(!said.contains(option), "{args:?} is asked for {option}: {said}");
        }
    }
    let wrong = reach().env("REACH_NAMESPACE", "no/such").args(["tasks", "list"]).output().expect("the binary starts");
    assert!(code(&wrong) == 2 && stderr(&wrong).contains("no/such"), "{}", stderr(&wrong));
}

#[test]
fn an_address_without_http_is_answered_with_the_whole_one() {
    for address in ["127.0.0.1:7676", "localhost:7676"] {
        let output = run(&["status", "--url", address]);
        let told = format!("--url {address}: an address begins with http:// or https://, as in http://{address}");
        assert!(code(&output) == 2 && stderr(&output).contains(&told), "{}", stderr(&output));
    }
}

#[test]
fn a_refusal_has_its_code_and_no_number_of_http() {
    let (hub, _folder) = hub();
    for args in [["submit", "a.b"].as_slice(), &["agents", "show", "a-1"], &["submit", "a.b", "--lifetime", "900d"]] {
        let said = stderr(&hub.reach(args));
        assert!(said.contains("error: "), "{args:?}: {said}");
        for number in ["(404)", "(422)", "(409)"] {
            assert!(!said.contains(number), "{args:?}: {said}");
        }
    }
}

#[test]
fn a_task_without_a_payload_is_submitted_and_noticed() {
    let (hub, _folder) = hub();
    hub.register("a-1", "a.b");
    let told = "no --payload: the task carries none, its agent gets null";
    let bare = hub.reach(&["submit", "a.b"]);
    assert!(code(&bare) == 0 && stderr(&bare).contains(told), "{}", stderr(&bare));
    for args in [["submit", "a.b", "--payload", "null"], ["submit", "a.b", "--set", "payload={}"]] {
        assert_eq!(stderr(&hub.reach(&args)), "", "{args:?}");
    }
    assert_eq!(stderr(&hub.reach(&["submit", "a.b", "--quiet"])), "");
    assert_eq!(stderr(&hub.reach(&["submit", "a.b", "--output", "json"])), "");
}

#[test]
fn times_are_named_alike_wherever_tasks_are_chosen() {
    let (hub, _folder) = hub();
    hub.register("a-1", "a.b");
    let id = text(&hub.json(&["submit", "a.b", "--payload", "1"]), "reach_id");
    for (after, before) in [("--submitted-after", "--submitted-before"), ("--since", "--until")] {
        assert!(stdout(&hub.reach(&["tasks", "list", after, "1h"])).contains(&id), "{after}");
        assert!(stdout(&hub.reach(&["tasks", "list", before, "1h"])).is_empty(), "{before}");
        let dry = hub.reach(&["replay", "plan", "--dry-run", "--state", "failed", after, "2h", before, "1h"]);
        let said = stdout(&dry) + &stderr(&dry);
        assert!(code(&dry) == 0 && !said.contains("2h"), "moments are fixed in the command that starts it: {said}");
    }
}

#[test]
fn a_plan_is_resumed_with_a_reason_and_plans_fit_a_narrow_terminal() {
    let (hub, folder) = hub();
    agent(&hub, "mail-1", "mail.send", 3_600_000);
    dead_letters(&hub, "mail-1", "mail.send", 30);
    let patch = folder.path().join("patch.json");
    std::fs::write(&patch, "{\"to\":\"ann\"}").expect("writable");
    let patch = format!("@{}", patch.display());
    let order =
        ["replay", "plan", "--state", "dead-letter", "--rate", "1", "--reason", "a reason of some length, to be cut"];
    let dry = hub.reach(&[&order[..], &["--payload-patch", &patch, "--dry-run"]].concat());
    assert_eq!(code(&dry), 0, "{}", stderr(&dry));
    let plan = text(&hub.json(&order), "replay_id");
    assert_eq!(code(&hub.reach(&["replay", "pause", &plan])), 0);
    let list = hub.on_a_terminal(80, &["replay", "list"]);
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
    assert!(
        list.contains(&plan) && list.contains("paused") && list.contains("/30") && list.contains("SKIPPED"),
        "{list}"
    );
    let resumed = hub.reach(&["replay", "resume", &plan, "--reason", "looked at"]);
    assert_eq!(code(&resumed), 0, "{}", stderr(&resumed));
    let events = stdout(&hub.reach(&["events", "--kind", "replay-resumed", "--output", "json"]));
    assert!(events.contains("looked at"), "{events}");
}

#[test]
fn an_unknown_setting_is_answered_with_the_one_that_was_meant() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("reach.toml");
    std::fs::write(&file, "[disk]\nlow_bites = 5\n").expect("writable");
    let output = run(&["config", "--effective", "--config", file.to_str().expect("UTF-8")]);
    let said = stderr(&output);
    assert_eq!(code(&output), 2, "{said}");
    assert!(said.contains("there is no setting disk.low_bites; did you mean disk.low_bytes?"), "{said}");
    let output = reach().env("REACH_DATTA", "x").arg("config").arg("--effective").output().expect("the binary starts");
    assert!(
        stderr(&output).contains("there is no setting datta (REACH_DATTA); did you mean data?"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_first_start_logs_nothing_and_the_next_what_it_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let log = || std::fs::read_to_string(data.with_extension("log")).expect("a log");
    let hub = Hub::dev(&data);
    assert_eq!(log(), "", "a line about nothing is the first that a newcomer reads");
    assert_eq!(hub.stop(), 0);
    drop(Hub::dev(&data));
    assert!(log().contains("folded"), "{}", log());
}
