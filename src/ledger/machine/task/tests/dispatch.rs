use super::*;
use crate::ledger::machine::command::{AgentBusy, Held, PushTrouble};
use crate::ledger::machine::task::status::{OrphanCause, SlowCause, Status};

fn push_agent() -> Play {
    let transport = Transport::Http { endpoint: "http://agent.example/reach".into() };
    Play::empty().act(register("a", "one", Declaration { transport, ..declaration() }))
}

fn pushed(submission: Submission) -> Play {
    push_agent().act(submit(submission)).act(handed(TASK, 1, ("a", 1), Delivery::Push))
}

fn trouble(trouble: PushTrouble) -> Proposal {
    Proposal::by_hub(None, Command::PushFailed { task: TASK, attempt: AttemptNo(1), trouble })
}

fn why() -> Failure {
    Failure { class: FailureClass::Network, code: "connect".into(), message: None }
}

fn replay() -> Proposal {
    Proposal::by_hub(None, Command::ReplayTask { task: TASK, superseded_by: None })
}

#[test]
fn a_dispatch_is_checked_again_against_every_hard_limit() {
    let play = Play::with(submission(TASK));
    let stale = Rejection::IncarnationSuperseded { current: Incarnation(1) };
    check_refused(play.clone(), dispatch(TASK, 1, ("a", 2)), &stale, &[]);
    let shut = Rejection::AgentNotOpen { agent: agent("a") };
    check_refused(play.clone(), handed(TASK, 1, ("a", 1), Delivery::Push), &shut, &[]);
    check_refused(play.clone().act(lost("a")), dispatch(TASK, 1, ("a", 1)), &shut, &[]);
    check_refused(play.clone(), dispatch(TASK, 1, ("b", 1)), &Rejection::AgentUnknown, &[]);
    let handed = check(play, dispatch(TASK, 1, ("a", 1)), &["task-dispatched"]);
    let moved = Rejection::MovedOn { state: StatusKind::Dispatched };
    check_refused(handed, dispatch(TASK, 2, ("a", 1)), &moved, &[]);
}

#[test]
fn an_agent_of_two_slots_is_refused_a_third_task() {
    let ids = [ReachId([2; 16]), ReachId([3; 16])];
    let play = ids
        .into_iter()
        .fold(Play::with(submission(TASK)), |play, id| play.act(submit(submission(id))).act(dispatch(id, 1, ("a", 1))));
    check_refused(play, dispatch(TASK, 1, ("a", 1)), &Rejection::NoFreeSlot { agent: agent("a") }, &[]);
}

#[test]
fn semantics_18_a_schema_that_was_not_checked_makes_no_candidate_until_its_verdict_came() {
    let mut strict = declaration();
    strict.offers[0].schemas = vec![Digest([1; 32])];
    let play = Play::empty().act(register("a", "one", strict)).act(submit(submission(TASK)));
    let shut = Rejection::AgentNotOpen { agent: agent("a") };
    let play = check_refused(play, dispatch(TASK, 1, ("a", 1)), &shut, &[]);
    let verdicts = SchemaVerdicts { accepted: vec![Digest([1; 32])], refused: Vec::new() };
    let checked = Proposal::by_hub(None, Command::SchemaChecked { task: TASK, verdicts });
    let play = check(play, checked.clone(), &["task-schema-checked"]);
    let play = check(play, checked, &[]);
    check(play, dispatch(TASK, 1, ("a", 1)), &["task-dispatched"]);
}

#[test]
fn an_agent_with_named_callers_serves_no_other() {
    let allowed_callers = vec![TokenId::new("friend").unwrap()];
    let picky = Declaration { allowed_callers, ..declaration() };
    let play = Play::empty().act(register("a", "one", picky)).act(submit(submission(TASK)));
    check_refused(play, dispatch(TASK, 1, ("a", 1)), &Rejection::AgentNotOpen { agent: agent("a") }, &[]);
}

