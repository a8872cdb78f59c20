//! Which agent a key belongs to: weighted rendezvous hashing (R-RTE-3, consistent hash).
//!
//! Why no ring: a ring must be kept, is uneven without many points an agent, and honours weights only through more of
//! them. Here each agent has a *distance* from each key, drawn from both names alone, and the nearest one serves it. So an
//! agent that joins takes over only the keys to which it is nearest, one that leaves or is full gives away only its own,
//! and the shares follow the weights: a distance is drawn as the waiting time for an event of that rate, and the chance
//! that the first of several such events is one's own is one's share of the rates.
//!
//! Integers only: the logarithm of a machine's library may differ in its last bit, and then two hubs would disagree.

use crate::ledger::ids::TokenId;
use crate::ledger::machine::task::spec::Submission;

/// What a task is kept together by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The key of a task: its session; without one the fairness key, if the caller named one; else the task alone.
    #[must_use]
    pub fn of(spec: &Submission, submitter: Option<&TokenId>) -> Self {
        let named = Some(spec.fairness_key.as_str()).filter(|key| submitter.is_none_or(|own| own.as_str() != *key));
        match (&spec.session, named) {
            (Some(session), _) => Self(mark(session.as_str().as_bytes())),
            (None, Some(named)) => Self(mark(named.as_bytes())),
            (None, None) => Self(mark(&spec.reach_id.0)),
        }
    }

    /// How far an agent of weight 1 is from it, in 2^-32; the weight divides it.
    #[must_use]
    pub fn distance(self, agent: u64) -> u64 {
        minus_log2(mixed(self.0 ^ agent))
    }
}

/// A name as a number: FNV-1a, mixed.
#[must_use]
pub fn mark(name: &[u8]) -> u64 {
    let sum = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    mixed(sum)
}

/// Every bit of what comes in changes half of what goes out (the finalizer of SplitMix64).
const fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// −log₂((x + 1) / 2⁶⁴) in 2^-32: 0 for the largest x, 64 for 0.
fn minus_log2(x: u64) -> u64 {
    const FRACTION: u32 = 32;
    let Some(x) = x.checked_add(1) else { return 0 };
    let whole = u64::from(x.ilog2());
    // 1 to below 2, with 63 bits behind the point; its square says the next bit of the logarithm.
    let mut part = x << x.leading_zeros();
    let mut fraction = 0_u64;
    for _ in 0..FRACTION {
        let square = u128::from(part) * u128::from(part);
        let is_two = square >> 127 == 1;
        fraction = (fraction << 1) | u64::from(is_two);
        part = u64::try_from(square >> if is_two { 64 } else { 63 }).unwrap_or(u64::MAX);
    }
    (64 << FRACTION) - ((whole << FRACTION) | fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::{FairnessKey, SessionId};
    use crate::scheduler::world::submission;

    #[test]
    fn the_logarithm_is_right_to_the_ninth_place() {
        for (x, exact) in [(u64::MAX, 0.0), (0, 64.0), ((1 << 63) - 1, 1.0), (1 << 62, 2.0), (3, 62.0)] {
            let found = minus_log2(x) as f64 / 2_f64.powi(32);
            assert!((found - exact).abs() < 1e-9, "{x}: {found} for {exact}");
        }
        for n in 1..1_000_u64 {
            let x = mixed(n);
            let (found, exact) = (minus_log2(x) as f64 / 2_f64.powi(32), 64.0 - (x as f64 + 1.0).log2());
            assert!((found - exact).abs() < 1e-9, "{x}: {found} for {exact}");
        }
    }

    #[test]
    fn a_session_is_the_key_then_a_named_fairness_key_then_the_task() {
        let token = TokenId::new("tok").unwrap();
        let spec = |n, fairness: &str, session: Option<&str>| {
            let mut spec = submission(n);
            spec.fairness_key = FairnessKey::new(fairness).unwrap();
            spec.session = session.map(|session| SessionId::new(session).unwrap());
            Key::of(&spec, Some(&token))
        };
        assert_eq!(spec(1, "alice", Some("s")), spec(2, "bob", Some("s")));
        assert_eq!(spec(1, "alice", None), spec(2, "alice", None));
        assert_ne!(spec(1, "alice", None), spec(1, "bob", None));
        assert_ne!(spec(1, "tok", None), spec(2, "tok", None), "all that a caller sends is not one thing");
        assert_eq!(spec(1, "tok", None), spec(1, "tok", None));
    }

    #[test]
    fn the_same_names_are_as_far_apart_on_every_machine() {
        let far = |key: &[u8], agent: &[u8]| Key(mark(key)).distance(mark(agent));
        assert_eq!(far(b"trip-42", b"weather-1"), far(b"trip-42", b"weather-1"));
        assert_ne!(far(b"trip-42", b"weather-1"), far(b"trip-42", b"weather-2"));
    }
}
