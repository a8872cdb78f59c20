//! The rules of agents: who may speak for an id, who is alive, and what becomes of the work of one that is gone.
//!
//! Order inside a decision matters: whatever takes an agent out of the running comes *before* the events of its tasks,
//! so that no follow-up of those finds it still draining. Only the end of a drain comes last: an agent is deregistered
//! once its leftovers are orphaned (semantics 40).

use std::collections::BTreeSet;

use crate::ledger::ids::{AgentKey, AttemptNo, Incarnation, ReachId};
use crate::ledger::machine::agent::{Agent, Declaration, DrainMode, Health, Standing, size};
use crate::ledger::machine::bounds::Known;
use crate::ledger::machine::command::{Command, Held, Proposal};
use crate::ledger::machine::decision::{Answer, Beat, Decision, Rejection};
use crate::ledger::machine::event::{
    AgentDeregistered, AgentDraining, AgentHealthy, AgentLeft, AgentLost, AgentRegistered, AgentSlotFreed, AgentTold,
    AgentUnhealthy, AgentUpdated, Event, EventBody,
};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::{OrphanCause, Status};
use crate::ledger::machine::{State, bounds, task};
use crate::ledger::time::{Millis, Timestamp};

/// Decides the agents' commands; `step.rs` sends no other here.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    let Some(namespace) = proposal.namespace.clone() else { return Decision::refuse(Rejection::AgentUnknown) };
    let key =
        |agent_id: &crate::ledger::ids::AgentId| AgentKey { namespace: namespace.clone(), agent_id: agent_id.clone() };
    match &proposal.command {
        Command::RegisterAgent { agent, instance, declaration } => {
            register(state, &key(agent), instance.as_ref(), declaration, now)
        }
        Command::Heartbeat { agent, incarnation, held } => {
            heartbeat(state, &key(agent), *incarnation, held.as_deref(), now)
        }
        Command::DrainAgent { agent, mode, grace, reason } => {
            drain(state, &key(agent), Drain { mode: *mode, grace: *grace, reason: reason.clone() }, now)
        }
        Command::AgentOffline { agent, incarnation } => offline(state, &key(agent), *incarnation, now),
        Command::DeregisterAgent { agent } => deregister(state, &key(agent), now),
        Command::MarkUnhealthy { agent, incarnation, silent } => {
            mark_unhealthy(state, &key(agent), *incarnation, *silent)
        }
        Command::MarkLost { agent, incarnation, silent } => mark_lost(state, &key(agent), *incarnation, *silent, now),
        _ => Decision::refuse(Rejection::AgentUnknown),
    }
}

/// R-REG-1, R-REG-3, semantics 2: the same instance replaces its declaration; any other takes the id over.
fn register(
    state: &State,
    key: &AgentKey,
    instance: Option<&Text>,
    declaration: &Declaration,
    now: Timestamp,
) -> Decision {
    if size::of_registration(instance, declaration) > size::MAX_EVENT {
        return Decision::refuse(Rejection::DeclarationTooLarge { limit: size::MAX_EVENT_BYTES });
    }
    let registered = |incarnation| {
        EventBody::from(AgentRegistered {
            agent: key.agent_id.clone(),
            incarnation,
            instance: instance.cloned(),
            declaration: declaration.clone(),
        })
    };
    let takes_part = state.agents.get(key).map(|agent| agent.standing);
    let room = match takes_part {
        None => bounds::agent(state, &key.namespace, Known::No),
        Some(Standing::Offline | Standing::Deregistered) => bounds::agent(state, &key.namespace, Known::Yes),
        Some(Standing::Active | Standing::Draining { .. }) => Ok(()),
    };
    if let Err(full) = room {
        return Decision::refuse(full);
    }
    let Some(agent) = state.agents.get(key) else {
        let incarnation = Incarnation(1);
        return Decision::accept(vec![registered(incarnation)], Answer::Registered { incarnation });
    };
    let same = instance.is_some() && agent.instance.as_ref() == instance;
    let incarnation = if same { agent.incarnation } else { Incarnation(agent.incarnation.0.saturating_add(1)) };
    let mut events = Vec::new();
    match agent.standing {
        Standing::Active | Standing::Draining { .. } if same => {
            let declaration = declaration.clone();
            events.push(AgentUpdated { agent: key.agent_id.clone(), incarnation, declaration }.into());
            events.extend(revive(agent));
        }
        // An agent that comes back is online again, which is what agent-registered says, even under its old
        // incarnation (semantics 35).
        Standing::Active | Standing::Draining { .. } | Standing::Offline | Standing::Deregistered => {
            events.push(registered(incarnation));
            if !same {
                events.extend(task::agent_gone(state, agent, OrphanCause::AgentReplaced, now));
            }
        }
    }
    Decision::accept(events, Answer::Registered { incarnation })
}

