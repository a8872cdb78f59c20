//! The moves of callbacks, and what their task or batch shows of them.

use std::sync::Arc;

use crate::ledger::ids::{BatchId, CallbackId, ReachId};
use crate::ledger::machine::State;
use crate::ledger::machine::callback::{Callback, CallbackStanding, CallbackState, CallbackSubject};
use crate::ledger::machine::event::{CallbackAttempted, CallbackDue, CallbackRedriven, Event, EventBody, TryOutcome};
use crate::ledger::machine::step::ImpossibleTransition;
use crate::ledger::machine::task::spec::Text;

/// Applies a callback's event; `step.rs` sends no other here.
///
/// # Errors
/// [`ImpossibleTransition`] when the event cannot follow on this state: a bug or a damaged log.
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    match &event.body {
        EventBody::CallbackDue(body) => {
            let CallbackDue { callback, subject, seq, url, secret_ref } = body.clone();
            begin(state, event, Round { id: callback, subject, seq, url, secret_ref })
        }
        EventBody::CallbackRedriven(body) => {
            let CallbackRedriven { callback, subject, seq, url, secret_ref } = body.clone();
            begin(state, event, Round { id: callback, subject, seq, url, secret_ref })
        }
        EventBody::CallbackAttempted(body) => attempted(state, event, body),
        EventBody::CallbackDelivered(body) => settle(state, event, body.callback, CallbackState::Delivered),
        EventBody::CallbackExhausted(body) => settle(state, event, body.callback, CallbackState::Exhausted),
        EventBody::CallbackBlocked(body) => settle(state, event, body.callback, CallbackState::Blocked),
        EventBody::CallbackGone(body) => settle(state, event, body.callback, CallbackState::Gone),
        _ => Err(ImpossibleTransition::of(event, "not a callback's event")),
    }
}

/// What a round of tries begins with.
struct Round {
    id: CallbackId,
    subject: CallbackSubject,
    seq: crate::ledger::ids::Seq,
    url: Text,
    secret_ref: Text,
}

fn begin(state: &mut State, event: &Event, round: Round) -> Result<(), ImpossibleTransition> {
    let Some(namespace) = event.namespace.clone() else {
        return Err(ImpossibleTransition::of(event, "a callback belongs to a namespace"));
    };
    if state.callbacks.contains_key(&round.id) {
        return Err(ImpossibleTransition::of(event, "the callback is due already"));
    }
    let callback = Callback {
        id: round.id,
        namespace,
        subject: round.subject,
        seq: round.seq,
        url: round.url,
        secret_ref: round.secret_ref,
        state: CallbackState::Due,
        attempts: 0,
        since: event.at,
        next_at: event.at,
        last_error: None,
    };
    state.callbacks_due.insert((callback.next_at, callback.id));
    match round.subject {
        CallbackSubject::Task(id) => {
            if let Some(task) = state.tasks.get_mut(&id) {
                let task = Arc::make_mut(task);
                task.callbacks_open = task.callbacks_open.saturating_add(1);
            }
        }
        CallbackSubject::Batch(_) => {}
    }
    show(state, event, &callback, LastDue::Becomes);
    state.callbacks.insert(callback.id, callback);
    Ok(())
}

fn attempted(state: &mut State, event: &Event, body: &CallbackAttempted) -> Result<(), ImpossibleTransition> {
    let Some(callback) = state.callbacks.get_mut(&body.callback) else {
        return Err(ImpossibleTransition::of(event, "the callback is not due"));
    };
    callback.attempts = body.attempt;
    callback.last_error = error_of(&body.outcome);
    if let Some(next_at) = body.next_at {
        state.callbacks_due.remove(&(callback.next_at, callback.id));
        callback.next_at = next_at;
        state.callbacks_due.insert((next_at, callback.id));
    }
    let callback = callback.clone();
    show(state, event, &callback, LastDue::Stays);
    Ok(())
}

fn error_of(outcome: &TryOutcome) -> Option<Text> {
    match outcome {
        TryOutcome::Delivered { .. } => None,
        TryOutcome::Failed { error, .. } | TryOutcome::Blocked { error } => Some(error.clone()),
        TryOutcome::Gone => Some("http-410".into()),
    }
}

fn settle(state: &mut State, event: &Event, id: CallbackId, how: CallbackState) -> Result<(), ImpossibleTransition> {
    let Some(callback) = state.callbacks.get_mut(&id) else {
        return Err(ImpossibleTransition::of(event, "the callback is not due"));
    };
    callback.state = how;
    let callback = callback.clone();
    show(state, event, &callback, LastDue::Stays);
    state.depart_callback(id);
    match callback.subject {
        CallbackSubject::Task(task) => closed(state, task),
        CallbackSubject::Batch(batch) => depart_settled_batch(state, batch),
    }
    Ok(())
}

/// One callback less for its task, which may leave memory now. A task that had left before stays where it is: a
/// redriven callback needs no task in memory.
fn closed(state: &mut State, id: ReachId) {
    if let Some(task) = state.tasks.get_mut(&id) {
        let task = Arc::make_mut(task);
        task.callbacks_open = task.callbacks_open.saturating_sub(1);
        state.depart_if_done(id);
    }
}

fn depart_settled_batch(state: &mut State, id: BatchId) {
    if state.batches.get(&id).is_some_and(crate::ledger::machine::batch::Batch::is_done) {
        state.depart_batch(id);
    }
}

/// Is this the last callback that became due, from now on or still?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastDue {
    Becomes,
    Stays,
}

/// Shows the callback's standing at its task or batch, which shows the one that became due last.
fn show(state: &mut State, event: &Event, callback: &Callback, last: LastDue) {
    let standing = CallbackStanding { id: callback.id, state: callback.state, attempts: callback.attempts };
    let shown = match callback.subject {
        CallbackSubject::Task(id) => state.tasks.get_mut(&id).map(|task| &mut Arc::make_mut(task).callback),
        CallbackSubject::Batch(id) => state.batches.get_mut(&id).map(|batch| {
            batch.seqs.push(event.seq);
            &mut batch.callback_standing
        }),
    };
    if let Some(shown) = shown
        && (last == LastDue::Becomes || shown.is_some_and(|shown| shown.id == callback.id))
    {
        *shown = Some(standing);
    }
}
