//! Messages byte for byte.

use std::collections::BTreeMap;

use super::super::samples;
use super::*;
use crate::ledger::ids::{BatchId, Digest, Incarnation, Seq};
use crate::ledger::machine::event::{Actor, AlreadyDone, BatchSettled, TaskFailed, TaskOverdue, TaskSucceeded};
use crate::ledger::machine::task::FailureClass;
use crate::ledger::machine::task::status::Status;
use crate::ledger::time::SimClock;

const ID: ReachId = ReachId([9; 16]);

fn event(body: EventBody) -> Event {
    Event {
        seq: Seq(41),
        at: SimClock::START,
        namespace: Some(samples::namespace()),
        actor: Actor::Hub,
        session: None,
        batch: None,
        trace: None,
        body,
    }
}

fn succeeded(len: u32) -> Event {
    event(EventBody::TaskSucceeded(TaskSucceeded {
        task: ID,
        attempt: AttemptNo(2),
        incarnation: Incarnation(1),
        result: Some(BodyRef { digest: Digest::default(), len }),
        outcome: Digest::default(),
        usage: Vec::new(),
        already_done: AlreadyDone::No,
    }))
}

fn text(event: &Event, task: &Task, bodies: MessageBodies<'_>) -> String {
    let told = told(&event.body).expect("calls back");
    String::from_utf8(task_message(event, &told, task, bodies).expect("JSON")).expect("UTF-8")
}

#[test]
fn a_small_result_is_inline_and_a_long_one_a_url() {
    let task = samples::task(ID);
    let small = succeeded(7);
    let said = told(&small.body).expect("calls back");
    assert_eq!(said.result_key(ID), Some(BodyKey::Task { task: ID, kind: BodyKind::Result, attempt: 2 }));
    assert_eq!(
        text(&small, &task, MessageBodies { result: Some(b"{\"t\":21}"), message: None }),
        format!(
            concat!(
                r#"{{"type":"task.succeeded","timestamp":"2026-01-01T00:00:00.000Z","data":{{"reach_id":"{}","#,
                r#""state":"succeeded","attempt":2,"seq":41,"labels":{{"line":"travel","a":"b"}},"result":{{"t":21}},"#,
                r#""failure":null}}}}"#
            ),
            ID
        )
    );
    let long = succeeded(MAX_INLINE + 1);
    assert_eq!(told(&long.body).expect("calls back").result_key(ID), None);
    let shown = text(&long, &task, MessageBodies::default());
    assert!(shown.contains(&format!("\"result_url\":\"/v1/tasks/{ID}/result\"")), "{shown}");
    assert!(!shown.contains("\"result\":"), "{shown}");
}

#[test]
fn a_failure_is_told_with_class_code_and_message() {
    let failed = event(EventBody::TaskFailed(TaskFailed {
        task: ID,
        attempt: AttemptNo(1),
        incarnation: Incarnation(1),
        failure: Failure {
            class: FailureClass::Business,
            code: "bad-city".into(),
            message: Some(BodyRef { digest: Digest::default(), len: 3 }),
        },
        outcome: Digest::default(),
    }));
    let said = told(&failed.body).expect("calls back");
    assert_eq!(said.message_key(ID), Some(BodyKey::Task { task: ID, kind: BodyKind::Error, attempt: 1 }));
    let shown = text(&failed, &samples::task(ID), MessageBodies { result: None, message: Some(b"no \"X\"") });
    assert!(shown.contains(r#""failure":{"class":"business","code":"bad-city","message":"no \"X\""}"#), "{shown}");
}

#[test]
fn c1_where_the_task_stands_now_does_not_change_the_message() {
    let overdue = event(EventBody::TaskOverdue(TaskOverdue { task: ID }));
    let mut task = samples::task(ID);
    let first = text(&overdue, &task, MessageBodies::default());
    task.status = Status::Succeeded;
    task.attempt = AttemptNo(7);
    task.retries_used = 3;
    task.seqs = vec![Seq(1), Seq(41), Seq(50)];
    assert_eq!(text(&overdue, &task, MessageBodies::default()), first);
    assert!(first.contains(r#""type":"task.overdue""#), "{first}");
}

#[test]
fn a_settled_batch_is_told_with_its_totals() {
    let settled = event(EventBody::BatchSettled(BatchSettled { batch: BatchId([3; 16]) }));
    let batch = Batch {
        id: BatchId([3; 16]),
        namespace: samples::namespace(),
        phase: BatchPhase::Settled { total: 5, refused: 1 },
        callback: None,
        callback_standing: None,
        idempotency: None,
        accepted: 4,
        by_state: BTreeMap::from([(StatusKind::Succeeded, 3), (StatusKind::Failed, 1)]),
        opened_at: SimClock::START,
        seqs: Vec::new(),
    };
    let shown = String::from_utf8(batch_message(&settled, &batch).expect("JSON")).expect("UTF-8");
    assert_eq!(
        shown,
        format!(
            concat!(
                r#"{{"type":"batch.settled","timestamp":"2026-01-01T00:00:00.000Z","data":{{"batch_id":"{}","seq":41,"#,
                r#""total":5,"refused":1,"by_state":{{"failed":1,"succeeded":3}}}}}}"#
            ),
            BatchId([3; 16])
        )
    );
    assert_eq!(told(&settled.body), None);
}
