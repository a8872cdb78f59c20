//! The caller: submits the plan in batches as its time comes, and believes only what was acknowledged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Client, accepted, unreachable};
use crate::demo::plan::{Fate, Planned};
use crate::exit::{Failure, Outcome};
use crate::output::field;
use crate::times::histogram;

/// Tasks that arrive within this go in one batch.
const TICK: Duration = Duration::from_millis(200);
/// Between two tries while the hub is away.
const AWAY: Duration = Duration::from_millis(100);
/// A batch that is not acknowledged by then breaks a promise.
const PATIENCE: Duration = Duration::from_secs(40);
/// A called-off task is called off so long after its acknowledgement.
const SECOND_THOUGHT: Duration = Duration::from_millis(500);

/// What was acknowledged.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    /// Every acknowledged task, and what was planned for it.
    pub(crate) tasks: BTreeMap<String, Fate>,
    /// Lines that were refused for good.
    pub(crate) refused: Vec<Value>,
    /// Batches that were acknowledged.
    pub(crate) batches: u64,
    /// Batches that had to be sent again because the hub was away; their keys made that harmless.
    pub(crate) sent_again: u64,
    /// Time of a batch's acknowledged call, in microseconds.
    pub(crate) submit_micros: Histogram<u64>,
}

impl Acknowledged {
    pub(crate) fn new() -> Self {
        Self { tasks: BTreeMap::new(), refused: Vec::new(), batches: 0, sent_again: 0, submit_micros: histogram() }
    }
}

/// A caller at work.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    client: Client,
    acknowledged: Arc<Mutex<Acknowledged>>,
}

impl Caller {
    /// A caller of that hub.
    pub(crate) fn new(client: Client) -> Self {
        Self { client, acknowledged: Arc::new(Mutex::new(Acknowledged::new())) }
    }

    /// Tasks acknowledged so far.
    pub(crate) fn count(&self) -> usize {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).tasks.len()
    }

    /// Submits everything at its time; returns when all is acknowledged and the called-off ones are called off.
    pub(crate) async fn submit(&self, plan: Vec<Planned>, began: Instant) -> Outcome {
        let mut sending = JoinSet::new();
        for batch in plan.chunk_by(|a, b| tick(a.at) == tick(b.at)) {
            sending.spawn(self.clone().send(batch.to_vec(), began));
        }
        while let Some(sent) = sending.join_next().await {
            sent.map_err(|error| Failure::new(error.to_string()))??;
        }
        Ok(())
    }

    /// What was acknowledged, once all is submitted.
    pub(crate) fn finish(self) -> Acknowledged {
        let mut shared = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *shared, Acknowledged::new())
    }

    async fn send(self, batch: Vec<Planned>, began: Instant) -> Outcome {
        let Some(due) = batch.last().map(|task| began + task.at) else { return Ok(()) };
        tokio::time::sleep_until(due).await;
        let lines: Vec<String> = batch.iter().map(|task| task.submission.to_string()).collect();
        let body = lines.join("\n") + "\n";
        let give_up = Instant::now() + PATIENCE;
        let mut sent_again = 0;
        let outcomes = loop {
            let tried = Instant::now();
            match self.post(body.clone()).await {
                Ok(outcomes) => {
                    self.note(tried.elapsed(), sent_again);
                    // A line that was refused for the moment is sent again with all the others: keys make it harmless.
                    if !outcomes.iter().any(is_passing) {
                        break outcomes;
                    }
                }
                Err(Failure::Refused(problem)) if !(problem.status >= 500 || problem.status == 429) => {
                    return Err(Failure::Refused(problem));
                }
                Err(failure) if Instant::now() > give_up => return Err(failure),
                Err(_) => sent_again = 1,
            }
            tokio::time::sleep(AWAY).await;
        };
        let called_off = self.keep(&batch, outcomes);
        if !called_off.is_empty() {
            tokio::time::sleep(SECOND_THOUGHT).await;
            for reach_id in called_off {
                self.call_off(&reach_id, give_up).await?;
            }
        }
        Ok(())
    }

    async fn post(&self, body: String) -> Outcome<Vec<Value>> {
        let request = self
            .client
            .request(reqwest::Method::POST, &["v1", "batches"])
            .header("Content-Type", "application/x-ndjson")
            .body(body);
        let text = accepted(request).await?.text().await.map_err(unreachable)?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| Failure::new(error.to_string()))?;
        match answer.get("outcomes").and_then(Value::as_array) {
            Some(outcomes) => Ok(outcomes.clone()),
            None => Err(Failure::new("the hub's answer to a batch has no outcomes")),
        }
    }

    fn note(&self, took: Duration, sent_again: u64) {
        let mut acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        acknowledged.batches += 1;
        acknowledged.sent_again += sent_again;
        acknowledged.submit_micros.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Keeps what was acknowledged; gives the tasks to call off.
    fn keep(&self, batch: &[Planned], outcomes: Vec<Value>) -> Vec<String> {
        let mut acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let mut called_off = Vec::new();
        for (n, outcome) in outcomes.into_iter().enumerate() {
            let index = outcome.get("index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
            let Some(task) = batch.get(index.unwrap_or(n)) else { continue };
            match outcome.get("reach_id").and_then(Value::as_str) {
                Some(reach_id) => {
                    if task.fate == Fate::CalledOff {
                        called_off.push(reach_id.to_owned());
                    }
                    acknowledged.tasks.insert(reach_id.to_owned(), task.fate);
                }
                None => acknowledged.refused.push(outcome),
            }
        }
        called_off
    }

    async fn call_off(&self, reach_id: &str, give_up: Instant) -> Outcome {
        loop {
            let body = json!({"reason": "the demo's caller thought again"});
            match self.client.post(&["v1", "tasks", reach_id, "cancel"], &body).await {
                Ok(_) => return Ok(()),
                // It ended first: one winner, and not us.
                Err(Failure::Refused(problem)) if problem.status == 409 => return Ok(()),
                Err(failure) if Instant::now() > give_up => return Err(failure),
                Err(_) => tokio::time::sleep(AWAY).await,
            }
        }
    }
}

fn tick(at: Duration) -> u128 {
    at.as_millis() / TICK.as_millis()
}

/// Was the line refused only for the moment?
fn is_passing(outcome: &Value) -> bool {
    let status = field(outcome, "/problem/status");
    matches!(status.as_str(), "429" | "503" | "507")
}
