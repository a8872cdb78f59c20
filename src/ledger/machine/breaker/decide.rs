//! The rules of breakers: when one opens, half-opens and closes, and what an operator may say.

use crate::ledger::ids::{AgentId, AgentKey, Capability, Incarnation};
use crate::ledger::machine::agent::{Agent, Health};
use crate::ledger::machine::breaker::{
    Breaker, BreakerKey, BreakerWord, FailedAttempt, OPEN_FOR, OPENS_AFTER, Stand, Verdict, verdict,
};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{
    BreakerClosed, BreakerHalfOpened, BreakerOpened, ClosedWhy, Event, EventBody, HalfOpenedWhy, OpenedWhy,
};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::Status;
use crate::ledger::machine::{State, bounds};
use crate::ledger::time::Timestamp;

/// Decides the breakers' commands; `step.rs` sends no other here.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    let Some(namespace) = proposal.namespace.clone() else { return Decision::refuse(Rejection::AgentUnknown) };
    let key = |agent: &AgentId, capability: &Capability| BreakerKey {
        agent: AgentKey { namespace: namespace.clone(), agent_id: agent.clone() },
        capability: capability.clone(),
    };
    match &proposal.command {
        Command::OpenBreaker { agent, incarnation, capability, failures } => {
            open(state, &key(agent, capability), (*incarnation, failures), now)
        }
        Command::SetBreaker { agent, capability, word, reason } => set(state, &key(agent, capability), *word, reason),
        _ => Decision::refuse(Rejection::AgentUnknown),
    }
}

/// The planner counted enough failures. What it did not see (another process, another word) is a stale view.
fn open(
    state: &State,
    key: &BreakerKey,
    (incarnation, failures): (Incarnation, &[FailedAttempt]),
    now: Timestamp,
) -> Decision {
    let Some(agent) = state.agents.get(&key.agent) else { return Decision::refuse(Rejection::AgentUnknown) };
    if agent.incarnation != incarnation || agent.offer(&key.capability).is_none() {
        return Decision::refuse(Rejection::AgentNotOpen { agent: agent.id().clone() });
    }
    if state.breaker(key).is_some() {
        return Decision::nothing(Answer::Done);
    }
    let until = Some(now.after(OPEN_FOR));
    Decision::accept(vec![opened(agent, &key.capability, (until, failures), OpenedWhy::Failures)], Answer::Done)
}

/// An operator's word. The same word again changes nothing, whoever says it and why.
fn set(state: &State, key: &BreakerKey, word: BreakerWord, reason: &Text) -> Decision {
    let Some(agent) = state.agents.get(&key.agent) else { return Decision::refuse(Rejection::AgentUnknown) };
    let breaker = state.breaker(key);
    if breaker.is_none() && agent.offer(&key.capability).is_none() {
        return Decision::refuse(Rejection::CapabilityNotOffered { capability: key.capability.clone() });
    }
    let forced = breaker.filter(|breaker| breaker.forced.is_some()).map(|breaker| breaker.stand);
    if forced.is_none() && word != BreakerWord::Automatic {
        let held = state.breakers_of(&key.agent).filter(|(_, breaker)| breaker.forced.is_some()).count();
        if let Err(full) = bounds::held_breaker(held) {
            return Decision::refuse(full);
        }
    }
    let (capability, reason) = (&key.capability, reason.clone());
    let event = match (word, forced) {
        (BreakerWord::Open, Some(Stand::Open { .. }))
        | (BreakerWord::Closed, Some(Stand::HeldClosed))
        | (BreakerWord::Automatic, None | Some(Stand::HalfOpen { .. })) => return Decision::nothing(Answer::Done),
        (BreakerWord::Open, Some(Stand::HalfOpen { .. } | Stand::HeldClosed) | None) => {
            opened(agent, capability, (None, failures_of(breaker)), OpenedWhy::Operator { reason })
        }
        (BreakerWord::Closed, Some(Stand::Open { .. } | Stand::HalfOpen { .. }) | None) => {
            closed(agent, capability, ClosedWhy::Operator { reason })
        }
        // Nobody knows how it is: one task tries it out.
        (BreakerWord::Automatic, Some(Stand::Open { .. })) => {
            half_opened(agent, capability, HalfOpenedWhy::Operator { reason })
        }
        (BreakerWord::Automatic, Some(Stand::HeldClosed)) => closed(agent, capability, ClosedWhy::GivenBack { reason }),
    };
    Decision::accept(vec![event], Answer::Done)
}

fn failures_of(breaker: Option<&Breaker>) -> &[FailedAttempt] {
    breaker.map_or(&[], |breaker| &breaker.failures)
}

