//! S4: the n-th dispatch of a task has epoch n, also over restarts; no lease token is ever used twice.

use std::collections::BTreeSet;

use agent_reach::ledger::machine::event::EventBody;

use crate::model::{Evidence, Findings};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut leases = BTreeSet::new();
    for life in evidence.tasks.values() {
        let mut dispatches = 0;
        for event in &life.events {
            if let EventBody::TaskDispatched(body) = &event.body {
                dispatches += 1;
                if body.attempt.0 != dispatches {
                    findings.add("S4", event.seq, format!("{}: dispatch {dispatches} has {:?}", life.id, body.attempt));
                }
                if !leases.insert(body.lease) {
                    findings.add("S4", event.seq, format!("{}: its lease was used before", life.id));
                }
            }
        }
    }
}
