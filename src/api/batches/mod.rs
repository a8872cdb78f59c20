//! Many submissions in one request: JSON or NDJSON in, an outcome a line out (semantics 32).
//!
//! Lines are checked, made into proposals and proposed in chunks, so one fsync serves many. Only a closed batch settles,
//! so the batch is closed whatever happens to the connection: a guard proposes it when the request is dropped.

mod intake;
mod lines;
mod view;
mod whole;

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::http::header::{HeaderValue, LOCATION};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
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
use super::extract::{Caller, NoQuery, announced, expect_content_type, read_body};
use super::submission::{CallbackBody, Faults, callback_spec};
use super::submit::{self, NamedKey, draw_id, invalid};
use super::tasks::idempotency_header;

use intake::OpenBatch;
use view::Outcome;
use whole::{BatchBody, Given, Header, Turn, Whole};

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
    let phase = app.ledger.published().phase;
    if phase.is_short_of_room() {
        return Err(Unavailable::DiskFull.into());
    }
    if phase.is_stopping() {
        return Err(Unavailable::Stopping.into());
    }
    let (parts, body) = request.into_parts();
    let kind = expect_content_type(&parts.headers, &["application/json", "application/x-ndjson"])?;
    let header = idempotency_header(&parts.headers)?;
    let answer = match (kind, header) {
        ("application/json", header) => {
            let turn = turn(&parts.headers)?;
            let bytes = read_body(&parts.headers, body, MAX_BATCH, &app).await?;
            json(&app, &caller, Given { bytes, turn }, header).await?
        }
        // A key is compared by the whole body, so the whole body is read before anything is taken.
        (_, Some(key)) => {
            let turn = turn(&parts.headers)?;
            let bytes = read_body(&parts.headers, body, MAX_BATCH, &app).await?;
            keyed_lines(&app, &caller, Given { bytes, turn }, Some(key)).await?
        }
        (_, None) => lines::stream(&app, &caller, &parts.headers, body).await?,
    };
    Ok(respond(&answer))
}

/// The turn of a large body; small ones need none.
fn turn(headers: &HeaderMap) -> ApiResult<Turn> {
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

async fn json(app: &App, caller: &Caller, given: Given, header: Option<Text>) -> ApiResult<BatchAnswer> {
    let print = app.ledger.keys().fingerprinting(&caller.namespace);
    let named = if header.is_some() { Header::Keyed } else { Header::Unkeyed };
    let (read, _turn) = whole::apart(given, move |bytes| whole::json(bytes, named, print)).await?;
    submit_whole(app, caller, read, header).await
}

/// An NDJSON batch that was read whole, for it has a key.
async fn keyed_lines(app: &App, caller: &Caller, given: Given, header: Option<Text>) -> ApiResult<BatchAnswer> {
    let print = app.ledger.keys().fingerprinting(&caller.namespace);
    let (read, _turn) = whole::apart(given, move |bytes| whole::lines(bytes, print)).await?;
    submit_whole(app, caller, read, header).await
}

async fn submit_whole(app: &App, caller: &Caller, read: Whole, header: Option<Text>) -> ApiResult<BatchAnswer> {
    let Whole { form, lines, callback, key: named, fingerprint } = read;
    let mut key = submit::idempotency(app, caller, NamedKey { field: named.as_deref(), header }, b"{}")?;
    if let (Some(key), Some(fingerprint)) = (&mut key, fingerprint) {
        key.fingerprint = fingerprint;
    }
    let callback = callback_unless_bound(app, caller, (callback.as_ref(), form.callback_at()), key.as_ref()).await?;
    let mut batch = match OpenBatch::begin(app, caller, callback, key).await? {
        intake::Begun::New(batch) => batch,
        intake::Begun::Again(batch) => return view::again(app, batch).await,
    };
    for chunk in whole::chunks(&lines) {
        batch.take(chunk.iter().map(|line| form.line(line)).collect()).await;
    }
    batch.close().await
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
