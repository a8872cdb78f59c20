//! The rules of tasks: command in, events out. Nothing is changed here.
//!
//! | file | commands |
//! | --- | --- |
//! | `submit.rs` | submit |
//! | `dispatch.rs` | dispatch, push trouble, boot, loss of an agent, replay |
//! | `report.rs` | what agents say (semantics 14) |
//! | `timer.rs` | a timer is due |
//! | here | cancel, approve, refuse, schema verdicts |

use crate::ledger::ids::ReachId;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::{
    EventBody, QueuedWhy, TaskApproved, TaskCancelled, TaskQueued, TaskRefused, TaskSchemaChecked,
};
use crate::ledger::machine::replay::order::RedriveOrder;
use crate::ledger::machine::task::redrive::{NoRedrive, Redrive, redrive};
use crate::ledger::machine::task::spec::{BodyRef, SchemaVerdicts};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{Task, dispatch, report, resolve, submit, timer};
use crate::ledger::machine::{Fact, State};
use crate::ledger::time::Timestamp;

/// Decides the tasks' commands; `step.rs` sends no other here.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    match &proposal.command {
        Command::SubmitTask { submission, bound, routed } => {
            submit::submit(state, proposal, (submission, bound.as_ref(), routed.as_deref()), now)
        }
        Command::DispatchTask { .. } => dispatch::dispatch(state, proposal, now),
        Command::Report(said) => report::report(state, proposal, said, now),
        Command::PushFailed { task, attempt, trouble } => match live(state, proposal, *task) {
            Ok(task) => dispatch::push_failed(task, *attempt, trouble, now),
            Err(reason) => Decision::refuse(reason),
        },
        Command::ResolvePushAtBoot { task, attempt } => match live(state, proposal, *task) {
            Ok(task) => dispatch::resolve_push(task, *attempt, now),
            Err(reason) => Decision::refuse(reason),
        },
        Command::ReplayTask { task, superseded_by } => match live(state, proposal, *task) {
            Ok(task) => dispatch::replay(state, task, *superseded_by),
            Err(reason) => Decision::refuse(reason),
        },
        Command::ResolveTask { task, resolution, reason } => match live(state, proposal, *task) {
            Ok(task) => resolve::resolve(task, *resolution, reason),
            Err(reason) => Decision::refuse(reason),
        },
        Command::RedriveTask(order) => redrive_one(state, proposal, order, now),
        Command::CancelTask { task, reason, fact } => match known(state, proposal, *task, fact.as_ref()) {
            Some(task) => cancel(task, reason.as_ref()),
            None => Decision::refuse(Rejection::TaskUnknown),
        },
        Command::ApproveTask { task } => match live(state, proposal, *task) {
            Ok(task) => approve(task, now),
            Err(reason) => Decision::refuse(reason),
        },
        Command::RefuseTask { task, reason } => match live(state, proposal, *task) {
            Ok(task) => refuse(task, reason.as_ref()),
            Err(reason) => Decision::refuse(reason),
        },
        Command::SchemaChecked { task, verdicts } => match live(state, proposal, *task) {
            Ok(task) => schema_checked(task, verdicts),
            Err(reason) => Decision::refuse(reason),
        },
        Command::Fire { subject: Subject::Task(task) } => timer::fire(state, *task, now),
        _ => Decision::refuse(Rejection::TaskUnknown),
    }
}

/// A task in memory or by its finished row, if the proposal may see it: foreign and absent are the same (N1).
pub(super) fn known<'a>(
    state: &'a State,
    proposal: &Proposal,
    id: ReachId,
    fact: Option<&'a Fact>,
) -> Option<&'a Task> {
    let finished = fact.map(|Fact::Finished(task)| &**task).filter(|task| task.id() == id);
    let task = state.task(id).or(finished)?;
    let visible = proposal.namespace.as_ref().is_none_or(|namespace| *namespace == task.namespace);
    visible.then_some(task)
}

fn live<'a>(state: &'a State, proposal: &Proposal, id: ReachId) -> Result<&'a Task, Rejection> {
    known(state, proposal, id, None).ok_or(Rejection::TaskUnknown)
}

