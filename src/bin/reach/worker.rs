//! A real agent process: it registers, beats, claims, acknowledges before it starts, works, reports, and leaves politely.
//!
//! It speaks only HTTP, as an agent in any language would. What it must get right is what makes delivery safe: no start
//! without an accepted ack, an outcome repeated until the hub has answered it, and `held` in every heartbeat so that a
//! restarted hub knows what is still being worked on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;

use crate::client::{Client, Connect, answer};
use crate::exit::{Code, Failure, Outcome};
use crate::work::{self, Job};

/// One open claim waits so long for work.
const CLAIM_WAIT: Duration = Duration::from_secs(2);
/// Running work may finish for so long after a goodbye.
const GOODBYE_GRACE: Duration = Duration::from_secs(10);
/// Reports that wait to be sent; a full queue holds the work back.
const REPORTS: usize = 1_024;
/// Reports in one call.
const REPORTS_A_CALL: usize = 128;
/// Between two tries while the hub is away.
const AWAY: Duration = Duration::from_millis(150);

/// A demo agent.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its agent id
    #[arg(long)]
    name: String,
    /// Folder with the files that it works on
    #[arg(long)]
    files: PathBuf,
    /// Tasks at the same time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    slots: u32,
    /// Heartbeat interval in milliseconds
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    heartbeat_ms: u64,
    /// End when the parent process ends
    #[arg(long)]
    die_with_parent: bool,
}

/// A task that this agent works on.
#[derive(Debug)]
struct Holding {
    attempt: u64,
    work: Option<AbortHandle>,
}

/// Does the agent take new work?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// Yes.
    Working,
    /// No: it finishes what it holds and leaves.
    Leaving,
}

/// What its parts share.
#[derive(Debug)]
struct Agent {
    client: Client,
    name: String,
    instance: String,
    slots: u32,
    heartbeat: Duration,
    folder: PathBuf,
    incarnation: watch::Sender<u64>,
    mood: watch::Sender<Mood>,
    held: Mutex<BTreeMap<String, Holding>>,
    reports: mpsc::Sender<Value>,
}

/// Runs the agent until it is told to leave.
pub(crate) async fn run(args: &Args, connect: &Connect) -> Outcome {
    if args.die_with_parent {
        crate::child::die_with_parent();
    }
    let (reports, outbox) = mpsc::channel(REPORTS);
    let agent = Arc::new(Agent {
        client: Client::new(connect)?,
        name: args.name.clone(),
        instance: crate::child::fresh_token()?.expose().to_owned(),
        slots: args.slots,
        heartbeat: Duration::from_millis(args.heartbeat_ms),
        folder: args.files.clone(),
        incarnation: watch::Sender::new(0),
        mood: watch::Sender::new(Mood::Working),
        held: Mutex::default(),
        reports,
    });
    agent.register().await?;
    let beating = tokio::spawn(Arc::clone(&agent).beat());
    let reporting = tokio::spawn(Arc::clone(&agent).report(outbox));
    let slots = Arc::new(Semaphore::new(usize::try_from(args.slots).unwrap_or(1)));
    let mut mood = agent.mood.subscribe();
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::new(error.to_string()))?;
    tokio::select! {
        () = Arc::clone(&agent).take_work(&slots) => {}
        _ = terminate.recv() => {}
        _ = mood.wait_for(|mood| *mood == Mood::Leaving) => {}
    }
    agent.mood.send_replace(Mood::Leaving);
    // Every permit back means: every outcome has been answered.
    drop(tokio::time::timeout(GOODBYE_GRACE, slots.acquire_many(args.slots)).await);
    beating.abort();
    reporting.abort();
    // A goodbye that fails changes nothing: silence says the same, later (R-REG-6).
    drop(
        agent
            .client
            .post(&["v1", "agents", &agent.name, "offline"], &json!({"incarnation": agent.incarnation()}))
            .await,
    );
    Ok(())
}

impl Agent {
    fn incarnation(&self) -> u64 {
        *self.incarnation.borrow()
    }

    /// Registers, as often as it takes while the hub is away.
    async fn register(&self) -> Outcome {
        let capabilities: Vec<Value> =
            work::CAPABILITIES.iter().map(|name| json!({"capability": name, "kind": "service"})).collect();
        let declaration = json!({
            "agent_id": self.name, "instance": self.instance, "version": env!("CARGO_PKG_VERSION"),
            "capabilities": capabilities, "transport": {"kind": "pull"},
            "health": {"interval_ms": u64::try_from(self.heartbeat.as_millis()).unwrap_or(250)},
            "max_concurrency": self.slots,
        });
        loop {
            match self.client.post(&["v1", "agents"], &declaration).await {
                Ok(answer) => {
                    self.incarnation.send_replace(answer.get("incarnation").and_then(Value::as_u64).unwrap_or(0));
                    return Ok(());
                }
                Err(failure) if is_passing(&failure) => tokio::time::sleep(AWAY).await,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Beats, lists what it holds, and obeys what the answer tells.
    async fn beat(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(self.heartbeat);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let body = json!({"incarnation": self.incarnation(), "held": self.held_list()});
            let request = self.client.request(reqwest::Method::POST, &["v1", "agents", &self.name, "heartbeat"]);
            match answer(request.json(&body).timeout(Duration::from_secs(2))).await {
                Ok(told) => self.obey(&told),
                Err(Failure::Refused(problem)) if matches!(problem.status, 404 | 409 | 410) => {
                    // Deregistered after a drain, or another process took the name: no more work here.
                    self.mood.send_replace(Mood::Leaving);
                }
                Err(_) => {}
            }
        }
    }

    fn held_list(&self) -> Vec<Value> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|(id, holding)| json!({"reach_id": id, "attempt": holding.attempt})).collect()
    }

