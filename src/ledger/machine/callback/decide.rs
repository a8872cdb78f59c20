//! The rules of callbacks: what becomes due, what a try's outcome means, and when a round is over.

use crate::ledger::ids::{CallbackId, Namespace, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::bounds::{self, MAX_OPEN_FOR_PROGRESS};
use crate::ledger::machine::callback::{
    Callback, CallbackEvent, CallbackSpec, CallbackState, CallbackSubject, backoff,
};
use crate::ledger::machine::command::{CallbackRow, Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{
    CallbackAttempted, CallbackBlocked, CallbackDelivered, CallbackDue, CallbackExhausted, CallbackGone,
    CallbackRedriven, Event, EventBody, TryOutcome,
};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::Timestamp;

/// Decides the callbacks' commands; `step.rs` sends no other here.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    match &proposal.command {
        Command::CallbackTried { callback, attempt, outcome } => tried(state, *callback, *attempt, outcome, now),
        Command::CallbackErased { callback } => erased(state, *callback),
        Command::RedriveCallback { callback, row } => {
            redrive(state, proposal.namespace.as_ref(), *callback, row.as_ref())
        }
        _ => Decision::refuse(Rejection::CallbackUnknown),
    }
}

/// What follows from an event that was just applied: a callback that its task's or batch's owner asked for.
#[must_use]
pub(in crate::ledger::machine) fn follow_ups(state: &State, event: &Event) -> Vec<EventBody> {
    let due = |subject, spec: &CallbackSpec| {
        CallbackDue {
            callback: CallbackId::of(state.lineage, event.seq),
            subject,
            seq: event.seq,
            url: spec.url.clone(),
            secret_ref: spec.secret_ref.clone(),
        }
        .into()
    };
    if let EventBody::BatchSettled(body) = &event.body {
        let spec = state.batch(body.batch).and_then(|batch| batch.callback.as_ref());
        return spec.map(|spec| due(CallbackSubject::Batch(body.batch), spec)).into_iter().collect();
    }
    let Some((asked, id)) = asked_for_by(&event.body).zip(event.body.task()) else { return Vec::new() };
    let task = state.task(id);
    // A receiver that can't keep up hears of the end all the same.
    let is_crowded = task.is_some_and(|task| task.callbacks_open >= MAX_OPEN_FOR_PROGRESS);
    if asked == CallbackEvent::Progress && is_crowded {
        return Vec::new();
    }
    let spec = task.and_then(|task| task.spec.callback.as_ref());
    let spec = spec.filter(|spec| spec.events.contains(&asked));
    spec.map(|spec| due(CallbackSubject::Task(id), spec)).into_iter().collect()
}

/// Which wish an event answers (R-CBK-4).
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds can be called back; the rest cannot")]
const fn asked_for_by(body: &EventBody) -> Option<CallbackEvent> {
    match body {
        EventBody::TaskSucceeded(_)
        | EventBody::TaskFailed(_)
        | EventBody::TaskDeadLettered(_)
        | EventBody::TaskExpired(_)
        | EventBody::TaskCancelled(_) => Some(CallbackEvent::Terminal),
        // What an operator makes of a slow task is a change of it, too.
        EventBody::TaskSlow(_) | EventBody::TaskResolved(_) => Some(CallbackEvent::Slow),
        EventBody::TaskRetryScheduled(_) => Some(CallbackEvent::Retrying),
        EventBody::TaskProgressed(_) => Some(CallbackEvent::Progress),
        EventBody::TaskOverdue(_) => Some(CallbackEvent::Overdue),
        EventBody::TaskOrphaned(_) => Some(CallbackEvent::Orphaned),
        _ => None,
    }
}

/// A try was made. An answer to another try than the outstanding one changes nothing: the sender lost track, not we.
fn tried(state: &State, id: CallbackId, attempt: u32, outcome: &TryOutcome, now: Timestamp) -> Decision {
    let Some(callback) = state.callbacks.get(&id) else {
        return match state.callback(id) {
            Some(_) => Decision::nothing(Answer::Done),
            None => Decision::refuse(Rejection::CallbackUnknown),
        };
    };
    if attempt != callback.attempts.saturating_add(1) {
        return Decision::nothing(Answer::Done);
    }
    let subject = callback.subject;
    let (next_at, end): (Option<Timestamp>, Option<EventBody>) = match outcome {
        TryOutcome::Delivered { .. } => (None, Some(CallbackDelivered { callback: id, subject }.into())),
        TryOutcome::Gone => (None, Some(CallbackGone { callback: id, subject }.into())),
        TryOutcome::Blocked { .. } => (None, Some(CallbackBlocked { callback: id, subject }.into())),
        TryOutcome::Failed { retry_after, .. } => match backoff::next_try(callback, attempt, *retry_after, now) {
            Some(next_at) => (Some(next_at), None),
            None => (None, Some(CallbackExhausted { callback: id, subject, attempts: attempt }.into())),
        },
    };
    let outcome = outcome.clone();
    let mut events = vec![CallbackAttempted { callback: id, subject, attempt, outcome, next_at }.into()];
    events.extend(end);
    Decision::accept(events, Answer::Done)
}

/// Erasing content ends what would tell it (semantics 27).
fn erased(state: &State, id: CallbackId) -> Decision {
    match state.callbacks.get(&id) {
        Some(callback) => {
            Decision::accept(vec![CallbackGone { callback: id, subject: callback.subject }.into()], Answer::Done)
        }
        None => Decision::nothing(Answer::Done),
    }
}

/// A new round for a settled callback (R-CBK-2), whether its task is still in memory or not.
fn redrive(state: &State, namespace: Option<&Namespace>, id: CallbackId, row: Option<&CallbackRow>) -> Decision {
    if let Some(callback) = state.callbacks.get(&id) {
        let known = Some(&callback.namespace) == namespace;
        return Decision::refuse(if known {
            Rejection::CallbackStillDue { callback: id }
        } else {
            Rejection::CallbackUnknown
        });
    }
    // What settled in a commit that is not yet durable is newer than any row (semantics 16).
    let settled = state.callback(id).map(Settled::of_callback).or_else(|| row.map(Settled::of_row));
    let Some(settled) = settled.filter(|settled| Some(settled.namespace) == namespace) else {
        return Decision::refuse(Rejection::CallbackUnknown);
    };
    if settled.state == CallbackState::Due {
        return Decision::refuse(Rejection::CallbackStillDue { callback: id });
    }
    if let Err(full) = bounds::redrive(state) {
        return Decision::refuse(full);
    }
    let event = CallbackRedriven {
        callback: id,
        subject: settled.subject,
        seq: settled.seq,
        url: settled.url.clone(),
        secret_ref: settled.secret_ref.clone(),
    };
    Decision::accept(vec![event.into()], Answer::Done)
}

/// What a redrive needs of a settled callback, wherever it lies.
struct Settled<'a> {
    namespace: &'a Namespace,
    subject: CallbackSubject,
    seq: Seq,
    url: &'a Text,
    secret_ref: &'a Text,
    state: CallbackState,
}

impl<'a> Settled<'a> {
    fn of_callback(callback: &'a Callback) -> Self {
        Self {
            namespace: &callback.namespace,
            subject: callback.subject,
            seq: callback.seq,
            url: &callback.url,
            secret_ref: &callback.secret_ref,
            state: callback.state,
        }
    }

    fn of_row(row: &'a CallbackRow) -> Self {
        Self {
            namespace: &row.namespace,
            subject: row.subject,
            seq: row.seq,
            url: &row.url,
            secret_ref: &row.secret_ref,
            state: row.state,
        }
    }
}
