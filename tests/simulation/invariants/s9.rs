//! S9: `slow-reach` never becomes a new attempt but by a policy that the task allows or an operator's event with actor and
//! reason; a task whose own agent is alive is never taken from it by age alone. The word `wait` ends the policy.

use agent_reach::ledger::machine::event::{Actor, EventBody, Started};
use agent_reach::ledger::machine::replay::Done;
use agent_reach::ledger::machine::task::resolve::Resolution;
use agent_reach::ledger::machine::task::spec::{Idempotence, RetryCause, SlowPolicy};
use agent_reach::ledger::machine::task::status::{OrphanCause, StatusKind};

use crate::invariants::s7::{Stands, key_of};
use crate::model::{Evidence, Findings, Life, begins, leads_to};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for life in evidence.tasks.values() {
        walk(life, findings);
        words(evidence, life, findings);
    }
    orphans(evidence, findings);
}

#[expect(clippy::wildcard_enum_match_arm, reason = "asks which states a policy may give up; the rest none")]
fn walk(life: &Life<'_>, findings: &mut Findings) {
    let mut at = begins(life);
    let mut waits = false;
    for event in &life.events {
        if at.is_terminal() {
            return;
        }
        if let EventBody::TaskResolved(body) = &event.body {
            waits = body.resolution == Resolution::Wait;
        }
        if waits && is_given_up(&event.body) {
            findings.add("S9", event.seq, format!("{}: its policy acts though an operator said wait", life.id));
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
        waits &= at == StatusKind::SlowReach;
    }
}

/// Given up for being slow: an answer that comes late is another thing.
fn is_given_up(body: &EventBody) -> bool {
    if let EventBody::TaskAttemptFailed(body) = body {
        body.started == Started::Maybe && body.outcome.is_none()
    } else if let EventBody::TaskDeadLettered(body) = body {
        ["overdue", "ambiguous"].contains(&&*body.failure.code)
    } else {
        false
    }
}

/// What the sweep brings back was orphaned; a word of an operator stands right before whatever else is.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which two kinds are a word to go on; the rest are none")]
fn words(evidence: &Evidence<'_>, life: &Life<'_>, findings: &mut Findings) {
    let mut at = begins(life);
    for event in &life.events {
        if let EventBody::TaskReplayed(_) = &event.body {
            let word = evidence.beside(event, -1).is_some_and(|before| match &before.body {
                EventBody::TaskResolved(body) => body.task == life.id && body.resolution == Resolution::HandOver,
                EventBody::ReplayItemDone(body) => body.task == life.id && body.done == Done::Replayed,
                _ => false,
            });
            let by_token = matches!(event.actor, Actor::Token(_));
            let hangs = at == StatusKind::Orphaned || (by_token && at == StatusKind::SlowReach);
            if by_token != word || !hangs {
                findings.add("S9", event.seq, format!("{}: replayed from {} without a word", life.id, at.name()));
            }
        }
        if let EventBody::TaskResolved(body) = &event.body {
            let decidable = match body.resolution {
                Resolution::HandOver | Resolution::Fail => [StatusKind::SlowReach, StatusKind::Orphaned].contains(&at),
                Resolution::Wait => at == StatusKind::SlowReach,
            };
            let named = matches!(event.actor, Actor::Token(_)) && !body.reason.is_empty();
            if !decidable || !named {
                findings.add(
                    "S9",
                    event.seq,
                    format!("{}: resolved while {} by {:?}", life.id, at.name(), event.actor),
                );
            }
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
