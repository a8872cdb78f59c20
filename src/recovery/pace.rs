//! A token bucket: how fast replays may go (R-REC-2, semantics 40).
//!
//! Why: after a loss a hundred tasks want back at once, and the standbys that take them also have their own. In any
//! window w a bucket lets at most rate × w + burst through (R1).
//!
//! Every source of replays, the sweep and each plan, has its own bucket. [`Pace`] is what they share: one bucket a
//! namespace, at the greatest rate that any of its sources has, and one over all. So a plan beside the sweep adds
//! nothing to what the agents of a namespace must take.

use std::collections::BTreeMap;

use crate::ledger::ids::Namespace;
use crate::ledger::machine::policy::HubPolicy;
use crate::ledger::time::{Millis, Timestamp};

/// Parts of a token: a rate of r a second is r parts a millisecond, so no fraction is lost.
const PARTS: u64 = 1_000;

/// One bucket.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    rate: u64,
    parts: u64,
    at: Timestamp,
}

/// How many may go at once: max(1, rate/4).
#[must_use]
pub const fn burst(rate: u32) -> u32 {
    if rate / 4 > 1 { rate / 4 } else { 1 }
}

impl Bucket {
    /// A full bucket of `rate` tokens a second, at least 1.
    #[must_use]
    pub fn new(rate: u32, now: Timestamp) -> Self {
        let mut bucket = Self { rate: u64::from(rate.max(1)), parts: 0, at: now };
        bucket.parts = bucket.capacity();
        bucket
    }

    /// A bucket that was empty at `since` and has filled from then on.
    #[must_use]
    pub fn empty_at(rate: u32, since: Timestamp) -> Self {
        Self { rate: u64::from(rate.max(1)), parts: 0, at: since }
    }

    fn capacity(&self) -> u64 {
        (self.rate / 4).max(1) * PARTS
    }

    /// Changes the rate from `now` on; what is saved stays, up to the new burst.
    pub fn set_rate(&mut self, rate: u32, now: Timestamp) {
        let rate = u64::from(rate.max(1));
        if rate != self.rate {
            self.refill(now);
            self.rate = rate;
            self.parts = self.parts.min(self.capacity());
        }
    }

    fn refill(&mut self, now: Timestamp) {
        let gained = now.since(self.at).0.saturating_mul(self.rate);
        self.parts = self.parts.saturating_add(gained).min(self.capacity());
        self.at = self.at.max(now);
    }

    /// Is there a token at `now`?
    pub fn has_token(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        self.parts >= PARTS
    }

    /// Takes one, if there is one.
    pub fn take(&mut self, now: Timestamp) -> bool {
        let there = self.has_token(now);
        if there {
            self.parts -= PARTS;
        }
        there
    }

    /// What a token was taken for happened at that moment, later than it was planned: the time between the two brings
    /// nothing, or a window that begins there would see more than the rate allows.
    pub fn spent_at(&mut self, at: Timestamp) {
        self.at = self.at.max(at);
    }

    /// Is nothing missing at `now`? Then forgetting the bucket loses nothing.
    #[must_use]
    pub fn is_full(&self, now: Timestamp) -> bool {
        let mut then = *self;
        then.refill(now);
        then.parts == then.capacity()
    }

    /// When the next token is there: `now` if one is.
    #[must_use]
    pub fn next_at(&self, now: Timestamp) -> Timestamp {
        let mut then = *self;
        then.refill(now);
        let missing = PARTS.saturating_sub(then.parts);
        now.after(Millis(missing.div_ceil(self.rate)))
    }
}

/// The buckets that all sources share.
///
/// Each begins empty at the last event before the start, for an earlier run may have emptied it: a restart brings no
/// fresh burst.
#[derive(Debug)]
pub struct Pace {
    began: Timestamp,
    overall: Bucket,
    namespaces: BTreeMap<Namespace, Bucket>,
}

impl Default for Pace {
    fn default() -> Self {
        Self::starting(HubPolicy::default().replays_per_second, Timestamp::default())
    }
}

