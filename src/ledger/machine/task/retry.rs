//! May it be tried again, and when (R-SCH-5, semantics 9 to 11).
//!
//! Three ways lead back: a *return* (it provably never started; always safe), a *retry* (it ran or may have run; only
//! for idempotent tasks and only for causes that their policy names), and neither.

use crate::ledger::ids::{AttemptNo, Digest, ReachId};
use crate::ledger::machine::event::{
    EventBody, QueuedWhy, RetryWhy, Started, TaskAttemptFailed, TaskDeadLettered, TaskQueued, TaskRetryScheduled,
    TaskSlow,
};
use crate::ledger::machine::task::spec::{
    Idempotence, MAX_NEVER_STARTED, MAX_RETRY_AFTER, RetryCause, RetryPolicy, SlowPolicy,
};
use crate::ledger::machine::task::status::{SlowCause, StatusKind};
use crate::ledger::machine::task::{Failure, FailureClass, Task};
use crate::ledger::time::{Millis, Timestamp};

/// The longest wait of a returned task (semantics 9).
const LONGEST_RETURN: Millis = Millis::secs(60);

/// May another try be made for this cause?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// Yes.
    Allowed,
    /// It would be allowed, but the budget is spent.
    Spent,
    /// The task or its policy forbids it.
    Forbidden,
}

/// R-SCH-5: only what the caller declared idempotent, and only for the causes that it named.
pub(super) fn retry_for(task: &Task, cause: RetryCause) -> Retry {
    if task.spec.retry.retry_on.contains(&cause) { retry_budget(task) } else { Retry::Forbidden }
}

/// As [`retry_for`], for a cause that the task allowed in another way.
pub(super) fn retry_budget(task: &Task) -> Retry {
    let max = task.spec.retry.max_retries;
    if task.spec.idempotence == Idempotence::NotDeclared || max == 0 {
        return Retry::Forbidden;
    }
    if task.retries_used < max { Retry::Allowed } else { Retry::Spent }
}

/// The wait before the next retry (semantics 10). Jitter is derived from ids, so that one log gives one state.
pub(super) fn delay(task: &Task, retry_after: Option<Millis>) -> Millis {
    let nth = task.retries_used.saturating_add(1);
    let jittered = jittered(&task.spec.retry, nth, (task.id(), task.attempt));
    retry_after.map_or(jittered, |floor| floor.min(MAX_RETRY_AFTER).max(jittered))
}

fn jittered(policy: &RetryPolicy, nth: u32, (task, attempt): (ReachId, AttemptNo)) -> Millis {
    let mut top = u128::from(policy.base.0);
    let cap = u128::from(policy.cap.0);
    for _ in 0..nth {
        top = (top * u128::from(policy.factor_milli) / 1_000).min(cap);
    }
    let span = top.saturating_sub(u128::from(policy.base.0));
    let digest = Digest::of(&[b"jitter", &task.0, &attempt.0.to_be_bytes()]);
    let mut head = [0; 8];
    head.copy_from_slice(digest.0.split_at(8).0);
    let share = (span * u128::from(u64::from_be_bytes(head))) >> 64;
    Millis(policy.base.0.saturating_add(u64::try_from(share).unwrap_or(u64::MAX)))
}

/// 0, 1, 2, 4 … 60 s for the first, second, third … return (semantics 9).
pub(super) fn return_delay(nth: u32) -> Millis {
    match nth.checked_sub(2) {
        None => Millis(0),
        Some(power) => Millis(1_000_u64.checked_shl(power.min(16)).unwrap_or(u64::MAX)).min(LONGEST_RETURN),
    }
}

/// How an attempt came back unstarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Return {
    /// Nobody answered within the reach time, or nobody could be reached.
    Unanswered,
    /// The agent gave it back, said "not now" or is gone.
    GivenBack {
        /// Not earlier than this.
        retry_after: Option<Millis>,
    },
}

/// What follows a return: the queue at once, a wait, or the end after too many (semantics 9).
pub(super) fn returned(task: &Task, how: Return, why: QueuedWhy, now: Timestamp) -> EventBody {
    let nth = task.never_started.saturating_add(1);
    if nth >= MAX_NEVER_STARTED {
        return dead_letter(task, failure(FailureClass::Network, "never-reached"));
    }
    let wait = match how {
        Return::Unanswered => return_delay(nth),
        Return::GivenBack { retry_after } => {
            let scale = if nth < 3 { Millis(0) } else { return_delay(nth) };
            retry_after.unwrap_or_default().min(MAX_RETRY_AFTER).max(scale)
        }
    };
    if wait == Millis(0) {
        return TaskQueued { task: task.id(), why }.into();
    }
    TaskRetryScheduled { task: task.id(), why: RetryWhy::Returned, until: now.after(wait) }.into()
}

/// Where a return leads.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about the three kinds that `returned` gives")]
pub(super) fn returned_to(next: &EventBody) -> StatusKind {
    match next {
        EventBody::TaskQueued(_) => StatusKind::Queued,
        EventBody::TaskDeadLettered(_) => StatusKind::DeadLetter,
        _ => StatusKind::Retrying,
    }
}

/// A failed attempt that is tried again after its delay.
pub(super) fn tried_again(task: &Task, retry_after: Option<Millis>, now: Timestamp) -> EventBody {
    let until = now.after(delay(task, retry_after));
    TaskRetryScheduled { task: task.id(), why: RetryWhy::AttemptFailed, until }.into()
}

/// Over its work time, or sent and unanswered: told, not retried, unless the task allows just that (S9).
pub(super) fn slow(task: &Task, cause: SlowCause, now: Timestamp) -> Vec<EventBody> {
    let (retry_cause, code) = match cause {
        SlowCause::Overdue => (RetryCause::Overdue, "overdue"),
        SlowCause::Ambiguous => (RetryCause::Ambiguous, "ambiguous"),
    };
    match retry_for(task, retry_cause) {
        Retry::Allowed => {
            let failed = attempt_failed(task, failure(FailureClass::AgentTimeout, code), Started::Maybe);
            vec![failed, tried_again(task, None, now)]
        }
        // Out of retries its result may still come: it waits by its slow-reach policy.
        Retry::Spent | Retry::Forbidden => {
            let act_at = match task.spec.slow_reach {
                SlowPolicy::Wait => None,
                SlowPolicy::HandOver { after } => {
                    (task.spec.idempotence == Idempotence::Declared).then(|| now.after(after))
                }
                SlowPolicy::Fail { after } => Some(now.after(after)),
            };
            vec![TaskSlow { task: task.id(), attempt: task.attempt, cause, act_at }.into()]
        }
    }
}

/// The hub's word that the current attempt is over.
pub(super) fn attempt_failed(task: &Task, failure: Failure, started: Started) -> EventBody {
    TaskAttemptFailed { task: task.id(), attempt: task.attempt, failure, started, outcome: None }.into()
}

/// The hub gives up.
pub(super) fn dead_letter(task: &Task, failure: Failure) -> EventBody {
    TaskDeadLettered { task: task.id(), failure, attempts: task.attempt.0 }.into()
}

/// A failure in the hub's own words.
pub(super) fn failure(class: FailureClass, code: &str) -> Failure {
    Failure { class, code: code.into(), message: None }
}
