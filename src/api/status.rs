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

use crate::ledger::handle::{Phase, Unavailable};
use crate::ledger::ids::{Capability, Namespace, TokenId};
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::agent::Standing;
use crate::ledger::machine::breaker::Stand;
use crate::ledger::machine::task::spec::OrphanPolicy;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::plan::unserved::{Found, Unserved};

use super::App;
use super::error::ApiResult;
use super::extract::{Caller, Json, NoQuery};
use super::health::{self, AlertsView, phase_name};
use super::near::alike;

/// Orphans of all namespaces looked at.
const LOOKED_AT: usize = 10_000;

/// Agents with an open breaker that are named.
const NAMED: usize = 5;

/// Capabilities whose tasks nobody can take that are named.
const UNSERVED_NAMED: usize = 20;

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(status))
}

/// How a namespace stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Status)]
struct StatusView {
    namespace: String,
    /// Was anything ever here: an agent, a task, a batch, or a policy of its own? A namespace begins with its first use, so
    /// a misspelt name is one where nothing ever was.
    used: bool,
    /// Where nothing ever was: used namespaces of a like name, at most five; only for tokens that hold in all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    suggestions: Vec<String>,
    /// `starting`, `open`, `draining`, `disk-low`, `disk-full` or `stopped`.
    phase: &'static str,
    /// The last event that the figures know.
    seq: u64,
    /// Tasks by state: those of today in states that go on, all since the first in states that do not.
    tasks: BTreeMap<&'static str, TasksView>,
    /// Ended tasks that were made anew; each at most once.
    redriven: u64,
    unserved: UnservedView,
    orphans: OrphansView,
    /// Agents by health, or by standing where that is not `active`.
    agents: BTreeMap<&'static str, u32>,
    /// How telling alerts goes; shown to tokens with `operate` in all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    alerts: Option<AlertsView>,
    breakers: BreakersView,
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

/// Queued tasks that nobody can take now, however long they wait: nobody offers the capability, or all who do are gone,
/// drain, are kept from it by a breaker, or do not fit what the tasks ask for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StatusUnserved)]
struct UnservedView {
    tasks: usize,
    /// The one that waits longest first, at most 20.
    capabilities: Vec<UnservedCapabilityView>,
    /// Capabilities that are not named, for this token may not call them, and may not read either.
    not_permitted: usize,
    /// There are more than are named or were looked at.
    more: bool,
}

/// Those of one capability.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StatusUnservedCapability)]
struct UnservedCapabilityView {
    capability: String,
    tasks: usize,
    /// The one that waits longest: its explanation names every agent with the reason against it.
    reach_id: String,
    /// Since when.
    #[schema(format = DateTime)]
    queued_since: String,
    /// Agents that offer it, by what is against each; empty when nobody offers it.
    agents: BTreeMap<&'static str, u32>,
}

/// Tasks whose agent is gone.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = StatusOrphans)]
struct OrphansView {
    /// They come back by themselves, at the namespace's pace.
    waiting: u32,
    /// They go on by an operator's word only.
    held: u32,
    /// Of those, the ones that a newer task of their session has superseded, as far as it was looked for: plans leave
    /// them alone.
    superseded: u32,
    /// There are more than were looked at: the oldest 10,000 of all namespaces.
    more: bool,
}

/// Breakers by state: of agents that get no tasks of a capability, or one at a time.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = StatusBreakers)]
struct BreakersView {
    /// Nothing goes.
    open: u32,
    /// One task at a time tries the agent out.
    half_open: u32,
    /// Of those and of closed ones: an operator holds them.
    forced: u32,
    /// The first agents with one that is open or half-open, at most five.
    agents: Vec<String>,
}

/// How the call's namespace stands, in figures of one moment.
#[utoipa::path(get, path = "/v1/status", operation_id = "get_status", tag = "health",
    responses((status = 200, body = StatusView)))]
