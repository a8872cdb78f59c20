use std::sync::Arc;

use super::*;
use crate::ledger::ids::{AgentId, AttemptNo, CallbackId, Incarnation, LeaseDigest, ReplayId};
use crate::ledger::machine::callback::CallbackSubject;
use crate::ledger::machine::event::*;
use crate::ledger::machine::policy::CapabilityRules;
use crate::ledger::machine::task::resolve::GIVEN_UP;
use crate::ledger::machine::task::spec::SlowPolicy;
use crate::ledger::machine::task::status::{Acked, Delivery, Lease, Status};
use crate::ledger::machine::task::{Failure, FailureClass};
use crate::ledger::time::Millis;
use crate::scheduler::outbound::samples;

const ID: ReachId = ReachId([7; 16]);

fn event(body: impl Into<EventBody>) -> Event {
    Event {
        seq: Seq(9),
        at: Timestamp(1_000),
        namespace: Some(samples::namespace()),
        actor: Actor::Hub,
        session: None,
        batch: None,
        trace: None,
        body: body.into(),
    }
}

fn lease() -> Lease {
    Lease {
        attempt: AttemptNo(1),
        agent: AgentId::new("w-1").expect("an id"),
        incarnation: Incarnation(1),
        digest: LeaseDigest::default(),
        delivery: Delivery::Pull,
    }
}

fn task(status: Status, orphan: OrphanPolicy) -> Task {
    let mut task = samples::task(ID);
    Arc::make_mut(&mut task.spec).orphan = orphan;
    Task { status, ..task }
}

fn orphan(policy: OrphanPolicy) -> Task {
    task(Status::Orphaned { lease: lease(), cause: OrphanCause::AgentLost, since: Timestamp(1) }, policy)
}

fn slow() -> Task {
    let status = Status::SlowReach { lease: lease(), acked: Acked::Yes, cause: SlowCause::Overdue, act_at: None };
    task(status, OrphanPolicy::Hold)
}

fn judged(event: &Event, task: Option<&Task>) -> Option<Alert> {
    classify(event, Beside { task, before: None, rules: &RulesByCapability::new() })
}

fn orphaned() -> Event {
    event(TaskOrphaned { task: ID, attempt: AttemptNo(1), cause: OrphanCause::AgentLost })
}

fn over_time(act_at: Option<Timestamp>) -> Event {
    event(TaskSlow { task: ID, attempt: AttemptNo(1), cause: SlowCause::Overdue, act_at })
}

fn kind(alert: Option<Alert>) -> Option<Kind> {
    alert.map(|alert| alert.group.kind)
}

#[test]
fn r_sch_6_every_dead_letter_is_an_alert_of_its_capability_with_its_reason() {
    let failure = Failure { class: FailureClass::Network, code: "retries-exhausted".into(), message: None };
    let dead = event(TaskDeadLettered { task: ID, failure, attempts: 3 });
    let alert = judged(&dead, Some(&task(Status::DeadLetter, OrphanPolicy::Replay))).expect("an alert");
    assert_eq!((alert.group.kind, &*alert.why, alert.seq), (Kind::DeadLetter, "retries-exhausted (network)", Seq(9)));
    assert_eq!(alert.group.capability.map(|capability| capability.to_string()).as_deref(), Some("weather.forecast"));
    assert_eq!(alert.subject, ID.to_string());
    assert_eq!(kind(judged(&dead, None)), Some(Kind::DeadLetter), "and one whose task can't be read");
    let failure = Failure { class: FailureClass::AgentCrash, code: GIVEN_UP.into(), message: None };
    let given_up = event(TaskDeadLettered { task: ID, failure, attempts: 1 });
    assert_eq!(judged(&given_up, None), None, "an operator gave it up");
}

#[test]
fn a_held_orphan_is_an_alert_while_it_waits_and_one_that_is_replayed_is_none() {
    assert_eq!(kind(judged(&orphaned(), Some(&orphan(OrphanPolicy::Hold)))), Some(Kind::OrphanHeld));
    assert_eq!(judged(&orphaned(), Some(&orphan(OrphanPolicy::Replay))), None);
    let decided = task(Status::Queued { since: Timestamp(2), wait_until: None }, OrphanPolicy::Hold);
    assert_eq!(judged(&orphaned(), Some(&decided)), None, "somebody has given the word");
    assert_eq!(judged(&orphaned(), None), None);
    let why = HeldWhy::Superseded { by: ID };
    let superseded = event(TaskReplayHeld { task: ID, attempt: AttemptNo(1), why });
    assert_eq!(wants_task(&superseded.body), Some(ID));
    assert_eq!(kind(judged(&superseded, Some(&orphan(OrphanPolicy::Replay)))), Some(Kind::OrphanHeld));
    assert_eq!(judged(&superseded, Some(&decided)), None);
}

#[test]
fn a_lost_agents_orphans_are_counted_by_what_becomes_of_them() {
    assert_eq!(left_behind(&orphaned(), Some(&orphan(OrphanPolicy::Hold))), Some(Left::Held));
    assert_eq!(left_behind(&orphaned(), Some(&orphan(OrphanPolicy::Replay))), Some(Left::Replayed));
    let drained = event(TaskOrphaned { task: ID, attempt: AttemptNo(1), cause: OrphanCause::AgentDrained });
    assert_eq!(left_behind(&drained, Some(&orphan(OrphanPolicy::Hold))), None);
}

