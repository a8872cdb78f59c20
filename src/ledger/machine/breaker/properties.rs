//! What holds of breakers whatever is proposed, in whatever order: nothing goes to an open one, one tries a half-open one
//! out, and none is ever stuck.

use proptest::prelude::*;

use crate::ledger::ids::{Digest, Incarnation};
use crate::ledger::machine::State;
use crate::ledger::machine::breaker::tests::{breaker_key, fail, open, set};
use crate::ledger::machine::breaker::{BreakerWord, OPEN_FOR, Stand};
use crate::ledger::machine::command::{Command, Word};
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::EventBody;
use crate::ledger::machine::task::FailureClass;
use crate::ledger::machine::task::spec::{Idempotence, OrphanPolicy, Submission};
use crate::ledger::machine::world::{World, agent_id, declaration, key, submission, task_id};
use crate::ledger::time::Millis;

const TASKS: u8 = 10;

#[derive(Debug, Clone)]
enum Move {
    Register(u8, u8),
    Leave(u8),
    Lost(u8),
    Beat(u8),
    Trip(u8),
    Say(u8, BreakerWord),
    Hand(u8, u8),
    Ack(u8),
    Complete(u8),
    Fail(u8, FailureClass),
    Release(u8),
    Cancel(u8),
    Replay(u8),
    Wait(u64),
}

fn moves() -> impl Strategy<Value = Move> {
    let (agent, task) = (|| 0..2u8, || 1..=TASKS);
    let word = prop::sample::select(vec![BreakerWord::Open, BreakerWord::Closed, BreakerWord::Automatic]);
    let class = prop::sample::select(FailureClass::ALL.to_vec());
    prop_oneof![
        1 => (agent(), 1..3u8).prop_map(|(a, i)| Move::Register(a, i)),
        1 => agent().prop_map(Move::Leave),
        1 => agent().prop_map(Move::Lost),
        1 => agent().prop_map(Move::Beat),
        6 => agent().prop_map(Move::Trip),
        1 => (agent(), word).prop_map(|(a, word)| Move::Say(a, word)),
        12 => (task(), agent()).prop_map(|(n, a)| Move::Hand(n, a)),
        4 => task().prop_map(Move::Ack),
        2 => task().prop_map(Move::Complete),
        5 => (task(), class).prop_map(|(n, class)| Move::Fail(n, class)),
        1 => task().prop_map(Move::Release),
        1 => task().prop_map(Move::Cancel),
        2 => task().prop_map(Move::Replay),
        6 => (1..12_000u64).prop_map(Move::Wait),
    ]
}

fn name(agent: u8) -> &'static str {
    if agent == 0 { "a" } else { "b" }
}

fn make(world: &mut World, step: Move) {
    let say = |world: &mut World, n: u8, word: Word| {
        let lease = world.state.task(task_id(n)).and_then(|task| task.status.lease()).cloned();
        if let Some(lease) = lease {
            drop(world.report(n, lease.agent.as_str(), word));
        }
    };
    let silent = Millis::secs(45);
    match step {
        Move::Register(a, i) => {
            world.register_with(name(a), Some(&format!("i{i}")), declaration());
        }
        Move::Leave(a) => {
            let incarnation = world.incarnation(name(a));
            drop(world.when(Command::AgentOffline { agent: agent_id(name(a)), incarnation }));
        }
        Move::Lost(a) => {
            let incarnation = world.incarnation(name(a));
            drop(world.when(Command::MarkLost { agent: agent_id(name(a)), incarnation, silent }));
        }
        Move::Beat(a) => {
            let incarnation = world.incarnation(name(a));
            drop(world.when(Command::Heartbeat { agent: agent_id(name(a)), incarnation, held: None }));
        }
        Move::Trip(a) => {
            let mut command = open(name(a));
            if let Command::OpenBreaker { incarnation, .. } = &mut command {
                *incarnation = Incarnation(world.incarnation(name(a)).0);
            }
            drop(world.when(command));
        }
        Move::Say(a, word) => drop(world.when(set(name(a), word))),
        Move::Hand(n, a) if world.state.task(task_id(n)).is_some() => drop(world.try_hand(n, name(a))),
        Move::Hand(..) => {}
        Move::Ack(n) => say(world, n, Word::Ack),
        Move::Complete(n) => {
            let lease = world.state.task(task_id(n)).and_then(|task| task.status.lease()).cloned();
            if let Some(lease) = lease {
                drop(world.try_complete(n, lease.agent.as_str()));
            }
        }
        Move::Fail(n, class) => say(world, n, fail(class)),
        Move::Release(n) => say(world, n, Word::Release { digest: Digest::default(), retry_after: None }),
        Move::Cancel(n) => drop(world.when(Command::CancelTask { task: task_id(n), reason: None, fact: None })),
        Move::Replay(n) => drop(world.when(Command::ReplayTask { task: task_id(n), superseded_by: None })),
        Move::Wait(span) => world.wait(Millis(span)),
    }
    while let Some(subject) = world.state.due().due_by(world.now).cloned() {
        world.ok(Command::Fire { subject });
    }
}

