//! Which agent works for a session now (R4): its next task goes there too, if that agent is a candidate.
//!
//! Why: what belongs together shares a context in its agent. It is a wish and no bond: an agent that is full, drains or
//! is gone holds nobody up. Who works for a session is derived from the tasks, so a restart finds it again; who worked
//! for it last is volatile ([`LastHolders`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::ids::{AgentId, AgentKey, Namespace, ReachId, SessionId};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Health, Standing};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::{Acked, Status};
use crate::ledger::time::Timestamp;
use crate::scheduler::last_holders::LastHolders;

/// Who holds a task of a session, acknowledged and unfinished.
#[derive(Debug)]
struct Held {
    namespace: Namespace,
    session: SessionId,
    agent: AgentId,
}

/// The holders of sessions, and of those that nobody works for the last one.
#[derive(Debug, Default)]
pub struct Affinity {
    held: BTreeMap<ReachId, Held>,
    /// Tasks by session and agent.
    holders: BTreeMap<Namespace, BTreeMap<SessionId, BTreeMap<AgentId, u32>>>,
    /// Sessions that an agent works for now.
    busy: BTreeMap<AgentKey, u32>,
    last: LastHolders,
    /// Agents that hold more sessions, or fewer, than when this was last asked.
    changed: BTreeSet<AgentKey>,
}

impl Affinity {
    /// The agent that holds most unfinished tasks of the session; of equals the first by name. Where nobody holds any,
    /// whoever held the last one.
    #[must_use]
    pub fn holder(&self, namespace: &Namespace, session: Option<&SessionId>) -> Option<&AgentId> {
        let Some(agents) = self.holders.get(namespace).and_then(|sessions| sessions.get(session?)) else {
            return self.last.of(namespace, session?);
        };
        agents.iter().max_by_key(|(agent, count)| (**count, Reverse(*agent))).map(|(agent, _)| agent)
    }

    /// Sessions that the agent holds (R-RTE-5): those that it works for, and those that nobody works for and that it
    /// worked for last.
    #[must_use]
    pub fn sessions_of(&self, agent: &AgentKey) -> u32 {
        let idle = u32::try_from(self.last.held_by(agent)).unwrap_or(u32::MAX);
        self.busy.get(agent).copied().unwrap_or(0).saturating_add(idle)
    }

    /// Agents whose count of sessions may have changed since this was last asked.
    pub fn take_changed(&mut self) -> BTreeSet<AgentKey> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.append(&mut self.last.take_changed());
        changed
    }

    /// Forgets who worked for a session too long ago.
    pub fn expire(&mut self, now: Timestamp) {
        self.last.expire(now);
    }

    /// The agent's process is gone or leaves: what it knew of a session is no reason any more.
    pub fn forget_agent(&mut self, agent: &AgentKey) {
        self.last.forget_agent(agent);
    }

    /// Follows a task as it stands; one without a session costs nothing.
    pub fn follow(&mut self, state: &State, id: ReachId, now: Timestamp) {
        let task = state.task(id);
        let session = task.map(|task| task.spec.session.as_ref());
        if session == Some(None) {
            return;
        }
        let agent = task.and_then(worker);
        if self.held.get(&id).map(|held| &held.agent) == agent {
            return;
        }
        if let Some(gone) = self.held.remove(&id) {
            self.less(&gone);
            let key = AgentKey { namespace: gone.namespace, agent_id: gone.agent };
            if agent.is_none() && self.is_idle(&key.namespace, &gone.session) && stays(state, &key, task) {
                self.last.remember(&key, &gone.session, now);
            }
        }
        if let (Some(task), Some(Some(session)), Some(agent)) = (task, session, agent) {
            let (namespace, session, agent) = (task.namespace.clone(), session.clone(), agent.clone());
            self.last.forget(&namespace, &session);
            let sessions = self.holders.entry(namespace.clone()).or_default();
            let count = sessions.entry(session.clone()).or_default().entry(agent.clone()).or_default();
            *count += 1;
            if *count == 1 {
                let key = AgentKey { namespace: namespace.clone(), agent_id: agent.clone() };
                *self.busy.entry(key.clone()).or_default() += 1;
                self.changed.insert(key);
            }
            self.held.insert(id, Held { namespace, session, agent });
        }
    }

    /// The agent began the task. Where it ended in the same step it was never seen to be held, and still was.
    pub fn passed_by(&mut self, state: &State, task: &Task, (agent, now): (&AgentKey, Timestamp)) {
        if let Some(session) = &task.spec.session
            && self.is_idle(&agent.namespace, session)
            && stays(state, agent, Some(task))
        {
            self.last.remember(agent, session, now);
        }
    }

    fn is_idle(&self, namespace: &Namespace, session: &SessionId) -> bool {
        self.holders.get(namespace).is_none_or(|sessions| !sessions.contains_key(session))
    }

    fn less(&mut self, gone: &Held) {
        let Some(sessions) = self.holders.get_mut(&gone.namespace) else { return };
        let Some(agents) = sessions.get_mut(&gone.session) else { return };
        if let Some(count) = agents.get_mut(&gone.agent) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                agents.remove(&gone.agent);
                let key = AgentKey { namespace: gone.namespace.clone(), agent_id: gone.agent.clone() };
                if let Some(busy) = self.busy.get_mut(&key) {
                    *busy = busy.saturating_sub(1);
                    if *busy == 0 {
                        self.busy.remove(&key);
                    }
                }
                self.changed.insert(key);
            }
        }
        if agents.is_empty() {
            sessions.remove(&gone.session);
        }
        if sessions.is_empty() {
            self.holders.remove(&gone.namespace);
        }
    }
}

/// Is the agent still there for what comes next of the session, now that this task is not with it any more? What was
/// orphaned was left behind by a process that is gone.
fn stays(state: &State, agent: &AgentKey, task: Option<&Task>) -> bool {
    let is_orphan = task.is_some_and(|task| matches!(task.status, Status::Orphaned { .. }));
    let takes_part = |standing| match standing {
        Standing::Active => true,
        Standing::Draining { .. } | Standing::Offline | Standing::Deregistered => false,
    };
    !is_orphan && state.agent(agent).is_some_and(|agent| takes_part(agent.standing) && agent.health != Health::Lost)
}

/// Who works on it: an orphan's agent is gone, and one that has not acknowledged does not work yet.
fn worker(task: &Task) -> Option<&AgentId> {
    match &task.status {
        Status::Processing { lease, .. } | Status::SlowReach { lease, acked: Acked::Yes, .. } => Some(&lease.agent),
        Status::AwaitingApproval
        | Status::Scheduled { .. }
        | Status::Queued { .. }
        | Status::Dispatched { .. }
        | Status::SlowReach { acked: Acked::No, .. }
        | Status::Retrying { .. }
        | Status::Orphaned { .. }
        | Status::Succeeded
        | Status::Failed
        | Status::DeadLetter
        | Status::Expired
        | Status::Cancelled => None,
    }
}
