//! One line for each session, whoever sends its tasks back (R4).
//!
//! The sweep, every plan, and an operator's word on a single task are ways back for the tasks of a session. A line of
//! each would let two of them bring tasks of one session back side by side, so there is one, over all of them, by
//! namespace and session:
//!
//! - **Orphans stand in it** by submission, those that their policy holds for a word like any other.
//! - **The sweep** calls the first of them, when it is not held and nothing of the session is out: sent back, and not
//!   with an agent since. While the first is held nobody behind it goes, or the session would run backwards once it has
//!   its word. A word, a late result or its deadline frees the line, so nothing waits for ever (T3).
//! - **One that is superseded stands in no line**, whatever its policy: the session has gone on without it (R-REC-3). Of
//!   a held one nobody has asked that yet, so the sweep does once somebody stands behind it, and whenever a task of the
//!   session succeeds.
//! - **A plan's item** goes when no orphan stands before it, and everything of the session that was sent back, or that a
//!   plan left alone unfinished, has ended; orphans among each other go by their places. What it makes anew is a new task, so until that has ended it holds up every
//!   other plan, and the sweep until it is with its agent.
//! - **An operator's word** on one task goes at once: it is that person's to know better. The line waits for it.
//!
//! Why a line and not a sort: what was sent back first is not handed over first, once it waits in a queue.
//!
//! Whatever is here follows from the state, but for what was a replay and what a retry: after a start whatever was
//! handed over twice counts as sent back, so a line may wait longer than it must.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::ledger::ids::{Namespace, ReachId, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::{Acked, Status};
use crate::recovery::list::group_of;

/// A session within its namespace, by its number.
pub(super) type SessionKey = (Namespace, u32);
/// An orphan's place in its line.
pub(super) type Place = (Seq, ReachId);

/// May the sweep call it?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// In its turn.
    Free,
    /// Not without a word; it may be asked whether the session has gone on without it.
    Held(Ask),
}

/// When to ask of a held orphan whether a newer task of its session has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// Once somebody stands behind it.
    IfWaitedFor,
    /// A task of the session has succeeded meanwhile.
    Now,
    /// It was, and none had.
    Asked,
}

/// Does it hold up plans when it is no orphan any more?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Past {
    Fresh,
    /// It was sent back before, or a plan left it alone.
    Known,
}

#[derive(Debug, Default)]
struct Line {
    /// Orphans by submission.
    waiting: BTreeMap<Place, (Leave, Past)>,
    called: Option<ReachId>,
    /// Proposed, and not yet decided.
    asked: BTreeSet<ReachId>,
    /// Sent back to the queue at that event, and not with an agent since.
    out: BTreeMap<ReachId, Seq>,
    /// Unfinished, no orphan, and with an agent since it was sent back; or left alone by a plan.
    under: BTreeSet<ReachId>,
}

/// Who steps out of the sweep's index, and who into it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) stands_back: Option<ReachId>,
    pub(super) called: Option<ReachId>,
}

/// Why somebody in a line waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Behind an orphan that is held for a word.
    Held(ReachId),
    /// Behind an orphan that goes before it.
    Orphan(ReachId),
    /// Behind a task that was sent back.
    SentBack(ReachId),
}

/// The lines of all sessions in which somebody waits or was sent back.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    lines: BTreeMap<SessionKey, Line>,
    /// Whoever is out or under, by its line.
    sent: BTreeMap<ReachId, SessionKey>,
    asked: BTreeMap<ReachId, SessionKey>,
    /// Lines that moved since a plan looked.
    moved: BTreeSet<SessionKey>,
}

/// The session of a task.
pub(super) fn session_of(task: &Task) -> Option<SessionKey> {
    let session = task.spec.session.as_ref()?;
    Some((task.namespace.clone(), group_of(Some(session))))
}

/// Its place in the line.
pub(super) fn place_of(task: &Task) -> Place {
    (task.seqs.first().copied().unwrap_or_default(), task.id())
}

/// A task that has not ended.
pub(super) fn unfinished(state: &State, id: ReachId) -> Option<&Task> {
    state.task(id).filter(|task| !task.status.kind().is_terminal())
}

/// One for which its session waits: it has not ended, and the session has not gone on without it.
fn waited_for(state: &State, id: ReachId) -> Option<&Task> {
    unfinished(state, id).filter(|_| state.held(id).is_none())
}

