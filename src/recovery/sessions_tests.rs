//! R4 over a real state: orphans of a session return in order, one after another, and go to one agent.

use crate::ledger::ids::{ReachId, Seq, SessionId};
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::replay::ItemAction;
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::spec::{OrphanPolicy, RetryPolicy, Submission};
use crate::ledger::machine::task::status::StatusKind;
use crate::recovery::list::{PlanItem, group_of};
use crate::recovery::sessions::{Behind, Leave, Sessions};
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

/// A task of the session that has failed for good and left memory, by an agent of its own with so many slots.
fn failed(world: &mut World, (agent, slots): (&str, u32)) -> ReachId {
    world.register(agent, declaration(slots));
    let failed = world.submit(|spec| {
        session("s")(spec);
        spec.retry = RetryPolicy { max_retries: 0, ..spec.retry.clone() };
    });
    world.cycle();
    world.ack(failed);
    world.fail(failed);
    world.state.forget_up_to(world.state.seq());
    failed
}

fn number() -> u32 {
    group_of(Some(&SessionId::new("s").unwrap()))
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
    let plan = world.plan(100, &[PlanItem { task: tasks[0], action: ItemAction::Replay, group: number() }]);
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

/// Three orphans of a session, of which the first is held.
fn behind_a_held_one(world: &mut World) -> Vec<ReachId> {
    world.register("a", declaration(3));
    let mut tasks = vec![world.submit(|spec| {
        session("s")(spec);
        spec.orphan = OrphanPolicy::Hold;
    })];
    tasks.extend((0..2).map(|_| world.submit(session("s"))));
    world.cycle();
    tasks.iter().for_each(|task| world.ack(*task));
    world.lose("a");
    tasks
}

#[test]
fn r4_nobody_goes_past_a_held_orphan_of_its_session_until_that_has_its_word() {
    let mut world = World::new();
    let tasks = behind_a_held_one(&mut world);
    for _ in 0..2 {
        world.pass(2_000);
        world.cycle();
        assert_eq!(kinds(&world, &tasks), [ORPHANED; 3]);
        for later in &tasks[1..] {
            assert_eq!(world.recovery.sweep().behind(*later, 10), Some(Behind::Held(tasks[0])));
        }
        assert_eq!((world.recovery.sweep().waiting(), world.recovery_wake()), (2, None));
        world.restart();
    }
    let command = Command::ResolveTask { task: tasks[0], resolution: Resolution::HandOver, reason: "seen".into() };
    let actor = crate::ledger::machine::event::Actor::Token(crate::ledger::ids::TokenId::new("operator").unwrap());
    let word = Proposal { namespace: Some(namespace()), actor, trace: None, command };
    world.propose(&word).0.unwrap();
    world.cycle();
    assert_eq!(kinds(&world, &tasks), [StatusKind::Queued, ORPHANED, ORPHANED]);
    assert_eq!(world.recovery.sweep().behind(tasks[2], 10), Some(Behind::Orphan(tasks[1])));
    assert_eq!(world.recovery.sweep().behind(tasks[1], 10), Some(Behind::SentBack(tasks[0])));
    world.register("b", declaration(9));
    for task in &tasks {
        world.cycle();
        world.ack(*task);
    }
    assert_eq!(kinds(&world, &tasks), [StatusKind::Processing; 3]);
}

#[test]
fn r4_a_late_result_or_the_end_of_a_held_orphan_lets_the_others_go() {
    for is_late in [true, false] {
        let mut world = World::new();
        let tasks = behind_a_held_one(&mut world);
        world.cycle();
        if is_late {
            world.complete(tasks[0]);
        } else {
            let cancel = Command::CancelTask { task: tasks[0], reason: None, fact: None };
            world.propose(&Proposal::by_hub(Some(namespace()), cancel)).0.unwrap();
        }
        world.pass(5_000);
        world.cycle();
        assert_eq!(kinds(&world, &tasks[2..]), [ORPHANED]);
        assert_ne!(kinds(&world, &tasks[1..2]), [ORPHANED]);
    }
}

#[test]
fn r4_a_plan_waits_for_orphans_before_its_item_and_for_what_the_sweep_sent_back_to_end() {
    let mut world = World::new();
    let tasks = orphans(&mut world, 2);
    let item = |task| PlanItem { task, action: ItemAction::Replay, group: number() };
    world.cycle();
    assert_eq!(kinds(&world, &tasks), [StatusKind::Queued, ORPHANED]);
    // A failed one of the same session, younger than both.
    let failed = failed(&mut world, ("b", 9));
    let plan = world.plan(100, &[PlanItem { task: failed, action: ItemAction::Redrive, group: number() }]);
    let settled = |world: &World| world.state.replays().get(&plan).is_none();
    for task in &tasks {
        world.pass(2_000);
        world.cycle();
        assert!(!settled(&world), "an orphan stands before it, or is under way");
        world.ack(*task);
        world.cycle();
    }
    assert_eq!(kinds(&world, &tasks), [StatusKind::Processing; 2]);
    for task in tasks.clone() {
        assert!(!settled(&world), "with an agent is not ended");
        world.restart();
        world.tell(plan, &crate::recovery::list::encode(&[PlanItem { action: ItemAction::Redrive, ..item(failed) }]));
        world.pass(2_000);
        world.cycle();
        assert!(!settled(&world), "and a restart forgets nothing");
        world.complete(task);
        world.cycle();
    }
    assert!(settled(&world));
}

#[test]
fn r4_an_item_that_has_left_memory_waits_for_any_older_orphan_and_not_for_the_first_alone() {
    let (mut lines, key) = (Sessions::default(), (namespace(), number()));
    let id = |n: u8| ReachId([n; 16]);
    // Drawn side by side, and submitted the other way round.
    for place in [(Seq(1), id(9)), (Seq(2), id(3))] {
        lines.join(&key, place, Leave::Free);
    }
    let state = State::default();
    assert_eq!(lines.before_item(&state, &key, id(5)), Some(id(3)));
    assert_eq!(lines.before_item(&state, &key, id(2)), None);
}

#[test]
fn r4_what_a_plan_made_anew_holds_up_the_sweep_until_it_is_with_an_agent() {
    let mut world = World::new();
    let failed = failed(&mut world, ("b", 9));
    world.register("a", declaration(3));
    let orphan = world.submit(|spec| {
        session("s")(spec);
        spec.preferred_agent = Some(crate::ledger::ids::AgentId::new("a").unwrap());
    });
    world.cycle();
    world.ack(orphan);
    world.lose("b");
    let plan = world.plan(100, &[PlanItem { task: failed, action: ItemAction::Redrive, group: number() }]);
    world.cycle();
    let made = plan.successor(failed);
    assert!(world.state.task(made).is_some());
    let holder = world.state.task(orphan).unwrap().status.lease().unwrap().agent.to_string();
    world.lose(&holder);
    for _ in 0..2 {
        world.pass(2_000);
        world.cycle();
        assert_eq!(kinds(&world, &[orphan]), [ORPHANED]);
        assert_eq!(world.recovery.sweep().behind(orphan, 10), Some(Behind::SentBack(made)));
        world.restart();
    }
    world.register("c", declaration(3));
    world.pass(2_000);
    world.cycle();
    world.ack(made);
    world.cycle();
    // It was the lost agent's, which may name what it holds for one interval, now that it has spoken.
    world.pass(5_000);
    world.cycle();
    assert_ne!(kinds(&world, &[orphan]), [ORPHANED]);
}

#[test]
fn r4_what_was_made_anew_and_then_sent_back_is_still_waited_for_after_a_restart() {
    let mut world = World::new();
    world.register("a", declaration(1));
    let held = world.submit(session("s"));
    world.cycle();
    world.ack(held);
    let failed = failed(&mut world, ("f", 5));
    let plan = world.plan(100, &[PlanItem { task: failed, action: ItemAction::Redrive, group: number() }]);
    world.pass(1_000);
    world.cycle();
    let made = plan.successor(failed);
    world.ack(made);
    world.lose("f");
    world.pass(1_000);
    world.cycle();
    assert_eq!(kinds(&world, &[held, made]), [StatusKind::Processing, StatusKind::Queued]);
    world.restart();
    world.lose("a");
    world.pass(2_000);
    world.cycle();
    assert_eq!(kinds(&world, &[held, made]), [ORPHANED, StatusKind::Queued], "there are tokens, and no turn");
}
