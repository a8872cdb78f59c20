//! What would have happened: work of the past, or of a trace, put through the hub's own planner in virtual time.
//!
//! Why not a formula: queues with slots, classes, sessions, breakers and weights have none. The state machine and the
//! planner that run a hub run here too, on a clock that is a number, so what comes out is what this hub would do. Only
//! the agents are played, and how is all said in [`Worker`] and [`Job`].
//!
//! Played, not real: every agent takes work as soon as it has a slot and acknowledges it at once; it works on
//! `at_once` tasks and lets the others wait inside; it is never lost; a failed attempt takes as long as it took.
//!
//! Pure and single-threaded; memory grows with the tasks that are unfinished at a time.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::ledger::ids::{
    AgentId, AgentKey, AttemptNo, Capability, Digest, FairnessKey, Incarnation, LeaseDigest, Namespace, ReachId,
    TokenId,
};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Declaration, Transport};
use crate::ledger::machine::command::{Command, Proposal, Report, Retryable, Word};
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::{Actor, AlreadyDone, Event, EventBody, TaskDispatched};
use crate::ledger::machine::routing::{RoutingChange, RoutingRules};
use crate::ledger::machine::step::{ImpossibleTransition, step};
use crate::ledger::machine::task::spec::{Idempotence, OrphanPolicy, Submission};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{Failure, FailureClass};
use crate::ledger::planner::Planner;
use crate::ledger::time::{Millis, Timestamp};
use crate::scheduler::plan::Scheduler;

/// Proposals that are asked for at a time.
const ROOM: usize = 256;
/// The speed of an agent that works as fast as the work is stated for, in thousandths.
pub const PLAIN_SPEED: u32 = 1_000;

/// An agent, as it is played.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Who.
    pub agent: AgentKey,
    /// What it declares; how it is reached is of no account.
    pub declaration: Declaration,
    /// Tasks that it works on at a time, at least 1; what it holds beyond them waits inside it.
    pub at_once: u32,
    /// How fast it is at a capability, in thousandths of the work's stated time; [`PLAIN_SPEED`] where nothing is said.
    pub speeds: BTreeMap<Capability, u32>,
}

/// Agents, and the rules by which they are given tasks.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// The agents.
    pub workers: Vec<Worker>,
    /// Routing rules, by namespace and capability.
    pub rules: BTreeMap<(Namespace, Capability), RoutingRules>,
}

/// How an attempt comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// It succeeds.
    Well,
    /// It fails and may be tried again.
    Ill(FailureClass),
    /// It fails for good.
    Broken(FailureClass),
}

/// One attempt's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Try {
    /// How long it takes an agent of [`PLAIN_SPEED`].
    pub work: Millis,
    /// How it comes out.
    pub ends: Ends,
}

/// A task, as it arrives.
#[derive(Debug, Clone)]
pub struct Job {
    /// When.
    pub at: Timestamp,
    /// Where.
    pub namespace: Namespace,
    /// By whom.
    pub caller: TokenId,
    /// What is asked for; its id must be its own.
    pub submission: Submission,
    /// Its attempts, one after the other; beyond the last one the last one again. None: nothing to do, and well.
    pub tries: Vec<Try>,
}

impl Job {
    /// A task that says nothing but where, what and by whom, with every default of the API but one: there is always
    /// somebody to wait for.
    #[must_use]
    pub fn plain(
        reach_id: ReachId,
        at: Timestamp,
        (namespace, capability, caller): (Namespace, Capability, TokenId),
        fairness_key: FairnessKey,
    ) -> Self {
        let submission = Submission {
            idempotence: Idempotence::Declared,
            orphan: OrphanPolicy::Replay,
            ..Submission::plain(reach_id, capability, fairness_key)
        };
        Self { at, namespace, caller, submission, tries: Vec::new() }
    }
}

