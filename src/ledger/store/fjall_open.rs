//! Opening a data folder: everything that must be checked before a ledger is believed.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;

use ::fjall::config::{BlockSizePolicy, CompressionPolicy};
use ::fjall::{CompressionType, Database, KeyspaceCreateOptions, PersistMode};

use super::fjall_log::Spaces;
use super::keyfile::{self, KeyFileError};
use super::place;
use super::space::{DEFAULT_RESERVE, Reserve};
use super::tip::{TIP_FILE, Tip, TipError};
use super::{FORMAT_VERSION, Head, LEDGER_FOLDER, ReadError, fjall_salvage as salvage, row, snapfile};
use crate::ledger::ids::Seq;

const LOCK_FILE: &str = "lock";
/// A ledger is made here and takes its place by `rename`: an engine killed during its first creation never opens again.
pub(super) const DRAFT_FOLDER: &str = "ledger.draft";
const FORMAT: &str = "format";
/// Says that the newest success of each session was kept from the first commit on.
pub(super) const SUCCESSES: &str = "successes";
const KEYSPACES: [&str; 6] = ["log", "done", "by", "body", "keys", "rows"];
/// Three workers: with four or more a commit was seen to hang for ever after the disk had failed.
const WORKERS: usize = 3;
/// Larger memtables stall commits for half a second when they rotate; this size stalls them for 25 ms.
const MEMTABLE: u64 = 16 * 1024 * 1024;
/// Replaying a journal costs 2.8 µs an item at the next start.
const MAX_JOURNALS: u64 = 256 * 1024 * 1024;

/// Settings of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes set aside for the moment when the disk is full; 0 for none. Default 64 MiB.
    pub reserve: u64,
    /// Bytes of the engine's block cache. Default 64 MiB.
    pub cache: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { reserve: DEFAULT_RESERVE, cache: 64 * 1024 * 1024 }
    }
}

/// Why a data folder is not opened. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("could not {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the disk says.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the data folder {0} is in use by another process; stop that one first, or use another folder")]
    InUse(PathBuf),
    /// Written by a newer program.
    #[error(
        "{path} has format version {found}, this program reads up to {newest}: use the program that wrote it, or a newer one"
    )]
    Newer {
        /// The ledger's folder, or its mark.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest that is read.
        newest: u32,
    },
    /// The mark or a snapshot says that there was more.
    #[error(
        "acknowledged events are lost: {mark} says that seq {seq} was durable, {ledger} ends at seq {last_good}. \
         Run `reach verify` to see what is damaged; restore the folder from a backup, or accept the loss with \
         `reach repair --accept-loss`"
    )]
    Lost {
        /// The file that says so.
        mark: PathBuf,
        /// The ledger's folder.
        ledger: PathBuf,
        /// How far it had come.
        seq: Seq,
        /// Where it ends now.
        last_good: Seq,
    },
    /// Another history stands there.
    #[error(
        "{ledger} holds another history than {mark} marks at seq {seq}; the last seq that can be vouched for is \
         {last_good}. Run `reach verify`; restore the folder from a backup, or go on from what is there with \
         `reach repair --accept-loss`"
    )]
    Diverged {
        /// The file that says so.
        mark: PathBuf,
        /// The ledger's folder.
        ledger: PathBuf,
        /// Where.
        seq: Seq,
        /// The last seq before it.
        last_good: Seq,
    },
    /// There is a ledger and no readable mark.
    #[error(
        "the high-water mark {mark} is missing or damaged, so nothing says whether {ledger}, which ends at seq \
         {last_good}, is whole. Run `reach verify`; restore the file, or accept what is there with \
         `reach repair --accept-loss`"
    )]
    NoMark {
        /// The file.
        mark: PathBuf,
        /// The ledger's folder.
        ledger: PathBuf,
        /// Where it ends.
        last_good: Seq,
    },
    /// Something is not what was written.
    #[error(
        "{ledger} is damaged at seq {seq}: {what}; the last good seq is {last_good}. Run `reach verify` to see all \
         of it; restore the folder from a backup, or accept the loss with `reach repair --accept-loss`"
    )]
    Damaged {
        /// The ledger's folder.
        ledger: PathBuf,
        /// First bad seq.
        seq: Seq,
        /// Last good one before it.
        last_good: Seq,
        /// What is wrong.
        what: String,
    },
    /// A file of the ledger is not what was written, or not there.
    #[error(
        "{file} is damaged: {what}. Nothing was changed. Run `reach verify` to see up to which seq the ledger is sound; \
         restore {ledger} from a backup, or go on from the last sound event with `reach repair --accept-loss`"
    )]
    File {
        /// The ledger's folder.
        ledger: PathBuf,
        /// The file.
        file: PathBuf,
        /// What is wrong, and where in it.
        what: String,
    },
    /// The engine does not open its folder.
    #[error(
        "the storage engine does not open {ledger}: {what}. Run `reach verify`; restore the folder from a backup, or \
         accept the loss with `reach repair --accept-loss`"
    )]
    Engine {
        /// The ledger's folder.
        ledger: PathBuf,
        /// What it says.
        what: String,
    },
    /// The key file.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
}

