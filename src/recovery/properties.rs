//! What recovery promises, over all inputs (R1), and its rules over a real state.

use proptest::prelude::*;

use crate::ledger::ids::AgentId;
use crate::ledger::machine::agent::{Declaration, Health};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::policy::Policy;
use crate::ledger::machine::task::spec::OrphanPolicy;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::planner::Note;
use crate::ledger::time::{Millis, Timestamp};
use crate::recovery::boot;
use crate::recovery::pace::{Bucket, burst};
use crate::scheduler::world::{World, declaration, key, namespace, pull};

proptest! {
    #[test]
    fn r1_in_any_window_replays_stay_within_rate_and_burst(
        rate in 1u32..2_000, steps in prop::collection::vec((0u64..400, 1usize..40), 1..80),
    ) {
        let mut bucket = Bucket::new(rate, Timestamp(0));
        let (mut now, mut taken) = (Timestamp(0), Vec::new());
        for (wait, tries) in steps {
            now = now.after(Millis(wait));
            taken.extend((0..tries).filter(|_| bucket.take(now)).map(|_| now.0));
        }
        for (first, from) in taken.iter().enumerate() {
            for window in [1_u64, 250, 1_000, 10_000] {
                let inside = taken.iter().skip(first).take_while(|at| **at <= from + window).count();
                let allowed = u64::from(rate) * window / 1_000 + u64::from(burst(rate)) + 1;
                prop_assert!(u64::try_from(inside).unwrap() <= allowed, "{inside} in {window} ms at {rate}/s");
            }
        }
    }
}

fn health(world: &World, agent: &str) -> Health {
    world.state.agent(&key(agent)).unwrap().health
}

fn set_policy(world: &mut World, change: impl FnOnce(&mut Policy)) {
    let mut policy = Policy::default();
    change(&mut policy);
    let command = Command::SetPolicy { policy, reason: "test".into() };
    world.propose(&Proposal::by_hub(Some(namespace()), command)).0.unwrap();
}

#[test]
fn three_missed_intervals_are_unhealthy_and_nine_are_lost() {
    let mut world = World::new();
    world.register("a", declaration(1));
    for (passed, expected) in
        [(14_999, Health::Healthy), (1, Health::Unhealthy), (29_999, Health::Unhealthy), (1, Health::Lost)]
    {
        world.pass(passed);
        world.cycle();
        assert_eq!(health(&world, "a"), expected, "at {}", world.now.0);
    }
    world.pass(100_000);
    world.cycle();
    assert!(world.refusals.is_empty());
    world.beat("a");
    assert_eq!(health(&world, "a"), Health::Healthy);
    world.pass(15_000);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Unhealthy, "watched again after its return");
}

#[test]
fn a_beat_starts_the_count_anew() {
    let mut world = World::new();
    world.register("a", declaration(1));
    for _ in 0..5 {
        world.pass(14_000);
        world.beat("a");
        world.cycle();
        assert_eq!(health(&world, "a"), Health::Healthy);
    }
}

#[test]
fn live_thresholds_hold_at_once_and_not_only_from_the_next_beat_on() {
    let mut world = World::new();
    world.register("a", declaration(1));
    world.pass(6_000);
    set_policy(&mut world, |policy| policy.unhealthy_after = 1);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Unhealthy);
}

#[test]
fn a_shorter_heartbeat_interval_holds_at_once() {
    let mut world = World::new();
    let slow = Declaration { heartbeat_interval: Millis::secs(3_600), ..declaration(1) };
    world.register("a", slow);
    world.register("a", declaration(1));
    world.pass(15_000);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Unhealthy);
}

#[test]
fn an_agent_that_returns_while_unhealthy_is_watched_for_the_first_threshold_again() {
    let mut world = World::new();
    world.register("a", declaration(1));
    world.pass(15_000);
    world.cycle();
    world.beat("a");
    world.pass(15_000);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Unhealthy);
}

#[test]
fn semantics_3_an_open_claim_counts_as_a_beat_all_the_while() {
    let mut world = World::new();
    world.register("a", pull(1));
    let claim = world.claim("a", 1);
    world.pass(100_000);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Healthy);
    world.unclaim(claim);
    world.pass(14_999);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Healthy);
    world.pass(1);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Unhealthy);
}

#[test]
fn semantics_3_time_in_which_the_cycle_lagged_is_not_held_against_agents() {
    let mut world = World::new();
    world.register("a", declaration(1));
    world.pass(20_000);
    world.note(&Note::Lagged { by: Millis(12_000) });
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Healthy);
    world.pass(6_999);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Healthy);
    world.pass(1);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Unhealthy);
}

#[test]
fn after_a_restart_every_agent_has_a_fresh_grace() {
    let mut world = World::new();
    world.register("a", declaration(1));
    world.pass(1_000_000);
    world.restart();
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Healthy);
    world.pass(15_000);
    world.cycle();
    assert_eq!(health(&world, "a"), Health::Unhealthy);
}

