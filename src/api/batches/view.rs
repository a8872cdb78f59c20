//! A batch as callers see it.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ledger::ids::{BatchId, ReachId};
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::batch::{Batch, BatchPhase};
use crate::ledger::store::FinishedFilter;

use super::super::App;
use super::super::error::{ApiError, ApiResult, ProblemSchema};
use super::super::extract::{Caller, Id, Json, Query};
use super::super::submit::Accepted;
use super::BatchAnswer;

/// Tasks looked at in one question or read.
const LOOK: usize = 5_000;

/// What became of one line.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Outcome {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reach_id: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ProblemSchema>)]
    problem: Option<ApiError>,
}

impl Outcome {
    /// The outcome of the line at `index`.
    pub(super) fn new(index: u32, result: ApiResult<Accepted>) -> Self {
        match result {
            Ok(accepted) => Self {
                index,
                reach_id: Some(accepted.task.to_string()),
                replayed: accepted.replayed,
                warnings: accepted.into_warnings(),
                problem: None,
            },
            Err(problem) => {
                Self { index, reach_id: None, replayed: false, warnings: Vec::new(), problem: Some(problem) }
            }
        }
    }
}

/// How to look at a batch.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct BatchQuery {
    /// `true` adds the ids of the accepted lines.
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
    responses((status = 200, body = BatchView), (status = 404, body = ProblemSchema, content_type = "application/problem+json"))
)]
pub(in crate::api) async fn get_batch(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BatchId>,
    Query(query): Query<BatchQuery>,
) -> ApiResult<Json<BatchView>> {
    caller.require(Scope::Read)?;
    let batch = app.ledger.batch(id).await?.filter(|batch| batch.namespace == caller.namespace);
    let batch = batch.ok_or_else(ApiError::not_found)?;
    let outcomes = if query.outcomes == Some(true) { Some(outcomes(&app, &batch).await?) } else { None };
    Ok(Json(BatchView::new(&batch, outcomes)))
}

/// The first answer again (semantics 31). Problems of refused lines are not kept: those indexes are left out.
///
/// # Errors
/// When the batch can't be read.
pub(super) async fn again(app: &App, id: BatchId) -> ApiResult<BatchAnswer> {
    let batch = app.ledger.batch(id).await?.ok_or_else(ApiError::not_found)?;
    let outcomes = outcomes(app, &batch).await?;
    let view = BatchView::new(&batch, None);
    Ok(BatchAnswer {
        batch_id: view.batch_id,
        total: view.total,
        refused: view.refused,
        settled: view.settled,
        replayed: true,
        outcomes,
    })
}

/// The accepted lines with their tasks, by index.
async fn outcomes(app: &App, batch: &Batch) -> ApiResult<Vec<Outcome>> {
    let id = batch.id;
    let mut found: BTreeMap<u32, ReachId> = BTreeMap::new();
    // A batch's tasks are drawn after the batch, so their ids lie above its own.
    let mut from = Some(ReachId(id.0));
    while let Some(start) = from {
        let (tasks, next) = app
            .ledger
            .ask(move |state| {
                let mut tasks = Vec::new();
                let mut range = state.tasks().range(start..);
                for (reach_id, task) in range.by_ref().take(LOOK) {
                    tasks.extend(task.spec.batch.filter(|(of, _)| *of == id).map(|(_, index)| (index, *reach_id)));
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
        before = rows.last().map(crate::ledger::machine::task::Task::id);
        let end = rows.len() < LOOK;
        found.extend(rows.iter().filter_map(|task| task.spec.batch.map(|(_, index)| (index, task.id()))));
        if end {
            break;
        }
    }
    let outcome = |(index, task): (u32, ReachId)| Outcome {
        index,
        reach_id: Some(task.to_string()),
        replayed: false,
        warnings: Vec::new(),
        problem: None,
    };
    Ok(found.into_iter().map(outcome).collect())
}
