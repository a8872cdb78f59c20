//! Handing a task over, and what becomes of one whose hand-over went wrong or whose agent is gone.

use std::collections::BTreeSet;

use crate::ledger::ids::{AgentKey, AttemptNo, ReachId};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Agent, Offer, Transport};
use crate::ledger::machine::breaker::decide::may_dispatch;
use crate::ledger::machine::command::{AgentBusy, Command, Proposal, PushTrouble};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{
    EventBody, HeldWhy, QueuedWhy, Started, TaskDispatched, TaskOrphaned, TaskQueued, TaskReclaimed, TaskReplayHeld,
    TaskReplayed,
};
use crate::ledger::machine::task::deadline::work_deadline;
use crate::ledger::machine::task::decide::{known, moved_on};
use crate::ledger::machine::task::retry::{Return, attempt_failed, dead_letter, failure, returned, slow};
use crate::ledger::machine::task::spec::{MAX_INTERRUPTIONS, OrphanPolicy};
use crate::ledger::machine::task::status::{Acked, Delivery, OrphanCause, SlowCause, Status, StatusKind};
use crate::ledger::machine::task::{FailureClass, Task};
use crate::ledger::time::Timestamp;

/// The planner proposed it; every hard limit is checked again, so that a planner's fault is unfair, never unsafe
/// (S7, S8).
#[expect(clippy::wildcard_enum_match_arm, reason = "decide.rs sends only a dispatch here")]
pub(super) fn dispatch(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    let (id, agent, incarnation, delivery, lease, explanation) = match &proposal.command {
        Command::DispatchTask { task, agent, incarnation, delivery, lease, explanation } => {
            (*task, agent, *incarnation, *delivery, *lease, explanation)
        }
        _ => return Decision::refuse(Rejection::TaskUnknown),
    };
    let Some(task) = known(state, proposal, id, None) else { return Decision::refuse(Rejection::TaskUnknown) };
    if task.status.kind() != StatusKind::Queued || now >= task.deadline {
        return moved_on(task);
    }
    let key = AgentKey { namespace: task.namespace.clone(), agent_id: agent.clone() };
    let Some(standing) = state.agents.get(&key) else { return Decision::refuse(Rejection::AgentUnknown) };
    if standing.incarnation != incarnation {
        return Decision::refuse(Rejection::IncarnationSuperseded { current: standing.incarnation });
    }
    if !standing.is_open() || !can_serve(standing, task, delivery) {
        return Decision::refuse(Rejection::AgentNotOpen { agent: agent.clone() });
    }
    if let Err(open) = may_dispatch(state, task, standing) {
        return Decision::refuse(open);
    }
    if standing.slots_free() == 0 {
        return Decision::refuse(Rejection::NoFreeSlot { agent: agent.clone() });
    }
    let attempt = task.attempt.next();
    let dispatched = TaskDispatched {
        task: id,
        attempt,
        agent: agent.clone(),
        incarnation,
        lease,
        delivery,
        reach_deadline: now.after(task.spec.reach_timeout),
        explanation: (**explanation).clone(),
    };
    Decision::accept(vec![dispatched.into()], Answer::Dispatched { attempt })
}

/// Could this agent do this task at all?
fn can_serve(agent: &Agent, task: &Task, delivery: Delivery) -> bool {
    let reachable = match agent.declaration.transport {
        Transport::Pull => delivery == Delivery::Pull,
        Transport::Http { .. } => delivery == Delivery::Push,
    };
    let accepts = |offer: &Offer| offer.schemas.iter().all(|schema| task.schemas.accepted.contains(schema));
    reachable
        && agent.offer(&task.spec.capability).is_some_and(accepts)
        && agent.declaration.serves(task.submitter.as_ref())
}

/// Semantics 8. While a push waits in `slow-reach` its connection stays open, so that a late "not now" still counts.
pub(super) fn push_failed(task: &Task, attempt: AttemptNo, trouble: &PushTrouble, now: Timestamp) -> Decision {
    let is_dispatched = task.status.kind() == StatusKind::Dispatched;
    if !is_open_push(task, attempt) {
        return moved_on(task);
    }
    let events = match trouble {
        PushTrouble::NeverStarted { failure, retry_after, busy } => {
            let how = match busy {
                AgentBusy::Yes => Return::GivenBack { retry_after: *retry_after },
                AgentBusy::No => Return::Unanswered,
            };
            let failed = attempt_failed(task, failure.clone(), Started::Never);
            vec![failed, returned(task, how, QueuedWhy::NeverStarted, now)]
        }
        PushTrouble::Ambiguous { .. } if is_dispatched => slow(task, SlowCause::Ambiguous, now),
        PushTrouble::Ambiguous { .. } => return moved_on(task),
    };
    Decision::accept(events, Answer::Done)
}

fn is_open_push(task: &Task, attempt: AttemptNo) -> bool {
    let unacked = match &task.status {
        Status::Dispatched { .. } => true,
        Status::SlowReach { acked, .. } => *acked == Acked::No,
        Status::AwaitingApproval
        | Status::Scheduled { .. }
        | Status::Queued { .. }
        | Status::Processing { .. }
        | Status::Retrying { .. }
        | Status::Orphaned { .. }
        | Status::Succeeded
        | Status::Failed
        | Status::DeadLetter
        | Status::Expired
        | Status::Cancelled => false,
    };
    let lease = task.status.lease();
    unacked && lease.is_some_and(|lease| lease.attempt == attempt && lease.delivery == Delivery::Push)
}

