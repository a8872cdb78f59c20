//! S5: retries, interruptions and unstarted returns stay within their budgets; a dead letter for exhaustion only when
//! they are spent.

use agent_reach::ledger::ids::Seq;
use agent_reach::ledger::machine::event::{EventBody, RetryWhy, Started};
use agent_reach::ledger::machine::task::spec::{Idempotence, MAX_INTERRUPTIONS, MAX_NEVER_STARTED, SlowPolicy};
use agent_reach::ledger::machine::task::status::OrphanCause;

use crate::model::{Evidence, Findings, Life};

#[derive(Default)]
struct Spent {
    retries: u32,
    losses: u32,
    unstarted: u32,
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for life in evidence.tasks.values() {
        let mut spent = Spent::default();
        for event in &life.events {
            spent.observe(&event.body);
            if spent.retries > life.spec.retry.max_retries {
                let what = format!("{}: {} retries of {}", life.id, spent.retries, life.spec.retry.max_retries);
                findings.add("S5", event.seq, what);
            }
            if spent.losses > MAX_INTERRUPTIONS || spent.unstarted > MAX_NEVER_STARTED {
                findings.add("S5", event.seq, format!("{}: goes on beyond its budgets", life.id));
            }
            if let EventBody::TaskDeadLettered(body) = &event.body {
                spent.check_end(life, &body.failure.code, event.seq, findings);
            }
        }
    }
}

impl Spent {
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks what spends a budget; the rest does not")]
    fn observe(&mut self, body: &EventBody) {
        match body {
            EventBody::TaskRetryScheduled(body) if body.why == RetryWhy::AttemptFailed => self.retries += 1,
            EventBody::TaskOrphaned(body) if body.cause == OrphanCause::AgentLost => self.losses += 1,
            EventBody::TaskAttemptFailed(body) if body.started == Started::Never => self.unstarted += 1,
            EventBody::TaskReleased(_) => self.unstarted += 1,
            _ => {}
        }
    }

    fn check_end(&self, life: &Life<'_>, code: &str, seq: Seq, findings: &mut Findings) {
        let hands_over = matches!(life.spec.slow_reach, SlowPolicy::HandOver { .. });
        let may_retry = life.spec.idempotence == Idempotence::Declared;
        let early = match code {
            "poison-suspected" => self.losses < MAX_INTERRUPTIONS,
            "retries-exhausted" => self.retries < life.spec.retry.max_retries && may_retry && !hands_over,
            // A return by the agent's loss is not counted here, so only too few of all kinds can be told.
            "never-reached" => life.events.iter().filter(|e| is_return(&e.body)).count() < 19,
            _ => false,
        };
        if early {
            findings.add("S5", seq, format!("{}: {code}, but the budget is not spent", life.id));
        }
    }
}

fn is_return(body: &EventBody) -> bool {
    matches!(body, EventBody::TaskDispatched(_))
}
