//! Events: what happened, in the past tense, each with an explicit stable code.
//!
//! An event is never changed once a release has written it: a new shape is a new version of its kind, upcast on read.
//! No serde attributes here: they break the binary form (docs/ledger-format.md).
//!
//! `kinds.rs` is the table of kinds; the bodies stand by noun.

macro_rules! event_structs {
    ($( $(#[$doc:meta])* $name:ident { $( $(#[$fdoc:meta])* $field:ident : $ty:ty ),* $(,)? } )*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name { $( $(#[$fdoc])* pub $field: $ty, )* }
    )* };
}

pub mod access;
pub mod agent;
pub mod batch;
pub mod breaker;
pub mod callback;
mod kinds;
pub mod ledger;
pub mod replay;
pub mod task;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{
    AgentId, BatchId, Capability, Incarnation, Namespace, ReachId, ReplayId, Seq, SessionId, TokenId, TraceContext,
};
use crate::ledger::machine::callback::{CallbackState, CallbackSubject};
use crate::ledger::machine::task::OutcomeKind;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::{Millis, Timestamp};

pub use access::*;
pub use agent::*;
pub use batch::*;
pub use breaker::*;
pub use callback::*;
pub(crate) use kinds::for_each_event_body;
pub use kinds::{EventBody, EventKind};
pub use ledger::*;
pub use replay::*;
pub use task::*;

/// Who did it (R-AUD-4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Actor {
    /// The hub itself: a timer, the planner, a sweep.
    Hub,
    /// A caller or operator, by token.
    Token(TokenId),
    /// An agent's process.
    Agent {
        /// Which agent.
        agent_id: AgentId,
        /// Which process of it, as it said.
        incarnation: Incarnation,
    },
}

/// One event: the envelope and what happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its place, dense from 1.
    pub seq: Seq,
    /// Ledger time; never goes back (T1).
    pub at: Timestamp,
    /// Where it belongs; `None` for the hub's own events.
    pub namespace: Option<Namespace>,
    /// Who did it.
    pub actor: Actor,
    /// The task's session, where it has one.
    pub session: Option<SessionId>,
    /// The task's batch, where it has one.
    pub batch: Option<BatchId>,
    /// The caller's trace.
    pub trace: Option<TraceContext>,
    /// What happened.
    pub body: EventBody,
}

/// One candidate in a stored explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoredCandidate {
    /// Which agent.
    pub agent: AgentId,
    /// Its score by part: (part, thousandths).
    pub score: Vec<(Text, i64)>,
}

/// One reason that excluded agents, with at most 3 of them by name (semantics 26).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusion {
    /// A stable word such as `no-free-slot`, `draining`, `schema`.
    pub reason: Text,
    /// How many agents it excluded.
    pub count: u32,
    /// At most 3 of them.
    pub samples: Vec<AgentId>,
}

/// Why this agent: compact, kept in the ledger (R-RTE-8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The strategy's name.
    pub strategy: Text,
    /// The winner's score by part: (part, thousandths).
    pub score: Vec<(Text, i64)>,
    /// At most 5 others, best first.
    pub runners_up: Vec<ScoredCandidate>,
    /// What excluded the rest.
    pub exclusions: Vec<Exclusion>,
    /// The version of the routing rules that held; `None` where the agents' own word did.
    pub rules: Option<u32>,
}

/// Why a text was routed to a capability (R-RTE-4): figures and names, none of its words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRoute {
    /// By what it was found: `name`, `examples` or `words`.
    pub by: Text,
    /// How well it fits, in thousandths.
    pub score: u32,
    /// What a score had to reach, in thousandths.
    pub threshold: u32,
    /// At most 5 others, best first, with their scores in thousandths.
    pub near: Vec<(Capability, u32)>,
}

/// Why a task entered the queue again (semantics 35).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueuedWhy {
    /// Its `not_before` came.
    NotBeforeReached,
    /// A person approved it.
    Approved,
    /// Its retry is due.
    RetryDue,
    /// Its agent gave it back unstarted.
    Released,
    /// It was handed over unacknowledged and its agent is gone.
    NeverStarted,
    /// It was replayed from an orphan.
    Replayed,
}

/// Why an orphan is not replayed by itself although its policy is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeldWhy {
    /// A newer task of its session has succeeded (R-REC-3).
    Superseded {
        /// Which.
        by: ReachId,
    },
}

