//! Plans beside each other, beside what waits and what is full, over a real state: who waits for whom, and who does not.

use crate::ledger::ids::{Capability, ReachId, ReplayId, SessionId};
use crate::ledger::machine::agent::Declaration;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::EventBody;
use crate::ledger::machine::policy::Policy;
use crate::ledger::machine::replay::order::ReplayWord;
use crate::ledger::machine::replay::{ItemAction, ItemOutcome, Skip};
use crate::ledger::machine::task::spec::{Idempotence, OrphanPolicy, Qos, Submission};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::time::Timestamp;
use crate::recovery::plans::{IN_VAIN, Waiting};
use crate::recovery::plans_tests::{failed, held, of_session, outcomes, pass, redrive, replay, session, settled};
use crate::scheduler::world::{World, declaration, namespace, offer};

#[test]
fn a_paused_plan_keeps_no_list_and_asks_for_it_when_it_goes_on() {
    let mut world = World::new();
    let tasks = held(&mut world, 2);
    let (plan, list) = world.order(1, &[replay(tasks[0]), replay(tasks[1])]);
    world.tell(plan, &list);
    world.cycle();
    world.steer(plan, ReplayWord::Pause { reason: None });
    world.tell(plan, &list);
    world.steer(plan, ReplayWord::Resume { reason: None });
    assert_eq!(world.recovery.plans().wants_list().collect::<Vec<_>>(), [plan]);
    world.tell(plan, &list);
    pass(&mut world, 1_000);
    assert_eq!(settled(&world, plan), 2);
}

#[test]
fn r4_two_plans_with_different_items_of_a_session_take_turns() {
    let mut world = World::new();
    let tasks = failed(&mut world, 2, |spec| spec.session = Some(session()));
    let plans: Vec<_> = tasks.iter().map(|task| world.plan(100, &[of_session(*task, ItemAction::Redrive)])).collect();
    pass(&mut world, 1_000);
    assert_eq!(plans.iter().map(|plan| settled_of(&world, *plan)).sum::<u32>(), 1, "one of the session at a time");
    let first = tasks.iter().zip(&plans).find(|(_, plan)| settled_of(&world, **plan) == 1).unwrap();
    let made = first.1.successor(*first.0);
    world.ack(made);
    pass(&mut world, 1_000);
    assert_eq!(plans.iter().map(|plan| settled_of(&world, *plan)).sum::<u32>(), 1, "acknowledged is not ended");
    world.complete(made);
    pass(&mut world, 1_000);
    assert_eq!(plans.iter().map(|plan| settled_of(&world, *plan)).sum::<u32>(), 2);
}

/// Settled items, of an ended plan too.
fn settled_of(world: &World, plan: ReplayId) -> u32 {
    world.state.replay(plan).map_or(1, |plan| plan.settled)
}

#[test]
fn r4_an_item_waits_for_the_last_of_a_chain_of_tasks_that_were_made_of_the_former_one() {
    let mut world = World::new();
    let tasks = failed(&mut world, 2, |spec| {
        spec.session = Some(session());
        spec.retry.max_retries = 0;
    });
    // A was made anew as B by one plan, B failed, and was made anew as C by another: C runs.
    let first = world.plan(100, &[of_session(tasks[0], ItemAction::Redrive)]);
    world.cycle();
    let second = first.successor(tasks[0]);
    world.ack(second);
    world.fail(second);
    world.state.forget_up_to(world.state.seq());
    let next = world.plan(100, &[of_session(second, ItemAction::Redrive)]);
    world.cycle();
    let third = next.successor(second);
    world.ack(third);
    for restart in [false, true] {
        let (plan, list) =
            world.order(100, &tasks.iter().map(|task| of_session(*task, ItemAction::Redrive)).collect::<Vec<_>>());
        if restart {
            world.restart();
        }
        world.tell(plan, &list);
        pass(&mut world, 1_000);
        let pending = ItemOutcome::Pending;
        assert_eq!(outcomes(&world, plan)[1], pending, "C runs");
        let waiting = world.recovery.waiting_for(&world.state, plan);
        assert_eq!(waiting, Some(Waiting { lines: 1, first: third }));
        world.steer(plan, ReplayWord::Cancel { reason: None });
    }
    world.complete(third);
    let plan = world.plan(100, &tasks.iter().map(|task| of_session(*task, ItemAction::Redrive)).collect::<Vec<_>>());
    world.cycle();
    let outcomes = outcomes(&world, plan);
    assert_eq!(outcomes, [ItemOutcome::Skipped(Skip::AlreadyRedriven), ItemOutcome::Redriven]);
}

