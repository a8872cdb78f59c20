//! D4: the state rebuilt from the log equals the served one. Each commit's bytes are decoded again and folded into a
//! second state; the tasks and agents that it touched must be equal at once, the whole digest now and then and at the
//! end. The fold from seq 1, the fold from a snapshot and the rows beside the log must all agree.

use std::collections::BTreeSet;

use agent_reach::ledger::boot;
use agent_reach::ledger::ids::Seq;
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::step::apply;
use agent_reach::ledger::store::Store;
use agent_reach::ledger::store::block::decode_commit;
use agent_reach::ledger::store::memory::MemoryStore;

use crate::model::{Breach, Depth, Evidence, begins, leads_to};

/// Folds one commit into the second state and compares what it touched.
pub(crate) fn follow(shadow: &mut State, served: &State, frame: &[u8], depth: Depth) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut breach = |what: String| found.push(Breach { invariant: "D4", seq: served.seq(), what });
    match decode_commit(frame) {
        Err(error) => breach(format!("what was encoded can't be decoded: {error}")),
        Ok(decoded) => {
            let mut touched = BTreeSet::new();
            for stored in &decoded.events {
                touched.extend(stored.event.body.task());
                if let Err(error) = apply(shadow, &stored.event) {
                    breach(error.to_string());
                }
            }
            for id in touched {
                if shadow.tasks().get(&id) != served.tasks().get(&id) {
                    breach(format!("{id} is not what the log says"));
                }
            }
        }
    }
    if shadow.due().len() != served.due().len() || shadow.agents() != served.agents() {
        breach("timers or agents are not what the log says".to_owned());
    }
    let up_to = shadow.seq();
    shadow.forget_up_to(up_to);
    if depth == Depth::Whole && shadow.digest() != served.digest() {
        breach("the digest is not that of the log".to_owned());
    }
    found
}

/// At the end of a run: every way to the state gives the same one.
pub(crate) fn whole(store: &MemoryStore, served: &State, evidence: &Evidence<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut breach = |what: String| found.push(Breach { invariant: "D4", seq: served.seq(), what });
    let mut from_one = State::default();
    for entry in evidence.log {
        if let Err(error) = apply(&mut from_one, &entry.event) {
            breach(error.to_string());
        }
    }
    if evidence.notes.at_rest && from_one.digest() != served.digest() {
        breach("the fold from 1 is not the served state".to_owned());
    }
    match boot::fold(store) {
        Ok(folded) if folded.state.digest() == from_one.digest() && folded.head == store.head() => {}
        Ok(folded) => breach(format!("snapshot {} and its tail are not the fold from 1", folded.snapshot)),
        Err(error) => breach(error.to_string()),
    }
    rows(store, &from_one, evidence, &mut breach);
    found
}

/// Whatever has left memory is in its row, as the log says, with all its events.
fn rows(store: &MemoryStore, state: &State, evidence: &Evidence<'_>, breach: &mut impl FnMut(String)) {
    for life in evidence.tasks.values().filter(|life| life.ends().next().is_some()) {
        if state.tasks().contains_key(&life.id) {
            continue;
        }
        let status = life.events.iter().fold(begins(life), |at, event| {
            if at.is_terminal() { at } else { leads_to(&event.body, at).unwrap_or(at) }
        });
        let Some(row) = store.finished(life.id).expect("the memory store reads") else {
            breach(format!("{} has ended and has no row", life.id));
            continue;
        };
        let later = store.after(life.id).expect("the memory store reads");
        let listed: BTreeSet<Seq> = row.seqs.iter().copied().chain(later).collect();
        let own = life.events.iter().map(|event| event.seq).chain([life.submitted.seq]);
        let missing: Vec<Seq> = own.filter(|seq| !listed.contains(seq)).collect();
        if row.status.kind() != status || !missing.is_empty() {
            let what = format!("the row of {} says {}, lacks {missing:?}", life.id, row.status.kind().name());
            breach(what);
        }
    }
}
