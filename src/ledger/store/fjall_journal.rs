//! The engine's journals, read from outside it and before it opens them.
//!
//! Why: its own recovery cuts a journal at the first thing that it does not understand, in place and without a word, or
//! refuses the whole database without saying where. Here nothing is changed: sound batches are given in order, sound
//! ones behind damage too, and what is not sound is named by its place.
//!
//! ```text
//! batch: 1 │ items u32 │ seqno u64 │ item … │ 3 │ xxh3-64 of the items │ "FJL" 3        numbers little-endian
//! item:  2 │ kind u8 │ compression u8 │ keyspace u64 │ key u16 │ value u32 │ stored u32 │ key │ value
//!     or 4 │ keyspace u64                    then zeros: the engine sets room aside
//! ```

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::chunk::{ChunkView, parse_log_key};
use super::codec::{CodecError, array};
use super::snapfile;
use crate::ledger::ids::Seq;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8; 4] = b"FJL\x03";
/// A start entry: tag, items, seqno.
const START_LEN: usize = 13;
/// Read so much at a time: most of a journal is room set aside.
const BLOCK: usize = 1024 * 1024;
/// The engine's number of the log's keyspace: the first that is made.
pub(super) const LOG_SPACE: u64 = 1;

/// What an item does to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// Sets it.
    Value,
    /// Removes it.
    Removal,
}

/// One change of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub(super) space: u64,
    pub(super) seqno: u64,
    pub(super) kind: ItemKind,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Bytes that are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flaw {
    /// Where they begin.
    pub(super) offset: u64,
    /// What is wrong with them.
    pub(super) what: &'static str,
    /// What comes after them.
    pub(super) then: Then,
}

/// What comes after a flaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// A sound batch: so this is damage.
    Sound,
    /// Nothing sound: damage, or a batch that a power cut left half written before anybody was answered.
    Nothing,
}

/// A journal in memory, without the zeros at its end.
pub(super) struct Journal {
    bytes: Vec<u8>,
}

/// Everything in a journal, in order.
pub(super) enum Found<'a> {
    /// A sound batch.
    Batch(Vec<Item<'a>>),
    /// Something else.
    Flaw(Flaw),
}

/// The journals of an engine's folder, oldest first; the engine writes to the last one.
pub(super) fn journals(ledger: &Path) -> io::Result<Vec<PathBuf>> {
    let found = snapfile::numbered(ledger, "jnl")?;
    // A folder in a journal's place has nothing to be read; whoever must know asks for what is misplaced.
    Ok(found.into_iter().map(|(_, path)| path).filter(|path| !path.is_dir()).collect())
}

impl Journal {
    /// Reads a journal.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let zeros = vec![0; BLOCK];
        let (mut block, mut bytes, mut blank) = (vec![0; BLOCK], Vec::new(), 0_usize);
        loop {
            let len = file.read(&mut block)?;
            let Some(read) = block.get(..len).filter(|read| !read.is_empty()) else { break };
            if zeros.starts_with(read) {
                blank += len;
                continue;
            }
            bytes.resize(bytes.len() + blank, 0);
            blank = 0;
            bytes.extend_from_slice(read);
        }
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end);
        Ok(Self { bytes })
    }

    /// Gives everything in it to `each`, in order.
    pub(super) fn walk<'a, E>(&'a self, mut each: impl FnMut(Found<'a>) -> Result<(), E>) -> Result<(), E> {
        let mut at = 0;
        while at < self.bytes.len() {
            match self.batch(at) {
                Ok((items, end)) => {
                    each(Found::Batch(items))?;
                    at = end;
                }
                Err(what) => {
                    let next = self.next_sound(at + 1);
                    let then = if next.is_some() { Then::Sound } else { Then::Nothing };
                    each(Found::Flaw(Flaw { offset: at as u64, what, then }))?;
                    at = next.unwrap_or(self.bytes.len());
                }
            }
        }
        Ok(())
    }

    /// The batch at `at`, and where it ends.
    fn batch(&self, at: usize) -> Result<(Vec<Item<'_>>, usize), &'static str> {
        let mut reader = Reader { bytes: &self.bytes, at };
        if reader.u8()? != START {
            return Err("no batch begins here");
        }
        let (count, seqno) = (reader.u32()?, reader.u64()?);
        let begin = reader.at;
        let mut items = Vec::new();
        for _ in 0..count {
            match reader.u8()? {
                ITEM => items.push(reader.item(seqno)?),
                // Nothing of ours clears a keyspace.
                CLEAR => drop(reader.u64()?),
                _ => return Err("an item of the batch is not readable"),
            }
        }
        let covered = self.bytes.get(begin..reader.at).unwrap_or_default();
        if reader.u8()? != END {
            return Err("the batch has no end where it should");
        }
        let sum = reader.u64()?;
        if reader.take(TRAILER.len())? != TRAILER {
            return Err("the batch's end is not readable");
        }
        if xxh3_64(covered) != sum {
            return Err("the batch's checksum does not fit");
        }
        Ok((items, reader.at))
    }

    /// Where the next sound batch begins, at or after `from`.
    fn next_sound(&self, from: usize) -> Option<usize> {
        let rest = self.bytes.get(from..)?;
        let looks = |window: &[u8]| {
            window.first() == Some(&START) && window.last().is_some_and(|tag| *tag == ITEM || *tag == CLEAR)
        };
        let places = rest.windows(START_LEN + 1).enumerate().filter(|(_, window)| looks(window));
        places.map(|(offset, _)| from + offset).find(|at| self.batch(*at).is_ok())
    }
}

/// The last seq that a batch's log items hold, if it holds any.
pub(super) fn last_seq(items: &[Item<'_>]) -> Option<Seq> {
    let chunks = items.iter().filter(|item| item.space == LOG_SPACE && item.kind == ItemKind::Value);
    chunks.filter_map(|item| last_of(item.key, item.value)).max()
}

/// The last seq that one item of the log holds.
pub(super) fn last_of(key: &[u8], value: &[u8]) -> Option<Seq> {
    let (first, part) = parse_log_key(key).ok()?;
    // A long event lies in parts; its first one tells.
    let count = if part == 0 { ChunkView::count_of(value)? } else { 1 };
    Some(Seq(first.0.saturating_add(u64::from(count)).saturating_sub(1)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

const CUT: &str = "the batch ends early";

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let end = self.at.checked_add(len).ok_or(CUT)?;
        let taken = self.bytes.get(self.at..end).ok_or(CUT)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let bytes = self.take(N)?;
        array(bytes, 0).map_err(|_: CodecError| CUT)
    }

    fn u8(&mut self) -> Result<u8, &'static str> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn item(&mut self, seqno: u64) -> Result<Item<'a>, &'static str> {
        let kind = match self.u8()? {
            0 => ItemKind::Value,
            1 | 2 => ItemKind::Removal,
            _ => return Err("an item is of no known kind"),
        };
        let compression = self.u8()?;
        let space = self.u64()?;
        let key_len = u16::from_le_bytes(self.array()?);
        let (len, stored) = (self.u32()?, self.u32()?);
        // The engine compresses values from 4 KiB on, and none of ours is above 2 KiB.
        if compression != 0 || len != stored {
            return Err("an item's lengths contradict each other");
        }
        let key = self.take(usize::from(key_len))?;
        let value = self.take(usize::try_from(stored).map_err(|_| CUT)?)?;
        Ok(Item { space, seqno, kind, key, value })
    }
}