    fn obey(&self, told: &Value) {
        if told.get("drain").is_some_and(|drain| !drain.is_null() && *drain != Value::Bool(false)) {
            self.mood.send_replace(Mood::Leaving);
        }
        for list in ["cancelled", "lost"] {
            for item in told.get(list).and_then(Value::as_array).into_iter().flatten() {
                let id = item.get("reach_id").and_then(Value::as_str).or_else(|| item.as_str()).unwrap_or_default();
                let attempt = item.get("attempt").and_then(Value::as_u64);
                let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                if held.get(id).is_some_and(|holding| attempt.is_none_or(|attempt| attempt == holding.attempt))
                    && let Some(holding) = held.remove(id)
                    && let Some(work) = holding.work
                {
                    work.abort();
                }
            }
        }
    }

    /// Claims as much as there are free slots, acknowledges, and starts what was accepted.
    async fn take_work(self: Arc<Self>, slots: &Arc<Semaphore>) {
        loop {
            let Ok(first) = Arc::clone(slots).acquire_owned().await else { return };
            let mut permits = vec![first];
            while let Ok(permit) = Arc::clone(slots).try_acquire_owned() {
                permits.push(permit);
            }
            let body = json!({
                "incarnation": self.incarnation(), "max": permits.len(),
                "wait_ms": u64::try_from(CLAIM_WAIT.as_millis()).unwrap_or(1_000),
            });
            let request = self.client.request(reqwest::Method::POST, &["v1", "agents", &self.name, "claim"]);
            match answer(request.json(&body).timeout(CLAIM_WAIT * 3)).await {
                Ok(claimed) => {
                    let tasks = claimed.get("tasks").and_then(Value::as_array).cloned().unwrap_or_default();
                    self.start_acknowledged(tasks, permits).await;
                }
                Err(failure) if is_passing(&failure) => tokio::time::sleep(AWAY).await,
                Err(_) => {
                    self.mood.send_replace(Mood::Leaving);
                    return;
                }
            }
        }
    }

    /// Ack before start: only what the hub accepts is begun (design, rule 1).
    async fn start_acknowledged(self: &Arc<Self>, tasks: Vec<Value>, mut permits: Vec<OwnedSemaphorePermit>) {
        if tasks.is_empty() {
            return;
        }
        let acks = tasks.iter().map(|task| report("ack", task, json!({}))).collect();
        let accepted = self.deliver(acks).await;
        for (task, outcome) in tasks.into_iter().zip(accepted) {
            let Some(permit) = permits.pop() else { return };
            if outcome.get("status").and_then(Value::as_u64) == Some(200) {
                self.start(task, permit);
            }
        }
    }

