//! The items of a plan, one by one: its list beside what became of each.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::App;
use crate::api::error::{ApiError, ApiResult};
use crate::api::extract::{Caller, Id, Json, Query};
use crate::api::list::{position, word};
use crate::api::wire::{Cursor, page_size};
use crate::ledger::ids::{ReachId, ReplayId};
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::replay::{Ended, ItemOutcome, Replay, ReplayPhase};
use crate::ledger::machine::task::Task;
use crate::ledger::store::BodyKey;
use crate::recovery::list::{NoList, PlanItem, decode};

use super::view::action;
use super::visible;

/// Outcomes that the list can be narrowed to.
const OUTCOMES: [&str; 5] = ["pending", "replayed", "redriven", "skipped", CANCELLED];
/// What is left of a plan that was called off.
const CANCELLED: &str = "cancelled";

/// Which items.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ItemsQuery {
    /// `pending`, `replayed`, `redriven`, `skipped` or `cancelled`.
    outcome: Option<String>,
    /// Items in a page, 1 to 500; 50 by default.
    limit: Option<usize>,
    /// From `next_cursor` of the page before, with the same filter.
    cursor: Option<String>,
}

/// One item.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplayItem)]
pub(super) struct ItemView {
    /// Its place in the list, from 0.
    index: u32,
    reach_id: String,
    /// `replay` or `redrive`.
    action: &'static str,
    /// `pending`, `replayed`, `redriven` or `skipped`; `cancelled`: it was pending when the plan was called off.
    outcome: &'static str,
    /// Why it was left alone.
    skipped: Option<&'static str>,
    /// The task that was made of it.
    redriven_as: Option<String>,
    /// How the task stands that goes on now: the one that was made of it, or itself. Null when it is no longer kept.
    state: Option<&'static str>,
}

impl ItemView {
    fn new(replay: &Replay, index: u32, (item, outcome): (&PlanItem, ItemOutcome)) -> Self {
        let (skipped, redriven_as) = match outcome {
            ItemOutcome::Pending | ItemOutcome::Replayed => (None, None),
            ItemOutcome::Redriven => (None, Some(replay.id.successor(item.task).to_string())),
            ItemOutcome::Skipped(skip) => (Some(skip.name()), None),
        };
        Self {
            index,
            reach_id: item.task.to_string(),
            action: action(item.action),
            outcome: name(replay, outcome),
            skipped,
            redriven_as,
            state: None,
        }
    }
}

/// What became of an item, in a word.
fn name(replay: &Replay, outcome: ItemOutcome) -> &'static str {
    let is_called_off = replay.phase == ReplayPhase::Finished(Ended::Cancelled);
    if is_called_off && outcome == ItemOutcome::Pending { CANCELLED } else { outcome.name() }
}

/// The task that does an item's work now.
fn worker(replay: ReplayId, (item, outcome): (&PlanItem, ItemOutcome)) -> ReachId {
    if outcome == ItemOutcome::Redriven { replay.successor(item.task) } else { item.task }
}

/// One page of them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplayItems)]
pub(super) struct ItemsPage {
    items: Vec<ItemView>,
    /// For the next page; null on the last one.
    next_cursor: Option<String>,
}

/// The items of a plan, in their order, and what became of each.
#[utoipa::path(
    get, path = "/v1/replays/{replay_id}/items", operation_id = "list_replay_items", tag = "replays",
    params(("replay_id" = String, Path), ItemsQuery), responses((status = 200, body = ItemsPage))
)]
pub(super) async fn list_items(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReplayId>,
    Query(query): Query<ItemsQuery>,
) -> ApiResult<Json<ItemsPage>> {
    caller.require(Scope::Read)?;
    let limit = page_size(query.limit)?;
    let wanted = match query.outcome.as_deref() {
        None => None,
        Some(name) => Some(word("outcome", name, &OUTCOMES, |name| name)?),
    };
    let cursor = Cursor::over("replay-items", &format!("{} {id} {wanted:?}", caller.namespace));
    let from: u32 = position(&cursor, query.cursor.as_deref())?.unwrap_or(0);
    let replay = visible(&app, &caller, id).await?;
    let list = list_of(&app, &replay).await?;
    let all = (0_u32..).zip(list.iter().zip(&replay.outcomes));
    let asked = all.filter(|(index, (_, outcome))| {
        *index >= from && wanted.is_none_or(|wanted| name(&replay, **outcome) == wanted)
    });
    let mut asked = asked.map(|(index, (item, outcome))| (index, (item, *outcome)));
    let page: Vec<_> = asked.by_ref().take(limit).collect();
    let tasks = app.ledger.tasks(page.iter().map(|(_, item)| worker(id, *item)).collect()).await?;
    let state = |task: Option<Task>| task.map(|task| task.status.kind().name());
    let view = |((index, item), task)| ItemView { state: state(task), ..ItemView::new(&replay, index, item) };
    let items = page.into_iter().zip(tasks).map(view).collect();
    let next_cursor = asked.next().map(|(index, _)| cursor.after(&index.to_string()));
    Ok(Json(ItemsPage { items, next_cursor }))
}

/// The list that the plan's event names.
pub(super) async fn list_of(app: &App, replay: &Replay) -> ApiResult<Vec<PlanItem>> {
    read(app, replay, decode).await
}

/// What that list says.
pub(super) async fn read<T>(app: &App, replay: &Replay, how: fn(&[u8]) -> Result<T, NoList>) -> ApiResult<T> {
    let body = app.ledger.body(BodyKey::list_of(replay.id)).await?;
    let list = body.filter(|body| body.digest() == replay.list.digest).and_then(|body| how(&body.bytes).ok());
    list.ok_or_else(|| {
        tracing::error!(replay = %replay.id, "the list of a replay plan is missing or damaged");
        ApiError::unreadable()
    })
}
