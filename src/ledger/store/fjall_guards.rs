//! Each guard of the store on disk, held by a test that does to a data folder what the guard is there for.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::codec::crc;
use super::contract::{self, chain, next, reach, task};
use super::copy::copy_folder;
use super::fjall::{FjallStore, OpenError, Options};
use super::keyfile::{KEY_FILE, KeyFileError};
use super::place;
use super::tip::{TIP_FILE, Tip};
use super::verify::{self, RepairError};
use super::{Body, BodyKey, BodyKind, Commit, FORMAT_VERSION, Head, Kept, LEDGER_FOLDER, Store, row};
use crate::ledger::facts::superseded_by;
use crate::ledger::ids::{Digest, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::status::Status;
use sha2::{Digest as _, Sha256};

const OPTIONS: Options = Options { reserve: 0, cache: 1024 * 1024 };

fn open(data: &Path) -> Result<FjallStore, OpenError> {
    FjallStore::open(data, &OPTIONS)
}

/// A folder with these commits, each with a finished task and a body, closed.
fn filled(commits: &[Commit]) -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    let store = open(data.path()).unwrap();
    for (n, commit) in (1..).zip(commits) {
        let mut commit = commit.clone();
        commit.rows.finished.push(task(n, 100).into());
        let key = BodyKey::Task { task: reach(n), kind: BodyKind::Result, attempt: 1 };
        commit.bodies.push((key, Body { salt: [1; 16], bytes: vec![7; 3_000].into() }));
        store.append(&commit).unwrap();
    }
    store.close().unwrap();
    data
}

fn copied(data: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(data, copy.path()).unwrap();
    copy
}

fn journal(data: &Path) -> PathBuf {
    let files = fs::read_dir(data.join(LEDGER_FOLDER)).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|ext| ext == "jnl")).max().unwrap()
}

#[test]
fn the_store_on_disk_keeps_the_contract_of_every_store() {
    let folder = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    contract::holds(&|| {
        count.set(count.get() + 1);
        Box::new(open(&folder.path().join(count.get().to_string())).unwrap())
    });
}

#[test]
fn everything_is_there_after_a_restart_clean_or_not() {
    let data = filled(&chain(&[3, 400, 1]));
    for unclean in [false, true] {
        let store = open(data.path()).unwrap();
        let folder = if unclean { copied(data.path()) } else { tempfile::tempdir().unwrap() };
        let again = if unclean {
            open(folder.path()).unwrap()
        } else {
            drop(store);
            open(data.path()).unwrap()
        };
        assert_eq!(again.head(), chain(&[3, 400, 1])[2].head);
        assert_eq!(again.events(Seq(0), 1_000).unwrap().len(), 404);
        assert_eq!(again.finished(reach(2)).unwrap(), Some(task(2, 100)));
        let key = BodyKey::Task { task: reach(3), kind: BodyKind::Result, attempt: 1 };
        assert_eq!(again.body(&key).unwrap().unwrap().bytes.len(), 3_000);
    }
}

#[test]
fn a_second_process_is_refused_and_told_which_folder_is_in_use() {
    let data = tempfile::tempdir().unwrap();
    let store = open(data.path()).unwrap();
    let error = open(data.path()).unwrap_err();
    assert!(matches!(&error, OpenError::InUse(path) if path == data.path()), "{error}");
    drop(store);
    open(data.path()).unwrap();
}

