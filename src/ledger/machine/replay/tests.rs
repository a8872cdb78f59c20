//! The rules of replay plans: given what was proposed before, when this is proposed, then these events.

use std::sync::Arc;

use crate::ledger::ids::{Digest, ReachId, ReplayId, Seq, TokenId};
use crate::ledger::machine::command::{Command, Proposal, Retryable, Word};
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::event::{Actor, HeldWhy};
use crate::ledger::machine::replay::order::{
    Amendment, Before, Patched, RedriveOrder, ReplayItem, ReplayOrder, ReplayWord,
};
use crate::ledger::machine::replay::{Ended, ItemAction, ItemOutcome, MAX_REPLAYS, MayHaveRun, ReplayPhase, Skip};
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::spec::{BodyRef, Idempotence, OrphanPolicy, SchemaVerdicts, SlowPolicy, Submission};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{Failure, FailureClass, Task};
use crate::ledger::machine::world::{World, agent_id, submission, task_id};
use crate::ledger::time::Millis;

pub(super) fn replay_id(n: u8) -> ReplayId {
    ReplayId([n; 16])
}

fn order(n: u8, total: u32) -> ReplayOrder {
    ReplayOrder {
        replay: replay_id(n),
        select: "{}".into(),
        reason: "after the incident".into(),
        rate: 20,
        may_have_run: MayHaveRun::Skip,
        total,
        list: BodyRef { digest: Digest([9; 32]), len: 21 },
        position: Seq(1),
        patch: None,
        idempotency: None,
        bound: None,
    }
}

pub(super) fn plan(n: u8, total: u32) -> Command {
    Command::PlanReplay(Box::new(order(n, total)))
}

pub(super) fn item_of(n: u8, index: u32, task: ReachId, action: ItemAction) -> Command {
    let before = Some(Before { has_payload: true, ..Before::default() });
    Command::ReplayItem(Box::new(ReplayItem { replay: replay_id(n), index, task, action, amendment: None, before }))
}

pub(super) fn steer(n: u8, word: ReplayWord) -> Command {
    Command::SteerReplay { replay: replay_id(n), word }
}

pub(super) fn idempotent(n: u8) -> Submission {
    Submission { idempotence: Idempotence::Declared, orphan: OrphanPolicy::Replay, ..submission(n) }
}

/// Orphaned tasks of a lost agent.
fn orphans(world: &mut World, tasks: impl IntoIterator<Item = Submission>) {
    world.register("a", Some("i"));
    for asked in tasks {
        let n = asked.reach_id.0[0];
        world.submit(asked);
        world.hand(n, "a");
        world.report(n, "a", Word::Ack).1.unwrap();
    }
    let (agent, incarnation) = (agent_id("a"), world.incarnation("a"));
    world.ok(Command::MarkLost { agent, incarnation, silent: Millis::secs(45) });
}

/// A task that its agent failed for good.
fn failed(world: &mut World, asked: Submission) {
    let n = asked.reach_id.0[0];
    world.submit(asked);
    world.hand(n, "a");
    world.report(n, "a", Word::Ack).1.unwrap();
    let failure = Failure { class: FailureClass::Business, code: "no".into(), message: None };
    let (retryable, retry_after) = (Retryable::No, None);
    let word = Word::Fail { failure, digest: Digest([1; 32]), retryable, retry_after };
    assert_eq!(world.report(n, "a", word).0, ["task-failed"]);
}

fn outcome(world: &World, n: u8, index: u32) -> Option<ItemOutcome> {
    world.state.replay(replay_id(n)).unwrap().outcome(index)
}

#[test]
fn r3_an_item_and_its_outcome_are_one_commit_and_a_second_turn_does_nothing() {
    let mut world = World::new();
    orphans(&mut world, [idempotent(1), idempotent(2)]);
    assert_eq!(world.ok(plan(1, 2)), ["replay-planned", "replay-started"]);
    let turn = item_of(1, 0, task_id(1), ItemAction::Replay);
    assert_eq!(world.ok(turn.clone()), ["replay-item-done", "task-replayed", "task-queued"]);
    assert_eq!(world.refused(turn), Rejection::ReplayMovedOn { phase: ReplayPhase::Running });
    let last = ["replay-item-done", "task-replayed", "task-queued", "replay-finished"];
    assert_eq!(world.ok(item_of(1, 1, task_id(2), ItemAction::Replay)), last);
    let ended = world.state.replay(replay_id(1)).unwrap();
    assert_eq!((ended.phase, ended.settled), (ReplayPhase::Finished(Ended::Completed), 2));
    assert!(world.state.replays().is_empty(), "a finished plan leaves memory");
    assert_eq!(
        world.refused(item_of(1, 9, task_id(2), ItemAction::Replay)),
        Rejection::ReplayMovedOn { phase: ReplayPhase::Finished(Ended::Completed) }
    );
}

