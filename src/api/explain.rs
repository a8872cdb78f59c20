//! Why a task is where it is, who could serve it, and what would unblock it; the same for a body not yet sent.
//!
//! The report is computed by the very rules that the next dispatch uses (R-RTE-8). Agents that do not serve this
//! caller are one count, and endpoints are never shown (semantics 39).

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::Unavailable;
use crate::ledger::ids::{AgentId, AgentKey, Namespace, ReachId, TokenId};
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::event::{EventBody, HeldWhy};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::OrphanPolicy;
use crate::ledger::machine::task::status::{Status, StatusKind};
use crate::ledger::time::Timestamp;
use crate::recovery::Recovery;
use crate::recovery::sessions::Behind;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::routing::candidate::Reason;
use crate::scheduler::routing::{Needs, Question, RouteReport};

use super::App;
use super::error::ApiResult;
use super::extract::{Caller, Id, Json, JsonBytes, NoQuery, parse};
use super::near::near;
use super::render;
use super::submission::{self, Setting, TaskBody};
use super::submit::{draw_id, fit_to_offers};
use super::task_view;
use super::tasks::visible;

/// Agents named in one report; the rest is in the counts.
const MAX_NAMED: usize = 200;
/// Orphans before one that are counted at most.
const COUNTED: usize = 10_000;
/// Events looked through for the last dispatch.
const LOOK_BACK: usize = 64;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(explain_task)).routes(routes!(explain_route))
}

/// Who could serve a task now, who not, and why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Route)]
pub(super) struct RouteView {
    /// How one is chosen.
    strategy: &'static str,
    /// Who would get it now.
    agent_id: Option<String>,
    /// Those that could take it now, best first.
    #[schema(value_type = Vec<Object>)]
    candidates: Vec<Value>,
    /// Those that can't, each with the exact reason.
    #[schema(value_type = Vec<Object>)]
    excluded: Vec<Value>,
    /// Agents by reason, those not named above included.
    counts: BTreeMap<&'static str, usize>,
    /// If nobody can take it now and all for the same reason: that one.
    only_reason: Option<&'static str>,
    /// Agents that do not serve this caller.
    #[serde(rename = "not-permitted")]
    not_permitted: usize,
}

/// Why a task is where it is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Explained {
    reach_id: String,
    state: &'static str,
    /// In words.
    why: String,
    /// What the state waits for, with its time.
    #[schema(value_type = Option<Object>)]
    waits: Option<Value>,
    deadline: String,
    /// What would let it go on.
    unblock: Vec<String>,
    /// For a task that waits for an agent: who could serve it.
    route: Option<RouteView>,
    /// Why the last agent was chosen, as the ledger keeps it.
    #[schema(value_type = Option<Object>)]
    last_dispatch: Option<Value>,
}

/// A dry run.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DryRun {
    capability: String,
    /// Does anybody offer it?
    registered: bool,
    /// If nobody does: names that may have been meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    suggestions: Vec<String>,
    /// What the schemas have against the payload, if every offer refuses it.
    #[schema(value_type = Vec<Object>)]
    payload: Vec<Value>,
    unblock: Vec<String>,
    route: RouteView,
}

/// A report with those agents that serve this caller.
struct Permitted {
    report: RouteReport,
    hidden: usize,
}

fn permitted(state: &Ledgered, namespace: &Namespace, token: &TokenId, mut report: RouteReport) -> Permitted {
    let serves = |agent: &AgentId| {
        let key = AgentKey { namespace: namespace.clone(), agent_id: agent.clone() };
        state.agent(&key).is_some_and(|agent| {
            let allowed = &agent.declaration.allowed_callers;
            allowed.is_empty() || allowed.contains(token)
        })
    };
    let before = report.candidates.len() + report.excluded.len();
    report.candidates.retain(|candidate| serves(&candidate.agent));
    report.excluded.retain(|excluded| excluded.reason != Reason::NotPermitted && serves(&excluded.agent));
    report.winner = report.winner.filter(|winner| serves(winner));
    let hidden = before - report.candidates.len() - report.excluded.len();
    Permitted { report, hidden }
}

impl Permitted {
    /// The one reason for which nobody can take it now, if it is one.
    fn only_reason(&self) -> Option<Reason> {
        let mut reasons = self.report.excluded.iter().map(|excluded| excluded.reason);
        let first = match (reasons.next(), self.hidden) {
            (Some(first), 0) => first,
            (None, 1..) => Reason::NotPermitted,
            (Some(_), _) | (None, 0) => return None,
        };
        (self.report.candidates.is_empty() && reasons.all(|reason| reason == first)).then_some(first)
    }

