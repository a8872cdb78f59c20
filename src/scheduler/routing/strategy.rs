//! Which of several candidates: four strategies (R-RTE-3, R-RTE-4).
//!
//! **Smooth weighted round-robin.** In each pick every candidate's position grows by its weight; the furthest wins and
//! falls back by the sum of all weights. Shares follow the weights exactly over a round, and an agent of weight five
//! among ones is not served five times in a row. Positions are volatile and per (namespace, capability).
//!
//! **Least loaded.** The lowest (in flight + reported queue depth) / max_concurrency wins; of equals whoever holds fewer
//! sessions for its size, for each of them will ask again; then they take turns by weight, for an idle fleet is all equal.
//!
//! **Consistent hash.** The nearest to the task's key wins ([`rendezvous`](super::rendezvous)).
//!
//! **Scored.** 100 points for the capability, up to 20 for priority, up to 15 less for load, 50 less for a failure rate of
//! late above a fifth; equals as under least-loaded.
//!
//! An agent that is slowed has half its weight everywhere (R-RTE-6), so weights are counted in halves.

use std::cmp::Ordering;

use crate::ledger::machine::agent::Strategy;
use crate::scheduler::routing::way::Way;
use crate::scheduler::routing::{Provider, Question};
use crate::scheduler::tempo::Pace;

/// Points for the capability itself, in thousandths as all points are.
pub const CAPABILITY: i64 = 100_000;
/// Points for the highest priority.
pub const PRIORITY: i64 = 20_000;
/// Points less for a full load.
pub const LOAD: i64 = 15_000;
/// Points less for failing too often.
pub const FAILURES: i64 = 50_000;

/// The highest priority that an agent declares.
const HIGHEST: i64 = 1_000;
/// A full load, in thousandths.
const FULL: i64 = 1_000;

/// One candidate in a choice: its figures and its position in the round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contender {
    /// Its share of work in halves: twice its weight, and once while it is slowed.
    pub share: u32,
    /// Position in the round, in halves.
    pub position: i64,
    /// Load in thousandths.
    pub load_milli: u64,
    /// Sessions that it holds, in thousandths of its size.
    pub sessions_milli: u64,
    /// Its declared priority.
    pub priority: u32,
    /// Does it fail too often?
    pub fails: bool,
    /// Is it slower than ever?
    pub pace: Pace,
    /// How far it is from the task's key, for a weight of 1; 0 where nothing is hashed.
    pub distance: u64,
}

/// A weight in halves.
#[must_use]
pub const fn share(weight: u32, pace: Pace) -> u32 {
    match pace {
        Pace::Usual => weight.saturating_mul(2),
        Pace::Slowed => weight,
    }
}

impl Contender {
    /// A provider, for a task.
    #[must_use]
    pub fn of(provider: &Provider<'_>, question: &Question<'_>, way: &Way<'_>) -> Self {
        let Provider { seat, offer, position } = *provider;
        Self {
            share: share(way.weight(&seat.key.agent_id, offer.weight), seat.pace),
            position,
            load_milli: seat.load_milli(),
            sessions_milli: seat.sessions_milli(),
            priority: offer.priority,
            fails: seat.ends.fails(question.now),
            pace: seat.pace,
            distance: match way.strategy {
                Strategy::ConsistentHash => question.key.distance(seat.mark),
                Strategy::WeightedRoundRobin | Strategy::LeastLoaded | Strategy::Scored => 0,
            },
        }
    }

    fn share(&self) -> i64 {
        i64::from(self.share)
    }

    /// Where it would stand if it were its turn.
    fn reach(&self) -> i64 {
        self.position + self.share()
    }

    fn points(&self) -> i64 {
        CAPABILITY + self.priority_points() - self.load_points() - self.failure_points()
    }

    fn priority_points(&self) -> i64 {
        i64::from(self.priority).min(HIGHEST) * PRIORITY / HIGHEST
    }

    fn load_points(&self) -> i64 {
        i64::try_from(self.load_milli).unwrap_or(FULL).min(FULL) * LOAD / FULL
    }