impl Pace {
    /// Buckets that were empty at `began`; `overall` is the hub's own rate.
    #[must_use]
    pub fn starting(overall: u32, began: Timestamp) -> Self {
        Self { began, overall: Bucket::empty_at(overall, began), namespaces: BTreeMap::new() }
    }

    /// Sets the rate over all namespaces from `now` on.
    pub fn set_overall(&mut self, rate: u32, now: Timestamp) {
        self.overall.set_rate(rate, now);
    }

    /// Sets the rate of a namespace's bucket from `now` on.
    pub fn set_rate(&mut self, namespace: &Namespace, rate: u32, now: Timestamp) {
        if let Some(bucket) = self.namespaces.get_mut(namespace) {
            bucket.set_rate(rate, now);
        } else {
            self.namespaces.insert(namespace.clone(), Bucket::empty_at(rate, self.began));
        }
    }

    /// Is there a token in both buckets? Not before the namespace has a rate.
    pub fn has_token(&mut self, namespace: &Namespace, now: Timestamp) -> bool {
        self.overall.has_token(now) && self.namespaces.get_mut(namespace).is_some_and(|own| own.has_token(now))
    }

    /// Takes one from both, if both have one.
    pub fn take(&mut self, namespace: &Namespace, now: Timestamp) -> bool {
        let there = self.has_token(namespace, now);
        if there {
            self.overall.take(now);
            if let Some(own) = self.namespaces.get_mut(namespace) {
                own.take(now);
            }
        }
        there
    }

    /// A replay of that namespace happened; see [`Bucket::spent_at`].
    pub fn spent_at(&mut self, namespace: &Namespace, at: Timestamp) {
        self.overall.spent_at(at);
        if let Some(own) = self.namespaces.get_mut(namespace) {
            own.spent_at(at);
        }
    }

    /// When both have one.
    #[must_use]
    pub fn next_at(&self, namespace: &Namespace, now: Timestamp) -> Timestamp {
        let overall = self.overall.next_at(now);
        self.namespaces.get(namespace).map_or(now, |own| own.next_at(now)).max(overall)
    }

    /// Forgets buckets that lack nothing and that nobody needs.
    pub fn forget_full(&mut self, now: Timestamp, is_needed: impl Fn(&Namespace) -> bool) {
        self.namespaces.retain(|namespace, bucket| is_needed(namespace) || !bucket.is_full(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantics_40_burst_is_a_quarter_of_the_rate_and_at_least_one() {
        for (rate, expected) in [(20, 5), (1, 1), (7, 1), (8, 2), (100_000, 25_000)] {
            let mut bucket = Bucket::new(rate, Timestamp(0));
            assert_eq!((0..30_000).filter(|_| bucket.take(Timestamp(0))).count(), expected, "{rate}");
            assert_eq!(u32::try_from(expected), Ok(burst(rate)));
        }
    }

    #[test]
    fn the_next_token_comes_when_it_says() {
        let mut bucket = Bucket::new(3, Timestamp(0));
        assert!(bucket.take(Timestamp(0)));
        let next = bucket.next_at(Timestamp(0));
        assert_eq!(next, Timestamp(334));
        assert!(!bucket.take(Timestamp(333)));
        assert!(bucket.take(next));
    }

    #[test]
    fn r1_what_happens_later_than_planned_counts_from_when_it_happened() {
        let mut bucket = Bucket::new(20, Timestamp(0));
        assert_eq!((0..9).filter(|_| bucket.take(Timestamp(0))).count(), 5);
        bucket.spent_at(Timestamp(40));
        assert!(!bucket.take(Timestamp(89)));
        assert!(bucket.take(Timestamp(90)), "at most 25 from 40 to 1,039");
    }

    #[test]
    fn a_lower_rate_cuts_what_was_saved() {
        let mut bucket = Bucket::new(400, Timestamp(0));
        bucket.set_rate(8, Timestamp(0));
        assert_eq!((0..200).filter(|_| bucket.take(Timestamp(0))).count(), 2);
    }
}
