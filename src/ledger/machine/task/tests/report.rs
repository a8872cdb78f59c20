use super::*;
use crate::ledger::ids::Seq;
use crate::ledger::machine::Fact;
use crate::ledger::machine::callback::{CallbackEvent, CallbackSpec};
use crate::ledger::machine::decision::{Coalesced, LeaseWhy, ReceiptOf};
use crate::ledger::machine::task::status::Status;

fn receipt(play: &Play) -> Seq {
    match &play.answer {
        Ok(Answer::Reported { receipt: ReceiptOf::Earlier(seq), .. }) => *seq,
        other => panic!("{other:?}"),
    }
}

fn coalesced(play: &Play) -> Coalesced {
    match &play.answer {
        Ok(Answer::Reported { coalesced, .. }) => *coalesced,
        other => panic!("{other:?}"),
    }
}

const STALE: &[&str] = &["task-stale-report-refused"];

#[test]
fn semantics_14_an_absent_and_a_foreign_task_are_the_same() {
    check_refused(Play::new(), says(TASK, 1, Word::Ack), &Rejection::TaskUnknown, &[]);
    let mut foreign = says(TASK, 1, Word::Ack);
    foreign.namespace = Some(Namespace::new("other").unwrap());
    check_refused(Play::working(submission(TASK)), foreign, &Rejection::TaskUnknown, &[]);
}

#[test]
fn semantics_14_the_same_outcome_again_gives_the_first_receipt_and_another_is_a_conflict() {
    let play = check(Play::working(submission(TASK)), says(TASK, 1, complete("x")), &["task-succeeded"]);
    let first = receipt(&play);
    assert_eq!(first, play.state.seq());
    let play = check(play, says(TASK, 1, complete("x")), &[]);
    assert_eq!(receipt(&play), first);
    let conflict = Rejection::OutcomeConflict { first };
    let play = check_refused(play, says(TASK, 1, complete("y")), &conflict, STALE);
    check_refused(play, says(TASK, 1, fail(Retryable::No)), &conflict, STALE);
}

#[test]
fn semantics_14_a_finished_task_answers_by_its_row_too() {
    let play = Play::working(submission(TASK)).act(says(TASK, 1, complete("x")));
    let (first, row) = (receipt(&play), finished(&play, TASK));
    let mut play = play;
    play.state.forget_up_to(play.state.seq());
    assert_eq!(play.state.task(TASK), None);
    let again = |word| {
        let mut proposal = says(TASK, 1, word);
        if let Command::Report(report) = &mut proposal.command {
            report.fact = Some(Fact::Finished(Arc::clone(&row)));
        }
        proposal
    };
    let play = play.act(again(complete("x")));
    assert_eq!((receipt(&play), play.kinds()), (first, Vec::new()));
    let play = play.act(again(complete("y")));
    assert_eq!((play.refusal(), play.kinds()), (&Rejection::OutcomeConflict { first }, STALE.to_vec()));
    assert_eq!(play.last[0].namespace, Some(namespace()));
    let ended = Rejection::TaskTerminal { state: StatusKind::Succeeded, seq: first };
    let play = play.act(again(Word::Ack));
    assert_eq!(play.refusal(), &ended);
    assert_eq!(play.state.sealed(first).after.len(), 2, "later events become rows of their own");
}

#[test]
fn semantics_14_after_the_end_the_refusal_names_the_event_that_ended_it() {
    let play = Play::working(submission(TASK)).act(cancel(TASK));
    let ended = Rejection::TaskTerminal { state: StatusKind::Cancelled, seq: play.state.seq() };
    let then = ["task-stale-report-refused", "agent-slot-freed"];
    check_refused(play.clone(), says(TASK, 1, complete("x")), &ended, &then);
    check_refused(play, cancel(TASK), &ended, &[]);
}

#[test]
fn semantics_14_an_attempt_or_token_that_is_not_valid_is_superseded_and_recorded() {
    let superseded = |why| Rejection::LeaseSuperseded { why };
    let play = Play::working(idempotent(TASK));
    let wrong = says_as(("a", 1), (TASK, 1, lease(TASK, 9)), complete("x"));
    check_refused(play.clone(), wrong, &superseded(LeaseWhy::Token), STALE);
    let other = superseded(LeaseWhy::Attempt(AttemptNo(1)));
    check_refused(play.clone(), says(TASK, 2, complete("x")), &other, STALE);
    let failed = play.act(says(TASK, 1, fail(Retryable::Yes)));
    check_refused(failed, says(TASK, 1, Word::Ack), &superseded(LeaseWhy::Ended), STALE);
}

