//! What holds of agents whatever is proposed, in whatever order.

use proptest::prelude::*;

use crate::ledger::ids::{AgentId, AttemptNo, Incarnation};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::apply::rebuild;
use crate::ledger::machine::agent::{Agent, DrainMode, Health, Standing};
use crate::ledger::machine::command::{Command, Held, Word};
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::world::{World, agent_id, declaration, submission, task_id};
use crate::ledger::time::Millis;

/// Slots of every agent here: few, so that bounds are met.
const SLOTS: u32 = 3;

#[derive(Debug, Clone)]
enum Move {
    Register(u8, u8),
    Beat(u8, u32, Option<Vec<(u8, u32)>>),
    Drain(u8, DrainMode, u64),
    Leave(u8, u32),
    Delete(u8),
    Silent(u8, u32),
    Lost(u8, u32),
    Hand(u8, u8),
    Ack(u8, u8),
    Complete(u8, u8),
    Cancel(u8),
    Replay(u8),
    Wait(u64),
}

fn moves() -> impl Strategy<Value = Move> {
    let agent = || 0..3u8;
    let task = || 1..12u8;
    let incarnation = || 1..4u32;
    let mode = prop_oneof![Just(DrainMode::Finish), Just(DrainMode::HandOver)];
    let held = prop::option::of(prop::collection::vec((task(), 1..4u32), 0..4));
    prop_oneof![
        3 => (agent(), 0..3u8).prop_map(|(a, i)| Move::Register(a, i)),
        3 => (agent(), incarnation(), held).prop_map(|(a, i, held)| Move::Beat(a, i, held)),
        1 => (agent(), mode, 0..60_000u64).prop_map(|(a, mode, grace)| Move::Drain(a, mode, grace)),
        1 => (agent(), incarnation()).prop_map(|(a, i)| Move::Leave(a, i)),
        1 => agent().prop_map(Move::Delete),
        1 => (agent(), incarnation()).prop_map(|(a, i)| Move::Silent(a, i)),
        1 => (agent(), incarnation()).prop_map(|(a, i)| Move::Lost(a, i)),
        8 => (task(), agent()).prop_map(|(n, a)| Move::Hand(n, a)),
        6 => (task(), agent()).prop_map(|(n, a)| Move::Ack(n, a)),
        4 => (task(), agent()).prop_map(|(n, a)| Move::Complete(n, a)),
        2 => task().prop_map(Move::Cancel),
        2 => task().prop_map(Move::Replay),
        2 => (1..40_000u64).prop_map(Move::Wait),
    ]
}

fn name(agent: u8) -> AgentId {
    agent_id(&format!("agent-{agent}"))
}

fn command(step: Move) -> Option<Command> {
    let silent = Millis::secs(15);
    Some(match step {
        Move::Register(a, instance) => {
            let mut declaration = declaration();
            declaration.max_concurrency = SLOTS;
            let instance = (instance > 0).then(|| format!("i{instance}").into());
            Command::RegisterAgent { agent: name(a), instance, declaration: Box::new(declaration) }
        }
        Move::Beat(a, i, held) => {
            let listed = |(n, attempt)| Held { task: task_id(n), attempt: AttemptNo(attempt) };
            let held = held.map(|held| held.into_iter().map(listed).collect());
            Command::Heartbeat { agent: name(a), incarnation: Incarnation(i), held }
        }
        Move::Drain(a, mode, grace) => Command::DrainAgent { agent: name(a), mode, grace: Millis(grace), reason: None },
        Move::Leave(a, i) => Command::AgentOffline { agent: name(a), incarnation: Incarnation(i) },
        Move::Delete(a) => Command::DeregisterAgent { agent: name(a) },
        Move::Silent(a, i) => Command::MarkUnhealthy { agent: name(a), incarnation: Incarnation(i), silent },
        Move::Lost(a, i) => Command::MarkLost { agent: name(a), incarnation: Incarnation(i), silent },
        Move::Cancel(n) => Command::CancelTask { task: task_id(n), reason: None, fact: None },
        Move::Replay(n) => Command::ReplayTask { task: task_id(n), superseded_by: None },
        Move::Hand(..) | Move::Ack(..) | Move::Complete(..) | Move::Wait(_) => return None,
    })
}

