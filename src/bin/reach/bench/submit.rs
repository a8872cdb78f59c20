//! Submits, one or many a request: as fast as answers come, or at a rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::load::{self, LANES, Run, WARM_UP, Window};
use crate::bench::pace::Pace;
use crate::bench::wire::{post_json, request};
use crate::exit::{Failure, Outcome, Problem};
use crate::workload::Arrivals;

/// What is needed of a batch's answer.
#[derive(Deserialize)]
struct BatchAnswer {
    outcomes: Vec<BatchOutcome>,
}

/// One line of it.
#[derive(Deserialize)]
struct BatchOutcome {
    #[serde(default)]
    reach_id: Option<String>,
}

/// Runs it; an open loop if there are arrivals.
pub(crate) async fn run(work: &str, run: Run, arrivals: Option<Arrivals>, pid: Option<u32>) -> Outcome<Value> {
    let capabilities: Vec<String> = (0..LANES).map(load::lane).collect();
    load::register(&run.target, "bench-sink", &capabilities, 1).await?;
    let span = WARM_UP + run.shape.window;
    let pace = arrivals.map(|arrivals| Pace::start(arrivals, span));
    let mut clients = JoinSet::new();
    let end = Instant::now() + span;
    for n in 0..run.shape.connections {
        clients.spawn(client(run.clone(), n, pace.clone(), end));
    }
    let window = Window::watch(&run.tally, &[], run.shape.window, pid).await;
    while let Some(ended) = clients.join_next().await {
        if !matches!(ended, Ok(Ok(()))) {
            run.tally.broken.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(window.row(work, &run.shape, &run.tally))
}

async fn client(run: Run, n: usize, pace: Option<Pace>, end: Instant) -> Outcome {
    let line = load::submission(&load::lane(n), 0, run.shape.payload);
    let prepared = if run.shape.batch == 1 {
        post_json(&run.target, "/v1/tasks", line.as_bytes())
    } else {
        let lines = format!("{line}\n").repeat(run.shape.batch);
        request(&run.target, "POST", "/v1/batches", "application/x-ndjson", lines.as_bytes())
    };
    let mut wire = load::connect(&run.target).await?;
    loop {
        let due = match &pace {
            Some(pace) => match pace.next().await {
                Some(due) => due.at,
                None => return Ok(()),
            },
            None => Instant::now(),
        };
        if due >= end {
            return Ok(());
        }
        let reply = wire.call(&prepared).await.map_err(load::broken)?;
        run.tally.took(due);
        let accepted = match reply.status {
            200..=299 if run.shape.batch == 1 => 1,
            200..=299 => accepted(&reply.body),
            _ => 0,
        };
        run.tally.add(accepted);
        run.tally.refuse(run.shape.batch - accepted);
    }
}

/// Submits exactly `live` tasks that nobody takes.
pub(crate) async fn fill(run: &Run, live: usize) -> Outcome {
    let capabilities: Vec<String> = (0..LANES).map(load::lane).collect();
    load::register(&run.target, "bench-sink", &capabilities, 1).await?;
    let left = Arc::new(AtomicUsize::new(live));
    let mut clients = JoinSet::new();
    for n in 0..run.shape.connections {
        clients.spawn(fill_lane(run.clone(), n, Arc::clone(&left)));
    }
    while let Some(ended) = clients.join_next().await {
        ended.map_err(|error| Failure::new(error.to_string()))??;
    }
    Ok(())
}

async fn fill_lane(run: Run, n: usize, left: Arc<AtomicUsize>) -> Outcome {
    let mut wire = load::connect(&run.target).await?;
    for lane in (n..).step_by(run.shape.connections.max(1)) {
        let take = |left: usize| Some(left.saturating_sub(run.shape.batch));
        let found = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
        let count = found.min(run.shape.batch);
        if count == 0 {
            break;
        }
        let lines = format!("{}\n", load::submission(&load::lane(lane), 0, run.shape.payload)).repeat(count);
        let request = request(&run.target, "POST", "/v1/batches", "application/x-ndjson", lines.as_bytes());
        let reply = wire.call(&request).await.map_err(load::broken)?;
        if !(200..300).contains(&reply.status) || accepted(&reply.body) != count {
            return Err(Failure::Refused(Box::new(Problem::of(reply.status, &reply.body))));
        }
    }
    Ok(())
}

fn accepted(body: &[u8]) -> usize {
    let answer: Result<BatchAnswer, _> = serde_json::from_slice(body);
    answer.map_or(0, |answer| answer.outcomes.iter().filter(|outcome| outcome.reach_id.is_some()).count())
}
