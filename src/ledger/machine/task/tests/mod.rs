//! Rules as tests: given what happened, when somebody proposes, then these events follow. All through [`check`].

mod dispatch;
mod documentation;
mod report;
mod submit;
mod timer;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::ids::{
    AgentId, AttemptNo, BatchId, Boot, Capability, Digest, Incarnation, LeaseDigest, Lineage, Namespace, ReachId,
    TokenId,
};
use crate::ledger::machine::agent::{CapabilityKind, Declaration, Offer, ProgressRule, Sensitive, Transport};
use crate::ledger::machine::command::{Command, Proposal, Report, Retryable, Word};
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::event::{Actor, AlreadyDone, Event, Explanation};
use crate::ledger::machine::step::{apply, step};
use crate::ledger::machine::task::samples;
use crate::ledger::machine::task::spec::{
    AbsentAgents, Approval, DEFAULT_LIFETIME, DEFAULT_REACH_TIMEOUT, DEFAULT_WORK_TIMEOUT, Idempotence, OnWait,
    OrphanPolicy, Qos, SchemaVerdicts, SlowPolicy, Submission,
};
use crate::ledger::machine::task::status::{Delivery, StatusKind};
use crate::ledger::machine::task::{Failure, FailureClass, Task};
use crate::ledger::machine::{State, audit};
use crate::ledger::time::{Millis, SimClock, Timestamp};

/// The task that most tests are about.
pub(in crate::ledger::machine) const TASK: ReachId = ReachId([1; 16]);

pub(in crate::ledger::machine) fn namespace() -> Namespace {
    Namespace::new("ns").unwrap()
}

pub(in crate::ledger::machine) fn agent(name: &str) -> AgentId {
    AgentId::new(name).unwrap()
}

pub(in crate::ledger::machine) fn capability() -> Capability {
    Capability::new("text.count").unwrap()
}

/// The digest of the lease of an attempt, as a shell would fill it in.
pub(in crate::ledger::machine) fn lease(task: ReachId, attempt: u32) -> LeaseDigest {
    LeaseDigest(Digest::of(&[b"lease", &task.0, &attempt.to_be_bytes()]))
}

pub(in crate::ledger::machine) fn declaration() -> Declaration {
    let offer = Offer {
        capability: capability(),
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
    };
    Declaration {
        version: None,
        region: None,
        offers: vec![offer],
        transport: Transport::Pull,
        heartbeat_interval: Millis::secs(5),
        max_concurrency: 2,
        max_pending: 1_000,
        priority: 100,
        load_threshold_milli: 900,
        allowed_callers: Vec::new(),
        body: Digest::default(),
    }
}

pub(in crate::ledger::machine) fn submission(task: ReachId) -> Submission {
    Submission { absent_agents: AbsentAgents::Refuse, ..samples::submission(task, capability().as_str()) }
}

pub(in crate::ledger::machine) fn idempotent(task: ReachId) -> Submission {
    Submission { idempotence: Idempotence::Declared, orphan: OrphanPolicy::Replay, ..submission(task) }
}

pub(in crate::ledger::machine) fn by_caller(command: Command) -> Proposal {
    let token = TokenId::new("caller").unwrap();
    Proposal { namespace: Some(namespace()), actor: Actor::Token(token), trace: None, command }
}

pub(in crate::ledger::machine) fn submit(submission: Submission) -> Proposal {
    by_caller(Command::SubmitTask { submission: Arc::new(submission), bound: None, routed: None })
}

pub(in crate::ledger::machine) fn register(name: &str, instance: &str, declaration: Declaration) -> Proposal {
    let instance = Some(instance.into());
    by_caller(Command::RegisterAgent { agent: agent(name), instance, declaration: Box::new(declaration) })
}

/// Hands the n-th attempt of a task over; the lease is that attempt's.
pub(in crate::ledger::machine) fn dispatch(task: ReachId, attempt: u32, (name, incarnation): (&str, u32)) -> Proposal {
    handed(task, attempt, (name, incarnation), Delivery::Pull)
}

pub(in crate::ledger::machine) fn handed(
    task: ReachId,
    attempt: u32,
    (name, inc): (&str, u32),
    delivery: Delivery,
) -> Proposal {
    let explanation = Explanation {
        strategy: "test".into(),
        score: Vec::new(),
        runners_up: Vec::new(),
        exclusions: Vec::new(),
        rules: None,
    };
    Proposal::by_hub(
        Some(namespace()),
        Command::DispatchTask {
            task,
            agent: agent(name),
            incarnation: Incarnation(inc),
            delivery,
            lease: lease(task, attempt),
            explanation: Box::new(explanation),
        },
    )
}

