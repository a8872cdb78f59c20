//! Names of a filter that nothing bears, and those that were probably meant: what somebody should know who finds nothing.
//!
//! Names of agents and capabilities are in the registry. Codes of failures, labels, sessions, batches and ids of tasks are
//! in no index by themselves, so the newest tasks are looked through for them, and only where nothing was found. What a
//! token may not see is only counted (semantics 39).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::ledger::ids::{AgentId, AgentKey, BatchId, Capability, Namespace, ReachId, kind_of};
use crate::ledger::last_failure::{LastFailure, Trail};
use crate::ledger::machine::State;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::agent::Agent;
use crate::ledger::machine::task::Task;
use crate::ledger::store::FinishedFilter;
use crate::recovery::select::{Select, hides_a_failure};

use super::App;
use super::error::ApiResult;
use super::extract::Caller;
use super::list::{LOOK_FINISHED, LOOK_LIVE};
use super::near::{self, Near, may_be_near, near_ones};

/// Looks at tasks in memory, and at rows of ended ones.
const LIVE_LOOKS: usize = 5;
const ROW_LOOKS: usize = 4;
/// Names of one kind that are compared.
const MOST_NAMES: usize = 10_000;
/// Names of one kind that are told, and that are suggested for one.
const MOST_TOLD: usize = 5;
/// Tasks that are not there and for which near ones are looked for.
const MOST_IDS: usize = 3;
/// Letters in which a mistyped id differs: two of one moment share their first half.
const SLIPS: usize = 3;
/// Agents of a namespace and their offers that one question looks through for like names.
const LOOKED_AT: usize = 20_000;

/// A name that nothing bears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unborne {
    /// The field that names it, as selections and lists call it.
    pub field: &'static str,
    /// Which member of that, of a label.
    pub member: Option<String>,
    /// What is the matter with it.
    pub detail: String,
    /// Names that may have been meant, of those that this token may see.
    pub suggestions: Vec<String>,
    /// How many more there are that it may not see.
    pub not_permitted: usize,
}

impl Unborne {
    fn new(field: &'static str, detail: impl Into<String>, near: Near) -> Self {
        let Near { shown: suggestions, hidden: not_permitted } = near;
        Self { field, member: None, detail: detail.into(), suggestions, not_permitted }
    }
}

/// The names of a filter that finds nothing which nothing bears.
///
/// # Errors
/// 503 when the hub or its disk does not answer.
pub(super) async fn of(app: &App, caller: &Caller, select: &Select) -> ApiResult<Vec<Unborne>> {
    let mut all = Vec::new();
    if let Some(capability) = &select.capability
        && app.ledger.published().catalog.of(&caller.namespace, capability).is_none()
    {
        all.push(Unborne::new("capability", "no agent offers it", near::near(app, caller, capability)));
    }
    if let Some(named) = &select.agent {
        all.extend(agent(app, caller, named).await?);
    }
    let (batch, session) = (has_batch(app, caller, select).await?, has_session(app, caller, select).await?);
    let sought = Select {
        codes: select.codes.clone(),
        labels: select.labels.clone(),
        batch: select.batch.filter(|_| batch == Has::No),
        session: select.session.clone().filter(|_| session == Has::No),
        ..Select::default()
    };
    // What is there costs its index alone, however often it is asked for.
    let borne = if sought.is_empty() { Borne::default() } else { Borne::gathered(app, caller, &sought).await? };
    let select = select.clone();
    all.extend(near::aside(move || of_tasks(&select, sought.batch, &borne)).await?);
    Ok(all)
}

/// The names of tasks that nothing bears.
fn of_tasks(select: &Select, batch: Option<BatchId>, borne: &Borne) -> Vec<Unborne> {
    let mut all = unborne_codes(select, borne);
    all.extend(unborne_labels(select, borne));
    all.extend(select.session.as_ref().map(|session| unborne_session(session.as_str(), borne)));
    all.extend(batch.map(|batch| {
        Unborne::new("batch_id", "there is no such batch here", borne.batches.near(&batch.to_string(), SLIPS))
    }));
    all
}

