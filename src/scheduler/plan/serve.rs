//! What an agent serves next, and who serves it in its place if the strategy says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ledger::ids::LeaseDigest;
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::Explanation;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::Qos;
use crate::ledger::machine::task::status::Delivery;
use crate::ledger::planner::answer_bytes;
use crate::scheduler::decisions::Decision;
use crate::scheduler::plan::held_back::{Hold, is_held};
use crate::scheduler::plan::{Pending, Scheduler};
use crate::scheduler::queue::{CLASSES, Head, Lane, LaneNo};
use crate::scheduler::roster::SeatNo;
use crate::scheduler::routing::candidate::{Suspect, exclusion};
use crate::scheduler::routing::way::Way;
use crate::scheduler::routing::{Finding, survey};

/// What an agent should serve next.
struct Pick {
    head: Head,
    lane: LaneNo,
    class: Qos,
    waiting: [bool; 3],
}

impl Scheduler {
    /// What the agent should serve next, among the lanes that it can serve.
    fn pick(&mut self, no: SeatNo, skip: &BTreeSet<LaneNo>) -> Option<Pick> {
        let desk = self.roster.desk(no)?;
        if desk.seat.busy().is_some() {
            return None;
        }
        let mut heads: [Option<(Head, LaneNo)>; 3] = [None; 3];
        for (pool, offer) in desk.pools() {
            let Some(offer) = desk.seat.declaration.offers.get(*offer) else { continue };
            let fits = |no: LaneNo, lane: &Lane| {
                !skip.contains(&no)
                    && !self.set_aside.contains_key(&no)
                    && !is_held(&self.held_back, (no, lane), (&self.roster, self.now))
                    && exclusion(&lane.needs, &desk.seat, offer).is_none()
            };
            for (class, best) in CLASSES.into_iter().zip(heads.iter_mut()) {
                if let Some((head, lane)) = self.queue.first(*pool, class, fits)
                    && best.is_none_or(|(other, _)| head < other)
                {
                    *best = Some((head, lane));
                }
            }
        }
        let waiting = heads.map(|head| head.is_some());
        let class = desk.floor.choose(waiting)?;
        let (head, lane) = CLASSES.into_iter().zip(heads).find(|(other, _)| *other == class)?.1?;
        Some(Pick { head, lane, class, waiting })
    }

    /// One dispatch out of the lanes that this agent can serve; maybe to another agent, if the strategy says so.
    pub(super) fn serve_one(&mut self, state: &State, no: SeatNo) -> Option<Proposal> {
        let mut skip = BTreeSet::new();
        loop {
            let pick = self.pick(no, &skip)?;
            let lane = self.queue.lane(pick.lane)?;
            let (needs, pool) = (Arc::clone(&lane.needs), lane.pool);
            let Some(task) = state.task(pick.head.task) else {
                self.dequeue(pick.head.task);
                continue;
            };
            let rules = state.routing_of(&needs.namespace, &needs.capability);
            let asked = self.roster.pool(pool)?.strategy();
            let (wishes, providers) = (self.wishes(state, &needs, task), self.roster.providers(pool));
            match survey(&wishes, &Way::of(rules, asked), &providers) {
                Finding::Serve { winner, positions, explanation, open } => {
                    let decision = Decision::of(&wishes, (task.id(), asked), (&providers, &open), winner);
                    if let Some(decision) = decision {
                        self.decisions.keep(decision);
                    }
                    let seat = self.roster.seat_at(pool, winner)?;
                    self.roster.set_positions(pool, positions);
                    self.roster.adjust(no, |desk| desk.floor.picked(pick.class, pick.waiting));
                    return self.propose(task, seat, explanation);
                }
                Finding::HoldBack { until, expected, .. } => {
                    let expected = expected.and_then(|place| self.roster.seat_at(pool, place));
                    self.held_back.insert(pick.lane, Hold { until, expected });
                    skip.insert(pick.lane);
                }
                Finding::Nobody => {
                    skip.insert(pick.lane);
                }
            }
        }
    }

    fn propose(&mut self, task: &Task, seat: SeatNo, explanation: Box<Explanation>) -> Option<Proposal> {
        let taken = &self.roster.desk(seat)?.seat;
        let (agent, incarnation, delivery) = (taken.key.clone(), taken.incarnation, taken.delivery());
        let ticket = self.queue.serve(task.id())?;
        self.left(&ticket);
        let claim = match delivery {
            Delivery::Pull => {
                let bytes = answer_bytes(&task.spec, task.progress.as_deref());
                self.vitals.asked(&agent, self.now);
                self.vitals.take_demand(&agent, incarnation, bytes)
            }
            Delivery::Push => None,
        };
        let suspect = Suspect::of(task);
        let probe = self.begin_probe(seat, &task.spec.capability);
        self.roster.adjust(seat, |desk| {
            desk.seat.reserved += 1;
            let fallen = claim.map_or(0, |taken| taken.demand);
            desk.seat.demand = desk.seat.demand.saturating_sub(fallen);
        });
        self.count_suspect(seat, suspect, u32::saturating_add);
        if let Some(ramp) = &mut self.ramp {
            ramp.spend();
        }
        let command = Command::DispatchTask {
            task: task.id(),
            agent: agent.agent_id.clone(),
            incarnation,
            delivery,
            lease: LeaseDigest::default(),
            explanation,
        };
        self.pending.insert(task.id(), Pending { ticket, agent, seat, claim, suspect, probe });
        Some(Proposal::by_hub(Some(task.namespace.clone()), command))
    }
}
