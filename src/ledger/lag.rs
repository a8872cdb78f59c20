//! How far the sequencer lags behind: time in which it neither slept as it meant to nor looked at its inputs.
//!
//! Why: a hub that stood still (a slow disk, a paused process, a machine that slept) did not hear its agents. That
//! time is not held against them (semantics 3), so it must be known before anybody is judged: silent agents by the
//! planners that are told of it, hand-overs and leases by a recorded event that moves their timers.
//!
//! But a hub that is always late does hear its agents, between one lag and the next. Were all of it forgiven, nobody
//! would ever be late there. So between two lags that are forgiven lies some time that counts; what is missing of it is
//! taken from the later one.

use crate::ledger::time::{Millis, Timestamp};

/// A lag up to this is not worth telling (semantics 3).
const TOLERATED: Millis = Millis(250);

/// Above it a lag is a standstill: it is recorded, and hand-overs get the time back. Far above what a cycle or an
/// fsync takes, below the shortest reach time that is of use.
const STANDSTILL: Millis = Millis(1_000);

/// What is held against nobody since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) struct Forgiven {
    /// Silence of agents, if it is worth telling.
    pub(in crate::ledger) silence: Option<Millis>,
    /// What hand-overs and leases get back, if the hub stood still.
    pub(in crate::ledger) standstill: Option<Millis>,
}

/// The time between two looks, less the sleep that was meant.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Lag {
    looked: Timestamp,
    rested: Millis,
    silence: Leniency,
    standstill: Leniency,
}

impl Lag {
    /// Counts from `now` on.
    pub(in crate::ledger) const fn starting_at(now: Timestamp) -> Self {
        let (silence, standstill) = (Leniency::from(TOLERATED), Leniency::from(STANDSTILL));
        Self { looked: now, rested: Millis(0), silence, standstill }
    }

    /// So much of the time since the last look was a sleep that was meant.
    pub(in crate::ledger) const fn rested(&mut self, span: Millis) {
        self.rested = Millis(self.rested.0.saturating_add(span.0));
    }

    /// Nobody can be heard yet: all lag until now is forgiven.
    pub(in crate::ledger) const fn hears_nobody(&mut self) {
        (self.silence, self.standstill) = (Leniency::from(TOLERATED), Leniency::from(STANDSTILL));
    }

    /// What is forgiven of the time since the last look. Every moment is told once.
    pub(in crate::ledger) fn since_last_look(&mut self, now: Timestamp) -> Forgiven {
        let rested = self.rested;
        let busy = Millis(now.since(self.looked).0.saturating_sub(rested.0));
        (self.looked, self.rested) = (now, Millis(0));
        Forgiven { silence: self.silence.forgives(busy, rested), standstill: self.standstill.forgives(busy, rested) }
    }
}

/// Forgives what is longer than `least`, if as much has counted since it last did.
#[derive(Debug, Clone, Copy)]
struct Leniency {
    least: Millis,
    /// Time that counted since then, at most `least`.
    counted: Millis,
}

impl Leniency {
    const fn from(least: Millis) -> Self {
        Self { least, counted: least }
    }

    fn forgives(&mut self, busy: Millis, rested: Millis) -> Option<Millis> {
        let counted = self.counted.0.saturating_add(rested.0).min(self.least.0);
        let forgiven = busy.0.saturating_sub(self.least.0 - counted);
        // A remainder is not worth an event: it counts.
        if busy > self.least && forgiven > self.least.0 / 2 {
            self.counted = Millis(0);
            return Some(Millis(forgiven));
        }
        self.counted = Millis(counted.saturating_add(busy.0).min(self.least.0));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn told(silence: Option<u64>, standstill: Option<u64>) -> Forgiven {
        const fn millis(of: Option<u64>) -> Option<Millis> {
            match of {
                Some(of) => Some(Millis(of)),
                None => None,
            }
        }
        Forgiven { silence: millis(silence), standstill: millis(standstill) }
    }

    #[test]
    fn semantics_3_only_time_that_was_not_meant_to_pass_is_lag_and_it_is_told_once() {
        let mut lag = Lag::starting_at(Timestamp(1_000));
        assert_eq!(lag.since_last_look(Timestamp(1_250)), told(None, None), "a cycle may take 250 ms");
        lag.rested(Millis(1_000));
        assert_eq!(lag.since_last_look(Timestamp(2_260)), told(None, None), "it slept as it meant to");
        lag.rested(Millis(1_000));
        assert_eq!(lag.since_last_look(Timestamp(4_260)), told(Some(1_000), None), "no standstill yet");
        lag.rested(Millis(1_000));
        assert_eq!(lag.since_last_look(Timestamp(65_260)), told(Some(60_000), Some(60_000)));
        assert_eq!(lag.since_last_look(Timestamp(65_260)), told(None, None));
    }

    #[test]
    fn a_hub_that_is_always_late_forgives_no_more_than_leaves_time_that_counts() {
        for (cycle, silence, standstill) in
            [(300, 300 / 2, 0), (1_001, 751, 1_001 / 2), (1_600, 1_350, 600), (10_000, 9_750, 9_000)]
        {
            let (mut lag, mut now, mut sums) = (Lag::starting_at(Timestamp(0)), 0, [0, 0]);
            for _ in 0..1_000 {
                now += cycle;
                let Forgiven { silence, standstill } = lag.since_last_look(Timestamp(now));
                sums[0] += silence.map_or(0, |by| by.0);
                sums[1] += standstill.map_or(0, |by| by.0);
            }
            let close = |sum: u64, each: u64| (each * 1_000..=each * 1_000 + 2_000).contains(&sum);
            assert!(close(sums[0], silence) && close(sums[1], standstill), "{cycle}: {sums:?} of {now}");
        }
    }

    #[test]
    fn a_standstill_after_another_keeps_what_is_missing_of_a_second_between_them() {
        let mut lag = Lag::starting_at(Timestamp(0));
        assert_eq!(lag.since_last_look(Timestamp(60_000)).standstill, Some(Millis(60_000)));
        lag.rested(Millis(400));
        assert_eq!(lag.since_last_look(Timestamp(120_400)).standstill, Some(Millis(59_400)));
        lag.rested(Millis(1_000));
        assert_eq!(lag.since_last_look(Timestamp(181_400)).standstill, Some(Millis(60_000)));
        lag.hears_nobody();
        assert_eq!(lag.since_last_look(Timestamp(241_400)).standstill, Some(Millis(60_000)), "nobody could speak");
    }
}
