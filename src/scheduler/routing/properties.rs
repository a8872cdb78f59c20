//! What the strategies promise, over all inputs (R-RTE-3).

use std::cmp::Ordering;

use proptest::prelude::*;

use crate::ledger::ids::SessionId;
use crate::ledger::machine::agent::Strategy;
use crate::scheduler::routing::rendezvous::{Key, mark};
use crate::scheduler::routing::strategy::{Contender, advance, best, compare};
use crate::scheduler::tempo::Pace;
use crate::scheduler::world::submission;

const KEYS: u64 = 2_000;

/// An agent as hashing sees it: its name and its weight.
type Agent = (String, u32);

fn key(fleet: u64, n: u64) -> Key {
    let mut spec = submission(1);
    spec.session = Some(SessionId::new(&format!("session-{fleet}-{n}")).unwrap());
    Key::of(&spec, None)
}

/// Who serves each key; `full` is passed over.
fn served(agents: &[Agent], fleet: u64, full: Option<&str>) -> Vec<String> {
    let open: Vec<&Agent> = agents.iter().filter(|(name, _)| Some(name.as_str()) != full).collect();
    let contender = |key: Key, (name, weight): &Agent| Contender {
        share: 2 * weight,
        distance: key.distance(mark(name.as_bytes())),
        ..Contender::default()
    };
    (0..KEYS)
        .map(|n| {
            let contenders: Vec<Contender> = open.iter().map(|agent| contender(key(fleet, n), agent)).collect();
            open[best::<1>(Strategy::ConsistentHash, &contenders)[0]].0.clone()
        })
        .collect()
}

fn fleet(weights: &[u32]) -> Vec<Agent> {
    weights.iter().enumerate().map(|(n, weight)| (format!("agent-{n}"), *weight)).collect()
}

/// Is so many of [`KEYS`] about that share? Five times the deviation that chance has.
fn about(count: usize, share: f64) -> bool {
    let keys = KEYS as f64;
    (count as f64 - share * keys).abs() <= 5.0 * (share * (1.0 - share) * keys).sqrt() + 1.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn r_rte_3_an_agent_that_joins_takes_its_share_of_the_keys_and_nobody_elses_move(
        weights in prop::collection::vec(1u32..20, 1..12), joins in 1u32..20, seed in any::<u64>(),
    ) {
        let before = fleet(&weights);
        let mut after = before.clone();
        after.push(("late".to_owned(), joins));
        let (was, is) = (served(&before, seed, None), served(&after, seed, None));
        let moved = was.iter().zip(&is).filter(|(was, is)| was != is);
        prop_assert!(moved.clone().all(|(_, is)| is == "late"));
        let share = f64::from(joins) / f64::from(weights.iter().sum::<u32>() + joins);
        prop_assert!(about(moved.count(), share));
    }

    #[test]
    fn r_rte_3_an_agent_that_leaves_or_is_full_gives_away_its_keys_alone(
        weights in prop::collection::vec(1u32..20, 2..12), which in 0usize..12, seed in any::<u64>(),
    ) {
        let all = fleet(&weights);
        let gone = all[which % all.len()].0.clone();
        let left: Vec<Agent> = all.iter().filter(|(name, _)| *name != gone).cloned().collect();
        let (was, is) = (served(&all, seed, None), served(&left, seed, None));
        prop_assert!(was.iter().zip(&is).all(|(was, is)| was == is || *was == gone));
        prop_assert_eq!(served(&all, seed, Some(&gone)), is, "full is as good as gone, and only as long");
    }

    #[test]
    fn r_rte_3_keys_are_shared_by_weight(weights in prop::collection::vec(1u32..50, 1..12), seed in any::<u64>()) {
        let all = fleet(&weights);
        let served = served(&all, seed, None);
        let total: u32 = weights.iter().sum();
        for (name, weight) in &all {
            let count = served.iter().filter(|by| *by == name).count();
            prop_assert!(about(count, f64::from(*weight) / f64::from(total)), "{name} of weight {weight}: {count}");
        }
    }

    #[test]
    fn every_strategy_puts_all_in_one_order_and_its_round_never_runs_away(
        figures in prop::collection::vec((1u32..1_001, any::<bool>(), 0u64..2_000, 0u64..3, 0u32..1_001, any::<bool>()), 1..12),
        seed in any::<u64>(),
    ) {
        for strategy in Strategy::ALL {
            let mut all: Vec<Contender> = figures
                .iter()
                .enumerate()
                .map(|(n, (weight, slowed, load_milli, sessions, priority, fails))| Contender {
                    share: if *slowed { *weight } else { 2 * weight },
                    position: 0,
                    load_milli: *load_milli,
                    sessions_milli: sessions * 100,
                    priority: *priority,
                    fails: *fails,
                    pace: if *slowed { Pace::Slowed } else { Pace::Usual },
                    distance: key(seed, 1).distance(mark(&n.to_be_bytes())),
                })
                .collect();
            for (a, b, c) in all.iter().flat_map(|a| all.iter().flat_map(|b| all.iter().map(|c| (*a, *b, *c)))) {
                let of = |a, b| compare(strategy, a, b);
                prop_assert_eq!(of(&a, &b), of(&b, &a).reverse());
                if of(&a, &b) == Ordering::Less && of(&b, &c) == Ordering::Less {
                    prop_assert_eq!(of(&a, &c), Ordering::Less);
                }
            }
            let bound: i64 = all.iter().map(|one| i64::from(one.share)).sum();
            for _ in 0..200 {
                let winner = best::<1>(strategy, &all)[0];
                advance(strategy, &mut all, winner);
                prop_assert!(all.iter().all(|one| one.position.abs() <= bound), "{strategy:?}");
                prop_assert_eq!(all.iter().map(|one| one.position).sum::<i64>(), 0);
            }
        }
    }
}
