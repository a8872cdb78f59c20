//! In-flight work found at start, resolved by rule (R-REC-1, semantics 8 and 32).
//!
//! Why it is short: effects are level-triggered, so a restart needs no outbox. Only two things cannot be picked up
//! again: a push whose answer went to the hub that is gone, and a batch whose request body went with its connection.

use crate::ledger::machine::State;
use crate::ledger::machine::batch::BatchPhase;
use crate::ledger::machine::command::{Command, Proposal};

/// What to propose after the fold and before anything else is taken.
///
/// - Every unacknowledged push counts as sent: nobody knows whether it arrived (semantics 8).
/// - Every open batch is closed with the lines that are known: a refused line left no event, so `total` is what was
///   accepted (semantics 32).
#[must_use]
pub fn resolve(state: &State) -> Vec<Proposal> {
    let pushes = state.pushes().iter().filter_map(|id| {
        let task = state.task(*id)?;
        let lease = task.status.lease()?;
        let command = Command::ResolvePushAtBoot { task: *id, attempt: lease.attempt };
        Some(Proposal::by_hub(Some(task.namespace.clone()), command))
    });
    let batches = state.batches().values().filter_map(|batch| match batch.phase {
        BatchPhase::Open => {
            let command = Command::CloseBatch { batch: batch.id, total: batch.accepted, refused: 0 };
            Some(Proposal::by_hub(Some(batch.namespace.clone()), command))
        }
        BatchPhase::Closed { .. } | BatchPhase::Settled { .. } => None,
    });
    pushes.chain(batches).collect()
}
