//! Is an agent slower than it always was, and does it fail of late (R-RTE-4, R-RTE-6)?
//!
//! Why its own past and no fixed bound: what is slow for one capability is quick for another, and only the agent's own
//! history knows. Why a majority of the last few and not their mean: one hard task says nothing about the next.
//!
//! What it took while it was slowed is kept apart from what is usual. Else a handful of slow tasks would lift the very
//! figure that they are held against, and an agent that is slow would soon be as quick as ever.
//!
//! Volatile and bounded: two histograms, eight spans and four counts an agent. A start of the hub forgets them.

use std::collections::VecDeque;

use crate::ledger::time::{Millis, Timestamp};
use crate::scheduler::vitals::{Latency, Outcome, Outcomes};

/// Ended attempts of the past before anything is held against it: a p99 of fewer than a hundred is only their maximum.
pub const ENOUGH: u32 = 100;
/// Attempts that are recent.
pub const RECENT: usize = 8;
/// It is slowed above so many times its usual p99.
pub const TIMES: u64 = 3;
/// A usual p99 below counts as this: a few milliseconds more are the network's.
pub const LEAST_P99: Millis = Millis(10);
/// After so many attempts while slowed, what it takes now is what is usual.
pub const NEW_USUAL: u32 = 256;

/// Outcomes stay recent for one to two such windows.
pub const WINDOW: Millis = Millis::secs(300);
/// Recent outcomes before a failure rate is held against an agent: below that one failure is a rate.
pub const ENOUGH_OUTCOMES: u32 = 10;
/// Failures in a thousand above which it fails too often (R-RTE-4).
pub const FAILS_ABOVE_MILLI: u32 = 200;

/// How an agent works now, beside how it always did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pace {
    /// As ever, as far as anyone knows.
    #[default]
    Usual,
    /// More than [`TIMES`] times slower than its p99: half its weight.
    Slowed,
}

/// The figures of an agent that is slowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowed {
    /// What most of its last attempts took at least.
    pub recent: Millis,
    /// Its usual p99.
    pub usual_p99: Millis,
}

/// How fast an agent worked before, of late, and while it was slowed.
#[derive(Debug, Clone, Default)]
pub struct Tempo {
    usual: Latency,
    recent: VecDeque<Millis>,
    /// What its attempts took while it is slowed; `None` while it is not.
    slowed: Option<Latency>,
}

impl Tempo {
    /// An attempt took so long from its acknowledgement to its end.
    pub fn record(&mut self, span: Millis) {
        if self.recent.len() >= RECENT
            && let Some(oldest) = self.recent.pop_front()
        {
            self.slowed.as_mut().unwrap_or(&mut self.usual).record(oldest);
        }
        self.recent.push_back(span);
        self.judge();
    }

    fn judge(&mut self) {
        let (Some(limit), Some(recent)) = (self.limit(), self.recent()) else { return };
        match &self.slowed {
            None if recent > limit => self.slowed = Some(Latency::default()),
            None => {}
            Some(meanwhile) if recent > limit => {
                if meanwhile.samples() >= NEW_USUAL
                    && let Some(meanwhile) = self.slowed.take()
                {
                    self.usual = meanwhile;
                }
            }
            Some(_) => {
                self.slowed = None;
                // They are of that time, and would be taken for usual once others follow them.
                self.recent.retain(|span| *span <= limit);
            }
        }
    }

    /// What most of the recent attempts took at least; `None` until there are [`RECENT`].
    fn recent(&self) -> Option<Millis> {
        if self.recent.len() < RECENT {
            return None;
        }
        let mut spans: Vec<Millis> = self.recent.iter().copied().collect();
        spans.sort_unstable();
        spans.get((RECENT - 1) / 2).copied()
    }

    /// What recent attempts are held against; `None` while too little is known.
    fn limit(&self) -> Option<Millis> {
        let p99 = self.usual.percentile(99).filter(|_| self.usual.samples() >= ENOUGH)?;
        Some(Millis(p99.max(LEAST_P99).0.saturating_mul(TIMES)))
    }

    /// Is it slowed?
    #[must_use]
    pub const fn pace(&self) -> Pace {
        match self.slowed {
            Some(_) => Pace::Slowed,
            None => Pace::Usual,
        }
    }

    /// The figures that say so, if it is slowed.
    #[must_use]
    pub fn slowed(&self) -> Option<Slowed> {
        self.slowed.as_ref()?;
        Some(Slowed { recent: self.recent()?, usual_p99: self.usual.percentile(99)? })
    }

    /// Another process: what is usual stays the agent's, how the former one ended is not its own.
    pub fn begin_anew(&mut self) {
        self.recent.clear();
        self.slowed = None;
    }
}

/// How attempts ended in the last minutes. An agent that gets nothing for its failures is tried again when they are old.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecentOutcomes {
    from: Timestamp,
    now: Outcomes,
    before: Outcomes,
}

impl RecentOutcomes {
    /// One more ended.
    pub fn note(&mut self, outcome: Outcome, at: Timestamp) {
        *self = self.as_of(at);
        self.now.note(outcome);
    }

    fn as_of(self, at: Timestamp) -> Self {
        let passed = at.since(self.from).0;
        if passed < WINDOW.0 {
            self
        } else if passed < 2 * WINDOW.0 {
            Self { from: self.from.after(WINDOW), now: Outcomes::default(), before: self.now }
        } else {
            Self { from: at, ..Self::default() }
        }
    }

