//! The disk, behind one trait (seam 2).
//!
//! One commit is one frame: version, boot, first seq, count and the hash of the frame before it. Rows and bodies are
//! durable with it or before it. A store keeps the log, the rows of what has ended, bodies by task, snapshots and a
//! small register. It never decides anything.
//!
//! | file | holds |
//! | --- | --- |
//! | [`codec`], [`block`] | events, rows and commits as bytes |
//! | [`memory`] | a store without a disk, with faults on demand |
//! | [`fjall`] and `fjall_*` | the store of a hub, and what it checks before it believes a folder |
//! | [`chunk`], `row.rs` | how commits, rows and bodies become keys and values |
//! | [`tip`], [`space`], [`keyfile`], [`snapfile`] | the files beside the database |
//! | [`place`] | how any file takes its place |
//! | [`snapshot`] | the state as a snapshot |
//! | [`verify`] | everything checked offline, and the way on after a loss |
//! | `contract.rs` | the tests that every store must pass |

pub mod block;
pub mod chunk;
pub mod codec;
#[cfg(test)]
pub(crate) mod contract;
mod copy;
pub mod fjall;
#[cfg(test)]
mod fjall_damage;
#[cfg(test)]
mod fjall_flips;
#[cfg(test)]
mod fjall_guards;
mod fjall_journal;
mod fjall_keeper;
mod fjall_log;
mod fjall_open;
mod fjall_repair;
mod fjall_rows;
mod fjall_salvage;
mod fjall_tables;
mod fjall_verify;
pub mod keyfile;
mod lifted;
pub mod memory;
pub mod place;
mod row;
pub mod snapfile;
pub mod snapshot;
pub mod space;
pub mod tip;
pub mod verify;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{BatchId, Boot, CallbackId, Digest, Lineage, Namespace, ReachId, ReplayId, Seq, SessionId};
use crate::ledger::machine::KeyBinding;
use crate::ledger::machine::batch::Batch;
use crate::ledger::machine::command::CallbackRow;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::replay::Replay;
use crate::ledger::machine::success::Success;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::Timestamp;

/// The engine's folder in the data folder.
pub const LEDGER_FOLDER: &str = "ledger";
/// Version of the layout of a data folder; a folder of a newer one is refused.
pub const FORMAT_VERSION: u32 = 1;

/// Which body of a task (R-AUD-3). The order is the key order in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BodyKind {
    /// The submitted payload; attempt 0.
    Payload,
    /// An attempt's result.
    Result,
    /// An attempt's error message.
    Error,
    /// An attempt's last progress data.
    Progress,
    /// A cancel or refusal reason; attempt 0.
    Reason,
}

/// Where a body lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodyKey {
    /// A task's own body: never shared, erasable.
    Task {
        /// Whose.
        task: ReachId,
        /// Which.
        kind: BodyKind,
        /// Of which attempt; 0 where it has none.
        attempt: u32,
    },
    /// A JSON Schema or a whole agent declaration, by SHA-256 of its bytes: referenced by events, never erased while so.
    Named(Digest),
}

impl BodyKey {
    /// Where the body lies that an event brings, if it may bring one: a task's own, which the event names, or the
    /// outcomes of a closed batch, which lie under its id.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds name a body; the rest do not")]
    pub fn of_event(event: &EventBody) -> Option<Self> {
        let (task, kind, attempt) = match event {
            EventBody::TaskSubmitted(e) if e.submission.payload.is_some() => {
                (e.submission.reach_id, BodyKind::Payload, 0)
            }
            EventBody::TaskSucceeded(e) if e.result.is_some() => (e.task, BodyKind::Result, e.attempt.0),
            EventBody::TaskProgressed(e) if e.data.is_some() => (e.task, BodyKind::Progress, e.attempt.0),
            EventBody::TaskAttemptFailed(e) if e.failure.message.is_some() => (e.task, BodyKind::Error, e.attempt.0),
            EventBody::TaskFailed(e) if e.failure.message.is_some() => (e.task, BodyKind::Error, e.attempt.0),
            EventBody::TaskDeadLettered(e) if e.failure.message.is_some() => (e.task, BodyKind::Error, e.attempts),
            EventBody::TaskCancelled(e) if e.reason.is_some() => (e.task, BodyKind::Reason, 0),
            EventBody::TaskRefused(e) if e.reason.is_some() => (e.task, BodyKind::Reason, 0),
            // Drawn like a task's id and never one.
            EventBody::BatchClosed(e) => (ReachId(e.batch.0), BodyKind::Result, 0),
            EventBody::ReplayPlanned(e) => return Some(Self::list_of(e.replay)),
            _ => return None,
        };
        Some(Self::Task { task, kind, attempt })
    }