    /// The same in words, to go on with after what the task waits for.
    fn only_reason_told(&self) -> Option<String> {
        let reason = self.only_reason()?.name();
        Some(match &*self.report.excluded {
            [] => format!("; no agent that offers it serves this caller ({reason})"),
            [only] => format!("; the only one that offers it is {}: {} ({reason})", only.agent, only.detail),
            all => format!("; none of the {} that offer it can take it now, all for one reason: {reason}", all.len()),
        })
    }
}

impl RouteView {
    fn new(permitted: Permitted) -> Self {
        let only_reason = permitted.only_reason().map(Reason::name);
        let Permitted { report, hidden } = permitted;
        let mut counts = BTreeMap::new();
        for excluded in &report.excluded {
            *counts.entry(excluded.reason.name()).or_default() += 1;
        }
        let candidates = report.candidates.into_iter().take(MAX_NAMED).map(|candidate| {
            let score: BTreeMap<_, _> = candidate.score.into_iter().collect();
            json!({"agent_id": candidate.agent.as_str(), "score": score})
        });
        let excluded = report.excluded.into_iter().take(MAX_NAMED).map(|excluded| {
            json!({
                "agent_id": excluded.agent.as_str(),
                "reason": excluded.reason.name(),
                "detail": excluded.detail,
            })
        });
        Self {
            strategy: report.strategy,
            agent_id: report.winner.map(|winner| winner.to_string()),
            candidates: candidates.collect(),
            excluded: excluded.collect(),
            counts,
            only_reason,
            not_permitted: hidden,
        }
    }
}

/// What would make one reason go away.
const fn remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::NotRegistered => "an agent that left registers again",
        Reason::Draining => "a draining agent is replaced by another",
        Reason::Lost => "a lost agent beats again, or another registers",
        Reason::Unhealthy => "an unhealthy agent beats again",
        Reason::NotPermitted => "an agent allows this caller",
        Reason::SchemaRefused => "a payload that fits the agent's schema is submitted",
        Reason::SchemaUnchecked => "the hub checks the payload against a schema that came later; this takes a moment",
        Reason::Tools => "an agent with the required tools registers",
        Reason::ContextWindow => "an agent with a larger context window registers",
        Reason::Language => "an agent with the required languages registers",
        Reason::Region => "an agent in the required region registers",
        Reason::Version => "an agent of a fitting version registers",
        Reason::LoadThreshold => "an agent reports less load",
        Reason::SlowStart => "it has warmed up, within seconds",
        Reason::NoFreeSlot => "an agent finishes something",
        Reason::NoOpenClaim => "a pull agent claims work",
        Reason::Overdue => "an agent without an overdue task of this capability asks for work",
        Reason::Suspect => "an agent without other work is free: the task has broken its agents before",
        Reason::Avoid => "the agent that failed it is tried again when no other can serve",
    }
}

fn remedies(Permitted { report, hidden }: &Permitted) -> Vec<String> {
    if report.winner.is_some() {
        return vec!["nothing: it is next to be handed over".to_owned()];
    }
    if report.candidates.is_empty() && report.excluded.is_empty() {
        if *hidden > 0 {
            return vec![remedy(Reason::NotPermitted).to_owned()];
        }
        return vec!["an agent that offers the capability registers".to_owned()];
    }
    let reasons: BTreeSet<Reason> = report.excluded.iter().map(|excluded| excluded.reason).collect();
    reasons.into_iter().map(|reason| remedy(reason).to_owned()).collect()
}

/// Why a task is where it is, and what would unblock it.
#[utoipa::path(
    get, path = "/v1/tasks/{reach_id}/explain", tag = "routing", params(("reach_id" = String, Path)),
    responses((status = 200, body = Explained))
)]
pub(super) async fn explain_task(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
) -> ApiResult<Json<Explained>> {
    caller.require(Scope::Read)?;
    let task = visible(&app, &caller, id).await?;
    let waits_for_agent = matches!(task.status, Status::Queued { .. });
    let token = caller.token.clone();
    let routed = if waits_for_agent {
        let asked = app.ledger.ask_planner::<Scheduler, _>(move |state, scheduler| {
            let task = state.task(id)?;
            Some(permitted(state, &task.namespace, &token, scheduler.explain_task(state, task)))
        });
        asked.await?.flatten()
    } else {
        None
    };
    let held = task_view::held(&app.ledger, std::slice::from_ref(&task)).await?.pop().flatten();
    let unblock = match &routed {
        Some(routed) => remedies(routed),
        None => own_remedy(&task, held).into_iter().chain(turn(&app, &task).await?).collect(),
    };
    Ok(Json(Explained {
        reach_id: id.to_string(),
        state: task.status.kind().name(),
        why: why(&task, held) + &routed.as_ref().and_then(Permitted::only_reason_told).unwrap_or_default(),
        waits: task_view::waits(&task, held),
        deadline: task.deadline.to_string(),
        unblock,
        route: routed.map(RouteView::new),
        last_dispatch: last_dispatch(&app, &caller, &task).await?,
    }))
}

