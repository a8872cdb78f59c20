//! A small world for tests: a state, a scheduler, recovery, and a clock that is a number.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::facts::newer;
use crate::ledger::ids::{
    AgentId, AgentKey, Capability, Digest, FairnessKey, Incarnation, LeaseDigest, Namespace, ReachId, ReplayId,
    SessionId, TokenId,
};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{
    CapabilityKind, Declaration, DrainMode, MAX_PENDING, Offer, ProgressRule, Sensitive, Transport,
};
use crate::ledger::machine::command::{Command, Proposal, Report, Retryable, Word};
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::event::{Actor, AlreadyDone, Event, EventBody, TaskDispatched};
use crate::ledger::machine::replay::MayHaveRun;
use crate::ledger::machine::replay::order::{Before, ReplayOrder, ReplayWord};
use crate::ledger::machine::step::step;
use crate::ledger::machine::success::Success;
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::samples;
use crate::ledger::machine::task::spec::{BodyRef, Idempotence, OrphanPolicy, RetryPolicy, Submission};
use crate::ledger::machine::task::{Failure, FailureClass, Task};
use crate::ledger::planner::{ClaimId, Note, Planner};
use crate::ledger::time::{Millis, Timestamp};
use crate::recovery::Recovery;
use crate::recovery::list::{PlanItem, encode};
use crate::scheduler::plan::Scheduler;

pub(crate) fn namespace() -> Namespace {
    Namespace::new("n").unwrap()
}

pub(crate) fn key(agent: &str) -> AgentKey {
    AgentKey { namespace: namespace(), agent_id: AgentId::new(agent).unwrap() }
}

pub(crate) fn offer(capability: &str) -> Offer {
    Offer {
        capability: Capability::new(capability).unwrap(),
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

pub(crate) fn declaration(max_concurrency: u32) -> Declaration {
    Declaration {
        version: Some("1.0.0".into()),
        region: None,
        offers: vec![offer("a.b")],
        transport: Transport::Http { endpoint: "http://agent.example/".into() },
        heartbeat_interval: Millis::secs(5),
        max_concurrency,
        max_pending: MAX_PENDING,
        priority: 100,
        load_threshold_milli: 900,
        allowed_callers: Vec::new(),
        body: Digest::default(),
    }
}

pub(crate) fn pull(max_concurrency: u32) -> Declaration {
    Declaration { transport: Transport::Pull, ..declaration(max_concurrency) }
}

pub(crate) fn submission(n: u64) -> Submission {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&n.to_be_bytes());
    Submission {
        idempotence: Idempotence::Declared,
        retry: RetryPolicy { base: Millis(1), cap: Millis(1), ..RetryPolicy::default() },
        orphan: OrphanPolicy::Replay,
        fairness_key: FairnessKey::new("alice").unwrap(),
        ..samples::submission(ReachId(id), "a.b")
    }
}

/// One dispatch, as the tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dispatch {
    pub(crate) task: ReachId,
    pub(crate) agent: String,
    pub(crate) event: TaskDispatched,
}

pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) scheduler: Scheduler,
    pub(crate) recovery: Recovery,
    pub(crate) now: Timestamp,
    pub(crate) refusals: Vec<Rejection>,
    /// What the shells would find on disk: final rows, and what was made of them.
    pub(crate) rows: BTreeMap<ReachId, Arc<Task>>,
    redriven: BTreeMap<ReachId, ReachId>,
    /// And the newest success of each session.
    newest: BTreeMap<SessionId, Success>,
    pub(crate) log: Vec<Event>,
    next_task: u64,
    next_claim: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self {
            state: State::default(),
            scheduler: Scheduler::new(),
            recovery: Recovery::new(),
            now: Timestamp(1_000_000),
            refusals: Vec::new(),
            rows: BTreeMap::new(),
            redriven: BTreeMap::new(),
            newest: BTreeMap::new(),
            log: Vec::new(),
            next_task: 0,
            next_claim: 0,
        };
        world.restart();
        world
    }

    /// The planners of a new hub over the same state.
    pub(crate) fn restart(&mut self) {
        self.scheduler.rebuild(&self.state, self.now);
        self.recovery.rebuild(&self.state, self.now);
    }

    pub(crate) fn pass(&mut self, span: u64) {
        self.now = self.now.after(Millis(span));
        while let Some(subject) = self.state.due().due_by(self.now).cloned() {
            let namespace = Some(namespace());
            self.propose(&Proposal::by_hub(namespace, Command::Fire { subject })).0.unwrap();
        }
    }

    pub(crate) fn propose(&mut self, proposal: &Proposal) -> (Result<Answer, Rejection>, Vec<Event>) {
        let done = step(&mut self.state, proposal, self.now).unwrap();
        for event in &done.events {
            self.scheduler.observe(&self.state, event);
            self.recovery.observe(&self.state, event);
        }
        for event in &done.events {
            if let EventBody::TaskRedriven(body) = &event.body {
                self.redriven.insert(body.task, body.successor);
            }
            let ended = event.body.task().and_then(|id| self.state.task(id)).filter(|task| task.ended_at.is_some());
            self.rows.extend(ended.map(|task| (task.id(), Arc::new(task.clone()))));
            let session = |task: &Task| task.spec.session.clone();
            if let Some((session, task)) = ended.and_then(|task| Some((session(task)?, task)))
                && let Some(success) = self.state.newest_success(&task.namespace, &session)
            {
                let known = self.newest.entry(session).or_insert(success);
                *known = if success.place > known.place { success } else { *known };
            }
        }
        self.log.extend(done.events.iter().cloned());
        (done.answer, done.events)
    }

    fn by(&mut self, actor: Actor, command: Command) -> Vec<Event> {
        let proposal = Proposal { namespace: Some(namespace()), actor, trace: None, command };
        let (answer, events) = self.propose(&proposal);
        answer.unwrap();
        events
    }

    pub(crate) fn register(&mut self, agent: &str, declaration: Declaration) {
        let command = Command::RegisterAgent {
            agent: AgentId::new(agent).unwrap(),
            instance: None,
            declaration: Box::new(declaration),
        };
        self.by(Actor::Token(TokenId::new("t").unwrap()), command);
    }

    pub(crate) fn submit(&mut self, change: impl FnOnce(&mut Submission)) -> ReachId {
        self.submit_by("t", change)
    }

    pub(crate) fn submit_some(&mut self, n: usize, change: impl Fn(&mut Submission)) {
        for _ in 0..n {
            self.submit(&change);
        }
    }

    pub(crate) fn submit_by(&mut self, token: &str, change: impl FnOnce(&mut Submission)) -> ReachId {
        self.next_task += 1;
        let mut submission = submission(self.next_task);
        change(&mut submission);
        let id = submission.reach_id;
        let command = Command::SubmitTask { submission: Arc::new(submission), bound: None, routed: None };
        self.by(Actor::Token(TokenId::new(token).unwrap()), command);
        id
    }

    pub(crate) fn note(&mut self, note: &Note) {
        self.scheduler.note(&self.state, note, self.now);
        self.recovery.note(&self.state, note, self.now);
    }

    pub(crate) fn incarnation(&self, agent: &str) -> Incarnation {
        self.state.agent(&key(agent)).unwrap().incarnation
    }

    pub(crate) fn beat(&mut self, agent: &str) {
        let incarnation = self.incarnation(agent);
        let command = Command::Heartbeat { agent: AgentId::new(agent).unwrap(), incarnation, held: None };
        let actor = Actor::Agent { agent_id: AgentId::new(agent).unwrap(), incarnation };
        self.by(actor, command);
        self.note(&Note::Beat { agent: key(agent), incarnation, load: None });
    }

    pub(crate) fn claim(&mut self, agent: &str, max: u32) -> ClaimId {
        self.next_claim += 1;
        let claim = ClaimId(self.next_claim);
        let incarnation = self.incarnation(agent);
        self.note(&Note::ClaimOpened { claim, agent: key(agent), incarnation, max });
        claim
    }

    pub(crate) fn unclaim(&mut self, claim: ClaimId) {
        self.note(&Note::ClaimClosed { claim });
    }

    /// One cycle of the sequencer: each planner in its turn until nothing comes, `room` proposals at a time.
    pub(crate) fn cycle_by(&mut self, room: usize) -> Vec<Dispatch> {
        self.cycle_late(room, Millis(0))
    }

    /// One in which the disk holds up what was planned by that much.
    pub(crate) fn cycle_late(&mut self, room: usize, late: Millis) -> Vec<Dispatch> {
        let (planned, mut events) = (self.now, Vec::new());
        loop {
            let proposals = self.recovery.plan(&self.state, planned, room);
            if proposals.is_empty() {
                break;
            }
            self.now = planned.after(late);
            for proposal in proposals {
                let done = self.carry_out(proposal.clone());
                events.extend(done.unwrap_or_else(|()| {
                    self.recovery.refused(&self.state, &proposal);
                    Vec::new()
                }));
            }
        }
        loop {
            let proposals = self.scheduler.plan(&self.state, planned, room);
            assert!(proposals.len() <= room);
            if proposals.is_empty() {
                break;
            }
            for proposal in proposals {
                let done = self.carry_out(proposal.clone());
                events.extend(done.unwrap_or_else(|()| {
                    self.scheduler.refused(&self.state, &proposal);
                    Vec::new()
                }));
            }
        }
        for planner in [&self.scheduler as &dyn Planner, &self.recovery] {
            let wake = planner.wake_at(&self.state, planned);
            assert!(wake.is_none_or(|at| at > planned), "whoever has just planned wants nothing at once: {wake:?}");
        }
        let dispatch = |event: Event| {
            let EventBody::TaskDispatched(event) = event.body else { return None };
            Some(Dispatch { task: event.task, agent: event.agent.as_str().to_owned(), event })
        };
        events.into_iter().filter_map(dispatch).collect()
    }

    /// Carries a planner's proposal out; a refusal is kept in `refusals`.
    pub(crate) fn carry_out(&mut self, mut proposal: Proposal) -> Result<Vec<Event>, ()> {
        self.fill(&mut proposal);
        let (answer, events) = self.propose(&proposal);
        match answer {
            Ok(_) => Ok(events),
            Err(why) => {
                self.refusals.push(why);
                Err(())
            }
        }
    }

    /// What the sequencer's shell fills in.
    fn fill(&self, proposal: &mut Proposal) {
        if let Command::DispatchTask { lease, task, .. } = &mut proposal.command {
            *lease = LeaseDigest(Digest::of(&[&task.0]));
        }
        if let Command::ReplayTask { task, superseded_by } = &mut proposal.command {
            *superseded_by = self.superseded_by(*task);
        }
        if let Command::ReplayItem(item) = &mut proposal.command {
            item.before = Some(match self.state.task(item.task) {
                Some(task) if task.ended_at.is_none() => {
                    Before { superseded_by: self.superseded_by(item.task), ..Before::default() }
                }
                _ => Before {
                    finished: self.rows.get(&item.task).cloned(),
                    redriven_as: self.redriven.get(&item.task).copied(),
                    has_payload: true,
                    superseded_by: None,
                    origin: None,
                    patched: None,
                },
            });
        }
    }

    fn superseded_by(&self, task: ReachId) -> Option<ReachId> {
        let (task, origin) = (self.state.task(task)?, self.state.origin(task)?);
        let newest = self.newest.get(task.spec.session.as_ref()?)?;
        newer(*newest, origin.seq)
    }

    /// A plan over those items, frozen as the API would; its list is not told.
    pub(crate) fn order(&mut self, rate: u32, items: &[PlanItem]) -> (ReplayId, Vec<u8>) {
        self.order_by((rate, MayHaveRun::Skip), items)
    }

    /// A plan over those items and its list, by an operator whose word covers what may have run.
    pub(crate) fn plan_with_the_word(&mut self, rate: u32, items: &[PlanItem]) -> ReplayId {
        let (replay, list) = self.order_by((rate, MayHaveRun::Include), items);
        self.tell(replay, &list);
        replay
    }

    fn order_by(&mut self, (rate, may_have_run): (u32, MayHaveRun), items: &[PlanItem]) -> (ReplayId, Vec<u8>) {
        self.next_task += 1;
        let (replay, list) = (ReplayId(submission(self.next_task).reach_id.0), encode(items));
        let order = ReplayOrder {
            replay,
            select: "{}".into(),
            reason: "after the incident".into(),
            rate,
            may_have_run,
            total: u32::try_from(items.len()).unwrap(),
            list: BodyRef { digest: Digest::of(&[&list]), len: 1 },
            position: self.state.seq(),
            patch: None,
            idempotency: None,
            bound: None,
        };
        self.by(Actor::Token(TokenId::new("operator").unwrap()), Command::PlanReplay(Box::new(order)));
        (replay, list)
    }

    pub(crate) fn tell(&mut self, replay: ReplayId, list: &[u8]) {
        self.note(&Note::Listed { replay, list: list.into() });
    }

    /// A plan over those items, with its list.
    pub(crate) fn plan(&mut self, rate: u32, items: &[PlanItem]) -> ReplayId {
        let (replay, list) = self.order(rate, items);
        self.tell(replay, &list);
        replay
    }

    pub(crate) fn steer(&mut self, replay: ReplayId, word: ReplayWord) {
        let command = Command::SteerReplay { replay, word };
        self.by(Actor::Token(TokenId::new("operator").unwrap()), command);
    }

    /// An operator's word on a single task: back to the queue.
    pub(crate) fn resolve(&mut self, task: ReachId) {
        let command = Command::ResolveTask { task, resolution: Resolution::HandOver, reason: "looked at".into() };
        self.by(Actor::Token(TokenId::new("operator").unwrap()), command);
    }

    pub(crate) fn cycle(&mut self) -> Vec<Dispatch> {
        self.cycle_by(64)
    }

    pub(crate) fn report(&mut self, task: ReachId, word: Word) {
        let lease = self.state.task(task).unwrap().status.lease().unwrap().clone();
        let report = Report {
            task,
            agent: lease.agent.clone(),
            incarnation: lease.incarnation,
            attempt: lease.attempt,
            lease: lease.digest,
            word,
            fact: None,
        };
        let actor = Actor::Agent { agent_id: lease.agent, incarnation: lease.incarnation };
        self.by(actor, Command::Report(Box::new(report)));
    }

    pub(crate) fn ack(&mut self, task: ReachId) {
        self.report(task, Word::Ack);
    }

    pub(crate) fn complete(&mut self, task: ReachId) {
        let digest = Digest::default();
        self.report(task, Word::Complete { result: None, digest, usage: Vec::new(), already_done: AlreadyDone::No });
        self.state.forget_up_to(self.state.seq());
    }

    pub(crate) fn fail(&mut self, task: ReachId) {
        self.fail_as(task, FailureClass::Business);
    }

    pub(crate) fn fail_as(&mut self, task: ReachId, class: FailureClass) {
        let failure = Failure { class, code: Arc::from("no"), message: None };
        let word = Word::Fail { failure, digest: Digest::default(), retryable: Retryable::Yes, retry_after: None };
        self.report(task, word);
    }

    pub(crate) fn drain(&mut self, agent: &str) {
        let agent = AgentId::new(agent).unwrap();
        self.by(Actor::Hub, Command::DrainAgent { agent, mode: DrainMode::HandOver, grace: Millis(0), reason: None });
    }

    pub(crate) fn leave(&mut self, agent: &str) {
        let incarnation = self.incarnation(agent);
        let agent = AgentId::new(agent).unwrap();
        self.by(Actor::Hub, Command::AgentOffline { agent, incarnation });
    }

    pub(crate) fn lose(&mut self, agent: &str) {
        let incarnation = self.incarnation(agent);
        let command = Command::MarkLost { agent: AgentId::new(agent).unwrap(), incarnation, silent: Millis::secs(45) };
        self.by(Actor::Hub, command);
    }
}

impl World {
    pub(crate) fn recovery_wake(&self) -> Option<Timestamp> {
        // Liveness has its own moments; with every agent lost or watched far off, the nearest is the sweep's.
        self.recovery.next_replay_at(self.now)
    }
}
