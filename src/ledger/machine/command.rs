//! Commands: what somebody wants, in the imperative. Everyone proposes; only [`super::step::decide`] disposes.
//!
//! Whatever a decision needs from outside the state (an id, a lease digest, a finished task's row) arrives inside the
//! command, put there by a shell, so that one log always gives one state (design 2, rule 6).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{
    AgentId, AttemptNo, BatchId, Boot, CallbackId, Capability, Digest, Incarnation, LeaseDigest, Lineage, Namespace,
    ReachId, ReplayId, TokenId, TraceContext,
};
use crate::ledger::machine::access::Token;
use crate::ledger::machine::agent::{Declaration, DrainMode};
use crate::ledger::machine::breaker::{BreakerWord, FailedAttempt};
use crate::ledger::machine::callback::CallbackSpec;
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::{Actor, AlreadyDone, Explanation, TextRoute, TryOutcome};
use crate::ledger::machine::policy::{CapabilityRules, HubPolicy, Policy};
use crate::ledger::machine::replay::order::{RedriveOrder, ReplayItem, ReplayOrder, ReplayWord};
use crate::ledger::machine::routing::RoutingChange;
use crate::ledger::machine::task::Failure;
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::spec::{BodyRef, IdempotencyKey, SchemaVerdicts, Submission, Text};
use crate::ledger::machine::task::status::Delivery;
use crate::ledger::machine::{Fact, KeyBinding};
use crate::ledger::time::Millis;

pub use crate::ledger::machine::callback::CallbackRow;

/// A command with who proposes it, where and under which trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Where; `None` for the hub's own.
    pub namespace: Option<Namespace>,
    /// Who.
    pub actor: Actor,
    /// Under which trace.
    pub trace: Option<TraceContext>,
    /// What.
    pub command: Command,
}

impl Proposal {
    /// A proposal of the hub itself inside a namespace.
    #[must_use]
    pub const fn by_hub(namespace: Option<Namespace>, command: Command) -> Self {
        Self { namespace, actor: Actor::Hub, trace: None, command }
    }
}

/// What an agent says about an attempt that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which task.
    pub task: ReachId,
    /// Who reports.
    pub agent: AgentId,
    /// Which process of it.
    pub incarnation: Incarnation,
    /// Under which attempt.
    pub attempt: AttemptNo,
    /// SHA-256 of the lease token that it showed.
    pub lease: LeaseDigest,
    /// What it says.
    pub word: Word,
    /// The finished row, if the task is no longer in memory; the sequencer's shell fills it in.
    pub fact: Option<Fact>,
}

/// The five things that an agent can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// It starts now.
    Ack,
    /// It reached a stage.
    Progress {
        /// Stage.
        stage: Option<Text>,
        /// 0 to 100.
        percent: Option<u8>,
        /// Data.
        data: Option<BodyRef>,
    },
    /// It succeeded.
    Complete {
        /// The result.
        result: Option<BodyRef>,
        /// SHA-256 of its canonical JSON.
        digest: Digest,
        /// Cost and usage, amounts in millionths.
        usage: Vec<(Text, u64)>,
        /// Was it a push's 409?
        already_done: AlreadyDone,
    },
    /// It failed.
    Fail {
        /// Why.
        failure: Failure,
        /// SHA-256 of the error's canonical JSON.
        digest: Digest,
        /// May another try help?
        retryable: Retryable,
        /// Not earlier than this.
        retry_after: Option<Millis>,
    },
    /// It gives the task back.
    Release {
        /// SHA-256 of the canonical content.
        digest: Digest,
        /// Not earlier than this.
        retry_after: Option<Millis>,
    },
}

/// An agent's word on whether another try may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retryable {
    /// It may.
    Yes,
    /// It can't.
    No,
}

/// How a push ended without a report (semantics 8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushTrouble {
    /// No body byte left the hub, or the agent refused it unstarted: safe to retry.
    NeverStarted {
        /// Why.
        failure: Failure,
        /// The agent's `Retry-After`.
        retry_after: Option<Millis>,
        /// 429 and 503 use no attempt; by their class they count for the breaker.
        busy: AgentBusy,
    },
    /// It may have arrived.
    Ambiguous {
        /// What was seen.
        failure: Failure,
    },
}

/// Did the agent say "not now"?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentBusy {
    /// 429 or 503.
    Yes,
    /// Something else.
    No,
}

