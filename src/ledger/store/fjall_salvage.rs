//! An engine's folder looked at from outside, and pieced together where the engine will not open it.
//!
//! Why: the engine opens a folder whole or not at all. One flipped bit in a journal, in a table's index or in a list of
//! tables would give up everything, although nearly all of it has sound checksums. So whatever is sound is taken, block by
//! block and batch by batch, into a new engine's folder; what the ledger's own chain then says about it is the truth.
//! Nothing in the folder that is looked at is ever changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ::fjall::{Keyspace, KeyspaceCreateOptions, PersistMode};

use super::fjall::{OpenError, Options};
use super::fjall_journal::{Found, Item, ItemKind, Journal, LOG_SPACE, Then, journals, last_of, last_seq};
use super::fjall_log::Spaces;
use super::fjall_open::{check_format, make_engine, open_engine};
use super::fjall_tables as table;
use crate::ledger::ids::Seq;

/// The number of the first keyspace of ours, and of the others after it.
const FIRST_SPACE: u64 = LOG_SPACE;
/// So many keyspaces are there beside the engine's own, which is number 0.
const SPACES: u64 = 6;

/// A place in a file that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// The file.
    pub(super) file: PathBuf,
    /// Where in it.
    pub(super) offset: u64,
    /// What is wrong.
    pub(super) what: &'static str,
    /// The last event that is sound before it in the same file, if that can be said.
    pub(super) after: Option<Seq>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.what)?;
        match self.after {
            Some(seq) => write!(f, "; the last sound event before it in this file is seq {seq}"),
            None => Ok(()),
        }
    }
}

/// What the journals of a ledger's folder look like.
#[derive(Debug, Default)]
pub(super) struct Journals {
    /// Damage.
    pub(super) findings: Vec<Finding>,
    /// A batch half written at the very end, as a power cut leaves it, and not acknowledged as far as is known: the
    /// journal, and where it begins.
    pub(super) torn: Option<(PathBuf, u64)>,
}

/// Reads the journals of a ledger's folder whose events up to `marked` were acknowledged.
///
/// # Errors
/// What the disk says.
pub(super) fn inspect_journals(ledger: &Path, marked: Seq) -> io::Result<Journals> {
    let paths = journals(ledger)?;
    let mut inspected = Journals::default();
    let mut last_of_all = None;
    for (n, path) in paths.iter().enumerate() {
        let is_active = n + 1 == paths.len();
        let journal = Journal::read(path)?;
        let mut last = None;
        journal.walk(|found| {
            match found {
                Found::Batch(items) => {
                    last = last_seq(&items).or(last);
                    last_of_all = last.or(last_of_all);
                }
                Found::Flaw(flaw) => {
                    let may_be_torn = is_active && flaw.then == Then::Nothing;
                    // A journal is new after a flush: what came before is in the tables alone.
                    let reached = || last_of_all.map_or_else(|| last_in_tables(ledger), Ok);
                    if may_be_torn && reached()? >= marked {
                        inspected.torn = Some((path.clone(), flaw.offset));
                    } else {
                        let (file, offset, what) = (path.clone(), flaw.offset, flaw.what);
                        inspected.findings.push(Finding { file, offset, what, after: last });
                    }
                }
            }
            Ok::<_, io::Error>(())
        })?;
    }
    Ok(inspected)
}

/// The last event in the tables of the log.
fn last_in_tables(ledger: &Path) -> io::Result<Seq> {
    let mut last = Seq(0);
    for (_, path) in table::tables(ledger)?.into_iter().filter(|(number, _)| *number == LOG_SPACE) {
        table::walk(&fs::read(&path)?, |found| {
            if let table::Found::Item(item) = found {
                last = last.max(last_of(&item.key.user_key, &item.value).unwrap_or_default());
            }
            Ok::<_, io::Error>(())
        })?;
    }
    Ok(last)
}

/// Cuts a batch off that was never acknowledged. The engine does the same with most of them, and refuses the database
/// for the rest.
///
/// # Errors
/// What the disk says.
pub(super) fn cut(journal: &Path, offset: u64) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(journal)?;
    file.set_len(offset)?;
    file.sync_all()
}

/// Damage in the tables of a ledger's folder, in the keyspaces that are `wanted`.
///
/// # Errors
/// What the disk says.
pub(super) fn inspect_tables(ledger: &Path, wanted: impl Fn(u64) -> bool) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (_, path) in table::tables(ledger)?.into_iter().filter(|(number, _)| wanted(*number)) {
        table::walk(&fs::read(&path)?, |found| {
            if let table::Found::Flaw(flaw) = found {
                findings.push(Finding { file: path.clone(), offset: flaw.offset, what: flaw.what, after: None });
            }
            Ok::<_, io::Error>(())
        })?;
    }
    Ok(findings)
}

