//! Figures of the API and of the ledger's state, in OpenMetrics text.
//!
//! Counters count as it happens; gauges of the state are asked for when somebody scrapes, so that they cost nothing
//! between two scrapes. No label holds an id (R-OBS-1).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::ledger::handle::{Ledger, Unavailable};
use crate::ledger::ids::AgentKey;
use crate::ledger::machine::State;
use crate::ledger::machine::replay::ReplayPhase;
use crate::recovery::Recovery;
use crate::recovery::tally::Tally;

use crate::scheduler::outbound::alerts::board::Board;

use super::error::ApiError;

/// Upper ends in seconds: from half a millisecond to a long-poll.
const BUCKETS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];
/// Agents counted in one question to the sequencer.
const AGENTS_AT_ONCE: usize = 2_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: String,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    namespace: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabels {
    namespace: String,
    health: &'static str,
    standing: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlertLabels {
    kind: &'static str,
    result: &'static str,
}

/// What is counted while the hub runs.
pub struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    /// Open connections.
    pub(in crate::api) connections: Gauge,
    /// Connections closed because their framing was ambiguous.
    pub(in crate::api) malformed: Counter,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let calls = Family::<CallLabels, Counter>::default();
        let buckets: fn() -> Histogram = || Histogram::new(BUCKETS);
        let seconds = Family::new_with_constructor(buckets);
        let connections = Gauge::default();
        let malformed = Counter::default();
        registry.register("http_server_requests", "Calls by route and status", calls.clone());
        registry.register_with_unit(
            "http_server_request_duration",
            "Time from a call's head to its answer's head",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register("http_server_connections", "Open connections", connections.clone());
        registry.register("http_server_malformed", "Connections refused for their framing", malformed.clone());
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("reach_build", "The running program", build);
        Self { registry, calls, seconds, connections, malformed }
    }
}

impl Metrics {
    /// Everything as OpenMetrics text, the state's gauges included.
    ///
    /// # Errors
    /// When the hub does not answer.
    pub(in crate::api) async fn render(&self, ledger: &Ledger, alerts: Option<&Board>) -> Result<String, ApiError> {
        let mut state = gauges(ledger).await?;
        told(&mut state, alerts);
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &state))
            .and_then(|()| encode_eof(&mut text))
            .map_err(|_| ApiError::internal())?;
        Ok(text)
    }
}

/// What recovery has before it, over all namespaces.
struct Gauges {
    replays: Family<PhaseLabels, Gauge>,
    items: Family<OutcomeLabels, Counter>,
    waiting: Gauge,
    held: Gauge,
}

impl Gauges {
    fn register(registry: &mut Registry) -> Self {
        let gauges = Self {
            replays: Family::default(),
            items: Family::default(),
            waiting: Gauge::default(),
            held: Gauge::default(),
        };
        registry.register("reach_replays", "Replay plans that have not ended", gauges.replays.clone());
        registry.register("reach_replay_items", "Items of replay plans since the start", gauges.items.clone());
        let help = "Orphaned tasks that the sweep will replay";
        registry.register("reach_orphans_waiting", help, gauges.waiting.clone());
        let help = "Orphaned tasks that go on by an operator's word only";
        registry.register("reach_orphans_held", help, gauges.held.clone());
        gauges
    }

    async fn ask(&self, ledger: &Ledger) -> Result<(), Unavailable> {
        let standing = recovery(ledger).await?;
        for (state, count) in [("running", standing.running), ("paused", standing.paused)] {
            self.replays.get_or_create(&PhaseLabels { state }).set(gauge(count));
        }
        let Tally { replayed, redriven, skipped } = standing.items;
        for (outcome, count) in [("replayed", replayed), ("redriven", redriven), ("skipped", skipped)] {
            self.items.get_or_create(&OutcomeLabels { outcome }).inc_by(count);
        }
        self.waiting.set(gauge(standing.waiting));
        self.held.set(gauge(standing.held));
        Ok(())
    }
}

