//! The runs of plans, over a real state: given these tasks and this list, then these items go, in this order.

use crate::ledger::ids::{ReachId, ReplayId, SessionId};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Actor, Event, EventBody};
use crate::ledger::machine::policy::Policy;
use crate::ledger::machine::replay::order::ReplayWord;
use crate::ledger::machine::replay::{Ended, ItemAction, ItemOutcome, ReplayPhase, Skip};
use crate::ledger::machine::task::spec::{OrphanPolicy, RetryPolicy, Submission};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::planner::{ClaimId, Note, Planner as _};
use crate::ledger::time::{Millis, Timestamp};
use crate::recovery::list::{PlanItem, group_of};
use crate::scheduler::world::{World, declaration, key, namespace, pull};

pub(super) fn replay(task: ReachId) -> PlanItem {
    PlanItem { task, action: ItemAction::Replay, group: 0 }
}

pub(super) fn redrive(task: ReachId, group: u32) -> PlanItem {
    PlanItem { task, action: ItemAction::Redrive, group }
}

pub(super) fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

/// An item of that session.
pub(super) fn of_session(task: ReachId, action: ItemAction) -> PlanItem {
    PlanItem { task, action, group: group_of(Some(&session())) }
}

/// `n` held orphans of a lost agent: no sweep takes them.
pub(super) fn held(world: &mut World, n: u32) -> Vec<ReachId> {
    world.register("a", declaration(n));
    let tasks: Vec<_> = (0..n).map(|_| world.submit(|spec| spec.orphan = OrphanPolicy::Hold)).collect();
    assert_eq!(world.cycle().len(), tasks.len());
    tasks.iter().for_each(|task| world.ack(*task));
    world.lose("a");
    tasks
}

/// `n` tasks that failed for good, no longer in memory.
pub(super) fn failed(world: &mut World, n: u32, change: impl Fn(&mut Submission)) -> Vec<ReachId> {
    world.register("f", declaration(10));
    let once = |spec: &mut Submission| {
        spec.retry = RetryPolicy { max_retries: 0, ..spec.retry.clone() };
        change(spec);
    };
    let tasks: Vec<_> = (0..n).map(|_| world.submit(once)).collect();
    assert_eq!(world.cycle().len(), tasks.len());
    for task in &tasks {
        world.ack(*task);
        world.fail(*task);
    }
    world.state.forget_up_to(world.state.seq());
    tasks
}

pub(super) fn outcomes(world: &World, plan: ReplayId) -> Vec<ItemOutcome> {
    world.state.replay(plan).unwrap().outcomes.clone()
}

pub(super) fn settled(world: &World, plan: ReplayId) -> u32 {
    world.state.replay(plan).unwrap().settled
}

pub(super) fn pass(world: &mut World, span: u64) {
    world.pass(span);
    world.cycle();
}

#[test]
fn a_plan_goes_at_its_own_rate_in_the_lists_order_and_by_its_operators_word() {
    let mut world = World::new();
    let tasks = held(&mut world, 10);
    let plan = world.plan(4, &tasks.iter().copied().map(replay).collect::<Vec<_>>());
    world.cycle();
    assert_eq!(settled(&world, plan), 1, "a quarter of the rate at once");
    for turn in 2..=10 {
        pass(&mut world, 249);
        assert_eq!(settled(&world, plan), turn - 1);
        assert_eq!(world.recovery_wake(), Some(Timestamp(world.now.0 + 1)));
        pass(&mut world, 1);
        assert_eq!(settled(&world, plan), turn);
    }
    let ended = world.state.replay(plan).unwrap();
    assert_eq!(ended.phase, ReplayPhase::Finished(Ended::Completed));
    let mut done = Vec::new();
    for event in &world.log {
        if let EventBody::ReplayItemDone(body) = &event.body {
            done.push((body.task, event.actor.clone()));
        }
    }
    let expected: Vec<_> = tasks.into_iter().map(|task| (task, ended.by.clone())).collect();
    assert_eq!(done, expected);
    assert!(world.refusals.is_empty() && world.recovery_wake().is_none());
}

