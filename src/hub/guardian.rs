//! What watches over a running hub: the disk's room, commits that hang, and the next snapshot.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::ledger::boot;
use crate::ledger::committer::AppendWatch;
use crate::ledger::handle::{Ledger, Phase};
use crate::ledger::ids::Seq;
use crate::ledger::sequencer::Fate;
use crate::ledger::store::{Space, Store};
use crate::ledger::time::{Clock, SystemClock};

/// How often the disk and the committer are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// When the disk counts as nearly full and as full (semantics 30).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Below so many free bytes, at most a quarter of the disk, submits are refused; default 1 GiB.
    pub low_bytes: u64,
    /// Below so many thousandths of the disk submits are refused; default 50.
    pub low_milli: u64,
    /// Below so many thousandths only completions, expiry and heartbeats are taken; default 20.
    pub full_milli: u64,
    /// Below so many free bytes too, at most a quarter of the disk; default 64 MiB.
    pub full_bytes: u64,
}

impl Default for Watermarks {
    fn default() -> Self {
        Self { low_bytes: 1 << 30, low_milli: 50, full_milli: 20, full_bytes: 64 << 20 }
    }
}

impl Watermarks {
    /// Which phase that much room allows.
    #[must_use]
    pub fn phase(&self, space: Space) -> Phase {
        let milli = space.free.saturating_mul(1_000).checked_div(space.total).unwrap_or(1_000);
        // A disk smaller than the byte marks would never be open: there they are a quarter of it. Its share alone would be
        // so few bytes that one batch could leap over them.
        let below = |bytes: u64| space.free < bytes.min(space.total / 4);
        if milli < self.full_milli || below(self.full_bytes) {
            Phase::DiskFull
        } else if milli < self.low_milli || below(self.low_bytes) {
            Phase::DiskLow
        } else {
            Phase::Open
        }
    }
}

/// What the guardian is told at the start.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The disk's marks.
    pub watermarks: Watermarks,
    /// Events between two snapshots.
    pub snapshot_every: u64,
    /// A commit that takes longer is a failure.
    pub append_deadline: Duration,
    /// The newest snapshot there is.
    pub snapshot: Seq,
}

/// The watching tasks.
pub struct Guardian {
    tasks: Vec<JoinHandle<()>>,
    quit: watch::Sender<bool>,
    failures: mpsc::Receiver<Fate>,
}

impl Guardian {
    /// Starts to watch.
    #[must_use]
    pub fn spawn(ledger: Ledger, store: Arc<dyn Store>, appends: Arc<AppendWatch>, options: Options) -> Self {
        let (quit, quits) = watch::channel(false);
        let (fail, failures) = mpsc::channel(1);
        let disk = watch_disk(ledger.clone(), Arc::clone(&store), options.watermarks, quits.clone());
        let hang = watch_appends(appends, options.append_deadline, fail);
        let snapshots = keep_snapshots(ledger, store, options, quits);
        let tasks = vec![tokio::spawn(disk), tokio::spawn(hang), tokio::spawn(snapshots)];
        Self { tasks, quit, failures }
    }

    /// Waits until something is wrong.
    pub async fn failed(&mut self) -> Fate {
        match self.failures.recv().await {
            Some(fate) => fate,
            None => std::future::pending().await,
        }
    }

    /// Ends the watch; a snapshot under way is finished.
    pub async fn stop(self) {
        self.quit.send_replace(true);
        let mut tasks = self.tasks.into_iter();
        for task in tasks.by_ref().take(1) {
            drop(task.await);
        }
        if let Some(hang) = tasks.next() {
            hang.abort();
        }
        for task in tasks {
            drop(task.await);
        }
    }
}

/// Waits for the quit signal or the next look; true when it is time to quit.
async fn quitting(quits: &mut watch::Receiver<bool>, pause: Duration) -> bool {
    tokio::select! {
        changed = quits.changed() => changed.is_err() || *quits.borrow(),
        () = tokio::time::sleep(pause) => *quits.borrow(),
    }
}

