//! S3: dispatched only from `queued`; acknowledged, progressed, outcome and attempt-failed carry the current epoch under
//! the one valid lease; acknowledged only by the process that got it.

use std::collections::BTreeSet;

use agent_reach::ledger::ids::{AttemptNo, ReachId};
use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::machine::task::status::StatusKind;

use crate::model::{Evidence, Findings, Life, begins, leads_to, speaks_of};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let spoken = evidence.notes.spoken.values().map(|spoken| (spoken.task, spoken.attempt));
    let heard: BTreeSet<(ReachId, AttemptNo)> = evidence.notes.acked.keys().copied().chain(spoken).collect();
    for life in evidence.tasks.values() {
        walk(&heard, life, findings);
    }
}

fn walk(heard: &BTreeSet<(ReachId, AttemptNo)>, life: &Life<'_>, findings: &mut Findings) {
    let mut at = begins(life);
    let mut current = AttemptNo(0);
    let mut acked = false;
    for event in &life.events {
        if at.is_terminal() {
            return;
        }
        let name = event.body.kind().name();
        if let EventBody::TaskDispatched(body) = &event.body {
            if at != StatusKind::Queued {
                findings.add("S3", event.seq, format!("{}: dispatched while {}", life.id, at.name()));
            }
            current = body.attempt;
            acked = false;
        }
        if let Some(attempt) = speaks_of(&event.body) {
            if attempt != current {
                findings.add("S3", event.seq, format!("{}: {name} of {attempt:?}, current is {current:?}", life.id));
            }
            let leased = [StatusKind::Dispatched, StatusKind::Processing, StatusKind::SlowReach, StatusKind::Orphaned];
            if !leased.contains(&at) {
                findings.add("S3", event.seq, format!("{}: {name} without a lease, while {}", life.id, at.name()));
            }
            let is_word = matches!(event.body, EventBody::TaskSucceeded(_) | EventBody::TaskFailed(_));
            if is_word && !acked && at != StatusKind::Orphaned {
                findings.add("S3", event.seq, format!("{}: {name} of an attempt that was never acknowledged", life.id));
            }
        }
        if let EventBody::TaskAcknowledged(body) = &event.body {
            acked = true;
            if !heard.contains(&(life.id, current)) {
                findings.add("S3", event.seq, format!("{}: nobody acknowledged {:?}", life.id, body.attempt));
            }
        }
        // Its own agent named it as held: that says that it works on it.
        acked |= matches!(event.body, EventBody::TaskReclaimed(_));
        at = leads_to(&event.body, at).unwrap_or(at);
    }
}