/// A breaker's timer: its time is over.
#[must_use]
pub(in crate::ledger::machine) fn fire(state: &State, key: &BreakerKey, now: Timestamp) -> Decision {
    let due = state.breaker(key).and_then(Breaker::wake_at).is_some_and(|until| until <= now);
    let Some(agent) = state.agents.get(&key.agent).filter(|_| due) else { return Decision::nothing(Answer::Done) };
    Decision::accept(vec![half_opened(agent, &key.capability, HalfOpenedWhy::TimeOver)], Answer::Done)
}

/// May the task go to that agent, as far as its breaker goes? Every dispatch is held against it, whoever proposed it.
///
/// # Errors
/// `BreakerOpen`.
pub(in crate::ledger::machine) fn may_dispatch(state: &State, task: &Task, agent: &Agent) -> Result<(), Rejection> {
    let breaker = state.breakers.get(&agent.key).and_then(|breakers| breakers.get(&task.spec.capability));
    if breaker.is_none_or(|breaker| breaker.stand.lets_through()) {
        return Ok(());
    }
    Err(Rejection::BreakerOpen { agent: agent.id().clone(), capability: task.spec.capability.clone() })
}

/// What follows from an event of the task that tries an agent out: its success or its answer closes the breaker, its
/// failure opens it again, and any other end lets the next one try. So a breaker never waits for what is over.
#[must_use]
pub(in crate::ledger::machine) fn follow_ups(state: &State, event: &Event) -> Vec<EventBody> {
    if state.breakers.is_empty() {
        return Vec::new();
    }
    let task = event.body.task().and_then(|id| state.task(id));
    let Some((task, (agent, breaker, probe))) = task.and_then(|task| Some((task, tried_by(state, task)?))) else {
        return Vec::new();
    };
    let capability = &task.spec.capability;
    let said = verdict(&event.body, &task.spec).filter(|_| agent.health != Health::Lost);
    let follow_up = match said {
        Some(Verdict::Succeeded) => closed(agent, capability, ClosedWhy::ProbeSucceeded),
        Some(Verdict::Answered) => closed(agent, capability, ClosedWhy::ProbeAnswered),
        Some(Verdict::Failed) => {
            let failures: Vec<FailedAttempt> = breaker.failures.iter().copied().chain([probe]).collect();
            let until = Some(event.at.after(OPEN_FOR));
            opened(agent, capability, (until, &failures), OpenedWhy::ProbeFailed)
        }
        // A later event of this very step may bring the word.
        None if holds(task, probe) || task.seqs.last() != Some(&event.seq) => return Vec::new(),
        None => half_opened(agent, capability, HalfOpenedWhy::ProbeSilent),
    };
    vec![follow_up]
}

/// The agent that a task tries out, with the breaker.
fn tried_by<'a>(state: &'a State, task: &Task) -> Option<(&'a Agent, &'a Breaker, FailedAttempt)> {
    let key = AgentKey { namespace: task.namespace.clone(), agent_id: task.agent.clone()? };
    let breaker = state.breakers.get(&key)?.get(&task.spec.capability)?;
    let Stand::HalfOpen { probe: Some(probe) } = breaker.stand else { return None };
    Some((state.agents.get(&key)?, breaker, probe)).filter(|_| probe.task == task.id())
}

/// Does the agent still owe a word on that attempt? Of an orphan or a slow task nobody knows whether one comes.
const fn holds(task: &Task, probe: FailedAttempt) -> bool {
    let is_with_it = matches!(task.status, Status::Dispatched { .. } | Status::Processing { .. });
    is_with_it && task.attempt.0 == probe.attempt.0
}

fn opened(
    agent: &Agent,
    capability: &Capability,
    (until, failures): (Option<Timestamp>, &[FailedAttempt]),
    why: OpenedWhy,
) -> EventBody {
    let last = failures.get(failures.len().saturating_sub(OPENS_AFTER)..).unwrap_or_default().to_vec();
    let (id, incarnation) = (agent.id().clone(), agent.incarnation);
    BreakerOpened { agent: id, incarnation, capability: capability.clone(), until, failures: last, why }.into()
}

fn half_opened(agent: &Agent, capability: &Capability, why: HalfOpenedWhy) -> EventBody {
    let (id, incarnation) = (agent.id().clone(), agent.incarnation);
    BreakerHalfOpened { agent: id, incarnation, capability: capability.clone(), why }.into()
}

fn closed(agent: &Agent, capability: &Capability, why: ClosedWhy) -> EventBody {
    let (id, incarnation) = (agent.id().clone(), agent.incarnation);
    BreakerClosed { agent: id, incarnation, capability: capability.clone(), why }.into()
}