    /// Did more than a fifth fail of late, where enough is known to say so?
    #[must_use]
    pub fn fails(&self, at: Timestamp) -> bool {
        let recent = self.as_of(at);
        let all = recent.now.plus(recent.before);
        all.count() >= ENOUGH_OUTCOMES && all.failure_milli().is_some_and(|milli| milli > FAILS_ABOVE_MILLI)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(spans: impl IntoIterator<Item = u64>) -> Tempo {
        let mut tempo = Tempo::default();
        spans.into_iter().for_each(|span| tempo.record(Millis(span)));
        tempo
    }

    fn record(tempo: &mut Tempo, n: usize, span: u64) {
        (0..n).for_each(|_| tempo.record(Millis(span)));
    }

    /// A hundred that count, and eight that are recent.
    const KNOWN: usize = 108;

    #[test]
    fn r_rte_6_it_is_slowed_once_most_of_the_last_eight_took_over_three_times_its_p99_and_no_sooner() {
        let mut tempo = after([100; KNOWN]);
        let limit = 3 * tempo.usual.percentile(99).unwrap().0;
        record(&mut tempo, 50, limit);
        assert_eq!(tempo.pace(), Pace::Usual, "three times are not above");
        let mut tempo = after([100; KNOWN]);
        record(&mut tempo, 4, limit + 1);
        assert_eq!((tempo.pace(), tempo.slowed()), (Pace::Usual, None));
        record(&mut tempo, 1, limit + 1);
        assert_eq!(tempo.pace(), Pace::Slowed);
        assert_eq!(tempo.slowed(), Some(Slowed { recent: Millis(limit + 1), usual_p99: Millis(limit / 3) }));
    }

    #[test]
    fn r_rte_6_it_recovers_when_half_of_the_last_eight_are_usual_and_has_learnt_nothing_of_the_time_between() {
        let mut tempo = after([100; KNOWN]);
        record(&mut tempo, 200, 1_000);
        assert_eq!(tempo.pace(), Pace::Slowed, "its own slowness is not what it is held against");
        record(&mut tempo, 4, 100);
        assert_eq!(tempo.pace(), Pace::Usual);
        record(&mut tempo, 8, 100);
        record(&mut tempo, 5, 1_000);
        assert_eq!(tempo.pace(), Pace::Slowed, "and it can be slowed again");
    }

    #[test]
    fn what_lasts_is_usual_at_last() {
        let mut tempo = after([100; KNOWN]);
        record(&mut tempo, 5 + 256 + 8, 1_000);
        assert_eq!(tempo.pace(), Pace::Usual);
        record(&mut tempo, 100, 1_000);
        assert_eq!(tempo.pace(), Pace::Usual);
        record(&mut tempo, 8, 9_000);
        assert_eq!(tempo.pace(), Pace::Slowed);
    }

    #[test]
    fn nothing_is_held_against_an_agent_of_which_too_little_is_known_or_for_a_few_milliseconds() {
        let mut tempo = after([100; KNOWN - 6]);
        record(&mut tempo, 5, 10_000);
        assert_eq!(tempo.pace(), Pace::Usual, "99 of the past are known");
        record(&mut tempo, 1, 10_000);
        assert_eq!(tempo.pace(), Pace::Slowed);
        let of_quick = |span| {
            let mut quick = after([0; KNOWN]);
            record(&mut quick, 5, span);
            quick.pace()
        };
        assert_eq!((of_quick(30), of_quick(31)), (Pace::Usual, Pace::Slowed));
    }

    #[test]
    fn another_process_is_not_slowed_and_what_is_usual_stays() {
        let mut tempo = after([100; KNOWN]);
        record(&mut tempo, 8, 1_000);
        tempo.begin_anew();
        assert_eq!(tempo.pace(), Pace::Usual);
        record(&mut tempo, 8, 1_000);
        assert_eq!(tempo.pace(), Pace::Slowed);
    }

    #[test]
    fn r_rte_4_more_than_a_fifth_of_ten_is_too_often_and_old_failures_are_forgotten() {
        let mut recent = RecentOutcomes::default();
        let note = |recent: &mut RecentOutcomes, failed: u32, succeeded: u32, at: u64| {
            (0..failed).for_each(|_| recent.note(Outcome::Failed, Timestamp(at)));
            (0..succeeded).for_each(|_| recent.note(Outcome::Succeeded, Timestamp(at)));
        };
        note(&mut recent, 9, 0, 1_000_000);
        assert!(!recent.fails(Timestamp(1_000_000)), "too few to say so");
        note(&mut recent, 0, 36, 1_000_001);
        assert!(!recent.fails(Timestamp(1_000_001)), "a fifth is not more");
        note(&mut recent, 1, 0, 1_000_002);
        assert!(recent.fails(Timestamp(1_000_002)));
        assert!(recent.fails(Timestamp(1_000_000 + 2 * WINDOW.0 - 1)));
        assert!(!recent.fails(Timestamp(1_000_000 + 2 * WINDOW.0)), "it is tried again");
        note(&mut recent, 0, 36, 1_000_000 + WINDOW.0);
        assert!(!recent.fails(Timestamp(1_000_000 + WINDOW.0)), "both windows count");
    }
}
