//! One task: submit it, look at it, wait for it, call it off, let it go on.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::{Intake, Refusal, Unavailable, Verdict};
use crate::ledger::ids::ReachId;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::command::Command;
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::store::BodyKind;
use crate::ledger::time::Millis;

use super::App;
use super::departures;
use super::error::{ApiError, ApiResult, Code, Thing};
use super::extract::{Caller, Id, Json, JsonBytes, MaybeJson, NoQuery, Query, outside, parse, preferred_wait};
use super::list::{only, word};
use super::render;
use super::submission::{MAX_KEY, TaskBody};
use super::submit::{self, Accepted, Origin};
use super::task_view::{self, TaskView};
use super::wire::ReceiptBody;

/// The longest wait for a change.
const MAX_WAIT_MS: u64 = 60_000;
/// Redrives followed at most.
const MAX_FOLLOWED: usize = 100;
/// The longest synchronous wait, in seconds (semantics 33).
const MAX_SYNC_S: u64 = 120;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(submit_task, super::list::list_tasks))
        .routes(routes!(get_task))
        .routes(routes!(get_result))
        .routes(routes!(get_payload))
        .routes(routes!(cancel_task))
        .routes(routes!(approve_task))
}

/// Submits one task.
///
/// Answers 202 once the submission is on disk. With `Prefer: wait=N` (1 to 120 s) it answers 200 with the task if it
/// ends within N.
#[utoipa::path(
    post, path = "/v1/tasks", tag = "tasks", request_body = TaskBody<'static>,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Against double submission, 1 to 255 bytes"),
        ("Prefer" = Option<String>, Header, description = "`wait=N` waits up to N seconds, 1 to 120, for the end; any other `wait` is refused, other preferences are ignored"),
    ),
    responses(
        (status = 202, body = Accepted), (status = 200, body = TaskView),
    )
)]
pub(super) async fn submit_task(
    State(app): State<App>,
    caller: Caller,
    NoQuery: NoQuery,
    headers: HeaderMap,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<Response> {
    caller.require(Scope::Submit)?;
    let wait = preferred_wait(&headers, MAX_SYNC_S)?.map(Millis::secs);
    let key = idempotency_header(&headers)?;
    let origin = Origin { sync_wait: wait, batch: None, key };
    let prepared = {
        let body: TaskBody<'_> = parse(&bytes)?;
        submit::prepare(&app, &caller, &body, &bytes, origin).await?
    };
    let released = match app.ledger.propose(prepared.intake).await {
        Ok(released) => released,
        Err(refusal) => return Err(departures::refused(&app, &caller, refusal).await),
    };
    // What waits for the task's end keeps no room.
    drop(bytes);
    let accepted = submit::accepted(&app, &caller, Ok(released), prepared.warnings).await?;
    let Some(wait) = wait else { return Ok(answer(&accepted)) };
    let ended = end_of(&app, accepted.task, Duration::from_millis(wait.0)).await?;
    let mut response = match ended {
        Some(task) => {
            let beside = task_view::beside(&app.ledger, &task).await?;
            let mut response = Json(TaskView::new(&task, beside)).into_response();
            describe(&accepted, response.headers_mut());
            response
        }
        None => answer(&accepted),
    };
    let applied = HeaderValue::try_from(format!("wait={}", wait.0 / 1_000));
    response.headers_mut().extend(applied.ok().map(|value| (HeaderName::from_static("preference-applied"), value)));
    Ok(response)
}

fn answer(accepted: &Accepted) -> Response {
    let status = if accepted.replayed { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = (status, Json(accepted)).into_response();
    describe(accepted, response.headers_mut());
    response
}

/// Where the task is, and whether an earlier call made it.
fn describe(accepted: &Accepted, headers: &mut HeaderMap) {
    headers.extend(HeaderValue::try_from(format!("/v1/tasks/{}", accepted.task)).ok().map(|value| (LOCATION, value)));
    if accepted.replayed {
        headers.insert(HeaderName::from_static("idempotency-replayed"), HeaderValue::from_static("true"));
    }
}

/// Waits until the task has ended; `retrying` and `slow-reach` do not end the wait (semantics 33).
async fn end_of(app: &App, id: ReachId, wait: Duration) -> Result<Option<Task>, Unavailable> {
    let watch = app.ledger.watch(id);
    watch
        .until(wait, || async move { Ok(app.ledger.task(id).await?.filter(|task| task.status.kind().is_terminal())) })
        .await
}

/// The `Idempotency-Key` header: a structured string in quotes, or a bare one.
pub(super) fn idempotency_header(headers: &HeaderMap) -> ApiResult<Option<Text>> {
    let mut all = headers.get_all("idempotency-key").iter();
    let Some(first) = all.next() else { return Ok(None) };
    let bad = |detail: &str| ApiError::new(Code::InvalidHeader, format!("Idempotency-Key {detail}"));
    if all.next().is_some() {
        return Err(bad("is sent more than once"));
    }
    let text = first.to_str().map_err(|_| bad("has characters outside printable ASCII"))?.trim();
    let text = spelled(text).ok_or_else(|| bad("is one string in double quotes, or one without any"))?;
    if text.is_empty() || text.len() > MAX_KEY {
        return Err(bad(&format!("has {} bytes; 1 to {MAX_KEY}", text.len())));
    }
    Ok(Some(Arc::from(text)))
}

/// A structured string (RFC 8941), or a bare one. What is half in quotes would be two different keys to two readers.
fn spelled(text: &str) -> Option<String> {
    let Some(inside) = text.strip_prefix('"') else {
        return (!text.contains(['"', '\t'])).then(|| text.to_owned());
    };
    let mut characters = inside.strip_suffix('"')?.chars();
    let mut key = String::with_capacity(inside.len());
    while let Some(next) = characters.next() {
        match next {
            '\\' => key.push(characters.next().filter(|escaped| matches!(escaped, '"' | '\\'))?),
            '"' | '\t' => return None,
            plain => key.push(plain),
        }
    }
    Some(key)
}

/// A task of the caller's namespace; anything else is the plain 404.
pub(super) async fn visible(app: &App, caller: &Caller, id: ReachId) -> ApiResult<Task> {
    let task = app.ledger.task(id).await?;
    task.filter(|task| task.namespace == caller.namespace).ok_or_else(|| ApiError::not_found(Thing::Task, id))
}

/// Refuses a decision on a task of a capability that the token is not for; absent and foreign ones stay the same 404.
async fn may_decide(app: &App, caller: &Caller, id: ReachId) -> ApiResult<()> {
    if caller.bearer().is_limited() {
        caller.may_call(&visible(app, caller, id).await?.spec.capability)?;
    }
    Ok(())
}

/// How to look at a task.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct LookQuery {
    /// Wait for a change of the task for so long, 0 to 60,000.
    wait_ms: Option<u64>,
    /// With `wait_ms`: answer when the task is in another state than this one; without it, at any event after the
    /// first look.
    unless_state: Option<String>,
    /// `latest` follows redrives to the newest task.
    follow: Option<String>,
}

/// One task.
#[utoipa::path(
    get, path = "/v1/tasks/{reach_id}", tag = "tasks", params(("reach_id" = String, Path), LookQuery),
    responses((status = 200, body = TaskView))
)]
pub(super) async fn get_task(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    Query(query): Query<LookQuery>,
) -> ApiResult<Json<TaskView>> {
    caller.require(Scope::Read)?;
    if let Some(follow) = &query.follow {
        only("follow", follow, &["latest"])?;
    }
    if let Some(state) = &query.unless_state {
        word("unless_state", state, &StatusKind::ALL, StatusKind::name)?;
    }
    let wait = query.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT_MS {
        return Err(outside("wait_ms", wait, 0..=MAX_WAIT_MS));
    }
    let id = if query.follow.is_some() { latest(&app, &caller, id).await? } else { id };
    // Registered before the first look, so no change is missed between the two.
    let watch = app.ledger.watch(id);
    let mut task = visible(&app, &caller, id).await?;
    let wanted_change = match &query.unless_state {
        Some(state) => task.status.kind().name() == state,
        None => true,
    };
    if wait > 0 && wanted_change && !task.status.kind().is_terminal() {
        let (seen, state) = (task.seqs.len(), task.status.kind());
        let by_state = query.unless_state.is_some();
        let app = &app;
        let changed = watch
            .until(Duration::from_millis(wait), || async move {
                let task = app.ledger.task(id).await?;
                let differs =
                    |task: &Task| if by_state { task.status.kind() != state } else { task.seqs.len() != seen };
                Ok::<_, Unavailable>(task.filter(differs))
            })
            .await?;
        task = changed.unwrap_or(task);
    }
    let beside = task_view::beside(&app.ledger, &task).await?;
    Ok(Json(TaskView::new(&task, beside)))
}

