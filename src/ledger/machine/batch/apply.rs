//! The moves of batches. Its tasks are counted where tasks are changed, in `index.rs`.

use std::collections::BTreeMap;

use crate::ledger::ids::BatchId;
use crate::ledger::machine::batch::{Batch, BatchPhase};
use crate::ledger::machine::event::{BatchOpened, Event, EventBody};
use crate::ledger::machine::step::ImpossibleTransition;
use crate::ledger::machine::{KeyBinding, KeySubject, State};

/// Applies a batch's event; `step.rs` sends no other here.
///
/// # Errors
/// [`ImpossibleTransition`] when the event cannot follow on this state: a bug or a damaged log.
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    match &event.body {
        EventBody::BatchOpened(body) => opened(state, event, body),
        EventBody::BatchClosed(body) => {
            let batch = known(state, event, body.batch)?;
            match batch.phase {
                BatchPhase::Open => batch.phase = BatchPhase::Closed { total: body.total, refused: body.refused },
                BatchPhase::Closed { .. } | BatchPhase::Settled { .. } => {
                    return Err(ImpossibleTransition::of(event, "only an open batch closes"));
                }
            }
            batch.seqs.push(event.seq);
            Ok(())
        }
        EventBody::BatchSettled(body) => {
            let batch = known(state, event, body.batch)?;
            match batch.phase {
                BatchPhase::Closed { total, refused } => batch.phase = BatchPhase::Settled { total, refused },
                BatchPhase::Open | BatchPhase::Settled { .. } => {
                    return Err(ImpossibleTransition::of(event, "only a closed batch settles, and once"));
                }
            }
            batch.seqs.push(event.seq);
            if batch.is_done() {
                state.depart_batch(body.batch);
            }
            Ok(())
        }
        _ => Err(ImpossibleTransition::of(event, "not a batch's event")),
    }
}

fn known<'a>(state: &'a mut State, event: &Event, id: BatchId) -> Result<&'a mut Batch, ImpossibleTransition> {
    state.batches.get_mut(&id).ok_or_else(|| ImpossibleTransition::of(event, "the batch is not in memory"))
}

fn opened(state: &mut State, event: &Event, body: &BatchOpened) -> Result<(), ImpossibleTransition> {
    let Some(namespace) = event.namespace.clone() else {
        return Err(ImpossibleTransition::of(event, "a batch belongs to a namespace"));
    };
    if state.batches.contains_key(&body.batch) {
        return Err(ImpossibleTransition::of(event, "the batch is open already"));
    }
    if let Some(key) = &body.idempotency {
        let binding = KeyBinding {
            bound_to: KeySubject::Batch(body.batch),
            fingerprint: key.fingerprint,
            subject: key.subject.clone(),
            receipt: event.seq,
            until: event.at.after(key.window),
        };
        state.bind_key(namespace.clone(), key.key.clone(), binding);
    }
    let batch = Batch {
        id: body.batch,
        namespace,
        phase: BatchPhase::Open,
        callback: body.callback.clone(),
        callback_standing: None,
        idempotency: body.idempotency.clone(),
        accepted: 0,
        by_state: BTreeMap::new(),
        opened_at: event.at,
        seqs: vec![event.seq],
    };
    state.count_in(&batch.namespace, |census| census.batches = census.batches.saturating_add(1));
    state.batches.insert(body.batch, batch);
    Ok(())
}
