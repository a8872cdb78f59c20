//! What every store must keep, as tests that each of them runs, and the samples that store tests are made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block::encode_commit;
use super::{AppendError, Body, BodyKey, BodyKind, Commit, FinishedFilter, Head, Kept, Rows, Store};
use crate::ledger::ids::{
    AgentId, AttemptNo, BatchId, CallbackId, Digest, FairnessKey, Namespace, ReachId, ReplayId, Seq, SessionId, TokenId,
};
use crate::ledger::machine::access::{Reach, Token};
use crate::ledger::machine::batch::{Batch, BatchPhase};
use crate::ledger::machine::callback::{CallbackState, CallbackSubject};
use crate::ledger::machine::command::CallbackRow;
use crate::ledger::machine::event::{Actor, Event, EventBody, TaskExpired};
use crate::ledger::machine::replay::{Ended, ItemOutcome, MayHaveRun, Replay, ReplayPhase};
use crate::ledger::machine::success::Success;
use crate::ledger::machine::task::samples;
use crate::ledger::machine::task::spec::{BodyRef, Idempotence, OrphanPolicy, SchemaVerdicts, Submission};
use crate::ledger::machine::task::status::Status;
use crate::ledger::machine::task::{LaneId, Task};
use crate::ledger::machine::{KeyBinding, KeySubject};
use crate::ledger::time::{Millis, Timestamp};

/// The namespace of every sample.
pub(crate) fn namespace() -> Namespace {
    Namespace::new("team-a").unwrap()
}

/// A task id that sorts by `n`.
pub(crate) fn reach(n: u64) -> ReachId {
    let mut id = [1; 16];
    id[..8].copy_from_slice(&n.to_be_bytes());
    ReachId(id)
}

/// The smallest event body about a task.
pub(crate) fn expiry(n: u64) -> TaskExpired {
    TaskExpired { task: reach(n) }
}

/// An event at a place.
pub(crate) fn event(seq: u64, body: impl Into<EventBody>) -> Event {
    Event {
        seq: Seq(seq),
        at: Timestamp(1_000 + seq),
        namespace: Some(namespace()),
        actor: Actor::Hub,
        session: None,
        batch: None,
        trace: None,
        body: body.into(),
    }
}

/// A token of no power.
pub(crate) fn token() -> Token {
    Token {
        id: TokenId::new("t1").unwrap(),
        name: "sample".into(),
        secret: Digest([3; 32]),
        previous: None,
        scopes: Vec::new(),
        reach: Reach::One(namespace()),
        agents: Vec::new(),
        capabilities: Vec::new(),
        expires_at: None,
        created_at: Timestamp(5),
    }
}

/// Commits of so many events each, one after the other from an empty ledger.
pub(crate) fn chain(counts: &[u64]) -> Vec<Commit> {
    let mut head = Head::default();
    counts
        .iter()
        .map(|count| {
            let commit = next(&head, *count);
            head = commit.head;
            commit
        })
        .collect()
}

/// A commit of `count` events after `head`, without rows.
pub(crate) fn next(head: &Head, count: u64) -> Commit {
    let events: Vec<_> = (1..=count).map(|n| event(head.seq.0 + n, expiry(head.seq.0 + n))).collect();
    encode_commit(head, &events).unwrap().0
}

/// A finished task, with a text of so many bytes in it to make its row long.
pub(crate) fn task(n: u64, long: usize) -> Task {
    Task {
        namespace: namespace(),
        spec: Arc::new(submission(n, long)),
        status: Status::Expired,
        lane: LaneId::default(),
        submitted_at: Timestamp(1),
        deadline: Timestamp(2),
        ended_at: Some(Timestamp(3)),
        ended_by: None,
        last_lease: None,
        submitter: None,
        attempt: AttemptNo(1),
        acked: None,
        retries_used: 0,
        interruptions: 0,
        never_started: 0,
        agent: Some(AgentId::new(if n.is_multiple_of(2) { "even" } else { "odd" }).unwrap()),
        avoid: None,
        schemas: SchemaVerdicts::default(),
        progress: None,
        progress_events: 0,
        reach_outcome: None,
        work_outcome: None,
        result: None,
        failure: None,
        outcomes: Vec::new(),
        callback: None,
        callbacks_open: 0,
        stale_reports: 0,
        seqs: vec![Seq(n)],
        trace: None,
    }
}

fn submission(n: u64, long: usize) -> Submission {
    Submission {
        idempotence: Idempotence::Declared,
        lifetime: Millis::secs(60),
        orphan: OrphanPolicy::Replay,
        session: Some(SessionId::new(if n.is_multiple_of(3) { "s-0" } else { "s-1" }).unwrap()),
        labels: vec![("long".into(), "x".repeat(long).into())],
        fairness_key: FairnessKey::new("t1").unwrap(),
        batch: Some((BatchId([n.to_be_bytes()[7] % 2; 16]), 0)),
        ..samples::submission(reach(n), "text.count")
    }
}

