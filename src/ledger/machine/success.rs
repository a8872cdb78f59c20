//! Which success of a session is the newest, and what it supersedes (R-REC-3).
//!
//! Why by the place of the first submission: a task that was made of an ended one, and of which again another was made,
//! stands where the first of them stood. So a chain of redrives is as old as its origin, whether it is the one that has
//! succeeded or the one that waits.
//!
//! Here is only what memory knows: of the tasks in it. What has left it is one row a session in the store.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{Namespace, ReachId, Seq, SessionId};
use crate::ledger::machine::State;
use crate::ledger::machine::event::HeldWhy;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::StatusKind;

/// Where a chain of redrives began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The first task of the chain.
    pub task: ReachId,
    /// Its submission.
    pub seq: Seq,
}

/// A task that has succeeded, and its place in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Success {
    /// The submission that its chain of redrives began with: its own, if it was made of none.
    pub place: Seq,
    /// Which task.
    pub task: ReachId,
}

type SessionKey = (Namespace, SessionId);

/// The successes of every session, of the tasks in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::ledger::machine) struct Successes(BTreeMap<SessionKey, BTreeSet<(Seq, ReachId)>>);

impl Successes {
    fn put(&mut self, key: SessionKey, success: Success) {
        self.0.entry(key).or_default().insert((success.place, success.task));
    }

    fn take(&mut self, key: &SessionKey, success: Success) {
        if let Some(known) = self.0.get_mut(key) {
            known.remove(&(success.place, success.task));
            if known.is_empty() {
                self.0.remove(key);
            }
        }
    }
}

impl State {
    /// Where the chain of redrives began that a task in memory ends: with itself, if it was made of none. `None` for a
    /// task that is not in memory, and where an old link does not say it.
    #[must_use]
    pub fn origin(&self, id: ReachId) -> Option<Origin> {
        let task = self.task(id)?;
        match (self.origins.get(&id), self.kin(id).redrive_of) {
            (Some(origin), _) => Some(*origin),
            (None, None) => Some(Origin { task: id, seq: task.seqs.first().copied().unwrap_or_default() }),
            (None, Some(_)) => None,
        }
    }

    /// The newest success of a session, of the tasks in memory: those whose callback is outstanding, and those that are
    /// not yet durable.
    #[must_use]
    pub fn newest_success(&self, namespace: &Namespace, session: &SessionId) -> Option<Success> {
        let known = self.successes.0.get(&(namespace.clone(), session.clone()))?;
        known.last().map(|(place, task)| Success { place: *place, task: *task })
    }

    /// Why an orphan that the sweep would replay waits for a word instead.
    #[must_use]
    pub fn held(&self, id: ReachId) -> Option<HeldWhy> {
        self.held.get(&id).copied()
    }

    /// The success that this task in memory is, with its session.
    pub(in crate::ledger::machine) fn success_of(&self, task: &Task) -> Option<(SessionKey, Success)> {
        let session = task.spec.session.clone().filter(|_| task.status.kind() == StatusKind::Succeeded)?;
        let success = Success { place: self.origin(task.id())?.seq, task: task.id() };
        Some(((task.namespace.clone(), session), success))
    }

    /// Counts a task in memory as a success, if it is one.
    pub(in crate::ledger::machine) fn note_success(&mut self, id: ReachId) {
        if let Some((key, success)) = self.task(id).and_then(|task| self.success_of(task)) {
            self.successes.put(key, success);
        }
    }

    /// The same for one that leaves memory for good.
    pub(in crate::ledger::machine) fn forget_success(&mut self, id: ReachId) {
        if let Some((key, success)) = self.task(id).and_then(|task| self.success_of(task)) {
            self.successes.take(&key, success);
        }
    }
}