impl OpenError {
    pub(super) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }

    pub(super) fn mark(path: &Path, error: TipError) -> Self {
        match error {
            TipError::Io(source) => Self::io("open", path, source),
            TipError::Newer { found, newest } => {
                Self::Newer { path: path.to_owned(), found: found.into(), newest: newest.into() }
            }
        }
    }

    pub(super) fn read(ledger: &Path, error: ReadError) -> Self {
        let ledger = ledger.to_owned();
        match error {
            ReadError::Damaged { seq, last_good, what } => Self::Damaged { ledger, seq, last_good, what },
            ReadError::Io(what) => Self::Engine { ledger, what },
        }
    }
}

/// What opening gives.
pub(super) struct Opened {
    pub(super) spaces: Spaces,
    pub(super) head: Head,
    pub(super) tip: Tip,
    pub(super) lock: File,
}

pub(super) fn open(data: &Path, options: &Options) -> Result<Opened, OpenError> {
    fs::create_dir_all(data).map_err(|error| OpenError::io("create", data, error))?;
    let lock = lock(data)?;
    let ledger = data.join(LEDGER_FOLDER);
    if !ledger.exists() {
        create(data, &ledger, options)?;
    }
    let mark = data.join(TIP_FILE);
    let marked = Tip::open(&mark).map_err(|error| OpenError::mark(&mark, error))?;
    // Without a mark nobody knows what was acknowledged: then everything may have been.
    check_files(&ledger, marked.as_ref().map_or(Seq(u64::MAX), |(_, head)| head.seq))?;
    let spaces = open_engine(&ledger, options).map_err(|error| with_file(&ledger, error))?;
    let head = check_tail(data, &ledger, &spaces)?;
    let tip = check_mark((&mark, marked), &ledger, &spaces, &head)?;
    Reserve::new(data, options.reserve).tend().map_err(|error| OpenError::io("set a reserve aside in", data, error))?;
    Ok(Opened { spaces, head, tip, lock })
}

/// Takes the data folder for this process.
pub(super) fn lock(data: &Path) -> Result<File, OpenError> {
    let path = data.join(LOCK_FILE);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| OpenError::io("open", &path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(data.to_owned())),
        Err(TryLockError::Error(error)) => Err(OpenError::io("lock", &path, error)),
    }
}

fn create(data: &Path, ledger: &Path, options: &Options) -> Result<(), OpenError> {
    // A folder whose mark says that there was a ledger is not an empty one.
    let mark = data.join(TIP_FILE);
    let marked = Tip::open(&mark).map_err(|error| OpenError::mark(&mark, error))?;
    if let Some((_, marked)) = marked.filter(|(_, head)| head.seq > Seq(0)) {
        return Err(OpenError::Lost { mark, ledger: ledger.to_owned(), seq: marked.seq, last_good: Seq(0) });
    }
    // The key file first, then the mark, then the ledger: a ledger without either of them is refused.
    keyfile::load_or_create(data)?;
    drop(Tip::create(&mark, &Head::default()).map_err(|error| OpenError::io("create", &mark, error))?);
    build_draft(data, options)?;
    let draft = data.join(DRAFT_FOLDER);
    place::rename(&draft, ledger).map_err(|error| OpenError::io("move into place", &draft, error))
}

/// Makes an empty engine folder beside, durable but for its place.
pub(super) fn build_draft(data: &Path, options: &Options) -> Result<(), OpenError> {
    let draft = data.join(DRAFT_FOLDER);
    match fs::remove_dir_all(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(OpenError::io("clean", &draft, error)),
        Ok(()) | Err(_) => {}
    }
    make_engine(&draft, options)
}

