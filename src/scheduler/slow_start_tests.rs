//! Slow start toward agents that came back, over a real state (R-REC-6).

use crate::ledger::ids::AgentId;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::planner::{Load, Note, Planner};
use crate::ledger::time::Millis;
use crate::scheduler::routing::candidate::Reason;
use crate::scheduler::world::{World, declaration, key, namespace};

#[test]
fn r_rec_6_an_agent_that_came_back_gets_one_then_two_then_four() {
    let mut world = World::new();
    world.register("a", declaration(8));
    world.lose("a");
    world.submit_some(20, |_| {});
    assert_eq!(world.cycle().len(), 0);
    world.beat("a");
    let mut held = 0;
    for limit in [1, 2, 4, 8] {
        held += world.cycle().len();
        assert_eq!(held, limit);
        let task = world.submit(|_| {});
        let told = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
        let reason = if limit < 8 { Reason::SlowStart } else { Reason::NoFreeSlot };
        assert_eq!(told.excluded[0].reason, reason);
        let wake = Planner::wake_at(&world.scheduler, &world.state, world.now);
        if limit < 8 {
            assert_eq!(wake, Some(world.now.after(Millis::secs(1))));
        }
        world.pass(999);
        world.beat("a");
        assert_eq!(world.cycle().len(), 0);
        world.pass(1);
    }
    world.register("b", declaration(8));
    assert_eq!(world.cycle().len(), 8, "a new one is not slowed");
}

#[test]
fn r_rec_6_an_agent_that_registers_again_after_a_loss_warms_up() {
    let mut world = World::new();
    world.register("a", declaration(8));
    world.lose("a");
    world.submit_some(20, |_| {});
    world.register("a", declaration(8));
    assert_eq!(world.cycle().len(), 1);
}

/// An agent `a` with three begun tasks, and many that wait.
fn busy() -> World {
    let mut world = World::new();
    world.register("a", declaration(8));
    for _ in 0..3 {
        let task = world.submit(|_| {});
        world.cycle();
        world.ack(task);
    }
    world
}

#[test]
fn r_rec_6_a_process_that_crashed_and_came_back_before_it_was_missed_warms_up_too() {
    let mut world = busy();
    world.register("a", declaration(8));
    world.submit_some(20, |_| {});
    let mut held = 0;
    for limit in [1, 2, 4, 8] {
        held += world.cycle().len();
        assert_eq!(held, limit);
        world.pass(1_000);
        world.beat("a");
    }
}

#[test]
fn r_rec_6_a_process_that_said_goodbye_or_was_drained_and_one_that_held_nothing_is_replaced_at_full_speed() {
    for leave in [World::drain, World::leave, |_: &mut World, _: &str| {}] {
        let mut world = busy();
        leave(&mut world, "a");
        if world.state.orphans().is_empty() {
            world = World::new();
            world.register("a", declaration(8));
        }
        world.register("a", declaration(8));
        world.submit_some(20, |_| {});
        assert_eq!(world.cycle().len(), 8);
    }
}

#[test]
fn r_rec_6_the_same_process_that_declares_itself_anew_after_a_silence_warms_up_too() {
    let mut world = World::new();
    let same = Command::RegisterAgent {
        agent: AgentId::new("a").unwrap(),
        instance: Some("one".into()),
        declaration: Box::new(declaration(8)),
    };
    let register = Proposal::by_hub(Some(namespace()), same);
    world.propose(&register).0.unwrap();
    world.lose("a");
    world.submit_some(20, |_| {});
    world.propose(&register).0.unwrap();
    assert_eq!(world.cycle().len(), 1, "agent-updated comes before agent-healthy");
}

#[test]
fn a_new_process_is_not_held_to_the_load_that_the_former_one_reported() {
    let mut world = World::new();
    world.register("a", declaration(8));
    let load = Some(Load { queue_depth: 50, in_flight: 0, mean_latency: None });
    world.note(&Note::Beat { agent: key("a"), incarnation: world.incarnation("a"), load });
    world.submit_some(2, |_| {});
    assert_eq!(world.cycle().len(), 0);
    world.register("a", declaration(8));
    assert_eq!(world.cycle().len(), 2);
}
