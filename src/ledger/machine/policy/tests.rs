//! The rules of policies.

use std::sync::Arc;

use crate::ledger::ids::Capability;
use crate::ledger::machine::State;
use crate::ledger::machine::bounds::{Bound, MAX_CAPABILITY_RULES};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::policy::{CapabilityRules, Policy};
use crate::ledger::machine::task::spec::SlowPolicy;
use crate::ledger::machine::world::{World, capability, namespace};
use crate::ledger::time::Millis;

fn set(policy: Policy) -> Command {
    Command::SetPolicy { policy, reason: "a test".into() }
}

#[test]
fn r_reg_5_thresholds_change_while_running_in_their_namespace_alone() {
    let mut world = World::new();
    let policy = Policy { unhealthy_after: 2, lost_after: 4, ..Policy::default() };
    assert_eq!(world.ok(set(policy.clone())), ["policy-changed"]);
    assert_eq!(world.state.policies().of(&namespace()), policy);
    assert_eq!(world.state.policies().of(&"other".parse().unwrap()), Policy::default());
}

#[test]
fn a_policy_outside_its_bounds_is_refused_whole() {
    let mut world = World::new();
    let ok = Policy::default();
    for bad in [
        Policy { unhealthy_after: 0, ..ok.clone() },
        Policy { unhealthy_after: 9, ..ok.clone() },
        Policy { unhealthy_after: 1_001, lost_after: 1_002, ..ok.clone() },
        Policy { lost_after: 10_001, ..ok.clone() },
        Policy { replays_per_second: 0, ..ok.clone() },
        Policy { replays_per_second: 100_001, ..ok.clone() },
        Policy { lane_bound: 0, ..ok.clone() },
        Policy { namespace_bound: 0, ..ok.clone() },
    ] {
        assert!(matches!(world.refused(set(bad)), Rejection::PolicyInvalid { .. }));
    }
    let nowhere = Proposal::by_hub(None, set(ok));
    assert!(matches!(world.propose(nowhere).1, Err(Rejection::PolicyInvalid { .. })));
}

#[test]
fn the_rules_of_a_capability_hold_in_their_namespace_alone_and_survive_a_snapshot() {
    let mut world = World::new();
    let rules = CapabilityRules { slow_reach: SlowPolicy::Fail { after: Millis(9) }, owner: Some("desk".into()) };
    let set = |rules: Option<CapabilityRules>| Command::SetCapabilityPolicy {
        capability: capability(),
        rules,
        reason: "a test".into(),
    };
    assert_eq!(world.ok(set(Some(rules.clone()))), ["capability-policy-changed"]);
    let key = (namespace(), capability());
    assert_eq!(world.state.capability_rules().get(&key), Some(&rules));
    let copy = State::from_image(world.state.to_image());
    assert_eq!((copy.capability_rules().get(&key), copy.digest()), (Some(&rules), world.state.digest()));
    let long = CapabilityRules { owner: Some("x".repeat(129).into()), ..rules };
    assert!(matches!(world.refused(set(Some(long))), Rejection::PolicyInvalid { .. }));
    world.ok(set(None));
    assert!(world.state.capability_rules().is_empty());
}

#[test]
fn at_the_bound_of_rules_none_is_added_and_those_that_are_there_change_and_end() {
    let mut world = World::new();
    let rules = CapabilityRules { slow_reach: SlowPolicy::Wait, owner: None };
    let set = |name: &str, rules: Option<CapabilityRules>| Command::SetCapabilityPolicy {
        capability: Capability::new(name).unwrap(),
        rules,
        reason: "a test".into(),
    };
    let full = (0..MAX_CAPABILITY_RULES).map(|n| Capability::new(&format!("c.{n}")).unwrap());
    let full = full.map(|capability| ((namespace(), capability), rules.clone())).collect();
    world.state.capability_rules = Arc::new(full);
    let bound = Rejection::BoundReached { bound: Bound::CapabilityRules };
    assert_eq!(world.refused(set("d.1", Some(rules.clone()))), bound);
    let mended = CapabilityRules { owner: Some("desk".into()), ..rules };
    assert_eq!(world.ok(set("c.7", Some(mended))), ["capability-policy-changed"]);
    assert_eq!(world.ok(set("c.8", None)), ["capability-policy-changed"]);
    assert_eq!(world.state.capability_rules().len(), 9_999);
}
