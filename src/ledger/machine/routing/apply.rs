//! The moves of routing rules.

use std::sync::Arc;

use crate::ledger::ids::{Capability, Namespace};
use crate::ledger::machine::State;
use crate::ledger::machine::bounds::MAX_ROUTING_RULES;
use crate::ledger::machine::event::{Event, RoutingRulesChanged};
use crate::ledger::machine::routing::{MAX_UNDO, RoutingByCapability, RoutingEntry};
use crate::ledger::machine::step::ImpossibleTransition;

/// Applies a change of routing rules.
///
/// # Errors
/// [`ImpossibleTransition`] when it names no namespace: a bug or a damaged log.
pub(in crate::ledger::machine) fn apply(
    state: &mut State,
    event: &Event,
    body: &RoutingRulesChanged,
) -> Result<(), ImpossibleTransition> {
    let Some(namespace) = &event.namespace else {
        return Err(ImpossibleTransition::of(event, "routing rules belong to a namespace"));
    };
    let all = Arc::make_mut(&mut state.routing_rules);
    if all.get(namespace).is_none_or(|of| !of.contains_key(&body.capability)) {
        make_room(all);
    }
    let entry = all.entry(namespace.clone()).or_default().entry(body.capability.clone()).or_default();
    let held = std::mem::replace(&mut entry.rules, body.rules.clone().map(Arc::new));
    match body.undoes {
        Some(_) => {
            entry.before.pop();
        }
        None => {
            entry.before.push(held);
            if entry.before.len() > MAX_UNDO {
                entry.before.remove(0);
            }
        }
    }
    (entry.version, entry.since) = (body.version, event.at);
    Ok(())
}

/// What was taken back is kept, so that it can be undone, but keeps nobody out: at the bound one such goes, the first by
/// name, and begins with version 1 if it ever has rules again.
fn make_room(all: &mut RoutingByCapability) {
    let many = |all: &RoutingByCapability| all.values().map(std::collections::BTreeMap::len).sum::<usize>();
    if many(all) < usize::try_from(MAX_ROUTING_RULES).unwrap_or(usize::MAX) {
        return;
    }
    let is_idle = |(_, entry): &(&Capability, &RoutingEntry)| entry.rules.is_none();
    let idle = all.iter().find_map(|(namespace, of)| {
        let (capability, _) = of.iter().find(is_idle)?;
        Some((namespace.clone(), capability.clone()))
    });
    let Some((namespace, capability)): Option<(Namespace, Capability)> = idle else { return };
    if let Some(of) = all.get_mut(&namespace) {
        of.remove(&capability);
        if of.is_empty() {
            all.remove(&namespace);
        }
    }
}