/// `n` tasks that agent "a" acknowledged and then left behind.
fn orphans(world: &mut World, n: u32, policy: OrphanPolicy) -> Vec<crate::ledger::ids::ReachId> {
    world.register("a", declaration(n));
    let tasks: Vec<_> = (0..n).map(|_| world.submit(|s| s.orphan = policy)).collect();
    assert_eq!(world.cycle().len(), tasks.len());
    tasks.iter().for_each(|task| world.ack(*task));
    world.lose("a");
    tasks
}

fn orphaned(world: &World) -> usize {
    world.state.tasks().values().filter(|task| task.status.kind() == StatusKind::Orphaned).count()
}

#[test]
fn semantics_40_orphans_come_back_at_the_namespace_rate_with_a_quarter_as_burst() {
    let mut world = World::new();
    orphans(&mut world, 40, OrphanPolicy::Replay);
    world.cycle();
    assert_eq!(orphaned(&world), 35);
    let mut last = 35;
    while orphaned(&world) > 0 {
        let wake = world.recovery_wake().unwrap();
        assert!(wake > world.now);
        world.now = wake;
        world.cycle();
        assert_eq!(orphaned(&world), last - 1, "one token every 50 ms");
        last -= 1;
    }
    assert_eq!(world.now, Timestamp(1_000_000 + 35 * 50));
    assert_eq!(world.recovery.sweep().waiting(), 0);
    assert!(world.refusals.is_empty());
}

#[test]
fn r1_a_second_loss_right_after_the_first_finds_no_fresh_burst() {
    let mut world = World::new();
    orphans(&mut world, 5, OrphanPolicy::Replay);
    world.cycle();
    assert_eq!(orphaned(&world), 0);
    world.pass(50);
    world.cycle();
    world.register("b", declaration(10));
    let held = world.cycle();
    assert_eq!(held.len(), 5);
    held.iter().for_each(|dispatch| world.ack(dispatch.task));
    world.lose("b");
    world.cycle();
    assert_eq!(orphaned(&world), 4, "one token came in 50 ms");
}

#[test]
fn r1_a_restart_brings_no_fresh_burst() {
    let mut world = World::new();
    orphans(&mut world, 40, OrphanPolicy::Replay);
    world.cycle();
    assert_eq!(orphaned(&world), 35);
    for left in [35, 34, 33] {
        world.restart();
        world.cycle();
        world.pass(49);
        world.cycle();
        assert_eq!(orphaned(&world), left, "a start begins with an empty bucket");
        world.pass(1);
        world.cycle();
        assert_eq!(orphaned(&world), left - 1, "and gains one token every 50 ms");
    }
}

#[test]
fn a_held_orphan_waits_for_a_word_and_costs_the_sweep_nothing() {
    let mut world = World::new();
    orphans(&mut world, 3, OrphanPolicy::Hold);
    world.cycle();
    world.pass(1_000);
    world.cycle();
    assert_eq!(orphaned(&world), 3);
    assert_eq!((world.recovery.sweep().waiting(), world.recovery_wake()), (0, None));
}

#[test]
fn semantics_5_the_tasks_of_an_agent_that_just_returned_are_left_alone_for_one_interval() {
    let mut world = World::new();
    let tasks = orphans(&mut world, 20, OrphanPolicy::Replay);
    world.beat("a");
    world.cycle();
    assert_eq!(orphaned(&world), 20);
    assert_eq!(world.recovery.sweep().waiting(), 20);
    world.complete(tasks[3]);
    assert_eq!(world.recovery.sweep().waiting(), 19);
    world.pass(4_999);
    world.beat("a");
    world.cycle();
    assert_eq!(orphaned(&world), 19);
    world.pass(1);
    world.cycle();
    assert_eq!(orphaned(&world), 14);
}

#[test]
fn semantics_8_an_unacknowledged_push_found_at_boot_is_resolved_and_an_acknowledged_one_is_not() {
    let mut world = World::new();
    world.register("a", declaration(5));
    world.register("b", pull(5));
    let tasks: Vec<_> =
        (0..2).map(|_| world.submit(|s| s.preferred_agent = Some(AgentId::new("a").unwrap()))).collect();
    world.cycle();
    world.ack(tasks[0]);
    let proposals = boot::resolve(&world.state);
    assert_eq!(proposals.len(), 1);
    for proposal in &proposals {
        world.propose(proposal).0.unwrap();
    }
    assert_eq!(world.state.task(tasks[1]).unwrap().status.kind(), StatusKind::SlowReach);
    assert!(boot::resolve(&world.state).is_empty());
}

#[test]
fn semantics_32_a_batch_left_open_is_closed_at_boot_with_what_was_accepted() {
    let mut world = World::new();
    let batch = crate::ledger::ids::BatchId([9; 16]);
    let open = Command::OpenBatch { batch, callback: None, idempotency: None, bound: None };
    world.propose(&Proposal::by_hub(Some(namespace()), open)).0.unwrap();
    world.submit(|s| s.batch = Some((batch, 0)));
    let proposals = boot::resolve(&world.state);
    assert_eq!(proposals[0].command, Command::CloseBatch { batch, total: 1, refused: 0 });
    world.propose(&proposals[0]).0.unwrap();
    assert!(boot::resolve(&world.state).is_empty());
}
