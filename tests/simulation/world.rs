//! The world of one seed: a queue of what happens when, a network that loses, doubles and delays, and a hub that dies.
//!
//! One thread, virtual time. Everything that happens is drawn from the seed, so a seed always gives the same log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_reach::ledger::ids::{Lineage, ReachId, Seq};
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::command::Proposal;
use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::store::{Body, BodyKey, Store, block};
use agent_reach::ledger::time::{Clock, Millis, SimClock, Timestamp};

use crate::agents::{Act, Agent, Why};
use crate::arrivals::payload_of;
use crate::callers::Order;
use crate::chance::Chance;
use crate::effects::Senders;
use crate::faults::{Death, Tally, Weather};
use crate::hub::{ClaimAsk, Disk, Hub, Impossible, Input, No};
use crate::invariants::live;
use crate::lists::Driver;
use crate::model::{Breach, Entry, Handed, Notes, Party, ReceiptSeen};
use crate::operator::Errand;
use crate::sabotage::Sabotage;
use crate::workload::Plan;

/// Steps of one world; ordinary ones need a tenth of it.
const MOST_STEPS: u64 = 50_000;

/// What happens.
#[derive(Debug)]
pub(crate) enum Action {
    Arrive(Input),
    Answer(Party, Box<Answered>),
    Cycle,
    Committed,
    Restart,
    Resolved,
    Die(Death),
    Jump(i64),
    StandStill(u64),
    Effects,
    Lists,
    Disk(Disk),
    Snapshot,
    Unanswered(Party, u64),
    Order(usize),
    Agent(usize, u32, Act),
    Errand(Errand),
    Sender(crate::effects::Arrival),
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) call: u64,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) claim: Option<Result<Vec<Handed>, No>>,
    pub(crate) durable: Seq,
}

/// One answer with its receipt.
pub(crate) type Outcome = Result<(agent_reach::ledger::machine::decision::Answer, Option<ReceiptSeen>), No>;

/// How a run ended.
pub(crate) struct Ended {
    pub(crate) notes: Notes,
    pub(crate) tally: Tally,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) log: Vec<Entry>,
    pub(crate) lineage: Lineage,
    pub(crate) state: State,
}

/// Everything.
pub(crate) struct World {
    pub(crate) chance: Chance,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) weather: Weather,
    pub(crate) hub: Option<Hub>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) keys: Keys,
    pub(crate) notes: Notes,
    pub(crate) tally: Tally,
    pub(crate) sabotage: Sabotage,
    pub(crate) orders: Vec<Order>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) senders: Senders,
    pub(crate) driver: Driver,
    pub(crate) plan: Plan,
    /// Calls under way: who asked, and what for.
    pub(crate) calls: BTreeMap<u64, (Party, Why)>,
    /// When the faults end: from then on the network is fine and nobody dies.
    pub(crate) calm: u64,
    pub(crate) queue: BTreeMap<(u64, u64), Action>,
    pub(crate) wakes: BTreeSet<u64>,
    pub(crate) serial: u64,
    pub(crate) calls_made: u64,
    pub(crate) doom: Option<Death>,
    pub(crate) broken: bool,
    pub(crate) last_skew: i128,
}