    /// Where the list of a plan's items lies: under its id, which is drawn like a task's and never one.
    #[must_use]
    pub const fn list_of(replay: ReplayId) -> Self {
        Self::Task { task: ReachId(replay.0), kind: BodyKind::Result, attempt: 0 }
    }
}

/// A body with the salt of its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// 16 random bytes, erased with the body; all zero for named bodies.
    pub salt: [u8; 16],
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

impl Body {
    /// SHA-256(salt ‖ bytes): what an event holds of it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[&self.salt, &self.bytes])
    }
}

/// The last durable commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Head {
    /// Last seq; 0 for an empty ledger.
    pub seq: Seq,
    /// Hash of the last commit frame; zero for an empty ledger.
    pub hash: Digest,
    /// Which history.
    pub lineage: Lineage,
    /// Boot number in the last commit.
    pub boot: Boot,
    /// Ledger time of the last event.
    pub at: Timestamp,
}

/// One encoded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Decoded.
    pub event: Event,
    /// Its frame, byte for byte as in the ledger.
    pub frame: Arc<[u8]>,
}

impl StoredEvent {
    /// The RFC 6962 leaf hash, SHA-256(0x00 ‖ frame): the `hash` of receipts (semantics 25).
    #[must_use]
    pub fn hash(&self) -> Digest {
        Digest::of(&[&[0], &self.frame])
    }
}

/// Rows that a commit writes beside the log: all derived, all rebuildable from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    /// Tasks that left memory, final. Index rows (session, batch, agent, labels, state) are derived from them.
    pub finished: Vec<Arc<Task>>,
    /// Later events of tasks that have left memory.
    pub after: Vec<(ReachId, Seq)>,
    /// Idempotency keys bound.
    pub keys: Vec<(Namespace, Text, KeyBinding)>,
    /// Settled batches.
    pub batches: Vec<Batch>,
    /// Replay plans that have ended.
    pub replays: Vec<Arc<Replay>>,
    /// Settled callbacks that were not delivered, or that settled again after a redrive.
    pub callbacks: Vec<(CallbackId, CallbackRow)>,
    /// Successes of sessions, one a session: a store keeps the newest of each.
    pub successes: Vec<(Namespace, SessionId, Success)>,
}

/// One commit: a frame that goes right after `expected`, with its rows and bodies.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The commit before: seq and hash must be the store's head.
    pub expected: Head,
    /// The head after it.
    pub head: Head,
    /// The whole frame: commit header and event frames (docs/ledger-format.md).
    pub frame: Vec<u8>,
    /// Seq and length of each event frame inside, in order, so that a store may cut the frame between events.
    pub events: Vec<(Seq, u32)>,
    /// Length of the commit header at the frame's start.
    pub header_len: u32,
    /// Derived rows.
    pub rows: Rows,
    /// Bodies that the events name.
    pub bodies: Vec<(BodyKey, Body)>,
}

/// How an append can fail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Somebody else wrote: the head is not the expected one. Nothing was written.
    #[error("the head is at {head:?}, not where this commit expects it")]
    Conflict {
        /// Where it is.
        head: Head,
    },
    /// Refused before anything was written.
    #[error("refused before writing: {0}")]
    Refused(String),
    /// It failed midway: it may be there or not. The hub must stop (rule 6).
    #[error("unknown outcome: {0}")]
    Unknown(String),
}

/// How a read can fail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The disk failed.
    #[error("read failed: {0}")]
    Io(String),
    /// Something at this seq is not what was written; never skipped in silence (D5).
    #[error("damaged at seq {seq}: {what}; the last good seq is {last_good}")]
    Damaged {
        /// First bad seq.
        seq: Seq,
        /// Last good one before it.
        last_good: Seq,
        /// What is wrong.
        what: String,
    },
}

/// Which finished tasks to list, newest first. Every field narrows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FinishedFilter {
    /// In this session.
    pub session: Option<SessionId>,
    /// In this batch.
    pub batch: Option<BatchId>,
    /// Last held by this agent.
    pub agent: Option<crate::ledger::ids::AgentId>,
}

/// The newest success of a session among the tasks that have left memory, as far as its row tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// The row.
    pub success: Option<Success>,
    /// Since when it was kept.
    pub kept: Kept,
}

/// Since when a store keeps the newest success of each session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Since its first commit.
    Always,
    /// Its folder was begun by a program that kept none: successes of before have no row.
    Lately,
}

