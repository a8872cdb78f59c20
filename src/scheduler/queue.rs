//! Who goes next: tasks wait in lanes, by class, then fairly by caller, then first in first out (design 5).
//!
//! Why lanes: a freed slot must look only at what its agent can serve. All tasks of a [`LaneKey`] have exactly the same
//! candidates, so one look at a lane's head stands for all behind it, and nothing blocks the head of a line that
//! another could pass.
//!
//! ```text
//! pool ─► urgent | normal | background ─► caller, longest not served first ─► lane whose first came first
//! ```
//!
//! **Fairness.** Callers (fairness keys) of a class take turns: deficit round robin with a quantum of one task, where a
//! caller's place in the round is the number of the turn at which it was last served or at which it began to wait. That
//! number belongs to the caller, not to the lane, so spreading a flood over many lanes buys nothing.
//! - One caller's flood delays another's next task of the same class by at most [`FLOOD_DELAY`] dispatch of an agent
//!   that can serve both (F1).
//! - An agent that keeps getting higher classes takes at least one background task in any [`BACKGROUND_EVERY`] picks
//!   while one that it can serve waits, and one normal task in any `BACKGROUND_EVERY + 1` (F1): [`Floor`].
//!
//! Every operation is O(log n) in the queued tasks, however many lanes there are; a look passes only over lanes that do
//! not fit. Nothing is left behind by a removal.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::ledger::ids::{AgentId, FairnessKey, Namespace, ReachId, SessionId, TokenId};
use crate::ledger::machine::task::LaneId;
use crate::ledger::machine::task::spec::{Qos, SchemaVerdicts};
use crate::scheduler::roster::PoolNo;
use crate::scheduler::routing::Needs;
use crate::scheduler::routing::candidate::Suspect;

/// The published starvation bound: of any so many consecutive picks of one agent at least one is background while a
/// background task that it can serve waits.
pub const BACKGROUND_EVERY: u8 = 16;
/// Tasks of a flooding caller that are dispatched before another caller's next one of the same class.
pub const FLOOD_DELAY: u32 = 1;

const _: () = assert!(BACKGROUND_EVERY >= 2, "a floor of one would turn the classes over");

/// The classes, first in line first.
pub const CLASSES: [Qos; 3] = [Qos::Urgent, Qos::Normal, Qos::Background];

/// Place of a class in an array.
#[must_use]
pub const fn rank(class: Qos) -> usize {
    match class {
        Qos::Urgent => 0,
        Qos::Normal => 1,
        Qos::Background => 2,
    }
}

/// What all tasks of one lane share, so that they share their candidates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneKey {
    /// Namespace, capability and requirements.
    pub id: LaneId,
    /// Which schemas accept and refuse their payloads.
    pub schemas: SchemaVerdicts,
    /// The submitter, where an agent of the capability serves only some; `None` where nobody asks.
    pub caller: Option<TokenId>,
    /// Suspects wait apart: other rules hold for them (semantics 9).
    pub suspect: Suspect,
    /// Who failed them last: others may be waited for (R-SCH-5).
    pub avoid: Option<AgentId>,
    /// The session of tasks that come back, by a replay, a retry or a redrive: its agent may be waited for (R-REC-3).
    pub session: Option<SessionId>,
}

/// A lane, numbered within one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneNo(u64);

/// Where a task waits, or waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// In which lane.
    pub lane: LaneNo,
    /// In which class.
    pub class: Qos,
    /// In whose name.
    pub caller: FairnessKey,
    /// When it entered, as a running number.
    pub order: u64,
}

/// A task about to enter the queue.
#[derive(Debug)]
pub struct Entry {
    /// Which task.
    pub task: ReachId,
    /// Where it belongs.
    pub namespace: Namespace,
    /// Its lane.
    pub key: LaneKey,
    /// The pool of its capability.
    pub pool: PoolNo,
    /// Its class.
    pub class: Qos,
    /// In whose name.
    pub caller: FairnessKey,
    /// Its old place, when it comes back from a refused proposal.
    pub order: Option<u64>,
}

/// The first of a class, in a lane or over many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Head {
    /// The turn since which its caller waits: the smallest goes first.
    pub turn: u64,
    /// Its own place.
    pub order: u64,
    /// Which task.
    pub task: ReachId,
}