#[test]
fn r2_two_plans_over_the_same_orphan_dispatch_it_once() {
    let mut world = World::new();
    orphans(&mut world, [idempotent(1)]);
    world.ok(plan(1, 2));
    world.ok(plan(2, 2));
    world.ok(item_of(1, 0, task_id(1), ItemAction::Replay));
    assert_eq!(world.ok(item_of(2, 0, task_id(1), ItemAction::Replay)), ["replay-item-skipped"]);
    assert_eq!(outcome(&world, 2, 0), Some(ItemOutcome::Skipped(Skip::MovedOn)));
    world.register("b", Some("i"));
    world.hand(1, "b");
    assert_eq!(world.ok(item_of(2, 1, task_id(1), ItemAction::Replay)), ["replay-item-skipped", "replay-finished"]);
    assert_eq!(outcome(&world, 2, 1), Some(ItemOutcome::Skipped(Skip::HeldElsewhere)));
}

#[test]
fn r_rec_3_what_has_ended_meanwhile_is_skipped_and_says_so() {
    let mut world = World::new();
    orphans(&mut world, [idempotent(1)]);
    world.ok(plan(1, 2));
    world.complete(1, "a"); // Under the still valid lease.
    assert_eq!(world.ok(item_of(1, 0, task_id(1), ItemAction::Replay)), ["replay-item-skipped"]);
    assert_eq!(outcome(&world, 1, 0), Some(ItemOutcome::Skipped(Skip::Finished)));
}

#[test]
fn an_item_that_names_no_task_of_its_namespace_is_unknown_not_finished() {
    let mut world = World::new();
    orphans(&mut world, [idempotent(1)]);
    world.ok(plan(1, 3));
    let skipped = Some(ItemOutcome::Skipped(Skip::Unknown));
    assert_eq!(world.ok(item_of(1, 0, task_id(77), ItemAction::Replay)), ["replay-item-skipped"]);
    assert_eq!(outcome(&world, 1, 0), skipped);
    world.complete(1, "a");
    let row = Arc::new(world.state.task(task_id(1)).unwrap().clone());
    world.state.forget_up_to(world.state.seq());
    let turn = |index: u32, row: Arc<Task>| {
        let before = Some(Before { finished: Some(row), ..Before::default() });
        let (task, action) = (task_id(1), ItemAction::Replay);
        Command::ReplayItem(Box::new(ReplayItem { replay: replay_id(1), index, task, action, amendment: None, before }))
    };
    let foreign = Task { namespace: "other".parse().unwrap(), ..Task::clone(&row) };
    world.ok(turn(1, Arc::new(foreign)));
    assert_eq!(outcome(&world, 1, 1), skipped, "foreign and absent are the same (N1)");
    world.ok(turn(2, row));
    assert_eq!(outcome(&world, 1, 2), Some(ItemOutcome::Skipped(Skip::Finished)));
}

#[test]
fn semantics_40_what_may_have_run_takes_the_operators_word() {
    let mut world = World::new();
    orphans(&mut world, [submission(1)]);
    world.ok(plan(1, 2));
    world.ok(item_of(1, 0, task_id(1), ItemAction::Replay));
    assert_eq!(outcome(&world, 1, 0), Some(ItemOutcome::Skipped(Skip::MayHaveRun)));
    let mut word = order(2, 2);
    word.may_have_run = MayHaveRun::Include;
    world.ok(Command::PlanReplay(Box::new(word)));
    world.ok(item_of(2, 0, task_id(1), ItemAction::Replay));
    assert_eq!(world.status(1), StatusKind::Queued);
    let avoided = world.state.task(task_id(1)).unwrap().avoid.clone();
    assert_eq!(avoided, Some(agent_id("a")), "another agent is tried where there is one");
}

