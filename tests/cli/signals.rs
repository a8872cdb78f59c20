//! Signals to the real process: it ends in the right order, at once when told twice, and blames nobody for the time in
//! which it stood still.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hub::{Hub, TOKEN, reach, stdout, wait_until};

/// Nobody waits longer than this for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[expect(clippy::disallowed_methods, reason = "measures how long a process takes to end")]
fn now() -> Instant {
    Instant::now()
}

/// A receiver of callbacks that answers when it is told to, or never.
pub(crate) struct Receiver {
    pub(crate) url: String,
    /// One message for each request that has come.
    pub(crate) came: mpsc::Receiver<()>,
    /// The status of the answer to each request.
    pub(crate) answer: mpsc::Sender<u16>,
    requests: Arc<AtomicUsize>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let (tell, came) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                read_request(&mut stream);
                counted.fetch_add(1, Ordering::SeqCst);
                if tell.send(()).is_err() {
                    return;
                }
                let Ok(status) = answers.recv() else { return };
                let answer = format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                drop(stream.write_all(answer.as_bytes()));
            }
        });
        Self { url, came, answer, requests }
    }
}

/// Reads one request with its whole body.
fn read_request(stream: &mut TcpStream) {
    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut chunk).unwrap_or(0);
        text.extend(chunk.iter().take(read));
        let so_far = String::from_utf8_lossy(&text).to_ascii_lowercase();
        let Some((head, body)) = so_far.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if read == 0 || body.len() >= length.unwrap_or(0) {
            return;
        }
    }
}

fn hub(data: &Path, grace_ms: u64) -> Hub {
    let mut command = reach();
    command.env("REACH_DEV_TOKEN", TOKEN).env("REACH_STOP__GRACE_MS", grace_ms.to_string()).args(["serve", "--dev"]);
    Hub::start(command, data)
}

/// A task that ends at once and calls back; its id.
pub(crate) fn call_back(hub: &Hub, url: &str) -> String {
    let body = json!({"capability": "idle.work", "wait_for_agent": true, "callback": {"url": url}});
    let answer = hub.post("/v1/tasks", &body.to_string());
    let id = answer.split("\"reach_id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id").to_owned();
    hub.post(&format!("/v1/tasks/{id}/cancel"), "{}");
    id
}

pub(crate) fn events(hub: &Hub, id: &str, kind: &str) -> Vec<Value> {
    let history = hub.json(&["history", id]);
    let events = history.get("events").and_then(Value::as_array).expect("events").iter();
    events.filter(|event| event.get("kind").is_some_and(|found| found == kind)).cloned().collect()
}

#[test]
fn a_callback_that_is_answered_within_the_grace_of_a_stop_is_delivered_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let (receiver, first) = (Receiver::start(), hub(&data, 20_000));
    let id = call_back(&first, &receiver.url);
    receiver.came.recv_timeout(PATIENCE).expect("the callback comes");
    first.signal(Signal::TERM);
    receiver.answer.send(204).expect("it listens");
    assert_eq!(first.ended(), 0);
    let second = hub(&data, 20_000);
    assert_eq!(events(&second, &id, "callback-attempted").len(), 1);
    assert_eq!(events(&second, &id, "callback-delivered").len(), 1);
    assert_eq!(second.stop(), 0);
    assert_eq!(receiver.requests.load(Ordering::SeqCst), 1, "and not sent again by the next process");
}

#[test]
fn a_receiver_that_hangs_holds_up_a_stop_for_the_grace_alone_and_the_try_is_known_afterwards() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let (receiver, first) = (Receiver::start(), hub(&data, 700));
    let id = call_back(&first, &receiver.url);
    receiver.came.recv_timeout(PATIENCE).expect("the callback comes");
    let told = now();
    first.signal(Signal::TERM);
    assert_eq!(first.ended(), 0);
    let took = told.elapsed();
    assert!(took >= Duration::from_millis(600), "the grace is given: {took:?}");
    assert!(took < Duration::from_secs(8), "and no more: {took:?}");
    let second = hub(&data, 700);
    let tried = events(&second, &id, "callback-attempted");
    assert_eq!(tried[0]["error"], "hub-stopped", "{tried:?}");
    receiver.answer.send(204).expect("it listens"); // To the request that nobody reads the answer of any more.
    receiver.came.recv_timeout(PATIENCE).expect("it is tried again");
    assert_eq!(second.stop(), 0);
}

#[test]
fn told_twice_the_hub_ends_at_once_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let (receiver, first) = (Receiver::start(), hub(&data, 600_000));
    let id = call_back(&first, &receiver.url);
    receiver.came.recv_timeout(PATIENCE).expect("the callback comes");
    first.signal(Signal::TERM);
    let refused = json!({"capability": "idle.work", "wait_for_agent": true}).to_string();
    let told = now();
    while !first.try_post("/v1/tasks", &refused).starts_with("HTTP/1.1 503") {
        assert!(told.elapsed() < PATIENCE, "the first signal is taken");
    }
    let told = now();
    first.signal(Signal::INT);
    assert_ne!(first.ended(), 0, "it did not end in order");
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
    let second = hub(&data, 700);
    assert_eq!(second.json(&["tasks", "show", &id])["state"], "cancelled");
    assert_eq!(second.stop(), 0);
}

