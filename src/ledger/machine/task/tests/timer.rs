use super::documentation::{held, status};
use super::*;
use crate::ledger::machine::task::deadline;
use crate::ledger::machine::task::spec::RetryCause;
use crate::ledger::machine::task::status::{Acked, SlowCause, Status};

#[test]
fn semantics_12_a_spent_wait_budget_is_told_once_or_ends_the_task_as_its_policy_says() {
    let play = check_after(Play::with(submission(TASK)), Millis::secs(20), &["task-overdue"]);
    check_after(play, Millis::secs(3_600), &[]);
    let urgent = Submission { qos: Qos::Urgent, on_wait: OnWait::Fail, ..submission(TASK) };
    let play = check_after(Play::with(urgent), Millis::secs(3), &["task-dead-lettered"]);
    assert_eq!(&*play.task().failure.as_ref().unwrap().code, "wait-budget-spent");
    let background = Submission { qos: Qos::Background, ..submission(TASK) };
    check_after(Play::with(background), Millis::secs(3_600), &[]);
}

#[test]
fn semantics_12_the_wait_budget_starts_anew_at_each_entry_into_the_queue() {
    let play = Play::with(submission(TASK)).wait(Millis::secs(19)).act(dispatch(TASK, 1, ("a", 1)));
    let play = check_after(play, DEFAULT_REACH_TIMEOUT, &["task-attempt-failed", "task-queued"]);
    let play = check_after(play, Millis::secs(19), &[]);
    check_after(play, Millis::secs(1), &["task-overdue"]);
}

#[test]
fn semantics_12_the_time_in_which_the_hub_was_down_does_not_count_for_the_wait_budget() {
    let mut play = Play::with(submission(TASK));
    play.now = play.now.after(Millis::secs(600));
    let start = Command::StartHub { boot: Boot(2), wall_offset: 0, version: "test".into(), lineage: None };
    let play = check(play, Proposal::by_hub(None, start), &["hub-started"]);
    let play = check_after(play, Millis::secs(19), &[]);
    check_after(play, Millis::secs(1), &["task-overdue"]);
}

/// The hub stands still for that long, and says so.
fn stand_still(mut play: Play, by: Millis, then: &[&str]) -> Play {
    play.now = play.now.after(by);
    check(play, Proposal::by_hub(None, Command::NoteStandstill { by }), then)
}

#[test]
fn semantics_3_a_hand_over_has_as_much_time_left_after_a_standstill_as_before() {
    let handed = || Play::with(submission(TASK)).act(dispatch(TASK, 1, ("a", 1))).wait(Millis::secs(1));
    let play = stand_still(handed(), Millis::secs(3_600), &["hub-stalled"]);
    assert_eq!(check(play, says(TASK, 1, Word::Ack), &["task-acknowledged"]).kind(), StatusKind::Processing);
    let play = stand_still(handed(), Millis::secs(3_600), &["hub-stalled"]);
    let play = check_after(play, Millis(1_999), &[]);
    check_after(play, Millis(1), &["task-attempt-failed", "task-queued"]).holds();
}

#[test]
fn semantics_3_a_lease_a_slow_task_and_a_wait_budget_get_a_standstill_back_and_a_life_does_not() {
    let play = Play::working(submission(TASK)).wait(Millis::secs(10));
    let play = stand_still(play, Millis::secs(600), &["hub-stalled"]);
    let play = check_after(play, Millis::secs(49), &[]);
    check_after(play, Millis::secs(1), &["task-slow"]).holds();
    let slow = Submission { slow_reach: SlowPolicy::Fail { after: Millis::secs(20) }, ..submission(TASK) };
    let play = check_after(Play::working(slow), DEFAULT_WORK_TIMEOUT, &["task-slow"]);
    let play = check_after(stand_still(play, Millis::secs(600), &["hub-stalled"]), Millis::secs(19), &[]);
    check_after(play, Millis::secs(1), &["task-dead-lettered"]).holds();
    let play = stand_still(Play::with(submission(TASK)), Millis::secs(600), &["hub-stalled"]);
    let play = check_after(play, Millis::secs(19), &[]);
    check_after(play, Millis::secs(1), &["task-overdue"]).holds();
    let short = Submission { lifetime: Millis::secs(100), ..submission(TASK) };
    let play = stand_still(Play::working(short), Millis::secs(100), &["hub-stalled"]);
    check_after(play, Millis(0), &["task-expired"]).holds();
}

#[test]
fn a_standstill_gives_back_no_more_than_a_whole_time_and_is_no_event_where_nobody_gains() {
    // What is told to have lasted for longer than the hand-over stands.
    let mut play = Play::with(submission(TASK)).act(dispatch(TASK, 1, ("a", 1)));
    for _ in 0..5 {
        let by = Millis::secs(3_600);
        play = check(play, Proposal::by_hub(None, Command::NoteStandstill { by }), &["hub-stalled"]);
    }
    check_after(play, DEFAULT_REACH_TIMEOUT, &["task-attempt-failed", "task-queued"]).holds();
    let background = Submission { qos: Qos::Background, ..submission(TASK) };
    stand_still(Play::with(background), Millis::secs(60), &[]);
    stand_still(Play::new(), Millis::secs(60), &[]);
}

