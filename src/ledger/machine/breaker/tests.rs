//! Given a breaker, when this happens, then these events (R-RTE-7, semantics 15).

use crate::ledger::ids::{AttemptNo, Capability, Digest, Incarnation};
use crate::ledger::machine::State;
use crate::ledger::machine::bounds::Bound;
use crate::ledger::machine::breaker::{
    Breaker, BreakerKey, BreakerWord, FailedAttempt, OPEN_FOR, OPENS_AFTER, Stand, Verdict, counts, verdict,
};
use crate::ledger::machine::command::{Command, Retryable, Word};
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::{EventBody, Started, TaskAttemptFailed, TaskSlow};
use crate::ledger::machine::task::spec::{Idempotence, Submission};
use crate::ledger::machine::task::status::{SlowCause, StatusKind};
use crate::ledger::machine::task::{Failure, FailureClass};
use crate::ledger::machine::world::{
    World, agent_id, capability, declaration, key as agent_key, offer, submission, task_id,
};
use crate::ledger::time::{Millis, Timestamp};

pub(super) fn breaker_key(agent: &str) -> BreakerKey {
    BreakerKey { agent: agent_key(agent), capability: capability() }
}

fn failed(n: u8) -> FailedAttempt {
    FailedAttempt { task: task_id(n), attempt: AttemptNo(1) }
}

pub(super) fn open(agent: &str) -> Command {
    let failures = (1..=7).map(|n| failed(100 + n)).collect();
    Command::OpenBreaker { agent: agent_id(agent), incarnation: Incarnation(1), capability: capability(), failures }
}

pub(super) fn set(agent: &str, word: BreakerWord) -> Command {
    Command::SetBreaker { agent: agent_id(agent), capability: capability(), word, reason: "seen".into() }
}

fn fire(agent: &str) -> Command {
    Command::Fire { subject: Subject::Breaker(breaker_key(agent)) }
}

pub(super) fn fail(class: FailureClass) -> Word {
    let failure = Failure { class, code: "no".into(), message: None };
    Word::Fail { failure, digest: Digest::default(), retryable: Retryable::No, retry_after: None }
}

fn breaker(world: &World) -> Option<&Breaker> {
    world.state.breaker(&breaker_key("a"))
}

fn stand(world: &World) -> Option<Stand> {
    breaker(world).map(|breaker| breaker.stand)
}

/// An agent whose breaker has just half-opened, and a task that waits.
fn half_open() -> World {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.ok(open("a"));
    world.wait(OPEN_FOR);
    assert_eq!(world.ok(fire("a")), ["breaker-half-opened"]);
    world
}

/// The same, with the first task handed over as its probe.
fn probed() -> World {
    let mut world = half_open();
    world.dispatch(1, "a");
    assert_eq!(stand(&world), Some(Stand::HalfOpen { probe: Some(failed(1)) }));
    world
}

#[test]
fn r_rte_7_an_open_breaker_lets_nothing_of_its_capability_through_for_ten_seconds_and_keeps_the_last_five_failures() {
    let mut world = World::new();
    let mut declared = declaration();
    declared.offers.push(offer(Capability::new("text.other").unwrap()));
    world.register_with("a", Some("i"), declared);
    assert_eq!(world.ok(open("a")), ["breaker-opened"]);
    let until = world.now.after(OPEN_FOR);
    let told = breaker(&world).unwrap();
    assert_eq!((told.stand, told.failures.len()), (Stand::Open { until: Some(until) }, OPENS_AFTER));
    assert_eq!(told.failures[0], failed(103), "the last five");
    assert_eq!(world.state.due().of(&Subject::Breaker(breaker_key("a"))), Some(until));
    world.submit(submission(1));
    let shut = Rejection::BreakerOpen { agent: agent_id("a"), capability: capability() };
    assert_eq!(world.try_hand(1, "a").1, Err(shut.clone()));
    assert!(shut.is_stale_view(), "a planner's stale view is no fault");
    let other = Submission { capability: Capability::new("text.other").unwrap(), ..submission(2) };
    world.submit(other);
    world.hand(2, "a");
    assert_eq!(world.ok(open("a")), [""; 0], "it is open already");
    world.wait(Millis(OPEN_FOR.0 - 1));
    assert_eq!(world.ok(fire("a")), [""; 0], "not yet");
}

#[test]
fn r_rte_7_a_half_open_breaker_lets_one_task_through_and_no_second_one_beside_it() {
    let mut world = probed();
    world.submit(submission(2));
    assert!(matches!(world.try_hand(2, "a").1, Err(Rejection::BreakerOpen { .. })));
    assert_eq!(world.complete(1, "a"), ["task-acknowledged", "task-succeeded", "breaker-closed"]);
    assert_eq!(stand(&world), None);
    world.hand(2, "a");
}

