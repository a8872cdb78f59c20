//! The rules of replay plans: one outcome an item, looked at in the very moment of its turn (R-REC-3, R3, R5).

use crate::ledger::ids::{Digest, Namespace, ReplayId};
use crate::ledger::machine::batch::decide::key_says;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{
    Event, EventBody, ReplayFinished, ReplayItemDone, ReplayItemSkipped, ReplayPaused, ReplayPlanned,
    ReplayRateChanged, ReplayResumed, ReplayStarted,
};
use crate::ledger::machine::policy::MAX_REPLAY_RATE;
use crate::ledger::machine::replay::judge::judge;
use crate::ledger::machine::replay::order::{Correction, Patched, ReplayItem, ReplayOrder, ReplayWord};
use crate::ledger::machine::replay::{Done, Ended, ItemAction, ItemOutcome, MAX_ITEMS, Replay, ReplayPhase, Skip};
use crate::ledger::machine::task::dispatch::{held_back, let_back};
use crate::ledger::machine::task::redrive::{NoRedrive, Redrive, redrivable, redrive};
use crate::ledger::machine::task::spec::BodyRef;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::{State, bounds};
use crate::ledger::time::Timestamp;

/// Decides the plans' commands; `step.rs` sends no other here.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    match &proposal.command {
        Command::PlanReplay(order) => plan(state, proposal, order, now),
        Command::SteerReplay { replay, word } => steer(state, proposal, *replay, word),
        Command::ReplayItem(item) => self::item(state, proposal, item, now),
        _ => Decision::refuse(Rejection::ReplayUnknown),
    }
}

fn plan(state: &State, proposal: &Proposal, order: &ReplayOrder, now: Timestamp) -> Decision {
    let Some(namespace) = &proposal.namespace else { return Decision::refuse(Rejection::ReplayUnknown) };
    if let Some(key) = &order.idempotency
        && let Some(answer) = key_says(state, namespace, key, order.bound.as_ref(), now)
    {
        return Decision { events: Vec::new(), answer };
    }
    if state.replay(order.replay).is_some() {
        return Decision::refuse(Rejection::IdTaken);
    }
    if order.total == 0 {
        return Decision::refuse(Rejection::ReplayEmpty);
    }
    if order.total > MAX_ITEMS {
        return Decision::refuse(Rejection::ReplayTooLarge { limit: MAX_ITEMS });
    }
    if !is_rate(order.rate) {
        return Decision::refuse(Rejection::ReplayRate { most: MAX_REPLAY_RATE });
    }
    if let Err(full) = bounds::replay(state, namespace) {
        return Decision::refuse(full);
    }
    let planned = ReplayPlanned {
        replay: order.replay,
        select: order.select.clone(),
        reason: order.reason.clone(),
        rate: order.rate,
        may_have_run: order.may_have_run,
        total: order.total,
        list: order.list.clone(),
        position: order.position,
        patch: order.patch.clone(),
        idempotency: order.idempotency.clone(),
    };
    let events = vec![planned.into(), ReplayStarted { replay: order.replay }.into()];
    Decision::accept(events, Answer::Replay { phase: ReplayPhase::Running })
}

const fn is_rate(rate: u32) -> bool {
    rate >= 1 && rate <= MAX_REPLAY_RATE
}

/// Foreign and absent are the same (N1).
fn visible<'a>(state: &'a State, namespace: Option<&Namespace>, id: ReplayId) -> Result<&'a Replay, Rejection> {
    let seen = |replay: &&Replay| namespace.is_none_or(|namespace| *namespace == replay.namespace);
    state.replay(id).filter(seen).ok_or(Rejection::ReplayUnknown)
}