impl World {
    /// A world as the seed wants it.
    pub(crate) fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut chance = Chance::new(seed);
        let weather = Weather::drawn(&mut chance);
        let plan = Plan::drawn(&mut chance, seed);
        let mut key = [7; 32];
        key[..8].copy_from_slice(&seed.to_be_bytes());
        let mut world = Self {
            calm: SimClock::START.0 + plan.span,
            weather,
            clock: Arc::new(SimClock::new()),
            hub: None,
            store: Arc::new(MemoryStore::new()),
            keys: Keys::from_master(&key),
            notes: Notes::default(),
            tally: Tally::default(),
            sabotage,
            orders: plan.orders(&mut chance),
            agents: plan.agents(&mut chance),
            senders: Senders::drawn(&mut chance),
            driver: Driver::default(),
            chance,
            plan,
            calls: BTreeMap::new(),
            queue: BTreeMap::new(),
            wakes: BTreeSet::new(),
            serial: 0,
            calls_made: 0,
            doom: None,
            broken: false,
            last_skew: 0,
        };
        world.prepare();
        world.plan_a_standstill(seed);
        world
    }

    fn prepare(&mut self) {
        self.at(0, Action::Restart);
        for index in 0..self.orders.len() {
            let after = self.orders.get(index).map_or(0, |order| order.at);
            self.at(after, Action::Order(index));
        }
        for index in 0..self.agents.len() {
            let after = self.chance.below(400);
            self.at(after, Action::Agent(index, 0, Act::Wake));
        }
        for (after, errand) in self.plan.errands(&mut self.chance) {
            self.at(after, Action::Errand(errand));
        }
        for _ in 0..self.plan.deaths {
            let death = Death::drawn(&mut self.chance);
            let after = self.chance.between(50, self.plan.span);
            self.at(after, Action::Die(death));
        }
        for _ in 0..self.plan.jumps {
            let by = i64::try_from(self.chance.between(1_000, 3_600_000)).unwrap_or(0);
            let by = if self.chance.hits(500) { by } else { -by };
            let after = self.chance.between(10, self.plan.span);
            self.at(after, Action::Jump(by));
        }
        let after = self.chance.between(1_000, self.plan.span);
        self.at(after, Action::Snapshot);
        if self.chance.hits(250) {
            let after = self.chance.between(1_000, self.plan.span);
            self.at(after, Action::Disk(Disk::Low));
            let until = after + self.chance.between(200, 6_000);
            self.at(until, Action::Disk(Disk::Roomy));
        }
    }

    /// Some hubs stand still once, with everything around them: a machine that slept. Drawn apart, so that all else is as
    /// it would be without.
    fn plan_a_standstill(&mut self, seed: u64) {
        let mut chance = Chance::new(!seed);
        if chance.hits(400) {
            let by = chance.between(1_000, 5_000);
            self.at(chance.between(1_000, self.plan.span), Action::StandStill(by));
        }
    }

    /// Monotonic time.
    pub(crate) fn mono(&self) -> u64 {
        self.clock.monotonic().0
    }

    /// Ledger time, as the hub last knew it.
    pub(crate) fn ledger_now(&self) -> Timestamp {
        let now = i128::from(self.mono()) + self.last_skew;
        self.hub.as_ref().map_or_else(|| Timestamp(u64::try_from(now).unwrap_or(0)), Hub::now)
    }

    pub(crate) fn durable(&self) -> Seq {
        self.store.head().seq
    }

    /// Do faults still strike?
    pub(crate) fn is_rough(&self) -> bool {
        self.mono() < self.calm
    }

    /// Lets something happen after so many milliseconds.
    pub(crate) fn at(&mut self, after: u64, action: Action) {
        self.serial += 1;
        self.queue.insert((self.mono() + after, self.serial), action);
    }

    /// A message into or out of the hub: lost, late or twice.
    pub(crate) fn travel(&mut self, make: impl Fn() -> Action) {
        let rough = self.is_rough();
        if rough && self.chance.hits(self.weather.lost) {
            self.tally.hit("message lost");
            return;
        }
        let mut delay = self.chance.below(self.weather.slowest + 1);
        if rough && self.chance.hits(self.weather.delayed) {
            self.tally.hit("message delayed");
            delay += self.chance.between(200, 6_000);
        }
        self.at(delay, make());
        if rough && self.chance.hits(self.weather.doubled) {
            self.tally.hit("message doubled");
            let again = delay + self.chance.below(3_000);
            self.at(again, make());
        }
    }

    /// Calls the hub; an answer comes, or `Unanswered` does.
    pub(crate) fn call(&mut self, from: Party, proposals: Vec<Proposal>, claim: Option<ClaimAsk>, why: Why) {
        self.call_with(from, (proposals, Vec::new()), claim, why);
    }

    /// The same with bodies that the proposals name.
    pub(crate) fn call_with(
        &mut self,
        from: Party,
        (proposals, bodies): (Vec<Proposal>, Vec<(BodyKey, Body)>),
        claim: Option<ClaimAsk>,
        why: Why,
    ) {
        self.calls_made += 1;
        let call = self.calls_made;
        let patience = 4_000 + claim.as_ref().map_or(0, |ask| ask.wait.0);
        self.calls.insert(call, (from, why));
        self.travel(|| {
            let (proposals, bodies, claim) = (proposals.clone(), bodies.clone(), claim.clone());
            Action::Arrive(Input::Work { to: from, call, proposals, bodies, claim })
        });
        self.at(patience, Action::Unanswered(from, call));
    }

    /// Runs until nothing is left to do.
    pub(crate) fn run(mut self) -> Ended {
        let mut steps = 0_u64;
        while let Some(((at, _), action)) = self.queue.pop_first() {
            steps += 1;
            if steps > MOST_STEPS || self.broken {
                break;
            }
            let now = self.mono();
            self.clock.advance(Millis(at.saturating_sub(now)));
            self.wakes.retain(|wake| *wake > at);
            if let Err(Impossible(what)) = self.happen(action) {
                self.breach("D4", format!("impossible: {what}"));
                self.broken = true;
            }
            self.gather();
        }
        self.end(steps)
    }

    fn happen(&mut self, action: Action) -> Result<(), Impossible> {
        match action {
            Action::Arrive(input) => self.arrive(input),
            Action::Answer(to, answered) => {
                self.answered(to, *answered);
                Ok(())
            }
            Action::Cycle => self.cycle(Vec::new()),
            Action::Committed => self.committed(),
            Action::Restart => self.restart(),
            Action::Resolved => match &mut self.hub {
                Some(hub) if !hub.is_open() && hub.flight.is_none() => hub.resolve(),
                Some(_) | None => Ok(()),
            },
            Action::Die(death) => self.die(death),
            Action::Jump(by) => {
                self.jump(by);
                Ok(())
            }
            Action::StandStill(by) => self.stand_still(Millis(by)),
            Action::Effects => {
                self.senders.next = None;
                self.cycle(vec![Input::Effects])
            }
            Action::Lists => {
                self.driver = Driver::Idle;
                self.cycle(vec![Input::Lists])
            }
            Action::Disk(disk) => {
                if disk == Disk::Low {
                    self.tally.hit("disk nearly full");
                }
                self.cycle(vec![Input::Disk(disk)])
            }
            Action::Snapshot => {
                self.snapshot();
                Ok(())
            }
            Action::Unanswered(party, call) => {
                self.unanswered(party, call);
                Ok(())
            }
            Action::Order(index) => {
                self.order(index);
                Ok(())
            }
            Action::Agent(index, epoch, act) => {
                self.act(index, epoch, act);
                Ok(())
            }
            Action::Errand(errand) => {
                self.errand(errand);
                Ok(())
            }
            Action::Sender(arrival) => {
                self.sender(arrival);
                Ok(())
            }
        }
    }

    fn arrive(&mut self, mut input: Input) -> Result<(), Impossible> {
        self.draw_ids(&mut input);
        if self.hub.as_ref().is_some_and(Hub::is_open) {
            return self.cycle(vec![input]);
        }
        if let Input::Work { to, call, proposals, claim, .. } = input {
            let outcomes = proposals.iter().map(|_| Err(No::Stopping)).collect();
            let claim = claim.map(|_| Err(No::Stopping));
            let durable = self.durable();
            self.at(1, Action::Answer(to, Box::new(Answered { call, outcomes, claim, durable })));
        }
        Ok(())
    }

    pub(crate) fn cycle(&mut self, inputs: Vec<Input>) -> Result<(), Impossible> {
        match &mut self.hub {
            Some(hub) if hub.is_open() => hub.cycle(inputs),
            Some(_) | None => Ok(()),
        }
    }

    /// After each step: a new flight gets its end, the hub its next wake, and live findings are taken over.
    fn gather(&mut self) {
        self.mind_lists();
        let Some(hub) = &mut self.hub else { return };
        self.notes.live.append(&mut hub.breaches);
        for _ in 0..std::mem::take(&mut hub.times_full) {
            self.tally.hit("batch full");
        }
        let now = hub.now().0;
        if let Some(flight) = &mut hub.flight
            && !flight.is_timed
        {
            flight.is_timed = true;
            let fsync = self.chance.below(self.weather.fsync + 1);
            self.release_early();
            self.at(fsync, Action::Committed);
        }
        let Some(hub) = &self.hub else { return };
        if let Some(wake) = hub.wake().filter(|_| hub.is_open()) {
            let after = wake.0.saturating_sub(now);
            let at = self.mono() + after;
            if self.wakes.first().is_none_or(|first| *first > at) {
                self.wakes.insert(at);
                self.at(after, Action::Cycle);
            }
        }
    }

    fn answered(&mut self, to: Party, answered: Answered) {
        for receipt in answered.outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()?.1.clone()) {
            self.notes.receipts.push(receipt);
        }
        for no in answered.outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            if let No::Rejected(reason) = no {
                let name = format!("{reason:?}");
                let name = name.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
                *self.tally.rejections.entry(name).or_insert(0) += 1;
            }
        }
        let first = self.calls.remove(&answered.call).map(|(_, why)| why);
        match to {
            Party::Caller(index) => self.order_answered(index, first, answered),
            Party::Agent(index) => self.agent_answered(index, first, answered),
            Party::Sender | Party::Operator => {}
        }
    }

    fn unanswered(&mut self, party: Party, call: u64) {
        let Some((_, why)) = self.calls.remove(&call) else { return };
        self.tally.hit("answer unknown, asked again");
        match party {
            Party::Caller(index) => self.order_unanswered(index),
            Party::Agent(index) => self.agent_unanswered(index, why),
            Party::Sender | Party::Operator => {}
        }
    }

    pub(crate) fn breach(&mut self, invariant: &'static str, what: String) {
        let seq = self.hub.as_ref().map_or_else(Seq::default, |hub| hub.state.seq());
        self.notes.live.push(Breach { invariant, seq, what });
    }

    /// A reader looks at a task.
    pub(crate) fn look(&mut self, task: ReachId) {
        self.travel(|| Action::Arrive(Input::Read { task }));
    }

    fn end(mut self, steps: u64) -> Ended {
        self.notes.at_rest = self.queue.is_empty() && !self.broken && self.hub.is_some();
        if !self.notes.at_rest {
            self.breach("L4", format!("no rest after {steps} steps, {} things wait", self.queue.len()));
        }
        let log = read_log(&self.store);
        for entry in &log {
            *self.tally.kinds.entry(entry.event.body.kind().name()).or_insert(0) += 1;
            self.tally.note(&entry.event.body);
        }
        self.notes.payloads = read_payloads(&self.store, &log);
        self.tally.lives = self.tally.kinds.get("task-submitted").copied().unwrap_or(0);
        let state = self.hub.as_ref().map(|hub| hub.state.clone()).unwrap_or_default();
        let real = self.clock.wall().0.abs_diff(self.ledger_now().0.saturating_add_signed(state.wall_offset()));
        if self.notes.at_rest && real >= 1_000 {
            self.breach("T2", format!("the wall clock was set and {real} ms of it are not recorded"));
        }
        if self.notes.at_rest {
            self.notes.live.extend(live::at_rest(&state));
        }
        Ended { notes: self.notes, tally: self.tally, store: self.store, log, lineage: self.plan.lineage, state }
    }
}

/// The whole log, frame by frame, with each event's leaf hash.
pub(crate) fn read_log(store: &MemoryStore) -> Vec<Entry> {
    let events = store.events(Seq(0), usize::MAX).expect("the memory store reads");
    let entry = |stored: agent_reach::ledger::store::StoredEvent| Entry {
        hash: block::leaf_hash(&stored.frame),
        event: stored.event,
    };
    events.into_iter().map(entry).collect()
}

/// The payload of every task of the log, as far as it is on disk.
pub(crate) fn read_payloads(store: &MemoryStore, log: &[Entry]) -> BTreeMap<ReachId, Body> {
    let submitted = log.iter().filter_map(|entry| {
        let EventBody::TaskSubmitted(body) = &entry.event.body else { return None };
        body.submission.payload.as_ref().map(|_| body.submission.reach_id)
    });
    let read = |task| store.body(&payload_of(task)).expect("the memory store reads");
    submitted.filter_map(|task| Some((task, read(task)?))).collect()
}
