//! The runs of replay plans: which item may go next (R-REC-4, semantics 22, 40).
//!
//! Why apart from the ledger's plan: there is one byte an item and no order. Here is the list, told by a shell, and how
//! far the plan has come in it. Whatever is here is derived from the state and the list, and made anew after a start; a
//! plan that is paused lets its list go.
//!
//! An item goes when it has a token and the line of its session is free (R4, [`crate::recovery::sessions`]). One that
//! has to wait stands for its session, and the plan goes on with the next; one that was refused is set aside for a
//! while, so what one full queue does not take holds up nothing else.
//!
//! Looking at an item costs no more than proposing it: the list is walked once, and a line that moves finds by its number
//! the item that stands for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::ledger::ids::{Namespace, ReachId, ReplayId};
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::replay::order::ReplayItem;
use crate::ledger::machine::replay::{ItemAction, ItemOutcome, Replay, ReplayPhase};
use crate::ledger::time::{Millis, Timestamp};
use crate::recovery::list::{List, PlanItem, decode_each};
use crate::recovery::pace::Bucket;
use crate::recovery::select::judge;
use crate::recovery::sessions::{SessionKey, Sessions, unfinished};

/// How long an item is set aside that found no room: a full queue, or a disk that is nearly full.
pub const REST: Millis = Millis::secs(1);
/// So many proposals of which none went, and the whole plan rests for as long: each takes a token from those who share it.
pub const IN_VAIN: u32 = 64;

/// Do the shared buckets have a token?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Yes.
    Open,
    /// No: only what costs none may go.
    Shut,
}

/// What an item's turn costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fare {
    /// Nothing: it will be left alone, as anybody can see.
    Free,
    /// A token.
    Token,
}

/// How the first unsettled item of a session stands, of those that the plan has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// It waits for the session's line.
    Waits,
    /// It may go, is proposed, or is set aside.
    Called,
}

/// How far a plan has come in its list.
#[derive(Debug)]
struct Course {
    list: List,
    /// The first item that it has not come to. It may go, unless it lost its line since it was looked at.
    next: u32,
    /// Who stands for a session, by its number.
    heads: BTreeMap<u32, (u32, Stand)>,
    /// Whose line became free when the plan had come past them.
    ready: BTreeSet<u32>,
    /// Refused ones, and until when they are set aside.
    aside: VecDeque<(Timestamp, u32)>,
    /// Did the last turn go to one that had been set aside? The next goes to new ground.
    from_aside: Turn,
}

/// Whose turn it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Fresh,
    Again,
}

impl Course {
    fn is_through(&self) -> bool {
        self.next >= self.list.count()
    }

    /// Does an item wait for nothing but a token, as far as it was looked at?
    fn may_go(&self) -> bool {
        !self.is_through() || !self.ready.is_empty()
    }

    /// When one may go that is not set aside any more; `now` if one need not wait for that.
    fn at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.may_go() { Some(now) } else { self.aside.front().map(|(until, _)| *until) }
    }

    /// The item whose turn it is.
    fn candidate(&mut self, now: Timestamp) -> Option<u32> {
        let again = self.aside.front().filter(|(until, _)| *until <= now).map(|(_, index)| *index);
        let fresh = (!self.is_through()).then_some(self.next);
        let first = self.ready.first().copied().into_iter().chain(fresh).min();
        match (first, again) {
            (Some(_), Some(index)) if self.from_aside == Turn::Fresh => {
                self.from_aside = Turn::Again;
                Some(index)
            }
            (None, Some(index)) => Some(index),
            (first, _) => {
                self.from_aside = Turn::Fresh;
                first
            }
        }
    }

    /// Takes it out of wherever it waits.
    fn take_out(&mut self, index: u32) {
        self.ready.remove(&index);
        if self.aside.front().is_some_and(|(_, other)| *other == index) {
            self.aside.pop_front();
        }
        if self.next == index {
            self.next += 1;
        }
    }
}

/// One plan that has not ended.
#[derive(Debug)]
struct Run {
    namespace: Namespace,
    phase: ReplayPhase,
    rate: u32,
    bucket: Bucket,
    rests_until: Option<Timestamp>,
    /// Proposals since one went.
    in_vain: u32,
    course: Option<Course>,
}

impl Run {
    /// When an item of it may go, tokens apart; `None` when all that are left wait for somebody else.
    fn at(&self, now: Timestamp) -> Option<Timestamp> {
        let at = self.course.as_ref().filter(|_| self.phase == ReplayPhase::Running)?.at(now)?;
        Some(at.max(self.rests_until.unwrap_or(at)))
    }
}

