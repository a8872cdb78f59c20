//! The hub of the simulation: the loop of the sequencer and the committer over the same public parts, on one thread and
//! in virtual time.
//!
//! Order of a cycle: inputs, due timers, planners, claims, then one batch to the committer if that is free. The batch
//! decided is not yet durable; its answers leave when the append has returned.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use agent_reach::ledger::boot;
use agent_reach::ledger::facts::{beat_of, rows};
use agent_reach::ledger::ids::{AgentKey, Boot, Lineage, Seq};
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::breaker::{BreakerKey, FailedAttempt};
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::decision::{Answer, Rejection};
use agent_reach::ledger::machine::due::Subject;
use agent_reach::ledger::machine::event::Actor;
use agent_reach::ledger::machine::step::step;
use agent_reach::ledger::planner::{Note, Planner};
use agent_reach::ledger::store::block::encode_commit;
use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::store::{Body, BodyKey, Commit, Head, Rows};
use agent_reach::ledger::time::{Clock, LedgerClock, Millis, SimClock, Timestamp};
use agent_reach::recovery;

use crate::claims::Claims;
use crate::facts;
pub(crate) use crate::intake::{ClaimAsk, Disk, Draft, Flight, Input, No, Open, Pending};
use crate::invariants::{d4, live};
use crate::model::{Breach, Depth};
use crate::sabotage::Sabotage;

/// The longest sleep: a clock jump is noticed within it.
pub(crate) const LONGEST_SLEEP: Millis = Millis(1_000);
const JUMP_MS: u64 = 1_000;
/// Steps of one cycle before it counts as endless.
const ENDLESS: usize = 20_000;

/// One in so many reads for a planner's proposal is slow, by that much.
const SLOW_READ: u64 = 61;
const STALL: Millis = Millis(30);

/// The core contradicted itself.
#[derive(Debug)]
pub(crate) struct Impossible(pub(crate) String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Open,
}

/// What a hub is started with.
pub(crate) struct Start {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) keys: Keys,
    pub(crate) lineage: Lineage,
    pub(crate) sabotage: Sabotage,
    /// Events of a batch before it is handed over.
    pub(crate) full: usize,
}

/// A running hub.
pub(crate) struct Hub {
    pub(crate) state: State,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) keys: Keys,
    pub(crate) flight: Option<Flight>,
    pub(crate) breaches: Vec<Breach>,
    pub(crate) backlog: VecDeque<Input>,
    pub(crate) times_full: u64,
    /// The fold of what was decoded again from the commits (D4).
    pub(crate) shadow: State,
    pub(crate) planners: Vec<Box<dyn Planner>>,
    pub(crate) clock: LedgerClock,
    pub(crate) world: Arc<SimClock>,
    /// Ledger time minus monotonic time: fixed for a run (T2).
    pub(crate) skew: i128,
    pub(crate) head: Head,
    pub(crate) durable: Seq,
    pub(crate) open: Open,
    pub(crate) claims: Claims,
    pub(crate) next_claim: u64,
    pub(crate) phase: Phase,
    pub(crate) disk: Disk,
    pub(crate) sabotage: Sabotage,
    pub(crate) full: usize,
    pub(crate) up_since: Timestamp,
    /// Tasks found at the start: all of them may be due at once.
    pub(crate) found: usize,
    pub(crate) unfinished: bool,
    pub(crate) handed_over: u64,
    /// When each slow read ended.
    pub(crate) stalls: Vec<Timestamp>,
    /// The saboteur's own count of failures.
    pub(crate) miscounted: BTreeMap<BreakerKey, Vec<FailedAttempt>>,
}