/// A durable ledger.
///
/// Contract, held by the tests in `contract.rs` for every store: an `append` that returned `Ok` survives a crash whole;
/// one that failed is there whole or not at all; reads see whole commits only; frames come back byte for byte.
pub trait Store: Send + Sync {
    /// The last durable commit.
    fn head(&self) -> Head;

    /// Appends one commit after `commit.expected` and makes it durable before returning.
    ///
    /// # Errors
    /// [`AppendError`]; after `Unknown` every later append fails too.
    fn append(&self, commit: &Commit) -> Result<(), AppendError>;

    /// At most `limit` events after `after`, in order, whole commits verified as far as read.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails or something is damaged.
    fn events(&self, after: Seq, limit: usize) -> Result<Vec<StoredEvent>, ReadError>;

    /// The event at `seq`.
    ///
    /// # Errors
    /// [`ReadError`]; `None` is an answer, not an error.
    fn event(&self, seq: Seq) -> Result<Option<StoredEvent>, ReadError>;

    /// The final row of a task that has left memory.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails or the row is damaged.
    fn finished(&self, task: ReachId) -> Result<Option<Task>, ReadError>;

    /// Seqs of later events of such a task, in order.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails.
    fn after(&self, task: ReachId) -> Result<Vec<Seq>, ReadError>;

    /// At most `limit` finished tasks of a namespace, newest first, below `before`. A store may return fewer than
    /// there are only if it returns `limit`; it looks at no more than a bounded number of rows a call.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails or a row is damaged.
    fn list_finished(
        &self,
        namespace: &Namespace,
        filter: &FinishedFilter,
        before: Option<ReachId>,
        limit: usize,
    ) -> Result<Vec<Task>, ReadError>;

    /// The newest success of a session: one lookup.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails or the row is damaged.
    fn newest_success(&self, namespace: &Namespace, session: &SessionId) -> Result<Newest, ReadError>;

    /// What an idempotency key is bound to.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails.
    fn key(&self, namespace: &Namespace, key: &Text) -> Result<Option<KeyBinding>, ReadError>;

    /// A settled batch.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails.
    fn batch(&self, batch: BatchId) -> Result<Option<Batch>, ReadError>;

    /// A replay plan that has ended.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails.
    fn replay(&self, replay: ReplayId) -> Result<Option<Replay>, ReadError>;

    /// At most `limit` of them in a namespace, newest first, below `before`.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails.
    fn list_replays(
        &self,
        namespace: &Namespace,
        before: Option<ReplayId>,
        limit: usize,
    ) -> Result<Vec<Replay>, ReadError>;

    /// A settled callback that was not delivered.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails.
    fn callback(&self, callback: CallbackId) -> Result<Option<CallbackRow>, ReadError>;

    /// At most `limit` of them in a namespace, by id, above `after`.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails.
    fn list_callbacks(
        &self,
        namespace: &Namespace,
        after: Option<CallbackId>,
        limit: usize,
    ) -> Result<Vec<(CallbackId, CallbackRow)>, ReadError>;

    /// A body, whole.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails or parts are missing.
    fn body(&self, key: &BodyKey) -> Result<Option<Body>, ReadError>;

    /// Keeps a snapshot of the state at `seq` in parts; the newest two are kept.
    ///
    /// # Errors
    /// [`AppendError`] as for a commit.
    fn put_snapshot(&self, seq: Seq, digest: Digest, bytes: &[u8]) -> Result<(), AppendError>;

    /// Snapshots, newest first: seq, digest, bytes.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails; a damaged snapshot is left out, an older one serves.
    fn snapshots(&self) -> Result<Vec<(Seq, Digest, Vec<u8>)>, ReadError>;

    /// A small register: reads a value.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails.
    fn register(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError>;

    /// Sets it if it still holds `expected`; durable before returning.
    ///
    /// # Errors
    /// [`AppendError::Refused`] if it holds something else, `Unknown` if the disk fails.
    fn swap_register(&self, name: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<(), AppendError>;

    /// Writes what is written behind (the high-water mark) and closes down cleanly.
    ///
    /// # Errors
    /// [`AppendError::Unknown`] when the disk fails.
    fn close(&self) -> Result<(), AppendError>;

    /// Bytes free and in all on the store's disk; `None` where there is no disk.
    fn space(&self) -> Option<Space>;
}

/// Room on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that may still be written.
    pub free: u64,
    /// Size of the file system.
    pub total: u64,
}
