//! L4: work flows. At rest every batch has been closed and settled, once, after its last task, and every plan has ended;
//! and where agents stood open, something was dispatched. (That a world comes to rest at all is asked at its end.)

use std::collections::BTreeMap;

use agent_reach::ledger::ids::{BatchId, Seq};
use agent_reach::ledger::machine::event::EventBody;

use crate::model::{Evidence, Findings, ends};

#[derive(Default)]
struct Batch {
    alive: i64,
    closed: bool,
    settled: bool,
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut batches: BTreeMap<BatchId, Batch> = BTreeMap::new();
    let mut dispatched = 0_u32;
    for entry in evidence.log {
        let event = &entry.event;
        if matches!(event.body, EventBody::TaskDispatched(_)) {
            dispatched += 1;
        }
        let Some(id) = event.batch else { continue };
        let batch = batches.entry(id).or_default();
        if matches!(event.body, EventBody::TaskSubmitted(_)) {
            batch.alive += 1;
        } else if ends(&event.body).is_some() {
            batch.alive -= 1;
        } else if matches!(event.body, EventBody::BatchClosed(_)) {
            batch.closed = true;
        } else if matches!(event.body, EventBody::BatchSettled(_)) {
            if batch.settled || !batch.closed || batch.alive != 0 {
                findings.add("L4", event.seq, format!("{id} settles with {} tasks alive", batch.alive));
            }
            batch.settled = true;
        }
    }
    if !evidence.notes.at_rest {
        return;
    }
    for (id, _) in batches.iter().filter(|(_, batch)| !batch.settled) {
        findings.add("L4", Seq(0), format!("{id} never settled"));
    }
    let ended =
        |event: &&agent_reach::ledger::machine::event::Event| matches!(event.body, EventBody::ReplayFinished(_));
    for plan in evidence.plans.values().filter(|plan| !plan.events.iter().any(ended)) {
        findings.add("L4", Seq(0), format!("{} never ended", plan.id));
    }
    if dispatched == 0 && evidence.tasks.len() > 20 {
        findings.add("L4", Seq(0), format!("none of {} tasks was dispatched", evidence.tasks.len()));
    }
}
