//! The moves of a task: event in, state changed. No rule, no time, no chance.
//!
//! Whether an event may meet a state is asked of `table.rs`, the same rows that docs/state-machine.md shows; a row that
//! is missing there is a bug or a damaged log.

use std::sync::Arc;

use crate::ledger::ids::{AttemptNo, Digest, LeaseDigest};
use crate::ledger::machine::event::{
    Actor, Event, EventBody, RetryWhy, Started, TaskAttemptFailed, TaskDispatched, TaskProgressed, TaskRedriven,
    TaskSubmitted, TaskSucceeded,
};
use crate::ledger::machine::step::ImpossibleTransition;
use crate::ledger::machine::task::deadline;
use crate::ledger::machine::task::deadline::{first_status, queued};
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::retry::failure;
use crate::ledger::machine::task::spec::SchemaVerdicts;
use crate::ledger::machine::task::status::{Acked, Lease, OrphanCause, SlowCause, Status, StatusKind};
use crate::ledger::machine::task::submit::{key_until, lane_of};
use crate::ledger::machine::task::{
    Failure, FailureClass, OutcomeKind, OutcomeRecord, Progress, ReachOutcome, Task, WorkOutcome, table,
};
use crate::ledger::machine::{KeyBinding, KeySubject, State};
use crate::ledger::time::Millis;

/// Applies a task's event; `step.rs` sends no other here.
///
/// # Errors
/// [`ImpossibleTransition`] when the table has no row for it, or it names an attempt that is not the current one.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other kind of task event moves a task that must be there")]
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    match &event.body {
        EventBody::TaskSubmitted(body) => submitted(state, event, body),
        EventBody::TaskStaleReportRefused(body) if !state.tasks.contains_key(&body.task) => Ok(()),
        EventBody::TaskRedriven(body) => redriven(state, event, body),
        EventBody::TaskReplayHeld(body) => {
            state.change_task(body.task, event, |task| moved(task, event))?;
            state.held.insert(body.task, body.why);
            Ok(())
        }
        body => {
            let id = body.task().ok_or_else(|| ImpossibleTransition::of(event, "not a task's event"))?;
            state.change_task(id, event, |task| moved(task, event))?;
            state.depart_if_done(id);
            Ok(())
        }
    }
}

fn submitted(state: &mut State, event: &Event, body: &TaskSubmitted) -> Result<(), ImpossibleTransition> {
    let spec = &body.submission;
    let namespace = event.namespace.clone().ok_or_else(|| ImpossibleTransition::of(event, "no namespace"))?;
    if state.tasks.contains_key(&spec.reach_id) {
        return Err(ImpossibleTransition::of(event, "the id is taken"));
    }
    if let Some(key) = &spec.idempotency {
        let binding = KeyBinding {
            bound_to: KeySubject::Task(spec.reach_id),
            fingerprint: key.fingerprint,
            subject: key.subject.clone(),
            receipt: event.seq,
            until: key_until(key, body.deadline, event.at),
        };
        state.bind_key(namespace.clone(), key.key.clone(), binding);
    }
    let submitter = match &event.actor {
        Actor::Token(token) => Some(token.clone()),
        Actor::Hub | Actor::Agent { .. } => None,
    };
    let task = Task {
        status: first_status(spec, event.at),
        lane: lane_of(&namespace, spec),
        schemas: spec.schemas.clone(),
        namespace,
        spec: Arc::clone(spec),
        submitted_at: event.at,
        deadline: body.deadline,
        ended_at: None,
        ended_by: None,
        submitter,
        attempt: AttemptNo(0),
        last_lease: None,
        acked: None,
        retries_used: 0,
        interruptions: 0,
        never_started: 0,
        agent: None,
        avoid: None,
        progress: None,
        progress_events: 0,
        reach_outcome: None,
        work_outcome: None,
        result: None,
        failure: None,
        outcomes: Vec::new(),
        callback: None,
        callbacks_open: 0,
        stale_reports: 0,
        seqs: vec![event.seq],
        trace: event.trace,
    };
    state.insert_task(task);
    Ok(())
}

