//! What is derived from tasks, in one place, so that no move can forget an index.
//!
//! Every change of a task goes through [`State::change_task`], which compares the task's footprint before and after and
//! updates timers, lanes, counts, pushes, orphans, batches and slots. Here also lies how things leave memory: a task
//! that has ended stays readable until its row is durable (semantics 16).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::ids::{AgentKey, BatchId, CallbackId, Capability, Namespace, ReachId, ReplayId, Seq, SessionId};
use crate::ledger::machine::agent::apply::reindex;
use crate::ledger::machine::agent::{GHOST_SLOT, Standing};
use crate::ledger::machine::batch::Batch;
use crate::ledger::machine::callback::{Callback, CallbackEvent};
use crate::ledger::machine::command::CallbackRow;
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::{Event, EventKind};
use crate::ledger::machine::replay::Replay;
use crate::ledger::machine::step::ImpossibleTransition;
use crate::ledger::machine::success::{Origin, Success};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::{Acked, Delivery, Lease, Status, StatusKind};
use crate::ledger::machine::task::{LaneId, Task};
use crate::ledger::machine::{KeyBinding, State};
use crate::ledger::time::Timestamp;

/// Something that left memory, kept until the event that made it leave is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::ledger::machine) struct Departed<T> {
    /// The event that made it leave.
    pub(in crate::ledger::machine) seq: Seq,
    /// When.
    pub(in crate::ledger::machine) at: Timestamp,
    /// As it was then.
    pub(in crate::ledger::machine) value: T,
}

/// What left memory by some events: the rows that must become durable with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Departures {
    /// Tasks that have ended, final.
    pub tasks: Vec<Arc<Task>>,
    /// Later events of tasks that had left memory before.
    pub after: Vec<(ReachId, Seq)>,
    /// Batches that have settled.
    pub batches: Vec<Batch>,
    /// Callbacks that have settled, delivered ones too.
    pub callbacks: Vec<(CallbackId, CallbackRow)>,
    /// Replay plans that have ended.
    pub replays: Vec<Arc<Replay>>,
    /// Idempotency keys that were bound.
    pub keys: Vec<(Namespace, Text, KeyBinding)>,
    /// Of each session the newest success among those tasks.
    pub successes: Vec<(Namespace, SessionId, Success)>,
}

/// The part of a task that indexes are made of.
struct Footprint {
    kind: StatusKind,
    lane: LaneId,
    wake_at: Option<Timestamp>,
    lease: Option<(Lease, Acked)>,
    orphan_since: Option<Timestamp>,
}

impl Footprint {
    fn of(task: &Task) -> Self {
        Self {
            kind: task.status.kind(),
            lane: task.lane,
            wake_at: task.wake_at(),
            lease: task.status.lease().map(|lease| (lease.clone(), acked(task))),
            orphan_since: match task.status {
                Status::Orphaned { since, .. } => Some(since),
                Status::AwaitingApproval
                | Status::Scheduled { .. }
                | Status::Queued { .. }
                | Status::Dispatched { .. }
                | Status::Processing { .. }
                | Status::SlowReach { .. }
                | Status::Retrying { .. }
                | Status::Succeeded
                | Status::Failed
                | Status::DeadLetter
                | Status::Expired
                | Status::Cancelled => None,
            },
        }
    }

    fn is_open_push(&self) -> bool {
        self.unacked().is_some_and(|lease| lease.delivery == Delivery::Push)
    }

    fn unacked(&self) -> Option<&Lease> {
        self.lease.as_ref().map(|(lease, _)| lease).filter(|_| self.kind == StatusKind::Dispatched)
    }
}

/// Where a task is counted.
struct Whose {
    id: ReachId,
    namespace: Namespace,
    capability: Capability,
    batch: Option<BatchId>,
}

impl Whose {
    fn of(task: &Task) -> Self {
        Self {
            id: task.id(),
            namespace: task.namespace.clone(),
            capability: task.spec.capability.clone(),
            batch: task.spec.batch.map(|(batch, _)| batch),
        }
    }
}