/// What to say of an agent that is named; nothing of one that is there for this token to see.
///
/// # Errors
/// 503 when the hub does not answer.
pub(super) async fn agent(app: &App, caller: &Caller, named: &AgentId) -> ApiResult<Option<Unborne>> {
    let (key, sight) = (caller.agent_key(named.clone()), Sight::of(caller));
    // The sequencer only lists the names: comparing them takes longer than all other work may wait.
    let asked = (key.clone(), sight.clone());
    let Some(others) = app.ledger.ask(move |state| others(state, &asked.0, &asked.1)).await? else { return Ok(None) };
    Ok(Some(near::aside(move || unknown_agent(&key, &sight, &others)).await?))
}

/// Is there one, as its index knows?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    No,
    Yes,
}

async fn has_batch(app: &App, caller: &Caller, select: &Select) -> ApiResult<Has> {
    let Some(id) = select.batch else { return Ok(Has::No) };
    let batch = app.ledger.batch(id).await?.filter(|batch| batch.namespace == caller.namespace);
    Ok(if batch.is_some() { Has::Yes } else { Has::No })
}

async fn has_session(app: &App, caller: &Caller, select: &Select) -> ApiResult<Has> {
    if select.session.is_none() {
        return Ok(Has::No);
    }
    let of_session = FinishedFilter { session: select.session.clone(), ..FinishedFilter::default() };
    let ended = app.ledger.finished(caller.namespace.clone(), of_session, None, 1).await?;
    Ok(if ended.is_empty() { Has::No } else { Has::Yes })
}

/// Tasks that were named one by one and are not there.
///
/// # Errors
/// 503 when the hub or its disk does not answer.
pub(super) async fn ids(app: &App, caller: &Caller, unknown: &[ReachId]) -> ApiResult<Option<Unborne>> {
    if unknown.is_empty() {
        return Ok(None);
    }
    let all = Select { tasks: unknown.to_vec(), ..Select::default() };
    let borne = Borne::gathered(app, caller, &all).await?;
    let named: Vec<String> = unknown.iter().take(MOST_IDS).map(ToString::to_string).collect();
    let found = near::aside(move || {
        let mut found = Near::none();
        for near in named.iter().map(|id| borne.ids.near(id, SLIPS)) {
            found.shown.extend(near.shown);
            found.hidden += near.hidden;
        }
        found
    });
    let found = found.await?;
    let detail = match unknown.len() {
        1 => "one of them is no task here".to_owned(),
        count => format!("{count} of them are no tasks here"),
    };
    Ok(Some(Unborne::new("reach_ids", detail, found)))
}

fn unborne_codes(select: &Select, borne: &Borne) -> Vec<Unborne> {
    let codes = select.codes.iter().filter(|code| !borne.codes.has(code));
    codes
        .take(MOST_TOLD)
        .map(|code| {
            let detail = format!("no task was found that ended with {code}, or whose last attempt failed with it");
            Unborne::new("failure_code", detail, borne.codes.near(code, usize::MAX))
        })
        .collect()
}

fn unborne_labels(select: &Select, borne: &Borne) -> Vec<Unborne> {
    let mut all = Vec::new();
    for (name, value) in select.labels.iter().take(MOST_TOLD) {
        let (detail, near) = match borne.labels.get(&**name) {
            None => ("no task was found with a label of that name", borne.label_names.near(name, usize::MAX)),
            Some(values) if values.has(value) => continue,
            Some(values) => ("no task was found whose label of that name says so", values.near(value, usize::MAX)),
        };
        all.push(Unborne { member: Some(name.to_string()), ..Unborne::new("label", detail, near) });
    }
    all
}

fn unborne_session(session: &str, borne: &Borne) -> Unborne {
    let near = if borne.sessions.has(session) { Near::none() } else { borne.sessions.near(session, usize::MAX) };
    let detail = "no task of that session was found in these states".to_owned() + &of_another_kind(session);
    Unborne::new("session_id", detail, near)
}

/// That what was named as something else is an id.
fn of_another_kind(name: &str) -> String {
    kind_of(name).map_or_else(String::new, |kind| format!("; that is the id of a {kind}"))
}

/// Which agents a token may see, by name or by whether they are there.
#[derive(Debug, Clone)]
enum Sight {
    /// None.
    None,
    /// Those that offer one of these.
    Offering(BTreeSet<Capability>),
    /// All of its namespace.
    All,
}

impl Sight {
    fn of(caller: &Caller) -> Self {
        let token = caller.bearer();
        match token.capabilities() {
            _ if caller.require(Scope::Read).is_err() => Self::None,
            Some(some) => Self::Offering(some.iter().cloned().collect()),
            None => Self::All,
        }
    }

