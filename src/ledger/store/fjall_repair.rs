//! The way on after a loss that its operator accepts: a new ledger of every commit up to the last sound one, and then a
//! new lineage that says what was lost (semantics 24).
//!
//! The new folder is built beside and takes the old one's place in one atomic exchange; the damaged one is kept. What
//! the storage engine will not open is pieced together from its files (`fjall_salvage.rs`), so that no event before the
//! damage is lost. Every lease of before ends: whoever holds one may have been replaced in what was lost.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ::fjall::PersistMode;

use super::block::{DecodedCommit, TARGET_COMMIT_EVENTS, encode_commit};
use super::codec::CodecError;
use super::fjall::{OpenError, Options};
use super::fjall_log::Spaces;
use super::fjall_open::{DRAFT_FOLDER, build_draft, lock, open_engine, quietly, sync_folder};
use super::fjall_verify::{Marks, NamedBody, Scratch};
use super::keyfile::{self, KeyFileError, Mended};
use super::place;
use super::tip::{TIP_FILE, Tip};
use super::verify::VerifyReport;
use super::{BodyKey, BodyKind, Commit, Head, LEDGER_FOLDER, ReadError, Rows, row, snapfile};
use crate::ledger::ids::{Lineage, ReachId, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::EventBody;
use crate::ledger::machine::index::Departures;
use crate::ledger::machine::step::{apply, step};
use crate::ledger::time::{Clock as _, SystemClock};

const SCRATCH: &str = "repair.scratch";

/// What of the log is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Nothing that the high-water mark or a snapshot knows of.
    Nothing,
    /// The events after the last one taken over, up to this one.
    UpTo(Seq),
    /// Nobody knows: the high-water mark itself is gone.
    Unknown,
}

/// What was kept and what was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The new history's identity.
    pub lineage: Lineage,
    /// The last event taken over.
    pub at_seq: Seq,
    /// What comes after it no more.
    pub lost: Lost,
    /// Bodies (payloads, results, declarations) that are gone although their events are there.
    pub bodies_lost: u64,
    /// Tasks that were in somebody's hands and are orphans now: their leases ended with the old history.
    pub orphaned: u64,
    /// Unfinished tasks whose payload is gone; they are dead letters now.
    pub payloads_lost: u64,
    /// What was done to the key file.
    pub keys: Mended,
    /// Where the damaged ledger lies now.
    pub kept: PathBuf,
}

/// Why the loss can't be accepted.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The folder can't be read or written at all.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine failed on the new folder.
    #[error("the new ledger could not be written: {0}")]
    Engine(String),
    /// The machine gives no random bytes.
    #[error("no random bytes for a lineage: {0}")]
    Random(String),
    /// What is good of the log can't be encoded anew.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The key file can't be read or made anew.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// The new lineage can't follow on what was taken over: a bug.
    #[error("the new history can't begin: {0}")]
    Impossible(String),
}

impl From<::fjall::Error> for RepairError {
    fn from(error: ::fjall::Error) -> Self {
        Self::Engine(error.to_string())
    }
}

impl From<ReadError> for RepairError {
    fn from(error: ReadError) -> Self {
        Self::Engine(error.to_string())
    }
}

/// Accepts the loss of everything after the last sound commit and starts a new lineage there.
///
/// # Errors
/// [`RepairError`]; then the ledger is as it was, or it and its mark lie under the names where they are kept, and the
/// next run makes the rest.
pub fn accept_loss(data: &Path) -> Result<Accepted, RepairError> {
    let held = lock(data)?;
    // Whatever it answers: a key file that must not be touched is told before anything is.
    keyfile::is_past_mending(data)?;
    let ledger = data.join(LEDGER_FOLDER);
    // A ledger that is gone altogether is a loss like another.
    fs::create_dir_all(&ledger).map_err(|error| OpenError::io("create", &ledger, error))?;
    let marks = Marks::read(data, &mut VerifyReport::default())?;
    let scratch = Scratch::new(data, SCRATCH);
    let old = scratch.read(&ledger, marks.highest(), &mut VerifyReport::default())?;
    let mut lineage = Lineage::default();
    getrandom::fill(&mut lineage.0).map_err(|error| RepairError::Random(error.to_string()))?;
    build_draft(data, &Options::default())?;
    let draft = data.join(DRAFT_FOLDER);
    let (head, mut accepted) = {
        let new = open_engine(&draft, &Options::default())?;
        let (state, good) = take_over(&old, &new)?;
        take_bodies(&old, &new)?;
        let lost = match marks.highest() {
            highest if highest > good.seq => Lost::UpTo(highest),
            _ if !marks.has_tip() => Lost::Unknown,
            _ => Lost::Nothing,
        };
        let given_up = give_up_bodies(&new, good.seq.next())?;
        let begun = begin(&new, state, Loss { lineage, good, lost, given_up: &given_up })?;
        new.db.persist(PersistMode::SyncAll)?;
        let accepted = Accepted {
            lineage,
            at_seq: good.seq,
            lost,
            bodies_lost: given_up.len() as u64,
            orphaned: begun.orphaned,
            payloads_lost: begun.payloads_lost,
            keys: Mended::Sound,
            kept: vacant(data, &format!("ledger.damaged-{}", good.seq)),
        };
        (begun.head, accepted)
    };
    exchange(data, &draft, &head, &accepted)?;
    // Last: leases end with a new history, and one that was killed before it is made again because of the key file.
    accepted.keys = keyfile::mend(data)?;
    drop(held);
    Ok(accepted)
}

