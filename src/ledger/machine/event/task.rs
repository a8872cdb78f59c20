//! Events of tasks: every transition of docs/state-machine.md, and what is only audited.

use std::sync::Arc;

use super::{AlreadyDone, Explanation, HeldWhy, QueuedWhy, ReportKind, RetryWhy, StaleWhy, Started, TextRoute};
use crate::ledger::ids::{AgentId, AttemptNo, Digest, Incarnation, LeaseDigest, ReachId, ReplayId, TokenId};
use crate::ledger::machine::success::Origin;
use crate::ledger::machine::task::Failure;
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::spec::{BodyRef, SchemaVerdicts, Submission, Text};
use crate::ledger::machine::task::status::{Delivery, OrphanCause, SlowCause};
use crate::ledger::time::Timestamp;

event_structs! {
    /// A task was accepted; it says whether it is queued, scheduled or awaits approval.
    TaskSubmitted {
        /// What was asked.
        submission: Arc<Submission>,
        /// Its absolute end.
        deadline: Timestamp,
        /// How its capability was found, if it named none.
        routed: Option<Box<TextRoute>>,
    }
    /// It entered the queue again.
    TaskQueued {
        /// Which task.
        task: ReachId,
        /// Why.
        why: QueuedWhy,
    }
    /// It was handed over under a lease.
    TaskDispatched {
        /// Which task.
        task: ReachId,
        /// Which dispatch.
        attempt: AttemptNo,
        /// To whom.
        agent: AgentId,
        /// To which process of it.
        incarnation: Incarnation,
        /// SHA-256 of the lease token.
        lease: LeaseDigest,
        /// How.
        delivery: Delivery,
        /// When the reach time is over.
        reach_deadline: Timestamp,
        /// Why this agent.
        explanation: Explanation,
    }
    /// Its agent acknowledged it and works.
    TaskAcknowledged {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// The incarnation that the agent named.
        incarnation: Incarnation,
        /// When the work time is over.
        work_deadline: Timestamp,
    }
    /// Its own agent took it back before the replay (semantics 5).
    TaskReclaimed {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// When the work time is over.
        work_deadline: Timestamp,
    }
    /// Its wait budget is spent and it stays queued (semantics 12).
    TaskOverdue {
        /// Which task.
        task: ReachId,
    }
    /// Its agent reported a stage.
    TaskProgressed {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// Stage.
        stage: Option<Text>,
        /// 0 to 100.
        percent: Option<u8>,
        /// Progress data.
        data: Option<BodyRef>,
        /// The new end of the work time, if progress extends it or ends a slow state.
        work_deadline: Option<Timestamp>,
    }
    /// It is overdue or ambiguous, and may still be running.
    TaskSlow {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// Why.
        cause: SlowCause,
        /// When its policy acts.
        act_at: Option<Timestamp>,
    }
    /// An attempt failed; what follows says the next event.
    TaskAttemptFailed {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// Why.
        failure: Failure,
        /// Did it provably never start?
        started: Started,
        /// The agent's word, if it was its report.
        outcome: Option<Digest>,
    }
    /// A retry or return waits for its time.
    TaskRetryScheduled {
        /// Which task.
        task: ReachId,
        /// Why.
        why: RetryWhy,
        /// When it enters the queue.
        until: Timestamp,
    }
    /// Its agent is gone.
    TaskOrphaned {
        /// Which task.
        task: ReachId,
        /// Which attempt was with it.
        attempt: AttemptNo,
        /// Why.
        cause: OrphanCause,
    }
    /// The replay let it back into the queue; the old lease is no longer valid.
    TaskReplayed {
        /// Which task.
        task: ReachId,
        /// Which attempt is superseded.
        attempt: AttemptNo,
    }
    /// Its agent gave it back.
    TaskReleased {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// SHA-256 of the release's canonical content, so that a repeat is harmless.
        outcome: Digest,
    }
    /// Terminal: the agent's success.
    TaskSucceeded {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// The incarnation that the agent named.
        incarnation: Incarnation,
        /// The result.
        result: Option<BodyRef>,
        /// SHA-256 of its canonical JSON.
        outcome: Digest,
        /// Cost and usage, as (name, amount in millionths) pairs.
        usage: Vec<(Text, u64)>,
        /// The agent said 409: it had been done before (semantics 8).
        already_done: AlreadyDone,
    }
    /// Terminal: the agent's failure.
    TaskFailed {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// The incarnation that the agent named.
        incarnation: Incarnation,
        /// Why.
        failure: Failure,
        /// SHA-256 of the error's canonical JSON.
        outcome: Digest,
    }
    /// Terminal: the hub gave up.
    TaskDeadLettered {
        /// Which task.
        task: ReachId,
        /// The whole reason.
        failure: Failure,
        /// Dispatches so far.
        attempts: u32,
    }
    /// Terminal: lifetime over.
    TaskExpired {
        /// Which task.
        task: ReachId,
    }
    /// Terminal: called off.
    TaskCancelled {
        /// Which task.
        task: ReachId,
        /// Why: a body, so that it can be erased.
        reason: Option<BodyRef>,
    }
    /// A person let it go on.
    TaskApproved {
        /// Which task.
        task: ReachId,
    }
    /// A person refused it; `task-cancelled` follows.
    TaskRefused {
        /// Which task.
        task: ReachId,
        /// Why.
        reason: Option<BodyRef>,
    }
    /// A schema registered later was checked against its payload (semantics 18).
    TaskSchemaChecked {
        /// Which task.
        task: ReachId,
        /// The new verdicts.
        verdicts: SchemaVerdicts,
    }
    /// A report under an old lease was refused; audit only (R-SCH-8).
    TaskStaleReportRefused {
        /// Which task.
        task: ReachId,
        /// What the report said of its attempt.
        attempt: AttemptNo,
        /// Who sent it.
        agent: AgentId,
        /// What it was.
        report: ReportKind,
        /// Why it was refused.
        why: StaleWhy,
        /// Digest of what was refused.
        content: Digest,
    }
    /// An operator decided on a task that nobody could decide on; what follows says the next event.
    TaskResolved {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// What was decided.
        resolution: Resolution,
        /// Why, in the operator's words.
        reason: Text,
    }
    /// An ended task was made anew: it stays what it is, and the two name each other.
    TaskRedriven {
        /// The ended task.
        task: ReachId,
        /// The new one; its submission is the event before.
        successor: ReachId,
        /// Who submitted the ended one: agents serve the new one for the same caller.
        submitter: Option<TokenId>,
        /// By which plan, if by one.
        replay: Option<ReplayId>,
        /// Why, in the operator's words; a plan has its own.
        reason: Option<Text>,
        /// Where the chain of redrives began that the new one ends; version 1 did not say it.
        origin: Option<Origin>,
    }
    /// It is an orphan that is not replayed by itself: it waits for an operator's word.
    TaskReplayHeld {
        /// Which task.
        task: ReachId,
        /// Which attempt was with its agent.
        attempt: AttemptNo,
        /// Why.
        why: HeldWhy,
    }
}
