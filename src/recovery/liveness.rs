//! Missed heartbeats: unhealthy, then lost (R-REG-5, semantics 3).
//!
//! Why here and not in the ledger: "still alive" is no event. Only silence has consequences, and those are proposed
//! with the incarnation that was silent, so that a process that just took over is never blamed.
//!
//! An open claim counts as a beat all the while. Time in which the hub's own cycle lagged is held against nobody. After
//! a start every agent has a fresh grace. An agent is looked at only when it could be due: cost follows the silent, not
//! the fleet.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::ids::{AgentKey, Incarnation};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Agent, Health, Standing};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::planner::{ClaimId, Note};
use crate::ledger::time::{Millis, Timestamp};

#[derive(Debug, Clone)]
struct Pulse {
    incarnation: Incarnation,
    last: Timestamp,
    /// The hub's own lag in all, as it stood at the last beat.
    lag: Millis,
    claims: u32,
    due: Option<Timestamp>,
}

/// Who beat when.
#[derive(Debug, Default)]
pub struct Liveness {
    pulses: BTreeMap<AgentKey, Pulse>,
    claims: BTreeMap<ClaimId, (AgentKey, Incarnation)>,
    due: BTreeSet<(Timestamp, AgentKey)>,
    lag: Millis,
}

impl Liveness {
    /// When the agent's current process was last heard of.
    #[must_use]
    pub fn last_beat(&self, agent: &AgentKey) -> Option<Timestamp> {
        self.pulses.get(agent).map(|pulse| pulse.last)
    }

    /// Starts over: everyone has a fresh grace from `now`.
    pub(super) fn rebuild(&mut self, state: &State, now: Timestamp) {
        *self = Self::default();
        for agent in state.agents().values() {
            self.beat(state, agent, now);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which events are a sign of life or change the thresholds")]
    pub(super) fn observe(&mut self, state: &State, event: &Event) {
        match &event.body {
            EventBody::AgentRegistered(_)
            | EventBody::AgentUpdated(_)
            | EventBody::AgentHealthy(_)
            | EventBody::AgentDraining(_) => {
                let key = event.namespace.clone().zip(event.body.agent().cloned());
                let key = key.map(|(namespace, agent_id)| AgentKey { namespace, agent_id });
                if let Some(agent) = key.and_then(|key| state.agent(&key)) {
                    self.beat(state, agent, event.at);
                    // Its interval or its threshold may be a shorter one now: the earlier appointment is void.
                    self.appoint(state, agent);
                }
            }
            EventBody::PolicyChanged(_) => {
                let changed = |key: &&AgentKey| Some(&key.namespace) == event.namespace.as_ref();
                let keys: Vec<AgentKey> = self.pulses.keys().filter(changed).cloned().collect();
                for agent in keys.iter().filter_map(|key| state.agent(key)) {
                    self.appoint(state, agent);
                }
            }
            _ => {}
        }
    }

    pub(super) fn note(&mut self, state: &State, note: &Note, now: Timestamp) {
        match note {
            Note::Beat { agent, incarnation, .. } => {
                if let Some(agent) = current(state, agent, *incarnation) {
                    self.beat(state, agent, now);
                }
            }
            Note::ClaimOpened { claim, agent, incarnation, .. } => {
                if let Some(agent) = current(state, agent, *incarnation) {
                    self.beat(state, agent, now);
                    if let Some(pulse) = self.pulses.get_mut(&agent.key) {
                        pulse.claims += 1;
                        self.claims.insert(*claim, (agent.key.clone(), *incarnation));
                    }
                    self.appoint(state, agent);
                }
            }
            Note::ClaimClosed { claim } => {
                let Some((key, incarnation)) = self.claims.remove(claim) else { return };
                if let Some(pulse) = self.pulses.get_mut(&key).filter(|pulse| pulse.incarnation == incarnation) {
                    pulse.claims = pulse.claims.saturating_sub(1);
                }
                if let Some(agent) = current(state, &key, incarnation) {
                    self.beat(state, agent, now);
                }
            }
            Note::Lagged { by } => self.lag = Millis(self.lag.0.saturating_add(by.0)),
            Note::Listed { .. } => {}
        }
    }

    pub(super) fn plan(&mut self, state: &State, now: Timestamp, room: usize) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        while proposals.len() < room {
            let Some((_, key)) = self.due.first().filter(|(at, _)| *at <= now).cloned() else { break };
            self.disappoint(&key);
            let Some(agent) = state.agent(&key) else { continue };
            proposals.extend(self.judge(state, agent, now));
        }
        proposals
    }

    /// When somebody could be due.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    fn beat(&mut self, state: &State, agent: &Agent, now: Timestamp) {
        let lag = self.lag;
        let pulse = self.pulses.entry(agent.key.clone()).or_insert(Pulse {
            incarnation: agent.incarnation,
            last: now,
            lag,
            claims: 0,
            due: None,
        });
        if pulse.incarnation != agent.incarnation {
            pulse.claims = 0;
            pulse.incarnation = agent.incarnation;
        }
        pulse.last = pulse.last.max(now);
        pulse.lag = lag;
        // A beat only moves the moment away: the earlier appointment finds nothing to say and makes the next. So a beat
        // costs one look-up, not a change of the index.
        if pulse.due.is_none() {
            self.appoint(state, agent);
        }
    }

