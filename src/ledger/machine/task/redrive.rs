//! An ended task made anew (semantics 40). Terminal is final, so the new one has its own id, fresh budgets and a fresh
//! life; payload, callback and everything else that was asked stay, and the two name each other for ever.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ledger::ids::{AttemptNo, Namespace, ReachId, ReplayId};
use crate::ledger::machine::State;
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::event::{EventBody, TaskRedriven, TaskSubmitted};
use crate::ledger::machine::replay::MayHaveRun;
use crate::ledger::machine::replay::order::{Before, Correction};
use crate::ledger::machine::task::deadline::{end_of_life, first_status};
use crate::ledger::machine::task::spec::{Idempotence, SchemaVerdicts, Submission, Text};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::submit::admit_again;
use crate::ledger::machine::task::{ReachOutcome, Task};
use crate::ledger::time::Timestamp;

/// What is to be made of what.
#[derive(Debug)]
pub(in crate::ledger::machine) struct Redrive<'a> {
    /// The ended task.
    pub(in crate::ledger::machine) task: ReachId,
    /// The new one's id.
    pub(in crate::ledger::machine) successor: ReachId,
    /// The operator's word on what may have run.
    pub(in crate::ledger::machine) may_have_run: MayHaveRun,
    /// What the shell read of it.
    pub(in crate::ledger::machine) before: Option<&'a Before>,
    /// Another payload.
    pub(in crate::ledger::machine) correction: Option<&'a Correction>,
    /// Verdicts over the payload that it keeps, beside those that it has.
    pub(in crate::ledger::machine) schemas: Option<&'a SchemaVerdicts>,
    /// By which plan.
    pub(in crate::ledger::machine) replay: Option<ReplayId>,
    /// Why; a plan has its own reason.
    pub(in crate::ledger::machine) reason: Option<Text>,
}

/// Why a task is not made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::ledger::machine) enum NoRedrive {
    /// No such task here.
    Unknown,
    /// It has not ended.
    NotEnded { state: StatusKind },
    /// It ended in a way that nobody wants again: succeeded or called off.
    WrongEnd { state: StatusKind },
    /// It was redriven before.
    Already { successor: ReachId },
    /// A newer task of its session has succeeded.
    Superseded { by: ReachId },
    /// It may have run, is not idempotent, and the word is missing.
    MayHaveRun,
    /// Its payload was erased.
    PayloadErased,
    /// It could not be submitted now either.
    Refused(Rejection),
}

/// A new task and what is told of it.
pub(in crate::ledger::machine) struct Made {
    /// Its submission, and the link.
    pub(in crate::ledger::machine) events: Vec<EventBody>,
    /// Where it stands.
    pub(in crate::ledger::machine) state: StatusKind,
}

/// The task, if nothing of its own stands against making it anew; the rules in the order in which an operator can mend
/// them. Whether there is room, and somebody to take it, is asked with the submission.
pub(in crate::ledger::machine) fn redrivable<'a>(
    state: &'a State,
    namespace: &Namespace,
    order: &Redrive<'a>,
) -> Result<&'a Task, NoRedrive> {
    let finished = || order.before.and_then(|before| before.finished.as_deref());
    let task = state.task(order.task).or_else(finished).filter(|task| task.namespace == *namespace);
    let task = task.ok_or(NoRedrive::Unknown)?;
    let kind = task.status.kind();
    match kind {
        StatusKind::Failed | StatusKind::DeadLetter | StatusKind::Expired => {}
        StatusKind::Succeeded | StatusKind::Cancelled => return Err(NoRedrive::WrongEnd { state: kind }),
        StatusKind::AwaitingApproval
        | StatusKind::Scheduled
        | StatusKind::Queued
        | StatusKind::Dispatched
        | StatusKind::Processing
        | StatusKind::SlowReach
        | StatusKind::Retrying
        | StatusKind::Orphaned => return Err(NoRedrive::NotEnded { state: kind }),
    }
    // What was decided and is not yet durable is asked first (semantics 16).
    let known = state.redriven_as(order.task).or_else(|| order.before.and_then(|before| before.redriven_as));
    if let Some(successor) = known {
        return Err(NoRedrive::Already { successor });
    }
    if let Some(by) = order.before.and_then(|before| before.superseded_by) {
        return Err(NoRedrive::Superseded { by });
    }
    if order.may_have_run == MayHaveRun::Skip && may_have_run(task) {
        return Err(NoRedrive::MayHaveRun);
    }
    let keeps_payload = order.correction.is_none() && task.spec.payload.is_some();
    if keeps_payload && !order.before.is_some_and(|before| before.has_payload) {
        return Err(NoRedrive::PayloadErased);
    }
    Ok(task)
}

/// A new task of it.
pub(in crate::ledger::machine) fn redrive(
    state: &State,
    namespace: &Namespace,
    order: &Redrive<'_>,
    now: Timestamp,
) -> Result<Made, NoRedrive> {
    let task = redrivable(state, namespace, order)?;
    let submission = anew(task, order);
    let submission = admit_again(state, namespace, submission, now).map_err(NoRedrive::Refused)?;
    let first = first_status(&submission, now).kind();
    let deadline = end_of_life(state, &submission, None, now);
    let redriven = TaskRedriven {
        task: order.task,
        successor: order.successor,
        submitter: task.submitter.clone(),
        replay: order.replay,
        reason: order.reason.clone(),
        // Of a task in memory the state knows it; of one that has left it the shell read it.
        origin: state.origin(order.task).or_else(|| order.before.and_then(|before| before.origin)),
    };
    let submitted = TaskSubmitted { submission: Arc::new(submission), deadline, routed: None };
    Ok(Made { events: vec![submitted.into(), redriven.into()], state: first })
}

/// The same wish, to be begun now: what was an absolute moment, a key or a place in a batch belonged to the first.
fn anew(task: &Task, order: &Redrive<'_>) -> Submission {
    let mut submission = Submission::clone(&task.spec);
    submission.reach_id = order.successor;
    submission.deadline = None;
    submission.not_before = None;
    submission.sync_wait = None;
    submission.parent = None;
    submission.idempotency = None;
    submission.batch = None;
    submission.schemas = task.schemas.clone();
    if let Some(asked) = order.schemas {
        submission.schemas.join(asked);
    }
    if let Some(correction) = order.correction {
        submission.payload = Some(correction.payload.clone());
        submission.payload_ref = None;
        submission.schemas = correction.schemas.clone();
    }
    submission
}

/// May it have had an effect that nobody knows of? Not if it is idempotent, and not where its agents gave a last word on
/// every attempt that started: an earlier one that an operator or a policy sent back counts as well as the last.
#[must_use]
pub fn may_have_run(task: &Task) -> bool {
    let unanswered = |attempt| !task.outcomes.iter().any(|outcome| outcome.attempt == attempt);
    let earlier = task.attempt.0.saturating_sub(1);
    let answered: BTreeSet<AttemptNo> =
        task.outcomes.iter().map(|outcome| outcome.attempt).filter(|attempt| *attempt < task.attempt).collect();
    let explained = task.never_started.saturating_add(u32::try_from(answered.len()).unwrap_or(u32::MAX));
    let started = task.acked.is_some_and(|(attempt, _)| unanswered(attempt));
    let may_have_arrived = task.reach_outcome == Some(ReachOutcome::Unknown) && unanswered(task.attempt);
    task.spec.idempotence == Idempotence::NotDeclared && (started || may_have_arrived || earlier > explained)
}
