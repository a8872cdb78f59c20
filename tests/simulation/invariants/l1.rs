//! L1: every task is terminal by its deadline + 1 s, with the time in which the hub was down or stood still left
//! out.

use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::time::{Millis, Timestamp};

use crate::model::{Evidence, Findings};

const GRACE: Millis = Millis(1_000);

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let starts: Vec<Timestamp> = evidence
        .log
        .iter()
        .filter(|entry| matches!(entry.event.body, EventBody::HubStarted(_)))
        .map(|entry| entry.event.at)
        .collect();
    let last = evidence.log.last().map(|entry| entry.event.at).unwrap_or_default();
    for life in evidence.tasks.values() {
        let end = life.ends().next().map(|event| (event.at, event.seq));
        let (at, seq) = match end {
            Some(end) => end,
            None if evidence.notes.at_rest => (last.max(life.deadline.after(GRACE)).after(GRACE), life.submitted.seq),
            None => continue,
        };
        let begun = starts.iter().chain(&evidence.notes.stood).copied().filter(|start| *start <= at);
        let begun = begun.max().unwrap_or_default();
        if at.since(life.deadline.max(begun)) > GRACE {
            findings.add("L1", seq, format!("{} was to end by {} and did at {at}", life.id, life.deadline));
        }
    }
}
