//! The ledger on disk: the embedded store of a hub.
//!
//! Why an engine and not a bare file: rows, bodies and the log must become durable in one stroke. One batch a commit
//! goes over all keyspaces and is flushed once with `fdatasync`: the engine preallocates its journal, so there is no
//! file length to make durable with it and a full `fsync` would only cost a metadata commit more.
//!
//! What the engine can't promise is guarded here: the high-water mark beside it (`tip.rs`), no value above 2 KiB
//! (`chunk.rs`, `row.rs`), creation in a draft folder, the chain and density of the log checked at every start
//! (`fjall_open.rs`), nothing deleted while running, reads through snapshots so that no half-applied batch is seen.
//!
//! ```text
//! data/ledger/     the engine's folder         data/tip      the high-water mark
//! data/snapshots/  images of the state         data/keys     the key file
//! data/lock        held while a hub runs       data/reserve  blocks for a full disk
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::fjall::{OwnedWriteBatch, PersistMode};

use super::chunk::MAX_VALUE;
use super::fjall_keeper::Keeper;
use super::fjall_log::Spaces;
pub use super::fjall_open::{OpenError, Options};
use super::fjall_rows::put;
use super::tip::Tip;
use super::{
    AppendError, Body, BodyKey, Commit, FinishedFilter, Head, Newest, ReadError, Space, Store, StoredEvent, row,
    snapfile, space,
};
use crate::ledger::ids::{BatchId, CallbackId, Digest, Namespace, ReachId, ReplayId, Seq, SessionId};
use crate::ledger::machine::KeyBinding;
use crate::ledger::machine::batch::Batch;
use crate::ledger::machine::command::CallbackRow;
use crate::ledger::machine::replay::Replay;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::Text;

/// The ledger of one data folder; the folder stays locked while this lives.
pub struct FjallStore {
    data: PathBuf,
    head: Mutex<Head>,
    writer: Mutex<Tip>,
    keeper: Keeper,
    spaces: Spaces,
    /// Last, so that the folder is free only when the engine has let go of it.
    _lock: std::fs::File,
}

impl std::fmt::Debug for FjallStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallStore").field("data", &self.data).finish_non_exhaustive()
    }
}

impl FjallStore {
    /// Opens the ledger of a data folder, or makes one in an empty folder.
    ///
    /// # Errors
    /// [`OpenError`], with what to do: the folder is in use, was written by a newer program, has lost acknowledged
    /// events or is damaged.
    pub fn open(data: &Path, options: &Options) -> Result<Self, OpenError> {
        let opened = super::fjall_open::open(data, options)?;
        let keeper = Keeper::start(&opened, data, options).map_err(|error| OpenError::io("start for", data, error))?;
        Ok(Self {
            data: data.to_owned(),
            head: Mutex::new(opened.head),
            writer: Mutex::new(opened.tip),
            keeper,
            spaces: opened.spaces,
            _lock: opened.lock,
        })
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    #[cfg(test)]
    pub(super) const fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    fn lock_writer(&self) -> Result<MutexGuard<'_, Tip>, AppendError> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match self.keeper.failure() {
            Some(why) => Err(AppendError::Unknown(format!("failed before: {why}"))),
            None => Ok(writer),
        }
    }

    fn fail(&self, why: impl std::fmt::Display) -> AppendError {
        let why = why.to_string();
        self.keeper.fail(&why);
        AppendError::Unknown(why)
    }
}

impl Store for FjallStore {
    fn head(&self) -> Head {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, commit: &Commit) -> Result<(), AppendError> {
        let mut tip = self.lock_writer()?;
        let head = self.head();
        if (head.seq, head.hash) != (commit.expected.seq, commit.expected.hash) {
            return Err(AppendError::Conflict { head });
        }
        let mut batch = self.spaces.batch_for(commit);
        self.spaces.fill(&mut batch, commit).map_err(|error| AppendError::Refused(error.to_string()))?;
        batch.commit().map_err(|error| self.fail(error))?;
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = commit.head;
        tip.mark(&commit.head).map_err(|error| self.fail(format!("the high-water mark: {error}")))?;
        self.keeper.marked();
        Ok(())
    }