/// The newest task that was made of this one, by redrives.
async fn latest(app: &App, caller: &Caller, id: ReachId) -> ApiResult<ReachId> {
    let mut latest = visible(app, caller, id).await?;
    for _ in 0..MAX_FOLLOWED {
        let Some(next) = app.ledger.kin(&latest).await?.redriven_as else { return Ok(latest.id()) };
        latest = visible(app, caller, next).await?;
    }
    Err(ApiError::new(
        Code::InvalidQuery,
        format!("follow: more than {MAX_FOLLOWED} redrives lead on; the last seen is {}", latest.id()),
    )
    .fact("reach_id", latest.id().to_string()))
}

/// A body as it came in: JSON.
fn json_bytes(bytes: &[u8]) -> Response {
    let mut response = Response::new(axum::body::Body::from(Bytes::copy_from_slice(bytes)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The result of a task that succeeded.
#[utoipa::path(
    get, path = "/v1/tasks/{reach_id}/result", tag = "tasks", params(("reach_id" = String, Path)),
    responses(
        (status = 200, description = "The result as the agent gave it", body = serde_json::Value),
        (status = 204, description = "It succeeded without a result"),
    )
)]
pub(super) async fn get_result(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
) -> ApiResult<Response> {
    caller.require(Scope::Read)?;
    let task = visible(&app, &caller, id).await?;
    let state = task.status.kind();
    match &task.result {
        Some(named) => match task_view::result_body(&app.ledger, &task, named).await? {
            Some(body) => Ok(json_bytes(&body.bytes)),
            None => Err(ApiError::new(Code::NotFound, format!("the result of {id} has been erased"))),
        },
        None if state == StatusKind::Succeeded => Ok(StatusCode::NO_CONTENT.into_response()),
        None => Err(ApiError::new(Code::NotFound, format!("{id} is {} and has no result", state.name()))
            .fact("state", state.name())),
    }
}

/// The payload of a task.
#[utoipa::path(
    get, path = "/v1/tasks/{reach_id}/payload", tag = "tasks", params(("reach_id" = String, Path)),
    responses(
        (status = 200, description = "The payload as it was submitted", body = serde_json::Value),
        (status = 204, description = "It was submitted without a payload"),
    )
)]
pub(super) async fn get_payload(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
) -> ApiResult<Response> {
    caller.require(Scope::Read)?;
    let task = visible(&app, &caller, id).await?;
    if task.spec.payload.is_none() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    match app.ledger.body(render::body_key(id, BodyKind::Payload, 0)).await? {
        Some(body) => Ok(json_bytes(&body.bytes)),
        None => Err(ApiError::new(Code::NotFound, format!("the payload of {id} has been erased"))),
    }
}