#[test]
fn r_rte_7_a_failed_probe_opens_it_for_as_long_again() {
    let mut world = probed();
    world.wait(Millis(700));
    let (events, _) = world.report(1, "a", fail(FailureClass::AgentCrash));
    assert_eq!(events, ["task-acknowledged", "task-failed", "breaker-opened"]);
    let told = breaker(&world).unwrap();
    assert_eq!(told.stand, Stand::Open { until: Some(world.now.after(OPEN_FOR)) });
    assert_eq!((told.failures.len(), told.failures[4]), (OPENS_AFTER, failed(1)));
}

#[test]
fn semantics_15_a_probe_that_fails_for_its_own_reasons_shows_that_its_agent_answers() {
    for class in FailureClass::ALL {
        let mut world = probed();
        let (events, _) = world.report(1, "a", fail(class));
        let last = if counts(class) { "breaker-opened" } else { "breaker-closed" };
        assert_eq!(events.last(), Some(&last), "{class:?}");
    }
    let counted: Vec<&str> = FailureClass::ALL.into_iter().filter(|c| counts(*c)).map(FailureClass::name).collect();
    assert_eq!(counted, ["network", "agent-overload", "agent-crash", "agent-timeout"]);
}

#[test]
fn a_probe_that_ends_without_a_word_of_its_agent_lets_the_next_one_try() {
    let cancel = Command::CancelTask { task: task_id(1), reason: None, fact: None };
    let lost = Command::MarkLost { agent: agent_id("a"), incarnation: Incarnation(1), silent: Millis::secs(45) };
    let cases: [(&str, Command); 2] = [("task-cancelled", cancel), ("agent-lost", lost)];
    for (first, command) in cases {
        for acked in [false, true] {
            let mut world = probed();
            if acked {
                world.report(1, "a", Word::Ack).1.unwrap();
            }
            let events = world.ok(command.clone());
            assert_eq!((events[0], events.last()), (first, Some(&"breaker-half-opened")), "acked: {acked}");
            assert_eq!(stand(&world), Some(Stand::HalfOpen { probe: None }));
        }
    }
    let mut world = probed();
    let (events, _) = world.report(1, "a", Word::Release { digest: Digest::default(), retry_after: None });
    assert_eq!(events, ["task-released", "task-queued", "breaker-half-opened"]);
    world.hand(1, "a");
    assert_eq!(
        stand(&world),
        Some(Stand::HalfOpen { probe: Some(FailedAttempt { attempt: AttemptNo(2), ..failed(1) }) })
    );
}

#[test]
fn semantics_9_a_probe_that_nobody_answers_within_the_reach_time_has_failed() {
    let mut world = probed();
    world.wait(submission(1).reach_timeout);
    let events = world.ok(Command::Fire { subject: Subject::Task(task_id(1)) });
    assert_eq!(events, ["task-attempt-failed", "task-queued", "breaker-opened"]);
}

#[test]
fn r_rte_7_a_waiting_callers_time_trips_no_breaker_and_a_slow_probe_is_not_waited_for() {
    for (sync_wait, last) in [(Some(Millis::secs(2)), "breaker-half-opened"), (None, "breaker-opened")] {
        let mut world = half_open();
        world.submit(Submission { sync_wait, work_timeout: Millis::secs(1), ..submission(1) });
        world.hand(1, "a");
        world.report(1, "a", Word::Ack).1.unwrap();
        world.wait(Millis::secs(1));
        let events = world.ok(Command::Fire { subject: Subject::Task(task_id(1)) });
        assert_eq!(events, ["task-slow", last]);
        assert_eq!(world.status(1), StatusKind::SlowReach);
        world.complete(1, "a"); // Its late word moves nothing.
        assert!(stand(&world).is_some());
    }
}

#[test]
fn a_new_process_a_goodbye_and_a_removal_forget_it_and_the_same_process_does_not() {
    let goodbye = Command::AgentOffline { agent: agent_id("a"), incarnation: Incarnation(1) };
    for ends in [goodbye, Command::DeregisterAgent { agent: agent_id("a") }] {
        let mut world = half_open();
        world.ok(ends);
        assert_eq!((stand(&world), world.state.due().len()), (None, 0));
    }
    let mut world = World::new();
    world.register("a", Some("i"));
    world.ok(open("a"));
    world.register("a", Some("i"));
    assert!(stand(&world).is_some());
    let mut other = declaration();
    other.offers = vec![offer(Capability::new("text.other").unwrap())];
    world.register_with("a", Some("i"), other);
    assert_eq!(stand(&world), None, "what it does not offer it does not fail");
    world.register("a", Some("i"));
    world.ok(open("a"));
    world.register("a", Some("j"));
    assert_eq!((stand(&world), world.state.due().len()), (None, 0));
    let stale = Rejection::AgentNotOpen { agent: agent_id("a") };
    assert_eq!(world.refused(open("a")), stale, "what the older process failed is not its successor's");
}

