//! Alerts, through the door: what wants a person is told by a signed webhook, few times, and sooner or later.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use agent_reach::hub::Options;
use agent_reach::scheduler::outbound::alerts::Target;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::world::{Client, World, registration};

/// Nobody waits longer than this for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Alerts are gathered for so long here.
const EVERY: Duration = Duration::from_millis(300);

/// One message as it came.
pub(crate) struct Seen {
    head: String,
    body: Vec<u8>,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn kind(&self) -> String {
        self.json()["data"]["kind"].as_str().unwrap().to_owned()
    }
}

/// Who is told.
pub(crate) struct Pager {
    pub(crate) address: SocketAddr,
    pub(crate) seen: mpsc::UnboundedReceiver<Seen>,
    listening: tokio::task::JoinHandle<()>,
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Pager {
    pub(crate) async fn start() -> Self {
        Self::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    async fn listen(at: SocketAddr) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, seen) = mpsc::unbounded_channel();
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, tell.clone()));
            }
        });
        Self { address, seen, listening }
    }

    fn options(&self) -> impl FnOnce(&mut Options) + use<> {
        let url = format!("http://{}/page?key=not-shown", self.address);
        |options| {
            let (namespace, secret_ref) = ("hub".to_owned(), "default".to_owned());
            options.alerts = Some(Target { url, namespace, secret_ref, every: EVERY });
        }
    }

    /// The next one of that kind.
    async fn next(&mut self, kind: &str) -> Seen {
        let next = async {
            loop {
                let seen = self.seen.recv().await.unwrap();
                if seen.kind() == kind {
                    return seen;
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.unwrap_or_else(|_| panic!("no alert {kind} came"))
    }
}

async fn serve(mut stream: TcpStream, tell: mpsc::UnboundedSender<Seen>) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 8_192]);
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let mut seen = Seen { head: String::from_utf8_lossy(&bytes[..end]).into_owned(), body: Vec::new() };
            let length: usize = seen.header("content-length").parse().unwrap();
            if bytes.len() >= end + 4 + length {
                seen.body = bytes[end + 4..end + 4 + length].to_vec();
                bytes.drain(..end + 4 + length);
                drop(stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await);
                drop(tell.send(seen));
                continue;
            }
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

