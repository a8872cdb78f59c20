//! The rules of routing rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::ids::Capability;
use crate::ledger::machine::State;
use crate::ledger::machine::agent::Strategy;
use crate::ledger::machine::bounds::{Bound, MAX_ROUTING_RULES};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::routing::{MAX_UNDO, RoutingChange, RoutingEntry, RoutingRules, Tiers};
use crate::ledger::machine::world::{World, agent_id, capability, namespace};

fn change(change: RoutingChange) -> Command {
    Command::SetRouting { capability: capability(), change, reason: "a test".into() }
}

fn set(rules: RoutingRules) -> Command {
    change(RoutingChange::Set(rules))
}

fn weighing(weight: u32) -> RoutingRules {
    RoutingRules { weights: BTreeMap::from([(agent_id("a"), weight)]), ..RoutingRules::default() }
}

fn held(world: &World) -> (u32, Option<RoutingRules>) {
    let entry = world.state.routing_of(&namespace(), &capability());
    entry.map_or((0, None), |entry| (entry.version, entry.rules.as_deref().cloned()))
}

#[test]
fn r_rte_10_each_change_is_a_version_that_holds_in_its_namespace_alone_and_survives_a_snapshot() {
    let mut world = World::new();
    let hashed = RoutingRules { strategy: Some(Strategy::ConsistentHash), ..weighing(20) };
    assert_eq!(world.ok(set(hashed.clone())), ["routing-rules-changed"]);
    assert_eq!(held(&world), (1, Some(hashed.clone())));
    assert_eq!(world.state.routing_of(&"other".parse().unwrap(), &capability()), None);
    let tiers = RoutingRules { tiers: Tiers::Yes, ..RoutingRules::default() };
    world.ok(set(tiers.clone()));
    assert_eq!(held(&world), (2, Some(tiers)));
    let copy = State::from_image(world.state.to_image());
    assert_eq!((copy.routing_rules(), copy.digest()), (world.state.routing_rules(), world.state.digest()));
    let nowhere = Proposal::by_hub(None, set(hashed));
    assert!(matches!(world.propose(nowhere).1, Err(Rejection::PolicyInvalid { .. })));
}

#[test]
fn the_same_rules_again_and_none_where_there_are_none_change_nothing() {
    let mut world = World::new();
    assert_eq!(world.ok(set(RoutingRules::default())), [""; 0]);
    world.ok(set(weighing(7)));
    assert_eq!(world.ok(set(weighing(7))), [""; 0]);
    world.ok(set(RoutingRules::default()));
    assert_eq!(held(&world), (2, None), "rules that say nothing are none");
    assert_eq!(world.ok(set(RoutingRules::default())), [""; 0]);
}

#[test]
fn r_rte_10_an_undo_goes_back_version_by_version_and_is_one_itself() {
    let mut world = World::new();
    assert_eq!(world.refused(change(RoutingChange::Undo)), Rejection::NothingToUndo);
    for weight in 1..=2 {
        world.ok(set(weighing(weight)));
    }
    assert_eq!(world.ok(change(RoutingChange::Undo)), ["routing-rules-changed"]);
    assert_eq!(held(&world), (3, Some(weighing(1))));
    world.ok(change(RoutingChange::Undo));
    assert_eq!(held(&world), (4, None));
    assert_eq!(world.refused(change(RoutingChange::Undo)), Rejection::NothingToUndo);
    for weight in 1..=20 {
        world.ok(set(weighing(weight)));
    }
    for undone in 1..=MAX_UNDO {
        world.ok(change(RoutingChange::Undo));
        assert_eq!(held(&world).1, Some(weighing(20 - u32::try_from(undone).unwrap())));
    }
    assert_eq!(world.refused(change(RoutingChange::Undo)), Rejection::NothingToUndo, "further back nothing is kept");
}

#[test]
fn rules_outside_their_bounds_are_refused_whole() {
    let mut world = World::new();
    world.ok(set(weighing(5)));
    let many = (0..257).map(|n| (agent_id(&format!("a-{n}")), 1)).collect();
    for bad in [weighing(0), weighing(1_001), RoutingRules { weights: many, ..RoutingRules::default() }] {
        assert!(matches!(world.refused(set(bad)), Rejection::PolicyInvalid { .. }));
    }
    assert_eq!(held(&world), (1, Some(weighing(5))));
}

#[test]
fn at_the_bound_none_is_added_those_that_are_there_change_and_one_that_was_taken_back_makes_room() {
    let mut world = World::new();
    let name = |n: u32| Capability::new(&format!("c.{n:04}")).unwrap();
    let set = |capability: Capability, rules| Command::SetRouting {
        capability,
        change: RoutingChange::Set(rules),
        reason: "a test".into(),
    };
    let entry = RoutingEntry { version: 1, rules: Some(Arc::new(weighing(1))), ..RoutingEntry::default() };
    let full = (0..MAX_ROUTING_RULES).map(|n| (name(n), entry.clone())).collect();
    world.state.routing_rules = Arc::new(BTreeMap::from([(namespace(), full)]));
    let bound = Rejection::BoundReached { bound: Bound::RoutingRules };
    assert_eq!(world.refused(set(capability(), weighing(1))), bound);
    world.ok(set(name(7), weighing(2)));
    world.ok(set(name(8), RoutingRules::default()));
    assert_eq!(held(&world).0, 0);
    world.ok(set(capability(), weighing(1)));
    let kept = &world.state.routing_rules()[&namespace()];
    assert_eq!((kept.len(), kept.contains_key(&name(8))), (1_000, false));
    assert_eq!(world.refused(set(name(8), weighing(1))), bound);
}
