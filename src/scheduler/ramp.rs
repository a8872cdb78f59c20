//! How fast a backlog that was found at boot is handed out (semantics 21).
//!
//! Why: after a restart every agent reconnects at once and every waiting task could leave in the same second; agents
//! that were scaled for the usual flow would drown. So dispatches start at [`START_RATE`] a second and double every
//! second until [`FULL_AFTER`], or until the tasks that waited at boot are gone, whichever is first. A hub that found
//! nothing waiting has no ramp.

use crate::ledger::time::{Millis, Timestamp};

/// Dispatches in the first second after a restart with a backlog.
pub const START_RATE: u64 = 200;
/// After so many seconds (a rate of 204,800) there is no bound any more.
pub const FULL_AFTER: u64 = 10;
/// Dispatches at once at the start.
pub const BURST: u64 = 20;
/// When out of allowance, the planner wants to be asked again after this.
pub const STEP: Millis = Millis(10);

/// The ramp of one start.
#[derive(Debug, Clone, Copy)]
pub struct Ramp {
    from: Timestamp,
    used: u64,
}

impl Ramp {
    /// A ramp that starts now.
    #[must_use]
    pub const fn starting(now: Timestamp) -> Self {
        Self { from: now, used: 0 }
    }

    /// Dispatches that may still be proposed at `now`; `None` when the ramp is over.
    #[must_use]
    pub fn allowance(&self, now: Timestamp) -> Option<u64> {
        let passed = now.since(self.from).0;
        let seconds = passed / 1_000;
        if seconds >= FULL_AFTER {
            return None;
        }
        let whole = START_RATE * ((1 << seconds) - 1);
        let begun = START_RATE * (1 << seconds) * (passed % 1_000) / 1_000;
        Some((BURST + whole + begun).saturating_sub(self.used))
    }

    /// One was proposed.
    pub const fn spend(&mut self) {
        self.used += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantics_21_dispatches_after_a_restart_double_every_second_until_unbounded() {
        let ramp = Ramp::starting(Timestamp(5_000));
        assert_eq!(ramp.allowance(Timestamp(5_000)), Some(20));
        assert_eq!(ramp.allowance(Timestamp(5_500)), Some(120));
        assert_eq!(ramp.allowance(Timestamp(6_000)), Some(220));
        assert_eq!(ramp.allowance(Timestamp(7_000)), Some(620));
        assert_eq!(ramp.allowance(Timestamp(15_000)), None);
    }

    #[test]
    fn what_was_spent_is_gone() {
        let mut ramp = Ramp::starting(Timestamp(0));
        (0..BURST).for_each(|_| ramp.spend());
        assert_eq!(ramp.allowance(Timestamp(0)), Some(0));
        assert_eq!(ramp.allowance(Timestamp(10)), Some(2));
    }
}
