//! The ledger's face to the shells: propose, claim, ask, wait.
//!
//! Reading and writing go the same way, through the sequencer's inbox, and every answer is released only when all that
//! it saw is durable. So a read after an ok shows it (A2), no reader sees what is not in the ledger (D3), and no second
//! copy of the state is needed (docs/decisions, "reads through the sequencer").

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use tokio::sync::{oneshot, watch};

use crate::ledger::fresh::FreshPayloads;
use crate::ledger::ids::{AgentKey, AttemptNo, Digest, Incarnation, Lineage, Namespace, ReachId, Seq, TraceContext};
use crate::ledger::keys::Keys;
use crate::ledger::machine::State;
use crate::ledger::machine::access::Access;
use crate::ledger::machine::catalog::Catalog;
use crate::ledger::machine::command::Proposal;
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::policy::{HubPolicy, Policies, RulesByCapability};
use crate::ledger::machine::routing::RoutingByCapability;
use crate::ledger::machine::task::deadline::work_timeout;
use crate::ledger::machine::task::spec::Submission;
use crate::ledger::machine::task::status::Status;
use crate::ledger::machine::task::{Progress, Task};
use crate::ledger::planner::{ClaimId, Load, Note, Planner};
use crate::ledger::store::{Body, BodyKey, Store};
use crate::ledger::time::{LedgerClock, Millis, Timestamp};
use crate::ledger::watch::{Watch, Watchers};

/// A proposal with the bodies that its events will name. They are kept only if it is accepted.
#[derive(Debug, Clone)]
pub struct Intake {
    /// What is proposed.
    pub proposal: Proposal,
    /// Bodies, durable with the event that names them.
    pub bodies: Vec<(BodyKey, Body)>,
}

impl From<Proposal> for Intake {
    fn from(proposal: Proposal) -> Self {
        Self { proposal, bodies: Vec::new() }
    }
}

/// Proof that an event is in the ledger (semantics 25).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Its place.
    pub seq: Seq,
    /// RFC 6962 leaf hash of its frame.
    pub hash: Digest,
}

/// A durable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// What the core said.
    pub answer: Answer,
    /// Its receipt, where the call gives one.
    pub receipt: Option<Receipt>,
}

/// Why the hub can't take a call now: its own doing, never the caller's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The command queue is full.
    #[error("the command queue is full")]
    Busy,
    /// The hub has not finished recovery.
    #[error("the hub is starting")]
    Starting,
    /// The hub is going down.
    #[error("the hub is stopping")]
    Stopping,
    /// The disk is nearly full (semantics 30).
    #[error("the disk is nearly full")]
    DiskFull,
    /// An append failed: what was proposed may be there or not. The hub exits.
    #[error("the ledger failed; the outcome is unknown")]
    Failed,
    /// A read from the store failed.
    #[error("the ledger could not be read: {0}")]
    Unreadable(String),
}

/// Why a proposal was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The core refused it.
    Rejected(Rejection),
    /// The hub can't take it now.
    Unavailable(Unavailable),
}

impl From<Unavailable> for Refusal {
    fn from(why: Unavailable) -> Self {
        Self::Unavailable(why)
    }
}

/// What became of one proposal.
pub type Verdict = Result<Released, Refusal>;

/// A pull agent's wish for work (semantics 4).
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who.
    pub agent: AgentKey,
    /// Which process.
    pub incarnation: Incarnation,
    /// Tasks at most, at least 1.
    pub max: u32,
    /// How long it waits; zero answers at once.
    pub wait: Millis,
    /// Load figures.
    pub load: Option<Load>,
}

/// A claim that goes away unanswered takes its demand with it: nothing is dispatched to nobody.
struct ClaimGuard<'a> {
    ledger: &'a Ledger,
    claim: Option<ClaimId>,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim {
            drop(self.ledger.inbox.try_send(Input::Abandon(claim)));
        }
    }
}

/// A task handed over: what the agent needs, but for its payload and lease, which the shell adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// Where it belongs.
    pub namespace: Namespace,
    /// What was asked.
    pub spec: Arc<Submission>,
    /// Under which attempt.
    pub attempt: AttemptNo,
    /// When its life is over.
    pub deadline: Timestamp,
    /// Acknowledge by then.
    pub reach_deadline: Timestamp,
    /// Time to work, from the acknowledgement.
    pub work_timeout: Millis,
    /// The last stage that an earlier attempt reported.
    pub replay: Option<Progress>,
    /// The caller's trace.
    pub trace: Option<TraceContext>,
}

impl Handed {
    /// The task as it is handed over under its valid, unacknowledged lease; `None` when it has none.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about one state only")]
    pub fn of(task: &Task, now: Timestamp) -> Option<Self> {
        match &task.status {
            Status::Dispatched { lease, reach_deadline } => Some(Self {
                namespace: task.namespace.clone(),
                spec: Arc::clone(&task.spec),
                attempt: lease.attempt,
                deadline: task.deadline,
                reach_deadline: *reach_deadline,
                work_timeout: work_timeout(task, now),
                replay: task.progress.as_deref().cloned(),
                trace: task.trace,
            }),
            _ => None,
        }
    }
}