#[test]
fn r_rec_3_what_a_newer_success_of_its_session_supersedes_is_left_alone_whatever_the_word() {
    let mut world = World::new();
    orphans(&mut world, [idempotent(1), submission(2)]);
    let mut word = order(1, 2);
    word.may_have_run = MayHaveRun::Include;
    world.ok(Command::PlanReplay(Box::new(word)));
    let turn = |index: u32, n: u8| {
        let before = Some(Before { superseded_by: Some(task_id(9)), ..Before::default() });
        let (task, action) = (task_id(n), ItemAction::Replay);
        Command::ReplayItem(Box::new(ReplayItem { replay: replay_id(1), index, task, action, amendment: None, before }))
    };
    let skipped = Some(ItemOutcome::Skipped(Skip::Superseded));
    assert_eq!(world.ok(turn(0, 1)), ["replay-item-skipped", "task-replay-held"]);
    assert_eq!(outcome(&world, 1, 0), skipped);
    assert_eq!(world.state.held(task_id(1)), Some(HeldWhy::Superseded { by: task_id(9) }), "the sweep need not ask");
    // A word on that very task still acts.
    let hand_over = Command::ResolveTask { task: task_id(1), resolution: Resolution::HandOver, reason: "seen".into() };
    assert_eq!(world.ok(hand_over), ["task-resolved", "task-replayed", "task-queued"]);
    assert_eq!(world.ok(turn(1, 2)), ["replay-item-skipped", "task-replay-held", "replay-finished"]);
}

#[test]
fn r_rec_3_an_orphan_that_its_policy_holds_is_told_to_be_superseded_as_any_other() {
    let mut world = World::new();
    orphans(&mut world, [submission(1)]);
    let sweep = |by| Command::ReplayTask { task: task_id(1), superseded_by: by };
    assert_eq!(world.refused(sweep(None)), Rejection::MovedOn { state: StatusKind::Orphaned });
    assert_eq!(world.ok(sweep(Some(task_id(9)))), ["task-replay-held"]);
    assert_eq!(world.refused(sweep(Some(task_id(9)))), Rejection::MovedOn { state: StatusKind::Orphaned });
}

#[test]
fn r_rec_3_the_sweep_holds_a_superseded_orphan_for_a_word_and_says_so_once() {
    let mut world = World::new();
    orphans(&mut world, [idempotent(1)]);
    let sweep = || Command::ReplayTask { task: task_id(1), superseded_by: Some(task_id(9)) };
    assert_eq!(world.ok(sweep()), ["task-replay-held"]);
    assert_eq!(world.state.held(task_id(1)), Some(HeldWhy::Superseded { by: task_id(9) }));
    let copy = crate::ledger::machine::State::from_image(world.state.to_image());
    assert_eq!((copy.held(task_id(1)), copy.digest()), (world.state.held(task_id(1)), world.state.digest()));
    let held = Rejection::MovedOn { state: StatusKind::Orphaned };
    assert_eq!(world.refused(sweep()), held);
    assert_eq!(world.refused(Command::ReplayTask { task: task_id(1), superseded_by: None }), held);
    let hand_over = Command::ResolveTask { task: task_id(1), resolution: Resolution::HandOver, reason: "seen".into() };
    assert_eq!(world.ok(hand_over), ["task-resolved", "task-replayed", "task-queued"]);
    assert_eq!(world.state.held(task_id(1)), None);
}

#[test]
fn semantics_11_the_orphan_policy_replay_is_the_word_for_orphans_and_for_them_alone() {
    let mut world = World::new();
    let asked = |n: u8| Submission { orphan: OrphanPolicy::Replay, ..submission(n) };
    orphans(&mut world, [asked(1)]);
    world.ok(plan(1, 2));
    let turn = item_of(1, 0, task_id(1), ItemAction::Replay);
    assert_eq!(world.ok(turn), ["replay-item-done", "task-replayed", "task-queued"]);
    world.register("b", Some("i"));
    world.hand(1, "b");
    world.report(1, "b", Word::Ack).1.unwrap();
    world.wait(Millis::secs(600));
    let due = crate::ledger::machine::due::Subject::Task(task_id(1));
    assert_eq!(world.ok(Command::Fire { subject: due }), ["task-slow"]);
    world.ok(item_of(1, 1, task_id(1), ItemAction::Replay));
    assert_eq!(outcome(&world, 1, 1), Some(ItemOutcome::Skipped(Skip::MayHaveRun)), "it may still be at work");
}

