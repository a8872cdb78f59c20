//! What readers may see: durable state and durable history, wherever it lies.
//!
//! A live task is in the state, a finished one in the store's rows; a reader asks here and need not know which.

use std::sync::Arc;

use crate::ledger::facts;
use crate::ledger::handle::{Ledger, Receipt, Unavailable};
use crate::ledger::ids::{BatchId, CallbackId, Namespace, ReachId, ReplayId, Seq};
use crate::ledger::machine::batch::Batch;
use crate::ledger::machine::command::CallbackRow;
use crate::ledger::machine::replay::Replay;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::{KeyBinding, Kin};
use crate::ledger::store::{Body, BodyKey, FinishedFilter, ReadError, StoredEvent};

impl From<ReadError> for Unavailable {
    fn from(error: ReadError) -> Self {
        Self::Unreadable(error.to_string())
    }
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

    /// What a task was made of, and what was made of it (semantics 40).
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub async fn kin(&self, task: &Task) -> Result<Kin, Unavailable> {
        let id = task.id();
        let known = self.ask(move |state| (state.kin(id), state.redriven_as(id), state.task(id).is_some())).await?;
        let (kin, redriven_as, in_memory) = known;
        if in_memory {
            return Ok(kin);
        }
        let (task, ended_by) = (task.clone(), task.ended_by);
        self.on_disk(move |store| {
            let later: Vec<Seq> = task.seqs.iter().copied().filter(|seq| Some(*seq) > ended_by).collect();
            let on_disk = facts::redriven_as(id, &later, store)?;
            Ok(Kin { redrive_of: facts::redrive_of(&task, store)?, redriven_as: redriven_as.or(on_disk) })
        })
        .await
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
        read: impl FnOnce(&dyn crate::ledger::store::Store) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, Unavailable> {
        let store = Arc::clone(&self.store);
        let read = tokio::task::spawn_blocking(move || read(&*store));
        Ok(read.await.map_err(|error| Unavailable::Unreadable(error.to_string()))??)
    }
}
