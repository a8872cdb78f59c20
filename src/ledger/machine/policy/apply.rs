//! The moves of policies.

use std::sync::Arc;

use crate::ledger::machine::State;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::step::ImpossibleTransition;

/// Applies the changes of rules; `step.rs` sends no other event here.
///
/// # Errors
/// [`ImpossibleTransition`] when it names no namespace, or one for the whole hub: a bug or a damaged log.
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    match (&event.body, &event.namespace) {
        (EventBody::PolicyChanged(body), Some(namespace)) => {
            Arc::make_mut(&mut state.policies).by_namespace.insert(namespace.clone(), body.policy.clone());
            Ok(())
        }
        (EventBody::CapabilityPolicyChanged(body), Some(namespace)) => {
            let key = (namespace.clone(), body.capability.clone());
            let rules = Arc::make_mut(&mut state.capability_rules);
            match &body.rules {
                Some(new) => rules.insert(key, new.clone()),
                None => rules.remove(&key),
            };
            Ok(())
        }
        (EventBody::HubPolicyChanged(body), None) => {
            state.hub_policy = body.policy;
            Ok(())
        }
        _ => Err(ImpossibleTransition::of(event, "a policy belongs to a namespace")),
    }
}