/// An unhealthy or lost agent whose current process calls is healthy again (semantics 3).
#[must_use]
pub(in crate::ledger::machine) fn revive(agent: &Agent) -> Option<EventBody> {
    match agent.health {
        Health::Healthy => None,
        Health::Unhealthy | Health::Lost => {
            Some(AgentHealthy { agent: agent.id().clone(), incarnation: agent.incarnation }.into())
        }
    }
}

/// The agent, if it takes part and this is its current process.
///
/// # Errors
/// `AgentUnknown`, `AgentNotRegistered` or `IncarnationSuperseded` (R-REG-3).
pub(in crate::ledger::machine) fn current<'a>(
    state: &'a State,
    key: &AgentKey,
    incarnation: Incarnation,
) -> Result<&'a Agent, Rejection> {
    let agent = state.agents.get(key).ok_or(Rejection::AgentUnknown)?;
    if agent.incarnation != incarnation {
        return Err(Rejection::IncarnationSuperseded { current: agent.incarnation });
    }
    match agent.standing {
        Standing::Active | Standing::Draining { .. } => Ok(agent),
        Standing::Offline | Standing::Deregistered => Err(Rejection::AgentNotRegistered),
    }
}

/// R-REG-4, semantics 3, 5 and 6. Costs an event only where something changes: most heartbeats leave none.
fn heartbeat(
    state: &State,
    key: &AgentKey,
    incarnation: Incarnation,
    held: Option<&[Held]>,
    now: Timestamp,
) -> Decision {
    let agent = match current(state, key, incarnation) {
        Ok(agent) => agent,
        Err(reason) => return Decision::refuse(reason),
    };
    let mut events: Vec<EventBody> = revive(agent).into_iter().collect();
    let mut beat = Beat {
        drain_until: match agent.standing {
            Standing::Draining { until } => Some(until),
            Standing::Active | Standing::Offline | Standing::Deregistered => None,
        },
        ..Beat::default()
    };
    // A set: a listing that names a task twice must not reclaim it twice.
    let listed: Option<BTreeSet<(ReachId, AttemptNo)>> =
        held.map(|held| held.iter().map(|held| (held.task, held.attempt)).collect());
    for (task, attempt) in listed.iter().flatten().copied() {
        match holding(state, agent, task, attempt) {
            Holding::Orphaned => events.extend(task::reclaim(state, task, now)),
            Holding::Leased | Holding::Ghost => {}
            Holding::Nothing => beat.lost.push((task, attempt)),
        }
    }
    for ghost in agent.ghosts.keys().copied() {
        let omitted = listed.as_ref().is_some_and(|listed| !listed.contains(&ghost));
        let (task, attempt) = ghost;
        match (agent.told.contains(&ghost), omitted) {
            (true, true) => events.push(AgentSlotFreed { agent: key.agent_id.clone(), task, attempt }.into()),
            (true, false) => beat.cancelled.push(ghost),
            (false, _) => {
                events.push(AgentTold { agent: key.agent_id.clone(), task, attempt }.into());
                beat.cancelled.push(ghost);
            }
        }
    }
    Decision::accept(events, Answer::Beat(beat))
}

/// What an agent has of an attempt that it says it holds.
enum Holding {
    /// Its valid lease.
    Leased,
    /// Its valid lease, while the task waits for a replay.
    Orphaned,
    /// Only the slot: the task ended without its word.
    Ghost,
    /// Nothing any more.
    Nothing,
}

