//! A task's timer is due: its deadline first, then its state's own (T3, L1).

use crate::ledger::ids::ReachId;
use crate::ledger::machine::State;
use crate::ledger::machine::decision::{Answer, Decision};
use crate::ledger::machine::event::{EventBody, QueuedWhy, Started, TaskExpired, TaskOverdue, TaskQueued};
use crate::ledger::machine::task::retry::{
    Retry, Return, attempt_failed, dead_letter, failure, retry_budget, returned, slow, tried_again,
};
use crate::ledger::machine::task::spec::{OnWait, SlowPolicy};
use crate::ledger::machine::task::status::{Delivery, SlowCause, Status};
use crate::ledger::machine::task::{FailureClass, Task};
use crate::ledger::time::Timestamp;

/// Decides what a due timer does. One that is no longer due does nothing.
pub(super) fn fire(state: &State, id: ReachId, now: Timestamp) -> Decision {
    let Some(task) = state.tasks.get(&id) else { return Decision::nothing(Answer::Done) };
    if task.wake_at().is_none_or(|at| at > now) {
        return Decision::nothing(Answer::Done);
    }
    let events = if task.deadline <= now {
        vec![TaskExpired { task: id }.into()] // R-SCH-7
    } else {
        state_timer(task, now)
    };
    Decision::accept(events, Answer::Done)
}

fn state_timer(task: &Task, now: Timestamp) -> Vec<EventBody> {
    let queued = |why| vec![EventBody::from(TaskQueued { task: task.id(), why })];
    match &task.status {
        Status::Scheduled { .. } => queued(QueuedWhy::NotBeforeReached),
        Status::Retrying { .. } => queued(QueuedWhy::RetryDue),
        Status::Queued { .. } => vec![wait_budget_spent(task)],
        Status::Dispatched { lease, .. } => match lease.delivery {
            Delivery::Pull => {
                let unanswered = failure(FailureClass::AgentTimeout, "reach-timeout");
                vec![
                    attempt_failed(task, unanswered, Started::Never),
                    returned(task, Return::Unanswered, QueuedWhy::NeverStarted, now),
                ]
            }
            Delivery::Push => slow(task, SlowCause::Ambiguous, now),
        },
        Status::Processing { .. } => slow(task, SlowCause::Overdue, now),
        Status::SlowReach { cause, .. } => slow_policy(task, *cause, now),
        Status::AwaitingApproval
        | Status::Orphaned { .. }
        | Status::Succeeded
        | Status::Failed
        | Status::DeadLetter
        | Status::Expired
        | Status::Cancelled => Vec::new(), // They have no timer of their own.
    }
}

/// Semantics 12. A degraded answer is configured nowhere yet, so `degrade` ends as `fail` does.
fn wait_budget_spent(task: &Task) -> EventBody {
    match task.spec.on_wait {
        OnWait::Keep => TaskOverdue { task: task.id() }.into(),
        OnWait::Fail | OnWait::Degrade => dead_letter(task, failure(FailureClass::AgentOverload, "wait-budget-spent")),
    }
}

/// Semantics 11: the policy that the task itself brought (S9).
fn slow_policy(task: &Task, cause: SlowCause, now: Timestamp) -> Vec<EventBody> {
    let code = match cause {
        SlowCause::Overdue => "overdue",
        SlowCause::Ambiguous => "ambiguous",
    };
    let why = failure(FailureClass::AgentTimeout, code);
    match task.spec.slow_reach {
        SlowPolicy::HandOver { .. } => {
            let failed = attempt_failed(task, why, Started::Maybe);
            match retry_budget(task) {
                Retry::Allowed => vec![failed, tried_again(task, None, now)],
                Retry::Spent | Retry::Forbidden => {
                    vec![failed, dead_letter(task, failure(FailureClass::AgentTimeout, "retries-exhausted"))]
                }
            }
        }
        SlowPolicy::Fail { .. } | SlowPolicy::Wait => vec![dead_letter(task, why)],
    }
}
