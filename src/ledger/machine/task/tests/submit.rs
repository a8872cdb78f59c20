use super::*;
use crate::ledger::ids::Seq;
use crate::ledger::machine::policy::Policy;
use crate::ledger::machine::task::spec::IdempotencyKey;
use crate::ledger::machine::{KeyBinding, KeySubject};

fn keyed(fingerprint: u8) -> Submission {
    let key = IdempotencyKey {
        key: "k".into(),
        fingerprint: Digest([fingerprint; 32]),
        subject: TokenId::new("caller").unwrap(),
        window: DEFAULT_LIFETIME,
    };
    Submission { idempotency: Some(key.into()), ..submission(TASK) }
}

fn state_of(play: &Play) -> StatusKind {
    match &play.answer {
        Ok(Answer::Submitted { state, .. }) => *state,
        other => panic!("{other:?}"),
    }
}

#[test]
fn semantics_35_a_submission_writes_one_event_that_says_where_the_task_stands() {
    let play = check(Play::new(), submit(submission(TASK)), &["task-submitted"]);
    assert_eq!((state_of(&play), play.kind()), (StatusKind::Queued, StatusKind::Queued));
    let later = Some(SimClock::START.after(Millis::secs(60)));
    let play = check(Play::new(), submit(Submission { not_before: later, ..submission(TASK) }), &["task-submitted"]);
    assert_eq!(state_of(&play), StatusKind::Scheduled);
    let play = check_after(play, Millis::secs(60), &["task-queued"]);
    assert_eq!(play.kind(), StatusKind::Queued);
    let held = Submission { approval: Approval::Needed, ..submission(TASK) };
    let play = check(Play::new(), submit(held), &["task-submitted"]);
    assert_eq!(state_of(&play), StatusKind::AwaitingApproval);
}

#[test]
fn semantics_34_a_sensitive_capability_holds_its_tasks_and_approval_lets_them_go() {
    let mut sensitive = declaration();
    sensitive.offers[0].sensitive = Sensitive::Yes;
    let held = Play::empty().act(register("a", "one", sensitive)).act(submit(submission(TASK)));
    assert_eq!(held.kind(), StatusKind::AwaitingApproval);
    let approve = by_caller(Command::ApproveTask { task: TASK });
    let play = check(held.clone(), approve.clone(), &["task-approved", "task-queued"]);
    let queued = Rejection::NotAwaitingApproval { state: StatusKind::Queued };
    check_refused(play, approve, &queued, &[]);
    let refuse = by_caller(Command::RefuseTask { task: TASK, reason: None });
    let play = check(held, refuse, &["task-refused", "task-cancelled"]);
    assert_eq!(play.task().failure.as_ref().map(|failure| failure.class), Some(FailureClass::Policy));
}

#[test]
fn an_approved_task_still_waits_for_its_not_before() {
    let later = Some(SimClock::START.after(Millis::secs(60)));
    let held = Submission { approval: Approval::Needed, not_before: later, ..submission(TASK) };
    let play = check(Play::with(held), by_caller(Command::ApproveTask { task: TASK }), &["task-approved"]);
    assert_eq!(play.kind(), StatusKind::Scheduled);
    check_after(play, Millis::secs(60), &["task-queued"]);
}

#[test]
fn semantics_31_the_same_key_and_body_gives_the_first_answer_and_another_body_none() {
    let first = Play::with(keyed(1));
    let receipt = first.state.seq();
    let until = SimClock::START.after(DEFAULT_LIFETIME);
    let play = check(first.clone(), submit(keyed(1)), &[]);
    let replayed = Answer::Replayed { subject: KeySubject::Task(TASK), receipt, key_until: until };
    assert_eq!(play.answer, Ok(replayed));
    let reused = Rejection::KeyReused { first: Some(Digest([1; 32])), this: Digest([2; 32]) };
    check_refused(first.clone(), submit(keyed(2)), &reused, &[]);
    let mut foreign = keyed(1);
    foreign.idempotency.as_mut().unwrap().subject = TokenId::new("other").unwrap();
    check_refused(first, submit(foreign), &Rejection::KeyReused { first: None, this: Digest([1; 32]) }, &[]);
}

#[test]
fn semantics_31_a_key_read_from_disk_binds_until_it_is_forgotten() {
    let bound = KeyBinding {
        bound_to: KeySubject::Task(ReachId([5; 16])),
        fingerprint: Digest([1; 32]),
        subject: TokenId::new("caller").unwrap(),
        receipt: Seq(1),
        until: SimClock::START.after(Millis(1)),
    };
    let repeat = by_caller(Command::SubmitTask { submission: Arc::new(keyed(1)), bound: Some(bound), routed: None });
    let play = check(Play::new(), repeat.clone(), &[]);
    assert!(matches!(play.answer, Ok(Answer::Replayed { .. })));
    check(Play::new().wait(Millis(1)), repeat, &["task-submitted"]);
}