/// One caller's tasks in one class of one lane, by their order.
type Line = BTreeMap<u64, ReachId>;

/// Everybody who waits in one class of one pool, over all its lanes.
#[derive(Debug, Default)]
struct Front {
    turns: BTreeSet<(u64, FairnessKey)>,
    waiting: BTreeMap<FairnessKey, Stand>,
}

/// One caller in a front.
#[derive(Debug)]
struct Stand {
    /// The turn under which it stands in the round.
    turn: u64,
    /// Its lines, by the order of their first tasks.
    lines: BTreeSet<(u64, LaneNo)>,
}

/// The first task of a line was another before.
struct Moved<'a> {
    lane: LaneNo,
    class: Qos,
    caller: &'a FairnessKey,
    was: Option<u64>,
    is: Option<u64>,
}

/// One lane.
#[derive(Debug)]
pub struct Lane {
    key: LaneKey,
    /// What its tasks need.
    pub needs: Arc<Needs>,
    /// The pool of its capability.
    pub pool: PoolNo,
    classes: [BTreeMap<FairnessKey, Line>; 3],
    len: usize,
}

impl Lane {
    /// Queued tasks.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Does nobody wait? Only for a moment: an empty lane is taken out.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Callers that wait in it, once in each class.
    #[must_use]
    pub fn callers(&self) -> usize {
        self.classes.iter().map(BTreeMap::len).sum()
    }

