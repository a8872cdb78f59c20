//! The walk of `verify`: on a copy, because the engine's recovery cuts journals in place and the evidence must stay.
//! What the engine refuses to open is pieced together from outside, so that the walk can still say how far it is whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::block::DecodedCommit;
use super::copy::copy_folder;
use super::fjall::{OpenError, Options};
use super::fjall_log::Spaces;
use super::fjall_open::{closed_file, lock, open_engine, quietly};
use super::fjall_salvage as salvage;
use super::keyfile::{self, KeyFileError};
use super::tip::{TIP_FILE, Tip};
use super::verify::{VerifyError, VerifyReport};
use super::{BodyKey, BodyKind, Head, Kept, LEDGER_FOLDER, ReadError, snapfile, snapshot};
use crate::ledger::ids::{Digest, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::index::Departures;
use crate::ledger::machine::step::apply;

const SCRATCH: &str = "verify.scratch";

/// Verifies a data folder that no hub has open. `progress` gets the last seq checked and about how many there are.
///
/// # Errors
/// [`VerifyError`] when it is in use or can't be read at all; damage is in the report.
pub fn verify(data: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport, VerifyError> {
    let held = lock(data)?;
    let mut report = VerifyReport::default();
    let ledger = data.join(LEDGER_FOLDER);
    match keyfile::load(data) {
        Ok(_) => {}
        Err(error @ (KeyFileError::Missing(_) | KeyFileError::Damaged { .. })) => {
            report.note(None, &data.join(keyfile::KEY_FILE), error);
        }
        // Not damage: a report of it would advise to give up what needs a chmod, or a newer program.
        Err(error) => return Err(error.into()),
    }
    let marks = Marks::read(data, &mut report)?;
    report.marked = marks.highest();
    let scratch = Scratch::new(data, SCRATCH);
    let store = scratch.read(&ledger, marks.highest(), &mut report)?;
    let mut walk = Walk { store: &store, ledger: &ledger, marks: &marks, report: &mut report, state: State::default() };
    let total = marks.highest().0;
    let walked = quietly(|| walk.run(&mut |seq| progress(seq, total.max(seq))));
    walk.end(walked);
    marks.compare(&mut report);
    report.closed = closed_file(&ledger).map(|(file, error)| (file, error.to_string()));
    drop(store);
    drop(held);
    Ok(report)
}

/// A folder beside the ledger that goes away when dropped.
pub(super) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    pub(super) fn new(data: &Path, name: &str) -> Self {
        let scratch = Self { folder: data.join(name) };
        scratch.clear();
        scratch
    }

    /// All that can be read of the engine's folder `ledger`: through the engine, on a copy because its recovery cuts
    /// journals in place; or pieced together from outside where the engine refuses, or gives less than `marked`.
    /// Whatever is wrong is noted.
    pub(super) fn read(&self, ledger: &Path, marked: Seq, report: &mut VerifyReport) -> Result<Spaces, OpenError> {
        let options = Options::default();
        let engine = self.by_engine(ledger, marked, report)?;
        let reached = engine.as_ref().map(reach);
        if let (Some(spaces), Some(reached)) = (&engine, reached)
            && reached >= marked
        {
            return Ok(spaces.clone());
        }
        let pieced = salvage::salvage(ledger, &self.folder.join("pieced"), &options)?;
        match (engine, reached) {
            (Some(spaces), Some(reached)) if reach(&pieced) <= reached => Ok(spaces),
            (Some(_), Some(reached)) => {
                report.note(
                    Some(reached.next()),
                    ledger,
                    format!("the storage engine gives no more than seq {reached}"),
                );
                Ok(pieced)
            }
            (Some(_) | None, _) => Ok(pieced),
        }
    }

    fn by_engine(&self, ledger: &Path, marked: Seq, report: &mut VerifyReport) -> Result<Option<Spaces>, OpenError> {
        let io = |error| OpenError::io("read", ledger, error);
        if let Some(file) = salvage::missing_file(ledger) {
            report.note(None, &file, "it is missing");
            return Ok(None);
        }
        if let Some((file, what)) = salvage::misplaced(ledger).map_err(io)? {
            report.note(None, &file, what);
            return Ok(None);
        }
        let salvage::Journals { mut findings, torn } = salvage::inspect_journals(ledger, marked).map_err(io)?;
        findings.extend(salvage::inspect_tables(ledger, |_| true).map_err(io)?);
        for finding in &findings {
            report.note(None, &finding.file, finding);
        }
        if !findings.is_empty() {
            return Ok(None);
        }
        let copy = self.folder.join(LEDGER_FOLDER);
        copy_folder(ledger, &copy).map_err(|error| OpenError::io("copy the ledger to", &copy, error))?;
        if let Some((name, offset)) = torn.as_ref().and_then(|(path, offset)| Some((path.file_name()?, *offset))) {
            salvage::cut(&copy.join(name), offset).map_err(|error| OpenError::io("cut", &copy, error))?;
        }
        match open_engine(&copy, &Options::default()) {
            Ok(spaces) => Ok(Some(spaces)),
            Err(OpenError::Newer { found, newest, .. }) => {
                Err(OpenError::Newer { path: ledger.to_owned(), found, newest })
            }
            Err(OpenError::Engine { what, .. }) => {
                report.note(None, ledger, format!("the storage engine does not open it: {what}"));
                Ok(None)
            }
            Err(error) => {
                report.note(None, ledger, error);
                Ok(None)
            }
        }
    }

    fn clear(&self) {
        // What can't be removed now is removed by the next run; the copy failing says so if it matters.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// The last seq up to which a log is whole.
fn reach(spaces: &Spaces) -> Seq {
    let mut last = Seq(0);
    // Why it ends there is told by whoever walks it next.
    drop(quietly(|| {
        spaces.walk(&spaces.db.snapshot(), Seq(1), |commit| {
            last = commit.head.seq;
            Ok(())
        })
    }));
    last
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.clear();
    }
}

/// What the files beside the database say about it.
pub(super) struct Marks {
    data: PathBuf,
    tip: Option<Head>,
    snapshots: BTreeMap<Seq, (Digest, PathBuf)>,
}

impl Marks {
    pub(super) fn read(data: &Path, report: &mut VerifyReport) -> Result<Self, OpenError> {
        let path = data.join(TIP_FILE);
        let tip = Tip::open(&path).map_err(|error| OpenError::mark(&path, error))?.map(|(_, head)| head);
        if tip.is_none() {
            report.note(None, &path, "the high-water mark is missing or damaged");
        }
        let files = snapfile::list(data).map_err(|error| OpenError::io("read", data, error))?;
        let mut snapshots = BTreeMap::new();
        for (named, path) in files {
            let read = snapfile::read(&path).map_err(|error| error.to_string()).and_then(|(seq, digest, bytes)| {
                snapshot::decode(seq, digest, &bytes).map(|_| (seq, digest)).map_err(|error| error.to_string())
            });
            match read {
                Ok((seq, digest)) => drop(snapshots.insert(seq, (digest, path))),
                Err(error) => report.note(Some(named), &path, error),
            }
        }
        Ok(Self { data: data.to_owned(), tip, snapshots })
    }

    /// Is the high-water mark there and whole?
    pub(super) const fn has_tip(&self) -> bool {
        self.tip.is_some()
    }

    /// The highest seq that was durable, as far as they know.
    pub(super) fn highest(&self) -> Seq {
        let snapshot = self.snapshots.keys().next_back().copied().unwrap_or_default();
        self.tip.map(|tip| tip.seq).unwrap_or_default().max(snapshot)
    }

    fn compare(&self, report: &mut VerifyReport) {
        let head = report.head.seq;
        if let Some(tip) = self.tip.filter(|tip| tip.seq > head) {
            let what =
                format!("seq {} was durable; the last good seq is {head}: acknowledged events are lost", tip.seq);
            report.note(Some(head.next()), &self.data.join(TIP_FILE), what);
        }
        for (seq, (_, path)) in self.snapshots.range(head.next()..) {
            report.note(Some(head.next()), path, format!("seq {seq} was durable; the last good seq is {head}"));
        }
    }
}

struct Walk<'a> {
    store: &'a Spaces,
    ledger: &'a Path,
    marks: &'a Marks,
    report: &'a mut VerifyReport,
    state: State,
}

impl Walk<'_> {
    fn run(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), ReadError> {
        let store = self.store;
        store.walk(&store.db.snapshot(), Seq(1), |commit| {
            self.commit(commit)?;
            progress(commit.head.seq.0);
            Ok(())
        })?;
        Ok(())
    }

    fn end(self, walked: Result<Result<(), ReadError>, String>) {
        let next = self.report.head.seq.next();
        match walked {
            Ok(Ok(())) => {}
            Ok(Err(ReadError::Damaged { seq, last_good, what })) => {
                let what = format!("{what}; the last good seq is {last_good}, nothing after it could be checked");
                self.report.note(Some(seq), self.ledger, what);
            }
            Ok(Err(ReadError::Io(what))) | Err(what) => self.report.note(Some(next), self.ledger, what),
        }
        self.report.state = self.state.digest();
    }

    fn commit(&mut self, commit: &DecodedCommit) -> Result<(), ReadError> {
        for stored in &commit.events {
            let event = &stored.event;
            apply(&mut self.state, event).map_err(|error| ReadError::Damaged {
                seq: event.seq,
                last_good: self.report.head.seq,
                what: format!("it can't follow on the events before it: {error}"),
            })?;
            self.report.events += 1;
            if let Some((digest, path)) = self.marks.snapshots.get(&event.seq) {
                self.report.snapshots += 1;
                if *digest != self.state.digest() {
                    self.report.note(Some(event.seq), path, "the snapshot's digest is not that of the fold");
                }
            }
            self.bodies(event);
        }
        if let Some(tip) = self.marks.tip.filter(|tip| (commit.header.first..=commit.head.seq).contains(&tip.seq))
            && (tip.seq, tip.hash) != (commit.head.seq, commit.head.hash)
        {
            let file = self.marks.data.join(TIP_FILE);
            self.report.note(Some(tip.seq), &file, "another history stands at the high-water mark");
        }
        self.rows(commit.head.seq)?;
        self.report.commits += 1;
        self.report.head = commit.head;
        Ok(())
    }

    /// Rows are derived: what the fold says must be in the store.
    fn rows(&mut self, at: Seq) -> Result<(), ReadError> {
        let departures = self.state.sealed(self.report.head.seq);
        let Departures { tasks, after, batches, replays, keys, successes, callbacks: _ } = departures;
        self.state.forget_up_to(at);
        for task in tasks {
            self.report.finished += 1;
            let id = task.id();
            match self.store.finished(id) {
                Ok(Some(row)) if row == *task => {}
                Ok(Some(_)) => {
                    self.report.note(Some(at), self.ledger, format!("the row of {id} is not what the fold gives"))
                }
                Ok(None) => {
                    self.report.note(Some(at), self.ledger, format!("the row of finished task {id} is missing"))
                }
                Err(error) => self.report.note(Some(at), self.ledger, format!("the row of {id}: {error}")),
            }
        }
        for (task, seq) in after {
            if !self.store.after(task)?.contains(&seq) {
                self.report.note(Some(seq), self.ledger, format!("the later event of {task} is not listed"));
            }
        }
        for batch in batches {
            if self.store.batch(batch.id)?.as_ref() != Some(&batch) {
                self.report.note(Some(at), self.ledger, format!("the row of {} is missing or another", batch.id));
            }
        }
        for replay in replays {
            if self.store.replay(replay.id)?.as_ref() != Some(&replay) {
                self.report.note(Some(at), self.ledger, format!("the row of {} is missing or another", replay.id));
            }
        }
        for (namespace, key, binding) in keys {
            // A key may have been bound anew after its window.
            if self.store.key(&namespace, &key)?.is_none_or(|row| row.receipt < binding.receipt) {
                let what = format!("an idempotency key of {namespace} bound at seq {} is missing", binding.receipt);
                self.report.note(Some(binding.receipt), self.ledger, what);
            }
        }
        for (namespace, session, success) in successes {
            let row = self.store.newest_success(&namespace, &session)?;
            let is_there = row.success.is_some_and(|row| row.place >= success.place);
            // What was written before such rows were kept has none.
            if !is_there && row.kept == Kept::Always {
                let what = format!("the newest success of session {session} of {namespace} is missing or another");
                self.report.note(Some(at), self.ledger, what);
            }
        }
        Ok(())
    }

    /// The body that an event brings is there and is the one that it names, or its loss was accepted.
    fn bodies(&mut self, event: &Event) {
        let Some(named) = NamedBody::of(event) else { return };
        self.report.bodies += 1;
        if let Err(problem) = named.check(self.store) {
            match self.store.is_given_up(&named.key) {
                Ok(true) => self.report.given_up += 1,
                Ok(false) => self.report.note(Some(event.seq), self.ledger, format!("{named}: {problem}")),
                Err(error) => self.report.note(Some(event.seq), self.ledger, format!("{named}: {error}")),
            }
        }
    }
}

