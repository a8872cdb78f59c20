//! Bytes of events and rows: the only file that names the body encoding.
//!
//! Why an own frame around it: the encoding behind (bincode) knows no versions and swaps enum variants in silence, so
//! each event body is encoded by itself behind an explicit kind code and version, with a length and a checksum. Then
//! the order of the enum is free, an unknown kind is refused by name, and another encoding is a new frame version, not
//! a migration. docs/ledger-format.md has the layout byte by byte; `tests/golden/events` holds the bytes of each kind.
//!
//! ```text
//! event frame: magic u8 │ frame version u8 │ kind u16 │ kind version u8 │ length u32 │ crc32 u32 │ envelope │ body
//! row:         row version u8 │ crc32 u32 │ value
//! ```
//! Numbers of the frame are big-endian. An older version of a kind is read by its own decoder and lifted to today's
//! shape right after [`decode_event`] has read the kind version (`lifted.rs`).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::lifted;
use crate::ledger::ids::{BatchId, Namespace, Seq, SessionId, TraceContext};
use crate::ledger::machine::event::{self, Actor, Event, EventBody, EventKind, for_each_event_body};
use crate::ledger::time::Timestamp;

pub use super::block::{
    BlockHeader, CommitHasher, DecodedCommit, HEADER_LEN, MAX_COMMIT_BYTES, MAX_COMMIT_EVENTS, TARGET_COMMIT_BYTES,
    TARGET_COMMIT_EVENTS, TRAILER_LEN, decode_commit, encode_commit,
};

/// First byte of every event frame.
pub const EVENT_MAGIC: u8 = 0xE7;
/// Version of the event frame's own layout.
pub const EVENT_FRAME_VERSION: u8 = 1;
/// Version of a kind's body as it is written today.
#[must_use]
pub const fn kind_version(kind: EventKind) -> u8 {
    use EventKind::{ReplayPlanned, ReplayResumed, TaskDispatched, TaskRedriven, TaskSubmitted};
    if matches!(kind, TaskSubmitted | TaskDispatched | TaskRedriven | ReplayPlanned | ReplayResumed) { 2 } else { 1 }
}

/// Bytes of an event frame before the envelope.
pub const EVENT_HEADER_LEN: usize = 13;
/// The longest event frame (semantics 26): one broker message at the smallest usual bound of 64 KiB still holds it.
pub const MAX_EVENT_FRAME: usize = 60_000;
/// Version of the rows.
pub const ROW_VERSION: u8 = 1;
/// Bytes of a row before its value.
pub const ROW_HEADER_LEN: usize = 5;
/// The longest row that is read: a task of 30 days with every event that the bounds allow stays below a megabyte.
pub const MAX_ROW: usize = 16 * 1024 * 1024;

const LENGTH_AT: usize = 5;
const CRC_AT: usize = 9;

const _: () = assert!(EVENT_HEADER_LEN == CRC_AT + 4 && CRC_AT == LENGTH_AT + 4);

/// Why bytes could not be made or read. A fault, never a caller's doing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The value could not be written.
    #[error("could not encode: {0}")]
    Encode(String),
    /// The bytes are not the value that they should be.
    #[error("could not decode: {0}")]
    Decode(String),
    /// Longer than the format allows.
    #[error("{what} has {len} bytes or items, more than {max}")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The bytes end before their own length says.
    #[error("the bytes end early")]
    Truncated,
    /// Bytes are left over.
    #[error("{0} bytes are left over")]
    Trailing(usize),
    /// Something else begins here.
    #[error("no {0} begins here")]
    Magic(&'static str),
    /// Written by a newer program, or damaged.
    #[error("{what} has version {version}; this program reads up to {newest}")]
    Version {
        /// Of what.
        what: &'static str,
        /// Which.
        version: u8,
        /// The newest that is read.
        newest: u8,
    },
    /// No such event kind.
    #[error("no event kind has the code {0}")]
    Kind(u16),
    /// A bit is not what was written.
    #[error("the checksum of {0} does not match")]
    Checksum(&'static str),
    /// What was written can't be read back: a bug, found before it was acknowledged.
    #[error("event {0} does not read back as it was written")]
    RoundTrip(Seq),
    /// An event is not at its place.
    #[error("expected seq {expected}, found {found}")]
    Sequence {
        /// The place.
        expected: Seq,
        /// What stands there.
        found: Seq,
    },
    /// A commit goes on from another one than the one before it.
    #[error("the commit does not follow the one before it")]
    Chain,
    /// The commit's hash is not the one over its content.
    #[error("the commit hash does not match its events")]
    Hash,
    /// A commit without events.
    #[error("a commit has at least one event")]
    Empty,
}

/// The envelope as it is written: the event without its body.
#[derive(Serialize)]
struct EnvelopeOut<'a> {
    seq: Seq,
    at: Timestamp,
    namespace: &'a Option<Namespace>,
    actor: &'a Actor,
    session: &'a Option<SessionId>,
    batch: &'a Option<BatchId>,
    trace: &'a Option<TraceContext>,
}

