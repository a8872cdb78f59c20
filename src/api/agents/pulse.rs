//! How an agent feels, as far as the hub saw it (R-REG-11): volatile figures, empty after a restart.

use serde::Serialize;

use crate::api::App;
use crate::api::error::ApiResult;
use crate::ledger::ids::AgentKey;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::vitals;

/// Volatile figures.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub(super) struct Pulse {
    /// What the agent reported last.
    load: Option<Load>,
    /// From dispatch to acknowledgement.
    reach_latency: Latency,
    /// From acknowledgement to outcome.
    work_latency: Latency,
    /// Failed attempts of late, 0 to 1; null before the first outcome.
    failure_rate: Option<f64>,
    /// While it is slower than it always was: it has half its weight. Null otherwise.
    slowed: Option<Slowed>,
}

/// Most of the last eight attempts took more than three times the agent's usual p99.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Slowed {
    /// What most of them took at least.
    recent_ms: u64,
    usual_p99_ms: u64,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Load {
    queue_depth: u32,
    in_flight: u32,
    mean_latency_ms: Option<u64>,
    #[schema(format = DateTime)]
    reported_at: String,
}

/// Percentiles in milliseconds; null without samples.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
struct Latency {
    samples: u32,
    p50_ms: Option<u64>,
    p95_ms: Option<u64>,
    p99_ms: Option<u64>,
}

impl Latency {
    fn of(latency: &vitals::Latency) -> Self {
        let at = |percent| latency.percentile(percent).map(|span| span.0);
        Self { samples: latency.samples(), p50_ms: at(50), p95_ms: at(95), p99_ms: at(99) }
    }
}

impl From<&vitals::Pulse> for Pulse {
    fn from(pulse: &vitals::Pulse) -> Self {
        Self {
            load: pulse.load().map(|(load, at)| Load {
                queue_depth: load.queue_depth,
                in_flight: load.in_flight,
                mean_latency_ms: load.mean_latency.map(|span| span.0),
                reported_at: at.to_string(),
            }),
            reach_latency: Latency::of(&pulse.ack),
            work_latency: Latency::of(&pulse.work),
            failure_rate: pulse.outcomes.failure_milli().map(|milli| f64::from(milli) / 1_000.0),
            slowed: pulse
                .tempo
                .slowed()
                .map(|slowed| Slowed { recent_ms: slowed.recent.0, usual_p99_ms: slowed.usual_p99.0 }),
        }
    }
}

/// The agent's figures; all empty when nothing is known.
pub(super) async fn of(app: &App, key: AgentKey) -> ApiResult<Pulse> {
    let known =
        app.ledger.ask_planner(move |_, scheduler: &Scheduler| scheduler.vitals().of(&key).map(Pulse::from)).await?;
    Ok(known.flatten().unwrap_or_default())
}
