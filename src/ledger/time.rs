//! Ledger time.
//!
//! Why an own time: deadlines, leases and retries must neither fire nor starve when somebody sets the wall clock
//! (T2). Ledger time is the wall clock at the very first start and from then on follows a monotonic clock that also
//! runs while the machine sleeps; wall time is a label, never an input to a decision (semantics 23).
//!
//! Rules never read a clock: `now` is an argument. Shells ask a [`Clock`], the first of the seams.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A moment in ledger time: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

/// A span of time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Millis(pub u64);

impl Millis {
    /// So many seconds.
    #[must_use]
    pub const fn secs(seconds: u64) -> Self {
        Self(seconds * 1_000)
    }
}

impl Timestamp {
    /// The moment `span` later; never wraps.
    #[must_use]
    pub fn after(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// How long from `earlier` to this moment; zero if it lies later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(millis) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Where shells read the time (seam 1).
pub trait Clock: Send + Sync {
    /// A monotonic reading in milliseconds that also runs while the machine sleeps. Its zero means nothing.
    fn monotonic(&self) -> Millis;
    /// The wall clock, Unix milliseconds: a label only.
    fn wall(&self) -> Timestamp;
    /// True when time passes by itself; false when a test moves it, so that nobody sleeps for it.
    fn is_real(&self) -> bool;
}

/// The machine's clocks; the one place that reads them.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic(&self) -> Millis {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Millis(timespec_millis(at))
    }

    fn wall(&self) -> Timestamp {
        Timestamp(timespec_millis(rustix::time::clock_gettime(rustix::time::ClockId::Realtime)))
    }

    fn is_real(&self) -> bool {
        true
    }
}

fn timespec_millis(at: rustix::time::Timespec) -> u64 {
    let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(at.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000)
}

/// Ledger time: a base, and what has passed on the monotonic clock since.
#[derive(Clone)]
pub struct LedgerClock {
    clock: Arc<dyn Clock>,
    base: Timestamp,
    zero: Millis,
}

impl LedgerClock {
    /// Ledger time that stands at `base` now.
    #[must_use]
    pub fn starting_at(clock: Arc<dyn Clock>, base: Timestamp) -> Self {
        let zero = clock.monotonic();
        Self { clock, base, zero }
    }

    /// Now, in ledger time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.base.after(Millis(self.clock.monotonic().0.saturating_sub(self.zero.0)))
    }

    /// Wall clock minus ledger time, in milliseconds.
    #[must_use]
    pub fn wall_offset(&self) -> i64 {
        let wall = i64::try_from(self.clock.wall().0).unwrap_or(i64::MAX);
        wall.saturating_sub(i64::try_from(self.now().0).unwrap_or(i64::MAX))
    }

    /// Does time pass by itself?
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.clock.is_real()
    }
}

impl fmt::Debug for LedgerClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerClock").field("base", &self.base).finish_non_exhaustive()
    }
}

/// A clock that only moves when told to: for simulation and tests.
#[derive(Debug)]
pub struct SimClock {
    monotonic: AtomicU64,
    wall_offset: AtomicI64,
}

impl SimClock {
    /// The fixed instant at which every simulation starts: 2026-01-01T00:00:00Z.
    pub const START: Timestamp = Timestamp(1_767_225_600_000);

    /// A clock that stands at [`SimClock::START`].
    #[must_use]
    pub fn new() -> Self {
        Self { monotonic: AtomicU64::new(Self::START.0), wall_offset: AtomicI64::new(0) }
    }

    /// Lets `span` pass.
    pub fn advance(&self, span: Millis) {
        self.monotonic.fetch_add(span.0, Ordering::SeqCst);
    }

    /// Sets the wall clock `by` milliseconds off, as an operator or NTP would.
    pub fn jump_wall(&self, by: i64) {
        self.wall_offset.fetch_add(by, Ordering::SeqCst);
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn monotonic(&self) -> Millis {
        Millis(self.monotonic.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Timestamp {
        let now = self.monotonic.load(Ordering::SeqCst);
        Timestamp(now.saturating_add_signed(self.wall_offset.load(Ordering::SeqCst)))
    }

    fn is_real(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_prints_as_rfc_3339_with_milliseconds() {
        assert_eq!(Timestamp(1_767_225_600_007).to_string(), "2026-01-01T00:00:00.007Z");
    }

    #[test]
    fn a_wall_jump_does_not_move_the_monotonic_reading() {
        let clock = SimClock::new();
        clock.jump_wall(-3_600_000);
        assert_eq!(clock.monotonic(), Millis(SimClock::START.0));
        assert_eq!(clock.wall(), Timestamp(SimClock::START.0 - 3_600_000));
    }
}
