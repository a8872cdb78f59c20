//! Agents: they register, beat, claim, acknowledge, work and report; and they die, pause, come back, repeat themselves
//! and show old leases.

use std::collections::BTreeMap;

use agent_reach::ledger::ids::{AgentKey, AttemptNo, Incarnation, LeaseDigest, ReachId};
use agent_reach::ledger::machine::agent::{Declaration, Transport};
use agent_reach::ledger::machine::command::{Command, Held, Proposal, Word};
use agent_reach::ledger::machine::decision::{Answer, Rejection};
use agent_reach::ledger::machine::event::Actor;
use agent_reach::ledger::time::Millis;

use crate::chance::Chance;
use crate::facts::Push;
use crate::hub::{ClaimAsk, No};
use crate::incident::Measure;
use crate::model::{Handed, LeaseSeen, Party};
use crate::operator::{Errand, instance};
use crate::world::{Action, Answered, World};

/// What a call was for.
#[derive(Debug, Clone)]
pub(crate) enum Why {
    Order,
    Errand,
    Register,
    Beat,
    /// Reports, maybe with a claim.
    Work(Vec<Said>, bool),
}

/// One report: about which attempt, and whether the agent waits for its answer.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) task: ReachId,
    pub(crate) attempt: AttemptNo,
    pub(crate) is_ack: bool,
    pub(crate) word: Word,
}

/// What an agent does by itself.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Wake,
    Ack(ReachId, AttemptNo),
    Progress(ReachId, AttemptNo),
    Say(ReachId, AttemptNo),
    /// Shows an old lease again.
    Haunt(usize),
    Return,
    Pushed(Box<Push>, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Got,
    Working,
    Saying,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) lease: LeaseDigest,
    pub(crate) phase: Phase,
    pub(crate) tries: u32,
    pub(crate) word: Option<Word>,
}

/// One agent with its process, if one runs.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) key: AgentKey,
    pub(crate) declaration: Declaration,
    /// Counts processes; what an older one had planned does not happen.
    pub(crate) epoch: u32,
    pub(crate) instance: u32,
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) is_up: bool,
    pub(crate) claiming: bool,
    pub(crate) jobs: BTreeMap<(ReachId, AttemptNo), Job>,
    pub(crate) old: Vec<(ReachId, AttemptNo, LeaseDigest, Option<Word>)>,
    /// In thousandths: dies or pauses at a wake, forgets a task, is slow.
    pub(crate) frail: u64,
    pub(crate) forgets: u64,
    pub(crate) slow: u64,
    pub(crate) anonymous: bool,
}

impl Agent {
    pub(crate) fn new(key: AgentKey, declaration: Declaration, chance: &mut Chance) -> Self {
        Self {
            key,
            declaration,
            epoch: 0,
            instance: 1,
            incarnation: None,
            is_up: true,
            claiming: false,
            jobs: BTreeMap::new(),
            old: Vec::new(),
            frail: *chance.pick(&[0, 20, 60, 120]),
            forgets: *chance.pick(&[0, 20, 80]),
            slow: *chance.pick(&[0, 50, 250]),
            anonymous: chance.hits(150),
        }
    }

    fn is_pull(&self) -> bool {
        match self.declaration.transport {
            Transport::Pull => true,
            Transport::Http { .. } => false,
        }
    }

    fn interval(&self) -> u64 {
        self.declaration.heartbeat_interval.0
    }
}

