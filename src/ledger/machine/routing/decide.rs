//! The rules of routing rules: whole, inside their bounds, and never the same twice.

use crate::ledger::ids::{Capability, Namespace};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::RoutingRulesChanged;
use crate::ledger::machine::routing::{MAX_WEIGHT, MAX_WEIGHTS, RoutingChange, RoutingRules};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::{State, bounds};

/// Decides the changes of routing rules; `step.rs` sends no other command here. The same rules again change nothing.
#[must_use]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal) -> Decision {
    match (&proposal.command, &proposal.namespace) {
        (Command::SetRouting { capability, change, reason }, Some(namespace)) => {
            set(state, (namespace, capability), change, reason)
        }
        _ => Decision::refuse(Rejection::PolicyInvalid { why: "a policy belongs to a namespace" }),
    }
}

fn set(
    state: &State,
    (namespace, capability): (&Namespace, &Capability),
    change: &RoutingChange,
    reason: &Text,
) -> Decision {
    let entry = state.routing_of(namespace, capability);
    let now = entry.and_then(|entry| entry.rules.as_deref());
    let (rules, undoes) = match change {
        RoutingChange::Set(wanted) => {
            if let Some(why) = fault(wanted) {
                return Decision::refuse(Rejection::PolicyInvalid { why });
            }
            let wanted = Some(wanted).filter(|wanted| **wanted != RoutingRules::default());
            if wanted == now {
                return Decision::nothing(Answer::Done);
            }
            (wanted.cloned(), None)
        }
        RoutingChange::Undo => match entry.and_then(|entry| Some((entry.version, entry.before.last()?))) {
            Some((version, before)) => (before.as_deref().cloned(), Some(version)),
            None => return Decision::refuse(Rejection::NothingToUndo),
        },
    };
    // At the bound, rules that are there still change and end.
    let adds = rules.is_some() && now.is_none();
    let room = if adds { bounds::routing_rules(state) } else { Ok(()) };
    if let Err(full) = bounds::namespace(state, namespace).and(room) {
        return Decision::refuse(full);
    }
    let version = entry.map_or(0, |entry| entry.version).saturating_add(1);
    let (capability, reason) = (capability.clone(), reason.clone());
    Decision::accept(vec![RoutingRulesChanged { capability, version, rules, undoes, reason }.into()], Answer::Done)
}

/// Which bound the rules break. A weight of 0 would leave its agent without work, and all of them would leave no agent.
fn fault(rules: &RoutingRules) -> Option<&'static str> {
    if rules.weights.len() > MAX_WEIGHTS {
        return Some("at most 256 agents have a weight in the rules of a capability");
    }
    if rules.weights.values().any(|weight| !(1..=MAX_WEIGHT).contains(weight)) {
        return Some("a weight is 1 to 1,000");
    }
    None
}
