//! The moves of replay plans. What an item does to its task are that task's own events.

use std::sync::Arc;

use crate::ledger::ids::ReplayId;
use crate::ledger::machine::event::{Event, EventBody, ReplayPlanned};
use crate::ledger::machine::replay::{Done, Ended, ItemOutcome, MAX_ITEMS, Replay, ReplayPhase};
use crate::ledger::machine::step::ImpossibleTransition;
use crate::ledger::machine::{KeyBinding, KeySubject, State};

/// Applies a plan's event; `step.rs` sends no other here.
///
/// # Errors
/// [`ImpossibleTransition`] when the event cannot follow on this state: a bug or a damaged log.
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    match &event.body {
        EventBody::ReplayPlanned(body) => planned(state, event, body),
        EventBody::ReplayStarted(body) => {
            moved(state, event, body.replay, (&[ReplayPhase::Planned], ReplayPhase::Running))
        }
        EventBody::ReplayItemDone(body) => {
            let outcome = match body.done {
                Done::Replayed => ItemOutcome::Replayed,
                Done::Redriven { .. } => ItemOutcome::Redriven,
            };
            settled(state, event, (body.replay, body.index), outcome)
        }
        EventBody::ReplayItemSkipped(body) => {
            settled(state, event, (body.replay, body.index), ItemOutcome::Skipped(body.skip))
        }
        EventBody::ReplayPaused(body) => {
            moved(state, event, body.replay, (&[ReplayPhase::Running], ReplayPhase::Paused))
        }
        EventBody::ReplayResumed(body) => {
            moved(state, event, body.replay, (&[ReplayPhase::Paused], ReplayPhase::Running))
        }
        EventBody::ReplayRateChanged(body) => {
            let replay = known(state, event, body.replay)?;
            replay.rate = body.rate;
            replay.seqs.push(event.seq);
            Ok(())
        }
        EventBody::ReplayFinished(body) => {
            let from: &[ReplayPhase] = match body.ended {
                Ended::Completed => &[ReplayPhase::Running],
                Ended::Cancelled => &[ReplayPhase::Running, ReplayPhase::Paused],
            };
            moved(state, event, body.replay, (from, ReplayPhase::Finished(body.ended)))?;
            known(state, event, body.replay)?.ended_at = Some(event.at);
            state.depart_replay(body.replay);
            Ok(())
        }
        _ => Err(ImpossibleTransition::of(event, "not a replay's event")),
    }
}

fn known<'a>(state: &'a mut State, event: &Event, id: ReplayId) -> Result<&'a mut Replay, ImpossibleTransition> {
    let replay = state.replays.get_mut(&id).map(Arc::make_mut);
    replay.ok_or_else(|| ImpossibleTransition::of(event, "the plan is not in memory"))
}

fn moved(
    state: &mut State,
    event: &Event,
    id: ReplayId,
    (from, to): (&[ReplayPhase], ReplayPhase),
) -> Result<(), ImpossibleTransition> {
    let replay = known(state, event, id)?;
    if !from.contains(&replay.phase) {
        return Err(ImpossibleTransition::of(event, replay.phase.name()));
    }
    replay.phase = to;
    replay.seqs.push(event.seq);
    Ok(())
}

fn planned(state: &mut State, event: &Event, body: &ReplayPlanned) -> Result<(), ImpossibleTransition> {
    let namespace = event.namespace.clone().ok_or_else(|| ImpossibleTransition::of(event, "no namespace"))?;
    if state.replays.contains_key(&body.replay) {
        return Err(ImpossibleTransition::of(event, "the plan is there already"));
    }
    if let Some(key) = &body.idempotency {
        let binding = KeyBinding {
            bound_to: KeySubject::Replay(body.replay),
            fingerprint: key.fingerprint,
            subject: key.subject.clone(),
            receipt: event.seq,
            until: event.at.after(key.window),
        };
        state.bind_key(namespace.clone(), key.key.clone(), binding);
    }
    let total = usize::try_from(body.total.min(MAX_ITEMS)).unwrap_or_default();
    let replay = Replay {
        id: body.replay,
        namespace,
        by: event.actor.clone(),
        select: body.select.clone(),
        reason: body.reason.clone(),
        rate: body.rate,
        may_have_run: body.may_have_run,
        list: body.list.clone(),
        position: body.position,
        phase: ReplayPhase::Planned,
        outcomes: vec![ItemOutcome::Pending; total],
        settled: 0,
        planned_at: event.at,
        ended_at: None,
        seqs: vec![event.seq],
    };
    state.count_in(&replay.namespace, |census| census.replays = census.replays.saturating_add(1));
    state.replays.insert(body.replay, Arc::new(replay));
    Ok(())
}

fn settled(
    state: &mut State,
    event: &Event,
    (id, index): (ReplayId, u32),
    outcome: ItemOutcome,
) -> Result<(), ImpossibleTransition> {
    let replay = known(state, event, id)?;
    if replay.phase != ReplayPhase::Running {
        return Err(ImpossibleTransition::of(event, replay.phase.name())); // R5
    }
    let slot = usize::try_from(index).ok().and_then(|index| replay.outcomes.get_mut(index));
    match slot {
        Some(slot @ ItemOutcome::Pending) => *slot = outcome,
        Some(_) => return Err(ImpossibleTransition::of(event, "the item has its outcome")), // R3
        None => return Err(ImpossibleTransition::of(event, "the list has no such item")),
    }
    replay.settled = replay.settled.saturating_add(1);
    Ok(())
}
