//! What the core answers: events to write, and an answer or a reason.
//!
//! A refusal may still leave an event (a stale report is recorded, R-SCH-8), so the two stand side by side.

use crate::ledger::ids::{
    AgentId, AttemptNo, BatchId, CallbackId, Capability, Digest, Incarnation, ReachId, Seq, TokenId,
};
use crate::ledger::machine::KeySubject;
use crate::ledger::machine::bounds::Bound;
use crate::ledger::machine::event::EventBody;
use crate::ledger::machine::replay::ReplayPhase;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::time::{Millis, Timestamp};

/// Events to write, and what to tell the proposer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// In this order, in one commit.
    pub events: Vec<EventBody>,
    /// The answer, or why not.
    pub answer: Result<Answer, Rejection>,
}

impl Decision {
    /// A refusal that leaves no event.
    #[must_use]
    pub const fn refuse(reason: Rejection) -> Self {
        Self { events: Vec::new(), answer: Err(reason) }
    }

    /// An answer that needs no event.
    #[must_use]
    pub const fn nothing(answer: Answer) -> Self {
        Self { events: Vec::new(), answer: Ok(answer) }
    }

    /// An answer with its events.
    #[must_use]
    pub const fn accept(events: Vec<EventBody>, answer: Answer) -> Self {
        Self { events, answer: Ok(answer) }
    }
}

/// Which receipt an answer carries (semantics 25).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptOf {
    /// The last event of this very decision.
    Last,
    /// The first event of this very decision.
    First,
    /// An event of long ago: the answer repeats the first one.
    Earlier(Seq),
    /// None: heartbeats, timers.
    None,
}

/// What the proposer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The agent is registered.
    Registered {
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// The heartbeat was taken.
    Beat(Beat),
    /// The task was accepted.
    Submitted {
        /// Which task.
        task: ReachId,
        /// Where it stands.
        state: StatusKind,
        /// When its life is over.
        deadline: Timestamp,
        /// When its idempotency key is forgotten, if it has one.
        key_until: Option<Timestamp>,
    },
    /// An earlier submission with the same key and body: its first answer is to be shown again (semantics 31).
    Replayed {
        /// What the key is bound to.
        subject: KeySubject,
        /// The first answer's receipt.
        receipt: Seq,
        /// When the key is forgotten.
        key_until: Timestamp,
    },
    /// The task was handed over.
    Dispatched {
        /// Under which attempt.
        attempt: AttemptNo,
    },
    /// A report was taken.
    Reported {
        /// Where the task stands now.
        state: StatusKind,
        /// Which receipt.
        receipt: ReceiptOf,
        /// Was the progress only kept in memory (semantics 36)?
        coalesced: Coalesced,
    },
    /// A task command was taken.
    Task {
        /// Where the task stands now.
        state: StatusKind,
    },
    /// A word to a replay plan was taken.
    Replay {
        /// Where the plan stands now.
        phase: ReplayPhase,
    },
    /// The batch is open.
    BatchOpened,
    /// The batch is closed.
    BatchClosed,
    /// Done; there is nothing more to say.
    Done,
}

impl Answer {
    /// Which event is its receipt, after a step that wrote `first..=last` (none if `last` lies before `first`).
    #[must_use]
    pub fn receipt(&self, first: Seq, last: Seq) -> Option<Seq> {
        let wrote = last >= first;
        match self {
            Self::Reported { receipt, .. } => match receipt {
                ReceiptOf::Last => wrote.then_some(last),
                ReceiptOf::First => wrote.then_some(first),
                ReceiptOf::Earlier(seq) => Some(*seq),
                ReceiptOf::None => None,
            },
            Self::Replayed { receipt, .. } => Some(*receipt),
            Self::Beat(_) => None,
            Self::Registered { .. }
            | Self::Submitted { .. }
            | Self::Dispatched { .. }
            | Self::Task { .. }
            | Self::Replay { .. }
            | Self::BatchOpened
            | Self::BatchClosed
            | Self::Done => wrote.then_some(first),
        }
    }
}

/// Was a progress report written or only remembered?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coalesced {
    /// Not written: too soon after the last one, or too many.
    Yes,
    /// Written.
    No,
}

/// What a heartbeat's answer tells the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beat {
    /// End of the drain's grace, while it drains.
    pub drain_until: Option<Timestamp>,
    /// Attempts whose tasks ended without its word: stop working on them.
    pub cancelled: Vec<(ReachId, AttemptNo)>,
    /// Attempts that it listed and whose lease is no longer valid.
    pub lost: Vec<(ReachId, AttemptNo)>,
}

