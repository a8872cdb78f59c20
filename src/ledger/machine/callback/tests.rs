//! The rules of callbacks: given what was proposed before, when this is proposed, then these events.

use crate::ledger::ids::CallbackId;
use crate::ledger::machine::callback::{Callback, CallbackEvent, CallbackState, CallbackSubject, MAX_TRIES, WINDOW};
use crate::ledger::machine::command::{CallbackRow, Command, Word};
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::event::{EventBody, TryOutcome};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::world::{World, agent_id, batch_id, callback, submission, task_id};
use crate::ledger::time::{Millis, Timestamp};

/// A world whose first task has ended and calls back for those events.
fn ended(events: &[CallbackEvent]) -> World {
    let mut world = World::new();
    world.register("a", Some("i"));
    let mut asked = submission(1);
    asked.callback = Some(callback(events).into());
    world.submit(asked);
    world.hand(1, "a");
    world.report(1, "a", Word::Ack).1.unwrap();
    world
}

fn due(world: &World) -> Callback {
    let mut callbacks = world.state.callbacks().values();
    let callback = callbacks.next().expect("a callback is due").clone();
    assert_eq!(callbacks.next(), None, "only one callback is due");
    callback
}

fn failed(retry_after: Option<Millis>) -> TryOutcome {
    TryOutcome::Failed { error: "http-500".into(), retry_after }
}

fn tried(callback: CallbackId, attempt: u32, outcome: TryOutcome) -> Command {
    Command::CallbackTried { callback, attempt, outcome }
}

fn redrive(callback: CallbackId, row: Option<CallbackRow>) -> Command {
    Command::RedriveCallback { callback, row }
}

/// Tries as soon as each try is due, and fails, until the callback settles; the times of the tries.
fn fail_until_settled(world: &mut World, retry_after: Option<Millis>) -> Vec<Timestamp> {
    let id = due(world).id;
    let mut tries = Vec::new();
    while let Some(callback) = world.state.callbacks().get(&id) {
        let attempt = callback.attempts + 1;
        assert!(attempt <= MAX_TRIES);
        world.now = world.now.max(callback.next_at);
        tries.push(world.now);
        world.ok(tried(id, attempt, failed(retry_after)));
    }
    tries
}

#[test]
fn a_terminal_event_calls_back_and_its_task_stays_in_memory_until_that_is_settled() {
    let mut world = ended(&[CallbackEvent::Terminal]);
    assert_eq!(world.complete(1, "a"), ["task-succeeded", "callback-due"]);
    let callback = due(&world);
    let EventBody::CallbackDue(body) = &world.log.last().unwrap().body else { panic!("no callback-due") };
    assert_eq!(callback.id, CallbackId::of(world.state.lineage(), body.seq));
    assert!(world.state.tasks().contains_key(&task_id(1)));
    let events = world.ok(tried(callback.id, 1, TryOutcome::Delivered { status: 204 }));
    assert_eq!(events, ["callback-attempted", "callback-delivered"]);
    assert!(!world.state.tasks().contains_key(&task_id(1)), "nothing is open any more");
    let task = world.state.task(task_id(1)).unwrap();
    assert_eq!((task.callbacks_open, task.callback.unwrap().state), (0, CallbackState::Delivered));
    assert!(world.state.callbacks_due().is_empty());
}

#[test]
fn only_the_events_that_were_asked_for_call_back() {
    let mut world = ended(&[CallbackEvent::Progress]);
    let progress = || Word::Progress { stage: Some("parse".into()), percent: None, data: None };
    assert_eq!(world.report(1, "a", progress()).0, ["task-progressed", "callback-due"]);
    assert_eq!(world.complete(1, "a"), ["task-succeeded"]);
    assert!(world.state.tasks().contains_key(&task_id(1)), "the progress callback is still open");
    let mut world = ended(&[CallbackEvent::Orphaned, CallbackEvent::Terminal]);
    let incarnation = world.incarnation("a");
    let goodbye = Command::AgentOffline { agent: agent_id("a"), incarnation };
    assert_eq!(world.ok(goodbye), ["agent-left", "task-orphaned", "callback-due"]);
    assert_eq!(world.complete(1, "a"), ["task-succeeded", "callback-due"]);
    let task = world.state.task(task_id(1)).unwrap();
    assert_eq!(task.callbacks_open, 2);
    let newest = world.state.callbacks().values().max_by_key(|callback| callback.seq).unwrap();
    assert_eq!(task.callback.unwrap().id, newest.id, "the task shows the one that became due last");
}

