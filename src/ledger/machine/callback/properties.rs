//! What holds of every callback, whatever its receiver does.

use proptest::prelude::*;

use crate::ledger::ids::{CallbackId, Seq};
use crate::ledger::machine::callback::backoff::{bound, jittered, next_try};
use crate::ledger::machine::callback::{
    Callback, CallbackState, CallbackSubject, MAX_DELAY, MAX_RETRY_AFTER, MAX_TRIES, WINDOW,
};
use crate::ledger::machine::world::{namespace, task_id};
use crate::ledger::time::{Millis, SimClock, Timestamp};

fn callback(id: [u8; 16]) -> Callback {
    Callback {
        id: CallbackId(id),
        namespace: namespace(),
        subject: CallbackSubject::Task(task_id(1)),
        seq: Seq(1),
        url: "https://caller.example/hook".into(),
        secret_ref: "default".into(),
        state: CallbackState::Due,
        attempts: 0,
        since: SimClock::START,
        next_at: SimClock::START,
        last_error: None,
    }
}

/// The times of a round's tries, each answered after `latency` with that `Retry-After`.
fn round(callback: &Callback, latency: Millis, asked: &[Option<Millis>]) -> Vec<Timestamp> {
    let mut tries = vec![callback.since];
    let mut asked = asked.iter().copied().cycle();
    for attempt in 1.. {
        let answered = tries.last().unwrap().after(latency);
        match next_try(callback, attempt, asked.next().flatten(), answered) {
            Some(next) => tries.push(next),
            None => break,
        }
    }
    tries
}

proptest! {
    #[test]
    fn the_tries_of_every_round_cover_24_hours_in_a_bounded_number(
        id: [u8; 16],
        latency in 0..30_000u64,
        asked in prop::collection::vec(prop::option::of((0..200_000_000u64).prop_map(Millis)), 1..5),
    ) {
        let callback = callback(id);
        let tries = round(&callback, Millis(latency), &asked);
        let last = tries.last().unwrap().since(callback.since);
        prop_assert!(Millis(last.0 + latency) >= WINDOW, "the last try came after {last}");
        prop_assert!(last.0 <= WINDOW.0 + MAX_RETRY_AFTER.0 + latency);
        prop_assert!(tries.len() <= usize::try_from(MAX_TRIES).unwrap());
        prop_assert!(tries.is_sorted());
    }

    #[test]
    fn a_delay_is_drawn_below_its_bound_and_never_below_retry_after(
        id: [u8; 16],
        attempt in 1..MAX_TRIES - 1,
        asked in prop::option::of((0..200_000_000u64).prop_map(Millis)),
    ) {
        let callback = callback(id);
        prop_assert!(jittered(callback.id, attempt) <= bound(attempt));
        prop_assert!(bound(attempt) <= MAX_DELAY);
        let next = next_try(&callback, attempt, asked, callback.since).unwrap();
        let delay = next.since(callback.since);
        let floor = asked.unwrap_or(Millis(0)).min(MAX_RETRY_AFTER);
        prop_assert!(delay >= floor && delay <= floor.max(bound(attempt)));
    }
}

#[test]
fn even_the_shortest_draws_cannot_end_a_round_before_the_window_does() {
    let callback = callback([0; 16]);
    let next = next_try(&callback, MAX_TRIES - 1, None, callback.since.after(Millis(5))).unwrap();
    assert_eq!(next, callback.since.after(WINDOW));
    assert_eq!(next_try(&callback, MAX_TRIES, None, callback.since.after(Millis(6))), None);
}

#[test]
fn the_draws_of_many_callbacks_are_spread_evenly() {
    let mut quarters = [0u32; 4];
    for n in 0..4_000u32 {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        let share = jittered(CallbackId(id), 20).0 * 4 / (MAX_DELAY.0 + 1);
        quarters[usize::try_from(share).unwrap()] += 1;
    }
    assert!(quarters.iter().all(|count| (850..=1_150).contains(count)), "{quarters:?}");
}