/// Does a task in that state wait for an agent, or is one at it (semantics 22)?
const fn is_pending(kind: StatusKind) -> bool {
    match kind {
        StatusKind::Queued
        | StatusKind::Dispatched
        | StatusKind::Processing
        | StatusKind::SlowReach
        | StatusKind::Retrying
        | StatusKind::Orphaned => true,
        StatusKind::AwaitingApproval
        | StatusKind::Scheduled
        | StatusKind::Succeeded
        | StatusKind::Failed
        | StatusKind::DeadLetter
        | StatusKind::Expired
        | StatusKind::Cancelled => false,
    }
}

/// Was the task's current attempt acknowledged?
fn acked(task: &Task) -> Acked {
    match task.acked {
        Some((attempt, _)) if attempt == task.attempt => Acked::Yes,
        Some(_) | None => Acked::No,
    }
}

impl State {
    /// Adds a new task with all its indexes.
    pub(in crate::ledger::machine) fn insert_task(&mut self, task: Task) {
        let id = task.id();
        let after = Footprint::of(&task);
        let whose = Whose::of(&task);
        if let Some(batch) = whose.batch.and_then(|batch| self.batches.get_mut(&batch)) {
            batch.accepted = batch.accepted.saturating_add(1);
        }
        self.tasks.insert(id, Arc::new(task));
        self.reindex(&whose, None, &after);
    }

    /// Puts a task of a snapshot back with the indexes that are derived from it. Agents and batches must be there
    /// already; what they hold of their tasks is in the snapshot itself.
    pub(in crate::ledger::machine) fn restore_task(&mut self, task: Arc<Task>) {
        let id = task.id();
        let footprint = Footprint::of(&task);
        self.recount(&Whose::of(&task), None, Some(footprint.kind));
        self.due.set(Subject::Task(id), footprint.wake_at);
        if footprint.kind == StatusKind::Queued {
            *self.lanes.entry(footprint.lane).or_insert(0) += 1;
        }
        self.move_unacked(&Whose::of(&task), None, &footprint);
        if let Some(since) = footprint.orphan_since {
            self.orphans.insert((since, id));
        }
        self.tasks.insert(id, task);
        self.note_success(id);
    }

    /// Changes a task and whatever is derived from it. Nothing else may change a task's status, deadline or lane.
    pub(in crate::ledger::machine) fn change_task(
        &mut self,
        id: ReachId,
        event: &Event,
        change: impl FnOnce(&mut Task) -> Result<(), ImpossibleTransition>,
    ) -> Result<(), ImpossibleTransition> {
        let task = self.tasks.get_mut(&id).ok_or_else(|| ImpossibleTransition::of(event, "no such task"))?;
        let task = Arc::make_mut(task);
        let before = Footprint::of(task);
        change(task)?;
        let after = Footprint::of(task);
        let whose = Whose::of(task);
        self.reindex(&whose, Some(&before), &after);
        if before.orphan_since.is_some() && after.orphan_since.is_none() {
            self.held.remove(&id);
        }
        if before.kind != after.kind && after.kind == StatusKind::Succeeded {
            self.note_success(id);
        }
        Ok(())
    }

    fn reindex(&mut self, whose: &Whose, before: Option<&Footprint>, after: &Footprint) {
        let id = whose.id;
        if before.map(|b| b.wake_at) != Some(after.wake_at) {
            self.due.set(Subject::Task(id), after.wake_at);
        }
        if before.map(|b| b.kind) != Some(after.kind) {
            self.recount(whose, before.map(|b| b.kind), Some(after.kind));
            if let Some(batch) = whose.batch.and_then(|batch| self.batches.get_mut(&batch)) {
                if let Some(before) = before {
                    less(&mut batch.by_state, before.kind);
                }
                *batch.by_state.entry(after.kind).or_insert(0) += 1;
            }
        }
        let lane_before = before.filter(|b| b.kind == StatusKind::Queued).map(|b| b.lane);
        let lane_after = Some(after).filter(|a| a.kind == StatusKind::Queued).map(|a| a.lane);
        if lane_before != lane_after {
            if let Some(lane) = lane_before {
                less(&mut self.lanes, lane);
            }
            if let Some(lane) = lane_after {
                *self.lanes.entry(lane).or_insert(0) += 1;
            }
        }
        self.move_unacked(whose, before, after);
        if let Some(since) = before.and_then(|b| b.orphan_since) {
            self.orphans.remove(&(since, id));
        }
        if let Some(since) = after.orphan_since {
            self.orphans.insert((since, id));
        }
        self.move_slot(id, &whose.namespace, before, after);
    }