/// Takes everything that is sound in the engine's folder `ledger` into a new engine in `into`.
///
/// # Errors
/// [`OpenError`] when the disk fails, or the ledger is a newer program's.
pub(super) fn salvage(ledger: &Path, into: &Path, options: &Options) -> Result<Spaces, OpenError> {
    make_engine(into, options)?;
    let spaces = open_engine(into, options)?;
    // An age for every key, because a newer value may be met before an older one.
    let ages = spaces.db.keyspace("ages", KeyspaceCreateOptions::default).map_err(|error| failed(into, &error))?;
    let taker = Taker { spaces: &spaces, ages };
    taker.take_tables(ledger)?;
    taker.take_journals(ledger)?;
    spaces.db.persist(PersistMode::SyncAll).map_err(|error| failed(into, &error))?;
    check_format(ledger, &spaces)?;
    Ok(spaces)
}

struct Taker<'a> {
    spaces: &'a Spaces,
    ages: Keyspace,
}

impl Taker<'_> {
    fn take_tables(&self, ledger: &Path) -> Result<(), OpenError> {
        let io = |error| OpenError::io("read", ledger, error);
        for (space, path) in table::tables(ledger).map_err(io)? {
            if self.keyspace(space).is_none() {
                continue;
            }
            let bytes = fs::read(&path).map_err(|error| OpenError::io("read", &path, error))?;
            table::walk(&bytes, |found| match found {
                table::Found::Flaw(_) => Ok(()),
                table::Found::Item(item) => {
                    let kind = if table::is_removal(&item) { ItemKind::Removal } else { ItemKind::Value };
                    let (seqno, key, value) = (item.key.seqno, &item.key.user_key, &item.value);
                    self.put(&Item { space, seqno, kind, key, value })
                }
            })
            .map_err(|error| failed(ledger, &error))?;
        }
        Ok(())
    }

    fn take_journals(&self, ledger: &Path) -> Result<(), OpenError> {
        for path in journals(ledger).map_err(|error| OpenError::io("read", ledger, error))? {
            let journal = Journal::read(&path).map_err(|error| OpenError::io("read", &path, error))?;
            journal
                .walk(|found| match found {
                    Found::Flaw(_) => Ok(()),
                    Found::Batch(items) => items.iter().try_for_each(|item| self.put(item)),
                })
                .map_err(|error| failed(ledger, &error))?;
        }
        Ok(())
    }

    fn put(&self, item: &Item<'_>) -> ::fjall::Result<()> {
        let Some(space) = self.keyspace(item.space) else { return Ok(()) };
        let mut name = item.space.to_be_bytes().to_vec();
        name.extend_from_slice(item.key);
        let age = item.seqno.to_be_bytes();
        if self.ages.get(&name)?.is_some_and(|known| *known > age[..]) {
            return Ok(());
        }
        self.ages.insert(name, age)?;
        match item.kind {
            ItemKind::Value => space.insert(item.key, item.value),
            ItemKind::Removal => space.remove(item.key),
        }
    }

    /// The engine numbers keyspaces as they were made.
    fn keyspace(&self, number: u64) -> Option<&Keyspace> {
        let place = usize::try_from(number.checked_sub(FIRST_SPACE)?).ok()?;
        self.spaces.all().get(place).copied()
    }
}

fn failed(ledger: &Path, error: &::fjall::Error) -> OpenError {
    OpenError::Engine { ledger: ledger.to_owned(), what: format!("{error}, while it was pieced together") }
}

/// The first folder that stands where a file of the engine's must be, or the other way round, and which of the two.
///
/// # Errors
/// What the disk says.
pub(super) fn misplaced(ledger: &Path) -> io::Result<Option<(PathBuf, &'static str)>> {
    if ledger.is_file() {
        return Ok(Some((ledger.to_owned(), "it is a file, not a folder")));
    }
    misplaced_in(ledger, 0)
}

fn misplaced_in(folder: &Path, depth: u8) -> io::Result<Option<(PathBuf, &'static str)>> {
    let mut paths =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let is_number = |name: &str| name.parse::<u64>().is_ok();
        let (is_folder, is_file) = match depth {
            0 => (name == "keyspaces", name == "version" || name.ends_with(".jnl")),
            1 => (is_number(name), false),
            2 => (name == "tables", name == "current" || name.strip_prefix('v').is_some_and(is_number)),
            _ => (false, is_number(name)),
        };
        match (is_folder, is_file, path.is_dir()) {
            (true, _, false) => return Ok(Some((path, "it is a file, not a folder"))),
            (_, true, true) => return Ok(Some((path, "it is a folder, not a file"))),
            (true, _, true) => {
                if let Some(found) = misplaced_in(&path, depth + 1)? {
                    return Ok(Some(found));
                }
            }
            (false, ..) => {}
        }
    }
    Ok(None)
}

/// The first file that no engine's folder is without and that is missing in this one. The engine would take a keyspace
/// without it for one that was never finished, and delete it.
pub(super) fn missing_file(ledger: &Path) -> Option<PathBuf> {
    let lists = (0..=SPACES).map(|number| ledger.join("keyspaces").join(number.to_string()).join("current"));
    [ledger.join("version")].into_iter().chain(lists).find(|path| !path.exists())
}
