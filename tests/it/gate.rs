//! A store that holds one read of an idempotency key back, so that a test says in which order two calls come.

use std::sync::{Mutex, PoisonError, mpsc};

use agent_reach::ledger::ids::{BatchId, CallbackId, Digest, Namespace, ReachId, ReplayId, Seq, SessionId};
use agent_reach::ledger::machine::KeyBinding;
use agent_reach::ledger::machine::batch::Batch;
use agent_reach::ledger::machine::command::CallbackRow;
use agent_reach::ledger::machine::replay::Replay;
use agent_reach::ledger::machine::task::Task;
use agent_reach::ledger::machine::task::spec::Text;
use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::store::{
    AppendError, Body, BodyKey, Commit, FinishedFilter, Head, Newest, ReadError, Space, Store, StoredEvent,
};
use tokio::sync::oneshot;

/// In memory, but that the first read of one key is answered when the gate is opened, with what was there before.
pub(crate) struct GatedStore {
    inner: MemoryStore,
    key: &'static str,
    held: Mutex<Option<(oneshot::Sender<()>, mpsc::Receiver<()>)>>,
}

/// The gate of such a store. One that is dropped is open.
pub(crate) struct Gate {
    reached: oneshot::Receiver<()>,
    open: mpsc::Sender<()>,
}

impl GatedStore {
    /// A store that holds the first read of that key.
    pub(crate) fn holding(key: &'static str) -> (Self, Gate) {
        let (reach, reached) = oneshot::channel();
        let (open, opened) = mpsc::channel();
        let store = Self { inner: MemoryStore::new(), key, held: Mutex::new(Some((reach, opened))) };
        (store, Gate { reached, open })
    }
}

impl Gate {
    /// Waits until somebody has read the key.
    pub(crate) async fn reached(&mut self) {
        (&mut self.reached).await.unwrap();
    }

    /// Lets that reader have what it read.
    pub(crate) fn open(self) {
        self.open.send(()).unwrap();
    }
}

impl Store for GatedStore {
    fn key(&self, namespace: &Namespace, key: &Text) -> Result<Option<KeyBinding>, ReadError> {
        let found = self.inner.key(namespace, key);
        let held = || self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((reach, opened)) = (**key == *self.key).then(held).flatten() {
            // Errors say that the test is over.
            let _nobody_waits = reach.send(());
            let _gone = opened.recv();
        }
        found
    }

    fn head(&self) -> Head {
        self.inner.head()
    }

    fn append(&self, commit: &Commit) -> Result<(), AppendError> {
        self.inner.append(commit)
    }

    fn events(&self, after: Seq, limit: usize) -> Result<Vec<StoredEvent>, ReadError> {
        self.inner.events(after, limit)
    }

    fn event(&self, seq: Seq) -> Result<Option<StoredEvent>, ReadError> {
        self.inner.event(seq)
    }

    fn finished(&self, task: ReachId) -> Result<Option<Task>, ReadError> {
        self.inner.finished(task)
    }

    fn after(&self, task: ReachId) -> Result<Vec<Seq>, ReadError> {
        self.inner.after(task)
    }

    fn list_finished(
        &self,
        namespace: &Namespace,
        filter: &FinishedFilter,
        before: Option<ReachId>,
        limit: usize,
    ) -> Result<Vec<Task>, ReadError> {
        self.inner.list_finished(namespace, filter, before, limit)
    }

    fn newest_success(&self, namespace: &Namespace, session: &SessionId) -> Result<Newest, ReadError> {
        self.inner.newest_success(namespace, session)
    }

    fn batch(&self, batch: BatchId) -> Result<Option<Batch>, ReadError> {
        self.inner.batch(batch)
    }

    fn replay(&self, replay: ReplayId) -> Result<Option<Replay>, ReadError> {
        self.inner.replay(replay)
    }

    fn list_replays(
        &self,
        namespace: &Namespace,
        before: Option<ReplayId>,
        limit: usize,
    ) -> Result<Vec<Replay>, ReadError> {
        self.inner.list_replays(namespace, before, limit)
    }

    fn callback(&self, callback: CallbackId) -> Result<Option<CallbackRow>, ReadError> {
        self.inner.callback(callback)
    }

    fn list_callbacks(
        &self,
        namespace: &Namespace,
        after: Option<CallbackId>,
        limit: usize,
    ) -> Result<Vec<(CallbackId, CallbackRow)>, ReadError> {
        self.inner.list_callbacks(namespace, after, limit)
    }

    fn body(&self, key: &BodyKey) -> Result<Option<Body>, ReadError> {
        self.inner.body(key)
    }

    fn put_snapshot(&self, seq: Seq, digest: Digest, bytes: &[u8]) -> Result<(), AppendError> {
        self.inner.put_snapshot(seq, digest, bytes)
    }

    fn snapshots(&self) -> Result<Vec<(Seq, Digest, Vec<u8>)>, ReadError> {
        self.inner.snapshots()
    }

    fn register(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        self.inner.register(name)
    }

    fn swap_register(&self, name: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<(), AppendError> {
        self.inner.swap_register(name, expected, value)
    }

    fn close(&self) -> Result<(), AppendError> {
        self.inner.close()
    }

    fn space(&self) -> Option<Space> {
        self.inner.space()
    }
}