/// Nothing goes to what was open before the move, and one at most goes to what was half-open.
fn check_dispatches(world: &World, before: &[Option<Stand>; 2], since: usize) {
    for event in &world.log[since..] {
        let EventBody::TaskDispatched(body) = &event.body else { continue };
        let stood = before[usize::from(body.agent.as_str() == "b")];
        assert!(stood.is_none_or(Stand::lets_through), "{} went to a breaker that is {stood:?}", body.task);
    }
}

/// What is not closed has an end, a probe that is with its agent, room for one, or an operator's word.
fn check_stand(world: &World, agent: u8) {
    let key = breaker_key(name(agent));
    let due = world.state.due().of(&Subject::Breaker(key.clone()));
    let Some(breaker) = world.state.breaker(&key) else {
        assert_eq!(due, None);
        return;
    };
    match breaker.stand {
        Stand::Open { until: Some(until) } => {
            assert_eq!((due, breaker.forced.is_none()), (Some(until), true));
            assert!(until > world.now && until <= world.now.after(OPEN_FOR));
        }
        Stand::Open { until: None } | Stand::HeldClosed => assert_eq!((due, breaker.forced.is_some()), (None, true)),
        Stand::HalfOpen { probe: None } => assert_eq!((due, breaker.forced.is_none()), (None, true)),
        Stand::HalfOpen { probe: Some(probe) } => {
            let task = world.state.task(probe.task).unwrap();
            let lease = task.status.lease().expect("the probe is with its agent");
            assert_eq!((lease.attempt, lease.agent.as_str()), (probe.attempt, name(agent)));
            assert!(task.wake_at().is_some(), "the probe ends at the latest by its own timer");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn nothing_goes_to_an_open_breaker_one_tries_a_half_open_one_out_and_none_is_stuck(
        steps in prop::collection::vec(moves(), 1..150),
    ) {
        let mut world = World::new();
        (0..2).for_each(|agent| drop(world.register(name(agent), Some("i1"))));
        for n in 1..=TASKS {
            let (idempotence, orphan) = (Idempotence::Declared, OrphanPolicy::Replay);
            world.submit(Submission { idempotence, orphan, ..submission(n) });
        }
        for step in steps {
            let stand = |agent| world.state.breaker(&breaker_key(agent)).map(|breaker| breaker.stand);
            let (before, since) = ([stand("a"), stand("b")], world.log.len());
            make(&mut world, step);
            check_dispatches(&world, &before, since);
            (0..2).for_each(|agent| check_stand(&world, agent));
            prop_assert!(world.state.agent(&key("a")).is_some());
            let mut again = world.state.clone();
            again.forget_up_to(again.seq());
            prop_assert_eq!(State::from_image(again.to_image()), again, "a snapshot lost something");
        }
    }
}