    /// Says when to look at the agent next.
    fn appoint(&mut self, state: &State, agent: &Agent) {
        self.disappoint(&agent.key);
        let policy = state.policies().of(&agent.key.namespace);
        let missed = match watched(agent) {
            Watched::Healthy => policy.unhealthy_after,
            Watched::Unhealthy => policy.lost_after,
            Watched::No => return,
        };
        if let Some(pulse) = self.pulses.get_mut(&agent.key).filter(|pulse| pulse.claims == 0) {
            let credit = self.lag.0.saturating_sub(pulse.lag.0);
            let at = pulse.last.after(Millis(span(agent, missed).0.saturating_add(credit)));
            pulse.due = Some(at);
            self.due.insert((at, agent.key.clone()));
        }
    }

    fn disappoint(&mut self, key: &AgentKey) {
        if let Some(at) = self.pulses.get_mut(key).and_then(|pulse| pulse.due.take()) {
            self.due.remove(&(at, key.clone()));
        }
    }

    /// Looks at an agent whose moment has come: it beat since, or it is silent for too long.
    fn judge(&mut self, state: &State, agent: &Agent, now: Timestamp) -> Option<Proposal> {
        let pulse = self.pulses.get(&agent.key).filter(|pulse| pulse.claims == 0)?;
        let credit = self.lag.0.saturating_sub(pulse.lag.0);
        let silent = Millis(now.since(pulse.last).0.saturating_sub(credit));
        let policy = state.policies().of(&agent.key.namespace);
        let (id, incarnation) = (agent.key.agent_id.clone(), agent.incarnation);
        let command = match watched(agent) {
            Watched::No => return None,
            Watched::Healthy | Watched::Unhealthy if silent >= span(agent, policy.lost_after) => {
                Some(Command::MarkLost { agent: id, incarnation, silent })
            }
            Watched::Healthy if silent >= span(agent, policy.unhealthy_after) => {
                Some(Command::MarkUnhealthy { agent: id, incarnation, silent })
            }
            Watched::Healthy | Watched::Unhealthy => None,
        };
        match command {
            None => {
                self.appoint(state, agent);
                None
            }
            Some(command) => {
                // Looked at again in an interval, whatever becomes of the proposal.
                let (policy_lost, marked_lost) = (span(agent, policy.lost_after), silent);
                let next = if marked_lost >= policy_lost {
                    now.after(agent.declaration.heartbeat_interval)
                } else {
                    now.after(Millis(policy_lost.0.saturating_sub(marked_lost.0)))
                };
                if let Some(pulse) = self.pulses.get_mut(&agent.key) {
                    pulse.due = Some(next);
                    self.due.insert((next, agent.key.clone()));
                }
                Some(Proposal::by_hub(Some(agent.key.namespace.clone()), command))
            }
        }
    }
}

/// Whether and how an agent is watched.
enum Watched {
    /// For the first threshold.
    Healthy,
    /// For the second.
    Unhealthy,
    /// Not: it is gone, or lost already.
    No,
}

const fn watched(agent: &Agent) -> Watched {
    match (agent.standing, agent.health) {
        (Standing::Offline | Standing::Deregistered, _) | (_, Health::Lost) => Watched::No,
        (Standing::Active | Standing::Draining { .. }, Health::Healthy) => Watched::Healthy,
        (Standing::Active | Standing::Draining { .. }, Health::Unhealthy) => Watched::Unhealthy,
    }
}

fn span(agent: &Agent, missed: u32) -> Millis {
    Millis(agent.declaration.heartbeat_interval.0.max(1).saturating_mul(u64::from(missed)))
}

fn current<'a>(state: &'a State, key: &AgentKey, incarnation: Incarnation) -> Option<&'a Agent> {
    state.agent(key).filter(|agent| agent.incarnation == incarnation)
}
