//! The keyspaces, and the log read back from them.

use std::sync::Arc;

use ::fjall::{Database, Iter, Keyspace, Readable as _, Snapshot, UserValue};

use super::block::{DecodedCommit, decode_commit};
use super::chunk::{ChunkView, log_key, parse_log_key};
use super::codec::{CodecError, decode_event};
use super::{Head, ReadError, StoredEvent};
use crate::ledger::ids::Seq;

/// The open database. The fewer keyspaces the shorter the journals: each one keeps its own memtable alive.
#[derive(Clone)]
pub(super) struct Spaces {
    pub(super) db: Database,
    pub(super) log: Keyspace,
    pub(super) done: Keyspace,
    pub(super) by: Keyspace,
    pub(super) body: Keyspace,
    pub(super) keys: Keyspace,
    pub(super) rows: Keyspace,
}

impl Spaces {
    /// All of them, for chores.
    pub(super) const fn all(&self) -> [&Keyspace; 6] {
        [&self.log, &self.done, &self.by, &self.body, &self.keys, &self.rows]
    }

    /// Chunks from the one that begins at `from` on.
    pub(super) fn chunks(&self, snapshot: &Snapshot, from: Seq) -> Chunks {
        let iter = snapshot.range(&self.log, log_key(from, 0)..);
        Chunks { iter, pending: None, last_good: Seq(from.0.saturating_sub(1)) }
    }

    /// First seq of the chunk that holds `seq`: the last one at or before it.
    pub(super) fn chunk_start(&self, snapshot: &Snapshot, seq: Seq) -> Result<Option<Seq>, ReadError> {
        let Some(guard) = snapshot.range(&self.log, ..=log_key(seq, u16::MAX)).next_back() else { return Ok(None) };
        let key = guard.key().map_err(|error| unreadable(seq, &error))?;
        Ok(Some(parse_log_key(&key).map_err(|error| damaged(seq, &error))?.0))
    }