impl World {
    pub(crate) fn act(&mut self, index: usize, epoch: u32, act: Act) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        match act {
            Act::Pushed(push, run) => self.pushed(index, *push, run),
            Act::Return => self.come_back(index),
            _ if agent.epoch != epoch || !agent.is_up => {}
            Act::Wake => self.agent_wakes(index),
            Act::Ack(task, attempt) => self.agent_acks(index, task, attempt),
            Act::Progress(task, attempt) => self.agent_progresses(index, task, attempt),
            Act::Say(task, attempt) => self.agent_says(index, task, attempt),
            Act::Haunt(which) => self.agent_haunts(index, which),
        }
    }

    /// The rhythm of a process: a beat, a claim, and now and then its end.
    fn agent_wakes(&mut self, index: usize) {
        let rough = self.is_rough();
        let idle = self.is_work_done();
        let Some(agent) = self.agents.get_mut(index) else { return };
        let (epoch, interval) = (agent.epoch, agent.interval());
        if idle {
            self.say_goodbye(index);
            return;
        }
        if rough && self.chance.hits(agent.frail) {
            self.fall(index, 1);
            return;
        }
        match agent.incarnation {
            None => self.register(index),
            Some(_) => {
                self.beat(index);
                self.claim(index);
            }
        }
        let after = self.chance.between(interval / 2, interval * 9 / 10);
        self.at(after, Action::Agent(index, epoch, Act::Wake));
    }

    /// Is everything ordered done, so that the fleet may go home?
    pub(crate) fn is_work_done(&self) -> bool {
        let live = |hub: &crate::hub::Hub| {
            !hub.is_open()
                || !hub.state.replays().is_empty()
                || hub.state.tasks().values().any(|task| !task.status.kind().is_terminal())
        };
        !self.is_rough() && self.orders.iter().all(|order| order.settled) && !self.hub.as_ref().is_none_or(live)
    }

    /// Dies, or stands still for a while: for at least so many halves of its heartbeat interval.
    fn fall(&mut self, index: usize, least: u64) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        agent.is_up = false;
        let dies = self.chance.hits(600);
        if dies {
            self.tally.hit("agent killed");
            agent.epoch += 1;
            agent.jobs.clear();
            agent.claiming = false;
            if self.chance.hits(300) {
                // A supervisor that gives its processes a fixed name.
                self.tally.hit("agent back under the same instance");
            } else {
                self.tally.hit("agent back as a new instance");
                agent.instance += 1;
            }
            agent.incarnation = None;
        } else {
            self.tally.hit("agent paused");
        }
        let away = agent.interval() * self.chance.between(least, least + 20) / 2;
        self.at(away, Action::Agent(index, 0, Act::Return));
    }

    /// Most agents are gone at once, for long; operators come to look.
    pub(crate) fn storm(&mut self) {
        for measure in [Measure::Plan, Measure::Resolve, Measure::Plan] {
            let namespace = self.plan.namespace(self.chance.below(2));
            let after = self.chance.between(3_000, 14_000);
            self.at(after, Action::Errand(Errand::Measure(namespace, measure)));
        }
        for index in 0..self.agents.len() {
            if self.agents.get(index).is_some_and(|agent| agent.is_up) && self.chance.hits(700) {
                self.tally.hit("agents lost at once");
                self.fall(index, 12);
            }
        }
    }

    /// A poisoned task kills whoever takes it up.
    pub(crate) fn fall_for(&mut self, index: usize, task: ReachId) {
        self.tally.hit("poison taken");
        let Some(agent) = self.agents.get_mut(index) else { return };
        agent.jobs.retain(|(held, _), _| *held != task);
        self.fall(index, 1);
    }

    fn come_back(&mut self, index: usize) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        agent.is_up = true;
        agent.epoch += 1;
        let epoch = agent.epoch;
        let jobs: Vec<(ReachId, AttemptNo)> = agent.jobs.keys().copied().collect();
        self.at(0, Action::Agent(index, epoch, Act::Wake));
        for (task, attempt) in jobs {
            let after = self.chance.below(2_000);
            self.at(after, Action::Agent(index, epoch, Act::Say(task, attempt)));
        }
    }

    fn register(&mut self, index: usize) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        if self.chance.hits(100) {
            agent.declaration.max_concurrency = self.chance.small(1, 5);
        }
        let name = (!agent.anonymous).then(|| instance(agent.instance));
        let command = Command::RegisterAgent {
            agent: agent.key.agent_id.clone(),
            instance: name,
            declaration: Box::new(agent.declaration.clone()),
        };
        let proposal = as_agent(agent, command);
        self.call(Party::Agent(index), vec![proposal], None, Why::Register);
    }

    fn beat(&mut self, index: usize) {
        let Some(agent) = self.agents.get(index) else { return };
        let Some(incarnation) = agent.incarnation else { return };
        let held = agent.jobs.keys().map(|(task, attempt)| Held { task: *task, attempt: *attempt }).collect();
        let held = self.chance.hits(600).then_some(held);
        let command = Command::Heartbeat { agent: agent.key.agent_id.clone(), incarnation, held };
        let proposal = as_agent(agent, command);
        self.call(Party::Agent(index), vec![proposal], None, Why::Beat);
    }

    pub(crate) fn claim(&mut self, index: usize) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        let Some(incarnation) = agent.incarnation.filter(|_| agent.is_pull() && !agent.claiming) else { return };
        let max = self.chance.small(1, 4);
        let wait = Millis(self.chance.between(0, 6_000));
        agent.claiming = true;
        let ask = ClaimAsk { agent: agent.key.clone(), incarnation, max, wait };
        self.call(Party::Agent(index), Vec::new(), Some(ask), Why::Work(Vec::new(), true));
    }

    fn say_goodbye(&mut self, index: usize) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        agent.is_up = false;
        if let Some(incarnation) = agent.incarnation {
            let command = Command::AgentOffline { agent: agent.key.agent_id.clone(), incarnation };
            let proposal = as_agent(agent, command);
            self.call(Party::Agent(index), vec![proposal], None, Why::Errand);
        }
    }

    pub(crate) fn agent_unanswered(&mut self, index: usize, why: Why) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        if let Why::Work(reports, claimed) = why {
            if claimed {
                agent.claiming = false;
            }
            let epoch = agent.epoch;
            for said in reports {
                let after = self.chance.between(10, 800);
                let act =
                    if said.is_ack { Act::Ack(said.task, said.attempt) } else { Act::Say(said.task, said.attempt) };
                self.at(after, Action::Agent(index, epoch, act));
            }
        }
    }

    pub(crate) fn agent_answered(&mut self, index: usize, why: Option<Why>, answered: Answered) {
        let Some(agent) = self.agents.get_mut(index).filter(|agent| agent.is_up) else { return };
        match why {
            Some(Why::Register) => {
                if let Some(Ok((Answer::Registered { incarnation }, _))) = answered.outcomes.first() {
                    agent.incarnation = Some(*incarnation);
                    self.claim(index);
                }
            }
            Some(Why::Beat) => self.beaten(index, answered),
            Some(Why::Work(reports, claimed)) => {
                if claimed {
                    agent.claiming = false;
                }
                for (said, outcome) in reports.into_iter().zip(answered.outcomes) {
                    self.heard(index, &said, outcome.map(|(answer, receipt)| (answer, receipt.map(|r| r.seq))));
                }
                self.claimed(index, answered.claim, answered.durable);
            }
            // The second copy of an answer: a process takes only the first.
            Some(Why::Order | Why::Errand) | None => {}
        }
    }

    fn beaten(&mut self, index: usize, answered: Answered) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        match answered.outcomes.into_iter().next() {
            Some(Ok((Answer::Beat(beat), _))) => {
                for attempt in beat.cancelled.into_iter().chain(beat.lost) {
                    agent.jobs.remove(&attempt);
                }
            }
            Some(Err(No::Rejected(
                Rejection::IncarnationSuperseded { .. } | Rejection::AgentUnknown | Rejection::AgentNotRegistered,
            ))) => {
                agent.incarnation = None;
                agent.jobs.clear();
                if self.chance.hits(500) {
                    agent.instance += 1;
                }
            }
            Some(Ok(_) | Err(_)) | None => {}
        }
    }

    fn claimed(
        &mut self,
        index: usize,
        claim: Option<Result<Vec<Handed>, No>>,
        durable: agent_reach::ledger::ids::Seq,
    ) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        match claim {
            Some(Ok(tasks)) => {
                let more = !tasks.is_empty();
                for handed in tasks {
                    self.notes.leases.push(LeaseSeen { handed: handed.clone(), durable });
                    self.take_on(index, handed);
                }
                if more {
                    self.claim(index);
                }
            }
            Some(Err(No::Rejected(_))) => agent.incarnation = None,
            Some(Err(No::Stopping)) | None => {}
        }
    }

    fn take_on(&mut self, index: usize, handed: Handed) {
        let rough = self.is_rough();
        let Some(agent) = self.agents.get_mut(index) else { return };
        let (task, attempt, epoch) = (handed.task, handed.attempt, agent.epoch);
        agent.old.push((task, attempt, handed.lease, None));
        let haunt = agent.old.len() - 1;
        if agent.jobs.contains_key(&(task, attempt)) {
            return;
        }
        if rough && self.chance.hits(agent.forgets) {
            return;
        }
        let job = Job { lease: handed.lease, phase: Phase::Got, tries: 0, word: None };
        agent.jobs.insert((task, attempt), job);
        let after = self.chance.below(40);
        let first = if self.chance.hits(30) { Act::Say(task, attempt) } else { Act::Ack(task, attempt) };
        self.at(after, Action::Agent(index, epoch, first));
        if rough && self.chance.hits(120) {
            let after = self.chance.between(500, 15_000);
            self.at(after, Action::Agent(index, epoch, Act::Haunt(haunt)));
        }
    }
}

/// A proposal in an agent's name.
pub(crate) fn as_agent(agent: &Agent, command: Command) -> Proposal {
    let actor =
        Actor::Agent { agent_id: agent.key.agent_id.clone(), incarnation: agent.incarnation.unwrap_or_default() };
    Proposal { namespace: Some(agent.key.namespace.clone()), actor, trace: None, command }
}
