//! What readers may see: durable state and durable history, wherever it lies.
//!
//! A live task is in the state, a finished one in the store's rows; a reader asks here and need not know which.

use std::sync::Arc;

use crate::ledger::facts;
use crate::ledger::handle::{Ledger, Receipt, Unavailable};
use crate::ledger::ids::{BatchId, CallbackId, Namespace, ReachId, ReplayId, Seq, SessionId};
use crate::ledger::last_failure::{LastFailure, Trail};
use crate::ledger::machine::batch::Batch;
use crate::ledger::machine::command::CallbackRow;
use crate::ledger::machine::event::HeldWhy;
use crate::ledger::machine::replay::Replay;
use crate::ledger::machine::success::{Origin, Success};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::{OrphanPolicy, Text};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::{KeyBinding, Kin, State};
use crate::ledger::store::{Body, BodyKey, FinishedFilter, ReadError, Store, StoredEvent};

impl From<ReadError> for Unavailable {
    fn from(error: ReadError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// What is needed of a task that has left memory to find its kin on disk.
struct Remains {
    task: ReachId,
    /// Its second event, which says what it was made of.
    second: Option<Seq>,
    ended_by: Option<Seq>,
    later: Vec<Seq>,
}

impl Remains {
    fn of(task: &Task) -> Self {
        let later = task.seqs.iter().copied().filter(|seq| Some(*seq) > task.ended_by).collect();
        Self { task: task.id(), second: task.seqs.get(1).copied(), ended_by: task.ended_by, later }
    }

    fn kin(mut self, known: Kin, store: &dyn Store) -> Result<Kin, ReadError> {
        let last = self.later.last().copied().max(self.ended_by);
        self.later.extend(store.after(self.task)?.into_iter().filter(|seq| Some(*seq) > last));
        let redriven_as = match known.redriven_as {
            Some(successor) => Some(successor),
            None => facts::redriven_as(self.task, &self.later, store)?,
        };
        Ok(Kin { redrive_of: facts::redrive_of(self.task, self.second, store)?, redriven_as })
    }
}

/// What is known of why an orphan waits for a word.
enum Held {
    Known(Option<HeldWhy>),
    /// Its policy holds it, so nobody asked yet whether its session has gone on without it.
    LookFor {
        session: (Namespace, SessionId),
        place: Seq,
    },
}

impl Held {
    fn of(state: &State, id: ReachId, session: Option<(Namespace, SessionId)>) -> Self {
        let (Some((namespace, session)), None) = (session, state.held(id)) else { return Self::Known(state.held(id)) };
        let Some(origin) = state.origin(id) else { return Self::Known(None) };
        match state.newest_success(&namespace, &session).and_then(|success| facts::newer(success, origin.seq)) {
            Some(by) => Self::Known(Some(HeldWhy::Superseded { by })),
            None => Self::LookFor { session: (namespace, session), place: origin.seq },
        }
    }

    fn known(self) -> Option<HeldWhy> {
        match self {
            Self::Known(why) => why,
            Self::LookFor { .. } => None,
        }
    }

    fn look(self, store: &dyn Store) -> Result<Option<HeldWhy>, ReadError> {
        match self {
            Self::Known(why) => Ok(why),
            Self::LookFor { session: (namespace, session), place } => {
                let by = facts::succeeded_after((&namespace, &session), place, store)?;
                Ok(by.map(|by| HeldWhy::Superseded { by }))
            }
        }
    }
}

/// A task that has a session, to be asked about.
#[derive(Debug, Clone)]
pub struct OfSession {
    /// Which task.
    pub task: ReachId,
    /// Its session.
    pub session: SessionId,
    /// Its submission.
    pub first: Seq,
}

/// The session of an orphan that its policy holds.
fn held_in_session(task: &Task) -> Option<(Namespace, SessionId)> {
    let is_held = task.status.kind() == StatusKind::Orphaned && task.spec.orphan == OrphanPolicy::Hold;
    let session = task.spec.session.clone().filter(|_| is_held)?;
    Some((task.namespace.clone(), session))
}

impl Ledger {
    /// A task, live or finished, with every event's seq.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn task(&self, id: ReachId) -> Result<Option<Task>, Unavailable> {
        if let Some(task) = self.ask(move |state| state.task(id).cloned()).await? {
            return Ok(Some(task));
        }
        self.on_disk(move |store| {
            let Some(mut task) = store.finished(id)? else { return Ok(None) };
            task.seqs.extend(store.after(id)?);
            Ok(Some(task))
        })
        .await
    }

    /// A batch, live or settled.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn batch(&self, id: BatchId) -> Result<Option<Batch>, Unavailable> {
        if let Some(batch) = self.ask(move |state| state.batch(id).cloned()).await? {
            return Ok(Some(batch));
        }
        self.on_disk(move |store| store.batch(id)).await
    }

