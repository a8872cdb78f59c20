//! Orphans of one session in one line (R4): by submission, the next only when the former one is with its new agent.
//!
//! Why a line and not a sort: what was replayed first is not handed over first, once it waits in a queue. So the next is
//! called when the former one was acknowledged, or has ended. What a plan or an operator sent back counts like what the
//! sweep did. An orphan that is held for a word stands in no line.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::ids::{Namespace, ReachId, Seq, SessionId};
use crate::ledger::machine::State;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::{Acked, Status};

/// A session within its namespace.
pub(super) type SessionKey = (Namespace, SessionId);

#[derive(Debug, Default)]
struct Line {
    /// By submission.
    waiting: BTreeSet<(Seq, ReachId)>,
    called: Option<ReachId>,
    /// Sent back to the queue at that event, and not with an agent since.
    out: BTreeMap<ReachId, Seq>,
}

/// Who steps out of the sweep's index, and who into it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) stands_back: Option<ReachId>,
    pub(super) called: Option<ReachId>,
}

/// The lines of all sessions that have orphans.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    lines: BTreeMap<SessionKey, Line>,
    out: BTreeMap<ReachId, SessionKey>,
}

/// The session of a task.
pub(super) fn session_of(task: &Task) -> Option<SessionKey> {
    Some((task.namespace.clone(), task.spec.session.clone()?))
}

/// Its place in the line.
pub(super) fn place_of(task: &Task) -> (Seq, ReachId) {
    (task.seqs.first().copied().unwrap_or_default(), task.id())
}

impl Sessions {
    /// An orphan joins its line; it is out no more.
    pub(super) fn join(&mut self, key: &SessionKey, place: (Seq, ReachId)) -> Change {
        let line = self.lines.entry(key.clone()).or_default();
        line.waiting.insert(place);
        line.out.remove(&place.1);
        self.out.remove(&place.1);
        self.settle(key)
    }

    /// It waits no more.
    pub(super) fn leave(&mut self, key: &SessionKey, place: (Seq, ReachId)) -> Change {
        if let Some(line) = self.lines.get_mut(key) {
            line.waiting.remove(&place);
        }
        self.settle(key)
    }

    /// It was sent back to the queue at that event: nobody is called until it is with an agent.
    pub(super) fn go_out(&mut self, key: SessionKey, task: ReachId, at: Seq) -> Change {
        self.lines.entry(key.clone()).or_default().out.insert(task, at);
        self.out.insert(task, key.clone());
        self.settle(&key)
    }

    /// A task moved: if it was out and is no more, the next is called.
    pub(super) fn look_at(&mut self, state: &State, id: ReachId) -> Change {
        let Some(key) = self.out.get(&id).cloned() else { return Change::default() };
        let since = self.lines.get(&key).and_then(|line| line.out.get(&id)).copied().unwrap_or_default();
        if state.task(id).is_some_and(|task| is_out(task, since)) {
            return Change::default();
        }
        self.out.remove(&id);
        if let Some(line) = self.lines.get_mut(&key) {
            line.out.remove(&id);
        }
        self.settle(&key)
    }

    fn settle(&mut self, key: &SessionKey) -> Change {
        let Some(line) = self.lines.get_mut(key) else { return Change::default() };
        let next = line.waiting.first().map(|(_, id)| *id).filter(|_| line.out.is_empty());
        let before = std::mem::replace(&mut line.called, next);
        if line.waiting.is_empty() && line.out.is_empty() {
            self.lines.remove(key);
        }
        if before == next { Change::default() } else { Change { stands_back: before, called: next } }
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

/// After a start: may it have been sent back and not be with an agent since? Its state does not tell a replay from a
/// retry, so whatever was handed over before and waits, or is handed over again, holds up its session until it is
/// acknowledged once more.
pub(super) fn may_be_out(task: &Task) -> Option<Seq> {
    let before = |handed: u32| (task.attempt.0 >= handed).then(|| task.acked.map_or(Seq(0), |(_, seq)| seq));
    match task.status {
        Status::Queued { .. } | Status::Retrying { .. } => before(1),
        Status::Dispatched { .. } | Status::SlowReach { acked: Acked::No, .. } => before(2),
        Status::AwaitingApproval
        | Status::Scheduled { .. }
        | Status::Processing { .. }
        | Status::SlowReach { acked: Acked::Yes, .. }
        | Status::Orphaned { .. }
        | Status::Succeeded
        | Status::Failed
        | Status::DeadLetter
        | Status::Expired
        | Status::Cancelled => None,
    }
}
