//! The list of tasks, newest first: live ones from the state and finished ones from their rows, merged by id.
//!
//! Why by id: ids sort by time and never change, while a state does. A page is a position in that order, so a task that
//! finishes between two pages is in exactly one of them. Each page looks at a bounded number of tasks; where few match,
//! a page may be short and still have a next one.

use axum::extract::State;
use serde::Deserialize;

use crate::ledger::ids::{Namespace, ReachId};
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{FailureClass, Task};
use crate::ledger::store::FinishedFilter;
use crate::recovery::select::Select;

use super::App;
use super::error::{ApiError, ApiResult};
use super::extract::{Caller, Json, Query, WireTime, wrong};
use super::near::{NoSuchWord, one_of};
use super::task_view::{self, Beside, TaskView};
use super::wire::{Cursor, Page, page_size};

/// Live tasks looked at in one question to the state.
pub(super) const LOOK_LIVE: usize = 2_000;
/// Finished rows looked at in one read.
pub(super) const LOOK_FINISHED: usize = 500;
/// Rounds of looking for one page.
const ROUNDS: usize = 8;

/// Which tasks. Every parameter narrows.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// States, with commas between.
    state: Option<String>,
    /// `domain.task_type`
    capability: Option<String>,
    /// The agent that holds it, or held it last.
    agent_id: Option<String>,
    /// The session.
    session_id: Option<String>,
    /// The batch.
    batch_id: Option<String>,
    /// `name:value`
    label: Option<String>,
    /// Classes of the last failure, with commas between.
    failure_class: Option<String>,
    /// RFC 3339 with an offset.
    #[param(value_type = Option<String>)]
    submitted_after: Option<WireTime>,
    /// RFC 3339 with an offset.
    #[param(value_type = Option<String>)]
    submitted_before: Option<WireTime>,
    /// Tasks in a page, 1 to 500; 50 by default.
    limit: Option<usize>,
    /// From `next_cursor` of the page before, with the same filter.
    cursor: Option<String>,
}

fn parsed<T: std::str::FromStr>(name: &str, text: Option<&String>) -> ApiResult<Option<T>>
where
    T::Err: std::fmt::Display,
{
    text.map(|text| text.parse().map_err(|error| wrong(name, Some(text), error))).transpose()
}

fn words<T: Copy>(name: &str, text: Option<&String>, all: &[T], spell: fn(T) -> &'static str) -> ApiResult<Vec<T>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    text.split(',').map(|text| word(name, text, all, spell)).collect()
}

/// One word of a choice.
pub(super) fn word<T: Copy>(name: &str, text: &str, all: &[T], spell: fn(T) -> &'static str) -> ApiResult<T> {
    one_of(text, all, spell).map_err(|no| no.in_query(name))
}

