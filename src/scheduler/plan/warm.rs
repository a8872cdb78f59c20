//! Slow start toward agents that came back (R-REC-6), and what else a new process begins with: the planner's part.

use crate::ledger::ids::{AgentKey, ReachId};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::Agent;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::task::status::OrphanCause;
use crate::ledger::time::Timestamp;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::routing::candidate::Reason;
use crate::scheduler::slow_start::SlowStart;

impl Scheduler {
    /// Before an agent's seat is brought up to date: was it silent until now? Asked of the seat and not of an event: the
    /// first event of a step that concerns the agent brings it up to date, and that may be a task's.
    pub(super) fn notice_return(&mut self, state: &State, agent: &Agent) {
        let seat = self.roster.number(&agent.key).and_then(|no| self.roster.desk(no));
        let was_silent = seat.is_some_and(|desk| matches!(desk.seat.closed, Some(Reason::Lost | Reason::Unhealthy)));
        if was_silent && agent.is_open() {
            self.warm_up(agent, state.at(), state.at());
        }
    }

    /// An event of a task, before its holder changes: a process that another replaced left begun work behind. It
    /// crashed, and its successor is as cold as one that was silent.
    pub(super) fn notice_crash(&mut self, state: &State, event: &Event, id: ReachId) {
        let EventBody::TaskOrphaned(body) = &event.body else { return };
        let holder = self.holder_of(id).filter(|_| body.cause == OrphanCause::AgentReplaced);
        if let Some(agent) = holder.and_then(|key| state.agent(key)).filter(|agent| agent.is_open()) {
            self.warm_up(agent, event.at, event.at);
        }
    }

    /// What an agent's event says of its process: what the former one reported and knew is gone.
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which events begin or end a process; the rest do not")]
    pub(super) fn notice_process(&mut self, event: &Event, key: &AgentKey) {
        match &event.body {
            EventBody::AgentRegistered(_) => {
                self.vitals.begun(key, event.at);
                self.tripped.retain(|breaker, _| breaker.agent != *key);
                self.affinity.forget_agent(key);
                self.roster.note_departure(key, None);
                self.count_sessions();
            }
            EventBody::AgentLeft(_) | EventBody::AgentDeregistered(_) => {
                self.affinity.forget_agent(key);
                self.roster.note_departure(key, Some(event.at));
                self.count_sessions();
            }
            EventBody::AgentLost(_) | EventBody::AgentDraining(_) => {
                self.affinity.forget_agent(key);
                self.count_sessions();
            }
            _ => {}
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
