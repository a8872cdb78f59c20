//! A bit flipped anywhere in a data folder: nothing acknowledged is lost in silence, and an operator gets out (D5).
//!
//! For each place: a start refuses and says what to do, or has everything; `verify` names it; a repair then gives a
//! folder that opens and verifies, and loses no event before the damage.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use super::contract::{event, reach, task, token};
use super::fjall::{FjallStore, OpenError, Options};
use super::fjall_damage::files;
use super::space::space_of;
use super::tip::TIP_FILE;
use super::verify::{Lost, Mended, accept_loss, verify};
use super::{Body, BodyKey, BodyKind, Commit, Head, LEDGER_FOLDER, Store, StoredEvent, codec, keyfile, snapshot};
use crate::ledger::boot;
use crate::ledger::ids::{Boot, Digest, Seq, TokenId};
use crate::ledger::machine::State;
use crate::ledger::machine::event::{Actor, Event, EventBody, HubStarted, TaskSubmitted, TokenCreated};
use crate::ledger::machine::step::apply;
use crate::ledger::machine::task::spec::BodyRef;
use crate::ledger::time::Timestamp;

const OPTIONS: Options = Options { reserve: 0, cache: 1024 * 1024 };

/// A folder in memory where there is one: nothing here is about power cuts, and a flush costs nothing there.
fn room() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match space_of(memory) {
        Ok(space) if space.free > 1 << 30 => tempfile::tempdir_in(memory).unwrap(),
        Ok(_) | Err(_) => tempfile::tempdir().unwrap(),
    }
}

fn body(n: u64) -> Body {
    let len = usize::try_from(n * 131 % 5_000).unwrap();
    let text: Vec<u8> = (0..len).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
    Body { salt: [u8::try_from(n % 251).unwrap(); 16], bytes: text.into() }
}

fn the_event(seq: u64) -> Event {
    if seq == 1 {
        let started = HubStarted { boot: Boot(1), wall_offset: 0, version: "0".into() };
        return Event { namespace: None, actor: Actor::Hub, ..event(1, EventBody::from(started)) };
    }
    if seq.is_multiple_of(3) {
        let mut spec = (*task(seq, 20).spec).clone();
        let body = body(seq);
        spec.payload = Some(BodyRef { digest: body.digest(), len: u32::try_from(body.bytes.len()).unwrap() });
        spec.batch = None;
        return event(seq, TaskSubmitted { submission: Arc::new(spec), deadline: Timestamp(9_000_000), routed: None });
    }
    let mut token = token();
    token.id = TokenId::new(&format!("t{seq}")).unwrap();
    token.name = "n".repeat(usize::try_from(seq % 700).unwrap()).into();
    event(seq, TokenCreated { token })
}

fn the_commit(head: &Head, count: u64) -> Commit {
    let events: Vec<_> = (head.seq.0 + 1..=head.seq.0 + count).map(the_event).collect();
    let mut commit = codec::encode_commit(head, &events).unwrap().0;
    for event in &events {
        if event.seq.0.is_multiple_of(3) {
            let key = BodyKey::Task { task: reach(event.seq.0), kind: BodyKind::Payload, attempt: 0 };
            commit.bodies.push((key, body(event.seq.0)));
        }
    }
    commit
}

/// A folder with tables, sealed and open journals, two snapshots, and what it holds.
fn folder() -> (tempfile::TempDir, Vec<StoredEvent>) {
    let data = room();
    keyfile::load_or_create(data.path()).unwrap();
    let store = FjallStore::open(data.path(), &OPTIONS).unwrap();
    let mut state = State::default();
    for (n, count) in [30, 1, 60, 7, 40, 25, 1, 9].into_iter().enumerate() {
        let commit = the_commit(&store.head(), count);
        (commit.expected.seq.0 + 1..=commit.head.seq.0).for_each(|seq| apply(&mut state, &the_event(seq)).unwrap());
        store.append(&commit).unwrap();
        if n == 2 || n == 4 {
            store.spaces().all().iter().for_each(|space| space.rotate_memtable_and_wait().unwrap());
        }
        if n == 3 || n == 5 {
            boot::write_snapshot(&store, &state).unwrap();
        }
    }
    store.close().unwrap();
    let truth = store.events(Seq(0), usize::MAX).unwrap();
    (data, truth)
}

