//! Blind spots of routing rules: changes of the log copy that R-RTE-10 must condemn.

#![expect(clippy::ptr_arg, reason = "every change has one shape, whether it makes the log longer or not")]

use agent_reach::ledger::machine::event::{Event, EventBody, RoutingRulesChanged};

use crate::model::Entry;
use crate::tampers::{Tamper, change};

pub(crate) const ROUTING_TAMPERS: &[(&str, Tamper, &[&str])] = &[
    ("a version of routing rules left out", version_left_out, &["R-RTE-10"]),
    ("an undo to other rules", undone_to_others, &["R-RTE-10"]),
    ("a dispatch by rules that do not hold", by_other_rules, &["R-RTE-10"]),
];

fn ruled(event: &Event) -> Option<&RoutingRulesChanged> {
    if let EventBody::RoutingRulesChanged(body) = &event.body { Some(body) } else { None }
}

fn version_left_out(log: &mut Vec<Entry>) -> bool {
    change(
        log,
        |event| ruled(event).is_some(),
        |event| {
            if let EventBody::RoutingRulesChanged(body) = &mut event.body {
                body.version += 1;
            }
        },
    )
}

fn undone_to_others(log: &mut Vec<Entry>) -> bool {
    let undoes = |event: &Event| ruled(event).is_some_and(|body| body.undoes.is_some() && body.rules.is_some());
    change(log, undoes, |event| {
        if let EventBody::RoutingRulesChanged(body) = &mut event.body {
            body.rules = None;
        }
    })
}

fn by_other_rules(log: &mut Vec<Entry>) -> bool {
    let is_ruled =
        |event: &Event| matches!(&event.body, EventBody::TaskDispatched(body) if body.explanation.rules.is_some());
    change(log, is_ruled, |event| {
        if let EventBody::TaskDispatched(body) = &mut event.body {
            body.explanation.rules = None;
        }
    })
}
