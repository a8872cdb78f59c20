//! The second thread: makes a batch durable, then lets its answers go.
//!
//! While the committer fsyncs batch n, the sequencer decides batch n + 1; there is never more than one batch here, so
//! batches grow by themselves as load rises, and one fsync serves everybody in it. After a failed append nothing more
//! is taken: the answers of that batch are never sent (their outcome is unknown) and the hub exits (rule 6).
//! One batch is one commit, so the events of one decision are never torn apart.
//!
//! When next to nothing comes in there is nobody to decide for meanwhile: then the sequencer commits on its own thread
//! ([`Desk`]) and saves the two hand-overs, which cost more than the fsync they would hide.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::{oneshot, watch};

use crate::ledger::fresh::FreshPayloads;
use crate::ledger::handle::{
    Handed, Input, Intake, Published, Receipt, Refusal, Release, Released, Verdict, WorkAnswer,
};
use crate::ledger::ids::{AgentKey, Digest, Incarnation, Seq};
use crate::ledger::keys::Keys;
use crate::ledger::machine::command::{Command, Proposal, Report, Word};
use crate::ledger::machine::decision::Answer;
use crate::ledger::machine::event::{Actor, Event, EventBody, EventKind};
use crate::ledger::machine::task::status::Delivery;
use crate::ledger::store::{Body, BodyKey, Head, Rows, Store, block};
use crate::ledger::time::{Clock, Millis};
use crate::ledger::watch::Watchers;

/// An answer whose receipt still lacks its hash.
pub(in crate::ledger) type Draft = Result<(Answer, Option<Seq>), Refusal>;

/// Who took a claim's tasks, and which.
pub(in crate::ledger) type HandOut = (AgentKey, Incarnation, Vec<Handed>);

/// One answer that leaves when its batch is durable.
pub(in crate::ledger) enum Pending {
    /// Outcomes of proposals, and maybe a claim's tasks with who took them.
    Work { outcomes: Vec<Draft>, claim: Option<Result<HandOut, Refusal>>, reply: oneshot::Sender<WorkAnswer> },
    /// An answered question.
    Asked(Release),
    /// The clean stop.
    Stopped(oneshot::Sender<()>),
}

/// Everything decided since the last hand-over.
pub(in crate::ledger) struct Batch {
    pub(in crate::ledger) events: Vec<Event>,
    pub(in crate::ledger) rows: Rows,
    pub(in crate::ledger) bodies: Vec<(BodyKey, Body)>,
    pub(in crate::ledger) pending: Vec<Pending>,
    /// What becomes visible with it; its seq and counters are the committer's to fill.
    pub(in crate::ledger) published: Published,
    /// Whether readers must see it although no event says so: the phase changed.
    pub(in crate::ledger) show: Show,
}

/// Must readers see something new that no event tells?
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum Show {
    /// Yes: the phase changed.
    Phase,
    /// Only what events tell.
    #[default]
    Events,
}

/// The place where one batch changes hands.
#[derive(Default)]
pub(in crate::ledger) struct Handoff {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Default)]
struct Slot {
    busy: bool,
    /// Last durable seq.
    durable: Seq,
    failed: Option<String>,
}

