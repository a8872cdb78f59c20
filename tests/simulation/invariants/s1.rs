//! S1: at most one terminal event per task; an outcome carries the epoch current at that point, and was said by the very
//! agent that held that epoch. The same outcome said again is answered with the first receipt.

use agent_reach::ledger::ids::{AttemptNo, Digest};
use agent_reach::ledger::machine::event::EventBody;

use crate::model::{Evidence, Findings, speaks_of};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for life in evidence.tasks.values() {
        let ends: Vec<_> = life.ends().collect();
        if let [_, second, ..] = ends.as_slice() {
            findings.add("S1", second.seq, format!("{} ends {} times", life.id, ends.len()));
        }
        let mut current = AttemptNo(0);
        for event in &life.events {
            if let EventBody::TaskDispatched(body) = &event.body {
                current = body.attempt;
            }
            let Some((digest, attempt)) = outcome_of(&event.body).zip(speaks_of(&event.body)) else { continue };
            if attempt != current {
                findings.add("S1", event.seq, format!("{}: outcome of {attempt:?}, current is {current:?}", life.id));
            }
            match evidence.notes.spoken.get(&digest) {
                Some(spoken) if spoken.task == life.id && spoken.attempt == attempt => {}
                Some(spoken) => {
                    let what = format!("{}: taken for {attempt:?}, said under {:?}", life.id, spoken.attempt);
                    findings.add("S1", event.seq, what);
                }
                None => findings.add("S1", event.seq, format!("{}: an outcome that nobody said", life.id)),
            }
        }
    }
    for (digest, spoken) in &evidence.notes.spoken {
        if let Some(first) = spoken.receipts.first()
            && let Some(other) = spoken.receipts.iter().find(|receipt| *receipt != first)
        {
            findings.add("S1", *other, format!("outcome {digest:?} has the receipts {first} and {other}"));
        }
    }
}

/// The digest of an agent's own word that ended an attempt.
pub(crate) fn outcome_of(body: &EventBody) -> Option<Digest> {
    if let EventBody::TaskSucceeded(body) = body {
        Some(body.outcome)
    } else if let EventBody::TaskFailed(body) = body {
        Some(body.outcome)
    } else if let EventBody::TaskReleased(body) = body {
        Some(body.outcome)
    } else if let EventBody::TaskAttemptFailed(body) = body {
        body.outcome
    } else {
        None
    }
}