/// A task that a heartbeat says its agent still holds (semantics 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Which task.
    pub task: ReachId,
    /// Under which attempt.
    pub attempt: AttemptNo,
}

/// What somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Register an agent or replace its declaration (R-REG-1 to 3).
    RegisterAgent {
        /// Which agent.
        agent: AgentId,
        /// What the process calls itself (semantics 2).
        instance: Option<Text>,
        /// What it declares.
        declaration: Box<Declaration>,
    },
    /// The agent's process lives; it may list what it holds.
    Heartbeat {
        /// Which agent.
        agent: AgentId,
        /// Which process of it.
        incarnation: Incarnation,
        /// What it holds, if it says so.
        held: Option<Vec<Held>>,
    },
    /// No new work; running work may finish (R-REG-7).
    DrainAgent {
        /// Which agent.
        agent: AgentId,
        /// What happens to running work.
        mode: DrainMode,
        /// For how long it may finish.
        grace: Millis,
        /// Why.
        reason: Option<Text>,
    },
    /// The agent says goodbye (R-REG-6).
    AgentOffline {
        /// Which agent.
        agent: AgentId,
        /// Which process of it.
        incarnation: Incarnation,
    },
    /// Take an agent out of the registry.
    DeregisterAgent {
        /// Which agent.
        agent: AgentId,
    },
    /// Give it no tasks of one capability for a while: the planner counted so many failures (R-RTE-7).
    OpenBreaker {
        /// Which agent.
        agent: AgentId,
        /// Which process of it failed.
        incarnation: Incarnation,
        /// Of which capability.
        capability: Capability,
        /// The attempts that failed one after the other, oldest first.
        failures: Vec<FailedAttempt>,
    },
    /// An operator's word on a breaker.
    SetBreaker {
        /// Which agent.
        agent: AgentId,
        /// Of which capability.
        capability: Capability,
        /// What.
        word: BreakerWord,
        /// Why.
        reason: Text,
    },
    /// It missed some heartbeats; checked against the incarnation.
    MarkUnhealthy {
        /// Which agent.
        agent: AgentId,
        /// Which process of it.
        incarnation: Incarnation,
        /// Silent for how long.
        silent: Millis,
    },
    /// It missed too many.
    MarkLost {
        /// Which agent.
        agent: AgentId,
        /// Which process of it.
        incarnation: Incarnation,
        /// Silent for how long.
        silent: Millis,
    },

    /// Submit a task.
    SubmitTask {
        /// What is asked.
        submission: Arc<Submission>,
        /// What its idempotency key is bound to on disk; the shell fills it in.
        bound: Option<KeyBinding>,
        /// How its capability was found, if it named none.
        routed: Option<Box<TextRoute>>,
    },
    /// Hand a queued task to an agent. The planner proposes it; the limits are checked again here.
    DispatchTask {
        /// Which task.
        task: ReachId,
        /// To whom.
        agent: AgentId,
        /// To which process of it.
        incarnation: Incarnation,
        /// How.
        delivery: Delivery,
        /// SHA-256 of the lease token; the shell fills it in.
        lease: LeaseDigest,
        /// Why this agent.
        explanation: Box<Explanation>,
    },
    /// An agent's report.
    Report(Box<Report>),
    /// A push ended without one.
    PushFailed {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
        /// How.
        trouble: PushTrouble,
    },
    /// Call a task off (R-SCH-10).
    CancelTask {
        /// Which task.
        task: ReachId,
        /// Why.
        reason: Option<BodyRef>,
        /// The finished row, if the task is no longer in memory; the shell fills it in.
        fact: Option<Fact>,
    },
    /// Let a held task go on.
    ApproveTask {
        /// Which task.
        task: ReachId,
    },
    /// Refuse a held task.
    RefuseTask {
        /// Which task.
        task: ReachId,
        /// Why.
        reason: Option<BodyRef>,
    },
    /// Let an orphan back into the queue. The sweep proposes it; its state is checked here, at that moment (R-REC-3).
    ReplayTask {
        /// Which task.
        task: ReachId,
        /// A newer task of its session that has succeeded; the shell fills it in.
        superseded_by: Option<ReachId>,
    },
    /// Decide on a task that nothing else can decide (S9).
    ResolveTask {
        /// Which task.
        task: ReachId,
        /// What.
        resolution: Resolution,
        /// Why.
        reason: Text,
    },
    /// Make an ended task anew.
    RedriveTask(Box<RedriveOrder>),
    /// Freeze a replay plan and start it (R-REC-4).
    PlanReplay(Box<ReplayOrder>),
    /// Pause, resume, cancel or re-rate one.
    SteerReplay {
        /// Which plan.
        replay: ReplayId,
        /// What.
        word: ReplayWord,
    },
    /// An item's turn; the plan's planner proposes it.
    ReplayItem(Box<ReplayItem>),
    /// A schema registered later was checked against the payload.
    SchemaChecked {
        /// Which task.
        task: ReachId,
        /// The new verdicts.
        verdicts: SchemaVerdicts,
    },

    /// A callback was tried.
    CallbackTried {
        /// Which callback.
        callback: CallbackId,
        /// Which try, from 1: an old answer is ignored.
        attempt: u32,
        /// How it ended.
        outcome: TryOutcome,
    },
    /// The content of a callback was erased.
    CallbackErased {
        /// Which callback.
        callback: CallbackId,
    },
    /// Send a settled callback again (R-CBK-2).
    RedriveCallback {
        /// Which callback.
        callback: CallbackId,
        /// Its row, as the shell read it.
        row: Option<CallbackRow>,
    },

    /// Begin a batch.
    OpenBatch {
        /// Its id, drawn by the API.
        batch: BatchId,
        /// Whom to tell.
        callback: Option<CallbackSpec>,
        /// Key against double submission.
        idempotency: Option<IdempotencyKey>,
        /// What the key is bound to on disk; the shell fills it in.
        bound: Option<KeyBinding>,
    },
    /// Its last line came, or its connection broke.
    CloseBatch {
        /// Which batch.
        batch: BatchId,
        /// Every line counted.
        total: u32,
        /// Lines refused.
        refused: u32,
    },

    /// Make a token.
    CreateToken {
        /// The token; its secret is only a hash here.
        token: Box<Token>,
    },
    /// Replace a token's secret.
    RotateToken {
        /// Which token.
        token: TokenId,
        /// SHA-256 of the new secret.
        secret: Digest,
        /// For how long the old one holds beside.
        overlap: Millis,
    },
    /// End a token at once.
    RevokeToken {
        /// Which token.
        token: TokenId,
    },
    /// Change the rules of a namespace.
    SetPolicy {
        /// The new rules.
        policy: Policy,
        /// Why.
        reason: Text,
    },

    /// Change the rules of one capability.
    SetHubPolicy {
        /// The new rules.
        policy: HubPolicy,
        /// Why.
        reason: Text,
    },
    /// Change or end the rules of one capability of the namespace.
    SetCapabilityPolicy {
        /// Which capability.
        capability: Capability,
        /// The new rules; `None` ends them.
        rules: Option<CapabilityRules>,
        /// Why.
        reason: Text,
    },

    /// Change how the tasks of one capability of the namespace are given out.
    SetRouting {
        /// Which capability.
        capability: Capability,
        /// What.
        change: RoutingChange,
        /// Why.
        reason: Text,
    },

    /// A timer is due. The sequencer proposes it.
    Fire {
        /// Whose.
        subject: Subject,
    },
    /// The hub started.
    StartHub {
        /// Which start.
        boot: Boot,
        /// Wall clock minus ledger time.
        wall_offset: i64,
        /// Program version.
        version: Text,
        /// The history that begins, drawn at the store's creation; only an empty state takes it.
        lineage: Option<Lineage>,
    },
    /// The loss of a damaged ledger's end is accepted: a new history begins (semantics 24). Proposed by the repair only.
    AcceptLoss {
        /// The new history.
        lineage: Lineage,
        /// The chain hash of the last event taken over.
        hash: Digest,
        /// The last event known to be lost, if any.
        lost_up_to: Option<crate::ledger::ids::Seq>,
        /// Unfinished tasks whose payload is gone.
        payloads: Vec<ReachId>,
    },
    /// The hub stops cleanly.
    StopHub {
        /// Which start it ends.
        boot: Boot,
    },
    /// The wall clock was set.
    NoteClockJump {
        /// The new offset.
        wall_offset: i64,
        /// By how much.
        by: i64,
    },
    /// The hub stood still: nobody could report or be heard.
    NoteStandstill {
        /// How much of it is given back: of standstills in a row a second each counts.
        by: Millis,
    },
    /// In-flight work found at start (semantics 8): an unacknowledged push counts as sent.
    ResolvePushAtBoot {
        /// Which task.
        task: ReachId,
        /// Which attempt.
        attempt: AttemptNo,
    },
}
