//! Bodies in, submissions or faults out.

use super::*;
use crate::api::error::ApiError;
use crate::api::extract::parse;

const NOW: Timestamp = Timestamp(1_767_225_600_000);

fn of(json: &str) -> Result<Submission, Unfit> {
    let body: TaskBody<'_> = parse(json.as_bytes()).expect("the shape is right");
    let subject = TokenId::new("caller").unwrap();
    // Ledger time is an hour behind the wall clock.
    let to_ledger = |wall: Timestamp| Timestamp(wall.0 - 3_600_000);
    let setting = Setting {
        reach_id: ReachId([9; 16]),
        subject: &subject,
        now: NOW,
        to_ledger: &to_ledger,
        sync_wait: Some(Millis::secs(30)),
        batch: None,
        routed: None,
    };
    let made = submission(&body, &setting)?;
    lies_ahead(&made, NOW).map(|()| made)
}

fn pointers(json: &str) -> Vec<String> {
    match of(json) {
        Err(Unfit::Invalid(faults)) => faults.into_iter().map(|fault| fault.pointer).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_example_of_the_design_is_a_submission_with_every_field() {
    let made = of(r#"{"capability": "weather.forecast", "payload": {"city": "成都", "days": 3}, "idempotent": true, "qos": "normal",
        "lifetime_ms": 86400000, "reach_timeout_ms": 3000, "work_timeout_ms": 60000,
        "retry": {"max_retries": 3, "base_ms": 2000, "factor": 2.0, "cap_ms": 300000},
        "session_id": "trip-42", "context_path": "s3://ctx/42", "labels": {"intent": "forecast", "line": "travel"},
        "callback": {"url": "https://caller.example/hook", "events": ["terminal"], "secret_ref": "travel"}}"#)
    .unwrap();
    assert_eq!(made.capability.as_str(), "weather.forecast");
    assert_eq!(made.retry, RetryPolicy::default());
    assert_eq!(made.labels, vec![("intent".into(), "forecast".into()), ("line".into(), "travel".into())]);
    assert_eq!(made.session.map(|s| s.to_string()).as_deref(), Some("trip-42"));
    assert_eq!(made.sync_wait, None, "it names its own work timeout");
    assert_eq!(made.orphan, OrphanPolicy::Replay);
    assert_eq!(&*made.callback.unwrap().secret_ref, "travel");
}

#[test]
fn semantics_34_every_other_field_is_taken() {
    let made = of(r#"{"domain":"a","task_type":"b","deadline":"2026-01-02T00:00:00Z","not_before":"2026-01-01T12:00:00+08:00",
        "on_wait":"fail","slow_reach":{"policy":"fail","after_ms":5},"orphan":"hold","retry_on":["overdue","reported","overdue"],
        "requires":{"tools":["y","x","y"],"context_window":8,"languages":["zh"],"region":"cn","version":">=2"},
        "preferred_agent":"w-1","parent":{"reach_id":"reach_01h455vb4pex5vsknk084sn02q"},"fairness_key":"team-a",
        "cost_budget":5,"sensitivity":"internal","payload_ref":"s3://p","wait_for_agent":true,"idempotency_key":"k"}"#)
    .unwrap();
    assert_eq!(made.capability.as_str(), "a.b");
    assert_eq!(made.deadline, Some(Timestamp(NOW.0 + 86_400_000 - 3_600_000)), "in ledger time");
    assert_eq!(made.not_before, Some(Timestamp(NOW.0 + 4 * 3_600_000 - 3_600_000)));
    assert_eq!(made.retry.retry_on, vec![RetryCause::Reported, RetryCause::Overdue]);
    assert_eq!(made.slow_reach, SlowPolicy::Fail { after: Millis(5) });
    assert_eq!(made.requires.tools, vec![Text::from("x"), Text::from("y")], "sorted, so equal needs share a lane");
    assert_eq!((made.on_wait, made.orphan, made.absent_agents), (OnWait::Fail, OrphanPolicy::Hold, AbsentAgents::Wait));
    assert_eq!(made.sync_wait, Some(Millis::secs(30)));
}

#[test]
fn semantics_12_urgent_tasks_fail_when_their_wait_is_over_and_others_keep_waiting() {
    assert_eq!(of(r#"{"capability":"a.b","qos":"urgent"}"#).unwrap().on_wait, OnWait::Fail);
    assert_eq!(of(r#"{"capability":"a.b","qos":"background"}"#).unwrap().on_wait, OnWait::Keep);
    assert_eq!(of(r#"{"capability":"a.b"}"#).unwrap().orphan, OrphanPolicy::Hold, "not declared idempotent");
}

#[test]
fn every_bound_is_told_with_its_pointer_and_all_at_once() {
    let labels: Vec<String> = (0..32).map(|n| format!("\"l{n}\":\"v\"")).collect();
    assert_eq!(of(&format!(r#"{{"capability":"a.b","labels":{{{}}}}}"#, labels.join(","))).unwrap().labels.len(), 32);
    let long = "x".repeat(257);
    let given = format!(
        r#"{{"capability":"a.b","lifetime_ms":0,"reach_timeout_ms":1,"retry":{{"max_retries":101,"base_ms":10,"cap_ms":5,"factor":0.5}},
        "slow_reach":{{"policy":"hand-over"}},"labels":{{"a/b":"{long}"}},"requires":{{"version":"new"}},"session_id":"a b",
        "context_path":"a\nb","callback":{{"url":"https://x","events":[]}},"payload":1,"payload_ref":"x"}}"#
    );
    assert_eq!(
        pointers(&given),
        [
            "/payload_ref",
            "/lifetime_ms",
            "/retry/max_retries",
            "/retry/cap_ms",
            "/retry/factor",
            "/reach_timeout_ms",
            "/slow_reach/policy",
            "/session_id",
            "/context_path",
            "/labels/a~1b",
            "/requires/version",
            "/callback/events",
        ]
    );
}

#[test]
fn a_capability_is_named_in_exactly_one_way() {
    assert_eq!(pointers("{}"), ["/capability"]);
    assert_eq!(pointers(r#"{"capability":"a.b","domain":"a","task_type":"b"}"#), ["/capability"]);
    assert_eq!(pointers(r#"{"domain":"a"}"#), ["/task_type"]);
    assert_eq!(pointers(r#"{"capability":"weather"}"#), ["/capability"]);
    assert_eq!(pointers(r#"{"text":"what will the weather be"}"#), ["/capability"], "the door routes it first");
}

#[test]
fn naive_and_past_times_are_refused_with_their_pointer() {
    assert_eq!(pointers(r#"{"capability":"a.b","deadline":"2026-01-02T00:00:00"}"#), ["/deadline"]);
    assert_eq!(pointers(r#"{"capability":"a.b","not_before":"tomorrow"}"#), ["/not_before"]);
    // Which of two moments is wrong has a code of its own, and is judged behind the idempotency key.
    assert!(
        of(r#"{"capability":"a.b","deadline":"2026-01-02T00:00:00Z","not_before":"2026-01-03T00:00:00Z"}"#).is_ok()
    );
    // An hour from the epoch of this test on the wall clock is this very moment in ledger time.
    assert!(matches!(of(r#"{"capability":"a.b","deadline":"2026-01-01T01:00:00Z"}"#), Err(Unfit::DeadlinePast { .. })));
}

#[test]
fn unknown_fields_are_refused_with_their_path() {
    let refused = |json: &str| parse::<TaskBody<'_>>(json.as_bytes()).unwrap_err();
    let pointer =
        |error: &ApiError| serde_json::to_value(error).unwrap()["errors"][0]["pointer"].as_str().unwrap().to_owned();
    let error = refused(r#"{"capability":"a.b","retry":{"max":3}}"#);
    assert_eq!((error.code().name(), pointer(&error)), ("unknown-field", "/retry/max".to_owned()));
    let error = refused(r#"{"capability":"a.b","labels":{"a":"1","b":2}}"#);
    assert_eq!(error.code().name(), "invalid-field", "{error}");
}

#[test]
fn a_payload_over_a_mebibyte_is_too_large() {
    let given = |len: usize| format!(r#"{{"capability":"a.b","payload":"{}"}}"#, "x".repeat(len - 2));
    assert!(of(&given(MAX_PAYLOAD)).is_ok());
    assert_eq!(of(&given(MAX_PAYLOAD + 1)), Err(Unfit::PayloadTooLarge));
}

#[test]
fn the_heaviest_task_weighs_what_a_claim_keeps_room_for() {
    let heaviest = MAX_PAYLOAD
        + crate::api::reports::MAX_DETAIL
        + MAX_LABELS * (MAX_LABEL_NAME + MAX_LABEL_VALUE)
        + 2 * MAX_REFERENCE
        + 1_024;
    assert!(u64::try_from(heaviest).unwrap() <= crate::ledger::planner::TASK_BYTES, "{heaviest}");
}
