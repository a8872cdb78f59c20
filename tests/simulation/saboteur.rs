//! What the hub does under a sabotage, beside its own loop.

use std::mem;

use agent_reach::ledger::ids::{AgentKey, ReachId, ReplayId};
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::breaker::{BreakerKey, FailedAttempt, OPENS_AFTER, Stand, Verdict, verdict};
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::due::Subject;
use agent_reach::ledger::machine::event::{ClosedWhy, Event, EventBody, HalfOpenedWhy, OpenedWhy};
use agent_reach::ledger::machine::replay::order::ReplayItem;
use agent_reach::ledger::machine::replay::{ItemAction, ItemOutcome, ReplayPhase};
use agent_reach::ledger::store::{BodyKey, Store};
use agent_reach::ledger::time::Timestamp;
use agent_reach::recovery::list::{amendments, decode};

use crate::facts;
use crate::hub::{Hub, Impossible};
use crate::invariants::s7::key_of;
use crate::sabotage::Sabotage;

impl Hub {
    /// The earliest due subject. The saboteur loses the timers of every eighth task.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Subject> {
        if self.sabotage != Sabotage::LostTimer {
            return self.state.due().due_by(now).cloned();
        }
        let late = |id: &ReachId| !id.0.last().is_some_and(|last| last.is_multiple_of(8));
        let tasks =
            self.state.tasks().iter().filter(|(id, task)| late(id) && task.wake_at().is_some_and(|at| at <= now));
        tasks.map(|(id, _)| Subject::Task(*id)).next()
    }

    /// The saboteur knows no pace, and counts too much.
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about three sabotages; the rest propose nothing")]
    pub(crate) fn propose_beyond_the_rules(&mut self) -> Result<(), Impossible> {
        match self.sabotage {
            Sabotage::RateTimesTwo => self.sweep_at_once(),
            Sabotage::PlansAtOnce => self.plans_at_once(),
            Sabotage::WordsForgotten => self.open_miscounted(),
            _ => Ok(()),
        }
    }

    fn sweep_at_once(&mut self) -> Result<(), Impossible> {
        let orphans: Vec<ReachId> = self.state.orphans().iter().map(|(_, id)| *id).collect();
        for id in orphans {
            let namespace = self.state.task(id).map(|task| task.namespace.clone());
            drop(self.step(&Proposal::by_hub(namespace, Command::ReplayTask { task: id, superseded_by: None }))?);
        }
        Ok(())
    }

    fn plans_at_once(&mut self) -> Result<(), Impossible> {
        let ids: Vec<ReplayId> = self.state.replays().keys().copied().collect();
        for id in ids {
            let body = self.store.body(&BodyKey::list_of(id)).expect("the memory store reads");
            let list = body.map(|body| body.bytes).unwrap_or_default();
            let (items, said) = (decode(&list).unwrap_or_default(), amendments(&list).unwrap_or_default());
            for (index, item) in (0_u32..).zip(items) {
                let Some(plan) = self.state.replays().get(&id).filter(|plan| plan.phase == ReplayPhase::Running) else {
                    break;
                };
                if plan.outcome(index) != Some(ItemOutcome::Pending) {
                    continue;
                }
                let (namespace, actor) = (Some(plan.namespace.clone()), plan.by.clone());
                let (task, action) = (item.task, item.action);
                let amendment = said.of(index).filter(|_| action == ItemAction::Redrive);
                let turn = ReplayItem { replay: id, index, task, action, amendment, before: None };
                let command = Command::ReplayItem(Box::new(turn));
                let mut proposal = Proposal { namespace, actor, trace: None, command };
                let brings = facts::fill(&mut proposal, &self.state, &*self.store, &self.keys, self.sabotage);
                let decided = self.open.events.len();
                drop(self.step(&proposal)?);
                self.open.bring(brings, decided);
            }
        }
        Ok(())
    }

    /// The saboteur forgets what bars an agent, as soon as all of it is durable, and lets its planners look anew.
    pub(crate) fn forget_breakers(&mut self) {
        let forgets = matches!(self.sabotage, Sabotage::BreakersIgnored | Sabotage::ProbesForgotten);
        if !forgets || self.flight.is_some() || !self.open.events.is_empty() || self.state.breakers().is_empty() {
            return;
        }
        let mut image = self.state.to_image();
        if self.sabotage == Sabotage::BreakersIgnored {
            image.breakers.retain(|(_, breaker)| !matches!(breaker.stand, Stand::Open { .. }));
        }
        for (_, breaker) in &mut image.breakers {
            if let Stand::HalfOpen { probe } = &mut breaker.stand {
                *probe = None;
            }
        }
        let forgetful = State::from_image(image);
        if forgetful.breakers() == self.state.breakers() {
            return;
        }
        self.state = forgetful;
        let now = self.now();
        for planner in &mut self.planners {
            planner.rebuild(&self.state, now);
        }
    }

    /// The saboteur counts failures as the planner does, but over an operator's words.
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds begin the count anew, but for those words")]
    pub(crate) fn miscount(&mut self, event: &Event) {
        if self.sabotage != Sabotage::WordsForgotten {
            return;
        }
        let capability = match &event.body {
            EventBody::AgentRegistered(_) | EventBody::AgentLeft(_) | EventBody::AgentDeregistered(_) => None,
            EventBody::BreakerOpened(body) if !matches!(body.why, OpenedWhy::Operator { .. }) => Some(&body.capability),
            EventBody::BreakerHalfOpened(body) if !matches!(body.why, HalfOpenedWhy::Operator { .. }) => {
                Some(&body.capability)
            }
            EventBody::BreakerClosed(body)
                if matches!(body.why, ClosedWhy::ProbeSucceeded | ClosedWhy::ProbeAnswered) =>
            {
                Some(&body.capability)
            }
            _ => {
                self.miscount_task(event);
                return;
            }
        };
        let Some(agent) = event.body.agent().and_then(|agent| key_of(event, agent)) else { return };
        self.miscounted.retain(|of, _| of.agent != agent || capability.is_some_and(|named| *named != of.capability));
    }

    fn miscount_task(&mut self, event: &Event) {
        let id = event.body.task().filter(|_| event.body.callback_subject().is_none());
        let Some(task) = id.and_then(|id| self.state.task(id)) else { return };
        let Some(agent_id) = task.agent.clone() else { return };
        let agent = AgentKey { namespace: task.namespace.clone(), agent_id };
        let key = BreakerKey { agent, capability: task.spec.capability.clone() };
        match verdict(&event.body, &task.spec) {
            Some(Verdict::Succeeded) => drop(self.miscounted.remove(&key)),
            Some(Verdict::Failed) => {
                let failed = FailedAttempt { task: task.id(), attempt: task.attempt };
                let streak = self.miscounted.entry(key).or_default();
                if !streak.contains(&failed) {
                    streak.push(failed);
                }
            }
            Some(Verdict::Answered) | None => {}
        }
    }

    fn open_miscounted(&mut self) -> Result<(), Impossible> {
        let full: Vec<BreakerKey> = self
            .miscounted
            .iter()
            .filter(|(key, streak)| streak.len() >= OPENS_AFTER && self.state.breaker(key).is_none())
            .map(|(key, _)| key.clone())
            .collect();
        for key in full {
            let streak = self.miscounted.get_mut(&key).map(mem::take).unwrap_or_default();
            let failures = streak.get(streak.len() - OPENS_AFTER..).unwrap_or_default().to_vec();
            let Some(incarnation) = self.state.agent(&key.agent).map(|agent| agent.incarnation) else { continue };
            let BreakerKey { agent: AgentKey { namespace, agent_id: agent }, capability } = key;
            let open = Command::OpenBreaker { agent, incarnation, capability, failures };
            drop(self.step(&Proposal::by_hub(Some(namespace), open))?);
        }
        Ok(())
    }
}