/// What became of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// Which job, by its place.
    pub job: usize,
    /// Who worked on it last; `None`: nobody began to.
    pub agent: Option<AgentId>,
    /// From its arrival, or from the moment before which it may not go, until somebody last began to work on it: in the
    /// hub's queue, in retries and inside the agent.
    pub waited: Millis,
    /// Until its end.
    pub took: Millis,
    /// How it ended.
    pub end: StatusKind,
}

/// What became of all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In the order in which they ended.
    pub fates: Vec<Fate>,
    /// Those that were refused as they came, with the reason.
    pub refused: Vec<(usize, Rejection)>,
}

/// Plays the jobs to their ends and says what became of each. `told` hears how many have come to an end so far.
///
/// # Errors
/// [`ImpossibleTransition`]: a bug in the state machine.
pub fn run(fleet: &Fleet, jobs: &[Job], told: &mut dyn FnMut(usize)) -> Result<Outcome, ImpossibleTransition> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|job| jobs.get(*job).map(|job| job.at));
    let start = order.first().and_then(|job| jobs.get(*job)).map_or(Timestamp(0), |job| job.at);
    let mut play = Play::new(jobs, order.into(), start);
    for worker in &fleet.workers {
        play.join(worker)?;
    }
    for ((namespace, capability), rules) in &fleet.rules {
        play.rule(namespace, capability, rules)?;
    }
    play.scheduler.rebuild(&play.state, start);
    while play.step_to_next()? {
        told(play.outcome.fates.len() + play.outcome.refused.len());
    }
    Ok(play.outcome)
}

/// A task in an agent's hands.
#[derive(Debug, Clone)]
struct Given {
    task: ReachId,
    agent: AgentKey,
    incarnation: Incarnation,
    attempt: AttemptNo,
    lease: LeaseDigest,
}

/// An agent's inside.
struct Desk {
    at_once: u32,
    busy: u32,
    inside: VecDeque<Given>,
    speeds: BTreeMap<Capability, u32>,
}

/// An unfinished task.
struct Life {
    job: usize,
    arrived: Timestamp,
    began: Option<Timestamp>,
    agent: Option<AgentId>,
    tries: usize,
}

struct Play<'a> {
    jobs: &'a [Job],
    coming: VecDeque<usize>,
    state: State,
    scheduler: Scheduler,
    now: Timestamp,
    desks: BTreeMap<AgentKey, Desk>,
    lives: BTreeMap<ReachId, Life>,
    /// Handed over in this very step.
    given: VecDeque<Given>,
    /// Work that ends, by its moment and in the order in which it began.
    calendar: BTreeMap<(Timestamp, u64), (Given, Ends)>,
    begun: u64,
    outcome: Outcome,
}

impl<'a> Play<'a> {
    fn new(jobs: &'a [Job], coming: VecDeque<usize>, now: Timestamp) -> Self {
        Self {
            jobs,
            coming,
            state: State::default(),
            scheduler: Scheduler::new(),
            now,
            desks: BTreeMap::new(),
            lives: BTreeMap::new(),
            given: VecDeque::new(),
            calendar: BTreeMap::new(),
            begun: 0,
            outcome: Outcome::default(),
        }
    }

    fn join(&mut self, worker: &Worker) -> Result<(), ImpossibleTransition> {
        // Pushed: what is at hand goes to it at once, as to a pull agent that always asks.
        let transport = Transport::Http { endpoint: "http://agent.invalid/".into() };
        let declaration = Box::new(Declaration { transport, ..worker.declaration.clone() });
        let agent = worker.agent.agent_id.clone();
        let command = Command::RegisterAgent { agent, instance: None, declaration };
        drop(self.propose(&Proposal::by_hub(Some(worker.agent.namespace.clone()), command))?);
        let (at_once, speeds) = (worker.at_once.max(1), worker.speeds.clone());
        self.desks.insert(worker.agent.clone(), Desk { at_once, busy: 0, inside: VecDeque::new(), speeds });
        Ok(())
    }