    /// A replay plan, open or ended.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn replay(&self, id: ReplayId) -> Result<Option<Replay>, Unavailable> {
        if let Some(replay) = self.ask(move |state| state.replay(id).cloned()).await? {
            return Ok(Some(replay));
        }
        self.on_disk(move |store| store.replay(id)).await
    }

    /// Replay plans that have ended, newest first.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer.
    pub async fn ended_replays(
        &self,
        namespace: Namespace,
        before: Option<ReplayId>,
        limit: usize,
    ) -> Result<Vec<Replay>, Unavailable> {
        self.on_disk(move |store| store.list_replays(&namespace, before, limit)).await
    }

    /// Several tasks, live or finished, in order; of a finished one without its later events.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn tasks(&self, ids: Vec<ReachId>) -> Result<Vec<Option<Task>>, Unavailable> {
        let asked = ids.clone();
        let live = move |state: &State| asked.iter().map(|id| state.task(*id).cloned()).collect::<Vec<_>>();
        let mut found = self.ask(live).await?;
        let missing = found.iter().zip(ids).filter(|(task, _)| task.is_none()).map(|(_, id)| id);
        let missing: Vec<ReachId> = missing.collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let rows: Vec<Option<Task>> =
            self.on_disk(move |store| missing.iter().map(|id| store.finished(*id)).collect()).await?;
        for (gap, row) in found.iter_mut().filter(|task| task.is_none()).zip(rows) {
            *gap = row;
        }
        Ok(found)
    }

    /// What a task was made of, and what was made of it (semantics 40).
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn kin(&self, task: &Task) -> Result<Kin, Unavailable> {
        Ok(self.kin_of(std::slice::from_ref(task)).await?.pop().unwrap_or_default())
    }

    /// The same of several tasks at once: one question and one trip to the disk for all. At most a page of tasks.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn kin_of(&self, tasks: &[Task]) -> Result<Vec<Kin>, Unavailable> {
        let ids: Vec<ReachId> = tasks.iter().map(Task::id).collect();
        let known = move |state: &State| {
            let known = |id: &ReachId| {
                let redriven_as = state.redriven_as(*id);
                (Kin { redriven_as, ..state.kin(*id) }, state.task(*id).is_some())
            };
            ids.iter().map(known).collect::<Vec<_>>()
        };
        let known = self.ask(known).await?;
        if known.iter().all(|(_, in_memory)| *in_memory) {
            return Ok(known.into_iter().map(|(kin, _)| kin).collect());
        }
        let gone = |(task, (kin, in_memory)): (&Task, (Kin, bool))| (kin, (!in_memory).then(|| Remains::of(task)));
        let all: Vec<_> = tasks.iter().zip(known).map(gone).collect();
        self.on_disk(move |store| {
            all.into_iter().map(|(kin, remains)| remains.map_or(Ok(kin), |remains| remains.kin(kin, store))).collect()
        })
        .await
    }

    /// Why each of some orphans waits for a word beside its own policy: what a plan would find out at its turn. At most a
    /// page of tasks: one question, and one trip to the disk for all that the policy holds.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn held(&self, tasks: &[Task]) -> Result<Vec<Option<HeldWhy>>, Unavailable> {
        if !tasks.iter().any(|task| task.status.kind() == StatusKind::Orphaned) {
            return Ok(vec![None; tasks.len()]);
        }
        let asked: Vec<_> = tasks.iter().map(|task| (task.id(), held_in_session(task))).collect();
        let known = move |state: &State| asked.into_iter().map(|(id, of)| Held::of(state, id, of)).collect::<Vec<_>>();
        let known = self.ask(known).await?;
        if !known.iter().any(|held| matches!(held, Held::LookFor { .. })) {
            return Ok(known.into_iter().map(Held::known).collect());
        }
        self.on_disk(move |store| known.into_iter().map(|held| held.look(store)).collect()).await
    }

    /// A newer task of the session of an ended one that has succeeded: for that a redrive is refused (R-REC-3).
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn superseded_by(&self, task: &Task) -> Result<Option<ReachId>, Unavailable> {
        let Some(session) = task.spec.session.clone() else { return Ok(None) };
        let first = task.seqs.first().copied().unwrap_or_default();
        let asked = vec![OfSession { task: task.id(), session, first }];
        Ok(self.superseded(&task.namespace, asked).await?.into_iter().next().flatten())
    }

    /// The same of some tasks of a namespace, in their order: one question and one trip to the disk for all of them, so at
    /// most a page.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn superseded(
        &self,
        namespace: &Namespace,
        asked: Vec<OfSession>,
    ) -> Result<Vec<Option<ReachId>>, Unavailable> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let (asked, namespace) = (Arc::new(asked), namespace.clone());
        let (all, of) = (Arc::clone(&asked), namespace.clone());
        let in_memory = move |state: &State| {
            let known = |one: &OfSession| (state.origin(one.task), state.newest_success(&of, &one.session));
            all.iter().map(known).collect::<Vec<_>>()
        };
        let known = self.ask(in_memory).await?;
        self.on_disk(move |store| {
            let look = |(one, (origin, newest)): (&OfSession, (Option<Origin>, Option<Success>))| {
                // What memory knows it has said.
                let known = |origin| Ok(Some(origin));
                let origin = origin.map_or_else(|| facts::origin(one.task, &State::default(), store), known)?;
                let place = origin.map_or(one.first, |origin| origin.seq);
                match newest.and_then(|success| facts::newer(success, place)) {
                    Some(by) => Ok(Some(by)),
                    None => facts::succeeded_after((&namespace, &one.session), place, store),
                }
            };
            asked.iter().zip(known).map(look).collect()
        })
        .await
    }

    /// The failures of last attempts, in the order of their trails: one trip to the disk for all. At most a page of them.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer.
    pub async fn last_failures(&self, trails: Vec<Trail>) -> Result<Vec<Option<LastFailure>>, Unavailable> {
        if trails.iter().all(Trail::is_empty) {
            return Ok(vec![None; trails.len()]);
        }
        self.on_disk(move |store| trails.iter().map(|trail| trail.followed(store)).collect()).await
    }

    /// What an idempotency key is bound to, live or on disk; the caller compares `until`.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn key(&self, namespace: Namespace, key: Text) -> Result<Option<KeyBinding>, Unavailable> {
        let (of, named) = (namespace.clone(), key.clone());
        if let Some(binding) = self.ask(move |state| state.key(&of, &named).cloned()).await? {
            return Ok(Some(binding));
        }
        self.on_disk(move |store| store.key(&namespace, &key)).await
    }

    /// The events at those seqs, in that order.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer, or one is missing.
    pub async fn events_at(&self, seqs: Vec<Seq>) -> Result<Vec<StoredEvent>, Unavailable> {
        self.on_disk(move |store| {
            seqs.into_iter()
                .map(|seq| {
                    store.event(seq)?.ok_or_else(|| ReadError::Damaged {
                        seq,
                        last_good: Seq(seq.0.saturating_sub(1)),
                        what: "the event is missing".to_owned(),
                    })
                })
                .collect()
        })
        .await
    }

    /// At most `limit` durable events after `after`.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer.
    pub async fn events_after(&self, after: Seq, limit: usize) -> Result<Vec<StoredEvent>, Unavailable> {
        self.on_disk(move |store| store.events(after, limit)).await
    }

    /// Finished tasks, newest first.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer.
    pub async fn finished(
        &self,
        namespace: Namespace,
        filter: FinishedFilter,
        before: Option<ReachId>,
        limit: usize,
    ) -> Result<Vec<Task>, Unavailable> {
        self.on_disk(move |store| store.list_finished(&namespace, &filter, before, limit)).await
    }

    /// Settled callbacks that were not delivered, by id.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer.
    pub async fn settled_callbacks(
        &self,
        namespace: Namespace,
        after: Option<CallbackId>,
        limit: usize,
    ) -> Result<Vec<(CallbackId, CallbackRow)>, Unavailable> {
        self.on_disk(move |store| store.list_callbacks(&namespace, after, limit)).await
    }

    /// One of them.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer.
    pub async fn settled_callback(&self, id: CallbackId) -> Result<Option<CallbackRow>, Unavailable> {
        self.on_disk(move |store| store.callback(id)).await
    }

    /// A body, whole.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer.
    pub async fn body(&self, key: BodyKey) -> Result<Option<Body>, Unavailable> {
        self.on_disk(move |store| store.body(&key)).await
    }

    /// Several bodies in one trip: one answer a key, in order. A payload that was stored a moment ago needs no trip.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer.
    pub async fn bodies(&self, keys: Vec<BodyKey>) -> Result<Vec<Option<Body>>, Unavailable> {
        let mut found = self.fresh.take(&keys);
        let missing: Vec<BodyKey> =
            keys.into_iter().zip(&found).filter(|(_, body)| body.is_none()).map(|(key, _)| key).collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let read: Vec<Option<Body>> =
            self.on_disk(move |store| missing.iter().map(|key| store.body(key)).collect()).await?;
        for (gap, body) in found.iter_mut().filter(|body| body.is_none()).zip(read) {
            *gap = body;
        }
        Ok(found)
    }

    /// The receipt of an event of long ago.
    ///
    /// # Errors
    /// [`Unavailable`] when the disk does not answer.
    pub async fn receipt(&self, seq: Seq) -> Result<Option<Receipt>, Unavailable> {
        self.on_disk(move |store| Ok(store.event(seq)?.map(|event| Receipt { seq, hash: event.hash() }))).await
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, Unavailable> {
        let store = Arc::clone(&self.store);
        let read = tokio::task::spawn_blocking(move || read(&*store));
        Ok(read.await.map_err(|error| Unavailable::Unreadable(error.to_string()))??)
    }
}
