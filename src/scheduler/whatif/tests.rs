//! Fleets whose outcome can be told by hand, and the one from the field that cannot.

use super::*;
use crate::ledger::machine::agent::Strategy;
use crate::ledger::machine::task::spec::Qos;
use crate::scheduler::world::{declaration, key, namespace, submission};

fn worker(agent: &str, slots: u32, speed: u32) -> Worker {
    let speeds = [(Capability::new("a.b").unwrap(), speed)].into();
    Worker { agent: key(agent), declaration: declaration(slots), at_once: slots, speeds }
}

fn job(n: u64, at: u64, work: u64) -> Job {
    let caller = TokenId::new("t").unwrap();
    let tries = vec![Try { work: Millis(work), ends: Ends::Well }];
    Job { at: Timestamp(at), namespace: namespace(), caller, submission: submission(n), tries }
}

fn fleet(workers: &[Worker]) -> Fleet {
    Fleet { workers: workers.to_vec(), rules: BTreeMap::new() }
}

fn played(workers: &[Worker], jobs: &[Job]) -> Vec<Fate> {
    played_by(&fleet(workers), jobs)
}

fn played_by(fleet: &Fleet, jobs: &[Job]) -> Vec<Fate> {
    let outcome = run(fleet, jobs, &mut |_| {}).unwrap();
    assert_eq!(outcome.refused, []);
    let mut fates = outcome.fates;
    fates.sort_by_key(|fate| fate.job);
    fates
}

#[test]
fn one_slot_takes_one_after_the_other_and_speed_divides_the_work() {
    let jobs: Vec<Job> = (0..3).map(|n| job(n, 1_000, 100)).collect();
    let fates = played(&[worker("a", 1, 2_000)], &jobs);
    let times: Vec<(u64, u64)> = fates.iter().map(|fate| (fate.waited.0, fate.took.0)).collect();
    assert_eq!(times, [(0, 50), (50, 100), (100, 150)]);
    assert!(fates.iter().all(|fate| fate.end == StatusKind::Succeeded && fate.agent.is_some()));
}

#[test]
fn what_an_agent_holds_beyond_what_it_works_on_waits_inside_it() {
    let jobs: Vec<Job> = (0..4).map(|n| job(n, 0, 100)).collect();
    let agent = Worker { at_once: 2, ..worker("a", 4, PLAIN_SPEED) };
    let times: Vec<u64> = played(&[agent], &jobs).iter().map(|fate| fate.waited.0).collect();
    assert_eq!(times, [0, 0, 100, 100]);
}

#[test]
fn urgent_work_passes_what_waits_and_arrivals_need_no_order() {
    let mut jobs: Vec<Job> = (0..3).map(|n| job(n, 0, 100)).collect();
    jobs.insert(0, job(9, 50, 100));
    jobs[0].submission.qos = Qos::Urgent;
    let fates = played(&[worker("a", 1, PLAIN_SPEED)], &jobs);
    assert_eq!(fates[0].waited, Millis(50), "it goes as soon as the one that works is done");
}

#[test]
fn a_failed_attempt_is_tried_again_by_the_rules_and_what_cannot_succeed_ends_as_a_dead_letter() {
    let ill = Try { work: Millis(10), ends: Ends::Ill(FailureClass::AgentCrash) };
    let mut jobs = vec![job(1, 0, 30), job(2, 0, 30)];
    jobs[0].tries.insert(0, ill);
    jobs[1].tries = vec![ill];
    let fates = played(&[worker("a", 1, PLAIN_SPEED), worker("b", 1, PLAIN_SPEED)], &jobs);
    assert_eq!((fates[0].end, fates[1].end), (StatusKind::Succeeded, StatusKind::DeadLetter));
    assert!(fates[0].took >= Millis(40), "{:?}", fates[0].took);
}

#[test]
fn a_task_that_nobody_can_take_ends_with_its_life() {
    let mut jobs = vec![job(1, 5, 30)];
    jobs[0].submission.capability = Capability::new("x.y").unwrap();
    jobs[0].submission.lifetime = Millis(700);
    let fates = played(&[worker("a", 1, PLAIN_SPEED)], &jobs);
    assert_eq!((fates[0].end, fates[0].agent.clone(), fates[0].took), (StatusKind::Expired, None, Millis(700)));
}

#[test]
fn the_same_work_comes_out_the_same_twice() {
    let jobs: Vec<Job> = (0..500).map(|n| job(n, n * 7 % 400, 20 + n * 13 % 90)).collect();
    let fleet = fleet(&[worker("a", 3, PLAIN_SPEED), worker("b", 2, 500)]);
    assert_eq!(run(&fleet, &jobs, &mut |_| {}), run(&fleet, &jobs, &mut |_| {}));
}

/// Fast and slow agents that both take more than they work on: in turns the slow ones fill up (R-RTE-3).
#[test]
fn r_rte_3_least_loaded_with_weights_serves_a_mixed_fleet_three_times_better_than_turns() {
    let workers = ["fast", "slow"].map(|name| {
        let speed = if name == "fast" { 4_000 } else { PLAIN_SPEED };
        Worker { at_once: 4, ..worker(name, 40, speed) }
    });
    let jobs: Vec<Job> = (0..2_000).map(|n| job(n, n * 25, 200 + n * 37 % 200)).collect();
    let p95 = |fleet: &Fleet| {
        let mut took: Vec<u64> = played_by(fleet, &jobs).iter().map(|fate| fate.took.0).collect();
        took.sort_unstable();
        took[1_900]
    };
    let in_turns = fleet(&workers);
    let weights = [("fast", 20), ("slow", 5)].map(|(name, weight)| (key(name).agent_id, weight)).into();
    let rules = RoutingRules { strategy: Some(Strategy::LeastLoaded), weights, ..RoutingRules::default() };
    let by_load =
        Fleet { rules: [((namespace(), jobs[0].submission.capability.clone()), rules)].into(), ..in_turns.clone() };
    let (turns, loaded) = (p95(&in_turns), p95(&by_load));
    assert!(turns >= 3 * loaded, "{turns} ms in turns, {loaded} ms by load");
}