#[test]
fn semantics_9_returns_after_a_reach_timeout_wait_0_1_2_4_to_60_seconds() {
    let mut play = Play::with(idempotent(TASK));
    let mut waits = Vec::new();
    for attempt in 1..=9 {
        play = play.act(dispatch(TASK, attempt, ("a", 1))).wait(DEFAULT_REACH_TIMEOUT);
        let wake = play.task().status.timer().filter(|_| play.kind() == StatusKind::Retrying);
        let wait = wake.map_or(Millis(0), |until| until.since(play.now));
        waits.push(wait.0 / 1_000);
        play = play.wait(wait);
    }
    assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!((play.task().retries_used, play.task().never_started), (0, 9));
    assert_eq!(play.task().avoid, Some(agent("a")));
    play.holds();
}

#[test]
fn an_overdue_task_is_told_and_not_retried_unless_its_policy_says_so() {
    let play = check_after(Play::working(idempotent(TASK)), DEFAULT_WORK_TIMEOUT, &["task-slow"]);
    check_after(play, Millis::secs(7_200), &[]);
    let mut allowed = idempotent(TASK);
    allowed.retry.retry_on.push(RetryCause::Overdue);
    let play = Play::working(allowed).wait(DEFAULT_WORK_TIMEOUT);
    assert_eq!(play.kinds().split_at(2).0, ["task-attempt-failed", "task-retry-scheduled"]);
    play.holds();
}

#[test]
fn semantics_11_the_slow_reach_policy_hands_over_idempotent_tasks_only_or_gives_up() {
    let after = Millis::secs(30);
    let hand_over = SlowPolicy::HandOver { after };
    let slow = |submission| Play::working(submission).wait(DEFAULT_WORK_TIMEOUT);
    let play = slow(Submission { slow_reach: hand_over, ..idempotent(TASK) });
    check_after(play, after, &["task-attempt-failed", "task-retry-scheduled"]);
    let play = slow(Submission { slow_reach: hand_over, ..submission(TASK) });
    check_after(play, after, &[]);
    let play = slow(Submission { slow_reach: SlowPolicy::Fail { after }, ..submission(TASK) });
    check_after(play, after, &["task-dead-lettered"]);
}

#[test]
fn semantics_9_a_hand_over_takes_a_retry_and_without_one_it_is_a_dead_letter_however_it_was_asked_for() {
    let after = Millis::secs(30);
    for max_retries in [0, 1] {
        let mut asked = Submission { slow_reach: SlowPolicy::HandOver { after }, ..idempotent(TASK) };
        asked.retry.max_retries = max_retries;
        let mut play = Play::working(asked).wait(DEFAULT_WORK_TIMEOUT);
        if max_retries == 1 {
            play = check_after(play, after, &["task-attempt-failed", "task-retry-scheduled"]);
            assert_eq!(play.task().retries_used, 1);
        } else {
            play = check_after(play, after, &["task-attempt-failed", "task-dead-lettered"]);
            assert_eq!(&*play.task().failure.as_ref().unwrap().code, "retries-exhausted");
        }
        play.holds();
    }
}

#[test]
fn a_standstill_gives_time_back_to_just_those_whose_timer_gains() {
    let (at, by) = (SimClock::START, Millis(1));
    let slow = |act_at| Status::SlowReach { lease: held(), acked: Acked::Yes, cause: SlowCause::Overdue, act_at };
    let timed = [Status::Queued { since: at, wait_until: Some(at) }, slow(Some(at)), slow(None)];
    let policy = SlowPolicy::HandOver { after: Millis::secs(30) };
    for status in StatusKind::ALL.into_iter().map(status).chain(timed) {
        let mut task = Play::working(Submission { slow_reach: policy, ..submission(TASK) }).task().clone();
        task.status = status;
        let before = task.clone();
        deadline::give_back(&mut task, by, at);
        assert_eq!(task != before, deadline::gains(&before), "{:?}", before.status);
    }
}

#[test]
fn the_deadline_ends_a_task_wherever_it_stands_and_comes_before_its_states_timer() {
    let short = |submission| Submission { lifetime: DEFAULT_REACH_TIMEOUT, ..submission };
    check_after(Play::with(short(submission(TASK))), DEFAULT_REACH_TIMEOUT, &["task-expired"]);
    let handed = Play::with(short(submission(TASK))).act(dispatch(TASK, 1, ("a", 1)));
    check_after(handed, DEFAULT_REACH_TIMEOUT, &["task-expired"]);
    let working = Play::working(short(submission(TASK)));
    let play = check_after(working, DEFAULT_REACH_TIMEOUT, &["task-expired"]);
    assert_eq!(play.task().failure.as_ref().unwrap().class, FailureClass::AgentTimeout);
    let held = Play::with(Submission { approval: Approval::Needed, ..short(submission(TASK)) });
    check_after(held, DEFAULT_REACH_TIMEOUT, &["task-expired"]);
}

#[test]
fn a_late_completion_wins_over_a_timeout_that_was_not_swept_yet() {
    let mut play = Play::with(submission(TASK)).act(dispatch(TASK, 1, ("a", 1)));
    play.now = play.now.after(Millis::secs(10));
    check(play, says(TASK, 1, complete("x")), &["task-acknowledged", "task-succeeded"]);
}

#[test]
fn a_timer_that_is_no_longer_due_does_nothing() {
    let fire = Command::Fire { subject: crate::ledger::machine::due::Subject::Task(TASK) };
    let play = check(Play::with(submission(TASK)), Proposal::by_hub(None, fire), &[]);
    assert!(matches!(play.task().status, Status::Queued { .. }));
}
