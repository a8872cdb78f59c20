//! S10: a task not declared idempotent has at most one epoch that was acknowledged or might have started, unless its own
//! recorded policy (the replay of an orphan) or an operator allowed the next. A released or never started epoch does not
//! count.

use agent_reach::ledger::ids::Seq;
use agent_reach::ledger::machine::event::{Actor, EventBody, Started};
use agent_reach::ledger::machine::task::spec::{Idempotence, OrphanPolicy};
use agent_reach::ledger::machine::task::status::Delivery;

use crate::model::{Evidence, Findings, Life};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let careful = evidence.tasks.values().filter(|life| life.spec.idempotence == Idempotence::NotDeclared);
    for life in careful {
        walk(life, findings);
    }
    // Whatever the task: one epoch is posted once, also over a restart (semantics 8).
    for ((task, attempt), times) in evidence.notes.pushed.iter().filter(|(_, times)| **times > 1) {
        findings.add("S10", Seq(0), format!("{attempt:?} of {task} was posted {times} times"));
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds say that an epoch started or did not")]
fn walk(life: &Life<'_>, findings: &mut Findings) {
    let mut may_run = false;
    for event in &life.events {
        match &event.body {
            EventBody::TaskDispatched(body) => {
                if may_run {
                    findings.add("S10", event.seq, format!("{}: another epoch while one may run", life.id));
                }
                // What was posted may have arrived, whatever is heard of it.
                may_run = body.delivery == Delivery::Push;
            }
            EventBody::TaskAcknowledged(_) | EventBody::TaskProgressed(_) | EventBody::TaskOrphaned(_) => {
                may_run = true
            }
            EventBody::TaskReleased(_) => may_run = false,
            EventBody::TaskAttemptFailed(body) if body.started == Started::Never => may_run = false,
            EventBody::TaskReplayed(_) if life.spec.orphan == OrphanPolicy::Replay => may_run = false,
            // By an operator's word, which S9 looks for.
            EventBody::TaskReplayed(_) if matches!(event.actor, Actor::Token(_)) => may_run = false,
            _ => {}
        }
    }
}
