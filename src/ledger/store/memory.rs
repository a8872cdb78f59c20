//! In memory, with faults on demand: for simulation and tests.
//!
//! Why raw bytes inside: a crash then really cuts a torn tail by reading it back, as a disk's store must, instead of
//! deciding by a flag what survives. Commits are shared, so a copy that ends after the k-th is cheap.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::block::decode_commit;
use super::{
    AppendError, Body, BodyKey, Commit, FinishedFilter, Head, Kept, Newest, ReadError, Rows, Space, Store, StoredEvent,
};
use crate::ledger::ids::{BatchId, CallbackId, Digest, Namespace, ReachId, ReplayId, Seq, SessionId};
use crate::ledger::machine::KeyBinding;
use crate::ledger::machine::batch::Batch;
use crate::ledger::machine::command::CallbackRow;
use crate::ledger::machine::replay::Replay;
use crate::ledger::machine::success::Success;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::Text;

/// What goes wrong at an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused before anything is written; later appends work.
    Refuse,
    /// Somebody else moved the head: a conflict that names the head as it is.
    Conflict,
    /// The disk fails before the commit is in; the caller can't tell.
    UnknownLost,
    /// The disk fails after the commit is durable; the caller can't tell.
    UnknownKept,
    /// The disk fails midway: so many bytes of the commit are in. A crash cuts them unless they are all of it.
    Torn {
        /// Bytes that made it.
        bytes: usize,
    },
}

/// A store without a disk.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
    /// Told when appends need not hang any more.
    released: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    contents: Contents,
    /// The commit that a failed append left, and how many bytes of it are in.
    torn: Option<(Arc<Commit>, usize)>,
    faults: BTreeMap<u64, Fault>,
    appends: u64,
    poisoned: Option<String>,
    space: Option<Space>,
    /// Appends hang, as on a disk that never answers.
    is_held: bool,
}

/// What a crash keeps.
#[derive(Debug, Clone, Default)]
struct Contents {
    head: Head,
    commits: Vec<Arc<Commit>>,
    /// First seq of a commit → its place in `commits`.
    firsts: BTreeMap<Seq, usize>,
    finished: BTreeMap<ReachId, (usize, usize)>,
    after: BTreeMap<ReachId, Vec<Seq>>,
    keys: BTreeMap<(Namespace, Text), KeyBinding>,
    batches: BTreeMap<BatchId, Batch>,
    replays: BTreeMap<ReplayId, Arc<Replay>>,
    callbacks: BTreeMap<CallbackId, CallbackRow>,
    successes: BTreeMap<(Namespace, SessionId), Success>,
    bodies: BTreeMap<BodyKey, Body>,
    snapshots: Vec<(Seq, Digest, Arc<[u8]>)>,
    registers: BTreeMap<String, Vec<u8>>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the `nth` append from now on (1 is the next) fail in this way.
    pub fn fail_append(&self, nth: u64, fault: Fault) {
        let mut inner = self.lock();
        let at = inner.appends.saturating_add(nth);
        inner.faults.insert(at, fault);
    }

    /// Lets every append hang from now on, as a disk that never answers does; reads go on.
    pub fn hold_appends(&self) {
        self.lock().is_held = true;
    }

    /// Lets appends go on, those that hang included.
    pub fn let_appends_go(&self) {
        self.lock().is_held = false;
        self.released.notify_all();
    }

    /// Pretends that the disk has so much room; `None` means no disk.
    pub fn set_space(&self, space: Option<Space>) {
        self.lock().space = space;
    }

    /// The process dies and starts again: a new store with what was durable, without faults. A torn tail is read
    /// back and cut, as recovery from a disk would.
    #[must_use]
    pub fn crash(&self) -> Self {
        let inner = self.lock();
        let mut contents = inner.contents.clone();
        if let (Ok(decoded), Some(commit)) = (decode_commit(inner.torn_bytes()), &inner.torn)
            && decoded.follows(&contents.head).is_ok()
        {
            contents.take(Arc::clone(&commit.0));
        }
        Self::with(Inner { contents, space: inner.space, ..Inner::default() })
    }

    /// A store that holds the first `commits` commits only: the log cut after the k-th. Snapshots beyond the cut and
    /// registers stay behind.
    #[must_use]
    pub fn cut_after(&self, commits: usize) -> Self {
        let inner = self.lock();
        let mut contents = Contents::default();
        for commit in inner.contents.commits.iter().take(commits) {
            contents.take(Arc::clone(commit));
        }
        let end = contents.head.seq;
        contents.snapshots = inner.contents.snapshots.iter().filter(|(seq, ..)| *seq <= end).cloned().collect();
        Self::with(Inner { contents, ..Inner::default() })
    }