/// An agent with room for all, which is only heard of when a test lets it speak.
async fn enlist(client: &Client, agent: &str, interval_ms: u64) {
    let mut body = registration(agent, "text.count");
    body["health"] = json!({"interval_ms": interval_ms});
    body["max_concurrency"] = json!(1_000);
    body["max_pending"] = json!(1_000);
    let answer = client.post("/v1/agents", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Submits them, and lets the agent start each: what it was handed.
async fn started(client: &Client, agent: &str, tasks: Vec<Value>) -> Vec<Value> {
    let count = tasks.len();
    let answer = client.post("/v1/batches", json!({"tasks": tasks})).await;
    assert!(answer.status < 300, "{}", answer.text);
    taken(client, agent, count).await
}

/// Lets the agent start so many.
async fn taken(client: &Client, agent: &str, count: usize) -> Vec<Value> {
    let mut held: Vec<Value> = Vec::new();
    while held.len() < count {
        let claim = json!({"incarnation": 1, "max": 1_000, "wait_ms": 5_000});
        let claimed = client.post(&format!("/v1/agents/{agent}/claim"), claim).await.json();
        let tasks = claimed["tasks"].as_array().unwrap();
        // What is not acknowledged would be handed over again by the next claim.
        report(client, agent, tasks, &json!({"op": "ack"})).await;
        held.extend(tasks.clone());
    }
    held
}

async fn report(client: &Client, agent: &str, held: &[Value], word: &Value) {
    let each = |task: &Value| {
        let mut one = word.clone();
        for name in ["reach_id", "attempt", "lease"] {
            one[name] = task[name].clone();
        }
        one
    };
    let reports: Vec<Value> = held.iter().map(each).collect();
    let body = json!({"agent_id": agent, "incarnation": 1, "reports": reports});
    let outcomes = client.post("/v1/work/reports", body).await.json()["outcomes"].clone();
    assert!(outcomes.as_array().unwrap().iter().all(|outcome| outcome["status"] == 200), "{outcomes}");
}

fn task(fields: Value) -> Value {
    let mut task = json!({"capability": "text.count", "payload": 1, "reach_timeout_ms": 60_000});
    task.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
    task
}

/// So many dead letters; their ids.
async fn dead_letters(world: &World, count: usize) -> BTreeSet<String> {
    enlist(&world.dev, "mail-1", 3_600_000).await;
    let again = task(json!({"idempotent": true, "retry": {"max_retries": 1, "base_ms": 1, "cap_ms": 1}}));
    let held = started(&world.dev, "mail-1", vec![again; count]).await;
    let error = json!({"code": "smtp-down", "message": "connection refused"});
    let fail = json!({"op": "fail", "error": error, "retryable": true});
    report(&world.dev, "mail-1", &held, &fail).await;
    let held = taken(&world.dev, "mail-1", count).await;
    report(&world.dev, "mail-1", &held, &fail).await;
    held.iter().map(|task| task["reach_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn r_sch_6_a_dead_letter_is_told_once_signed_and_says_what_to_do() {
    let mut pager = Pager::start().await;
    let world = World::start_with(pager.options()).await;
    let made = world.dev.request(reqwest::Method::POST, "/v1/callback-secrets").header("Reach-Namespace", "hub");
    let made = crate::world::Answer::of(made.json(&json!({"name": "default"}))).await.json();
    let id = dead_letters(&world, 1).await.pop_first().unwrap();
    let seen = pager.next("dead-letter").await;
    let secret = standardwebhooks::Webhook::new(made["secret"].as_str().unwrap()).unwrap();
    let at = seen.header("webhook-timestamp").parse().unwrap();
    let signed = secret.sign(seen.header("webhook-id"), at, &seen.body).unwrap();
    assert_eq!(seen.header("webhook-signature"), signed);
    let whole = seen.json();
    let mut documented = agent_reach::api::openapi::document()["components"]["schemas"]["AlertMessage"].clone();
    documented["properties"]["data"]["additionalProperties"] = json!(false);
    let shape = jsonschema::validator_for(&documented).unwrap();
    assert!(
        shape.is_valid(&whole),
        "{:?}",
        shape.iter_errors(&whole).map(|error| error.to_string()).collect::<Vec<_>>()
    );
    let data = &whole["data"];
    assert_eq!((&whole["type"], &data["count"]), (&json!("alert.dead-letter"), &json!(1)), "{whole}");
    assert_eq!((&data["namespace"], &data["capability"]), (&json!("dev"), &json!("text.count")), "{whole}");
    assert_eq!((&data["first"], &data["last"], &data["named"][0]), (&json!(id), &json!(id), &json!(id)), "{whole}");
    let first = format!("reach history {id} --namespace dev");
    assert_eq!(data["what_to_do"][0], first, "{whole}");
    assert!(data["summary"].as_str().unwrap().contains("1 task is a dead letter"), "{whole}");
    // Whoever asks learns where alerts go and that they get there, and nothing else of the URL.
    let alerts = loop {
        let cluster = world.dev.get("/v1/cluster").await;
        assert!(!cluster.text.contains("not-shown"), "{}", cluster.text);
        let alerts = cluster.json()["alerts"].clone();
        if alerts["waiting"] == 0 {
            break alerts;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&alerts["configured"], &alerts["to"]), (&json!(true), &json!(pager.address.to_string())), "{alerts}");
    assert!(alerts["last_told_at"].is_string() && alerts["last_error"].is_null(), "{alerts}");
    let figures = world.dev.get("/metrics").await.text;
    assert!(figures.contains("reach_alerts_total{kind=\"dead-letter\",result=\"told\"} 1\n"), "{figures}");
    tokio::time::sleep(EVERY * 3).await;
    assert!(pager.seen.try_recv().is_err(), "and it is told once");
}

#[tokio::test]
async fn five_hundred_dead_letters_are_a_handful_of_messages_that_count_each_once() {
    let mut pager = Pager::start().await;
    let world = World::start_with(pager.options()).await;
    dead_letters(&world, 500).await;
    let (mut counted, mut messages, mut ids) = (0, 0, BTreeSet::new());
    while counted < 500 {
        let seen = pager.next("dead-letter").await;
        counted += seen.json()["data"]["count"].as_u64().unwrap();
        messages += 1;
        ids.insert(seen.header("webhook-id").to_owned());
    }
    assert_eq!(counted, 500);
    assert!(messages <= 20 && ids.len() == messages, "{messages} messages, {} ids", ids.len());
}

#[tokio::test]
async fn a_held_orphan_is_told_with_its_lost_agent_and_one_that_is_replayed_wakes_nobody() {
    let mut pager = Pager::start().await;
    let world = World::start_with(pager.options()).await;
    enlist(&world.dev, "gone-1", 250).await;
    let tasks = vec![task(json!({"idempotent": true})), task(json!({})), task(json!({}))];
    let held = started(&world.dev, "gone-1", tasks).await;
    let replayable = held[0]["reach_id"].as_str().unwrap();
    let waits = pager.next("orphan-held").await.json()["data"].clone();
    assert_eq!(waits["count"], 2, "{waits}");
    assert!(!waits["named"].as_array().unwrap().contains(&json!(replayable)), "{waits}");
    assert!(waits["what_to_do"][1].as_str().unwrap().starts_with("reach tasks resolve reach_"), "{waits}");
    // Told with the same window, after it.
    let lost = pager.next("agent-lost").await.json()["data"].clone();
    assert_eq!((&lost["first"], &lost["count"]), (&json!("gone-1"), &json!(1)), "{lost}");
    assert_eq!(lost["left_behind"], json!({"replayed_by_itself": 1, "held": 2}), "{lost}");
}

#[tokio::test]
async fn a_slow_task_whose_policy_is_to_wait_is_told_to_its_owner() {
    let mut pager = Pager::start().await;
    let world = World::start_with(pager.options()).await;
    enlist(&world.dev, "slow-1", 3_600_000).await;
    let rules = json!({"capability": "text.count", "slow_reach": {"policy": "wait"}, "owner": "team-text",
        "reason": "they know it"});
    let put = world.dev.put("/v1/policies/capabilities", rules).await;
    assert_eq!(put.status, 200, "{}", put.text);
    started(&world.dev, "slow-1", vec![task(json!({"work_timeout_ms": 1_000}))]).await;
    let slow = pager.next("task-slow").await.json()["data"].clone();
    assert_eq!((&slow["owner"], &slow["count"]), (&json!("team-text"), &json!(1)), "{slow}");
}

#[tokio::test]
async fn a_queue_near_its_bound_is_told_when_it_begins_and_when_it_ends() {
    let mut pager = Pager::start().await;
    let world = World::start_with(pager.options()).await;
    let mut body = registration("w-1", "text.count");
    body["health"] = json!({"interval_ms": 3_600_000});
    (body["max_pending"], body["max_concurrency"]) = (json!(20), json!(20));
    assert_eq!(world.dev.post("/v1/agents", body).await.status, 200);
    let held = started(&world.dev, "w-1", vec![task(json!({})); 18]).await;
    let near = pager.next("queue-near-bound").await.json()["data"].clone();
    assert_eq!((&near["state"], &near["capability"]), (&json!("firing"), &json!("text.count")), "{near}");
    assert!(near["why"].as_str().unwrap().contains("18 of 20"), "{near}");
    report(&world.dev, "w-1", &held[..8], &json!({"op": "complete", "result": 1})).await;
    let far = pager.next("queue-near-bound").await.json()["data"].clone();
    assert_eq!(far["state"], "resolved", "{far}");
}

#[tokio::test]
async fn a_receiver_that_is_away_costs_nothing_and_is_told_once_it_is_back() {
    let away = Pager::start().await;
    let (address, options) = (away.address, away.options());
    drop(away);
    let world = World::start_with(options).await;
    dead_letters(&world, 3).await;
    let failing = loop {
        let alerts = world.dev.get("/v1/cluster").await.json()["alerts"].clone();
        if alerts["failing_since"].is_string() {
            break alerts;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(failing["last_error"], "connect", "{failing}");
    assert!(failing["waiting"].as_u64().is_some_and(|waiting| waiting >= 1), "{failing}");
    let mut pager = Pager::listen(address).await;
    let told = pager.next("dead-letter").await;
    assert!(told.json()["data"]["count"].as_u64().unwrap() <= 3);
    world.stop().await;
}
