//! The list of tasks, newest first: live ones from the state and finished ones from their rows, merged by id.
//!
//! Why by id: ids sort by time and never change, while a state does. A page is a position in that order, so a task that
//! finishes between two pages is in exactly one of them. Each page looks at a bounded number of tasks; where few match,
//! a page may be short and still have a next one. Where times are named, it is looked between them only.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ledger::handle::{Ledger, Unavailable};
use crate::ledger::ids::{Namespace, ReachId};
use crate::ledger::last_failure::Trail;
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{FailureClass, Task};
use crate::ledger::store::FinishedFilter;
use crate::recovery::select::{Pick, Select};

use super::App;
use super::error::{ApiError, ApiResult};
use super::extract::{Caller, Json, Query, WireTime, wrong};
use super::near::{NoSuchWord, one_of};
use super::replays::span;
use super::task_view::{Beside, TaskView};
use super::unborne::{self, Unborne};
use super::wire::{Cursor, page_size};

/// Live tasks looked at in one question to the state.
pub(super) const LOOK_LIVE: usize = 2_000;
/// Finished rows looked at in one read.
pub(super) const LOOK_FINISHED: usize = 500;
/// Rounds of looking for one page.
const ROUNDS: usize = 8;
/// Codes of failures named at most, and the bytes of each.
pub(super) const MAX_CODES: usize = 50;
pub(super) const MAX_CODE: usize = 128;

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
    /// Classes of failures, with commas between: of the one that it ended with, or of its last attempt that failed.
    failure_class: Option<String>,
    /// Codes of failures, 1 to 50 with commas between, the agents' own or the hub's: the one that it ended with, or that of
    /// its last attempt that failed.
    failure_code: Option<String>,
    /// RFC 3339 with an offset. Older tasks are not looked through.
    #[param(value_type = Option<String>)]
    submitted_after: Option<WireTime>,
    /// RFC 3339 with an offset, after `submitted_after`.
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
    let parsed = |text: &String| {
        text.parse::<T>().map_err(|error| {
            let told = error.to_string();
            wrong(name, Some(text), told.strip_prefix("expected ").unwrap_or(&told))
        })
    };
    text.map(parsed).transpose()
}

fn words<T: Copy>(name: &str, text: Option<&String>, all: &[T], spell: fn(T) -> &'static str) -> ApiResult<Vec<T>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    text.split(',').map(|text| word(name, text, all, spell)).collect()
}