fn batch() -> Batch {
    Batch {
        id: BatchId([7; 16]),
        namespace: namespace(),
        phase: BatchPhase::Settled { total: 2, refused: 1 },
        callback: None,
        callback_standing: None,
        idempotency: None,
        accepted: 1,
        by_state: BTreeMap::new(),
        opened_at: Timestamp(1),
        seqs: vec![Seq(1)],
    }
}

fn replay(n: u8) -> Replay {
    Replay {
        id: ReplayId([n; 16]),
        namespace: namespace(),
        by: Actor::Hub,
        select: "{}".into(),
        reason: "why".into(),
        rate: 20,
        may_have_run: MayHaveRun::Skip,
        list: BodyRef { digest: Digest([1; 32]), len: 21 },
        position: Seq(1),
        phase: ReplayPhase::Finished(Ended::Completed),
        outcomes: vec![ItemOutcome::Replayed; 5_000],
        settled: 5_000,
        planned_at: Timestamp(1),
        ended_at: Some(Timestamp(2)),
        seqs: vec![Seq(1)],
    }
}

fn callback(n: u8) -> (CallbackId, CallbackRow) {
    let row = CallbackRow {
        namespace: namespace(),
        subject: CallbackSubject::Batch(BatchId([7; 16])),
        seq: Seq(u64::from(n)),
        url: "https://caller.example/hook".into(),
        secret_ref: "default".into(),
        state: CallbackState::Exhausted,
        attempts: 9,
        at: Timestamp(4),
        last_error: Some("http-500".into()),
    };
    (CallbackId([n; 16]), row)
}

fn binding(n: u64) -> KeyBinding {
    KeyBinding {
        bound_to: KeySubject::Task(reach(n)),
        fingerprint: Digest([9; 32]),
        subject: TokenId::new("t1").unwrap(),
        receipt: Seq(n),
        until: Timestamp(99),
    }
}

/// Runs every test of the contract, each on a fresh store of `open`.
pub(crate) fn holds(open: &dyn Fn() -> Box<dyn Store>) {
    reads_give_back_the_frames_byte_for_byte(&*open());
    a_commit_that_does_not_follow_is_a_conflict(&*open());
    rows_and_bodies_of_every_size_come_back(&*open());
    finished_tasks_are_listed_newest_first_and_every_filter_narrows(&*open());
    the_newest_success_of_a_session_is_kept_and_an_older_one_does_not_take_its_place(&*open());
    callbacks_are_listed_by_id(&*open());
    the_newest_two_snapshots_are_kept(&*open());
    a_register_changes_only_from_what_was_expected(&*open());
}

fn reads_give_back_the_frames_byte_for_byte(store: &dyn Store) {
    assert_eq!(store.head(), Head::default());
    assert_eq!(store.events(Seq(0), 10).unwrap(), []);
    // One commit of long events, so that some are longer than a chunk and some chunks hold several.
    let mut commits = chain(&[1, 200, 3]);
    let head = commits[2].head;
    let long = |seq: u64, len: usize| {
        let mut token = token();
        token.name = "y".repeat(len).into();
        event(seq, crate::ledger::machine::event::TokenCreated { token })
    };
    let events = [
        long(205, 10),
        long(206, 30_000),
        long(207, 1_900),
        long(208, 2_100),
        long(209, 59_000),
        event(210, expiry(1)),
    ];
    commits.push(encode_commit(&head, &events).unwrap().0);
    commits.push(next(&commits[3].head, 2));
    let mut frames = Vec::new();
    for commit in &commits {
        store.append(commit).unwrap();
        assert_eq!(store.head(), commit.head);
        let mut at = commit.header_len as usize;
        for (_, len) in &commit.events {
            frames.push(commit.frame[at..at + *len as usize].to_vec());
            at += *len as usize;
        }
    }
    for (after, limit) in [(0, 1_000), (0, 1), (3, 7), (100, 200), (204, 2), (205, 10), (211, 5), (212, 5)] {
        let read = store.events(Seq(after), limit).unwrap();
        let want: Vec<_> = frames.iter().skip(usize::try_from(after).unwrap()).take(limit).collect();
        assert_eq!(
            read.iter().map(|stored| stored.frame.to_vec()).collect::<Vec<_>>().iter().collect::<Vec<_>>(),
            want
        );
        assert!(read.iter().zip(after + 1..).all(|(stored, seq)| stored.event.seq == Seq(seq)));
    }
    for seq in 1..=212_u64 {
        let stored = store.event(Seq(seq)).unwrap().unwrap();
        assert_eq!(
            (stored.event.seq, stored.frame.as_ref()),
            (Seq(seq), frames[usize::try_from(seq).unwrap() - 1].as_slice())
        );
    }
    assert_eq!(store.event(Seq(0)).unwrap(), None);
    assert_eq!(store.event(Seq(213)).unwrap(), None);
}

