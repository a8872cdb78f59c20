//! Strategies over a real state: who is chosen, and what is told of it (R-RTE-3, R-RTE-4, R-RTE-6).

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::ids::{FairnessKey, ReachId, SessionId};
use crate::ledger::machine::agent::{Declaration, Offer, Strategy};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::Explanation;
use crate::ledger::machine::routing::{RoutingChange, RoutingRules, Tiers};
use crate::ledger::machine::task::FailureClass;
use crate::ledger::machine::task::spec::Submission;
use crate::ledger::planner::{Load, Note};
use crate::scheduler::routing::candidate::Reason;
use crate::scheduler::tempo::{ENOUGH, RECENT, WINDOW};
use crate::scheduler::world::{Dispatch, World, declaration, key, namespace, offer, pull};

fn offering(max: u32, change: impl FnOnce(&mut Offer)) -> Declaration {
    let mut one = offer("a.b");
    change(&mut one);
    Declaration { offers: vec![one], ..declaration(max) }
}

fn asking_for(strategy: Strategy, max: u32) -> Declaration {
    offering(max, |offer| offer.strategy = Some(strategy))
}

fn of_key(key: &str) -> impl Fn(&mut Submission) {
    let key = FairnessKey::new(key).unwrap();
    move |spec| spec.fairness_key = key.clone()
}

fn part(why: &Explanation, name: &str) -> Option<i64> {
    why.score.iter().find(|(part, _)| &**part == name).map(|(_, worth)| *worth)
}

/// The agent that serves a new task, which ends at once.
fn one(world: &mut World, change: impl Fn(&mut Submission)) -> Dispatch {
    world.submit(change);
    let dispatch = world.cycle().remove(0);
    world.ack(dispatch.task);
    world.complete(dispatch.task);
    dispatch
}

