//! An operator's word on one task: made anew after its end, or decided where nothing else can (semantics 40, S9, S10).

use std::borrow::Cow;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, LOCATION};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::App;
use crate::api::departures;
use crate::api::error::{ApiResult, Thing};
use crate::api::extract::{Caller, Id, Json, JsonBytes, NoQuery, parse};
use crate::api::render::body_key;
use crate::api::schemas::{self, Sight};
use crate::api::submission::{MAX_PAYLOAD, Unfit};
use crate::api::submit::{self, draw_id, salted, unexpected};
use crate::api::tasks::{Moved, moved, visible};
use crate::api::wire::{ReceiptBody, why};
use crate::ledger::handle::{Intake, Refusal};
use crate::ledger::ids::ReachId;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::command::Command;
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::replay::order::{Correction, RedriveOrder};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::spec::SchemaVerdicts;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::store::{Body, BodyKey, BodyKind};

use super::body::word;
use super::fit::Held;
use super::sample::raw;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(redrive_task)).routes(routes!(resolve_task))
}

/// How a task is made anew.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Redrive)]
struct RedriveBody<'a> {
    /// Why, 1 to 1,000 characters.
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    /// Also if it may have run and is not idempotent.
    include_ambiguous: Option<bool>,
    /// Another payload: any JSON of up to 1 MiB. Without it the first one goes again. Either is checked as a
    /// submission's is.
    #[serde(borrow)]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<&'a RawValue>,
}

/// The new task.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Redriven)]
struct RedrivenView {
    /// Its id.
    reach_id: String,
    /// The ended task that it was made of.
    redrive_of: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
}

/// Makes an ended task anew, under an id of its own and with fresh budgets. A task is made anew at most once.
#[utoipa::path(
    post, path = "/v1/tasks/{reach_id}/redrive", tag = "tasks", params(("reach_id" = String, Path)),
    request_body = RedriveBody<'static>, responses((status = 202, body = RedrivenView))
)]
async fn redrive_task(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<Response> {
    caller.require(Scope::Operate)?;
    let body: RedriveBody<'_> = parse(&bytes)?;
    let reason = why(body.reason.as_deref())?;
    let task = visible(&app, &caller, id).await?;
    caller.may_call(&task.spec.capability)?;
    let successor = ReachId(draw_id());
    let (correction, schemas, bodies) = match body.payload {
        None => (None, as_it_is(&app, &caller, &task).await?, Vec::new()),
        Some(payload) => {
            let (correction, kept) = corrected(&app, &caller, &task, (payload, successor)).await?;
            (Some(correction), None, vec![kept])
        }
    };
    let order = RedriveOrder {
        task: id,
        successor,
        may_have_run: word(body.include_ambiguous),
        correction,
        schemas,
        reason,
        before: None,
    };
    let proposal = caller.proposal(Command::RedriveTask(Box::new(order)));
    let released = match app.ledger.propose(Intake { proposal, bodies }).await {
        Ok(released) => released,
        Err(refusal) => return Err(departures::refused(&app, &caller, refusal).await.named(Thing::Task, id)),
    };
    let Answer::Task { state } = released.answer else { return Err(unexpected(&released.answer)) };
    let view = RedrivenView {
        reach_id: successor.to_string(),
        redrive_of: id.to_string(),
        state: state.name(),
        receipt: released.receipt.map(Into::into),
    };
    let location = HeaderValue::try_from(format!("/v1/tasks/{successor}")).ok();
    let mut response = (StatusCode::ACCEPTED, Json(view)).into_response();
    response.headers_mut().extend(location.map(|value| (LOCATION, value)));
    Ok(response)
}

/// Another payload, checked as a submission's is.
async fn corrected(
    app: &App,
    caller: &Caller,
    task: &Task,
    (payload, successor): (&RawValue, ReachId),
) -> ApiResult<(Correction, (BodyKey, Body))> {
    if payload.get().len() > MAX_PAYLOAD {
        return Err(Unfit::PayloadTooLarge.into());
    }
    let (verdicts, complaints) = submit::held_against_offers(app, caller, &task.spec.capability, Some(payload)).await?;
    if let Some(complaints) = complaints {
        return Err(schemas::refusal(&complaints, Sight::Payload));
    }
    let (named, kept) = salted(payload.get().as_bytes())?;
    Ok((Correction { payload: named, schemas: verdicts }, (body_key(successor, BodyKind::Payload, 0), kept)))
}

/// The first payload again, held against what is offered now as a submission's is. What can't be made anew anyway is
/// told so by the core.
async fn as_it_is(app: &App, caller: &Caller, task: &Task) -> ApiResult<Option<SchemaVerdicts>> {
    let kind = task.status.kind();
    if !matches!(kind, StatusKind::Failed | StatusKind::DeadLetter | StatusKind::Expired) {
        return Ok(None);
    }
    let payload = match Held::by(task) {
        Held::Reference => return Ok(None),
        Held::Nothing => None,
        Held::Inline => match app.ledger.body(body_key(task.id(), BodyKind::Payload, 0)).await? {
            Some(body) => raw(&body.bytes),
            None => return Ok(None),
        },
    };
    let capability = &task.spec.capability;
    let (verdicts, complaints) = submit::held_against_offers(app, caller, capability, payload.as_deref()).await?;
    let Some(complaints) = complaints else { return Ok(Some(verdicts)) };
    let kin = app.ledger.kin_of(std::slice::from_ref(task)).await?;
    match kin.first().and_then(|kin| kin.redriven_as) {
        Some(successor) => Err(Rejection::AlreadyRedriven { successor }.into()),
        None => Err(schemas::refusal(&complaints, Sight::of(caller))),
    }
}

/// What becomes of a task that waits for a word.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Resolve)]
struct ResolveBody {
    resolution: ResolutionWord,
    /// Why, 1 to 1,000 characters.
    reason: Option<String>,
}

/// `hand-over` gives it to another agent, idempotent or not; `fail` gives it up; `wait` waits for a slow one's result
/// until its deadline.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = Resolution)]
enum ResolutionWord {
    HandOver,
    Fail,
    Wait,
}

impl From<ResolutionWord> for Resolution {
    fn from(word: ResolutionWord) -> Self {
        match word {
            ResolutionWord::HandOver => Self::HandOver,
            ResolutionWord::Fail => Self::Fail,
            ResolutionWord::Wait => Self::Wait,
        }
    }
}

/// Decides a task in `slow-reach`, or an orphaned one that waits for a word.
#[utoipa::path(
    post, path = "/v1/tasks/{reach_id}/resolve", tag = "tasks", params(("reach_id" = String, Path)),
    request_body = ResolveBody, responses((status = 200, body = Moved))
)]
async fn resolve_task(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
    Json(body): Json<ResolveBody>,
) -> ApiResult<Json<Moved>> {
    caller.require(Scope::Operate)?;
    let reason = why(body.reason.as_deref())?;
    let task = visible(&app, &caller, id).await?;
    caller.may_call(&task.spec.capability)?;
    let command = Command::ResolveTask { task: id, resolution: body.resolution.into(), reason };
    match app.ledger.propose(caller.proposal(command)).await {
        // It has left memory, so it has ended.
        Err(Refusal::Rejected(Rejection::TaskUnknown)) => {
            Err(Rejection::NotResolvable { state: task.status.kind() }.into())
        }
        verdict => moved(id, verdict),
    }
}
