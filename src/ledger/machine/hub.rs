//! The hub's own facts: which history this is, which start, and how far wall time stands from ledger time.

use crate::ledger::ids::{Digest, Seq};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{
    ClockJumped, Event, EventBody, HubStalled, HubStarted, HubStopped, LineageStarted,
};
use crate::ledger::machine::step::ImpossibleTransition;
use crate::ledger::machine::{State, task};

/// Decides the hub's commands about itself; `step.rs` sends no other here.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal) -> Decision {
    match &proposal.command {
        Command::StartHub { boot, wall_offset, version, lineage } => {
            // Only a new store brings a lineage; a history that exists keeps its own (semantics 24).
            let born = lineage.filter(|_| state.seq == Seq(0)).map(|lineage| {
                EventBody::from(LineageStarted {
                    lineage,
                    previous: None,
                    at_seq: Seq(0),
                    hash: Digest::default(),
                    lost_up_to: None,
                })
            });
            let started = HubStarted { boot: *boot, wall_offset: *wall_offset, version: version.clone() };
            Decision::accept(born.into_iter().chain([started.into()]).collect(), Answer::Done)
        }
        Command::AcceptLoss { lineage, hash, lost_up_to, payloads } => {
            let started = LineageStarted {
                lineage: *lineage,
                previous: Some(state.lineage),
                at_seq: state.seq,
                hash: *hash,
                lost_up_to: *lost_up_to,
            };
            // Whoever holds a lease may have been followed by another in what was lost: no lease outlives its history.
            let fenced = task::loss_accepted(state, payloads);
            Decision::accept(std::iter::once(started.into()).chain(fenced).collect(), Answer::Done)
        }
        Command::StopHub { boot } if *boot == state.boot => {
            Decision::accept(vec![HubStopped { boot: *boot }.into()], Answer::Done)
        }
        Command::StopHub { .. } => Decision::nothing(Answer::Done),
        Command::NoteClockJump { wall_offset, by } => {
            Decision::accept(vec![ClockJumped { wall_offset: *wall_offset, by: *by }.into()], Answer::Done)
        }
        // Where nobody gains by it, it is not worth an event.
        Command::NoteStandstill { by } if state.tasks.values().any(|task| task::deadline::gains(task)) => {
            Decision::accept(vec![HubStalled { by: *by }.into()], Answer::Done)
        }
        Command::NoteStandstill { .. } => Decision::nothing(Answer::Done),
        _ => Decision::refuse(Rejection::MovedOn { state: task::status::StatusKind::Queued }),
    }
}

