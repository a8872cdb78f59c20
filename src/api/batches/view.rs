//! A batch as callers see it.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::ledger::handle::{Receipt, Unavailable};
use crate::ledger::ids::{BatchId, ReachId, Seq};
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::batch::{Batch, BatchPhase};
use crate::ledger::machine::task::Task;
use crate::ledger::store::{BodyKey, BodyKind, FinishedFilter, StoredEvent};
use crate::ledger::time::Millis;

use super::super::App;
use super::super::error::{ApiError, ApiResult, Code, ProblemSchema, Thing};
use super::super::extract::{Caller, Id, Json, Query};
use super::super::render;
use super::super::submit::Accepted;
use super::super::wire::ReceiptBody;
use super::BatchAnswer;

/// Tasks looked at in one question or read.
const LOOK: usize = 5_000;
/// Events read at a time.
const READ: usize = 512;
/// Batches of so many lines show their outcomes unasked.
const SHOWN: u32 = 1_000;
/// A repeat waits so long for the first call to close its batch.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of one line.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = BatchOutcome)]
pub(in crate::api) struct Outcome {
    index: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reach_id: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    /// Of its submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ProblemSchema>)]
    problem: Option<Box<RawValue>>,
}

/// What is kept of an answer, so that a repeat gets the same (S6). The plain outcomes are read from their tasks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub total: u32,
    pub refused: u32,
    pub settled: bool,
    pub by_state: BTreeMap<String, u32>,
    /// Outcomes that say more than their task's id.
    pub outcomes: Vec<Outcome>,
}

/// Where it lies: under the batch's id, which is drawn like a task's and is never one.
pub(super) const fn kept_key(id: BatchId) -> BodyKey {
    render::body_key(ReachId(id.0), BodyKind::Result, 0)
}

async fn kept(app: &App, id: BatchId) -> ApiResult<Option<Kept>> {
    let Some(body) = app.ledger.body(kept_key(id)).await? else { return Ok(None) };
    serde_json::from_slice(&body.bytes).map(Some).map_err(|error| {
        tracing::error!(batch = %id, %error, "a batch's outcomes can't be read");
        ApiError::unreadable()
    })
}

impl Outcome {
    /// The outcome of the line at `index`.
    pub(super) fn new(index: u32, result: ApiResult<Accepted>) -> Self {
        match result {
            Ok(mut accepted) => Self {
                index,
                reach_id: Some(accepted.task.to_string()),
                replayed: accepted.replayed,
                receipt: accepted.receipt.take(),
                warnings: accepted.into_warnings(),
                problem: None,
            },
            Err(problem) => {
                // A problem is always JSON.
                let problem = serde_json::value::to_raw_value(&problem).ok();
                Self { index, reach_id: None, replayed: false, receipt: None, warnings: Vec::new(), problem }
            }
        }
    }

    /// Does it say no more than the id of a new task of the batch?
    pub(super) const fn is_plain(&self) -> bool {
        self.reach_id.is_some() && !self.replayed && self.warnings.is_empty()
    }
}

/// How to look at a batch.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct BatchQuery {
    /// Shows an outcome a line. By default up to 1,000 lines.
    outcomes: Option<bool>,
}

/// How far a batch has come.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Batch)]
pub(in crate::api) struct BatchView {
    batch_id: String,
    /// Lines, refused ones too; those so far while it is open.
    total: u32,
    accepted: u32,
    refused: u32,
    /// Accepted tasks by state.
    by_state: BTreeMap<&'static str, u32>,
    /// `open` while lines may come, then `closed`, then `settled`.
    phase: &'static str,
    settled: bool,
    opened_at: String,
    #[schema(value_type = Option<Object>)]
    callback: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcomes: Option<Vec<Outcome>>,
}

impl BatchView {
    fn new(batch: &Batch, outcomes: Option<Vec<Outcome>>) -> Self {
        let (phase, total, refused) = match batch.phase {
            BatchPhase::Open => ("open", batch.accepted, 0),
            BatchPhase::Closed { total, refused } => ("closed", total, refused),
            BatchPhase::Settled { total, refused } => ("settled", total, refused),
        };
        Self {
            batch_id: batch.id.to_string(),
            total,
            accepted: batch.accepted,
            refused,
            by_state: batch.by_state.iter().filter(|(_, n)| **n > 0).map(|(kind, n)| (kind.name(), *n)).collect(),
            phase,
            settled: matches!(batch.phase, BatchPhase::Settled { .. }),
            opened_at: batch.opened_at.to_string(),
            callback: batch.callback_standing.map(|standing| {
                serde_json::json!({
                    "callback_id": standing.id.to_string(),
                    "state": standing.state.name(),
                    "attempts": standing.attempts,
                })
            }),
            outcomes,
        }
    }
}

/// How far a batch has come.
#[utoipa::path(
    get, path = "/v1/batches/{batch_id}", tag = "batches", params(("batch_id" = String, Path), BatchQuery),
    responses((status = 200, body = BatchView))
)]
pub(in crate::api) async fn get_batch(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BatchId>,
    Query(query): Query<BatchQuery>,
) -> ApiResult<Json<BatchView>> {
    caller.require(Scope::Read)?;
    let batch = app.ledger.batch(id).await?.filter(|batch| batch.namespace == caller.namespace);
    let batch = batch.ok_or_else(|| ApiError::not_found(Thing::Batch, id))?;
    let view = BatchView::new(&batch, None);
    if !query.outcomes.unwrap_or(view.total <= SHOWN) {
        return Ok(Json(view));
    }
    let kept = kept(&app, id).await?.map_or_else(Vec::new, |kept| kept.outcomes);
    let outcomes = Some(outcomes(&app, &batch, kept).await?);
    Ok(Json(BatchView::new(&batch, outcomes)))
}

