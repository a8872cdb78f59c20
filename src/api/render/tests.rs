//! What is shown and what is not.

use std::sync::Arc;

use super::*;
use crate::ledger::ids::{AgentId, AttemptNo, Digest, Incarnation, Namespace, Seq};
use crate::ledger::machine::event::{TaskFailed, TaskOverdue};
use crate::ledger::machine::task::FailureClass;
use crate::ledger::time::Timestamp;

fn stored(body: impl Into<EventBody>) -> StoredEvent {
    let event = Event {
        seq: Seq(7),
        at: Timestamp(1_767_225_600_000),
        namespace: Some(Namespace::new("dev").unwrap()),
        actor: Actor::Agent { agent_id: AgentId::new("w-1").unwrap(), incarnation: Incarnation(2) },
        session: None,
        batch: None,
        trace: None,
        body: body.into(),
    };
    StoredEvent { event, frame: Arc::from(&b"frame"[..]) }
}

fn failed(message: &Body) -> StoredEvent {
    let task = ReachId([1; 16]);
    let failure = Failure {
        class: FailureClass::Business,
        code: "no-such-city".into(),
        message: Some(BodyRef { digest: message.digest(), len: 5 }),
    };
    stored(TaskFailed { task, attempt: AttemptNo(3), incarnation: Incarnation(2), failure, outcome: Digest::default() })
}

#[test]
fn semantics_27_a_message_is_shown_while_its_body_is_there_and_only_if_it_is_the_one_named() {
    let message = Body { salt: [1; 16], bytes: Arc::from(&b"hello"[..]) };
    let event = failed(&message);
    let key = wanted(&event.event).unwrap();
    assert_eq!(key, body_key(ReachId([1; 16]), BodyKind::Error, 3));
    let text =
        |bodies: &Bodies| serde_json::to_value(super::event(&event, bodies)).unwrap()["failure"]["message"].clone();
    assert_eq!(text(&Bodies::new([(key.clone(), Some(message.clone()))])), "hello");
    assert_eq!(text(&Bodies::new([(key.clone(), None)])), Value::Null);
    let other = Body { salt: [2; 16], ..message };
    assert_eq!(text(&Bodies::new([(key, Some(other))])), Value::Null, "an erased body replaced by another");
}

#[test]
fn an_event_begins_with_its_place() {
    let event = stored(TaskOverdue { task: ReachId([1; 16]) });
    let fields = super::event(&event, &Bodies::default());
    let json = serde_json::to_string(&fields).unwrap();
    assert!(json.starts_with(r#"{"seq":7,"at":"2026-01-01T00:00:00.000Z","kind":"task-overdue","actor":"#), "{json}");
    assert!(json.contains(&format!(r#""hash":"{}""#, event.hash())));
}

#[test]
fn semantics_35_a_live_type_is_the_kind_with_its_first_hyphen_as_a_dot() {
    assert_eq!(live_type(EventKind::TaskDeadLettered), "task.dead-lettered");
    assert_eq!(live_type(EventKind::AgentRegistered), "agent.online");
    assert_eq!(live_type(EventKind::AgentHealthy), "agent.online");
    assert_eq!(live_type(EventKind::AgentLeft), "agent.offline");
    assert_eq!(live_type(EventKind::AgentLost), "agent.lost");
}

#[test]
fn an_amount_of_usage_is_kept_to_the_millionth_and_shown_as_it_came() {
    for (text, kept) in
        [("0.02", 20_000), ("1200", 1_200_000_000), ("0.0000004", 0), ("1000000000000", 1_000_000_000_000_000_000)]
    {
        assert_eq!(millionths(&text.parse().unwrap()), Some(kept), "{text}");
    }
    for text in ["-1", "1000000000001", "1e300"] {
        assert_eq!(millionths(&text.parse().unwrap()), None, "{text}");
    }
    assert_eq!(amount(20_000).to_string(), "0.02");
    assert_eq!(amount(1_200_000_000).to_string(), "1200");
}