/// Beats every 100 ms until it is told to stop; how many beats were refused.
fn keep_beating(url: &str, agent: &str) -> (Arc<AtomicBool>, std::thread::JoinHandle<usize>) {
    let (stop, address) = (Arc::new(AtomicBool::new(false)), url.to_owned());
    let (stopped, path) = (Arc::clone(&stop), format!("/v1/agents/{agent}/heartbeat"));
    let beats = std::thread::spawn(move || {
        let mut refused = 0;
        while !stopped.load(Ordering::SeqCst) {
            let answer = crate::hub::post(&address, &path, r#"{"incarnation":1}"#);
            refused += usize::from(!answer.starts_with("HTTP/1.1 200"));
            std::thread::sleep(Duration::from_millis(100));
        }
        refused
    });
    (stop, beats)
}

#[test]
fn semantics_3_a_hub_that_stood_still_three_times_the_threshold_blames_no_agent() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    hub.json(&["policies", "set", "unhealthy_after=2", "lost_after=4", "--reason", "test"]);
    let lost_after = Duration::from_secs(2);
    let agent = json!({"agent_id": "w-1", "transport": {"kind": "pull"}, "health": {"interval_ms": 500},
        "capabilities": [{"capability": "slow.work"}]});
    hub.post("/v1/agents", &agent.to_string());
    let (stop, beats) = keep_beating(&hub.url, "w-1");
    let id = hub.json(&["submit", "slow.work"])["reach_id"].as_str().expect("an id").to_owned();
    let claimed = hub.post("/v1/agents/w-1/claim", r#"{"incarnation":1,"max":1,"wait_ms":20000}"#);
    let lease = claimed.split("\"lease\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a lease");
    let ack = json!({"agent_id": "w-1", "incarnation": 1, "attempt": 1, "lease": lease});
    hub.post(&format!("/v1/tasks/{id}/ack"), &ack.to_string());

    hub.signal(Signal::STOP);
    std::thread::sleep(3 * lost_after);
    hub.signal(Signal::CONT);
    std::thread::sleep(lost_after / 2); // Whoever would blame it does so in its first cycles.
    let told = |kinds: &str| hub.reach(&["events", "--kind", kinds]).stdout.len();
    assert_eq!(told("agent-lost"), 0, "the hub stood still, not the agent");
    assert_eq!(told("task-orphaned"), 0);
    let task = hub.json(&["tasks", "show", &id]);
    assert_eq!((&task["state"], &task["attempt"]), (&json!("processing"), &json!(1)), "{task}");

    stop.store(true, Ordering::SeqCst);
    assert_eq!(beats.join().expect("it beats"), 0, "every beat was taken, also those that waited");
    let silent = now();
    while told("agent-lost") == 0 {
        assert!(silent.elapsed() < PATIENCE, "an agent that is silent while the hub runs is lost");
    }
    assert!(silent.elapsed() > lost_after / 2, "but not for what was before");
    assert_eq!(hub.stop(), 0);
}

/// Claims one task; its id and its lease.
fn claim(hub: &Hub, agent: &str) -> (String, String) {
    let claimed = hub.post(&format!("/v1/agents/{agent}/claim"), r#"{"incarnation":1,"max":1,"wait_ms":20000}"#);
    let word = |name: &str| {
        let rest = claimed.split(&format!("\"{name}\":\"")).nth(1).and_then(|rest| rest.split('"').next());
        rest.unwrap_or_else(|| panic!("no {name}: {claimed}")).to_owned()
    };
    (word("reach_id"), word("lease"))
}

#[test]
fn semantics_3_an_ack_after_the_hub_stood_still_for_longer_than_the_reach_time_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let reach_time = Duration::from_millis(1_500);
    let agent = json!({"agent_id": "w-1", "instance": "i", "transport": {"kind": "pull"}, "max_concurrency": 2,
        "health": {"interval_ms": 3_600_000}, "capabilities": [{"capability": "slow.work"}]});
    hub.post("/v1/agents", &agent.to_string());
    let task = json!({"capability": "slow.work", "reach_timeout_ms": 1_500}).to_string();
    hub.post("/v1/tasks", &task);
    let (id, lease) = claim(&hub, "w-1");
    hub.signal(Signal::STOP);
    std::thread::sleep(2 * reach_time);
    hub.signal(Signal::CONT);
    std::thread::sleep(reach_time / 5); // Whoever would take it away does so in its first cycles.
    let ack = json!({"agent_id": "w-1", "incarnation": 1, "attempt": 1, "lease": lease}).to_string();
    let answer = hub.try_post(&format!("/v1/tasks/{id}/ack"), &ack);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let told = hub.reach(&["events", "--kind", "hub-stalled", "--output", "json"]);
    let told: Vec<Value> = stdout(&told).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let by = told.iter().filter_map(|event| event["by_ms"].as_u64()).max().expect("it is recorded");
    assert!(Duration::from_millis(by) > reach_time, "{told:?}");

    hub.post("/v1/tasks", &task);
    let (id, _) = claim(&hub, "w-1");
    wait_until("while the hub runs, an unanswered hand-over goes back", || {
        !events(&hub, &id, "task-attempt-failed").is_empty()
    });
    assert_eq!(hub.stop(), 0);
}
