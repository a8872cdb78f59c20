//! Operators after an incident: they look over what is there, freeze plans, steer them, make single tasks anew and resolve
//! what hangs. They also do what nobody should: the same again, in another's namespace, or over the planner's head.

use std::collections::BTreeMap;

use agent_reach::ledger::ids::{Capability, Namespace, ReachId, ReplayId, Seq, TokenId};
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::event::Actor;
use agent_reach::ledger::machine::policy::{CapabilityRules, HubPolicy};
use agent_reach::ledger::machine::replay::order::{Correction, RedriveOrder, ReplayItem, ReplayOrder, ReplayWord};
use agent_reach::ledger::machine::replay::{ItemAction, MayHaveRun, ReplayPhase};
use agent_reach::ledger::machine::task::resolve::Resolution;
use agent_reach::ledger::machine::task::spec::{BodyRef, SchemaVerdicts, SlowPolicy};
use agent_reach::ledger::machine::task::status::StatusKind;
use agent_reach::ledger::machine::task::{FailureClass, Task};
use agent_reach::ledger::store::{Body, BodyKey, FinishedFilter, Store};
use agent_reach::ledger::time::Millis;
use agent_reach::recovery::list::{PlanItem, encode_amending, group_of};
use agent_reach::recovery::select::{Select, judge};

use crate::agents::Why;
use crate::arrivals::UNDRAWN;
use crate::hub::by_token;
use crate::model::Party;
use crate::operator::{Errand, operator};
use crate::workload::{CAPABILITIES, schema};
use crate::world::{Action, World};

/// Rates of plans.
const RATES: [u32; 5] = [1, 3, 8, 20, 100];
/// How long nothing may stay paused once the faults have ended.
const TIDY: u64 = 2_000;

/// What an operator does about replays.
#[derive(Debug, Clone)]
pub(crate) enum Measure {
    /// Looks, and freezes a plan.
    Plan,
    /// A word to a plan.
    Steer,
    /// Another hand proposes items of a plan.
    Meddle,
    /// Single tasks are made anew.
    Redrive,
    /// A word on what is slow or orphaned.
    Resolve,
    /// Another pace, other rules for a capability.
    Rules,
    /// Nothing stays paused for ever.
    Tidy,
}

impl World {
    pub(crate) fn measure(&mut self, namespace: &Namespace, measure: &Measure) {
        match measure {
            Measure::Plan => self.freeze(namespace),
            Measure::Steer => self.steer(),
            Measure::Meddle => self.meddle(),
            Measure::Redrive => self.redrive(namespace),
            Measure::Resolve => self.resolve(namespace),
            Measure::Rules => self.rule(namespace),
            Measure::Tidy => self.tidy(namespace),
        }
    }

    fn order_by(&mut self, namespace: &Namespace, command: Command) {
        self.call(Party::Operator, vec![by_token(namespace, &operator(), command)], None, Why::Errand);
    }

    /// Says something that holds over all namespaces.
    fn order_over_all(&mut self, command: Command) {
        let said = Proposal { namespace: None, actor: Actor::Token(operator()), trace: None, command };
        self.call(Party::Operator, vec![said], None, Why::Errand);
    }

    /// Everything of a namespace, live and finished, in the order of submission.
    fn look_over(&self, namespace: &Namespace) -> Vec<Task> {
        let Some(hub) = &self.hub else { return Vec::new() };
        let finished = self.store.list_finished(namespace, &FinishedFilter::default(), None, 1_000);
        let rows = finished.expect("the memory store reads").into_iter().map(|task| (task.id(), task));
        let live = hub.state.tasks().values().filter(|task| task.namespace == *namespace);
        let all: BTreeMap<ReachId, Task> = rows.chain(live.map(|task| (task.id(), Task::clone(task)))).collect();
        let mut all: Vec<Task> = all.into_values().collect();
        all.sort_by_key(|task| task.seqs.first().copied());
        all
    }

    fn drawn_select(&mut self, tasks: &[Task]) -> Select {
        let acted_on = [
            StatusKind::Orphaned,
            StatusKind::SlowReach,
            StatusKind::Failed,
            StatusKind::DeadLetter,
            StatusKind::Expired,
        ];
        let mut select = Select { states: acted_on.to_vec(), ..Select::default() };
        let example = (!tasks.is_empty()).then(|| self.chance.pick(tasks).clone());
        match self.chance.below(8) {
            0 => select.states = vec![StatusKind::Orphaned],
            1 => select.states = vec![*self.chance.pick(&acted_on), *self.chance.pick(&acted_on)],
            2 => select.capability = example.map(|task| task.spec.capability.clone()),
            3 => select.session = example.and_then(|task| task.spec.session.clone()),
            4 => select.agent = example.and_then(|task| task.agent),
            5 => select.classes = vec![FailureClass::Business, FailureClass::AgentCrash],
            6 => select.after = example.map(|task| task.submitted_at),
            _ => {}
        }
        select
    }

