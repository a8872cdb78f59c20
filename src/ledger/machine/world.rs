//! A small world for the rules' tests: given what was proposed before, when this is proposed, then these events.

use std::sync::Arc;

use crate::ledger::ids::{
    AgentId, AgentKey, BatchId, Boot, Capability, Digest, Incarnation, LeaseDigest, Lineage, Namespace, ReachId,
    TokenId,
};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Agent, CapabilityKind, Declaration, Offer, ProgressRule, Sensitive, Transport};
use crate::ledger::machine::callback::{CallbackEvent, CallbackSpec};
use crate::ledger::machine::command::{Command, Proposal, Report, Word};
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::{Actor, AlreadyDone, Event, Explanation};
use crate::ledger::machine::step::step;
use crate::ledger::machine::task::samples;
use crate::ledger::machine::task::spec::Submission;
use crate::ledger::machine::task::status::{Delivery, StatusKind};
use crate::ledger::time::{Millis, SimClock, Timestamp};

/// The namespace in which everything here happens.
pub(in crate::ledger::machine) fn namespace() -> Namespace {
    Namespace::new("dev").unwrap()
}

/// The capability that every agent here offers and every task needs.
pub(in crate::ledger::machine) fn capability() -> Capability {
    Capability::new("text.count").unwrap()
}

/// An agent's id.
pub(in crate::ledger::machine) fn agent_id(name: &str) -> AgentId {
    AgentId::new(name).unwrap()
}

/// The n-th task's id.
pub(in crate::ledger::machine) fn task_id(n: u8) -> ReachId {
    ReachId([n; 16])
}

/// The n-th batch's id.
pub(in crate::ledger::machine) fn batch_id(n: u8) -> BatchId {
    BatchId([n; 16])
}

/// A pull agent's declaration with one offer.
pub(in crate::ledger::machine) fn declaration() -> Declaration {
    Declaration {
        version: None,
        region: None,
        offers: vec![offer(capability())],
        transport: Transport::Pull,
        heartbeat_interval: Millis::secs(5),
        max_concurrency: 10,
        max_pending: 1_000,
        priority: 100,
        load_threshold_milli: 900,
        allowed_callers: Vec::new(),
        body: Digest::of(&[b"declaration"]),
    }
}

/// An offer without demands.
pub(in crate::ledger::machine) fn offer(capability: Capability) -> Offer {
    Offer {
        capability,
        kind: CapabilityKind::Service,
        schemas: Vec::new(),
        tools: Vec::new(),
        languages: Vec::new(),
        context_window: None,
        weight: 10,
        priority: 100,
        strategy: None,
        progress: ProgressRule::Shows,
        sensitive: Sensitive::No,
    }
}

/// A submission of the n-th task, with nothing special.
pub(in crate::ledger::machine) fn submission(n: u8) -> Submission {
    samples::submission(task_id(n), capability().as_str())
}

/// A callback spec for those events.
pub(in crate::ledger::machine) fn callback(events: &[CallbackEvent]) -> CallbackSpec {
    CallbackSpec { url: "https://caller.example/hook".into(), events: events.to_vec(), secret_ref: "default".into() }
}

/// A state with a started hub, and the time.
pub(in crate::ledger::machine) struct World {
    pub(in crate::ledger::machine) state: State,
    pub(in crate::ledger::machine) now: Timestamp,
    /// Everything that happened.
    pub(in crate::ledger::machine) log: Vec<Event>,
}

impl World {
    pub(in crate::ledger::machine) fn new() -> Self {
        let mut world = Self { state: State::default(), now: SimClock::START, log: Vec::new() };
        let (boot, lineage) = (Boot(1), Some(Lineage([7; 16])));
        world.ok(Command::StartHub { boot, wall_offset: 0, version: "0.1.0".into(), lineage });
        world
    }

    /// Proposes inside the namespace; the events' names and the answer.
    pub(in crate::ledger::machine) fn when(
        &mut self,
        command: Command,
    ) -> (Vec<&'static str>, Result<Answer, Rejection>) {
        self.propose(Proposal {
            namespace: Some(namespace()),
            actor: Actor::Token(TokenId::new("caller").unwrap()),
            trace: None,
            command,
        })
    }

    /// Proposes as given.
    pub(in crate::ledger::machine) fn propose(
        &mut self,
        proposal: Proposal,
    ) -> (Vec<&'static str>, Result<Answer, Rejection>) {
        let stepped = step(&mut self.state, &proposal, self.now).expect("no impossible transition");
        let names = stepped.events.iter().map(|event| event.body.kind().name()).collect();
        self.log.extend(stepped.events);
        (names, stepped.answer)
    }