/// Refuses submits long before the disk is full, and takes them again by itself (semantics 30).
async fn watch_disk(ledger: Ledger, store: Arc<dyn Store>, marks: Watermarks, mut quits: watch::Receiver<bool>) {
    while !quitting(&mut quits, LOOK).await {
        let looked = Arc::clone(&store);
        let Ok(Some(space)) = tokio::task::spawn_blocking(move || looked.space()).await else { continue };
        let wanted = marks.phase(space);
        let now = ledger.published().phase;
        let ours = matches!(now, Phase::Open | Phase::DiskLow | Phase::DiskFull);
        if ours && now != wanted {
            tracing::warn!(free = space.free, total = space.total, phase = ?wanted, "the room on the disk changed the phase");
            drop(ledger.enter(wanted).await);
        }
    }
}

/// A commit that never returns is a failure too: the process must end and start again (storage, guard 7).
async fn watch_appends(appends: Arc<AppendWatch>, deadline: Duration, fail: mpsc::Sender<Fate>) {
    let clock = SystemClock;
    loop {
        tokio::time::sleep(LOOK).await;
        let running = appends.running_for(clock.monotonic()).map(|span| Duration::from_millis(span.0));
        if let Some(span) = running.filter(|span| *span > deadline) {
            drop(fail.send(Fate::Disk(format!("a commit has not returned for {span:?}"))).await);
            return;
        }
    }
}

/// Above so many tasks, agents, callbacks and batches an image would hold up the sequencer for longer than a slow fsync
/// does: then the log is folded beside it.
const LARGEST_IMAGE: usize = 50_000;

/// Writes a snapshot every so many events, from an image of the live state if that is not too large.
async fn keep_snapshots(ledger: Ledger, store: Arc<dyn Store>, options: Options, mut quits: watch::Receiver<bool>) {
    let mut last = options.snapshot;
    while !quitting(&mut quits, LOOK).await {
        if ledger.published().seq.0.saturating_sub(last.0) < options.snapshot_every {
            continue;
        }
        // Its answer comes when all that the image holds is durable.
        let image = ledger.ask(|state| (state.image_len() <= LARGEST_IMAGE).then(|| state.to_image())).await;
        let Ok(image) = image else { continue };
        let store = Arc::clone(&store);
        let written = tokio::task::spawn_blocking(move || {
            if let Some(image) = image {
                boot::write_image(&*store, &image).map_err(|error| error.to_string())?;
                return Ok(image.seq);
            }
            let folded = boot::fold(&*store).map_err(|error| error.to_string())?;
            boot::write_snapshot(&*store, &folded.state).map_err(|error| error.to_string())?;
            Ok::<_, String>(folded.state.seq())
        });
        match written.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(seq) => {
                tracing::info!(%seq, "wrote a snapshot");
                last = seq;
            }
            Err(error) => {
                tracing::error!(%error, "a snapshot could not be written; the log is still whole");
                last = ledger.published().seq;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantics_30_submits_are_refused_at_the_low_mark_and_nearly_everything_at_the_full_mark() {
        let marks = Watermarks::default();
        let space = |free, total| Space { free, total };
        assert_eq!(marks.phase(space(500 << 30, 1_000 << 30)), Phase::Open);
        assert_eq!(marks.phase(space(40 << 30, 1_000 << 30)), Phase::DiskLow, "4 % free");
        assert_eq!(marks.phase(space(900 << 20, 10 << 30)), Phase::DiskLow, "below 1 GiB");
        assert_eq!(marks.phase(space(19 << 30, 1_000 << 30)), Phase::DiskFull, "1.9 % free");
        assert_eq!(marks.phase(space(60 << 20, 64 << 20)), Phase::Open, "a small disk has small marks");
        assert_eq!(marks.phase(space(20 << 20, 96 << 20)), Phase::DiskFull, "and time to refuse before it is full");
    }
}
