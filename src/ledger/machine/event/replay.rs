//! Events of replay plans: what an operator ordered, and what became of each item.

use crate::ledger::ids::{ReachId, ReplayId, Seq};
use crate::ledger::machine::replay::{Done, Ended, MayHaveRun, Skip};
use crate::ledger::machine::task::spec::{BodyRef, IdempotencyKey, Text};

event_structs! {
    /// A plan was frozen: these items, at this position of the ledger.
    ReplayPlanned {
        /// Which plan.
        replay: ReplayId,
        /// What was selected, as canonical JSON.
        select: Text,
        /// Why, in the operator's words.
        reason: Text,
        /// Items a second.
        rate: u32,
        /// The operator's word on what may have run.
        may_have_run: MayHaveRun,
        /// Items.
        total: u32,
        /// Their list, a body (semantics 26).
        list: BodyRef,
        /// The last event that the selection is sure to have seen.
        position: Seq,
        /// The merge patch of its items' payloads, which stands in the list's body; the digest is under that body's
        /// salt.
        patch: Option<BodyRef>,
        /// The key by which a repeat of the order is known.
        idempotency: Option<IdempotencyKey>,
    }
    /// It runs.
    ReplayStarted {
        /// Which plan.
        replay: ReplayId,
    }
    /// An item was replayed or redriven; the task's own events follow in the same commit.
    ReplayItemDone {
        /// Which plan.
        replay: ReplayId,
        /// Its place in the list, from 0.
        index: u32,
        /// Which task.
        task: ReachId,
        /// What was done.
        done: Done,
    }
    /// An item was left alone.
    ReplayItemSkipped {
        /// Which plan.
        replay: ReplayId,
        /// Its place in the list, from 0.
        index: u32,
        /// Which task.
        task: ReachId,
        /// Why.
        skip: Skip,
    }
    /// It dispatches nothing more until it is resumed.
    ReplayPaused {
        /// Which plan.
        replay: ReplayId,
        /// Why, in the operator's words.
        reason: Option<Text>,
    }
    /// It goes on.
    ReplayResumed {
        /// Which plan.
        replay: ReplayId,
        /// Why, in the operator's words; version 1 did not say it.
        reason: Option<Text>,
    }
    /// It goes on at another rate.
    ReplayRateChanged {
        /// Which plan.
        replay: ReplayId,
        /// Items a second from now on.
        rate: u32,
    }
    /// Every item has its outcome, or the operator called the rest off.
    ReplayFinished {
        /// Which plan.
        replay: ReplayId,
        /// How it ended.
        ended: Ended,
        /// Why it was called off, in the operator's words.
        reason: Option<Text>,
    }
}
