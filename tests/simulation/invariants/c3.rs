//! C3: every event that somebody asked to be told of has its callback, in the same commit or later, and at rest every
//! callback has settled: delivered, exhausted, blocked or gone. Each settles once a round. Exhausted only after 24 h.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{CallbackId, Seq};
use agent_reach::ledger::machine::callback::{MAX_TRIES, WINDOW};
use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::time::Timestamp;

use crate::invariants::c1::wish;
use crate::model::{Evidence, Findings};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut open: BTreeMap<CallbackId, Timestamp> = BTreeMap::new();
    let mut due: BTreeSet<Seq> = BTreeSet::new();
    for entry in evidence.log {
        let event = &entry.event;
        if let EventBody::CallbackDue(body) = &event.body {
            due.insert(body.seq);
            open.insert(body.callback, event.at);
        } else if let EventBody::CallbackRedriven(body) = &event.body
            && open.insert(body.callback, event.at).is_some()
        {
            findings.add("C3", event.seq, format!("{} is sent again while it is due", body.callback));
        }
        if let EventBody::CallbackExhausted(body) = &event.body
            && open.get(&body.callback).is_none_or(|since| event.at.since(*since) < WINDOW)
            && body.attempts < MAX_TRIES
        {
            findings.add("C3", event.seq, format!("{} is given up too early", body.callback));
        }
        if let (Some(id), Some(_)) = (callback_of(&event.body), event.body.settles_callback())
            && open.remove(&id).is_none()
        {
            findings.add("C3", event.seq, format!("{id} settles twice"));
        }
    }
    if evidence.notes.at_rest {
        for id in open.keys() {
            findings.add("C3", Seq(0), format!("{id} never settled"));
        }
    }
    for life in evidence.tasks.values() {
        let Some(spec) = &life.spec.callback else { continue };
        for event in &life.events {
            if wish(&event.body).is_some_and(|wish| spec.events.contains(&wish)) && !due.contains(&event.seq) {
                findings.add("C3", event.seq, format!("{}: nobody is told of {}", life.id, event.body.kind().name()));
            }
        }
    }
}

fn callback_of(body: &EventBody) -> Option<CallbackId> {
    if let EventBody::CallbackDelivered(body) = body {
        Some(body.callback)
    } else if let EventBody::CallbackExhausted(body) = body {
        Some(body.callback)
    } else if let EventBody::CallbackBlocked(body) = body {
        Some(body.callback)
    } else if let EventBody::CallbackGone(body) = body {
        Some(body.callback)
    } else {
        None
    }
}