    fn covers(&self, agent: &Agent) -> bool {
        match self {
            Self::None => false,
            Self::Offering(some) => agent.declaration.offers.iter().any(|offer| some.contains(&offer.capability)),
            Self::All => true,
        }
    }
}

/// The names of a namespace's agents that may be near one, as far as was looked; `None` if that one is there to be seen.
fn others(state: &State, key: &AgentKey, sight: &Sight) -> Option<Names> {
    if state.agent(key).is_some_and(|agent| sight.covers(agent)) {
        return None;
    }
    let others = state.agents_of(&key.namespace).filter(|(other, _)| *other != key);
    let told = |agent: &Agent| if sight.covers(agent) { Shown::Yes } else { Shown::No };
    let steps = |agent: &Agent| 1 + agent.declaration.offers.len();
    let others = others.map(|(other, agent)| (other.agent_id.as_str(), steps(agent), move || told(agent)));
    Some(listed(key.agent_id.as_str(), others))
}

/// Those of some names that may be near one, as far as [`LOOKED_AT`] steps go: each costs its own.
fn listed<'a, F: FnOnce() -> Shown>(sent: &str, names: impl Iterator<Item = (&'a str, usize, F)>) -> Names {
    let mut listed = Names::default();
    let mut left = LOOKED_AT;
    for (name, steps, shown) in names {
        let Some(rest) = left.checked_sub(steps) else { break };
        left = rest;
        if may_be_near(sent, name) {
            listed.put(name, shown());
        }
    }
    listed
}

/// What to say of an agent of which nothing was found.
fn unknown_agent(key: &AgentKey, sight: &Sight, others: &Names) -> Unborne {
    let mut near = others.near(key.agent_id.as_str(), usize::MAX);
    near.shown.truncate(1);
    let detail = match sight {
        Sight::All => "no agent of that id was ever registered here",
        // Whether there is one is not for it to know.
        Sight::None | Sight::Offering(_) => "no task of that agent was found in these states",
    };
    Unborne::new("agent_id", detail.to_owned() + &of_another_kind(key.agent_id.as_str()), near)
}

/// May a name be told to whoever asks?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    No,
    Yes,
}

/// Names of one kind that tasks bear.
#[derive(Debug, Default)]
struct Names(BTreeMap<String, Shown>);

