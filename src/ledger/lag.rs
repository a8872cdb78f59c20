//! How far the sequencer lags behind: time in which it neither slept as it meant to nor looked at its inputs.
//!
//! Why: a hub that stood still (a slow disk, a paused process, a machine that slept) did not hear its agents. That
//! time is not held against them (semantics 3), so it must be known before anybody is judged: silent agents by the
//! planners that are told of it, hand-overs and leases by a recorded event that moves their timers.

use crate::ledger::time::{Millis, Timestamp};

/// A lag up to this is not worth telling (semantics 3).
const TOLERATED: Millis = Millis(250);

/// From here on a lag is a standstill: it is recorded, and hand-overs get the time back. Far above what a cycle or an
/// fsync takes, below the shortest reach time that is of use.
pub(in crate::ledger) const STANDSTILL: Millis = Millis(1_000);

/// The time between two looks, less the sleep that was meant.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Lag {
    looked: Timestamp,
    rested: Millis,
}

impl Lag {
    /// Counts from `now` on.
    pub(in crate::ledger) const fn starting_at(now: Timestamp) -> Self {
        Self { looked: now, rested: Millis(0) }
    }

    /// So much of the time since the last look was a sleep that was meant.
    pub(in crate::ledger) const fn rested(&mut self, span: Millis) {
        self.rested = Millis(self.rested.0.saturating_add(span.0));
    }

    /// By how much it lagged since the last look, if that is worth telling. Every moment is told once.
    pub(in crate::ledger) fn since_last_look(&mut self, now: Timestamp) -> Option<Millis> {
        let busy = Millis(now.since(self.looked).0.saturating_sub(self.rested.0));
        *self = Self::starting_at(now);
        (busy > TOLERATED).then_some(busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantics_3_only_time_that_was_not_meant_to_pass_is_lag_and_it_is_told_once() {
        let mut lag = Lag::starting_at(Timestamp(1_000));
        assert_eq!(lag.since_last_look(Timestamp(1_250)), None, "a cycle may take 250 ms");
        lag.rested(Millis(1_000));
        assert_eq!(lag.since_last_look(Timestamp(2_260)), None, "it slept as it meant to");
        lag.rested(Millis(1_000));
        assert_eq!(lag.since_last_look(Timestamp(63_260)), Some(Millis(60_000)));
        assert_eq!(lag.since_last_look(Timestamp(63_260)), None);
    }
}