    /// The task that entered it first, with its place: a look at the first of every caller.
    #[must_use]
    pub fn oldest(&self) -> Option<(u64, ReachId)> {
        let lines = self.classes.iter().flat_map(BTreeMap::values);
        lines.filter_map(BTreeMap::first_key_value).map(|(order, task)| (*order, *task)).min()
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Round {
    waiting: usize,
    turn: u64,
}

/// All lanes.
#[derive(Debug, Default)]
pub struct Queue {
    lanes: BTreeMap<LaneNo, Lane>,
    names: BTreeMap<LaneKey, LaneNo>,
    by_pool: BTreeMap<PoolNo, BTreeSet<LaneNo>>,
    fronts: BTreeMap<PoolNo, [Front; 3]>,
    rounds: BTreeMap<(Namespace, FairnessKey), [Round; 3]>,
    places: BTreeMap<ReachId, Ticket>,
    next_lane: u64,
    next_order: u64,
    next_turn: u64,
}

impl Queue {
    /// Queued tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Does nobody wait?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Where a task waits.
    #[must_use]
    pub fn place(&self, task: ReachId) -> Option<&Ticket> {
        self.places.get(&task)
    }

    /// The order number that the next entry will have.
    #[must_use]
    pub const fn next_order(&self) -> u64 {
        self.next_order
    }

    /// One lane.
    #[must_use]
    pub fn lane(&self, lane: LaneNo) -> Option<&Lane> {
        self.lanes.get(&lane)
    }

    /// Its key.
    #[must_use]
    pub fn lane_key(&self, lane: LaneNo) -> Option<&LaneKey> {
        self.lanes.get(&lane).map(|lane| &lane.key)
    }

    /// Lanes of a pool in which somebody waits.
    pub fn lanes_of(&self, pool: PoolNo) -> impl Iterator<Item = LaneNo> + '_ {
        self.by_pool.get(&pool).into_iter().flatten().copied()
    }

    /// Every task of a pool, for the rare case that its lanes must be cut anew.
    #[must_use]
    pub fn tasks_of(&self, pool: PoolNo) -> Vec<ReachId> {
        let lanes = self.lanes_of(pool).filter_map(|lane| self.lanes.get(&lane));
        let lines = lanes.flat_map(|lane| lane.classes.iter().flat_map(BTreeMap::values));
        let mut tasks: Vec<(u64, ReachId)> =
            lines.flat_map(|line| line.iter().map(|(order, task)| (*order, *task))).collect();
        tasks.sort_unstable();
        tasks.into_iter().map(|(_, task)| task).collect()
    }

    /// A task begins to wait. One that waits already stays where it is. `needs` is asked only for a new lane.
    pub fn insert(&mut self, entry: Entry, needs: impl FnOnce() -> Needs) -> LaneNo {
        if let Some(place) = self.places.get(&entry.task) {
            return place.lane;
        }
        let order = entry.order.unwrap_or(self.next_order);
        self.next_order = self.next_order.max(order + 1);
        let no = self.open_lane(&entry, needs);
        let round = self.rounds.entry((entry.namespace, entry.caller.clone())).or_default().get_mut(rank(entry.class));
        let turn = round.map_or(0, |round| {
            if round.waiting == 0 {
                self.next_turn += 1;
                round.turn = self.next_turn;
            }
            round.waiting += 1;
            round.turn
        });
        if let Some(lane) = self.lanes.get_mut(&no) {
            lane.len += 1;
            if let Some(class) = lane.classes.get_mut(rank(entry.class)) {
                let line = class.entry(entry.caller.clone()).or_default();
                let was = first_of(line);
                line.insert(order, entry.task);
                let moved = Moved { lane: no, class: entry.class, caller: &entry.caller, was, is: first_of(line) };
                self.restand(&moved, turn);
            }
        }
        self.places.insert(entry.task, Ticket { lane: no, class: entry.class, caller: entry.caller, order });
        no
    }

    /// The first of a class in a pool, among the lanes that fit; a lane is asked only when its turn has come.
    pub fn first(
        &mut self,
        pool: PoolNo,
        class: Qos,
        mut fits: impl FnMut(LaneNo, &Lane) -> bool,
    ) -> Option<(Head, LaneNo)> {
        let front = self.fronts.get_mut(&pool)?.get_mut(rank(class))?;
        let mut passed = Bound::Unbounded;
        loop {
            let (turn, caller) = front.turns.range((passed.clone(), Bound::Unbounded)).next()?.clone();
            let stand = front.waiting.get_mut(&caller)?;
            let namespace = &self.lanes.get(&stand.lines.first()?.1)?.needs.namespace;
            let round =
                self.rounds.get(&(namespace.clone(), caller.clone())).and_then(|rounds| rounds.get(rank(class)));
            // A caller served in another pool keeps its old place here until it is looked at. Turns only rise, so it
            // can only have to go back; each dispatch makes at most one such place stale in each pool.
            let current = round.map_or(turn, |round| round.turn);
            if current != turn {
                stand.turn = current;
                front.turns.remove(&(turn, caller.clone()));
                front.turns.insert((current, caller));
                continue;
            }
            for (order, no) in &stand.lines {
                let Some(lane) = self.lanes.get(no).filter(|lane| fits(*no, lane)) else { continue };
                let line = lane.classes.get(rank(class)).and_then(|class| class.get(&caller))?;
                return Some((Head { turn, order: *order, task: *line.get(order)? }, *no));
            }
            passed = Bound::Excluded((turn, caller));
        }
    }

    /// A task leaves because it was served: its caller goes to the end of the round.
    pub fn serve(&mut self, task: ReachId) -> Option<Ticket> {
        let ticket = self.places.get(&task)?.clone();
        let namespace = self.lanes.get(&ticket.lane)?.needs.namespace.clone();
        self.next_turn += 1;
        let turn = self.next_turn;
        if let Some(round) = self
            .rounds
            .get_mut(&(namespace, ticket.caller.clone()))
            .and_then(|rounds| rounds.get_mut(rank(ticket.class)))
        {
            round.turn = turn;
        }
        self.remove(task)
    }

    /// A task leaves for any other reason.
    pub fn remove(&mut self, task: ReachId) -> Option<Ticket> {
        let ticket = self.places.remove(&task)?;
        let lane = self.lanes.get_mut(&ticket.lane)?;
        lane.len = lane.len.saturating_sub(1);
        let name = (lane.needs.namespace.clone(), ticket.caller.clone());
        if let Some(class) = lane.classes.get_mut(rank(ticket.class))
            && let Some(line) = class.get_mut(&ticket.caller)
        {
            let was = first_of(line);
            line.remove(&ticket.order);
            let is = first_of(line);
            if is.is_none() {
                class.remove(&ticket.caller);
            }
            self.restand(&Moved { lane: ticket.lane, class: ticket.class, caller: &ticket.caller, was, is }, 0);
        }
        if let Some(rounds) = self.rounds.get_mut(&name) {
            if let Some(round) = rounds.get_mut(rank(ticket.class)) {
                round.waiting = round.waiting.saturating_sub(1);
            }
            if rounds.iter().all(|round| round.waiting == 0) {
                self.rounds.remove(&name);
            }
        }
        self.close_lane(ticket.lane);
        Some(ticket)
    }

    /// Puts a line where its first task now belongs. `turn` is its caller's, if that did not wait here before.
    fn restand(&mut self, moved: &Moved<'_>, turn: u64) {
        let Moved { lane, class, caller, was, is } = *moved;
        let Some(pool) = self.lanes.get(&lane).map(|lane| lane.pool).filter(|_| was != is) else { return };
        let Some(front) = self.fronts.entry(pool).or_default().get_mut(rank(class)) else { return };
        let stand = front.waiting.entry(caller.clone()).or_insert_with(|| {
            front.turns.insert((turn, caller.clone()));
            Stand { turn, lines: BTreeSet::new() }
        });
        if let Some(was) = was {
            stand.lines.remove(&(was, lane));
        }
        if let Some(is) = is {
            stand.lines.insert((is, lane));
        }
        if stand.lines.is_empty() {
            front.turns.remove(&(stand.turn, caller.clone()));
            front.waiting.remove(caller);
        }
    }

    fn open_lane(&mut self, entry: &Entry, needs: impl FnOnce() -> Needs) -> LaneNo {
        if let Some(no) = self.names.get(&entry.key) {
            return *no;
        }
        self.next_lane += 1;
        let no = LaneNo(self.next_lane);
        self.names.insert(entry.key.clone(), no);
        self.by_pool.entry(entry.pool).or_default().insert(no);
        let lane = Lane {
            key: entry.key.clone(),
            needs: Arc::new(needs()),
            pool: entry.pool,
            classes: <[BTreeMap<FairnessKey, Line>; 3]>::default(),
            len: 0,
        };
        self.lanes.insert(no, lane);
        no
    }

    fn close_lane(&mut self, no: LaneNo) {
        if self.lanes.get(&no).is_none_or(|lane| !lane.is_empty()) {
            return;
        }
        if let Some(lane) = self.lanes.remove(&no) {
            self.names.remove(&lane.key);
            if let Some(lanes) = self.by_pool.get_mut(&lane.pool) {
                lanes.remove(&no);
                if lanes.is_empty() {
                    self.by_pool.remove(&lane.pool);
                    self.fronts.remove(&lane.pool);
                }
            }
        }
    }
}

fn first_of(line: &Line) -> Option<u64> {
    line.first_key_value().map(|(order, _)| *order)
}

/// How often an agent's picks passed over a lower class that waited: what keeps the lower classes alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    passed: [u8; 3],
}