#[test]
fn a_list_that_does_not_fit_or_is_damaged_proposes_nothing_and_is_wanted_still() {
    let mut world = World::new();
    let tasks = held(&mut world, 2);
    let items: Vec<_> = tasks.into_iter().map(replay).collect();
    let (plan, list) = world.order(20, &items);
    let wanted = |world: &World| world.recovery.plans().wants_list().collect::<Vec<_>>();
    world.cycle();
    for bad in [crate::recovery::list::encode(&items[..1]), list[1..].to_vec()] {
        world.tell(plan, &bad);
        world.cycle();
        assert_eq!((settled(&world, plan), wanted(&world)), (0, vec![plan]));
    }
    world.tell(plan, &list);
    assert_eq!(wanted(&world), []);
    world.cycle();
    assert_eq!(settled(&world, plan), 2);
}

#[test]
fn r5_a_paused_plan_moves_nothing_wants_nothing_and_goes_on_where_it_stood_even_after_a_restart() {
    let mut world = World::new();
    let tasks = held(&mut world, 6);
    let items: Vec<_> = tasks.into_iter().map(replay).collect();
    let (plan, list) = world.order(4, &items);
    world.tell(plan, &list);
    world.cycle();
    world.steer(plan, ReplayWord::Pause { reason: None });
    pass(&mut world, 5_000);
    assert_eq!((settled(&world, plan), world.recovery_wake()), (1, None));
    world.restart();
    assert_eq!(world.recovery.plans().wants_list().count(), 0);
    world.steer(plan, ReplayWord::Resume { reason: None });
    world.restart();
    assert_eq!(world.recovery.plans().wants_list().collect::<Vec<_>>(), [plan]);
    world.tell(plan, &list);
    world.cycle();
    assert_eq!(settled(&world, plan), 1, "r1: a start brings no fresh burst");
    pass(&mut world, 250);
    assert_eq!(settled(&world, plan), 2);
    world.steer(plan, ReplayWord::Cancel { reason: None });
    pass(&mut world, 5_000);
    assert_eq!(settled(&world, plan), 2);
}

#[test]
fn a_live_rate_holds_for_the_next_token() {
    let mut world = World::new();
    let tasks = held(&mut world, 12);
    let plan = world.plan(1, &tasks.into_iter().map(replay).collect::<Vec<_>>());
    world.cycle();
    assert_eq!(settled(&world, plan), 1);
    world.steer(plan, ReplayWord::Rate { rate: 100 });
    world.cycle();
    pass(&mut world, 10);
    assert_eq!(settled(&world, plan), 2);
    world.steer(plan, ReplayWord::Rate { rate: 1 });
    pass(&mut world, 900);
    assert_eq!(settled(&world, plan), 2);
    pass(&mut world, 100);
    assert_eq!(settled(&world, plan), 3);
}

#[test]
fn what_is_seen_to_be_left_alone_costs_no_token() {
    let mut world = World::new();
    let tasks = held(&mut world, 40);
    tasks.iter().skip(1).for_each(|task| world.complete(*task));
    let plan = world.plan(1, &tasks.iter().copied().map(replay).collect::<Vec<_>>());
    world.cycle();
    let ended = outcomes(&world, plan);
    assert_eq!(ended[0], ItemOutcome::Replayed);
    assert!(ended[1..].iter().all(|outcome| *outcome == ItemOutcome::Skipped(Skip::Finished)));
}

#[test]
fn r4_items_of_a_session_go_one_at_a_time_and_the_next_when_what_was_made_of_the_former_has_ended() {
    let mut world = World::new();
    let mut tasks = failed(&mut world, 3, |spec| spec.session = Some(session()));
    let alone = failed(&mut world, 1, |_| {}).remove(0);
    let mut items: Vec<_> = tasks.iter().map(|task| of_session(*task, ItemAction::Redrive)).collect();
    items.push(redrive(alone, 0));
    let (plan, list) = world.order(100, &items);
    world.tell(plan, &list);
    let pending = ItemOutcome::Pending;
    let redriven = ItemOutcome::Redriven;
    world.cycle();
    assert_eq!(outcomes(&world, plan), [redriven, pending, pending, redriven]);
    let first = plan.successor(tasks.remove(0));
    world.ack(first);
    pass(&mut world, 1_000);
    assert_eq!(settled(&world, plan), 2, "acknowledged is not ended");
    world.restart();
    world.tell(plan, &list);
    pass(&mut world, 1_000);
    assert_eq!(settled(&world, plan), 2, "a restart forgets no order");
    world.complete(first);
    world.cycle();
    assert_eq!(outcomes(&world, plan), [redriven, redriven, pending, redriven]);
    let second = plan.successor(tasks.remove(0));
    world.ack(second);
    world.complete(second);
    world.cycle();
    assert_eq!(settled(&world, plan), 4);
}