#[test]
fn r5_a_paused_or_cancelled_plan_dispatches_nothing_more() {
    let mut world = World::new();
    orphans(&mut world, [idempotent(1)]);
    world.ok(plan(1, 1));
    assert_eq!(world.ok(steer(1, ReplayWord::Pause { reason: None })), ["replay-paused"]);
    assert_eq!(world.ok(steer(1, ReplayWord::Pause { reason: None })), [""; 0], "saying it twice is harmless");
    let turn = item_of(1, 0, task_id(1), ItemAction::Replay);
    assert_eq!(world.refused(turn.clone()), Rejection::ReplayMovedOn { phase: ReplayPhase::Paused });
    assert_eq!(world.ok(steer(1, ReplayWord::Rate { rate: 5 })), ["replay-rate-changed"]);
    assert_eq!(world.ok(steer(1, ReplayWord::Resume { reason: None })), ["replay-resumed"]);
    assert_eq!(world.ok(steer(1, ReplayWord::Cancel { reason: None })), ["replay-finished"]);
    let cancelled = ReplayPhase::Finished(Ended::Cancelled);
    assert_eq!(world.refused(turn), Rejection::ReplayMovedOn { phase: cancelled });
    assert_eq!(
        world.refused(steer(1, ReplayWord::Resume { reason: None })),
        Rejection::ReplayEnded { phase: cancelled }
    );
    assert_eq!(world.status(1), StatusKind::Orphaned);
}

#[test]
fn a_plan_over_nothing_or_at_no_rate_or_beyond_the_bound_is_refused() {
    let mut world = World::new();
    assert_eq!(world.refused(plan(1, 0)), Rejection::ReplayEmpty);
    assert!(matches!(world.refused(plan(1, 100_001)), Rejection::ReplayTooLarge { .. }));
    for rate in [0, 100_001] {
        let absurd = ReplayOrder { rate, ..order(1, 1) };
        assert!(matches!(world.refused(Command::PlanReplay(Box::new(absurd))), Rejection::ReplayRate { .. }));
    }
    for n in 0..u8::try_from(MAX_REPLAYS).unwrap() {
        world.ok(plan(n + 1, 1));
    }
    assert!(matches!(world.refused(plan(200, 1)), Rejection::BoundReached { .. }));
    world.ok(steer(1, ReplayWord::Cancel { reason: None }));
    world.ok(plan(200, 1));
    let foreign = Proposal::by_hub(Some("other".parse().unwrap()), steer(200, ReplayWord::Resume { reason: None }));
    assert_eq!(world.propose(foreign).1, Err(Rejection::ReplayUnknown));
}

fn redrive(n: u8, may_have_run: MayHaveRun, before: Before) -> Command {
    let (task, successor, reason) = (task_id(n), task_id(n + 100), "again".into());
    let order =
        RedriveOrder { task, successor, may_have_run, correction: None, schemas: None, reason, before: Some(before) };
    Command::RedriveTask(Box::new(order))
}

#[test]
fn semantics_40_a_redrive_makes_a_new_task_that_is_linked_both_ways_and_makes_it_once() {
    let mut world = World::new();
    world.register("a", Some("i"));
    failed(&mut world, Submission { labels: vec![("k".into(), "v".into())], ..submission(1) });
    let seen = world.state.clone();
    world.state.forget_up_to(world.state.seq()); // It is only on disk now.
    let finished = seen.task(task_id(1)).cloned().map(Arc::new);
    let before = Before { finished, ..Before::default() };
    let operator = Proposal {
        namespace: Some(crate::ledger::machine::world::namespace()),
        actor: Actor::Token(TokenId::new("operator").unwrap()),
        trace: None,
        command: redrive(1, MayHaveRun::Skip, before.clone()),
    };
    let (events, answer) = world.propose(operator);
    assert_eq!(events, ["task-submitted", "task-redriven"]);
    answer.unwrap();
    let made = world.state.task(task_id(101)).unwrap();
    assert_eq!((made.status.kind(), made.attempt.0, made.spec.labels.len()), (StatusKind::Queued, 0, 1));
    assert_eq!(made.submitter, Some(TokenId::new("caller").unwrap()), "agents serve it for the same caller");
    assert_eq!(made.seqs.len(), 2, "its history shows the link");
    assert_eq!(world.state.kin(task_id(101)).redrive_of, Some(task_id(1)));
    let again = Rejection::AlreadyRedriven { successor: task_id(101) };
    assert_eq!(world.refused(redrive(1, MayHaveRun::Skip, before.clone())), again, "decided, not yet durable");
    world.state.forget_up_to(world.state.seq());
    let on_disk = Before { redriven_as: Some(task_id(101)), ..before };
    assert_eq!(world.refused(redrive(1, MayHaveRun::Skip, on_disk)), again, "durable, read by the shell");
    let copy = crate::ledger::machine::State::from_image(world.state.to_image());
    assert_eq!(copy.kin(task_id(101)).redrive_of, Some(task_id(1)), "a snapshot keeps the link");
    assert_eq!(copy.digest(), world.state.digest());
}