    /// Proposes what must be accepted; the events' names.
    pub(in crate::ledger::machine) fn ok(&mut self, command: Command) -> Vec<&'static str> {
        let shown = format!("{command:?}");
        let (events, answer) = self.when(command);
        assert!(answer.is_ok(), "{shown} was refused: {answer:?}");
        events
    }

    /// Proposes what must be refused without an event.
    pub(in crate::ledger::machine) fn refused(&mut self, command: Command) -> Rejection {
        let (events, answer) = self.when(command);
        assert!(events.is_empty(), "a refusal left {events:?}");
        answer.expect_err("it must be refused")
    }

    /// Lets time pass without firing anything.
    pub(in crate::ledger::machine) fn wait(&mut self, span: Millis) {
        self.now = self.now.after(span);
    }

    /// Fires an agent's timer.
    pub(in crate::ledger::machine) fn fire(&mut self, agent: &str) -> Vec<&'static str> {
        self.ok(Command::Fire { subject: Subject::Agent(key(agent)) })
    }

    /// Registers an agent under an instance name.
    pub(in crate::ledger::machine) fn register(&mut self, agent: &str, instance: Option<&str>) -> Vec<&'static str> {
        self.register_with(agent, instance, declaration())
    }

    /// Registers an agent with its own declaration.
    pub(in crate::ledger::machine) fn register_with(
        &mut self,
        agent: &str,
        instance: Option<&str>,
        declaration: Declaration,
    ) -> Vec<&'static str> {
        let instance = instance.map(Arc::from);
        self.ok(Command::RegisterAgent { agent: agent_id(agent), instance, declaration: Box::new(declaration) })
    }

    /// Submits the n-th task and hands it to the agent.
    pub(in crate::ledger::machine) fn dispatch(&mut self, n: u8, agent: &str) {
        self.submit(submission(n));
        self.hand(n, agent);
    }

    pub(in crate::ledger::machine) fn submit(&mut self, submission: Submission) -> Vec<&'static str> {
        self.ok(Command::SubmitTask { submission: Arc::new(submission), bound: None, routed: None })
    }

    /// Hands a queued task to the agent's current process, which must be possible.
    pub(in crate::ledger::machine) fn hand(&mut self, n: u8, agent: &str) {
        self.try_hand(n, agent).1.expect("the hand-over is taken");
    }

    /// Tries to.
    pub(in crate::ledger::machine) fn try_hand(
        &mut self,
        n: u8,
        agent: &str,
    ) -> (Vec<&'static str>, Result<Answer, Rejection>) {
        let explanation = Explanation {
            strategy: "test".into(),
            score: Vec::new(),
            runners_up: Vec::new(),
            exclusions: Vec::new(),
            rules: None,
        };
        let attempt = self.state.task(task_id(n)).unwrap().attempt.next();
        self.when(Command::DispatchTask {
            task: task_id(n),
            agent: agent_id(agent),
            incarnation: self.agent(agent).incarnation,
            delivery: Delivery::Pull,
            lease: lease(n, attempt.0),
            explanation: Box::new(explanation),
        })
    }

    /// Hands over and acknowledges.
    pub(in crate::ledger::machine) fn work(&mut self, n: u8, agent: &str) {
        self.dispatch(n, agent);
        let (_, answer) = self.report(n, agent, Word::Ack);
        answer.expect("the ack is taken");
    }

    /// An agent's report under the task's last attempt.
    pub(in crate::ledger::machine) fn report(
        &mut self,
        n: u8,
        agent: &str,
        word: Word,
    ) -> (Vec<&'static str>, Result<Answer, Rejection>) {
        let attempt = self.state.task(task_id(n)).unwrap().attempt;
        let report = Report {
            task: task_id(n),
            agent: agent_id(agent),
            incarnation: self.agent(agent).incarnation,
            attempt,
            lease: lease(n, attempt.0),
            word,
            fact: None,
        };
        self.when(Command::Report(Box::new(report)))
    }

    /// Tries to succeed.
    pub(in crate::ledger::machine) fn try_complete(
        &mut self,
        n: u8,
        agent: &str,
    ) -> (Vec<&'static str>, Result<Answer, Rejection>) {
        let digest = Digest::of(&[&[n]]);
        let word = Word::Complete { result: None, digest, usage: Vec::new(), already_done: AlreadyDone::No };
        self.report(n, agent, word)
    }

    /// Succeeds.
    pub(in crate::ledger::machine) fn complete(&mut self, n: u8, agent: &str) -> Vec<&'static str> {
        let (events, answer) = self.try_complete(n, agent);
        answer.expect("the result is taken");
        events
    }

    pub(in crate::ledger::machine) fn agent(&self, name: &str) -> &Agent {
        self.state.agent(&key(name)).unwrap()
    }

    pub(in crate::ledger::machine) fn status(&self, n: u8) -> StatusKind {
        self.state.task(task_id(n)).unwrap().status.kind()
    }

    pub(in crate::ledger::machine) fn incarnation(&self, name: &str) -> Incarnation {
        self.agent(name).incarnation
    }
}

/// An agent's key.
pub(in crate::ledger::machine) fn key(name: &str) -> AgentKey {
    AgentKey { namespace: namespace(), agent_id: agent_id(name) }
}

fn lease(n: u8, attempt: u32) -> LeaseDigest {
    LeaseDigest(Digest::of(&[b"lease", &[n], &attempt.to_be_bytes()]))
}
