//! The rules of batches: one key binds one batch, only a closed batch settles, and it settles once (semantics 32).

use crate::ledger::ids::{BatchId, Namespace};
use crate::ledger::machine::batch::{Batch, BatchPhase};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{BatchClosed, BatchOpened, BatchSettled, Event, EventBody};
use crate::ledger::machine::task::spec::IdempotencyKey;
use crate::ledger::machine::{KeyBinding, State, bounds};
use crate::ledger::time::Timestamp;

/// Decides the batches' commands; `step.rs` sends no other here.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    let Some(namespace) = &proposal.namespace else { return Decision::refuse(Rejection::BatchUnknown) };
    match &proposal.command {
        Command::OpenBatch { batch, callback, idempotency, bound } => {
            if let Some(answer) =
                idempotency.as_ref().and_then(|key| key_says(state, namespace, key, bound.as_ref(), now))
            {
                return Decision { events: Vec::new(), answer };
            }
            if state.batch(*batch).is_some() {
                return Decision::refuse(Rejection::IdTaken);
            }
            if let Err(full) = bounds::batch(state, namespace) {
                return Decision::refuse(full);
            }
            let (callback, idempotency) = (callback.clone(), idempotency.clone());
            let opened = BatchOpened { batch: *batch, callback, idempotency };
            Decision::accept(vec![opened.into()], Answer::BatchOpened)
        }
        Command::CloseBatch { batch, total, refused } => close(state, namespace, *batch, (*total, *refused)),
        _ => Decision::refuse(Rejection::BatchUnknown),
    }
}

/// What a bound key answers (semantics 31): `None` when it is free. What was decided and is not yet durable is asked
/// before the row that the shell read (semantics 16).
#[must_use]
pub(in crate::ledger::machine) fn key_says(
    state: &State,
    namespace: &Namespace,
    key: &IdempotencyKey,
    bound: Option<&KeyBinding>,
    now: Timestamp,
) -> Option<Result<Answer, Rejection>> {
    let binding = state.key(namespace, &key.key).or(bound).filter(|binding| binding.until > now)?;
    Some(if binding.subject != key.subject {
        Err(Rejection::KeyReused { first: None, this: key.fingerprint })
    } else if binding.fingerprint != key.fingerprint {
        Err(Rejection::KeyReused { first: Some(binding.fingerprint), this: key.fingerprint })
    } else {
        Ok(Answer::Replayed { subject: binding.bound_to, receipt: binding.receipt, key_until: binding.until })
    })
}

fn close(state: &State, namespace: &Namespace, id: BatchId, (total, refused): (u32, u32)) -> Decision {
    let Some(batch) = state.batch(id).filter(|batch| batch.namespace == *namespace) else {
        return Decision::refuse(Rejection::BatchUnknown);
    };
    match batch.phase {
        BatchPhase::Open => {
            Decision::accept(vec![BatchClosed { batch: id, total, refused }.into()], Answer::BatchClosed)
        }
        BatchPhase::Closed { .. } | BatchPhase::Settled { .. } => {
            Decision::refuse(Rejection::BatchNotOpen { batch: id })
        }
    }
}

/// What follows from an event that was just applied: the batch of which it was the last settles.
#[must_use]
pub(in crate::ledger::machine) fn follow_ups(state: &State, event: &Event) -> Vec<EventBody> {
    let settled = batch_of(state, event)
        .and_then(|id| state.batches.get(&id))
        .filter(|batch| matches!(batch.phase, BatchPhase::Closed { .. }) && batch.ended() >= batch.accepted);
    settled.map(|batch: &Batch| BatchSettled { batch: batch.id }.into()).into_iter().collect()
}

/// The batch that this event may have settled.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds end a task or close a batch; the rest do neither")]
fn batch_of(state: &State, event: &Event) -> Option<BatchId> {
    match &event.body {
        EventBody::BatchClosed(body) => Some(body.batch),
        EventBody::TaskSucceeded(_)
        | EventBody::TaskFailed(_)
        | EventBody::TaskDeadLettered(_)
        | EventBody::TaskExpired(_)
        | EventBody::TaskCancelled(_) => {
            let task = event.body.task().and_then(|id| state.task(id))?;
            task.spec.batch.map(|(batch, _)| batch)
        }
        _ => None,
    }
}
