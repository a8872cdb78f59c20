//! Sessions stay together, over a real state (R4).

use crate::ledger::ids::{ReachId, SessionId};
use crate::ledger::machine::task::spec::Submission;
use crate::ledger::time::Millis;
use crate::scheduler::last_holders::LIFE;
use crate::scheduler::world::{Dispatch, World, declaration, pull};

fn of_session(spec: &mut Submission) {
    spec.session = Some(SessionId::new("s").unwrap());
}

/// The next task of the session, from its submission to its end; who did it, or `None` where the session was no reason.
fn one_more(world: &mut World) -> (String, Option<String>) {
    world.submit(of_session);
    let next = world.cycle().remove(0);
    world.ack(next.task);
    world.complete(next.task);
    let for_its_session = next.event.explanation.score[0].0 == "affinity".into();
    (next.agent.clone(), for_its_session.then_some(next.agent))
}

#[test]
fn r4_tasks_of_a_session_go_to_the_agent_that_works_for_it_while_it_is_a_candidate() {
    let mut world = World::new();
    for agent in ["a", "b", "c"] {
        world.register(agent, declaration(3));
    }
    world.submit(of_session);
    let first = world.cycle().remove(0);
    world.ack(first.task);
    for _ in 0..2 {
        let task = world.submit(of_session);
        let told = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
        let winner = told.candidates.iter().find(|candidate| Some(&candidate.agent) == told.winner.as_ref()).unwrap();
        assert!(winner.score.contains(&("affinity", 1_000)), "what is explained is what is done");
        let next = world.cycle().remove(0);
        assert_eq!(next.agent, first.agent);
        assert_eq!(next.event.explanation.score[0], ("affinity".into(), 1_000));
        world.ack(next.task);
    }
    world.submit(of_session);
    let elsewhere = world.cycle().remove(0);
    assert_ne!(elsewhere.agent, first.agent, "it is full, and nobody waits for it");
    world.restart();
    world.complete(first.task);
    world.submit(of_session);
    assert_eq!(world.cycle()[0].agent, first.agent, "a restart forgets no holder");
}

#[test]
fn r_rec_3_the_next_of_a_session_goes_to_whoever_did_the_last_one_though_nobody_works_for_it_now() {
    let mut world = World::new();
    for agent in ["a", "b", "c"] {
        world.register(agent, declaration(3));
    }
    let (first, _) = one_more(&mut world);
    let keep_alive = |world: &mut World, span| {
        world.pass(span);
        ["a", "b", "c"].iter().for_each(|agent| world.beat(agent));
    };
    for _ in 0..5 {
        keep_alive(&mut world, 1_000);
        assert_eq!(one_more(&mut world).1.as_ref(), Some(&first));
    }
    keep_alive(&mut world, LIFE.0 - 1);
    assert_eq!(one_more(&mut world).1.as_ref(), Some(&first));
    keep_alive(&mut world, LIFE.0);
    assert_eq!(one_more(&mut world).1, None, "ten minutes are long for a session: whoever's turn it is");
    world.restart();
    assert_eq!(one_more(&mut world).1, None, "a start knows only who works for a session now");
    assert!(one_more(&mut world).1.is_some());
}

#[test]
fn r_rec_3_whoever_ends_a_task_without_a_word_before_has_its_session_too() {
    let mut world = World::new();
    for agent in ["a", "b", "c"] {
        world.register(agent, declaration(3));
    }
    world.submit(of_session);
    let first = world.cycle().remove(0);
    world.complete(first.task);
    assert_eq!(one_more(&mut world).1, Some(first.agent), "acknowledged and ended in one step");
}

#[test]
fn r_rec_3_nobody_is_sent_to_a_process_that_is_gone_for_what_it_did_last() {
    let leave: [fn(&mut World, &str); 4] = [
        |world, agent| {
            world.lose(agent);
            world.beat(agent);
        },
        |world, agent| {
            world.drain(agent);
            world.register(agent, declaration(3));
        },
        |world, agent| {
            world.leave(agent);
            world.register(agent, declaration(3));
        },
        |world, agent| world.register(agent, declaration(3)),
    ];
    for leave in leave {
        let mut world = World::new();
        for agent in ["a", "b", "c"] {
            world.register(agent, declaration(3));
        }
        let (first, _) = one_more(&mut world);
        leave(&mut world, &first);
        assert_eq!(one_more(&mut world).1, None, "it knows nothing of the session now");
    }
}

/// Four begun tasks of one session, whose agent is lost.
fn orphans(world: &mut World) {
    world.register("gone", declaration(4));
    let tasks: Vec<ReachId> = (0..4).map(|_| world.submit(of_session)).collect();
    assert_eq!(world.cycle().len(), 4);
    tasks.iter().for_each(|task| world.ack(*task));
    world.lose("gone");
}

/// Lets time pass until something is dispatched.
fn await_dispatch(world: &mut World) -> Dispatch {
    for _ in 0..200 {
        if let Some(dispatch) = world.cycle().pop() {
            return dispatch;
        }
        world.pass(50);
    }
    panic!("nothing is dispatched");
}

#[test]
fn r_rec_3_a_sessions_orphan_waits_for_its_standby_between_two_claims_and_what_is_new_does_not() {
    let mut world = World::new();
    orphans(&mut world);
    world.register("a", pull(5));
    world.register("b", pull(5));
    let claim = world.claim("a", 1);
    let first = await_dispatch(&mut world);
    assert_eq!(first.agent, "a");
    world.unclaim(claim);
    world.ack(first.task);
    world.complete(first.task);
    let other = world.claim("b", 1);
    world.pass(100);
    assert!(world.cycle().is_empty(), "its standby asks again in a moment");
    world.submit(of_session);
    let fresh = world.cycle();
    assert_eq!(fresh[0].agent, "b", "a new task of the session goes on at once");
    world.unclaim(other);
    world.ack(fresh[0].task);
    world.complete(fresh[0].task);
    world.claim("b", 1);
    assert_eq!(await_dispatch(&mut world).agent, "b", "the one that did the last one is its agent now");
}

#[test]
fn r_rec_3_a_standby_that_does_not_ask_any_more_holds_nobody_up_for_long() {
    let mut world = World::new();
    orphans(&mut world);
    world.register("a", pull(5));
    world.register("b", pull(5));
    let claim = world.claim("a", 1);
    let first = await_dispatch(&mut world);
    world.unclaim(claim);
    world.ack(first.task);
    world.complete(first.task);
    world.claim("b", 1);
    let since = world.now;
    assert_eq!(await_dispatch(&mut world).agent, "b");
    assert_eq!(world.now.since(since), Millis::secs(5), "a heartbeat interval");
    assert!(world.refusals.is_empty());
}
