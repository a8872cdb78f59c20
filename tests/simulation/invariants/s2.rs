//! S2: after its terminal event nothing moves a task; only refused stale reports, the link to what was made of it (and
//! callback events) may follow.

use agent_reach::ledger::machine::event::EventBody;

use crate::model::{Evidence, Findings, ends};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for life in evidence.tasks.values() {
        let after = life.events.iter().skip_while(|event| ends(&event.body).is_none()).skip(1);
        for event in after
            .filter(|event| !matches!(event.body, EventBody::TaskStaleReportRefused(_) | EventBody::TaskRedriven(_)))
        {
            findings.add("S2", event.seq, format!("{}: {} after its end", life.id, event.body.kind().name()));
        }
    }
}