/// One move: the row must be in the table, the attempt must be the current one, and the state is where the row says.
fn moved(task: &mut Task, event: &Event) -> Result<(), ImpossibleTransition> {
    let from = task.status.kind();
    let targets = table::targets(from, event.body.kind());
    if targets.is_empty() {
        return Err(ImpossibleTransition::of(event, from.name()));
    }
    if let Some(attempt) = table::fenced_attempt(&event.body).filter(|attempt| *attempt != task.attempt) {
        return Err(ImpossibleTransition::of(
            event,
            format!("{} in attempt {}, not {}", from.name(), task.attempt.0, attempt.0),
        ));
    }
    let lease = task.status.lease().cloned();
    if let Some(status) = next(task, event, lease)? {
        task.status = status;
    }
    let to = task.status.kind();
    if !targets.contains(&to) {
        return Err(ImpossibleTransition::of(event, format!("{} would become {}", from.name(), to.name())));
    }
    if to.is_terminal() && !from.is_terminal() {
        task.ended_at = Some(event.at);
        task.ended_by = Some(event.seq);
    }
    Ok(())
}

/// Sets what the event brings and gives the new status; `None` where it stays.
#[expect(clippy::wildcard_enum_match_arm, reason = "apply sends only task events here, and the table only known ones")]
fn next(task: &mut Task, event: &Event, lease: Option<Lease>) -> Result<Option<Status>, ImpossibleTransition> {
    let leased = || lease.clone().ok_or_else(|| ImpossibleTransition::of(event, "no lease"));
    let next = match &event.body {
        EventBody::TaskQueued(_) => {
            if task.status.kind() == StatusKind::Dispatched {
                task.never_started = task.never_started.saturating_add(1);
            }
            Some(queued(&task.spec, event.at))
        }
        EventBody::TaskDispatched(body) => Some(dispatched(task, event, body)?),
        EventBody::TaskAcknowledged(body) => {
            task.acked = Some((body.attempt, event.seq));
            task.reach_outcome = Some(ReachOutcome::Delivered);
            Some(Status::Processing { lease: leased()?, work_deadline: body.work_deadline })
        }
        EventBody::TaskReclaimed(body) => {
            // An unanswered push may be orphaned too: that its agent takes it back is its acknowledgement.
            if !is_acked(task) {
                task.acked = Some((body.attempt, event.seq));
                task.reach_outcome = Some(ReachOutcome::Delivered);
            }
            Some(Status::Processing { lease: leased()?, work_deadline: body.work_deadline })
        }
        EventBody::TaskOverdue(_) => match task.status {
            Status::Queued { since, .. } => Some(Status::Queued { since, wait_until: None }),
            _ => None,
        },
        EventBody::TaskProgressed(body) => progressed(task, event, body, leased()?),
        EventBody::TaskSlow(body) => {
            if body.cause == SlowCause::Ambiguous {
                task.reach_outcome = Some(ReachOutcome::Unknown);
            }
            let acked = if is_acked(task) { Acked::Yes } else { Acked::No };
            Some(Status::SlowReach { lease: leased()?, acked, cause: body.cause, act_at: body.act_at })
        }
        EventBody::TaskAttemptFailed(body) => Some(attempt_failed(task, event, body, &leased()?)),
        EventBody::TaskRetryScheduled(body) => {
            match body.why {
                RetryWhy::AttemptFailed => task.retries_used = task.retries_used.saturating_add(1),
                RetryWhy::Returned if task.status.kind() == StatusKind::Dispatched => {
                    task.never_started = task.never_started.saturating_add(1);
                }
                RetryWhy::Returned => {}
            }
            Some(Status::Retrying { until: body.until })
        }
        EventBody::TaskOrphaned(body) => {
            if body.cause == OrphanCause::AgentLost {
                task.interruptions = task.interruptions.saturating_add(1);
            }
            let mut lease = leased()?;
            if body.cause == OrphanCause::LossAccepted {
                // What no token hashes to.
                lease.digest = LeaseDigest::default();
            }
            Some(Status::Orphaned { lease, cause: body.cause, since: event.at })
        }
        EventBody::TaskApproved(_) => {
            Some(Status::Scheduled { until: task.spec.not_before.map_or(event.at, |until| until.max(event.at)) })
        }
        EventBody::TaskReplayed(_) => {
            task.avoid = lease.map(|lease| lease.agent);
            Some(Status::Retrying { until: event.at })
        }
        _ => end_or_note(task, event, lease)?,
    };
    Ok(next)
}

