//! A commit cut into values of the log.
//!
//! Why cut at all: one key an event costs more than the event itself, and the engine refuses to open after a power cut
//! inside a batch of large values (seen from 16 KiB on, never below 3 KB). So consecutive events share a value of at
//! most 2 KiB, and a longer event is a chunk alone, in parts.
//!
//! ```text
//! key:   seq of the chunk's first event u64 │ part u16
//! chunk: flags u8 │ number of events u16 │ commit header, if the first │ event frame … │ commit hash, if the last
//! ```

use super::Commit;
use super::block::{HEADER_LEN, TRAILER_LEN};
use super::codec::{CodecError, MAX_EVENT_FRAME, array, be_u64, split_event};
use crate::ledger::ids::Seq;

/// No value in the store is longer.
pub const MAX_VALUE: usize = 2_048;
/// Bytes of a log key.
pub const LOG_KEY_LEN: usize = 10;

const PREFIX_LEN: usize = 3;
const HAS_HEADER: u8 = 1;
const HAS_TRAILER: u8 = 2;

const _: () = assert!(PREFIX_LEN + HEADER_LEN + TRAILER_LEN < MAX_VALUE);
const _: () =
    assert!((MAX_EVENT_FRAME + PREFIX_LEN + HEADER_LEN + TRAILER_LEN).div_ceil(MAX_VALUE) < u16::MAX as usize);

/// The key of a part of the chunk that begins with `first`.
#[must_use]
pub fn log_key(first: Seq, part: u16) -> [u8; LOG_KEY_LEN] {
    let mut key = [0; LOG_KEY_LEN];
    let (seq, rest) = key.split_at_mut(8);
    seq.copy_from_slice(&first.0.to_be_bytes());
    rest.copy_from_slice(&part.to_be_bytes());
    key
}

/// Reads a log key.
///
/// # Errors
/// [`CodecError`] when it has another length.
pub fn parse_log_key(key: &[u8]) -> Result<(Seq, u16), CodecError> {
    if key.len() != LOG_KEY_LEN {
        return Err(CodecError::Truncated);
    }
    Ok((Seq(be_u64(key, 0)?), u16::from_be_bytes(array(key, 8)?)))
}

/// Cuts a commit and gives each value with its key to `put`.
///
/// # Errors
/// [`CodecError::Truncated`] when the commit's own lengths do not add up to its frame.
pub fn cut(commit: &Commit, mut put: impl FnMut([u8; LOG_KEY_LEN], &[u8])) -> Result<(), CodecError> {
    let (header, mut rest) = commit
        .frame
        .split_at_checked(usize::try_from(commit.header_len).unwrap_or(usize::MAX))
        .ok_or(CodecError::Truncated)?;
    let mut chunk = Chunk::default();
    chunk.bytes.reserve(MAX_VALUE);
    chunk.begin(HAS_HEADER);
    chunk.bytes.extend_from_slice(header);
    let mut events = commit.events.iter().peekable();
    while let Some((seq, len)) = events.next() {
        let (frame, after) =
            rest.split_at_checked(usize::try_from(*len).unwrap_or(usize::MAX)).ok_or(CodecError::Truncated)?;
        rest = after;
        let tail = if events.peek().is_none() { TRAILER_LEN } else { 0 };
        if chunk.count > 0 && chunk.bytes.len() + frame.len() + tail > MAX_VALUE {
            chunk.give(&mut put);
            chunk.begin(0);
        }
        chunk.push(*seq, frame);
    }
    if rest.len() != TRAILER_LEN || chunk.count == 0 {
        return Err(CodecError::Truncated);
    }
    chunk.flags |= HAS_TRAILER;
    chunk.bytes.extend_from_slice(rest);
    chunk.give(&mut put);
    Ok(())
}

#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    first: Seq,
    count: u16,
    flags: u8,
}

impl Chunk {
    fn begin(&mut self, flags: u8) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; PREFIX_LEN]);
        self.count = 0;
        self.flags = flags;
    }

    fn push(&mut self, seq: Seq, frame: &[u8]) {
        if self.count == 0 {
            self.first = seq;
        }
        self.count += 1;
        self.bytes.extend_from_slice(frame);
    }

    fn give(&mut self, put: &mut impl FnMut([u8; LOG_KEY_LEN], &[u8])) {
        let [high, low] = self.count.to_be_bytes();
        if let Some(prefix) = self.bytes.get_mut(..PREFIX_LEN) {
            prefix.copy_from_slice(&[self.flags, high, low]);
        }
        for (part, value) in (0..).zip(self.bytes.chunks(MAX_VALUE)) {
            put(log_key(self.first, part), value);
        }
    }
}