#[test]
fn a_ledger_that_ends_before_the_mark_is_refused_with_file_seq_and_commands() {
    let commits = chain(&[2, 3]);
    let data = filled(&commits);
    fs::write(data.path().join(TIP_FILE), b"").unwrap();
    let ahead = next(&commits[1].head, 4).head;
    drop(Tip::create(&data.path().join(TIP_FILE), &ahead).unwrap());
    let error = open(data.path()).unwrap_err();
    assert!(matches!(error, OpenError::Lost { seq: Seq(9), last_good: Seq(5), .. }), "{error}");
    let text = error.to_string();
    for part in ["tip", "seq 9", "seq 5", "reach verify", "reach repair --accept-loss"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
}

#[test]
fn a_ledger_with_another_hash_at_the_mark_is_refused() {
    let commits = chain(&[2, 3]);
    let data = filled(&commits);
    let other = Head { hash: Digest([1; 32]), ..commits[0].head };
    drop(Tip::create(&data.path().join(TIP_FILE), &other).unwrap());
    let error = open(data.path()).unwrap_err();
    assert!(matches!(error, OpenError::Diverged { seq: Seq(2), .. }), "{error}");
    // A mark behind the head is how a power cut leaves it, and is fine.
    drop(Tip::create(&data.path().join(TIP_FILE), &commits[0].head).unwrap());
    assert_eq!(open(data.path()).unwrap().head(), commits[1].head);
    assert_eq!(Tip::open(&data.path().join(TIP_FILE)).unwrap().unwrap().1, commits[1].head, "marked anew");
}

#[test]
fn a_missing_mark_key_file_or_version_file_beside_a_ledger_is_refused() {
    let data = filled(&chain(&[2]));
    place::rename(&data.path().join(TIP_FILE), &data.path().join("away")).unwrap();
    assert!(matches!(open(data.path()), Err(OpenError::NoMark { last_good: Seq(2), .. })));
    place::rename(&data.path().join("away"), &data.path().join(TIP_FILE)).unwrap();
    let version = data.path().join(LEDGER_FOLDER).join("version");
    place::rename(&version, &data.path().join("away")).unwrap();
    let error = open(data.path()).unwrap_err();
    assert!(matches!(&error, OpenError::File { file, .. } if *file == version), "{error}");
    place::rename(&data.path().join("away"), &version).unwrap();
    open(data.path()).unwrap();
}

#[test]
fn a_deleted_journal_is_not_an_empty_ledger() {
    let data = filled(&chain(&[2, 3]));
    fs::remove_file(journal(data.path())).unwrap();
    let error = open(data.path()).unwrap_err();
    assert!(matches!(error, OpenError::Engine { .. } | OpenError::Lost { .. }), "{error}");
}

#[test]
fn a_deleted_ledger_folder_is_not_an_empty_ledger() {
    let data = filled(&chain(&[2, 3]));
    fs::remove_dir_all(data.path().join(LEDGER_FOLDER)).unwrap();
    let error = open(data.path()).unwrap_err();
    assert!(matches!(error, OpenError::Lost { seq: Seq(5), last_good: Seq(0), .. }), "{error}");
}

#[test]
fn a_creation_that_was_killed_halfway_is_cleaned_and_made_anew() {
    let data = tempfile::tempdir().unwrap();
    fs::create_dir_all(data.path().join("ledger.draft/keyspaces")).unwrap();
    fs::write(data.path().join("ledger.draft/lock"), b"").unwrap();
    fs::write(data.path().join("ledger.draft/0.jnl"), b"half").unwrap();
    let store = open(data.path()).unwrap();
    assert_eq!(store.head(), Head::default());
    assert!(!data.path().join("ledger.draft").exists());
}

#[test]
fn a_folder_of_a_newer_format_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let store = open(data.path()).unwrap();
    store.spaces().rows.insert(row::meta("format"), (FORMAT_VERSION + 1).to_be_bytes()).unwrap();
    drop(store);
    let error = open(data.path()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 2, newest: 1, .. }), "{error}");
}