#[test]
fn semantics_8_a_push_that_never_left_returns_and_one_that_may_have_is_slow() {
    let never = PushTrouble::NeverStarted { failure: why(), retry_after: None, busy: AgentBusy::No };
    check(pushed(submission(TASK)), trouble(never), &["task-attempt-failed", "task-queued"]);
    let ambiguous = trouble(PushTrouble::Ambiguous { failure: why() });
    let play = check(pushed(submission(TASK)), ambiguous.clone(), &["task-slow"]);
    assert!(matches!(play.task().status, Status::SlowReach { cause: SlowCause::Ambiguous, .. }));
    let mut allowed = idempotent(TASK);
    allowed.retry.retry_on.push(crate::ledger::machine::task::spec::RetryCause::Ambiguous);
    check(pushed(allowed), ambiguous, &["task-attempt-failed", "task-retry-scheduled"]);
}

#[test]
fn semantics_8_an_unanswered_push_is_ambiguous_at_its_timeout_its_agents_loss_and_at_boot() {
    check_after(pushed(idempotent(TASK)), DEFAULT_REACH_TIMEOUT, &["task-slow"]);
    check(pushed(idempotent(TASK)), lost("a"), &["agent-lost", "task-slow"]);
    let resolve = Proposal::by_hub(None, Command::ResolvePushAtBoot { task: TASK, attempt: AttemptNo(1) });
    let slow = check(pushed(idempotent(TASK)), resolve, &["task-slow"]);
    // The connection stays open: its late answer counts as a late ack or outcome.
    check(slow, says(TASK, 1, complete("late")), &["task-acknowledged", "task-succeeded"]);
}

#[test]
fn semantics_9_a_busy_push_agent_is_waited_for_as_long_as_it_asked() {
    let busy = PushTrouble::NeverStarted {
        failure: Failure { class: FailureClass::AgentOverload, ..why() },
        retry_after: Some(Millis::secs(7)),
        busy: AgentBusy::Yes,
    };
    let play = check(pushed(submission(TASK)), trouble(busy), &["task-attempt-failed", "task-retry-scheduled"]);
    assert!(matches!(play.task().status, Status::Retrying { until } if until == play.now.after(Millis::secs(7))));
    assert_eq!(play.task().retries_used, 0);
}

#[test]
fn semantics_2_another_process_takes_the_id_over_and_the_work_of_the_older_one_is_let_go() {
    let second = ReachId([2; 16]);
    let play = Play::working(idempotent(TASK)).act(submit(submission(second))).act(dispatch(second, 1, ("a", 1)));
    check(play.clone(), register("a", "one", declaration()), &["agent-updated"]);
    let then = ["agent-registered", "task-orphaned", "task-queued"];
    let play = check(play, register("a", "two", declaration()), &then);
    assert!(matches!(play.task().status, Status::Orphaned { cause: OrphanCause::AgentReplaced, .. }));
    let key = play.state.agents().keys().next().unwrap().clone();
    assert_eq!(play.state.agent(&key).unwrap().slots_used(), 0, "a new process starts with all its slots");
    // Its progress takes no slot of the new process, so it does not call the task back (S8, semantics 5) …
    let play = check(play, says(TASK, 1, progress()), &[]);
    assert_eq!(play.kind(), StatusKind::Orphaned);
    // … but a late result of it still wins while its lease is valid.
    check(play, says(TASK, 1, complete("late")), &["task-succeeded"]);
}

#[test]
fn semantics_5_an_orphan_goes_back_to_its_own_agent_by_ack_progress_or_listing_before_the_replay() {
    let orphaned = Play::working(idempotent(TASK)).act(lost("a"));
    assert_eq!(orphaned.kind(), StatusKind::Orphaned);
    let play = check(orphaned.clone(), says(TASK, 1, Word::Ack), &["task-reclaimed", "agent-healthy"]);
    assert_eq!(play.kind(), StatusKind::Processing);
    let then = ["task-reclaimed", "task-progressed", "agent-healthy"];
    check(orphaned.clone(), says(TASK, 1, progress()), &then);
    let held = Some(vec![Held { task: TASK, attempt: AttemptNo(1) }]);
    let beat = Command::Heartbeat { agent: agent("a"), incarnation: Incarnation(1), held };
    check(orphaned.clone(), by_caller(beat.clone()), &["agent-healthy", "task-reclaimed"]);
    let replayed = check(orphaned, replay(), &["task-replayed", "task-queued"]);
    check(replayed, by_caller(beat), &["agent-healthy"]);
}