#[test]
fn only_what_ended_badly_is_redriven_and_what_may_have_run_takes_the_word() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    let running = Rejection::NotRedrivable { state: StatusKind::Processing };
    assert_eq!(world.refused(redrive(1, MayHaveRun::Skip, Before::default())), running);
    world.complete(1, "a");
    let succeeded = Rejection::NotRedrivable { state: StatusKind::Succeeded };
    assert_eq!(world.refused(redrive(1, MayHaveRun::Skip, Before::default())), succeeded);
    world.submit(Submission { lifetime: Millis::secs(5), ..submission(2) });
    world.hand(2, "a");
    world.report(2, "a", Word::Ack).1.unwrap();
    world.wait(Millis::secs(5));
    let due = crate::ledger::machine::due::Subject::Task(task_id(2));
    assert_eq!(world.ok(Command::Fire { subject: due }), ["task-expired"]);
    assert_eq!(world.refused(redrive(2, MayHaveRun::Skip, Before::default())), Rejection::MayHaveRun);
    world.ok(redrive(2, MayHaveRun::Include, Before::default()));
    let gone = Rejection::TaskUnknown;
    assert_eq!(world.refused(redrive(77, MayHaveRun::Skip, Before::default())), gone);
}

#[test]
fn a_redrive_without_its_payload_or_behind_a_newer_success_of_its_session_is_refused() {
    let mut world = World::new();
    world.register("a", Some("i"));
    let payload = Some(BodyRef { digest: Digest([5; 32]), len: 3 });
    failed(&mut world, Submission { payload, ..submission(1) });
    assert_eq!(world.refused(redrive(1, MayHaveRun::Skip, Before::default())), Rejection::PayloadErased);
    let newer = Before { superseded_by: Some(task_id(9)), has_payload: true, ..Before::default() };
    assert_eq!(world.refused(redrive(1, MayHaveRun::Skip, newer)), Rejection::Superseded { by: task_id(9) });
    world.ok(plan(1, 2));
    world.ok(item_of(1, 0, task_id(1), ItemAction::Redrive));
    assert_eq!(outcome(&world, 1, 0), Some(ItemOutcome::Redriven));
    assert!(world.state.task(replay_id(1).successor(task_id(1))).is_some());
    world.ok(item_of(1, 1, task_id(1), ItemAction::Redrive));
    assert_eq!(outcome(&world, 1, 1), Some(ItemOutcome::Skipped(Skip::AlreadyRedriven)));
}

#[test]
fn s9_an_operator_resolves_a_slow_task_and_its_late_word_is_fenced() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.register("b", Some("i"));
    for n in 1..4 {
        world.submit(Submission { slow_reach: SlowPolicy::Fail { after: Millis::secs(9) }, ..submission(n) });
        world.hand(n, "a");
        world.report(n, "a", Word::Ack).1.unwrap();
    }
    world.wait(Millis::secs(60));
    for n in 1..4 {
        let due = crate::ledger::machine::due::Subject::Task(task_id(n));
        assert_eq!(world.ok(Command::Fire { subject: due }), ["task-slow"]);
    }
    let resolve = |n: u8, resolution| Command::ResolveTask { task: task_id(n), resolution, reason: "seen".into() };
    let handed = ["task-resolved", "task-replayed", "task-queued"];
    assert_eq!(world.ok(resolve(1, Resolution::HandOver)), handed);
    assert!(matches!(world.try_complete(1, "a").1, Err(Rejection::LeaseSuperseded { .. })));
    assert_eq!(world.ok(resolve(2, Resolution::Fail)), ["task-resolved", "task-dead-lettered"]);
    assert_eq!(world.ok(resolve(3, Resolution::Wait)), ["task-resolved"]);
    assert_eq!(world.state.task(task_id(3)).unwrap().status.timer(), None, "its policy acts no more");
    let queued = Rejection::NotResolvable { state: StatusKind::Queued };
    assert_eq!(world.refused(resolve(1, Resolution::Fail)), queued);
}

