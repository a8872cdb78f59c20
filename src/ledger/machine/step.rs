//! One step of the machine: decide, apply, and what follows from it.
//!
//! ```text
//! proposal ─► decide ─► bodies ─► events (seq, at, who, where) ─► apply each ─► follow-ups of each, until none
//! ```
//!
//! Here is only the way through the nouns and what is true of every event: `seq` is dense, `at` never falls. The rules
//! are in each noun's `decide.rs`, the moves in its `apply.rs`.

use std::sync::Arc;

use crate::ledger::ids::{AgentId, AgentKey, BatchId, Namespace, Seq, SessionId, TraceContext};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::{Actor, Event, EventBody, EventKind};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::{
    Fact, State, access, agent, batch, breaker, callback, hub, policy, replay, routing, task,
};
use crate::ledger::time::Timestamp;

/// What one step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Events, already applied: the decision's own first, then what followed from them. One commit holds them all.
    pub events: Vec<Event>,
    /// What to tell the proposer.
    pub answer: Result<Answer, Rejection>,
}

/// An event that cannot follow on its state: a bug or a damaged log, never a caller's doing. The state is no longer of
/// use; whoever folds it must stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} ({}) cannot follow: {state}", kind.name())]
pub struct ImpossibleTransition {
    /// Which event.
    pub seq: Seq,
    /// Its kind.
    pub kind: EventKind,
    /// What it met.
    pub state: String,
}

impl ImpossibleTransition {
    /// The event with what it met.
    #[must_use]
    pub fn of(event: &Event, state: impl Into<String>) -> Self {
        Self { seq: event.seq, kind: event.body.kind(), state: state.into() }
    }
}

/// Decides a proposal, applies its events and whatever follows from them.
///
/// # Errors
/// [`ImpossibleTransition`] when the core contradicts itself: the state is then half changed and must not be used.
pub fn step(state: &mut State, proposal: &Proposal, now: Timestamp) -> Result<Step, ImpossibleTransition> {
    let now = now.max(state.at);
    let Decision { events: bodies, answer } = decide(state, proposal, now);
    let mut events = Vec::with_capacity(bodies.len());
    for body in bodies {
        let event = Envelope::of(state, proposal, &body).seal(state, proposal.actor.clone(), now, body);
        apply(state, &event)?;
        events.push(event);
    }
    let mut told = 0;
    while let Some(cause) = events.get(told) {
        told += 1;
        // Most events cause nothing: only what follows takes a copy.
        let bodies = follow_ups(state, cause);
        let belongs = if bodies.is_empty() { None } else { cause.namespace.clone() };
        for body in bodies {
            let mut envelope = Envelope::of(state, proposal, &body);
            envelope.namespace = envelope.namespace.or_else(|| belongs.clone());
            let event = envelope.seal(state, Actor::Hub, now, body);
            apply(state, &event)?;
            events.push(event);
        }
    }
    Ok(Step { events, answer })
}

/// Every rule: sends the command to its noun. Changes nothing.
#[must_use]
pub fn decide(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    match &proposal.command {
        Command::RegisterAgent { .. }
        | Command::Heartbeat { .. }
        | Command::DrainAgent { .. }
        | Command::AgentOffline { .. }
        | Command::DeregisterAgent { .. }
        | Command::MarkUnhealthy { .. }
        | Command::MarkLost { .. } => agent::decide::decide(state, proposal, now),
        Command::Fire { subject: Subject::Agent(key) } => agent::decide::fire(state, key, now),
        Command::OpenBreaker { .. } | Command::SetBreaker { .. } => breaker::decide::decide(state, proposal, now),
        Command::Fire { subject: Subject::Breaker(key) } => breaker::decide::fire(state, key, now),
        Command::SubmitTask { .. }
        | Command::DispatchTask { .. }
        | Command::Report(_)
        | Command::PushFailed { .. }
        | Command::CancelTask { .. }
        | Command::ApproveTask { .. }
        | Command::RefuseTask { .. }
        | Command::ReplayTask { .. }
        | Command::ResolveTask { .. }
        | Command::RedriveTask(_)
        | Command::SchemaChecked { .. }
        | Command::ResolvePushAtBoot { .. }
        | Command::Fire { subject: Subject::Task(_) } => task::decide::decide(state, proposal, now),
        Command::CallbackTried { .. } | Command::CallbackErased { .. } | Command::RedriveCallback { .. } => {
            callback::decide::decide(state, proposal, now)
        }
        Command::OpenBatch { .. } | Command::CloseBatch { .. } => batch::decide::decide(state, proposal, now),
        Command::PlanReplay(_) | Command::SteerReplay { .. } | Command::ReplayItem(_) => {
            replay::decide::decide(state, proposal, now)
        }
        Command::CreateToken { .. } | Command::RotateToken { .. } | Command::RevokeToken { .. } => {
            access::decide::decide(state, proposal, now)
        }
        Command::SetPolicy { .. } | Command::SetCapabilityPolicy { .. } | Command::SetHubPolicy { .. } => {
            policy::decide::decide(state, proposal)
        }
        Command::SetRouting { .. } => routing::decide::decide(state, proposal),
        Command::StartHub { .. }
        | Command::AcceptLoss { .. }
        | Command::StopHub { .. }
        | Command::NoteClockJump { .. }
        | Command::NoteStandstill { .. } => hub::decide(state, proposal),
    }
}

