//! Events: what happened, in the past tense, each with an explicit stable code.
//!
//! An event is never changed once a release has written it: a new shape is a new version of its kind, upcast on read.
//! No serde attributes here: they break the binary form (docs/ledger-format.md).

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{
    AgentId, AttemptNo, BatchId, Boot, CallbackId, Digest, Incarnation, LeaseDigest, Lineage, Namespace, ReachId, Seq,
    SessionId, TokenId, TraceContext,
};
use crate::ledger::machine::access::Token;
use crate::ledger::machine::agent::{Declaration, DrainMode};
use crate::ledger::machine::callback::{CallbackSpec, CallbackState, CallbackSubject};
use crate::ledger::machine::policy::Policy;
use crate::ledger::machine::task::spec::{BodyRef, IdempotencyKey, SchemaVerdicts, Submission, Text};
use crate::ledger::machine::task::status::{Delivery, OrphanCause, SlowCause};
use crate::ledger::machine::task::{Failure, OutcomeKind};
use crate::ledger::time::{Millis, Timestamp};

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

macro_rules! event_bodies {
    ($( $(#[$doc:meta])* $code:literal $name:literal $variant:ident { $( $(#[$fdoc:meta])* $field:ident : $ty:ty ),* $(,)? } )*) => {
        /// What happened.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum EventBody {
            $( $(#[$doc])* $variant($variant), )*
        }

        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
            pub struct $variant { $( $(#[$fdoc])* pub $field: $ty, )* }

            impl From<$variant> for EventBody {
                fn from(body: $variant) -> Self {
                    Self::$variant(body)
                }
            }
        )*

        /// The kinds without their data.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind {
            $( $(#[$doc])* $variant, )*
        }

        impl EventKind {
            /// Every kind, by code.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// The stable code in the ledger.
            #[must_use]
            pub const fn code(self) -> u16 {
                match self { $( Self::$variant => $code, )* }
            }

            /// The stable name on the wire: noun, then participle.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// The kind of that code.
            #[must_use]
            pub fn from_code(code: u16) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.code() == code)
            }
        }

        impl EventBody {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> EventKind {
                match self { $( Self::$variant(_) => EventKind::$variant, )* }
            }
        }

        /// Calls `$with` once for each event kind with its variant name: for the codec, which writes a body by itself.
        macro_rules! for_each_event_body {
            ($with:ident) => { $with! { $( $variant )* } };
        }
        pub(crate) use for_each_event_body;
    };
}

event_bodies! {
    /// A history begins (semantics 24).
    100 "lineage-started" LineageStarted {
        /// The new lineage.
        lineage: Lineage,
        /// The one that it goes on from.
        previous: Option<Lineage>,
        /// The last seq taken over.
        at_seq: Seq,
        /// The chain hash there.
        hash: Digest,
        /// If a loss was accepted: the last seq that was lost.
        lost_up_to: Option<Seq>,
    }
    /// The hub started.
    101 "hub-started" HubStarted {
        /// Which start.
        boot: Boot,
        /// Wall clock minus ledger time, in milliseconds.
        wall_offset: i64,
        /// Program version.
        version: Text,
    }
    /// The hub stopped cleanly.
    102 "hub-stopped" HubStopped {
        /// Which start it ends.
        boot: Boot,
    }
    /// The wall clock was set (semantics 23).
    103 "clock-jumped" ClockJumped {
        /// New offset of the wall clock, in milliseconds.
        wall_offset: i64,
        /// By how much it jumped.
        by: i64,
    }

    /// A process registered under an agent id for the first time, or replaced an older one.
    200 "agent-registered" AgentRegistered {
        /// Which agent.
        agent: AgentId,
        /// Its new incarnation.
        incarnation: Incarnation,
        /// What the process called itself.
        instance: Option<Text>,
        /// What it declared.
        declaration: Declaration,
    }
    /// The same process declared itself anew.
    201 "agent-updated" AgentUpdated {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation, unchanged.
        incarnation: Incarnation,
        /// What it declared.
        declaration: Declaration,
    }
    /// It gets no new work and may finish what runs.
    202 "agent-draining" AgentDraining {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// What happens to running work.
        mode: DrainMode,
        /// End of the grace.
        until: Timestamp,
        /// Why, in the operator's words.
        reason: Option<Text>,
    }
    /// It missed some heartbeats.
    203 "agent-unhealthy" AgentUnhealthy {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Silent for how long.
        silent: Millis,
    }
    /// It beats again.
    204 "agent-healthy" AgentHealthy {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
    }
    /// It missed too many heartbeats: its work is orphaned.
    205 "agent-lost" AgentLost {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Silent for how long.
        silent: Millis,
    }
    /// It said goodbye.
    206 "agent-left" AgentLeft {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
    }
    /// It is out of the registry, kept for audit.
    207 "agent-deregistered" AgentDeregistered {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
    }
    /// A slot kept by an ended task is free again (semantics 6).
    208 "agent-slot-freed" AgentSlotFreed {
        /// Which agent.
        agent: AgentId,
        /// Which task kept it.
        task: ReachId,
        /// Under which attempt.
        attempt: AttemptNo,
    }
    /// A heartbeat's answer told it that a task ended without its word: from now on its silence frees the slot
    /// (semantics 6).
    209 "agent-told" AgentTold {
        /// Which agent.
        agent: AgentId,
        /// Which task ended.
        task: ReachId,
        /// Under which attempt it held it.
        attempt: AttemptNo,
    }

    /// A task was accepted; it says whether it is queued, scheduled or awaits approval.
    300 "task-submitted" TaskSubmitted {
        /// What was asked.
        submission: Submission,
        /// Its absolute end.
        deadline: Timestamp,
    }
    /// It entered the queue again.
    301 "task-queued" TaskQueued {
        /// Which task.
        task: ReachId,
        /// Why.
        why: QueuedWhy,
    }
    /// It was handed over under a lease.
    302 "task-dispatched" TaskDispatched {
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
    303 "task-acknowledged" TaskAcknowledged {
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
    304 "task-reclaimed" TaskReclaimed {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// When the work time is over.
        work_deadline: Timestamp,
    }
    /// Its wait budget is spent and it stays queued (semantics 12).
    305 "task-overdue" TaskOverdue {
        /// Which task.
        task: ReachId,
    }
    /// Its agent reported a stage.
    306 "task-progressed" TaskProgressed {
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
    307 "task-slow" TaskSlow {
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
    308 "task-attempt-failed" TaskAttemptFailed {
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
    309 "task-retry-scheduled" TaskRetryScheduled {
        /// Which task.
        task: ReachId,
        /// Why.
        why: RetryWhy,
        /// When it enters the queue.
        until: Timestamp,
    }
    /// Its agent is gone.
    310 "task-orphaned" TaskOrphaned {
        /// Which task.
        task: ReachId,
        /// Which attempt was with it.
        attempt: AttemptNo,
        /// Why.
        cause: OrphanCause,
    }
    /// The replay let it back into the queue; the old lease is no longer valid.
    311 "task-replayed" TaskReplayed {
        /// Which task.
        task: ReachId,
        /// Which attempt is superseded.
        attempt: AttemptNo,
    }
    /// Its agent gave it back.
    312 "task-released" TaskReleased {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// SHA-256 of the release's canonical content, so that a repeat is harmless.
        outcome: Digest,
    }
    /// Terminal: the agent's success.
    313 "task-succeeded" TaskSucceeded {
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
        /// Cost and usage, as (name, amount) pairs.
        usage: Vec<(Text, u64)>,
        /// The agent said 409: it had been done before (semantics 8).
        already_done: AlreadyDone,
    }
    /// Terminal: the agent's failure.
    314 "task-failed" TaskFailed {
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
    315 "task-dead-lettered" TaskDeadLettered {
        /// Which task.
        task: ReachId,
        /// The whole reason.
        failure: Failure,
        /// Dispatches so far.
        attempts: u32,
    }
    /// Terminal: lifetime over.
    316 "task-expired" TaskExpired {
        /// Which task.
        task: ReachId,
    }
    /// Terminal: called off.
    317 "task-cancelled" TaskCancelled {
        /// Which task.
        task: ReachId,
        /// Why: a body, so that it can be erased.
        reason: Option<BodyRef>,
    }
    /// A person let it go on.
    318 "task-approved" TaskApproved {
        /// Which task.
        task: ReachId,
    }
    /// A person refused it; `task-cancelled` follows.
    319 "task-refused" TaskRefused {
        /// Which task.
        task: ReachId,
        /// Why.
        reason: Option<BodyRef>,
    }
    /// A schema registered later was checked against its payload (semantics 18).
    320 "task-schema-checked" TaskSchemaChecked {
        /// Which task.
        task: ReachId,
        /// The new verdicts.
        verdicts: SchemaVerdicts,
    }
    /// A report under an old lease was refused; audit only (R-SCH-8).
    321 "task-stale-report-refused" TaskStaleReportRefused {
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

    /// An event must be told.
    400 "callback-due" CallbackDue {
        /// The `webhook-id`.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
        /// The event that it tells.
        seq: Seq,
        /// Where to.
        url: Text,
        /// Signed with which secret.
        secret_ref: Text,
    }
    /// One try was made.
    401 "callback-attempted" CallbackAttempted {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
        /// Which try of this round, from 1.
        attempt: u32,
        /// How it ended.
        outcome: TryOutcome,
        /// Next try, if there is one.
        next_at: Option<Timestamp>,
    }
    /// It arrived.
    402 "callback-delivered" CallbackDelivered {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
    }
    /// Window or tries are used up.
    403 "callback-exhausted" CallbackExhausted {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
        /// Tries of this round.
        attempts: u32,
    }
    /// The egress guard refuses the address.
    404 "callback-blocked" CallbackBlocked {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
    }
    /// The receiver said 410, or the content was erased.
    405 "callback-gone" CallbackGone {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
    }
    /// An operator lets it be sent again.
    406 "callback-redriven" CallbackRedriven {
        /// The callback, with what is needed to send it.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
        /// The event that it tells.
        seq: Seq,
        /// Where to.
        url: Text,
        /// Signed with which secret.
        secret_ref: Text,
    }

    /// A batch began.
    500 "batch-opened" BatchOpened {
        /// Which batch.
        batch: BatchId,
        /// Whom to tell when it has settled.
        callback: Option<CallbackSpec>,
        /// Key against double submission.
        idempotency: Option<IdempotencyKey>,
    }
    /// Its last line came.
    501 "batch-closed" BatchClosed {
        /// Which batch.
        batch: BatchId,
        /// Every line counted.
        total: u32,
        /// Lines that were refused.
        refused: u32,
    }
    /// Every task of it has ended.
    502 "batch-settled" BatchSettled {
        /// Which batch.
        batch: BatchId,
    }

    /// A token was made.
    600 "token-created" TokenCreated {
        /// The token: hash, scopes, bounds.
        token: Token,
    }
    /// Its secret was replaced; the old one holds for a while.
    601 "token-rotated" TokenRotated {
        /// Which token.
        token: TokenId,
        /// SHA-256 of the new secret.
        secret: Digest,
        /// Until when the old one holds.
        overlap_until: Timestamp,
    }
    /// It is no longer valid, at once.
    602 "token-revoked" TokenRevoked {
        /// Which token.
        token: TokenId,
    }
    /// The rules of a namespace changed.
    610 "policy-changed" PolicyChanged {
        /// The new rules.
        policy: Policy,
        /// Why.
        reason: Text,
    }
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
    pub const fn task(&self) -> Option<ReachId> {
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
            Self::AgentSlotFreed(_)
            | Self::AgentTold(_)
            | Self::LineageStarted(_)
            | Self::HubStarted(_)
            | Self::HubStopped(_)
            | Self::ClockJumped(_)
            | Self::AgentRegistered(_)
            | Self::AgentUpdated(_)
            | Self::AgentDraining(_)
            | Self::AgentUnhealthy(_)
            | Self::AgentHealthy(_)
            | Self::AgentLost(_)
            | Self::AgentLeft(_)
            | Self::AgentDeregistered(_)
            | Self::BatchOpened(_)
            | Self::BatchClosed(_)
            | Self::BatchSettled(_)
            | Self::TokenCreated(_)
            | Self::TokenRotated(_)
            | Self::TokenRevoked(_)
            | Self::PolicyChanged(_) => None,
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
