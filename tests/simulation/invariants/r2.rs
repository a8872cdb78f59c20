//! R2: an orphan is replayed at most once and dispatched at most once by it; only an orphan is replayed.

use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::machine::task::spec::OrphanPolicy;

use crate::model::{Evidence, Findings};

#[expect(clippy::wildcard_enum_match_arm, reason = "asks about the way of an orphan; the rest is another's")]
pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for life in evidence.tasks.values() {
        let mut orphaned = false;
        for event in &life.events {
            match &event.body {
                EventBody::TaskOrphaned(_) => orphaned = true,
                EventBody::TaskReplayed(_) => {
                    if !orphaned {
                        findings.add("R2", event.seq, format!("{}: replayed without being an orphan", life.id));
                    }
                    if life.spec.orphan == OrphanPolicy::Hold {
                        findings.add("R2", event.seq, format!("{}: a held orphan is replayed", life.id));
                    }
                    orphaned = false;
                }
                EventBody::TaskDispatched(_) if orphaned => {
                    findings.add("R2", event.seq, format!("{}: dispatched while orphaned", life.id));
                }
                EventBody::TaskReclaimed(_)
                | EventBody::TaskReleased(_)
                | EventBody::TaskAttemptFailed(_)
                | EventBody::TaskSucceeded(_)
                | EventBody::TaskFailed(_) => orphaned = false,
                _ => {}
            }
        }
    }
}
