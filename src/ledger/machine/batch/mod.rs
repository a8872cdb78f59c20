//! A batch: many submissions under one id, with progress and one callback when all have ended (R-SUB-2).

pub(in crate::ledger::machine) mod apply;
pub(in crate::ledger::machine) mod decide;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{BatchId, Namespace, Seq};
use crate::ledger::machine::callback::{CallbackSpec, CallbackStanding, CallbackState};
use crate::ledger::machine::task::spec::IdempotencyKey;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::time::Timestamp;

/// The most lines in one batch (semantics 32).
pub const MAX_LINES: u32 = 100_000;

/// Is the request's body over?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchPhase {
    /// Lines may still come.
    Open,
    /// All lines came; waits for its tasks.
    Closed {
        /// Every line counted, refused ones too.
        total: u32,
        /// Lines that were refused; they count as settled.
        refused: u32,
    },
    /// Every task has ended.
    Settled {
        /// As in `Closed`.
        total: u32,
        /// As in `Closed`.
        refused: u32,
    },
}

/// One batch as the fold sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Its id.
    pub id: BatchId,
    /// Where it belongs.
    pub namespace: Namespace,
    /// Where it stands.
    pub phase: BatchPhase,
    /// Whom to tell when it has settled.
    pub callback: Option<CallbackSpec>,
    /// How that callback stands.
    pub callback_standing: Option<CallbackStanding>,
    /// Key against double submission.
    pub idempotency: Option<IdempotencyKey>,
    /// Accepted tasks.
    pub accepted: u32,
    /// Tasks by state; terminal ones stay counted.
    pub by_state: BTreeMap<StatusKind, u32>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Every event of its own, in order.
    pub seqs: Vec<Seq>,
}

impl Batch {
    /// Accepted tasks that have ended.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.by_state.iter().filter(|(kind, _)| kind.is_terminal()).map(|(_, count)| *count).sum()
    }

    /// Has it settled, and been told of to whom it was asked to be told? Then it leaves memory.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let settled = match self.phase {
            BatchPhase::Settled { .. } => true,
            BatchPhase::Open | BatchPhase::Closed { .. } => false,
        };
        let told = match (&self.callback, self.callback_standing) {
            (None, None) => true,
            (Some(_), None) => false,
            (_, Some(standing)) => standing.state != CallbackState::Due,
        };
        settled && told
    }
}
