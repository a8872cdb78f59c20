//! What other rules would have made of the last decisions, over a real state (R-RTE-10).

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::ledger::ids::{AgentId, Capability, FairnessKey, Namespace};
use crate::ledger::machine::agent::{Declaration, Offer, Strategy};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::routing::{RoutingChange, RoutingRules, Tiers};
use crate::scheduler::decisions::{self, KEPT, KEPT_IN_ALL, MAX_CANDIDATES, NAMED, WhatIf};
use crate::scheduler::world::{World, declaration, key, namespace, offer};

fn of(capability: &str) -> (Namespace, Capability) {
    (namespace(), Capability::new(capability).unwrap())
}

fn offering(max: u32, change: impl FnOnce(&mut Offer)) -> Declaration {
    let mut one = offer("a.b");
    change(&mut one);
    Declaration { offers: vec![one], ..declaration(max) }
}

fn rules(change: impl FnOnce(&mut RoutingRules)) -> RoutingRules {
    let mut rules = RoutingRules::default();
    change(&mut rules);
    rules
}

fn what_if(world: &World, wanted: Option<&RoutingRules>) -> WhatIf {
    let now = world.state.routing_of(&namespace(), &of("a.b").1).and_then(|entry| entry.rules.as_deref());
    decisions::what_if(&world.scheduler.decisions().of(&of("a.b")), wanted, now)
}

/// Tasks that end at once, one after the other.
fn serve(world: &mut World, n: u32) {
    for n in 0..n {
        world.submit(|spec| spec.fairness_key = FairnessKey::new(&format!("key-{}", n % 7)).unwrap());
        let dispatch = world.cycle().remove(0);
        world.complete(dispatch.task);
    }
}

#[test]
fn r_rte_10_it_says_how_many_decisions_would_have_been_others_and_who_would_have_got_how_many() {
    let mut world = World::new();
    ["a", "b"].iter().for_each(|agent| world.register(agent, declaration(10)));
    serve(&mut world, 40);
    assert_eq!(what_if(&world, None).changed, 0, "the rules that hold change nothing");
    let heavy = rules(|rules| rules.weights = BTreeMap::from([(key("b").agent_id, 30)]));
    let found = what_if(&world, Some(&heavy));
    let id = |name| AgentId::new(name).unwrap();
    assert_eq!(found.shares, BTreeMap::from([(id("a"), (20, 10)), (id("b"), (20, 30))]));
    assert_eq!((found.decisions, found.not_weighed, found.newest.len()), (40, 0, NAMED));
    assert!(found.changed >= 10 && found.newest.iter().all(|other| other.was != other.would_be));
    assert!(found.newest.iter().is_sorted_by_key(|other| std::cmp::Reverse(other.at)));
    assert_eq!(world.state.routing_rules().len(), 0, "nothing is changed by asking");
}

#[test]
fn r_rte_10_what_it_foretells_of_a_hash_and_of_tiers_is_what_then_happens() {
    let mut world = World::new();
    for (agent, priority) in [("a", 100), ("b", 300), ("c", 300)] {
        world.register(agent, offering(10, |offer| offer.priority = priority));
    }
    for wanted in [
        rules(|rules| rules.strategy = Some(Strategy::ConsistentHash)),
        rules(|rules| rules.tiers = Tiers::Yes),
        rules(|rules| rules.weights = [("b", 1), ("c", 3)].map(|(agent, weight)| (key(agent).agent_id, weight)).into()),
    ] {
        world.restart();
        serve(&mut world, 42);
        let foretold = what_if(&world, Some(&wanted));
        assert!(foretold.changed > 0);
        let command = Command::SetRouting {
            capability: of("a.b").1,
            change: RoutingChange::Set(wanted),
            reason: "a test".into(),
        };
        world.propose(&Proposal::by_hub(Some(namespace()), command)).0.unwrap();
        world.restart();
        serve(&mut world, 42);
        let would = |found: &WhatIf| found.shares.iter().map(|(a, (_, would))| (a.clone(), *would)).collect::<Vec<_>>();
        let did = |found: &WhatIf| found.shares.iter().map(|(a, (was, _))| (a.clone(), *was)).collect::<Vec<_>>();
        let nonzero = |shares: Vec<(AgentId, usize)>| shares.into_iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>();
        let now = world.state.routing_of(&namespace(), &of("a.b").1).unwrap().rules.clone();
        let happened = what_if(&world, now.as_deref());
        assert_eq!(happened.changed, 0);
        assert_eq!(nonzero(would(&foretold)), nonzero(did(&happened)));
    }
}