#[test]
fn semantics_2_an_ack_is_fenced_by_holder_and_incarnation_and_a_result_is_not() {
    let play = Play::with(submission(TASK)).act(dispatch(TASK, 1, ("a", 1)));
    let as_holder = |who, word| says_as(who, (TASK, 1, lease(TASK, 1)), word);
    let holder = Rejection::LeaseSuperseded { why: LeaseWhy::Holder };
    check_refused(play.clone(), as_holder(("b", 1), Word::Ack), &holder, STALE);
    check_refused(play.clone(), as_holder(("a", 2), Word::Ack), &holder, STALE);
    check(play, as_holder(("a", 2), complete("x")), &["task-acknowledged", "task-succeeded"]);
}

#[test]
fn semantics_14_an_ack_again_is_the_first_ack_and_an_outcome_before_it_is_both() {
    let play = Play::with(submission(TASK)).act(dispatch(TASK, 1, ("a", 1)));
    let acked = check(play.clone(), says(TASK, 1, Word::Ack), &["task-acknowledged"]);
    let first = receipt(&acked);
    let again = check(acked, says(TASK, 1, Word::Ack), &[]);
    assert_eq!(receipt(&again), first);
    let failed = check(play, says(TASK, 1, fail(Retryable::No)), &["task-acknowledged", "task-failed"]);
    let receipt_of_fail = receipt(&failed);
    let again = check(failed, says(TASK, 1, fail(Retryable::No)), &[]);
    assert_eq!(receipt(&again), receipt_of_fail);
}

#[test]
fn semantics_9_a_reported_failure_is_retried_only_for_idempotent_tasks_until_the_budget_is_spent() {
    check(Play::working(submission(TASK)), says(TASK, 1, fail(Retryable::Yes)), &["task-failed"]);
    check(Play::working(idempotent(TASK)), says(TASK, 1, fail(Retryable::No)), &["task-failed"]);
    let mut play = Play::working(idempotent(TASK));
    for attempt in 1..=3 {
        let then = ["task-attempt-failed", "task-retry-scheduled"];
        play = check(play, says(TASK, attempt, fail(Retryable::Yes)), &then);
        let first = receipt(&play);
        play = check(play, says(TASK, attempt, fail(Retryable::Yes)), &[]);
        assert_eq!(receipt(&play), first, "a repeat while it waits for its retry");
        play = play.wait(Millis::secs(300)).act(dispatch(TASK, attempt + 1, ("a", 1)));
        play = play.act(says(TASK, attempt + 1, Word::Ack));
    }
    let play = check(play, says(TASK, 4, fail(Retryable::Yes)), &["task-attempt-failed", "task-dead-lettered"]);
    assert_eq!((play.task().retries_used, play.task().attempt), (3, AttemptNo(4)));
}

#[test]
fn semantics_10_the_agents_retry_after_is_a_floor_and_is_cut_at_an_hour() {
    let asks = |seconds| match fail(Retryable::Yes) {
        Word::Fail { failure, digest, retryable, .. } => {
            Word::Fail { failure, digest, retryable, retry_after: Some(Millis::secs(seconds)) }
        }
        word @ (Word::Ack | Word::Progress { .. } | Word::Complete { .. } | Word::Release { .. }) => word,
    };
    let wait = |seconds| {
        let play = Play::working(idempotent(TASK)).act(says(TASK, 1, asks(seconds)));
        play.task().status.timer().unwrap().since(play.now)
    };
    assert_eq!(wait(900), Millis::secs(900), "it may exceed the cap");
    assert_eq!(wait(7_200), Millis::secs(3_600));
    assert!((2_000..4_000).contains(&wait(0).0), "between base and base times factor: {}", wait(0));
}

#[test]
fn semantics_13_a_release_after_the_ack_is_for_idempotent_tasks_only() {
    let acked = Play::working(submission(TASK));
    check_refused(acked, says(TASK, 1, release()), &Rejection::AlreadyAcknowledged, &[]);
    let play = check(Play::working(idempotent(TASK)), says(TASK, 1, release()), &["task-released", "task-queued"]);
    let first = receipt(&play);
    let play = check(play, says(TASK, 1, release()), &[]);
    assert_eq!(receipt(&play), first);
    let unacked = Play::with(submission(TASK)).act(dispatch(TASK, 1, ("a", 1)));
    check(unacked, says(TASK, 1, release()), &["task-released", "task-queued"]);
}

#[test]
fn semantics_13_slow_reach_is_left_by_ack_progress_outcome_and_release() {
    let slow = Play::working(idempotent(TASK)).wait(DEFAULT_WORK_TIMEOUT);
    assert_eq!(slow.kind(), StatusKind::SlowReach);
    let play = check(slow.clone(), says(TASK, 1, progress()), &["task-progressed"]);
    let until = play.now.after(DEFAULT_WORK_TIMEOUT);
    assert!(matches!(play.task().status, Status::Processing { work_deadline, .. } if work_deadline == until));
    check(slow.clone(), says(TASK, 1, complete("late")), &["task-succeeded"]);
    check(slow.clone(), says(TASK, 1, release()), &["task-released", "task-queued"]);
    check(slow, says(TASK, 1, fail(Retryable::Yes)), &["task-attempt-failed", "task-retry-scheduled"]);
}

