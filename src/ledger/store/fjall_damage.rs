//! Damage on purpose: whatever is done to the files, no acknowledged event is lost in silence (D5).

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::contract::{chain, event, next, token};
use super::copy::copy_folder;
use super::fjall::{FjallStore, OpenError, Options};
use super::fjall_journal::journals;
use super::fjall_salvage::inspect_journals;
use super::place;
use super::tip::{TIP_FILE, Tip};
use super::verify::{Lost, accept_loss, verify};
use super::{Head, LEDGER_FOLDER, Store, StoredEvent, codec, snapshot};
use crate::ledger::ids::{Boot, Seq, TokenId};
use crate::ledger::machine::State;
use crate::ledger::machine::event::{Actor, Event, EventBody, HubStarted, TokenCreated};
use crate::ledger::machine::step::apply;

const OPTIONS: Options = Options { reserve: 0, cache: 1024 * 1024 };

fn started() -> Event {
    let started = HubStarted { boot: Boot(1), wall_offset: 0, version: "0".into() };
    Event { namespace: None, actor: Actor::Hub, ..event(1, EventBody::from(started)) }
}

fn created(seq: u64) -> Event {
    let mut token = token();
    token.id = TokenId::new(&format!("t{seq}")).unwrap();
    token.name = "n".repeat(usize::try_from(seq % 700).unwrap()).into();
    event(seq, TokenCreated { token })
}

/// A history that folds, in commits of so many events, with a snapshot after each of `snapshots`.
fn history(data: &Path, counts: &[u64], snapshots: &[usize]) -> Vec<Head> {
    let store = FjallStore::open(data, &OPTIONS).unwrap();
    let mut state = State::default();
    let mut heads = vec![Head::default()];
    for (n, count) in counts.iter().enumerate() {
        let head = heads[n];
        let events: Vec<_> =
            (head.seq.0 + 1..=head.seq.0 + count).map(|seq| if seq == 1 { started() } else { created(seq) }).collect();
        events.iter().for_each(|event| apply(&mut state, event).unwrap());
        let commit = codec::encode_commit(&head, &events).unwrap().0;
        store.append(&commit).unwrap();
        heads.push(commit.head);
        if n == counts.len() / 2 {
            // Some of it in tables, the rest in the journal.
            for space in store.spaces().all() {
                space.rotate_memtable_and_wait().unwrap();
            }
        }
        if snapshots.contains(&n) {
            let (seq, digest, bytes) = snapshot::encode(&state).unwrap();
            store.put_snapshot(seq, digest, &bytes).unwrap();
        }
    }
    store.close().unwrap();
    heads
}

fn copied(data: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(data, copy.path()).unwrap();
    // Its mode is not copied, and one that is open to others would be a fault of its own in every copy.
    fs::set_permissions(copy.path().join("keys"), fs::Permissions::from_mode(0o600)).unwrap();
    copy
}

pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn sound(data: &Path) -> super::verify::VerifyReport {
    let report = verify(data, &mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    report
}

#[test]
fn a_whole_ledger_verifies_and_leaves_nothing_behind() {
    let data = tempfile::tempdir().unwrap();
    let heads = history(data.path(), &[1, 30, 2, 200], &[1, 2]);
    let before = files(data.path());
    let mut last = (0, 0);
    let report = verify(data.path(), &mut |done, total| last = (done, total)).unwrap();
    assert_eq!((report.head, report.commits, report.events), (heads[4], 4, 233));
    assert_eq!((report.snapshots, last), (2, (233, 233)));
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!(files(data.path()), before);
}

#[test]
fn verify_refuses_a_folder_that_is_in_use() {
    let data = tempfile::tempdir().unwrap();
    let store = FjallStore::open(data.path(), &OPTIONS).unwrap();
    assert!(matches!(verify(data.path(), &mut |_, _| {}), Err(OpenError::InUse(_))));
    drop(store);
    sound(data.path());
}

#[test]
fn verify_names_an_event_that_cannot_follow_on_the_events_before_it() {
    let data = tempfile::tempdir().unwrap();
    let store = FjallStore::open(data.path(), &OPTIONS).unwrap();
    // Expiries of tasks that were never submitted: whole as bytes, impossible as a history.
    store.append(&chain(&[3])[0]).unwrap();
    drop(store);
    let report = verify(data.path(), &mut |_, _| {}).unwrap();
    assert_eq!(report.problems[0].seq, Some(Seq(1)), "{:?}", report.problems);
}

#[test]
fn semantics_24_an_accepted_loss_begins_a_lineage_that_says_what_was_lost() {
    let data = tempfile::tempdir().unwrap();
    let heads = history(data.path(), &[5, 6, 7], &[0, 2]);
    let last = heads[3];
    // The log ends one commit early, as after a cut journal.
    let store = FjallStore::open(data.path(), &OPTIONS).unwrap();
    let lost: Vec<_> =
        store.spaces().log.range(super::chunk::log_key(Seq(12), 0)..).map(|guard| guard.key().unwrap()).collect();
    lost.into_iter().for_each(|key| store.spaces().log.remove(key).unwrap());
    drop(store);
    assert!(matches!(FjallStore::open(data.path(), &OPTIONS), Err(OpenError::Lost { .. } | OpenError::Damaged { .. })));
    let report = verify(data.path(), &mut |_, _| {}).unwrap();
    assert_eq!((report.head.seq, report.problems[0].seq), (Seq(11), Some(Seq(12))));

    let accepted = accept_loss(data.path()).unwrap();
    assert_eq!((accepted.at_seq, accepted.lost), (Seq(11), Lost::UpTo(last.seq)));
    assert!(accepted.kept.join("version").exists(), "the damaged folder is kept");
    let report = sound(data.path());
    assert_eq!((report.head.seq, report.head.lineage), (Seq(12), accepted.lineage));
    let store = FjallStore::open(data.path(), &OPTIONS).unwrap();
    let read = store.events(Seq(10), 9).unwrap();
    assert!(
        matches!(&read[1].event.body, EventBody::LineageStarted(e) if e.lost_up_to == Some(last.seq) && e.hash == heads[2].hash)
    );
    assert_eq!(snapshot::newest(&store).unwrap().seq(), Seq(5), "the snapshot of what is lost speaks no more");
    store.append(&next(&store.head(), 1)).unwrap();
}

#[test]
fn a_mark_that_was_lost_can_be_accepted_too() {
    let data = tempfile::tempdir().unwrap();
    let heads = history(data.path(), &[5, 6], &[]);
    fs::remove_file(data.path().join(TIP_FILE)).unwrap();
    let accepted = accept_loss(data.path()).unwrap();
    assert_eq!((accepted.at_seq, accepted.lost), (heads[2].seq, Lost::Unknown));
    assert_eq!(sound(data.path()).events, 12);
    assert!(Tip::open(&data.path().join(TIP_FILE)).unwrap().is_some());
}

#[test]
fn a_repair_that_dies_after_the_exchange_has_kept_the_damaged_ledger_for_good() {
    let data = tempfile::tempdir().unwrap();
    history(data.path(), &[5, 6], &[]);
    fs::remove_file(data.path().join(TIP_FILE)).unwrap();
    let before = fs::read(journals(&data.path().join(LEDGER_FOLDER)).unwrap().pop().unwrap()).unwrap();
    fs::write(data.path().join(TIP_FILE), b"damaged").unwrap();
    let obstacle = data.path().join("ledger.damaged-11.tip");
    fs::create_dir(&obstacle).unwrap();
    accept_loss(data.path()).unwrap_err();
    fs::remove_dir(&obstacle).unwrap();
    accept_loss(data.path()).unwrap();
    let kept = journals(&data.path().join("ledger.damaged-11")).unwrap().pop().unwrap();
    assert!(fs::read(kept).unwrap() == before, "the next run has cleared the evidence away");
    sound(data.path());
}

#[test]
fn the_only_commit_of_a_journal_is_damaged_and_not_torn_if_it_was_acknowledged() {
    let data = tempfile::tempdir().unwrap();
    let store = FjallStore::open(data.path(), &OPTIONS).unwrap();
    let first = next(&store.head(), 3);
    store.append(&first).unwrap();
    store.spaces().all().iter().for_each(|space| space.rotate_memtable_and_wait().unwrap());
    let second = next(&store.head(), 1);
    store.append(&second).unwrap();
    store.close().unwrap();
    drop(store);
    let ledger = data.path().join(LEDGER_FOLDER);
    let active = journals(&ledger).unwrap().pop().unwrap();
    let mut bytes = fs::read(&active).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end] = b'?';
    fs::write(&active, &bytes).unwrap();
    let (_, begins) = inspect_journals(&ledger, first.head.seq).unwrap().torn.unwrap();
    // It alone: as after a flush, which leaves what came before in the tables.
    for flushed in journals(&ledger).unwrap() {
        fs::remove_file(flushed).unwrap();
    }
    fs::write(&active, &bytes[usize::try_from(begins).unwrap()..]).unwrap();
    let acknowledged = inspect_journals(&ledger, second.head.seq).unwrap();
    assert_eq!((acknowledged.findings.len(), acknowledged.torn), (1, None));
    let unanswered = inspect_journals(&ledger, first.head.seq).unwrap();
    assert_eq!((unanswered.findings, unanswered.torn), (Vec::new(), Some((active, 0))));
}

