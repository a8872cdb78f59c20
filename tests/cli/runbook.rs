//! The runbook, docs/operations.md: its commands are pasted, part by part, where what it speaks of has just happened.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hub::{Hub, TOKEN, reach, wait_until};
use crate::incident::{agent, dead_letters, orphans, report, started, submitted, take, until};

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).expect("docs/operations.md")
}

/// The parts of the page: each heading, and its commands.
fn parts(page: &str) -> Vec<(String, String)> {
    let parts = page.split("\n## ").skip(1);
    let commands = |part: &str| {
        let blocks = part.split("```sh\n").skip(1);
        blocks.map(|block| block.split("```").next().unwrap_or_default()).collect::<Vec<_>>().concat()
    };
    parts.map(|part| (part.lines().next().unwrap_or_default().to_owned(), commands(part))).collect()
}

/// The rights that the page says an operator needs: the parts are pasted with no more.
const OPERATOR: &str = "--scope read,audit,operate,register,submit,work --agent '*'";

#[test]
fn the_page_says_which_rights_it_takes() {
    assert!(page().contains(OPERATOR));
}

/// A hub in its folder, as the page has it, only elsewhere.
struct Scene {
    folder: tempfile::TempDir,
    hub: Option<Hub>,
    address: String,
}

impl Scene {
    fn set() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let hub = Hub::dev(&folder.path().join("data"));
        let (named, rights) = (["tokens", "create", "--name", "operator"], OPERATOR.replace('\'', ""));
        let made = hub.json(&named.into_iter().chain(rights.split(' ')).collect::<Vec<_>>());
        let token = made.pointer("/token").and_then(Value::as_str).expect("a token");
        std::fs::write(folder.path().join("data/admin-token"), token).expect("writable");
        let address = hub.url.trim_start_matches("http://").to_owned();
        Self { folder, hub: Some(hub), address }
    }

    /// With all rights, for what the page leaves to an administrator.
    fn set_for_an_administrator() -> Self {
        let scene = Self::set();
        std::fs::write(scene.folder.path().join("data/admin-token"), TOKEN).expect("writable");
        scene
    }

    fn hub(&self) -> &Hub {
        self.hub.as_ref().expect("it runs")
    }

    /// Pastes the commands of that part into bash; every line must go well. What it said.
    fn paste(&self, part: &str) -> Option<String> {
        if Command::new("bash").arg("--version").stdout(Stdio::null()).status().is_err() {
            drop(writeln!(std::io::stderr(), "skipped: there is no bash here, so {part:?} is not pasted"));
            return None;
        }
        let parts = parts(&page());
        let commands = |name: &str| {
            let part = parts.iter().find(|(heading, _)| heading == name);
            part.map(|(_, commands)| commands.clone()).unwrap_or_else(|| panic!("the page has no part {name:?}"))
        };
        let mut script = String::from(
            "set -eEo pipefail\ntrap 'echo \"FAILED: $BASH_COMMAND\" >&2' ERR\ntrap 'kill %1 2>/dev/null || true' EXIT\n",
        );
        if part != "The hub died" {
            script += &commands("First");
        } else {
            // Its hub does not answer.
            script += &commands("First").replace("reach status\n", "");
        }
        script += &commands(part);
        let data = self.folder.path().join("data").display().to_string();
        let script = script
            .replace("reach serve", "reach serve --dev")
            .replace("127.0.0.1:7676", &self.address)
            .replace("/tmp/", &format!("{}/", self.folder.path().display()))
            .replace("/var/lib/reach", &data)
            .replace("REACH_NAMESPACE=acme", "REACH_NAMESPACE=dev");
        let output = self.bash(&script);
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{part}: {told}\n{said}");
        Some(said.into_owned())
    }

    fn bash(&self, script: &str) -> std::process::Output {
        let program = Path::new(env!("CARGO_BIN_EXE_reach"));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", program.parent().expect("a folder").display());
        let clean = reach();
        let mut command = Command::new("bash");
        for (name, value) in clean.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("PATH", path).env("REACH_DEV_TOKEN", TOKEN).args(["-c", script]).stdin(Stdio::null());
        command.output().expect("bash starts")
    }
}

