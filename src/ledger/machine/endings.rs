//! How the tasks of a namespace ended, counted as they end.
//!
//! Why counted: what has ended leaves memory, and nobody at 3 a.m. should wait for a walk through a history to learn how
//! much went wrong. A count cannot be derived from what is left, so it is part of the state and of its snapshots.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::Namespace;
use crate::ledger::machine::State;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::time::Timestamp;

/// Tasks that ended in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// How many.
    pub count: u64,
    /// When the last of them did.
    pub last: Timestamp,
}

/// How the tasks of a namespace ended, since its first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endings {
    /// By terminal state; no other is in it.
    pub by_state: BTreeMap<StatusKind, Ending>,
    /// How many ended tasks were made anew; each at most once (semantics 40).
    pub redriven: u64,
}

impl State {
    /// A task has ended, at the event that is being applied.
    pub(in crate::ledger::machine) fn count_ending(&mut self, namespace: &Namespace, how: StatusKind) {
        let last = self.at;
        let endings = self.endings.entry(namespace.clone()).or_default();
        let ending = endings.by_state.entry(how).or_insert(Ending { count: 0, last });
        *ending = Ending { count: ending.count.saturating_add(1), last };
    }

    /// An ended task was made anew.
    pub(in crate::ledger::machine) fn count_redrive(&mut self, namespace: &Namespace) {
        let endings = self.endings.entry(namespace.clone()).or_default();
        endings.redriven = endings.redriven.saturating_add(1);
    }
}