fn holding(state: &State, agent: &Agent, task: ReachId, attempt: AttemptNo) -> Holding {
    if agent.ghosts.contains_key(&(task, attempt)) {
        return Holding::Ghost;
    }
    let Some(task) = state.tasks.get(&task).filter(|task| task.namespace == agent.key.namespace) else {
        return Holding::Nothing;
    };
    match task.status.lease().filter(|_| !is_void(&task.status)) {
        Some(lease) if lease.attempt == attempt && lease.agent == agent.key.agent_id => {
            // A new process takes no slot for what an older one held; that one's late result still wins (semantics 2).
            // So it is with an agent that was told to let go (R-REG-7).
            let keeps_it = lease.incarnation == agent.incarnation && agent.standing == Standing::Active;
            if keeps_it && is_orphaned(&task.status) { Holding::Orphaned } else { Holding::Leased }
        }
        Some(_) | None => Holding::Nothing,
    }
}

const fn is_orphaned(status: &Status) -> bool {
    matches!(status, Status::Orphaned { .. })
}

/// After an accepted loss a lease is nobody's any more.
const fn is_void(status: &Status) -> bool {
    matches!(status, Status::Orphaned { cause: OrphanCause::LossAccepted, .. })
}

/// How an agent is to be drained.
struct Drain {
    mode: DrainMode,
    grace: Millis,
    reason: Option<Text>,
}

/// R-REG-7, semantics 40. A second drain replaces the first, so that an operator can shorten the grace.
fn drain(state: &State, key: &AgentKey, drain: Drain, now: Timestamp) -> Decision {
    let Some(agent) = state.agents.get(key) else { return Decision::refuse(Rejection::AgentUnknown) };
    match agent.standing {
        Standing::Active | Standing::Draining { .. } => {}
        Standing::Offline | Standing::Deregistered => return Decision::refuse(Rejection::AgentNotRegistered),
    }
    let at_once = match drain.mode {
        DrainMode::HandOver => true,
        DrainMode::Finish => drain.grace == Millis(0) || agent.health == Health::Lost || !has_left(state, agent),
    };
    let until = if at_once { now } else { now.after(drain.grace) };
    let mut events = vec![
        AgentDraining {
            agent: key.agent_id.clone(),
            incarnation: agent.incarnation,
            mode: drain.mode,
            until,
            reason: drain.reason,
        }
        .into(),
    ];
    if at_once {
        events.extend(end_of_drain(state, agent, now));
    }
    Decision::accept(events, Answer::Done)
}

/// What is left becomes orphaned, then the agent is out: not only once its work is placed (semantics 40).
fn end_of_drain(state: &State, agent: &Agent, now: Timestamp) -> Vec<EventBody> {
    let mut events = task::agent_gone(state, agent, OrphanCause::AgentDrained, now);
    events.push(deregistered(agent));
    events
}

fn deregistered(agent: &Agent) -> EventBody {
    AgentDeregistered { agent: agent.id().clone(), incarnation: agent.incarnation }.into()
}

/// Does it still work on something? Orphans wait for a replay, not for it; a ghost slot may still be worked on.
fn has_left(state: &State, agent: &Agent) -> bool {
    !agent.ghosts.is_empty()
        || agent.held.iter().any(|id| state.tasks.get(id).is_some_and(|task| !is_orphaned(&task.status)))
}

/// R-REG-6: out of routing at once.
fn offline(state: &State, key: &AgentKey, incarnation: Incarnation, now: Timestamp) -> Decision {
    let agent = match state.agents.get(key) {
        None => return Decision::refuse(Rejection::AgentUnknown),
        // Saying goodbye twice is harmless.
        Some(agent) if agent.standing == Standing::Offline && agent.incarnation == incarnation => {
            return Decision::nothing(Answer::Done);
        }
        Some(_) => match current(state, key, incarnation) {
            Ok(agent) => agent,
            Err(reason) => return Decision::refuse(reason),
        },
    };
    let mut events = vec![AgentLeft { agent: key.agent_id.clone(), incarnation }.into()];
    events.extend(task::agent_gone(state, agent, OrphanCause::AgentLeft, now));
    Decision::accept(events, Answer::Done)
}

/// An operator's or owner's removal; what it held is orphaned as after a goodbye.
fn deregister(state: &State, key: &AgentKey, now: Timestamp) -> Decision {
    let Some(agent) = state.agents.get(key) else { return Decision::refuse(Rejection::AgentUnknown) };
    if agent.standing == Standing::Deregistered {
        return Decision::nothing(Answer::Done);
    }
    let mut events = vec![deregistered(agent)];
    events.extend(task::agent_gone(state, agent, OrphanCause::AgentLeft, now));
    Decision::accept(events, Answer::Done)
}