/// A name in the data folder that nothing has yet.
fn vacant(data: &Path, name: &str) -> PathBuf {
    let more = (2..).map(|n: u32| data.join(format!("{name}-{n}")));
    [data.join(name)].into_iter().chain(more).find(|path| !path.exists()).unwrap_or_else(|| data.join(name))
}

/// Writes every good commit anew, with the rows that the fold gives, and stops before the first bad one.
fn take_over(old: &Spaces, new: &Spaces) -> Result<(State, Head), RepairError> {
    let mut state = State::default();
    let mut good = (state.clone(), Head::default());
    let mut failed = None;
    let walk = || {
        old.walk(&old.db.snapshot(), Seq(1), |commit| {
            match fold(&mut state, &good.1, commit).map(|commit| write(new, &commit)) {
                Some(Ok(())) => {
                    good.1 = commit.head;
                    Ok(())
                }
                Some(Err(error)) => {
                    failed = Some(error);
                    Err(ReadError::Io("stopped".to_owned()))
                }
                None => Err(ReadError::Io("the fold ends here".to_owned())),
            }
        })
    };
    // How the walk ended is what `verify` tells; here only how far it came counts.
    drop(quietly(walk));
    if let Some(error) = failed {
        return Err(error);
    }
    // A commit that could not follow has left the state half changed: what was written is folded again.
    if state.seq() == good.1.seq {
        good.0 = state;
    } else {
        good.0 = fold_again(new)?;
    }
    Ok(good)
}

fn fold_again(new: &Spaces) -> Result<State, RepairError> {
    let mut state = State::default();
    new.walk(&new.db.snapshot(), Seq(1), |commit| {
        for stored in &commit.events {
            apply(&mut state, &stored.event).map_err(|error| ReadError::Io(error.to_string()))?;
        }
        state.forget_up_to(commit.head.seq);
        Ok(())
    })?;
    Ok(state)
}

/// Folds a commit and gives it with its rows; `None` if it can't follow: then the state is no longer
/// of use, and nobody goes on with it.
fn fold(state: &mut State, head: &Head, read: &DecodedCommit) -> Option<Commit> {
    for stored in &read.events {
        apply(state, &stored.event).ok()?;
    }
    let rows = rows_of(state, head.seq);
    state.forget_up_to(read.head.seq);
    let mut frame = read.header.encode().to_vec();
    let header_len = u32::try_from(frame.len()).ok()?;
    let mut events = Vec::with_capacity(read.events.len());
    for stored in &read.events {
        frame.extend_from_slice(&stored.frame);
        events.push((stored.event.seq, u32::try_from(stored.frame.len()).ok()?));
    }
    frame.extend_from_slice(&read.head.hash.0);
    Some(Commit { expected: *head, head: read.head, frame, events, header_len, rows, bodies: Vec::new() })
}

fn rows_of(state: &State, after: Seq) -> Rows {
    let Departures { tasks, after, batches, replays, callbacks, keys, successes } = state.sealed(after);
    Rows { finished: tasks, after, keys, batches, replays, callbacks, successes }
}

fn write(new: &Spaces, commit: &Commit) -> Result<(), RepairError> {
    // Nothing here is acknowledged before the exchange: one flush at the end is enough.
    let mut batch = new.batch_for(commit).durability(None);
    new.fill(&mut batch, commit)?;
    Ok(batch.commit()?)
}

/// Bodies, registers and the marks of bodies given up before are not in the log: they are taken as they are. Bodies of
/// lost tasks stay unnamed and harmless.
fn take_bodies(old: &Spaces, new: &Spaces) -> Result<(), RepairError> {
    for guard in old.body.iter() {
        let (key, value) = guard.into_inner()?;
        new.body.insert(key, value)?;
    }
    for guard in old.rows.prefix(b"r").chain(old.rows.prefix(b"l")) {
        let (key, value) = guard.into_inner()?;
        new.rows.insert(key, value)?;
    }
    Ok(())
}

