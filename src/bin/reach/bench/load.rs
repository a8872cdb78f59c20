//! What every kind of load has in common: lanes, a measured window, and what came out of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bench::server;
use crate::bench::wire::{Target, Wire, post_json};
use crate::exit::{Code, Failure, Outcome};
use crate::times::{histogram, quantiles};

/// Capabilities that the submitted tasks are spread over: one lane of the queue holds 100,000 tasks at most.
pub(crate) const LANES: usize = 32;
/// Before the measured window.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);

/// Sizes and speeds of one run.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// Connections on each side.
    pub(crate) connections: usize,
    /// Tasks a request.
    pub(crate) batch: usize,
    /// Measured window.
    pub(crate) window: Duration,
    /// Bytes of a payload.
    pub(crate) payload: usize,
    /// Bytes of a result.
    pub(crate) result: usize,
}

/// Counts and times of one run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Tasks, lives or whatever the run counts, done.
    pub(crate) done: AtomicU64,
    /// Refused by the hub.
    pub(crate) refused: AtomicU64,
    /// Calls that failed.
    pub(crate) broken: AtomicU64,
    micros: Mutex<Option<Histogram<u64>>>,
}

impl Tally {
    /// Counts done ones.
    pub(crate) fn add(&self, done: usize) {
        self.done.fetch_add(u64::try_from(done).unwrap_or(0), Ordering::Relaxed);
    }

    /// Counts refused ones.
    pub(crate) fn refuse(&self, refused: usize) {
        self.refused.fetch_add(u64::try_from(refused).unwrap_or(0), Ordering::Relaxed);
    }

    /// Records how long one took, from when it was to start.
    pub(crate) fn took(&self, since: Instant) {
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut slot = self.micros.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert_with(histogram).saturating_record(micros);
    }

    /// Forgets the warm-up's times.
    fn forget_times(&self) {
        if let Some(histogram) = self.micros.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            histogram.reset();
        }
    }

    /// Quantiles in milliseconds.
    pub(crate) fn quantiles(&self) -> Value {
        let slot = self.micros.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map_or(Value::Null, |histogram| quantiles(histogram, 1e3))
    }
}

/// What the window saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    done: u64,
    seconds: f64,
    cpu_seconds: Option<f64>,
    resident_bytes: Option<u64>,
}

impl Window {
    /// Lets the load warm up, forgets its times in `beside` too, then looks at the counts and the hub's process at
    /// both ends of the window.
    pub(crate) async fn watch(tally: &Tally, beside: &[&Tally], window: Duration, pid: Option<u32>) -> Self {
        sleep(WARM_UP).await;
        beside.iter().chain([&tally]).for_each(|tally| tally.forget_times());
        let look = || (tally.done.load(Ordering::Relaxed), pid.and_then(server::cpu_seconds), Instant::now());
        let (done_before, cpu_before, from) = look();
        sleep(window).await;
        let (done_after, cpu_after, to) = look();
        Self {
            done: done_after - done_before,
            seconds: to.duration_since(from).as_secs_f64(),
            cpu_seconds: cpu_after.zip(cpu_before).map(|(after, before)| after - before),
            resident_bytes: pid.and_then(server::resident_bytes),
        }
    }

    /// The row of the report, beside what is special to its kind of work.
    pub(crate) fn row(self, work: &str, shape: &Shape, tally: &Tally) -> Value {
        let thousands = self.done as f64 / 1e3;
        json!({
            "work": work, "connections": shape.connections, "batch": shape.batch, "seconds": round(self.seconds),
            "done": self.done, "per_s": (self.done as f64 / self.seconds.max(f64::EPSILON)).round(),
            "refused": tally.refused.load(Ordering::Relaxed), "broken": tally.broken.load(Ordering::Relaxed),
            "latency_ms": tally.quantiles(),
            "server_cpu_s_per_1000": self.cpu_seconds.map(|cpu| round(cpu / thousands.max(f64::EPSILON))),
            "server_cpus": self.cpu_seconds.map(|cpu| round(cpu / self.seconds.max(f64::EPSILON))),
            "rss_mib": self.resident_bytes.map(|bytes| bytes >> 20),
        })
    }
}

/// Four digits behind the point.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Capability of the n-th lane.
pub(crate) fn lane(n: usize) -> String {
    format!("bench.lane-{}", n % LANES)
}

/// A submission of that many payload bytes; `n` is what its agent gets to see.
pub(crate) fn submission(capability: &str, n: u32, payload: usize) -> String {
    let pad = "x".repeat(payload.saturating_sub(16));
    format!(
        r#"{{"capability":"{capability}","qos":"background","idempotent":true,"payload":{{"n":{n},"pad":"{pad}"}}}}"#
    )
}

/// Registers an agent that offers these capabilities; gives its incarnation.
pub(crate) async fn register(target: &Target, agent: &str, capabilities: &[String], slots: usize) -> Outcome<u64> {
    let offers: Vec<Value> = capabilities.iter().map(|name| json!({"capability": name, "kind": "service"})).collect();
    // A silent hour is no loss: between two claims of a saturated client seconds may pass.
    let body = json!({
        "agent_id": agent, "instance": agent, "capabilities": offers, "transport": {"kind": "pull"},
        "health": {"interval_ms": 3_600_000}, "max_concurrency": slots,
    });
    let mut wire = connect(target).await?;
    let reply = wire.call(&post_json(target, "/v1/agents", body.to_string().as_bytes())).await.map_err(broken)?;
    if reply.status != 200 && reply.status != 201 {
        return Err(Failure::Refused(Box::new(crate::exit::Problem::of(reply.status, &reply.body))));
    }
    let answer: Value = serde_json::from_slice(&reply.body).map_err(|error| Failure::new(error.to_string()))?;
    Ok(answer.get("incarnation").and_then(Value::as_u64).unwrap_or(0))
}

/// Connects, or says why not.
pub(crate) async fn connect(target: &Target) -> Outcome<Wire> {
    Wire::connect(&target.address)
        .await
        .map_err(|error| Failure::Other(Code::Unreachable, format!("cannot connect to {}: {error}", target.address)))
}

/// A call that broke.
pub(crate) fn broken(error: std::io::Error) -> Failure {
    Failure::Other(Code::Unreachable, format!("a call to the hub broke: {error}"))
}

/// Shared by all clients of a run.
#[derive(Clone)]
pub(crate) struct Run {
    /// Which hub.
    pub(crate) target: Target,
    /// How large.
    pub(crate) shape: Shape,
    /// What came out.
    pub(crate) tally: Arc<Tally>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_is_json_with_a_payload_of_the_asked_size() {
        let text = submission("a.b", 7, 512);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["payload"]["n"], 7);
        let size = value["payload"].to_string().len();
        assert!((505..=520).contains(&size), "{size}");
    }

    #[test]
    fn quantiles_come_in_milliseconds_and_the_warm_up_is_forgotten() {
        let tally = Tally::default();
        assert_eq!(tally.quantiles(), Value::Null);
        tally.took(Instant::now() - Duration::from_secs(5));
        tally.forget_times();
        tally.took(Instant::now() - Duration::from_millis(20));
        let p50 = tally.quantiles()["p50"].as_f64().expect("a number");
        assert!((20.0..1_000.0).contains(&p50), "{p50}");
    }
}
