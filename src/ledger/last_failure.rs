//! The failure of a task's last attempt that failed, found in its history.
//!
//! Why not in the task: what ends one may be the hub's own word, such as `retries-exhausted`, and that is the failure that
//! a task then shows (semantics 9, R-SCH-6). The attempt's own stands in the event before, and stays there.

use crate::ledger::ids::{AttemptNo, Seq};
use crate::ledger::machine::event::EventBody;
use crate::ledger::machine::task::{Failure, OutcomeKind, Task};
use crate::ledger::store::{ReadError, Store};

/// Events before the end that are looked through; before them only what an agent reported is found.
const LOOKED_THROUGH: usize = 64;

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailure {
    /// Which attempt.
    pub attempt: AttemptNo,
    /// Why.
    pub failure: Failure,
}

/// Where to look for it: the newest first. Empty where no attempt can have failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail(Vec<Seq>);

impl Trail {
    /// That of a task.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        let is_before = |seq: &Seq| task.ended_by.is_none_or(|end| *seq < end);
        // Every attempt that failed is followed by the end, or was counted.
        let is_counted = task.retries_used > 0 || task.never_started > 0;
        let length = match task.attempt.0 {
            0 => 0,
            _ if is_counted => LOOKED_THROUGH,
            _ => 1,
        };
        let mut trail: Vec<Seq> = task.seqs.iter().rev().copied().filter(is_before).take(length).collect();
        let reported = task.outcomes.iter().rev().find(|record| record.kind == OutcomeKind::Fail);
        let oldest = trail.last().copied();
        trail.extend(reported.map(|record| record.receipt).filter(|seq| oldest.is_none_or(|oldest| *seq < oldest)));
        Self(trail)
    }

    /// Is there nothing to look at?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is found on it; nothing of what retention took.
    ///
    /// # Errors
    /// [`ReadError`] when the disk fails.
    #[expect(clippy::wildcard_enum_match_arm, reason = "looks for the two kinds that say that an attempt failed")]
    pub fn followed(&self, store: &dyn Store) -> Result<Option<LastFailure>, ReadError> {
        for seq in &self.0 {
            // Where retention took it the next one may come.
            let Some(stored) = store.event(*seq)?.filter(|stored| stored.event.seq == *seq) else { continue };
            match stored.event.body {
                EventBody::TaskAttemptFailed(body) => {
                    return Ok(Some(LastFailure { attempt: body.attempt, failure: body.failure }));
                }
                EventBody::TaskFailed(body) => {
                    return Ok(Some(LastFailure { attempt: body.attempt, failure: body.failure }));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::{Digest, LeaseDigest};
    use crate::ledger::machine::task::OutcomeRecord;
    use crate::ledger::store::contract;

    fn ended(seqs: impl IntoIterator<Item = u64>, end: u64) -> Task {
        let mut task = contract::task(3, 0);
        task.seqs = seqs.into_iter().map(Seq).collect();
        task.ended_by = Some(Seq(end));
        task
    }

    #[test]
    fn the_event_before_the_end_is_looked_at_and_more_where_attempts_were_counted() {
        let mut task = ended(1..=100, 90);
        assert_eq!(Trail::of(&task), Trail(vec![Seq(89)]));
        task.retries_used = 1;
        assert_eq!(Trail::of(&task).0, (26..=89).rev().map(Seq).collect::<Vec<_>>());
        task.attempt = AttemptNo(0);
        assert!(Trail::of(&task).is_empty(), "nobody tried");
    }

    #[test]
    fn what_an_agent_reported_long_before_the_end_is_found_by_its_receipt() {
        let mut task = ended(1..=1_000, 1_000);
        let said = |kind, receipt| OutcomeRecord {
            attempt: AttemptNo(1),
            lease: LeaseDigest::default(),
            kind,
            digest: Digest::default(),
            receipt: Seq(receipt),
        };
        (task.retries_used, task.attempt) = (1, AttemptNo(2));
        task.outcomes = vec![said(OutcomeKind::Fail, 5), said(OutcomeKind::Fail, 7), said(OutcomeKind::Release, 9)];
        let trail = Trail::of(&task);
        assert_eq!((trail.0.len(), trail.0.last()), (65, Some(&Seq(7))));
        task.outcomes = vec![said(OutcomeKind::Fail, 999)];
        assert_eq!(Trail::of(&task).0.len(), 64, "it is on the way");
    }
}
