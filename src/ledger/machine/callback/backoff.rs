//! When the next try is made, if any.
//!
//! Exponential with full jitter, drawn by hash from the callback's id and the try's number, so that a replayed log
//! gives the same times (semantics 10). A round ends with the first failed try at or after [`WINDOW`], so the tries
//! really cover 24 h however short the draws are (R-CBK-1); [`MAX_TRIES`] only bounds their number.

use crate::ledger::ids::{CallbackId, Digest};
use crate::ledger::machine::callback::{BASE_DELAY, Callback, MAX_DELAY, MAX_RETRY_AFTER, MAX_TRIES, WINDOW};
use crate::ledger::time::{Millis, Timestamp};

const _: () = assert!(BASE_DELAY.0 < MAX_DELAY.0 && MAX_DELAY.0 < WINDOW.0, "delays grow and stay inside the window");

/// When to try again after try `attempt` (from 1) failed; `None` when the round is over.
#[must_use]
pub(in crate::ledger::machine) fn next_try(
    callback: &Callback,
    attempt: u32,
    retry_after: Option<Millis>,
    now: Timestamp,
) -> Option<Timestamp> {
    let window_end = callback.since.after(WINDOW);
    if now >= window_end || attempt >= MAX_TRIES {
        return None;
    }
    let floor = retry_after.map_or(Millis(0), |asked| asked.min(MAX_RETRY_AFTER));
    let next = now.after(jittered(callback.id, attempt).max(floor));
    // The last try allowed stands at the window's end, so that no chain of short draws ends a round early.
    Some(if attempt.saturating_add(1) >= MAX_TRIES { next.max(window_end) } else { next })
}

/// A delay in [0, min(cap, base × 2^(attempt − 1))], evenly drawn.
#[must_use]
pub(in crate::ledger::machine) fn jittered(callback: CallbackId, attempt: u32) -> Millis {
    let bound = bound(attempt);
    let digest = Digest::of(&[b"callback-jitter", &callback.0, &attempt.to_be_bytes()]);
    let draw = digest.0.first_chunk::<8>().map_or(0, |head| u64::from_be_bytes(*head));
    let share = (u128::from(draw) * (u128::from(bound.0) + 1)) >> 64;
    Millis(u64::try_from(share).unwrap_or(bound.0))
}

/// The longest delay after try `attempt`.
#[must_use]
pub(in crate::ledger::machine) fn bound(attempt: u32) -> Millis {
    let doublings = attempt.saturating_sub(1).min(32);
    Millis(BASE_DELAY.0.saturating_mul(1 << doublings)).min(MAX_DELAY)
}