#[test]
fn a_decision_of_too_many_candidates_is_counted_and_not_weighed() {
    let mut world = World::new();
    for n in 0..=MAX_CANDIDATES {
        world.register(&format!("agent-{n}"), declaration(10));
    }
    serve(&mut world, 3);
    let found = what_if(&world, None);
    assert_eq!((found.decisions, found.not_weighed, found.changed), (0, 3, 0));
    assert!(found.since.is_some());
}

#[test]
fn no_more_decisions_are_kept_than_the_bounds_and_a_busy_capability_leaves_room_for_the_others() {
    let mut world = World::new();
    let offers = ["a.b", "c.d", "e.f", "g.h", "i.j", "k.l"];
    world.register("a", Declaration { offers: offers.map(offer).to_vec(), ..declaration(10_000) });
    let many = |world: &mut World, capability: &str, n: usize| {
        for _ in 0..n {
            world.submit(|spec| spec.capability = capability.parse().unwrap());
        }
        for dispatch in world.cycle() {
            world.complete(dispatch.task);
        }
    };
    many(&mut world, "c.d", 10);
    many(&mut world, "a.b", KEPT + 50);
    let kept = |world: &World, capability| world.scheduler.decisions().of(&of(capability)).len();
    assert_eq!((kept(&world, "a.b"), kept(&world, "c.d")), (KEPT, 10));
    for capability in ["e.f", "g.h", "i.j"] {
        many(&mut world, capability, KEPT);
    }
    assert_eq!(world.scheduler.decisions().len(), KEPT_IN_ALL);
    assert_eq!((kept(&world, "a.b"), kept(&world, "c.d")), (KEPT, 0), "the oldest of all went");
    many(&mut world, "k.l", 5);
    assert_eq!((kept(&world, "a.b"), kept(&world, "k.l")), (KEPT - 5, 5));
    world.restart();
    assert!(world.scheduler.decisions().is_empty(), "a start forgets them");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn r_rte_10_the_rules_that_hold_would_have_decided_as_they_did(
        strategy in 0usize..4, weights in prop::collection::vec(1u32..30, 1..6), slots in 1u32..4, tiers in any::<bool>(),
        moves in prop::collection::vec((any::<bool>(), 0usize..8), 1..120),
    ) {
        let mut world = World::new();
        for (n, weight) in weights.iter().enumerate() {
            let priority = u32::try_from(n % 2).unwrap() * 100;
            let declared = offering(slots, |offer| (offer.weight, offer.priority) = (*weight, priority));
            world.register(&format!("agent-{n}"), declared);
        }
        let held = rules(|rules| {
            rules.strategy = Some(Strategy::ALL[strategy]);
            rules.tiers = if tiers { Tiers::Yes } else { Tiers::No };
        });
        let change = RoutingChange::Set(held.clone());
        let command = Command::SetRouting { capability: of("a.b").1, change, reason: "a test".into() };
        world.propose(&Proposal::by_hub(Some(namespace()), command)).0.unwrap();
        let mut running = Vec::new();
        for (submits, which) in moves {
            if submits {
                world.submit(|spec| spec.fairness_key = FairnessKey::new(&format!("key-{which}")).unwrap());
            } else if which < running.len() {
                world.complete(running.remove(which));
            }
            running.extend(world.cycle().into_iter().map(|dispatch| dispatch.task));
        }
        let found = what_if(&world, Some(&held));
        prop_assert_eq!(found.changed, 0);
        prop_assert!(found.shares.values().all(|(was, would)| was == would));
    }
}