/// Lines that a plan waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Sessions whose next item waits, of those that the plan has come to.
    pub lines: u32,
    /// The task that the first of them waits for.
    pub first: ReachId,
}

/// The plans that have not ended.
#[derive(Debug, Default)]
pub struct Plans {
    runs: BTreeMap<ReplayId, Run>,
    by_namespace: BTreeMap<Namespace, BTreeSet<ReplayId>>,
    /// The last event before this start: until then an earlier run may have emptied every bucket.
    began: Timestamp,
    now: Timestamp,
}

impl Plans {
    /// Running plans whose list the planner does not have.
    pub fn wants_list(&self) -> impl Iterator<Item = ReplayId> + '_ {
        let wants = |run: &Run| run.phase == ReplayPhase::Running && run.course.is_none();
        self.runs.iter().filter(move |(_, run)| wants(run)).map(|(id, _)| *id)
    }

    pub(super) fn rebuild(&mut self, state: &State) {
        *self = Self { began: state.at(), now: state.at(), ..Self::default() };
        for id in state.replays().keys() {
            self.look_at(state, *id, state.at());
        }
    }

    pub(super) fn observe(&mut self, state: &State, event: &Event, lines: &Sessions) {
        if let Some(replay) = event.body.replay() {
            self.look_at(state, replay, event.at);
        }
        if let EventBody::ReplayItemDone(body) = &event.body {
            self.settled(state, (body.replay, body.index), lines);
        } else if let EventBody::ReplayItemSkipped(body) = &event.body {
            self.settled(state, (body.replay, body.index), lines);
        }
    }

    /// An item of that plan was done; see [`Bucket::spent_at`].
    pub(super) fn spent_at(&mut self, id: ReplayId, at: Timestamp) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.bucket.spent_at(at);
        }
    }

    /// Follows a plan as it stands.
    fn look_at(&mut self, state: &State, id: ReplayId, now: Timestamp) {
        let Some(replay) = state.replays().get(&id) else {
            self.forget(id);
            return;
        };
        let began = self.began;
        let run = self.runs.entry(id).or_insert_with(|| Run {
            namespace: replay.namespace.clone(),
            phase: replay.phase,
            rate: replay.rate,
            bucket: Bucket::empty_at(replay.rate, began),
            rests_until: None,
            in_vain: 0,
            course: None,
        });
        run.bucket.set_rate(replay.rate, now);
        (run.phase, run.rate) = (replay.phase, replay.rate);
        if run.phase == ReplayPhase::Paused {
            (run.course, run.rests_until, run.in_vain) = (None, None, 0);
        }
        self.by_namespace.entry(replay.namespace.clone()).or_default().insert(id);
    }

    fn forget(&mut self, id: ReplayId) {
        let Some(run) = self.runs.remove(&id) else { return };
        if let Some(plans) = self.by_namespace.get_mut(&run.namespace) {
            plans.remove(&id);
        }
        self.by_namespace.retain(|_, plans| !plans.is_empty());
    }

    /// A shell read the list. One of another length is none of this plan's.
    pub(super) fn listed(&mut self, state: &State, id: ReplayId, bytes: &Arc<[u8]>, lines: &Sessions) {
        let Some(replay) = state.replays().get(&id) else { return };
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.course.is_none()) else { return };
        let Ok(list) = List::of(Arc::clone(bytes)) else { return };
        if run.phase != ReplayPhase::Running || list.count() != replay.total() {
            return;
        }
        let (heads, ready, aside) = (BTreeMap::new(), BTreeSet::new(), VecDeque::new());
        run.course = Some(Course { list, next: 0, heads, ready, aside, from_aside: Turn::Again });
        go_on(state, replay, run, lines);
    }

    /// An item has its outcome, by whoever's word.
    fn settled(&mut self, state: &State, (id, index): (ReplayId, u32), lines: &Sessions) {
        let (Some(replay), Some(run)) = (state.replay(id), self.runs.get_mut(&id)) else { return };
        (run.in_vain, run.rests_until) = (0, None);
        let Some(course) = &mut run.course else { return };
        course.ready.remove(&index);
        let group = course.list.item(index).map_or(0, |item| item.group);
        if course.heads.get(&group).is_some_and(|(head, _)| *head == index) {
            course.heads.remove(&group);
            let mut later = course.list.later_of_session(index, group).take_while(|later| *later < course.next);
            let next = later.find(|later| is_pending(replay, *later));
            drop(later);
            if let Some(next) = next {
                course.heads.insert(group, (next, Stand::Waits));
                call(state, (&run.namespace, group), course, lines);
            }
        }
        go_on(state, replay, run, lines);
    }

    /// Lines moved: whoever stands for one that is free now may go.
    pub(super) fn moved(&mut self, state: &State, keys: BTreeSet<SessionKey>, lines: &Sessions) {
        for (namespace, group) in keys {
            for id in self.by_namespace.get(&namespace).into_iter().flatten() {
                if let Some(course) = self.runs.get_mut(id).and_then(|run| run.course.as_mut()) {
                    call(state, (&namespace, group), course, lines);
                }
            }
        }
    }

    /// Lines that a plan waits for; `None` when it waits for none.
    pub(super) fn waiting(&self, state: &State, id: ReplayId, lines: &Sessions) -> Option<Waiting> {
        let run = self.runs.get(&id)?;
        let course = run.course.as_ref()?;
        let waits = course.heads.iter().filter(|(_, (_, stand))| *stand == Stand::Waits);
        let first = waits.clone().min_by_key(|(_, (index, _))| *index);
        let (group, (index, _)) = first?;
        let task = course.list.item(*index)?.task;
        let first = lines.before_item(state, &(run.namespace.clone(), *group), task)?;
        Some(Waiting { lines: u32::try_from(waits.count()).unwrap_or(u32::MAX), first })
    }

    /// The line that a proposed item waited in.
    pub(super) fn line_of(&self, item: &ReplayItem) -> Option<SessionKey> {
        let run = self.runs.get(&item.replay)?;
        let group = run.course.as_ref()?.list.item(item.index)?.group;
        (group > 0).then(|| (run.namespace.clone(), group))
    }

    pub(super) const fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Namespaces in which an item may go.
    pub(super) fn names(&self) -> impl Iterator<Item = &Namespace> {
        let goes = |id: &ReplayId| self.runs.get(id).is_some_and(|run| run.at(self.now).is_some());
        self.by_namespace.iter().filter(move |(_, ids)| ids.iter().any(goes)).map(|(name, _)| name)
    }

    /// The plans of a namespace of which an item may go.
    pub(super) fn of(&self, name: &Namespace) -> impl Iterator<Item = ReplayId> {
        let ids = self.by_namespace.get(name).into_iter().flatten().copied();
        ids.filter(|id| self.runs.get(id).is_some_and(|run| run.at(self.now).is_some()))
    }

    /// The greatest rate of the namespace's running plans; 0 without one.
    pub(super) fn rate_of(&self, name: &Namespace) -> u32 {
        let running = |run: &&Run| run.phase == ReplayPhase::Running;
        let ids = self.by_namespace.get(name).into_iter().flatten();
        ids.filter_map(|id| self.runs.get(id)).filter(running).map(|run| run.rate).max().unwrap_or(0)
    }

    /// The plan's next item, if it has a token for it or the item costs none.
    pub(super) fn take(
        &mut self,
        state: &State,
        id: ReplayId,
        room: Room,
        lines: &Sessions,
    ) -> Option<(Proposal, Fare)> {
        let now = self.now;
        let replay = state.replays().get(&id)?;
        let run = self.runs.get_mut(&id).filter(|run| run.at(now).is_some_and(|at| at <= now))?;
        if run.in_vain >= IN_VAIN {
            // Rested, or still to be decided.
            run.rests_until.take()?;
            run.in_vain = 0;
        }
        let (index, item) = loop {
            let course = run.course.as_mut()?;
            let index = course.candidate(now)?;
            let item = course.list.item(index)?;
            if !is_pending(replay, index) {
                course.take_out(index);
                continue;
            }
            if is_free(state, (&run.namespace, item), lines) {
                break (index, item);
            }
            // Somebody else of its session went meanwhile.
            course.take_out(index);
            course.heads.insert(item.group, (index, Stand::Waits));
            go_on(state, replay, run, lines);
        };
        let fare = if is_left_alone(state, replay, item) { Fare::Free } else { Fare::Token };
        if fare == Fare::Token && (room == Room::Shut || !run.bucket.take(now)) {
            return None;
        }
        // Out of the index at once: its event, or the refusal, says what became of it.
        let course = run.course.as_mut()?;
        course.take_out(index);
        run.in_vain += 1;
        if item.group > 0 {
            course.heads.insert(item.group, (index, Stand::Called));
        }
        let amendment = course.list.amendment(index).filter(|_| item.action == ItemAction::Redrive);
        go_on(state, replay, run, lines);
        let turn = ReplayItem { replay: id, index, task: item.task, action: item.action, amendment, before: None };
        let proposal = Proposal {
            namespace: Some(run.namespace.clone()),
            actor: replay.by.clone(),
            trace: None,
            command: Command::ReplayItem(Box::new(turn)),
        };
        Some((proposal, fare))
    }

    /// There was no room, then the item is set aside; or the view was stale, then it is looked at anew. The token stays
    /// spent.
    pub(super) fn refused(&mut self, state: &State, proposal: &Proposal) {
        let Command::ReplayItem(item) = &proposal.command else { return };
        self.look_at(state, item.replay, self.now);
        let still = state.replay(item.replay).is_some_and(|replay| is_pending(replay, item.index));
        let Some(run) = self.runs.get_mut(&item.replay).filter(|_| still) else { return };
        let until = self.now.after(REST);
        if let Some(course) = &mut run.course {
            course.aside.push_back((until, item.index));
            if run.in_vain >= IN_VAIN {
                run.rests_until = Some(until);
            }
        }
    }

    /// When a plan of the namespace that waits for a token has one.
    pub(super) fn token_at(&self, name: &Namespace, now: Timestamp) -> Option<Timestamp> {
        let at = |run: &Run| run.at(now).map(|at| at.max(run.bucket.next_at(now)));
        self.of(name).filter_map(|id| self.runs.get(&id)).filter_map(at).min()
    }
}

