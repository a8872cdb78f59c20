//! The derived rows and bodies in the keyspaces: written with their commit, read through snapshots.
//!
//! Why snapshots: a plain read can see half of a batch that is being applied (an index without its row); a snapshot
//! never does.

use ::fjall::{Keyspace, OwnedWriteBatch, PersistMode, Readable as _, Snapshot};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::chunk::{self, MAX_VALUE};
use super::codec::{CodecError, decode_row, encode_row};
use super::fjall_log::Spaces;
use super::fjall_open::SUCCESSES;
use super::memory::matches;
use super::{Body, BodyKey, Commit, FinishedFilter, Kept, Newest, ReadError, row};
use crate::ledger::ids::{BatchId, CallbackId, Namespace, ReachId, ReplayId, Seq, SessionId};
use crate::ledger::machine::KeyBinding;
use crate::ledger::machine::batch::Batch;
use crate::ledger::machine::command::CallbackRow;
use crate::ledger::machine::replay::Replay;
use crate::ledger::machine::success::Success;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::Text;

impl Spaces {
    /// Fills one batch with everything of a commit.
    ///
    /// # Errors
    /// [`CodecError`] when something of it can't be encoded; then nothing may be written.
    pub(super) fn fill(&self, batch: &mut OwnedWriteBatch, commit: &Commit) -> Result<(), CodecError> {
        let spaces = self;
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
        for ended in &commit.rows.replays {
            put_row(batch, &spaces.rows, &row::replay(ended.id), &**ended)?;
            let mut listed = row::replays_of(&ended.namespace);
            listed.extend_from_slice(&ended.id.0);
            put(batch, &spaces.rows, &listed, &[]);
        }
        for (id, settled) in &commit.rows.callbacks {
            put_row(batch, &spaces.rows, &row::callback(*id), settled)?;
            let mut listed = row::callbacks_of(&settled.namespace);
            listed.extend_from_slice(&id.0);
            put(batch, &spaces.rows, &listed, &[]);
        }
        for (namespace, session, success) in &commit.rows.successes {
            let key = row::success(namespace, session);
            // Commits are written one after the other, so nobody else changes it meanwhile.
            let known: Option<Success> = self.row(&spaces.db.snapshot(), &spaces.rows, &key).map_err(unreadable)?;
            if known.is_none_or(|known| success.place > known.place) {
                put_row(batch, &spaces.rows, &key, success)?;
            }
        }
        for (key, body) in &commit.bodies {
            let head = row::body_head(body);
            row::cut(&row::body(key), &[&head, &body.bytes], |key, part| put(batch, &spaces.body, &key, part))?;
        }
        Ok(())
    }

    /// An empty batch with room for a commit; it is durable when `commit` returns.
    pub(super) fn batch_for(&self, commit: &Commit) -> OwnedWriteBatch {
        let rows = &commit.rows;
        let keys = commit.frame.len() / 1_024 + rows.finished.len() * 5 + rows.keys.len() + commit.bodies.len() + 8;
        OwnedWriteBatch::with_capacity(self.db.clone(), keys).durability(Some(PersistMode::SyncData))
    }

    pub(super) fn finished(&self, task: ReachId) -> Result<Option<Task>, ReadError> {
        self.row(&self.db.snapshot(), &self.done, &row::done(task))
    }

    pub(super) fn after(&self, task: ReachId) -> Result<Vec<Seq>, ReadError> {
        let snapshot = self.db.snapshot();
        let prefix = row::after_prefix(task);
        let mut seqs = Vec::new();
        for guard in snapshot.prefix(&self.done, &prefix) {
            let key = guard.key().map_err(|error| read_failed(&error))?;
            let seq = super::codec::be_u64(&key, prefix.len()).map_err(|error| ReadError::Io(error.to_string()))?;
            seqs.push(Seq(seq));
        }
        Ok(seqs)
    }

    pub(super) fn list_finished(
        &self,
        namespace: &Namespace,
        filter: &FinishedFilter,
        before: Option<ReachId>,
        limit: usize,
    ) -> Result<Vec<Task>, ReadError> {
        let snapshot = self.db.snapshot();
        let prefix = row::index_for(namespace, filter);
        let mut end = prefix.clone();
        // Ids are 16 bytes: one byte more than all of them ends the range when there is no `before`.
        match before {
            Some(id) => end.extend_from_slice(&id.0),
            None => end.extend_from_slice(&[0xff; 17]),
        }
        let mut found = Vec::new();
        for guard in snapshot.range(&self.by, prefix..end).rev() {
            if found.len() >= limit {
                break;
            }
            let key = guard.key().map_err(|error| read_failed(&error))?;
            let id = ReachId(row::id_at_end(&key).map_err(|error| ReadError::Io(error.to_string()))?);
            let task: Option<Task> = self.row(&snapshot, &self.done, &row::done(id))?;
            let task = task.ok_or_else(|| ReadError::Io(format!("the row of {id} is missing, its index is there")))?;
            if task.namespace == *namespace && matches(filter, &task) {
                found.push(task);
            }
        }
        Ok(found)
    }

