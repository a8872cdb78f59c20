//! Whole lives: submitted, handed over, acknowledged, completed, each step durable.
//!
//! Submitters and agents are apart, as in life. A claim carries the outcomes of the one before, so a life of a single
//! task takes three calls: submit, acknowledge, claim with the last result. What is open at any time is bounded, so
//! that lives are measured and not a growing queue.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, timeout};

use crate::bench::load::{self, Run, Window};
use crate::bench::wire::{post_json, request};
use crate::exit::Outcome;

/// Tasks open at most, for each task that all submitters can send at once.
const OPEN_FACTOR: usize = 4;
/// After the window, open lives may end within this.
const RUN_OUT: Duration = Duration::from_secs(10);

/// The answer to a claim, as far as it is needed.
#[derive(Deserialize)]
pub(crate) struct Claimed<'a> {
    /// Tasks handed over.
    #[serde(borrow)]
    pub(crate) tasks: Vec<Lent<'a>>,
    /// What became of the reports.
    #[serde(default)]
    pub(crate) outcomes: Vec<Reported>,
}

/// One task handed over.
#[derive(Deserialize)]
pub(crate) struct Lent<'a> {
    pub(crate) reach_id: &'a str,
    pub(crate) attempt: u32,
    pub(crate) lease: &'a str,
    #[serde(default)]
    pub(crate) payload: Numbered,
}

/// The payload of a bench's task.
#[derive(Deserialize, Default)]
pub(crate) struct Numbered {
    #[serde(default)]
    pub(crate) n: u32,
}

/// What became of one report.
#[derive(Deserialize)]
pub(crate) struct Reported {
    #[serde(default)]
    pub(crate) status: u16,
}

/// Shared by the clients of one run.
#[derive(Clone)]
struct Board {
    run: Run,
    open: Arc<Semaphore>,
    submitting: Arc<AtomicBool>,
    capacity: usize,
}

