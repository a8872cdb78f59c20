//! Slow start toward agents that came back (R-REC-6): the planner's part.

use crate::ledger::ids::AgentKey;
use crate::ledger::machine::State;
use crate::ledger::machine::agent::Agent;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::time::Timestamp;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::routing::candidate::Reason;
use crate::scheduler::slow_start::SlowStart;

impl Scheduler {
    /// An event of an agent, before its seat is brought up to date: was it silent until now?
    pub(super) fn notice_return(&mut self, state: &State, event: &Event, key: &AgentKey) {
        if !matches!(event.body, EventBody::AgentHealthy(_) | EventBody::AgentRegistered(_)) {
            return;
        }
        let seat = self.roster.number(key).and_then(|no| self.roster.desk(no));
        let was_silent = seat.is_some_and(|desk| matches!(desk.seat.closed, Some(Reason::Lost | Reason::Unhealthy)));
        if let Some(agent) = state.agent(key).filter(|agent| was_silent && agent.is_open()) {
            self.warm_up(agent, event.at, event.at);
        }
    }

    /// After a start: who came back a moment ago is not warm yet.
    pub(super) fn resume_warm_up(&mut self, agent: &Agent, now: Timestamp) {
        if let Some(at) = agent.returned_at.filter(|_| agent.is_open()) {
            self.warm_up(agent, at, now);
        }
    }

    fn warm_up(&mut self, agent: &Agent, from: Timestamp, now: Timestamp) {
        let start = SlowStart::starting(from, u32::try_from(agent.slots_used()).unwrap_or(u32::MAX));
        if start.limit(now) < agent.declaration.slots() {
            let limit = self.warming.begin(agent.key.clone(), start, now);
            self.vitals.set_limit(&agent.key, Some(limit));
        }
    }

    pub(super) fn step_warm_ups(&mut self, state: &State, now: Timestamp) {
        let slots = |key: &AgentKey| state.agent(key).filter(|agent| agent.is_open()).map(|a| a.declaration.slots());
        for (key, limit) in self.warming.steps(now, slots) {
            self.vitals.set_limit(&key, limit);
            self.touch(state, &key);
        }
    }
}
