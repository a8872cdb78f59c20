//! Golden bytes: what the ledger has written once must be read for ever.
//!
//! `tests/golden/events/<kind>.v<version>.hex` holds the frames of samples of one event kind, one a line. Files are only
//! ever added. A missing one is written with `REACH_FIX=1`; one that differs is never overwritten: a new shape is a new
//! version of its kind. `tests/golden/rows/<noun>.v<version>.hex` holds rows beside the log in the same way.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic: that is how it fails")]

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

use agent_reach::ledger::ids::{Namespace, Seq};
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::event::{
    Event, EventBody, EventKind, Explanation, ReplayResumed, TaskDispatched, TaskRedriven, TaskSubmitted,
};
use agent_reach::ledger::machine::replay::Replay;
use agent_reach::ledger::machine::step::apply;
use agent_reach::ledger::machine::task::Task;
use agent_reach::ledger::store::codec::{
    ROW_VERSION, decode_event, decode_row, encode_event, encode_row, kind_version,
};
use agent_reach::ledger::store::snapshot;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[path = "golden/samples.rs"]
mod samples;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/events")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string takes every write");
        out
    })
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn by_kind() -> BTreeMap<EventKind, Vec<Event>> {
    let mut kinds: BTreeMap<EventKind, Vec<Event>> = BTreeMap::new();
    for event in samples::events() {
        kinds.entry(event.body.kind()).or_default().push(event);
    }
    kinds
}

#[test]
fn every_event_kind_is_written_as_its_golden_bytes_and_read_back_from_them() {
    let kinds = by_kind();
    let missing: Vec<_> = EventKind::ALL.iter().filter(|kind| !kinds.contains_key(kind)).collect();
    assert!(missing.is_empty(), "kinds without a sample: {missing:?}");
    for (kind, events) in kinds {
        let path = folder().join(format!("{}.v{}.hex", kind.name(), kind_version(kind)));
        let lines: String = events.iter().map(|event| hex(&encode_event(event).unwrap()) + "\n").collect();
        if !path.exists() {
            assert_eq!(std::env::var("REACH_FIX").as_deref(), Ok("1"), "{path:?} is missing; REACH_FIX=1 writes it");
            fs::write(&path, &lines).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap();
        assert_eq!(lines, golden, "{}: its bytes changed; a new shape is a new version of the kind", kind.name());
        let read: Vec<_> = golden.lines().map(|line| decode_event(&unhex(line)).unwrap()).collect();
        assert_eq!(read, events, "{}", kind.name());
    }
}

/// What the kept bytes of a kind's first version read as, and its samples of today.
fn of_version_1(kind: EventKind) -> (Vec<EventBody>, Vec<Event>) {
    let old = fs::read_to_string(folder().join(format!("{}.v1.hex", kind.name()))).unwrap();
    let read = old.lines().map(|line| decode_event(&unhex(line)).unwrap().body).collect();
    (read, by_kind().remove(&kind).unwrap())
}

#[test]
fn a_link_of_version_1_reads_as_one_that_does_not_say_where_its_chain_began() {
    let (read, today) = of_version_1(EventKind::TaskRedriven);
    assert_eq!(read.len(), today.len());
    for (read, today) in read.into_iter().zip(today) {
        let EventBody::TaskRedriven(today) = today.body else { panic!("another kind") };
        assert_eq!(read, TaskRedriven { origin: None, ..today }.into());
    }
}

#[test]
fn a_submission_of_version_1_reads_as_one_that_named_its_capability() {
    let (read, today) = of_version_1(EventKind::TaskSubmitted);
    assert_eq!(read.len(), today.len());
    for (read, today) in read.into_iter().zip(today) {
        let EventBody::TaskSubmitted(today) = today.body else { panic!("another kind") };
        assert_eq!(read, TaskSubmitted { routed: None, ..today }.into());
    }
}

#[test]
fn a_dispatch_of_version_1_reads_as_one_under_no_rules() {
    let (read, today) = of_version_1(EventKind::TaskDispatched);
    assert_eq!(read.len(), today.len());
    for (read, today) in read.into_iter().zip(today) {
        let EventBody::TaskDispatched(today) = today.body else { panic!("another kind") };
        let explanation = Explanation { rules: None, ..today.explanation.clone() };
        assert_eq!(read, TaskDispatched { explanation, ..today }.into());
    }
}

#[test]
fn a_plan_of_version_1_reads_as_one_without_a_patch_and_without_a_key() {
    let (read, today) = of_version_1(EventKind::ReplayPlanned);
    assert!(read.len() == 2 && today.len() == 3);
    for (read, today) in read.into_iter().zip(today) {
        assert_eq!(read, today.body);
    }
}

#[test]
fn a_resume_of_version_1_reads_as_one_without_a_reason() {
    let (read, today) = of_version_1(EventKind::ReplayResumed);
    assert_eq!(read.len(), today.len());
    for (read, today) in read.into_iter().zip(today) {
        let EventBody::ReplayResumed(today) = today.body else { panic!("another kind") };
        assert_eq!(read, ReplayResumed { reason: None, ..today }.into());
    }
}

#[test]
fn every_golden_file_belongs_to_a_kind_and_reads() {
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let kind = EventKind::ALL.iter().find(|kind| name.starts_with(&format!("{}.v", kind.name())));
        let kind = kind.unwrap_or_else(|| panic!("{name} belongs to no kind"));
        for line in fs::read_to_string(&path).unwrap().lines() {
            assert_eq!(decode_event(&unhex(line)).unwrap().body.kind(), *kind, "{name}");
        }
    }
}