impl Hub {
    /// Folds, starts the planners, decides `hub-started`. The boot rules come after that is durable.
    pub(crate) fn start(start: Start) -> Result<Self, Impossible> {
        let folded = boot::fold(&*start.store).map_err(|error| Impossible(error.to_string()))?;
        let wall = start.clock.wall();
        let first = if folded.head.seq.0 == 0 { wall } else { folded.state.at().max(wall) };
        let clock = LedgerClock::starting_at(Arc::clone(&start.clock) as Arc<dyn Clock>, first);
        let boot = Boot(folded.state.boot().0 + 1);
        let lineage = (folded.head.seq.0 == 0).then_some(start.lineage);
        let mut head = folded.head;
        head.lineage = lineage.unwrap_or(head.lineage);
        head.boot = boot;
        let mut planners = recovery::planners();
        for planner in &mut planners {
            planner.rebuild(&folded.state, clock.now());
        }
        let mut hub = Self {
            shadow: folded.state.clone(),
            durable: folded.head.seq,
            open: Open { base: folded.state.seq(), ..Open::default() },
            skew: i128::from(first.0) - i128::from(start.clock.monotonic().0),
            up_since: first,
            found: folded.state.tasks().len(),
            state: folded.state,
            store: start.store,
            keys: start.keys,
            flight: None,
            breaches: Vec::new(),
            backlog: VecDeque::new(),
            times_full: 0,
            planners,
            clock,
            world: start.clock,
            head,
            claims: Claims::default(),
            next_claim: 1,
            phase: Phase::Starting,
            disk: Disk::Roomy,
            sabotage: start.sabotage,
            full: start.full,
            unfinished: false,
            handed_over: 0,
            stalls: Vec::new(),
            miscounted: BTreeMap::new(),
        };
        let wall_offset = hub.clock.wall_offset();
        let version = "simulated".into();
        let begun = Proposal::by_hub(None, Command::StartHub { boot, wall_offset, version, lineage });
        drop(hub.step(&begun)?);
        hub.hand_over();
        Ok(hub)
    }

    /// The boot rules, then the door opens.
    pub(crate) fn resolve(&mut self) -> Result<(), Impossible> {
        if self.sabotage != Sabotage::NoBootRules {
            for proposal in recovery::boot::resolve(&self.state) {
                drop(self.step(&proposal)?);
            }
        }
        self.phase = Phase::Open;
        self.cycle(Vec::new())
    }

    pub(crate) fn now(&self) -> Timestamp {
        if self.sabotage == Sabotage::WallTime { self.world.wall() } else { self.clock.now() }
    }

    /// Has what it was started with become durable?
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// One cycle.
    pub(crate) fn cycle(&mut self, inputs: Vec<Input>) -> Result<(), Impossible> {
        self.backlog.extend(inputs);
        self.forget_breakers();
        let real = i128::from(self.now().0) - i128::from(self.world.monotonic().0);
        if real != self.skew && self.phase == Phase::Open {
            let what = format!("ledger time moved by {} ms against the monotonic clock", real - self.skew);
            self.breach("T2", what);
            self.skew = real;
        }
        while !self.is_blocked() {
            let Some(input) = self.backlog.pop_front() else { break };
            self.take(input)?;
        }
        self.fire_timers()?;
        self.plan()?;
        self.unfinished = self.is_full() || !self.backlog.is_empty();
        self.answer_claims();
        if self.flight.is_none() {
            self.hand_over();
        }
        Ok(())
    }

    /// What the sequencer does first after it stood still (semantics 3).
    pub(crate) fn stood_still(&mut self, by: Millis) -> Result<(), Impossible> {
        self.up_since = self.now();
        self.note(&Note::Lagged { by });
        self.step(&Proposal::by_hub(None, Command::NoteStandstill { by })).map(drop)
    }