#[test]
fn a_slow_task_is_an_alert_for_its_owner_while_it_waits_for_somebody() {
    let key = (samples::namespace(), Capability::new("weather.forecast").expect("a name"));
    let rules = CapabilityRules { slow_reach: SlowPolicy::Wait, owner: Some("team-weather".into()) };
    let rules = RulesByCapability::from([(key, rules)]);
    let beside = |task| Beside { task, before: None, rules: &rules };
    let slow = slow();
    let alert = classify(&over_time(None), beside(Some(&slow))).expect("an alert");
    assert_eq!((alert.group.kind, alert.owner.as_deref()), (Kind::TaskSlow, Some("team-weather")));
    assert_eq!(judged(&over_time(Some(Timestamp(5))), Some(&slow)), None, "its policy acts");
    let done = task(Status::Succeeded, OrphanPolicy::Hold);
    assert_eq!(classify(&over_time(None), beside(Some(&done))), None, "its outcome came after all");
}

#[test]
fn r_obs_5_lost_agents_and_callbacks_in_vain_are_alerts() {
    let lost = AgentLost { agent: lease().agent, incarnation: Incarnation(1), silent: Millis(4_500) };
    let alert = judged(&event(lost), None).expect("an alert");
    assert_eq!((alert.group.kind, &*alert.subject), (Kind::AgentLost, "w-1"));
    assert!(alert.why.contains("4500 ms"), "{}", alert.why);
    let (callback, subject) = (CallbackId([3; 16]), CallbackSubject::Task(ID));
    let exhausted = event(CallbackExhausted { callback, subject, attempts: 40 });
    assert_eq!(kind(judged(&exhausted, None)), Some(Kind::CallbackExhausted));
    assert_eq!(kind(judged(&event(CallbackBlocked { callback, subject }), None)), Some(Kind::CallbackBlocked));
    assert_eq!(judged(&event(CallbackGone { callback, subject }), None), None, "the receiver wants no more");
}

#[test]
fn a_plan_that_the_hub_paused_is_an_alert_and_one_that_an_operator_paused_is_none() {
    let paused = ReplayPaused { replay: ReplayId([4; 16]), reason: Some("its list can't be read".into()) };
    let alert = judged(&event(paused.clone()), None).expect("an alert");
    assert_eq!((alert.group.kind, &*alert.why), (Kind::ReplayPaused, "its list can't be read"));
    let actor = Actor::Agent { agent_id: lease().agent, incarnation: Incarnation(1) };
    assert_eq!(judged(&Event { actor, ..event(paused) }, None), None);
}

#[test]
fn a_start_without_a_stop_before_is_an_alert() {
    let started = event(HubStarted { boot: crate::ledger::ids::Boot(2), wall_offset: 0, version: "1".into() });
    let after = |before| kind(classify(&started, Beside { task: None, before, rules: &RulesByCapability::new() }));
    assert_eq!(after(Some(EventKind::TaskSubmitted)), Some(Kind::HubRestarted));
    assert_eq!(after(Some(EventKind::HubStopped)), None);
    assert_eq!(after(Some(EventKind::LineageStarted)), None, "the very first start");
    assert_eq!(after(None), None, "nobody knows");
}

#[test]
fn r_obs_5_a_breaker_that_opens_for_failures_is_an_alert_of_its_capability_and_each_failed_probe_is_none() {
    let capability = Capability::new("a.b").expect("a capability");
    let opened = |why| {
        let (agent, incarnation) = (AgentId::new("w-1").expect("an id"), Incarnation(1));
        let (until, failures) = (Some(Timestamp(11_000)), Vec::new());
        event(BreakerOpened { agent, incarnation, capability: capability.clone(), until, failures, why })
    };
    let rules = CapabilityRules { slow_reach: SlowPolicy::Wait, owner: Some("desk".into()) };
    let rules = RulesByCapability::from([((samples::namespace(), capability.clone()), rules)]);
    let beside = Beside { task: None, before: None, rules: &rules };
    let alert = classify(&opened(OpenedWhy::Failures), beside).expect("an alert");
    assert_eq!(
        (alert.group.kind, alert.group.capability, &*alert.subject),
        (Kind::BreakerOpen, Some(capability.clone()), "w-1")
    );
    assert_eq!(alert.owner.as_deref(), Some("desk"));
    assert_eq!(kind(judged(&opened(OpenedWhy::ProbeFailed), None)), None);
    assert_eq!(kind(judged(&opened(OpenedWhy::Operator { reason: "seen".into() }), None)), None);
}

#[test]
fn every_kind_says_what_to_do_with_its_namespace_and_its_first() {
    for kind in Kind::ALL {
        let group = Group { kind, namespace: Some(samples::namespace()), capability: Capability::new("a.b").ok() };
        let lines = what_to_do(&group, "THE-FIRST");
        assert!(!lines.is_empty());
        assert!(lines.iter().all(|line| line.starts_with("reach ") && line.ends_with(" --namespace dev")), "{lines:?}");
    }
    let names: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
}
