//! How things leave memory, kept readable until the event that made them leave is durable (semantics 16).

use crate::ledger::ids::{BatchId, CallbackId, Namespace, ReachId, Seq};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::{KeyBinding, State};
use crate::ledger::time::Timestamp;

/// Something that left memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::ledger::machine) struct Departed<T> {
    /// The event that made it leave.
    pub(in crate::ledger::machine) seq: Seq,
    /// When.
    pub(in crate::ledger::machine) at: Timestamp,
    /// As it was then.
    pub(in crate::ledger::machine) value: T,
}

impl State {
    /// Lets a task leave memory if it has ended and no callback of it is open; otherwise does nothing.
    pub(in crate::ledger::machine) fn depart_if_done(&mut self, id: ReachId) {
        let done =
            |task: &crate::ledger::machine::task::Task| task.status.kind().is_terminal() && task.callbacks_open == 0;
        if self.tasks.get(&id).is_some_and(done)
            && let Some(value) = self.tasks.remove(&id)
        {
            self.departed.insert(id, value);
        }
    }

    /// Lets a settled batch leave memory.
    pub(in crate::ledger::machine) fn depart_batch(&mut self, id: BatchId) {
        if let Some(value) = self.batches.remove(&id) {
            self.departed_batches.insert(id, Departed { seq: self.seq, at: self.at, value });
        }
    }

    /// Lets a settled callback leave memory; its state must have been set before.
    pub(in crate::ledger::machine) fn depart_callback(&mut self, id: CallbackId) {
        if let Some(value) = self.callbacks.remove(&id) {
            self.callbacks_due.remove(&(value.next_at, id));
            self.departed_callbacks.insert(id, Departed { seq: self.seq, at: self.at, value });
        }
    }

    /// Binds an idempotency key; `binding.receipt` must be the event being applied (semantics 31).
    pub(in crate::ledger::machine) fn bind_key(&mut self, namespace: Namespace, key: Text, binding: KeyBinding) {
        self.keys.insert((namespace, key), binding);
    }
}