/// The envelope as it is read: same fields, same order.
#[derive(Deserialize)]
struct EnvelopeIn {
    seq: Seq,
    at: Timestamp,
    namespace: Option<Namespace>,
    actor: Actor,
    session: Option<SessionId>,
    batch: Option<BatchId>,
    trace: Option<TraceContext>,
}

const fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MAX_ROW>()
}

/// State images outgrow rows; the digest beside a snapshot guards its lengths.
const fn unbounded_config() -> impl bincode::config::Config {
    bincode::config::standard()
}

/// Ids and digests are encoded byte by byte: a byte must cost a push, not a copy of a slice.
struct Sink<'a>(&'a mut Vec<u8>);

impl bincode::enc::write::Writer for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        match bytes {
            [byte] => self.0.push(*byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }
}

fn write<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    bincode::serde::encode_into_writer(value, Sink(out), config())
        .map_err(|error| CodecError::Encode(error.to_string()))
}

pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), CodecError> {
    let (value, used) =
        bincode::serde::decode_from_slice(bytes, config()).map_err(|error| CodecError::Decode(error.to_string()))?;
    Ok((value, bytes.get(used..).unwrap_or_default()))
}

macro_rules! body_codec {
    ($($variant:ident)*) => {
        fn write_body(body: &EventBody, out: &mut Vec<u8>) -> Result<(), CodecError> {
            match body { $( EventBody::$variant(inner) => write(inner, out), )* }
        }

        fn read_body(kind: EventKind, bytes: &[u8]) -> Result<(EventBody, &[u8]), CodecError> {
            match kind {
                $( EventKind::$variant => {
                    read::<event::$variant>(bytes).map(|(body, rest)| (EventBody::$variant(body), rest))
                } )*
            }
        }
    };
}
for_each_event_body!(body_codec);

/// Encodes one event as a frame.
///
/// # Errors
/// [`CodecError::TooLong`] above [`MAX_EVENT_FRAME`]; in debug builds also [`CodecError::RoundTrip`].
pub fn encode_event(event: &Event) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::with_capacity(192);
    encode_event_into(event, &mut out)?;
    Ok(out)
}