/// A state with something of every noun, from the same samples.
fn state() -> State {
    let story = [
        EventKind::LineageStarted,
        EventKind::HubStarted,
        EventKind::TokenCreated,
        EventKind::PolicyChanged,
        EventKind::AgentRegistered,
        EventKind::BatchOpened,
        EventKind::TaskSubmitted,
        EventKind::TaskRedriven,
        EventKind::ReplayPlanned,
        EventKind::CapabilityPolicyChanged,
        EventKind::HubPolicyChanged,
        EventKind::BreakerOpened,
        EventKind::RoutingRulesChanged,
        EventKind::TaskExpired,
    ];
    let mut state = fold(&story);
    state.forget_up_to(Seq(u64::MAX));
    state
}

/// The fold of the first sample of each of those kinds.
fn fold(story: &[EventKind]) -> State {
    let kinds = by_kind();
    let mut state = State::default();
    for kind in story.iter().copied() {
        let mut event = kinds[&kind][0].clone();
        event.seq = Seq(state.seq().0 + 1);
        event.at = state.at().max(event.at);
        let is_of_hub = state.seq() < Seq(2) || kind == EventKind::HubPolicyChanged;
        event.namespace = (!is_of_hub).then(|| Namespace::new("team-a").unwrap());
        apply(&mut state, &event).unwrap();
    }
    state
}

/// Rows of one noun, one a line.
fn rows_are_golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(noun: &str, rows: &[T]) {
    assert!(!rows.is_empty(), "{noun}: no sample");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/rows/{noun}.v{ROW_VERSION}.hex"));
    let lines: String = rows.iter().map(|row| hex(&encode_row(row).unwrap()) + "\n").collect();
    if !path.exists() {
        assert_eq!(std::env::var("REACH_FIX").as_deref(), Ok("1"), "{path:?} is missing; REACH_FIX=1 writes it");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &lines).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert_eq!(lines, golden, "{noun}: its bytes changed; a new shape is a new version of the rows");
    let read: Vec<T> = golden.lines().map(|line| decode_row(&unhex(line)).unwrap()).collect();
    assert_eq!(read, rows, "{noun}");
}

#[test]
fn every_row_beside_the_log_is_written_as_its_golden_bytes_and_read_back_from_them() {
    rows_are_golden("idempotency-key", &samples::keys());
    rows_are_golden("callback", &samples::callback_rows());
    rows_are_golden("success", &[samples::success()]);
    let story = [
        EventKind::LineageStarted,
        EventKind::HubStarted,
        EventKind::BatchOpened,
        EventKind::TaskSubmitted,
        EventKind::ReplayPlanned,
        EventKind::TaskExpired,
    ];
    let state = fold(&story);
    rows_are_golden("task", &state.tasks().values().map(|task| Task::clone(task)).collect::<Vec<_>>());
    rows_are_golden("batch", &state.batches().values().cloned().collect::<Vec<_>>());
    rows_are_golden("plan", &state.replays().values().map(|plan| Replay::clone(plan)).collect::<Vec<_>>());
}

#[test]
fn semantics_29_a_snapshot_is_written_as_its_golden_bytes_and_gives_the_same_state() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/golden/snapshot.v{}.hex", snapshot::SNAPSHOT_VERSION));
    let state = state();
    let (seq, digest, bytes) = snapshot::encode(&state).unwrap();
    let line = format!("{digest}\n{}\n", hex(&bytes));
    if !path.exists() {
        assert_eq!(std::env::var("REACH_FIX").as_deref(), Ok("1"), "{path:?} is missing; REACH_FIX=1 writes it");
        fs::write(&path, &line).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert_eq!(line, golden, "its bytes changed; a new shape is a new version of the snapshot");
    let read = snapshot::decode(seq, digest, &unhex(golden.lines().nth(1).unwrap())).unwrap();
    assert_eq!(read, state);
}

#[test]
fn semantics_29_a_snapshot_of_an_older_version_gives_the_state_that_it_was_made_of() {
    for (version, seq, plans) in [(1, Seq(7), 0), (2, Seq(10), 1), (3, Seq(10), 1), (4, Seq(12), 1), (5, Seq(13), 1)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/snapshot.v{version}.hex"));
        let golden = fs::read_to_string(&path).unwrap();
        let (digest, bytes) = golden.split_once('\n').unwrap();
        let digest = unhex(digest).try_into().map(agent_reach::ledger::ids::Digest).unwrap();
        let read = snapshot::decode(seq, digest, &unhex(bytes.trim())).unwrap();
        assert_eq!((read.tasks().len(), read.replays().len()), (1, plans), "version {version}");
        let made_of = |task| read.kin(task).redrive_of;
        let has_none = read.tasks().keys().all(|task| made_of(*task).is_none() || read.origin(*task).is_none());
        assert_eq!(has_none, version < 3, "version {version}");
    }
}
