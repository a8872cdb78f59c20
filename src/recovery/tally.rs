//! How many items of plans got which outcome since this start: a figure for operators, derived and never asked by a rule.

use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::replay::Done;

/// Items by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Back in the queue.
    pub replayed: u64,
    /// Made anew.
    pub redriven: u64,
    /// Left alone.
    pub skipped: u64,
}

impl Tally {
    pub(super) fn observe(&mut self, event: &Event) {
        if let EventBody::ReplayItemDone(body) = &event.body {
            match body.done {
                Done::Replayed => self.replayed += 1,
                Done::Redriven { .. } => self.redriven += 1,
            }
        } else if let EventBody::ReplayItemSkipped(_) = &event.body {
            self.skipped += 1;
        }
    }
}