/// An operator's word. Saying the same twice is harmless; a finished plan takes none.
fn steer(state: &State, proposal: &Proposal, id: ReplayId, word: &ReplayWord) -> Decision {
    let replay = match visible(state, proposal.namespace.as_ref(), id) {
        Ok(replay) => replay,
        Err(reason) => return Decision::refuse(reason),
    };
    if let ReplayPhase::Finished(_) = replay.phase {
        return Decision::refuse(Rejection::ReplayEnded { phase: replay.phase });
    }
    let (event, phase): (EventBody, _) = match word {
        ReplayWord::Pause { reason } => {
            (ReplayPaused { replay: id, reason: reason.clone() }.into(), ReplayPhase::Paused)
        }
        ReplayWord::Resume { reason } => {
            (ReplayResumed { replay: id, reason: reason.clone() }.into(), ReplayPhase::Running)
        }
        ReplayWord::Cancel { reason } => {
            let ended = Ended::Cancelled;
            (ReplayFinished { replay: id, ended, reason: reason.clone() }.into(), ReplayPhase::Finished(ended))
        }
        ReplayWord::Rate { rate } if !is_rate(*rate) => {
            return Decision::refuse(Rejection::ReplayRate { most: MAX_REPLAY_RATE });
        }
        ReplayWord::Rate { rate } if *rate != replay.rate => {
            let changed = ReplayRateChanged { replay: id, rate: *rate };
            return Decision::accept(vec![changed.into()], Answer::Replay { phase: replay.phase });
        }
        ReplayWord::Rate { .. } => return Decision::nothing(Answer::Replay { phase: replay.phase }),
    };
    if phase == replay.phase {
        return Decision::nothing(Answer::Replay { phase });
    }
    Decision::accept(vec![event], Answer::Replay { phase })
}

/// The plan of an item whose turn it is.
fn on_turn<'a>(state: &'a State, namespace: Option<&Namespace>, item: &ReplayItem) -> Result<&'a Replay, Rejection> {
    let replay = visible(state, namespace, item.replay)?;
    if replay.phase != ReplayPhase::Running || replay.outcome(item.index) != Some(ItemOutcome::Pending) {
        return Err(Rejection::ReplayMovedOn { phase: replay.phase });
    }
    Ok(replay)
}

/// Would an item be made anew, if its patched payload came out? The shell asks this before it reads a payload and takes
/// it apart: what is left alone or has no room costs nothing but the question, at every try.
#[must_use]
pub(in crate::ledger) fn would_go(state: &State, namespace: Option<&Namespace>, item: &ReplayItem) -> bool {
    // Nothing that is made anew begins at a moment of its own, so the time decides nothing here.
    on_turn(state, namespace, item).is_ok_and(|replay| matches!(anew(state, replay, item, state.at()), Turn::Go(..)))
}

/// One item, in the moment of its turn. Its outcome and what it does to the task are one commit.
fn item(state: &State, proposal: &Proposal, item: &ReplayItem, now: Timestamp) -> Decision {
    let replay = match on_turn(state, proposal.namespace.as_ref(), item) {
        Ok(replay) => replay,
        Err(reason) => return Decision::refuse(reason),
    };
    let turn = match item.action {
        ItemAction::Replay => back_to_queue(state, replay, item),
        ItemAction::Redrive => anew(state, replay, item, now),
    };
    let is_made = item.before.as_ref().and_then(|before| before.patched.as_ref()) != Some(&Patched::NotMade);
    let (phase, replay, index, task) = (replay.phase, item.replay, item.index, item.task);
    match turn {
        // The shell asked, was told no, and is told yes now: the next try makes it.
        Turn::Go(..) if !is_made => Decision::refuse(Rejection::ReplayMovedOn { phase }),
        Turn::Go(done, events) => {
            let mut all: Vec<EventBody> = vec![ReplayItemDone { replay, index, task, done }.into()];
            all.extend(events);
            Decision::accept(all, Answer::Done)
        }
        Turn::Leave(skip) => {
            let mut all: Vec<EventBody> = vec![ReplayItemSkipped { replay, index, task, skip }.into()];
            all.extend(gone_on_without(state, item, skip));
            Decision::accept(all, Answer::Done)
        }
        Turn::Wait(full) => Decision::refuse(full),
    }
}

/// What an item's turn comes to.
enum Turn {
    /// It goes.
    Go(Done, Vec<EventBody>),
    /// It is left alone.
    Leave(Skip),
    /// There is no room for it yet (semantics 22).
    Wait(Rejection),
}

fn back_to_queue(state: &State, replay: &Replay, item: &ReplayItem) -> Turn {
    let Some(task) = state.task(item.task).filter(|task| task.namespace == replay.namespace) else {
        // It has ended and left memory, or never was here: foreign and absent are the same (N1).
        let row = item.before.as_ref().and_then(|before| before.finished.as_ref());
        let was_here = row.is_some_and(|task| task.namespace == replay.namespace);
        return Turn::Leave(if was_here { Skip::Finished } else { Skip::Unknown });
    };
    if task.status.kind().is_terminal() {
        return Turn::Leave(Skip::Finished);
    }
    match judge(task, replay.may_have_run) {
        Err(skip @ (Skip::HeldElsewhere | Skip::MovedOn)) => Turn::Leave(skip),
        // Before its word is asked for: no word of a plan covers it.
        Ok(_) | Err(_) if is_superseded(item) => Turn::Leave(Skip::Superseded),
        Ok(_) => Turn::Go(Done::Replayed, let_back(task)),
        Err(skip) => Turn::Leave(skip),
    }
}

