//! R2: an orphan is replayed at most once and dispatched at most once by it, whoever does it. The sweep replays orphans that
//! are not held; an operator may bring back whatever hangs.

use agent_reach::ledger::machine::event::{Actor, EventBody};
use agent_reach::ledger::machine::task::spec::OrphanPolicy;

use crate::model::{Evidence, Findings};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hangs {
    No,
    Slow,
    Orphaned,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "asks about the way of an orphan; the rest is another's")]
pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for life in evidence.tasks.values() {
        let mut hangs = Hangs::No;
        for event in &life.events {
            match &event.body {
                EventBody::TaskOrphaned(_) => hangs = Hangs::Orphaned,
                EventBody::TaskSlow(_) => hangs = Hangs::Slow,
                EventBody::TaskReplayed(_) => {
                    let by_hub = event.actor == Actor::Hub;
                    if hangs == Hangs::No || (by_hub && hangs == Hangs::Slow) {
                        findings.add("R2", event.seq, format!("{}: replayed without being an orphan", life.id));
                    }
                    if life.spec.orphan == OrphanPolicy::Hold && by_hub {
                        findings.add("R2", event.seq, format!("{}: a held orphan is replayed", life.id));
                    }
                    hangs = Hangs::No;
                }
                EventBody::TaskDispatched(_) if hangs != Hangs::No => {
                    findings.add("R2", event.seq, format!("{}: dispatched while it hangs", life.id));
                }
                EventBody::TaskReclaimed(_)
                | EventBody::TaskAcknowledged(_)
                | EventBody::TaskProgressed(_)
                | EventBody::TaskReleased(_)
                | EventBody::TaskAttemptFailed(_)
                | EventBody::TaskSucceeded(_)
                | EventBody::TaskFailed(_) => hangs = Hangs::No,
                _ => {}
            }
        }
    }
}