#[test]
fn r4_an_item_waits_for_what_was_made_of_the_former_one_when_that_has_lost_its_agent() {
    let mut world = World::new();
    let tasks = failed(&mut world, 2, |spec| {
        spec.session = Some(session());
        spec.orphan = OrphanPolicy::Hold;
    });
    let items: Vec<_> = tasks.iter().map(|task| of_session(*task, ItemAction::Redrive)).collect();
    let plan = world.plan(100, &items);
    pass(&mut world, 1_000);
    let made = plan.successor(tasks[0]);
    world.ack(made);
    world.lose("f");
    world.register("b", declaration(10));
    pass(&mut world, 5_000);
    assert_eq!(
        outcomes(&world, plan),
        [ItemOutcome::Redriven, ItemOutcome::Pending],
        "the first one's work is not over"
    );
    assert_eq!(world.recovery.waiting_for(&world.state, plan), Some(Waiting { lines: 1, first: made }));
    world.resolve(made);
    pass(&mut world, 1_000);
    world.ack(made);
    world.complete(made);
    pass(&mut world, 1_000);
    assert_eq!(outcomes(&world, plan), [ItemOutcome::Redriven; 2]);
}

#[test]
fn r4_orphans_that_were_sent_back_by_a_word_and_lost_again_go_one_after_the_other_by_a_plan() {
    let mut world = World::new();
    world.register("a", declaration(2));
    let ambiguous = |spec: &mut Submission| {
        spec.session = Some(session());
        spec.idempotence = Idempotence::NotDeclared;
        spec.orphan = OrphanPolicy::Hold;
    };
    let tasks: Vec<_> = (0..2).map(|_| world.submit(ambiguous)).collect();
    assert_eq!(world.cycle().len(), 2);
    tasks.iter().for_each(|task| world.ack(*task));
    world.lose("a");
    world.register("b", declaration(10));
    tasks.iter().for_each(|task| world.resolve(*task));
    pass(&mut world, 2_000);
    tasks.iter().for_each(|task| world.ack(*task));
    world.lose("b");
    world.register("c", declaration(10));
    let items: Vec<_> = tasks.iter().map(|task| of_session(*task, ItemAction::Replay)).collect();
    let with = world.plan_with_the_word(100, &items);
    pass(&mut world, 2_000);
    assert_eq!(
        outcomes(&world, with),
        [ItemOutcome::Replayed, ItemOutcome::Pending],
        "none waits for the other for ever"
    );
    world.ack(tasks[0]);
    world.complete(tasks[0]);
    pass(&mut world, 2_000);
    assert_eq!(settled_of(&world, with), 2, "{:?}", outcomes(&world, with));
}

#[test]
fn r4_a_skipped_item_that_is_unfinished_holds_its_line_and_the_plan_says_for_whom_it_waits() {
    let mut world = World::new();
    world.register("a", declaration(3));
    let risky = |spec: &mut Submission| {
        spec.session = Some(session());
        spec.orphan = OrphanPolicy::Hold;
        spec.idempotence = Idempotence::NotDeclared;
    };
    let held = world.submit(risky);
    let safe = world.submit(|spec| {
        spec.session = Some(session());
        spec.orphan = OrphanPolicy::Hold;
    });
    world.cycle();
    [held, safe].into_iter().for_each(|task| world.ack(task));
    world.lose("a");
    let items = [of_session(held, ItemAction::Replay), of_session(safe, ItemAction::Replay)];
    let (plan, list) = world.order(100, &items);
    world.tell(plan, &list);
    pass(&mut world, 1_000);
    let expected = [ItemOutcome::Skipped(Skip::MayHaveRun), ItemOutcome::Pending];
    assert_eq!(outcomes(&world, plan), expected);
    let waits = Some(Waiting { lines: 1, first: held });
    assert_eq!(world.recovery.waiting_for(&world.state, plan), waits);
    // Its agent comes back and names it: it is no orphan, and unfinished still.
    world.restart();
    world.tell(plan, &list);
    pass(&mut world, 1_000);
    assert_eq!((outcomes(&world, plan), world.recovery.waiting_for(&world.state, plan)), (expected.to_vec(), waits));
    world.complete(held);
    world.cycle();
    assert_eq!(settled_of(&world, plan), 2);
    assert_eq!(world.recovery.waiting_for(&world.state, plan), None);
}