/// Outcomes of the reports, and the tasks.
#[derive(Debug)]
pub struct WorkAnswer {
    /// One a report, in order.
    pub outcomes: Vec<Verdict>,
    /// The claim's tasks, or why it was refused.
    pub claim: Option<Result<Vec<Handed>, Refusal>>,
}

/// What the hub is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Recovery runs.
    Starting,
    /// Takes everything.
    Open,
    /// No submits, no new dispatches (proof 3.10).
    Draining,
    /// The disk is nearly full: no submits.
    DiskLow,
    /// The disk is full: reads, completions, expiry and heartbeats only.
    DiskFull,
    /// The disk was full at the start: reads only, nothing is written and the start has not begun (semantics 30).
    NoRoom,
    /// Stopped, cleanly or not.
    Stopped,
}

impl Phase {
    /// Is there too little room on the disk for submits (semantics 30)?
    #[must_use]
    pub const fn is_short_of_room(self) -> bool {
        match self {
            Self::DiskLow | Self::DiskFull | Self::NoRoom => true,
            Self::Starting | Self::Open | Self::Draining | Self::Stopped => false,
        }
    }

    /// Is the hub going down? What only waits ends then, so that it does not hold up the stop (proof 3.10).
    #[must_use]
    pub const fn is_stopping(self) -> bool {
        match self {
            Self::Draining | Self::Stopped => true,
            Self::Starting | Self::Open | Self::DiskLow | Self::DiskFull | Self::NoRoom => false,
        }
    }
}

/// What the last durable commit made visible. Counters rise when something of that kind may want looking at.
#[derive(Debug, Clone)]
pub struct Published {
    /// Last durable seq.
    pub seq: Seq,
    /// Its ledger time.
    pub at: Timestamp,
    /// Which history.
    pub lineage: Lineage,
    /// Phase.
    pub phase: Phase,
    /// Tokens.
    pub access: Arc<Access>,
    /// Rules.
    pub policies: Arc<Policies>,
    /// Rules by capability.
    pub capability_rules: Arc<RulesByCapability>,
    /// How the tasks of capabilities are given out.
    pub routing_rules: Arc<RoutingByCapability>,
    /// The rules of the whole hub, as of `visible`.
    pub hub_policy: HubPolicy,
    /// Who offers what.
    pub catalog: Arc<Catalog>,
    /// Wall clock minus ledger time, in milliseconds.
    pub wall_offset: i64,
    /// Pushes and cancels to push agents.
    pub pushes: u64,
    /// Callbacks.
    pub callbacks: u64,
    /// Registrations, and tasks that may want a schema check.
    pub registrations: u64,
    /// Replay plans: their phases and the outcomes of their items.
    pub replays: u64,
    /// Tasks that were made of ended ones.
    pub redrives: u64,
}

impl Published {
    /// What a state makes visible; nothing is counted yet.
    #[must_use]
    pub fn of(state: &State, phase: Phase) -> Self {
        Self {
            seq: state.seq(),
            at: state.at(),
            lineage: state.lineage(),
            phase,
            access: Arc::clone(state.access()),
            policies: Arc::clone(state.policies()),
            capability_rules: Arc::clone(state.capability_rules()),
            routing_rules: Arc::clone(state.routing_rules()),
            hub_policy: state.hub_policy(),
            catalog: Arc::clone(state.catalog()),
            wall_offset: state.wall_offset(),
            pushes: 0,
            callbacks: 0,
            registrations: 0,
            replays: 0,
            redrives: 0,
        }
    }
}

pub(in crate::ledger) type Release = Box<dyn FnOnce() + Send>;
pub(in crate::ledger) type Question = Box<dyn FnOnce(&State, &[Box<dyn Planner>]) -> Release + Send>;

/// What comes into the sequencer's inbox.
pub(in crate::ledger) enum Input {
    /// Proposals, and maybe a claim in the same cycle.
    Work { intakes: Vec<Intake>, claim: Option<(ClaimId, ClaimRequest)>, reply: oneshot::Sender<WorkAnswer> },
    /// The claim's caller went away.
    Abandon(ClaimId),
    /// Something to look up in the state; its answer leaves when what it saw is durable.
    Ask(Question),
    /// Something volatile.
    Note(Note),
    /// Look again: the clock was moved, or a commit returned.
    Nudge,
    /// Go to that phase.
    Enter(Phase),
    /// Write the clean-stop event and end.
    Stop { reply: oneshot::Sender<()> },
}

/// The handle: cheap to clone, held by every shell.
#[derive(Clone)]
pub struct Ledger {
    pub(in crate::ledger) inbox: SyncSender<Input>,
    pub(in crate::ledger) published: watch::Receiver<Published>,
    pub(in crate::ledger) store: Arc<dyn Store>,
    pub(in crate::ledger) keys: Keys,
    pub(in crate::ledger) clock: LedgerClock,
    pub(in crate::ledger) watchers: Arc<Watchers>,
    pub(in crate::ledger) fresh: Arc<FreshPayloads>,
    pub(in crate::ledger) claims: Arc<AtomicU64>,
}

