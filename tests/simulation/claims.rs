//! Open claims, as the ledger's own: by number, by agent and by the end of their wait.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{AgentKey, AttemptNo, Incarnation, LeaseDigest, ReachId};
use agent_reach::ledger::machine::agent::{Health, Standing};
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::decision::Rejection;
use agent_reach::ledger::machine::event::Actor;
use agent_reach::ledger::machine::task::status::{Delivery, Status};
use agent_reach::ledger::planner::{ClaimId, Note};
use agent_reach::ledger::time::Timestamp;

use crate::hub::{ClaimAsk, Draft, Hub, Impossible, No, Pending};
use crate::model::{Handed, Party};

/// One waiting claim.
pub(crate) struct Waiter {
    pub(crate) to: Party,
    pub(crate) call: u64,
    pub(crate) agent: AgentKey,
    pub(crate) incarnation: Incarnation,
    pub(crate) max: u32,
    pub(crate) until: Timestamp,
    pub(crate) outcomes: Vec<Draft>,
    pub(crate) tasks: Vec<Handed>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Claims {
    waiters: BTreeMap<ClaimId, Waiter>,
    by_end: BTreeSet<(Timestamp, ClaimId)>,
}

impl Claims {
    pub(crate) fn open(&mut self, id: ClaimId, waiter: Waiter) {
        self.by_end.insert((waiter.until, id));
        self.waiters.insert(id, waiter);
    }

    /// Into the oldest claim of that process that still takes one. If none does, the reach timeout returns the task.
    fn hand(&mut self, process: (&AgentKey, Incarnation), task: Handed) {
        let room = |waiter: &&mut Waiter| {
            (&waiter.agent, waiter.incarnation) == process
                && u32::try_from(waiter.tasks.len()).is_ok_and(|len| len < waiter.max)
        };
        if let Some(waiter) = self.waiters.values_mut().find(room) {
            waiter.tasks.push(task);
        }
    }

    pub(crate) fn take_ready(&mut self, now: Timestamp) -> Vec<(ClaimId, Waiter)> {
        let is_ready = |waiter: &Waiter| !waiter.tasks.is_empty() || waiter.until <= now;
        let ready: Vec<ClaimId> =
            self.waiters.iter().filter(|(_, waiter)| is_ready(waiter)).map(|(id, _)| *id).collect();
        ready.into_iter().filter_map(|id| self.close(id).map(|waiter| (id, waiter))).collect()
    }

    /// Takes every claim of the agent's other processes.
    fn take_others(&mut self, agent: &AgentKey, process: Incarnation) -> Vec<(ClaimId, Waiter)> {
        let is_other = |waiter: &Waiter| waiter.agent == *agent && waiter.incarnation != process;
        let others: Vec<ClaimId> =
            self.waiters.iter().filter(|(_, waiter)| is_other(waiter)).map(|(id, _)| *id).collect();
        others.into_iter().filter_map(|id| self.close(id).map(|waiter| (id, waiter))).collect()
    }

    fn close(&mut self, id: ClaimId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.by_end.remove(&(waiter.until, id));
        Some(waiter)
    }

    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.by_end.first().map(|(at, _)| *at)
    }
}

impl Hub {
    pub(crate) fn hand(&mut self, proposal: &Proposal, attempt: AttemptNo) {
        let Command::DispatchTask { task, agent, incarnation, delivery: Delivery::Pull, .. } = &proposal.command else {
            return;
        };
        let Some(namespace) = &proposal.namespace else { return };
        let key = AgentKey { namespace: namespace.clone(), agent_id: agent.clone() };
        let handed = Handed { task: *task, attempt, lease: self.lease(*task, attempt), agent: key.clone() };
        self.claims.hand((&key, *incarnation), handed);
    }

    fn lease(&self, task: ReachId, attempt: AttemptNo) -> LeaseDigest {
        self.keys.lease_digest(self.state.lineage(), task, attempt)
    }