/// A body that an event says must be there.
pub(super) struct NamedBody {
    pub(super) key: BodyKey,
    digest: Digest,
}

impl NamedBody {
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about the kinds whose bodies must be there")]
    pub(super) fn of(event: &Event) -> Option<Self> {
        let (task, kind, attempt, body) = match &event.body {
            EventBody::TaskSubmitted(e) => {
                (e.submission.reach_id, BodyKind::Payload, 0, e.submission.payload.as_ref()?)
            }
            EventBody::TaskSucceeded(e) => (e.task, BodyKind::Result, e.attempt.0, e.result.as_ref()?),
            EventBody::AgentRegistered(e) => return Some(Self::named(e.declaration.body)),
            EventBody::AgentUpdated(e) => return Some(Self::named(e.declaration.body)),
            _ => return None,
        };
        Some(Self { key: BodyKey::Task { task, kind, attempt }, digest: body.digest })
    }

    const fn named(digest: Digest) -> Self {
        Self { key: BodyKey::Named(digest), digest }
    }

    /// What is wrong with it in `store`, if anything.
    pub(super) fn check(&self, store: &Spaces) -> Result<(), String> {
        let body = store.body(&self.key).map_err(|error| error.to_string())?;
        let body = body.ok_or_else(|| "is missing".to_owned())?;
        let digest = match self.key {
            BodyKey::Task { .. } => body.digest(),
            BodyKey::Named(_) => Digest::of(&[&body.bytes]),
        };
        if digest == self.digest { Ok(()) } else { Err("is not the one that its event names".to_owned()) }
    }
}

impl std::fmt::Display for NamedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            BodyKey::Task { task, kind, attempt } => write!(f, "a body of {task} ({kind:?}, attempt {attempt})"),
            BodyKey::Named(digest) => write!(f, "the named body {digest}"),
        }
    }
}