/// What became of one edit.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Refused,
    Named,
    Harmless,
}

fn judge(data: &Path, truth: &[StoredEvent]) -> Outcome {
    let report = verify(data, &mut |_, _| {});
    let Ok(store) = FjallStore::open(data, &OPTIONS) else { return Outcome::Refused };
    // What a start takes, a check can look at to its end.
    if !report.unwrap().is_sound() {
        return Outcome::Named;
    }
    let read = store.events(Seq(0), usize::MAX).unwrap();
    assert!(read == truth, "silent loss: {} of {} events read back", read.len(), truth.len());
    Outcome::Harmless
}

#[test]
fn two_hundred_edits_anywhere_in_the_files_lose_nothing_in_silence() {
    let data = tempfile::tempdir().unwrap();
    history(data.path(), &[40, 1, 100, 7, 60, 30], &[2]);
    let truth = FjallStore::open(data.path(), &OPTIONS).unwrap().events(Seq(0), usize::MAX).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut outcomes = [0; 3];
    for _ in 0..200 {
        let copy = copied_whole(data.path());
        let targets = files(&copy.path().join(LEDGER_FOLDER)).into_iter().chain([copy.path().join(TIP_FILE)]);
        let targets: Vec<_> = targets.filter(|path| fs::metadata(path).unwrap().len() > 0).collect();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let path = &targets[usize::try_from(random >> 33).unwrap() % targets.len()];
        edit(path, random);
        outcomes[judge(copy.path(), &truth) as usize] += 1;
    }
    let [refused, named, harmless] = outcomes;
    // An edit of padding, or of one of the mark's two slots, is harmless; what matters is refused already by the start.
    assert!(refused > 0 && harmless > 0, "refused {refused}, named {named}, harmless {harmless}");
}

/// Tables too are copied, not linked: an edit must not reach the original.
fn copied_whole(data: &Path) -> tempfile::TempDir {
    let copy = copied(data);
    for path in files(copy.path()) {
        let whole = path.with_extension("whole");
        fs::copy(&path, &whole).unwrap();
        place::rename(&whole, &path).unwrap();
    }
    copy
}

/// A flipped bit, a zeroed stretch or a cut end, where there is something.
fn edit(path: &Path, random: u64) {
    let bytes = fs::read(path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |at| at + 1);
    let at = usize::try_from(random >> 8).unwrap() % end;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    match random >> 61 {
        0 => file.set_len(at as u64).unwrap(),
        1 => file.write_all_at(&vec![0; 64.min(bytes.len() - at)], at as u64).unwrap(),
        _ => file.write_all_at(&[bytes[at] ^ (1 << (random >> 40 & 7))], at as u64).unwrap(),
    }
}