#[test]
fn r4_a_second_plan_over_the_same_session_does_not_overtake_the_first() {
    let mut world = World::new();
    let tasks = failed(&mut world, 2, |spec| spec.session = Some(session()));
    let items: Vec<_> = tasks.iter().map(|task| of_session(*task, ItemAction::Redrive)).collect();
    let first = world.plan(100, &items);
    world.cycle();
    let second = world.plan(100, &items);
    world.cycle();
    let already = ItemOutcome::Skipped(Skip::AlreadyRedriven);
    assert_eq!(outcomes(&world, second), [already, ItemOutcome::Pending]);
    let made = first.successor(tasks[0]);
    world.ack(made);
    world.complete(made);
    pass(&mut world, 1_000);
    assert_eq!((settled(&world, first), settled(&world, second)), (2, 2));
}

#[test]
fn semantics_22_a_plan_that_finds_the_queue_full_rests_a_second_and_loses_nothing() {
    let mut world = World::new();
    let tasks = failed(&mut world, 1, |_| {});
    let policy = Policy { lane_bound: 1, ..Policy::default() };
    let command = Command::SetPolicy { policy, reason: "test".into() };
    world.propose(&Proposal::by_hub(Some(namespace()), command)).0.unwrap();
    world.lose("f");
    let waiting = world.submit(|spec| spec.qos = crate::ledger::machine::task::spec::Qos::Urgent);
    let plan = world.plan(100, &[redrive(tasks[0], 0)]);
    world.cycle();
    assert_eq!((settled(&world, plan), world.refusals.len()), (0, 1));
    assert_eq!(world.recovery_wake(), Some(Timestamp(world.now.0 + 1_000)));
    world
        .propose(&Proposal::by_hub(Some(namespace()), Command::CancelTask { task: waiting, reason: None, fact: None }))
        .0
        .unwrap();
    pass(&mut world, 999);
    assert_eq!(settled(&world, plan), 0);
    pass(&mut world, 1);
    assert_eq!(settled(&world, plan), 1);
}

#[test]
fn a_stale_view_makes_a_plan_look_again_and_rest_no_moment() {
    let mut world = World::new();
    let tasks = held(&mut world, 2);
    let (plan, list) = world.order(100, &[replay(tasks[0]), replay(tasks[1])]);
    world.tell(plan, &list);
    let proposals = world.recovery.plan(&world.state, world.now, 1);
    assert_eq!(proposals.len(), 1);
    world.steer(plan, ReplayWord::Pause { reason: None });
    assert!(world.propose(&proposals[0]).0.is_err());
    world.recovery.refused(&world.state, &proposals[0]);
    world.steer(plan, ReplayWord::Resume { reason: None });
    world.tell(plan, &list);
    world.cycle();
    assert_eq!(settled(&world, plan), 2);
}

#[test]
fn r1_sweep_and_plans_of_a_namespace_share_one_bucket_in_fair_turns() {
    let mut world = World::new();
    let tasks = held(&mut world, 400);
    let others = tasks.iter().copied().map(replay).collect::<Vec<_>>();
    world.register("b", declaration(200));
    let swept: Vec<_> = (0..200).map(|_| world.submit(|_| {})).collect();
    world.cycle();
    swept.iter().for_each(|task| world.ack(*task));
    world.lose("b");
    let plans = [world.plan(20, &others[..200]), world.plan(20, &others[200..])];
    let orphaned = |world: &World| {
        swept.iter().filter(|task| world.state.task(**task).unwrap().status.kind() == StatusKind::Orphaned).count()
    };
    world.cycle();
    let start = world.now;
    while world.now.0 < start.0 + 3_000 {
        pass(&mut world, 10);
    }
    let moved = [200 - orphaned(&world), settled(&world, plans[0]) as usize, settled(&world, plans[1]) as usize];
    assert_eq!(moved.iter().sum::<usize>(), 5 + 60, "20 a second and a burst of 5, for all of them");
    assert!(moved.iter().all(|moved| moved.abs_diff(65 / 3) <= 1), "{moved:?}");
}

