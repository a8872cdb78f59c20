//! One look at a namespace: what waits, what runs, how much ended how. The first call of whoever was woken up.
//!
//! Why a call of its own: the figures are of one moment, so they add up, and they are counted as things happen, so the
//! answer takes as long after a million tasks as after ten.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::ids::Namespace;
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::agent::Standing;
use crate::ledger::machine::task::spec::OrphanPolicy;

use super::App;
use super::error::ApiResult;
use super::extract::{Caller, Json, NoQuery};
use super::health::phase_name;

/// Orphans of all namespaces looked at.
const LOOKED_AT: usize = 10_000;

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(status))
}

/// How a namespace stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Status)]
struct StatusView {
    namespace: String,
    /// `starting`, `open`, `draining`, `disk-low`, `disk-full` or `stopped`.
    phase: &'static str,
    /// The last event that the figures know.
    seq: u64,
    /// Tasks by state: those of today in states that go on, all since the first in states that do not.
    tasks: BTreeMap<&'static str, TasksView>,
    /// Ended tasks that were made anew; each at most once.
    redriven: u64,
    orphans: OrphansView,
    /// Agents by health, or by standing where that is not `active`.
    agents: BTreeMap<&'static str, u32>,
}

/// Tasks in one state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StatusTasks)]
struct TasksView {
    count: u64,
    /// When the last one ended; only for states that end.
    #[schema(format = DateTime, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    last_ended_at: Option<String>,
}

/// Tasks whose agent is gone.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = StatusOrphans)]
struct OrphansView {
    /// They come back by themselves, at the namespace's pace.
    waiting: u32,
    /// They go on by an operator's word only.
    held: u32,
    /// There are more than were looked at: the oldest 10,000 of all namespaces.
    more: bool,
}

/// How the call's namespace stands, in figures of one moment.
#[utoipa::path(get, path = "/v1/status", operation_id = "get_status", tag = "health",
    responses((status = 200, body = StatusView)))]
async fn status(State(app): State<App>, caller: Caller, _: NoQuery) -> ApiResult<Json<StatusView>> {
    caller.require_one_of(&[Scope::Read, Scope::Operate])?;
    let (namespace, phase) = (caller.namespace, app.ledger.published().phase);
    let view = app.ledger.ask(move |state| StatusView {
        phase: phase_name(phase),
        seq: state.seq().0,
        tasks: tasks(state, &namespace),
        redriven: state.endings(&namespace).redriven,
        orphans: orphans(state, &namespace),
        agents: agents(state, &namespace),
        namespace: namespace.to_string(),
    });
    Ok(Json(view.await?))
}

fn tasks(state: &Ledgered, namespace: &Namespace) -> BTreeMap<&'static str, TasksView> {
    let live = state.counts().get(namespace).into_iter().flat_map(|count| &count.by_state);
    let live = live
        .filter(|(kind, _)| !kind.is_terminal())
        .map(|(kind, count)| (kind.name(), TasksView { count: u64::from(*count), last_ended_at: None }));
    let endings = state.endings(namespace).by_state.into_iter().map(|(kind, ending)| {
        (kind.name(), TasksView { count: ending.count, last_ended_at: Some(ending.last.to_string()) })
    });
    live.chain(endings).collect()
}

fn orphans(state: &Ledgered, namespace: &Namespace) -> OrphansView {
    let mut view = OrphansView { more: state.orphans().len() > LOOKED_AT, ..OrphansView::default() };
    let looked_at = state.orphans().iter().take(LOOKED_AT).filter_map(|(_, id)| state.task(*id));
    for task in looked_at.filter(|task| task.namespace == *namespace) {
        let waits_for_a_word = task.spec.orphan == OrphanPolicy::Hold || state.held(task.id()).is_some();
        let count = if waits_for_a_word { &mut view.held } else { &mut view.waiting };
        *count += 1;
    }
    view
}

fn agents(state: &Ledgered, namespace: &Namespace) -> BTreeMap<&'static str, u32> {
    let mut counts = BTreeMap::new();
    let all = state.agents().iter().skip_while(|(key, _)| key.namespace < *namespace);
    for (_, agent) in all.take_while(|(key, _)| key.namespace == *namespace) {
        let word = if agent.standing == Standing::Active { agent.health.name() } else { agent.standing.name() };
        *counts.entry(word).or_insert(0) += 1;
    }
    counts
}
