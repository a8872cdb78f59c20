//! The book of secrets on a real file.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

struct Room {
    folder: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("callback-secrets")
    }

    fn open(&self) -> Secrets {
        Secrets::open(self.path(), &Keys::from_master(&[7; 32])).expect("opens")
    }
}

fn dev() -> Namespace {
    Namespace::new("dev").expect("an id")
}

fn refusal<T: std::fmt::Debug>(result: Result<T, SecretError>) -> SecretRefusal {
    match result {
        Err(SecretError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

const NOW: Timestamp = Timestamp(1_000_000);

#[test]
fn a_secret_survives_a_restart_and_its_file_shows_nothing_of_it() {
    let room = Room::new();
    let made = room.open().create(&dev(), "travel", NOW).expect("made");
    let again = room.open();
    assert_eq!(again.signing(&dev(), &"travel".into(), NOW).expect("reads"), vec![made.clone()]);
    let bytes = fs::read(room.path()).expect("a file");
    for hidden in [made.expose().as_bytes(), b"travel", b"dev"] {
        assert!(!bytes.windows(hidden.len()).any(|window| window == hidden));
    }
    assert_eq!(fs::metadata(room.path()).expect("a file").permissions().mode() & 0o777, 0o600);
    assert_eq!(format!("{again:?}"), "Secrets(hidden)");
}

#[test]
fn a_changed_file_or_another_key_is_told_and_not_taken_for_empty() {
    let room = Room::new();
    room.open().create(&dev(), "travel", NOW).expect("made");
    assert!(matches!(Secrets::open(room.path(), &Keys::from_master(&[8; 32])), Err(SecretError::Sealed)));
    let mut bytes = fs::read(room.path()).expect("a file");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(room.path(), &bytes).expect("written");
    assert!(matches!(Secrets::open(room.path(), &Keys::from_master(&[7; 32])), Err(SecretError::Sealed)));
}

#[test]
fn while_rotating_both_sign_and_then_only_the_new_one() {
    let room = Room::new();
    let secrets = room.open();
    let old = secrets.create(&dev(), "travel", NOW).expect("made");
    let new = secrets.rotate(&dev(), "travel", DEFAULT_OVERLAP, NOW).expect("rotated");
    assert_ne!(old, new);
    let at = |later| secrets.signing(&dev(), &"travel".into(), NOW.after(later)).expect("reads");
    assert_eq!(at(Millis::secs(86_399)), vec![new.clone(), old]);
    assert_eq!(at(DEFAULT_OVERLAP), vec![new]);
}

#[test]
fn rotating_often_keeps_the_number_that_sign_bounded() {
    let room = Room::new();
    let secrets = room.open();
    secrets.create(&dev(), "travel", NOW).expect("made");
    for _ in 0..10 {
        secrets.rotate(&dev(), "travel", DEFAULT_OVERLAP, NOW).expect("rotated");
    }
    assert_eq!(secrets.signing(&dev(), &"travel".into(), NOW).expect("reads").len(), MAX_ACTIVE);
}

#[test]
fn every_namespace_has_its_own_default_and_it_can_be_shown_once() {
    let room = Room::new();
    let secrets = room.open();
    let other = Namespace::new("other").expect("an id");
    assert!(secrets.exists(&dev(), DEFAULT) && !secrets.exists(&dev(), "travel"));
    let used = secrets.signing(&dev(), &DEFAULT.into(), NOW).expect("made");
    assert_eq!(secrets.signing(&dev(), &DEFAULT.into(), NOW).expect("reads"), used);
    assert_ne!(secrets.signing(&other, &DEFAULT.into(), NOW).expect("made"), used);
    assert_eq!(room.open().signing(&dev(), &DEFAULT.into(), NOW).expect("reads"), used, "it is kept");
    assert_eq!(vec![secrets.create(&dev(), DEFAULT, NOW).expect("shown")], used);
    assert_eq!(refusal(secrets.create(&dev(), DEFAULT, NOW)), SecretRefusal::Taken);
    assert!(secrets.signing(&dev(), &"travel".into(), NOW).expect("reads").is_empty(), "only default comes by itself");
}

#[test]
fn names_are_checked_listed_deleted_and_bounded() {
    let room = Room::new();
    let secrets = room.open();
    for bad in ["", "a b", "../x", "ä", &"x".repeat(65)] {
        assert_eq!(refusal(secrets.create(&dev(), bad, NOW)), SecretRefusal::Name, "{bad:?}");
    }
    assert_eq!(refusal(secrets.rotate(&dev(), "travel", DEFAULT_OVERLAP, NOW)), SecretRefusal::Unknown);
    assert_eq!(refusal(secrets.delete(&dev(), "travel")), SecretRefusal::Unknown);
    secrets.create(&dev(), "zebra", NOW).expect("made");
    secrets.create(&dev(), "apple", NOW).expect("made");
    let names: Vec<String> = secrets.list(&dev(), NOW).into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["apple", DEFAULT, "zebra"]);
    secrets.delete(&dev(), "zebra").expect("deleted");
    assert!(!secrets.exists(&dev(), "zebra") && !room.open().exists(&dev(), "zebra"));
    for n in 1..MAX_NAMES {
        secrets.create(&dev(), &format!("n{n}"), NOW).expect("made");
    }
    assert_eq!(refusal(secrets.create(&dev(), "one-more", NOW)), SecretRefusal::TooMany);
}

#[test]
fn a_failed_write_changes_nothing() {
    let room = Room::new();
    let secrets = room.open();
    let made = secrets.create(&dev(), "travel", NOW).expect("made");
    fs::create_dir(room.path().with_extension("new")).expect("in the way");
    assert!(matches!(secrets.rotate(&dev(), "travel", DEFAULT_OVERLAP, NOW), Err(SecretError::Disk(_))));
    assert_eq!(secrets.signing(&dev(), &"travel".into(), NOW).expect("reads"), vec![made]);
}