#[test]
fn a_successor_is_the_same_at_every_try_another_for_every_task_and_an_id_like_any() {
    let of = |replay: u8, task: u8| replay_id(replay).successor(task_id(task));
    assert_eq!(of(1, 1), of(1, 1));
    assert!(of(1, 1) != of(1, 2) && of(1, 1) != of(2, 1));
    let made = of(7, 1).0;
    assert_eq!((made[..6].to_vec(), made[6] >> 4, made[8] >> 6), (vec![7; 6], 7, 2), "RFC 9562, version 7");
}

#[test]
fn a_plan_that_patches_never_makes_a_task_anew_as_it_is() {
    let mut world = World::new();
    world.register("a", Some("i"));
    failed(&mut world, submission(1));
    world.ok(plan(1, 4));
    let digest = |n: u8| Digest([n; 32]);
    let schemas = Arc::new(SchemaVerdicts { accepted: vec![digest(7)], refused: Vec::new() });
    let amendment = Some(Amendment { patch: Some(Arc::from(&b"{\"a\":1}"[..])), schemas: Arc::clone(&schemas) });
    let mut turn = |index: u32, patched: Option<Patched>| {
        let before = Some(Before { has_payload: true, patched, ..Before::default() });
        let (replay, task, amendment) = (replay_id(1), task_id(1), amendment.clone());
        let item = ReplayItem { replay, index, task, action: ItemAction::Redrive, amendment, before };
        world.ok(Command::ReplayItem(Box::new(item)));
        outcome(&world, 1, index)
    };
    let skipped = |skip| Some(ItemOutcome::Skipped(skip));
    assert_eq!(turn(0, Some(Patched::Left(Skip::PayloadNotInline))), skipped(Skip::PayloadNotInline));
    assert_eq!(turn(1, Some(Patched::Left(Skip::PayloadTooLarge))), skipped(Skip::PayloadTooLarge));
    assert_eq!(turn(2, None), skipped(Skip::PayloadNotInline), "a shell that forgets it does no harm");
    let payload = BodyRef { digest: digest(8), len: 3 };
    assert_eq!(turn(3, Some(Patched::Made(payload.clone()))), Some(ItemOutcome::Redriven));
    let made = world.state.task(replay_id(1).successor(task_id(1))).unwrap();
    assert_eq!((made.spec.payload.as_ref(), &made.schemas), (Some(&payload), &*schemas));
}

#[test]
fn a_payload_is_only_asked_for_where_the_item_would_go_with_it() {
    let mut world = World::new();
    world.register("a", Some("i"));
    failed(&mut world, submission(1));
    world.ok(plan(1, 3));
    let amendment = |refused: Vec<Digest>| {
        let schemas = Arc::new(SchemaVerdicts { accepted: Vec::new(), refused });
        Some(Amendment { patch: Some(Arc::from(&b"{\"a\":1}"[..])), schemas })
    };
    let item = |index: u32, task: u8, before: Before| ReplayItem {
        replay: replay_id(1),
        index,
        task: task_id(task),
        action: ItemAction::Redrive,
        amendment: amendment(Vec::new()),
        before: Some(Before { has_payload: true, patched: Some(Patched::NotMade), ..before }),
    };
    let asks = |world: &World, item: &ReplayItem| super::would_go(&world.state, None, item);
    let goes = item(0, 1, Before::default());
    assert!(asks(&world, &goes));
    assert!(!asks(&world, &item(3, 1, Before::default())), "beyond the list");
    assert!(!asks(&world, &item(0, 9, Before::default())), "unknown");
    assert!(!asks(&world, &item(0, 1, Before { redriven_as: Some(task_id(101)), ..Before::default() })));
    assert!(!asks(&world, &item(0, 1, Before { superseded_by: Some(task_id(9)), ..Before::default() })));
    let moved = Rejection::ReplayMovedOn { phase: ReplayPhase::Running };
    assert_eq!(world.refused(Command::ReplayItem(Box::new(goes))), moved, "no task is made of what was not made");
    assert_eq!(outcome(&world, 1, 0), Some(ItemOutcome::Pending));
}
