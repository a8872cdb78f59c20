//! The programs of docs/agents-and-callbacks.md: the page shows exactly these files, and they run against a real hub.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use agent_reach::ledger::time::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::hub::{Hub, TOKEN, code, stderr, stdout, wait_until};

const FILES: [&str; 3] = ["worker.py", "push_agent.py", "receiver.py"];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples")
}

/// A program in Python that ends with its test; `None` where there is no Python, which is said.
struct Program(Child);

impl Program {
    fn start(hub: &Hub, file: &str, args: &[&str], secrets: &str) -> Option<Self> {
        let mut command = Command::new("python3");
        command.arg(examples().join(file)).args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        command.env("REACH_URL", &hub.url).env("REACH_TOKEN", TOKEN).env("CALLBACK_SECRETS", secrets);
        match command.spawn() {
            Ok(child) => Some(Self(child)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                drop(writeln!(std::io::stderr(), "skipped: there is no python3 here, so {file} is not run"));
                None
            }
            Err(error) => panic!("{file}: {error}"),
        }
    }

    /// Its lines, from now on.
    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().expect("piped, and asked for once")).lines().map_while(Result::ok)
    }

    fn exit_code(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until("the program ends", || {
            status = self.0.try_wait().expect("it is ours");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn wait_for_agent(hub: &Hub, agent: &str) {
    wait_until(agent, || code(&hub.reach(&["agents", "show", agent])) == 0);
}

/// Submits and waits; the task as it ended.
fn ended(hub: &Hub, args: &[&str]) -> Value {
    let output = hub.reach(&[&["submit", "text.words", "--wait", "--output", "json"], args].concat());
    assert!(matches!(code(&output), 0 | 6), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("JSON on stdout")
}

#[test]
fn the_page_shows_the_programs_exactly_as_they_are() {
    let page = std::fs::read_to_string(examples().join("../agents-and-callbacks.md")).expect("the page");
    for file in FILES {
        let program = std::fs::read_to_string(examples().join(file)).expect("the program");
        assert!(
            page.contains(&format!("```python\n{program}```\n")),
            "docs/agents-and-callbacks.md differs from {file}"
        );
        assert!(program.lines().all(|line| line.len() <= 120), "{file} has lines over 120");
    }
    let shown = page.matches("```python\n").count();
    assert_eq!(shown, FILES.len(), "a program on the page that no test runs");
}

#[test]
fn the_worker_works_and_the_receiver_believes_only_what_is_signed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let old = stdout(&hub.reach(&["callbacks", "secrets", "create", "travel"]));
    let inbox = folder.path().join("inbox.sqlite");
    let Some(mut receiver) = Program::start(&hub, "receiver.py", &["0", inbox.to_str().expect("UTF-8")], &old) else {
        return;
    };
    let mut told = receiver.lines();
    let url = told.next().expect("a line").strip_prefix("listening: ").expect("its address").to_owned();
    let Some(mut worker) = Program::start(&hub, "worker.py", &["counter-1"], "") else { return };
    wait_for_agent(&hub, "counter-1");
    let tell = ["--callback", &url, "--callback-secret", "travel"];

    let good = ended(&hub, &[&["--payload", "{\"text\":\"one two three\"}"], &tell[..]].concat());
    assert_eq!((&good["state"], &good["result"]), (&json!("succeeded"), &json!({"words": 3})));
    let id = |task: &Value| task["reach_id"].as_str().expect("an id").to_owned();
    assert_eq!(told.next(), Some(format!("task.succeeded {}", id(&good))));

    // While both secrets sign, a receiver that knows the old one still believes.
    let new = stdout(&hub.reach(&["callbacks", "secrets", "rotate", "travel"]));
    assert!(new.starts_with("whsec_") && new != old);
    let bad = ended(&hub, &[&["--payload", "{}", "--idempotent"], &tell[..]].concat());
    assert_eq!((&bad["state"], &bad["failure"]["code"]), (&json!("failed"), &json!("KeyError")), "{bad}");
    assert_eq!(told.next(), Some(format!("task.failed {}", id(&bad))));

    let signer = standardwebhooks::Webhook::new(old.trim()).expect("a secret of the standard");
    let body = br#"{"type":"task.succeeded","data":{"reach_id":"reach_from_elsewhere"}}"#;
    let now = i64::try_from(SystemClock.wall().0 / 1_000).expect("small");
    let signed = |at| signer.sign("msg_once", at, body).expect("it signs");
    assert_eq!(post(&url, "msg_once", now, "v1,AAAA", body), 401);
    assert_eq!(post(&url, "msg_once", now - 301, &signed(now - 301), body), 401, "a stale one");
    assert_eq!(post(&url, "msg_other", now, &signed(now), body), 401, "another id than was signed");
    assert_eq!(post(&url, "msg_once", now, &signed(now), body), 200);
    assert_eq!(post(&url, "msg_once", now + 1, &signed(now + 1), body), 200);
    drop(receiver);
    assert_eq!(told.collect::<Vec<_>>(), ["task.succeeded reach_from_elsewhere"], "the second time it was known");

    assert_eq!(code(&hub.reach(&["agents", "drain", "counter-1"])), 0);
    assert_eq!(worker.exit_code(), Some(0), "a drained worker leaves by itself");
}

/// A callback by hand; the status of its answer.
fn post(url: &str, id: &str, at: i64, signature: &str, body: &[u8]) -> u16 {
    use std::io::Read as _;
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/hook")).expect("its own address");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "POST /hook HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\nwebhook-id: {id}\r\nwebhook-timestamp: {at}\r\nwebhook-signature: {signature}\r\n\r\n",
        body.len()
    )
    .expect("writable");
    stream.write_all(body).expect("writable");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn the_push_agent_answers_at_once_or_later_and_is_told_of_a_cancel() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let Some(mut agent) = Program::start(&hub, "push_agent.py", &["caller-1", "0"], "") else { return };
    let mut said = agent.lines();
    wait_for_agent(&hub, "caller-1");

    let at_once = ended(&hub, &["--payload", "{\"text\":\"one two\"}"]);
    assert_eq!((&at_once["state"], &at_once["result"]), (&json!("succeeded"), &json!({"words": 2})), "{at_once}");
    let later = ended(&hub, &["--payload", "{\"text\":\"one\",\"seconds\":0.2}"]);
    assert_eq!((&later["state"], &later["result"]), (&json!("succeeded"), &json!({"words": 1})), "{later}");
    let refused = ended(&hub, &["--payload", "{}"]);
    assert_eq!((&refused["state"], &refused["failure"]["code"]), (&json!("failed"), &json!("no-text")), "{refused}");

    let long = hub.json(&["submit", "text.words", "--payload", "{\"text\":\"one\",\"seconds\":600}"]);
    let long = long["reach_id"].as_str().expect("an id");
    wait_until("it is acknowledged", || hub.json(&["tasks", "show", long])["state"] == "processing");
    assert_eq!(hub.json(&["tasks", "cancel", long])["state"], "cancelled");
    assert_eq!(said.next(), Some(format!("cancelled: {long}")));
}

/// The worker of the page, changed.
fn worker_with(folder: &Path, changes: &[(&str, &str)]) -> PathBuf {
    let mut program = std::fs::read_to_string(examples().join("worker.py")).expect("the program");
    for (was, is) in changes {
        assert!(program.contains(was), "worker.py has no {was}");
        program = program.replace(was, is);
    }
    let file = folder.join("worker.py");
    std::fs::write(&file, program).expect("writable");
    file
}

#[test]
fn a_worker_that_claims_several_acknowledges_them_all_before_it_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let changes = [
        ("\"max_concurrency\": 1", "\"max_concurrency\": 3"),
        ("\"max\": 1", "\"max\": 3"),
        ("    return {\"words\"", "    time.sleep(1)\n    return {\"words\""),
    ];
    let file = worker_with(folder.path(), &changes);
    hub.register("counter-1", "text.words");
    let one = ["submit", "text.words", "--payload", "{\"text\":\"one\"}", "--reach-timeout", "900ms"];
    let submitted: Vec<Value> = (0..3).map(|_| hub.json(&one)).collect();
    let Some(_worker) = Program::start(&hub, file.to_str().expect("UTF-8"), &["counter-1"], "") else { return };
    for task in submitted {
        let id = task["reach_id"].as_str().expect("an id");
        let ended = hub.json(&["tasks", "wait", id]);
        assert_eq!((&ended["state"], &ended["attempt"]), (&json!("succeeded"), &json!(1)), "{ended}");
    }
}

#[test]
fn a_worker_that_holds_nothing_ends_when_told_even_if_the_hub_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let Some(mut worker) = Program::start(&hub, "worker.py", &["counter-1"], "") else { return };
    wait_for_agent(&hub, "counter-1");
    drop(hub);
    let pid = rustix::process::Pid::from_child(&worker.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(worker.exit_code(), Some(1), "it says that it could not say goodbye");
}

#[test]
fn r_reg_7_a_worker_that_is_told_to_end_drains_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let Some(mut worker) = Program::start(&hub, "worker.py", &["counter-1"], "") else { return };
    wait_for_agent(&hub, "counter-1");
    let pid = rustix::process::Pid::from_child(&worker.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(worker.exit_code(), Some(0));
    let said = stdout(&hub.reach(&["events", "--output", "json"]));
    assert!(said.contains("agent-draining") && said.contains("SIGTERM"), "{said}");
    assert!(said.contains("agent-deregistered"), "it held nothing, so it is out at once: {said}");
}
