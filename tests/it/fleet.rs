//! A small fleet of workers, each with its own bookkeeping: what it was handed, and nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{Client, World, registration};

/// How often each task was handed out to this fleet, over all of its workers.
pub(crate) type Seen = Arc<Mutex<BTreeMap<String, u32>>>;

/// A worker that claims, acknowledges, works and completes until it is told to leave.
pub(crate) struct Worker {
    running: JoinHandle<()>,
}

/// Registers an agent that beats every `interval_ms` and takes `slots` at a time.
pub(crate) async fn enlist(client: &Client, agent: &str, (interval_ms, slots): (u64, u32)) -> u64 {
    let mut body = registration(agent, "text.count");
    body["health"] = json!({"interval_ms": interval_ms});
    body["max_concurrency"] = json!(slots);
    body["max_pending"] = json!(100_000);
    let answer = client.post("/v1/agents", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["incarnation"].as_u64().unwrap()
}

impl Worker {
    /// Starts one that takes `slots` at a time and works `work` on each handful.
    pub(crate) async fn start(client: &Client, agent: &str, slots: u32, (work, seen): (Duration, Seen)) -> Self {
        let incarnation = enlist(client, agent, (1_000, slots)).await;
        let (client, agent) = (client.clone(), agent.to_owned());
        Self { running: tokio::spawn(async move { run(&client, &agent, (incarnation, slots), (work, seen)).await }) }
    }

    /// Waits until the hub has told it to leave and it has finished what it held.
    pub(crate) async fn has_left(self) {
        tokio::time::timeout(Duration::from_secs(30), self.running).await.expect("it leaves").unwrap();
    }

    /// Ends it without a word.
    pub(crate) fn kill(self) {
        self.running.abort();
    }
}

async fn run(client: &Client, agent: &str, (incarnation, slots): (u64, u32), (work, seen): (Duration, Seen)) {
    loop {
        let path = format!("/v1/agents/{agent}/claim");
        let claimed = client.post(&path, json!({"incarnation": incarnation, "max": slots, "wait_ms": 300})).await;
        if claimed.status != 200 {
            return; // Draining, deregistered or replaced.
        }
        let tasks = claimed.json()["tasks"].as_array().cloned().unwrap_or_default();
        if tasks.is_empty() {
            continue;
        }
        for task in &tasks {
            let id = task["reach_id"].as_str().unwrap().to_owned();
            *seen.lock().unwrap().entry(id).or_insert(0) += 1;
        }
        let acked = report(client, agent, incarnation, ("ack", &tasks)).await;
        let mine: Vec<Value> =
            tasks.into_iter().zip(acked).filter(|(_, status)| *status == 200).map(|(t, _)| t).collect();
        tokio::time::sleep(work).await;
        report(client, agent, incarnation, ("complete", &mine)).await;
    }
}

/// Reports the same of several tasks; answers a status each.
pub(crate) async fn report(client: &Client, agent: &str, incarnation: u64, (op, tasks): (&str, &[Value])) -> Vec<u64> {
    let each = |task: &Value| json!({"op": op, "reach_id": task["reach_id"], "attempt": task["attempt"], "lease": task["lease"]});
    let reports: Vec<Value> = tasks.iter().map(each).collect();
    if reports.is_empty() {
        return Vec::new();
    }
    let body = json!({"agent_id": agent, "incarnation": incarnation, "reports": reports});
    let answer = client.post("/v1/work/reports", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["outcomes"].as_array().unwrap().iter().map(|outcome| outcome["status"].as_u64().unwrap()).collect()
}

/// Submits `n` idempotent tasks as one batch; answers its id.
pub(crate) async fn submit_batch(client: &Client, n: usize) -> String {
    let tasks: Vec<Value> = (0..n)
        .map(|n| json!({"capability": "text.count", "payload": {"n": n}, "idempotent": true, "wait_for_agent": true}))
        .collect();
    let answer = client.post("/v1/batches", json!({"tasks": tasks})).await;
    assert!(answer.status < 300, "{}", answer.text);
    answer.json()["batch_id"].as_str().unwrap().to_owned()
}

/// Every event after `after` that is durable now.
pub(crate) async fn events(world: &World, after: u64) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), after);
    loop {
        let page = world.dev.get(&format!("/v1/events?after={after}&limit=1000&wait_ms=0")).await;
        let items: Vec<Value> = page.text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let Some(last) = items.last().and_then(|item| item["seq"].as_u64()) else { return all };
        after = last;
        all.extend(items);
    }
}

/// The most of these moments that lie within any one second.
pub(crate) fn most_in_a_second(events: &[Value]) -> usize {
    let at: Vec<i64> = events
        .iter()
        .map(|event| event["at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond())
        .collect();
    (0..at.len())
        .map(|from| at[from..].iter().take_while(|later| **later < at[from] + 1_000).count())
        .max()
        .unwrap_or(0)
}