/// Appends one event's frame to `out` and gives its length. After an error `out` is as it was before.
///
/// # Errors
/// As [`encode_event`].
pub fn encode_event_into(event: &Event, out: &mut Vec<u8>) -> Result<usize, CodecError> {
    let start = out.len();
    let written = write_frame(event, out, start);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_frame(event: &Event, out: &mut Vec<u8>, start: usize) -> Result<usize, CodecError> {
    let kind = event.body.kind();
    out.extend_from_slice(&[EVENT_MAGIC, EVENT_FRAME_VERSION]);
    out.extend_from_slice(&kind.code().to_be_bytes());
    out.push(kind_version(kind));
    out.extend_from_slice(&[0; 8]);
    let envelope = EnvelopeOut {
        seq: event.seq,
        at: event.at,
        namespace: &event.namespace,
        actor: &event.actor,
        session: &event.session,
        batch: &event.batch,
        trace: &event.trace,
    };
    write(&envelope, out)?;
    write_body(&event.body, out)?;
    let len = out.len() - start;
    if len > MAX_EVENT_FRAME {
        return Err(CodecError::TooLong { what: "an event frame", len, max: MAX_EVENT_FRAME });
    }
    let Some(frame) = out.get_mut(start..) else { return Err(CodecError::Truncated) };
    let (header, payload) = frame.split_at_mut(EVENT_HEADER_LEN);
    let payload_len = u32::try_from(payload.len()).map_err(|_| CodecError::Truncated)?;
    let (fixed, crc_slot) = header.split_at_mut(CRC_AT);
    if let Some(slot) = fixed.get_mut(LENGTH_AT..) {
        slot.copy_from_slice(&payload_len.to_be_bytes());
    }
    crc_slot.copy_from_slice(&crc(&[fixed, payload]).to_be_bytes());
    if cfg!(debug_assertions) && decode_event(frame).as_ref() != Ok(event) {
        return Err(CodecError::RoundTrip(event.seq));
    }
    Ok(len)
}

/// Length of the event frame that begins at `bytes`, from its header alone.
///
/// # Errors
/// [`CodecError::Truncated`], [`CodecError::Magic`], [`CodecError::TooLong`].
pub fn frame_len(bytes: &[u8]) -> Result<usize, CodecError> {
    if bytes.first().is_some_and(|magic| *magic != EVENT_MAGIC) {
        return Err(CodecError::Magic("event frame"));
    }
    let len = usize::try_from(be_u32(bytes, LENGTH_AT)?).unwrap_or(usize::MAX).saturating_add(EVENT_HEADER_LEN);
    if len > MAX_EVENT_FRAME {
        return Err(CodecError::TooLong { what: "an event frame", len, max: MAX_EVENT_FRAME });
    }
    Ok(len)
}

/// The frame at the start of `bytes` and what follows it, undecoded.
///
/// # Errors
/// As [`frame_len`].
pub fn split_event(bytes: &[u8]) -> Result<(&[u8], &[u8]), CodecError> {
    bytes.split_at_checked(frame_len(bytes)?).ok_or(CodecError::Truncated)
}

/// Decodes exactly one frame, checksum first.
///
/// # Errors
/// [`CodecError`] naming what is wrong.
pub fn decode_event(frame: &[u8]) -> Result<Event, CodecError> {
    let (frame, rest) = split_event(frame)?;
    if !rest.is_empty() {
        return Err(CodecError::Trailing(rest.len()));
    }
    let (header, payload) = frame.split_at_checked(EVENT_HEADER_LEN).ok_or(CodecError::Truncated)?;
    let (fixed, _) = header.split_at_checked(CRC_AT).ok_or(CodecError::Truncated)?;
    let &[_, frame_version, code_high, code_low, written_as, ..] = header else { return Err(CodecError::Truncated) };
    // The version comes before the checksum: a newer layout may keep its checksum elsewhere.
    check_version("the event frame", frame_version, EVENT_FRAME_VERSION)?;
    if be_u32(header, CRC_AT)? != crc(&[fixed, payload]) {
        return Err(CodecError::Checksum("an event frame"));
    }
    let code = u16::from_be_bytes([code_high, code_low]);
    let kind = EventKind::from_code(code).ok_or(CodecError::Kind(code))?;
    check_version(kind.name(), written_as, kind_version(kind))?;
    let (envelope, rest) = read::<EnvelopeIn>(payload)?;
    let (body, rest) =
        if written_as == kind_version(kind) { read_body(kind, rest)? } else { lifted::read(kind, rest)? };
    if !rest.is_empty() {
        return Err(CodecError::Trailing(rest.len()));
    }
    let EnvelopeIn { seq, at, namespace, actor, session, batch, trace } = envelope;
    Ok(Event { seq, at, namespace, actor, session, batch, trace, body })
}

/// Encodes a derived row (a finished task, a key, a batch, a callback).
///
/// # Errors
/// [`CodecError::TooLong`] above [`MAX_ROW`].
pub fn encode_row<T: Serialize + ?Sized>(row: &T) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(&[ROW_VERSION, 0, 0, 0, 0]);
    write(row, &mut out)?;
    if out.len() > MAX_ROW {
        return Err(CodecError::TooLong { what: "a row", len: out.len(), max: MAX_ROW });
    }
    let (header, value) = out.split_at_mut(ROW_HEADER_LEN);
    let sum = crc(&[&[ROW_VERSION], value]);
    header.split_at_mut(1).1.copy_from_slice(&sum.to_be_bytes());
    Ok(out)
}

