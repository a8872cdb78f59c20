//! What the scheduler promises, over all inputs (F1, S8, R-RTE-3).

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use crate::ledger::ids::{FairnessKey, ReachId};
use crate::ledger::machine::agent::{Health, Strategy};
use crate::ledger::machine::task::FailureClass;
use crate::ledger::machine::task::LaneId;
use crate::ledger::machine::task::spec::{Qos, SchemaVerdicts};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::planner::Planner;
use crate::scheduler::queue::{BACKGROUND_EVERY, CLASSES, Entry, FLOOD_DELAY, Floor, LaneKey, LaneNo, Queue, rank};
use crate::scheduler::roster::{PoolNo, Roster};
use crate::scheduler::routing::Needs;
use crate::scheduler::routing::candidate::Suspect;
use crate::scheduler::routing::strategy::{Contender, advance, best};
use crate::scheduler::world::{World, declaration, namespace, pull, submission};

fn id(n: u64) -> ReachId {
    submission(n).reach_id
}

/// The one pool in which everybody waits.
fn pool() -> PoolNo {
    Roster::default().open_pool(&namespace(), &submission(1).capability)
}

fn insert(queue: &mut Queue, n: u64, lane: u8, class: Qos, caller: u8) -> LaneNo {
    let key = LaneKey {
        id: LaneId([lane; 16]),
        schemas: SchemaVerdicts::default(),
        caller: None,
        suspect: Suspect::No,
        avoid: None,
        session: None,
    };
    let entry = Entry {
        task: id(n),
        namespace: namespace(),
        key,
        pool: pool(),
        class,
        caller: FairnessKey::new(&format!("c{caller}")).unwrap(),
        order: None,
    };
    queue.insert(entry, || Needs::of_submission(&namespace(), &submission(n), None))
}

/// The best head over lanes, as an agent that serves them all would pick it.
fn head(queue: &mut Queue, lanes: &[LaneNo], class: Qos) -> Option<ReachId> {
    queue.first(pool(), class, |lane, _| lanes.contains(&lane)).map(|(head, _)| head.task)
}

#[test]
fn a_pick_asks_only_the_lane_whose_turn_it_is_however_many_wait() {
    let mut queue = Queue::default();
    for n in 0..600 {
        insert(&mut queue, n, u8::try_from(n % 200).unwrap(), Qos::Normal, u8::try_from(n % 3).unwrap());
    }
    let mut asked = 0;
    while let Some((head, _)) = queue.first(pool(), Qos::Normal, |_, _| {
        asked += 1;
        true
    }) {
        queue.serve(head.task).unwrap();
    }
    assert_eq!((asked, queue.len()), (600, 0), "one question a pick");
}