/// Why something is done.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReasonBody {
    /// 1 to 1,000 characters.
    reason: Option<String>,
}

/// Where a task stands after a caller's or operator's word.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Moved {
    reach_id: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
}

/// Where the task stands after a word that was taken.
///
/// # Errors
/// Why it was not.
pub(super) fn moved(id: ReachId, verdict: Verdict) -> ApiResult<Json<Moved>> {
    let released = verdict.map_err(|refusal| ApiError::from(refusal).named(Thing::Task, id))?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "any other answer is a bug, told as one")]
    match released.answer {
        Answer::Task { state } => {
            let receipt = released.receipt.map(ReceiptBody::from);
            Ok(Json(Moved { reach_id: id.to_string(), state: state.name(), receipt }))
        }
        other => Err(submit::unexpected(&other)),
    }
}

/// Calls a task off. One word wins: a task that has ended answers 409 `task-terminal`.
#[utoipa::path(
    post, path = "/v1/tasks/{reach_id}/cancel", tag = "tasks", params(("reach_id" = String, Path)), request_body = ReasonBody,
    responses((status = 200, body = Moved))
)]
pub(super) async fn cancel_task(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
    MaybeJson(body): MaybeJson<ReasonBody>,
) -> ApiResult<Json<Moved>> {
    caller.require(Scope::Submit).or_else(|missing| caller.require(Scope::Operate).map_err(|_| missing))?;
    may_decide(&app, &caller, id).await?;
    let mut bodies = Vec::new();
    let reason = match super::wire::reason("/reason", body.reason.as_deref())? {
        None => None,
        Some(text) => {
            let (named, kept) = submit::salted(text.as_bytes())?;
            bodies.push((render::body_key(id, BodyKind::Reason, 0), kept));
            Some(named)
        }
    };
    let proposal = caller.proposal(Command::CancelTask { task: id, reason, fact: None });
    moved(id, app.ledger.propose(Intake { proposal, bodies }).await)
}

/// Lets a task that awaits approval go on.
#[utoipa::path(
    post, path = "/v1/tasks/{reach_id}/approve", tag = "tasks", params(("reach_id" = String, Path)),
    responses((status = 200, body = Moved))
)]
pub(super) async fn approve_task(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
) -> ApiResult<Json<Moved>> {
    caller.require(Scope::Operate)?;
    may_decide(&app, &caller, id).await?;
    let verdict = app.ledger.propose(caller.proposal(Command::ApproveTask { task: id })).await;
    if verdict == Err(Refusal::Rejected(Rejection::TaskUnknown)) {
        // The command brings no row of an ended task: whoever is late is told so, not that it never was.
        let state = visible(&app, &caller, id).await?.status.kind();
        return Err(Refusal::Rejected(Rejection::NotAwaitingApproval { state }).into());
    }
    moved(id, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_whole_structured_string_or_a_bare_one() {
        for (text, key) in [
            ("k-1", "k-1"),
            ("\"k-1\"", "k-1"),
            ("\"\"", ""),
            (r#""a\"b""#, "a\"b"),
            (r#""a\\""#, r"a\"),
            (r"a\b", r"a\b"),
        ] {
            assert_eq!(spelled(text).as_deref(), Some(key), "{text}");
        }
        for text in ["\"", "\"a\"b\"", "\"a", "a\"", "a\"b", r#""a\""#, r#""a\b""#, "a\tb", "\"a\tb\"", "\"a\";p=1"] {
            assert_eq!(spelled(text), None, "{text}");
        }
    }
}
