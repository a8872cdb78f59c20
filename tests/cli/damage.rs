//! A damaged folder, as its operator meets it: what `serve`, `verify` and `repair` say, and how they end.

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::hub::{Hub, TOKEN, code, reach, stderr, stdout};

fn on(data: &Path, args: &[&str]) -> Output {
    reach().args(args).arg("--data").arg(data).output().expect("the binary starts")
}

fn serve(data: &Path) -> Output {
    on(data, &["serve", "--listen", "127.0.0.1:0"])
}

/// A stopped hub's folder with an agent, tasks and a callback secret.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let hub = Hub::dev(&data);
    hub.register("idle-1", "idle.work");
    for n in 0..20 {
        hub.json(&["submit", "idle.work", "--payload", &format!("{{\"n\":{n}}}")]);
    }
    hub.json(&["callbacks", "secrets", "create", "travel"]);
    assert_eq!(hub.stop(), 0);
    (folder, data)
}

fn flip(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("it is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("long enough");
    file.write_all_at(&[byte[0] ^ 4], at).expect("writable");
}

fn verified(data: &Path) -> (i32, Value) {
    let output = on(data, &["verify", "--output", "json"]);
    (code(&output), serde_json::from_str(&stdout(&output)).expect("JSON on stdout"))
}

#[test]
fn semantics_30_a_write_error_ends_the_hub_with_its_code_and_loses_nothing_that_was_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut command = std::process::Command::new("sh");
    // A write beyond the limit is an error then, as on a disk that fails, and no signal.
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_reach"), "serve", "--dev"]);
    command.env("REACH_DEV_TOKEN", TOKEN).envs(crate::hub::NO_MARKS).stdin(std::process::Stdio::null());
    let hub = Hub::start(command, &data);
    hub.register("idle-1", "idle.work");
    let answered: Vec<Value> = (0..20).map(|_| hub.json(&["submit", "idle.work"])).collect();
    hub.fail_writes_beyond(1);
    let refused = hub.reach(&["submit", "idle.work"]);
    assert_ne!(code(&refused), 0, "what is not on the disk is not answered: {}", stdout(&refused));
    assert_eq!(hub.ended(), 70);

    let again = Hub::dev(&data);
    let tasks = again.json(&["tasks", "list"]).as_array().cloned().expect("a list");
    for task in &answered {
        assert!(tasks.iter().any(|kept| kept["reach_id"] == task["reach_id"]), "{task} is lost");
    }
    assert!(tasks.len() <= answered.len() + 1, "{} of {}", tasks.len(), answered.len());
    assert_eq!(again.json(&["submit", "idle.work"])["state"], "queued");
    assert_eq!(again.stop(), 0);
    assert_eq!(verified(&data).0, 0);
}

#[test]
fn a_flipped_bit_in_the_journal_is_named_and_one_command_brings_the_hub_back() {
    let (_folder, data) = folder();
    let journal =
        std::fs::read_dir(data.join("ledger")).expect("a ledger").map(|entry| entry.expect("readable").path());
    let journal = journal.filter(|path| path.extension().is_some_and(|ext| ext == "jnl")).max().expect("a journal");
    let bytes = std::fs::read(&journal).expect("readable");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("not empty");
    flip(&journal, (end * 2 / 3) as u64);
    let refused = serve(&data);
    assert_eq!(code(&refused), 65, "{}", stderr(&refused));
    let said = stderr(&refused);
    let named = data.display();
    let commands = [format!("`reach verify --data {named}`"), format!("`reach repair --accept-loss --data {named}`")];
    for part in [journal.to_str().expect("UTF-8"), "at byte", "seq ", &commands[0], &commands[1]] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
    let (ended, report) = verified(&data);
    assert_eq!(ended, 65);
    let sound = report["head"]["seq"].as_u64().expect("a seq");
    assert!(sound > 0 && report["problems"][0]["file"] == journal.to_str().expect("UTF-8"), "{report}");
    let repaired = on(&data, &["repair", "--accept-loss", "--output", "json"]);
    assert_eq!(code(&repaired), 0, "{}", stderr(&repaired));
    let repaired: Value = serde_json::from_str(&stdout(&repaired)).expect("JSON on stdout");
    assert_eq!((&repaired["at_seq"], &repaired["first_lost"]), (&sound.into(), &(sound + 1).into()), "{repaired}");
    assert_eq!((&repaired["lost"], &repaired["keys"]), (&"events".into(), &"sound".into()));
    assert!(Path::new(repaired["kept"].as_str().expect("a folder")).join(journal.file_name().expect("named")).exists());
    assert_eq!(verified(&data).0, 0);
    let hub = Hub::dev(&data);
    let tasks = hub.json(&["tasks", "list"]);
    assert!(tasks.as_array().is_some_and(|tasks| !tasks.is_empty()), "{tasks}");
    let lineages = stdout(&hub.reach(&["events", "--kind", "lineage-started"]));
    assert_eq!(lineages.lines().count(), 2, "the acceptance is in the ledger: {lineages}");
    assert_eq!(hub.stop(), 0);
    let again = on(&data, &["repair", "--accept-loss", "--output", "json"]);
    let again: Value = serde_json::from_str(&stdout(&again)).expect("JSON on stdout");
    assert_eq!(again["ledger"], "sound", "a sound folder is left alone");
}