#[test]
fn r_cbk_1_failing_tries_cover_the_whole_24_hours_and_then_the_callback_is_exhausted() {
    let mut world = ended(&[CallbackEvent::Terminal]);
    world.complete(1, "a");
    let callback = due(&world);
    let tries = fail_until_settled(&mut world, None);
    let last = tries.last().unwrap().since(callback.since);
    assert!(last >= WINDOW, "the last try came after {last}");
    assert!(last <= Millis(WINDOW.0 + 3_600_000), "an hour after the window at most");
    assert!((30..=100).contains(&tries.len()), "{} tries", tries.len());
    let settled = world.state.callback(callback.id).unwrap();
    assert_eq!(settled.state, CallbackState::Exhausted);
    assert_eq!(settled.last_error.as_deref(), Some("http-500"));
    assert!(world.state.callbacks_due().is_empty(), "no try is left behind");
    assert!(!world.state.tasks().contains_key(&task_id(1)));
}

#[test]
fn retry_after_is_a_floor_and_is_cut_at_24_hours() {
    let mut world = ended(&[CallbackEvent::Terminal]);
    world.complete(1, "a");
    let id = due(&world).id;
    world.ok(tried(id, 1, failed(Some(Millis::secs(600)))));
    assert_eq!(due(&world).next_at, world.now.after(Millis::secs(600)), "the first draw is below 2 s");
    world.now = due(&world).next_at;
    world.ok(tried(id, 2, failed(Some(Millis::secs(30 * 86_400)))));
    assert_eq!(due(&world).next_at, world.now.after(Millis::secs(86_400)));
}

#[test]
fn an_answer_to_another_try_than_the_outstanding_one_changes_nothing() {
    let mut world = ended(&[CallbackEvent::Terminal]);
    world.complete(1, "a");
    let id = due(&world).id;
    for attempt in [0, 2, u32::MAX] {
        assert_eq!(world.ok(tried(id, attempt, TryOutcome::Gone)), [""; 0]);
    }
    world.ok(tried(id, 1, failed(None)));
    assert_eq!(world.ok(tried(id, 1, TryOutcome::Gone)), [""; 0]);
    assert_eq!(due(&world).attempts, 1);
    let unknown = CallbackId([9; 16]);
    assert_eq!(world.refused(tried(unknown, 1, TryOutcome::Gone)), Rejection::CallbackUnknown);
}

#[test]
fn a_410_a_refused_address_and_erased_content_end_a_callback() {
    let blocked = TryOutcome::Blocked { error: "loopback".into() };
    for (outcome, last, state) in [
        (Some(TryOutcome::Gone), "callback-gone", CallbackState::Gone),
        (Some(blocked), "callback-blocked", CallbackState::Blocked),
        (None, "callback-gone", CallbackState::Gone),
    ] {
        let mut world = ended(&[CallbackEvent::Terminal]);
        world.complete(1, "a");
        let id = due(&world).id;
        let events = match outcome {
            Some(outcome) => world.ok(tried(id, 1, outcome)),
            None => world.ok(Command::CallbackErased { callback: id }),
        };
        assert_eq!(events.last(), Some(&last));
        assert_eq!(world.state.callback(id).unwrap().state, state);
        assert_eq!(world.ok(Command::CallbackErased { callback: id }), [""; 0], "it is settled");
    }
}

