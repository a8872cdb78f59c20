//! Open claims: pull agents that wait for work (semantics 4).
//!
//! Demand is volatile. A claim is answered when it has at least one task at the end of a cycle, or when its wait is
//! over; its answer leaves with the commit that holds the dispatches.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::oneshot;

use crate::ledger::committer::{Draft, Pending};
use crate::ledger::handle::{ClaimRequest, Handed, Refusal, Unavailable, WorkAnswer};
use crate::ledger::ids::{AgentId, AgentKey, AttemptNo, Incarnation, Namespace, ReachId};
use crate::ledger::machine::agent::{Health, Standing};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::event::Actor;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::Delivery;
use crate::ledger::planner::{ClaimId, Note, answer_bytes, takes_one_more};
use crate::ledger::sequencer::{Fate, Sequencer};
use crate::ledger::time::Timestamp;

/// One waiting claim.
pub(in crate::ledger) struct Waiter {
    pub(in crate::ledger) request: ClaimRequest,
    pub(in crate::ledger) until: Timestamp,
    /// Outcomes of the reports that came with it.
    pub(in crate::ledger) outcomes: Vec<Draft>,
    pub(in crate::ledger) tasks: Vec<Handed>,
    /// What they weigh together.
    pub(in crate::ledger) bytes: u64,
    pub(in crate::ledger) reply: oneshot::Sender<WorkAnswer>,
}

impl Waiter {
    /// Has it asked for more than it has, in that process of its agent?
    fn wants(&self, process: Incarnation) -> bool {
        let taken = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
        self.request.incarnation == process && taken < self.request.max
    }

    /// The answer with what it was given, which leaves with the batch.
    fn answer(self) -> Pending {
        let Self { request, outcomes, tasks, reply, .. } = self;
        Pending::Work { outcomes, claim: Some(Ok((request.agent, request.incarnation, tasks))), reply }
    }
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
    fn open(&mut self, id: ClaimId, waiter: Waiter) {
        self.by_agent.entry(waiter.request.agent.clone()).or_default().insert(id);
        self.by_end.insert((waiter.until, id));
        self.waiters.insert(id, waiter);
    }

    /// Hands a task to the oldest claim of that process that still takes one; gives it back if there is none.
    fn hand(&mut self, agent: &AgentKey, process: Incarnation, task: Handed) -> Option<Handed> {
        let ids = || self.by_agent.get(agent).into_iter().flatten().copied();
        let of = |id: &ClaimId| self.waiters.get(id).filter(|waiter| waiter.wants(process));
        // The planner counts bytes alike. After a refused proposal its claims may stand otherwise than these: better a
        // large answer than a lease of which nobody hears.
        let light = ids().find(|id| of(id).is_some_and(|waiter| takes_one_more(waiter.bytes)));
        let found = light.or_else(|| ids().find(|id| of(id).is_some()));
        match found.and_then(|id| self.waiters.get_mut(&id).map(|waiter| (id, waiter))) {
            Some((id, waiter)) => {
                waiter.bytes += answer_bytes(&task.spec, task.replay.as_ref());
                waiter.tasks.push(task);
                self.filled.insert(id);
                None
            }
            None => Some(task),
        }
    }

    /// Takes every claim of the agent's other processes.
    fn take_others(&mut self, agent: &AgentKey, process: Incarnation) -> Vec<(ClaimId, Waiter)> {
        let ids = self.by_agent.get(agent).into_iter().flatten().copied();
        let is_other = |id: &ClaimId| self.waiters.get(id).is_some_and(|waiter| waiter.request.incarnation != process);
        let others: Vec<ClaimId> = ids.filter(is_other).collect();
        others.into_iter().filter_map(|id| self.close(id).map(|waiter| (id, waiter))).collect()
    }

    /// Takes every claim that has tasks or whose wait is over.
    fn take_ready(&mut self, now: Timestamp) -> Vec<(ClaimId, Waiter)> {
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
    fn close_all(&mut self) -> Vec<(ClaimId, Waiter)> {
        let ids: Vec<ClaimId> = self.waiters.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.close(id).map(|waiter| (id, waiter))).collect()
    }
}

impl Sequencer {
    /// Opens a claim, or answers it at once with what its agent holds unacknowledged (semantics 4).
    pub(in crate::ledger) fn claim(
        &mut self,
        id: ClaimId,
        request: ClaimRequest,
        outcomes: Vec<Draft>,
        reply: oneshot::Sender<WorkAnswer>,
    ) -> Result<(), Fate> {
        if let Err(refusal) = self.may_claim(&request) {
            self.open.pending.push(Pending::Work { outcomes, claim: Some(Err(refusal)), reply });
            return Ok(());
        }
        self.revive(&request)?;
        let (agent, incarnation) = (request.agent.clone(), request.incarnation);
        self.note(&Note::Beat { agent: agent.clone(), incarnation, load: request.load });
        let again = self.unacknowledged(&request);
        if !again.is_empty() {
            let claim = Some(Ok((agent, incarnation, again)));
            self.open.pending.push(Pending::Work { outcomes, claim, reply });
            return Ok(());
        }
        let until = self.clock.now().after(request.wait);
        self.note(&Note::ClaimOpened { claim: id, agent, incarnation, max: request.max });
        self.claims.open(id, Waiter { request, until, outcomes, tasks: Vec::new(), bytes: 0, reply });
        Ok(())
    }

