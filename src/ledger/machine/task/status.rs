//! The states of a task; each variant has exactly the data that the state has, so that an illegal state does not compile.

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{AgentId, AttemptNo, Incarnation, LeaseDigest};
use crate::ledger::time::Timestamp;

/// How an attempt reaches its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// The agent claimed it. Unacknowledged means: not started.
    Pull,
    /// The hub posts it. Sent and unanswered means: nobody knows (semantics 8).
    Push,
}

/// The right to work on a task; at most one is valid (S3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Which dispatch.
    pub attempt: AttemptNo,
    /// To whom.
    pub agent: AgentId,
    /// To which process of it.
    pub incarnation: Incarnation,
    /// SHA-256 of the token; the token itself is never stored.
    pub digest: LeaseDigest,
    /// How it was handed over.
    pub delivery: Delivery,
}

/// Did the agent acknowledge this lease?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Acked {
    /// Yes: it may have started.
    Yes,
    /// No.
    No,
}

/// Why a task is in `slow-reach`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlowCause {
    /// Over its work time.
    Overdue,
    /// A push that may have arrived, unanswered.
    Ambiguous,
}

/// Why a task is `orphaned`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrphanCause {
    /// Its agent missed its heartbeats.
    AgentLost,
    /// Its agent said goodbye.
    AgentLeft,
    /// A new incarnation took its agent's place.
    AgentReplaced,
    /// Its agent was drained.
    AgentDrained,
    /// The end of the ledger was lost: nobody knows who holds it now, and its lease is void (semantics 24).
    LossAccepted,
}

/// Where a task stands. Who moves it on, and how long it may stay, stands with each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Held for a person's word; approver or deadline moves it on.
    AwaitingApproval,
    /// Not before `until`; the timer moves it on.
    Scheduled {
        /// When it enters the queue.
        until: Timestamp,
    },
    /// Waits for an agent with a free slot; planner, wait budget, deadline or cancel moves it on.
    Queued {
        /// Since when: the wait budget starts anew at each entry (semantics 12).
        since: Timestamp,
        /// When the wait budget is spent; `None` when unbounded or already told.
        wait_until: Option<Timestamp>,
    },
    /// Handed over, not acknowledged; ack, reach timeout, loss, deadline or cancel moves it on.
    Dispatched {
        /// The valid lease.
        lease: Lease,
        /// When the reach time is over.
        reach_deadline: Timestamp,
    },
    /// Acknowledged; completion, work timeout, loss, deadline or cancel moves it on.
    Processing {
        /// The valid lease.
        lease: Lease,
        /// When the work time is over.
        work_deadline: Timestamp,
    },
    /// Overdue or ambiguous, may still be running; a late report, its policy, an operator, loss, deadline or cancel moves it on.
    SlowReach {
        /// The still valid lease.
        lease: Lease,
        /// Whether it was acknowledged.
        acked: Acked,
        /// Why.
        cause: SlowCause,
        /// When the task's policy acts; `None` for "wait".
        act_at: Option<Timestamp>,
    },
    /// A safe retry waits for its time; the timer moves it on.
    Retrying {
        /// When it enters the queue.
        until: Timestamp,
    },
    /// Its agent is gone; replay, a late completion, policy, deadline or cancel moves it on.
    Orphaned {
        /// Valid until the replay; after an accepted loss no token fits it.
        lease: Lease,
        /// Why.
        cause: OrphanCause,
        /// Since when.
        since: Timestamp,
    },
    /// Terminal: the agent's success.
    Succeeded,
    /// Terminal: the agent's failure.
    Failed,
    /// Terminal: the hub gave up.
    DeadLetter,
    /// Terminal: lifetime over.
    Expired,
    /// Terminal: called off.
    Cancelled,
}