#[test]
fn a_ledger_of_which_nothing_is_left_begins_anew_and_its_hub_starts() {
    let (_folder, data) = folder();
    std::fs::remove_dir_all(data.join("ledger")).expect("removed");
    std::fs::remove_dir_all(data.join("snapshots")).unwrap_or_default();
    assert_eq!(code(&serve(&data)), 65);
    let repaired = on(&data, &["repair", "--accept-loss", "--output", "json"]);
    assert_eq!(code(&repaired), 0, "{}", stderr(&repaired));
    let repaired: Value = serde_json::from_str(&stdout(&repaired)).expect("JSON on stdout");
    assert_eq!(repaired["at_seq"], 0, "{repaired}");
    assert_eq!(verified(&data).0, 0);
    let hub = Hub::dev(&data);
    assert_eq!(hub.json(&["tasks", "list"]).as_array().map(Vec::len), Some(0));
    assert_eq!(hub.stop(), 0);
}

#[test]
fn a_folder_that_is_no_data_folder_is_neither_verified_nor_repaired() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in [None, Some("notes.txt")] {
        if let Some(file) = file {
            std::fs::write(folder.path().join(file), "hello").expect("written");
        }
        for args in [&["verify"][..], &["repair", "--accept-loss"][..]] {
            let output = on(folder.path(), args);
            assert_eq!(code(&output), 3, "{}", stderr(&output));
            assert!(stderr(&output).contains("no data folder"), "{}", stderr(&output));
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), usize::from(file.is_some()));
    }
}

#[test]
fn a_flipped_bit_in_the_key_file_is_refused_named_and_put_right_without_a_loss() {
    let (_folder, data) = folder();
    let before = std::fs::read(data.join("keys")).expect("readable");
    flip(&data.join("keys"), 20);
    let refused = serve(&data);
    assert_eq!(code(&refused), 65);
    assert!(stderr(&refused).contains("keys") && stderr(&refused).contains("reach repair"), "{}", stderr(&refused));
    let (ended, report) = verified(&data);
    assert!(
        ended == 65 && report["problems"][0]["file"].as_str().is_some_and(|file| file.ends_with("/keys")),
        "{report}"
    );
    let repaired = on(&data, &["repair", "--accept-loss"]);
    assert_eq!(code(&repaired), 0, "{}", stderr(&repaired));
    assert!(stderr(&repaired).contains("put right"), "{}", stderr(&repaired));
    assert_eq!(std::fs::read(data.join("keys")).expect("readable"), before);
    assert_eq!(verified(&data).0, 0);
    assert_eq!(Hub::dev(&data).stop(), 0);
}