/// Every reason for which the core can refuse: the caller's doing, each with what it needs to be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// No such task here.
    TaskUnknown,
    /// No such agent here.
    AgentUnknown,
    /// No such batch here.
    BatchUnknown,
    /// No such callback here.
    CallbackUnknown,
    /// No such replay plan here.
    ReplayUnknown,
    /// No such token.
    TokenUnknown,
    /// A call of an older process (R-REG-3).
    IncarnationSuperseded {
        /// The one that holds.
        current: Incarnation,
    },
    /// The agent said goodbye or was deregistered; it must register first.
    AgentNotRegistered,
    /// The agent is draining and gets no work.
    AgentDraining,
    /// Nobody offers the capability (R-RTE-1).
    CapabilityNotRegistered {
        /// Which one.
        capability: Capability,
    },
    /// The token's capabilities do not include it.
    CapabilityNotAllowed {
        /// Which one.
        capability: Capability,
    },
    /// Every schema of every offer refuses the payload.
    PayloadRefused {
        /// The schemas that refused it.
        schemas: Vec<Digest>,
    },
    /// The deadline lies in the past.
    DeadlinePast {
        /// What was asked.
        deadline: Timestamp,
        /// Ledger time.
        now: Timestamp,
    },
    /// `not_before` lies at or after the deadline.
    NotBeforeAfterDeadline,
    /// A bound is reached (semantics 22): 429.
    QueueFull {
        /// Which bound: `lane`, `namespace`, or `agent` for what the capability's agents let wait; `batches` or
        /// `callbacks` for those outstanding.
        bound: &'static str,
        /// Its size for this class.
        limit: u32,
        /// Try again after.
        retry_after: Millis,
    },
    /// So many are there, and they stay until somebody removes one.
    BoundReached {
        /// Of what.
        bound: Bound,
    },
    /// The idempotency key was used with another body (422).
    KeyReused {
        /// Fingerprint of the first body; `None` if another subject's.
        first: Option<Digest>,
        /// Fingerprint of this one.
        this: Digest,
    },
    /// The id exists already: a draw that collided, or a repeat.
    IdTaken,
    /// Attempt or lease is not the valid one.
    LeaseSuperseded {
        /// In words: which, and what holds now.
        why: LeaseWhy,
    },
    /// This lease already gave another outcome.
    OutcomeConflict {
        /// The first outcome's event.
        first: Seq,
    },
    /// The task has ended.
    TaskTerminal {
        /// How.
        state: StatusKind,
        /// By which event.
        seq: Seq,
    },
    /// Only an idempotent task may be released after its acknowledgement (semantics 13).
    AlreadyAcknowledged,
    /// Only a task that awaits approval can be approved or refused.
    NotAwaitingApproval {
        /// Where it stands.
        state: StatusKind,
    },
    /// Only a slow or an orphaned task can be decided on.
    NotResolvable {
        /// Where it stands.
        state: StatusKind,
    },
    /// Only an ended task can be made anew, and only one that failed, was given up or expired.
    NotRedrivable {
        /// Where it stands.
        state: StatusKind,
    },
    /// It was made anew before (semantics 40).
    AlreadyRedriven {
        /// As which task.
        successor: ReachId,
    },
    /// A newer task of its session has succeeded since.
    Superseded {
        /// Which one.
        by: ReachId,
    },
    /// It may have run and is not idempotent: it takes the operator's word (semantics 40).
    MayHaveRun,
    /// Its payload was erased.
    PayloadErased,
    /// A plan over nothing.
    ReplayEmpty,
    /// A plan over too much.
    ReplayTooLarge {
        /// Items at most.
        limit: u32,
    },
    /// No rate.
    ReplayRate {
        /// Items a second at most.
        most: u32,
    },
    /// The plan has ended.
    ReplayEnded {
        /// How.
        phase: ReplayPhase,
    },
    /// The plan does not run, or the item has its outcome: its planner's stale view, harmless.
    ReplayMovedOn {
        /// Where the plan stands.
        phase: ReplayPhase,
    },
    /// The task is not where the proposal thought: a planner's or sweep's stale view, harmless.
    MovedOn {
        /// Where it stands.
        state: StatusKind,
    },
    /// The agent has no free slot (S8).
    NoFreeSlot {
        /// Which agent.
        agent: AgentId,
    },
    /// The agent's breaker for the capability lets nothing through now (R-RTE-7).
    BreakerOpen {
        /// Which agent.
        agent: AgentId,
        /// Of which capability.
        capability: Capability,
    },
    /// The agent does not offer the capability.
    CapabilityNotOffered {
        /// Which one.
        capability: Capability,
    },
    /// The agent may not be given work now (S7).
    AgentNotOpen {
        /// Which agent.
        agent: AgentId,
    },
    /// The batch is no longer open.
    BatchNotOpen {
        /// Which batch.
        batch: BatchId,
    },
    /// The callback is still being tried.
    CallbackStillDue {
        /// Which callback.
        callback: CallbackId,
    },
    /// A token of that id exists.
    TokenTaken {
        /// Which one.
        token: TokenId,
    },
    /// The declaration does not fit one event (semantics 26).
    DeclarationTooLarge {
        /// Encoded bytes at most.
        limit: u32,
    },
    /// There is no version before to go back to.
    NothingToUndo,
    /// The policy's fields contradict each other.
    PolicyInvalid {
        /// Which rule is broken.
        why: &'static str,
    },
}

/// Which part of a lease is not the valid one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseWhy {
    /// An older or unknown attempt; the current one is named.
    Attempt(AttemptNo),
    /// The attempt is current but the token is not its.
    Token,
    /// The attempt's lease ended and none is valid now.
    Ended,
    /// The acknowledgement names another agent or an older incarnation.
    Holder,
}

impl Rejection {
    /// Is it only a stale view of the hub's own planner or sweep?
    #[must_use]
    pub const fn is_stale_view(&self) -> bool {
        matches!(
            self,
            Self::MovedOn { .. }
                | Self::NoFreeSlot { .. }
                | Self::AgentNotOpen { .. }
                | Self::BreakerOpen { .. }
                | Self::ReplayMovedOn { .. }
                | Self::QueueFull { .. }
        )
    }
}