/// As [`next`], for what ends an attempt or a life, and for what only leaves a note.
#[expect(clippy::wildcard_enum_match_arm, reason = "apply sends only task events here, and the table only known ones")]
fn end_or_note(task: &mut Task, event: &Event, lease: Option<Lease>) -> Result<Option<Status>, ImpossibleTransition> {
    let leased = || lease.clone().ok_or_else(|| ImpossibleTransition::of(event, "no lease"));
    let next = match &event.body {
        EventBody::TaskReleased(body) => {
            record(task, event, &leased()?, (OutcomeKind::Release, body.outcome));
            task.never_started = task.never_started.saturating_add(1);
            task.reach_outcome = Some(ReachOutcome::Refused);
            Some(Status::Retrying { until: event.at })
        }
        EventBody::TaskSucceeded(body) => Some(succeeded(task, event, body, &leased()?)),
        EventBody::TaskFailed(body) => {
            record(task, event, &leased()?, (OutcomeKind::Fail, body.outcome));
            task.reach_outcome = Some(ReachOutcome::Delivered);
            task.work_outcome = Some(WorkOutcome::Failed);
            task.failure = Some(body.failure.clone().into());
            Some(Status::Failed)
        }
        EventBody::TaskDeadLettered(body) => {
            task.failure = Some(body.failure.clone().into());
            Some(Status::DeadLetter)
        }
        EventBody::TaskExpired(_) => {
            task.failure = Some(expiry(task).into());
            Some(Status::Expired)
        }
        EventBody::TaskCancelled(body) => {
            if task.status.kind() != StatusKind::AwaitingApproval || task.failure.is_none() {
                let class = FailureClass::CallerCancelled;
                let failure = Failure { class, code: "cancelled".into(), message: body.reason.clone() };
                task.failure = Some(failure.into());
            }
            Some(Status::Cancelled)
        }
        EventBody::TaskRefused(body) => {
            let class = FailureClass::Policy;
            let failure = Failure { class, code: "refused".into(), message: body.reason.clone() };
            task.failure = Some(failure.into());
            None
        }
        EventBody::TaskSchemaChecked(body) => {
            learn(&mut task.schemas, &body.verdicts);
            None
        }
        EventBody::TaskResolved(body) => resolved(task, body.resolution),
        EventBody::TaskRedriven(_) | EventBody::TaskReplayHeld(_) => None,
        EventBody::TaskStaleReportRefused(_) => {
            task.stale_reports = task.stale_reports.saturating_add(1);
            None
        }
        _ => return Err(ImpossibleTransition::of(event, "not a task's move")),
    };
    Ok(next)
}

/// An operator who waits puts the slow-reach policy out of force; the other decisions have events of their own.
fn resolved(task: &Task, resolution: Resolution) -> Option<Status> {
    match (&task.status, resolution) {
        (Status::SlowReach { lease, acked, cause, .. }, Resolution::Wait) => {
            Some(Status::SlowReach { lease: lease.clone(), acked: *acked, cause: *cause, act_at: None })
        }
        (_, Resolution::Wait | Resolution::HandOver | Resolution::Fail) => None,
    }
}

/// Links an ended task, which may have left memory, with the one that was made of it right before.
fn redriven(state: &mut State, event: &Event, body: &TaskRedriven) -> Result<(), ImpossibleTransition> {
    if state.redriven_as(body.task).is_some() {
        return Err(ImpossibleTransition::of(event, "it was made anew before"));
    }
    if state.tasks.contains_key(&body.task) {
        state.change_task(body.task, event, |task| moved(task, event))?;
    }
    let submitter = body.submitter.clone();
    state.change_task(body.successor, event, |task| {
        task.submitter = submitter;
        Ok(())
    })?;
    state.link(body.task, body.successor, body.origin);
    if let Some(namespace) = &event.namespace {
        state.count_redrive(namespace);
    }
    Ok(())
}

fn is_acked(task: &Task) -> bool {
    task.acked.is_some_and(|(attempt, _)| attempt == task.attempt)
}

fn dispatched(task: &mut Task, event: &Event, body: &TaskDispatched) -> Result<Status, ImpossibleTransition> {
    if body.attempt != task.attempt.next() {
        return Err(ImpossibleTransition::of(event, format!("the last attempt is {}", task.attempt.0))); // S4
    }
    task.attempt = body.attempt;
    task.last_lease = Some(body.lease);
    task.agent = Some(body.agent.clone());
    let lease = Lease {
        attempt: body.attempt,
        agent: body.agent.clone(),
        incarnation: body.incarnation,
        digest: body.lease,
        delivery: body.delivery,
    };
    Ok(Status::Dispatched { lease, reach_deadline: body.reach_deadline })
}

