//! B1, in part: what one task or one event may leave is bounded. Progress at most once a second and stale reports at most
//! 16 a task; explanations name at most five others and three samples; nothing is handed out more often than budgets let.

use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::machine::task::spec::{MAX_STALE_EVENTS, PROGRESS_SPACING};
use agent_reach::ledger::machine::task::status::StatusKind;

use crate::model::{Evidence, Findings, begins, leads_to};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for life in evidence.tasks.values() {
        let mut stale = 0;
        let mut spoke = None;
        let mut at = begins(life);
        for event in &life.events {
            if matches!(event.body, EventBody::TaskStaleReportRefused(_)) {
                stale += 1;
                if stale > MAX_STALE_EVENTS {
                    findings.add("B1", event.seq, format!("{}: {stale} stale reports are recorded", life.id));
                }
            }
            if let EventBody::TaskProgressed(body) = &event.body {
                let soon =
                    spoke.is_some_and(|(attempt, at)| attempt == body.attempt && event.at.since(at) < PROGRESS_SPACING);
                if soon && at != StatusKind::SlowReach {
                    findings.add("B1", event.seq, format!("{}: progress twice in a second", life.id));
                }
                spoke = Some((body.attempt, event.at));
            }
            at = leads_to(&event.body, at).unwrap_or(at);
            if let EventBody::TaskDispatched(body) = &event.body {
                let told = &body.explanation;
                if told.runners_up.len() > 5 || told.exclusions.iter().any(|why| why.samples.len() > 3) {
                    findings.add("B1", event.seq, format!("{}: its explanation is too long", life.id));
                }
            }
        }
    }
}