impl HeldWhy {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superseded { .. } => "superseded",
        }
    }
}

/// Why a retry waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryWhy {
    /// A failed attempt is tried again.
    AttemptFailed,
    /// An unstarted one came back and waits before it is offered again.
    Returned,
}

/// Why a stale report was refused (semantics 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StaleWhy {
    /// Attempt or lease is not the valid one.
    LeaseSuperseded,
    /// The task has ended.
    TaskTerminal,
    /// This lease already gave another outcome.
    OutcomeConflict,
}

/// How one try of a callback ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TryOutcome {
    /// The receiver said 2xx.
    Delivered {
        /// HTTP status.
        status: u16,
    },
    /// Anything that another try may mend.
    Failed {
        /// A short stable word: `http-500`, `connect`, `timeout`, `redirect`.
        error: Text,
        /// The receiver's `Retry-After`, cut to 24 h.
        retry_after: Option<Millis>,
    },
    /// The receiver said 410.
    Gone,
    /// The egress guard refuses the address.
    Blocked {
        /// Which rule.
        error: Text,
    },
}

/// Did an attempt provably never start?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Started {
    /// It never did: retrying is safe whatever the task.
    Never,
    /// It did, or nobody knows; costs a retry.
    Maybe,
}

/// Did a push agent say that the work had been done before?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlreadyDone {
    /// 409 in answer to the push.
    Yes,
    /// No: this is the first result.
    No,
}

/// What an agent reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportKind {
    /// `ack`
    Ack,
    /// `progress`
    Progress,
    /// `complete`
    Complete,
    /// `fail`
    Fail,
    /// `release`
    Release,
}

impl ReportKind {
    /// Name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Progress => "progress",
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Release => "release",
        }
    }
}

impl From<OutcomeKind> for ReportKind {
    fn from(kind: OutcomeKind) -> Self {
        match kind {
            OutcomeKind::Complete => Self::Complete,
            OutcomeKind::Fail => Self::Fail,
            OutcomeKind::Release => Self::Release,
        }
    }
}

impl EventBody {
    /// The task that it concerns, if any. Callback events concern their task too.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "the index of every kind: each arm is one line")]
    pub fn task(&self) -> Option<ReachId> {
        match self {
            Self::TaskSubmitted(e) => Some(e.submission.reach_id),
            Self::TaskQueued(e) => Some(e.task),
            Self::TaskDispatched(e) => Some(e.task),
            Self::TaskAcknowledged(e) => Some(e.task),
            Self::TaskReclaimed(e) => Some(e.task),
            Self::TaskOverdue(e) => Some(e.task),
            Self::TaskProgressed(e) => Some(e.task),
            Self::TaskSlow(e) => Some(e.task),
            Self::TaskAttemptFailed(e) => Some(e.task),
            Self::TaskRetryScheduled(e) => Some(e.task),
            Self::TaskOrphaned(e) => Some(e.task),
            Self::TaskReplayed(e) => Some(e.task),
            Self::TaskReleased(e) => Some(e.task),
            Self::TaskSucceeded(e) => Some(e.task),
            Self::TaskFailed(e) => Some(e.task),
            Self::TaskDeadLettered(e) => Some(e.task),
            Self::TaskExpired(e) => Some(e.task),
            Self::TaskCancelled(e) => Some(e.task),
            Self::TaskApproved(e) => Some(e.task),
            Self::TaskRefused(e) => Some(e.task),
            Self::TaskSchemaChecked(e) => Some(e.task),
            Self::TaskStaleReportRefused(e) => Some(e.task),
            Self::TaskResolved(e) => Some(e.task),
            Self::TaskRedriven(e) => Some(e.task),
            Self::TaskReplayHeld(e) => Some(e.task),
            Self::ReplayPlanned(_)
            | Self::ReplayStarted(_)
            | Self::ReplayItemDone(_)
            | Self::ReplayItemSkipped(_)
            | Self::ReplayPaused(_)
            | Self::ReplayResumed(_)
            | Self::ReplayRateChanged(_)
            | Self::ReplayFinished(_)
            | Self::AgentSlotFreed(_)
            | Self::AgentTold(_)
            | Self::LineageStarted(_)
            | Self::HubStarted(_)
            | Self::HubStopped(_)
            | Self::ClockJumped(_)
            | Self::HubStalled(_)
            | Self::AgentRegistered(_)
            | Self::AgentUpdated(_)
            | Self::AgentDraining(_)
            | Self::AgentUnhealthy(_)
            | Self::AgentHealthy(_)
            | Self::AgentLost(_)
            | Self::AgentLeft(_)
            | Self::AgentDeregistered(_)
            | Self::BreakerOpened(_)
            | Self::BreakerHalfOpened(_)
            | Self::BreakerClosed(_)
            | Self::BatchOpened(_)
            | Self::BatchClosed(_)
            | Self::BatchSettled(_)
            | Self::TokenCreated(_)
            | Self::TokenRotated(_)
            | Self::TokenRevoked(_)
            | Self::PolicyChanged(_)
            | Self::CapabilityPolicyChanged(_)
            | Self::RoutingRulesChanged(_)
            | Self::HubPolicyChanged(_) => None,
            Self::CallbackDue(_)
            | Self::CallbackAttempted(_)
            | Self::CallbackDelivered(_)
            | Self::CallbackExhausted(_)
            | Self::CallbackBlocked(_)
            | Self::CallbackGone(_)
            | Self::CallbackRedriven(_) => match self.callback_subject() {
                Some(CallbackSubject::Task(task)) => Some(task),
                Some(CallbackSubject::Batch(_)) | None => None,
            },
        }
    }