/// How telling alerts went.
fn told(registry: &mut Registry, alerts: Option<&Board>) {
    let told = Family::<AlertLabels, Counter>::default();
    registry.register("reach_alerts", "Tries to tell alerts since the start", told.clone());
    for ((kind, outcome), count) in alerts.map(Board::counts).unwrap_or_default() {
        told.get_or_create(&AlertLabels { kind: kind.name(), result: outcome.name() }).inc_by(count);
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What recovery has before it, over all namespaces.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::api) struct Standing {
    /// Plans that run.
    pub running: usize,
    /// Plans that are paused.
    pub paused: usize,
    /// Orphans that the sweep will replay.
    pub waiting: usize,
    /// Orphans that wait for a word.
    pub held: usize,
    /// What became of plans' items since the start.
    pub items: Tally,
}

/// Asks for it.
///
/// # Errors
/// [`Unavailable`] when the hub does not answer.
pub(in crate::api) async fn recovery(ledger: &Ledger) -> Result<Standing, Unavailable> {
    // At most sixteen plans a namespace are open, so this is a bounded look.
    let asked = ledger.ask_planner::<Recovery, _>(|state, recovery| {
        let in_phase = |phase| state.replays().values().filter(|replay| replay.phase == phase).count();
        let waiting = recovery.sweep().waiting();
        Standing {
            running: in_phase(ReplayPhase::Running),
            paused: in_phase(ReplayPhase::Paused),
            waiting,
            held: state.orphans().len().saturating_sub(waiting),
            items: recovery.tally(),
        }
    });
    Ok(asked.await?.unwrap_or_default())
}

/// Every state, so that a gauge falls back to 0.
fn breakers_by_state(state: &State) -> [(&'static str, usize); 3] {
    let stands = || state.breakers().values().flat_map(BTreeMap::values).map(|breaker| breaker.stand.name());
    ["open", "half-open", "closed"].map(|name| (name, stands().filter(|stand| *stand == name).count()))
}

async fn gauges(ledger: &Ledger) -> Result<Registry, Unavailable> {
    let mut registry = Registry::default();
    let tasks = Family::<StateLabels, Gauge>::default();
    let agents = Family::<AgentLabels, Gauge>::default();
    let callbacks: Gauge = Gauge::default();
    let seq = Gauge::<u64, AtomicU64>::default();
    registry.register("reach_tasks", "Tasks in memory by state", tasks.clone());
    registry.register("reach_agents", "Agents by health and standing", agents.clone());
    registry.register("reach_callbacks_due", "Callbacks that have not settled", callbacks.clone());
    registry.register("reach_ledger_seq", "Last durable event", seq.clone());

    let recovery = Gauges::register(&mut registry);
    recovery.ask(ledger).await?;
    let (counts, due) = ledger.ask(|state| (state.counts().clone(), state.callbacks().len())).await?;
    for (namespace, count) in counts {
        for (kind, number) in count.by_state {
            let labels = StateLabels { namespace: namespace.to_string(), state: kind.name() };
            tasks.get_or_create(&labels).set(i64::from(number));
        }
    }
    let breakers = Family::<PhaseLabels, Gauge>::default();
    registry.register("reach_breakers", "Breakers of agents that are not simply closed, by state", breakers.clone());
    for (state, count) in ledger.ask(breakers_by_state).await? {
        breakers.get_or_create(&PhaseLabels { state }).set(gauge(count));
    }
    callbacks.set(i64::try_from(due).unwrap_or(i64::MAX));
    seq.set(ledger.published().seq.0);
    let mut after: Option<AgentKey> = None;
    loop {
        let from = after.take();
        let seen = ledger
            .ask(move |state| {
                let start = from.map_or(Bound::Unbounded, Bound::Excluded);
                let some = state.agents().range((start, Bound::Unbounded)).take(AGENTS_AT_ONCE);
                some.map(|(key, agent)| (key.clone(), agent.health, agent.standing)).collect::<Vec<_>>()
            })
            .await?;
        let full = seen.len() == AGENTS_AT_ONCE;
        for (key, health, standing) in seen {
            let labels =
                AgentLabels { namespace: key.namespace.to_string(), health: health.name(), standing: standing.name() };
            agents.get_or_create(&labels).inc();
            after = Some(key);
        }
        if !full {
            return Ok(registry);
        }
    }
}

impl Metrics {
    /// Counts one call: its route, how it was answered and how long that took.
    pub(in crate::api) fn count(&self, method: &'static str, route: String, status: u16, seconds: f64) {
        let method = method.to_owned();
        self.calls.get_or_create(&CallLabels { method: method.clone(), route: route.clone(), status }).inc();
        self.seconds.get_or_create(&RouteLabels { method, route }).observe(seconds);
    }
}