    pub(super) fn newest_success(&self, namespace: &Namespace, session: &SessionId) -> Result<Newest, ReadError> {
        let success = self.row(&self.db.snapshot(), &self.rows, &row::success(namespace, session))?;
        let always = self.rows.contains_key(row::meta(SUCCESSES)).map_err(|error| read_failed(&error))?;
        Ok(Newest { success, kept: if always { Kept::Always } else { Kept::Lately } })
    }

    pub(super) fn key(&self, namespace: &Namespace, key: &Text) -> Result<Option<KeyBinding>, ReadError> {
        self.row(&self.db.snapshot(), &self.keys, &row::key(namespace, key))
    }

    pub(super) fn batch(&self, batch: BatchId) -> Result<Option<Batch>, ReadError> {
        self.row(&self.db.snapshot(), &self.rows, &row::batch(batch))
    }

    pub(super) fn replay(&self, replay: ReplayId) -> Result<Option<Replay>, ReadError> {
        self.row(&self.db.snapshot(), &self.rows, &row::replay(replay))
    }

    pub(super) fn list_replays(
        &self,
        namespace: &Namespace,
        before: Option<ReplayId>,
        limit: usize,
    ) -> Result<Vec<Replay>, ReadError> {
        let snapshot = self.db.snapshot();
        let (start, mut end) = (row::replays_of(namespace), row::replays_of(namespace));
        match before {
            Some(id) => end.extend_from_slice(&id.0),
            None => end.extend_from_slice(&[0xff; 17]),
        }
        let mut found = Vec::new();
        for guard in snapshot.range(&self.rows, start..end).rev().take(limit) {
            let key = guard.key().map_err(|error| read_failed(&error))?;
            let id = ReplayId(row::id_at_end(&key).map_err(|error| ReadError::Io(error.to_string()))?);
            found.extend(self.row(&snapshot, &self.rows, &row::replay(id))?);
        }
        Ok(found)
    }

    pub(super) fn callback(&self, callback: CallbackId) -> Result<Option<CallbackRow>, ReadError> {
        self.row(&self.db.snapshot(), &self.rows, &row::callback(callback))
    }

    pub(super) fn list_callbacks(
        &self,
        namespace: &Namespace,
        after: Option<CallbackId>,
        limit: usize,
    ) -> Result<Vec<(CallbackId, CallbackRow)>, ReadError> {
        let snapshot = self.db.snapshot();
        let (mut start, mut end) = (row::callbacks_of(namespace), row::callbacks_of(namespace));
        if let Some(after) = after {
            start.extend_from_slice(&after.0);
            start.push(0);
        }
        end.extend_from_slice(&[0xff; 17]);
        let mut found = Vec::new();
        for guard in snapshot.range(&self.rows, start..end).take(limit) {
            let key = guard.key().map_err(|error| read_failed(&error))?;
            let id = CallbackId(row::id_at_end(&key).map_err(|error| ReadError::Io(error.to_string()))?);
            let settled = self.row(&snapshot, &self.rows, &row::callback(id))?;
            found.extend(settled.map(|settled| (id, settled)));
        }
        Ok(found)
    }

    pub(super) fn body(&self, key: &BodyKey) -> Result<Option<Body>, ReadError> {
        let Some(value) = self.joined(&self.db.snapshot(), &self.body, &row::body(key))? else {
            return Ok(None);
        };
        row::parse_body(&value).map(Some).map_err(|error| ReadError::Io(error.to_string()))
    }

    /// Was the loss of this body accepted?
    pub(super) fn is_given_up(&self, key: &BodyKey) -> Result<bool, ReadError> {
        self.rows.contains_key(row::given_up(key)).map_err(|error| read_failed(&error))
    }

    pub(super) fn register(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        let value = self.rows.get(row::register(name)).map_err(|error| read_failed(&error))?;
        Ok(value.map(|value| value.to_vec()))
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

pub(super) fn put(batch: &mut OwnedWriteBatch, space: &Keyspace, key: &[u8], value: &[u8]) {
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

/// What a commit must know of the disk and can't read keeps it from being written.
fn unreadable(error: ReadError) -> CodecError {
    CodecError::Decode(error.to_string())
}

fn read_failed(error: &::fjall::Error) -> ReadError {
    ReadError::Io(error.to_string())
}