/// The explanation in the last dispatch. Only for callers that every named agent serves: names of others are hidden.
async fn last_dispatch(app: &App, caller: &Caller, task: &Task) -> Result<Option<Value>, Unavailable> {
    if task.attempt.0 == 0 {
        return Ok(None);
    }
    let recent: Vec<_> = task.seqs.iter().rev().take(LOOK_BACK).copied().collect();
    let recent = app.ledger.events_at(recent).await?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "looks for one kind only")]
    let dispatched = recent.into_iter().find_map(|stored| match stored.event.body {
        EventBody::TaskDispatched(dispatched) => Some((stored.event.at, dispatched)),
        _ => None,
    });
    let Some((at, dispatched)) = dispatched else { return Ok(None) };
    let mut explanation = dispatched.explanation.clone();
    let names: BTreeSet<AgentId> = explanation
        .runners_up
        .iter()
        .map(|runner| runner.agent.clone())
        .chain(explanation.exclusions.iter().flat_map(|exclusion| exclusion.samples.iter().cloned()))
        .collect();
    let (namespace, token) = (caller.namespace.clone(), caller.token.clone());
    let shown = app
        .ledger
        .ask(move |state| {
            let serves = |agent: &AgentId| {
                let key = AgentKey { namespace: namespace.clone(), agent_id: agent.clone() };
                let allowed = state.agent(&key).map(|agent| agent.declaration.allowed_callers.clone());
                allowed.is_some_and(|allowed| allowed.is_empty() || allowed.contains(&token))
            };
            names.into_iter().filter(serves).collect::<BTreeSet<_>>()
        })
        .await?;
    explanation.runners_up.retain(|runner| shown.contains(&runner.agent));
    for exclusion in &mut explanation.exclusions {
        exclusion.samples.retain(|agent| shown.contains(agent));
    }
    Ok(Some(json!({
        "at": at.to_string(),
        "attempt": dispatched.attempt.0,
        "agent_id": dispatched.agent.as_str(),
        "explanation": render::explanation(&explanation),
    })))
}

fn until(at: Option<Timestamp>) -> String {
    at.map_or_else(String::new, |at| format!(" until {at}"))
}

/// A state in words.
fn why(task: &Task, held: Option<HeldWhy>) -> String {
    match &task.status {
        Status::AwaitingApproval => "its capability is sensitive: a person must approve it".to_owned(),
        Status::Scheduled { until } => format!("it is not to start before {until}"),
        Status::Queued { since, wait_until } => {
            format!("it waits since {since} for an agent with a free slot{}", until(*wait_until))
        }
        Status::Dispatched { lease, reach_deadline } => format!(
            "it was handed to {} as attempt {} and is to be acknowledged by {reach_deadline}",
            lease.agent, lease.attempt.0
        ),
        Status::Processing { lease, work_deadline } => {
            format!("{} works on it and is to finish by {work_deadline}", lease.agent)
        }
        Status::SlowReach { lease, cause, act_at, .. } => format!(
            "{} may still be working on it ({}); it is not retried by age alone{}",
            lease.agent,
            render::slow_cause(*cause),
            until(*act_at)
        ),
        Status::Retrying { until } => format!("it is tried again at {until}"),
        Status::Orphaned { lease, cause, since } => {
            let gone = format!("its agent {} is gone since {since} ({})", lease.agent, render::orphan_cause(*cause));
            match held {
                None => gone,
                Some(HeldWhy::Superseded { by }) => {
                    format!(
                        "{gone}; it is not replayed by itself, for {by}, a newer task of its session, has succeeded"
                    )
                }
            }
        }
        Status::Succeeded | Status::Failed | Status::DeadLetter | Status::Expired | Status::Cancelled => {
            let state = task.status.kind();
            let at = task.ended_at.map_or_else(String::new, |at| format!(" since {at}"));
            match &task.failure {
                Some(failure) if state != StatusKind::Succeeded => {
                    format!("it is {}{at}: {} ({})", state.name(), failure.code, failure.class.name())
                }
                Some(_) | None => format!("it is {}{at}", state.name()),
            }
        }
    }
}

