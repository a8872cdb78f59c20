//! What a plan finds, and what it would do with it: the same for a dry run and for the plan itself (R-REC-4).
//!
//! Live tasks are looked at in bounded questions to the state and ended ones in pages of rows, so no look holds the
//! sequencer. What is found may have moved on by its turn; then it is looked at again (R-REC-3).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::api::App;
use crate::api::error::ApiResult;
use crate::api::list::{Filter, LOOK_FINISHED, LOOK_LIVE};
use crate::ledger::ids::{Capability, ReachId, Seq, SessionId};
use crate::ledger::last_failure::{LastFailure, Trail};
use crate::ledger::machine::State;
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::replay::{ItemAction, MAX_ITEMS, MayHaveRun, Skip};
use crate::ledger::machine::task::spec::{SchemaVerdicts, Text};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{FailureClass, Task};
use crate::ledger::time::Timestamp;
use crate::recovery::list::{PlanItem, group_of};
use crate::recovery::select::{Pick, hides_a_failure, judge};

use super::fit::{Held, Shared};
use super::span;
use super::turn::Turn;

/// One task that the plan would act on.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) task: ReachId,
    pub(super) action: ItemAction,
    pub(super) state: StatusKind,
    pub(super) class: Option<FailureClass>,
    /// The code of its failure: that of its last attempt, where its end hides one and it was asked for.
    pub(super) code: Option<Text>,
    pub(super) capability: Capability,
    pub(super) session: Option<SessionId>,
    pub(super) submitted_at: Timestamp,
    /// What it has as its payload.
    pub(super) held: Held,
    /// What is known of its payload.
    pub(super) known: Arc<SchemaVerdicts>,
    /// Its place in the order.
    pub(super) first: Option<Seq>,
}

/// All that the selection picks.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// What the plan would act on, by submission.
    pub(super) items: Vec<Found>,
    /// What it would leave alone, by reason.
    pub(super) skipped: BTreeMap<Skip, u32>,
    /// Those that were named one by one and are not there.
    pub(super) unknown: Vec<ReachId>,
    /// Picked ones that may have run and are not idempotent, left alone or not.
    pub(super) ambiguous: u32,
    /// The last event that the selection is sure to have seen.
    pub(super) position: Seq,
}

impl Selection {
    /// The items in order.
    pub(super) fn list(&self) -> Vec<PlanItem> {
        let group = |found: &Found| group_of(found.session.as_ref());
        self.items
            .iter()
            .map(|found| PlanItem { task: found.task, action: found.action, group: group(found) })
            .collect()
    }

    /// Sessions of which several items go, one at a time.
    pub(super) fn sessions(&self) -> usize {
        let mut sizes: BTreeMap<&SessionId, u32> = BTreeMap::new();
        for session in self.items.iter().filter_map(|found| found.session.as_ref()) {
            *sizes.entry(session).or_default() += 1;
        }
        sizes.values().filter(|size| **size > 1).count()
    }
}

/// While it is being made: by id, so that a task that ended between two looks is one item.
struct Making {
    filter: Filter,
    word: MayHaveRun,
    of_attempts: OfAttempts,
    found: BTreeMap<ReachId, Found>,
    skipped: BTreeMap<Skip, u32>,
    unknown: Vec<ReachId>,
    ambiguous: u32,
    /// Verdicts that tasks share.
    known: Shared,
    /// What the look at memory said.
    early: BTreeMap<ReachId, Early>,
}

/// An older verdict, to be taken back.
struct Early {
    skip: Option<Skip>,
    may_have_run: bool,
}

/// What was seen of a task: what becomes of it, and whether it may have run.
struct Seen {
    verdict: Result<Found, Skip>,
    may_have_run: bool,
    /// Where the failure lies that its end hides.
    trail: Trail,
}

impl Seen {
    /// Of one that was made anew already.
    fn redriven() -> Self {
        Self { verdict: Err(Skip::AlreadyRedriven), may_have_run: false, trail: Trail::default() }
    }
}

/// Is it to be said with which codes the attempts failed? They are read one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfAttempts {
    /// No: a plan acts whatever failed.
    Unread,
    /// Yes.
    Read,
}

fn seen(task: &Task, word: MayHaveRun) -> Seen {
    let verdict = judge(task, word).map(|action| Found {
        task: task.id(),
        action,
        state: task.status.kind(),
        class: task.failure.as_ref().map(|failure| failure.class),
        code: task.failure.as_ref().map(|failure| failure.code.clone()),
        capability: task.spec.capability.clone(),
        session: task.spec.session.clone(),
        submitted_at: task.submitted_at,
        held: Held::by(task),
        known: Arc::new(task.schemas.clone()),
        first: task.seqs.first().copied(),
    });
    let may_have_run = judge(task, MayHaveRun::Skip) == Err(Skip::MayHaveRun);
    Seen { verdict, may_have_run, trail: if hides_a_failure(task) { Trail::of(task) } else { Trail::default() } }
}