/// An agent that does what it gets, until it is dropped.
struct AtWork {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl AtWork {
    fn start(url: &str, name: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (url, seen) = (url.to_owned(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let held = take(&url, name, 100, 200);
                if !held.is_empty() {
                    report(&url, name, &held, &json!({"op": "ack"}));
                    report(&url, name, &held, &json!({"op": "complete", "result": {"sent": true}}));
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(std::thread::JoinHandle::join));
    }
}

/// What each word is said in, in this order.
fn holds(said: &str, words: &[&str]) {
    let mut rest = said;
    for word in words {
        let at = rest.find(word).unwrap_or_else(|| panic!("no {word:?}, or not in its place: {said}"));
        rest = rest.get(at + word.len()..).unwrap_or_default();
    }
}

#[test]
fn every_part_of_the_runbook_is_pasted_by_a_test() {
    let headings: Vec<String> = parts(&page()).into_iter().map(|(heading, _)| heading).collect();
    assert_eq!(
        headings,
        [
            "First",
            "An agent fleet died",
            "The hub died",
            "A downstream was broken for an hour, and 40,000 tasks are dead letters",
            "Agents are to be upgraded, one after the other",
            "A task is slow",
            "An agent fails one capability",
            "Be told",
        ]
    );
    assert!(parts(&page()).iter().all(|(_, commands)| !commands.is_empty()));
}

#[test]
fn an_id_that_is_not_there_is_told_and_fails() {
    let page = page();
    let id = page.lines().find(|line| line.starts_with("id() {")).expect("it is defined");
    let scene = Scene::set();
    let pick = |answer: &str| scene.bash(&format!("{id}\nID=$(echo '{answer}' | id reach_id) && echo \"it is $ID\""));
    assert_eq!(
        String::from_utf8_lossy(&pick(r#"[{"reach_id":"reach_x","state":"queued"}]"#).stdout),
        "it is reach_x\n"
    );
    for nothing in ["[]", "", r#"{"replay_id":"replay_x"}"#] {
        let output = pick(nothing);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{nothing}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("nothing found: no reach_id"), "{nothing}");
    }
}

#[test]
fn an_agent_fleet_died() {
    let scene = Scene::set();
    orphans(scene.hub(), "weather-2", "weather.forecast", 4);
    agent(scene.hub(), "weather-3", "weather.forecast", 3_600_000);
    let Some(said) = scene.paste("An agent fleet died") else { return };
    holds(
        &said,
        &[
            "held for a decision",
            "weather-2",
            "orphaned",
            "task-orphaned",
            "0 tasks",
            "may-have-run",
            "3 tasks",
            "AMONG THEM",
            "reach replay plan --agent weather-2 --include-ambiguous --reason WHY",
            "completed",
            "3 replayed, 0 skipped",
        ],
    );
    let queued = scene.hub().json(&["tasks", "list", "--state", "queued"]);
    assert_eq!(queued.as_array().map(Vec::len), Some(4), "one by one word, three by the plan: {queued}");
}

#[test]
fn the_hub_died() {
    let mut scene = Scene::set();
    agent(scene.hub(), "mail-1", "mail.send", 3_600_000);
    dead_letters(scene.hub(), "mail-1", "mail.send", 40);
    let plan = ["replay", "plan", "--state", "dead-letter", "--rate", "1", "--reason", "before the fall"];
    scene.hub().json(&plan);
    scene.hub().signal(Signal::KILL);
    scene.hub = None;
    let Some(said) = scene.paste("The hub died") else { return };
    // It went on by itself, at its rate, where it was.
    holds(&said, &["exit code 8", "sound", "yes", "SUCCEEDED", "open", "pending of 40", "REPLAY ID", "running"]);
}

#[test]
fn a_downstream_was_broken_and_its_tasks_are_dead_letters() {
    let scene = Scene::set();
    agent(scene.hub(), "mail-1", "mail.send", 3_600_000);
    let letters = dead_letters(scene.hub(), "mail-1", "mail.send", 12);
    let _mended = AtWork::start(&scene.hub().url, "mail-1");
    let part = "A downstream was broken for an hour, and 40,000 tasks are dead letters";
    let Some(said) = scene.paste(part) else { return };
    holds(
        &said,
        &[
            "12 of 12 dead-letter not redriven",
            "smtp-down",
            "attempt 2 failed: smtp-down (business): connection refused",
            "would help",
            "reach tasks redrive",
            "--failure-code smtp-down --dry-run",
            "succeeded",
            "11 tasks",
            "already-redriven",
            "paused",
            "completed",
            "11 redriven, 0 skipped",
            "their tasks",
            "0 tasks",
            "already-redriven",
        ],
    );
    for letter in letters {
        let anew = scene.hub().json(&["tasks", "show", &letter]);
        let anew = anew.get("redriven_as").and_then(Value::as_str).expect("made anew").to_owned();
        until(scene.hub(), &[anew], "succeeded");
    }
}

#[test]
fn agents_are_upgraded_one_after_the_other() {
    let scene = Scene::set();
    agent(scene.hub(), "weather-1", "weather.forecast", 3_600_000);
    agent(scene.hub(), "weather-2", "weather.forecast", 3_600_000);
    let Some(said) = scene.paste("Agents are to be upgraded, one after the other") else { return };
    holds(&said, &["weather-1", "weather-2", "standing", "deregistered"]);
    assert_eq!(scene.hub().json(&["agents", "list"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn a_task_is_slow() {
    let scene = Scene::set();
    agent(scene.hub(), "ocr-1", "ocr.read", 3_600_000);
    let slow = submitted(scene.hub(), "ocr.read", 2, &json!({"work_timeout_ms": 1_000}));
    started(scene.hub(), "ocr-1", 2);
    until(scene.hub(), &slow, "slow-reach");
    let Some(said) = scene.paste("A task is slow") else { return };
    holds(&said, &["slow-reach", "ocr-1 may still be working on it", "healthy", "queued", "task-dead-lettered"]);
}

#[test]
fn an_agent_fails_one_capability() {
    let scene = Scene::set();
    agent(scene.hub(), "ocr-1", "ocr.read", 3_600_000);
    submitted(scene.hub(), "ocr.read", 5, &json!({"reach_timeout_ms": 100}));
    assert_eq!(take(&scene.hub().url, "ocr-1", 5, 5_000).len(), 5, "it begins none of them");
    wait_until("the breaker is open", || {
        let shown = scene.hub().json(&["agents", "show", "ocr-1"]);
        shown.pointer("/breakers/0/state").is_some_and(|state| state == "open")
    });
    let Some(said) = scene.paste("An agent fails one capability") else { return };
    holds(
        &said,
        &[
            "1 breaker of agents not closed",
            "ocr.read",
            "open",
            "the rule",
            "breaker-open",
            "closed",
            "the scanner is back",
        ],
    );
    let shown = scene.hub().json(&["agents", "show", "ocr-1"]);
    assert_eq!(shown.get("breakers"), Some(&json!([])), "given back to the rule, which counts from none");
}

#[test]
fn be_told() {
    let scene = Scene::set_for_an_administrator();
    let Some(said) = scene.paste("Be told") else { return };
    holds(&said, &["[alerts]", "https://pager.example/hooks/reach", "every_ms = 10000", "whsec_"]);
}