    /// The commit at that place, from 0, with its rows and bodies: for letting another store grow as this one did.
    #[must_use]
    pub fn commit_at(&self, place: usize) -> Option<Arc<Commit>> {
        self.lock().contents.commits.get(place).cloned()
    }

    /// How many commits it holds.
    #[must_use]
    pub fn commit_count(&self) -> usize {
        self.lock().contents.commits.len()
    }

    /// The bytes of every commit, in order: for comparing two runs.
    #[must_use]
    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.lock().contents.commits.iter().map(|commit| commit.frame.clone()).collect()
    }

    fn with(inner: Inner) -> Self {
        Self { inner: Mutex::new(inner), released: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for MemoryStore {
    /// A second store with the same contents and no faults; commits are shared.
    fn clone(&self) -> Self {
        let inner = self.lock();
        Self::with(Inner { contents: inner.contents.clone(), space: inner.space, ..Inner::default() })
    }
}

impl Contents {
    fn take(&mut self, commit: Arc<Commit>) {
        let place = self.commits.len();
        let Rows { finished, after, keys, batches, replays, callbacks, successes } = &commit.rows;
        for (index, task) in finished.iter().enumerate() {
            self.finished.insert(task.id(), (place, index));
        }
        for (task, seq) in after {
            self.after.entry(*task).or_default().push(*seq);
        }
        for (namespace, key, binding) in keys {
            self.keys.insert((namespace.clone(), key.clone()), binding.clone());
        }
        self.batches.extend(batches.iter().map(|batch| (batch.id, batch.clone())));
        self.replays.extend(replays.iter().map(|replay| (replay.id, Arc::clone(replay))));
        self.callbacks.extend(callbacks.iter().cloned());
        for (namespace, session, success) in successes {
            let known = self.successes.entry((namespace.clone(), session.clone())).or_insert(*success);
            if success.place > known.place {
                *known = *success;
            }
        }
        self.bodies.extend(commit.bodies.iter().cloned());
        self.firsts.insert(commit.expected.seq.next(), place);
        self.head = commit.head;
        self.commits.push(commit);
    }

    fn row(&self, place: (usize, usize)) -> Option<&Task> {
        self.commits.get(place.0).and_then(|commit| commit.rows.finished.get(place.1)).map(Arc::as_ref)
    }

    fn read(&self, after: Seq, limit: usize) -> Result<Vec<StoredEvent>, ReadError> {
        let mut out = Vec::new();
        let from = self.firsts.range(..=after.next()).next_back().map_or(0, |(_, place)| *place);
        for commit in self.commits.iter().skip(from) {
            if out.len() >= limit {
                break;
            }
            let decoded = decode_commit(&commit.frame).map_err(|error| ReadError::Damaged {
                seq: commit.expected.seq.next(),
                last_good: commit.expected.seq,
                what: error.to_string(),
            })?;
            let room = limit - out.len();
            out.extend(decoded.events.into_iter().filter(|stored| stored.event.seq > after).take(room));
        }
        Ok(out)
    }
}

impl Inner {
    fn fault(&mut self, fault: Fault, commit: &Commit) -> AppendError {
        let unknown = match fault {
            Fault::Refuse => return AppendError::Refused("injected".to_owned()),
            Fault::Conflict => return AppendError::Conflict { head: self.contents.head },
            Fault::UnknownLost => "injected: lost",
            Fault::UnknownKept => {
                self.contents.take(Arc::new(commit.clone()));
                "injected: kept"
            }
            Fault::Torn { bytes } => {
                self.torn = Some((Arc::new(commit.clone()), bytes));
                "injected: torn"
            }
        };
        self.poisoned = Some(unknown.to_owned());
        AppendError::Unknown(unknown.to_owned())
    }

    fn torn_bytes(&self) -> &[u8] {
        let Some((commit, bytes)) = &self.torn else { return &[] };
        commit.frame.get(..*bytes).unwrap_or(&commit.frame)
    }

    fn writable(&self) -> Result<(), AppendError> {
        match &self.poisoned {
            Some(why) => Err(AppendError::Unknown(format!("failed before: {why}"))),
            None => Ok(()),
        }
    }
}

impl Store for MemoryStore {
    fn head(&self) -> Head {
        self.lock().contents.head
    }

    fn append(&self, commit: &Commit) -> Result<(), AppendError> {
        let held = self.released.wait_while(self.lock(), |inner| inner.is_held);
        let mut inner = held.unwrap_or_else(PoisonError::into_inner);
        inner.writable()?;
        inner.appends = inner.appends.saturating_add(1);
        let nth = inner.appends;
        if let Some(fault) = inner.faults.remove(&nth) {
            return Err(inner.fault(fault, commit));
        }
        let head = inner.contents.head;
        if (head.seq, head.hash) != (commit.expected.seq, commit.expected.hash) {
            return Err(AppendError::Conflict { head });
        }
        inner.contents.take(Arc::new(commit.clone()));
        Ok(())
    }

    fn events(&self, after: Seq, limit: usize) -> Result<Vec<StoredEvent>, ReadError> {
        self.lock().contents.read(after, limit)
    }

    fn event(&self, seq: Seq) -> Result<Option<StoredEvent>, ReadError> {
        let Some(before) = seq.0.checked_sub(1) else { return Ok(None) };
        Ok(self.lock().contents.read(Seq(before), 1)?.pop())
    }

    fn finished(&self, task: ReachId) -> Result<Option<Task>, ReadError> {
        let inner = self.lock();
        Ok(inner.contents.finished.get(&task).and_then(|place| inner.contents.row(*place)).cloned())
    }

    fn after(&self, task: ReachId) -> Result<Vec<Seq>, ReadError> {
        Ok(self.lock().contents.after.get(&task).cloned().unwrap_or_default())
    }

    fn list_finished(
        &self,
        namespace: &Namespace,
        filter: &FinishedFilter,
        before: Option<ReachId>,
        limit: usize,
    ) -> Result<Vec<Task>, ReadError> {
        let inner = self.lock();
        let newest_first = inner.contents.finished.iter().rev();
        Ok(newest_first
            .filter(|(id, _)| before.is_none_or(|before| **id < before))
            .filter_map(|(_, place)| inner.contents.row(*place))
            .filter(|task| task.namespace == *namespace && matches(filter, task))
            .take(limit)
            .cloned()
            .collect())
    }

    fn newest_success(&self, namespace: &Namespace, session: &SessionId) -> Result<Newest, ReadError> {
        let success = self.lock().contents.successes.get(&(namespace.clone(), session.clone())).copied();
        Ok(Newest { success, kept: Kept::Always })
    }

    fn key(&self, namespace: &Namespace, key: &Text) -> Result<Option<KeyBinding>, ReadError> {
        Ok(self.lock().contents.keys.get(&(namespace.clone(), key.clone())).cloned())
    }

    fn batch(&self, batch: BatchId) -> Result<Option<Batch>, ReadError> {
        Ok(self.lock().contents.batches.get(&batch).cloned())
    }

    fn replay(&self, replay: ReplayId) -> Result<Option<Replay>, ReadError> {
        Ok(self.lock().contents.replays.get(&replay).map(|replay| Replay::clone(replay)))
    }

    fn list_replays(
        &self,
        namespace: &Namespace,
        before: Option<ReplayId>,
        limit: usize,
    ) -> Result<Vec<Replay>, ReadError> {
        let inner = self.lock();
        let rows = inner.contents.replays.iter().rev();
        Ok(rows
            .filter(|(id, row)| before.is_none_or(|before| **id < before) && row.namespace == *namespace)
            .take(limit)
            .map(|(_, row)| Replay::clone(row))
            .collect())
    }

    fn callback(&self, callback: CallbackId) -> Result<Option<CallbackRow>, ReadError> {
        Ok(self.lock().contents.callbacks.get(&callback).cloned())
    }

    fn list_callbacks(
        &self,
        namespace: &Namespace,
        after: Option<CallbackId>,
        limit: usize,
    ) -> Result<Vec<(CallbackId, CallbackRow)>, ReadError> {
        let inner = self.lock();
        let rows = inner.contents.callbacks.iter();
        Ok(rows
            .filter(|(id, row)| after.is_none_or(|after| **id > after) && row.namespace == *namespace)
            .take(limit)
            .map(|(id, row)| (*id, row.clone()))
            .collect())
    }

    fn body(&self, key: &BodyKey) -> Result<Option<Body>, ReadError> {
        Ok(self.lock().contents.bodies.get(key).cloned())
    }

    fn put_snapshot(&self, seq: Seq, digest: Digest, bytes: &[u8]) -> Result<(), AppendError> {
        let mut inner = self.lock();
        inner.writable()?;
        inner.contents.snapshots.retain(|(at, ..)| *at != seq);
        inner.contents.snapshots.push((seq, digest, Arc::from(bytes)));
        inner.contents.snapshots.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        inner.contents.snapshots.truncate(2);
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<(Seq, Digest, Vec<u8>)>, ReadError> {
        let inner = self.lock();
        Ok(inner.contents.snapshots.iter().map(|(seq, digest, bytes)| (*seq, *digest, bytes.to_vec())).collect())
    }

    fn register(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.lock().contents.registers.get(name).cloned())
    }

    fn swap_register(&self, name: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<(), AppendError> {
        let mut inner = self.lock();
        inner.writable()?;
        if inner.contents.registers.get(name).map(Vec::as_slice) != expected {
            return Err(AppendError::Refused(format!("register {name} holds something else")));
        }
        inner.contents.registers.insert(name.to_owned(), value.to_vec());
        Ok(())
    }

    fn close(&self) -> Result<(), AppendError> {
        self.lock().writable()
    }

    fn space(&self) -> Option<Space> {
        self.lock().space
    }
}

/// Does a finished task pass the filter?
pub(super) fn matches(filter: &FinishedFilter, task: &Task) -> bool {
    let session = filter.session.as_ref().is_none_or(|session| task.spec.session.as_ref() == Some(session));
    let batch = filter.batch.is_none_or(|batch| task.spec.batch.is_some_and(|(of, _)| of == batch));
    let agent = filter.agent.as_ref().is_none_or(|agent| task.agent.as_ref() == Some(agent));
    session && batch && agent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::store::contract::{self, chain};

    #[test]
    fn the_memory_store_keeps_the_contract_of_every_store() {
        contract::holds(&|| Box::new(MemoryStore::new()));
    }

    #[test]
    fn a_torn_tail_is_cut_by_the_crash_and_the_commit_can_be_written_again() {
        let commits = chain(&[2, 3]);
        for bytes in [0, 1, 80, commits[1].frame.len() - 1] {
            let store = MemoryStore::new();
            store.append(&commits[0]).unwrap();
            store.fail_append(1, Fault::Torn { bytes });
            assert!(matches!(store.append(&commits[1]), Err(AppendError::Unknown(_))));
            assert!(matches!(store.append(&commits[1]), Err(AppendError::Unknown(_))), "poisoned");
            let reopened = store.crash();
            assert_eq!(reopened.head(), commits[0].head);
            reopened.append(&commits[1]).unwrap();
            assert_eq!(reopened.head(), commits[1].head);
        }
    }

    #[test]
    fn an_unknown_append_is_there_whole_or_not_at_all_after_the_crash() {
        let commits = chain(&[2, 3]);
        for (fault, kept) in [(Fault::UnknownLost, 0), (Fault::UnknownKept, 1)] {
            let store = MemoryStore::new();
            store.append(&commits[0]).unwrap();
            store.fail_append(1, fault);
            assert!(matches!(store.append(&commits[1]), Err(AppendError::Unknown(_))));
            assert_eq!(store.crash().head(), commits[kept].head);
        }
    }

    #[test]
    fn a_commit_whose_every_byte_is_in_survives_although_its_append_failed() {
        let commits = chain(&[2]);
        let store = MemoryStore::new();
        store.fail_append(1, Fault::Torn { bytes: commits[0].frame.len() });
        assert!(matches!(store.append(&commits[0]), Err(AppendError::Unknown(_))));
        assert_eq!(store.crash().head(), commits[0].head);
    }

    #[test]
    fn a_refused_append_and_a_conflict_leave_the_store_usable() {
        let commits = chain(&[2]);
        let store = MemoryStore::new();
        store.fail_append(1, Fault::Refuse);
        store.fail_append(2, Fault::Conflict);
        assert!(matches!(store.append(&commits[0]), Err(AppendError::Refused(_))));
        assert!(matches!(store.append(&commits[0]), Err(AppendError::Conflict { .. })));
        assert_eq!(store.append(&commits[0]), Ok(()));
    }

    #[test]
    fn a_log_cut_after_the_kth_commit_holds_exactly_k_commits() {
        let commits = chain(&[1, 2, 3]);
        let store = MemoryStore::new();
        commits.iter().for_each(|commit| store.append(commit).unwrap());
        for k in 0..=3 {
            let cut = store.cut_after(k);
            assert_eq!(cut.commit_count(), k);
            assert_eq!(cut.events(Seq(0), 100).unwrap().len(), [0, 1, 3, 6][k]);
        }
    }
}
