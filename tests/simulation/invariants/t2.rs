//! T2: a jump of the wall clock moves no deadline, lease or retry and is recorded. That ledger time follows only the
//! monotonic clock is asked in every cycle; here that what was recorded adds up, and that nothing fires early.

use agent_reach::ledger::machine::event::{EventBody, QueuedWhy};

use crate::model::{Evidence, Findings};

#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds have a moment before which they are early")]
pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut offset = 0_i64;
    for entry in evidence.log {
        let event = &entry.event;
        if let EventBody::HubStarted(body) = &event.body {
            offset = body.wall_offset;
        } else if let EventBody::ClockJumped(body) = &event.body {
            if body.wall_offset - offset != body.by || body.by.unsigned_abs() < 1_000 {
                findings.add("T2", event.seq, format!("a jump by {} from {offset} to {}", body.by, body.wall_offset));
            }
            offset = body.wall_offset;
        }
    }
    for life in evidence.tasks.values() {
        for event in &life.events {
            let early = match &event.body {
                EventBody::TaskExpired(_) => event.at < life.deadline,
                EventBody::TaskQueued(body) if body.why == QueuedWhy::NotBeforeReached => {
                    life.spec.not_before.is_some_and(|at| event.at < at)
                }
                _ => false,
            };
            if early {
                findings.add("T2", event.seq, format!("{}: {} comes early", life.id, event.body.kind().name()));
            }
        }
    }
}
