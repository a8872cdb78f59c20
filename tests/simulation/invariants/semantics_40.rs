//! Semantics 40: an ended task is made anew at most once, only if it ended badly, and only by the word that it may take. It
//! stays what it is. The two name each other; payload and wishes of the new one are those of the first, unless an operator
//! corrected the payload, or a plan patches payloads: what that makes is looked at with R3.

use std::collections::BTreeMap;

use agent_reach::ledger::facts;
use agent_reach::ledger::ids::{ReachId, Seq};
use agent_reach::ledger::machine::event::{Event, EventBody, TaskRedriven};
use agent_reach::ledger::machine::replay::MayHaveRun;
use agent_reach::ledger::machine::task::spec::{Idempotence, Submission};
use agent_reach::ledger::machine::task::status::StatusKind;
use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::store::{BodyKey, Store};

use crate::arrivals::payload_of;
use crate::invariants::s1::outcome_of;
use crate::model::{Breach, Evidence, Findings, Life, ends, speaks_of};

const NAME: &str = "semantics 40";

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut made: BTreeMap<ReachId, ReachId> = BTreeMap::new();
    for event in evidence.log.iter().map(|entry| &entry.event) {
        if let EventBody::TaskSubmitted(body) = &event.body {
            let id = body.submission.reach_id;
            let linked = |next: &Event| matches!(&next.body, EventBody::TaskRedriven(link) if link.successor == id);
            if evidence.notes.successors.contains(&id) && !evidence.beside(event, 1).is_some_and(linked) {
                findings.add(NAME, event.seq, format!("{id} does not say what it was made of"));
            }
        }
        let EventBody::TaskRedriven(body) = &event.body else { continue };
        if let Some(first) = made.insert(body.task, body.successor) {
            findings.add(NAME, event.seq, format!("{} was made anew before, as {first}", body.task));
        }
        match evidence.tasks.get(&body.task).zip(evidence.tasks.get(&body.successor)) {
            Some((first, second)) => link(evidence, event, body, (first, second), findings),
            None => findings.add(NAME, event.seq, format!("{} is made of nothing known", body.successor)),
        }
    }
}

fn link(
    evidence: &Evidence<'_>,
    event: &Event,
    body: &TaskRedriven,
    (first, second): (&Life<'_>, &Life<'_>),
    findings: &mut Findings,
) {
    let mut add = |what: &str| findings.add(NAME, event.seq, format!("{} as {}: {what}", first.id, second.id));
    let ended = first.ends().find(|end| end.seq < event.seq).and_then(|end| ends(&end.body));
    if !matches!(ended, Some(StatusKind::Failed | StatusKind::DeadLetter | StatusKind::Expired)) {
        add("it did not end badly");
    }
    if second.submitted.seq.next() != event.seq || first.namespace != second.namespace {
        add("the link does not stand right behind the submission");
    }
    if !is_same(first.spec, second.spec) || first.asked_by != second.asked_by {
        add("it is not the same wish");
    }
    let corrected = second.spec.payload.as_ref().is_some_and(|p| evidence.notes.corrections.contains(&p.digest));
    let plan = body.replay.and_then(|id| evidence.plans.get(&id));
    let is_patched = plan.is_some_and(|plan| plan.patch().is_some());
    if first.spec.payload != second.spec.payload && !corrected && !is_patched {
        add("it has another payload");
    }
    let word = plan.map(|plan| plan.planned.may_have_run);
    if word == Some(MayHaveRun::Skip) && may_have_run(first, event.seq) {
        add("it may have run, and the operator's word is missing");
    }
}

fn is_same(first: &Submission, second: &Submission) -> bool {
    first.capability == second.capability
        && first.requires == second.requires
        && first.session == second.session
        && first.labels == second.labels
        && first.callback == second.callback
        && first.idempotence == second.idempotence
        && (first.orphan, first.slow_reach, first.on_wait) == (second.orphan, second.slow_reach, second.on_wait)
        && second.idempotency.is_none()
        && second.batch.is_none()
}

/// Was its last acknowledged attempt left without a word of its agent?
fn may_have_run(life: &Life<'_>, by: Seq) -> bool {
    let mut open = None;
    for event in life.events.iter().take_while(|event| event.seq < by) {
        if let EventBody::TaskAcknowledged(body) = &event.body {
            open = Some(body.attempt);
        } else if outcome_of(&event.body).is_some() && speaks_of(&event.body) == open {
            open = None;
        }
    }
    life.spec.idempotence == Idempotence::NotDeclared && open.is_some()
}

/// At the end of a run: links and payloads are on disk, for both and both ways.
pub(crate) fn kept(store: &MemoryStore, evidence: &Evidence<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for life in evidence.tasks.values() {
        let mut breach = |what: String| found.push(Breach { invariant: NAME, seq: life.submitted.seq, what });
        let body = store.body(&payload_of(life.id)).expect("the memory store reads");
        if body.map(|body| body.digest()) != life.spec.payload.as_ref().map(|payload| payload.digest) {
            breach(format!("the payload of {} is not on disk", life.id));
        }
        let Some(row) = store.finished(life.id).expect("the memory store reads") else { continue };
        if facts::redrive_of(life.id, row.seqs.get(1).copied(), store).expect("the memory store reads")
            != life.redrive_of
        {
            breach(format!("the history of {} does not say that it was made of {:?}", life.id, life.redrive_of));
        }
        let later = store.after(life.id).expect("the memory store reads");
        let mut links = life.events.iter().filter_map(|event| {
            if let EventBody::TaskRedriven(body) = &event.body { Some(body.successor) } else { None }
        });
        let sealed: Vec<Seq> = row.seqs.iter().copied().filter(|seq| Some(*seq) > row.ended_by).chain(later).collect();
        if facts::redriven_as(life.id, &sealed, store).expect("the memory store reads") != links.next() {
            breach(format!("the history of {} does not say what was made of it", life.id));
        }
    }
    for (replay, list) in &evidence.notes.lists {
        let body = store.body(&BodyKey::list_of(*replay)).expect("the memory store reads");
        let planned = evidence.plans.get(replay).map(|plan| plan.planned.list.digest);
        if body.map(|body| body.digest()) != planned {
            let what = format!("the list of {replay}, {} items, is not on disk as planned", list.len());
            found.push(Breach { invariant: NAME, seq: Seq(0), what });
        }
    }
    found
}
