//! The architecture, held by a test and not by good intentions: floors, purity, size limits, names, and the paths that
//! ARCHITECTURE.md promises.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file, in lines.
const MAX_FILE: usize = 500;

/// A folder (or file) and the words that its code may never say. Test modules are exempt: a test may reach anywhere.
const FLOORS: &[(&str, &[&str])] = &[
    ("src/ledger", &["crate::scheduler", "crate::recovery", "crate::api", "crate::hub", "axum", "reqwest"]),
    ("src/scheduler", &["crate::recovery", "crate::api", "crate::hub", "axum::", "fjall", "bincode"]),
    ("src/recovery", &["crate::api", "crate::hub", "axum::", "fjall", "bincode", "reqwest"]),
    ("src/api", &["crate::hub", "fjall", "bincode", "dyn Store", "FjallStore", "MemoryStore"]),
    ("src/telemetry.rs", &["crate::ledger", "crate::scheduler", "crate::recovery", "crate::api"]),
    ("src/bin/reach/ctl", &["agent_reach::ledger", "agent_reach::scheduler", "agent_reach::recovery"]),
];

/// Pure code: no clock, no chance, no I/O, no async, no order that depends on a hash.
const PURE: &[&str] = &[
    "src/ledger/machine",
    "src/ledger/ids.rs",
    "src/ledger/planner.rs",
    "src/ledger/store/codec.rs",
    "src/ledger/store/block.rs",
    "src/ledger/canonical.rs",
    "src/scheduler/vitals.rs",
    "src/scheduler/queue.rs",
    "src/scheduler/plan",
    "src/scheduler/routing",
    "src/scheduler/affinity.rs",
    "src/scheduler/decisions.rs",
    "src/scheduler/last_holders.rs",
    "src/scheduler/ramp.rs",
    "src/scheduler/slow_start.rs",
    "src/scheduler/tempo.rs",
    "src/scheduler/roster.rs",
    "src/scheduler/outbound/address.rs",
    "src/scheduler/outbound/alerts/levels.rs",
    "src/scheduler/outbound/alerts/message.rs",
    "src/scheduler/outbound/alerts/rules.rs",
    "src/scheduler/outbound/alerts/window.rs",
    "src/scheduler/outbound/answer.rs",
    "src/scheduler/outbound/guard.rs",
    "src/scheduler/outbound/message.rs",
    "src/scheduler/outbound/signature.rs",
    "src/api/render",
    "src/api/submission",
    "src/recovery/boot.rs",
    "src/recovery/list.rs",
    "src/recovery/liveness.rs",
    "src/recovery/mod.rs",
    "src/recovery/orphan.rs",
    "src/recovery/pace.rs",
    "src/recovery/plans.rs",
    "src/recovery/select.rs",
    "src/recovery/sessions.rs",
    "src/recovery/turns.rs",
];

const IMPURE_WORDS: &[&str] = &[
    "tokio",
    "axum",
    "fjall",
    "std::fs",
    "std::net",
    "std::thread",
    "std::env",
    "Instant",
    "SystemTime",
    "SystemClock",
    "rand::",
    "getrandom",
    "async ",
    ".await",
    "tracing",
    "HashMap",
    "HashSet",
    "println!",
];

/// Files that alone may say a word.
const ONLY_IN: &[(&str, &str)] = &[
    ("fjall::", "src/ledger/store/fjall"),
    ("bincode::", "src/ledger/store/codec"),
    ("ClockId::Realtime", "src/ledger/time.rs"),
    ("ClockId::Boottime", "src/ledger/time.rs"),
];

/// Names that say nothing.
const BANNED_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "manager", "common", "misc"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(below: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(&root().join(below), &mut found);
    found.sort();
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).expect("a source file is text"))).collect()
}

fn walk(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder can be read") {
            walk(&entry.expect("a folder entry can be read").path(), found);
        }
    } else if path.extension().is_some_and(|ext| ext == "rs") {
        found.push(path.to_path_buf());
    }
}

fn is_test_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name, "properties.rs" | "contract.rs" | "world.rs" | "samples.rs" | "receiver.rs")
        || name.ends_with("tests.rs")
        || path.iter().any(|part| part == "tests")
}

/// The code of a file without comments and without its test modules.
fn code_of(text: &str) -> String {
    let until_tests = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    until_tests.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn said(code: &str, word: &str) -> bool {
    code.lines().any(|line| line.contains(word))
}

/// A path that begins with the crate, not with a module of ours that has its name.
fn names_crate(code: &str, word: &str) -> bool {
    let ours = |line: &str| line.replace(&format!("store::{word}"), "").replace(&format!("super::{word}"), "");
    code.lines().any(|line| ours(line).contains(word))
}

#[test]
fn nothing_names_a_floor_above_it() {
    let mut wrong = Vec::new();
    for (folder, words) in FLOORS {
        for (path, text) in sources(folder) {
            let code = code_of(&text);
            wrong.extend(
                words
                    .iter()
                    .filter(|word| !is_test_file(&path) && said(&code, word))
                    .map(|word| format!("{} says {word}", path.display())),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn semantics_20_the_pure_core_has_no_clock_no_chance_no_io_and_no_async() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for place in PURE {
        for (path, text) in sources(place) {
            if is_test_file(&path) {
                continue;
            }
            seen += 1;
            let code = code_of(&text);
            wrong.extend(
                IMPURE_WORDS
                    .iter()
                    .filter(|word| said(&code, word))
                    .map(|word| format!("{} says {word}", path.display())),
            );
        }
    }
    assert!(seen > 20, "the pure files were not found: {seen}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_dependency_with_a_price_is_named_in_one_place() {
    let mut wrong = Vec::new();
    for (path, text) in sources("src") {
        let shown = path.strip_prefix(root()).expect("below the root").display().to_string();
        let code = code_of(&text);
        for (word, place) in ONLY_IN {
            if names_crate(&code, word) && !shown.starts_with(place) {
                wrong.push(format!("{shown} says {word}, which only {place}… may"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_are_short_and_named_for_what_they_hold() {
    let mut wrong = Vec::new();
    for (path, text) in sources("src").into_iter().chain(sources("tests")).chain(sources("benches")) {
        let lines = text.lines().count();
        if lines > MAX_FILE {
            wrong.push(format!("{} has {lines} lines, more than {MAX_FILE}", path.display()));
        }
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if BANNED_NAMES.contains(&stem) {
            wrong.push(format!("{} is named for nothing", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_path_that_the_documents_name_exists() {
    let mut wrong = Vec::new();
    for document in ["ARCHITECTURE.md", "README.md"] {
        let text = fs::read_to_string(root().join(document)).expect("the document exists");
        for word in text.split(|c: char| c.is_whitespace() || "`()|,;".contains(c)) {
            let path = word.trim_end_matches(['.', ':']);
            let ours = ["src/", "tests/", "docs/", "benches/", "demo/"].iter().any(|start| path.starts_with(start));
            if ours && !path.contains(['*', '<', '{', '…']) && !root().join(path).exists() {
                wrong.push(format!("{document} names {path}, which does not exist"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_code_is_ignored_or_unfinished_in_silence() {
    let mut wrong = Vec::new();
    let words = ["todo!(", "unimplemented!(", "#[ignore]"];
    for (path, text) in sources("src") {
        let code = code_of(&text);
        wrong.extend(words.iter().filter(|word| said(&code, word)).map(|word| format!("{}: {word}", path.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