/// Runs it.
pub(crate) async fn run(work: &str, run: Run, pid: Option<u32>) -> Outcome<Value> {
    let capacity = run.shape.connections * run.shape.batch * OPEN_FACTOR;
    let board = Board {
        run: run.clone(),
        open: Arc::new(Semaphore::new(capacity)),
        submitting: Arc::new(AtomicBool::new(true)),
        capacity,
    };
    let mut clients = JoinSet::new();
    for n in 0..run.shape.connections {
        let agent = format!("bench-{n}");
        let slots = run.shape.batch.saturating_mul(2).max(2);
        let incarnation = load::register(&run.target, &agent, &["bench.life".to_owned()], slots).await?;
        clients.spawn(work_off(board.clone(), agent, incarnation));
    }
    for _ in 0..run.shape.connections {
        clients.spawn(submit(board.clone()));
    }
    let window = Window::watch(&run.tally, &[], run.shape.window, pid).await;
    board.submitting.store(false, Ordering::Relaxed);
    // Everything open runs out, so that the ledger holds finished lives only.
    let all = u32::try_from(board.capacity).unwrap_or(u32::MAX);
    let run_out = timeout(RUN_OUT, board.open.acquire_many(all)).await.is_ok();
    board.open.close();
    while let Some(ended) = clients.join_next().await {
        if !matches!(ended, Ok(Ok(()))) {
            run.tally.broken.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut row = window.row(work, &run.shape, &run.tally);
    if let Some(row) = row.as_object_mut() {
        row.insert("lives".to_owned(), run.tally.done.load(Ordering::Relaxed).into());
        row.insert("run_out".to_owned(), run_out.into());
    }
    Ok(row)
}

async fn submit(board: Board) -> Outcome {
    let shape = &board.run.shape;
    let target = &board.run.target;
    let line = load::submission("bench.life", 0, shape.payload);
    let prepared = if shape.batch == 1 {
        post_json(target, "/v1/tasks", line.as_bytes())
    } else {
        let lines = format!("{line}\n").repeat(shape.batch);
        request(target, "POST", "/v1/batches", "application/x-ndjson", lines.as_bytes())
    };
    let mut wire = load::connect(target).await?;
    let batch = u32::try_from(shape.batch).unwrap_or(1);
    while board.submitting.load(Ordering::Relaxed) {
        let Ok(Ok(permits)) = timeout(Duration::from_millis(100), board.open.acquire_many(batch)).await else {
            continue;
        };
        let begun = Instant::now();
        let reply = wire.call(&prepared).await.map_err(load::broken)?;
        board.run.tally.took(begun);
        if (200..300).contains(&reply.status) {
            // Given back as their lives end.
            permits.forget();
        } else {
            board.run.tally.refuse(shape.batch);
        }
    }
    Ok(())
}

async fn work_off(board: Board, agent: String, incarnation: u64) -> Outcome {
    let shape = &board.run.shape;
    let path = format!("/v1/agents/{agent}/claim");
    let result = "r".repeat(shape.result);
    let mut wire = load::connect(&board.run.target).await?;
    let mut reports = String::new();
    let mut body = String::new();
    while !board.open.is_closed() {
        body.clear();
        let _ = write!(
            body,
            r#"{{"incarnation":{incarnation},"max":{},"wait_ms":200,"reports":[{reports}]}}"#,
            shape.batch
        );
        let reply = wire.call(&post_json(&board.run.target, &path, body.as_bytes())).await.map_err(load::broken)?;
        let claimed: Claimed<'_> = match serde_json::from_slice(&reply.body) {
            Ok(claimed) if reply.status == 200 => claimed,
            _ => {
                board.run.tally.refuse(1);
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let done = claimed.outcomes.iter().filter(|outcome| outcome.status == 200).count();
        board.run.tally.add(done);
        board.run.tally.refuse(claimed.outcomes.len() - done);
        board.open.add_permits(claimed.outcomes.len());
        let acks = acks(&claimed.tasks, &agent, incarnation);
        reports.clear();
        for task in &claimed.tasks {
            let comma = if reports.is_empty() { "" } else { "," };
            let _ = write!(reports, r#"{comma}{{"op":"complete","result":"{result}",{}}}"#, lease(task));
        }
        if let Some((path, body)) = acks {
            let reply = wire.call(&post_json(&board.run.target, &path, body.as_bytes())).await.map_err(load::broken)?;
            if reply.status != 200 {
                board.run.tally.refuse(1);
            }
        }
    }
    Ok(())
}

/// The acknowledgements of what was handed over: one by its own call, several in bulk.
pub(crate) fn acks(tasks: &[Lent<'_>], agent: &str, incarnation: u64) -> Option<(String, String)> {
    match tasks {
        [] => None,
        [task] => Some((
            format!("/v1/tasks/{}/ack", task.reach_id),
            format!(
                r#"{{"agent_id":"{agent}","incarnation":{incarnation},"attempt":{},"lease":"{}"}}"#,
                task.attempt, task.lease
            ),
        )),
        _ => {
            let reports: Vec<String> = tasks.iter().map(|task| format!(r#"{{"op":"ack",{}}}"#, lease(task))).collect();
            let reports = reports.join(",");
            let body = format!(r#"{{"agent_id":"{agent}","incarnation":{incarnation},"reports":[{reports}]}}"#);
            Some(("/v1/work/reports".to_owned(), body))
        }
    }
}

/// The fields that name a lease.
pub(crate) fn lease(task: &Lent<'_>) -> String {
    format!(r#""reach_id":"{}","attempt":{},"lease":"{}""#, task.reach_id, task.attempt, task.lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = r#"{"tasks":[{"reach_id":"reach_a","attempt":1,"lease":"L","payload":{"n":3,"pad":"x"}},
        {"reach_id":"reach_b","attempt":2,"lease":"M","payload":{"n":4}}],"outcomes":[{"reach_id":"reach_c","status":200}]}"#;

    #[test]
    fn one_task_is_acknowledged_by_its_own_call_and_several_in_bulk() {
        let claimed: Claimed<'_> = serde_json::from_str(CLAIM).expect("JSON");
        assert_eq!((claimed.outcomes[0].status, claimed.tasks[1].payload.n), (200, 4));
        let (path, body) = acks(&claimed.tasks[..1], "a", 5).expect("one");
        assert_eq!(path, "/v1/tasks/reach_a/ack");
        assert_eq!(body, r#"{"agent_id":"a","incarnation":5,"attempt":1,"lease":"L"}"#);
        let (path, body) = acks(&claimed.tasks, "a", 5).expect("two");
        assert_eq!(path, "/v1/work/reports");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["reports"][1]["lease"], "M");
        assert!(acks(&[], "a", 5).is_none());
    }
}
