//! The runs of replay plans: which item may go next (R-REC-4, semantics 22, 40).
//!
//! Why apart from the ledger's plan: there is one byte an item and no order. Here is the list, told by a shell, and what
//! follows from it: items of a session go one at a time, the next only when the former one's task, or what was made of
//! it, has ended (R4). Whatever is here is derived from the state and the list, and made anew after a start.
//!
//! Looking at an item costs no more than proposing it: what may go stands in an index, and a task's end finds the line
//! behind it by its id.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ledger::ids::{Namespace, ReachId, ReplayId};
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::replay::order::ReplayItem;
use crate::ledger::machine::replay::{ItemAction, ItemOutcome, Replay, ReplayPhase};
use crate::ledger::time::{Millis, Timestamp};
use crate::recovery::list::{PlanItem, decode};
use crate::recovery::pace::Bucket;
use crate::recovery::select::judge;

/// How long a plan waits whose item found no room: a full queue, or a disk that is nearly full.
pub const REST: Millis = Millis::secs(1);

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

/// The later items of one session.
#[derive(Debug, Default)]
struct Line {
    rest: VecDeque<u32>,
    /// The unfinished task that they wait for.
    behind: Option<ReachId>,
}

/// A list, and what of it may go.
#[derive(Debug)]
struct Listed {
    items: Vec<PlanItem>,
    /// Items that may go, in the list's order.
    ready: BTreeSet<u32>,
    lines: BTreeMap<u32, Line>,
}

impl Listed {
    fn item(&self, index: u32) -> Option<PlanItem> {
        self.items.get(usize::try_from(index).ok()?).copied()
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
    list: Option<Listed>,
}

impl Run {
    /// Does an item of it wait for nothing but a token?
    fn has_ready(&self) -> bool {
        self.phase == ReplayPhase::Running && self.list.as_ref().is_some_and(|list| !list.ready.is_empty())
    }
}

/// The plans that have not ended.
#[derive(Debug, Default)]
pub struct Plans {
    runs: BTreeMap<ReplayId, Run>,
    by_namespace: BTreeMap<Namespace, BTreeSet<ReplayId>>,
    /// Lines that wait for the end of a task.
    behind: BTreeMap<ReachId, BTreeSet<(ReplayId, u32)>>,
    /// Unfinished tasks that were made of ended ones, by those: a line that finds its item redriven by another hand
    /// waits for what that one made.
    made: BTreeMap<ReachId, ReachId>,
    /// The last event before this start: until then an earlier run may have emptied every bucket.
    began: Timestamp,
    now: Timestamp,
}

impl Plans {
    /// Running plans whose list the planner does not have.
    pub fn wants_list(&self) -> impl Iterator<Item = ReplayId> + '_ {
        let wants = |run: &Run| run.phase == ReplayPhase::Running && run.list.is_none();
        self.runs.iter().filter(move |(_, run)| wants(run)).map(|(id, _)| *id)
    }

    pub(super) fn rebuild(&mut self, state: &State) {
        *self = Self { began: state.at(), now: state.at(), ..Self::default() };
        for id in state.replays().keys() {
            self.look_at(state, *id, state.at());
        }
        for id in state.tasks().keys() {
            self.remember_kin(state, *id);
        }
    }

