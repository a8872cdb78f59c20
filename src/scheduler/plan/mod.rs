//! The planner: a free slot meets a waiting task.
//!
//! Why two dirty sets: work is done only where something changed. A seat that got room looks at the lanes that its
//! agent can serve; a lane that got a task looks at the ready agents of its pool. Between cycles one thing always
//! holds: no ready agent and waiting task that fit each other are left over, but for those that the ramp, a refused
//! proposal or a suspect keeps apart. So the cost of a cycle follows what happened in it, not what waits.
//!
//! Proposals count before they are decided: they take slot, demand and turn at once, and give them back when refused.

mod breakers;
pub mod departures;
mod explain;
mod follow;
mod held_back;
mod serve;
pub mod unserved;
mod warm;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::ids::{AgentKey, Capability, Namespace, ReachId};
use crate::ledger::machine::State;
use crate::ledger::machine::breaker::{BreakerKey, FailedAttempt};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::Status;
use crate::ledger::planner::{Note, Planner};
use crate::ledger::time::Timestamp;
use crate::scheduler::affinity::Affinity;
use crate::scheduler::decisions::Decisions;
use crate::scheduler::queue::{Entry, LaneKey, LaneNo, Queue, Ticket};
use crate::scheduler::ramp::{Ramp, STEP};
use crate::scheduler::roster::{PoolNo, Roster, SeatNo};
use crate::scheduler::routing::candidate::{Suspect, exclusion};
use crate::scheduler::routing::rendezvous::Key;
use crate::scheduler::routing::{Needs, Question};
use crate::scheduler::slow_start::SlowStarts;
use crate::scheduler::vitals::{Taken, Vitals};
use follow::{Ended, Holding};
use held_back::{Hold, comes_back};

/// A proposal that is not yet decided.
#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    agent: AgentKey,
    seat: SeatNo,
    claim: Option<Taken>,
    suspect: Suspect,
    /// The capability for which it tries its agent out.
    probe: Option<Capability>,
}

/// The scheduler's planner; see the module.
#[derive(Debug, Default)]
pub struct Scheduler {
    queue: Queue,
    roster: Roster,
    vitals: Vitals,
    holdings: BTreeMap<ReachId, Holding>,
    /// The holding that a step ended last: a later event of that step may speak of it.
    ended: Option<Ended>,
    affinity: Affinity,
    decisions: Decisions,
    warming: SlowStarts,
    pending: BTreeMap<ReachId, Pending>,
    dirty_seats: BTreeSet<SeatNo>,
    dirty_lanes: BTreeSet<LaneNo>,
    held_back: BTreeMap<LaneNo, Hold>,
    set_aside: BTreeMap<LaneNo, Timestamp>,
    /// Breakers that are to open, with the attempts that failed.
    tripped: BTreeMap<BreakerKey, Vec<FailedAttempt>>,
    ramp: Option<Ramp>,
    boot_order: u64,
    boot_left: usize,
    now: Timestamp,
}

impl Scheduler {
    /// A planner that knows nothing yet; [`Planner::rebuild`] tells it the state.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Load, demand and latencies.
    #[must_use]
    pub const fn vitals(&self) -> &Vitals {
        &self.vitals
    }

    /// When it was last asked to plan.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Tasks that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Which agent works for which session.
    #[must_use]
    pub const fn affinity(&self) -> &Affinity {
        &self.affinity
    }

