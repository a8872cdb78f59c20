//! R5: a paused or ended plan dispatches nothing more, and one that has not started nothing yet. An ended one does not go on
//! at all.

use agent_reach::ledger::machine::event::EventBody;

use crate::model::{Evidence, Findings};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Planned,
    Running,
    Paused,
    Ended,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only a plan's own events are asked")]
pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for plan in evidence.plans.values() {
        let mut stands = Stands::Planned;
        for event in &plan.events {
            let (allowed, next) = match &event.body {
                EventBody::ReplayStarted(_) => (stands == Stands::Planned, Stands::Running),
                EventBody::ReplayPaused(_) => (stands == Stands::Running, Stands::Paused),
                EventBody::ReplayResumed(_) => (stands == Stands::Paused, Stands::Running),
                EventBody::ReplayItemDone(_) | EventBody::ReplayItemSkipped(_) => (stands == Stands::Running, stands),
                EventBody::ReplayFinished(_) => ([Stands::Running, Stands::Paused].contains(&stands), Stands::Ended),
                EventBody::ReplayRateChanged(_) => ([Stands::Running, Stands::Paused].contains(&stands), stands),
                _ => (false, stands),
            };
            if !allowed {
                findings.add("R5", event.seq, format!("{}: {} while {stands:?}", plan.id, event.body.kind().name()));
            }
            stands = next;
        }
    }
}