#[test]
fn r_cbk_2_a_settled_callback_is_redriven_in_a_new_round_with_the_same_id() {
    let mut world = ended(&[CallbackEvent::Terminal]);
    world.complete(1, "a");
    let id = due(&world).id;
    assert_eq!(world.refused(redrive(id, None)), Rejection::CallbackStillDue { callback: id });
    fail_until_settled(&mut world, None);
    assert_eq!(world.ok(redrive(id, None)), ["callback-redriven"]);
    let again = due(&world);
    assert_eq!((again.id, again.attempts, again.since, again.next_at), (id, 0, world.now, world.now));
    world.ok(tried(id, 1, TryOutcome::Delivered { status: 200 }));
    assert_eq!(world.state.callback(id).unwrap().state, CallbackState::Delivered);
}

#[test]
fn r_cbk_2_a_callback_whose_task_left_memory_is_redriven_from_its_row_and_only_in_its_namespace() {
    let mut world = World::new();
    let id = CallbackId([5; 16]);
    let row = |namespace: &str| CallbackRow {
        namespace: namespace.parse().unwrap(),
        subject: CallbackSubject::Task(task_id(9)),
        seq: crate::ledger::ids::Seq(1),
        url: "https://caller.example/hook".into(),
        secret_ref: "default".into(),
        state: CallbackState::Exhausted,
        attempts: 61,
        at: world.now,
        last_error: Some("connect".into()),
    };
    let (here, elsewhere) = (row("dev"), row("other"));
    assert_eq!(world.refused(redrive(id, None)), Rejection::CallbackUnknown);
    assert_eq!(world.refused(redrive(id, Some(elsewhere))), Rejection::CallbackUnknown);
    assert_eq!(world.ok(redrive(id, Some(here))), ["callback-redriven"]);
    assert_eq!(world.state.task(task_id(9)), None);
    let events = world.ok(tried(id, 1, TryOutcome::Delivered { status: 200 }));
    assert_eq!(events, ["callback-attempted", "callback-delivered"]);
}

#[test]
fn a_settled_batch_calls_back_and_leaves_memory_when_that_is_settled() {
    let mut world = World::new();
    let batch = batch_id(1);
    let spec = Some(callback(&[CallbackEvent::Terminal]));
    world.ok(Command::OpenBatch { batch, callback: spec, idempotency: None, bound: None });
    let events = world.ok(Command::CloseBatch { batch, total: 2, refused: 2 });
    assert_eq!(events, ["batch-closed", "batch-settled", "callback-due"]);
    let id = due(&world).id;
    assert!(world.state.batches().contains_key(&batch));
    world.ok(tried(id, 1, TryOutcome::Delivered { status: 200 }));
    assert!(!world.state.batches().contains_key(&batch));
    let settled = world.state.batch(batch).unwrap();
    assert_eq!(settled.callback_standing.unwrap().state, CallbackState::Delivered);
    assert_eq!(settled.seqs.len(), 6, "opened, closed, settled, due, attempted, delivered");
}

#[test]
fn a_task_that_ends_without_a_callback_spec_calls_nobody() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    assert_eq!(world.complete(1, "a"), ["task-succeeded"]);
    assert_eq!(world.status(1), StatusKind::Succeeded);
    assert!(world.state.callbacks().is_empty());
}

#[test]
fn b1_progress_makes_no_callback_due_while_sixteen_are_outstanding_and_the_end_always_does() {
    let mut world = ended(&[CallbackEvent::Terminal, CallbackEvent::Progress]);
    let progress = || Word::Progress { stage: None, percent: Some(1), data: None };
    for n in 1..=20_u32 {
        world.wait(Millis::secs(1));
        let expected: &[&str] = if n <= 16 { &["task-progressed", "callback-due"] } else { &["task-progressed"] };
        assert_eq!(world.report(1, "a", progress()).0, expected, "{n}");
    }
    let first = *world.state.callbacks().keys().next().unwrap();
    world.ok(tried(first, 1, TryOutcome::Delivered { status: 200 }));
    world.wait(Millis::secs(1));
    assert_eq!(world.report(1, "a", progress()).0, ["task-progressed", "callback-due"], "one was taken, one may come");
    assert_eq!(world.complete(1, "a"), ["task-succeeded", "callback-due"]);
}