    fn rule(
        &mut self,
        namespace: &Namespace,
        of: &Capability,
        rules: &RoutingRules,
    ) -> Result<(), ImpossibleTransition> {
        let (change, reason) = (RoutingChange::Set(rules.clone()), "played".into());
        let command = Command::SetRouting { capability: of.clone(), change, reason };
        drop(self.propose(&Proposal::by_hub(Some(namespace.clone()), command))?);
        Ok(())
    }

    /// Goes to the next moment at which something happens; `false` when nothing will any more.
    fn step_to_next(&mut self) -> Result<bool, ImpossibleTransition> {
        let arrival = self.coming.front().and_then(|job| self.jobs.get(*job)).map(|job| job.at);
        if arrival.is_none() && self.lives.is_empty() {
            return Ok(false);
        }
        let ends = self.calendar.first_key_value().map(|((at, _), _)| *at);
        let wake = self.scheduler.wake_at(&self.state, self.now);
        let Some(next) = [arrival, ends, self.state.due().next(), wake].into_iter().flatten().min() else {
            return Ok(false);
        };
        self.now = self.now.max(next);
        self.fire_timers()?;
        self.arrivals()?;
        while let Some(entry) = self.calendar.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (given, ends) = entry.remove();
            self.end(&given, ends)?;
        }
        self.plan()?;
        self.state.forget_up_to(self.state.seq());
        Ok(true)
    }

    fn fire_timers(&mut self) -> Result<(), ImpossibleTransition> {
        while let Some(subject) = self.state.due().due_by(self.now).cloned() {
            let namespace = match &subject {
                Subject::Task(task) => self.state.task(*task).map(|task| task.namespace.clone()),
                Subject::Agent(agent) => Some(agent.namespace.clone()),
                Subject::Breaker(breaker) => Some(breaker.agent.namespace.clone()),
            };
            drop(self.propose(&Proposal::by_hub(namespace, Command::Fire { subject }))?);
        }
        Ok(())
    }

    fn arrivals(&mut self) -> Result<(), ImpossibleTransition> {
        while let Some((place, job)) = self.coming.front().and_then(|job| Some((*job, self.jobs.get(*job)?)))
            && job.at <= self.now
        {
            self.coming.pop_front();
            // Nobody is told, and nothing of other tasks is known here.
            let plain =
                Submission { callback: None, batch: None, idempotency: None, parent: None, ..job.submission.clone() };
            let arrived = plain.not_before.map_or(job.at, |at| at.max(job.at));
            let life = Life { job: place, arrived, began: None, agent: None, tries: 0 };
            let id = plain.reach_id;
            self.lives.insert(id, life);
            let proposal = Proposal {
                namespace: Some(job.namespace.clone()),
                actor: Actor::Token(job.caller.clone()),
                trace: None,
                command: Command::SubmitTask { submission: Arc::new(plain), bound: None, routed: None },
            };
            if let Err(why) = self.propose(&proposal)? {
                self.lives.remove(&id);
                self.outcome.refused.push((place, why));
            }
        }
        Ok(())
    }

    fn plan(&mut self) -> Result<(), ImpossibleTransition> {
        loop {
            let proposals = self.scheduler.plan(&self.state, self.now, ROOM);
            if proposals.is_empty() {
                return Ok(());
            }
            for mut proposal in proposals {
                if let Command::DispatchTask { lease, task, .. } = &mut proposal.command {
                    *lease = LeaseDigest(Digest::of(&[&task.0]));
                }
                if self.propose(&proposal)?.is_err() {
                    self.scheduler.refused(&self.state, &proposal);
                }
            }
            while let Some(given) = self.given.pop_front() {
                self.take(given)?;
            }
        }
    }

    /// An agent takes what it was given: it works on it, or lets it wait inside.
    fn take(&mut self, given: Given) -> Result<(), ImpossibleTransition> {
        self.report(&given, Word::Ack)?;
        let Some(desk) = self.desks.get_mut(&given.agent) else { return Ok(()) };
        if desk.busy < desk.at_once {
            desk.busy += 1;
            self.begin(given);
        } else {
            desk.inside.push_back(given);
        }
        Ok(())
    }

    fn begin(&mut self, given: Given) {
        let Some(life) = self.lives.get_mut(&given.task) else { return };
        let job = self.jobs.get(life.job);
        let attempt = job.and_then(|job| job.tries.get(life.tries).or_else(|| job.tries.last()).copied());
        let attempt = attempt.unwrap_or(Try { work: Millis(0), ends: Ends::Well });
        life.tries += 1;
        life.began = Some(self.now);
        life.agent = Some(given.agent.agent_id.clone());
        let speeds = self.desks.get(&given.agent).map(|desk| &desk.speeds);
        let speed = job.and_then(|job| speeds?.get(&job.submission.capability)).copied().unwrap_or(PLAIN_SPEED).max(1);
        let work = Millis(attempt.work.0.saturating_mul(u64::from(PLAIN_SPEED)) / u64::from(speed));
        self.begun += 1;
        self.calendar.insert((self.now.after(work), self.begun), (given, attempt.ends));
    }

    /// Work ends; the agent begins the next that waits inside and is still its own.
    fn end(&mut self, given: &Given, ends: Ends) -> Result<(), ImpossibleTransition> {
        let digest = Digest::default();
        let word = match ends {
            Ends::Well => Word::Complete { result: None, digest, usage: Vec::new(), already_done: AlreadyDone::No },
            Ends::Ill(class) => failed(class, Retryable::Yes),
            Ends::Broken(class) => failed(class, Retryable::No),
        };
        self.report(given, word)?;
        let Some(desk) = self.desks.get_mut(&given.agent) else { return Ok(()) };
        while let Some(next) = desk.inside.pop_front() {
            let lease = self.state.task(next.task).and_then(|task| task.status.lease());
            if lease.is_some_and(|lease| lease.attempt == next.attempt && lease.agent == next.agent.agent_id) {
                self.begin(next);
                return Ok(());
            }
        }
        desk.busy = desk.busy.saturating_sub(1);
        Ok(())
    }

    /// Says it to the hub; that it has moved on meanwhile is no fault here.
    fn report(&mut self, given: &Given, word: Word) -> Result<(), ImpossibleTransition> {
        let Given { task, agent, incarnation, attempt, lease } = given.clone();
        let AgentKey { namespace, agent_id: agent } = agent;
        let actor = Actor::Agent { agent_id: agent.clone(), incarnation };
        let report = Report { task, agent, incarnation, attempt, lease, word, fact: None };
        let command = Command::Report(Box::new(report));
        drop(self.propose(&Proposal { namespace: Some(namespace), actor, trace: None, command })?);
        Ok(())
    }

    fn propose(&mut self, proposal: &Proposal) -> Result<Result<(), Rejection>, ImpossibleTransition> {
        let done = step(&mut self.state, proposal, self.now)?;
        for event in &done.events {
            self.scheduler.observe(&self.state, event);
            self.follow(event);
        }
        Ok(done.answer.map(drop))
    }

    fn follow(&mut self, event: &Event) {
        if let EventBody::TaskDispatched(body) = &event.body
            && let Some(namespace) = event.namespace.clone()
        {
            let TaskDispatched { task, attempt, agent, incarnation, lease, .. } = body.clone();
            let agent = AgentKey { namespace, agent_id: agent };
            self.given.push_back(Given { task, agent, incarnation, attempt, lease });
        }
        let Some(task) = event.body.task().and_then(|id| self.state.task(id)) else { return };
        if task.ended_at.is_none() {
            return;
        }
        if let Some(life) = self.lives.remove(&task.id()) {
            self.outcome.fates.push(Fate {
                job: life.job,
                agent: life.agent,
                waited: life.began.unwrap_or(self.now).since(life.arrived),
                took: self.now.since(life.arrived),
                end: task.status.kind(),
            });
        }
    }
}

fn failed(class: FailureClass, retryable: Retryable) -> Word {
    let failure = Failure { class, code: "played".into(), message: None };
    Word::Fail { failure, digest: Digest::default(), retryable, retry_after: None }
}
