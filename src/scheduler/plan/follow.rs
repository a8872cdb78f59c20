//! Follows the tasks after each event: who holds them, what that says of its agent, whether they wait.
//!
//! It reads the state, not only the event: several events of one step are observed after all of them were applied.

use crate::ledger::ids::{AgentKey, Capability, Incarnation, ReachId, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::{OrphanCause, Status};
use crate::ledger::time::Timestamp;
use crate::scheduler::plan::{Scheduler, Settled};
use crate::scheduler::roster::SeatNo;
use crate::scheduler::routing::candidate::{Suspect, is_overdue};
use crate::scheduler::vitals::Outcome;

/// Who holds a task, and since when: for latencies and suspects.
#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub(super) agent: AgentKey,
    /// The process that took it: what an older one holds takes no slot of its successor and makes it no suspect's host.
    pub(super) process: Incarnation,
    seat: SeatNo,
    suspect: Suspect,
    /// Its capability, while it is over its time there.
    overdue: Option<Capability>,
    /// Was its attempt counted against its agent, or is it not to be?
    pub(super) counted: bool,
    pub(super) dispatched_at: Option<Timestamp>,
    acked_at: Option<Timestamp>,
}

/// A holding that ended, and the last event of the step that ended it.
#[derive(Debug)]
pub(super) struct Ended {
    task: ReachId,
    last: Seq,
    holding: Holding,
}

impl Scheduler {
    /// The holding of which an event speaks: an acknowledgement and an outcome may come in one step, and the first of
    /// them meets a state in which nobody holds the task any more.
    pub(super) fn spoken_of(&mut self, event: &Event, id: ReachId) -> Option<&mut Holding> {
        let ended = self.ended.as_mut().filter(|ended| ended.task == id && event.seq <= ended.last);
        self.holdings.get_mut(&id).or_else(|| ended.map(|ended| &mut ended.holding))
    }

    /// Follows one task after an event: its proposal, its holder, its place in the queue.
    pub(super) fn follow(&mut self, state: &State, event: &Event, id: ReachId) {
        let task = state.task(id);
        let is_queued = task.is_some_and(|task| matches!(task.status, Status::Queued { .. }));
        self.measure(event, id);
        self.count_failure(state, event, id);
        self.notice_crash(state, event, id);
        if !is_queued {
            self.settle(id, Settled::Decided);
            self.dequeue(id);
        }
        let is_ack = matches!(event.body, EventBody::TaskAcknowledged(_));
        let worker = self.holder_of(id).filter(|_| is_ack).cloned();
        self.hold(state, event, id);
        self.affinity.follow(state, id, event.at);
        if let (Some(worker), Some(task)) = (worker, task) {
            self.affinity.passed_by(state, task, (&worker, event.at));
        }
        self.count_sessions();
        let Some(task) = task.filter(|_| is_queued && !self.pending.contains_key(&id)) else { return };
        if self.queue.place(id).is_none() {
            self.enqueue(state, task, None);
        } else if matches!(event.body, EventBody::TaskSchemaChecked(_)) {
            self.move_lane(state, id);
        }
    }

    fn hold(&mut self, state: &State, event: &Event, id: ReachId) {
        let task = state.task(id);
        let holder = task.and_then(|task| {
            let lease = task.status.lease()?;
            Some(AgentKey { namespace: task.namespace.clone(), agent_id: lease.agent.clone() })
        });
        let before = self.holdings.get(&id).map(|holding| holding.agent.clone());
        if before == holder {
            if matches!(event.body, EventBody::TaskAcknowledged(_))
                && let Some(holding) = self.holdings.get_mut(&id)
            {
                holding.acked_at = Some(event.at);
            }
            if matches!(event.body, EventBody::TaskDispatched(_))
                && let Some(holding) = self.holdings.get_mut(&id)
            {
                holding.dispatched_at = Some(event.at);
                holding.acked_at = None;
                holding.counted = false;
            }
        } else {
            if let Some(old) = self.holdings.remove(&id) {
                if self.is_current(old.seat, old.process) {
                    self.count_suspect(old.seat, old.suspect, u32::saturating_sub);
                    self.count_overdue(old.seat, (old.overdue.as_ref(), None));
                }
                self.ended = Some(Ended { task: id, last: state.seq(), holding: old });
            }
            if let (Some(agent), Some(task)) = (holder.clone(), task) {
                self.begin_holding(state, task, agent, event.at);
            }
        }
        for agent in before.iter().chain(holder.iter()) {
            self.touch(state, agent);
        }
        if let Some(task) = task {
            self.note_overdue(task);
        }
    }