/// Applies the hub's events about itself; `step.rs` sends no other here.
///
/// # Errors
/// [`ImpossibleTransition`] when a boot number does not rise (D2), or the event is no hub's.
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    match &event.body {
        EventBody::LineageStarted(body) => state.lineage = body.lineage,
        EventBody::HubStarted(body) if body.boot > state.boot => {
            state.boot = body.boot;
            state.wall_offset = body.wall_offset;
        }
        EventBody::HubStarted(_) => return Err(ImpossibleTransition::of(event, "boot numbers only rise")),
        EventBody::HubStopped(body) if body.boot == state.boot => {}
        EventBody::HubStopped(_) => return Err(ImpossibleTransition::of(event, "another start is running")),
        EventBody::ClockJumped(body) => state.wall_offset = body.wall_offset,
        _ => return Err(ImpossibleTransition::of(event, "not the hub's event")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::{AttemptNo, Boot, Incarnation, Lineage};
    use crate::ledger::machine::command::{Held, Word};
    use crate::ledger::machine::decision::LeaseWhy;
    use crate::ledger::machine::task::spec::{Approval, Submission};
    use crate::ledger::machine::task::status::StatusKind;
    use crate::ledger::machine::world::{World, agent_id, submission, task_id};
    use crate::ledger::time::Millis;

    fn start(boot: u32, lineage: Option<Lineage>) -> Command {
        Command::StartHub { boot: Boot(boot), wall_offset: 5, version: "0.1.0".into(), lineage }
    }

    #[test]
    fn semantics_24_only_an_empty_state_takes_a_lineage() {
        let mut world = World::new();
        let kinds: Vec<_> = world.log.iter().map(|event| event.body.kind().name()).collect();
        assert_eq!(kinds, ["lineage-started", "hub-started"]);
        let lineage = world.state.lineage();
        assert_eq!(world.ok(start(2, Some(Lineage([9; 16])))), ["hub-started"]);
        assert_eq!((world.state.lineage(), world.state.boot()), (lineage, Boot(2)));
    }

    #[test]
    fn semantics_24_an_accepted_loss_begins_a_lineage_after_the_last_event() {
        let mut world = World::new();
        let (previous, at) = (world.state.lineage(), world.state.seq());
        let accept = Command::AcceptLoss {
            lineage: Lineage([9; 16]),
            hash: Digest([8; 32]),
            lost_up_to: Some(Seq(40)),
            payloads: Vec::new(),
        };
        assert_eq!(world.ok(accept), ["lineage-started"]);
        let last = world.log.last().map(|event| event.body.clone());
        let expected = LineageStarted {
            lineage: Lineage([9; 16]),
            previous: Some(previous),
            at_seq: at,
            hash: Digest([8; 32]),
            lost_up_to: Some(Seq(40)),
        };
        assert_eq!(last, Some(expected.into()));
    }

    fn accept_loss(payloads: Vec<crate::ledger::ids::ReachId>) -> Command {
        Command::AcceptLoss { lineage: Lineage([9; 16]), hash: Digest([8; 32]), lost_up_to: None, payloads }
    }

    #[test]
    fn semantics_24_no_lease_outlives_an_accepted_loss() {
        let mut world = World::new();
        world.register("a", Some("i"));
        world.work(1, "a");
        world.dispatch(2, "a");
        world.submit(submission(3));
        assert_eq!(world.ok(accept_loss(Vec::new())), ["lineage-started", "task-orphaned", "task-orphaned"]);
        for n in [1, 2] {
            assert_eq!(world.status(n), StatusKind::Orphaned);
            let (_, answer) = world.report(n, "a", Word::Ack);
            assert_eq!(answer, Err(Rejection::LeaseSuperseded { why: LeaseWhy::Token }), "an ack of {n}");
            let (_, answer) = world.try_complete(n, "a");
            assert_eq!(answer, Err(Rejection::LeaseSuperseded { why: LeaseWhy::Token }), "a result of {n}");
        }
        assert_eq!(world.status(3), StatusKind::Queued, "what nobody held goes on");
        let held = vec![Held { task: task_id(1), attempt: AttemptNo(1) }];
        let beat = Command::Heartbeat { agent: agent_id("a"), incarnation: Incarnation(1), held: Some(held) };
        let (events, answer) = world.when(beat);
        assert_eq!(events, Vec::<&str>::new(), "a listing gives nothing back");
        assert!(matches!(answer, Ok(Answer::Beat(beat)) if beat.lost == [(task_id(1), AttemptNo(1))]));
        assert_eq!(world.ok(accept_loss(Vec::new())).len(), 3, "a second loss finds the orphans again");
    }

    #[test]
    fn semantics_24_a_task_whose_payload_is_lost_is_a_dead_letter_wherever_it_stands() {
        let mut world = World::new();
        world.register("a", Some("i"));
        world.work(1, "a");
        world.dispatch(2, "a");
        world.submit(submission(3));
        world.submit(Submission { not_before: Some(world.now.after(Millis::secs(60))), ..submission(4) });
        world.submit(Submission { approval: Approval::Needed, ..submission(5) });
        world.submit(submission(6));
        let events = world.ok(accept_loss((1..=5).map(task_id).collect()));
        assert_eq!(events.iter().filter(|event| **event == "task-dead-lettered").count(), 5, "{events:?}");
        assert_eq!(world.status(6), StatusKind::Queued);
        assert!((1..=5).all(|n| world.status(n) == StatusKind::DeadLetter), "they are over");
    }

    #[test]
    fn semantics_23_a_jump_of_the_wall_clock_is_recorded_and_moves_no_time() {
        let mut world = World::new();
        let before = world.state.at();
        assert_eq!(world.ok(Command::NoteClockJump { wall_offset: -7, by: -7 }), ["clock-jumped"]);
        assert_eq!((world.state.wall_offset(), world.state.at()), (-7, before));
    }
}