    /// As the API freezes a plan: by submission, each session by its number, only what would be acted on.
    fn freeze(&mut self, namespace: &Namespace) {
        let tasks = self.look_over(namespace);
        let select = self.drawn_select(&tasks);
        let may_have_run = if self.chance.hits(400) { MayHaveRun::Include } else { MayHaveRun::Skip };
        let mut items = Vec::new();
        for task in tasks.iter().filter(|task| select.picks(namespace, task)) {
            let Ok(action) = judge(task, may_have_run) else { continue };
            items.push(PlanItem { task: task.id(), action, group: group_of(task.spec.session.as_ref()) });
        }
        if self.chance.hits(100) {
            // No API lists them; the core must not believe a list.
            self.tally.hit("plan over tasks of another");
            let other =
                self.hub.as_ref().and_then(|hub| hub.state.tasks().values().find(|t| t.namespace != *namespace));
            let task = other.map_or(ReachId([0xee; 16]), |task| task.id());
            let action = if self.chance.hits(500) { ItemAction::Replay } else { ItemAction::Redrive };
            items.push(PlanItem { task, action, group: 0 });
        }
        if items.is_empty() {
            return;
        }
        let amendments = self.drawn_amendments(&items);
        let list = Body { salt: UNDRAWN, bytes: encode_amending(&items, &amendments).into() };
        let position = self.hub.as_ref().map_or(Seq(0), |hub| hub.durable);
        let order = ReplayOrder {
            replay: ReplayId(UNDRAWN),
            select: "{}".into(),
            reason: "after the incident".into(),
            rate: *self.chance.pick(&RATES),
            may_have_run,
            total: u32::try_from(items.len()).unwrap_or(u32::MAX),
            list: BodyRef { digest: list.digest(), len: 0 },
            position,
            patch: None,
            idempotency: None,
            bound: None,
        };
        // The same again and again is as good as once (R3).
        let times = if self.chance.hits(250) { 2 } else { 1 };
        for _ in 0..times {
            let proposal = by_token(namespace, &operator(), Command::PlanReplay(Box::new(order.clone())));
            let bodies = vec![(BodyKey::list_of(order.replay), list.clone())];
            self.call_with(Party::Operator, (vec![proposal], bodies), None, Why::Errand);
        }
        self.follow_up(namespace);
    }

    /// What comes after a plan.
    fn follow_up(&mut self, namespace: &Namespace) {
        for _ in 0..self.chance.below(5) {
            let after = self.chance.between(20, 9_000);
            self.at(after, Action::Errand(Errand::Measure(namespace.clone(), Measure::Steer)));
        }
        if self.chance.hits(250) {
            let after = self.chance.between(20, 2_000);
            self.at(after, Action::Errand(Errand::Measure(namespace.clone(), Measure::Meddle)));
        }
    }

    /// A plan, mostly one that has not ended.
    fn some_plan(&mut self) -> Option<(Namespace, ReplayId)> {
        let hub = self.hub.as_ref()?;
        let open: Vec<(Namespace, ReplayId)> =
            hub.state.replays().values().map(|plan| (plan.namespace.clone(), plan.id)).collect();
        let known: Vec<ReplayId> = self.notes.lists.keys().copied().collect();
        if open.is_empty() || self.chance.hits(100) {
            let index = self.chance.below(2);
            return (!known.is_empty()).then(|| (self.plan.namespace(index), *self.chance.pick(&known)));
        }
        Some(self.chance.pick(&open).clone())
    }

    fn steer(&mut self) {
        let Some((namespace, replay)) = self.some_plan() else { return };
        let calm = !self.is_rough();
        let word = match self.chance.below(100) {
            0..35 if !calm => ReplayWord::Pause { reason: Some("wait".into()) },
            35..70 => ReplayWord::Resume { reason: None },
            70..80 => ReplayWord::Cancel { reason: None },
            _ => ReplayWord::Rate { rate: *self.chance.pick(&RATES) },
        };
        self.order_by(&namespace, Command::SteerReplay { replay, word });
    }

    /// Items over the planner's head, and some of them again.
    fn meddle(&mut self) {
        let Some((namespace, replay)) = self.some_plan() else { return };
        let Some(list) = self.notes.lists.get(&replay).cloned() else { return };
        let meddler = TokenId::new("meddler").expect("an id");
        for _ in 0..self.chance.between(1, 4) {
            let index = self.chance.below(u64::try_from(list.len()).unwrap_or(1));
            let Some(item) = usize::try_from(index).ok().and_then(|index| list.get(index)) else { continue };
            let index = u32::try_from(index).unwrap_or(0);
            let (task, action) = (item.task, item.action);
            let said = self.notes.said.get(&replay).filter(|_| action == ItemAction::Redrive);
            let amendment = said.and_then(|said| said.amendments.of(index));
            let turn = ReplayItem { replay, index, task, action, amendment, before: None };
            let turn = by_token(&namespace, &meddler, Command::ReplayItem(Box::new(turn)));
            self.tally.hit("item proposed by another hand");
            self.call(Party::Operator, vec![turn.clone(), turn], None, Why::Errand);
        }
    }