/// Every move: sends the event to its noun. The same for live, boot, simulation and audit.
///
/// # Errors
/// [`ImpossibleTransition`] when the event cannot follow on this state.
#[expect(clippy::too_many_lines, reason = "the index of every kind: each arm is one call")]
pub fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    if event.seq != state.seq.next() {
        return Err(ImpossibleTransition::of(event, format!("the state stands at seq {}", state.seq)));
    }
    if event.at < state.at {
        return Err(ImpossibleTransition::of(event, format!("time falls from {} to {}", state.at, event.at)));
    }
    let silent = event.at.since(state.at);
    state.seq = event.seq;
    state.at = event.at;
    if let Some(id) = event.body.task().filter(|_| !matches!(event.body, EventBody::TaskSubmitted(_))) {
        state.note_history(id, event.seq, event.body.kind());
    }
    if let EventBody::TaskRedriven(body) = &event.body {
        state.note_history(body.successor, event.seq, event.body.kind());
    }
    match &event.body {
        EventBody::HubStarted(_) => {
            hub::apply(state, event)?;
            task::apply::pause_wait_budgets(state, event, silent)
        }
        EventBody::HubStalled(body) => task::apply::give_time_back(state, event, body.by),
        EventBody::LineageStarted(_) | EventBody::HubStopped(_) | EventBody::ClockJumped(_) => hub::apply(state, event),
        EventBody::AgentRegistered(body) => registered(state, event, &body.agent),
        EventBody::AgentUpdated(_) | EventBody::AgentLeft(_) | EventBody::AgentDeregistered(_) => {
            agent::apply::apply(state, event)?;
            breaker::apply::agent_changed(state, event, None);
            Ok(())
        }
        EventBody::AgentTold(_)
        | EventBody::AgentDraining(_)
        | EventBody::AgentUnhealthy(_)
        | EventBody::AgentHealthy(_)
        | EventBody::AgentLost(_)
        | EventBody::AgentSlotFreed(_) => agent::apply::apply(state, event),
        EventBody::BreakerOpened(_) | EventBody::BreakerHalfOpened(_) | EventBody::BreakerClosed(_) => {
            breaker::apply::apply(state, event)
        }
        EventBody::TaskDispatched(body) => {
            task::apply::apply(state, event)?;
            breaker::apply::dispatched(state, event, body)
        }
        EventBody::TaskSubmitted(_)
        | EventBody::TaskQueued(_)
        | EventBody::TaskAcknowledged(_)
        | EventBody::TaskReclaimed(_)
        | EventBody::TaskOverdue(_)
        | EventBody::TaskProgressed(_)
        | EventBody::TaskSlow(_)
        | EventBody::TaskAttemptFailed(_)
        | EventBody::TaskRetryScheduled(_)
        | EventBody::TaskOrphaned(_)
        | EventBody::TaskReplayed(_)
        | EventBody::TaskReleased(_)
        | EventBody::TaskSucceeded(_)
        | EventBody::TaskFailed(_)
        | EventBody::TaskDeadLettered(_)
        | EventBody::TaskExpired(_)
        | EventBody::TaskCancelled(_)
        | EventBody::TaskApproved(_)
        | EventBody::TaskRefused(_)
        | EventBody::TaskSchemaChecked(_)
        | EventBody::TaskResolved(_)
        | EventBody::TaskRedriven(_)
        | EventBody::TaskReplayHeld(_)
        | EventBody::TaskStaleReportRefused(_) => task::apply::apply(state, event),
        EventBody::CallbackDue(_)
        | EventBody::CallbackAttempted(_)
        | EventBody::CallbackDelivered(_)
        | EventBody::CallbackExhausted(_)
        | EventBody::CallbackBlocked(_)
        | EventBody::CallbackGone(_)
        | EventBody::CallbackRedriven(_) => callback::apply::apply(state, event),
        EventBody::BatchOpened(_) | EventBody::BatchClosed(_) | EventBody::BatchSettled(_) => {
            batch::apply::apply(state, event)
        }
        EventBody::ReplayPlanned(_)
        | EventBody::ReplayStarted(_)
        | EventBody::ReplayItemDone(_)
        | EventBody::ReplayItemSkipped(_)
        | EventBody::ReplayPaused(_)
        | EventBody::ReplayResumed(_)
        | EventBody::ReplayRateChanged(_)
        | EventBody::ReplayFinished(_) => replay::apply::apply(state, event),
        EventBody::TokenCreated(_) | EventBody::TokenRotated(_) | EventBody::TokenRevoked(_) => {
            access::apply::apply(state, event)
        }
        EventBody::PolicyChanged(_) | EventBody::CapabilityPolicyChanged(_) | EventBody::HubPolicyChanged(_) => {
            policy::apply::apply(state, event)
        }
        EventBody::RoutingRulesChanged(body) => routing::apply::apply(state, event, body),
    }
}