#[test]
fn r1_what_a_loss_in_the_same_cycle_makes_an_orphan_costs_a_token_like_any_other() {
    let mut world = World::new();
    world.register("a", pull(10));
    let tasks: Vec<_> = (0..10).map(|_| world.submit(|spec| spec.orphan = OrphanPolicy::Hold)).collect();
    let claim = world.claim("a", 10);
    assert_eq!(world.cycle().len(), 10);
    world.unclaim(claim);
    tasks.iter().for_each(|task| world.ack(*task));
    let (plan, list) = world.order(4, &tasks.into_iter().map(replay).collect::<Vec<_>>());
    world.pass(45_000);
    world.tell(plan, &list);
    world.cycle();
    assert!(world.log.iter().any(|event| matches!(event.body, EventBody::AgentLost(_))));
    let replayed = outcomes(&world, plan).iter().filter(|outcome| **outcome == ItemOutcome::Replayed).count();
    assert!(replayed <= 1, "{replayed} at once, at a burst of 1");
}

#[test]
fn r1_a_source_that_was_held_up_by_the_disk_has_no_second_burst_beside_a_faster_one() {
    let mut world = World::new();
    let tasks = held(&mut world, 200);
    world.register("b", declaration(100));
    let swept: Vec<_> = (0..100).map(|_| world.submit(|_| {})).collect();
    assert_eq!(world.cycle().len(), 100);
    swept.iter().for_each(|task| world.ack(*task));
    world.lose("b");
    world.plan(500, &tasks.into_iter().map(replay).collect::<Vec<_>>());
    world.pass(1_000);
    world.cycle_late(512, Millis(500));
    let held_up = world.now;
    for _ in 0..100 {
        world.cycle();
        world.pass(1);
    }
    let by_sweep = |event: &&Event| matches!(event.body, EventBody::TaskReplayed(_)) && event.actor == Actor::Hub;
    let late = world.log.iter().filter(by_sweep).filter(|event| event.at >= held_up).count();
    assert!(late <= 5 + 2, "{late} in 100 ms, at 20 a second");
}

#[test]
fn r_rec_2_an_operators_single_words_hold_up_neither_sweep_nor_plan() {
    let mut world = World::new();
    let mut by_word = held(&mut world, 130);
    let planned = by_word.split_off(100);
    world.register("b", declaration(30));
    let swept: Vec<_> = (0..30).map(|_| world.submit(|_| {})).collect();
    assert_eq!(world.cycle().len(), 30);
    swept.iter().for_each(|task| world.ack(*task));
    world.lose("b");
    let plan = world.plan(20, &planned.into_iter().map(replay).collect::<Vec<_>>());
    for task in by_word {
        world.pass(10);
        world.resolve(task);
        world.cycle();
    }
    let by_sweep = |event: &&Event| matches!(event.body, EventBody::TaskReplayed(_)) && event.actor == Actor::Hub;
    let moved = world.log.iter().filter(by_sweep).count() + usize::try_from(settled(&world, plan)).unwrap();
    assert!((20..=25).contains(&moved), "{moved} in a second at 20 a second");
}

#[test]
fn r_sch_2_what_was_sent_back_is_handed_out_in_the_same_cycle() {
    let mut world = World::new();
    let task = held(&mut world, 1).remove(0);
    let (plan, list) = world.order(4, &[replay(task)]);
    world.register("b", pull(1));
    let incarnation = world.incarnation("b");
    let notes = [
        Note::Listed { replay: plan, list: list.into() },
        Note::ClaimOpened { claim: ClaimId(1), agent: key("b"), incarnation, max: 1 },
    ];
    let mut planners = super::planners();
    for planner in &mut planners {
        planner.rebuild(&world.state, world.now);
        notes.iter().for_each(|note| planner.note(&world.state, note, world.now));
    }
    world.pass(250);
    for turn in 0..planners.len() {
        for proposal in planners[turn].plan(&world.state, world.now, 64) {
            for event in world.carry_out(proposal).unwrap() {
                planners.iter_mut().for_each(|planner| planner.observe(&world.state, &event));
            }
        }
    }
    assert_eq!(world.state.task(task).unwrap().status.kind(), StatusKind::Dispatched);
}