    /// The last decisions.
    #[must_use]
    pub const fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    fn wishes<'a>(&'a self, state: &State, needs: &'a Needs, task: &'a Task) -> Question<'a> {
        let affine = self.affinity.holder(&task.namespace, task.spec.session.as_ref());
        Question {
            needs,
            preferred: task.spec.preferred_agent.as_ref(),
            affine,
            avoid: task.avoid.as_ref(),
            expected: affine.filter(|_| comes_back(state, task)),
            key: Key::of(&task.spec, task.submitter.as_ref()),
            now: self.now,
        }
    }

    fn touch(&mut self, state: &State, key: &AgentKey) {
        let Some(agent) = state.agent(key) else { return };
        self.notice_return(state, agent);
        let (no, changed) = self.roster.refresh(agent, self.vitals.of(key), state);
        if self.roster.desk(no).is_some_and(|desk| desk.seat.room() > 0) {
            self.dirty_seats.insert(no);
        }
        for pool in changed {
            let choosy = self.roster.pool(pool).is_some_and(|pool| pool.is_choosy());
            let blurred = |lane: &LaneNo| self.queue.lane_key(*lane).is_some_and(|key| key.caller.is_none());
            if choosy && self.queue.lanes_of(pool).any(|lane| blurred(&lane)) {
                for task in self.queue.tasks_of(pool) {
                    self.move_lane(state, task);
                }
            }
            self.tidy(pool);
        }
    }

    fn tidy(&mut self, pool: PoolNo) {
        if self.queue.lanes_of(pool).next().is_none() {
            self.roster.forget_pool(pool);
        }
    }

    /// Takes a waiting task into the lane where it belongs now, at its old place.
    fn move_lane(&mut self, state: &State, id: ReachId) {
        if let Some(ticket) = self.dequeue(id)
            && let Some(task) = state.task(id)
        {
            self.enqueue(state, task, Some(ticket.order));
        }
    }

    fn enqueue(&mut self, state: &State, task: &Task, order: Option<u64>) {
        let pool = self.roster.open_pool(&task.namespace, &task.spec.capability);
        let choosy = self.roster.pool(pool).is_some_and(|pool| pool.is_choosy());
        let caller = task.submitter.clone().filter(|_| choosy);
        let key = LaneKey {
            id: task.lane,
            schemas: task.schemas.clone(),
            caller: caller.clone(),
            suspect: Suspect::of(task),
            avoid: task.avoid.clone(),
            session: task.spec.session.clone().filter(|_| comes_back(state, task)),
        };
        let entry = Entry {
            task: task.id(),
            namespace: task.namespace.clone(),
            key,
            pool,
            class: task.spec.qos,
            caller: task.spec.fairness_key.clone(),
            order,
        };
        let before = self.queue.len();
        let lane = self.queue.insert(entry, || Needs { caller, ..Needs::of_task(task) });
        if self.queue.len() > before && order.is_some_and(|order| order < self.boot_order) {
            self.boot_left += 1;
        }
        self.dirty_lanes.insert(lane);
    }

    fn dequeue(&mut self, id: ReachId) -> Option<Ticket> {
        let pool = self.queue.lane(self.queue.place(id)?.lane)?.pool;
        let ticket = self.queue.remove(id)?;
        self.left(&ticket);
        self.tidy(pool);
        Some(ticket)
    }

    const fn left(&mut self, ticket: &Ticket) {
        if ticket.order < self.boot_order {
            self.boot_left = self.boot_left.saturating_sub(1);
        }
    }

    /// A proposal is decided, refused or forgotten: what it had taken ahead is given back.
    fn settle(&mut self, id: ReachId, how: Settled) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        let suspect = u32::from(pending.suspect == Suspect::Yes);
        self.roster.adjust(pending.seat, |desk| {
            desk.seat.reserved = desk.seat.reserved.saturating_sub(1);
            desk.seat.suspects = desk.seat.suspects.saturating_sub(suspect);
            if let Some(capability) = &pending.probe {
                desk.seat.probing.remove(capability);
            }
        });
        match (how, pending.claim) {
            (Settled::Refused, Some(claim)) => self.vitals.return_demand(&pending.agent, claim),
            (Settled::Refused, None) | (Settled::Decided, _) => {}
        }
        Some(pending)
    }

    /// Puts a task whose proposal came to nothing back to its place.
    fn take_back(&mut self, state: &State, id: ReachId) {
        let Some(pending) = self.settle(id, Settled::Refused) else { return };
        self.touch(state, &pending.agent);
        if let Some(task) = state.task(id)
            && matches!(task.status, Status::Queued { .. })
        {
            self.enqueue(state, task, Some(pending.ticket.order));
            // Not at once again: what was refused for a reason that is not seen here would be refused for ever.
            if let Some(place) = self.queue.place(id) {
                self.set_aside.insert(place.lane, self.now.after(STEP));
            }
        }
    }

    /// A ready agent that can serve the lane and was not found useless in this round.
    fn ready_for(&self, lane: LaneNo, useless: &BTreeSet<SeatNo>) -> Option<SeatNo> {
        if self.set_aside.contains_key(&lane) {
            return None;
        }
        let lane = self.queue.lane(lane)?;
        let mut ready = self.roster.pool(lane.pool)?.ready();
        ready.find(|seat| {
            let provider = self.roster.provider_at(lane.pool, *seat);
            !useless.contains(seat) && provider.is_some_and(|p| exclusion(&lane.needs, p.seat, p.offer).is_none())
        })
    }

    /// May nothing be proposed now because of the ramp?
    fn is_ramped(&mut self, now: Timestamp) -> bool {
        let allowance = self.ramp.and_then(|ramp| ramp.allowance(now));
        if allowance.is_none() || self.boot_left == 0 {
            self.ramp = None;
            return false;
        }
        allowance == Some(0)
    }
}

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    Decided,
    Refused,
}

fn key_of(namespace: Option<&Namespace>, event: &EventBody) -> Option<AgentKey> {
    Some(AgentKey { namespace: namespace?.clone(), agent_id: event.agent()?.clone() })
}

