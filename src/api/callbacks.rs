//! Callbacks: those that are due and those that settled without arriving, and sending one of these again.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::ids::{CallbackId, Namespace};
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::callback::{Callback, CallbackState, CallbackSubject};
use crate::ledger::machine::command::{CallbackRow, Command};

use super::App;
use super::error::{ApiError, ApiResult, Thing};
use super::extract::{Caller, Id, Json, NoQuery, Query};
use super::list::{position, word};
use super::wire::{Cursor, Page, ReceiptBody, page_size};

/// Callbacks looked at in one look.
const LOOK: usize = 2_000;
/// Looks for one page.
const ROUNDS: usize = 8;
/// States that a callback in this list can have.
const STATES: [CallbackState; 4] =
    [CallbackState::Due, CallbackState::Exhausted, CallbackState::Blocked, CallbackState::Gone];

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_callbacks)).routes(routes!(redrive))
}

/// Which callbacks.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CallbackQuery {
    /// `due`, `exhausted`, `blocked` or `gone`.
    state: Option<String>,
    /// Callbacks in a page, 1 to 500; 50 by default.
    limit: Option<usize>,
    /// From `next_cursor` of the page before, with the same filter.
    cursor: Option<String>,
}

/// One callback.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Callback)]
pub(super) struct CallbackView {
    callback_id: String,
    state: &'static str,
    /// The task that it tells about, or
    #[serde(skip_serializing_if = "Option::is_none")]
    reach_id: Option<String>,
    /// the batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_id: Option<String>,
    /// The event that it tells.
    seq: u64,
    url: String,
    secret_ref: String,
    /// Tries in this round.
    attempts: u32,
    /// Next try.
    next_at: Option<String>,
    /// When it settled.
    settled_at: Option<String>,
    /// Why the last try failed.
    last_error: Option<String>,
}

fn about(subject: CallbackSubject) -> (Option<String>, Option<String>) {
    match subject {
        CallbackSubject::Task(task) => (Some(task.to_string()), None),
        CallbackSubject::Batch(batch) => (None, Some(batch.to_string())),
    }
}

fn due_view(callback: &Callback) -> CallbackView {
    let (reach_id, batch_id) = about(callback.subject);
    CallbackView {
        callback_id: callback.id.to_string(),
        state: callback.state.name(),
        reach_id,
        batch_id,
        seq: callback.seq.0,
        url: callback.url.to_string(),
        secret_ref: callback.secret_ref.to_string(),
        attempts: callback.attempts,
        next_at: (callback.state == CallbackState::Due).then(|| callback.next_at.to_string()),
        settled_at: None,
        last_error: callback.last_error.as_ref().map(ToString::to_string),
    }
}

fn row_view(id: CallbackId, row: &CallbackRow) -> CallbackView {
    let (reach_id, batch_id) = about(row.subject);
    CallbackView {
        callback_id: id.to_string(),
        state: row.state.name(),
        reach_id,
        batch_id,
        seq: row.seq.0,
        url: row.url.to_string(),
        secret_ref: row.secret_ref.to_string(),
        attempts: row.attempts,
        next_at: None,
        settled_at: Some(row.at.to_string()),
        last_error: row.last_error.as_ref().map(ToString::to_string),
    }
}

type Found = (Vec<(CallbackId, CallbackView)>, Option<CallbackId>);

/// Due callbacks above a position, by id, and how far was looked.
fn due(state: &Ledgered, namespace: &Namespace, after: Option<CallbackId>, limit: usize) -> Found {
    let lower = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    let mut found = Vec::new();
    let mut looked = 0;
    for (id, callback) in state.callbacks().range((lower, std::ops::Bound::Unbounded)) {
        if callback.namespace == *namespace {
            found.push((*id, due_view(callback)));
        }
        looked += 1;
        if found.len() >= limit || looked >= LOOK {
            return (found, Some(*id));
        }
    }
    (found, None)
}