#[test]
fn semantics_31_a_refused_submission_binds_no_key() {
    let past = Submission { deadline: Some(SimClock::START), ..keyed(1) };
    let play = Play::new().act(submit(past));
    assert!(matches!(play.refusal(), Rejection::DeadlinePast { .. }));
    check(play, submit(keyed(2)), &["task-submitted"]);
}

#[test]
fn semantics_34_the_earliest_of_lifetime_deadline_and_parent_ends_a_life() {
    let early = SimClock::START.after(Millis::secs(10));
    let parent = Submission { deadline: Some(early), ..submission(ReachId([2; 16])) };
    let child = Submission { parent: Some(parent.reach_id), ..submission(TASK) };
    let play = check(Play::with(parent), submit(child), &["task-submitted"]);
    assert_eq!(play.task().deadline, early);
    let never = Submission { deadline: Some(early), not_before: Some(early), ..submission(TASK) };
    check_refused(Play::new(), submit(never), &Rejection::NotBeforeAfterDeadline, &[]);
}

#[test]
fn semantics_34_a_capability_is_registered_while_a_lost_agent_declares_it_and_no_longer_once_it_left() {
    check(Play::new().act(lost("a")), submit(submission(TASK)), &["task-submitted"]);
    let offline = by_caller(Command::AgentOffline { agent: agent("a"), incarnation: Incarnation(1) });
    let gone = Play::new().act(offline);
    let nobody = Rejection::CapabilityNotRegistered { capability: capability() };
    check_refused(gone.clone(), submit(submission(TASK)), &nobody, &[]);
    let patient = Submission { absent_agents: AbsentAgents::Wait, ..submission(TASK) };
    check(gone, submit(patient), &["task-submitted"]);
}

#[test]
fn semantics_18_a_payload_is_refused_only_if_every_provider_would_refuse_it() {
    let strict = |schema: u8| {
        let mut strict = declaration();
        strict.offers[0].schemas = vec![Digest([schema; 32])];
        strict
    };
    let two = Play::empty().act(register("a", "one", strict(1))).act(register("b", "one", strict(2)));
    let refused = |schemas: &[u8]| {
        let refused = schemas.iter().map(|schema| Digest([*schema; 32])).collect();
        Submission { schemas: SchemaVerdicts { accepted: Vec::new(), refused }, ..submission(TASK) }
    };
    check(two.clone(), submit(refused(&[1])), &["task-submitted"]);
    let all = Rejection::PayloadRefused { schemas: vec![Digest([1; 32]), Digest([2; 32])] };
    check_refused(two, submit(refused(&[1, 2])), &all, &[]);
}

fn crowded(lane_bound: u32, tasks: u8) -> Play {
    let policy = Policy { lane_bound, ..Policy::default() };
    let set = by_caller(Command::SetPolicy { policy, reason: "test".into() });
    (0..tasks).fold(Play::new().act(set), |play, n| {
        play.act(submit(Submission { qos: Qos::Urgent, ..submission(ReachId([100 + n; 16])) }))
    })
}

#[test]
fn semantics_22_background_is_refused_at_80_percent_normal_at_95_and_urgent_at_the_bound() {
    let of = |qos| submit(Submission { qos, ..submission(TASK) });
    let full = |limit| Rejection::QueueFull { bound: "lane", limit, retry_after: Millis::secs(1) };
    check(crowded(20, 15), of(Qos::Background), &["task-submitted"]);
    check_refused(crowded(20, 16), of(Qos::Background), &full(16), &[]);
    check(crowded(20, 18), of(Qos::Normal), &["task-submitted"]);
    check_refused(crowded(20, 19), of(Qos::Normal), &full(19), &[]);
    check(crowded(20, 19), of(Qos::Urgent), &["task-submitted"]);
    check_refused(crowded(20, 20), of(Qos::Urgent), &full(20), &[]);
}

#[test]
fn semantics_22_what_was_admitted_comes_back_to_a_full_lane() {
    let first = ReachId([100; 16]);
    let full = crowded(2, 2).act(dispatch(first, 1, ("a", 1)));
    let full = full.act(submit(Submission { qos: Qos::Urgent, ..submission(TASK) }));
    check(full, says(first, 1, release()), &["task-released", "task-queued"]);
}

#[test]
fn semantics_32_a_batch_settles_once_when_it_is_closed_and_its_last_task_has_ended() {
    let open = by_caller(Command::OpenBatch { batch: batch(), callback: None, idempotency: None, bound: None });
    let close = by_caller(Command::CloseBatch { batch: batch(), total: 1, refused: 0 });
    let inside = Submission { batch: Some((batch(), 0)), ..submission(TASK) };
    let play = Play::new().act(open).act(submit(inside.clone()));
    let ended = check(play.clone(), cancel(TASK), &["task-cancelled"]);
    check(ended, close.clone(), &["batch-closed", "batch-settled"]);
    let closed = check(play, close, &["batch-closed"]);
    let settled = check(closed, cancel(TASK), &["task-cancelled", "batch-settled"]);
    let late = Submission { reach_id: ReachId([2; 16]), ..inside };
    check_refused(settled, submit(late), &Rejection::BatchNotOpen { batch: batch() }, &[]);
}