    /// The replay plan that it concerns, if any.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about a plan's own kinds only")]
    pub const fn replay(&self) -> Option<ReplayId> {
        match self {
            Self::ReplayPlanned(e) => Some(e.replay),
            Self::ReplayStarted(e) => Some(e.replay),
            Self::ReplayItemDone(e) => Some(e.replay),
            Self::ReplayItemSkipped(e) => Some(e.replay),
            Self::ReplayPaused(e) => Some(e.replay),
            Self::ReplayResumed(e) => Some(e.replay),
            Self::ReplayRateChanged(e) => Some(e.replay),
            Self::ReplayFinished(e) => Some(e.replay),
            _ => None,
        }
    }

    /// What a callback event's callback tells about.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about seven kinds only; a new kind is no callback")]
    pub const fn callback_subject(&self) -> Option<CallbackSubject> {
        match self {
            Self::CallbackDue(e) => Some(e.subject),
            Self::CallbackAttempted(e) => Some(e.subject),
            Self::CallbackDelivered(e) => Some(e.subject),
            Self::CallbackExhausted(e) => Some(e.subject),
            Self::CallbackBlocked(e) => Some(e.subject),
            Self::CallbackGone(e) => Some(e.subject),
            Self::CallbackRedriven(e) => Some(e.subject),
            _ => None,
        }
    }

    /// The agent that it concerns, if it names one.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds name an agent; the rest do not")]
    pub const fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::AgentRegistered(e) => Some(&e.agent),
            Self::AgentUpdated(e) => Some(&e.agent),
            Self::AgentDraining(e) => Some(&e.agent),
            Self::AgentUnhealthy(e) => Some(&e.agent),
            Self::AgentHealthy(e) => Some(&e.agent),
            Self::AgentLost(e) => Some(&e.agent),
            Self::AgentLeft(e) => Some(&e.agent),
            Self::AgentDeregistered(e) => Some(&e.agent),
            Self::AgentSlotFreed(e) => Some(&e.agent),
            Self::AgentTold(e) => Some(&e.agent),
            Self::BreakerOpened(e) => Some(&e.agent),
            Self::BreakerHalfOpened(e) => Some(&e.agent),
            Self::BreakerClosed(e) => Some(&e.agent),
            Self::TaskDispatched(e) => Some(&e.agent),
            Self::TaskStaleReportRefused(e) => Some(&e.agent),
            _ => None,
        }
    }

    /// How a settled callback stands after this event, if it settles one.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about the four settling kinds only")]
    pub const fn settles_callback(&self) -> Option<CallbackState> {
        match self {
            Self::CallbackDelivered(_) => Some(CallbackState::Delivered),
            Self::CallbackExhausted(_) => Some(CallbackState::Exhausted),
            Self::CallbackBlocked(_) => Some(CallbackState::Blocked),
            Self::CallbackGone(_) => Some(CallbackState::Gone),
            _ => None,
        }
    }
}
