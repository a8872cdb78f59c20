//! Orphaned tasks back into the queue, one by one and at a measured pace (R-REC-2, R-REC-3).
//!
//! Why paced: what an agent drops must not drown those who pick it up. Why one by one: each replay is a command of its
//! own, so the ledger looks at each task at that very moment, and one that finished late or was cancelled is skipped.
//!
//! Left alone are tasks with the policy `hold`, those that a newer one of their session has superseded, and for one
//! heartbeat interval those of an agent that has just returned: it may name them as still held (semantics 5). Orphans of
//! one session stand in its line, held ones too (R4), but not superseded ones: the session has gone on without them. A
//! held one is proposed only to learn that, which sends nothing back and so takes no token. See
//! [`crate::recovery::sessions`].

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::ids::{AgentKey, Namespace, ReachId, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::OrphanPolicy;
use crate::ledger::machine::task::status::Status;
use crate::ledger::time::Timestamp;
use crate::recovery::pace::Bucket;
use crate::recovery::sessions::{Ask, Behind, Change, Leave, SessionKey, Sessions, may_be_sent, place_of, session_of};

/// Held orphans of a namespace that are asked about in a second, so that many of them hold up no other work.
const ASKS_PER_SECOND: u32 = 1_000;

type Orphan = (Timestamp, ReachId);

/// Orphans of one namespace whose turn has come, oldest first.
#[derive(Debug)]
struct Ward {
    /// Those that may be replayed.
    waiting: BTreeSet<Orphan>,
    bucket: Bucket,
    /// Those that are held, to be asked whether their sessions have gone on without them.
    asks: BTreeSet<Orphan>,
    asking: Bucket,
}

impl Ward {
    fn starting(rate: u32, began: Timestamp) -> Self {
        let asking = Bucket::empty_at(ASKS_PER_SECOND, began);
        Self { waiting: BTreeSet::new(), bucket: Bucket::empty_at(rate, began), asks: BTreeSet::new(), asking }
    }

    const fn line_mut(&mut self, leave: Leave) -> &mut BTreeSet<Orphan> {
        match leave {
            Leave::Free => &mut self.waiting,
            Leave::Held(_) => &mut self.asks,
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.asks.is_empty()
    }
}

/// Where an orphan stands in the index.
#[derive(Debug)]
struct Known {
    namespace: Namespace,
    since: Timestamp,
    /// Its session, and its place in that one's line.
    session: Option<(SessionKey, Seq)>,
    /// Until when its agent may still name it, if it was put off for that.
    until: Option<Timestamp>,
}

impl Known {
    fn of(task: &Task, since: Timestamp) -> Self {
        let session = session_of(task).map(|key| (key, place_of(task).0));
        Self { namespace: task.namespace.clone(), since, session, until: None }
    }
}

/// The sweep: an own index, so that held orphans without a session cost nothing, however many there are.
#[derive(Debug, Default)]
pub struct Sweep {
    wards: BTreeMap<Namespace, Ward>,
    since: BTreeMap<ReachId, Known>,
    /// Orphans that are held, in the lines of their sessions.
    held: BTreeMap<ReachId, Known>,
    deferred: BTreeSet<(Timestamp, ReachId)>,
    sessions: Sessions,
    /// The last event before this start: until then an earlier run may have emptied every bucket.
    began: Timestamp,
}

impl Sweep {
    /// Orphans that wait for their replay.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.since.len()
    }

    /// Orphans of its namespace that go before this one, counted up to `most`; `None` for one that waits for no turn:
    /// held, or put off while its returned agent may still name it.
    #[must_use]
    pub fn before(&self, id: ReachId, most: usize) -> Option<usize> {
        let known = self.since.get(&id).filter(|known| known.until.is_none())?;
        let waiting = &self.wards.get(&known.namespace)?.waiting;
        Some(waiting.range(..(known.since, id)).take(most).count())
    }

    /// For whom an orphan waits that its session has not called yet; looks at `most` others at most.
    #[must_use]
    pub fn behind(&self, id: ReachId, most: usize) -> Option<Behind> {
        let (key, seq) = self.since.get(&id)?.session.as_ref()?;
        self.sessions.before_orphan(key, (*seq, id), most)
    }

    /// The lines of sessions.
    pub(super) const fn lines(&self) -> &Sessions {
        &self.sessions
    }

    /// Lines that moved since they were asked for the last time.
    pub(super) fn take_moved(&mut self) -> BTreeSet<SessionKey> {
        self.sessions.take_moved()
    }

    pub(super) fn rebuild(&mut self, state: &State, now: Timestamp) {
        *self = Self { began: state.at(), ..Self::default() };
        for (_, id) in state.orphans() {
            self.look_at(state, *id, now);
        }
        for task in state.tasks().values().filter(|task| task.spec.session.is_some()) {
            // What was made anew was sent back by that; it may have been again since.
            let since = may_be_sent(task).or_else(|| state.kin(task.id()).redrive_of.map(|_| Seq(0)));
            if matches!(task.status, Status::Orphaned { .. }) && since.is_some() {
                self.sessions.left_alone(state, task);
            } else if let (Some(key), Some(at)) = (session_of(task), since) {
                self.send(state, (key, task.id(), at), now);
                self.reconsider(state, task.id(), now);
            }
        }
    }

    pub(super) fn observe(&mut self, state: &State, event: &Event) {
        if let EventBody::ReplayItemSkipped(body) = &event.body {
            state.task(body.task).into_iter().for_each(|task| self.sessions.left_alone(state, task));
            self.decided(state, body.task, event.at);
        }
        let Some(task) = event.body.task().filter(|_| event.body.callback_subject().is_none()) else { return };
        // By whoever's word: its session waits for what was sent back.
        let sent = if let EventBody::TaskReplayed(body) = &event.body {
            Some((body.task, body.task))
        } else if let EventBody::TaskRedriven(body) = &event.body {
            Some((body.task, body.successor))
        } else {
            None
        };
        if let Some((of, sent)) = sent {
            if let Some(key) = state.task(sent).and_then(session_of) {
                self.send(state, (key, sent, event.seq), event.at);
            }
            self.decided(state, of, event.at);
        }
        self.look_at(state, task, event.at);
        if let EventBody::TaskReplayHeld(_) = &event.body {
            self.decided(state, task, event.at);
        } else if let (EventBody::TaskSucceeded(_), Some(key)) = (&event.body, state.task(task).and_then(session_of)) {
            let change = self.sessions.succeeded(&key);
            self.follow(state, change, event.at);
        }
        self.reconsider(state, task, event.at);
    }

    fn send(&mut self, state: &State, (key, task, at): (SessionKey, ReachId, Seq), now: Timestamp) {
        let change = self.sessions.go_out(key, task, at);
        self.follow(state, change, now);
    }

    /// Puts a task into the index or takes it out, as it stands.
    fn look_at(&mut self, state: &State, id: ReachId, now: Timestamp) {
        let found = state.task(id).and_then(|task| Some((task, stray(state, task)?)));
        let known = self.since.get(&id).map(|known| known.since);
        match found {
            Some((_, (since, Leave::Free))) if known == Some(since) => {}
            Some((task, (since, Leave::Free))) => {
                self.drop_out(state, id, now);
                let known = Known::of(task, since);
                let of_session = known.session.as_ref();
                let joined = of_session.map(|(key, _)| self.sessions.join(key, place_of(task), Leave::Free));
                self.since.insert(id, known);
                match joined {
                    Some(change) => self.follow(state, change, now),
                    None => self.wait(state, task, (since, id), now),
                }
            }
            Some((_, (_, Leave::Held(_)))) if self.held.contains_key(&id) => {}
            Some((task, (since, leave @ Leave::Held(_)))) => {
                self.drop_out(state, id, now);
                if let Some(key) = session_of(task) {
                    self.held.insert(id, Known::of(task, since));
                    let change = self.sessions.join(&key, place_of(task), leave);
                    self.follow(state, change, now);
                }
            }
            None => self.drop_out(state, id, now),
        }
    }

    /// A session's line moved: who is called waits for a token, who stands back no more.
    fn follow(&mut self, state: &State, change: Change, now: Timestamp) {
        if let Some(id) = change.stands_back {
            self.stand_back(id);
        }
        let called = change.called.and_then(|id| Some((id, self.known(id)?.since)));
        if let Some((id, since)) = called
            && let Some(task) = state.task(id)
        {
            self.wait(state, task, (since, id), now);
        }
    }

    /// Waits for a token, or first for its returned agent to speak.
    fn wait(&mut self, state: &State, task: &Task, orphan: Orphan, now: Timestamp) {
        if let Some(until) = grace(state, task).filter(|until| *until > now) {
            self.put_off(orphan.1, until);
            return;
        }
        let rate = state.policies().of(&task.namespace).replays_per_second;
        let began = self.began;
        let ward = self.wards.entry(task.namespace.clone()).or_insert_with(|| Ward::starting(rate, began));
        ward.line_mut(leave(task)).insert(orphan);
    }

    fn known(&self, id: ReachId) -> Option<&Known> {
        self.since.get(&id).or_else(|| self.held.get(&id))
    }

    fn known_mut(&mut self, id: ReachId) -> Option<&mut Known> {
        self.since.get_mut(&id).or_else(|| self.held.get_mut(&id))
    }

    /// It waits no more, for whatever reason; whoever stood behind it is called.
    fn drop_out(&mut self, state: &State, id: ReachId, now: Timestamp) {
        self.stand_back(id);
        let stood = self.since.remove(&id).or_else(|| self.held.remove(&id));
        if let Some((key, place)) = stood.and_then(|known| known.session) {
            let change = self.sessions.leave(state, &key, (place, id));
            self.follow(state, change, now);
        }
    }

    /// Neither a token nor the end of a grace is for it now.
    fn stand_back(&mut self, id: ReachId) {
        let Some(known) = self.known_mut(id) else { return };
        let (until, orphan, namespace) = (known.until.take(), (known.since, id), known.namespace.clone());
        if let Some(until) = until {
            self.deferred.remove(&(until, id));
        }
        if let Some(ward) = self.wards.get_mut(&namespace) {
            ward.waiting.remove(&orphan);
            ward.asks.remove(&orphan);
        }
    }

    fn put_off(&mut self, id: ReachId, until: Timestamp) {
        if let Some(known) = self.known_mut(id) {
            known.until = Some(until);
            self.deferred.insert((until, id));
        }
    }

    /// Namespaces in which an orphan waits, for a replay or for a question.
    pub(super) fn names(&self) -> impl Iterator<Item = &Namespace> {
        self.wards.iter().filter(|(_, ward)| !ward.is_idle()).map(|(name, _)| name)
    }

    /// Sets the sweep's own rate in a namespace.
    pub(super) fn set_rate(&mut self, name: &Namespace, rate: u32, now: Timestamp) {
        if let Some(ward) = self.wards.get_mut(name) {
            ward.bucket.set_rate(rate, now);
        }
    }

    /// A replay of the sweep happened; see [`Bucket::spent_at`].
    pub(super) fn spent_at(&mut self, name: &Namespace, at: Timestamp) {
        if let Some(ward) = self.wards.get_mut(name) {
            ward.bucket.spent_at(at);
        }
    }

    /// The next replay of a namespace, if one waits and the sweep has a token for it.
    pub(super) fn take(&mut self, state: &State, name: &Namespace, now: Timestamp) -> Option<Proposal> {
        let task = self.first(state, (name, Leave::Free), now)?;
        let ward = self.wards.get_mut(name)?;
        ward.bucket.take(now).then(|| self.propose(state, task, now))
    }

    /// The next question about a held orphan of a namespace, if there is one and it is not the second's last.
    pub(super) fn ask(&mut self, state: &State, name: &Namespace, now: Timestamp) -> Option<Proposal> {
        let task = self.first(state, (name, Leave::Held(Ask::Now)), now)?;
        let ward = self.wards.get_mut(name)?;
        ward.asking.take(now).then(|| self.propose(state, task, now))
    }

    /// Whose turn it is. Who is no orphan any more drops out, and whose agent may still speak is put off.
    fn first<'a>(&mut self, state: &'a State, (name, leave): (&Namespace, Leave), now: Timestamp) -> Option<&'a Task> {
        loop {
            let line = self.wards.get_mut(name)?.line_mut(leave);
            let orphan = *line.first()?;
            let Some(task) = state.task(orphan.1).filter(|task| stray(state, task).is_some()) else {
                self.drop_out(state, orphan.1, now);
                continue;
            };
            let Some(until) = grace(state, task).filter(|until| *until > now) else { return Some(task) };
            line.remove(&orphan);
            self.put_off(orphan.1, until);
        }
    }

    fn propose(&mut self, state: &State, task: &Task, now: Timestamp) -> Proposal {
        // Out of the index at once: its event, or the refusal, says what became of it.
        match session_of(task) {
            Some(key) => self.expect(state, key, task.id()),
            None => self.drop_out(state, task.id(), now),
        }
        let command = Command::ReplayTask { task: task.id(), superseded_by: None };
        Proposal::by_hub(Some(task.namespace.clone()), command)
    }

    /// Forgets wards in which nobody waits and whose bucket lacks nothing.
    pub(super) fn forget_full(&mut self, now: Timestamp) {
        self.wards.retain(|_, ward| !ward.is_idle() || !ward.bucket.is_full(now));
    }

    pub(super) fn end_graces(&mut self, state: &State, now: Timestamp) {
        while let Some((until, id)) = self.deferred.first().copied().filter(|(until, _)| *until <= now) {
            self.deferred.remove(&(until, id));
            let since = self.known_mut(id).map(|known| {
                known.until = None;
                known.since
            });
            if let (Some(since), Some(task)) = (since, state.task(id)) {
                self.wait(state, task, (since, id), now);
            }
        }
    }

    /// Somebody proposes to send that task back: until that is decided its session waits.
    pub(super) fn expect(&mut self, state: &State, key: SessionKey, id: ReachId) {
        self.stand_back(id);
        let change = self.sessions.ask(key, id);
        self.follow(state, change, state.at());
    }

    /// A plan is found to have left that task alone.
    pub(super) fn left_alone(&mut self, state: &State, id: ReachId) {
        state.task(id).into_iter().for_each(|task| self.sessions.left_alone(state, task));
    }

    fn decided(&mut self, state: &State, id: ReachId, now: Timestamp) {
        let change = self.sessions.decided(id);
        self.follow(state, change, now);
    }

    fn reconsider(&mut self, state: &State, id: ReachId, now: Timestamp) {
        let change = self.sessions.look_at(state, id);
        self.follow(state, change, now);
    }

    pub(super) fn refused(&mut self, state: &State, proposal: &Proposal) {
        if let Command::ReplayTask { task, .. } = proposal.command {
            // The token stays spent, so a task that is refused again and again costs no more than the pace allows.
            self.look_at(state, task, state.at());
            if let Some((key, place)) = self.held.get(&task).and_then(|known| known.session.as_ref()) {
                self.sessions.was_asked(key, (*place, task));
            }
            self.decided(state, task, state.at());
        } else if let Command::ReplayItem(item) = &proposal.command {
            self.decided(state, item.task, state.at());
        }
    }

    /// When the sweep has a token for an orphan that waits in that namespace.
    pub(super) fn token_at(&self, name: &Namespace, now: Timestamp) -> Option<Timestamp> {
        self.wards.get(name).filter(|ward| !ward.waiting.is_empty()).map(|ward| ward.bucket.next_at(now))
    }

    /// When the next question of a namespace may be asked, if there is one.
    pub(super) fn asks_at(&self, name: &Namespace, now: Timestamp) -> Option<Timestamp> {
        self.wards.get(name).filter(|ward| !ward.asks.is_empty()).map(|ward| ward.asking.next_at(now))
    }

    /// When the next grace ends.
    pub(super) fn grace_ends_at(&self) -> Option<Timestamp> {
        self.deferred.first().map(|(until, _)| *until)
    }
}

/// May the sweep bring it back?
fn leave(task: &Task) -> Leave {
    match task.spec.orphan {
        OrphanPolicy::Replay => Leave::Free,
        OrphanPolicy::Hold => Leave::Held(Ask::IfWaitedFor),
    }
}

/// Since when it is an orphan, and whether the sweep may bring it back. One that is superseded stands in no line: its
/// session has gone on without it.
fn stray(state: &State, task: &Task) -> Option<(Timestamp, Leave)> {
    match task.status {
        Status::Orphaned { since, .. } if state.held(task.id()).is_none() => Some((since, leave(task))),
        Status::Orphaned { .. }
        | Status::AwaitingApproval
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
    }
}

/// Until when the task's agent, just returned, may still name it as held.
fn grace(state: &State, task: &Task) -> Option<Timestamp> {
    let lease = task.status.lease()?;
    let key = AgentKey { namespace: task.namespace.clone(), agent_id: lease.agent.clone() };
    let agent = state.agent(&key)?;
    agent.returned_at.map(|at| at.after(agent.declaration.heartbeat_interval))
}