impl Names {
    fn put(&mut self, name: &str, shown: Shown) {
        if let Some(known) = self.0.get_mut(name) {
            *known = shown.max(*known);
        } else if self.0.len() < MOST_NAMES {
            self.0.insert(name.to_owned(), shown);
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Those that were probably meant; of a different letter at most so many.
    fn near(&self, name: &str, most: usize) -> Near {
        let near = near_ones(name, self.0.keys().map(String::as_str), most);
        let is_shown = |near: &&str| self.0.get(*near) == Some(&Shown::Yes);
        let (shown, hidden): (Vec<&str>, Vec<&str>) = near.into_iter().partition(is_shown);
        Near { shown: shown.into_iter().take(MOST_TOLD).map(str::to_owned).collect(), hidden: hidden.len() }
    }
}

/// What the newest tasks bear, of what a filter names.
#[derive(Debug, Default)]
struct Borne {
    codes: Names,
    label_names: Names,
    /// Values of the labels that are sought, by name.
    labels: BTreeMap<String, Names>,
    sessions: Names,
    batches: Names,
    ids: Names,
}

impl Borne {
    async fn gathered(app: &App, caller: &Caller, select: &Select) -> ApiResult<Self> {
        let mut borne = Self::default();
        let mut before = None;
        for _ in 0..LIVE_LOOKS {
            let (namespace, from) = (caller.namespace.clone(), before);
            let (tasks, looked_to) = app.ledger.ask(move |state| newest(state, &namespace, from)).await?;
            let trails = tasks.iter().map(|task| trail(select, task)).collect();
            let last = app.ledger.last_failures(trails).await?;
            for (task, last) in tasks.iter().zip(last) {
                borne.put(caller, select, (task, last.as_ref()));
            }
            before = looked_to;
            if before.is_none() {
                break;
            }
        }
        let mut before = None;
        for _ in 0..ROW_LOOKS {
            let all = FinishedFilter::default();
            let rows = app.ledger.finished(caller.namespace.clone(), all, before, LOOK_FINISHED).await?;
            let trails = rows.iter().map(|task| trail(select, task)).collect();
            let last = app.ledger.last_failures(trails).await?;
            for (task, last) in rows.iter().zip(last) {
                borne.put(caller, select, (task, last.as_ref()));
            }
            before = rows.last().map(Task::id);
            if rows.len() < LOOK_FINISHED {
                break;
            }
        }
        Ok(borne)
    }

    fn put(&mut self, caller: &Caller, select: &Select, (task, last): (&Task, Option<&LastFailure>)) {
        let may_see = caller.require(Scope::Read).is_ok() && caller.bearer().can_call(&task.spec.capability);
        let shown = if may_see { Shown::Yes } else { Shown::No };
        if !select.codes.is_empty() {
            let codes = [task.failure.as_deref(), last.map(|last| &last.failure)];
            codes.into_iter().flatten().for_each(|failure| self.codes.put(&failure.code, shown));
        }
        for (name, value) in &task.spec.labels {
            if select.labels.is_empty() {
                break;
            }
            self.label_names.put(name, shown);
            if select.labels.iter().any(|(sought, _)| sought == name) {
                self.labels.entry(name.to_string()).or_default().put(value, shown);
            }
        }
        if let (Some(_), Some(session)) = (&select.session, &task.spec.session) {
            self.sessions.put(session.as_str(), shown);
        }
        if let (Some(_), Some((batch, _))) = (&select.batch, &task.spec.batch) {
            self.batches.put(&batch.to_string(), shown);
        }
        if !select.tasks.is_empty() {
            self.ids.put(&task.id().to_string(), shown);
        }
    }
}

/// Where the failure lies that an end hides, if codes are sought.
fn trail(select: &Select, task: &Task) -> Trail {
    if !select.codes.is_empty() && hides_a_failure(task) { Trail::of(task) } else { Trail::default() }
}

/// Tasks in memory below a position, newest first, and how far was looked: `None` when nothing is left.
fn newest(state: &State, namespace: &Namespace, before: Option<ReachId>) -> (Vec<Arc<Task>>, Option<ReachId>) {
    let upper = before.map_or(Bound::Unbounded, Bound::Excluded);
    let mut tasks = Vec::new();
    for (looked, (id, task)) in state.tasks().range((Bound::Unbounded, upper)).rev().enumerate() {
        if task.namespace == *namespace {
            tasks.push(Arc::clone(task));
        }
        if looked + 1 >= LOOK_LIVE {
            return (tasks, Some(*id));
        }
    }
    (tasks, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_near_by_letters_and_told_only_to_those_who_may_see_one_that_bears_them() {
        let mut names = Names::default();
        for (name, shown) in [("smtp-down", Shown::Yes), ("smtp-dawn", Shown::No), ("no-such-host", Shown::Yes)] {
            names.put(name, shown);
        }
        let near = names.near("smtp-dwn", usize::MAX);
        assert_eq!((near.shown, near.hidden), (vec!["smtp-down".to_owned()], 1));
        names.put("smtp-dawn", Shown::Yes);
        names.put("smtp-dawn", Shown::No);
        let near = names.near("smtp-dwn", usize::MAX);
        assert_eq!(near.shown.len(), 2, "one of those that bear it may be seen");
        assert!(names.near("smtp-dwn", 0).shown.is_empty() && names.has("no-such-host") && !names.has("smtp-dwn"));
    }

    #[test]
    fn names_are_listed_within_a_bound_whatever_they_cost_and_those_of_another_length_not_at_all() {
        let mut looked = 0;
        let all = std::iter::repeat_with(|| {
            looked += 1;
            ("w-0001", 100, || Shown::Yes)
        });
        assert_eq!(listed("w-0002", all).0.len(), 1);
        assert_eq!(looked, LOOKED_AT / 100 + 1, "what is not looked at costs nothing");
        let long = [("a-far-longer-name", 1, || -> Shown { unreachable!("nothing is asked of it") })];
        assert!(listed("w-0002", long.into_iter()).0.is_empty());
    }

    #[test]
    fn an_id_in_the_place_of_another_name_is_told_as_what_it_is() {
        let batch = BatchId([7; 16]).to_string();
        assert_eq!(of_another_kind(&batch), "; that is the id of a batch");
        assert_eq!((of_another_kind("batch_x").len(), of_another_kind("trip-1").len()), (0, 0));
    }
}
