//! What the hub does under a sabotage, beside its own loop.

use agent_reach::ledger::ids::{ReachId, ReplayId};
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::due::Subject;
use agent_reach::ledger::machine::replay::order::ReplayItem;
use agent_reach::ledger::machine::replay::{ItemOutcome, ReplayPhase};
use agent_reach::ledger::store::{BodyKey, Store};
use agent_reach::ledger::time::Timestamp;
use agent_reach::recovery::list::decode;

use crate::facts;
use crate::hub::{Hub, Impossible};
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

    /// The saboteur knows no pace.
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about two sabotages; the rest keep the pace")]
    pub(crate) fn replay_beyond_the_rate(&mut self) -> Result<(), Impossible> {
        match self.sabotage {
            Sabotage::RateTimesTwo => self.sweep_at_once(),
            Sabotage::PlansAtOnce => self.plans_at_once(),
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
            let items = body.and_then(|body| decode(&body.bytes).ok()).unwrap_or_default();
            for (index, item) in (0_u32..).zip(items) {
                let Some(plan) = self.state.replays().get(&id).filter(|plan| plan.phase == ReplayPhase::Running) else {
                    break;
                };
                if plan.outcome(index) != Some(ItemOutcome::Pending) {
                    continue;
                }
                let (namespace, actor) = (Some(plan.namespace.clone()), plan.by.clone());
                let turn = ReplayItem { replay: id, index, task: item.task, action: item.action, before: None };
                let command = Command::ReplayItem(Box::new(turn));
                let mut proposal = Proposal { namespace, actor, trace: None, command };
                facts::fill(&mut proposal, &self.state, &*self.store, &self.keys, self.sabotage);
                drop(self.step(&proposal)?);
            }
        }
        Ok(())
    }
}