proptest! {
    #[test]
    fn f1_within_a_class_and_caller_the_first_in_is_the_first_out(
        moves in prop::collection::vec((0u8..3, 0u8..3, 0u8..4, 0u8..10), 1..200),
    ) {
        let mut queue = Queue::default();
        let mut model: BTreeMap<(usize, u8, u8), VecDeque<ReachId>> = BTreeMap::new();
        for (n, (class, lane, caller, what)) in moves.into_iter().enumerate() {
            let n = u64::try_from(n).unwrap();
            let class = CLASSES[usize::from(class)];
            if what < 6 {
                insert(&mut queue, n, lane, class, caller);
                model.entry((rank(class), lane, caller)).or_default().push_back(id(n));
            } else if what < 9 {
                let no = insert(&mut queue, 10_000 + n, lane, Qos::Background, 99);
                let found = head(&mut queue, &[no], class);
                queue.remove(id(10_000 + n)).unwrap();
                if let Some(found) = found.filter(|found| *found != id(10_000 + n)) {
                    let ticket = queue.serve(found).unwrap();
                    let caller: u8 = ticket.caller.as_str()[1..].parse().unwrap();
                    prop_assert_eq!(model.get_mut(&(rank(class), lane, caller)).unwrap().pop_front(), Some(found));
                }
            } else if let Some(line) = model.get_mut(&(rank(class), lane, caller))
                && let Some(gone) = line.pop_back()
            {
                prop_assert!(queue.remove(gone).is_some());
                prop_assert!(queue.remove(gone).is_none());
            }
            prop_assert_eq!(queue.len(), model.values().map(VecDeque::len).sum::<usize>());
        }
    }

    #[test]
    fn f1_a_flood_delays_another_caller_by_at_most_the_published_number(
        flood in 1u64..100, lanes in 1u8..5, served_before in 0u64..50, callers in 1u8..6,
    ) {
        let mut queue = Queue::default();
        let mut numbers = Vec::new();
        let mut n = 0;
        for caller in 0..callers {
            for _ in 0..flood {
                n += 1;
                numbers.push(insert(&mut queue, n, u8::try_from(n % u64::from(lanes)).unwrap(), Qos::Normal, caller));
            }
        }
        numbers.sort();
        numbers.dedup();
        for _ in 0..served_before {
            if let Some(task) = head(&mut queue, &numbers, Qos::Normal) {
                queue.serve(task);
            }
        }
        let late = 1_000_000;
        numbers.push(insert(&mut queue, late, 0, Qos::Normal, 77));
        let mut before: BTreeMap<FairnessKey, u32> = BTreeMap::new();
        while let Some(task) = head(&mut queue, &numbers, Qos::Normal).filter(|task| *task != id(late)) {
            *before.entry(queue.serve(task).unwrap().caller).or_default() += 1;
        }
        prop_assert!(before.values().all(|count| *count <= FLOOD_DELAY), "{before:?}");
    }

    #[test]
    fn f1_lower_classes_are_served_within_the_published_bound(
        n in 0usize..40, arrivals in prop::collection::vec((any::<bool>(), any::<bool>()), 40..400),
    ) {
        let mut floor = Floor::starting(n);
        let (mut normal, mut background) = (0, 0);
        for (urgent, normal_waits) in arrivals {
            let waiting = [urgent, normal_waits, true];
            let class = floor.choose(waiting).unwrap();
            floor.picked(class, waiting);
            background = if class == Qos::Background { 0 } else { background + 1 };
            normal = if class == Qos::Normal || !normal_waits { 0 } else { normal + 1 };
            prop_assert!(background < BACKGROUND_EVERY && normal <= BACKGROUND_EVERY);
        }
    }

    #[test]
    fn weighted_round_robin_honours_weights_within_one_percent(weights in prop::collection::vec(1u32..50, 1..20)) {
        let mut contenders: Vec<Contender> =
            weights.iter().map(|weight| Contender { share: 2 * weight, ..Contender::default() }).collect();
        let mut picks = vec![0u32; weights.len()];
        for _ in 0..1_000 {
            let winner = best::<1>(Strategy::WeightedRoundRobin, &contenders)[0];
            advance(Strategy::WeightedRoundRobin, &mut contenders, winner);
            picks[winner] += 1;
        }
        let total: u32 = weights.iter().sum();
        for (weight, picks) in weights.iter().zip(picks) {
            let fair = f64::from(*weight) * 1_000.0 / f64::from(total);
            prop_assert!((f64::from(picks) - fair).abs() <= 10.0, "{picks} for {fair}");
        }
    }
}

/// What may happen to a small fleet.
#[derive(Debug, Clone)]
enum Happening {
    Submit { class: u8, caller: u8 },
    Claim { agent: u8, max: u32 },
    Unclaim { which: usize },
    Report { which: usize, how: u8 },
    Register { agent: u8 },
    Lose { agent: u8 },
    Pass { span: u64 },
    Restart,
}

fn happening() -> impl Strategy1 {
    prop_oneof![
        6 => (0u8..3, 0u8..3).prop_map(|(class, caller)| Happening::Submit { class, caller }),
        4 => (0u8..4, 1u32..6).prop_map(|(agent, max)| Happening::Claim { agent, max }),
        2 => (0usize..8).prop_map(|which| Happening::Unclaim { which }),
        6 => (0usize..16, 0u8..7).prop_map(|(which, how)| Happening::Report { which, how }),
        1 => (0u8..4).prop_map(|agent| Happening::Register { agent }),
        1 => (0u8..4).prop_map(|agent| Happening::Lose { agent }),
        2 => (1u64..5_000).prop_map(|span| Happening::Pass { span }),
        1 => Just(Happening::Restart),
    ]
}

