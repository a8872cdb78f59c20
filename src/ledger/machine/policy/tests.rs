//! The rules of policies.

use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::policy::Policy;
use crate::ledger::machine::world::{World, namespace};

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