    /// What is handed over and not acknowledged: a push is somebody's to send, a pull is shown again to its claims.
    fn move_unacked(&mut self, whose: &Whose, before: Option<&Footprint>, after: &Footprint) {
        let key_of = |lease: &Lease| AgentKey { namespace: whose.namespace.clone(), agent_id: lease.agent.clone() };
        if after.is_open_push() {
            self.pushes.insert(whose.id);
        } else if before.is_some_and(Footprint::is_open_push) {
            self.pushes.remove(&whose.id);
        }
        let pull = |footprint: &Footprint| !footprint.is_open_push();
        match (before.filter(|b| pull(b)).and_then(Footprint::unacked), after.unacked().filter(|_| pull(after))) {
            (None, Some(lease)) => {
                self.unacked.entry(key_of(lease)).or_default().insert(whose.id);
            }
            (Some(lease), None) => {
                let key = key_of(lease);
                if let Some(tasks) = self.unacked.get_mut(&key) {
                    tasks.remove(&whose.id);
                    if tasks.is_empty() {
                        self.unacked.remove(&key);
                    }
                }
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Slots follow leases (S8). A task that was cancelled or expired under an acknowledged lease leaves a ghost: its
    /// agent may still be working (semantics 6). A process that was replaced or said goodbye works no more.
    fn move_slot(&mut self, id: ReachId, namespace: &Namespace, before: Option<&Footprint>, after: &Footprint) {
        let key_of = |lease: &Lease| AgentKey { namespace: namespace.clone(), agent_id: lease.agent.clone() };
        let left = before.and_then(|b| b.lease.as_ref());
        match (left, after.lease.as_ref()) {
            (None, Some((lease, _))) => {
                if let Some(agent) = self.agents.get_mut(&key_of(lease)) {
                    agent.held.insert(id);
                }
            }
            (Some((lease, acked)), None) => {
                let key = key_of(lease);
                let until = self.at.after(GHOST_SLOT);
                let called_off = matches!(after.kind, StatusKind::Cancelled | StatusKind::Expired);
                if let Some(agent) = self.agents.get_mut(&key) {
                    agent.held.remove(&id);
                    let is_there = agent.incarnation == lease.incarnation
                        && matches!(agent.standing, Standing::Active | Standing::Draining { .. });
                    if called_off && *acked == Acked::Yes && is_there {
                        agent.ghosts.insert((id, lease.attempt), until);
                        reindex(self, &key);
                    }
                }
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// What an older process of an agent held is no longer with it: its orphans take no slot of the new process, which
    /// could otherwise wait for them until their deadline. They stay fenced by their own leases.
    pub(in crate::ledger::machine) fn let_go_of_older(&mut self, key: &AgentKey) {
        let Some(agent) = self.agents.get_mut(key) else { return };
        let (tasks, current) = (&self.tasks, agent.incarnation);
        let is_current = |id: &ReachId| {
            let lease = tasks.get(id).and_then(|task| task.status.lease());
            lease.is_some_and(|lease| lease.incarnation == current)
        };
        agent.held.retain(is_current);
    }

    fn recount(&mut self, whose: &Whose, before: Option<StatusKind>, after: Option<StatusKind>) {
        let count = self.counts.entry(whose.namespace.clone()).or_default();
        match (before.is_some_and(is_pending), after.is_some_and(is_pending)) {
            (false, true) => *count.pending.entry(whose.capability.clone()).or_insert(0) += 1,
            (true, false) => less(&mut count.pending, whose.capability.clone()),
            (true, true) | (false, false) => {}
        }
        if let Some(before) = before {
            less(&mut count.by_state, before);
        }
        if let Some(after) = after {
            *count.by_state.entry(after).or_insert(0) += 1;
        }
        if count.by_state.is_empty() {
            self.counts.remove(&whose.namespace);
        }
        if let (Some(before), Some(after)) = (before, after)
            && after.is_terminal()
            && !before.is_terminal()
        {
            self.count_ending(&whose.namespace, after);
        }
    }

    /// Notes an event of a task in the task's history, or as a later one if the task has left memory.
    pub(in crate::ledger::machine) fn note_history(&mut self, id: ReachId, seq: Seq, kind: EventKind) {
        if let Some(task) = self.tasks.get_mut(&id) {
            Arc::make_mut(task).seqs.push(seq);
            return;
        }
        if let Some(gone) = self.departed.get_mut(&id) {
            Arc::make_mut(&mut gone.value).seqs.push(seq);
        }
        self.after.push((id, seq, kind));
    }

    /// Lets a task leave memory if it has ended and no callback of it is open; otherwise does nothing.
    pub(in crate::ledger::machine) fn depart_if_done(&mut self, id: ReachId) {
        let done = self.tasks.get(&id).is_some_and(|task| {
            task.status.kind().is_terminal() && task.callbacks_open == 0 && !self.owes_last_callback(task)
        });
        if let Some(task) = done.then(|| self.tasks.remove(&id)).flatten() {
            self.recount(&Whose::of(&task), Some(task.status.kind()), None);
            let gone = Departed { seq: self.seq, at: self.at, value: task };
            self.departed.insert(id, gone);
        }
    }

    /// The terminal event itself is being applied, and its callback follows in the same step.
    fn owes_last_callback(&self, task: &Task) -> bool {
        task.ended_by == Some(self.seq)
            && task.spec.callback.as_ref().is_some_and(|callback| callback.events.contains(&CallbackEvent::Terminal))
    }

    /// Lets a settled batch leave memory.
    pub(in crate::ledger::machine) fn depart_batch(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.remove(&id) {
            self.count_in(&batch.namespace, |census| census.batches = census.batches.saturating_sub(1));
            let gone = Departed { seq: self.seq, at: self.at, value: batch };
            self.departed_batches.insert(id, gone);
        }
    }

    /// Lets a settled callback leave memory; its state must have been set before.
    pub(in crate::ledger::machine) fn depart_callback(&mut self, id: CallbackId) {
        if let Some(callback) = self.callbacks.remove(&id) {
            self.callbacks_due.remove(&(callback.next_at, id));
            let gone = Departed { seq: self.seq, at: self.at, value: callback };
            self.departed_callbacks.insert(id, gone);
        }
    }

    /// Notes that one task was made of another; the event that says so is being applied.
    pub(in crate::ledger::machine) fn link(&mut self, task: ReachId, successor: ReachId, origin: Option<Origin>) {
        if self.task(task).is_some() {
            self.kin.entry(task).or_default().redriven_as = Some(successor);
        }
        self.kin.entry(successor).or_default().redrive_of = Some(task);
        if let Some(origin) = origin {
            self.origins.insert(successor, origin);
        }
        self.redriven.insert(task, (self.seq, successor));
    }

    /// Lets a finished plan leave memory.
    pub(in crate::ledger::machine) fn depart_replay(&mut self, id: ReplayId) {
        if let Some(replay) = self.replays.remove(&id) {
            self.count_in(&replay.namespace, |census| census.replays = census.replays.saturating_sub(1));
            let gone = Departed { seq: self.seq, at: self.at, value: replay };
            self.departed_replays.insert(id, gone);
        }
    }

    /// Binds an idempotency key; `binding.receipt` must be the event being applied (semantics 31).
    pub(in crate::ledger::machine) fn bind_key(&mut self, namespace: Namespace, key: Text, binding: KeyBinding) {
        self.keys.insert((namespace, key), binding);
    }

    /// What left memory by events after `after`: the rows of the commit that holds them. It stays readable here until
    /// [`State::forget_up_to`].
    #[must_use]
    pub fn sealed(&self, after: Seq) -> Departures {
        let tasks = self.departed.values().filter(|gone| gone.seq > after).map(|gone| {
            let mut task = Arc::clone(&gone.value);
            if task.seqs.last().is_some_and(|last| *last > gone.seq) {
                Arc::make_mut(&mut task).seqs.retain(|seq| *seq <= gone.seq); // Later ones are rows of their own.
            }
            task
        });
        let batches = self.departed_batches.values().filter(|gone| gone.seq > after).map(|gone| gone.value.clone());
        let replays = self.departed_replays.values().filter(|gone| gone.seq > after);
        let callbacks = self.departed_callbacks.iter().filter(|(_, gone)| gone.seq > after);
        let keys = self.keys.iter().filter(|(_, binding)| binding.receipt > after);
        Departures {
            successes: self.newest_of(after),
            tasks: tasks.collect(),
            after: self.after.iter().filter(|(_, seq, _)| *seq > after).map(|(id, seq, _)| (*id, *seq)).collect(),
            batches: batches.collect(),
            replays: replays.map(|gone| Arc::clone(&gone.value)).collect(),
            callbacks: callbacks.map(|(id, gone)| (*id, row(gone))).collect(),
            keys: keys.map(|((namespace, key), b)| (namespace.clone(), key.clone(), b.clone())).collect(),
        }
    }

    /// Of each session the newest success among what left memory by events after `after`.
    fn newest_of(&self, after: Seq) -> Vec<(Namespace, SessionId, Success)> {
        let mut newest: BTreeMap<(Namespace, SessionId), Success> = BTreeMap::new();
        let gone = self.departed.values().filter(|gone| gone.seq > after);
        for (key, success) in gone.filter_map(|gone| self.success_of(&gone.value)) {
            let known = newest.entry(key).or_insert(success);
            if success.place > known.place {
                *known = success;
            }
        }
        newest.into_iter().map(|((namespace, session), success)| (namespace, session, success)).collect()
    }

    /// Drops what left memory by events up to `seq`: their commit is durable, or nobody will ask (an offline fold).
    pub fn forget_up_to(&mut self, seq: Seq) {
        let gone = self.departed.iter().filter(|(id, gone)| gone.seq <= seq && !self.tasks.contains_key(id));
        let gone: Vec<ReachId> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            self.forget_success(id);
            self.kin.remove(&id);
            self.origins.remove(&id);
        }
        self.departed.retain(|_, gone| gone.seq > seq);
        self.departed_replays.retain(|_, gone| gone.seq > seq);
        self.redriven.retain(|_, (told, _)| *told > seq);
        self.departed_batches.retain(|_, gone| gone.seq > seq);
        self.departed_callbacks.retain(|_, gone| gone.seq > seq);
        self.keys.retain(|_, binding| binding.receipt > seq);
        self.after.retain(|(_, later, _)| *later > seq);
    }
}

fn row(gone: &Departed<Callback>) -> CallbackRow {
    let callback = &gone.value;
    CallbackRow {
        namespace: callback.namespace.clone(),
        subject: callback.subject,
        seq: callback.seq,
        url: callback.url.clone(),
        secret_ref: callback.secret_ref.clone(),
        state: callback.state,
        attempts: callback.attempts,
        at: gone.at,
        last_error: callback.last_error.clone(),
    }
}

/// Counts one less, and forgets what is counted no more.
fn less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let std::collections::btree_map::Entry::Occupied(mut entry) = counts.entry(key) {
        *entry.get_mut() = entry.get().saturating_sub(1);
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}