/// R-REG-5: no new work. Refused as a stale view when it is not healthy any more.
fn mark_unhealthy(state: &State, key: &AgentKey, incarnation: Incarnation, silent: Millis) -> Decision {
    let agent = match current(state, key, incarnation) {
        Ok(agent) => agent,
        Err(reason) => return Decision::refuse(reason),
    };
    match agent.health {
        Health::Healthy => Decision::accept(
            vec![AgentUnhealthy { agent: key.agent_id.clone(), incarnation, silent }.into()],
            Answer::Done,
        ),
        Health::Unhealthy | Health::Lost => Decision::refuse(Rejection::AgentNotOpen { agent: key.agent_id.clone() }),
    }
}

/// R-REG-5: its unfinished work becomes orphaned. A draining one has nothing left then and is out.
fn mark_lost(state: &State, key: &AgentKey, incarnation: Incarnation, silent: Millis, now: Timestamp) -> Decision {
    let agent = match current(state, key, incarnation) {
        Ok(agent) => agent,
        Err(reason) => return Decision::refuse(reason),
    };
    if agent.health == Health::Lost {
        return Decision::refuse(Rejection::AgentNotOpen { agent: key.agent_id.clone() });
    }
    let mut events = vec![AgentLost { agent: key.agent_id.clone(), incarnation, silent }.into()];
    events.extend(task::agent_gone(state, agent, OrphanCause::AgentLost, now));
    match agent.standing {
        Standing::Draining { .. } => events.push(deregistered(agent)),
        Standing::Active | Standing::Offline | Standing::Deregistered => {}
    }
    Decision::accept(events, Answer::Done)
}

/// An agent's timer: ghost slots that are over (semantics 6) and the end of a drain's grace.
#[must_use]
pub(in crate::ledger::machine) fn fire(state: &State, key: &AgentKey, now: Timestamp) -> Decision {
    let Some(agent) = state.agents.get(key) else { return Decision::nothing(Answer::Done) };
    let over = agent.ghosts.iter().filter(|(_, until)| **until <= now);
    let mut events: Vec<EventBody> = over
        .map(|((task, attempt), _)| {
            AgentSlotFreed { agent: key.agent_id.clone(), task: *task, attempt: *attempt }.into()
        })
        .collect();
    match agent.standing {
        Standing::Draining { until } if until <= now => events.extend(end_of_drain(state, agent, now)),
        Standing::Draining { .. } | Standing::Active | Standing::Offline | Standing::Deregistered => {}
    }
    Decision::accept(events, Answer::Done)
}

/// What follows from an event that was just applied: a draining agent whose last work ended is deregistered.
///
/// Drains that end by themselves (hand-over, end of the grace, loss) write their own last event and are skipped here.
#[must_use]
pub(in crate::ledger::machine) fn follow_ups(state: &State, event: &Event) -> Vec<EventBody> {
    if state.draining.is_empty() || !frees_a_slot(&event.body) {
        return Vec::new();
    }
    let ended = holder_of(state, event).filter(|key| state.draining.contains(key));
    ended
        .and_then(|key| state.agents.get(&key))
        .filter(|agent| match agent.standing {
            Standing::Draining { until } => until > event.at && agent.health != Health::Lost,
            Standing::Active | Standing::Offline | Standing::Deregistered => false,
        })
        .filter(|agent| !has_left(state, agent))
        .map(deregistered)
        .into_iter()
        .collect()
}

/// Who held what this event freed.
fn holder_of(state: &State, event: &Event) -> Option<AgentKey> {
    let last = || event.body.task().and_then(|id| state.task(id)?.agent.as_ref());
    let agent_id = event.body.agent().or_else(last)?.clone();
    Some(AgentKey { namespace: event.namespace.clone()?, agent_id })
}

/// Can this event have ended an agent's last work?
const fn frees_a_slot(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::TaskSucceeded(_)
            | EventBody::TaskFailed(_)
            | EventBody::TaskDeadLettered(_)
            | EventBody::TaskExpired(_)
            | EventBody::TaskCancelled(_)
            | EventBody::TaskQueued(_)
            | EventBody::TaskAttemptFailed(_)
            | EventBody::TaskRetryScheduled(_)
            | EventBody::TaskReleased(_)
            | EventBody::TaskReplayed(_)
            | EventBody::AgentSlotFreed(_)
    )
}
