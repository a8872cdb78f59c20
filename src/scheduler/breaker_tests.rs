//! Breakers over a real state: what opens one, who gets the work meanwhile, and how it closes (R-RTE-7, semantics 9, 15).

use crate::ledger::ids::{Capability, ReachId};
use crate::ledger::machine::breaker::{BreakerKey, BreakerWord, OPEN_FOR, OPENS_AFTER, Stand};
use crate::ledger::machine::command::{AgentBusy, Command, Proposal, PushTrouble};
use crate::ledger::machine::task::spec::Submission;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{Failure, FailureClass};
use crate::ledger::time::Millis;
use crate::scheduler::routing::candidate::Reason;
use crate::scheduler::world::{Dispatch, World, declaration, key, namespace, offer, pull};

fn stand(world: &World, agent: &str) -> Option<Stand> {
    let key = BreakerKey { agent: key(agent), capability: Capability::new("a.b").unwrap() };
    world.state.breaker(&key).map(|breaker| breaker.stand)
}

fn agents(dispatched: &[Dispatch]) -> Vec<&str> {
    dispatched.iter().map(|dispatch| dispatch.agent.as_str()).collect()
}

/// An operator's word about an agent's breaker.
fn say(world: &mut World, agent: &str, word: BreakerWord) {
    let (agent, capability) = (key(agent).agent_id, Capability::new("a.b").unwrap());
    let word = Command::SetBreaker { agent, capability, word, reason: "a test".into() };
    world.propose(&Proposal::by_hub(Some(namespace()), word)).0.unwrap();
}

/// Lets the agent that works alone fail so many of that class, one after the other.
fn fail(world: &mut World, n: usize, class: FailureClass) {
    for _ in 0..n {
        let task = world.submit(|spec| spec.retry.max_retries = 0);
        let dispatched = world.cycle();
        assert_eq!(dispatched.len(), 1, "{class:?}: {dispatched:?}");
        world.fail_as(task, class);
    }
    world.cycle();
}

fn tripped() -> World {
    let mut world = World::new();
    world.register("a", declaration(20));
    fail(&mut world, OPENS_AFTER, FailureClass::AgentCrash);
    let until = Some(world.now.after(OPEN_FOR));
    assert_eq!(stand(&world, "a"), Some(Stand::Open { until }));
    world
}

#[test]
fn semantics_15_five_failures_in_a_row_open_a_breaker_and_only_of_the_classes_that_count() {
    for class in FailureClass::ALL {
        let mut world = World::new();
        world.register("a", declaration(3));
        fail(&mut world, OPENS_AFTER - 1, class);
        assert_eq!(stand(&world, "a"), None, "{class:?}");
        fail(&mut world, 1, class);
        let counts = crate::ledger::machine::breaker::counts(class);
        assert_eq!(stand(&world, "a").is_some(), counts, "{class:?}");
        assert_eq!(world.refusals, []);
    }
}

#[test]
fn semantics_15_a_success_begins_the_count_anew_and_a_business_failure_leaves_it_as_it_is() {
    let mut world = World::new();
    world.register("a", declaration(3));
    fail(&mut world, 4, FailureClass::Network);
    let good = world.submit(|_| {});
    world.cycle();
    world.complete(good);
    fail(&mut world, 4, FailureClass::Network);
    fail(&mut world, 3, FailureClass::Business);
    assert_eq!(stand(&world, "a"), None);
    fail(&mut world, 1, FailureClass::AgentTimeout);
    assert!(stand(&world, "a").is_some());
}

#[test]
fn r_rte_7_while_it_is_open_the_capability_goes_to_others_or_waits_and_the_agents_other_capabilities_go_on() {
    let mut world = World::new();
    let mut both = declaration(20);
    both.offers.push(offer("c.d"));
    world.register("a", both);
    fail(&mut world, OPENS_AFTER, FailureClass::AgentOverload);
    let waiting = world.submit(|_| {});
    let other = world.submit(|spec| spec.capability = Capability::new("c.d").unwrap());
    let dispatched = world.cycle();
    assert_eq!((dispatched.len(), dispatched[0].task), (1, other));
    let report = world.scheduler.explain_task(&world.state, world.state.task(waiting).unwrap());
    assert_eq!((report.winner, report.excluded[0].reason), (None, Reason::BreakerOpen));
    assert!(report.excluded[0].detail.contains("until"), "{}", report.excluded[0].detail);
    world.register("b", declaration(1));
    let dispatched = world.cycle();
    assert_eq!(agents(&dispatched), ["b"]);
    let told = &dispatched[0].event.explanation.exclusions;
    assert_eq!((&*told[0].reason, told[0].samples[0].as_str()), ("breaker-open", "a"));
}