/// Makes an empty engine folder at `path`, durable but for its place.
pub(super) fn make_engine(path: &Path, options: &Options) -> Result<(), OpenError> {
    {
        let db = engine(path, options).map_err(|what| OpenError::Engine { ledger: path.to_owned(), what })?;
        make_keyspaces(&db).map_err(|error| OpenError::Engine { ledger: path.to_owned(), what: error.to_string() })?;
    }
    sync_folder(path)
}

pub(super) fn sync_folder(path: &Path) -> Result<(), OpenError> {
    place::sync_folder(path).map_err(|error| OpenError::io("flush", path, error))
}

fn make_keyspaces(db: &Database) -> ::fjall::Result<()> {
    for name in KEYSPACES {
        let space = db.keyspace(name, || keyspace_options(name))?;
        if name == "rows" {
            space.insert(row::meta(FORMAT), FORMAT_VERSION.to_be_bytes())?;
            space.insert(row::meta(SUCCESSES), [1])?;
        }
    }
    db.persist(PersistMode::SyncAll)
}

fn keyspace_options(name: &str) -> KeyspaceCreateOptions {
    let options = KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE);
    match name {
        // The default policy compresses deep levels only, which a log in order never reaches.
        "log" => options
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
            .data_block_size_policy(BlockSizePolicy::all(16 * 1024)),
        "done" | "by" => options.data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4)),
        _ => options,
    }
}

/// Opens or makes the engine in `path`. It panics on some damaged folders: that is an answer, too.
pub(super) fn engine(path: &Path, options: &Options) -> Result<Database, String> {
    let open = || {
        Database::builder(path)
            .worker_threads(WORKERS)
            .cache_size(options.cache)
            .max_journaling_size(MAX_JOURNALS)
            .open()
            .map_err(|error| error.to_string())
    };
    quietly(open).unwrap_or_else(Err)
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs something of the engine that may panic on damaged files; what it says then is an answer, not a crash on stderr.
pub(super) fn quietly<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let outer = QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(outer);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        format!("it panicked: {}", text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word"))
    })
}

/// What the engine would make worse, or pass over without a word, if it were let near: looked at before.
fn check_files(ledger: &Path, marked: Seq) -> Result<(), OpenError> {
    let damaged = |file: PathBuf, what: String| OpenError::File { ledger: ledger.to_owned(), file, what };
    let read = |error| OpenError::io("read", ledger, error);
    // What may not be looked at would seem to be missing.
    if let Some((file, what)) = salvage::misplaced(ledger).map_err(read)? {
        return Err(damaged(file, what.to_owned()));
    }
    if let Some(file) = salvage::missing_file(ledger) {
        return Err(damaged(file, "it is missing".to_owned()));
    }
    let salvage::Journals { mut findings, torn } = salvage::inspect_journals(ledger, marked).map_err(read)?;
    // The engine deletes every keyspace that its own one does not know.
    findings.extend(salvage::inspect_tables(ledger, |keyspace| keyspace == 0).map_err(read)?);
    match findings.into_iter().next() {
        Some(finding) => Err(damaged(finding.file.clone(), finding.to_string())),
        None => torn.map_or(Ok(()), |(journal, offset)| {
            tracing::warn!(journal = %journal.display(), offset, "cut a commit that was never finished");
            salvage::cut(&journal, offset).map_err(|error| OpenError::io("cut", &journal, error))
        }),
    }
}

/// The engine seldom says which file it stumbled over: the first damaged one is named beside its word, and one that
/// may not be opened is no damage at all.
fn with_file(ledger: &Path, error: OpenError) -> OpenError {
    let OpenError::Engine { ledger: at, what } = error else { return error };
    if let Some((file, source)) = closed_file(ledger) {
        return OpenError::io("open", &file, source);
    }
    match salvage::inspect_tables(ledger, |_| true).map(|findings| findings.into_iter().next()) {
        Ok(Some(finding)) => OpenError::File {
            ledger: at,
            file: finding.file.clone(),
            what: format!("{finding}; the storage engine says: {what}"),
        },
        Ok(None) | Err(_) => OpenError::Engine { ledger: at, what },
    }
}