fn a_commit_that_does_not_follow_is_a_conflict(store: &dyn Store) {
    let commits = chain(&[2, 2]);
    store.append(&commits[0]).unwrap();
    let conflict = Err(AppendError::Conflict { head: commits[0].head });
    assert_eq!(store.append(&commits[0]), conflict, "the same twice");
    assert_eq!(store.append(&chain(&[2, 2, 1])[2]), conflict, "one left out");
    let mut other = commits[1].clone();
    other.expected.hash = Digest([1; 32]);
    assert_eq!(store.append(&other), conflict, "another history");
    assert_eq!(store.append(&commits[1]), Ok(()));
}

fn rows_and_bodies_of_every_size_come_back(store: &dyn Store) {
    let mut commit = chain(&[3]).remove(0);
    let lengths = [0_usize, 1, 2_000, 2_048, 2_049, 100_000, 1_048_576];
    let body = |kind, attempt| BodyKey::Task { task: reach(1), kind, attempt };
    for (attempt, len) in (0..).zip(lengths) {
        commit.bodies.push((body(BodyKind::Result, attempt), Body { salt: [4; 16], bytes: vec![5; len].into() }));
    }
    commit.bodies.push((BodyKey::Named(Digest([6; 32])), Body { salt: [0; 16], bytes: vec![6; 65_536].into() }));
    let tasks = [task(1, 0), task(2, 5_000)];
    let key = "key".repeat(80).into();
    commit.rows = Rows {
        finished: tasks.iter().cloned().map(Arc::new).collect(),
        after: vec![(reach(1), Seq(2)), (reach(1), Seq(3))],
        keys: vec![(namespace(), Arc::clone(&key), binding(1))],
        batches: vec![batch()],
        replays: vec![replay(1).into(), replay(2).into()],
        callbacks: vec![callback(1)],
        successes: Vec::new(),
    };
    store.append(&commit).unwrap();
    for (attempt, len) in (0..).zip(lengths) {
        let body = store.body(&body(BodyKind::Result, attempt)).unwrap().unwrap();
        assert_eq!((body.salt, body.bytes.len()), ([4; 16], len));
        assert!(body.bytes.iter().all(|byte| *byte == 5));
    }
    assert_eq!(store.body(&BodyKey::Named(Digest([6; 32]))).unwrap().unwrap().bytes.len(), 65_536);
    assert_eq!(store.body(&body(BodyKind::Error, 0)).unwrap(), None);
    for task in tasks {
        assert_eq!(store.finished(task.id()).unwrap(), Some(task));
    }
    assert_eq!(store.finished(reach(3)).unwrap(), None);
    assert_eq!(store.after(reach(1)).unwrap(), [Seq(2), Seq(3)]);
    assert_eq!(store.after(reach(2)).unwrap(), []);
    assert_eq!(store.key(&namespace(), &key).unwrap(), Some(binding(1)));
    assert_eq!(store.key(&namespace(), &"key".into()).unwrap(), None);
    assert_eq!(store.key(&Namespace::new("team-b").unwrap(), &key).unwrap(), None);
    assert_eq!(store.batch(BatchId([7; 16])).unwrap(), Some(batch()));
    assert_eq!(store.batch(BatchId([8; 16])).unwrap(), None);
    assert_eq!(store.replay(ReplayId([1; 16])).unwrap(), Some(replay(1)));
    assert_eq!(store.replay(ReplayId([3; 16])).unwrap(), None);
    assert_eq!(store.list_replays(&namespace(), None, 9).unwrap(), [replay(2), replay(1)]);
    assert_eq!(store.list_replays(&namespace(), Some(ReplayId([2; 16])), 1).unwrap(), [replay(1)]);
    assert!(store.list_replays(&Namespace::new("team-b").unwrap(), None, 9).unwrap().is_empty());
    assert_eq!(store.callback(CallbackId([1; 16])).unwrap(), Some(callback(1).1));
    // A later, shorter row takes the whole place of a longer one.
    let mut again = next(&commit.head, 1);
    again.rows.finished.push(task(2, 10).into());
    store.append(&again).unwrap();
    assert_eq!(store.finished(reach(2)).unwrap(), Some(task(2, 10)));
}

