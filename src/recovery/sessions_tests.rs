//! R4 over a real state: orphans of a session return in order, one after another, and go to one agent.

use crate::ledger::ids::{ReachId, SessionId};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::replay::ItemAction;
use crate::ledger::machine::task::spec::Submission;
use crate::ledger::machine::task::status::StatusKind;
use crate::recovery::list::PlanItem;
use crate::scheduler::world::{World, declaration, namespace};

fn session(name: &str) -> impl Fn(&mut Submission) {
    let session = SessionId::new(name).unwrap();
    move |spec| spec.session = Some(session.clone())
}

/// `n` orphans of a session whose agent "a" is lost; they were dispatched in another order than submitted.
fn orphans(world: &mut World, n: u32) -> Vec<ReachId> {
    world.register("a", declaration(n));
    let tasks: Vec<_> = (0..n).map(|_| world.submit(session("s"))).collect();
    world.cycle();
    tasks.iter().for_each(|task| world.ack(*task));
    world.lose("a");
    tasks
}

fn kinds(world: &World, tasks: &[ReachId]) -> Vec<StatusKind> {
    tasks.iter().map(|task| world.state.task(*task).unwrap().status.kind()).collect()
}

const ORPHANED: StatusKind = StatusKind::Orphaned;

#[test]
fn r4_the_next_of_a_session_returns_only_when_the_former_is_with_its_new_agent() {
    let mut world = World::new();
    let tasks = orphans(&mut world, 3);
    world.pass(2_000);
    world.cycle();
    assert_eq!(kinds(&world, &tasks), [StatusKind::Queued, ORPHANED, ORPHANED], "there are tokens for all");
    world.restart();
    world.pass(2_000);
    world.cycle();
    assert_eq!(kinds(&world, &tasks)[1..], [ORPHANED, ORPHANED], "a restart forgets no order");
    world.register("b", declaration(9));
    world.register("c", declaration(9));
    assert_eq!(world.cycle().len(), 1);
    assert_eq!(kinds(&world, &tasks)[1..], [ORPHANED, ORPHANED], "handed over is not acknowledged");
    let mut holders = Vec::new();
    for task in &tasks {
        world.ack(*task);
        holders.push(world.state.task(*task).unwrap().status.lease().unwrap().agent.clone());
        world.cycle();
    }
    assert_eq!(kinds(&world, &tasks), [StatusKind::Processing; 3]);
    assert!(holders.iter().all(|agent| *agent == holders[0]), "and they stay together: {holders:?}");
    assert_eq!(world.recovery.sweep().waiting(), 0);
}

#[test]
fn r4_a_former_one_that_ends_before_it_is_handed_over_holds_up_nobody() {
    let mut world = World::new();
    let tasks = orphans(&mut world, 3);
    world.cycle();
    for task in [tasks[0], tasks[1]] {
        let cancel = Command::CancelTask { task, reason: None, fact: None };
        world.propose(&Proposal::by_hub(Some(namespace()), cancel)).0.unwrap();
    }
    world.cycle();
    assert_eq!(world.state.task(tasks[2]).unwrap().status.kind(), StatusKind::Queued);
}

#[test]
fn r4_what_a_plan_sent_back_holds_up_the_sweep_of_its_session_as_well() {
    let mut world = World::new();
    let tasks = orphans(&mut world, 2);
    let plan = world.plan(100, &[PlanItem { task: tasks[0], action: ItemAction::Replay, group: 1 }]);
    world.pass(2_000);
    world.cycle();
    assert!(world.state.replays().get(&plan).is_none(), "the plan is through");
    world.pass(2_000);
    world.cycle();
    assert_eq!(kinds(&world, &tasks), [StatusKind::Queued, ORPHANED]);
}

#[test]
fn sessions_do_not_hold_up_each_other_or_tasks_without_one() {
    let mut world = World::new();
    world.register("a", declaration(4));
    let tasks = [session("s"), session("s"), session("t")].map(|of| world.submit(of)).to_vec();
    let alone = world.submit(|_| {});
    world.cycle();
    for task in tasks.iter().chain([&alone]) {
        world.ack(*task);
    }
    world.lose("a");
    world.pass(2_000);
    world.cycle();
    let queued = StatusKind::Queued;
    assert_eq!(kinds(&world, &tasks), [queued, ORPHANED, queued]);
    assert_eq!(kinds(&world, &[alone]), [queued]);
}
