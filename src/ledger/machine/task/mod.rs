//! The central noun: one task, from submission to its one terminal event.
//!
//! | file | holds |
//! | --- | --- |
//! | `spec.rs` | what the caller asked for; never changes |
//! | `status.rs` | where it stands, with exactly the data of that state |
//! | `table.rs` | the transition table: (from, event, to, why); docs/state-machine.md is made from it |
//! | `decide.rs` | the rules: command in, events out; by group in `submit`, `dispatch`, `report`, `timer` |
//! | `apply.rs` | the moves: event in, state changed; no rules |
//! | `retry.rs` | may it be retried, and when |
//! | `deadline.rs` | reach, work, wait, lifetime |
//! | `redrive.rs`, `resolve.rs` | an ended task made anew; an operator's word on one that nothing else can decide |

pub mod spec;
pub mod status;
pub mod table;

pub(in crate::ledger::machine) mod apply;
pub mod deadline;
pub(in crate::ledger::machine) mod decide;
pub(in crate::ledger::machine) mod dispatch;
pub mod redrive;
mod report;
pub mod resolve;
mod retry;
mod submit;
mod timer;

#[cfg(test)]
mod properties;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
pub(in crate::ledger::machine) mod tests;

pub(in crate::ledger::machine) use dispatch::{agent_gone, loss_accepted, reclaim};

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{AgentId, AttemptNo, Digest, LeaseDigest, Namespace, ReachId, Seq, TokenId, TraceContext};
use crate::ledger::machine::callback::CallbackStanding;
use crate::ledger::time::Timestamp;

use spec::{BodyRef, SchemaVerdicts, Submission, Text};
use status::Status;

/// How the hand-over ended, apart from what the agent made of it (R-SCH-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReachOutcome {
    /// Acknowledged by an agent.
    Delivered,
    /// Refused by an agent.
    Refused,
    /// No agent could be reached.
    Unreachable,
    /// Nobody knows.
    Unknown,
}

/// What the agent made of it (R-SCH-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkOutcome {
    /// Success.
    Succeeded,
    /// Failure, in the agent's own word.
    Failed,
}

/// To what a failure is attributed (R-SCH-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FailureClass {
    /// `network`
    Network,
    /// `agent-overload`
    AgentOverload,
    /// `agent-crash`
    AgentCrash,
    /// `agent-timeout`
    AgentTimeout,
    /// `business`
    Business,
    /// `schema`
    Schema,
    /// `policy`
    Policy,
    /// `hub`
    Hub,
    /// `caller-cancelled`
    CallerCancelled,
}

impl FailureClass {
    /// Every class, in the order of R-SCH-9.
    pub const ALL: [Self; 9] = [
        Self::Network,
        Self::AgentOverload,
        Self::AgentCrash,
        Self::AgentTimeout,
        Self::Business,
        Self::Schema,
        Self::Policy,
        Self::Hub,
        Self::CallerCancelled,
    ];

    /// The class's name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::AgentOverload => "agent-overload",
            Self::AgentCrash => "agent-crash",
            Self::AgentTimeout => "agent-timeout",
            Self::Business => "business",
            Self::Schema => "schema",
            Self::Policy => "policy",
            Self::Hub => "hub",
            Self::CallerCancelled => "caller-cancelled",
        }
    }
}

/// Why a task, or one attempt of it, failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// To what it is attributed.
    pub class: FailureClass,
    /// A stable code: ours, or the agent's own.
    pub code: Text,
    /// The agent's message: a body, so that it can be erased (semantics 27).
    pub message: Option<BodyRef>,
}

/// Which word ended an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutcomeKind {
    /// `complete`
    Complete,
    /// `fail`
    Fail,
    /// `release`
    Release,
}

/// What an attempt's agent said last, so that saying it twice is harmless (semantics 14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    /// Which attempt.
    pub attempt: AttemptNo,
    /// Under which lease.
    pub lease: LeaseDigest,
    /// Which word.
    pub kind: OutcomeKind,
    /// SHA-256 of the canonical JSON of `result` or `error`.
    pub digest: Digest,
    /// The first answer's receipt.
    pub receipt: Seq,
}

