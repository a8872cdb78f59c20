//! Latency at a given rate, open loop: submit to durable answer, to the agent's hands, to the durable result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant};

use crate::bench::life::{self, Claimed};
use crate::bench::load::{self, Run, Tally, WARM_UP, Window};
use crate::bench::pace::Pace;
use crate::bench::wire::post_json;
use crate::exit::Outcome;
use crate::workload::Arrivals;

/// Shared by the clients of one run.
#[derive(Clone)]
struct Board {
    run: Run,
    starts: Arc<Mutex<Vec<Option<Instant>>>>,
    handed: Arc<Tally>,
    ended: Arc<Tally>,
    over: Arc<AtomicBool>,
}

/// Runs it.
pub(crate) async fn run(run: Run, arrivals: Arrivals, rate: f64, pid: Option<u32>) -> Outcome<Value> {
    let board = Board {
        run: run.clone(),
        starts: Arc::default(),
        handed: Arc::default(),
        ended: Arc::default(),
        over: Arc::default(),
    };
    let mut agents = JoinSet::new();
    for n in 0..run.shape.connections {
        let agent = format!("bench-{n}");
        let incarnation = load::register(&run.target, &agent, &["bench.latency".to_owned()], 2).await?;
        agents.spawn(serve(board.clone(), agent, incarnation));
    }
    let pace = Pace::start(arrivals, WARM_UP + run.shape.window);
    let mut callers = JoinSet::new();
    for _ in 0..run.shape.connections {
        callers.spawn(call(board.clone(), pace.clone()));
    }
    let window = Window::watch(&run.tally, &[&board.handed, &board.ended], run.shape.window, pid).await;
    for clients in [&mut callers, &mut agents] {
        while let Some(ended) = clients.join_next().await {
            if !matches!(ended, Ok(Ok(()))) {
                run.tally.broken.fetch_add(1, Ordering::Relaxed);
            }
        }
        // The callers have ended: what is still open may run out.
        tokio::time::sleep(Duration::from_millis(300)).await;
        board.over.store(true, Ordering::Relaxed);
    }
    let mut row = window.row("latency", &run.shape, &run.tally);
    if let Some(row) = row.as_object_mut() {
        row.insert("rate".to_owned(), json!(rate));
        row.insert("handed_over_ms".to_owned(), board.handed.quantiles());
        row.insert("end_to_end_ms".to_owned(), board.ended.quantiles());
        row.insert("ended".to_owned(), board.ended.done.load(Ordering::Relaxed).into());
    }
    Ok(row)
}

async fn call(board: Board, pace: Pace) -> Outcome {
    let mut wire = load::connect(&board.run.target).await?;
    while let Some(due) = pace.next().await {
        board.begin(due.n, due.at);
        let body = load::submission("bench.latency", due.n, board.run.shape.payload);
        let reply =
            wire.call(&post_json(&board.run.target, "/v1/tasks", body.as_bytes())).await.map_err(load::broken)?;
        board.run.tally.took(due.at);
        match reply.status {
            200..=299 => board.run.tally.add(1),
            _ => board.run.tally.refuse(1),
        }
    }
    Ok(())
}

/// An agent that acknowledges and completes in one durable step, and waits for its answer.
async fn serve(board: Board, agent: String, incarnation: u64) -> Outcome {
    let path = format!("/v1/agents/{agent}/claim");
    let claim = format!(r#"{{"incarnation":{incarnation},"max":1,"wait_ms":200}}"#);
    let claim = post_json(&board.run.target, &path, claim.as_bytes());
    let result = "r".repeat(board.run.shape.result);
    let mut wire = load::connect(&board.run.target).await?;
    while !board.over.load(Ordering::Relaxed) {
        let reply = wire.call(&claim).await.map_err(load::broken)?;
        let claimed: Claimed<'_> = match serde_json::from_slice(&reply.body) {
            Ok(claimed) if reply.status == 200 => claimed,
            _ => {
                board.run.tally.refuse(1);
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Some(task) = claimed.tasks.first() else { continue };
        let begun = board.begun(task.payload.n);
        if let Some(begun) = begun {
            board.handed.took(begun);
        }
        let lease = life::lease(task);
        let body = format!(
            r#"{{"agent_id":"{agent}","incarnation":{incarnation},"reports":[{{"op":"ack",{lease}}},{{"op":"complete","result":"{result}",{lease}}}]}}"#
        );
        let reply = wire
            .call(&post_json(&board.run.target, "/v1/work/reports", body.as_bytes()))
            .await
            .map_err(load::broken)?;
        if reply.status != 200 {
            board.run.tally.refuse(1);
        } else if let Some(begun) = begun {
            board.ended.took(begun);
            board.ended.add(1);
        }
    }
    Ok(())
}

impl Board {
    fn begin(&self, n: u32, at: Instant) {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let at_index = usize::try_from(n).unwrap_or(0);
        if starts.len() <= at_index {
            starts.resize(at_index + 1, None);
        }
        if let Some(slot) = starts.get_mut(at_index) {
            *slot = Some(at);
        }
    }

    fn begun(&self, n: u32) -> Option<Instant> {
        let starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        *starts.get(usize::try_from(n).ok()?)?
    }
}