/// Callbacks that are due, and those that settled without arriving.
#[utoipa::path(
    get, path = "/v1/callbacks", tag = "callbacks", params(CallbackQuery),
    responses((status = 200, body = Page<CallbackView>))
)]
pub(super) async fn list_callbacks(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<CallbackQuery>,
) -> ApiResult<Json<Page<CallbackView>>> {
    caller.require(Scope::Read)?;
    let limit = page_size(query.limit)?;
    let wanted = match query.state.as_deref() {
        None => None,
        Some(name) => Some(word("state", name, &STATES, CallbackState::name)?),
    };
    let cursor = Cursor::over("callbacks", &format!("{} {:?}", caller.namespace, wanted.map(CallbackState::name)));
    let mut position: Option<CallbackId> = position(&cursor, query.cursor.as_deref())?;
    let mut items = Vec::new();
    for _ in 0..ROUNDS {
        let (namespace, from) = (caller.namespace.clone(), position);
        // The state first: one that settles in between is seen twice, never missed.
        let live = app.ledger.ask(move |state| due(state, &namespace, from, limit)).await?;
        let rows = app.ledger.settled_callbacks(caller.namespace.clone(), position, limit).await?;
        let rows_to = if rows.len() < limit { None } else { rows.last().map(|(id, _)| *id) };
        let rows = rows.iter().map(|(id, row)| (*id, row_view(*id, row))).collect();
        let (found, next) = merge(live, (rows, rows_to));
        let mut found = found.into_iter().filter(|(_, view)| wanted.is_none_or(|state| view.state == state.name()));
        let mut full = None;
        for (id, view) in found.by_ref() {
            items.push(view);
            if items.len() >= limit {
                full = Some(id);
                break;
            }
        }
        let left = found.next().is_some();
        position = match full {
            Some(last) if left || next.is_some() => Some(last),
            Some(_) => None,
            None => next,
        };
        if full.is_some() || position.is_none() {
            break;
        }
    }
    let next_cursor = position.map(|position| cursor.after(&position.to_string()));
    Ok(Json(Page { items, next_cursor }))
}

/// Both in one order, as far as both were looked through.
fn merge(live: Found, rows: Found) -> Found {
    // Above the nearer of the two ends one side is unknown still.
    let horizon = match (live.1, rows.1) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let mut all = live.0;
    all.extend(rows.0);
    all.sort_by_key(|(id, _)| *id);
    all.dedup_by_key(|(id, _)| *id);
    all.retain(|(id, _)| horizon.is_none_or(|horizon| *id <= horizon));
    (all, horizon)
}

/// A callback that is sent again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RedrivenCallback)]
pub(super) struct Redriven {
    callback_id: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
}

/// Sends a settled callback again: same id, same content, a fresh round of tries.
#[utoipa::path(
    post, path = "/v1/callbacks/{callback_id}/redrive", operation_id = "redrive_callback", tag = "callbacks", params(("callback_id" = String, Path)),
    responses((status = 202, body = Redriven))
)]
pub(super) async fn redrive(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<CallbackId>,
    NoQuery: NoQuery,
) -> ApiResult<(axum::http::StatusCode, Json<Redriven>)> {
    caller.require(Scope::Operate)?;
    let live = app.ledger.ask(move |state| state.callback(id).map(|callback| callback.namespace.clone())).await?;
    let row = app.ledger.settled_callback(id).await?;
    let namespace = live.as_ref().or_else(|| row.as_ref().map(|row| &row.namespace));
    if namespace != Some(&caller.namespace) {
        return Err(ApiError::not_found(Thing::Callback, id));
    }
    let released = app.ledger.propose(caller.proposal(Command::RedriveCallback { callback: id, row })).await;
    let released = released.map_err(|refusal| ApiError::from(refusal).named(Thing::Callback, id))?;
    let receipt = released.receipt.map(ReceiptBody::from);
    let state = CallbackState::Due.name();
    Ok((axum::http::StatusCode::ACCEPTED, Json(Redriven { callback_id: id.to_string(), state, receipt })))
}