/// Every byte for itself: an edit must not reach the original.
fn copied(data: &Path) -> tempfile::TempDir {
    let copy = room();
    super::copy::copy_folder(data, copy.path()).unwrap();
    for path in files(copy.path()).iter().filter(|path| path.iter().any(|part| part == "tables")) {
        let bytes = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::set_permissions(copy.path().join(keyfile::KEY_FILE), fs::Permissions::from_mode(0o600)).unwrap();
    copy
}

/// `count` places spread over the part of a file that is not room set aside.
fn places(path: &Path, count: usize) -> Vec<(u64, u8)> {
    let bytes = fs::read(path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let step = (end / count).max(1);
    (end / (count * 3)..end).step_by(step).take(count).map(|at| (at as u64, bytes[at] ^ (1 << (at % 8)))).collect()
}

/// What became of one edit before the repair.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    Refused,
    Opened,
}

fn started(data: &Path, truth: &[StoredEvent], place: &str) -> Start {
    if let Err(error) = keyfile::load_or_create(data) {
        assert!(error.to_string().contains("reach repair"), "{place}: {error}");
        return Start::Refused;
    }
    let store = match FjallStore::open(data, &OPTIONS) {
        Ok(store) => store,
        Err(error) => {
            let said = error.to_string();
            assert!(!matches!(error, OpenError::InUse(_)), "{place}: {said}");
            assert!(said.contains("reach ") || matches!(error, OpenError::Newer { .. }), "{place}: {said}");
            return Start::Refused;
        }
    };
    match store.events(Seq(0), usize::MAX) {
        Ok(read) => assert!(read == truth, "{place}: silent loss: {} of {}", read.len(), truth.len()),
        Err(error) => assert!(matches!(error, super::ReadError::Damaged { .. }), "{place}: {error}"),
    }
    Start::Opened
}

/// Walks the whole promise for one edited folder; gives how many events the repair kept.
fn survive(data: &Path, truth: &[StoredEvent], place: &str) -> u64 {
    let last = truth.len() as u64;
    let report = verify(data, &mut |_, _| {}).unwrap_or_else(|error| panic!("{place}: verify: {error}"));
    let named = report.head.seq.0;
    let start = started(data, truth, place);
    if start == Start::Refused || named < last {
        assert!(!report.is_sound(), "{place}: {start:?}, head {named}, and verify finds nothing");
    }
    let accepted = accept_loss(data).unwrap_or_else(|error| panic!("{place}: repair: {error}"));
    assert!(accepted.kept.is_dir(), "{place}: the damaged ledger is kept");
    assert!(accepted.at_seq.0 >= named.min(last), "{place}: verify said {named}, repair gives {}", accepted.at_seq);
    if accepted.at_seq.0 < last {
        assert!(accepted.lost != Lost::Nothing, "{place}: {accepted:?}");
    }
    let after = verify(data, &mut |_, _| {}).unwrap();
    assert!(after.is_sound(), "{place}: {:?}", after.problems);
    keyfile::load_or_create(data).unwrap();
    let store = FjallStore::open(data, &OPTIONS).unwrap_or_else(|error| panic!("{place}: after the repair: {error}"));
    boot::fold(&store).unwrap_or_else(|error| panic!("{place}: after the repair: {error}"));
    let kept = store.events(Seq(0), usize::try_from(accepted.at_seq.0).unwrap()).unwrap();
    assert!(kept == truth[..kept.len()], "{place}: other events");
    kept.len() as u64
}

#[test]
fn a_bit_flipped_anywhere_is_refused_or_harmless_is_named_and_can_be_repaired() {
    let (data, truth) = folder();
    let last = truth.len() as u64;
    let report = verify(data.path(), &mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    let skipped = ["lock", "reserve"];
    let mut all = 0;
    for path in files(data.path()) {
        let name = path.strip_prefix(data.path()).unwrap().to_owned();
        if skipped.iter().any(|skipped| name.ends_with(skipped)) {
            continue;
        }
        let is_journal = name.extension().is_some_and(|ext| ext == "jnl");
        for (at, byte) in places(&path, if is_journal { 24 } else { 2 }) {
            let copy = copied(data.path());
            let file = fs::OpenOptions::new().write(true).open(copy.path().join(&name)).unwrap();
            file.write_all_at(&[byte], at).unwrap();
            let place = format!("{} at byte {at}", name.display());
            let kept = survive(copy.path(), &truth, &place);
            // What is flipped outside the log's own bytes loses no event at all.
            let in_log = is_journal || name.starts_with("ledger/keyspaces/1/tables");
            assert!(in_log || kept == last, "{place}: {kept} of {last}");
            all += 1;
        }
    }
    assert!(all > 60, "{all} places");
}

#[test]
fn a_missing_file_of_the_ledger_is_refused_by_name_and_nothing_else_is_lost() {
    let (data, truth) = folder();
    for path in files(&data.path().join(LEDGER_FOLDER)) {
        let name = path.strip_prefix(data.path()).unwrap().to_owned();
        if name.ends_with("lock") {
            continue;
        }
        let copy = copied(data.path());
        fs::remove_file(copy.path().join(&name)).unwrap();
        let kept = survive(copy.path(), &truth, &format!("{} is gone", name.display()));
        let in_log = name.extension().is_some_and(|ext| ext == "jnl") || name.starts_with("ledger/keyspaces/1/tables");
        assert!(in_log || kept == truth.len() as u64, "{}: {kept}", name.display());
    }
    let copy = copied(data.path());
    fs::remove_dir_all(copy.path().join(LEDGER_FOLDER)).unwrap();
    assert_eq!(survive(copy.path(), &truth, "no ledger at all"), 0);
}

#[test]
fn a_damaged_journal_is_named_with_file_and_seq_and_every_event_before_it_is_kept() {
    let (data, truth) = folder();
    let journal = super::fjall_journal::journals(&data.path().join(LEDGER_FOLDER)).unwrap().pop().unwrap();
    // In the last commit but one, which is a commit of one event.
    let bytes = fs::read(&journal).unwrap();
    let at = bytes.windows(4).rposition(|window| window == b"t164").unwrap() as u64;
    let file = fs::OpenOptions::new().write(true).open(&journal).unwrap();
    file.write_all_at(b"5", at + 3).unwrap();
    drop(file);
    let said = FjallStore::open(data.path(), &OPTIONS).unwrap_err().to_string();
    for part in [journal.to_str().unwrap(), "at byte", "seq ", "reach verify", "reach repair --accept-loss"] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
    let before = fs::read(&journal).unwrap();
    let report = verify(data.path(), &mut |_, _| {}).unwrap();
    assert_eq!(report.problems[0].file, journal, "{:?}", report.problems);
    assert!(report.problems.iter().any(|problem| problem.seq == Some(report.head.seq.next())), "{:?}", report.problems);
    let accepted = accept_loss(data.path()).unwrap();
    assert_eq!((accepted.at_seq, accepted.lost), (report.head.seq, Lost::UpTo(Seq(truth.len() as u64))));
    assert!(accepted.at_seq.0 > 0);
    let kept = accepted.kept.join(journal.file_name().unwrap());
    assert!(fs::read(kept).unwrap() == before, "the damaged journal is kept as it was");
}

#[test]
fn a_lost_mark_is_a_loss_of_unknown_size_and_a_damaged_key_file_is_told() {
    let (data, truth) = folder();
    fs::remove_file(data.path().join(TIP_FILE)).unwrap();
    let accepted = accept_loss(data.path()).unwrap();
    assert_eq!(
        (accepted.at_seq, accepted.lost, accepted.keys),
        (Seq(truth.len() as u64), Lost::Unknown, Mended::Sound)
    );
    fs::write(data.path().join(keyfile::KEY_FILE), b"gone").unwrap();
    let report = verify(data.path(), &mut |_, _| {}).unwrap();
    assert_eq!(report.problems[0].file, data.path().join(keyfile::KEY_FILE));
    let accepted = accept_loss(data.path()).unwrap();
    assert!(matches!(accepted.keys, Mended::DrawnAnew { kept: Some(_) }), "{accepted:?}");
}

#[test]
fn a_payload_that_is_gone_ends_its_task_and_is_no_problem_any_more() {
    let (data, _) = folder();
    let store = FjallStore::open(data.path(), &OPTIONS).unwrap();
    let key = BodyKey::Task { task: reach(6), kind: BodyKind::Payload, attempt: 0 };
    let parts: Vec<_> = store.spaces().body.prefix(super::row::body(&key)).map(|guard| guard.key().unwrap()).collect();
    parts.into_iter().for_each(|part| store.spaces().body.remove(part).unwrap());
    drop(store);
    let report = verify(data.path(), &mut |_, _| {}).unwrap();
    assert_eq!(report.problems[0].seq, Some(Seq(6)), "{:?}", report.problems);
    let accepted = accept_loss(data.path()).unwrap();
    assert_eq!((accepted.lost, accepted.bodies_lost, accepted.payloads_lost), (Lost::Nothing, 1, 1));
    let report = verify(data.path(), &mut |_, _| {}).unwrap();
    assert!(report.is_sound() && report.given_up == 1, "{report:?}");
    let store = FjallStore::open(data.path(), &OPTIONS).unwrap();
    let ended = store.finished(reach(6)).unwrap().unwrap();
    assert_eq!(ended.failure.unwrap().code.as_ref(), "payload-lost");
    assert_ne!(snapshot::newest(&store).unwrap().digest(), Digest::default());
}
