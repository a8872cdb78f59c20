//! `reach smoke`: does this hub really deliver? (R-OBS-4)
//!
//! It registers a temporary agent of its own, sends synchronous requests through the hub to it and back, and says how
//! many came through, how fast, and what went wrong. It leaves nothing behind.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::child::fresh_token;
use crate::client::{Client, answer};
use crate::ctl::Context;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{self, Format, field, millis};
use crate::times::{histogram, quantiles};

/// How to try it.
#[derive(Debug, Args)]
pub(crate) struct Smoke {
    /// How many requests, one after another
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    requests: u64,
    /// Seconds that each may take
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=120))]
    timeout: u64,
}

/// Runs it: exit code 0 only if every request came back with its own answer.
pub(crate) async fn run(context: &Context, smoke: &Smoke) -> Outcome {
    let client = &context.client;
    let tag: String = fresh_token()?.expose().chars().take(12).collect();
    let agent = format!("smoke-{tag}");
    let capability = format!("smoke.{tag}");
    let declaration = json!({
        "agent_id": agent, "instance": tag, "version": env!("CARGO_PKG_VERSION"),
        "capabilities": [{"capability": capability, "kind": "tool"}], "transport": {"kind": "pull"},
        "health": {"interval_ms": 1_000}, "max_concurrency": 4,
    });
    let registered = client.post(&["v1", "agents"], &declaration).await?;
    let incarnation = registered.get("incarnation").and_then(Value::as_u64).unwrap_or(0);
    let echo = tokio::spawn(echo(client.clone(), agent.clone(), incarnation));
    let report = requests(client, &capability, smoke).await;
    echo.abort();
    // Whatever came out, the temporary agent goes.
    let gone = client.delete(&["v1", "agents", &agent]).await;
    gone?;
    report.print(context.format);
    if report.succeeded == smoke.requests { Ok(()) } else { Err(Failure::Told(Code::Failure)) }
}

/// What came out.
#[derive(Debug)]
struct Report {
    requests: u64,
    succeeded: u64,
    errors: BTreeMap<String, u64>,
    micros: Histogram<u64>,
}

async fn requests(client: &Client, capability: &str, smoke: &Smoke) -> Report {
    let mut report = Report { requests: smoke.requests, succeeded: 0, errors: BTreeMap::new(), micros: histogram() };
    for n in 0..smoke.requests {
        let body = json!({"capability": capability, "payload": {"n": n}, "qos": "urgent"});
        let request = client
            .request(reqwest::Method::POST, &["v1", "tasks"])
            .header("Prefer", format!("wait={}", smoke.timeout))
            .timeout(Duration::from_secs(smoke.timeout + 5))
            .json(&body);
        let begun = Instant::now();
        let error = match answer(request).await {
            Ok(task) if field(&task, "/state") != "succeeded" => field(&task, "/state"),
            Ok(task) if task.pointer("/result/n").and_then(Value::as_u64) != Some(n) => "wrong-answer".to_owned(),
            Ok(_) => {
                report.succeeded += 1;
                let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                report.micros.saturating_record(micros);
                continue;
            }
            Err(Failure::Refused(problem)) => problem.code.clone(),
            Err(Failure::Other(code, _) | Failure::Told(code)) => format!("{code:?}").to_lowercase(),
        };
        *report.errors.entry(error).or_default() += 1;
    }
    report
}

impl Report {
    fn print(&self, format: Format) {
        let at = |quantile| self.micros.value_at_quantile(quantile);
        match format {
            Format::Json => output::json(&json!({
                "requests": self.requests, "succeeded": self.succeeded, "failed": self.requests - self.succeeded,
                "errors": self.errors,
                "latency_ms": quantiles(&self.micros, 1e3),
            })),
            Format::Table => {
                output::table(
                    &["requests", "succeeded", "p50", "p95", "max"],
                    [vec![
                        self.requests.to_string(),
                        self.succeeded.to_string(),
                        millis(at(0.5)),
                        millis(at(0.95)),
                        millis(self.micros.max()),
                    ]],
                );
                for (error, count) in &self.errors {
                    output::note(&format!("{count} × {}: {}", output::tame(error), advice(error)));
                }
                output::note(if self.succeeded == self.requests {
                    "this hub delivers: every request went to an agent and came back with its own answer"
                } else {
                    "THIS HUB DOES NOT DELIVER as it should; `reach status` says more"
                });
            }
        }
    }
}

/// What an error of a request points to.
fn advice(error: &str) -> &'static str {
    match error {
        "queued" | "dispatched" | "processing" => "still there when the time was up: the hub or this machine is slow",
        "wrong-answer" => "the answer of another request came back",
        "unreachable" | "timeout" => "the hub did not answer",
        "queue-full" | "rate-limited" | "busy" => "the hub is at its bounds",
        _ => "docs/errors.md tells what it means",
    }
}

/// The temporary agent: gives back what it is given. Reports ride in the next claim.
async fn echo(client: Client, agent: String, incarnation: u64) {
    loop {
        let claim = json!({"incarnation": incarnation, "max": 4, "wait_ms": 500});
        let Ok(claimed) = client.post(&["v1", "agents", &agent, "claim"], &claim).await else { return };
        for task in claimed.get("tasks").and_then(Value::as_array).into_iter().flatten() {
            let lease = |op: &str| {
                json!({"agent_id": agent, "incarnation": incarnation, "attempt": task.get("attempt"),
                       "lease": task.get("lease"), "result": (op == "complete").then(|| task.get("payload"))})
            };
            let id = field(task, "/reach_id");
            let ack = crate::ctl::agents::without_nulls(lease("ack"));
            if client.post(&["v1", "tasks", &id, "ack"], &ack).await.is_ok() {
                drop(client.post(&["v1", "tasks", &id, "complete"], &lease("complete")).await);
            }
        }
    }
}
