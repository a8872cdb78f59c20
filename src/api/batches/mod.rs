//! Many submissions in one request: JSON or NDJSON in, an outcome a line out (semantics 32).
//!
//! Lines are checked, made into proposals and proposed in chunks, so one fsync serves many. Only a closed batch settles,
//! so the batch is closed whatever happens to the connection: a guard proposes it when the request is dropped.

mod intake;
mod lines;
mod view;

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::{HeaderValue, LOCATION};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::Unavailable;
use crate::ledger::ids::BatchId;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::callback::CallbackSpec;
use crate::ledger::machine::decision::Answer;
use crate::ledger::machine::task::spec::{IdempotencyKey, Text};
use crate::ledger::time::Millis;

use super::App;
use super::error::{ApiError, ApiResult, Code};
use super::extract::Json;
use super::extract::{Caller, NoQuery, announced, expect_content_type, parse, read_body};
use super::submission::{CallbackBody, Faults, callback_spec};
use super::submit::{self, NamedKey, draw_id, invalid};
use super::tasks::idempotency_header;
use crate::ledger::canonical;

use intake::OpenBatch;
use view::Outcome;

pub(crate) use crate::ledger::machine::batch::MAX_LINES;

/// The longest request body of a batch (semantics 32).
pub(super) const MAX_BATCH: usize = 64 << 20;
/// Batches up to here need no turn.
const SMALL: usize = 2 << 20;
/// Larger ones are read two at a time, so that half of the room for bodies is left for everybody else.
static TURNS: Semaphore = Semaphore::const_new(2);

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(submit_batch)).routes(routes!(view::get_batch))
}

/// A batch as JSON.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BatchBody<'a> {
    /// Submissions, at most 100,000.
    #[serde(borrow)]
    #[schema(value_type = Vec<crate::api::submission::TaskBody<'static>>)]
    tasks: Vec<&'a RawValue>,
    /// Whom to tell when every task has ended.
    callback: Option<CallbackBody>,
    /// Against double submission; the same as the `Idempotency-Key` header.
    idempotency_key: Option<String>,
}

/// What a batch is, besides its tasks: the first line of an NDJSON body may say it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchHead {
    callback: Option<CallbackBody>,
    idempotency_key: Option<String>,
}

/// The first line of an NDJSON body, if it is about the batch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadLine {
    batch: BatchHead,
}

/// What became of a batch's lines.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchAnswer {
    batch_id: String,
    /// Lines, refused ones too.
    total: u32,
    refused: u32,
    /// Its new tasks by the state that they began in.
    by_state: BTreeMap<String, u32>,
    settled: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    outcomes: Vec<Outcome>,
}

/// Submits many tasks: `application/json` or `application/x-ndjson`.
#[utoipa::path(
    post, path = "/v1/batches", tag = "batches",
    request_body(content((BatchBody<'static> = "application/json"), (String = "application/x-ndjson"))),
    params(("Idempotency-Key" = Option<String>, Header, description = "Against double submission of the whole batch")),
    responses(
        (status = 202, body = BatchAnswer), (status = 200, body = BatchAnswer, description = "The answer of an earlier call with the same key"),
    )
)]
pub(super) async fn submit_batch(
    State(app): State<App>,
    caller: Caller,
    NoQuery: NoQuery,
    request: Request,
) -> ApiResult<Response> {
    caller.require(Scope::Submit)?;
    // Else every line of it would be refused, one by one, in a batch that never was.
    if app.ledger.published().phase.is_short_of_room() {
        return Err(Unavailable::DiskFull.into());
    }
    let (parts, body) = request.into_parts();
    let kind = expect_content_type(&parts.headers, &["application/json", "application/x-ndjson"])?;
    let header = idempotency_header(&parts.headers)?;
    let answer = match (kind, header) {
        ("application/json", header) => {
            let _turn = turn(&parts.headers).await?;
            let bytes = read_body(&parts.headers, body, MAX_BATCH, &app).await?;
            json(&app, &caller, &bytes, header).await?
        }
        // A key is compared by the whole body, so the whole body is read before anything is taken.
        (_, Some(key)) => {
            let _turn = turn(&parts.headers).await?;
            let bytes = read_body(&parts.headers, body, MAX_BATCH, &app).await?;
            keyed_lines(&app, &caller, bytes, Some(key)).await?
        }
        (_, None) => lines::stream(&app, &caller, &parts.headers, body).await?,
    };
    Ok(respond(&answer))
}

/// The turn of a large body; small ones need none.
async fn turn(headers: &HeaderMap) -> ApiResult<Option<tokio::sync::SemaphorePermit<'static>>> {
    if announced(headers).is_some_and(|len| len <= SMALL) {
        return Ok(None);
    }
    TURNS
        .try_acquire()
        .map(Some)
        .map_err(|_| ApiError::new(Code::Busy, "too many large batches at a time").retry_after(Millis::secs(2)))
}

