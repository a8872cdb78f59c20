//! The moves of breakers: what each event changes, and what a new process of an agent forgets.

use crate::ledger::ids::{AgentId, AgentKey, Capability, Incarnation};
use crate::ledger::machine::State;
use crate::ledger::machine::breaker::{Breaker, BreakerKey, FailedAttempt, Forced, Stand};
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::{ClosedWhy, Event, EventBody, HalfOpenedWhy, OpenedWhy, TaskDispatched};
use crate::ledger::machine::step::ImpossibleTransition;
use crate::ledger::machine::task::spec::Text;

/// Applies a breaker's event; `step.rs` sends no other here.
///
/// # Errors
/// [`ImpossibleTransition`] when the event cannot follow on this state: a bug or a damaged log.
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    let forced = |reason: &Text| Some(Forced { by: event.actor.clone(), reason: reason.clone() });
    let (key, breaker) = match &event.body {
        EventBody::BreakerOpened(body) => {
            let forced = match &body.why {
                OpenedWhy::Failures | OpenedWhy::ProbeFailed => None,
                OpenedWhy::Operator { reason } => forced(reason),
            };
            let key = key_of(state, event, (&body.agent, body.incarnation, &body.capability))?;
            let before = state.breaker(&key).map(|before| before.stand);
            let follows = match &body.why {
                OpenedWhy::Failures => before.is_none(),
                OpenedWhy::ProbeFailed => matches!(before, Some(Stand::HalfOpen { probe: Some(_) })),
                OpenedWhy::Operator { .. } => true,
            };
            if !follows || forced.is_none() == body.until.is_none() {
                return Err(ImpossibleTransition::of(event, before.map_or("closed", Stand::name)));
            }
            let (stand, failures) = (Stand::Open { until: body.until }, body.failures.clone());
            (key, Some(Breaker { stand, since: event.at, failures, forced }))
        }
        EventBody::BreakerHalfOpened(body) => {
            let key = key_of(state, event, (&body.agent, body.incarnation, &body.capability))?;
            let before = before(state, event, &key)?;
            let follows = match (&body.why, before.stand, &before.forced) {
                (HalfOpenedWhy::TimeOver, Stand::Open { until: Some(until) }, None) => until <= event.at,
                (HalfOpenedWhy::ProbeSilent, Stand::HalfOpen { probe: Some(_) }, None)
                | (HalfOpenedWhy::Operator { .. }, Stand::Open { until: None }, Some(_)) => true,
                _ => false,
            };
            if !follows {
                return Err(ImpossibleTransition::of(event, before.stand.name()));
            }
            let stand = Stand::HalfOpen { probe: None };
            let breaker = Breaker { stand, since: event.at, failures: before.failures.clone(), forced: None };
            (key, Some(breaker))
        }
        EventBody::BreakerClosed(body) => {
            let key = key_of(state, event, (&body.agent, body.incarnation, &body.capability))?;
            let breaker = match &body.why {
                ClosedWhy::Operator { reason } => {
                    let failures = state.breaker(&key).map(|before| before.failures.clone()).unwrap_or_default();
                    Some(Breaker { stand: Stand::HeldClosed, since: event.at, failures, forced: forced(reason) })
                }
                ClosedWhy::ProbeSucceeded | ClosedWhy::ProbeAnswered | ClosedWhy::GivenBack { .. } => {
                    before(state, event, &key)?;
                    None
                }
            };
            (key, breaker)
        }
        _ => return Err(ImpossibleTransition::of(event, "not a breaker's event")),
    };
    put(state, key, breaker);
    Ok(())
}

fn key_of(
    state: &State,
    event: &Event,
    (agent, incarnation, capability): (&AgentId, Incarnation, &Capability),
) -> Result<BreakerKey, ImpossibleTransition> {
    let namespace = event.namespace.clone().ok_or_else(|| ImpossibleTransition::of(event, "no namespace"))?;
    let agent = AgentKey { namespace, agent_id: agent.clone() };
    match state.agents.get(&agent) {
        Some(known) if known.incarnation == incarnation => Ok(BreakerKey { agent, capability: capability.clone() }),
        Some(known) => Err(ImpossibleTransition::of(event, format!("its process is {}", known.incarnation.0))),
        None => Err(ImpossibleTransition::of(event, "the agent is unknown")),
    }
}

fn before<'a>(state: &'a State, event: &Event, key: &BreakerKey) -> Result<&'a Breaker, ImpossibleTransition> {
    state.breaker(key).ok_or_else(|| ImpossibleTransition::of(event, "the breaker is closed"))
}

/// Sets a breaker, or ends it, with its timer.
fn put(state: &mut State, key: BreakerKey, breaker: Option<Breaker>) {
    state.due.set(Subject::Breaker(key.clone()), breaker.as_ref().and_then(Breaker::wake_at));
    match breaker {
        Some(breaker) => {
            state.breakers.entry(key.agent).or_default().insert(key.capability, breaker);
        }
        None => {
            if let Some(breakers) = state.breakers.get_mut(&key.agent) {
                breakers.remove(&key.capability);
                if breakers.is_empty() {
                    state.breakers.remove(&key.agent);
                }
            }
        }
    }
}

/// A task was handed over: it may be the one that tries its agent out.
///
/// # Errors
/// [`ImpossibleTransition`] when the breaker lets nothing through.
pub(in crate::ledger::machine) fn dispatched(
    state: &mut State,
    event: &Event,
    body: &TaskDispatched,
) -> Result<(), ImpossibleTransition> {
    if state.breakers.is_empty() {
        return Ok(());
    }
    let Some(task) = state.tasks.get(&body.task) else { return Ok(()) };
    let key = AgentKey { namespace: task.namespace.clone(), agent_id: body.agent.clone() };
    let breaker = state.breakers.get_mut(&key).and_then(|breakers| breakers.get_mut(&task.spec.capability));
    let Some(breaker) = breaker else { return Ok(()) };
    if !breaker.stand.lets_through() {
        return Err(ImpossibleTransition::of(event, format!("its breaker is {}", breaker.stand.name())));
    }
    if let Stand::HalfOpen { probe } = &mut breaker.stand {
        *probe = Some(FailedAttempt { task: body.task, attempt: body.attempt });
    }
    Ok(())
}

/// What is of an agent's process goes with it: what an operator said stays. Called after the agent's own move.
pub(in crate::ledger::machine) fn agent_changed(state: &mut State, event: &Event, before: Option<Incarnation>) {
    let names = event.namespace.clone().zip(event.body.agent().cloned());
    let Some(key) = names.map(|(namespace, agent_id)| AgentKey { namespace, agent_id }) else { return };
    let Some(agent) = state.agents.get(&key) else { return };
    let ends = matches!(event.body, EventBody::AgentLeft(_) | EventBody::AgentDeregistered(_))
        || before.is_some_and(|before| before != agent.incarnation);
    let forgotten = state
        .breakers
        .get(&key)
        .into_iter()
        .flatten()
        .filter(|(capability, breaker)| breaker.forced.is_none() && (ends || agent.offer(capability).is_none()));
    let forgotten: Vec<Capability> = forgotten.map(|(capability, _)| capability.clone()).collect();
    for capability in forgotten {
        put(state, BreakerKey { agent: key.clone(), capability }, None);
    }
}

/// Puts the breakers of a snapshot back, with their timers.
pub(in crate::ledger::machine) fn restore(state: &mut State, breakers: Vec<(BreakerKey, Breaker)>) {
    for (key, breaker) in breakers {
        put(state, key, Some(breaker));
    }
}