    /// First seq of the commit that holds `seq`: back from chunk to chunk until one has a header.
    pub(super) fn commit_start(&self, snapshot: &Snapshot, seq: Seq) -> Result<Option<Seq>, ReadError> {
        for guard in snapshot.range(&self.log, ..=log_key(seq, u16::MAX)).rev() {
            let (key, value) = guard.into_inner().map_err(|error| unreadable(seq, &error))?;
            let (first, part) = parse_log_key(&key).map_err(|error| damaged(seq, &error))?;
            // A header fits the first part, and a part of its own holds nothing that looks like a chunk.
            if part == 0 && value.first().is_some_and(|flags| flags & 1 != 0) {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Commits from the one that begins at `from` on, each checked in itself.
    pub(super) fn commits(&self, snapshot: &Snapshot, from: Seq) -> Commits {
        Commits { chunks: self.chunks(snapshot, from), due: from, broken: false }
    }

    /// The commit that holds `seq`.
    pub(super) fn commit_at(&self, snapshot: &Snapshot, seq: Seq) -> Result<Option<DecodedCommit>, ReadError> {
        match self.commit_start(snapshot, seq)? {
            Some(from) => self.commits(snapshot, from).next().transpose(),
            None => Ok(None),
        }
    }

    /// Walks the log from the commit that holds `from` to its end, checks the chain, and gives each commit to `each`.
    pub(super) fn walk(
        &self,
        snapshot: &Snapshot,
        from: Seq,
        mut each: impl FnMut(&DecodedCommit) -> Result<(), ReadError>,
    ) -> Result<Head, ReadError> {
        let Some(start) = self.commit_start(snapshot, from)? else {
            return match snapshot.first_key_value(&self.log) {
                None => Ok(Head::default()),
                Some(_) => Err(damaged(from, &"the log does not begin with a commit")),
            };
        };
        if start > from {
            return Err(damaged(from, &"the log begins later"));
        }
        // The first commit of all follows nothing; of a later one only what comes after it can be checked.
        let mut before = (start == Seq(1)).then(Head::default);
        for commit in self.commits(snapshot, start) {
            let commit = commit?;
            if let Some(before) = &before {
                commit.follows(before).map_err(|error| damaged(commit.header.first, &error))?;
            }
            each(&commit)?;
            before = Some(commit.head);
        }
        before.ok_or_else(|| damaged(start, &"a commit is missing"))
    }

    /// At most `limit` events after `after`, up to `head` at least if the limit allows.
    pub(super) fn events(&self, head: &Head, after: Seq, limit: usize) -> Result<Vec<StoredEvent>, ReadError> {
        let mut out = Vec::new();
        if after >= head.seq || limit == 0 {
            return Ok(out);
        }
        let snapshot = self.db.snapshot();
        let mut due = after.next();
        let Some(start) = self.chunk_start(&snapshot, due)? else { return Err(damaged(due, &"the log begins later")) };
        for chunk in self.chunks(&snapshot, start) {
            let (first, bytes) = chunk?;
            let view = ChunkView::parse(&bytes).map_err(|error| damaged(first, &error))?;
            let mut frames = Vec::with_capacity(usize::from(view.count));
            view.frames(|frame| frames.push(frame)).map_err(|error| damaged(first, &error))?;
            for (seq, frame) in (first.0..).map(Seq).zip(frames) {
                if seq < due {
                    continue;
                }
                out.push(decode_at(seq, due, frame)?);
                due = due.next();
                if out.len() == limit {
                    return Ok(out);
                }
            }
        }
        if due <= head.seq { Err(damaged(due, &"the event is missing")) } else { Ok(out) }
    }
}

fn decode_at(seq: Seq, due: Seq, frame: &[u8]) -> Result<StoredEvent, ReadError> {
    let event = decode_event(frame).map_err(|error| damaged(due, &error))?;
    if seq != due || event.seq != due {
        return Err(damaged(due, &CodecError::Sequence { expected: due, found: event.seq }));
    }
    Ok(StoredEvent { event, frame: Arc::from(frame) })
}

/// Chunks in order, each with its parts joined.
pub(super) struct Chunks {
    iter: Iter,
    pending: Option<(Seq, UserValue)>,
    last_good: Seq,
}

impl Chunks {
    fn step(&mut self) -> Result<Option<(Seq, Vec<u8>)>, ReadError> {
        let mut chunk = self.pending.take().map(|(first, value)| (first, value.to_vec()));
        let mut parts = u16::from(chunk.is_some());
        for guard in self.iter.by_ref() {
            let at = self.last_good.next();
            let (key, value) = guard.into_inner().map_err(|error| unreadable(at, &error))?;
            let (first, part) = parse_log_key(&key).map_err(|error| damaged(at, &error))?;
            match &mut chunk {
                Some((open, bytes)) if *open == first => {
                    if part != parts {
                        return Err(damaged(first, &"a part of a long event is missing"));
                    }
                    bytes.extend_from_slice(&value);
                    parts += 1;
                }
                Some(_) if part == 0 => {
                    self.pending = Some((first, value));
                    break;
                }
                None if part == 0 => {
                    chunk = Some((first, value.to_vec()));
                    parts = 1;
                }
                Some(_) | None => return Err(damaged(first, &"the first part of a long event is missing")),
            }
        }
        if let Some((first, _)) = &chunk {
            self.last_good = *first;
        }
        Ok(chunk)
    }
}

impl Iterator for Chunks {
    type Item = Result<(Seq, Vec<u8>), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

/// Commits in order, each checked in itself and dense after the one before; ends after the first bad one.
pub(super) struct Commits {
    chunks: Chunks,
    due: Seq,
    broken: bool,
}

impl Commits {
    fn step(&mut self) -> Result<Option<DecodedCommit>, ReadError> {
        let mut bytes = Vec::new();
        let mut due = self.due;
        for chunk in self.chunks.by_ref() {
            let (first, chunk) = chunk?;
            let view = ChunkView::parse(&chunk).map_err(|error| damaged(due, &error))?;
            if first != due || view.header.is_some() != bytes.is_empty() {
                return Err(damaged(due, &"a chunk of the log is missing"));
            }
            bytes.extend_from_slice(view.header.unwrap_or_default());
            bytes.extend_from_slice(view.frames);
            due = Seq(due.0.saturating_add(u64::from(view.count)));
            if let Some(trailer) = view.trailer {
                bytes.extend_from_slice(trailer);
                let commit = decode_commit(&bytes).map_err(|error| damaged(self.due, &error))?;
                if commit.header.first != self.due || commit.head.seq.next() != due {
                    return Err(damaged(self.due, &"a commit lies at another commit's place"));
                }
                self.due = due;
                return Ok(Some(commit));
            }
        }
        if bytes.is_empty() { Ok(None) } else { Err(damaged(due, &"the last commit has no end")) }
    }
}

impl Iterator for Commits {
    type Item = Result<DecodedCommit, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.broken {
            return None;
        }
        let step = self.step().transpose();
        self.broken = matches!(step, Some(Err(_)));
        step
    }
}

/// The bytes are there and are not what was written.
pub(super) fn damaged(seq: Seq, what: &dyn std::fmt::Display) -> ReadError {
    ReadError::Damaged { seq, last_good: Seq(seq.0.saturating_sub(1)), what: what.to_string() }
}

/// The engine could not read; its own checksums count as damage, the disk's failure does not.
pub(super) fn unreadable(seq: Seq, error: &::fjall::Error) -> ReadError {
    if let ::fjall::Error::Io(io) = error { ReadError::Io(io.to_string()) } else { damaged(seq, error) }
}