/// At boot every unacknowledged push counts as sent (semantics 8).
pub(super) fn resolve_push(task: &Task, attempt: AttemptNo, now: Timestamp) -> Decision {
    if task.status.kind() != StatusKind::Dispatched || !is_open_push(task, attempt) {
        return moved_on(task);
    }
    Decision::accept(slow(task, SlowCause::Ambiguous, now), Answer::Done)
}

/// R-REC-3: the state is checked at the moment of the replay. An orphan that a newer task of its session has made
/// superfluous waits for an operator, whatever its policy; one that its policy holds does so anyhow.
pub(super) fn replay(state: &State, task: &Task, superseded_by: Option<ReachId>) -> Decision {
    let is_open = task.status.kind() == StatusKind::Orphaned && state.held(task.id()).is_none();
    match (superseded_by, task.spec.orphan) {
        (Some(by), _) if is_open => {
            Decision::accept(vec![held_back(task, by)], Answer::Task { state: StatusKind::Orphaned })
        }
        (None, OrphanPolicy::Replay) if is_open => {
            Decision::accept(let_back(task), Answer::Task { state: StatusKind::Queued })
        }
        (Some(_), _) | (None, OrphanPolicy::Replay | OrphanPolicy::Hold) => moved_on(task),
    }
}

/// An orphan without which its session has gone on: it waits for a word, and nobody of the session waits for it.
#[must_use]
pub(in crate::ledger::machine) fn held_back(task: &Task, by: ReachId) -> EventBody {
    TaskReplayHeld { task: task.id(), attempt: task.attempt, why: HeldWhy::Superseded { by } }.into()
}

/// Back to the queue, by the sweep or by an operator's word: the old lease ends.
#[must_use]
pub(in crate::ledger::machine) fn let_back(task: &Task) -> Vec<EventBody> {
    let replayed = TaskReplayed { task: task.id(), attempt: task.attempt };
    vec![replayed.into(), TaskQueued { task: task.id(), why: QueuedWhy::Replayed }.into()]
}

/// What becomes of everything that an agent held when it is lost, leaves, is replaced or drained (semantics 2, 8, 9).
#[must_use]
pub(in crate::ledger::machine) fn agent_gone(
    state: &State,
    agent: &Agent,
    cause: OrphanCause,
    now: Timestamp,
) -> Vec<EventBody> {
    agent.held.iter().filter_map(|id| state.tasks.get(id)).flat_map(|task| left_behind(task, cause, now)).collect()
}

fn left_behind(task: &Task, cause: OrphanCause, now: Timestamp) -> Vec<EventBody> {
    match &task.status {
        Status::Dispatched { lease, .. } => match lease.delivery {
            Delivery::Pull => {
                let given_back = Return::GivenBack { retry_after: None };
                vec![returned(task, given_back, QueuedWhy::NeverStarted, now)]
            }
            Delivery::Push => slow(task, SlowCause::Ambiguous, now),
        },
        Status::Processing { .. } | Status::SlowReach { .. } => orphaned(task, cause),
        Status::AwaitingApproval
        | Status::Scheduled { .. }
        | Status::Queued { .. }
        | Status::Retrying { .. }
        | Status::Orphaned { .. }
        | Status::Succeeded
        | Status::Failed
        | Status::DeadLetter
        | Status::Expired
        | Status::Cancelled => Vec::new(),
    }
}

/// Only a loss without a goodbye is an interruption; too many of them stop a task that kills its agents (semantics 9).
fn orphaned(task: &Task, cause: OrphanCause) -> Vec<EventBody> {
    let mut events: Vec<EventBody> = vec![TaskOrphaned { task: task.id(), attempt: task.attempt, cause }.into()];
    let is_interruption = match cause {
        OrphanCause::AgentLost => true,
        OrphanCause::AgentLeft | OrphanCause::AgentReplaced | OrphanCause::AgentDrained | OrphanCause::LossAccepted => {
            false
        }
    };
    if is_interruption && task.interruptions.saturating_add(1) >= MAX_INTERRUPTIONS {
        events.push(dead_letter(task, failure(FailureClass::AgentCrash, "poison-suspected")));
    }
    events
}

/// What an accepted loss makes of the unfinished tasks (semantics 24): whatever is in somebody's hands is an orphan whose
/// lease is void, because the lost events may have handed it on; what has no payload any more can't be done.
#[must_use]
pub(in crate::ledger::machine) fn loss_accepted(state: &State, payloads: &[ReachId]) -> Vec<EventBody> {
    let gone: BTreeSet<_> = payloads.iter().collect();
    let mut events = Vec::new();
    for (id, task) in &state.tasks {
        let cause = OrphanCause::LossAccepted;
        if task.status.lease().is_some() {
            events.push(TaskOrphaned { task: *id, attempt: task.attempt, cause }.into());
        }
        if gone.contains(id) && !task.status.kind().is_terminal() {
            events.push(dead_letter(task, failure(FailureClass::Hub, "payload-lost")));
        }
    }
    events
}

/// An orphan goes back to its own agent, which still works on it (semantics 5); `None` if it is no orphan any more.
#[must_use]
pub(in crate::ledger::machine) fn reclaim(state: &State, id: ReachId, now: Timestamp) -> Option<EventBody> {
    let task = state.tasks.get(&id).filter(|task| task.status.kind() == StatusKind::Orphaned)?;
    Some(TaskReclaimed { task: id, attempt: task.attempt, work_deadline: work_deadline(task, now) }.into())
}
