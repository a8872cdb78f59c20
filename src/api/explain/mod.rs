//! Why a task is where it is, who could serve it, and what would unblock it; the same for a body not yet sent.
//!
//! The report is computed by the very rules that the next dispatch uses (R-RTE-8). Agents that do not serve this
//! caller are one count, and endpoints are never shown (semantics 39).

mod decide;
mod route;

use std::collections::BTreeSet;

use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::Unavailable;
use crate::ledger::ids::{AgentId, AgentKey, ReachId};
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::event::{EventBody, HeldWhy};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::{OrphanPolicy, Submission};
use crate::ledger::machine::task::status::{Status, StatusKind};
use crate::ledger::time::Timestamp;
use crate::recovery::Recovery;
use crate::recovery::sessions::Behind;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::routing::rendezvous::Key;
use crate::scheduler::routing::{Needs, Question};

use route::{RouteView, permitted, remedies};

use super::App;
use super::aftermath::{self, Told};
use super::error::ApiResult;
use super::extract::{Caller, Id, Json, JsonBytes, NoQuery, parse};
use super::near::near;
use super::render;
use super::schemas::{self, Complaints, Sight};
use super::submission::{self, Setting, TaskBody};
use super::submit::{draw_id, fit_to_offers};
use super::task_view;
use super::tasks::visible;
use super::text::{self, Routed};

/// Orphans before one that are counted at most.
const COUNTED: usize = 10_000;
/// Events looked through for the last dispatch.
const LOOK_BACK: usize = 64;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(explain_task)).routes(routes!(explain_route))
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
    /// For a body that names no capability: how well its text fits this one, why, and the near misses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    text: Option<Value>,
    /// Does anybody offer it?
    registered: bool,
    /// If nobody does: names that may have been meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    suggestions: Vec<String>,
    /// Was there a payload that schemas could be asked about? Without one they are not.
    payload_asked: bool,
    /// What the schemas have against the payload, if every offer refuses it.
    #[schema(value_type = Vec<Object>)]
    payload: Vec<Value>,
    unblock: Vec<String>,
    route: RouteView,
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
    let held = app.ledger.held(std::slice::from_ref(&task)).await?.pop().flatten();
    let Told { why, unblock } = match (aftermath::of(&app.ledger, &task).await?, &routed) {
        (Some(told), _) => told,
        (None, Some(routed)) => {
            Told { why: why(&task, held) + &routed.only_reason_told().unwrap_or_default(), unblock: remedies(routed) }
        }
        (None, None) => Told { why: why(&task, held), unblock: remedies_of(&task, held, turn(&app, &task).await?) },
    };
    Ok(Json(Explained {
        reach_id: id.to_string(),
        state: task.status.kind().name(),
        why,
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
                state.agent(&key).is_some_and(|agent| agent.declaration.serves(Some(&token)))
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
            aftermath::ended(task)
        }
    }
}

/// What would let it go on: what it waits for, where it stands in its line, and the words that decide it.
fn remedies_of(task: &Task, held: Option<HeldWhy>, turn: Option<String>) -> Vec<String> {
    own_remedy(task, held).into_iter().chain(turn).chain(decide::commands(task, held)).collect()
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
        Status::Orphaned { .. } if held.is_some() => {
            "its agent comes back and reclaims it, or an operator resolves it (hand-over, fail), or it is cancelled"
        }
        Status::Orphaned { .. } if task.spec.orphan == OrphanPolicy::Hold => {
            "its agent comes back and reclaims it, or an operator resolves it (hand-over, fail) or replays it with \
             include_ambiguous, or it is cancelled: it may have run, and its orphan policy is hold, so it is not replayed \
             by itself"
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
             word, its late result or its end (`reach explain {other}`)"
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
    let text = match body.text.as_deref().filter(|_| text::is_asked(&body)) {
        Some(asked) => Some(text::route(&app, &caller, asked).await?),
        None => None,
    };
    let to_ledger = |wall: Timestamp| app.ledger.from_wall(wall);
    let setting = Setting {
        reach_id: ReachId(draw_id()),
        subject: &caller.token,
        now: app.ledger.now(),
        to_ledger: &to_ledger,
        sync_wait: None,
        batch: None,
        routed: text.as_ref().map(|routed| routed.capability().clone()),
    };
    let mut made = submission::submission(&body, &setting)?;
    submission::lies_ahead(&made, setting.now)?;
    caller.may_call(&made.capability)?;
    let registered = app.ledger.published().catalog.of(&caller.namespace, &made.capability).is_some();
    let suggestions = if registered { Vec::new() } else { near(&app, &caller, &made.capability).shown };
    let payload_asked = body.payload_or_text().is_some() || body.payload_ref.is_some();
    let complaints = if payload_asked {
        fit_to_offers(&app, &caller, &body, &mut made).await?.unwrap_or_default()
    } else {
        // What they would say of no payload at all is not what was asked.
        take_schemas_as_met(&app, &caller, &mut made);
        Complaints::new()
    };
    let (namespace, token) = (caller.namespace.clone(), caller.token.clone());
    let capability = made.capability.to_string();
    let routed = app
        .ledger
        .ask_planner::<Scheduler, _>(move |state, scheduler| {
            let needs = Needs::of_submission(&namespace, &made, Some(token.clone()));
            let key = Key::of(&made, Some(&token));
            let affine = scheduler.affinity().holder(&namespace, made.session.as_ref());
            let question = Question {
                needs: &needs,
                preferred: made.preferred_agent.as_ref(),
                affine,
                avoid: None,
                expected: None,
                key,
                now: scheduler.now(),
            };
            permitted(state, &namespace, &token, scheduler.explain(state, &question))
        })
        .await?
        .ok_or(Unavailable::Starting)?;
    let payload = complaints.iter().map(|complaint| {
        let (pointer, detail) = (format!("/payload{}", complaint.pointer), complaint.told(Sight::Payload));
        json!({"pointer": pointer, "detail": detail, "schema": complaint.schema.to_string()})
    });
    Ok(Json(DryRun {
        capability,
        text: text.as_ref().map(Routed::shown),
        registered,
        suggestions,
        payload_asked,
        payload: payload.collect(),
        unblock: remedies(&routed),
        route: RouteView::new(routed),
    }))
}

/// As if every schema of the capability accepted the payload.
fn take_schemas_as_met(app: &App, caller: &Caller, made: &mut Submission) {
    let catalog = app.ledger.published().catalog;
    let entry = catalog.of(&caller.namespace, &made.capability);
    made.schemas.accepted = entry.map(schemas::distinct).into_iter().flatten().collect();
}