    fn events(&self, after: Seq, limit: usize) -> Result<Vec<StoredEvent>, ReadError> {
        self.spaces.events(&self.head(), after, limit)
    }

    fn event(&self, seq: Seq) -> Result<Option<StoredEvent>, ReadError> {
        let Some(before) = seq.0.checked_sub(1) else { return Ok(None) };
        Ok(self.spaces.events(&self.head(), Seq(before), 1)?.pop())
    }

    fn finished(&self, task: ReachId) -> Result<Option<Task>, ReadError> {
        self.spaces.finished(task)
    }

    fn after(&self, task: ReachId) -> Result<Vec<Seq>, ReadError> {
        self.spaces.after(task)
    }

    fn list_finished(
        &self,
        namespace: &Namespace,
        filter: &FinishedFilter,
        before: Option<ReachId>,
        limit: usize,
    ) -> Result<Vec<Task>, ReadError> {
        self.spaces.list_finished(namespace, filter, before, limit)
    }

    fn key(&self, namespace: &Namespace, key: &Text) -> Result<Option<KeyBinding>, ReadError> {
        self.spaces.key(namespace, key)
    }

    fn batch(&self, batch: BatchId) -> Result<Option<Batch>, ReadError> {
        self.spaces.batch(batch)
    }

    fn newest_success(&self, namespace: &Namespace, session: &SessionId) -> Result<Newest, ReadError> {
        self.spaces.newest_success(namespace, session)
    }

    fn replay(&self, replay: ReplayId) -> Result<Option<Replay>, ReadError> {
        self.spaces.replay(replay)
    }

    fn list_replays(
        &self,
        namespace: &Namespace,
        before: Option<ReplayId>,
        limit: usize,
    ) -> Result<Vec<Replay>, ReadError> {
        self.spaces.list_replays(namespace, before, limit)
    }

    fn callback(&self, callback: CallbackId) -> Result<Option<CallbackRow>, ReadError> {
        self.spaces.callback(callback)
    }

    fn list_callbacks(
        &self,
        namespace: &Namespace,
        after: Option<CallbackId>,
        limit: usize,
    ) -> Result<Vec<(CallbackId, CallbackRow)>, ReadError> {
        self.spaces.list_callbacks(namespace, after, limit)
    }

    fn body(&self, key: &BodyKey) -> Result<Option<Body>, ReadError> {
        self.spaces.body(key)
    }

    fn put_snapshot(&self, seq: Seq, digest: Digest, bytes: &[u8]) -> Result<(), AppendError> {
        snapfile::put(&self.data, seq, digest, bytes).map_err(|error| AppendError::Unknown(error.to_string()))
    }

    fn snapshots(&self) -> Result<Vec<(Seq, Digest, Vec<u8>)>, ReadError> {
        let files = snapfile::list(&self.data).map_err(|error| ReadError::Io(error.to_string()))?;
        Ok(files.iter().filter_map(|(_, path)| snapfile::read(path).ok()).collect())
    }

    fn register(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        self.spaces.register(name)
    }

    fn swap_register(&self, name: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<(), AppendError> {
        let writer = self.lock_writer()?;
        let held = self.register(name).map_err(|error| AppendError::Refused(error.to_string()))?;
        if held.as_deref() != expected || value.len() > MAX_VALUE {
            return Err(AppendError::Refused(format!(
                "register {name} holds something else, or the value is too long"
            )));
        }
        let mut batch =
            OwnedWriteBatch::with_capacity(self.spaces.db.clone(), 1).durability(Some(PersistMode::SyncData));
        put(&mut batch, &self.spaces.rows, &row::register(name), value);
        batch.commit().map_err(|error| self.fail(error))?;
        drop(writer);
        Ok(())
    }

    fn close(&self) -> Result<(), AppendError> {
        let writer = self.lock_writer()?;
        self.spaces.db.persist(PersistMode::SyncAll).map_err(|error| self.fail(error))?;
        self.keeper.flush().map_err(|error| self.fail(error))?;
        drop(writer);
        Ok(())
    }

    fn space(&self) -> Option<Space> {
        space::space_of(&self.data).ok()
    }
}
