//! The way on after a loss that its operator accepts: a new ledger of every commit up to the last good one, and then a
//! new lineage that says what was lost (semantics 24).
//!
//! The new folder is built beside and takes the old one's place in one atomic exchange; the damaged one is kept.

use std::fs;
use std::path::{Path, PathBuf};

use ::fjall::PersistMode;

use super::block::{DecodedCommit, encode_commit};
use super::codec::CodecError;
use super::fjall::{OpenError, Options};
use super::fjall_log::Spaces;
use super::fjall_open::{DRAFT_FOLDER, build_draft, lock, open_engine, quietly, sync_folder};
use super::fjall_verify::{Marks, Scratch};
use super::tip::{TIP_FILE, Tip};
use super::verify::VerifyReport;
use super::{Commit, Head, LEDGER_FOLDER, ReadError, Rows, snapfile};
use crate::ledger::ids::{Lineage, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::event::{Actor, Event, EventBody, LineageStarted};
use crate::ledger::machine::index::Departures;
use crate::ledger::machine::step::apply;

const SCRATCH: &str = "repair.scratch";

/// What was kept and what was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The new history's identity.
    pub lineage: Lineage,
    /// The last event taken over.
    pub at_seq: Seq,
    /// The last event known to be lost, if any.
    pub lost_up_to: Option<Seq>,
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
}

impl From<::fjall::Error> for RepairError {
    fn from(error: ::fjall::Error) -> Self {
        Self::Engine(error.to_string())
    }
}

/// Accepts the loss of everything after the last good commit and starts a new lineage there.
///
/// # Errors
/// [`RepairError`]; then the data folder is as it was.
pub fn accept_loss(data: &Path) -> Result<Accepted, RepairError> {
    let held = lock(data)?;
    let marks = Marks::read(data, &mut VerifyReport::default())?;
    let scratch = Scratch::copy_of(data, SCRATCH)?;
    let old = scratch.open()?;
    let mut lineage = Lineage::default();
    getrandom::fill(&mut lineage.0).map_err(|error| RepairError::Random(error.to_string()))?;
    build_draft(data, &Options::default())?;
    let draft = data.join(DRAFT_FOLDER);
    let (head, accepted) = {
        let new = open_engine(&draft, &Options::default())?;
        let good = take_over(&old, &new)?;
        take_bodies(&old, &new)?;
        let lost_up_to = Some(marks.highest()).filter(|highest| *highest > good.seq);
        let kept = data.join(format!("ledger.damaged-{}", good.seq));
        let accepted = Accepted { lineage, at_seq: good.seq, lost_up_to, kept };
        let commit = begin(&good, &accepted)?;
        write(&new, &commit)?;
        new.db.persist(PersistMode::SyncAll)?;
        (commit.head, accepted)
    };
    exchange(data, &draft, &head, &accepted)?;
    drop(held);
    Ok(accepted)
}

/// Writes every good commit anew, with the rows that the fold gives, and stops before the first bad one.
fn take_over(old: &Spaces, new: &Spaces) -> Result<Head, RepairError> {
    let mut state = State::default();
    let mut head = Head::default();
    let mut failed = None;
    let walk = || {
        old.walk(&old.db.snapshot(), Seq(1), |commit| {
            let written = fold(&mut state, &head, commit).map(|commit| write(new, &commit));
            match written {
                Some(Ok(())) => {
                    head = commit.head;
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
    match failed {
        Some(error) => Err(error),
        None => Ok(head),
    }
}

/// Folds a commit and gives it with its rows; `None` if it can't follow: then the state is no longer
/// of use, and nobody goes on with it.
fn fold(state: &mut State, head: &Head, read: &DecodedCommit) -> Option<Commit> {
    for stored in &read.events {
        apply(state, &stored.event).ok()?;
    }
    let Departures { tasks, after, batches, callbacks, keys } = state.sealed(head.seq);
    state.forget_up_to(read.head.seq);
    let mut frame = read.header.encode().to_vec();
    let header_len = u32::try_from(frame.len()).ok()?;
    let mut events = Vec::with_capacity(read.events.len());
    for stored in &read.events {
        frame.extend_from_slice(&stored.frame);
        events.push((stored.event.seq, u32::try_from(stored.frame.len()).ok()?));
    }
    frame.extend_from_slice(&read.head.hash.0);
    let rows = Rows { finished: tasks, after, keys, batches, callbacks };
    Some(Commit { expected: *head, head: read.head, frame, events, header_len, rows, bodies: Vec::new() })
}

fn write(new: &Spaces, commit: &Commit) -> Result<(), RepairError> {
    // Nothing here is acknowledged before the exchange: one flush at the end is enough.
    let mut batch = new.batch_for(commit).durability(None);
    new.fill(&mut batch, commit)?;
    Ok(batch.commit()?)
}

/// Bodies and registers are not in the log: they are taken as they are. Those of lost tasks stay unnamed and harmless.
fn take_bodies(old: &Spaces, new: &Spaces) -> Result<(), RepairError> {
    for guard in old.body.iter() {
        let (key, value) = guard.into_inner()?;
        new.body.insert(key, value)?;
    }
    for guard in old.rows.prefix(b"r") {
        let (key, value) = guard.into_inner()?;
        new.rows.insert(key, value)?;
    }
    Ok(())
}

fn begin(good: &Head, accepted: &Accepted) -> Result<Commit, CodecError> {
    let started = LineageStarted {
        lineage: accepted.lineage,
        previous: Some(good.lineage),
        at_seq: good.seq,
        hash: good.hash,
        lost_up_to: accepted.lost_up_to,
    };
    let event = Event {
        seq: good.seq.next(),
        at: good.at,
        namespace: None,
        actor: Actor::Hub,
        session: None,
        batch: None,
        trace: None,
        body: EventBody::LineageStarted(started),
    };
    Ok(encode_commit(good, &[event])?.0)
}

fn exchange(data: &Path, draft: &Path, head: &Head, accepted: &Accepted) -> Result<(), OpenError> {
    let ledger = data.join(LEDGER_FOLDER);
    let io = |what, path: &Path, error| OpenError::io(what, path, error);
    // Snapshots of what is lost must not speak for it any more.
    for (seq, path) in snapfile::list(data).map_err(|error| io("read", data, error))? {
        if seq > accepted.at_seq {
            fs::rename(&path, path.with_extension("damaged")).map_err(|error| io("move aside", &path, error))?;
        }
    }
    let (here, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(here, draft, here, &ledger, flags)
        .map_err(|error| io("exchange", &ledger, error.into()))?;
    let mark = data.join(TIP_FILE);
    drop(Tip::create(&mark, head).map_err(|error| io("write", &mark, error))?);
    fs::rename(draft, &accepted.kept).map_err(|error| io("keep", &accepted.kept, error))?;
    sync_folder(data)
}