#[test]
fn r_rte_3_tasks_of_one_key_go_to_one_agent_and_elsewhere_only_while_it_is_full() {
    let mut world = World::new();
    for agent in ["a", "b", "c"] {
        world.register(agent, asking_for(Strategy::ConsistentHash, 2));
    }
    let home = one(&mut world, of_key("alice"));
    assert_eq!(&*home.event.explanation.strategy, "consistent-hash");
    assert!(part(&home.event.explanation, "distance").is_some());
    assert_eq!(home.event.explanation.runners_up.len(), 2);
    for _ in 0..5 {
        assert_eq!(one(&mut world, of_key("alice")).agent, home.agent);
    }
    world.submit_some(3, of_key("alice"));
    let full = world.cycle();
    assert_eq!(full.iter().map(|dispatch| dispatch.agent == home.agent).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(full[2].event.explanation.exclusions[0].reason, "no-free-slot".into());
    world.complete(full[0].task);
    assert_eq!(one(&mut world, of_key("alice")).agent, home.agent);
    let keys = (0..40).map(|n| one(&mut world, of_key(&format!("key-{n}"))).agent).collect::<BTreeSet<_>>();
    assert_eq!(keys.len(), 3, "other keys live elsewhere");
}

#[test]
fn r_rte_3_what_would_be_chosen_is_explained_by_the_same_hash() {
    let mut world = World::new();
    for agent in ["a", "b", "c", "d"] {
        world.register(agent, asking_for(Strategy::ConsistentHash, 9));
    }
    for n in 0..10 {
        let task = world.submit(of_key(&format!("key-{n}")));
        let told = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
        let done = world.cycle().remove(0);
        assert_eq!(told.winner.as_ref().map(|agent| agent.as_str()), Some(&*done.agent));
        assert_eq!(told.strategy, "consistent-hash");
        let of_winner: Vec<(&str, i64)> =
            done.event.explanation.score.iter().map(|(part, worth)| (&**part, *worth)).collect();
        assert_eq!(told.candidates[0].score, of_winner);
        let far = |score: &[(&str, i64)]| score[0].1;
        assert!(told.candidates.is_sorted_by_key(|candidate| far(&candidate.score)), "the nearest first");
    }
}

#[test]
fn r_rte_4_under_scored_priority_and_load_decide_and_whoever_fails_too_often_is_last_until_that_is_old() {
    let mut world = World::new();
    world.register("first", offering(100, |offer| (offer.strategy, offer.priority) = (Some(Strategy::Scored), 900)));
    world.register("other", offering(10, |offer| (offer.strategy, offer.priority) = (Some(Strategy::Scored), 300)));
    let chosen = one(&mut world, |_| {});
    assert_eq!(chosen.agent, "first");
    let why = &chosen.event.explanation;
    let told = ["points", "capability", "priority", "load", "failures"].map(|name| part(why, name));
    assert_eq!(told, [Some(118_000), Some(100_000), Some(18_000), Some(0), Some(0)]);
    // 12 points ahead: it loses them to a load of 80 %.
    let busy = Some(Load { queue_depth: 85, in_flight: 0, mean_latency: None });
    let note = |load| Note::Beat { agent: key("first"), incarnation: world.incarnation("first"), load };
    let (busy, idle) = (note(busy), note(Some(Load::default())));
    world.note(&busy);
    assert_eq!(one(&mut world, |_| {}).agent, "other");
    world.note(&idle);
    // With its success these are ten.
    for _ in 0..9 {
        let task = world.submit(|spec| spec.retry.max_retries = 0);
        assert_eq!(world.cycle()[0].agent, "first");
        world.ack(task);
        world.fail_as(task, FailureClass::Business);
    }
    let elsewhere = one(&mut world, |_| {});
    assert_eq!(elsewhere.agent, "other");
    let of_first = &elsewhere.event.explanation.runners_up[0].score;
    assert!(of_first.contains(&("failures".into(), -50_000)), "{of_first:?}");
    for _ in 0..2 * WINDOW.0 / 10_000 {
        world.pass(10_000);
        ["first", "other"].iter().for_each(|agent| world.beat(agent));
    }
    assert_eq!(one(&mut world, |_| {}).agent, "first", "it is tried again");
}

#[test]
fn r_rte_5_sessions_that_an_agent_holds_count_where_the_load_is_equal_while_they_run_and_for_a_while_after() {
    let mut world = World::new();
    for agent in ["a", "b", "c"] {
        world.register(agent, asking_for(Strategy::LeastLoaded, 10));
    }
    let session = |n: u32| {
        let session = SessionId::new(&format!("s-{n}")).unwrap();
        move |spec: &mut Submission| spec.session = Some(session.clone())
    };
    let mut holders = BTreeSet::new();
    for n in 0..3 {
        let dispatch = one(&mut world, session(n));
        assert!(holders.insert(dispatch.agent), "each new session goes to whoever holds none");
    }
    let fourth = one(&mut world, session(3));
    assert_eq!(part(&fourth.event.explanation, "sessions"), Some(100));
    let of_fourth = world.scheduler.affinity().sessions_of(&key(&fourth.agent));
    assert_eq!(of_fourth, 2);
    assert_ne!(one(&mut world, |_| {}).agent, fourth.agent, "it holds more than the others");
    let told = {
        let task = world.submit(|_| {});
        world.scheduler.explain_task(&world.state, world.state.task(task).unwrap())
    };
    let worst = told.candidates.last().unwrap();
    assert_eq!((worst.agent.as_str(), worst.score[1]), (&*fourth.agent, ("sessions", 200)));
}

/// Tasks of an agent that take so long, one after the other; of another capability than the one whose round is looked at.
fn work(world: &mut World, agent: &str, n: u32, span: u64) {
    for _ in 0..n {
        let task: ReachId = world.submit(|spec| {
            spec.capability = "c.d".parse().unwrap();
            spec.preferred_agent = Some(key(agent).agent_id);
        });
        assert_eq!(world.cycle()[0].agent, agent);
        world.ack(task);
        world.pass(span);
        ["a", "b"].iter().for_each(|agent| world.beat(agent));
        world.complete(task);
    }
}

/// How many of ninety tasks go to "a", and why one of them does.
fn shares(world: &mut World) -> (usize, Explanation) {
    let tasks: Vec<ReachId> = (0..90).map(|_| world.submit(|_| {})).collect();
    let picked = world.cycle();
    for task in tasks {
        world.complete(task);
    }
    let of_a: Vec<Dispatch> = picked.into_iter().filter(|dispatch| dispatch.agent == "a").collect();
    (of_a.len(), of_a[0].event.explanation.clone())
}

#[test]
fn r_rte_6_an_agent_slower_than_three_times_its_own_p99_has_half_its_weight_until_it_recovers() {
    let mut world = World::new();
    for agent in ["a", "b"] {
        world.register(agent, Declaration { offers: vec![offer("a.b"), offer("c.d")], ..declaration(200) });
    }
    work(&mut world, "a", ENOUGH + u32::try_from(RECENT).unwrap(), 100);
    let (of_a, why) = shares(&mut world);
    assert_eq!((of_a, part(&why, "slowed"), part(&why, "weight")), (45, None, Some(10_000)));
    work(&mut world, "a", 5, 400);
    let (of_a, why) = shares(&mut world);
    assert_eq!((of_a, part(&why, "slowed"), part(&why, "weight")), (30, Some(500), Some(5_000)));
    let slowed = world.scheduler.vitals().of(&key("a")).unwrap().tempo.slowed().unwrap();
    assert_eq!(slowed.recent.0, 400);
    work(&mut world, "a", 5, 100);
    let (of_a, why) = shares(&mut world);
    assert_eq!((of_a, part(&why, "slowed")), (45, None));
}

fn rule(world: &mut World, change: RoutingChange) {
    let command = Command::SetRouting { capability: "a.b".parse().unwrap(), change, reason: "a test".into() };
    world.propose(&Proposal::by_hub(Some(namespace()), command)).0.unwrap();
}

fn weighing(weights: &[(&str, u32)]) -> RoutingRules {
    let weights: BTreeMap<_, _> = weights.iter().map(|(agent, weight)| (key(agent).agent_id, *weight)).collect();
    RoutingRules { weights, ..RoutingRules::default() }
}

#[test]
fn r_rte_10_rules_hold_for_the_next_dispatch_over_what_agents_ask_for_and_an_undo_gives_that_back() {
    let mut world = World::new();
    for agent in ["a", "b", "c"] {
        world.register(agent, asking_for(Strategy::LeastLoaded, 100));
    }
    let told =
        |dispatch: &Dispatch| (dispatch.event.explanation.strategy.to_string(), dispatch.event.explanation.rules);
    assert_eq!(told(&one(&mut world, |_| {})), ("least-loaded".to_owned(), None));
    let hashed = RoutingRules { strategy: Some(Strategy::ConsistentHash), ..RoutingRules::default() };
    rule(&mut world, RoutingChange::Set(hashed));
    let task = world.submit(of_key("alice"));
    let explained = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
    assert_eq!(
        (explained.strategy, explained.rules),
        ("consistent-hash", Some(1)),
        "what is explained is what is done"
    );
    let dispatched = world.cycle().remove(0);
    assert_eq!(told(&dispatched), ("consistent-hash".to_owned(), Some(1)));
    world.restart();
    assert_eq!(one(&mut world, of_key("alice")).agent, dispatched.agent, "a start forgets no rules");
    rule(&mut world, RoutingChange::Undo);
    assert_eq!(told(&one(&mut world, |_| {})), ("least-loaded".to_owned(), None));
}

#[test]
fn r_rte_10_weights_of_the_rules_stand_in_place_of_the_declared_ones_and_the_round_begins_anew_with_them() {
    let mut world = World::new();
    world.register("a", offering(1_000, |offer| offer.weight = 1_000));
    world.register("b", offering(1_000, |offer| offer.weight = 1));
    world.submit_some(100, |_| {});
    assert_eq!(world.cycle().iter().filter(|dispatch| dispatch.agent == "a").count(), 100);
    rule(&mut world, RoutingChange::Set(weighing(&[("a", 1), ("b", 3), ("nobody", 7)])));
    world.submit_some(40, |_| {});
    let picked = world.cycle();
    let first: Vec<&str> = picked[..8].iter().map(|dispatch| &*dispatch.agent).collect();
    assert_eq!(first, ["b", "a", "b", "b", "b", "a", "b", "b"], "nobody pays for what the old weights gave");
    assert_eq!(picked.iter().filter(|dispatch| dispatch.agent == "a").count(), 10);
    let weight = |dispatch: &Dispatch| part(&dispatch.event.explanation, "weight");
    assert_eq!((weight(&picked[0]), weight(&picked[1])), (Some(3_000), Some(1_000)));
}

#[test]
fn r_rte_10_of_tiers_only_the_highest_priority_that_is_open_competes() {
    let mut world = World::new();
    for (agent, priority) in [("first", 300), ("second", 200), ("third", 100)] {
        world.register(agent, offering(2, |offer| offer.priority = priority));
    }
    rule(&mut world, RoutingChange::Set(RoutingRules { tiers: Tiers::Yes, ..RoutingRules::default() }));
    world.submit_some(5, |_| {});
    let picked = world.cycle();
    let agents: Vec<&str> = picked.iter().map(|dispatch| &*dispatch.agent).collect();
    assert_eq!(agents, ["first", "first", "second", "second", "third"]);
    let why = &picked[0].event.explanation;
    let lower = why.exclusions.iter().find(|exclusion| &*exclusion.reason == "lower-tier").unwrap();
    assert_eq!((lower.count, why.runners_up.len()), (2, 0));
    let task = world.submit(|_| {});
    let explained = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
    assert_eq!(explained.winner.unwrap().as_str(), "third");
    world.cycle();
    world.complete(picked[0].task);
    assert_eq!(one(&mut world, |_| {}).agent, "first", "as soon as it has room");
    world.lose("first");
    world.complete(picked[2].task);
    assert_eq!(one(&mut world, |_| {}).agent, "second");
}

#[test]
fn r_rte_10_a_task_waits_for_a_pull_agent_of_a_higher_tier_between_two_claims_and_no_longer() {
    let mut world = World::new();
    let with = |declared: Declaration, priority| {
        let mut own = offer("a.b");
        own.priority = priority;
        Declaration { offers: vec![own], ..declared }
    };
    world.register("first", with(pull(5), 300));
    world.register("standby", with(declaration(5), 100));
    rule(&mut world, RoutingChange::Set(RoutingRules { tiers: Tiers::Yes, ..RoutingRules::default() }));
    let task = world.submit(|_| {});
    assert!(world.cycle().is_empty());
    let explained = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
    let standby = explained.excluded.iter().find(|excluded| excluded.agent.as_str() == "standby").unwrap();
    assert_eq!(standby.reason, Reason::LowerTier);
    world.claim("first", 1);
    let taken = world.cycle().remove(0);
    assert_eq!(taken.agent, "first");
    world.ack(taken.task);
    world.submit(|_| {});
    assert!(world.cycle().is_empty());
    world.pass(5_000);
    ["first", "standby"].iter().for_each(|agent| world.beat(agent));
    assert_eq!(world.cycle()[0].agent, "standby", "it does not ask any more");
}
