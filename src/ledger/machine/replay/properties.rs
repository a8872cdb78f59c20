//! Plans under whatever order of commands: one outcome an item (R3), nothing while paused or ended (R5), at most one of
//! two plans for an orphan (R2), and the events alone give the same state (D4).

use proptest::prelude::*;

use super::tests::{idempotent, item_of, plan, replay_id, steer};
use crate::ledger::machine::State;
use crate::ledger::machine::audit;
use crate::ledger::machine::command::{Command, Word};
use crate::ledger::machine::replay::order::ReplayWord;
use crate::ledger::machine::replay::{ItemAction, ItemOutcome, ReplayPhase};
use crate::ledger::machine::step::apply;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::world::{World, agent_id, task_id};
use crate::ledger::time::Millis;

const TASKS: u8 = 4;
const PLANS: u8 = 2;

#[derive(Debug, Clone)]
enum Move {
    Begin { task: u8 },
    Complete { task: u8 },
    Lose,
    Return,
    Plan { plan: u8 },
    Steer { plan: u8, word: u8 },
    Item { plan: u8, index: u32, task: u8, action: ItemAction },
}

fn any_move() -> impl Strategy<Value = Move> {
    let action = prop_oneof![4 => Just(ItemAction::Replay), 1 => Just(ItemAction::Redrive)];
    prop_oneof![
        4 => (1..=TASKS).prop_map(|task| Move::Begin { task }),
        2 => (1..=TASKS).prop_map(|task| Move::Complete { task }),
        3 => Just(Move::Lose),
        2 => Just(Move::Return),
        3 => (1..=PLANS).prop_map(|plan| Move::Plan { plan }),
        3 => (1..=PLANS, 0..4_u8).prop_map(|(plan, word)| Move::Steer { plan, word }),
        9 => (1..=PLANS, 0..4_u32, 1..=TASKS, action)
            .prop_map(|(plan, index, task, action)| Move::Item { plan, index, task, action }),
    ]
}

fn perform(world: &mut World, step: &Move) {
    match step {
        Move::Begin { task } => {
            drop(world.when(Command::SubmitTask { submission: idempotent(*task).into(), bound: None, routed: None }));
            let known = world.state.task(task_id(*task)).map(|task| task.status.kind());
            if known == Some(StatusKind::Queued) && world.try_hand(*task, "a").1.is_ok() {
                world.report(*task, "a", Word::Ack).1.unwrap();
            }
        }
        Move::Complete { task } => {
            if world.state.task(task_id(*task)).is_some() {
                drop(world.try_complete(*task, "a"));
            }
        }
        Move::Lose => {
            let (agent, incarnation) = (agent_id("a"), world.incarnation("a"));
            drop(world.when(Command::MarkLost { agent, incarnation, silent: Millis::secs(45) }));
        }
        Move::Return => drop(world.register("a", Some("i"))),
        Move::Plan { plan: n } => drop(world.when(plan(*n, 4))),
        Move::Steer { plan, word } => {
            let word = match word {
                0 => ReplayWord::Pause { reason: None },
                1 | 2 => ReplayWord::Resume { reason: None },
                _ => ReplayWord::Rate { rate: 5 },
            };
            drop(world.when(steer(*plan, word)));
        }
        Move::Item { plan, index, task, action } => turn(world, (*plan, *index), (*task, *action)),
    }
}

/// R2, R3, R5: an item goes in a running plan and once; of its task nothing but what the outcome says has changed.
fn turn(world: &mut World, (plan, index): (u8, u32), (task, action): (u8, ItemAction)) {
    let kind = |world: &World| world.state.task(task_id(task)).map(|task| task.status.kind());
    let before = world.state.replay(replay_id(plan)).cloned();
    let (stood, expected) = (
        kind(world),
        before.as_ref().is_some_and(|replay| {
            replay.phase == ReplayPhase::Running && replay.outcome(index) == Some(ItemOutcome::Pending)
        }),
    );
    let (_, answer) = world.when(item_of(plan, index, task_id(task), action));
    assert_eq!(answer.is_ok(), expected, "R3, R5: {answer:?}");
    let after = world.state.replay(replay_id(plan)).cloned();
    if !expected {
        assert_eq!(before, after);
        return;
    }
    let after = after.unwrap();
    let settled = after.outcomes.iter().filter(|outcome| **outcome != ItemOutcome::Pending).count();
    assert_eq!(settled, after.settled as usize);
    match after.outcome(index).unwrap() {
        ItemOutcome::Pending => panic!("R3: an accepted turn leaves an outcome"),
        ItemOutcome::Replayed => {
            assert!(matches!(stood, Some(StatusKind::Orphaned | StatusKind::SlowReach)), "R2: it was {stood:?}");
            assert_eq!(kind(world), Some(StatusKind::Queued));
        }
        ItemOutcome::Redriven => assert!(world.state.task(replay_id(plan).successor(task_id(task))).is_some()),
        ItemOutcome::Skipped(_) => assert_eq!(kind(world), stood, "what is left alone stays as it was"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_is_proposed_an_item_has_one_outcome_and_the_log_tells_all(
        moves in prop::collection::vec(any_move(), 1..40),
    ) {
        let mut world = World::new();
        world.register("a", Some("i"));
        moves.iter().for_each(|step| perform(&mut world, step));
        prop_assert_eq!(audit::check(world.log.iter()), []);
        let mut again = State::default();
        world.log.iter().for_each(|event| apply(&mut again, event).unwrap());
        prop_assert_eq!(again.digest(), world.state.digest(), "D4");
        prop_assert_eq!(State::from_image(again.to_image()).digest(), again.digest(), "D4: the image");
    }
}