/// Marks every body that an event names and that is gone, so that `verify` knows it for accepted.
fn give_up_bodies(new: &Spaces, at: Seq) -> Result<BTreeSet<BodyKey>, RepairError> {
    let mut given_up = BTreeSet::new();
    new.walk(&new.db.snapshot(), Seq(1), |commit| {
        for stored in &commit.events {
            let named = NamedBody::of(&stored.event).filter(|named| named.check(new).is_err());
            if let Some(NamedBody { key, .. }) = named.filter(|named| !new.is_given_up(&named.key).unwrap_or(false)) {
                given_up.insert(key);
            }
        }
        Ok(())
    })?;
    for key in &given_up {
        // Parts that are left would be read as a damaged body, not as an absent one.
        for guard in new.body.prefix(row::body(key)) {
            new.body.remove(guard.key()?)?;
        }
        new.rows.insert(row::given_up(key), at.0.to_be_bytes())?;
    }
    Ok(given_up)
}

struct Loss<'a> {
    lineage: Lineage,
    good: Head,
    lost: Lost,
    given_up: &'a BTreeSet<BodyKey>,
}

struct Begun {
    head: Head,
    orphaned: u64,
    payloads_lost: u64,
}

/// Decides and writes the events with which the new history begins.
fn begin(new: &Spaces, mut state: State, loss: Loss<'_>) -> Result<Begun, RepairError> {
    let payload = |id: ReachId| BodyKey::Task { task: id, kind: BodyKind::Payload, attempt: 0 };
    let payloads: Vec<_> = state.tasks().keys().copied().filter(|id| loss.given_up.contains(&payload(*id))).collect();
    let command = Command::AcceptLoss {
        lineage: loss.lineage,
        hash: loss.good.hash,
        lost_up_to: match loss.lost {
            Lost::UpTo(seq) => Some(seq),
            Lost::Nothing | Lost::Unknown => None,
        },
        payloads,
    };
    // A history of which nothing is left has no time to go on from.
    let at = if loss.good.seq == Seq::default() { SystemClock.wall() } else { loss.good.at };
    let done = step(&mut state, &Proposal::by_hub(None, command), at)
        .map_err(|error| RepairError::Impossible(error.to_string()))?;
    let mut head = loss.good;
    let mut begun = Begun { head, orphaned: 0, payloads_lost: 0 };
    for events in done.events.chunks(TARGET_COMMIT_EVENTS) {
        let mut commit = encode_commit(&head, events)?.0;
        head = commit.head;
        if head.seq == state.seq() {
            commit.rows = rows_of(&state, loss.good.seq);
        }
        write(new, &commit)?;
        begun.orphaned += count(events, |body| matches!(body, EventBody::TaskOrphaned(_)));
        begun.payloads_lost += count(events, |body| matches!(body, EventBody::TaskDeadLettered(_)));
    }
    begun.head = head;
    Ok(begun)
}

fn count(events: &[crate::ledger::machine::event::Event], is: impl Fn(&EventBody) -> bool) -> u64 {
    events.iter().filter(|event| is(&event.body)).count() as u64
}

fn exchange(data: &Path, draft: &Path, head: &Head, accepted: &Accepted) -> Result<(), OpenError> {
    let ledger = data.join(LEDGER_FOLDER);
    let io = |what, path: &Path, error| OpenError::io(what, path, error);
    // Snapshots of what is lost must not speak for it any more.
    for (seq, path) in snapfile::list(data).map_err(|error| io("read", data, error))? {
        if seq > accepted.at_seq || snapfile::read(&path).is_err() {
            place::rename(&path, &path.with_extension("damaged")).map_err(|error| io("move aside", &path, error))?;
        }
    }
    // Under its lasting name before the exchange: whatever ends this now, nothing clears the damaged ledger away.
    place::rename(draft, &accepted.kept).map_err(|error| io("keep", &accepted.kept, error))?;
    let (here, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(here, &accepted.kept, here, &ledger, flags)
        .map_err(|error| io("exchange", &ledger, error.into()))?;
    let mark = data.join(TIP_FILE);
    let mut beside = accepted.kept.clone().into_os_string();
    beside.push(".tip");
    match place::rename(&mark, Path::new(&beside)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io("keep", &mark, error)),
        Ok(()) | Err(_) => {}
    }
    drop(Tip::create(&mark, head).map_err(|error| io("write", &mark, error))?);
    sync_folder(data)
}