/// The states without their data, for tables, counts and the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StatusKind {
    /// `awaiting-approval`
    AwaitingApproval,
    /// `scheduled`
    Scheduled,
    /// `queued`
    Queued,
    /// `dispatched`
    Dispatched,
    /// `processing`
    Processing,
    /// `slow-reach`
    SlowReach,
    /// `retrying`
    Retrying,
    /// `orphaned`
    Orphaned,
    /// `succeeded`
    Succeeded,
    /// `failed`
    Failed,
    /// `dead-letter`
    DeadLetter,
    /// `expired`
    Expired,
    /// `cancelled`
    Cancelled,
}

impl StatusKind {
    /// Every state, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::AwaitingApproval,
        Self::Scheduled,
        Self::Queued,
        Self::Dispatched,
        Self::Processing,
        Self::SlowReach,
        Self::Retrying,
        Self::Orphaned,
        Self::Succeeded,
        Self::Failed,
        Self::DeadLetter,
        Self::Expired,
        Self::Cancelled,
    ];

    /// The state's name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwaitingApproval => "awaiting-approval",
            Self::Scheduled => "scheduled",
            Self::Queued => "queued",
            Self::Dispatched => "dispatched",
            Self::Processing => "processing",
            Self::SlowReach => "slow-reach",
            Self::Retrying => "retrying",
            Self::Orphaned => "orphaned",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::DeadLetter => "dead-letter",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Terminal is final: nobody moves it on (S2).
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::DeadLetter | Self::Expired | Self::Cancelled => true,
            Self::AwaitingApproval
            | Self::Scheduled
            | Self::Queued
            | Self::Dispatched
            | Self::Processing
            | Self::SlowReach
            | Self::Retrying
            | Self::Orphaned => false,
        }
    }
}

impl Status {
    /// The state without its data.
    #[must_use]
    pub const fn kind(&self) -> StatusKind {
        match self {
            Self::AwaitingApproval => StatusKind::AwaitingApproval,
            Self::Scheduled { .. } => StatusKind::Scheduled,
            Self::Queued { .. } => StatusKind::Queued,
            Self::Dispatched { .. } => StatusKind::Dispatched,
            Self::Processing { .. } => StatusKind::Processing,
            Self::SlowReach { .. } => StatusKind::SlowReach,
            Self::Retrying { .. } => StatusKind::Retrying,
            Self::Orphaned { .. } => StatusKind::Orphaned,
            Self::Succeeded => StatusKind::Succeeded,
            Self::Failed => StatusKind::Failed,
            Self::DeadLetter => StatusKind::DeadLetter,
            Self::Expired => StatusKind::Expired,
            Self::Cancelled => StatusKind::Cancelled,
        }
    }

    /// The valid lease, where there is one.
    #[must_use]
    pub const fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Dispatched { lease, .. }
            | Self::Processing { lease, .. }
            | Self::SlowReach { lease, .. }
            | Self::Orphaned { lease, .. } => Some(lease),
            Self::AwaitingApproval
            | Self::Scheduled { .. }
            | Self::Queued { .. }
            | Self::Retrying { .. }
            | Self::Succeeded
            | Self::Failed
            | Self::DeadLetter
            | Self::Expired
            | Self::Cancelled => None,
        }
    }

    /// The state's own timer; the task's deadline comes beside it (T3).
    #[must_use]
    pub const fn timer(&self) -> Option<Timestamp> {
        match self {
            Self::Scheduled { until } | Self::Retrying { until } => Some(*until),
            Self::Queued { wait_until, .. } => *wait_until,
            Self::Dispatched { reach_deadline, .. } => Some(*reach_deadline),
            Self::Processing { work_deadline, .. } => Some(*work_deadline),
            Self::SlowReach { act_at, .. } => *act_at,
            Self::AwaitingApproval
            | Self::Orphaned { .. }
            | Self::Succeeded
            | Self::Failed
            | Self::DeadLetter
            | Self::Expired
            | Self::Cancelled => None,
        }
    }
}