/// Makes one move; what is refused is simply refused. Then fires every timer that is due.
fn make(world: &mut World, step: Move) {
    match step.clone() {
        Move::Hand(n, a) => {
            if world.state.task(task_id(n)).is_some() && world.state.agent(&key(a)).is_some() {
                drop(world.try_hand(n, name(a).as_str()));
            }
        }
        Move::Ack(n, a) if holds(world, n, a) => drop(world.report(n, name(a).as_str(), Word::Ack)),
        Move::Complete(n, a) if holds(world, n, a) => drop(world.try_complete(n, name(a).as_str())),
        Move::Ack(..) | Move::Complete(..) => {}
        Move::Wait(span) => world.wait(Millis(span)),
        Move::Register(..)
        | Move::Beat(..)
        | Move::Drain(..)
        | Move::Leave(..)
        | Move::Delete(_)
        | Move::Silent(..)
        | Move::Lost(..)
        | Move::Cancel(_)
        | Move::Replay(_) => {
            if let Some(command) = command(step) {
                drop(world.when(command));
            }
        }
    }
    while let Some(subject) = world.state.due().due_by(world.now).cloned() {
        world.ok(Command::Fire { subject });
    }
}

fn key(agent: u8) -> crate::ledger::ids::AgentKey {
    crate::ledger::machine::world::key(name(agent).as_str())
}

fn holds(world: &World, n: u8, a: u8) -> bool {
    world.state.agent(&key(a)).is_some_and(|agent| agent.held.contains(&task_id(n)))
}

fn check(world: &World, agent: &Agent) {
    let state = &world.state;
    assert!(agent.slots_used() <= usize::try_from(SLOTS).unwrap(), "S8: {agent:?}");
    assert_eq!(state.due().of(&Subject::Agent(agent.key.clone())), agent.wake_at());
    let draining = matches!(agent.standing, Standing::Draining { .. });
    assert_eq!(state.draining.contains(&agent.key), draining);
    assert!(agent.told.iter().all(|told| agent.ghosts.contains_key(told)), "told of a slot that is no ghost");
    let gone = agent.health == Health::Lost || matches!(agent.standing, Standing::Offline | Standing::Deregistered);
    for id in &agent.held {
        let task = state.task(*id).unwrap();
        let lease = task.status.lease().expect("a held task has a valid lease");
        assert_eq!(lease.agent, *agent.id());
        if gone {
            assert_eq!(task.status.kind(), StatusKind::Orphaned, "a gone agent keeps only what may be replayed");
        }
        if draining {
            assert!(agent.health != Health::Lost, "a lost agent that drained is out");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn slots_timers_drains_and_the_catalog_stay_true_whatever_is_proposed(
        steps in prop::collection::vec(moves(), 1..120),
    ) {
        let mut world = World::new();
        for n in 1..12 {
            world.submit(submission(n));
        }
        let mut incarnations = [Incarnation(0); 3];
        for step in steps {
            make(&mut world, step);
            for a in 0..3u8 {
                let Some(agent) = world.state.agent(&key(a)) else { continue };
                check(&world, agent);
                let before = &mut incarnations[usize::from(a)];
                prop_assert!(agent.incarnation >= *before, "an incarnation fell");
                *before = agent.incarnation;
            }
            let mut again = world.state.clone();
            rebuild(&mut again);
            prop_assert_eq!(&again, &world.state, "what is derived is not what a rebuild derives");
            again.forget_up_to(again.seq());
            prop_assert_eq!(State::from_image(again.to_image()), again, "a snapshot lost something");
        }
    }
}
