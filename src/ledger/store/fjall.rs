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

use ::fjall::{Keyspace, OwnedWriteBatch, PersistMode, Readable as _, Snapshot};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::chunk::{self, MAX_VALUE};
use super::codec::{CodecError, decode_row, encode_row};
use super::fjall_keeper::Keeper;
use super::fjall_log::Spaces;
pub use super::fjall_open::{OpenError, Options};
use super::memory::matches;
use super::tip::Tip;
use super::{
    AppendError, Body, BodyKey, Commit, FinishedFilter, Head, ReadError, Space, Store, StoredEvent, row, snapfile,
    space,
};
use crate::ledger::ids::{BatchId, CallbackId, Digest, Namespace, ReachId, Seq};
use crate::ledger::machine::KeyBinding;
use crate::ledger::machine::batch::Batch;
use crate::ledger::machine::command::CallbackRow;
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

    pub(super) const fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    fn fill(&self, batch: &mut OwnedWriteBatch, commit: &Commit) -> Result<(), CodecError> {
        let spaces = &self.spaces;
        chunk::cut(commit, |key, value| put(batch, &spaces.log, &key, value))?;
        for task in &commit.rows.finished {
            put_row(batch, &spaces.done, &row::done(task.id()), task)?;
            row::indexes(task).for_each(|key| put(batch, &spaces.by, &key, &[]));
        }
        for (task, seq) in &commit.rows.after {
            put(batch, &spaces.done, &row::after(*task, *seq), &[]);
        }
        for (namespace, key, binding) in &commit.rows.keys {
            put_row(batch, &spaces.keys, &row::key(namespace, key), binding)?;
        }
        for settled in &commit.rows.batches {
            put_row(batch, &spaces.rows, &row::batch(settled.id), settled)?;
        }
        for (id, settled) in &commit.rows.callbacks {
            put_row(batch, &spaces.rows, &row::callback(*id), settled)?;
            let mut listed = row::callbacks_of(&settled.namespace);
            listed.extend_from_slice(&id.0);
            put(batch, &spaces.rows, &listed, &[]);
        }
        for (key, body) in &commit.bodies {
            let head = row::body_head(body);
            row::cut(&row::body(key), &[&head, &body.bytes], |key, part| put(batch, &spaces.body, &key, part))?;
        }
        Ok(())
    }

    fn batch_for(&self, commit: &Commit) -> OwnedWriteBatch {
        let rows = &commit.rows;
        let keys = commit.frame.len() / 1_024 + rows.finished.len() * 5 + rows.keys.len() + commit.bodies.len() + 8;
        OwnedWriteBatch::with_capacity(self.spaces.db.clone(), keys).durability(Some(PersistMode::SyncData))
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

    fn joined(&self, snapshot: &Snapshot, space: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        row::join(key, |part| snapshot.get(space, part).map_err(RowError::Engine)).map_err(|error| match error {
            RowError::Engine(error) => ReadError::Io(error.to_string()),
            RowError::Codec(error) => ReadError::Io(format!("a row of {} is damaged: {error}", space.name())),
        })
    }

    fn row<T: DeserializeOwned>(
        &self,
        snapshot: &Snapshot,
        space: &Keyspace,
        key: &[u8],
    ) -> Result<Option<T>, ReadError> {
        let Some(bytes) = self.joined(snapshot, space, key)? else { return Ok(None) };
        let damaged = |error| ReadError::Io(format!("a row of {} is damaged: {error}", space.name()));
        decode_row(&bytes).map(Some).map_err(damaged)
    }
}

enum RowError {
    Engine(::fjall::Error),
    Codec(CodecError),
}

impl From<CodecError> for RowError {
    fn from(error: CodecError) -> Self {
        Self::Codec(error)
    }
}

fn put(batch: &mut OwnedWriteBatch, space: &Keyspace, key: &[u8], value: &[u8]) {
    // Guards the log in release builds too: a longer value can keep the database from opening after a power cut.
    assert!(value.len() <= MAX_VALUE, "no value is above 2 KiB: chunks, rows and bodies are cut before");
    batch.insert(space, key, value);
}

fn put_row<T: Serialize>(
    batch: &mut OwnedWriteBatch,
    space: &Keyspace,
    key: &[u8],
    value: &T,
) -> Result<(), CodecError> {
    let bytes = encode_row(value)?;
    row::cut(key, &[&bytes], |key, part| put(batch, space, &key, part))
}

