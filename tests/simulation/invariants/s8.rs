//! S8: `max_concurrency` and the queue's bounds are never exceeded by anything newly taken on. Slots are counted from the
//! events: open leases of the current process and the ghosts of what was called off under one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_reach::ledger::ids::{AgentKey, AttemptNo, Capability, Incarnation, Namespace, ReachId};
use agent_reach::ledger::machine::event::{Event, EventBody};
use agent_reach::ledger::machine::policy::Policy;
use agent_reach::ledger::machine::task::spec::Requires;
use agent_reach::ledger::machine::task::status::StatusKind;

use crate::invariants::s7::key_of;
use crate::model::{Evidence, Findings, begins, ends, leads_to};

#[derive(Default)]
struct Desk {
    incarnation: Incarnation,
    limit: u32,
    /// Registered and not gone: what is called off then keeps its slot for a while.
    is_there: bool,
    leases: BTreeMap<ReachId, Incarnation>,
    ghosts: BTreeSet<(ReachId, AttemptNo)>,
}

type LaneKey = (Namespace, Capability, Arc<Requires>);

#[derive(Default)]
struct Count {
    desks: BTreeMap<AgentKey, Desk>,
    at: BTreeMap<ReachId, StatusKind>,
    holder: BTreeMap<ReachId, (AgentKey, AttemptNo, bool)>,
    policies: BTreeMap<Namespace, Policy>,
    queued: BTreeMap<LaneKey, u32>,
    unfinished: BTreeMap<Namespace, u32>,
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut count = Count::default();
    for entry in evidence.log {
        count.agents(&entry.event);
        count.tasks(evidence, &entry.event, findings);
    }
}

impl Count {
    fn agents(&mut self, event: &Event) {
        if let EventBody::AgentRegistered(body) = &event.body
            && let Some(key) = key_of(event, &body.agent)
        {
            let desk = self.desks.entry(key).or_default();
            if desk.incarnation != body.incarnation {
                desk.leases.retain(|_, held| *held == body.incarnation);
            }
            desk.incarnation = body.incarnation;
            desk.limit = body.declaration.max_concurrency;
            desk.is_there = true;
        }
        if let EventBody::AgentUpdated(body) = &event.body
            && let Some(desk) = key_of(event, &body.agent).and_then(|key| self.desks.get_mut(&key))
        {
            desk.limit = body.declaration.max_concurrency;
        }
        if let EventBody::AgentSlotFreed(body) = &event.body
            && let Some(desk) = key_of(event, &body.agent).and_then(|key| self.desks.get_mut(&key))
        {
            desk.ghosts.remove(&(body.task, body.attempt));
        }
        if matches!(event.body, EventBody::AgentLeft(_) | EventBody::AgentDeregistered(_))
            && let Some(agent) = event.body.agent()
            && let Some(desk) = key_of(event, agent).and_then(|key| self.desks.get_mut(&key))
        {
            desk.is_there = false;
        }
        if let (EventBody::PolicyChanged(body), Some(namespace)) = (&event.body, &event.namespace) {
            self.policies.insert(namespace.clone(), body.policy.clone());
        }
    }

    fn tasks(&mut self, evidence: &Evidence<'_>, event: &Event, findings: &mut Findings) {
        if event.body.callback_subject().is_some() {
            return;
        }
        let Some(life) = event.body.task().and_then(|id| evidence.tasks.get(&id)) else { return };
        let lane = (life.namespace.clone(), life.spec.capability.clone(), life.spec.requires.clone());
        let before = self.at.get(&life.id).copied();
        let after = match (before, &event.body) {
            (None, EventBody::TaskSubmitted(_)) => begins(life),
            (None, _) => return,
            (Some(before), body) => leads_to(body, before).unwrap_or(before),
        };
        self.at.insert(life.id, after);
        if before != Some(after) {
            if before == Some(StatusKind::Queued) {
                let waiting = self.queued.entry(lane.clone()).or_insert(1);
                *waiting = waiting.saturating_sub(1);
            }
            if after == StatusKind::Queued {
                *self.queued.entry(lane.clone()).or_insert(0) += 1;
            }
        }
        if before.is_none() {
            let policy = self.policies.get(life.namespace).cloned().unwrap_or_default();
            let unfinished = self.unfinished.entry(life.namespace.clone()).or_insert(0);
            *unfinished += 1;
            let waiting = self.queued.get(&lane).copied().unwrap_or(0);
            let lane_full = after == StatusKind::Queued && waiting > policy.lane_bound;
            if *unfinished > policy.namespace_bound || lane_full {
                let what = format!("{}: taken in as {unfinished} in its namespace, {waiting} in its lane", life.id);
                findings.add("S8", event.seq, what);
            }
        } else if ends(&event.body).is_some() {
            let unfinished = self.unfinished.entry(life.namespace.clone()).or_insert(1);
            *unfinished = unfinished.saturating_sub(1);
        }
        self.slots(event, (life.id, after), findings);
    }

    fn slots(&mut self, event: &Event, (id, after): (ReachId, StatusKind), findings: &mut Findings) {
        if let EventBody::TaskDispatched(body) = &event.body
            && let Some(key) = key_of(event, &body.agent)
        {
            let desk = self.desks.entry(key.clone()).or_default();
            desk.leases.insert(id, body.incarnation);
            let used = desk.leases.len() + desk.ghosts.len();
            if used > usize::try_from(desk.limit).unwrap_or(usize::MAX) {
                findings.add("S8", event.seq, format!("{} holds {used} of {}", body.agent, desk.limit));
            }
            self.holder.insert(id, (key, body.attempt, false));
            return;
        }
        if matches!(event.body, EventBody::TaskAcknowledged(_))
            && let Some(holder) = self.holder.get_mut(&id)
        {
            holder.2 = true;
        }
        let leased = [StatusKind::Dispatched, StatusKind::Processing, StatusKind::SlowReach, StatusKind::Orphaned];
        if leased.contains(&after) {
            return;
        }
        let Some((key, attempt, acked)) = self.holder.remove(&id) else { return };
        let Some(desk) = self.desks.get_mut(&key) else { return };
        let held = desk.leases.remove(&id) == Some(desk.incarnation);
        let called_off = matches!(after, StatusKind::Cancelled | StatusKind::Expired);
        if held && called_off && acked && desk.is_there {
            desk.ghosts.insert((id, attempt));
        }
    }
}
