//! Which of several candidates: smooth weighted round-robin, or the least loaded (R-RTE-3).
//!
//! **Smooth weighted round-robin.** In each pick every candidate's position grows by its weight; the furthest wins and
//! falls back by the sum of all weights. Shares follow the weights exactly over a round, and an agent of weight five
//! among ones is not served five times in a row. Positions are volatile and per (namespace, capability).
//!
//! **Least loaded.** The lowest (in flight + reported queue depth) / max_concurrency wins; equals take turns by weight,
//! for an idle fleet is all equal.

use crate::ledger::machine::agent::{Offer, Strategy};
use crate::scheduler::routing::candidate::Seat;

/// One candidate in a choice: its figures and its position in the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// Share of work, at least 1.
    pub weight: u32,
    /// Position in the round.
    pub position: i64,
    /// Load in thousandths.
    pub load_milli: u64,
}

impl Contender {
    /// An agent with its position.
    #[must_use]
    pub fn of(seat: &Seat, offer: &Offer, position: i64) -> Self {
        Self { weight: offer.weight.max(1), position, load_milli: seat.load_milli() }
    }

    fn weight(&self) -> i64 {
        i64::from(self.weight)
    }
}

/// The strategy's name in explanations.
#[must_use]
pub const fn name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::WeightedRoundRobin => "weighted-round-robin",
        Strategy::LeastLoaded => "least-loaded",
    }
}

/// The strategy of a capability: the one that most of its offers name; weighted round-robin when none does or they tie.
pub fn of_offers<'a>(offers: impl Iterator<Item = &'a Offer>) -> Strategy {
    let (mut weighted, mut loaded) = (0_usize, 0_usize);
    for offer in offers {
        match offer.strategy {
            Some(Strategy::WeightedRoundRobin) => weighted += 1,
            Some(Strategy::LeastLoaded) => loaded += 1,
            None => {}
        }
    }
    if loaded > weighted { Strategy::LeastLoaded } else { Strategy::WeightedRoundRobin }
}

/// Is `a` before `b`? Among equals the earlier listed stays, so the order is total and the same everywhere.
fn is_better(strategy: Strategy, a: &Contender, b: &Contender) -> bool {
    let further = |a: &Contender, b: &Contender| a.position + a.weight() > b.position + b.weight();
    match strategy {
        Strategy::WeightedRoundRobin => further(a, b),
        Strategy::LeastLoaded => a.load_milli < b.load_milli || (a.load_milli == b.load_milli && further(a, b)),
    }
}

/// At most `N` places of the best, best first: one pass, no sorting of a thousand.
#[must_use]
pub fn best<const N: usize>(strategy: Strategy, contenders: &[Contender]) -> Vec<usize> {
    let mut top: Vec<(usize, &Contender)> = Vec::with_capacity(N + 1);
    for (index, contender) in contenders.iter().enumerate() {
        if top.len() == N && top.last().is_some_and(|(_, last)| !is_better(strategy, contender, last)) {
            continue;
        }
        let place = top.iter().position(|(_, other)| is_better(strategy, contender, other)).unwrap_or(top.len());
        top.insert(place, (index, contender));
        top.truncate(N);
    }
    top.into_iter().map(|(index, _)| index).collect()
}

/// Moves the positions after `winner` was picked. Under least-loaded only the equals of the winner were in the round.
pub fn advance(strategy: Strategy, contenders: &mut [Contender], winner: usize) {
    let Some(won) = contenders.get(winner).copied() else { return };
    let in_round = |other: &Contender| match strategy {
        Strategy::WeightedRoundRobin => true,
        Strategy::LeastLoaded => other.load_milli == won.load_milli,
    };
    let mut total = 0;
    for contender in contenders.iter_mut().filter(|other| in_round(other)) {
        contender.position += contender.weight();
        total += contender.weight();
    }
    if let Some(won) = contenders.get_mut(winner) {
        won.position -= total;
    }
}

/// The parts of a candidate's score, in thousandths where they are shares.
#[must_use]
pub fn score(strategy: Strategy, contender: &Contender) -> [(&'static str, i64); 2] {
    let load = i64::try_from(contender.load_milli).unwrap_or(i64::MAX);
    match strategy {
        Strategy::WeightedRoundRobin => {
            [("position", (contender.position + contender.weight()) * 1_000), ("weight", contender.weight() * 1_000)]
        }
        Strategy::LeastLoaded => [("load", load), ("position", (contender.position + contender.weight()) * 1_000)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(weight: u32, load_milli: u64) -> Contender {
        Contender { weight, position: 0, load_milli }
    }

    fn picks(strategy: Strategy, contenders: &mut [Contender], n: usize) -> Vec<usize> {
        (0..n)
            .map(|_| {
                let winner = best::<1>(strategy, contenders)[0];
                advance(strategy, contenders, winner);
                winner
            })
            .collect()
    }

    #[test]
    fn a_heavy_agent_is_not_served_in_one_run() {
        let mut contenders = [contender(5, 0), contender(1, 0), contender(1, 0)];
        assert_eq!(picks(Strategy::WeightedRoundRobin, &mut contenders, 7), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn the_least_loaded_wins_and_equals_take_turns() {
        let mut contenders = [contender(1, 500), contender(1, 100), contender(1, 100)];
        assert_eq!(picks(Strategy::LeastLoaded, &mut contenders, 4), [1, 2, 1, 2]);
    }

    #[test]
    fn the_best_come_in_order_and_are_no_more_than_asked() {
        let contenders: Vec<_> = [3, 9, 1, 9, 7].into_iter().map(|weight| contender(weight, 0)).collect();
        assert_eq!(best::<3>(Strategy::WeightedRoundRobin, &contenders), [1, 3, 4]);
        assert_eq!(best::<9>(Strategy::WeightedRoundRobin, &contenders), [1, 3, 4, 0, 2]);
    }
}