fn finished_tasks_are_listed_newest_first_and_every_filter_narrows(store: &dyn Store) {
    let mut commit = chain(&[12]).remove(0);
    commit.rows.finished = (1..=12).map(|n| task(n, 0).into()).collect();
    let mut foreign = task(13, 0);
    foreign.namespace = Namespace::new("team-b").unwrap();
    commit.rows.finished.push(foreign.into());
    store.append(&commit).unwrap();
    let list = |filter: &FinishedFilter, before: Option<u64>, limit| {
        let found = store.list_finished(&namespace(), filter, before.map(reach), limit).unwrap();
        found.iter().map(|task| task.seqs[0].0).collect::<Vec<_>>()
    };
    let all = FinishedFilter::default();
    assert_eq!(list(&all, None, 100), (1..=12).rev().collect::<Vec<_>>());
    assert_eq!(list(&all, Some(5), 3), [4, 3, 2]);
    let session = FinishedFilter { session: Some(SessionId::new("s-0").unwrap()), ..all.clone() };
    assert_eq!(list(&session, None, 100), [12, 9, 6, 3]);
    let agent = FinishedFilter { agent: Some(AgentId::new("odd").unwrap()), ..session.clone() };
    assert_eq!(list(&agent, None, 100), [9, 3]);
    let batch = FinishedFilter { batch: Some(BatchId([0; 16])), ..all.clone() };
    assert_eq!(list(&batch, Some(9), 2), [8, 6]);
    let none = FinishedFilter { agent: Some(AgentId::new("nobody").unwrap()), ..all };
    assert_eq!(list(&none, None, 100), [0_u64; 0]);
}

fn the_newest_success_of_a_session_is_kept_and_an_older_one_does_not_take_its_place(store: &dyn Store) {
    let session = |text: &str| SessionId::new(text).unwrap();
    let success = |place: u64| Success { place: Seq(place), task: reach(place) };
    let newest = |namespace: &Namespace, text: &str| {
        let newest = store.newest_success(namespace, &session(text)).unwrap();
        assert_eq!(newest.kept, Kept::Always);
        newest.success
    };
    assert_eq!(newest(&namespace(), "s"), None);
    let other = Namespace::new("team-b").unwrap();
    let mut head = Head::default();
    for (place, expected) in [(7, 7), (3, 7), (9, 9)] {
        let mut commit = next(&head, 1);
        head = commit.head;
        commit.rows.successes = vec![
            (namespace(), session("s"), success(place)),
            (namespace(), session("s-longer"), success(100 - place)),
            (other.clone(), session("s"), success(1)),
        ];
        store.append(&commit).unwrap();
        assert_eq!(newest(&namespace(), "s"), Some(success(expected)));
    }
    assert_eq!(newest(&namespace(), "s-longer"), Some(success(97)));
    assert_eq!((newest(&other, "s"), newest(&other, "s-longer")), (Some(success(1)), None));
}

fn callbacks_are_listed_by_id(store: &dyn Store) {
    let mut commit = chain(&[1]).remove(0);
    commit.rows.callbacks = [3, 1, 2].map(callback).to_vec();
    store.append(&commit).unwrap();
    let ids = |after: Option<u8>, limit| {
        let found = store.list_callbacks(&namespace(), after.map(|n| CallbackId([n; 16])), limit).unwrap();
        found.iter().map(|(id, _)| id.0[0]).collect::<Vec<_>>()
    };
    assert_eq!(ids(None, 9), [1, 2, 3]);
    assert_eq!(ids(Some(1), 1), [2]);
    assert!(store.list_callbacks(&Namespace::new("team-b").unwrap(), None, 9).unwrap().is_empty());
}

fn the_newest_two_snapshots_are_kept(store: &dyn Store) {
    store.append(&chain(&[9]).remove(0)).unwrap();
    assert!(store.snapshots().unwrap().is_empty());
    for (seq, len) in [(3, 10), (5, 5_000), (9, 300_000)] {
        let bytes = vec![8; len];
        store.put_snapshot(Seq(seq), Digest::of(&[&bytes]), &bytes).unwrap();
    }
    let kept = store.snapshots().unwrap();
    assert_eq!(kept.iter().map(|(seq, _, bytes)| (seq.0, bytes.len())).collect::<Vec<_>>(), [(9, 300_000), (5, 5_000)]);
    assert!(kept.iter().all(|(_, digest, bytes)| *digest == Digest::of(&[bytes])));
}

fn a_register_changes_only_from_what_was_expected(store: &dyn Store) {
    assert_eq!(store.register("owner").unwrap(), None);
    assert!(matches!(store.swap_register("owner", Some(b"x"), b"a"), Err(AppendError::Refused(_))));
    store.swap_register("owner", None, b"a").unwrap();
    assert!(matches!(store.swap_register("owner", None, b"b"), Err(AppendError::Refused(_))));
    store.swap_register("owner", Some(b"a"), b"b").unwrap();
    assert_eq!(store.register("owner").unwrap().as_deref(), Some(b"b".as_slice()));
    store.close().unwrap();
}