#[test]
fn semantics_5_a_push_that_was_reclaimed_before_its_acknowledgement_may_still_be_acknowledged() {
    let resolve = Proposal::by_hub(None, Command::ResolvePushAtBoot { task: TASK, attempt: AttemptNo(1) });
    let orphaned = check(pushed(submission(TASK)).act(resolve), lost("a"), &["agent-lost", "task-orphaned"]);
    let held = Some(vec![Held { task: TASK, attempt: AttemptNo(1) }]);
    let beat = Command::Heartbeat { agent: agent("a"), incarnation: Incarnation(1), held };
    let by_listing = check(orphaned.clone(), by_caller(beat), &["agent-healthy", "task-reclaimed"]);
    let by_ack = check(orphaned, says(TASK, 1, Word::Ack), &["task-reclaimed", "agent-healthy"]);
    for play in [by_listing, by_ack] {
        let acked = check(play.clone(), says(TASK, 1, Word::Ack), &[]);
        assert_eq!(acked.kind(), StatusKind::Processing);
        check(play.clone(), says(TASK, 1, progress()), &["task-progressed"]);
        check(play, says(TASK, 1, complete("late")), &["task-succeeded"]);
    }
}

#[test]
fn semantics_11_a_held_orphan_is_not_replayed_and_its_deadline_still_ends_it() {
    let held = Play::working(submission(TASK)).act(lost("a"));
    let play = check_refused(held, replay(), &Rejection::MovedOn { state: StatusKind::Orphaned }, &[]);
    check_after(play, DEFAULT_LIFETIME, &["task-expired"]);
}

#[test]
fn semantics_9_the_fifth_loss_while_processing_ends_a_task_that_kills_its_agents() {
    let beat = Command::Heartbeat { agent: agent("a"), incarnation: Incarnation(1), held: None };
    let mut play = Play::with(idempotent(TASK));
    for attempt in 1..5 {
        play = play.act(dispatch(TASK, attempt, ("a", 1))).act(says(TASK, attempt, Word::Ack));
        play = check(play, lost("a"), &["agent-lost", "task-orphaned"]).act(replay()).act(by_caller(beat.clone()));
    }
    let play = play.act(dispatch(TASK, 5, ("a", 1))).act(says(TASK, 5, Word::Ack));
    let play = check(play, lost("a"), &["agent-lost", "task-orphaned", "task-dead-lettered"]);
    assert_eq!(&*play.task().failure.as_ref().unwrap().code, "poison-suspected");
    assert_eq!(play.task().retries_used, 0, "losses do not eat the retry budget");
}

#[test]
fn semantics_9_goodbyes_are_no_interruptions() {
    let offline = by_caller(Command::AgentOffline { agent: agent("a"), incarnation: Incarnation(1) });
    let play = check(Play::working(idempotent(TASK)), offline, &["agent-left", "task-orphaned"]);
    assert_eq!(play.task().interruptions, 0);
}

#[test]
fn semantics_9_departures_wait_only_from_the_third_on_and_the_twentieth_is_the_last() {
    let beat = Command::Heartbeat { agent: agent("a"), incarnation: Incarnation(1), held: None };
    let mut play = Play::with(submission(TASK));
    let mut waits = Vec::new();
    for attempt in 1..20 {
        play = play.act(dispatch(TASK, attempt, ("a", 1))).act(lost("a"));
        let wake = play.task().status.timer().filter(|_| play.kind() == StatusKind::Retrying);
        let wait = wake.map_or(Millis(0), |until| until.since(play.now));
        waits.push(wait.0 / 1_000);
        play = play.wait(wait).act(by_caller(beat.clone()));
        play.holds();
    }
    assert_eq!(waits.split_at(9).0, [0, 0, 2, 4, 8, 16, 32, 60, 60]);
    let play = play.act(dispatch(TASK, 20, ("a", 1)));
    let play = check(play, lost("a"), &["agent-lost", "task-dead-lettered"]);
    assert_eq!(&*play.task().failure.as_ref().unwrap().code, "never-reached");
}
