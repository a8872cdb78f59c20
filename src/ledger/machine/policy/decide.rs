//! The rules of rules: a policy is taken whole, inside its bounds, with who and why in its event (R-RTE-10).

use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{CapabilityPolicyChanged, HubPolicyChanged, PolicyChanged};
use crate::ledger::machine::policy::{
    MAX_LANE_BOUND, MAX_MISSED, MAX_NAMESPACE_BOUND, MAX_OWNER, MAX_REPLAY_RATE, Policy,
};
use crate::ledger::machine::{State, bounds};

const WRONG_RATE: &str = "replays_per_second is 1 to 100,000";

/// Decides the changes of rules; `step.rs` sends no other command here. The event's envelope says where, who and when.
#[must_use]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal) -> Decision {
    match (&proposal.command, &proposal.namespace) {
        (Command::SetPolicy { policy, reason }, Some(namespace)) => {
            match (fault(policy), bounds::namespace(state, namespace)) {
                (Some(why), _) => Decision::refuse(Rejection::PolicyInvalid { why }),
                (None, Err(full)) => Decision::refuse(full),
                (None, Ok(())) => {
                    let changed = PolicyChanged { policy: policy.clone(), reason: reason.clone() };
                    Decision::accept(vec![changed.into()], Answer::Done)
                }
            }
        }
        (Command::SetCapabilityPolicy { capability, rules, reason }, Some(namespace)) => {
            // At the bound, rules that are there still change and end.
            let adds =
                rules.is_some() && !state.capability_rules.contains_key(&(namespace.clone(), capability.clone()));
            let room = if adds { bounds::capability_rules(state) } else { Ok(()) };
            if let Err(full) = bounds::namespace(state, namespace).and(room) {
                return Decision::refuse(full);
            }
            if rules.as_ref().and_then(|rules| rules.owner.as_ref()).is_some_and(|owner| owner.len() > MAX_OWNER) {
                return Decision::refuse(Rejection::PolicyInvalid { why: "an owner has at most 128 bytes" });
            }
            let (capability, rules) = (capability.clone(), rules.clone());
            let changed = CapabilityPolicyChanged { capability, rules, reason: reason.clone() };
            Decision::accept(vec![changed.into()], Answer::Done)
        }
        (Command::SetHubPolicy { policy, reason }, None) => {
            if !(1..=MAX_REPLAY_RATE).contains(&policy.replays_per_second) {
                return Decision::refuse(Rejection::PolicyInvalid { why: WRONG_RATE });
            }
            let changed = HubPolicyChanged { policy: *policy, reason: reason.clone() };
            Decision::accept(vec![changed.into()], Answer::Done)
        }
        _ => Decision::refuse(Rejection::PolicyInvalid { why: "a policy belongs to a namespace" }),
    }
}

/// Which bound a policy breaks.
fn fault(policy: &Policy) -> Option<&'static str> {
    if !(1..=MAX_MISSED).contains(&policy.unhealthy_after) {
        return Some("unhealthy_after is 1 to 1,000");
    }
    if policy.lost_after <= policy.unhealthy_after {
        return Some("lost_after is more than unhealthy_after");
    }
    if policy.lost_after > 10 * MAX_MISSED {
        return Some("lost_after is at most 10,000");
    }
    if !(1..=MAX_REPLAY_RATE).contains(&policy.replays_per_second) {
        return Some(WRONG_RATE);
    }
    if !(1..=MAX_LANE_BOUND).contains(&policy.lane_bound) {
        return Some("lane_bound is 1 to 1,000,000");
    }
    if !(1..=MAX_NAMESPACE_BOUND).contains(&policy.namespace_bound) {
        return Some("namespace_bound is 1 to 10,000,000");
    }
    None
}