/// What a task in that state answers to a proposal that thought otherwise.
pub(super) fn moved_on(task: &Task) -> Decision {
    Decision::refuse(Rejection::MovedOn { state: task.status.kind() })
}

/// The refusal that names the terminal event (semantics 14).
pub(super) fn terminal(task: &Task) -> Option<Rejection> {
    let state = task.status.kind();
    state.is_terminal().then(|| Rejection::TaskTerminal { state, seq: task.ended_by.unwrap_or_default() })
}

/// R-SCH-10: one winner between a completion and a cancel; the loser is told which.
fn cancel(task: &Task, reason: Option<&BodyRef>) -> Decision {
    if let Some(ended) = terminal(task) {
        return Decision::refuse(ended);
    }
    let cancelled = TaskCancelled { task: task.id(), reason: reason.cloned() };
    Decision::accept(vec![cancelled.into()], Answer::Task { state: StatusKind::Cancelled })
}

/// One ended task anew, by an operator's word.
fn redrive_one(state: &State, proposal: &Proposal, order: &RedriveOrder, now: Timestamp) -> Decision {
    let Some(namespace) = &proposal.namespace else { return Decision::refuse(Rejection::TaskUnknown) };
    let order = Redrive {
        task: order.task,
        successor: order.successor,
        may_have_run: order.may_have_run,
        before: order.before.as_ref(),
        correction: order.correction.as_ref(),
        schemas: order.schemas.as_ref(),
        replay: None,
        reason: Some(order.reason.clone()),
    };
    match redrive(state, namespace, &order, now) {
        Ok(made) => Decision::accept(made.events, Answer::Task { state: made.state }),
        Err(why) => Decision::refuse(match why {
            NoRedrive::Unknown => Rejection::TaskUnknown,
            NoRedrive::NotEnded { state } | NoRedrive::WrongEnd { state } => Rejection::NotRedrivable { state },
            NoRedrive::Already { successor } => Rejection::AlreadyRedriven { successor },
            NoRedrive::Superseded { by } => Rejection::Superseded { by },
            NoRedrive::MayHaveRun => Rejection::MayHaveRun,
            NoRedrive::PayloadErased => Rejection::PayloadErased,
            NoRedrive::Refused(reason) => reason,
        }),
    }
}

/// R-SUB-9. A task that is also `not_before` waits for that as well.
fn approve(task: &Task, now: Timestamp) -> Decision {
    if task.status.kind() != StatusKind::AwaitingApproval {
        return Decision::refuse(Rejection::NotAwaitingApproval { state: task.status.kind() });
    }
    let mut events: Vec<EventBody> = vec![TaskApproved { task: task.id() }.into()];
    let mut state = StatusKind::Scheduled;
    if task.spec.not_before.is_none_or(|until| until <= now) {
        events.push(TaskQueued { task: task.id(), why: QueuedWhy::Approved }.into());
        state = StatusKind::Queued;
    }
    Decision::accept(events, Answer::Task { state })
}

fn refuse(task: &Task, reason: Option<&BodyRef>) -> Decision {
    if task.status.kind() != StatusKind::AwaitingApproval {
        return Decision::refuse(Rejection::NotAwaitingApproval { state: task.status.kind() });
    }
    let refused = TaskRefused { task: task.id(), reason: reason.cloned() };
    let cancelled = TaskCancelled { task: task.id(), reason: reason.cloned() };
    let events = vec![refused.into(), cancelled.into()];
    Decision::accept(events, Answer::Task { state: StatusKind::Cancelled })
}

/// Semantics 18. Verdicts only grow; one that brings nothing new leaves no event.
fn schema_checked(task: &Task, verdicts: &SchemaVerdicts) -> Decision {
    let state = task.status.kind();
    if state.is_terminal() {
        return moved_on(task);
    }
    let is_new = verdicts.accepted.iter().any(|digest| !task.schemas.accepted.contains(digest))
        || verdicts.refused.iter().any(|digest| !task.schemas.refused.contains(digest));
    if !is_new {
        return Decision::nothing(Answer::Task { state });
    }
    let checked = TaskSchemaChecked { task: task.id(), verdicts: verdicts.clone() };
    Decision::accept(vec![checked.into()], Answer::Task { state })
}