impl Ledger {
    /// Proposes one command; the answer comes when it is durable.
    ///
    /// # Errors
    /// [`Refusal`]: the core's reason, or why the hub can't take it now.
    pub async fn propose(&self, intake: impl Into<Intake>) -> Verdict {
        let answer = self.work(vec![intake.into()], None).await?;
        answer.outcomes.into_iter().next().unwrap_or(Err(Refusal::Unavailable(Unavailable::Failed)))
    }

    /// Proposes several commands in one cycle: an outcome each, in order.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub takes none of them.
    pub async fn propose_all(&self, intakes: Vec<Intake>) -> Result<Vec<Verdict>, Unavailable> {
        Ok(self.work(intakes, None).await?.outcomes)
    }

    /// Reports and a claim in one cycle. With a claim the answer comes when there is work or the wait is over. A
    /// caller that goes away loses nothing: what was handed to it is released by the sequencer.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub takes none of it.
    pub async fn work(&self, intakes: Vec<Intake>, claim: Option<ClaimRequest>) -> Result<WorkAnswer, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let claim = claim.map(|claim| (ClaimId(self.claims.fetch_add(1, Ordering::Relaxed)), claim));
        let mut guard = ClaimGuard { ledger: self, claim: claim.as_ref().map(|(id, _)| *id) };
        self.send(Input::Work { intakes, claim, reply })?;
        let answer = answer.await.map_err(|_| Unavailable::Failed);
        guard.claim = None;
        answer
    }

    /// Asks the state something. `question` runs on the sequencer's thread: it must look at a bounded part of it. What
    /// it saw is durable when the answer comes.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub does not answer.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        self.ask_with(move |state, _| question(state)).await
    }

    /// As [`Ledger::ask`], with the planner of type `P` beside the state; `None` if the hub runs without one.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub does not answer.
    pub async fn ask_planner<P: Any, T: Send + 'static>(
        &self,
        question: impl FnOnce(&State, &P) -> T + Send + 'static,
    ) -> Result<Option<T>, Unavailable> {
        self.ask_with(move |state, planners| {
            planners.iter().find_map(|planner| planner.as_any().downcast_ref::<P>()).map(|p| question(state, p))
        })
        .await
    }

    async fn ask_with<T: Send + 'static>(
        &self,
        question: impl FnOnce(&State, &[Box<dyn Planner>]) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.send(Input::Ask(Box::new(move |state, planners| {
            let found = question(state, planners);
            Box::new(move || drop(reply.send(found)))
        })))?;
        answer.await.map_err(|_| Unavailable::Failed)
    }

    /// Tells planners something volatile; dropped when the inbox is full, as a lost heartbeat would be.
    pub fn note(&self, note: Note) {
        drop(self.send(Input::Note(note)));
    }

    /// Makes the sequencer look again: after a test moved the clock.
    pub fn nudge(&self) {
        drop(self.inbox.try_send(Input::Nudge));
    }

    /// Enters a phase, such as draining before a stop. A hub that drains goes back to none.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub has stopped.
    pub async fn enter(&self, phase: Phase) -> Result<(), Unavailable> {
        self.send_surely(Input::Enter(phase)).await
    }

    /// Writes the clean-stop event, flushes and ends the sequencer.
    ///
    /// # Errors
    /// [`Unavailable`] when it has stopped already or failed on the way.
    pub async fn stop(&self) -> Result<(), Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.send_surely(Input::Stop { reply }).await?;
        answer.await.map_err(|_| Unavailable::Failed)
    }

    /// What is durable now.
    #[must_use]
    pub fn published(&self) -> Published {
        self.published.borrow().clone()
    }

    /// A receiver that changes with every durable commit.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Published> {
        self.published.clone()
    }

    /// Ledger time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Converts an absolute wall-clock moment into ledger time (semantics 23).
    #[must_use]
    pub fn from_wall(&self, wall: Timestamp) -> Timestamp {
        Timestamp(wall.0.saturating_add_signed(self.clock.wall_offset().saturating_neg()))
    }

    /// The keys, for leases and fingerprints.
    #[must_use]
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Registers for changes of one task; see [`Watch::until`].
    #[must_use]
    pub fn watch(&self, task: ReachId) -> Watch {
        self.watchers.watch(task, self.follow())
    }

    /// Waits for room in the inbox: an order of the hub's own must not be lost because callers are many.
    async fn send_surely(&self, input: Input) -> Result<(), Unavailable> {
        let inbox = self.inbox.clone();
        let sent = tokio::task::spawn_blocking(move || inbox.send(input).map_err(|_| Unavailable::Stopping));
        sent.await.map_err(|_| Unavailable::Stopping)?
    }

    fn send(&self, input: Input) -> Result<(), Unavailable> {
        self.inbox.try_send(input).map_err(|error| match error {
            TrySendError::Full(_) => Unavailable::Busy,
            TrySendError::Disconnected(_) => Unavailable::Stopping,
        })
    }
}