    /// Whether a held task is over its time may have changed (R-SCH-11).
    fn note_overdue(&mut self, task: &Task) {
        let now = is_overdue(task).then(|| task.spec.capability.clone());
        let Some(holding) = self.holdings.get_mut(&task.id()).filter(|holding| holding.overdue != now) else { return };
        let before = std::mem::replace(&mut holding.overdue, now.clone());
        let (seat, process) = (holding.seat, holding.process);
        if self.is_current(seat, process) {
            self.count_overdue(seat, (before.as_ref(), now.as_ref()));
        }
    }

    fn count_overdue(&mut self, seat: SeatNo, (before, now): (Option<&Capability>, Option<&Capability>)) {
        self.roster.adjust(seat, |desk| {
            let overdue = &mut desk.seat.overdue;
            if let Some(before) = before
                && let Some(count) = overdue.get_mut(before)
            {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    overdue.remove(before);
                }
            }
            if let Some(now) = now {
                *overdue.entry(now.clone()).or_insert(0) += 1;
            }
        });
    }

    pub(super) fn begin_holding(&mut self, state: &State, task: &Task, agent: AgentKey, at: Timestamp) {
        self.touch(state, &agent);
        let Some(seat) = self.roster.number(&agent) else { return };
        let suspect = Suspect::of(task);
        let process = task.status.lease().map(|lease| lease.incarnation).unwrap_or_default();
        if self.is_current(seat, process) {
            self.count_suspect(seat, suspect, u32::saturating_add);
        }
        let dispatched_at = Some(at);
        let holding =
            Holding { agent, process, seat, suspect, overdue: None, counted: false, dispatched_at, acked_at: None };
        self.holdings.insert(task.id(), holding);
        self.note_overdue(task);
    }

    fn is_current(&self, seat: SeatNo, process: Incarnation) -> bool {
        self.roster.desk(seat).is_some_and(|desk| desk.seat.incarnation == process)
    }

    pub(super) fn count_suspect(&mut self, seat: SeatNo, suspect: Suspect, change: fn(u32, u32) -> u32) {
        if suspect == Suspect::Yes {
            self.roster.adjust(seat, |desk| desk.seat.suspects = change(desk.seat.suspects, 1));
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "asks about the events that end or begin work; the rest tell no latency"
    )]
    fn measure(&mut self, event: &Event, id: ReachId) {
        let Some(holding) = self.spoken_of(event, id).map(|holding| holding.clone()) else { return };
        let worked = holding.acked_at.map(|at| event.at.since(at));
        match &event.body {
            EventBody::TaskAcknowledged(_) => {
                if let Some(at) = holding.dispatched_at {
                    self.vitals.acknowledged(&holding.agent, event.at.since(at));
                }
            }
            EventBody::TaskSucceeded(_) => {
                self.vitals.ended(&holding.agent, (Outcome::Succeeded, event.at), worked);
                self.vitals.asked(&holding.agent, event.at);
            }
            EventBody::TaskFailed(_) | EventBody::TaskAttemptFailed(_) => {
                self.vitals.ended(&holding.agent, (Outcome::Failed, event.at), worked);
                // What it never began says nothing: it may have claimed and died.
                if worked.is_some() {
                    self.vitals.asked(&holding.agent, event.at);
                }
            }
            EventBody::TaskOrphaned(body) if is_failure(body.cause) => {
                self.vitals.ended(&holding.agent, (Outcome::Failed, event.at), None);
            }
            _ => {}
        }
    }

    /// Brings the seats up to date with who holds how many sessions.
    pub(super) fn count_sessions(&mut self) {
        for agent in self.affinity.take_changed() {
            let sessions = self.affinity.sessions_of(&agent);
            if let Some(seat) = self.roster.number(&agent) {
                self.roster.adjust(seat, |desk| desk.seat.sessions = sessions);
            }
        }
    }

    /// Whose task it was until this event.
    pub(super) fn holder_of(&self, id: ReachId) -> Option<&AgentKey> {
        self.holdings.get(&id).map(|holding| &holding.agent)
    }
}

/// Only a loss is its agent's failure: who says goodbye, drains or has a successor did nothing wrong (semantics 9).
const fn is_failure(cause: OrphanCause) -> bool {
    match cause {
        OrphanCause::AgentLost => true,
        OrphanCause::AgentLeft | OrphanCause::AgentReplaced | OrphanCause::AgentDrained | OrphanCause::LossAccepted => {
            false
        }
    }
}