    const fn failure_points(&self) -> i64 {
        if self.fails { FAILURES } else { 0 }
    }

    /// What decides between equals before their turn does.
    const fn burden(&self) -> (u64, u64) {
        (self.load_milli, self.sessions_milli)
    }
}

/// The strategy that most offers ask for; of two that as many ask for the first, and the default where none does.
#[must_use]
pub fn of_votes(votes: [usize; Strategy::ALL.len()]) -> Strategy {
    let mut best = (Strategy::WeightedRoundRobin, 0);
    for (strategy, count) in Strategy::ALL.into_iter().zip(votes) {
        if count > best.1 {
            best = (strategy, count);
        }
    }
    best.0
}

/// Who comes first of two; equal where only their order in the list tells, which is the same everywhere.
#[must_use]
pub fn compare(strategy: Strategy, a: &Contender, b: &Contender) -> Ordering {
    let turn = || b.reach().cmp(&a.reach());
    match strategy {
        Strategy::WeightedRoundRobin => turn(),
        Strategy::LeastLoaded => a.burden().cmp(&b.burden()).then_with(turn),
        Strategy::ConsistentHash => {
            let far = |one: &Contender, other: &Contender| u128::from(one.distance) * u128::from(other.share);
            far(a, b).cmp(&far(b, a))
        }
        Strategy::Scored => {
            b.points().cmp(&a.points()).then_with(|| a.sessions_milli.cmp(&b.sessions_milli)).then_with(turn)
        }
    }
}

/// At most `N` places of the best, best first: one pass, no sorting of a thousand.
#[must_use]
pub fn best<const N: usize>(strategy: Strategy, contenders: &[Contender]) -> Vec<usize> {
    let is_better = |a: &Contender, b: &Contender| compare(strategy, a, b) == Ordering::Less;
    let mut top: Vec<(usize, &Contender)> = Vec::with_capacity(N + 1);
    for (index, contender) in contenders.iter().enumerate() {
        if top.len() == N && top.last().is_some_and(|(_, last)| !is_better(contender, last)) {
            continue;
        }
        let place = top.iter().position(|(_, other)| is_better(contender, other)).unwrap_or(top.len());
        top.insert(place, (index, contender));
        top.truncate(N);
    }
    top.into_iter().map(|(index, _)| index).collect()
}

/// Moves the positions after `winner` was picked. Only those took part in the round that were equal but for their turn.
pub fn advance(strategy: Strategy, contenders: &mut [Contender], winner: usize) {
    let Some(won) = contenders.get(winner).copied() else { return };
    let in_round = |other: &Contender| match strategy {
        Strategy::WeightedRoundRobin => true,
        Strategy::LeastLoaded => other.burden() == won.burden(),
        Strategy::ConsistentHash => false,
        Strategy::Scored => other.points() == won.points() && other.sessions_milli == won.sessions_milli,
    };
    let mut total = 0;
    for contender in contenders.iter_mut().filter(|other| in_round(other)) {
        contender.position += contender.share();
        total += contender.share();
    }
    if let Some(won) = contenders.get_mut(winner) {
        won.position -= total;
    }
}