/// A registration, and what it takes from an older process.
fn registered(state: &mut State, event: &Event, agent: &AgentId) -> Result<(), ImpossibleTransition> {
    let key = event.namespace.clone().map(|namespace| AgentKey { namespace, agent_id: agent.clone() });
    let before = key.as_ref().and_then(|key| state.agents.get(key)).map(|agent| agent.incarnation);
    agent::apply::apply(state, event)?;
    if let Some(key) = key {
        state.let_go_of_older(&key);
    }
    breaker::apply::agent_changed(state, event, before);
    Ok(())
}

/// What follows from an event that was just applied.
fn follow_ups(state: &State, event: &Event) -> Vec<EventBody> {
    let mut bodies = callback::decide::follow_ups(state, event);
    bodies.extend(batch::decide::follow_ups(state, event));
    bodies.extend(breaker::decide::follow_ups(state, event));
    bodies.extend(agent::decide::follow_ups(state, event));
    bodies.extend(replay::decide::follow_ups(state, event));
    bodies
}

/// What an event says of where it belongs.
#[derive(Default)]
struct Envelope {
    namespace: Option<Namespace>,
    session: Option<SessionId>,
    batch: Option<BatchId>,
    trace: Option<TraceContext>,
}

impl Envelope {
    fn of(state: &State, proposal: &Proposal, body: &EventBody) -> Self {
        let mut envelope = Self { namespace: proposal.namespace.clone(), trace: proposal.trace, ..Self::default() };
        if let EventBody::TaskSubmitted(submitted) = body {
            envelope.session = submitted.submission.session.clone();
            envelope.batch = submitted.submission.batch.map(|(batch, _)| batch);
            return envelope;
        }
        if let Some(id) = body.task() {
            let finished = fact_of(&proposal.command).filter(|task| task.id() == id);
            if let Some(task) = state.task(id).or(finished) {
                envelope.namespace = Some(task.namespace.clone());
                envelope.session = task.spec.session.clone();
                envelope.batch = task.spec.batch.map(|(batch, _)| batch);
                envelope.trace = proposal.trace.or(task.trace);
            }
        }
        if let Some(batch) = batch_of(body) {
            envelope.batch = Some(batch);
            envelope.namespace = state.batch(batch).map(|b| b.namespace.clone()).or(envelope.namespace);
        }
        if let Some(replay) = body.replay().and_then(|id| state.replay(id)) {
            envelope.namespace = Some(replay.namespace.clone());
        }
        if let Command::Fire { subject: Subject::Agent(key) } = &proposal.command {
            envelope.namespace = Some(key.namespace.clone());
        }
        if let Command::Fire { subject: Subject::Breaker(key) } = &proposal.command {
            envelope.namespace = Some(key.agent.namespace.clone());
        }
        envelope
    }

    fn seal(self, state: &State, actor: Actor, at: Timestamp, body: EventBody) -> Event {
        Event {
            seq: state.seq.next(),
            at,
            namespace: self.namespace,
            actor,
            session: self.session,
            batch: self.batch,
            trace: self.trace,
            body,
        }
    }
}

/// The batch that an event of a batch, or of its callback, concerns.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds name a batch; the rest do not")]
const fn batch_of(body: &EventBody) -> Option<BatchId> {
    match body {
        EventBody::BatchOpened(e) => Some(e.batch),
        EventBody::BatchClosed(e) => Some(e.batch),
        EventBody::BatchSettled(e) => Some(e.batch),
        _ => match body.callback_subject() {
            Some(callback::CallbackSubject::Batch(batch)) => Some(batch),
            Some(callback::CallbackSubject::Task(_)) | None => None,
        },
    }
}

/// The finished row that a shell handed over with a command (semantics 16).
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which commands carry a fact; the rest do not")]
fn fact_of(command: &Command) -> Option<&Task> {
    let fact = match command {
        Command::Report(report) => report.fact.as_ref(),
        Command::CancelTask { fact, .. } => fact.as_ref(),
        Command::RedriveTask(order) => return order.before.as_ref()?.finished.as_deref(),
        Command::ReplayItem(item) => return item.before.as_ref()?.finished.as_deref(),
        _ => None,
    };
    fact.map(|Fact::Finished(task)| Arc::as_ref(task))
}