#[test]
fn a_mark_of_a_newer_version_is_refused_by_name_and_never_replaced() {
    let data = filled(&chain(&[2]));
    let path = data.path().join(TIP_FILE);
    let mut bytes = fs::read(&path).unwrap();
    // One slot is enough: a newer program writes them in turn.
    let slot = &mut bytes[..85];
    slot[4] = 2;
    let sum = crc(&[&slot[..81]]);
    slot[81..].copy_from_slice(&sum.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    let error = open(data.path()).unwrap_err();
    assert!(matches!(&error, OpenError::Newer { path: at, found: 2, newest: 1 } if *at == path), "{error}");
    let checked = verify::verify(data.path(), &mut |_, _| {});
    assert!(matches!(checked, Err(OpenError::Newer { found: 2, .. })), "{checked:?}");
    let repaired = verify::accept_loss(data.path());
    assert!(matches!(repaired, Err(RepairError::Open(OpenError::Newer { found: 2, .. }))), "{repaired:?}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_key_file_that_is_newer_or_open_to_others_is_not_reported_as_damage() {
    let data = filled(&chain(&[2]));
    let path = data.path().join(KEY_FILE);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let checked = verify::verify(data.path(), &mut |_, _| {});
    assert!(matches!(checked, Err(OpenError::Keys(KeyFileError::Open { mode: 0o644, .. }))), "{checked:?}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    verify::verify(data.path(), &mut |_, _| {}).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[4] = 2;
    let whole = bytes.len() - 32;
    let sum = Sha256::digest(&bytes[..whole]);
    bytes[whole..].copy_from_slice(&sum);
    fs::write(&path, &bytes).unwrap();
    let checked = verify::verify(data.path(), &mut |_, _| {});
    assert!(matches!(checked, Err(OpenError::Keys(KeyFileError::Newer { found: 2, .. }))), "{checked:?}");
}

#[test]
fn an_unacknowledged_commit_torn_by_a_power_cut_is_cut_and_all_before_it_stays() {
    let commits = chain(&[2, 200]);
    let data = tempfile::tempdir().unwrap();
    let store = open(data.path()).unwrap();
    store.append(&commits[0]).unwrap();
    store.close().unwrap();
    let before = copied(data.path());
    store.append(&commits[1]).unwrap();
    let after = copied(data.path());
    let (old, new) = (fs::read(journal(before.path())).unwrap(), fs::read(journal(after.path())).unwrap());
    let start = old.iter().zip(&new).position(|(a, b)| a != b).unwrap_or(old.len());
    let end = new.iter().rposition(|byte| *byte != 0).unwrap();
    for torn in [start + 1, start + 40, (start + end) / 2, end - 1] {
        let folder = copied(before.path());
        let file = fs::OpenOptions::new().write(true).open(journal(folder.path())).unwrap();
        file.write_all_at(&new[start..torn], start as u64).unwrap();
        let store = open(folder.path()).unwrap();
        assert_eq!(store.head(), commits[0].head, "torn at {torn} of {start}..{end}");
        store.append(&commits[1]).unwrap();
        assert_eq!(store.events(Seq(0), 999).unwrap().len(), 202);
    }
}

#[test]
fn events_that_vanish_in_the_middle_are_named_by_seq() {
    let data = filled(&chain(&[2, 300, 2]));
    let store = open(data.path()).unwrap();
    let from = super::chunk::log_key(Seq(4), 0);
    let victim = store.spaces().log.range(from..).next().unwrap().key().unwrap();
    store.spaces().log.remove(victim).unwrap();
    let error = store.events(Seq(0), 400).unwrap_err();
    assert!(matches!(error, super::ReadError::Damaged { seq, .. } if seq > Seq(3) && seq < Seq(303)), "{error}");
    drop(store);
    let error = open(data.path()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { seq, .. } if seq > Seq(2) && seq < Seq(303)), "{error}");
}

#[test]
fn a_damaged_snapshot_gives_way_to_the_older_one_and_one_beyond_the_log_is_a_loss() {
    let data = filled(&chain(&[2, 3]));
    let store = open(data.path()).unwrap();
    store.put_snapshot(Seq(2), Digest([2; 32]), b"older").unwrap();
    store.put_snapshot(Seq(5), Digest([5; 32]), b"newer").unwrap();
    let newest = super::snapfile::list(data.path()).unwrap().remove(0).1;
    fs::write(&newest, b"garbage").unwrap();
    let kept = store.snapshots().unwrap();
    assert_eq!(kept.iter().map(|(seq, ..)| seq.0).collect::<Vec<_>>(), [2]);
    drop(store);
    open(data.path()).unwrap();
    place::rename(&newest, &newest.with_file_name(format!("{:020}.snap", 6))).unwrap();
    assert!(matches!(open(data.path()), Err(OpenError::Lost { seq: Seq(6), last_good: Seq(5), .. })));
}

#[test]
fn a_folder_that_was_begun_before_successes_had_rows_looks_among_its_ended_tasks() {
    let data = tempfile::tempdir().unwrap();
    let store = open(data.path()).unwrap();
    let mut commit = chain(&[5]).remove(0);
    let won = Task { status: Status::Succeeded, ..task(4, 0) };
    commit.rows.finished = vec![task(1, 0).into(), won.into(), task(5, 0).into()];
    store.append(&commit).unwrap();
    let (state, ask) = (State::default(), |n| superseded_by(&task(n, 0), &State::default(), &store).unwrap());
    assert_eq!(superseded_by(&task(1, 0), &state, &store).unwrap(), None, "a new folder has a row for every success");
    store.spaces().rows.remove(row::meta("successes")).unwrap();
    assert_eq!((ask(1), ask(5)), (Some(reach(4)), None));
    let session = task(1, 0).spec.session.clone().unwrap();
    assert_eq!(store.newest_success(&contract::namespace(), &session).unwrap().kept, Kept::Lately);
}
