//! Open claims: pull agents that wait for work (semantics 4).
//!
//! Demand is volatile. A claim is answered when it has at least one task at the end of a cycle, or when its wait is
//! over; its answer leaves with the commit that holds the dispatches.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::oneshot;

use crate::ledger::committer::Draft;
use crate::ledger::handle::{ClaimRequest, Handed, WorkAnswer};
use crate::ledger::ids::{AgentKey, Incarnation};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::Delivery;
use crate::ledger::planner::ClaimId;
use crate::ledger::time::Timestamp;

/// One waiting claim.
pub(in crate::ledger) struct Waiter {
    pub(in crate::ledger) request: ClaimRequest,
    pub(in crate::ledger) until: Timestamp,
    /// Outcomes of the reports that came with it.
    pub(in crate::ledger) outcomes: Vec<Draft>,
    pub(in crate::ledger) tasks: Vec<Handed>,
    pub(in crate::ledger) reply: oneshot::Sender<WorkAnswer>,
}

/// All of them, by number, by agent and by the end of their wait.
#[derive(Default)]
pub(in crate::ledger) struct Claims {
    waiters: BTreeMap<ClaimId, Waiter>,
    by_agent: BTreeMap<AgentKey, BTreeSet<ClaimId>>,
    by_end: BTreeSet<(Timestamp, ClaimId)>,
    filled: BTreeSet<ClaimId>,
}

impl Claims {
    /// Opens a claim.
    pub(in crate::ledger) fn open(&mut self, id: ClaimId, waiter: Waiter) {
        self.by_agent.entry(waiter.request.agent.clone()).or_default().insert(id);
        self.by_end.insert((waiter.until, id));
        self.waiters.insert(id, waiter);
    }

    /// Hands a task to the oldest claim of its agent that still takes one; gives it back if there is none.
    pub(in crate::ledger) fn hand(&mut self, agent: &AgentKey, task: Handed) -> Option<Handed> {
        let ids = self.by_agent.get(agent).into_iter().flatten();
        let room = |waiter: &Waiter| u32::try_from(waiter.tasks.len()).is_ok_and(|len| len < waiter.request.max);
        let found = ids.copied().find(|id| self.waiters.get(id).is_some_and(room));
        match found.and_then(|id| self.waiters.get_mut(&id).map(|waiter| (id, waiter))) {
            Some((id, waiter)) => {
                waiter.tasks.push(task);
                self.filled.insert(id);
                None
            }
            None => Some(task),
        }
    }

    /// Takes every claim that has tasks or whose wait is over.
    pub(in crate::ledger) fn take_ready(&mut self, now: Timestamp) -> Vec<(ClaimId, Waiter)> {
        let over: Vec<ClaimId> = self.by_end.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        let ready: BTreeSet<ClaimId> = self.filled.iter().copied().chain(over).collect();
        ready.into_iter().filter_map(|id| self.close(id).map(|waiter| (id, waiter))).collect()
    }

    /// Takes one claim out.
    pub(in crate::ledger) fn close(&mut self, id: ClaimId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.by_end.remove(&(waiter.until, id));
        self.filled.remove(&id);
        if let Some(ids) = self.by_agent.get_mut(&waiter.request.agent) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_agent.remove(&waiter.request.agent);
            }
        }
        Some(waiter)
    }

    /// When the next wait is over.
    pub(in crate::ledger) fn next_end(&self) -> Option<Timestamp> {
        self.by_end.first().map(|(at, _)| *at)
    }

    /// Takes every claim out: the hub stops.
    pub(in crate::ledger) fn close_all(&mut self) -> Vec<(ClaimId, Waiter)> {
        let ids: Vec<ClaimId> = self.waiters.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.close(id).map(|waiter| (id, waiter))).collect()
    }
}

/// What a process of its agent already holds unacknowledged: the same attempt, the same lease (semantics 4).
pub(in crate::ledger) fn again(task: &Task, incarnation: Incarnation, now: Timestamp) -> Option<Handed> {
    let lease = task.status.lease()?;
    let its = lease.incarnation == incarnation && lease.delivery == Delivery::Pull;
    Handed::of(task, now).filter(|_| its)
}