/// A chunk as it was read, its parts joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkView<'a> {
    /// Events in it.
    pub count: u16,
    /// The commit's header, if it begins here.
    pub header: Option<&'a [u8]>,
    /// The event frames.
    pub frames: &'a [u8],
    /// The commit's hash, if it ends here.
    pub trailer: Option<&'a [u8]>,
}

impl<'a> ChunkView<'a> {
    /// How many events a chunk says it holds: its first bytes are enough.
    #[must_use]
    pub fn count_of(chunk: &[u8]) -> Option<u16> {
        array(chunk, 1).ok().map(u16::from_be_bytes)
    }

    /// Reads a chunk's outline.
    ///
    /// # Errors
    /// [`CodecError`] when its own lengths do not add up.
    pub fn parse(chunk: &'a [u8]) -> Result<Self, CodecError> {
        let (prefix, mut rest) = chunk.split_at_checked(PREFIX_LEN).ok_or(CodecError::Truncated)?;
        let &[flags, high, low] = prefix else { return Err(CodecError::Truncated) };
        if flags & !(HAS_HEADER | HAS_TRAILER) != 0 {
            return Err(CodecError::Magic("chunk"));
        }
        let mut header = None;
        if flags & HAS_HEADER != 0 {
            let (bytes, after) = rest.split_at_checked(HEADER_LEN).ok_or(CodecError::Truncated)?;
            header = Some(bytes);
            rest = after;
        }
        let mut trailer = None;
        if flags & HAS_TRAILER != 0 {
            let frames_len = rest.len().checked_sub(TRAILER_LEN).ok_or(CodecError::Truncated)?;
            let (frames, bytes) = rest.split_at(frames_len);
            trailer = Some(bytes);
            rest = frames;
        }
        Ok(Self { count: u16::from_be_bytes([high, low]), header, frames: rest, trailer })
    }

    /// Calls `each` with every frame; it must find exactly the number that the chunk says.
    ///
    /// # Errors
    /// [`CodecError`] when a frame does not fit.
    pub fn frames(&self, mut each: impl FnMut(&'a [u8])) -> Result<(), CodecError> {
        let mut rest = self.frames;
        for _ in 0..self.count {
            let (frame, after) = split_event(rest)?;
            each(frame);
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(CodecError::Trailing(rest.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::store::contract::{chain, event, token};
    use crate::ledger::store::{Head, codec::encode_commit};

    #[test]
    fn a_commit_cut_into_values_of_2_kib_joins_to_the_same_bytes() {
        let long = |seq: u64, len: usize| {
            let mut token = token();
            token.name = "z".repeat(len).into();
            event(seq, crate::ledger::machine::event::TokenCreated { token })
        };
        let lengths = [1, 1_900, 50_000, 2_000, 1, 1, 40, 2_040, 3, 1_800];
        let events: Vec<_> = (1..).zip(lengths).map(|(seq, len)| long(seq, len)).collect();
        let mut commits: Vec<_> =
            (1..=events.len()).map(|n| encode_commit(&Head::default(), &events[..n]).unwrap().0).collect();
        commits.extend(chain(&[1, 512]));
        for commit in commits {
            let mut joined = Vec::new();
            let mut values: Vec<(Seq, u16, Vec<u8>)> = Vec::new();
            cut(&commit, |key, value| {
                let (first, part) = parse_log_key(&key).unwrap();
                values.push((first, part, value.to_vec()));
            })
            .unwrap();
            assert!(values.iter().all(|(_, _, value)| !value.is_empty() && value.len() <= MAX_VALUE));
            let mut seen = 0;
            for chunk in values.chunk_by(|a, b| a.0 == b.0) {
                assert!(chunk.iter().enumerate().all(|(at, value)| usize::from(value.1) == at));
                let bytes: Vec<u8> = chunk.iter().flat_map(|value| value.2.clone()).collect();
                let view = ChunkView::parse(&bytes).unwrap();
                assert!(view.count == 1 || chunk.len() == 1, "only an event alone is cut into parts");
                assert_eq!(chunk[0].0.0, commit.expected.seq.0 + 1 + seen);
                seen += u64::from(view.count);
                joined.extend_from_slice(view.header.unwrap_or_default());
                view.frames(|frame| joined.extend_from_slice(frame)).unwrap();
                joined.extend_from_slice(view.trailer.unwrap_or_default());
            }
            assert_eq!(joined, commit.frame);
        }
    }
}