#[test]
fn an_operators_word_holds_until_another_and_saying_it_again_changes_nothing() {
    let mut world = World::new();
    world.register("a", Some("i"));
    assert_eq!(world.ok(set("a", BreakerWord::Automatic)), [""; 0]);
    assert_eq!(world.ok(set("a", BreakerWord::Open)), ["breaker-opened"]);
    assert_eq!(world.ok(set("a", BreakerWord::Open)), [""; 0]);
    assert_eq!((stand(&world), world.state.due().len()), (Some(Stand::Open { until: None }), 0));
    assert_eq!(&*breaker(&world).unwrap().forced.as_ref().unwrap().reason, "seen");
    world.register("a", None);
    world.submit(submission(1));
    assert!(world.try_hand(1, "a").1.is_err(), "it holds for the next process too");
    assert_eq!(world.ok(set("a", BreakerWord::Closed)), ["breaker-closed"]);
    assert_eq!(world.ok(set("a", BreakerWord::Closed)), [""; 0]);
    world.hand(1, "a");
    let counted = Command::OpenBreaker {
        agent: agent_id("a"),
        incarnation: Incarnation(2),
        capability: capability(),
        failures: vec![failed(1)],
    };
    assert_eq!(world.ok(counted), [""; 0], "nothing opens what is held closed");
    assert_eq!(world.ok(set("a", BreakerWord::Automatic)), ["breaker-closed"]);
    assert_eq!(stand(&world), None);
    world.ok(set("a", BreakerWord::Open));
    assert_eq!(world.ok(set("a", BreakerWord::Automatic)), ["breaker-half-opened"], "one tries it out first");
    assert_eq!(stand(&world), Some(Stand::HalfOpen { probe: None }));
    assert_eq!(world.ok(set("a", BreakerWord::Closed)), ["breaker-closed"]);
}

#[test]
fn an_operators_word_on_what_is_not_there_is_refused_and_so_is_one_too_many() {
    let mut world = World::new();
    assert_eq!(world.refused(set("a", BreakerWord::Open)), Rejection::AgentUnknown);
    let other = |n: u32| Capability::new(&format!("text.c{n}")).unwrap();
    let word = |capability| Command::SetBreaker {
        agent: agent_id("a"),
        capability,
        word: BreakerWord::Open,
        reason: "seen".into(),
    };
    let offering = |range: std::ops::Range<u32>| {
        let mut declared = declaration();
        declared.offers = range.map(|n| offer(other(n))).collect();
        declared
    };
    world.register_with("a", Some("i"), offering(0..256));
    let strange = Rejection::CapabilityNotOffered { capability: capability() };
    assert_eq!(world.refused(set("a", BreakerWord::Open)), strange);
    (0..256).for_each(|n| drop(world.ok(word(other(n)))));
    world.register_with("a", Some("i"), offering(300..301));
    assert_eq!(world.refused(word(other(300))), Rejection::BoundReached { bound: Bound::HeldBreakers });
    let back = |capability| Command::SetBreaker {
        agent: agent_id("a"),
        capability,
        word: BreakerWord::Automatic,
        reason: "gone".into(),
    };
    world.ok(back(other(0)));
    world.ok(word(other(300)));
}

#[test]
fn a_breaker_survives_a_snapshot_with_its_timer_and_changes_the_digest() {
    let mut world = World::new();
    world.register("a", Some("i"));
    let before = world.state.digest();
    world.ok(open("a"));
    let again = State::from_image(world.state.to_image());
    assert_eq!(again, world.state);
    assert_ne!(again.digest(), before);
    assert_eq!(again.due().next(), Some(world.now.after(OPEN_FOR)));
}

#[test]
fn an_attempt_that_the_hub_gave_up_for_a_class_of_its_own_says_nothing_of_its_agent() {
    let spec = submission(1);
    let hubs = |class, code: &str| {
        let failure = Failure { class, code: code.into(), message: None };
        let (task, attempt) = (task_id(1), AttemptNo(1));
        verdict(&TaskAttemptFailed { task, attempt, failure, started: Started::Maybe, outcome: None }.into(), &spec)
    };
    assert_eq!(hubs(FailureClass::Business, "x"), None);
    assert_eq!(hubs(FailureClass::Network, "connect"), Some(Verdict::Failed));
    let waits = Submission { sync_wait: Some(Millis::secs(1)), idempotence: Idempotence::Declared, ..submission(1) };
    let slow = |cause| -> EventBody {
        TaskSlow { task: task_id(1), attempt: AttemptNo(1), cause, act_at: None::<Timestamp> }.into()
    };
    assert_eq!(verdict(&slow(SlowCause::Overdue), &waits), None);
    assert_eq!(verdict(&slow(SlowCause::Ambiguous), &waits), Some(Verdict::Failed));
}