    fn start(self: &Arc<Self>, task: Value, permit: OwnedSemaphorePermit) {
        let id = text(&task, "reach_id").to_owned();
        let attempt = task.get("attempt").and_then(Value::as_u64).unwrap_or(0);
        let holding = Holding { attempt, work: None };
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), holding);
        let agent = Arc::clone(self);
        let work = tokio::spawn(async move {
            let outcome = agent.work_on(&task).await;
            // Sent before the permit is free, so that an empty agent has told everything.
            drop(agent.reports.send(outcome).await);
            drop(permit);
        });
        if let Some(holding) = self.held.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&id) {
            holding.work = Some(work.abort_handle());
        }
    }

    /// Works, with the fate that the payload's `demo` field orders, and gives the report.
    async fn work_on(&self, task: &Value) -> Value {
        let payload = task.get("payload").cloned().unwrap_or_default();
        let fate = payload.get("demo").cloned().unwrap_or_default();
        let attempt = task.get("attempt").and_then(Value::as_u64).unwrap_or(0);
        if let Some(hold) = fate.get("hold_ms").and_then(Value::as_u64) {
            let stage = report("progress", task, json!({"stage": "holding", "percent": 10}));
            drop(self.reports.send(stage).await);
            tokio::time::sleep(Duration::from_millis(hold)).await;
        }
        if attempt <= fate.get("fail_attempts").and_then(Value::as_u64).unwrap_or(0) {
            let error = json!({"code": "demo-flaky", "message": "told to fail this attempt"});
            return report("fail", task, json!({"error": error, "retryable": true}));
        }
        if fate.get("fail_until").is_some_and(|file| !is_there(&self.folder, file)) {
            let error = json!({"code": "demo-downstream", "message": "what this work needs is broken"});
            return report("fail", task, json!({"error": error, "retryable": true}));
        }
        if fate.get("fail").is_some() {
            let error = json!({"code": "demo-broken", "message": "told to fail for good"});
            return report("fail", task, json!({"error": error, "retryable": false}));
        }
        match do_work(text(task, "capability").to_owned(), payload, self.folder.clone()).await {
            Ok(result) => report("complete", task, json!({"result": result})),
            Err(error) => report(
                "fail",
                task,
                json!({"error": {"code": error.code, "message": error.message}, "retryable": false}),
            ),
        }
    }

    /// Sends outcomes, many in a call, each until the hub has answered it.
    async fn report(self: Arc<Self>, mut outbox: mpsc::Receiver<Value>) {
        let mut batch = Vec::new();
        while outbox.recv_many(&mut batch, REPORTS_A_CALL).await > 0 {
            let ended: Vec<(String, u64)> = batch
                .iter()
                .filter(|report| text(report, "op") != "progress")
                .map(|report| (text(report, "reach_id").to_owned(), report["attempt"].as_u64().unwrap_or(0)))
                .collect();
            self.deliver(std::mem::take(&mut batch)).await;
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            for (id, attempt) in ended {
                if held.get(&id).is_some_and(|holding| holding.attempt == attempt) {
                    held.remove(&id);
                }
            }
        }
    }

    /// Sends reports until they are answered; saying one twice is harmless (semantics 14). An outcome for each.
    async fn deliver(&self, reports: Vec<Value>) -> Vec<Value> {
        let body = json!({"agent_id": self.name, "incarnation": self.incarnation(), "reports": reports});
        loop {
            match self.client.post(&["v1", "work", "reports"], &body).await {
                Ok(answer) => return answer.get("outcomes").and_then(Value::as_array).cloned().unwrap_or_default(),
                Err(failure) if is_passing(&failure) => tokio::time::sleep(AWAY).await,
                Err(_) => return Vec::new(),
            }
        }
    }
}

async fn do_work(capability: String, payload: Value, folder: PathBuf) -> Result<Value, work::WorkError> {
    let job = tokio::task::spawn_blocking(move || work::start(&capability, &payload, Path::new(&folder)))
        .await
        .map_err(|error| work::WorkError { code: "worker-bug", message: error.to_string() })??;
    match job {
        Job::Compute(result) => Ok(result),
        Job::Generate { takes, context_tokens, generated_tokens } => {
            tokio::time::sleep(takes).await;
            Ok(json!({"context_tokens": context_tokens, "generated_tokens": generated_tokens}))
        }
    }
}

/// Is that file in the folder? What is no plain file name is not.
fn is_there(folder: &Path, file: &Value) -> bool {
    file.as_str().and_then(|name| work::inside(folder, name).ok()).is_some_and(|path| path.exists())
}

/// One report on a claimed task.
fn report(op: &str, task: &Value, more: Value) -> Value {
    let mut report = json!({
        "op": op, "reach_id": task.get("reach_id"), "attempt": task.get("attempt"), "lease": task.get("lease"),
    });
    if let (Some(report), Value::Object(more)) = (report.as_object_mut(), more) {
        report.extend(more);
    }
    report
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Will it pass by itself? A hub that is away or too busy; not a refusal.
fn is_passing(failure: &Failure) -> bool {
    match failure {
        Failure::Refused(problem) => problem.status >= 500 || problem.status == 429,
        Failure::Other(code, _) | Failure::Told(code) => matches!(code, Code::Unreachable | Code::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_carries_the_lease_of_its_claim() {
        let task = json!({"reach_id": "reach_x", "attempt": 2, "lease": "L", "payload": {"big": true}});
        let made = report("complete", &task, json!({"result": 1}));
        assert_eq!(made, json!({"op": "complete", "reach_id": "reach_x", "attempt": 2, "lease": "L", "result": 1}));
    }

    #[test]
    fn what_is_broken_is_mended_by_a_file_of_a_plain_name_inside_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!is_there(folder.path(), &json!("mended")));
        std::fs::write(folder.path().join("mended"), "").expect("writable");
        assert!(is_there(folder.path(), &json!("mended")));
        assert!(!is_there(&folder.path().join("below"), &json!("../mended")) && !is_there(folder.path(), &json!(1)));
    }

    #[test]
    fn a_hub_that_is_away_passes_and_a_refusal_does_not() {
        assert!(is_passing(&Failure::Other(Code::Unreachable, String::new())));
        let refused = |status| Failure::Refused(Box::new(crate::exit::Problem::of(status, b"")));
        assert!(is_passing(&refused(503)));
        assert!(!is_passing(&refused(409)));
    }
}