/// Failed tasks of "a.b", of which one waits in its full lane, and one of "c.d" behind them.
fn full_lane(world: &mut World, n: u32) -> (Vec<ReachId>, ReachId) {
    let tasks = failed(world, n, |_| {});
    world.register("other", Declaration { offers: vec![offer("c.d")], ..declaration(10) });
    let other = world.submit(|spec| {
        spec.capability = Capability::new("c.d").unwrap();
        spec.retry.max_retries = 0;
    });
    world.cycle();
    world.ack(other);
    world.fail(other);
    world.state.forget_up_to(world.state.seq());
    let policy = Policy { lane_bound: 1, replays_per_second: 1_000, ..Policy::default() };
    let command = Command::SetPolicy { policy, reason: "test".into() };
    world.propose(&Proposal::by_hub(Some(namespace()), command)).0.unwrap();
    world.lose("f");
    world.submit(|spec| spec.qos = Qos::Urgent);
    (tasks, other)
}

#[test]
fn semantics_22_a_full_queue_holds_up_no_item_of_another_capability() {
    let mut world = World::new();
    let (tasks, other) = full_lane(&mut world, 3);
    let items: Vec<_> = tasks.iter().chain([&other]).map(|task| redrive(*task, 0)).collect();
    let plan = world.plan(100, &items);
    world.cycle();
    let pending = ItemOutcome::Pending;
    assert_eq!(outcomes(&world, plan), [pending, pending, pending, ItemOutcome::Redriven]);
    assert_eq!(world.refusals.len(), 3);
    assert_eq!(world.recovery_wake(), Some(Timestamp(world.now.0 + 1_000)), "all are set aside: the plan rests");
    pass(&mut world, 999);
    assert_eq!(world.refusals.len(), 3);
    pass(&mut world, 1);
    assert_eq!(world.refusals.len(), 6);
}

#[test]
fn semantics_22_a_plan_that_finds_no_room_again_and_again_rests_as_a_whole() {
    let mut world = World::new();
    let (tasks, other) = full_lane(&mut world, 10);
    let many = tasks.iter().cycle().take(300).chain([&other]).map(|task| redrive(*task, 0)).collect::<Vec<_>>();
    let plan = world.plan(1_000, &many);
    world.cycle();
    assert_eq!(world.refusals.len(), IN_VAIN as usize);
    let mut rounds = 0;
    while settled(&world, plan) == 0 {
        rounds += 1;
        assert!(rounds <= 10, "new ground is tried beside what was set aside");
        pass(&mut world, 1_000);
    }
    assert!(world.refusals.len() <= IN_VAIN as usize * (rounds + 2));
}

/// Three tasks of a session by submission, all with agent "a": of the first two the policy is told, the third is replayed.
fn three(world: &mut World, policies: [OrphanPolicy; 2]) -> [ReachId; 3] {
    world.register("a", declaration(3));
    let [first, second] = policies;
    let tasks = [first, second, OrphanPolicy::Replay].map(|policy| {
        world.submit(|spec| {
            spec.session = Some(session());
            spec.orphan = policy;
        })
    });
    world.cycle();
    tasks.iter().for_each(|task| world.ack(*task));
    tasks
}

fn kind(world: &World, task: ReachId) -> StatusKind {
    world.state.task(task).unwrap().status.kind()
}