#[test]
fn r_rte_7_when_it_half_opens_one_waiting_task_goes_and_its_success_lets_the_others_follow() {
    let mut world = tripped();
    world.submit_some(6, |_| {});
    assert_eq!(world.cycle(), []);
    world.pass(OPEN_FOR.0 - 1);
    assert_eq!(world.cycle(), []);
    world.pass(1);
    let probe = world.cycle_by(64);
    assert_eq!(agents(&probe), ["a"], "one, whatever room there is");
    let next = world.state.tasks().values().find(|task| task.status.kind() == StatusKind::Queued).unwrap();
    let report = world.scheduler.explain_task(&world.state, next);
    assert_eq!(report.excluded[0].reason, Reason::BreakerProbing);
    world.ack(probe[0].task);
    assert_eq!(world.cycle(), [], "that it begins says nothing yet");
    world.complete(probe[0].task);
    assert_eq!(stand(&world, "a"), None);
    assert_eq!(world.cycle().len(), 5);
    assert_eq!(world.refusals, []);
}

#[test]
fn r_rte_7_a_probe_that_fails_shuts_it_for_ten_seconds_more_and_one_that_is_called_off_gives_way_to_the_next() {
    let mut world = tripped();
    let tasks: Vec<ReachId> = (0..3).map(|_| world.submit(|spec| spec.retry.max_retries = 0)).collect();
    world.pass(OPEN_FOR.0);
    assert_eq!(world.cycle()[0].task, tasks[0]);
    world.fail_as(tasks[0], FailureClass::AgentCrash);
    assert_eq!(world.cycle(), []);
    world.beat("a");
    world.pass(OPEN_FOR.0);
    assert_eq!(world.cycle()[0].task, tasks[1]);
    let called_off = Command::CancelTask { task: tasks[1], reason: None, fact: None };
    world.propose(&Proposal::by_hub(Some(namespace()), called_off)).0.unwrap();
    assert_eq!(world.cycle()[0].task, tasks[2]);
    assert_eq!(world.refusals, []);
}

#[test]
fn r_rte_7_an_open_breaker_outlives_a_start_and_the_count_does_not() {
    let mut world = tripped();
    world.restart();
    let waiting = world.submit(|_| {});
    assert_eq!(world.cycle(), []);
    world.pass(OPEN_FOR.0);
    world.restart();
    world.pass(1_000);
    assert_eq!(world.cycle()[0].task, waiting);
    world.complete(waiting);
    fail(&mut world, OPENS_AFTER - 1, FailureClass::AgentCrash);
    world.restart();
    fail(&mut world, 1, FailureClass::AgentCrash);
    assert_eq!(stand(&world, "a"), None, "four of before and one");
}

#[test]
fn semantics_9_reach_timeouts_count_and_those_of_a_pull_agent_open_its_breaker() {
    let mut world = World::new();
    world.register("a", pull(20));
    world.claim("a", 20);
    let reach_timeout = Millis(1_000);
    world.submit_some(OPENS_AFTER, |spec| (spec.reach_timeout, spec.work_timeout) = (reach_timeout, Millis::secs(60)));
    assert_eq!(world.cycle().len(), OPENS_AFTER);
    world.pass(reach_timeout.0);
    assert_eq!(world.cycle(), [], "they came back and find it shut");
    assert!(matches!(stand(&world, "a"), Some(Stand::Open { .. })));
}

#[test]
fn semantics_8_what_was_unanswered_when_the_hub_started_or_its_agent_was_lost_does_not_count() {
    for lost in [false, true] {
        let mut world = World::new();
        world.register("a", declaration(20));
        world.submit_some(OPENS_AFTER, |_| {});
        let sent = world.cycle();
        assert_eq!(sent.len(), OPENS_AFTER);
        if lost {
            world.lose("a");
        } else {
            world.restart();
            for Dispatch { task, event, .. } in &sent {
                let resolved = Command::ResolvePushAtBoot { task: *task, attempt: event.attempt };
                world.propose(&Proposal::by_hub(Some(namespace()), resolved)).0.unwrap();
            }
        }
        world.cycle();
        assert_eq!(stand(&world, "a"), None, "lost: {lost}");
    }
}