/// Codes of failures, sorted and without doubles.
fn codes(text: Option<&String>) -> ApiResult<Vec<Text>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let mut codes: Vec<Text> = text.split(',').map(Text::from).collect();
    if codes.len() > MAX_CODES || codes.iter().any(|code| code.is_empty() || code.len() > MAX_CODE) {
        let what = format!("1 to {MAX_CODES} codes of up to {MAX_CODE} bytes, with commas between");
        return Err(wrong("failure_code", Some(text), what));
    }
    codes.sort_unstable();
    codes.dedup();
    Ok(codes)
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
        if let (Some(after), Some(before)) = (self.submitted_after, self.submitted_before)
            && before.0 <= after.0
        {
            let text = before.to_string();
            return Err(wrong("submitted_before", Some(&text), "a moment after submitted_after"));
        }
        let moment = |at: Option<WireTime>| at.map(|at| app.ledger.from_wall(at.0));
        Ok(Select {
            states: words("state", self.state.as_ref(), &StatusKind::ALL, StatusKind::name)?,
            capability: parsed("capability", self.capability.as_ref())?,
            agent: parsed("agent_id", self.agent_id.as_ref())?,
            session: parsed("session_id", self.session_id.as_ref())?,
            batch: parsed("batch_id", self.batch_id.as_ref())?,
            labels: label.into_iter().collect(),
            classes: words("failure_class", self.failure_class.as_ref(), &FailureClass::ALL, FailureClass::name)?,
            codes: codes(self.failure_code.as_ref())?,
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
    /// What one look at a task says.
    pub(super) fn pick(&self, task: &Task) -> Pick {
        self.select.pick(&self.namespace, task)
    }

    /// Those of some tasks that it picks: of an end that hides the failure of an attempt the history is asked.
    pub(super) async fn picked(&self, ledger: &Ledger, mut tasks: Vec<Task>) -> Result<Vec<Task>, Unavailable> {
        tasks.retain(|task| self.pick(task) != Pick::No);
        let asked = tasks.iter().filter(|task| self.pick(task) == Pick::ByItsLastAttempt).map(Trail::of).collect();
        let mut last = ledger.last_failures(asked).await?.into_iter();
        tasks.retain(|task| match self.pick(task) {
            Pick::Yes => true,
            Pick::No => false,
            Pick::ByItsLastAttempt => {
                let last = last.next().flatten();
                self.select.fits_failures(task, last.as_ref().map(|last| &last.failure))
            }
        });
        Ok(tasks)
    }

    /// What the store's index can narrow by itself.
    pub(super) fn of_rows(&self) -> FinishedFilter {
        let Select { session, batch, agent, .. } = &self.select;
        FinishedFilter { session: session.clone(), batch: *batch, agent: agent.clone() }
    }

    /// What the cursor is bound to: everything but limit and position. Times as they were asked for: in ledger time they
    /// are another millisecond whenever the wall clock is set a little.
    fn asked(&self, query: &ListQuery) -> String {
        let times = (query.submitted_after, query.submitted_before);
        let mut timeless = self.clone();
        (timeless.select.after, timeless.select.before) = (None, None);
        format!("{timeless:?} {times:?}")
    }
}

/// Some tasks in order, and how far was looked: `None` when nothing is left.
struct Found {
    tasks: Vec<Task>,
    looked_to: Option<ReachId>,
}

/// Live tasks below a position that may be picked, newest first.
fn live(state: &Ledgered, filter: &Filter, before: Option<ReachId>, limit: usize) -> Found {
    let upper = before.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    let mut tasks = Vec::new();
    let (mut sure, mut looked) = (0, 0);
    for (id, task) in state.tasks().range((std::ops::Bound::Unbounded, upper)).rev() {
        let pick = filter.pick(task);
        if pick != Pick::No {
            tasks.push(Task::clone(task));
        }
        // What may be picked yet fills no page.
        sure += usize::from(pick == Pick::Yes);
        looked += 1;
        if sure >= limit || looked >= LOOK_LIVE {
            return Found { tasks, looked_to: Some(*id) };
        }
    }
    Found { tasks, looked_to: None }
}

async fn finished(app: &App, filter: &Filter, before: Option<ReachId>) -> ApiResult<Found> {
    let rows = app.ledger.finished(filter.namespace.clone(), filter.of_rows(), before, LOOK_FINISHED).await?;
    let looked_to = if rows.len() < LOOK_FINISHED { None } else { rows.last().map(Task::id) };
    Ok(Found { tasks: filter.picked(&app.ledger, rows).await?, looked_to })
}

/// Tasks of the namespace, newest first.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", params(ListQuery),
    responses((status = 200, body = TaskPage))
)]
pub(super) async fn list_tasks(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> ApiResult<Json<TaskPage>> {
    caller.require(Scope::Read)?;
    let limit = page_size(query.limit)?;
    let filter = Filter { namespace: caller.namespace.clone(), select: query.select(&app)? };
    let cursor = Cursor::over("tasks", &filter.asked(&query));
    let span = span::of(&app, &filter).await?;
    let mut position: Option<ReachId> =
        [position(&cursor, query.cursor.as_deref())?, span.below].into_iter().flatten().min();
    let mut items: Vec<Task> = Vec::new();
    for _ in 0..ROUNDS {
        let room = limit - items.len();
        let (for_state, from) = (filter.clone(), position);
        // The state first: a task that finishes in between is seen twice, never missed.
        let live = app.ledger.ask(move |state| live(state, &for_state, from, room)).await?;
        let live = Found { tasks: filter.picked(&app.ledger, live.tasks).await?, ..live };
        let finished = finished(&app, &filter, position).await?;
        let (found, next) = merge(live, finished, room);
        items.extend(found);
        position = next.filter(|id| !span.is_behind(*id));
        if position.is_none() || items.len() >= limit {
            break;
        }
    }
    let next_cursor = position.map(|position| cursor.after(&position.to_string()));
    let kin = app.ledger.kin_of(&items).await?;
    let held = app.ledger.held(&items).await?;
    let beside = kin.into_iter().zip(held).map(|(kin, held)| Beside { kin, held, ..Beside::default() });
    let views: Vec<TaskView> = items.iter().zip(beside).map(|(task, beside)| TaskView::new(task, beside)).collect();
    let has_looked_at_all = views.is_empty() && next_cursor.is_none() && query.cursor.is_none();
    let hints = if has_looked_at_all { unborne::of(&app, &caller, &filter.select).await? } else { Vec::new() };
    Ok(Json(TaskPage { items: views, next_cursor, hints: hints.into_iter().map(TaskHint::new).collect() }))
}

/// One page of tasks.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TaskPage {
    /// The tasks.
    items: Vec<TaskView>,
    /// For the next page; null on the last one.
    next_cursor: Option<String>,
    /// Where no task was found at all: names of the filter that nothing bears.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    hints: Vec<TaskHint>,
}

/// A name that nothing bears.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TaskHint {
    /// Which parameter names it.
    parameter: &'static str,
    /// What is the matter with it.
    detail: String,
    /// Names that may have been meant, of those that this token may see.
    suggestions: Vec<String>,
    /// How many more there are that it may not see.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    not_permitted: Option<usize>,
}

impl TaskHint {
    fn new(name: Unborne) -> Self {
        let Unborne { field: parameter, member: _, detail, suggestions, not_permitted } = name;
        Self { parameter, detail, suggestions, not_permitted: Some(not_permitted).filter(|count| *count > 0) }
    }
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
