//! Which agent works for a session now (R4): its next task goes there too, if that agent is a candidate.
//!
//! Why: what belongs together shares a context in its agent. It is a wish and no bond: an agent that is full, drains or
//! is gone holds nobody up. Derived from the tasks, so a restart forgets nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::ledger::ids::{AgentId, Namespace, ReachId, SessionId};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::{Acked, Status};

/// Who holds a task of a session, acknowledged and unfinished.
#[derive(Debug)]
struct Held {
    namespace: Namespace,
    session: SessionId,
    agent: AgentId,
}

/// The holders of sessions; sessions that nobody works for are not in it.
#[derive(Debug, Default)]
pub struct Affinity {
    held: BTreeMap<ReachId, Held>,
    /// Tasks by session and agent.
    holders: BTreeMap<Namespace, BTreeMap<SessionId, BTreeMap<AgentId, u32>>>,
}

impl Affinity {
    /// The agent that holds most unfinished tasks of the session; of equals the first by name.
    #[must_use]
    pub fn holder(&self, namespace: &Namespace, session: Option<&SessionId>) -> Option<&AgentId> {
        let agents = self.holders.get(namespace)?.get(session?)?;
        agents.iter().max_by_key(|(agent, count)| (**count, Reverse(*agent))).map(|(agent, _)| agent)
    }

    /// Follows a task as it stands; one without a session costs nothing.
    pub fn follow(&mut self, id: ReachId, task: Option<&Task>) {
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
        }
        if let (Some(task), Some(Some(session)), Some(agent)) = (task, session, agent) {
            let (namespace, session, agent) = (task.namespace.clone(), session.clone(), agent.clone());
            let sessions = self.holders.entry(namespace.clone()).or_default();
            *sessions.entry(session.clone()).or_default().entry(agent.clone()).or_default() += 1;
            self.held.insert(id, Held { namespace, session, agent });
        }
    }

    fn less(&mut self, gone: &Held) {
        let Some(sessions) = self.holders.get_mut(&gone.namespace) else { return };
        let Some(agents) = sessions.get_mut(&gone.session) else { return };
        if let Some(count) = agents.get_mut(&gone.agent) {
            *count = count.saturating_sub(1);
        }
        agents.retain(|_, count| *count > 0);
        if agents.is_empty() {
            sessions.remove(&gone.session);
        }
        if sessions.is_empty() {
            self.holders.remove(&gone.namespace);
        }
    }
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