/// The first file below `folder` that this process may not read and write, or folder that it may not make files in, and
/// what the disk says of it.
pub(super) fn closed_file(folder: &Path) -> Option<(PathBuf, io::Error)> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return Some((folder.to_owned(), error)),
    };
    if let Err(error) = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
        return Some((folder.to_owned(), error.into()));
    }
    entries.filter_map(Result::ok).map(|entry| entry.path()).find_map(|path| {
        if path.is_dir() {
            return closed_file(&path);
        }
        match File::options().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some((path, error)),
            Ok(_) | Err(_) => None,
        }
    })
}

/// Opens an engine folder that exists: all its keyspaces, of a version that this program reads.
pub(super) fn open_engine(ledger: &Path, options: &Options) -> Result<Spaces, OpenError> {
    let failed = |what: String| OpenError::Engine { ledger: ledger.to_owned(), what };
    // Without its version marker the engine would take the folder for an empty one and make a new database in it.
    if let Some(file) = salvage::missing_file(ledger) {
        return Err(OpenError::File { ledger: ledger.to_owned(), file, what: "it is missing".to_owned() });
    }
    let db = engine(ledger, options).map_err(failed)?;
    let space = |name: &str| {
        // A keyspace whose folder is gone would be made anew, empty, without a word.
        if !db.keyspace_exists(name) {
            return Err(failed(format!("keyspace {name} is missing")));
        }
        db.keyspace(name, || keyspace_options(name)).map_err(|error| failed(error.to_string()))
    };
    let spaces = Spaces {
        log: space("log")?,
        done: space("done")?,
        by: space("by")?,
        body: space("body")?,
        keys: space("keys")?,
        rows: space("rows")?,
        db: db.clone(),
    };
    check_format(ledger, &spaces)?;
    Ok(spaces)
}

/// Is the ledger of a version that this program reads?
pub(super) fn check_format(ledger: &Path, spaces: &Spaces) -> Result<(), OpenError> {
    let failed = |what: String| OpenError::Engine { ledger: ledger.to_owned(), what };
    let format = spaces.rows.get(row::meta(FORMAT)).map_err(|error| failed(error.to_string()))?;
    let format = format.ok_or_else(|| failed("its format version is missing".to_owned()))?;
    let found = super::codec::be_u32(&format, 0).map_err(|error| failed(error.to_string()))?;
    if found > FORMAT_VERSION {
        return Err(OpenError::Newer { path: ledger.to_owned(), found, newest: FORMAT_VERSION });
    }
    Ok(())
}

/// Checks density, chain and counts from the newest snapshot on, and gives the head.
fn check_tail(data: &Path, ledger: &Path, spaces: &Spaces) -> Result<Head, OpenError> {
    let snapshots = snapfile::list(data).map_err(|error| OpenError::io("read", data, error))?;
    let newest = snapshots.first();
    let from = newest.map_or(Seq(1), |(seq, _)| *seq).max(Seq(1));
    let read = || spaces.walk(&spaces.db.snapshot(), from, |_| Ok(()));
    let head = quietly(read)
        .map_err(|what| OpenError::Engine { ledger: ledger.to_owned(), what })?
        .map_err(|error| OpenError::read(ledger, error))?;
    match newest {
        Some((seq, path)) if *seq > head.seq => {
            Err(OpenError::Lost { mark: path.clone(), ledger: ledger.to_owned(), seq: *seq, last_good: head.seq })
        }
        Some(_) | None => Ok(head),
    }
}

/// Compares the ledger with the high-water mark and marks its head.
fn check_mark(
    (path, marked): (&Path, Option<(Tip, Head)>),
    ledger: &Path,
    spaces: &Spaces,
    head: &Head,
) -> Result<Tip, OpenError> {
    let (mark, ledger) = (path.to_owned(), ledger.to_owned());
    let Some((mut tip, marked)) = marked else {
        return Err(OpenError::NoMark { mark, ledger, last_good: head.seq });
    };
    if marked.seq > head.seq {
        return Err(OpenError::Lost { mark, ledger, seq: marked.seq, last_good: head.seq });
    }
    if marked.seq > Seq(0) {
        let commit = spaces
            .commit_at(&spaces.db.snapshot(), marked.seq)
            .map_err(|error| OpenError::read(&ledger, error))?
            .map(|commit| commit.head);
        if commit.map(|head| (head.seq, head.hash)) != Some((marked.seq, marked.hash)) {
            let last_good = Seq(marked.seq.0.saturating_sub(1));
            return Err(OpenError::Diverged { mark, ledger, seq: marked.seq, last_good });
        }
    }
    tip.mark(head).map_err(|error| OpenError::io("write", path, error))?;
    Ok(tip)
}
