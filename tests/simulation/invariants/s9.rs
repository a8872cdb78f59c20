//! S9: `slow-reach` never becomes a new attempt but by a policy that the task allows; a task whose own agent is alive is
//! never taken from it by age alone.

use agent_reach::ledger::machine::event::{EventBody, Started};
use agent_reach::ledger::machine::task::spec::{Idempotence, RetryCause, SlowPolicy};
use agent_reach::ledger::machine::task::status::{OrphanCause, StatusKind};

use crate::invariants::s7::{Stands, key_of};
use crate::model::{Evidence, Findings, Life, begins, leads_to};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for life in evidence.tasks.values() {
        walk(life, findings);
    }
    orphans(evidence, findings);
}

#[expect(clippy::wildcard_enum_match_arm, reason = "asks which states a policy may give up; the rest none")]
fn walk(life: &Life<'_>, findings: &mut Findings) {
    let mut at = begins(life);
    for event in &life.events {
        if at.is_terminal() {
            return;
        }
        if let EventBody::TaskAttemptFailed(body) = &event.body
            && body.started == Started::Maybe
            && body.outcome.is_none()
        {
            let retried = |cause| life.spec.retry.retry_on.contains(&cause);
            let by_policy = match at {
                StatusKind::SlowReach => matches!(life.spec.slow_reach, SlowPolicy::HandOver { .. }),
                StatusKind::Processing => retried(RetryCause::Overdue),
                StatusKind::Dispatched => retried(RetryCause::Ambiguous),
                _ => false,
            };
            if !by_policy || life.spec.idempotence != Idempotence::Declared {
                let what = format!("{}: given up while {} without a policy for it", life.id, at.name());
                findings.add("S9", event.seq, what);
            }
        }
        let goes_back = matches!(event.body, EventBody::TaskQueued(_) | EventBody::TaskRetryScheduled(_));
        if goes_back && matches!(at, StatusKind::SlowReach | StatusKind::Processing) {
            findings.add("S9", event.seq, format!("{}: back from {} just so", life.id, at.name()));
        }
        at = leads_to(&event.body, at).unwrap_or(at);
    }
}

/// A task is orphaned only when its agent really is lost, gone, replaced or drained.
fn orphans(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut stands = Stands::default();
    let mut holder = std::collections::BTreeMap::new();
    for entry in evidence.log {
        let event = &entry.event;
        stands.observe(event);
        if let EventBody::TaskDispatched(body) = &event.body
            && let Some(key) = key_of(event, &body.agent)
        {
            holder.insert(body.task, (key, body.incarnation));
        }
        let EventBody::TaskOrphaned(body) = &event.body else { continue };
        let Some((stand, held)) = holder.get(&body.task).and_then(|(key, held)| Some((stands.0.get(key)?, *held)))
        else {
            continue;
        };
        let is_alive = match body.cause {
            OrphanCause::AgentReplaced => stand.incarnation == held,
            // Says nothing of the agent: the ledger's end was lost.
            OrphanCause::LossAccepted => false,
            OrphanCause::AgentLost | OrphanCause::AgentLeft | OrphanCause::AgentDrained => {
                stand.healthy && stand.active
            }
        };
        if is_alive {
            findings.add("S9", event.seq, format!("{}: orphaned, but its agent stands {stand:?}", body.task));
        }
    }
}
