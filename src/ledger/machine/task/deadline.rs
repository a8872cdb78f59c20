//! How long a task may stay where it is: reach, work, wait and lifetime. All in ledger time.

use crate::ledger::machine::State;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::{Approval, MAX_LIFETIME, SlowPolicy, Submission};
use crate::ledger::machine::task::status::Status;
use crate::ledger::time::{Millis, Timestamp};

/// A synchronous caller's agent gets at least 1 s (semantics 33).
const SHORTEST_SYNC_WORK: Millis = Millis::secs(1);

/// Time to work for an agent that starts at `now`: for a synchronous call 80 % of the caller's wait less what has
/// passed since the submission, at least 1 s, never more than the task's own (semantics 33).
#[must_use]
pub fn work_timeout(task: &Task, now: Timestamp) -> Millis {
    let own = task.spec.work_timeout;
    let Some(wait) = task.spec.sync_wait else { return own };
    let share = Millis(wait.0.saturating_mul(4) / 5);
    let left = Millis(share.0.saturating_sub(now.since(task.submitted_at).0));
    own.min(left.max(SHORTEST_SYNC_WORK))
}

/// When the work time of an agent that starts at `now` is over.
pub(super) fn work_deadline(task: &Task, now: Timestamp) -> Timestamp {
    now.after(work_timeout(task, now))
}

/// Does the task's own timer run against somebody whom a hub that stands still does not hear? Its life is no such
/// timer: that is the caller's word, in absolute time. Every state is named in [`give_back`].
pub(in crate::ledger::machine) const fn gains(task: &Task) -> bool {
    matches!(
        task.status,
        Status::Queued { wait_until: Some(_), .. }
            | Status::Dispatched { .. }
            | Status::Processing { .. }
            | Status::SlowReach { act_at: Some(_), .. }
    )
}

/// Moves that timer by the `by` in which the hub stood still until `at`, at most to where it would stand had it begun
/// only now: so a standstill gives back no more than was left, and no report of one can keep a lease for ever.
pub(super) fn give_back(task: &mut Task, by: Millis, at: Timestamp) {
    let spec = &task.spec;
    let (until, whole) = match &mut task.status {
        Status::Queued { wait_until: Some(until), .. } => (until, spec.qos.wait_budget()),
        Status::Dispatched { reach_deadline, .. } => (reach_deadline, Some(spec.reach_timeout)),
        Status::Processing { work_deadline, .. } => (work_deadline, Some(spec.work_timeout)),
        Status::SlowReach { act_at: Some(act_at), .. } => match spec.slow_reach {
            SlowPolicy::HandOver { after } | SlowPolicy::Fail { after } => (act_at, Some(after)),
            SlowPolicy::Wait => return,
        },
        Status::Queued { wait_until: None, .. }
        | Status::SlowReach { act_at: None, .. }
        | Status::AwaitingApproval
        | Status::Scheduled { .. }
        | Status::Retrying { .. }
        | Status::Orphaned { .. }
        | Status::Succeeded
        | Status::Failed
        | Status::DeadLetter
        | Status::Expired
        | Status::Cancelled => return,
    };
    let latest = whole.map_or(*until, |whole| at.after(whole));
    *until = until.after(by).min(latest).max(*until);
}

/// When a new task's life is over: the earliest of lifetime, absolute deadline and the parent's end (semantics 34).
/// A parent that has left memory no longer cuts: it has ended, and its children are cut by their own lives.
pub(super) fn end_of_life(state: &State, submission: &Submission, parent: Option<&Task>, now: Timestamp) -> Timestamp {
    debug_assert!(now >= state.at(), "time falls");
    let lifetime = now.after(submission.lifetime.min(MAX_LIFETIME));
    let own = submission.deadline.map_or(lifetime, |deadline| deadline.min(lifetime));
    parent.map_or(own, |parent| parent.deadline.min(own))
}

/// Where a new task stands (semantics 35).
#[must_use]
pub fn first_status(submission: &Submission, at: Timestamp) -> Status {
    match (submission.approval, submission.not_before) {
        (Approval::Needed, _) => Status::AwaitingApproval,
        (Approval::NotNeeded, Some(until)) if until > at => Status::Scheduled { until },
        (Approval::NotNeeded, _) => queued(submission, at),
    }
}

/// Queued from `at` on: the wait budget starts anew at each entry (semantics 12).
pub(super) fn queued(submission: &Submission, at: Timestamp) -> Status {
    Status::Queued { since: at, wait_until: submission.qos.wait_budget().map(|budget| at.after(budget)) }
}