#[test]
fn semantics_36_progress_is_durable_at_most_once_a_second_and_extends_only_where_declared() {
    let play = check(Play::working(submission(TASK)), says(TASK, 1, progress()), &["task-progressed"]);
    let (first, deadline) = (receipt(&play), play.task().status.timer());
    let play = check(play.wait(Millis(999)), says(TASK, 1, progress()), &[]);
    assert_eq!((receipt(&play), coalesced(&play)), (first, Coalesced::Yes));
    let play = check(play.wait(Millis(1)), says(TASK, 1, progress()), &["task-progressed"]);
    assert_eq!(play.task().status.timer(), deadline);
    let mut extends = declaration();
    extends.offers[0].progress = ProgressRule::Extends;
    let play = play.act(register("a", "one", extends)).wait(Millis::secs(1));
    let play = check(play, says(TASK, 1, progress()), &["task-progressed"]);
    assert_eq!(play.task().status.timer(), Some(play.now.after(DEFAULT_WORK_TIMEOUT)));
}

#[test]
fn semantics_36_stale_reports_are_recorded_sixteen_times_even_after_the_task_left_memory() {
    for callback in [None, Some(vec![CallbackEvent::Terminal])] {
        let spec = callback.map(|events| CallbackSpec {
            url: "https://caller.example/hook".into(),
            events,
            secret_ref: "default".into(),
        });
        let mut play = Play::working(Submission { callback: spec.map(Box::new), ..submission(TASK) });
        play = play.act(says(TASK, 1, complete("x")));
        let before = play.log.len();
        for _ in 0..20 {
            play = play.act(says(TASK, 1, complete("y")));
        }
        assert_eq!(play.log.len() - before, 16);
        play.holds();
    }
}

#[test]
fn semantics_33_a_synchronous_callers_agent_gets_80_percent_of_its_wait_less_the_time_queued() {
    let sync = Submission { sync_wait: Some(Millis::secs(10)), ..submission(TASK) };
    let play = Play::with(sync.clone()).wait(Millis::secs(3));
    let play = play.act(dispatch(TASK, 1, ("a", 1))).act(says(TASK, 1, Word::Ack));
    assert_eq!(play.task().status.timer(), Some(play.now.after(Millis::secs(5))));
    let late = Play::with(sync).wait(Millis::secs(9));
    let late = late.act(dispatch(TASK, 1, ("a", 1))).act(says(TASK, 1, Word::Ack));
    assert_eq!(late.task().status.timer(), Some(late.now.after(Millis::secs(1))));
}

#[test]
fn semantics_6_a_task_called_off_under_an_acknowledged_lease_keeps_its_slot_for_a_while() {
    let play = check(Play::working(submission(TASK)), cancel(TASK), &["task-cancelled"]);
    let used = |play: &Play| play.state.agents().values().map(|agent| agent.slots_used()).sum::<usize>();
    assert_eq!(used(&play), 1);
    let play = check_after(play, Millis::secs(30), &["agent-slot-freed"]);
    assert_eq!(used(&play), 0);
    let unacked = Play::with(submission(TASK)).act(dispatch(TASK, 1, ("a", 1)));
    assert_eq!(used(&check(unacked, cancel(TASK), &["task-cancelled"])), 0);
}

#[test]
fn a_terminal_event_makes_its_callback_due_in_the_same_step_and_the_task_stays_until_it_settles() {
    let callback = CallbackSpec {
        url: "https://caller.example/hook".into(),
        events: vec![CallbackEvent::Terminal],
        secret_ref: "default".into(),
    };
    let play = Play::working(Submission { callback: Some(callback.into()), ..submission(TASK) });
    let play = check(play, says(TASK, 1, complete("x")), &["task-succeeded", "callback-due"]);
    assert!(play.state.tasks().contains_key(&TASK));
    let id = *play.state.callbacks().keys().next().unwrap();
    let outcome = crate::ledger::machine::event::TryOutcome::Delivered { status: 200 };
    let tried = Proposal::by_hub(None, Command::CallbackTried { callback: id, attempt: 1, outcome });
    let play = check(play, tried, &["callback-attempted", "callback-delivered"]);
    assert!(play.state.tasks().is_empty());
    assert_eq!(play.state.sealed(Seq(0)).tasks[0].seqs.len(), 7, "all of its events are in its row");
}
