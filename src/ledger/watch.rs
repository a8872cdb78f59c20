//! Waiting for one task's changes, for callers that want the outcome and not the steps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::ledger::handle::Published;
use crate::ledger::ids::ReachId;

/// Who waits for which task: woken by the committer, per task, so that many waiters cost a commit nothing.
#[derive(Debug, Default)]
pub(in crate::ledger) struct Watchers {
    by_task: Mutex<HashMap<ReachId, (Arc<Notify>, usize)>>,
}

impl Watchers {
    pub(in crate::ledger) fn watch(self: &Arc<Self>, task: ReachId, hub: watch::Receiver<Published>) -> Watch {
        let mut by_task = self.by_task.lock().unwrap_or_else(PoisonError::into_inner);
        let (notify, count) = by_task.entry(task).or_default();
        *count += 1;
        Watch { task, notify: Arc::clone(notify), watchers: Arc::clone(self), hub }
    }

    /// Wakes everyone who waits for one of these tasks.
    pub(in crate::ledger) fn wake(&self, tasks: impl Iterator<Item = ReachId>) {
        let by_task = self.by_task.lock().unwrap_or_else(PoisonError::into_inner);
        if by_task.is_empty() {
            return;
        }
        for task in tasks {
            if let Some((notify, _)) = by_task.get(&task) {
                notify.notify_waiters();
            }
        }
    }
}

/// One wait for one task's changes.
#[derive(Debug)]
pub struct Watch {
    task: ReachId,
    notify: Arc<Notify>,
    watchers: Arc<Watchers>,
    hub: watch::Receiver<Published>,
}

impl Watch {
    /// Looks with `look` until it gives something, `wait` is over or the hub goes down; looks again after every durable
    /// change of the task. The first look is at once, and no change between two looks is missed.
    ///
    /// # Errors
    /// What `look` gives as an error.
    pub async fn until<T, E, F>(&self, wait: Duration, mut look: impl FnMut() -> F) -> Result<Option<T>, E>
    where
        F: Future<Output = Result<Option<T>, E>>,
    {
        let end = tokio::time::sleep(wait);
        let mut hub = self.hub.clone();
        let stopping = hub.wait_for(|published| published.phase.is_stopping());
        tokio::pin!(end, stopping);
        loop {
            let changed = self.notify.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look().await? {
                return Ok(Some(found));
            }
            tokio::select! {
                () = &mut changed => {}
                () = &mut end => return Ok(None),
                _ = &mut stopping => return Ok(None),
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut by_task = self.watchers.by_task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = by_task.get_mut(&self.task) {
            *count -= 1;
            if *count == 0 {
                by_task.remove(&self.task);
            }
        }
    }
}
