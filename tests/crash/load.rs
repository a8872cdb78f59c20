//! The load: callers that submit under idempotency keys and agents that claim, acknowledge and complete. They write
//! down every promise that the hub made them, and nothing that it did not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::hub::TOKEN;

/// A promise: seq and hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// Its place.
    pub(crate) seq: u64,
    /// Its leaf hash.
    pub(crate) hash: String,
}

impl Receipt {
    fn of(answer: &Value) -> Option<Self> {
        let receipt = answer.get("receipt")?;
        Some(Self { seq: receipt.get("seq")?.as_u64()?, hash: receipt.get("hash")?.as_str()?.to_owned() })
    }
}

/// Everything that was promised.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Accepted submissions: key → id and receipt.
    pub(crate) accepted: BTreeMap<String, (String, Receipt)>,
    /// Acknowledgements that were taken: (task, attempt) → receipt.
    pub(crate) acked: BTreeMap<(String, u64), Receipt>,
    /// Outcomes that were taken: (task, attempt) → receipt.
    pub(crate) done: BTreeMap<(String, u64), Receipt>,
    /// Contradictions seen on the way.
    pub(crate) broken: Vec<String>,
    /// Calls whose outcome stayed unknown.
    pub(crate) unknown: u64,
}

impl Promises {
    /// Accepted submissions.
    pub(crate) fn submitted(&self) -> u64 {
        self.accepted.len() as u64
    }

    /// Outcomes taken.
    pub(crate) fn completed(&self) -> u64 {
        self.done.len() as u64
    }

    /// One line.
    pub(crate) fn summary(&self) -> String {
        format!(
            "accepted {}, acknowledged {}, completed {}, unknown calls {}",
            self.accepted.len(),
            self.acked.len(),
            self.done.len(),
            self.unknown
        )
    }
}

/// The running load.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    drained: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
    agents: Vec<JoinHandle<()>>,
    promises: Arc<Mutex<Promises>>,
}

#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    url: String,
    promises: Arc<Mutex<Promises>>,
}

impl Client {
    /// A call whose answer is known: `None` for a reset, a time-out or a 5xx.
    async fn call(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let sent = self.http.post(format!("{}{path}", self.url)).bearer_auth(TOKEN).json(body).send().await;
        let known = match sent {
            Ok(answer) if answer.status().as_u16() < 500 => {
                let status = answer.status().as_u16();
                answer.json().await.ok().map(|value| (status, value))
            }
            Ok(_) | Err(_) => None,
        };
        if known.is_none() {
            self.promises.lock().expect("no panic holds it").unknown += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        known
    }

    fn broken(&self, what: String) {
        self.promises.lock().expect("no panic holds it").broken.push(what);
    }
}

impl Load {
    /// Starts four callers and three agents.
    pub(crate) fn start(url: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let drained = Arc::new(AtomicBool::new(false));
        let promises = Arc::new(Mutex::new(Promises::default()));
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().expect("a client");
        let client = Client { http, url, promises: Arc::clone(&promises) };
        let callers = (0..4).map(|n| tokio::spawn(call_on(client.clone(), n, Arc::clone(&stop)))).collect();
        let agents = (0..3).map(|n| tokio::spawn(work_on(client.clone(), n, Arc::clone(&drained)))).collect();
        Self { stop, drained, callers, agents, promises }
    }

    /// Ends the submissions, lets the agents finish what there is, and hands over what was promised.
    pub(crate) async fn finish(self) -> Promises {
        self.stop.store(true, Ordering::SeqCst);
        for caller in self.callers {
            caller.await.expect("no caller panics");
        }
        self.drained.store(true, Ordering::SeqCst);
        for agent in self.agents {
            agent.await.expect("no agent panics");
        }
        std::mem::take(&mut self.promises.lock().expect("no panic holds it"))
    }
}

async fn call_on(client: Client, caller: usize, stop: Arc<AtomicBool>) {
    let mut n = 0_u64;
    while !stop.load(Ordering::SeqCst) {
        let key = format!("caller-{caller}-{n}");
        let body = json!({
            "capability": "crash.test", "payload": {"n": n}, "idempotent": n.is_multiple_of(2), "qos": "background",
            "idempotency_key": key, "wait_for_agent": true, "reach_timeout_ms": 2_000, "work_timeout_ms": 600_000,
        });
        // Until the outcome is known the same submission is sent again under the same key.
        let Some((status, answer)) = client.call("/v1/tasks", &body).await else { continue };
        n += 1;
        match (status, answer["reach_id"].as_str(), Receipt::of(&answer)) {
            (200 | 202, Some(id), Some(receipt)) => {
                client.promises.lock().expect("no panic holds it").accepted.insert(key, (id.to_owned(), receipt));
            }
            (429, ..) => tokio::time::sleep(Duration::from_millis(50)).await,
            _ => client.broken(format!("a submission was answered {status} {answer}")),
        }
    }
}

/// An agent that never restarts: its instance keeps its incarnation.
async fn work_on(client: Client, agent: usize, drained: Arc<AtomicBool>) {
    let name = format!("agent-{agent}");
    let register = json!({
        "agent_id": name, "instance": format!("{name}-process"), "transport": {"kind": "pull"}, "max_concurrency": 8,
        "capabilities": [{"capability": "crash.test"}],
    });
    let incarnation = loop {
        if let Some((200, answer)) = client.call("/v1/agents", &register).await {
            break answer["incarnation"].clone();
        }
    };
    let mut empty = 0;
    while empty < 3 {
        let claim = json!({"incarnation": incarnation, "max": 4, "wait_ms": 200});
        let Some((status, answer)) = client.call(&format!("/v1/agents/{name}/claim"), &claim).await else { continue };
        let tasks = answer["tasks"].as_array().cloned().unwrap_or_default();
        if status != 200 {
            client.broken(format!("a claim was answered {status} {answer}"));
        }
        empty = if tasks.is_empty() && drained.load(Ordering::SeqCst) { empty + 1 } else { 0 };
        for task in tasks {
            let mut report = json!({"agent_id": name, "incarnation": incarnation});
            report["attempt"] = task["attempt"].clone();
            report["lease"] = task["lease"].clone();
            let (Some(id), Some(attempt)) = (task["reach_id"].as_str(), task["attempt"].as_u64()) else {
                client.broken(format!("a claimed task lacks its id or attempt: {task}"));
                continue;
            };
            if say(&client, id, attempt, "ack", report.clone()).await {
                report["result"] = json!({"echo": task["payload"]});
                say(&client, id, attempt, "complete", report).await;
            }
        }
    }
}

/// Reports until the answer is known; true if it was taken.
async fn say(client: &Client, id: &str, attempt: u64, word: &str, body: Value) -> bool {
    loop {
        let Some((status, answer)) = client.call(&format!("/v1/tasks/{id}/{word}"), &body).await else { continue };
        let mut promises = client.promises.lock().expect("no panic holds it");
        match (status, Receipt::of(&answer)) {
            (200, Some(receipt)) => {
                let taken = if word == "ack" { &mut promises.acked } else { &mut promises.done };
                let before = taken.insert((id.to_owned(), attempt), receipt.clone());
                if before.is_some_and(|before| before != receipt) {
                    promises.broken.push(format!("{word} of {id} attempt {attempt} got a second receipt"));
                }
                return true;
            }
            // A refused ack means: do not start.
            (409, _) => return false,
            _ => {
                promises.broken.push(format!("{word} of {id} was answered {status} {answer}"));
                return false;
            }
        }
    }
}
