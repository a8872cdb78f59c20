//! Samples of what plans and operators' words write.

use agent_reach::ledger::ids::*;
use agent_reach::ledger::machine::event::*;
use agent_reach::ledger::machine::replay::{Done, Ended, MayHaveRun, Skip};
use agent_reach::ledger::machine::success::Origin;
use agent_reach::ledger::machine::task::resolve::Resolution;
use agent_reach::ledger::machine::task::spec::Text;

use super::{ATTEMPT, TASK, body_ref, idempotency, token_id};

fn planned() -> ReplayPlanned {
    ReplayPlanned {
        replay: ReplayId([0x55; 16]),
        select: r#"{"state":["dead-letter"]}"#.into(),
        reason: "after the incident".into(),
        rate: 20,
        may_have_run: MayHaveRun::Skip,
        total: 300,
        list: body_ref(),
        position: Seq(70_000),
        patch: None,
        idempotency: None,
    }
}

pub(super) fn replays() -> Vec<EventBody> {
    let (replay, task) = (ReplayId([0x55; 16]), ReachId([0x12; 16]));
    let (reason, index): (Option<Text>, _) = (Some("after the incident".into()), 7);
    let origin = Some(Origin { task: ReachId([44; 16]), seq: Seq(70_001) });
    let redriven =
        |submitter, replay, reason| TaskRedriven { task, successor: TASK, submitter, replay, reason, origin };
    let mut bodies: Vec<EventBody> = vec![
        planned().into(),
        ReplayPlanned { may_have_run: MayHaveRun::Include, ..planned() }.into(),
        ReplayStarted { replay }.into(),
        ReplayItemDone { replay, index, task, done: Done::Replayed }.into(),
        ReplayItemDone { replay, index, task, done: Done::Redriven { successor: TASK } }.into(),
        ReplayPaused { replay, reason: reason.clone() }.into(),
        ReplayResumed { replay, reason: reason.clone() }.into(),
        ReplayRateChanged { replay, rate: 5 }.into(),
        ReplayFinished { replay, ended: Ended::Completed, reason: None }.into(),
        ReplayFinished { replay, ended: Ended::Cancelled, reason: reason.clone() }.into(),
        redriven(Some(token_id()), Some(replay), None).into(),
        redriven(None, None, reason).into(),
    ];
    // The later ones stand at the end, so that the envelopes of what was written before stay what they were.
    let early = Skip::ALL.into_iter().filter(|skip| *skip < Skip::NotAccepted);
    bodies.extend(early.map(|skip| ReplayItemSkipped { replay, index, task, skip }.into()));
    let resolved = |resolution| TaskResolved { task, attempt: ATTEMPT, resolution, reason: "seen".into() }.into();
    bodies.extend(Resolution::ALL.map(resolved));
    bodies
}

pub(super) fn held() -> Vec<EventBody> {
    let (replay, skip) = (ReplayId([41; 16]), Skip::NotAccepted);
    vec![
        TaskReplayHeld { task: TASK, attempt: ATTEMPT, why: HeldWhy::Superseded { by: ReachId([45; 16]) } }.into(),
        ReplayItemSkipped { replay, index: 7, task: TASK, skip }.into(),
    ]
}

pub(super) fn patched() -> Vec<EventBody> {
    let (replay, task) = (ReplayId([0x56; 16]), ReachId([0x12; 16]));
    let (patch, idempotency) = (Some(body_ref()), Some(idempotency()));
    let skipped = |skip| ReplayItemSkipped { replay, index: 7, task, skip }.into();
    let skipped = [Skip::PayloadNotInline, Skip::PayloadTooLarge].map(skipped);
    [ReplayPlanned { replay, patch, idempotency, ..planned() }.into()].into_iter().chain(skipped).collect()
}