fn is_superseded(item: &ReplayItem) -> bool {
    item.before.as_ref().is_some_and(|before| before.superseded_by.is_some())
}

/// What a plan finds out of an orphan the sweep need not ask again, and nobody of its session waits for it any more.
fn gone_on_without(state: &State, item: &ReplayItem, skip: Skip) -> Option<EventBody> {
    let by = item.before.as_ref()?.superseded_by.filter(|_| skip == Skip::Superseded)?;
    let task = state.task(item.task).filter(|task| task.status.kind() == StatusKind::Orphaned)?;
    state.held(task.id()).is_none().then(|| held_back(task, by))
}

fn anew(state: &State, replay: &Replay, item: &ReplayItem, now: Timestamp) -> Turn {
    let amendment = item.amendment.as_ref();
    let is_patched = amendment.is_some_and(|amendment| amendment.patch.is_some());
    let patched = item.before.as_ref().and_then(|before| before.patched.as_ref());
    let payload = match patched.filter(|_| is_patched) {
        Some(Patched::Made(payload)) => Some(Ok(payload.clone())),
        Some(Patched::NotMade) => Some(Ok(BodyRef { digest: Digest::default(), len: 0 })),
        Some(Patched::Left(skip)) => Some(Err(*skip)),
        // The order was to patch it: as it is it never goes.
        None => is_patched.then_some(Err(Skip::PayloadNotInline)),
    };
    let schemas = amendment.map(|amendment| &*amendment.schemas);
    let correction = payload
        .as_ref()
        .and_then(|payload| payload.as_ref().ok())
        .map(|payload| Correction { payload: payload.clone(), schemas: schemas.cloned().unwrap_or_default() });
    let order = Redrive {
        task: item.task,
        successor: replay.id.successor(item.task),
        may_have_run: replay.may_have_run,
        before: item.before.as_ref(),
        correction: correction.as_ref(),
        schemas: schemas.filter(|_| !is_patched),
        replay: Some(replay.id),
        reason: None,
    };
    let made = match payload.and_then(Result::err) {
        Some(skip) => redrivable(state, &replay.namespace, &order).map(|_| Err(skip)),
        None => redrive(state, &replay.namespace, &order, now).map(Ok),
    };
    match made {
        Ok(Err(skip)) => Turn::Leave(skip),
        Ok(Ok(made)) => Turn::Go(Done::Redriven { successor: order.successor }, made.events),
        Err(NoRedrive::Unknown) => Turn::Leave(Skip::Unknown),
        Err(NoRedrive::NotEnded { .. } | NoRedrive::WrongEnd { .. }) => Turn::Leave(Skip::NotApplicable),
        Err(NoRedrive::Already { .. }) => Turn::Leave(Skip::AlreadyRedriven),
        Err(NoRedrive::Superseded { .. }) => Turn::Leave(Skip::Superseded),
        Err(NoRedrive::MayHaveRun) => Turn::Leave(Skip::MayHaveRun),
        Err(NoRedrive::PayloadErased) => Turn::Leave(Skip::PayloadErased),
        Err(NoRedrive::Refused(Rejection::QueueFull { bound, limit, retry_after })) => {
            Turn::Wait(Rejection::QueueFull { bound, limit, retry_after })
        }
        // What the registry refuses now would be refused at every turn.
        Err(NoRedrive::Refused(_)) => Turn::Leave(Skip::NotAccepted),
    }
}

/// What follows from an event that was just applied: a plan whose last item has its outcome is finished.
#[must_use]
pub(in crate::ledger::machine) fn follow_ups(state: &State, event: &Event) -> Vec<EventBody> {
    let settles = matches!(event.body, EventBody::ReplayItemDone(_) | EventBody::ReplayItemSkipped(_));
    let done = event
        .body
        .replay()
        .filter(|_| settles)
        .and_then(|id| state.replays.get(&id))
        .filter(|replay| replay.settled >= replay.total());
    done.map(|replay| ReplayFinished { replay: replay.id, ended: Ended::Completed, reason: None }.into())
        .into_iter()
        .collect()
}