/// Decodes a row, checksum first.
///
/// # Errors
/// [`CodecError`] naming what is wrong.
pub fn decode_row<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (header, value) = bytes.split_at_checked(ROW_HEADER_LEN).ok_or(CodecError::Truncated)?;
    check_version("a row", header.first().copied().unwrap_or(0), ROW_VERSION)?;
    if be_u32(header, 1)? != crc(&[&[ROW_VERSION], value]) {
        return Err(CodecError::Checksum("a row"));
    }
    let (row, rest) = read(value)?;
    if rest.is_empty() { Ok(row) } else { Err(CodecError::Trailing(rest.len())) }
}

/// Encodes a value of any size without a frame: for the state image, which has its own header and digest.
///
/// # Errors
/// [`CodecError::Encode`].
pub fn encode_bare<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    bincode::serde::encode_into_writer(value, Sink(out), unbounded_config())
        .map_err(|error| CodecError::Encode(error.to_string()))
}

/// Decodes what [`encode_bare`] wrote, all of it. Check its digest first: lengths inside are believed.
///
/// # Errors
/// [`CodecError::Decode`], [`CodecError::Trailing`].
pub fn decode_bare<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (value, used) = bincode::serde::decode_from_slice(bytes, unbounded_config())
        .map_err(|error| CodecError::Decode(error.to_string()))?;
    match bytes.len().saturating_sub(used) {
        0 => Ok(value),
        left => Err(CodecError::Trailing(left)),
    }
}

pub(super) fn check_version(what: &'static str, version: u8, newest: u8) -> Result<(), CodecError> {
    if version == 0 || version > newest { Err(CodecError::Version { what, version, newest }) } else { Ok(()) }
}

pub(super) fn crc(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// `N` bytes at `at`.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], CodecError> {
    let slice = bytes.get(at..).and_then(|rest| rest.get(..N)).ok_or(CodecError::Truncated)?;
    slice.try_into().map_err(|_| CodecError::Truncated)
}

pub(super) fn be_u32(bytes: &[u8], at: usize) -> Result<u32, CodecError> {
    array(bytes, at).map(u32::from_be_bytes)
}

pub(super) fn be_u64(bytes: &[u8], at: usize) -> Result<u64, CodecError> {
    array(bytes, at).map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::ReachId;
    use crate::ledger::machine::event::{TaskExpired, TokenCreated};
    use crate::ledger::store::contract::event;

    #[test]
    fn a_frame_with_any_bit_flipped_is_refused() {
        let frame = encode_event(&event(7, TaskExpired { task: ReachId([9; 16]) })).unwrap();
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_event(&bad).is_err(), "bit {bit} can be flipped unseen");
        }
    }

    #[test]
    fn a_frame_cut_anywhere_or_with_a_byte_too_many_is_refused() {
        let mut frame = encode_event(&event(7, TaskExpired { task: ReachId([9; 16]) })).unwrap();
        for len in 0..frame.len() {
            assert!(decode_event(&frame[..len]).is_err());
        }
        frame.push(0);
        assert_eq!(decode_event(&frame), Err(CodecError::Trailing(1)));
    }

    #[test]
    fn semantics_26_an_event_above_60_000_bytes_is_refused_and_leaves_nothing_behind() {
        let mut token = crate::ledger::store::contract::token();
        token.name = "x".repeat(MAX_EVENT_FRAME).into();
        let mut out = vec![1, 2, 3];
        let error = encode_event_into(&event(1, TokenCreated { token }), &mut out).unwrap_err();
        assert!(matches!(error, CodecError::TooLong { max: MAX_EVENT_FRAME, .. }), "{error}");
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn a_row_reads_back_and_a_flipped_bit_in_it_is_seen() {
        let row = (Seq(5), "text".to_owned());
        let bytes = encode_row(&row).unwrap();
        assert_eq!(decode_row::<(Seq, String)>(&bytes), Ok(row));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_row::<(Seq, String)>(&bad).is_err());
        }
    }
}