#[test]
fn pushes_that_could_not_be_delivered_count_once_each() {
    let mut world = World::new();
    world.register("a", declaration(20));
    world.submit_some(OPENS_AFTER, |_| {});
    for Dispatch { task, event, .. } in world.cycle() {
        assert_eq!(stand(&world, "a"), None);
        let failure = Failure { class: FailureClass::Network, code: "connect".into(), message: None };
        let trouble = PushTrouble::NeverStarted { failure, retry_after: Some(Millis::secs(60)), busy: AgentBusy::No };
        let failed = Command::PushFailed { task, attempt: event.attempt, trouble };
        world.propose(&Proposal::by_hub(Some(namespace()), failed)).0.unwrap();
        world.cycle();
    }
    assert!(stand(&world, "a").is_some());
}

#[test]
fn r_rte_7_work_over_a_waiting_callers_time_does_not_count_and_work_over_its_own_does() {
    for (sync_wait, opens) in [(Some(Millis::secs(2)), false), (None, true)] {
        let mut world = World::new();
        world.register("a", declaration(20));
        let slow = |spec: &mut Submission| (spec.sync_wait, spec.work_timeout) = (sync_wait, Millis::secs(1));
        world.submit_some(OPENS_AFTER, slow);
        for dispatch in world.cycle() {
            world.ack(dispatch.task);
        }
        world.pass(2_000);
        world.cycle();
        assert_eq!(stand(&world, "a").is_some(), opens, "{sync_wait:?}");
    }
}

#[test]
fn a_task_asked_for_by_name_and_one_of_a_session_go_elsewhere_while_the_breaker_is_open() {
    let mut world = tripped();
    world.register("b", declaration(20));
    let asked = world.submit(|spec| spec.preferred_agent = Some(key("a").agent_id));
    assert_eq!(agents(&world.cycle()), ["b"]);
    world.complete(asked);
    let in_session = |spec: &mut Submission| spec.session = Some("s-1".parse().unwrap());
    world.submit(in_session);
    assert_eq!(agents(&world.cycle()), ["b"]);
    say(&mut world, "b", BreakerWord::Open);
    world.register("c", declaration(1));
    world.submit(in_session);
    assert_eq!(agents(&world.cycle()), ["c"], "the session moves");
}

#[test]
fn a_new_process_begins_with_a_closed_breaker_and_no_count() {
    let mut world = tripped();
    world.submit(|_| {});
    assert_eq!(world.cycle(), []);
    world.register("a", declaration(20));
    assert_eq!(agents(&world.cycle()), ["a"]);
    let mut world = World::new();
    world.register("a", declaration(20));
    fail(&mut world, OPENS_AFTER - 1, FailureClass::AgentCrash);
    world.register("a", declaration(20));
    fail(&mut world, 1, FailureClass::AgentCrash);
    assert_eq!(stand(&world, "a"), None);
}

#[test]
fn a_new_process_does_not_pay_for_the_one_before_whose_breaker_was_about_to_open() {
    let mut world = World::new();
    world.register("a", declaration(20));
    let tasks: Vec<ReachId> = (0..OPENS_AFTER).map(|_| world.submit(|spec| spec.retry.max_retries = 0)).collect();
    assert_eq!(world.cycle().len(), tasks.len());
    for task in tasks {
        world.fail_as(task, FailureClass::AgentCrash);
    }
    world.register("a", declaration(20));
    world.cycle();
    assert_eq!(stand(&world, "a"), None);
}

#[test]
fn r_rte_7_an_operators_word_begins_the_count_anew() {
    for first in [BreakerWord::Closed, BreakerWord::Open] {
        let mut world = World::new();
        world.register("a", declaration(20));
        fail(&mut world, OPENS_AFTER - 1, FailureClass::Network);
        say(&mut world, "a", first);
        world.cycle();
        say(&mut world, "a", BreakerWord::Automatic);
        if first == BreakerWord::Open {
            fail(&mut world, 1, FailureClass::Business);
        }
        fail(&mut world, OPENS_AFTER - 1, FailureClass::Network);
        assert_eq!(stand(&world, "a"), None, "{first:?}");
        fail(&mut world, 1, FailureClass::Network);
        assert!(stand(&world, "a").is_some(), "{first:?}");
    }
}

#[test]
fn r_rte_7_a_success_that_comes_before_the_breaker_could_open_keeps_it_closed() {
    let mut world = World::new();
    world.register("a", declaration(20));
    let tasks: Vec<ReachId> = (0..=OPENS_AFTER).map(|_| world.submit(|spec| spec.retry.max_retries = 0)).collect();
    assert_eq!(world.cycle().len(), tasks.len());
    for task in &tasks[1..] {
        world.fail_as(*task, FailureClass::Network);
    }
    world.complete(tasks[0]);
    world.cycle();
    assert_eq!(stand(&world, "a"), None);
    fail(&mut world, OPENS_AFTER - 1, FailureClass::Network);
    assert_eq!(stand(&world, "a"), None);
}
