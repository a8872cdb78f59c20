//! The rules of batches: given what was proposed before, when this is proposed, then these events.

use crate::ledger::ids::{Digest, TokenId};
use crate::ledger::machine::batch::BatchPhase;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::task::spec::IdempotencyKey;
use crate::ledger::machine::world::{World, batch_id, submission, task_id};
use crate::ledger::machine::{KeyBinding, KeySubject};
use crate::ledger::time::Millis;

fn open(n: u8, idempotency: Option<IdempotencyKey>) -> Command {
    Command::OpenBatch { batch: batch_id(n), callback: None, idempotency, bound: None }
}

fn close(total: u32, refused: u32) -> Command {
    Command::CloseBatch { batch: batch_id(1), total, refused }
}

fn line(world: &mut World, n: u8) {
    let mut asked = submission(n);
    asked.batch = Some((batch_id(1), u32::from(n)));
    world.submit(asked);
}

fn cancel(n: u8) -> Command {
    Command::CancelTask { task: task_id(n), reason: None, fact: None }
}

fn key(subject: &str, body: &[u8]) -> IdempotencyKey {
    IdempotencyKey {
        key: "k".into(),
        fingerprint: Digest::of(&[body]),
        subject: TokenId::new(subject).unwrap(),
        window: Millis::secs(60),
    }
}

#[test]
fn semantics_32_an_open_batch_never_settles_and_a_closed_one_settles_once_with_its_last_task() {
    let mut world = World::new();
    assert_eq!(world.ok(open(1, None)), ["batch-opened"]);
    line(&mut world, 1);
    assert_eq!(world.ok(cancel(1)), ["task-cancelled"], "all have ended, but lines may still come");
    line(&mut world, 2);
    line(&mut world, 3);
    assert_eq!(world.ok(close(4, 1)), ["batch-closed"]);
    assert_eq!(world.ok(cancel(2)), ["task-cancelled"]);
    assert_eq!(world.ok(cancel(3)), ["task-cancelled", "batch-settled"]);
    let batch = world.state.batch(batch_id(1)).unwrap();
    assert_eq!(batch.phase, BatchPhase::Settled { total: 4, refused: 1 });
    assert_eq!((batch.accepted, batch.ended()), (3, 3));
    assert!(world.state.batches().is_empty(), "nobody asked to be told, so it leaves memory");
    let settled = world.log.last().unwrap();
    assert_eq!(settled.batch, Some(batch_id(1)));
}

#[test]
fn semantics_32_a_batch_whose_tasks_all_ended_before_settles_when_it_closes() {
    let mut world = World::new();
    world.ok(open(1, None));
    line(&mut world, 1);
    world.ok(cancel(1));
    assert_eq!(world.ok(close(1, 0)), ["batch-closed", "batch-settled"]);
}

#[test]
fn semantics_32_a_batch_is_closed_once_and_only_by_its_namespace() {
    let mut world = World::new();
    world.ok(open(1, None));
    let foreign = Proposal::by_hub(Some("other".parse().unwrap()), close(0, 0));
    assert_eq!(world.propose(foreign).1, Err(Rejection::BatchUnknown));
    line(&mut world, 1);
    world.ok(close(1, 0));
    assert_eq!(world.refused(close(1, 0)), Rejection::BatchNotOpen { batch: batch_id(1) });
    assert_eq!(world.refused(open(1, None)), Rejection::IdTaken);
    let unknown = Command::CloseBatch { batch: batch_id(7), total: 0, refused: 0 };
    assert_eq!(world.refused(unknown), Rejection::BatchUnknown);
}

#[test]
fn semantics_31_a_key_binds_one_batch_and_answers_the_same_body_as_the_first_time() {
    let mut world = World::new();
    world.ok(open(1, Some(key("me", b"body"))));
    let receipt = world.log.last().unwrap().seq;
    let key_until = world.now.after(Millis::secs(60));
    let first = Answer::Replayed { subject: KeySubject::Batch(batch_id(1)), receipt, key_until };
    assert_eq!(world.when(open(2, Some(key("me", b"body")))), (vec![], Ok(first)));
    let this = Digest::of(&[b"other"]);
    let reused = Rejection::KeyReused { first: Some(Digest::of(&[b"body"])), this };
    assert_eq!(world.refused(open(2, Some(key("me", b"other")))), reused);
    let hidden = Rejection::KeyReused { first: None, this: Digest::of(&[b"body"]) };
    assert_eq!(world.refused(open(2, Some(key("another", b"body")))), hidden);
    world.wait(Millis::secs(60));
    assert_eq!(world.ok(open(2, Some(key("me", b"other")))), ["batch-opened"], "the window is over");
}

#[test]
fn semantics_16_a_key_bound_in_memory_is_asked_before_the_row_from_disk() {
    let mut world = World::new();
    world.ok(open(1, Some(key("me", b"body"))));
    let row = KeyBinding {
        bound_to: KeySubject::Task(task_id(9)),
        fingerprint: Digest::of(&[b"old"]),
        subject: TokenId::new("me").unwrap(),
        receipt: crate::ledger::ids::Seq(1),
        until: world.now.after(Millis::secs(600)),
    };
    let idempotency = Some(key("me", b"body"));
    let command = Command::OpenBatch { batch: batch_id(2), callback: None, idempotency, bound: Some(row) };
    let (_, answer) = world.when(command);
    assert!(matches!(answer, Ok(Answer::Replayed { subject: KeySubject::Batch(_), .. })), "{answer:?}");
}