pub(in crate::ledger::machine) fn says(task: ReachId, attempt: u32, word: Word) -> Proposal {
    says_as(("a", 1), (task, attempt, lease(task, attempt)), word)
}

pub(in crate::ledger::machine) fn says_as(
    (name, incarnation): (&str, u32),
    (task, attempt, lease): (ReachId, u32, LeaseDigest),
    word: Word,
) -> Proposal {
    let (agent, incarnation) = (agent(name), Incarnation(incarnation));
    let report = Report { task, agent, incarnation, attempt: AttemptNo(attempt), lease, word, fact: None };
    by_caller(Command::Report(Box::new(report)))
}

pub(in crate::ledger::machine) fn complete(result: &str) -> Word {
    let digest = Digest::of(&[result.as_bytes()]);
    Word::Complete { result: None, digest, usage: Vec::new(), already_done: AlreadyDone::No }
}

pub(in crate::ledger::machine) fn fail(retryable: Retryable) -> Word {
    let failure = Failure { class: FailureClass::Business, code: "boom".into(), message: None };
    Word::Fail { failure, digest: Digest::of(&[b"boom"]), retryable, retry_after: None }
}

pub(in crate::ledger::machine) fn release() -> Word {
    Word::Release { digest: Digest::of(&[b"release"]), retry_after: None }
}

pub(in crate::ledger::machine) fn progress() -> Word {
    Word::Progress { stage: Some("half".into()), percent: Some(50), data: None }
}

pub(in crate::ledger::machine) fn lost(name: &str) -> Proposal {
    let (agent, incarnation, silent) = (agent(name), Incarnation(1), Millis::secs(45));
    Proposal::by_hub(Some(namespace()), Command::MarkLost { agent, incarnation, silent })
}

pub(in crate::ledger::machine) fn cancel(task: ReachId) -> Proposal {
    by_caller(Command::CancelTask { task, reason: None, fact: None })
}

/// A play: a state, its clock, all its events, and what the last step gave.
#[derive(Clone)]
pub(in crate::ledger::machine) struct Play {
    pub(in crate::ledger::machine) state: State,
    pub(in crate::ledger::machine) now: Timestamp,
    pub(in crate::ledger::machine) log: Vec<Event>,
    pub(in crate::ledger::machine) last: Vec<Event>,
    pub(in crate::ledger::machine) answer: Result<Answer, Rejection>,
}

impl Play {
    /// A hub with one pull agent, `a`, of two slots.
    pub(in crate::ledger::machine) fn new() -> Self {
        Self::empty().act(register("a", "one", declaration()))
    }

    /// A hub without agents.
    pub(in crate::ledger::machine) fn empty() -> Self {
        let play = Self {
            state: State::default(),
            now: SimClock::START,
            log: Vec::new(),
            last: Vec::new(),
            answer: Ok(Answer::Done),
        };
        let (version, lineage) = ("test".into(), Some(Lineage([9; 16])));
        play.act(Proposal::by_hub(None, Command::StartHub { boot: Boot(1), wall_offset: 0, version, lineage }))
    }

    /// With a task submitted.
    pub(in crate::ledger::machine) fn with(submission: Submission) -> Self {
        Self::new().act(submit(submission))
    }

    /// With a task that its agent works on.
    pub(in crate::ledger::machine) fn working(submission: Submission) -> Self {
        let task = submission.reach_id;
        Self::with(submission).act(dispatch(task, 1, ("a", 1))).act(says(task, 1, Word::Ack))
    }

    pub(in crate::ledger::machine) fn act(mut self, proposal: Proposal) -> Self {
        let done = step(&mut self.state, &proposal, self.now).unwrap();
        self.log.extend(done.events.iter().cloned());
        self.last = done.events;
        self.answer = done.answer;
        self
    }

    /// Lets time pass and fires every timer that becomes due, each at its moment.
    pub(in crate::ledger::machine) fn wait(mut self, span: Millis) -> Self {
        let end = self.now.after(span);
        let mut fired = Vec::new();
        while let Some(at) = self.state.due().next().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let subject = self.state.due().due_by(self.now).cloned().unwrap();
            self = self.act(Proposal::by_hub(None, Command::Fire { subject }));
            assert!(!self.last.is_empty(), "a due timer fired without effect");
            fired.append(&mut self.last);
        }
        self.now = end;
        self.last = fired;
        self
    }

    pub(in crate::ledger::machine) fn task(&self) -> &Task {
        self.state.task(TASK).unwrap()
    }

    pub(in crate::ledger::machine) fn kind(&self) -> StatusKind {
        self.task().status.kind()
    }

    pub(in crate::ledger::machine) fn kinds(&self) -> Vec<&'static str> {
        self.last.iter().map(|event| event.body.kind().name()).collect()
    }

    pub(in crate::ledger::machine) fn refusal(&self) -> &Rejection {
        self.answer.as_ref().unwrap_err()
    }

    /// Every promise that holds after any step: the audit finds nothing, the log folds to the same state, an image of
    /// it comes back whole, and slots, lanes and counts are what the tasks say.
    pub(in crate::ledger::machine) fn holds(&self) {
        assert_eq!(audit::check(self.log.iter()), Vec::new());
        let mut folded = State::default();
        for event in &self.log {
            apply(&mut folded, event).unwrap();
        }
        assert_eq!(folded, self.state, "D4: the fold differs");
        let mut again = State::from_image(self.state.to_image());
        assert_eq!(again.digest(), self.state.digest());
        let mut bare = self.state.clone();
        bare.forget_up_to(bare.seq());
        again.forget_up_to(again.seq());
        assert_eq!(again, bare, "D4: what an image derives differs");
        slots_and_counts(&self.state);
    }
}

