//! A replay plan: what an operator ordered after an incident, frozen, paced and accounted for item by item (R-REC-4).
//!
//! The list of its items is a body that `replay-planned` names (semantics 26); here is only where it stands and one
//! byte an item for what became of it. Each item is one command and one commit: its outcome and what it did to the
//! task stand or fall together, so a crash anywhere does nothing twice.
//!
//! ```text
//! planned ─► running ◄─► paused        running, paused ─► finished (completed, cancelled)
//! ```

pub(in crate::ledger::machine) mod apply;
pub(in crate::ledger::machine) mod decide;
pub mod judge;
pub mod order;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub(in crate::ledger) use decide::would_go;

use crate::ledger::ids::{Namespace, ReachId, ReplayId, Seq};
use crate::ledger::machine::event::Actor;
use crate::ledger::machine::task::spec::{BodyRef, Text};
use crate::ledger::time::Timestamp;

/// The most items of one plan: an operator narrows the selection of a larger one.
pub const MAX_ITEMS: u32 = 100_000;
/// Plans of one namespace that have not ended.
pub const MAX_REPLAYS: u32 = 16;

/// The operator's word on items that may have run and are not idempotent (semantics 40).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MayHaveRun {
    /// They are left alone.
    Skip,
    /// They go too: the operator knows that a second run does no harm.
    Include,
}

/// Where a plan stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReplayPhase {
    /// Frozen; it starts in the same commit.
    Planned,
    /// Items go at its rate.
    Running,
    /// Nothing goes until it is resumed (R5).
    Paused,
    /// It has ended.
    Finished(Ended),
}

impl ReplayPhase {
    /// The phase's name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Finished(Ended::Completed) => "completed",
            Self::Finished(Ended::Cancelled) => "cancelled",
        }
    }
}

/// How a plan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ended {
    /// Every item has its outcome.
    Completed,
    /// An operator called the rest off.
    Cancelled,
}

/// What a plan does with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ItemAction {
    /// An unfinished task goes back to the queue, under its own id.
    Replay,
    /// An ended one is made anew.
    Redrive,
}

/// What was done with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// It is back in the queue.
    Replayed,
    /// It was made anew.
    Redriven {
        /// The new task.
        successor: ReachId,
    },
}

/// Why an item was left alone (R-REC-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Skip {
    /// It has ended meanwhile.
    Finished,
    /// It waits elsewhere already: queued, scheduled, retrying or for approval.
    MovedOn,
    /// An agent holds it under a valid lease.
    HeldElsewhere,
    /// It was redriven before: a task is redriven at most once (semantics 40).
    AlreadyRedriven,
    /// A newer task of its session has succeeded since.
    Superseded,
    /// It may have run and is not idempotent, and the operator's word is missing.
    MayHaveRun,
    /// Its payload was erased.
    PayloadErased,
    /// It is in no state that the plan acts on.
    NotApplicable,
    /// There is no such task here.
    Unknown,
    /// It would not be accepted today: the schemas of whoever offers its capability now refuse its payload.
    NotAccepted,
    /// The plan patches payloads, and it has none here: a reference, or nothing.
    PayloadNotInline,
    /// Patched, its payload would be longer than a payload may be.
    PayloadTooLarge,
}

impl Skip {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::Finished,
        Self::MovedOn,
        Self::HeldElsewhere,
        Self::AlreadyRedriven,
        Self::Superseded,
        Self::MayHaveRun,
        Self::PayloadErased,
        Self::NotApplicable,
        Self::Unknown,
        Self::NotAccepted,
        Self::PayloadNotInline,
        Self::PayloadTooLarge,
    ];

    /// The reason's name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::MovedOn => "moved-on",
            Self::HeldElsewhere => "held-elsewhere",
            Self::AlreadyRedriven => "already-redriven",
            Self::Superseded => "superseded",
            Self::MayHaveRun => "may-have-run",
            Self::PayloadErased => "payload-erased",
            Self::NotApplicable => "not-applicable",
            Self::Unknown => "unknown",
            Self::NotAccepted => "not-accepted",
            Self::PayloadNotInline => "payload-not-inline",
            Self::PayloadTooLarge => "payload-too-large",
        }
    }
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ItemOutcome {
    /// Its turn has not come.
    Pending,
    /// It is back in the queue.
    Replayed,
    /// It was made anew; [`ReplayId::successor`] is the new task.
    Redriven,
    /// It was left alone.
    Skipped(Skip),
}

impl ItemOutcome {
    /// The outcome's name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Replayed => "replayed",
            Self::Redriven => "redriven",
            Self::Skipped(_) => "skipped",
        }
    }
}

/// One plan as the fold sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// Its id.
    pub id: ReplayId,
    /// Where it belongs.
    pub namespace: Namespace,
    /// Who ordered it: its items are that actor's doing.
    pub by: Actor,
    /// What was selected, as canonical JSON.
    pub select: Text,
    /// Why, in the operator's words.
    pub reason: Text,
    /// Items a second.
    pub rate: u32,
    /// The operator's word on what may have run.
    pub may_have_run: MayHaveRun,
    /// The list of its items.
    pub list: BodyRef,
    /// The last event that the selection is sure to have seen.
    pub position: Seq,
    /// Where it stands.
    pub phase: ReplayPhase,
    /// What became of each item, in the list's order.
    pub outcomes: Vec<ItemOutcome>,
    /// Items that have an outcome.
    pub settled: u32,
    /// When it was planned.
    pub planned_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Every event of its own but the items', in order.
    pub seqs: Vec<Seq>,
}

impl Replay {
    /// Items in all.
    #[must_use]
    pub fn total(&self) -> u32 {
        u32::try_from(self.outcomes.len()).unwrap_or(u32::MAX)
    }

    /// What became of the item at that place; `None` beyond the list.
    #[must_use]
    pub fn outcome(&self, index: u32) -> Option<ItemOutcome> {
        self.outcomes.get(usize::try_from(index).ok()?).copied()
    }
}
