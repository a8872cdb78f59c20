//! Chores on a timer: flush the high-water mark, tend the reserve, and flush keyspaces that hold old journals alive.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::fjall_log::Spaces;
use super::fjall_open::{Opened, Options};
use super::space::Reserve;

/// The high-water mark is never older on disk than this.
const TICK: Duration = Duration::from_secs(1);
/// Journals above this number mean that some idle keyspace keeps them from being dropped.
const MANY_JOURNALS: usize = 3;

/// The thread, and what it shares with the writer.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    tip: File,
    dirty: AtomicBool,
    failure: Mutex<Option<String>>,
    reserve: Reserve,
}

impl Keeper {
    pub(super) fn start(opened: &Opened, data: &Path, options: &Options) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            tip: opened.tip.flusher()?,
            dirty: AtomicBool::new(false),
            failure: Mutex::new(None),
            reserve: Reserve::new(data, options.reserve),
        });
        let (stop, stopped) = sync_channel(1);
        let (held, spaces) = (Arc::clone(&shared), opened.spaces.clone());
        let thread = std::thread::Builder::new().name("ledger-keeper".to_owned()).spawn(move || {
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                held.tick(&spaces);
            }
        })?;
        Ok(Self { shared, stop: Some(stop), thread: Some(thread) })
    }

    /// A new mark was written.
    pub(super) fn marked(&self) {
        self.shared.dirty.store(true, Ordering::Release);
    }

    /// Why nothing can be written any more.
    pub(super) fn failure(&self) -> Option<String> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on nothing can be written; the first reason stays.
    pub(super) fn fail(&self, why: &str) {
        self.shared.fail(why);
    }

    /// Makes the newest mark durable.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.shared.flush()
    }
}

impl Shared {
    fn flush(&self) -> io::Result<()> {
        if self.dirty.swap(false, Ordering::AcqRel) { self.tip.sync_data() } else { Ok(()) }
    }

    fn fail(&self, why: &str) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| why.to_owned());
    }

    fn tick(&self, spaces: &Spaces) {
        if let Err(error) = self.flush() {
            self.fail(&format!("the high-water mark: {error}"));
        }
        if let Err(error) = self.reserve.tend() {
            tracing::warn!(%error, "the disk reserve could not be tended");
        }
        if spaces.db.journal_count() > MANY_JOURNALS && spaces.db.outstanding_flushes() == 0 {
            for space in spaces.all() {
                if let Err(error) = space.rotate_memtable() {
                    self.fail(&format!("flush of keyspace {}: {error}", space.name()));
                }
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        // A store that is dropped without `close` still leaves the newest mark it can.
        drop(self.shared.flush());
    }
}