    pub(super) fn observe(&mut self, state: &State, event: &Event) {
        if let Some(replay) = event.body.replay() {
            self.look_at(state, replay, event.at);
        }
        if let EventBody::ReplayItemDone(body) = &event.body {
            self.settled(state, body.replay, body.index);
        } else if let EventBody::ReplayItemSkipped(body) = &event.body {
            self.settled(state, body.replay, body.index);
        } else if let EventBody::TaskRedriven(body) = &event.body {
            self.remember_kin(state, body.successor);
        } else if event.body.callback_subject().is_none()
            && let Some(task) = event.body.task()
        {
            self.ended(state, task);
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
            list: None,
        });
        run.bucket.set_rate(replay.rate, now);
        (run.phase, run.rate) = (replay.phase, replay.rate);
        self.by_namespace.entry(replay.namespace.clone()).or_default().insert(id);
    }

    fn forget(&mut self, id: ReplayId) {
        let Some(run) = self.runs.remove(&id) else { return };
        if let Some(plans) = self.by_namespace.get_mut(&run.namespace) {
            plans.remove(&id);
        }
        self.by_namespace.retain(|_, plans| !plans.is_empty());
        for (group, line) in run.list.into_iter().flat_map(|list| list.lines) {
            if let Some(task) = line.behind {
                self.leave(task, (id, group));
            }
        }
    }

    fn leave(&mut self, task: ReachId, line: (ReplayId, u32)) {
        if let Some(lines) = self.behind.get_mut(&task) {
            lines.remove(&line);
            if lines.is_empty() {
                self.behind.remove(&task);
            }
        }
    }

    fn remember_kin(&mut self, state: &State, successor: ReachId) {
        if let Some(of) = state.kin(successor).redrive_of.filter(|_| is_unfinished(state, successor)) {
            self.made.insert(of, successor);
        }
    }

    /// A shell read the list. One of another length is none of this plan's.
    pub(super) fn listed(&mut self, state: &State, id: ReplayId, bytes: &[u8]) {
        let Some(replay) = state.replays().get(&id) else { return };
        let wanted = self.runs.get(&id).is_some_and(|run| run.list.is_none());
        let Ok(items) = decode(bytes) else { return };
        if !wanted || items.len() != replay.outcomes.len() {
            return;
        }
        let mut lines: BTreeMap<u32, (Line, Option<ReachId>)> = BTreeMap::new();
        let mut ready = Vec::new();
        for ((index, item), outcome) in (0_u32..).zip(&items).zip(&replay.outcomes) {
            let is_pending = *outcome == ItemOutcome::Pending;
            match (item.group, is_pending) {
                (0, true) => ready.push(index),
                (0, false) => {}
                (group, true) => lines.entry(group).or_default().0.rest.push_back(index),
                (group, false) => lines.entry(group).or_default().1 = Some(item.task),
            }
        }
        let former: Vec<(u32, Option<ReachId>)> = lines.iter().map(|(group, (_, last))| (*group, *last)).collect();
        let lines = lines.into_iter().map(|(group, (line, _))| (group, line)).collect();
        if let Some(run) = self.runs.get_mut(&id) {
            run.list = Some(Listed { items, ready: ready.into_iter().collect(), lines });
        }
        for (group, last) in former {
            self.advance(state, (id, group), last);
        }
    }

    /// An item has its outcome, by whoever's word.
    fn settled(&mut self, state: &State, id: ReplayId, index: u32) {
        let Some(list) = self.runs.get_mut(&id).and_then(|run| run.list.as_mut()) else { return };
        list.ready.remove(&index);
        let Some(item) = list.item(index).filter(|item| item.group > 0) else { return };
        let Some(line) = list.lines.get_mut(&item.group) else { return };
        match line.rest.binary_search(&index) {
            // Out of its turn: whoever is before it still is.
            Ok(place) => drop(line.rest.remove(place)),
            Err(_) => self.advance(state, (id, item.group), Some(item.task)),
        }
    }

    /// Lets the next of a line go, unless the former one is unfinished: then the line waits for it.
    fn advance(&mut self, state: &State, (id, group): (ReplayId, u32), former: Option<ReachId>) {
        let blocker = former.and_then(|task| self.blocker(state, id, task));
        let Some(list) = self.runs.get_mut(&id).and_then(|run| run.list.as_mut()) else { return };
        let Some(line) = list.lines.get_mut(&group) else { return };
        let before = line.behind.take();
        match blocker {
            _ if line.rest.is_empty() => {
                list.lines.remove(&group);
            }
            Some(task) => {
                line.behind = Some(task);
                self.behind.entry(task).or_default().insert((id, group));
            }
            None => list.ready.extend(line.rest.pop_front()),
        }
        if let Some(task) = before.filter(|task| Some(*task) != blocker) {
            self.leave(task, (id, group));
        }
    }

    /// What must end before the next one of its session goes: the task, or what this plan or another hand made of it.
    fn blocker(&self, state: &State, id: ReplayId, task: ReachId) -> Option<ReachId> {
        [Some(task), Some(id.successor(task)), self.made.get(&task).copied()]
            .into_iter()
            .flatten()
            .find(|task| is_unfinished(state, *task))
    }

    /// A task moved; if it has ended, whoever waited for it goes on.
    fn ended(&mut self, state: &State, task: ReachId) {
        if (self.behind.is_empty() && self.made.is_empty()) || is_unfinished(state, task) {
            return;
        }
        if let Some(of) = state.kin(task).redrive_of {
            self.made.remove(&of);
        }
        for line in self.behind.remove(&task).into_iter().flatten() {
            self.advance(state, line, Some(task));
        }
    }

    pub(super) const fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Namespaces in which an item may go.
    pub(super) fn names(&self) -> impl Iterator<Item = &Namespace> {
        let has_ready = |ids: &BTreeSet<ReplayId>| ids.iter().any(|id| self.runs.get(id).is_some_and(Run::has_ready));
        self.by_namespace.iter().filter(move |(_, ids)| has_ready(ids)).map(|(name, _)| name)
    }

    /// The plans of a namespace of which an item may go.
    pub(super) fn of(&self, name: &Namespace) -> impl Iterator<Item = ReplayId> {
        let ids = self.by_namespace.get(name).into_iter().flatten().copied();
        ids.filter(|id| self.runs.get(id).is_some_and(Run::has_ready))
    }

    /// The greatest rate of the namespace's running plans; 0 without one.
    pub(super) fn rate_of(&self, name: &Namespace) -> u32 {
        let running = |run: &&Run| run.phase == ReplayPhase::Running;
        let ids = self.by_namespace.get(name).into_iter().flatten();
        ids.filter_map(|id| self.runs.get(id)).filter(running).map(|run| run.rate).max().unwrap_or(0)
    }

    /// The plan's next item, if it has a token for it or the item costs none.
    pub(super) fn take(&mut self, state: &State, id: ReplayId, room: Room) -> Option<(Proposal, Fare)> {
        let now = self.now;
        let replay = state.replays().get(&id)?;
        let run = self.runs.get_mut(&id).filter(|run| run.has_ready())?;
        if run.rests_until.is_some_and(|until| until > now) {
            return None;
        }
        let list = run.list.as_mut()?;
        let index = *list.ready.first()?;
        let item = list.item(index)?;
        let fare = if is_left_alone(state, replay, item) { Fare::Free } else { Fare::Token };
        if fare == Fare::Token && (room == Room::Shut || !run.bucket.take(now)) {
            return None;
        }
        // Out of the index at once: its event, or the refusal, says what became of it.
        list.ready.remove(&index);
        let (task, action) = (item.task, item.action);
        let turn = ReplayItem { replay: id, index, task, action, before: None };
        let proposal = Proposal {
            namespace: Some(run.namespace.clone()),
            actor: replay.by.clone(),
            trace: None,
            command: Command::ReplayItem(Box::new(turn)),
        };
        Some((proposal, fare))
    }

    /// There was no room, then the plan rests; or the view was stale, then it is looked at anew. The token stays spent.
    pub(super) fn refused(&mut self, state: &State, proposal: &Proposal) {
        let Command::ReplayItem(item) = &proposal.command else { return };
        self.look_at(state, item.replay, self.now);
        let is_pending = |replay: &Replay| replay.outcome(item.index) == Some(ItemOutcome::Pending);
        if !state.replay(item.replay).is_some_and(is_pending) {
            return;
        }
        let Some(run) = self.runs.get_mut(&item.replay) else { return };
        if run.phase == ReplayPhase::Running {
            run.rests_until = Some(self.now.after(REST));
        }
        if let Some(list) = &mut run.list {
            list.ready.insert(item.index);
        }
    }

    /// When a plan of the namespace that waits for a token has one.
    pub(super) fn token_at(&self, name: &Namespace, now: Timestamp) -> Option<Timestamp> {
        let at = |run: &Run| run.bucket.next_at(now).max(run.rests_until.unwrap_or(now));
        self.of(name).filter_map(|id| self.runs.get(&id)).map(at).min()
    }
}

fn is_unfinished(state: &State, task: ReachId) -> bool {
    state.task(task).is_some_and(|task| !task.status.kind().is_terminal())
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