/// Settled items with a session whose tasks are unfinished still: after a start they hold up their lines again.
pub(super) fn left_behind(state: &State, id: ReplayId, bytes: &[u8]) -> Vec<ReachId> {
    let mut left = Vec::new();
    let Some(replay) = state.replay(id) else { return left };
    // A list that can't be read holds up nobody: it is not run either.
    let _ = decode_each(bytes, |index, item| {
        if item.group > 0 && !is_pending(replay, index) && unfinished(state, item.task).is_some() {
            left.push(item.task);
        }
    });
    left
}

fn is_pending(replay: &Replay, index: u32) -> bool {
    replay.outcome(index) == Some(ItemOutcome::Pending)
}

/// May it go, as far as its session is concerned? What is sure to be left alone, whatever happens, waits for nobody.
fn is_free(state: &State, (namespace, item): (&Namespace, PlanItem), lines: &Sessions) -> bool {
    let is_over = match item.action {
        ItemAction::Replay => unfinished(state, item.task).is_none(),
        ItemAction::Redrive => state.redriven_as(item.task).is_some(),
    };
    item.group == 0 || is_over || lines.before_item(state, &(namespace.clone(), item.group), item.task).is_none()
}

/// Comes to the next item that may go: whoever has to wait before it stands for its session.
fn go_on(state: &State, replay: &Replay, run: &mut Run, lines: &Sessions) {
    let Some(course) = &mut run.course else { return };
    while let Some(item) = course.list.item(course.next) {
        let is_behind = item.group > 0 && course.heads.contains_key(&item.group);
        if is_pending(replay, course.next) && !is_behind {
            if is_free(state, (&run.namespace, item), lines) {
                return;
            }
            course.heads.insert(item.group, (course.next, Stand::Waits));
        }
        course.next += 1;
    }
}

/// Lets whoever stands for that session go, if its line is free.
fn call(state: &State, (namespace, group): (&Namespace, u32), course: &mut Course, lines: &Sessions) {
    let Some((index, stand @ Stand::Waits)) = course.heads.get_mut(&group) else { return };
    let index = *index;
    let free = course.list.item(index).is_some_and(|item| is_free(state, (namespace, item), lines));
    if free {
        *stand = Stand::Called;
        course.ready.insert(index);
    }
}

/// Will the core leave the item alone, as far as memory tells? What is only on disk shows in its turn.
fn is_left_alone(state: &State, replay: &Replay, item: PlanItem) -> bool {
    let judged = state.task(item.task).map(|task| judge(task, replay.may_have_run));
    match item.action {
        ItemAction::Replay => judged != Some(Ok(ItemAction::Replay)),
        ItemAction::Redrive => {
            judged.is_some_and(|judged| judged != Ok(ItemAction::Redrive)) || state.redriven_as(item.task).is_some()
        }
    }
}