/// Looks for all that the filter picks, in a turn of its namespace.
///
/// # Errors
/// 422 `replay-too-large` as soon as there are too many.
pub(super) async fn select(
    (app, _turn): (&App, &Turn),
    filter: Filter,
    (word, of_attempts): (MayHaveRun, OfAttempts),
) -> ApiResult<Selection> {
    let position = app.ledger.published().seq;
    let mut making = Making { of_attempts, ..Making::new(filter, word) };
    if making.filter.select.tasks.is_empty() {
        making.look_at_live(app).await?;
        making.look_at_rows(app).await?;
    } else {
        making.look_up(app).await?;
    }
    let mut items: Vec<Found> = std::mem::take(&mut making.found).into_values().collect();
    items.sort_by_key(|found| (found.first, found.task));
    let Making { skipped, unknown, ambiguous, .. } = making;
    Ok(Selection { items, skipped, unknown, ambiguous, position })
}

impl Making {
    fn new(filter: Filter, word: MayHaveRun) -> Self {
        let (found, skipped, early) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let of_attempts = OfAttempts::Unread;
        Self {
            filter,
            word,
            of_attempts,
            found,
            skipped,
            unknown: Vec::new(),
            ambiguous: 0,
            known: Shared::default(),
            early,
        }
    }

    fn put(&mut self, id: ReachId, seen: Seen) -> ApiResult<()> {
        self.take_back(id);
        self.ambiguous += u32::from(seen.may_have_run);
        match seen.verdict {
            Ok(mut found) => {
                found.known = self.known.share(found.known);
                self.found.insert(id, found);
            }
            Err(skip) => self.skip(skip),
        }
        match u32::try_from(self.found.len()) {
            Ok(count) if count <= MAX_ITEMS => Ok(()),
            Ok(_) | Err(_) => Err(Rejection::ReplayTooLarge { limit: MAX_ITEMS }.into()),
        }
    }

    /// As [`Making::put`], for a task in memory: it may end before the rows are read, and be seen there again.
    fn put_live(&mut self, id: ReachId, seen: Seen) -> ApiResult<()> {
        let early = Early { skip: seen.verdict.as_ref().err().copied(), may_have_run: seen.may_have_run };
        self.put(id, seen)?;
        self.early.insert(id, early);
        Ok(())
    }

    /// A newer look at the same task stands for the older one.
    fn take_back(&mut self, id: ReachId) {
        let Some(early) = self.early.remove(&id) else { return };
        self.ambiguous = self.ambiguous.saturating_sub(u32::from(early.may_have_run));
        self.found.remove(&id);
        if let Some(count) = early.skip.and_then(|skip| self.skipped.get_mut(&skip)) {
            *count = count.saturating_sub(1);
        }
        self.skipped.retain(|_, count| *count > 0);
    }

    fn skip(&mut self, skip: Skip) {
        *self.skipped.entry(skip).or_default() += 1;
    }

    /// Tasks in memory, in bounded questions.
    async fn look_at_live(&mut self, app: &App) -> ApiResult<()> {
        let mut from = Bound::Unbounded;
        loop {
            let (filter, word) = (self.filter.clone(), self.word);
            let page = app.ledger.ask(move |state| live(state, &filter, word, from)).await?;
            for (id, seen) in self.with_codes(app, page.seen).await? {
                self.put_live(id, seen)?;
            }
            let trails = page.asked.iter().map(|(task, _)| Trail::of(task)).collect();
            let last = app.ledger.last_failures(trails).await?;
            for ((task, seen), last) in page.asked.into_iter().zip(last) {
                if self.filter.select.fits_failures(&task, last.as_ref().map(|last| &last.failure)) {
                    self.put_live(task.id(), coded(seen, last))?;
                }
            }
            match page.looked_to {
                Some(last) => from = Bound::Excluded(last),
                None => return Ok(()),
            }
        }
    }

