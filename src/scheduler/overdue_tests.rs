//! An agent with an overdue task, and a task's last agent, get it only when no better one can or is about to ask
//! (R-SCH-11, R-SCH-5), over a real state.

use crate::ledger::ids::ReachId;
use crate::ledger::machine::task::spec::SlowPolicy;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::planner::Planner;
use crate::ledger::time::Millis;
use crate::scheduler::world::{Dispatch, World, declaration, pull};

fn agents(dispatched: &[Dispatch]) -> Vec<&str> {
    dispatched.iter().map(|dispatch| dispatch.agent.as_str()).collect()
}

/// A push agent `a` with a task over its time.
fn overdue(world: &mut World) -> ReachId {
    world.register("a", declaration(3));
    let late = world.submit(|spec| (spec.slow_reach, spec.work_timeout) = (SlowPolicy::Wait, Millis(1_000)));
    world.cycle();
    world.ack(late);
    world.pass(1_000);
    assert_eq!(world.state.task(late).unwrap().status.kind(), StatusKind::SlowReach);
    late
}

#[test]
fn r_sch_11_an_agent_with_an_overdue_task_gets_no_more_of_the_capability_while_another_can_serve() {
    let mut world = World::new();
    let late = overdue(&mut world);
    world.register("b", declaration(3));
    world.submit_some(4, |_| {});
    assert_eq!(agents(&world.cycle()), ["b", "b", "b", "a"], "beside an overdue one only when nobody else can");
    world.complete(late);
    world.submit(|_| {});
    assert_eq!(agents(&world.cycle()), ["a"], "its word clears it");
}

#[test]
fn r_sch_11_what_is_overdue_is_found_again_after_a_start_and_is_not_its_successors() {
    let mut world = World::new();
    overdue(&mut world);
    world.register("b", declaration(1));
    world.scheduler.rebuild(&world.state, world.now);
    world.submit(|_| {});
    assert_eq!(agents(&world.cycle()), ["b"]);
    world.register("a", declaration(3));
    world.submit(|_| {});
    assert_eq!(agents(&world.cycle()), ["a"], "a new process owes nothing, and is cold");
    world.pass(1_000);
    assert_eq!(agents(&world.cycle()), ["a"], "the orphan comes back and the new one comes");
}

#[test]
fn r_sch_11_a_task_waits_for_a_pull_agent_between_two_claims_rather_than_join_an_overdue_one() {
    let mut world = World::new();
    overdue(&mut world);
    world.register("b", pull(3));
    let claim = world.claim("b", 1);
    world.submit(|_| {});
    let first = world.cycle();
    assert_eq!(agents(&first), ["b"]);
    world.ack(first[0].task);
    world.unclaim(claim);
    world.submit_some(2, |_| {});
    assert!(world.cycle().is_empty(), "it asks again in a moment");
    world.pass(4_000);
    world.beat("a");
    assert!(world.cycle().is_empty());
    let claim = world.claim("b", 1);
    let second = world.cycle();
    assert_eq!(agents(&second), ["b"]);
    world.ack(second[0].task);
    world.unclaim(claim);
    let wake = Planner::wake_at(&world.scheduler, &world.state, world.now).unwrap();
    assert_eq!(wake, world.now.after(Millis::secs(5)), "its heartbeat interval after its last claim");
    world.pass(4_999);
    world.beat("b");
    assert!(world.cycle().is_empty());
    world.pass(1);
    assert_eq!(agents(&world.cycle()), ["a"], "one that beats and does not ask starves nobody");
}

#[test]
fn r_sch_11_after_a_start_pull_agents_have_a_while_to_ask_before_an_overdue_one_gets_more() {
    let mut world = World::new();
    overdue(&mut world);
    world.register("b", pull(3));
    world.pass(60_000);
    world.beat("a");
    world.beat("b");
    world.restart();
    world.submit(|_| {});
    assert!(world.cycle().is_empty());
    world.claim("b", 1);
    assert_eq!(agents(&world.cycle()), ["b"]);
}

#[test]
fn r_sch_5_a_retry_waits_a_moment_for_another_pull_agent_than_the_one_that_failed_it() {
    let mut world = World::new();
    world.register("a", pull(3));
    world.claim("a", 10);
    let task = world.submit(|_| {});
    world.cycle();
    world.ack(task);
    world.register("b", pull(3));
    world.fail(task);
    world.pass(10);
    assert!(world.cycle().is_empty(), "it failed there, and the other is about to ask");
    world.submit(|_| {});
    let other = world.cycle();
    assert_eq!(agents(&other), ["a"], "what is behind it does not wait");
    world.ack(other[0].task);
    world.claim("b", 1);
    let again = world.cycle();
    assert_eq!((again[0].task, agents(&again)), (task, vec!["b"]));
    world.ack(task);
    world.fail(task);
    world.pass(5_000);
    assert_eq!(agents(&world.cycle()), ["a"]);
    assert!(world.refusals.is_empty());
}
