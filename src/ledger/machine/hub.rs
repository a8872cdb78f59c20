//! The hub's own facts: which history this is, which start, and how far wall time stands from ledger time.

use crate::ledger::ids::{Digest, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{ClockJumped, Event, EventBody, HubStarted, HubStopped, LineageStarted};
use crate::ledger::machine::step::ImpossibleTransition;

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
        Command::StopHub { boot } if *boot == state.boot => {
            Decision::accept(vec![HubStopped { boot: *boot }.into()], Answer::Done)
        }
        Command::StopHub { .. } => Decision::nothing(Answer::Done),
        Command::NoteClockJump { wall_offset, by } => {
            Decision::accept(vec![ClockJumped { wall_offset: *wall_offset, by: *by }.into()], Answer::Done)
        }
        _ => Decision::refuse(Rejection::MovedOn { state: crate::ledger::machine::task::status::StatusKind::Queued }),
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
    use crate::ledger::ids::{Boot, Lineage};
    use crate::ledger::machine::world::World;

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
    fn semantics_23_a_jump_of_the_wall_clock_is_recorded_and_moves_no_time() {
        let mut world = World::new();
        let before = world.state.at();
        assert_eq!(world.ok(Command::NoteClockJump { wall_offset: -7, by: -7 }), ["clock-jumped"]);
        assert_eq!((world.state.wall_offset(), world.state.at()), (-7, before));
    }
}