impl Sessions {
    /// An orphan joins its line; it is out no more.
    pub(super) fn join(&mut self, key: &SessionKey, place: Place, leave: Leave) -> Change {
        let known = self.unsend(place.1);
        let line = self.lines.entry(key.clone()).or_default();
        line.waiting.insert(place, (leave, known));
        self.settle(key)
    }

    /// It is no orphan any more.
    pub(super) fn leave(&mut self, state: &State, key: &SessionKey, place: Place) -> Change {
        let was = self.lines.get_mut(key).and_then(|line| line.waiting.remove(&place));
        let goes_on = was.is_some_and(|(_, past)| past == Past::Known) && waited_for(state, place.1).is_some();
        if goes_on && !self.sent.contains_key(&place.1) {
            self.put_under(key, place.1);
        }
        self.settle(key)
    }

    /// It was sent back to the queue at that event: nobody is called until it is with an agent.
    pub(super) fn go_out(&mut self, key: SessionKey, task: ReachId, at: Seq) -> Change {
        self.unsend(task);
        self.lines.entry(key.clone()).or_default().out.insert(task, at);
        self.sent.insert(task, key.clone());
        self.settle(&key)
    }

    /// A plan left it alone, unfinished: no plan goes past it.
    pub(super) fn left_alone(&mut self, state: &State, task: &Task) {
        let Some(key) = session_of(task).filter(|_| waited_for(state, task.id()).is_some()) else { return };
        let line = self.lines.entry(key.clone()).or_default();
        if let Some((_, past)) = line.waiting.get_mut(&place_of(task)) {
            *past = Past::Known;
        } else if !self.sent.contains_key(&task.id()) {
            self.put_under(&key, task.id());
        }
    }

    /// A held orphan was asked about, and its session has not gone on without it.
    pub(super) fn was_asked(&mut self, key: &SessionKey, place: Place) {
        if let Some((leave, _)) = self.lines.get_mut(key).and_then(|line| line.waiting.get_mut(&place)) {
            *leave = if *leave == Leave::Free { Leave::Free } else { Leave::Held(Ask::Asked) };
        }
    }

    /// A task of the session has succeeded: what is held there may be superseded now.
    pub(super) fn succeeded(&mut self, key: &SessionKey) -> Change {
        let Some(line) = self.lines.get_mut(key) else { return Change::default() };
        for (leave, _) in line.waiting.values_mut().filter(|(leave, _)| *leave != Leave::Free) {
            *leave = Leave::Held(Ask::Now);
        }
        self.settle(key)
    }

    /// Its way back is proposed: until that is decided nobody else of its session is.
    pub(super) fn ask(&mut self, key: SessionKey, task: ReachId) -> Change {
        self.lines.entry(key.clone()).or_default().asked.insert(task);
        self.asked.insert(task, key.clone());
        self.settle(&key)
    }

    /// What was proposed has been decided.
    pub(super) fn decided(&mut self, task: ReachId) -> Change {
        let Some(key) = self.asked.remove(&task) else { return Change::default() };
        if let Some(line) = self.lines.get_mut(&key) {
            line.asked.remove(&task);
        }
        self.settle(&key)
    }

    /// A task moved: if it was out and is no more, the next is called.
    pub(super) fn look_at(&mut self, state: &State, id: ReachId) -> Change {
        let Some(key) = self.sent.get(&id).cloned() else { return Change::default() };
        let out_since = self.lines.get(&key).and_then(|line| line.out.get(&id)).copied();
        match (unfinished(state, id), out_since) {
            (Some(task), Some(since)) if is_out(task, since) => return Change::default(),
            (Some(_), None) => return Change::default(),
            (Some(_), Some(_)) => {
                self.unsend(id);
                self.put_under(&key, id);
            }
            (None, _) => drop(self.unsend(id)),
        }
        self.settle(&key)
    }

    fn put_under(&mut self, key: &SessionKey, task: ReachId) {
        self.lines.entry(key.clone()).or_default().under.insert(task);
        self.sent.insert(task, key.clone());
    }

    fn unsend(&mut self, task: ReachId) -> Past {
        let Some(key) = self.sent.remove(&task) else { return Past::Fresh };
        if let Some(line) = self.lines.get_mut(&key) {
            line.out.remove(&task);
            line.under.remove(&task);
        }
        self.moved.insert(key);
        Past::Known
    }