async fn status(State(app): State<App>, caller: Caller, _: NoQuery) -> ApiResult<Json<StatusView>> {
    caller.require_one_of(&[Scope::Read, Scope::Operate])?;
    let alerts = caller.bearer().require_everywhere(Scope::Operate).is_ok().then(|| health::alerts(&app));
    let is_everywhere = caller.bearer().is_everywhere();
    let sight = Sight::of(&caller);
    let asked = Asked { namespace: caller.namespace, reader: caller.token, phase: app.ledger.published().phase };
    let view = app.ledger.ask_planner(move |state, scheduler: &Scheduler| {
        let used = state.knows(&asked.namespace);
        let others = if used || !is_everywhere { Vec::new() } else { state.namespaces() };
        (asked.answer(state, scheduler, (&sight, alerts)), others)
    });
    let (mut view, others) = view.await?.ok_or(Unavailable::Starting)?;
    view.suggestions = alike(&view.namespace, others.iter().map(Namespace::as_str));
    Ok(Json(view))
}

/// Capabilities that may be named: a token that is limited to some and may not read sees those (semantics 39).
struct Sight(Option<Vec<Capability>>);

impl Sight {
    fn of(caller: &Caller) -> Self {
        let reads = caller.require(Scope::Read).is_ok();
        Self(caller.bearer().capabilities().filter(|_| !reads).map(<[Capability]>::to_vec))
    }

    fn shows(&self, capability: &Capability) -> bool {
        self.0.as_ref().is_none_or(|some| some.contains(capability))
    }
}

/// What is to be answered, and for whom.
struct Asked {
    namespace: Namespace,
    reader: TokenId,
    phase: Phase,
}

impl Asked {
    fn answer(
        &self,
        state: &Ledgered,
        scheduler: &Scheduler,
        (sight, alerts): (&Sight, Option<AlertsView>),
    ) -> StatusView {
        let namespace = &self.namespace;
        StatusView {
            namespace: namespace.to_string(),
            used: state.knows(namespace),
            suggestions: Vec::new(),
            phase: phase_name(self.phase),
            seq: state.seq().0,
            tasks: tasks(state, namespace),
            redriven: state.endings(namespace).redriven,
            unserved: unserved(scheduler.unserved(state, namespace, &self.reader), sight),
            orphans: orphans(state, namespace),
            agents: agents(state, namespace),
            alerts,
            breakers: breakers(state, namespace, sight),
        }
    }
}

fn unserved(Found { capabilities, is_cut }: Found, sight: &Sight) -> UnservedView {
    let one = |one: Unserved| UnservedCapabilityView {
        capability: one.capability.to_string(),
        tasks: one.tasks,
        reach_id: one.oldest.to_string(),
        queued_since: one.since.to_string(),
        agents: one.agents.into_iter().map(|(reason, count)| (reason.name(), count)).collect(),
    };
    let tasks = capabilities.iter().map(|one| one.tasks).sum();
    let (shown, hidden): (Vec<_>, Vec<_>) = capabilities.into_iter().partition(|one| sight.shows(&one.capability));
    UnservedView {
        tasks,
        not_permitted: hidden.len(),
        more: is_cut || shown.len() > UNSERVED_NAMED,
        capabilities: shown.into_iter().take(UNSERVED_NAMED).map(one).collect(),
    }
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
        view.superseded += u32::from(state.held(task.id()).is_some());
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

fn breakers(state: &Ledgered, namespace: &Namespace, sight: &Sight) -> BreakersView {
    let mut view = BreakersView::default();
    let all = state.breakers().iter().skip_while(|(agent, _)| agent.namespace < *namespace);
    for (agent, breakers) in all.take_while(|(agent, _)| agent.namespace == *namespace) {
        let mut is_named = false;
        for (capability, breaker) in breakers {
            let count = match breaker.stand {
                Stand::Open { .. } => Some(&mut view.open),
                Stand::HalfOpen { .. } => Some(&mut view.half_open),
                Stand::HeldClosed => None,
            };
            if let Some(count) = count {
                *count += 1;
                is_named |= sight.shows(capability);
            }
            view.forced += u32::from(breaker.forced.is_some());
        }
        if is_named && view.agents.len() < NAMED {
            view.agents.push(agent.agent_id.to_string());
        }
    }
    view
}