#[test]
fn r_rec_3_a_superseded_orphan_that_a_plan_leaves_alone_holds_up_nobody() {
    for policy in [OrphanPolicy::Replay, OrphanPolicy::Hold] {
        let mut world = World::new();
        let tasks = three(&mut world, [policy, OrphanPolicy::Replay]);
        world.complete(tasks[1]);
        world.lose("a");
        let items = [of_session(tasks[0], ItemAction::Replay), of_session(tasks[2], ItemAction::Replay)];
        let (plan, list) = world.order(100, &items);
        world.tell(plan, &list);
        pass(&mut world, 1_000);
        assert_eq!(kind(&world, tasks[2]), StatusKind::Queued, "{policy:?}");
        assert!(world.state.held(tasks[0]).is_some(), "{policy:?}: the ledger says so, once");
        // Neither now nor after a start does it stand in the way of a plan.
        world.register("b", declaration(3));
        world.cycle();
        world.ack(tasks[2]);
        world.lose("b");
        world.restart();
        world.tell(plan, &list);
        let next = world.plan(100, &[of_session(tasks[2], ItemAction::Replay)]);
        pass(&mut world, 1_000);
        assert_eq!((settled_of(&world, next), kind(&world, tasks[2])), (1, StatusKind::Queued), "{policy:?}");
    }
}

#[test]
fn r_rec_3_a_plan_that_finds_an_orphan_superseded_tells_it_once() {
    let mut world = World::new();
    let tasks = three(&mut world, [OrphanPolicy::Hold, OrphanPolicy::Replay]);
    world.complete(tasks[1]);
    world.complete(tasks[2]);
    world.lose("a");
    for _ in 0..2 {
        let plan = world.plan(100, &[of_session(tasks[0], ItemAction::Replay)]);
        pass(&mut world, 1_000);
        assert_eq!(outcomes(&world, plan), [ItemOutcome::Skipped(Skip::Superseded)]);
    }
    let told = world.log.iter().filter(|event| matches!(event.body, EventBody::TaskReplayHeld(_))).count();
    assert_eq!(told, 1);
}

#[test]
fn r_rec_3_an_orphan_that_its_policy_holds_lets_its_session_pass_once_that_has_gone_on_without_it() {
    let mut world = World::new();
    let tasks = three(&mut world, [OrphanPolicy::Hold, OrphanPolicy::Replay]);
    world.complete(tasks[1]);
    world.lose("a");
    pass(&mut world, 1_000);
    assert_eq!((kind(&world, tasks[0]), kind(&world, tasks[2])), (StatusKind::Orphaned, StatusKind::Queued));
    assert!(world.state.held(tasks[0]).is_some());
}

#[test]
fn r_rec_3_a_late_result_of_a_newer_one_frees_the_line_behind_an_orphan_that_is_held() {
    let mut world = World::new();
    let tasks = three(&mut world, [OrphanPolicy::Hold, OrphanPolicy::Hold]);
    world.lose("a");
    pass(&mut world, 2_000);
    assert_eq!(kind(&world, tasks[2]), StatusKind::Orphaned, "the first is held, and nothing supersedes it");
    let asked = world.refusals.len();
    pass(&mut world, 60_000);
    assert_eq!(world.refusals.len(), asked, "it is asked about once");
    world.complete(tasks[1]);
    // Its agent has spoken, and might name the others.
    pass(&mut world, 6_000);
    assert_eq!(kind(&world, tasks[2]), StatusKind::Dispatched);
    assert!(world.state.held(tasks[0]).is_some());
}

#[test]
fn r_rec_2_asking_about_held_orphans_takes_no_replay_its_token() {
    let mut world = World::new();
    world.register("a", declaration(200));
    for n in 0..80 {
        // Two of each session: somebody stands behind each first.
        world.submit(|spec| {
            spec.session = Some(SessionId::new(&format!("s{}", n % 40)).unwrap());
            spec.orphan = OrphanPolicy::Hold;
        });
    }
    let free: Vec<ReachId> = (0..30).map(|_| world.submit(|spec| spec.orphan = OrphanPolicy::Replay)).collect();
    for task in world.cycle() {
        world.ack(task.task);
    }
    world.lose("a");
    (0..20).for_each(|_| pass(&mut world, 50));
    let sent = free.iter().filter(|task| kind(&world, **task) == StatusKind::Queued).count();
    assert!((20..=25).contains(&sent), "20 a second and the burst: {sent}");
    assert_eq!(world.refusals.len(), 40, "and every first was asked about");
}
