//! What operators order, and what a shell reads for it from disk right before the decision (semantics 16).

use std::sync::Arc;

use crate::ledger::ids::{ReachId, ReplayId, Seq};
use crate::ledger::machine::KeyBinding;
use crate::ledger::machine::replay::{ItemAction, MayHaveRun, Skip};
use crate::ledger::machine::success::Origin;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::{BodyRef, IdempotencyKey, SchemaVerdicts, Text};

/// A plan, frozen by the API: nothing in it changes afterwards but its rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayOrder {
    /// Its id, drawn by the API.
    pub replay: ReplayId,
    /// What was selected, as canonical JSON.
    pub select: Text,
    /// Why.
    pub reason: Text,
    /// Items a second, 1 to 100,000.
    pub rate: u32,
    /// The operator's word on what may have run.
    pub may_have_run: MayHaveRun,
    /// Items, 1 to 100,000.
    pub total: u32,
    /// Their list.
    pub list: BodyRef,
    /// The last event that the selection is sure to have seen.
    pub position: Seq,
    /// The patch of its items' payloads, which stands in the list; the digest is under the list's salt.
    pub patch: Option<BodyRef>,
    /// The key by which a repeat is known.
    pub idempotency: Option<IdempotencyKey>,
    /// The key's binding, if the shell found one on disk.
    pub bound: Option<KeyBinding>,
}

/// An operator's word to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayWord {
    /// Dispatch nothing more until resumed.
    Pause {
        /// Why.
        reason: Option<Text>,
    },
    /// Go on.
    Resume {
        /// Why.
        reason: Option<Text>,
    },
    /// Call the rest off.
    Cancel {
        /// Why.
        reason: Option<Text>,
    },
    /// Go on at another rate.
    Rate {
        /// Items a second, 1 to 100,000.
        rate: u32,
    },
}

/// An item's turn. The planner proposes it, as often as it likes: only the first does anything (R3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayItem {
    /// Of which plan.
    pub replay: ReplayId,
    /// Its place in the list.
    pub index: u32,
    /// Which task.
    pub task: ReachId,
    /// What is to be done.
    pub action: ItemAction,
    /// What its list says of its payload.
    pub amendment: Option<Amendment>,
    /// What the shell read of the task.
    pub before: Option<Before>,
}

/// What the list of a plan says of an item's payload: only of one that is made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amendment {
    /// A JSON merge patch to be applied to it.
    pub patch: Option<Arc<[u8]>>,
    /// Verdicts over the payload, patched or as it is, by the schemas of the moment when the plan was made.
    pub schemas: Arc<SchemaVerdicts>,
}

/// What the shell made of a payload that a plan patches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patched {
    /// Not made: the rules are asked first whether the item goes, were its payload there as it should be. One that goes
    /// is never decided on with this.
    NotMade,
    /// Another payload.
    Made(BodyRef),
    /// None: the item is left alone for that.
    Left(Skip),
}

/// What a shell read of a task that is to be replayed or made anew, if it is on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Before {
    /// Its final row, if it is no longer in memory.
    pub finished: Option<Arc<Task>>,
    /// The new task that was made of it, if one was.
    pub redriven_as: Option<ReachId>,
    /// Is its payload still there? Where it is to be patched and that is not made, nobody has looked.
    pub has_payload: bool,
    /// A newer task of its session that has succeeded.
    pub superseded_by: Option<ReachId>,
    /// Where the chain of redrives began that it ends; itself, if it was made of none.
    pub origin: Option<Origin>,
    /// What became of its payload, where the plan patches it and it is there.
    pub patched: Option<Patched>,
}

/// Another payload for a task that is made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correction {
    /// The payload.
    pub payload: BodyRef,
    /// Verdicts of the schema checks over it.
    pub schemas: SchemaVerdicts,
}

/// One ended task, to be made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveOrder {
    /// Which task.
    pub task: ReachId,
    /// The new one's id, drawn by the API.
    pub successor: ReachId,
    /// The operator's word on what may have run.
    pub may_have_run: MayHaveRun,
    /// Another payload.
    pub correction: Option<Correction>,
    /// Verdicts of today's schemas over the payload that it keeps, where they were asked.
    pub schemas: Option<SchemaVerdicts>,
    /// Why.
    pub reason: Text,
    /// What the shell read of the task.
    pub before: Option<Before>,
}