use proptest::strategy::Strategy as Generator;

/// A generator of happenings; the machine's own `Strategy` has the plain name.
trait Strategy1: Generator<Value = Happening> {}
impl<T: Generator<Value = Happening>> Strategy1 for T {}

const NAMES: [&str; 4] = ["push", "pull", "single", "wide"];

fn register(world: &mut World, agent: u8, strategy: Strategy) {
    let mut declared = match agent {
        0 => declaration(3),
        1 => pull(4),
        2 => pull(1),
        _ => declaration(20),
    };
    declared.offers[0].strategy = Some(strategy);
    world.register(NAMES[usize::from(agent)], declared);
}

fn happen(world: &mut World, claims: &mut Vec<crate::ledger::planner::ClaimId>, what: Happening, strategy: Strategy) {
    let held = |world: &World| -> Vec<ReachId> {
        world.state.tasks().values().filter(|task| task.status.lease().is_some()).map(|task| task.id()).collect()
    };
    match what {
        Happening::Submit { class, caller } => {
            world.submit(|s| {
                s.qos = CLASSES[usize::from(class)];
                s.fairness_key = FairnessKey::new(&format!("c{caller}")).unwrap();
            });
        }
        Happening::Claim { agent, max } => claims.push(world.claim(NAMES[usize::from(agent)], max)),
        Happening::Unclaim { which } if which < claims.len() => world.unclaim(claims.remove(which)),
        Happening::Unclaim { .. } => {}
        Happening::Report { which, how } => {
            if let Some(task) = held(world).get(which).copied() {
                match (how, world.state.task(task).unwrap().status.kind()) {
                    (_, StatusKind::Orphaned) => {}
                    (0, StatusKind::Dispatched) => world.ack(task),
                    (1, _) => world.fail(task),
                    (4.., _) => world.fail_as(task, FailureClass::AgentCrash),
                    _ => world.complete(task),
                }
            }
        }
        Happening::Register { agent } => register(world, agent, strategy),
        Happening::Lose { agent } => {
            let name = NAMES[usize::from(agent)];
            if world.state.agent(&crate::scheduler::world::key(name)).unwrap().health != Health::Lost {
                world.lose(name);
            }
        }
        Happening::Pass { span } => world.pass(span),
        Happening::Restart => {
            claims.clear();
            world.restart();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn s8_no_proposal_is_ever_beyond_demand_or_slots_and_nothing_fitting_is_left_over(
        happenings in prop::collection::vec(happening(), 1..120), room in 1usize..8, strategy in 0usize..4,
    ) {
        let mut world = World::new();
        let strategy = Strategy::ALL[strategy];
        (0..4).for_each(|agent| register(&mut world, agent, strategy));
        let mut claims = Vec::new();
        for what in happenings {
            happen(&mut world, &mut claims, what, strategy);
            let wanted: BTreeMap<String, u32> = NAMES
                .iter()
                .map(|name| {
                    let key = crate::scheduler::world::key(name);
                    let pulse = world.scheduler.vitals().of(&key);
                    ((*name).to_owned(), pulse.map_or(0, |pulse| pulse.demand(world.incarnation(name))))
                })
                .collect();
            let mut given: BTreeMap<String, u32> = BTreeMap::new();
            for dispatch in world.cycle_by(room) {
                *given.entry(dispatch.agent).or_default() += 1;
            }
            for agent in ["pull", "single"] {
                prop_assert!(given.get(agent).copied().unwrap_or(0) <= wanted[agent], "{given:?} {wanted:?}");
            }
            prop_assert_eq!(&world.refusals, &Vec::new());
            let queued = world.state.tasks().values().filter(|task| task.wake_at().is_some()
                && task.status.kind() == StatusKind::Queued);
            prop_assert_eq!(world.scheduler.queued(), queued.clone().count());
            // Work is left over only when the ramp says so or nobody has room.
            if world.scheduler.wake_at(&world.state, world.now).is_none() {
                for task in queued {
                    let report = world.scheduler.explain_task(&world.state, task);
                    prop_assert_eq!(report.winner, None);
                }
            }
        }
    }
}
