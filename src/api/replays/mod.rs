//! Replay plans: ordered, looked at, paused, resumed, called off, made faster or slower (R-REC-4).
//!
//! A plan is frozen here: what it acts on is selected once, written down as a list, and proposed in one command. From
//! then on it is the ledger's; the planner of recovery gives each item its turn.

mod body;
mod codes;
mod fit;
mod hints;
mod items;
mod members;
pub(in crate::api) mod patches;
mod plan;
mod redrive;
mod sample;
mod select;
pub(super) mod span;
pub(in crate::api) mod turn;
mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::{Published, Receipt, Refusal, Unavailable};
use crate::ledger::ids::{Capability, Namespace, ReplayId};
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::command::Command;
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::replay::order::ReplayWord;
use crate::ledger::machine::replay::{Ended, Replay, ReplayPhase};
use crate::recovery::Recovery;
use crate::recovery::plans::Waiting;

use super::App;
use super::error::{ApiError, ApiResult, Thing};
use super::extract::{Caller, Id, Json, MaybeJson, NoQuery, Query, outside};
use super::list::{position, word};
use super::wire::{Cursor, Page, page_size, reason};

use body::{RateBody, WhyBody};
use view::ReplayView;

/// The longest wait for a change.
const MAX_WAIT_MS: u64 = 60_000;
/// Between two looks of one that waits: a busy hub is not asked at every commit.
const BREATH: Duration = Duration::from_millis(50);
/// Plans looked at in one look: each may hold the outcomes of 100,000 items.
const LOOK: usize = 50;
/// Looks for one page.
const ROUNDS: usize = 12;
/// States that plans can be narrowed to.
const PHASES: [ReplayPhase; 4] = [
    ReplayPhase::Running,
    ReplayPhase::Paused,
    ReplayPhase::Finished(Ended::Completed),
    ReplayPhase::Finished(Ended::Cancelled),
];

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(plan::plan_replay, list_replays))
        .routes(routes!(get_replay, change_rate))
        .routes(routes!(items::list_items))
        .routes(routes!(pause_replay))
        .routes(routes!(resume_replay))
        .routes(routes!(cancel_replay))
        .merge(redrive::routes())
}

/// A plan of the caller's namespace; anything else is the plain 404.
async fn visible(app: &App, caller: &Caller, id: ReplayId) -> ApiResult<Replay> {
    let replay = app.ledger.replay(id).await?;
    replay.filter(|replay| replay.namespace == caller.namespace).ok_or_else(|| ApiError::not_found(Thing::Replay, id))
}

/// The plan as it is shown by itself, with what it waits for, and its patch to those who may read payloads.
async fn shown(app: &App, caller: &Caller, replay: &Replay, receipt: Option<Receipt>) -> ApiResult<ReplayView> {
    let id = replay.id;
    let question = move |state: &Ledgered, recovery: &Recovery| recovery.waiting_for(state, id);
    let waiting = app.ledger.ask_planner(question).await?.flatten();
    let patch = if caller.require(Scope::Read).is_ok() { patches::patch_of(app, replay).await } else { None };
    let view = ReplayView::new(replay, receipt.map(Into::into)).at_most(most(app));
    Ok(view.waiting_for(waiting).patched_by(patch.as_deref()))
}

/// What the whole hub replays a second.
fn most(app: &App) -> u32 {
    app.ledger.published().hub_policy.replays_per_second
}

/// Which plans.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ReplayQuery {
    /// `running`, `paused`, `completed` or `cancelled`.
    state: Option<String>,
    /// Plans in a page, 1 to 500; 50 by default.
    limit: Option<usize>,
    /// From `next_cursor` of the page before, with the same filter.
    cursor: Option<String>,
}

/// Some plans in order, and how far was looked: `None` when nothing is left.
type Looked = (Vec<(ReplayId, ReplayView)>, Option<ReplayId>);

/// An open plan as it is, and whom it waits for: to make views of them takes time that the state has not.
type Open = (Arc<Replay>, Option<Waiting>);

/// Open plans below a position, newest first.
fn open(
    (state, recovery): (&Ledgered, &Recovery),
    namespace: &Namespace,
    before: Option<ReplayId>,
) -> (Vec<Open>, Option<ReplayId>) {
    let upper = before.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    let mut found = Vec::new();
    for (id, replay) in state.replays().range((std::ops::Bound::Unbounded, upper)).rev() {
        if replay.namespace == *namespace {
            found.push((Arc::clone(replay), recovery.waiting_for(state, *id)));
        }
        if found.len() >= LOOK {
            return (found, Some(*id));
        }
    }
    (found, None)
}