    /// When it wants to be asked again by itself; `None` while it waits for the committer.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        let now = self.now();
        if self.unfinished {
            return self.flight.is_none().then_some(now);
        }
        let planners = self.planners.iter().filter_map(|planner| planner.wake_at(&self.state, now));
        let timers =
            self.state.due().next().filter(|_| self.sabotage != Sabotage::LostTimer || self.next_due(now).is_some());
        planners.chain(timers).chain(self.claims.next_end()).min()
    }

    /// The batch is full and the committer has the one before: nothing more is taken (hand_over_when_free).
    fn is_blocked(&mut self) -> bool {
        if !self.is_full() {
            return false;
        }
        if self.flight.is_none() {
            self.hand_over();
            return false;
        }
        self.times_full += 1;
        true
    }

    fn is_full(&self) -> bool {
        self.open.events.len() >= self.full
    }

    fn take(&mut self, input: Input) -> Result<(), Impossible> {
        match input {
            Input::Work { to, call, proposals, bodies, claim } => {
                let mut outcomes = Vec::with_capacity(proposals.len());
                for proposal in proposals {
                    outcomes.push(self.decide(proposal, &bodies)?);
                }
                match claim {
                    Some(ask) => self.claim(to, call, outcomes, ask)?,
                    None => self.open.pending.push(Pending::Work { to, call, outcomes, claim: None }),
                }
            }
            Input::Read { task } => {
                let status = self.state.task(task).map(|task| task.status.clone());
                self.open.pending.push(Pending::Read { task, status, at: self.state.seq() });
            }
            Input::Effects => {
                let effects = facts::outstanding(&self.state, &self.keys, self.now());
                self.open.pending.push(Pending::Effects(effects));
            }
            Input::Lists => self.open.pending.push(Pending::Lists(self.wants_lists())),
            Input::Listed { boot, replay, list } if boot == self.state.boot() => self.listed(replay, &list),
            Input::Disk(disk) => self.disk = disk,
            Input::Listed { .. } | Input::Nudge => {}
        }
        Ok(())
    }

    fn decide(&mut self, mut proposal: Proposal, bodies: &[(BodyKey, Body)]) -> Result<Draft, Impossible> {
        if self.is_shut_for(&proposal.command) {
            return Ok(Err(No::Stopping));
        }
        let brings = facts::fill(&mut proposal, &self.state, &*self.store, &self.keys, self.sabotage);
        let first = self.state.seq().next();
        let decided = self.open.events.len();
        let answer = self.step(&proposal)?;
        let last = self.state.seq();
        if answer.is_ok() {
            self.open.bring([bodies, &*brings].concat(), decided);
        }
        if let (Ok(Answer::Registered { incarnation }), Some(namespace), Command::RegisterAgent { agent, .. }) =
            (&answer, &proposal.namespace, &proposal.command)
        {
            let key = AgentKey { namespace: namespace.clone(), agent_id: agent.clone() };
            self.dismiss_older(&key, *incarnation);
        }
        if answer.is_ok()
            && let Some(beat) = beat_of(&proposal, &self.state)
        {
            self.note(&beat);
        }
        Ok(answer.map(|answer| (answer.clone(), answer.receipt(first, last))).map_err(No::Rejected))
    }

    pub(crate) fn step(&mut self, proposal: &Proposal) -> Result<Result<Answer, Rejection>, Impossible> {
        let now = self.now();
        let done = step(&mut self.state, proposal, now)
            .map_err(|error| Impossible(format!("{:?}: {error}", proposal.command)))?;
        for event in &done.events {
            for planner in &mut self.planners {
                planner.observe(&self.state, event);
            }
            self.miscount(event);
        }
        let inherited = facts::inherited(&done.events, &*self.store, self.sabotage);
        let decided = self.open.events.len();
        self.open.events.extend(done.events);
        self.open.bring(inherited, decided);
        Ok(done.answer)
    }

    pub(crate) fn note(&mut self, note: &Note) {
        let now = self.now();
        for planner in &mut self.planners {
            planner.note(&self.state, note, now);
        }
    }

    fn fire_timers(&mut self) -> Result<(), Impossible> {
        self.note_clock_jump()?;
        let now = self.now();
        for _ in 0..ENDLESS {
            if self.is_blocked() {
                return Ok(());
            }
            let Some(subject) = self.next_due(now) else { return Ok(()) };
            let namespace = match &subject {
                Subject::Task(task) => self.state.task(*task).map(|task| task.namespace.clone()),
                Subject::Agent(agent) => Some(agent.namespace.clone()),
                Subject::Breaker(breaker) => Some(breaker.agent.namespace.clone()),
            };
            let due = self.state.due().of(&subject).unwrap_or(now);
            let commits = self.state.tasks().len().max(self.found) * 4 / self.full;
            let times = (due.max(self.up_since), now);
            let excuse = (commits, self.stood_since(times.0));
            self.breaches.extend(live::lateness(&subject, times, excuse, self.state.seq()));
            let before = self.state.seq();
            let fired = self.step(&Proposal::by_hub(namespace, Command::Fire { subject: subject.clone() }))?;
            if self.state.seq() == before {
                return Err(Impossible(format!("timer of {subject:?} fired without effect: {fired:?}")));
            }
        }
        Err(Impossible("timers fire without end".to_owned()))
    }

    fn note_clock_jump(&mut self) -> Result<(), Impossible> {
        let wall_offset = self.clock.wall_offset();
        let by = wall_offset.saturating_sub(self.state.wall_offset());
        if self.phase == Phase::Starting || by.unsigned_abs() < JUMP_MS || self.sabotage == Sabotage::WallTime {
            return Ok(());
        }
        self.step(&Proposal::by_hub(None, Command::NoteClockJump { wall_offset, by })).map(drop)
    }

    fn plan(&mut self) -> Result<(), Impossible> {
        if self.phase == Phase::Starting || self.sabotage == Sabotage::PlannersAsleep {
            return Ok(());
        }
        let now = self.now();
        let mut steps = 0;
        for index in 0..self.planners.len() {
            while !self.is_full() {
                let room = self.full.saturating_sub(self.open.events.len());
                let Some(planner) = self.planners.get_mut(index) else { break };
                let proposals = planner.plan(&self.state, now, room);
                if proposals.is_empty() {
                    break;
                }
                steps += proposals.len();
                if steps > ENDLESS {
                    return Err(Impossible("a planner proposes without end".to_owned()));
                }
                for proposal in proposals {
                    if self.state.seq().0.is_multiple_of(SLOW_READ) {
                        // Facts are read from a disk: what is planned now happens later.
                        self.world.advance(STALL);
                        self.stalls.push(self.now());
                    }
                    self.carry_out(index, proposal)?;
                }
            }
        }
        self.propose_beyond_the_rules()
    }

    /// How long reads have kept everything waiting since then.
    fn stood_since(&self, since: Timestamp) -> Millis {
        let stalls = self.stalls.iter().rev().take_while(|end| **end > since).count();
        Millis(STALL.0.saturating_mul(u64::try_from(stalls).unwrap_or(u64::MAX)))
    }

    fn carry_out(&mut self, index: usize, mut proposal: Proposal) -> Result<(), Impossible> {
        if self.is_shut_for(&proposal.command) {
            self.refused(index, &proposal);
            return Ok(());
        }
        let brings = facts::fill(&mut proposal, &self.state, &*self.store, &self.keys, self.sabotage);
        let decided = self.open.events.len();
        match self.step(&proposal)? {
            Ok(Answer::Dispatched { attempt }) => self.hand(&proposal, attempt),
            Ok(_) => self.open.bring(brings, decided),
            Err(_) => self.refused(index, &proposal),
        }
        Ok(())
    }

    fn refused(&mut self, index: usize, proposal: &Proposal) {
        if let Some(planner) = self.planners.get_mut(index) {
            planner.refused(&self.state, proposal);
        }
    }

    /// Hands the open batch to the committer, which must be free.
    pub(crate) fn hand_over(&mut self) {
        self.state.forget_up_to(self.durable);
        if self.open.events.is_empty() && self.open.pending.is_empty() {
            return;
        }
        let open = std::mem::take(&mut self.open);
        self.open.base = self.state.seq();
        let (mut commit, mut leaves) = (None, Vec::new());
        if !open.events.is_empty() {
            let (mut encoded, hashes) = encode_commit(&self.head, &open.events).expect("a batch can be encoded");
            encoded.rows = self.rows(open.base);
            encoded.bodies = open.bodies;
            leaves = hashes;
            self.handed_over += 1;
            let depth = Depth::every(self.handed_over, 64);
            self.breaches.extend(d4::follow(&mut self.shadow, &self.state, &encoded.frame, depth));
            self.breaches.extend(live::gauges(&self.state, depth));
            commit = Some(encoded);
        }
        let first = open.events.first().map(|event| event.seq);
        self.flight = Some(Flight { commit, first, leaves, pending: open.pending, is_timed: false });
    }

    fn rows(&self, base: Seq) -> Rows {
        if self.sabotage == Sabotage::RowsForgotten {
            return Rows::default();
        }
        rows(&self.state, base)
    }

    /// The append returned: what it held is durable.
    pub(crate) fn committed(&mut self, commit: &Commit) {
        self.head = commit.head;
        self.durable = commit.head.seq;
    }

    /// The clean stop's last event; the caller lets the batch become durable.
    pub(crate) fn stop(&mut self) -> Result<(), Impossible> {
        let boot = self.state.boot();
        self.step(&Proposal::by_hub(None, Command::StopHub { boot })).map(drop)
    }

    fn breach(&mut self, invariant: &'static str, what: String) {
        self.breaches.push(Breach { invariant, seq: self.state.seq(), what });
    }
}

/// A proposal of a caller or operator by token.
pub(crate) fn by_token(
    namespace: &agent_reach::ledger::ids::Namespace,
    token: &agent_reach::ledger::ids::TokenId,
    command: Command,
) -> Proposal {
    Proposal { namespace: Some(namespace.clone()), actor: Actor::Token(token.clone()), trace: None, command }
}