    fn redrive(&mut self, namespace: &Namespace) {
        let tasks = self.look_over(namespace);
        let bad = |task: &&Task| {
            matches!(task.status.kind(), StatusKind::Failed | StatusKind::DeadLetter | StatusKind::Expired)
        };
        let mut among: Vec<ReachId> = tasks.iter().filter(bad).map(Task::id).collect();
        if among.is_empty() || self.chance.hits(200) {
            among = tasks.iter().map(Task::id).collect();
        }
        if among.is_empty() {
            return;
        }
        let task = *self.chance.pick(&among);
        let runs = tasks.iter().any(|t| t.id() == task && !t.status.kind().is_terminal());
        if runs {
            self.tally.hit("redriven while it runs");
        }
        let foreign = self.chance.hits(100) && self.plan.namespace(0) != self.plan.namespace(1);
        let other = [self.plan.namespace(0), self.plan.namespace(1)].into_iter().find(|other| other != namespace);
        let at = other.filter(|_| foreign).inspect(|_| self.tally.hit("redriven from another namespace"));
        let at = at.unwrap_or_else(|| namespace.clone());
        let correction = self.chance.hits(200).then(|| Correction {
            payload: BodyRef { digest: schema(), len: 0 },
            schemas: SchemaVerdicts { accepted: vec![schema()], refused: Vec::new() },
        });
        let order = RedriveOrder {
            task,
            successor: ReachId(UNDRAWN),
            may_have_run: if self.chance.hits(600) { MayHaveRun::Include } else { MayHaveRun::Skip },
            correction,
            schemas: None,
            reason: "it is needed after all".into(),
            before: None,
        };
        self.order_by(&at, Command::RedriveTask(Box::new(order.clone())));
        if self.chance.hits(400) {
            self.tally.hit("redriven again");
            self.order_by(&at, Command::RedriveTask(Box::new(order.clone())));
            let proposal = by_token(&at, &operator(), Command::RedriveTask(Box::new(order)));
            let after = self.chance.between(1, 8_000);
            self.at(after, Action::Errand(Errand::Say(Box::new(proposal))));
        }
    }

    fn resolve(&mut self, namespace: &Namespace) {
        let tasks = self.look_over(namespace);
        let hangs = |task: &&Task| matches!(task.status.kind(), StatusKind::SlowReach | StatusKind::Orphaned);
        let mut among: Vec<ReachId> = tasks.iter().filter(hangs).map(Task::id).collect();
        if among.is_empty() && self.chance.hits(100) {
            among = tasks.iter().map(Task::id).collect();
        }
        for task in among {
            if self.chance.hits(400) {
                let resolution = *self.chance.pick(&Resolution::ALL);
                let reason = "looked at it".into();
                self.order_by(namespace, Command::ResolveTask { task, resolution, reason });
            }
        }
    }

    fn rule(&mut self, namespace: &Namespace) {
        if self.chance.hits(150) {
            // Low enough that all namespaces together meet it.
            let policy = HubPolicy { replays_per_second: *self.chance.pick(&[3, 10, 1_000]) };
            self.order_over_all(Command::SetHubPolicy { policy, reason: "the whole hub".into() });
            return;
        }
        if self.chance.hits(500) {
            let hub = self.hub.as_ref();
            let mut policy = hub.map(|hub| hub.state.policies().of(namespace)).unwrap_or_default();
            policy.replays_per_second = *self.chance.pick(&[1, 2, 8, 40]);
            self.order_by(namespace, Command::SetPolicy { policy, reason: "another pace".into() });
            return;
        }
        let capability = Capability::new(self.chance.pick::<&str>(&CAPABILITIES)).expect("a name");
        let rules = self.chance.hits(700).then(|| CapabilityRules {
            slow_reach: *self.chance.pick(&[SlowPolicy::Wait, SlowPolicy::HandOver { after: Millis(500) }]),
            owner: self.chance.hits(500).then(|| "travel".into()),
        });
        self.order_by(namespace, Command::SetCapabilityPolicy { capability, rules, reason: "learnt".into() });
    }

    /// Once the faults have ended every paused plan goes on or is called off, until none is left.
    fn tidy(&mut self, namespace: &Namespace) {
        let Some(hub) = &self.hub else {
            self.at(TIDY, Action::Errand(Errand::Measure(namespace.clone(), Measure::Tidy)));
            return;
        };
        let left = !hub.state.replays().is_empty() || !hub.is_open() || self.mono() < self.calm + 30_000;
        let plans = hub.state.replays().values();
        let paused: Vec<(Namespace, ReplayId)> = plans
            .filter(|plan| plan.phase == ReplayPhase::Paused)
            .map(|plan| (plan.namespace.clone(), plan.id))
            .collect();
        for (of, replay) in paused {
            let word = if self.chance.hits(700) {
                ReplayWord::Resume { reason: None }
            } else {
                ReplayWord::Cancel { reason: None }
            };
            self.order_by(&of, Command::SteerReplay { replay, word });
        }
        if left {
            self.at(TIDY, Action::Errand(Errand::Measure(namespace.clone(), Measure::Tidy)));
        }
    }
}