/// The last stage that an agent reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The attempt that reported.
    pub attempt: AttemptNo,
    /// Stage, free text of at most 128 bytes.
    pub stage: Option<Text>,
    /// 0 to 100.
    pub percent: Option<u8>,
    /// Progress data, a body of kind `progress`.
    pub data: Option<BodyRef>,
    /// When.
    pub at: Timestamp,
    /// Its event.
    pub seq: Seq,
}

/// Live tasks are what memory is used for: with the counters before it, a task and what was asked fit an allocator's class
/// of 512 bytes each. What few tasks have is boxed for that.
const _: () = assert!(size_of::<Task>() + 16 <= 512 && size_of::<Submission>() + 16 <= 512, "a live task has grown");

/// One task as the fold sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Where it belongs.
    pub namespace: Namespace,
    /// What was asked.
    pub spec: Arc<Submission>,
    /// Who submitted it: the actor of its `task-submitted`, if a token. Agents may serve some callers only.
    pub submitter: Option<TokenId>,
    /// Where it stands.
    pub status: Status,
    /// Which lane of the queue it waits in when queued.
    pub lane: LaneId,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When its life is over (L1).
    pub deadline: Timestamp,
    /// When it left for a terminal state; `None` while it lives.
    pub ended_at: Option<Timestamp>,
    /// Its one terminal event (S1); `None` while it lives.
    pub ended_by: Option<Seq>,
    /// Dispatches so far: the last attempt's number.
    pub attempt: AttemptNo,
    /// The lease digest of the last dispatch, kept after the lease has ended (semantics 28).
    pub last_lease: Option<LeaseDigest>,
    /// The last acknowledgement's receipt: its attempt and seq.
    pub acked: Option<(AttemptNo, Seq)>,
    /// Retries spent (semantics 9).
    pub retries_used: u32,
    /// Losses without a goodbye while processing or slow (semantics 9).
    pub interruptions: u32,
    /// Dispatches that came back unstarted, in all; never reset (semantics 9).
    pub never_started: u32,
    /// The agent that held it last, under the last dispatch; stays when the task has ended.
    pub agent: Option<AgentId>,
    /// The agent that failed it last, to be avoided where another can serve.
    pub avoid: Option<AgentId>,
    /// Verdicts of schema checks, growing with later registrations.
    pub schemas: SchemaVerdicts,
    /// The last stage.
    pub progress: Option<Box<Progress>>,
    /// Durable progress events so far.
    pub progress_events: u32,
    /// How the hand-over ended.
    pub reach_outcome: Option<ReachOutcome>,
    /// What the agent made of it.
    pub work_outcome: Option<WorkOutcome>,
    /// The result body, once succeeded.
    pub result: Option<Box<BodyRef>>,
    /// The last failure.
    pub failure: Option<Box<Failure>>,
    /// Every attempt's last word, oldest first.
    pub outcomes: Vec<OutcomeRecord>,
    /// Callback standing, if one was asked for and became due.
    pub callback: Option<CallbackStanding>,
    /// Callbacks not yet settled.
    pub callbacks_open: u32,
    /// Stale reports refused so far.
    pub stale_reports: u32,
    /// Every event of it, in order.
    pub seqs: Vec<Seq>,
    /// The caller's trace.
    pub trace: Option<TraceContext>,
}

/// A lane of the queue: tasks of one namespace, capability and set of requirements wait together (design 5).
/// The first 16 bytes of a digest over all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LaneId(pub [u8; 16]);

impl Task {
    /// The task's id.
    #[must_use]
    pub fn id(&self) -> ReachId {
        self.spec.reach_id
    }

    /// When it must be looked at next: its state's timer or its deadline, whichever comes first (T3).
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        if self.status.kind().is_terminal() {
            return None;
        }
        Some(self.status.timer().map_or(self.deadline, |timer| timer.min(self.deadline)))
    }
}
