//! An operator at three in the morning, with nothing but the command line: what is stuck, why, since when, what to do.

use serde_json::{Value, json};

use crate::hub::{Hub, code, stderr, stdout, wait_until};

/// A hub with an agent that has gone while it worked, one that is silent over its work, and a caller's mistake.
struct Night {
    hub: Hub,
    orphaned: String,
    slow: String,
    queued: String,
    _folder: tempfile::TempDir,
}

impl Night {
    fn fall() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let hub = Hub::dev(&folder.path().join("data"));
        agent(&hub, "gone-1", "gone.work", 250);
        let orphaned = started(&hub, "gone-1", "gone.work");
        agent(&hub, "slow-1", "slow.work", 3_600_000);
        let slow = started(&hub, "slow-1", "slow.work");
        let queued = hub.json(&["submit", "gone.work"]);
        let night = Self { hub, orphaned, slow, queued: id(&queued), _folder: folder };
        night.until(&night.orphaned, "orphaned");
        night.until(&night.slow, "slow-reach");
        night
    }

    fn until(&self, task: &str, state: &str) {
        wait_until(state, || self.hub.json(&["tasks", "show", task]).get("state").is_some_and(|now| now == state));
    }

    /// What a person reads on a terminal of a hundred columns.
    fn read(&self, args: &[&str]) -> String {
        let text = self.hub.on_a_terminal(100, args);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{args:?} is too wide:\n{text}");
        text
    }
}

fn agent(hub: &Hub, name: &str, capability: &str, interval_ms: u64) {
    let declaration = json!({
        "agent_id": name, "transport": {"kind": "pull"}, "health": {"interval_ms": interval_ms},
        "capabilities": [{"capability": capability}],
    });
    hub.post("/v1/agents", &declaration.to_string());
}

/// A task that the agent has acknowledged and will say no more of.
fn started(hub: &Hub, agent: &str, capability: &str) -> String {
    let task = hub.json(&["submit", capability, "--work-timeout", "1s", "--reach-timeout", "60s"]);
    let claim = json!({"incarnation": 1, "max": 1, "wait_ms": 5_000}).to_string();
    let answer = hub.post(&format!("/v1/agents/{agent}/claim"), &claim);
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    let claimed: Value = serde_json::from_str(body).expect("JSON");
    let task_id = id(&task);
    let lease = json!({"agent_id": agent, "incarnation": 1, "attempt": 1, "lease": claimed.pointer("/tasks/0/lease")});
    hub.post(&format!("/v1/tasks/{task_id}/ack"), &lease.to_string());
    task_id
}

fn id(task: &Value) -> String {
    task.get("reach_id").and_then(Value::as_str).expect("an id").to_owned()
}

#[test]
fn what_is_stuck_why_since_when_and_what_to_do() {
    let night = Night::fall();
    let status = night.read(&["status"]);
    assert!(status.contains("1 agent lost") && status.contains("reach agents list --health lost"), "{status}");
    assert!(status.contains(&format!("reach explain {}", night.orphaned)), "{status}");
    assert!(status.contains(&format!("reach explain {}", night.slow)), "{status}");
    assert!(night.read(&["agents", "list", "--health", "lost"]).contains("gone-1"));

    let held = night.read(&["explain", &night.orphaned]);
    assert!(held.contains("gone-1 is gone since") && held.contains(" ago)"), "{held}");
    let flat = held.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("cancelled") && flat.contains("not replayed by itself"), "{flat}");
    let held = night.hub.json(&["explain", &night.orphaned]);
    assert_eq!(held["waits"]["for"], "agent-or-operator", "what it waits for is no replay: {held}");
    let shown = night.hub.json(&["tasks", "show", &night.orphaned]);
    assert_eq!(shown["waits"], held["waits"]);
    let slow = night.read(&["explain", &night.slow]);
    let flat = slow.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("slow-1 may still be working on it") && flat.contains("it is cancelled"), "{flat}");
    assert!(flat.contains("an operator resolves it"), "{flat}");
    let queued = night.read(&["explain", &night.queued]);
    assert!(queued.contains("it missed too many heartbeats") && queued.contains("another registers"), "{queued}");

    assert_eq!(night.hub.json(&["tasks", "cancel", &night.orphaned])["state"], "cancelled");
    agent(&night.hub, "gone-2", "gone.work", 3_600_000);
    let queued = night.read(&["explain", &night.queued]);
    assert!(queued.contains("a pull agent claims work"), "there is one, and it does not claim: {queued}");
}