impl Planner for Scheduler {
    fn rebuild(&mut self, state: &State, now: Timestamp) {
        *self = Self::new();
        for (key, agent) in state.agents() {
            self.resume_warm_up(agent, now);
            if agent.is_open() {
                // Nobody has asked yet: whoever is faster is not for that the better one.
                self.vitals.asked(key, now);
            }
            self.touch(state, key);
        }
        let mut waiting = Vec::new();
        for task in state.tasks().values() {
            if let Status::Queued { since, .. } = task.status {
                waiting.push((since, task.id()));
            } else if let Some(lease) = task.status.lease() {
                let agent = AgentKey { namespace: task.namespace.clone(), agent_id: lease.agent.clone() };
                self.begin_holding(state, task, agent, now);
                self.affinity.follow(state, task.id(), now);
                if let Some(holding) = self.holdings.get_mut(&task.id()) {
                    holding.dispatched_at = None;
                }
            }
        }
        self.count_sessions();
        waiting.sort_unstable();
        for task in waiting.into_iter().filter_map(|(_, id)| state.task(id)) {
            self.enqueue(state, task, None);
        }
        self.boot_order = self.queue.next_order();
        self.boot_left = self.queue.len();
        self.ramp = (self.boot_left > 0).then(|| Ramp::starting(now));
        self.now = now;
    }

    fn observe(&mut self, state: &State, event: &Event) {
        if let Some(agent) = key_of(event.namespace.as_ref(), &event.body) {
            self.notice_process(event, &agent);
            self.notice_breaker(event, &agent);
            self.touch(state, &agent);
        }
        if let (EventBody::RoutingRulesChanged(body), Some(namespace)) = (&event.body, &event.namespace) {
            self.roster.begin_round(namespace, &body.capability);
        }
        if event.body.callback_subject().is_none()
            && let Some(task) = event.body.task()
        {
            self.follow(state, event, task);
        }
    }

    fn note(&mut self, state: &State, note: &Note, now: Timestamp) {
        match note {
            Note::Beat { agent, incarnation, load } => {
                let Some(known) = state.agent(agent).filter(|known| known.incarnation == *incarnation) else { return };
                let held = u32::try_from(known.held.len()).unwrap_or(u32::MAX);
                self.vitals.beat(agent, *load, held, now);
                self.touch(state, agent);
            }
            Note::ClaimOpened { claim, agent, incarnation, max } => {
                if state.agent(agent).is_some() {
                    self.vitals.open_claim(*claim, agent, *incarnation, *max);
                    self.vitals.asked(agent, now);
                    self.touch(state, agent);
                }
            }
            Note::ClaimClosed { claim } => {
                if let Some(agent) = self.vitals.close_claim(*claim) {
                    self.vitals.asked(&agent, now);
                    self.touch(state, &agent);
                }
            }
            Note::Lagged { .. } | Note::Listed { .. } => {}
        }
    }

    fn plan(&mut self, state: &State, now: Timestamp, room: usize) -> Vec<Proposal> {
        self.now = now;
        self.affinity.expire(now);
        self.count_sessions();
        // A proposal that was neither applied nor refused was never made.
        for id in self.pending.keys().copied().collect::<Vec<_>>() {
            self.take_back(state, id);
        }
        self.wake_lanes(now);
        self.step_warm_ups(state, now);
        // Alone, so that what is planned next knows that they are open.
        let mut proposals = self.open_breakers(state, room);
        if !proposals.is_empty() {
            return proposals;
        }
        let mut useless = BTreeSet::new();
        while proposals.len() < room && !self.is_ramped(now) {
            if let Some(seat) = self.dirty_seats.first().copied() {
                match self.serve_one(state, seat) {
                    Some(proposal) => proposals.push(proposal),
                    None => {
                        self.dirty_seats.remove(&seat);
                        useless.insert(seat);
                    }
                }
            } else if let Some(lane) = self.dirty_lanes.first().copied() {
                match self.ready_for(lane, &useless) {
                    Some(seat) => {
                        self.dirty_seats.insert(seat);
                    }
                    None => {
                        self.dirty_lanes.remove(&lane);
                    }
                }
            } else {
                break;
            }
        }
        proposals
    }

    fn refused(&mut self, state: &State, proposal: &Proposal) {
        if let Command::DispatchTask { task, .. } = &proposal.command {
            self.take_back(state, *task);
        }
    }

    fn wake_at(&self, _state: &State, now: Timestamp) -> Option<Timestamp> {
        let is_busy = !self.dirty_seats.is_empty() || !self.dirty_lanes.is_empty();
        let ramped = self.ramp.filter(|_| is_busy && self.boot_left > 0).map(|_| now.after(STEP));
        self.set_aside.values().copied().chain(ramped).chain(self.warming.next_at()).chain(self.held_until()).min()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