/// Replay plans, newest first.
#[utoipa::path(
    get, path = "/v1/replays", tag = "replays", params(ReplayQuery),
    responses((status = 200, body = Page<ReplayView>))
)]
async fn list_replays(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ReplayQuery>,
) -> ApiResult<Json<Page<ReplayView>>> {
    caller.require(Scope::Read)?;
    let limit = page_size(query.limit)?;
    let wanted = match query.state.as_deref() {
        None => None,
        Some(name) => Some(word("state", name, &PHASES, ReplayPhase::name)?),
    };
    let cursor = Cursor::over("replays", &format!("{} {wanted:?}", caller.namespace));
    let mut position: Option<ReplayId> = position(&cursor, query.cursor.as_deref())?;
    let most = most(&app);
    let mut items = Vec::new();
    for _ in 0..ROUNDS {
        let (namespace, from) = (caller.namespace.clone(), position);
        // The state first: one that ends in between is seen twice, never missed.
        let question = move |state: &Ledgered, recovery: &Recovery| open((state, recovery), &namespace, from);
        let (live, live_to) = app.ledger.ask_planner(question).await?.ok_or(Unavailable::Starting)?;
        let view =
            |(replay, waiting): Open| (replay.id, ReplayView::new(&replay, None).at_most(most).waiting_for(waiting));
        let live = live.into_iter().map(view).collect();
        let rows = app.ledger.ended_replays(caller.namespace.clone(), position, LOOK).await?;
        let rows_to = if rows.len() < LOOK { None } else { rows.last().map(|replay| replay.id) };
        let rows = rows.iter().map(|replay| (replay.id, ReplayView::new(replay, None))).collect();
        let (found, next) = merge((live, live_to), (rows, rows_to));
        position = next;
        for (id, view) in found {
            if items.len() >= limit {
                break;
            }
            if wanted.is_none_or(|phase| view.state == phase.name()) {
                items.push(view);
            }
            // Whatever is left of this look is looked at again from here.
            if items.len() >= limit {
                position = Some(id);
            }
        }
        if items.len() >= limit || position.is_none() {
            break;
        }
    }
    let next_cursor = position.map(|position| cursor.after(&position.to_string()));
    Ok(Json(Page { items, next_cursor }))
}

/// Both in one order, as far as both were looked through.
fn merge(live: Looked, rows: Looked) -> Looked {
    // Below the nearer of the two ends one side is unknown still.
    let horizon = live.1.max(rows.1);
    // The row is newer than what was seen in memory, so it comes first.
    let mut all = rows.0;
    all.extend(live.0);
    all.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
    all.dedup_by_key(|(id, _)| *id);
    all.retain(|(id, _)| horizon.is_none_or(|horizon| *id >= horizon));
    (all, horizon)
}

/// How to look at a plan.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct LookQuery {
    /// Wait for a change of the plan for so long, 0 to 60,000.
    wait_ms: Option<u64>,
}

/// One replay plan.
#[utoipa::path(
    get, path = "/v1/replays/{replay_id}", tag = "replays", params(("replay_id" = String, Path), LookQuery),
    responses((status = 200, body = ReplayView))
)]
async fn get_replay(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReplayId>,
    Query(query): Query<LookQuery>,
) -> ApiResult<Json<ReplayView>> {
    caller.require(Scope::Read)?;
    let wait = query.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT_MS {
        return Err(outside("wait_ms", wait, 0..=MAX_WAIT_MS));
    }
    // Followed before the first look, so no change is missed between the two.
    let news = app.ledger.follow();
    let mut replay = visible(&app, &caller, id).await?;
    if wait > 0 && !matches!(replay.phase, ReplayPhase::Finished(_)) {
        let change = changed(&app, id, (replay.seqs.len(), replay.settled), news);
        if let Ok(changed) = tokio::time::timeout(Duration::from_millis(wait), change).await {
            changed?;
        }
        replay = visible(&app, &caller, id).await?;
    }
    Ok(Json(shown(&app, &caller, &replay, None).await?))
}