    pub(crate) fn claim(
        &mut self,
        to: Party,
        call: u64,
        outcomes: Vec<Draft>,
        ask: ClaimAsk,
    ) -> Result<(), Impossible> {
        if let Err(no) = self.may_claim(&ask) {
            self.open.pending.push(Pending::Work { to, call, outcomes, claim: Some(Err(no)) });
            return Ok(());
        }
        self.revive(&ask)?;
        let (agent, incarnation) = (ask.agent.clone(), ask.incarnation);
        self.note(&Note::Beat { agent: agent.clone(), incarnation, load: None });
        let again = self.unacknowledged(&ask);
        if !again.is_empty() {
            self.open.pending.push(Pending::Work { to, call, outcomes, claim: Some(Ok(again)) });
            return Ok(());
        }
        let id = ClaimId(self.next_claim);
        self.next_claim += 1;
        let until = self.now().after(ask.wait);
        self.note(&Note::ClaimOpened { claim: id, agent: agent.clone(), incarnation, max: ask.max });
        self.claims.open(id, Waiter { to, call, agent, incarnation, max: ask.max, until, outcomes, tasks: Vec::new() });
        Ok(())
    }

    /// A silent agent whose current process claims is healthy again (semantics 3).
    fn revive(&mut self, ask: &ClaimAsk) -> Result<(), Impossible> {
        if self.state.agent(&ask.agent).is_none_or(|agent| agent.health == Health::Healthy) {
            return Ok(());
        }
        let (AgentKey { namespace, agent_id: agent }, incarnation) = (ask.agent.clone(), ask.incarnation);
        let actor = Actor::Agent { agent_id: agent.clone(), incarnation };
        let command = Command::Heartbeat { agent, incarnation, held: None };
        self.step(&Proposal { namespace: Some(namespace), actor, trace: None, command }).map(drop)
    }

    /// Another process took the id over: the claims of the older ones are told so at once.
    pub(crate) fn dismiss_older(&mut self, agent: &AgentKey, current: Incarnation) {
        for (id, waiter) in self.claims.take_others(agent, current) {
            self.note(&Note::ClaimClosed { claim: id });
            let no = No::Rejected(Rejection::IncarnationSuperseded { current });
            let Waiter { to, call, outcomes, .. } = waiter;
            self.open.pending.push(Pending::Work { to, call, outcomes, claim: Some(Err(no)) });
        }
    }

    fn may_claim(&self, ask: &ClaimAsk) -> Result<(), No> {
        let agent = self.state.agent(&ask.agent).ok_or(No::Rejected(Rejection::AgentUnknown))?;
        if agent.incarnation != ask.incarnation {
            return Err(No::Rejected(Rejection::IncarnationSuperseded { current: agent.incarnation }));
        }
        match agent.standing {
            Standing::Active | Standing::Draining { .. } => Ok(()),
            Standing::Offline | Standing::Deregistered => Err(No::Rejected(Rejection::AgentNotRegistered)),
        }
    }

    fn unacknowledged(&self, ask: &ClaimAsk) -> Vec<Handed> {
        let Some(agent) = self.state.agent(&ask.agent) else { return Vec::new() };
        let held = agent.held.iter().filter_map(|id| self.state.task(*id));
        let again = held.filter_map(|task| match &task.status {
            Status::Dispatched { lease, .. }
                if lease.incarnation == ask.incarnation && lease.delivery == Delivery::Pull =>
            {
                Some(Handed {
                    task: task.id(),
                    attempt: lease.attempt,
                    lease: self.lease(task.id(), lease.attempt),
                    agent: ask.agent.clone(),
                })
            }
            Status::Dispatched { .. }
            | Status::AwaitingApproval
            | Status::Scheduled { .. }
            | Status::Queued { .. }
            | Status::Processing { .. }
            | Status::SlowReach { .. }
            | Status::Retrying { .. }
            | Status::Orphaned { .. }
            | Status::Succeeded
            | Status::Failed
            | Status::DeadLetter
            | Status::Expired
            | Status::Cancelled => None,
        });
        again.take(usize::try_from(ask.max).unwrap_or(usize::MAX)).collect()
    }

    pub(crate) fn answer_claims(&mut self) {
        for (id, waiter) in self.claims.take_ready(self.now()) {
            self.note(&Note::ClaimClosed { claim: id });
            let Waiter { to, call, outcomes, tasks, .. } = waiter;
            self.open.pending.push(Pending::Work { to, call, outcomes, claim: Some(Ok(tasks)) });
        }
    }
}