#[test]
fn a_folder_in_the_place_of_a_file_is_damage_of_that_file_and_is_repaired_like_any() {
    let (folder, data) = folder();
    for file in ["ledger/0.jnl", "ledger/version", "ledger/keyspaces/1/current", "tip", "keys", "callback-secrets"] {
        let one = folder.path().join(file.replace('/', "-"));
        let copied = std::process::Command::new("cp").arg("-a").args([&data, &one]).status().expect("cp");
        assert!(copied.success());
        let place = one.join(file);
        std::fs::remove_file(&place).unwrap_or_else(|error| panic!("{file}: {error}"));
        std::fs::create_dir(&place).expect("writable");
        let shown = place.to_str().expect("UTF-8");
        let refused = serve(&one);
        assert_eq!(code(&refused), 65, "{file}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(shown), "{file}: {}", stderr(&refused));
        let (ended, report) = verified(&one);
        assert_eq!((ended, &report["problems"][0]["file"]), (65, &shown.into()), "{file}: {report}");
        let repaired = on(&one, &["repair", "--accept-loss"]);
        assert_eq!(code(&repaired), 0, "{file}: {}", stderr(&repaired));
        let (ended, report) = verified(&one);
        assert_eq!(ended, 0, "{file}: {report}");
        assert_eq!(Hub::dev(&one).stop(), 0, "{file}");
    }
}

#[test]
fn damaged_callback_secrets_are_refused_named_and_given_up_alone() {
    let (_folder, data) = folder();
    flip(&data.join("callback-secrets"), 60);
    let refused = serve(&data);
    assert_eq!(code(&refused), 65);
    assert!(stderr(&refused).contains("callback-secrets"), "{}", stderr(&refused));
    let (ended, report) = verified(&data);
    assert_eq!((ended, report["problem_count"].as_u64()), (65, Some(1)), "{report}");
    let repaired = on(&data, &["repair", "--accept-loss", "--output", "json"]);
    let repaired: Value = serde_json::from_str(&stdout(&repaired)).expect("JSON on stdout");
    assert_eq!(repaired["ledger"], "sound");
    assert!(repaired["secrets_kept"].as_str().is_some_and(|kept| Path::new(kept).exists()), "{repaired}");
    assert_eq!(verified(&data).0, 0);
    assert_eq!(Hub::dev(&data).stop(), 0);
}

#[test]
fn semantics_30_a_start_on_a_full_disk_serves_reads_and_stops_cleanly() {
    let (_folder, data) = folder();
    let mut command = reach();
    command.env("REACH_DEV_TOKEN", TOKEN).args(["serve", "--dev"]);
    // No disk is ever free as a whole: this one counts as full.
    command.env("REACH_DISK__FULL_MILLI", "1000").env("REACH_DISK__LOW_MILLI", "1000");
    let hub = Hub::start(command, &data);
    assert_eq!(hub.json(&["tasks", "list"]).as_array().map(Vec::len), Some(20));
    let refused = hub.reach(&["submit", "idle.work"]);
    assert!(stderr(&refused).contains("disk-full"), "{}", stderr(&refused));
    assert_eq!(hub.stop(), 0);
    assert_eq!(verified(&data).0, 0);
}

#[test]
fn a_folder_that_may_not_be_read_and_an_address_in_use_have_codes_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("not-a-folder");
    std::fs::write(&file, b"").expect("writable");
    let refused = serve(&file);
    assert_eq!(code(&refused), 74, "{}", stderr(&refused));
    let hub = Hub::dev(&folder.path().join("one"));
    let address = hub.url.strip_prefix("http://").expect("plain http");
    let second = on(&folder.path().join("two"), &["serve", "--listen", address]);
    assert_eq!(code(&second), 75, "{}", stderr(&second));
    let nowhere = on(&folder.path().join("three"), &["serve", "--listen", "192.0.2.1:1"]);
    assert_eq!(code(&nowhere), 78, "{}", stderr(&nowhere));
    // Whoever may do everything is refused nothing.
    if !rustix::process::geteuid().is_root() {
        let closed = folder.path().join("closed");
        std::fs::create_dir(&closed).expect("writable");
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).expect("ours");
        assert_eq!(code(&serve(&closed)), 77);
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).expect("ours");
        // No damage either, and nobody should be told to accept a loss.
        hub.stop();
        for (place, mode) in [("ledger", 0o000), ("ledger/0.jnl", 0o400)] {
            let place = folder.path().join("one").join(place);
            let before = std::fs::metadata(&place).expect("it is there").permissions();
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(mode)).expect("ours");
            let refused = serve(&folder.path().join("one"));
            assert_eq!(code(&refused), 77, "{}: {}", place.display(), stderr(&refused));
            if mode != 0 {
                let (ended, report) = verified(&folder.path().join("one"));
                assert_eq!((ended, &report["sound"]), (0, &true.into()), "{report}");
                assert_eq!(report["closed"]["file"], place.to_str().expect("UTF-8"), "it can be read, not written");
            }
            std::fs::set_permissions(&place, before).expect("ours");
        }
    }
}