/// The parts of a candidate's score, in thousandths. What decides comes first.
#[must_use]
pub fn score(strategy: Strategy, contender: &Contender) -> Vec<(&'static str, i64)> {
    let milli = |figure: u64| i64::try_from(figure).unwrap_or(i64::MAX);
    let position = ("position", contender.reach() * 500);
    let weight = ("weight", contender.share() * 500);
    let sessions = ("sessions", milli(contender.sessions_milli));
    let mut parts = match strategy {
        Strategy::WeightedRoundRobin => vec![position, weight],
        Strategy::LeastLoaded => vec![("load", milli(contender.load_milli)), sessions, position],
        Strategy::ConsistentHash => {
            let far = (u128::from(contender.distance) * 2_000 / u128::from(contender.share.max(1))) >> 32;
            vec![("distance", i64::try_from(far).unwrap_or(i64::MAX)), weight]
        }
        Strategy::Scored => vec![
            ("points", contender.points()),
            ("capability", CAPABILITY),
            ("priority", contender.priority_points()),
            ("load", -contender.load_points()),
            ("failures", -contender.failure_points()),
            sessions,
            position,
        ],
    };
    if contender.pace == Pace::Slowed {
        parts.push(("slowed", 500));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(weight: u32, load_milli: u64) -> Contender {
        Contender { share: 2 * weight, load_milli, ..Contender::default() }
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
    fn r_rte_5_of_two_that_are_as_loaded_the_one_with_fewer_sessions_wins() {
        let with = |load_milli, sessions_milli| Contender { sessions_milli, ..contender(1, load_milli) };
        let mut contenders = [with(100, 300), with(100, 200), with(200, 0), with(100, 200)];
        assert_eq!(picks(Strategy::LeastLoaded, &mut contenders, 3), [1, 3, 1]);
        let mut contenders = [with(100, 300), with(100, 200), with(200, 0)];
        assert_eq!(picks(Strategy::Scored, &mut contenders, 2), [1, 1]);
    }

    #[test]
    fn the_best_come_in_order_and_are_no_more_than_asked() {
        let contenders: Vec<_> = [3, 9, 1, 9, 7].into_iter().map(|weight| contender(weight, 0)).collect();
        assert_eq!(best::<3>(Strategy::WeightedRoundRobin, &contenders), [1, 3, 4]);
        assert_eq!(best::<9>(Strategy::WeightedRoundRobin, &contenders), [1, 3, 4, 0, 2]);
    }

    #[test]
    fn r_rte_4_points_are_for_capability_and_priority_less_load_and_failures_and_every_part_is_told() {
        let one = Contender { priority: 500, load_milli: 400, fails: true, ..contender(1, 0) };
        let expected = [
            ("points", 54_000),
            ("capability", 100_000),
            ("priority", 10_000),
            ("load", -6_000),
            ("failures", -50_000),
            ("sessions", 0),
            ("position", 1_000),
        ];
        assert_eq!(score(Strategy::Scored, &one), expected);
        let parts: i64 = expected[1..5].iter().map(|(_, points)| points).sum();
        assert_eq!(parts, 54_000, "the parts are the whole");
        let over = Contender { load_milli: 7_000, priority: 5_000, ..contender(1, 0) };
        assert_eq!(over.points(), 105_000, "neither load nor priority counts beyond its bound");
    }

    #[test]
    fn r_rte_4_whoever_fails_loses_to_whoever_is_full_and_equals_take_turns_by_weight() {
        let failing = Contender { priority: 1_000, fails: true, ..contender(9, 0) };
        let full = Contender { load_milli: 1_000, ..contender(1, 0) };
        assert_eq!(best::<2>(Strategy::Scored, &[failing, full]), [1, 0]);
        let mut equals = [contender(2, 0), contender(1, 0)];
        assert_eq!(picks(Strategy::Scored, &mut equals, 3), [0, 1, 0]);
    }

    #[test]
    fn r_rte_6_a_slowed_agent_has_half_its_weight_and_says_so() {
        let slowed = Contender { share: 10, pace: Pace::Slowed, ..Contender::default() };
        let mut contenders = [contender(10, 0), slowed];
        let of_slowed = picks(Strategy::WeightedRoundRobin, &mut contenders, 300).iter().filter(|n| **n == 1).count();
        assert_eq!(of_slowed, 100);
        let parts = score(Strategy::WeightedRoundRobin, &slowed);
        assert_eq!(parts, [("position", 5_000), ("weight", 5_000), ("slowed", 500)]);
    }

    #[test]
    fn the_strategy_is_what_most_ask_for_and_the_default_where_none_does() {
        assert_eq!(of_votes([0; 4]), Strategy::WeightedRoundRobin);
        assert_eq!(of_votes([0, 1, 0, 1]), Strategy::LeastLoaded);
        assert_eq!(of_votes([1, 1, 2, 1]), Strategy::ConsistentHash);
        assert_eq!(of_votes([2, 2, 2, 2]), Strategy::WeightedRoundRobin);
    }
}