#[test]
fn what_waits_for_a_word_is_told_with_the_commands_that_are_one() {
    let night = Night::fall();
    let remedies = |id: &str| -> String {
        let explained = night.hub.json(&["explain", id]);
        explained["unblock"].as_array().expect("a list").iter().map(|line| format!("{line}\n")).collect()
    };
    let (orphaned, slow) = (remedies(&night.orphaned), remedies(&night.slow));
    for (told, id) in [(&orphaned, &night.orphaned), (&slow, &night.slow)] {
        for command in [
            format!("`reach tasks resolve {id} hand-over --reason WHY`"),
            format!("`reach tasks resolve {id} fail --reason WHY`"),
            format!("`reach tasks cancel {id} --reason WHY`"),
        ] {
            assert!(told.contains(&command), "{command}: {told}");
        }
        assert!(told.contains("only if a second run does no harm"), "{told}");
    }
    let plan = "`reach replay plan --state orphaned --agent gone-1 --include-ambiguous --dry-run`";
    assert!(orphaned.contains(plan), "{orphaned}");
    assert!(!orphaned.contains(" wait --reason"), "an orphan cannot be told to wait: {orphaned}");
    let offer = json!({"capability": "s.t", "sensitive": true});
    let body = json!({"agent_id": "s-1", "transport": {"kind": "pull"}, "capabilities": [offer]});
    night.hub.post("/v1/agents", &body.to_string());
    let asks = id(&night.hub.json(&["submit", "s.t"]));
    let told = remedies(&asks);
    assert!(told.contains(&format!("`reach tasks approve {asks}`")), "{told}");
    assert!(told.contains(&format!("`reach tasks cancel {asks} --reason WHY`")), "{told}");
    // What is told does it.
    let word = ["tasks", "resolve", &night.orphaned, "hand-over", "--reason", "WHY"];
    assert_eq!(night.hub.json(&word)["state"], "queued");
    assert_eq!(night.hub.json(&["tasks", "approve", &asks])["state"], "queued");
    night.read(&["explain", &night.slow]);
}

#[test]
fn a_misspelt_agent_is_answered_with_the_one_that_was_meant() {
    let night = Night::fall();
    for args in [
        ["agents", "show", "solw-1"].as_slice(),
        &["agents", "drain", "solw-1", "--reason", "upgrade"],
        &["agents", "offline", "solw-1"],
        &["agents", "remove", "solw-1"],
        &["agents", "breaker", "solw-1", "slow.work", "--open", "--reason", "r"],
    ] {
        let refused = night.hub.reach(args);
        let said = stderr(&refused);
        assert!(code(&refused) == 3 && said.contains("did you mean: slow-1"), "{args:?}: {said}");
    }
}

#[test]
fn a_history_is_a_line_an_event_in_columns_and_the_hub_says_the_same() {
    let night = Night::fall();
    let history = stdout(&night.hub.reach(&["history", &night.orphaned]));
    let lines: Vec<&str> = history.lines().collect();
    let events = night.hub.json(&["history", &night.orphaned])["events"].as_array().map(Vec::len);
    assert_eq!(Some(lines.len() - 1), events, "{history}");
    let column = lines[1].find("task-submitted").expect("it begins so");
    assert!(lines[1..].iter().all(|line| line[column..].starts_with("task-")), "{history}");
    assert!(lines[1].trim_start().starts_with("+0 ms  #") && history.contains("its agent is lost"), "{history}");
    night.read(&["history", &night.orphaned]);
}

#[test]
fn lists_are_one_line_an_item_and_json_has_all_of_it() {
    let night = Night::fall();
    for (args, key) in [
        (["tasks", "list"].as_slice(), "reach_id"),
        (&["agents", "list"], "agent_id"),
        (&["tokens", "list"], "token_id"),
        (&["callbacks", "list"], "callback_id"),
        (&["callbacks", "secrets", "list"], "name"),
    ] {
        let items = night.hub.json(args).as_array().cloned().expect("a list");
        let text = night.read(args);
        let lines = if items.is_empty() { 0 } else { items.len() + 1 };
        assert_eq!(text.lines().count(), lines, "{args:?}: {text}");
        assert!(items.iter().all(|item| text.contains(item[key].as_str().expect("a name"))), "{args:?}: {text}");
    }
    let events = night.read(&["events", "--agent", "gone-1"]);
    assert!(events.contains("agent-lost") && events.contains("silent for"), "{events}");
    assert!(!events.contains("slow-1"), "{events}");
    for args in [["status"].as_slice(), &["policies", "show"], &["agents", "show", "slow-1"], &["explain", "slow.work"]]
    {
        night.read(args);
        assert!(night.hub.json(args).is_object(), "{args:?}");
    }
    let gone = night.hub.json(&["agents", "remove", "slow-1"]);
    assert_eq!(gone["standing"], "deregistered");
}

#[test]
fn a_word_that_is_none_is_answered_with_the_choice() {
    for (args, choice) in [
        (["tasks", "list", "--state", "nope"].as_slice(), "slow-reach"),
        (&["tasks", "list", "--failure-class", "nope"], "agent-overload"),
        (&["agents", "list", "--health", "nope"], "unhealthy"),
        (&["callbacks", "list", "--state", "nope"], "exhausted"),
        (&["events", "--kind", "nope"], "task-dead-lettered"),
        (&["tokens", "create", "--name", "x", "--scope", "nope"], "operate"),
        (&["tasks", "list", "--stat", "queued"], "--state"),
    ] {
        let output = crate::hub::run(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(stderr(&output).contains(choice), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn the_exit_codes_of_the_page_are_those_of_the_help() {
    let help = stdout(&crate::hub::run(&["--help"]));
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/command-line.md")).expect("the page");
    let told = help.split_once("Exit codes:\n").expect("it tells them").1;
    let codes: Vec<(&str, &str)> =
        told.lines().filter_map(|line| line.trim().split_once(' ')).map(|(code, what)| (code, what.trim())).collect();
    assert_eq!(codes.len(), 16, "{told}");
    for (code, what) in codes {
        assert!(page.contains(&format!("| {code} | {what} |")), "docs/command-line.md does not say {code}: {what}");
    }
}

#[test]
fn a_refusal_says_what_to_do_next() {
    let night = Night::fall();
    let near = night.hub.reach(&["submit", "slow.wrk"]);
    let said = stderr(&near);
    assert!(said.contains("did you mean: slow.work") && said.contains("next: Check the name"), "{said}");
}