/// S8 and the gauges, counted again from the tasks alone.
pub(in crate::ledger::machine) fn slots_and_counts(state: &State) {
    let mut lanes = BTreeMap::new();
    let mut counts: BTreeMap<_, BTreeMap<StatusKind, u32>> = BTreeMap::new();
    for task in state.tasks().values() {
        *counts.entry(task.namespace.clone()).or_default().entry(task.status.kind()).or_default() += 1;
        if task.status.kind() == StatusKind::Queued {
            *lanes.entry(task.lane).or_insert(0_u32) += 1;
        }
        let subject = crate::ledger::machine::due::Subject::Task(task.id());
        assert_eq!(state.due().of(&subject), task.wake_at(), "T3");
        assert_eq!(task.wake_at().is_none(), task.status.kind().is_terminal(), "T3");
        if let Some(lease) = task.status.lease() {
            let holder = state.agents().values().find(|agent| agent.key.agent_id == lease.agent).unwrap();
            let held = holder.held.contains(&task.id());
            assert_eq!(held, holder.incarnation == lease.incarnation, "S8: a valid lease takes a slot of its process");
        }
    }
    for agent in state.agents().values() {
        let bound = usize::try_from(agent.declaration.max_concurrency).unwrap();
        assert!(agent.slots_used() <= bound, "S8: {} of {bound} slots", agent.slots_used());
        for id in &agent.held {
            assert_eq!(state.tasks().get(id).and_then(|task| task.status.lease()).map(|l| &l.agent), Some(agent.id()));
        }
    }
    assert_eq!(lanes, state.lanes);
    let unacked: usize = state.unacked.values().map(std::collections::BTreeSet::len).sum();
    let dispatched = state.tasks().values().filter(|task| task.status.kind() == StatusKind::Dispatched).count();
    assert_eq!(unacked + state.pushes().len(), dispatched, "every hand-over that waits for its acknowledgement");
    for count in state.counts().values() {
        let waits = |(kind, _): &(&StatusKind, _)| {
            !kind.is_terminal() && !matches!(kind, StatusKind::AwaitingApproval | StatusKind::Scheduled)
        };
        let pending: u32 = count.by_state.iter().filter(waits).map(|(_, number)| *number).sum();
        assert_eq!(pending, count.pending.values().sum::<u32>(), "what the agents' max_pending bounds");
    }
    let shown = state.counts().iter().map(|(ns, count)| (ns.clone(), count.by_state.clone()));
    assert_eq!(counts, shown.collect());
}

/// Given what happened, when somebody proposes, then exactly these kinds of events follow, and every promise holds.
pub(in crate::ledger::machine) fn check(given: Play, when: Proposal, then: &[&str]) -> Play {
    given.holds();
    let play = given.act(when);
    assert_eq!(play.kinds(), then, "answer: {:?}", play.answer);
    play.holds();
    play
}

/// As [`check`], when time passes.
pub(in crate::ledger::machine) fn check_after(given: Play, span: Millis, then: &[&str]) -> Play {
    given.holds();
    let play = given.wait(span);
    assert_eq!(play.kinds(), then);
    play.holds();
    play
}

/// As [`check`], when the proposal is refused for this reason and leaves these events.
pub(in crate::ledger::machine) fn check_refused(
    given: Play,
    when: Proposal,
    reason: &Rejection,
    then: &[&str],
) -> Play {
    let play = check(given, when, then);
    assert_eq!(play.refusal(), reason);
    play
}

pub(in crate::ledger::machine) fn batch() -> BatchId {
    BatchId([7; 16])
}

pub(in crate::ledger::machine) fn finished(play: &Play, task: ReachId) -> Arc<Task> {
    Arc::new(play.state.task(task).unwrap().clone())
}