/// Waits until the plan is no longer as it was seen, or the hub goes down.
async fn changed(app: &App, id: ReplayId, seen: (usize, u32), mut news: watch::Receiver<Published>) -> ApiResult<()> {
    loop {
        if news.borrow_and_update().phase.is_stopping() {
            return Ok(());
        }
        let is_as_seen = move |replay: &Replay| (replay.seqs.len(), replay.settled) == seen;
        if !app.ledger.ask(move |state| state.replay(id).is_some_and(is_as_seen)).await? {
            return Ok(());
        }
        if news.changed().await.is_err() {
            return Ok(());
        }
        tokio::time::sleep(BREATH).await;
    }
}

/// Tells a plan an operator's word; answers where it stands then.
async fn steer(app: &App, caller: &Caller, id: ReplayId, word: ReplayWord) -> ApiResult<Json<ReplayView>> {
    caller.require(Scope::Operate)?;
    let command = Command::SteerReplay { replay: id, word };
    let verdict = app.ledger.propose(caller.proposal(command)).await;
    let replay = visible(app, caller, id).await;
    match verdict {
        Ok(released) => Ok(Json(shown(app, caller, &replay?, released.receipt).await?.steered())),
        // One that has left memory takes no word either.
        Err(Refusal::Rejected(Rejection::ReplayUnknown)) => Err(Rejection::ReplayEnded { phase: replay?.phase }.into()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Refuses to let a plan send items, or at another rate, to whoever may not have made it. To stop one is everybody's.
async fn may_set_going(app: &App, caller: &Caller, id: ReplayId) -> ApiResult<()> {
    caller.require(Scope::Operate)?;
    let select: OfCapability = serde_json::from_str(&visible(app, caller, id).await?.select).unwrap_or_default();
    plan::may_select(caller, select.capability.as_ref())
}

/// What a plan's frozen selection says of its right. Without a capability it is over all of them.
#[derive(Debug, Default, Deserialize)]
struct OfCapability {
    capability: Option<Capability>,
}

/// Lets no more items go until it is resumed.
#[utoipa::path(
    post, path = "/v1/replays/{replay_id}/pause", tag = "replays", params(("replay_id" = String, Path)),
    request_body = WhyBody, responses((status = 200, body = ReplayView))
)]
async fn pause_replay(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReplayId>,
    NoQuery: NoQuery,
    MaybeJson(why): MaybeJson<WhyBody>,
) -> ApiResult<Json<ReplayView>> {
    let reason = reason("/reason", why.reason.as_deref())?;
    steer(&app, &caller, id, ReplayWord::Pause { reason }).await
}

/// Lets its items go on. A token that is limited to capabilities may do so with plans over one of them alone.
#[utoipa::path(
    post, path = "/v1/replays/{replay_id}/resume", tag = "replays", params(("replay_id" = String, Path)),
    request_body = WhyBody, responses((status = 200, body = ReplayView))
)]
async fn resume_replay(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReplayId>,
    NoQuery: NoQuery,
    MaybeJson(why): MaybeJson<WhyBody>,
) -> ApiResult<Json<ReplayView>> {
    let reason = reason("/reason", why.reason.as_deref())?;
    may_set_going(&app, &caller, id).await?;
    steer(&app, &caller, id, ReplayWord::Resume { reason }).await
}

/// Calls the rest off. What went is not called back.
#[utoipa::path(
    post, path = "/v1/replays/{replay_id}/cancel", tag = "replays", params(("replay_id" = String, Path)),
    request_body = WhyBody, responses((status = 200, body = ReplayView))
)]
async fn cancel_replay(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReplayId>,
    NoQuery: NoQuery,
    MaybeJson(why): MaybeJson<WhyBody>,
) -> ApiResult<Json<ReplayView>> {
    let reason = reason("/reason", why.reason.as_deref())?;
    steer(&app, &caller, id, ReplayWord::Cancel { reason }).await
}

/// Makes it faster or slower. A token that is limited to capabilities may do so with plans over one of them alone.
#[utoipa::path(
    patch, path = "/v1/replays/{replay_id}", operation_id = "change_replay", tag = "replays",
    params(("replay_id" = String, Path)), request_body = RateBody, responses((status = 200, body = ReplayView))
)]
async fn change_rate(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReplayId>,
    NoQuery: NoQuery,
    Json(body): Json<RateBody>,
) -> ApiResult<Json<ReplayView>> {
    caller.require(Scope::Operate)?;
    let rate = body::rate(&app, body.rate_per_s)?;
    may_set_going(&app, &caller, id).await?;
    steer(&app, &caller, id, ReplayWord::Rate { rate }).await
}