fn read_failed(error: &::fjall::Error) -> ReadError {
    ReadError::Io(error.to_string())
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
        let mut batch = self.batch_for(commit);
        self.fill(&mut batch, commit).map_err(|error| AppendError::Refused(error.to_string()))?;
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
        self.row(&self.spaces.db.snapshot(), &self.spaces.done, &row::done(task))
    }

    fn after(&self, task: ReachId) -> Result<Vec<Seq>, ReadError> {
        let snapshot = self.spaces.db.snapshot();
        let prefix = row::after_prefix(task);
        let mut seqs = Vec::new();
        for guard in snapshot.prefix(&self.spaces.done, &prefix) {
            let key = guard.key().map_err(|error| read_failed(&error))?;
            let seq = super::codec::be_u64(&key, prefix.len()).map_err(|error| ReadError::Io(error.to_string()))?;
            seqs.push(Seq(seq));
        }
        Ok(seqs)
    }

    fn list_finished(
        &self,
        namespace: &Namespace,
        filter: &FinishedFilter,
        before: Option<ReachId>,
        limit: usize,
    ) -> Result<Vec<Task>, ReadError> {
        let snapshot = self.spaces.db.snapshot();
        let prefix = row::index_for(namespace, filter);
        let mut end = prefix.clone();
        // Ids are 16 bytes: one byte more than all of them ends the range when there is no `before`.
        match before {
            Some(id) => end.extend_from_slice(&id.0),
            None => end.extend_from_slice(&[0xff; 17]),
        }
        let mut found = Vec::new();
        for guard in snapshot.range(&self.spaces.by, prefix..end).rev() {
            if found.len() >= limit {
                break;
            }
            let key = guard.key().map_err(|error| read_failed(&error))?;
            let id = ReachId(row::id_at_end(&key).map_err(|error| ReadError::Io(error.to_string()))?);
            let task: Option<Task> = self.row(&snapshot, &self.spaces.done, &row::done(id))?;
            let task = task.ok_or_else(|| ReadError::Io(format!("the row of {id} is missing, its index is there")))?;
            if task.namespace == *namespace && matches(filter, &task) {
                found.push(task);
            }
        }
        Ok(found)
    }

    fn key(&self, namespace: &Namespace, key: &Text) -> Result<Option<KeyBinding>, ReadError> {
        self.row(&self.spaces.db.snapshot(), &self.spaces.keys, &row::key(namespace, key))
    }

    fn batch(&self, batch: BatchId) -> Result<Option<Batch>, ReadError> {
        self.row(&self.spaces.db.snapshot(), &self.spaces.rows, &row::batch(batch))
    }

    fn callback(&self, callback: CallbackId) -> Result<Option<CallbackRow>, ReadError> {
        self.row(&self.spaces.db.snapshot(), &self.spaces.rows, &row::callback(callback))
    }

    fn list_callbacks(
        &self,
        namespace: &Namespace,
        after: Option<CallbackId>,
        limit: usize,
    ) -> Result<Vec<(CallbackId, CallbackRow)>, ReadError> {
        let snapshot = self.spaces.db.snapshot();
        let (mut start, mut end) = (row::callbacks_of(namespace), row::callbacks_of(namespace));
        if let Some(after) = after {
            start.extend_from_slice(&after.0);
            start.push(0);
        }
        end.extend_from_slice(&[0xff; 17]);
        let mut found = Vec::new();
        for guard in snapshot.range(&self.spaces.rows, start..end).take(limit) {
            let key = guard.key().map_err(|error| read_failed(&error))?;
            let id = CallbackId(row::id_at_end(&key).map_err(|error| ReadError::Io(error.to_string()))?);
            let settled = self.row(&snapshot, &self.spaces.rows, &row::callback(id))?;
            found.extend(settled.map(|settled| (id, settled)));
        }
        Ok(found)
    }

    fn body(&self, key: &BodyKey) -> Result<Option<Body>, ReadError> {
        let Some(value) = self.joined(&self.spaces.db.snapshot(), &self.spaces.body, &row::body(key))? else {
            return Ok(None);
        };
        row::parse_body(&value).map(Some).map_err(|error| ReadError::Io(error.to_string()))
    }

    fn put_snapshot(&self, seq: Seq, digest: Digest, bytes: &[u8]) -> Result<(), AppendError> {
        snapfile::put(&self.data, seq, digest, bytes).map_err(|error| AppendError::Unknown(error.to_string()))
    }

    fn snapshots(&self) -> Result<Vec<(Seq, Digest, Vec<u8>)>, ReadError> {
        let files = snapfile::list(&self.data).map_err(|error| ReadError::Io(error.to_string()))?;
        Ok(files.iter().filter_map(|(_, path)| snapfile::read(path).ok()).collect())
    }

    fn register(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        let value = self.spaces.rows.get(row::register(name)).map_err(|error| read_failed(&error))?;
        Ok(value.map(|value| value.to_vec()))
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