    fn may_claim(&self, request: &ClaimRequest) -> Result<(), Refusal> {
        if self.phase.is_stopping() {
            return Err(Refusal::Unavailable(Unavailable::Stopping));
        }
        if self.waits_for_room {
            return Err(Refusal::Unavailable(Unavailable::DiskFull));
        }
        let agent = self.state.agent(&request.agent).ok_or(Refusal::Rejected(Rejection::AgentUnknown))?;
        if agent.incarnation != request.incarnation {
            return Err(Refusal::Rejected(Rejection::IncarnationSuperseded { current: agent.incarnation }));
        }
        match agent.standing {
            Standing::Active | Standing::Draining { .. } => Ok(()),
            Standing::Offline | Standing::Deregistered => Err(Refusal::Rejected(Rejection::AgentNotRegistered)),
        }
    }

    /// A silent agent whose current process claims is healthy again: a claim is a sign of life like any (semantics 3).
    fn revive(&mut self, request: &ClaimRequest) -> Result<(), Fate> {
        if self.state.agent(&request.agent).is_none_or(|agent| agent.health == Health::Healthy) {
            return Ok(());
        }
        let (AgentKey { namespace, agent_id: agent }, incarnation) = (request.agent.clone(), request.incarnation);
        let actor = Actor::Agent { agent_id: agent.clone(), incarnation };
        let command = Command::Heartbeat { agent, incarnation, held: None };
        self.step(&Proposal { namespace: Some(namespace), actor, trace: None, command }).map(drop)
    }

    fn unacknowledged(&self, request: &ClaimRequest) -> Vec<Handed> {
        let max = usize::try_from(request.max).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let fits = |task: &Handed| {
            let fits = takes_one_more(bytes);
            bytes += answer_bytes(&task.spec, task.replay.as_ref());
            fits
        };
        let held = self.state.unacknowledged(&request.agent);
        held.filter_map(|task| self.again(task, request.incarnation)).take(max).take_while(fits).collect()
    }

    /// What a process of its agent already holds unacknowledged: the same attempt, the same lease (semantics 4). A
    /// lease of another lineage can't be made again; such a task returns by its reach timeout (semantics 24).
    fn again(&self, task: &Task, process: Incarnation) -> Option<Handed> {
        let lease = task.status.lease()?;
        let its = lease.incarnation == process && lease.delivery == Delivery::Pull;
        let handed = Handed::of(task, self.clock.now()).filter(|_| its)?;
        let digest = self.keys.lease_digest(self.state.lineage(), task.id(), lease.attempt);
        (lease.digest == digest).then_some(handed)
    }

    /// Puts a dispatched pull into the claim that waits for it. If none does any more, the reach timeout returns it.
    pub(in crate::ledger) fn hand(&mut self, proposal: &Proposal, attempt: AttemptNo) {
        let Command::DispatchTask { task, agent, incarnation, delivery: Delivery::Pull, .. } = &proposal.command else {
            return;
        };
        let (Some(namespace), Some(handed)) = (&proposal.namespace, self.handed(*task, attempt)) else { return };
        let key = AgentKey { namespace: namespace.clone(), agent_id: agent.clone() };
        if self.claims.hand(&key, *incarnation, handed).is_some() {
            tracing::warn!(%task, %agent, "a dispatch found no open claim");
        }
    }

    fn handed(&self, task: ReachId, attempt: AttemptNo) -> Option<Handed> {
        let handed = Handed::of(self.state.task(task)?, self.clock.now())?;
        (handed.attempt == attempt).then_some(handed)
    }

    /// Another process took the id over: the claims of the older ones are told so at once.
    pub(in crate::ledger) fn dismiss_older(
        &mut self,
        namespace: Option<&Namespace>,
        agent: &AgentId,
        current: Incarnation,
    ) {
        let Some(namespace) = namespace.cloned() else { return };
        for (id, waiter) in self.claims.take_others(&AgentKey { namespace, agent_id: agent.clone() }, current) {
            self.note(&Note::ClaimClosed { claim: id });
            let refusal = Refusal::Rejected(Rejection::IncarnationSuperseded { current });
            let Waiter { outcomes, reply, .. } = waiter;
            self.open.pending.push(Pending::Work { outcomes, claim: Some(Err(refusal)), reply });
        }
    }

    /// Answers every claim that has tasks or whose wait is over.
    pub(in crate::ledger) fn answer_claims(&mut self) {
        let ready = self.claims.take_ready(self.clock.now());
        self.answer(ready);
    }

    /// Answers every claim as it stands: the hub goes down.
    pub(in crate::ledger) fn answer_every_claim(&mut self) {
        let all = self.claims.close_all();
        self.answer(all);
    }

    fn answer(&mut self, claims: Vec<(ClaimId, Waiter)>) {
        for (id, waiter) in claims {
            self.note(&Note::ClaimClosed { claim: id });
            self.open.pending.push(waiter.answer());
        }
    }
}
