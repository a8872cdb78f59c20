//! The rules of replay plans: one outcome an item, looked at in the very moment of its turn (R-REC-3, R3, R5).

use crate::ledger::ids::ReplayId;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{
    Event, EventBody, ReplayFinished, ReplayItemDone, ReplayItemSkipped, ReplayPaused, ReplayPlanned,
    ReplayRateChanged, ReplayResumed, ReplayStarted,
};
use crate::ledger::machine::policy::MAX_REPLAY_RATE;
use crate::ledger::machine::replay::judge::judge;
use crate::ledger::machine::replay::order::{ReplayItem, ReplayOrder, ReplayWord};
use crate::ledger::machine::replay::{Done, Ended, ItemAction, ItemOutcome, MAX_ITEMS, Replay, ReplayPhase, Skip};
use crate::ledger::machine::task::dispatch::let_back;
use crate::ledger::machine::task::redrive::{NoRedrive, Redrive, redrive};
use crate::ledger::machine::{State, bounds};
use crate::ledger::time::Timestamp;

/// Decides the plans' commands; `step.rs` sends no other here.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    match &proposal.command {
        Command::PlanReplay(order) => plan(state, proposal, order),
        Command::SteerReplay { replay, word } => steer(state, proposal, *replay, word),
        Command::ReplayItem(item) => self::item(state, proposal, item, now),
        _ => Decision::refuse(Rejection::ReplayUnknown),
    }
}

fn plan(state: &State, proposal: &Proposal, order: &ReplayOrder) -> Decision {
    let Some(namespace) = &proposal.namespace else { return Decision::refuse(Rejection::ReplayUnknown) };
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
    };
    let events = vec![planned.into(), ReplayStarted { replay: order.replay }.into()];
    Decision::accept(events, Answer::Replay { phase: ReplayPhase::Running })
}

const fn is_rate(rate: u32) -> bool {
    rate >= 1 && rate <= MAX_REPLAY_RATE
}

/// Foreign and absent are the same (N1).
fn visible<'a>(state: &'a State, proposal: &Proposal, id: ReplayId) -> Result<&'a Replay, Rejection> {
    let seen = |replay: &&Replay| proposal.namespace.as_ref().is_none_or(|namespace| *namespace == replay.namespace);
    state.replay(id).filter(seen).ok_or(Rejection::ReplayUnknown)
}

/// An operator's word. Saying the same twice is harmless; a finished plan takes none.
fn steer(state: &State, proposal: &Proposal, id: ReplayId, word: &ReplayWord) -> Decision {
    let replay = match visible(state, proposal, id) {
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
        ReplayWord::Resume => (ReplayResumed { replay: id }.into(), ReplayPhase::Running),
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

/// One item, in the moment of its turn. Its outcome and what it does to the task are one commit.
fn item(state: &State, proposal: &Proposal, item: &ReplayItem, now: Timestamp) -> Decision {
    let replay = match visible(state, proposal, item.replay) {
        Ok(replay) => replay,
        Err(reason) => return Decision::refuse(reason),
    };
    if replay.phase != ReplayPhase::Running || replay.outcome(item.index) != Some(ItemOutcome::Pending) {
        return Decision::refuse(Rejection::ReplayMovedOn { phase: replay.phase });
    }
    let turn = match item.action {
        ItemAction::Replay => back_to_queue(state, replay, item),
        ItemAction::Redrive => anew(state, replay, item, now),
    };
    let (replay, index, task) = (item.replay, item.index, item.task);
    match turn {
        Turn::Go(done, events) => {
            let mut all: Vec<EventBody> = vec![ReplayItemDone { replay, index, task, done }.into()];
            all.extend(events);
            Decision::accept(all, Answer::Done)
        }
        Turn::Leave(skip) => {
            Decision::accept(vec![ReplayItemSkipped { replay, index, task, skip }.into()], Answer::Done)
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

fn anew(state: &State, replay: &Replay, item: &ReplayItem, now: Timestamp) -> Turn {
    let order = Redrive {
        task: item.task,
        successor: replay.id.successor(item.task),
        may_have_run: replay.may_have_run,
        before: item.before.as_ref(),
        correction: None,
        replay: Some(replay.id),
        reason: None,
    };
    match redrive(state, &replay.namespace, &order, now) {
        Ok(made) => Turn::Go(Done::Redriven { successor: order.successor }, made.events),
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