/// The first answer again (semantics 31). While the first call is still taking lines, it waits for that.
///
/// # Errors
/// When the batch can't be read, or does not close in time.
pub(super) async fn again(app: &App, id: BatchId) -> ApiResult<BatchAnswer> {
    let batch = tokio::time::timeout(PATIENCE, closed(app, id)).await.map_err(|_| {
        ApiError::new(Code::Busy, "the first call with this key is still under way").retry_after(Millis::secs(5))
    })??;
    let view = BatchView::new(&batch, None);
    // One that the hub had to close at a start was never answered: it is told as it is.
    let by_state = view.by_state.iter().map(|(state, count)| ((*state).to_owned(), *count)).collect();
    let (total, refused, settled) = (view.total, view.refused, view.settled);
    let kept = kept(app, id).await?.unwrap_or(Kept { total, refused, settled, by_state, outcomes: Vec::new() });
    Ok(BatchAnswer {
        batch_id: view.batch_id,
        total: kept.total,
        refused: kept.refused,
        by_state: kept.by_state,
        settled: kept.settled,
        replayed: true,
        outcomes: outcomes(app, &batch, kept.outcomes).await?,
    })
}

async fn closed(app: &App, id: BatchId) -> ApiResult<Batch> {
    let mut news = app.ledger.follow();
    loop {
        news.borrow_and_update();
        let batch = app.ledger.batch(id).await?.ok_or_else(|| ApiError::not_found(Thing::Batch, id))?;
        match batch.phase {
            BatchPhase::Closed { .. } | BatchPhase::Settled { .. } => return Ok(batch),
            BatchPhase::Open => news.changed().await.map_err(|_| Unavailable::Stopping)?,
        }
    }
}

/// An outcome a line, by index: the accepted ones from their tasks, the others as they were kept.
async fn outcomes(app: &App, batch: &Batch, kept: Vec<Outcome>) -> ApiResult<Vec<Outcome>> {
    let id = batch.id;
    let mut found: BTreeMap<u32, (ReachId, Option<Seq>)> = BTreeMap::new();
    // A batch's tasks are drawn after the batch, so their ids lie above its own.
    let mut from = Some(ReachId(id.0));
    while let Some(start) = from {
        let (tasks, next) = app
            .ledger
            .ask(move |state| {
                let mut tasks = Vec::new();
                let mut range = state.tasks().range(start..);
                for (reach_id, task) in range.by_ref().take(LOOK) {
                    let of_batch = task.spec.batch.filter(|(of, _)| *of == id);
                    tasks.extend(of_batch.map(|(_, index)| (index, (*reach_id, task.seqs.first().copied()))));
                }
                (tasks, range.next().map(|(reach_id, _)| *reach_id))
            })
            .await?;
        found.extend(tasks);
        let all = u32::try_from(found.len()).unwrap_or(u32::MAX) >= batch.accepted;
        from = next.filter(|_| !all);
    }
    let mut before = None;
    while u32::try_from(found.len()).unwrap_or(u32::MAX) < batch.accepted {
        let filter = FinishedFilter { batch: Some(id), ..FinishedFilter::default() };
        let rows = app.ledger.finished(batch.namespace.clone(), filter, before, LOOK).await?;
        before = rows.last().map(Task::id);
        let end = rows.len() < LOOK;
        let of_batch = |task: &Task| Some((task.spec.batch?.1, (task.id(), task.seqs.first().copied())));
        found.extend(rows.iter().filter_map(of_batch));
        if end {
            break;
        }
    }
    let mut all = of_tasks(app, found.into_iter().collect()).await?;
    all.extend(kept.into_iter().map(|kept| (kept.index, kept)));
    Ok(all.into_values().collect())
}

/// The outcomes of accepted lines, each with the receipt of its task's submission.
async fn of_tasks(app: &App, lines: Vec<(u32, (ReachId, Option<Seq>))>) -> ApiResult<BTreeMap<u32, Outcome>> {
    let mut all = BTreeMap::new();
    for lines in lines.chunks(READ) {
        let submitted = app.ledger.events_at(lines.iter().filter_map(|(_, (_, seq))| *seq).collect()).await?;
        let receipt = |stored: &StoredEvent| Receipt { seq: stored.event.seq, hash: stored.hash() };
        let receipts: BTreeMap<Seq, Receipt> =
            submitted.iter().map(|stored| (stored.event.seq, receipt(stored))).collect();
        all.extend(lines.iter().map(|(index, (task, seq))| {
            let receipt = seq.and_then(|seq| receipts.get(&seq)).cloned().map(ReceiptBody::from);
            let reach_id = Some(task.to_string());
            let outcome =
                Outcome { index: *index, reach_id, replayed: false, receipt, warnings: Vec::new(), problem: None };
            (*index, outcome)
        }));
    }
    Ok(all)
}