fn respond(answer: &BatchAnswer) -> Response {
    let status = if answer.replayed { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = (status, Json(answer)).into_response();
    let headers = response.headers_mut();
    headers.extend(HeaderValue::try_from(format!("/v1/batches/{}", answer.batch_id)).ok().map(|v| (LOCATION, v)));
    if answer.replayed {
        headers.insert(HeaderName::from_static("idempotency-replayed"), HeaderValue::from_static("true"));
    }
    response
}

async fn json(app: &App, caller: &Caller, bytes: &Bytes, header: Option<Text>) -> ApiResult<BatchAnswer> {
    let body: BatchBody<'_> = parse(bytes)?;
    if body.tasks.len() > usize::try_from(MAX_LINES).unwrap_or(usize::MAX) {
        return Err(ApiError::field("/tasks", format!("has {}; at most {MAX_LINES}", body.tasks.len())));
    }
    let named = NamedKey { field: body.idempotency_key.as_deref(), header };
    let key = submit::idempotency(app, caller, named, bytes)?;
    let callback = callback_unless_bound(app, caller, (body.callback.as_ref(), "/callback"), key.as_ref()).await?;
    let mut batch = match OpenBatch::begin(app, caller, callback, key).await? {
        intake::Begun::New(batch) => batch,
        intake::Begun::Again(batch) => return view::again(app, batch).await,
    };
    for chunk in body.tasks.chunks(intake::CHUNK) {
        let lines = chunk.iter().map(|raw| intake::Line::Checked(raw.get().as_bytes())).collect();
        batch.take(lines).await;
    }
    batch.close().await
}

/// An NDJSON batch that was read whole, for it has a key.
async fn keyed_lines(app: &App, caller: &Caller, bytes: Bytes, header: Option<Text>) -> ApiResult<BatchAnswer> {
    let all = whole_lines(&bytes);
    let head = match all.first() {
        Some(line) => head_line(line)?,
        None => None,
    };
    let all: &[&[u8]] = if head.is_some() { all.get(1..).unwrap_or_default() } else { &all };
    if all.len() > usize::try_from(MAX_LINES).unwrap_or(usize::MAX) {
        return Err(too_many_lines());
    }
    let head = head.unwrap_or_default();
    let named = NamedKey { field: head.idempotency_key.as_deref(), header };
    let mut key = submit::idempotency(app, caller, named, b"{}")?;
    if let Some(key) = &mut key {
        let mut whole = Vec::with_capacity(bytes.len());
        for line in whole_lines(&bytes) {
            // A broken line stands for itself: it is refused each time alike.
            whole.extend(canonical::canonical(line).unwrap_or_else(|_| line.to_vec()));
            whole.push(b'\n');
        }
        key.fingerprint = app.ledger.keys().fingerprint(&caller.namespace, &whole);
    }
    let spec = (head.callback.as_ref(), "/batch/callback");
    let callback = callback_unless_bound(app, caller, spec, key.as_ref()).await?;
    let mut batch = match OpenBatch::begin(app, caller, callback, key).await? {
        intake::Begun::New(batch) => batch,
        intake::Begun::Again(batch) => return view::again(app, batch).await,
    };
    for chunk in all.chunks(intake::CHUNK) {
        let lines: Vec<_> = chunk.iter().map(|line| intake::Line::Raw(line)).collect();
        batch.take(lines).await;
    }
    batch.close().await
}

/// Lines that are not blank.
fn whole_lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).collect()
}

/// What the batch is, if the first line is about it.
///
/// # Errors
/// What is wrong with such a line.
fn head_line(line: &[u8]) -> ApiResult<Option<BatchHead>> {
    #[derive(Deserialize)]
    struct Names {
        batch: Option<serde::de::IgnoredAny>,
    }
    // Cheap to rule out: every other line would have to be parsed twice.
    let start = line.get(..line.len().min(64)).unwrap_or_default();
    if !start.windows(7).any(|window| window == b"\"batch\"") {
        return Ok(None);
    }
    match serde_json::from_slice::<Names>(line) {
        Ok(Names { batch: Some(_) }) => parse::<HeadLine>(line).map(|head| Some(head.batch)),
        Ok(Names { batch: None }) | Err(_) => Ok(None),
    }
}

fn too_many_lines() -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("a batch has at most {MAX_LINES} lines")).fact("limit", MAX_LINES)
}

fn callback(app: &App, caller: &Caller, body: Option<&CallbackBody>, at: &str) -> ApiResult<Option<CallbackSpec>> {
    let Some(body) = body else { return Ok(None) };
    let mut faults = Faults::default();
    let spec = callback_spec(body, at, &mut faults);
    faults.into_result().map_err(invalid)?;
    submit::callback_may_be_called(app, caller, body, at)?;
    Ok(Some(spec))
}

/// As [`callback`]; a repeat is answered as the first call was, whatever may be called by now (S6).
async fn callback_unless_bound(
    app: &App,
    caller: &Caller,
    (body, at): (Option<&CallbackBody>, &str),
    key: Option<&IdempotencyKey>,
) -> ApiResult<Option<CallbackSpec>> {
    match callback(app, caller, body, at) {
        Ok(spec) => Ok(spec),
        Err(refusal) => {
            if submit::is_bound(app, caller, key).await? {
                Ok(None)
            } else {
                Err(refusal)
            }
        }
    }
}

/// A new batch's id and its opening.
fn opening(
    callback: Option<CallbackSpec>,
    idempotency: Option<IdempotencyKey>,
) -> (BatchId, crate::ledger::machine::command::Command) {
    let batch = BatchId(draw_id());
    (batch, crate::ledger::machine::command::Command::OpenBatch { batch, callback, idempotency, bound: None })
}

/// An answer of the core that does not fit the call.
fn unexpected(answer: &Answer) -> ApiError {
    submit::unexpected(answer)
}