    /// Ended tasks, in pages of rows, each with what was made of them.
    async fn look_at_rows(&mut self, app: &App) -> ApiResult<()> {
        let states = &self.filter.select.states;
        if !states.is_empty() && !states.iter().any(|state| state.is_terminal()) {
            return Ok(());
        }
        let span = span::of(app, &self.filter).await?;
        let mut before = span.below;
        loop {
            let (namespace, of_rows) = (self.filter.namespace.clone(), self.filter.of_rows());
            let rows = app.ledger.finished(namespace, of_rows, before, LOOK_FINISHED).await?;
            before = rows.last().map(Task::id);
            let is_last = rows.len() < LOOK_FINISHED || before.is_some_and(|last| span.is_behind(last));
            let picked = self.filter.picked(&app.ledger, rows).await?;
            self.look_at_ended(app, picked).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Those that are named one by one.
    async fn look_up(&mut self, app: &App) -> ApiResult<()> {
        let named = self.filter.select.tasks.clone();
        for some in named.chunks(LOOK_FINISHED) {
            let tasks = app.ledger.tasks(some.to_vec()).await?;
            let mut there = Vec::with_capacity(tasks.len());
            for (id, task) in some.iter().zip(tasks) {
                // A foreign one looks like one that does not exist (N1).
                match task.filter(|task| task.namespace == self.filter.namespace) {
                    None => {
                        self.skip(Skip::Unknown);
                        self.unknown.push(*id);
                    }
                    Some(task) => there.push(task),
                }
            }
            let all = there.len();
            let picked = self.filter.picked(&app.ledger, there).await?;
            for _ in picked.len()..all {
                self.skip(Skip::NotApplicable);
            }
            self.look_at_ended(app, picked).await?;
        }
        Ok(())
    }

    /// The same, with the codes of attempts if they are asked for.
    async fn with_codes(&self, app: &App, seen: Vec<(ReachId, Seen)>) -> ApiResult<Vec<(ReachId, Seen)>> {
        if self.of_attempts == OfAttempts::Unread {
            return Ok(seen);
        }
        let trail = |seen: &Seen| if seen.verdict.is_ok() { seen.trail.clone() } else { Trail::default() };
        let trails = seen.iter().map(|(_, seen)| trail(seen)).collect();
        let last = app.ledger.last_failures(trails).await?;
        Ok(seen.into_iter().zip(last).map(|((id, seen), last)| (id, coded(seen, last))).collect())
    }

    /// Tasks of which some may have been made anew already.
    async fn look_at_ended(&mut self, app: &App, tasks: Vec<Task>) -> ApiResult<()> {
        let kin = app.ledger.kin_of(&tasks).await?;
        let seen = tasks.iter().zip(kin).map(|(task, kin)| match kin.redriven_as {
            Some(_) => (task.id(), Seen::redriven()),
            None => (task.id(), seen(task, self.word)),
        });
        for (id, seen) in self.with_codes(app, seen.collect()).await? {
            self.put(id, seen)?;
        }
        Ok(())
    }
}

/// With the code of its last attempt that failed, if there is one.
fn coded(mut seen: Seen, last: Option<LastFailure>) -> Seen {
    if let (Ok(found), Some(last)) = (&mut seen.verdict, last) {
        found.code = Some(last.failure.code);
    }
    seen
}

/// Some tasks in memory, and how far was looked: `None` when nothing is left.
struct Page {
    seen: Vec<(ReachId, Seen)>,
    /// Those that are picked if the failure of their last attempt fits.
    asked: Vec<(Arc<Task>, Seen)>,
    looked_to: Option<ReachId>,
}

fn live(state: &State, filter: &Filter, word: MayHaveRun, from: Bound<ReachId>) -> Page {
    let mut page = Page { seen: Vec::new(), asked: Vec::new(), looked_to: None };
    let as_seen = |task: &Task| match state.redriven_as(task.id()) {
        Some(_) => Seen::redriven(),
        None => seen(task, word),
    };
    for (looked, (id, task)) in state.tasks().range((from, Bound::Unbounded)).enumerate() {
        match filter.pick(task) {
            Pick::Yes => page.seen.push((*id, as_seen(task))),
            Pick::ByItsLastAttempt => page.asked.push((Arc::clone(task), as_seen(task))),
            Pick::No => {}
        }
        if looked + 1 >= LOOK_LIVE {
            page.looked_to = Some(*id);
            break;
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::Namespace;
    use crate::ledger::store::contract;
    use crate::recovery::select::Select;

    #[test]
    fn a_task_that_ends_between_two_looks_is_told_once_as_it_was_seen_last() {
        let filter = Filter { namespace: Namespace::new("team-a").unwrap(), select: Select::default() };
        let mut making = Making::new(filter, MayHaveRun::Skip);
        let ended = contract::task(1, 0);
        let id = ended.id();
        let held = Seen { verdict: Err(Skip::HeldElsewhere), may_have_run: false, trail: Trail::default() };
        making.put_live(id, held).unwrap();
        assert_eq!(making.skipped, [(Skip::HeldElsewhere, 1)].into());
        making.put(id, seen(&ended, MayHaveRun::Skip)).unwrap();
        assert_eq!((making.found.len(), making.skipped.len(), making.ambiguous), (1, 0, 0));
        // And the other way round: what looked like an item has succeeded.
        let mut making = Making::new(making.filter, MayHaveRun::Include);
        let item = Seen { may_have_run: true, ..seen(&ended, MayHaveRun::Include) };
        making.put_live(id, item).unwrap();
        assert_eq!((making.found.len(), making.ambiguous), (1, 1));
        let gone = Seen { verdict: Err(Skip::NotApplicable), may_have_run: false, trail: Trail::default() };
        making.put(id, gone).unwrap();
        assert_eq!((making.found.len(), making.ambiguous), (0, 0));
        assert_eq!(making.skipped, [(Skip::NotApplicable, 1)].into());
    }
}