fn progressed(task: &mut Task, event: &Event, body: &TaskProgressed, lease: Lease) -> Option<Status> {
    task.progress_events = task.progress_events.saturating_add(1);
    task.progress = Some(Box::new(Progress {
        attempt: body.attempt,
        stage: body.stage.clone(),
        percent: body.percent,
        data: body.data.clone(),
        at: event.at,
        seq: event.seq,
    }));
    body.work_deadline.map(|work_deadline| Status::Processing { lease, work_deadline })
}

fn attempt_failed(task: &mut Task, event: &Event, body: &TaskAttemptFailed, lease: &Lease) -> Status {
    if let Some(outcome) = body.outcome {
        record(task, event, lease, (OutcomeKind::Fail, outcome));
    }
    if body.started == Started::Never {
        task.never_started = task.never_started.saturating_add(1);
        let refused = body.failure.class == FailureClass::AgentOverload;
        task.reach_outcome = Some(if refused { ReachOutcome::Refused } else { ReachOutcome::Unreachable });
    }
    task.avoid = Some(lease.agent.clone());
    task.failure = Some(body.failure.clone().into());
    Status::Retrying { until: event.at }
}

fn succeeded(task: &mut Task, event: &Event, body: &TaskSucceeded, lease: &Lease) -> Status {
    record(task, event, lease, (OutcomeKind::Complete, body.outcome));
    task.reach_outcome = Some(ReachOutcome::Delivered);
    task.work_outcome = Some(WorkOutcome::Succeeded);
    task.result = body.result.clone().map(Box::new);
    task.failure = None;
    Status::Succeeded
}

fn record(task: &mut Task, event: &Event, lease: &Lease, (kind, digest): (OutcomeKind, Digest)) {
    let (attempt, lease) = (lease.attempt, lease.digest);
    task.outcomes.push(OutcomeRecord { attempt, lease, kind, digest, receipt: event.seq });
}

/// To what the end of a life is attributed: whoever it waited for (R-SCH-9).
fn expiry(task: &Task) -> Failure {
    let class = match task.status.kind() {
        StatusKind::AwaitingApproval | StatusKind::Scheduled => FailureClass::Policy,
        StatusKind::Queued => FailureClass::AgentOverload,
        StatusKind::Dispatched | StatusKind::Processing | StatusKind::SlowReach => FailureClass::AgentTimeout,
        StatusKind::Orphaned => FailureClass::AgentCrash,
        StatusKind::Retrying => task.failure.as_ref().map_or(FailureClass::Network, |last| last.class),
        StatusKind::Succeeded
        | StatusKind::Failed
        | StatusKind::DeadLetter
        | StatusKind::Expired
        | StatusKind::Cancelled => FailureClass::Hub,
    };
    failure(class, "lifetime-over")
}

fn learn(known: &mut SchemaVerdicts, new: &SchemaVerdicts) {
    for (known, new) in [(&mut known.accepted, &new.accepted), (&mut known.refused, &new.refused)] {
        known.extend(new.iter().copied());
        known.sort_unstable();
        known.dedup();
    }
}

/// Time in which the hub was down does not count for the wait budget (semantics 12): what ran out while nothing was
/// written moves on by as much. Time in which the hub idled counts as down too, at most one budget.
///
/// # Errors
/// [`ImpossibleTransition`] never in fact.
pub(in crate::ledger::machine) fn pause_wait_budgets(
    state: &mut State,
    event: &Event,
    silent: Millis,
) -> Result<(), ImpossibleTransition> {
    change_those(state, event, waits, |task| {
        if let Status::Queued { wait_until: Some(until), .. } = &mut task.status {
            *until = until.after(silent);
        }
    })
}

/// After a standstill of the hub: whoever could not be heard in it has as much time left as before (semantics 3, 12).
///
/// # Errors
/// [`ImpossibleTransition`] never in fact.
pub(in crate::ledger::machine) fn give_time_back(
    state: &mut State,
    event: &Event,
    by: Millis,
) -> Result<(), ImpossibleTransition> {
    change_those(state, event, deadline::gains, |task| deadline::give_back(task, by, event.at))
}

fn change_those(
    state: &mut State,
    event: &Event,
    which: impl Fn(&Task) -> bool,
    change: impl Fn(&mut Task),
) -> Result<(), ImpossibleTransition> {
    let those: Vec<_> = state.tasks.iter().filter(|(_, task)| which(task)).map(|(id, _)| *id).collect();
    for id in those {
        state.change_task(id, event, |task| {
            change(task);
            Ok(())
        })?;
    }
    Ok(())
}

fn waits(task: &Task) -> bool {
    matches!(task.status, Status::Queued { wait_until: Some(_), .. })
}