impl Floor {
    /// A floor for the `n`-th agent. Agents start at different places, so that a fleet of short-lived agents keeps the
    /// floor as a whole.
    #[must_use]
    pub fn starting(n: usize) -> Self {
        let offset = u8::try_from(n % usize::from(BACKGROUND_EVERY)).unwrap_or(0);
        Self { passed: [0, offset, offset] }
    }

    /// The class to serve, given which classes have a head.
    #[must_use]
    pub fn choose(&self, waiting: [bool; 3]) -> Option<Qos> {
        let [_, normal, background] = self.passed;
        let [_, normal_waits, background_waits] = waiting;
        if background_waits && background >= BACKGROUND_EVERY - 1 {
            return Some(Qos::Background);
        }
        if normal_waits && normal >= BACKGROUND_EVERY - 1 {
            return Some(Qos::Normal);
        }
        CLASSES.into_iter().zip(waiting).find(|(_, waits)| *waits).map(|(class, _)| class)
    }

    /// A task of `class` was picked while those classes had a head.
    pub fn picked(&mut self, class: Qos, waiting: [bool; 3]) {
        for ((other, passed), waits) in CLASSES.into_iter().zip(self.passed.iter_mut()).zip(waiting) {
            if other == class {
                *passed = 0;
            } else if waits {
                *passed = passed.saturating_add(1);
            }
        }
    }
}