/// The refusal of a word, with the choice and the one that was meant.
pub(super) fn no_such_word(name: &str, text: &str, choice: &[&'static str]) -> ApiError {
    NoSuchWord::new(text, choice).in_query(name)
}

/// The same for the few words that are checked where they are used.
pub(super) fn only(name: &str, text: &str, choice: &[&'static str]) -> ApiResult<()> {
    if choice.contains(&text) { Ok(()) } else { Err(no_such_word(name, text, choice)) }
}

impl ListQuery {
    /// The filter that it spells.
    fn select(&self, app: &App) -> ApiResult<Select> {
        let label = match &self.label {
            None => None,
            Some(label) => match label.split_once(':') {
                Some((name, value)) => Some((name.into(), value.into())),
                None => return Err(wrong("label", Some(label), "name:value")),
            },
        };
        let moment = |at: Option<WireTime>| at.map(|at| app.ledger.from_wall(at.0));
        Ok(Select {
            states: words("state", self.state.as_ref(), &StatusKind::ALL, StatusKind::name)?,
            capability: parsed("capability", self.capability.as_ref())?,
            agent: parsed("agent_id", self.agent_id.as_ref())?,
            session: parsed("session_id", self.session_id.as_ref())?,
            batch: parsed("batch_id", self.batch_id.as_ref())?,
            labels: label.into_iter().collect(),
            classes: words("failure_class", self.failure_class.as_ref(), &FailureClass::ALL, FailureClass::name)?,
            after: moment(self.submitted_after),
            before: moment(self.submitted_before),
            ..Select::default()
        })
    }
}

/// A filter over the tasks of one namespace.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    pub(super) namespace: Namespace,
    pub(super) select: Select,
}

impl Filter {
    pub(super) fn picks(&self, task: &Task) -> bool {
        self.select.picks(&self.namespace, task)
    }

    /// What the store's index can narrow by itself.
    pub(super) fn of_rows(&self) -> FinishedFilter {
        let Select { session, batch, agent, .. } = &self.select;
        FinishedFilter { session: session.clone(), batch: *batch, agent: agent.clone() }
    }

    /// What the cursor is bound to: everything but limit and position.
    fn asked(&self) -> String {
        format!("{self:?}")
    }
}

/// Some tasks in order, and how far was looked: `None` when nothing is left.
struct Found {
    tasks: Vec<Task>,
    looked_to: Option<ReachId>,
}

/// Live tasks below a position, newest first.
fn live(state: &Ledgered, filter: &Filter, before: Option<ReachId>, limit: usize) -> Found {
    let upper = before.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    let mut tasks = Vec::new();
    let mut looked = 0;
    for (id, task) in state.tasks().range((std::ops::Bound::Unbounded, upper)).rev() {
        if filter.picks(task) {
            tasks.push(Task::clone(task));
        }
        looked += 1;
        if tasks.len() >= limit || looked >= LOOK_LIVE {
            return Found { tasks, looked_to: Some(*id) };
        }
    }
    Found { tasks, looked_to: None }
}

async fn finished(app: &App, filter: &Filter, before: Option<ReachId>) -> ApiResult<Found> {
    let rows = app.ledger.finished(filter.namespace.clone(), filter.of_rows(), before, LOOK_FINISHED).await?;
    let looked_to = if rows.len() < LOOK_FINISHED { None } else { rows.last().map(Task::id) };
    Ok(Found { tasks: rows.into_iter().filter(|task| filter.picks(task)).collect(), looked_to })
}

/// Tasks of the namespace, newest first.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", params(ListQuery),
    responses((status = 200, body = Page<TaskView>))
)]
pub(super) async fn list_tasks(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> ApiResult<Json<Page<TaskView>>> {
    caller.require(Scope::Read)?;
    let limit = page_size(query.limit)?;
    let filter = Filter { namespace: caller.namespace.clone(), select: query.select(&app)? };
    let cursor = Cursor::over("tasks", &filter.asked());
    let mut position: Option<ReachId> = position(&cursor, query.cursor.as_deref())?;
    let mut items: Vec<Task> = Vec::new();
    for _ in 0..ROUNDS {
        let room = limit - items.len();
        let (for_state, from) = (filter.clone(), position);
        // The state first: a task that finishes in between is seen twice, never missed.
        let live = app.ledger.ask(move |state| live(state, &for_state, from, room)).await?;
        let finished = finished(&app, &filter, position).await?;
        let (found, next) = merge(live, finished, room);
        items.extend(found);
        position = next;
        if position.is_none() || items.len() >= limit {
            break;
        }
    }
    let next_cursor = position.map(|position| cursor.after(&position.to_string()));
    let kin = app.ledger.kin_of(&items).await?;
    let held = task_view::held(&app.ledger, &items).await?;
    let beside = kin.into_iter().zip(held).map(|(kin, held)| Beside { kin, held, ..Beside::default() });
    let views = items.iter().zip(beside).map(|(task, beside)| TaskView::new(task, beside));
    Ok(Json(Page { items: views.collect(), next_cursor }))
}

/// The id that a cursor stands at.
pub(super) fn position<T: std::str::FromStr>(cursor: &Cursor, text: Option<&str>) -> ApiResult<Option<T>> {
    let position = cursor.position(text)?;
    position.map(|id| id.parse().map_err(|_| wrong("cursor", text, "one that this list has given"))).transpose()
}

/// Both in one order, as far as both were looked through; then where to go on.
fn merge(live: Found, finished: Found, limit: usize) -> (Vec<Task>, Option<ReachId>) {
    // Below the nearer of the two ends one side is unknown still.
    let horizon = live.looked_to.max(finished.looked_to);
    let mut all = live.tasks;
    all.extend(finished.tasks);
    // Stable, so of a task seen twice the live one comes first; the row that is newer in truth comes with its history.
    all.sort_by_key(|task| std::cmp::Reverse(task.id()));
    all.dedup_by_key(|task| task.id());
    all.retain(|task| horizon.is_none_or(|horizon| task.id() >= horizon));
    if all.len() > limit {
        all.truncate(limit);
        let next = all.last().map(Task::id);
        return (all, next);
    }
    (all, horizon)
}
