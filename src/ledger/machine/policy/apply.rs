//! The one move of policies.

use std::sync::Arc;

use crate::ledger::machine::State;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::step::ImpossibleTransition;

/// Applies `policy-changed`; `step.rs` sends no other event here.
///
/// # Errors
/// [`ImpossibleTransition`] when it names no namespace: a bug or a damaged log.
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    match (&event.body, &event.namespace) {
        (EventBody::PolicyChanged(body), Some(namespace)) => {
            Arc::make_mut(&mut state.policies).by_namespace.insert(namespace.clone(), body.policy.clone());
            Ok(())
        }
        _ => Err(ImpossibleTransition::of(event, "a policy belongs to a namespace")),
    }
}
