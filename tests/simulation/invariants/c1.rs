//! C1: callbacks only for ledger events that were asked for, one message id for one event, and the same content under it
//! on every try.

use std::collections::BTreeMap;

use agent_reach::ledger::ids::CallbackId;
use agent_reach::ledger::machine::callback::{CallbackEvent, CallbackSpec, CallbackSubject};
use agent_reach::ledger::machine::event::{CallbackDue, EventBody};

use crate::model::{Evidence, Findings, ends};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut told = BTreeMap::new();
    for entry in evidence.log {
        let seq = entry.event.seq;
        let EventBody::CallbackDue(body) = &entry.event.body else { continue };
        if body.callback != CallbackId::of(evidence.lineage, body.seq) || body.seq >= seq {
            findings.add("C1", seq, format!("{} is not the id of the event at {}", body.callback, body.seq));
        }
        if told.insert(body.callback, (body.subject, body.seq)).is_some() {
            findings.add("C1", seq, format!("{} becomes due twice", body.callback));
        }
        if !was_asked_for(evidence, body) {
            findings.add("C1", seq, format!("nobody asked to be told of the event at {}", body.seq));
        }
    }
    for seen in &evidence.notes.messages {
        if told.get(&seen.id) != Some(&(seen.subject, seen.tells)) {
            findings.add("C1", seen.tells, format!("{} was seen with another content", seen.id));
        }
    }
}

fn was_asked_for(evidence: &Evidence<'_>, body: &CallbackDue) -> bool {
    let Some(cause) = evidence.at(body.seq).map(|entry| &entry.event) else { return false };
    match body.subject {
        CallbackSubject::Batch(batch) => matches!(&cause.body, EventBody::BatchSettled(body) if body.batch == batch),
        CallbackSubject::Task(task) => {
            let spec = evidence.tasks.get(&task).and_then(|life| life.spec.callback.as_deref());
            let asked = |spec: &CallbackSpec| wish(&cause.body).is_some_and(|wish| spec.events.contains(&wish));
            cause.body.task() == Some(task) && spec.is_some_and(asked)
        }
    }
}

/// Which wish an event answers.
pub(crate) const fn wish(body: &EventBody) -> Option<CallbackEvent> {
    if ends(body).is_some() {
        Some(CallbackEvent::Terminal)
    } else if matches!(body, EventBody::TaskSlow(_) | EventBody::TaskResolved(_)) {
        Some(CallbackEvent::Slow)
    } else if matches!(body, EventBody::TaskRetryScheduled(_)) {
        Some(CallbackEvent::Retrying)
    } else if matches!(body, EventBody::TaskProgressed(_)) {
        Some(CallbackEvent::Progress)
    } else if matches!(body, EventBody::TaskOverdue(_)) {
        Some(CallbackEvent::Overdue)
    } else if matches!(body, EventBody::TaskOrphaned(_)) {
        Some(CallbackEvent::Orphaned)
    } else {
        None
    }
}