fn own_remedy(task: &Task, held: Option<HeldWhy>) -> Vec<String> {
    let text = match &task.status {
        Status::AwaitingApproval => "someone with the scope operate approves it",
        Status::Scheduled { .. } | Status::Retrying { .. } => "the time passes; it goes on by itself",
        Status::Queued { .. } => "an agent that can serve it has a free slot",
        Status::Dispatched { .. } => "the agent acknowledges it, or the reach time passes",
        Status::Processing { .. } => "the agent reports its outcome, or the work time passes",
        Status::SlowReach { .. } => {
            "the agent reports after all, or its policy acts, or an operator resolves it, or it is cancelled"
        }
        Status::Orphaned { .. } if task.spec.orphan == OrphanPolicy::Hold => {
            "its agent comes back and reclaims it, or an operator resolves it (hand-over, fail) or replays it with \
             include_ambiguous, or it is cancelled: it may have run, and its orphan policy is hold, so it is not replayed \
             by itself"
        }
        Status::Orphaned { .. } if held.is_some() => {
            "its agent comes back and reclaims it, or an operator resolves it (hand-over, fail), or it is cancelled"
        }
        Status::Orphaned { .. } => "the replay lets it back into the queue, or its agent comes back",
        Status::Succeeded | Status::Failed | Status::DeadLetter | Status::Expired | Status::Cancelled => {
            return Vec::new();
        }
    };
    vec![text.to_owned()]
}

/// Where an orphan stands in the sweep of its namespace, or in the line of its session.
async fn turn(app: &App, task: &Task) -> Result<Option<String>, Unavailable> {
    let (id, namespace) = (task.id(), task.namespace.clone());
    if task.status.kind() != StatusKind::Orphaned {
        return Ok(None);
    }
    let asked = app.ledger.ask_planner::<Recovery, _>(move |state, recovery| {
        let sweep = recovery.sweep();
        if let Some(behind) = sweep.behind(id, COUNTED) {
            return Some(in_line(behind));
        }
        let rate = state.policies().of(&namespace).replays_per_second.max(1);
        sweep.before(id, COUNTED).map(|before| in_turn(before, rate))
    });
    Ok(asked.await?.flatten())
}

fn in_turn(before: usize, rate: u32) -> String {
    let seconds = u64::try_from(before).unwrap_or(u64::MAX) / u64::from(rate) + 1;
    let more = if before >= COUNTED { " or more" } else { "" };
    format!("its turn comes: {before}{more} orphans go before it, at {rate} a second, so within some {seconds} s")
}

fn in_line(behind: Behind) -> String {
    match behind {
        Behind::Held(other) => format!(
            "it waits behind {other} which is held: tasks of one session come back in order, so that one first has its \
             word, its late result or its end"
        ),
        Behind::Orphan(other) => format!("it waits behind {other}, which comes back before it in its session"),
        Behind::SentBack(other) => {
            format!("it waits behind {other} of its session, which was sent back and is not with an agent yet")
        }
    }
}

/// A dry run: who would serve this body, were it submitted now. Nothing is kept.
#[utoipa::path(
    post, path = "/v1/route/explain", tag = "routing", request_body = TaskBody<'static>,
    responses((status = 200, body = DryRun))
)]
pub(super) async fn explain_route(
    State(app): State<App>,
    caller: Caller,
    NoQuery: NoQuery,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<Json<DryRun>> {
    caller.require(Scope::Read)?;
    let body: TaskBody<'_> = parse(&bytes)?;
    let to_ledger = |wall: Timestamp| app.ledger.from_wall(wall);
    let setting = Setting {
        reach_id: ReachId(draw_id()),
        subject: &caller.token,
        now: app.ledger.now(),
        to_ledger: &to_ledger,
        sync_wait: None,
        batch: None,
    };
    let mut made = submission::submission(&body, &setting)?;
    submission::lies_ahead(&made, setting.now)?;
    caller.may_call(&made.capability)?;
    let registered = app.ledger.published().catalog.of(&caller.namespace, &made.capability).is_some();
    let suggestions = if registered { Vec::new() } else { near(&app, &caller, &made.capability).shown };
    let complaints = fit_to_offers(&app, &caller, &body, &mut made).await?.unwrap_or_default();
    let (namespace, token) = (caller.namespace.clone(), caller.token.clone());
    let capability = made.capability.to_string();
    let routed = app
        .ledger
        .ask_planner::<Scheduler, _>(move |state, scheduler| {
            let needs = Needs::of_submission(&namespace, &made, Some(token.clone()));
            let affine = scheduler.affinity().holder(&namespace, made.session.as_ref());
            let question = Question {
                needs: &needs,
                preferred: made.preferred_agent.as_ref(),
                affine,
                avoid: None,
                expected: None,
                now: scheduler.now(),
            };
            permitted(state, &namespace, &token, scheduler.explain(state, &question))
        })
        .await?
        .ok_or(Unavailable::Starting)?;
    let payload = complaints.iter().map(|(schema, path, detail)| {
        json!({"pointer": format!("/payload{path}"), "detail": detail, "schema": schema.to_string()})
    });
    Ok(Json(DryRun {
        capability,
        registered,
        suggestions,
        payload: payload.collect(),
        unblock: remedies(&routed),
        route: RouteView::new(routed),
    }))
}