    fn settle(&mut self, key: &SessionKey) -> Change {
        self.moved.insert(key.clone());
        let Some(line) = self.lines.get_mut(key) else { return Change::default() };
        let is_waited_for = line.waiting.len() > 1;
        let is_called = |leave: Leave| match leave {
            Leave::Free | Leave::Held(Ask::Now) => true,
            Leave::Held(Ask::IfWaitedFor) => is_waited_for,
            Leave::Held(Ask::Asked) => false,
        };
        let first = line.waiting.first_key_value().filter(|(_, (leave, _))| is_called(*leave));
        let next = first.map(|((_, id), _)| *id).filter(|_| line.out.is_empty() && line.asked.is_empty());
        let before = std::mem::replace(&mut line.called, next);
        let is_idle = line.waiting.is_empty() && line.out.is_empty() && line.under.is_empty() && line.asked.is_empty();
        if is_idle {
            self.lines.remove(key);
        }
        if before == next { Change::default() } else { Change { stands_back: before, called: next } }
    }

    /// Lines that moved since they were asked for the last time.
    pub(super) fn take_moved(&mut self) -> BTreeSet<SessionKey> {
        std::mem::take(&mut self.moved)
    }

    /// For whom a plan's item about that task must wait. One that has left memory has no place any more but its id,
    /// which grows with time.
    pub(super) fn before_item(&self, state: &State, key: &SessionKey, task: ReachId) -> Option<ReachId> {
        let line = self.lines.get(key)?;
        let sent = || line.out.keys().chain(&line.under).find(|id| **id != task);
        if let Some(other) = line.asked.first().or_else(sent) {
            return Some(*other);
        }
        let first = *line.waiting.first_key_value()?.0;
        let place = state.task(task).map(place_of);
        if place.is_none_or(|place| !line.waiting.contains_key(&place)) {
            // A plan makes it anew: what was sent back or left alone, and is an orphan since, is not over, wherever it
            // stands. Orphans among each other would wait for each other so.
            let again = line.waiting.iter().find(|(_, (_, past))| *past == Past::Known);
            if let Some(((_, id), _)) = again {
                return Some(*id);
            }
        }
        match place {
            Some(place) => (first < place).then_some(first.1),
            // Ids that are drawn side by side may be submitted the other way round: the first need not have the lowest.
            None => line.waiting.keys().map(|(_, id)| *id).find(|id| *id < task),
        }
    }

    /// For whom an orphan waits that stands at that place.
    pub(super) fn before_orphan(&self, key: &SessionKey, place: Place, most: usize) -> Option<Behind> {
        let line = self.lines.get(key)?;
        let mut earlier = line.waiting.range((Bound::Unbounded, Bound::Excluded(place))).take(most);
        let first = earlier.clone().next().map(|((_, id), _)| Behind::Orphan(*id));
        let held = earlier.find(|(_, (leave, _))| *leave != Leave::Free).map(|((_, id), _)| Behind::Held(*id));
        let sent = line.asked.iter().chain(line.out.keys()).find(|id| **id != place.1).map(|id| Behind::SentBack(*id));
        held.or(first).or(sent)
    }
}

/// Was it sent back and is not with an agent since?
fn is_out(task: &Task, since: Seq) -> bool {
    let was_acked = task.acked.is_some_and(|(_, seq)| seq > since);
    match task.status {
        Status::AwaitingApproval
        | Status::Scheduled { .. }
        | Status::Queued { .. }
        | Status::Dispatched { .. }
        | Status::Retrying { .. }
        | Status::SlowReach { acked: Acked::No, .. } => !was_acked,
        Status::Processing { .. }
        | Status::SlowReach { acked: Acked::Yes, .. }
        | Status::Orphaned { .. }
        | Status::Succeeded
        | Status::Failed
        | Status::DeadLetter
        | Status::Expired
        | Status::Cancelled => false,
    }
}

/// After a start: may it have been sent back, and since when? Its state does not tell a replay from a retry, so whatever
/// was handed over before and waits, or was handed over again, counts.
pub(super) fn may_be_sent(task: &Task) -> Option<Seq> {
    let before = |handed: u32| (task.attempt.0 >= handed).then(|| task.acked.map_or(Seq(0), |(_, seq)| seq));
    match task.status {
        Status::Queued { .. } | Status::Retrying { .. } => before(1),
        Status::Dispatched { .. } | Status::Processing { .. } | Status::SlowReach { .. } | Status::Orphaned { .. } => {
            before(2)
        }
        Status::AwaitingApproval
        | Status::Scheduled { .. }
        | Status::Succeeded
        | Status::Failed
        | Status::DeadLetter
        | Status::Expired
        | Status::Cancelled => None,
    }
}
