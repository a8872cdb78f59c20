//! D3: no effect before durability. What an agent, a reader or a receiver saw was in the ledger at that moment, and still
//! is.

use std::collections::BTreeMap;

use agent_reach::ledger::ids::{AttemptNo, CallbackId, LeaseDigest, ReachId, Seq};
use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::machine::task::status::StatusKind;

use crate::model::{Evidence, Findings, begins, leads_to};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut leases: BTreeMap<(ReachId, AttemptNo), (Seq, LeaseDigest)> = BTreeMap::new();
    let mut messages: BTreeMap<CallbackId, Seq> = BTreeMap::new();
    for entry in evidence.log {
        let seq = entry.event.seq;
        if let EventBody::TaskDispatched(body) = &entry.event.body {
            leases.entry((body.task, body.attempt)).or_insert((seq, body.lease));
        } else if let EventBody::CallbackDue(body) = &entry.event.body {
            messages.entry(body.callback).or_insert(seq);
        }
    }
    for seen in &evidence.notes.leases {
        let (task, attempt) = (seen.handed.task, seen.handed.attempt);
        match leases.get(&(task, attempt)) {
            Some((seq, lease)) if *seq <= seen.durable && *lease == seen.handed.lease => {}
            found => {
                let what =
                    format!("{} saw {attempt:?} of {task}; in the ledger: {found:?}", seen.handed.agent.agent_id);
                findings.add("D3", seen.durable, what);
            }
        }
    }
    for seen in &evidence.notes.messages {
        if messages.get(&seen.id).is_none_or(|seq| *seq > seen.durable) {
            findings.add("D3", seen.durable, format!("a receiver saw {} before the ledger had it", seen.id));
        }
    }
    states(evidence, findings);
}

fn states(evidence: &Evidence<'_>, findings: &mut Findings) {
    for seen in &evidence.notes.states {
        if seen.at > seen.durable {
            findings.add("D3", seen.durable, format!("a reader saw {} at {}, not yet durable", seen.task, seen.at));
        }
        let Some(status) = seen.status else { continue };
        let found = evidence.tasks.get(&seen.task).filter(|life| life.submitted.seq <= seen.at).map(|life| {
            let known = life.events.iter().take_while(|event| event.seq <= seen.at);
            known.fold(begins(life), |at: StatusKind, event| leads_to(&event.body, at).unwrap_or(at))
        });
        if found != Some(status) {
            let what = format!("a reader saw {} as {}, the ledger says {found:?}", seen.task, status.name());
            findings.add("D3", seen.at, what);
        }
    }
}