impl Handoff {
    /// A free committer whose log is durable up to `seq`.
    pub(in crate::ledger) fn starting_at(seq: Seq) -> Self {
        let handoff = Self::default();
        handoff.lock().durable = seq;
        handoff
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is the committer free? Its last durable seq if so.
    pub(in crate::ledger) fn idle(&self) -> Result<Option<Seq>, String> {
        let slot = self.lock();
        match &slot.failed {
            Some(why) => Err(why.clone()),
            None => Ok((!slot.busy).then_some(slot.durable)),
        }
    }

    /// Waits until it is free.
    pub(in crate::ledger) fn wait_idle(&self) -> Result<Seq, String> {
        let mut slot = self.lock();
        loop {
            if let Some(why) = &slot.failed {
                return Err(why.clone());
            }
            if !slot.busy {
                return Ok(slot.durable);
            }
            slot = self.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks it busy: the sequencer is about to send a batch.
    pub(in crate::ledger) fn take(&self) {
        self.lock().busy = true;
    }

    fn done(&self, durable: Seq) {
        let mut slot = self.lock();
        slot.busy = false;
        slot.durable = durable;
        self.changed.notify_all();
    }

    /// Nothing more will become durable; the first reason stays.
    fn fail(&self, why: String) {
        let mut slot = self.lock();
        slot.failed.get_or_insert(why);
        self.changed.notify_all();
    }
}

/// When the append under way began, for the watchdog (storage, guard 7): a commit that never returns is a failure too.
#[derive(Debug, Default)]
pub struct AppendWatch {
    since: AtomicU64,
}

impl AppendWatch {
    fn begin(&self, now: Millis) {
        self.since.store(now.0.max(1), Ordering::Release);
    }

    fn end(&self) {
        self.since.store(0, Ordering::Release);
    }

    /// How long the append under way has taken so far.
    #[must_use]
    pub fn running_for(&self, now: Millis) -> Option<Millis> {
        match self.since.load(Ordering::Acquire) {
            0 => None,
            since => Some(Millis(now.0.saturating_sub(since))),
        }
    }
}

/// However the committer ends, by a failed append or by a bug, the sequencer must know and end too, at once.
struct Farewell {
    handoff: Arc<Handoff>,
    inbox: SyncSender<Input>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.handoff.fail("the committer is gone".to_owned());
        drop(self.inbox.try_send(Input::Nudge));
    }
}

/// The committer: owns the tail of the log.
pub(in crate::ledger) struct Committer {
    pub(in crate::ledger) store: Arc<dyn Store>,
    pub(in crate::ledger) head: Head,
    pub(in crate::ledger) handoff: Arc<Handoff>,
    pub(in crate::ledger) publish: watch::Sender<Published>,
    pub(in crate::ledger) watchers: Arc<Watchers>,
    pub(in crate::ledger) fresh: Arc<FreshPayloads>,
    pub(in crate::ledger) inbox: SyncSender<Input>,
    pub(in crate::ledger) keys: Keys,
    pub(in crate::ledger) clock: Arc<dyn Clock>,
    pub(in crate::ledger) watch: Arc<AppendWatch>,
    pub(in crate::ledger) recent: RecentLeaves,
}

/// Where the one committer sits; whoever commits a batch holds it. It is never waited for: the sequencer comes here
/// only while the committer's thread has nothing.
#[derive(Clone)]
pub(in crate::ledger) struct Desk(Arc<Mutex<Committer>>);

impl Desk {
    /// With the committer at it.
    pub(in crate::ledger) fn new(committer: Committer) -> Self {
        Self(Arc::new(Mutex::new(committer)))
    }

    /// The committer's thread: until the sequencer hangs up or an append fails.
    pub(in crate::ledger) fn run(&self, batches: &Receiver<Batch>) {
        let _farewell = self.lock().farewell();
        while let Ok(batch) = batches.recv() {
            let mut committer = self.lock();
            if committer.settle(batch).is_err() {
                return;
            }
            // A full inbox needs no nudge: the sequencer is awake and looks at the hand-off anyway.
            drop(committer.inbox.try_send(Input::Nudge));
        }
    }

    /// Commits on the caller's thread; the last durable seq.
    ///
    /// # Errors
    /// Why the append failed.
    pub(in crate::ledger) fn commit_here(&self, batch: Batch) -> Result<Seq, String> {
        self.lock().settle(batch)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Committer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Committer {
    fn farewell(&self) -> Farewell {
        Farewell { handoff: Arc::clone(&self.handoff), inbox: self.inbox.clone() }
    }

    /// Commits, and tells the hand-off what came of it.
    fn settle(&mut self, batch: Batch) -> Result<Seq, String> {
        match self.commit(batch) {
            Ok(()) => {
                self.handoff.done(self.head.seq);
                Ok(self.head.seq)
            }
            Err(why) => {
                tracing::error!(%why, "the ledger could not be written; stopping");
                self.handoff.fail(why.clone());
                Err(why)
            }
        }
    }

    fn commit(&mut self, batch: Batch) -> Result<(), String> {
        let first = batch.events.first().map(|event| event.seq);
        if let Some(first) = first {
            let (mut commit, hashes) =
                block::encode_commit(&self.head, &batch.events).map_err(|error| error.to_string())?;
            commit.rows = batch.rows;
            commit.bodies = batch.bodies;
            self.watch.begin(self.clock.monotonic());
            let appended = self.store.append(&commit);
            self.watch.end();
            appended.map_err(|error| error.to_string())?;
            self.head = commit.head;
            self.fresh.keep(&commit.bodies);
            self.recent.keep(first, hashes);
        }
        if first.is_some() || batch.show == Show::Phase {
            self.show(&batch.events, batch.published);
        }
        for pending in batch.pending {
            self.release(pending);
        }
        Ok(())
    }

    fn show(&self, events: &[Event], mut published: Published) {
        let stir = Stir::of(events);
        published.seq = self.head.seq;
        published.at = self.head.at;
        self.publish.send_modify(|now| {
            published.pushes = now.pushes + stir.pushes;
            published.callbacks = now.callbacks + stir.callbacks;
            published.registrations = now.registrations + stir.registrations;
            published.replays = now.replays + stir.replays;
            published.redrives = now.redrives + stir.redrives;
            *now = published;
        });
        self.watchers.wake(events.iter().filter_map(|event| event.body.task()));
    }

    fn release(&self, pending: Pending) {
        match pending {
            Pending::Asked(release) => release(),
            Pending::Stopped(reply) => drop(reply.send(())),
            Pending::Work { outcomes, claim, reply } => {
                let outcomes = outcomes.into_iter().map(|draft| self.finish(draft)).collect();
                let (claim, taker) = match claim {
                    Some(Ok((agent, incarnation, tasks))) => (Some(Ok(tasks)), Some((agent, incarnation))),
                    Some(Err(refusal)) => (Some(Err(refusal)), None),
                    None => (None, None),
                };
                let unsent = reply.send(WorkAnswer { outcomes, claim }).err();
                if let (Some(WorkAnswer { claim: Some(Ok(tasks)), .. }), Some((agent, incarnation))) = (unsent, taker) {
                    self.give_back(&agent, incarnation, &tasks);
                }
            }
        }
    }

    fn finish(&self, draft: Draft) -> Verdict {
        let (answer, seq) = draft?;
        Ok(Released { answer, receipt: seq.and_then(|seq| self.receipt(seq)) })
    }

    fn receipt(&self, seq: Seq) -> Option<Receipt> {
        if let Some(hash) = self.recent.of(seq) {
            return Some(Receipt { seq, hash });
        }
        match self.store.event(seq) {
            Ok(found) => found.map(|event| Receipt { seq, hash: event.hash() }),
            Err(error) => {
                tracing::error!(%error, %seq, "a receipt's event could not be read");
                None
            }
        }
    }

    /// The claim's caller is gone: what was handed to it never started (semantics 4). If the inbox is full the reach
    /// timeout does the same, later.
    fn give_back(&self, agent: &AgentKey, incarnation: Incarnation, tasks: &[Handed]) {
        let lineage = self.head.lineage;
        let intakes: Vec<Intake> =
            tasks.iter().map(|task| release_of(&self.keys, lineage, agent, incarnation, task).into()).collect();
        if !intakes.is_empty() {
            let (reply, _) = oneshot::channel();
            drop(self.inbox.try_send(Input::Work { intakes, claim: None, reply }));
        }
    }
}

/// What a batch may have given others to do.
#[derive(Default)]
struct Stir {
    pushes: u64,
    callbacks: u64,
    registrations: u64,
    replays: u64,
    redrives: u64,
}

impl Stir {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the kinds that give nobody anything to do are the many")]
    fn of(events: &[Event]) -> Self {
        let mut stir = Self::default();
        for event in events {
            stir.redrives += u64::from(event.body.kind() == EventKind::TaskRedriven);
            match &event.body {
                EventBody::TaskDispatched(e) if e.delivery == Delivery::Push => stir.pushes += 1,
                EventBody::TaskCancelled(_) | EventBody::TaskExpired(_) => stir.pushes += 1,
                EventBody::CallbackDue(_) | EventBody::CallbackRedriven(_) => stir.callbacks += 1,
                EventBody::AgentRegistered(_) | EventBody::AgentUpdated(_) => stir.registrations += 1,
                body => stir.replays += u64::from(body.replay().is_some()),
            }
        }
        stir
    }
}

/// The hub's own word for an agent that never got its answer.
fn release_of(
    keys: &Keys,
    lineage: crate::ledger::ids::Lineage,
    agent: &AgentKey,
    incarnation: Incarnation,
    task: &Handed,
) -> Proposal {
    let report = Report {
        task: task.spec.reach_id,
        agent: agent.agent_id.clone(),
        incarnation,
        attempt: task.attempt,
        lease: keys.lease_digest(lineage, task.spec.reach_id, task.attempt),
        word: Word::Release { digest: Digest::of(&[b"unsent claim answer"]), retry_after: None },
        fact: None,
    };
    Proposal {
        namespace: Some(agent.namespace.clone()),
        actor: Actor::Hub,
        trace: task.trace,
        command: Command::Report(Box::new(report)),
    }
}

/// Leaf hashes kept at most: a claim that waited brings the receipts of reports from a few commits ago.
const RECENT_LEAVES: usize = 16_384;

/// Leaf hashes of the newest events.
#[derive(Debug, Default)]
pub(in crate::ledger) struct RecentLeaves {
    /// Seq of the first of them.
    first: Seq,
    leaves: VecDeque<Digest>,
}

impl RecentLeaves {
    /// Takes those of a commit that begins at `first`, right after the ones before.
    fn keep(&mut self, first: Seq, hashes: Vec<Digest>) {
        if self.leaves.is_empty() {
            self.first = first;
        }
        self.leaves.extend(hashes);
        let over = self.leaves.len().saturating_sub(RECENT_LEAVES);
        self.leaves.drain(..over);
        self.first.0 += u64::try_from(over).unwrap_or(0);
    }

    fn of(&self, seq: Seq) -> Option<Digest> {
        let index = usize::try_from(seq.0.checked_sub(self.first.0)?).ok()?;
        self.leaves.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u64) -> Digest {
        Digest::of(&[&n.to_be_bytes()])
    }

    #[test]
    fn the_newest_leaves_are_known_by_their_seq_and_older_ones_are_forgotten() {
        let mut recent = RecentLeaves::default();
        assert_eq!(recent.of(Seq(0)), None);
        let mut next = 5;
        for len in [3, 1, 16_000, 500] {
            recent.keep(Seq(next), (next..next + len).map(digest).collect());
            next += len;
        }
        let oldest = next - 16_384;
        for seq in [oldest, oldest + 1, next - 1] {
            assert_eq!(recent.of(Seq(seq)), Some(digest(seq)), "{seq}");
        }
        assert_eq!([oldest - 1, next].map(|seq| recent.of(Seq(seq))), [None, None]);
    }

    #[test]
    fn the_watchdog_sees_an_append_for_as_long_as_it_runs_and_none_afterwards() {
        let watch = AppendWatch::default();
        assert_eq!(watch.running_for(Millis(5_000)), None, "nothing is under way");
        watch.begin(Millis(5_000));
        assert_eq!(watch.running_for(Millis(5_000)), Some(Millis(0)));
        assert_eq!(watch.running_for(Millis(16_000)), Some(Millis(11_000)));
        assert_eq!(watch.running_for(Millis(4_000)), Some(Millis(0)), "a clock behind it accuses nobody");
        watch.end();
        assert_eq!(watch.running_for(Millis(16_000)), None);
        watch.begin(Millis(0));
        assert_eq!(watch.running_for(Millis(2)), Some(Millis(1)), "the first moment of a machine is one, too");
    }
}
