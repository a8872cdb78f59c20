//! The commit block: one commit as bytes.
//!
//! Why a hash over leaf hashes: whoever has the leaf hashes of a commit's events (receipts have them) can check the
//! chain without the events themselves, so erased or dropped events do not break it.
//!
//! ```text
//! header │ event frame … │ commit hash
//! commit hash = SHA-256(0x02 ‖ header ‖ leaf hash of each event frame), leaf hash = SHA-256(0x00 ‖ event frame)
//! ```
//! The header names the hash of the commit before it: that is the chain. docs/ledger-format.md has every byte.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::codec::{self, CodecError, MAX_EVENT_FRAME, array, be_u32, be_u64, check_version, crc};
use super::{Commit, Head, Rows, StoredEvent};
use crate::ledger::ids::{Boot, Digest, Lineage, Seq};
use crate::ledger::machine::agent::MAX_CONCURRENCY;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::time::Timestamp;

/// First bytes of every commit.
pub const COMMIT_MAGIC: [u8; 4] = *b"RCMT";
/// Version of the commit's layout.
pub const COMMIT_VERSION: u8 = 1;
/// Bytes of a commit before its first event frame.
pub const HEADER_LEN: usize = 77;
/// Bytes after its last: the commit hash.
pub const TRAILER_LEN: usize = 32;
/// Cut a batch into commits of about so many events: more gains nothing and makes everyone in it wait (storage notes).
pub const TARGET_COMMIT_EVENTS: usize = 512;
/// Cut it at about so many bytes (semantics 26).
pub const TARGET_COMMIT_BYTES: usize = 512 * 1024;
/// The most events in one commit. Above the target because the events of one decision are never torn apart, and the
/// loss of an agent orphans all that it holds.
pub const MAX_COMMIT_EVENTS: usize = 65_536;
/// The longest commit.
pub const MAX_COMMIT_BYTES: usize = 96 * 1024 * 1024;
/// What one task may add to the loss of its agent: that it is orphaned, dead-lettered and its batch's last, and the
/// callback for each.
const EVENTS_A_LOST_TASK: usize = 6;
/// Bytes of them: three callbacks with their URLs of 2 KiB, and the rest.
const BYTES_A_LOST_TASK: usize = 3 * (2_048 + 512) + 3 * 512;

// A decision that no commit can hold would stop the hub, and again after every start.
const _: () = assert!(
    TARGET_COMMIT_EVENTS + MAX_CONCURRENCY as usize * EVENTS_A_LOST_TASK + 8 <= MAX_COMMIT_EVENTS
        && TARGET_COMMIT_BYTES + MAX_CONCURRENCY as usize * BYTES_A_LOST_TASK + MAX_EVENT_FRAME <= MAX_COMMIT_BYTES
);
const _: () = assert!(TARGET_COMMIT_BYTES >= MAX_EVENT_FRAME + HEADER_LEN + TRAILER_LEN);
const _: () = assert!(TARGET_COMMIT_BYTES <= MAX_COMMIT_BYTES && MAX_COMMIT_BYTES < u32::MAX as usize);

const LINEAGE_AT: usize = 5;
const BOOT_AT: usize = 21;
const FIRST_AT: usize = 25;
const COUNT_AT: usize = 33;
const PREVIOUS_AT: usize = 37;
const LENGTH_AT: usize = 69;
const CRC_AT: usize = 73;
const HEADER_LEN_U32: u32 = 77;
const _: () = assert!(HEADER_LEN == CRC_AT + 4 && HEADER_LEN == HEADER_LEN_U32 as usize);

/// What stands at the start of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// Which history.
    pub lineage: Lineage,
    /// Which start of the hub wrote it.
    pub boot: Boot,
    /// Seq of its first event.
    pub first: Seq,
    /// How many events.
    pub count: u32,
    /// Hash of the commit before; zero for the first.
    pub previous: Digest,
    /// Bytes of all event frames together.
    pub events_len: u32,
}

impl BlockHeader {
    /// Seq of the last event.
    #[must_use]
    pub const fn last(&self) -> Seq {
        Seq(self.first.0.saturating_add(self.count as u64).saturating_sub(1))
    }

    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let fields: [(usize, &[u8]); 7] = [
            (0, &COMMIT_MAGIC),
            (LINEAGE_AT, &self.lineage.0),
            (BOOT_AT, &self.boot.0.to_be_bytes()),
            (FIRST_AT, &self.first.0.to_be_bytes()),
            (COUNT_AT, &self.count.to_be_bytes()),
            (PREVIOUS_AT, &self.previous.0),
            (LENGTH_AT, &self.events_len.to_be_bytes()),
        ];
        for (at, bytes) in fields {
            if let Some(slot) = out.get_mut(at..at + bytes.len()) {
                slot.copy_from_slice(bytes);
            }
        }
        if let Some(slot) = out.get_mut(COMMIT_MAGIC.len()) {
            *slot = COMMIT_VERSION;
        }
        let (fixed, crc_slot) = out.split_at_mut(CRC_AT);
        crc_slot.copy_from_slice(&crc(&[fixed]).to_be_bytes());
        out
    }

    /// Reads a header from the start of `bytes`.
    ///
    /// # Errors
    /// [`CodecError`] naming what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let header = bytes.get(..HEADER_LEN).ok_or(CodecError::Truncated)?;
        if !header.starts_with(&COMMIT_MAGIC) {
            return Err(CodecError::Magic("commit"));
        }
        check_version("a commit", array::<1>(header, COMMIT_MAGIC.len())?[0], COMMIT_VERSION)?;
        let (fixed, _) = header.split_at_checked(CRC_AT).ok_or(CodecError::Truncated)?;
        if be_u32(header, CRC_AT)? != crc(&[fixed]) {
            return Err(CodecError::Checksum("a commit header"));
        }
        Ok(Self {
            lineage: Lineage(array(header, LINEAGE_AT)?),
            boot: Boot(be_u32(header, BOOT_AT)?),
            first: Seq(be_u64(header, FIRST_AT)?),
            count: be_u32(header, COUNT_AT)?,
            previous: Digest(array(header, PREVIOUS_AT)?),
            events_len: be_u32(header, LENGTH_AT)?,
        })
    }
}

/// Sums up a commit hash, leaf by leaf.
#[derive(Debug, Clone)]
pub struct CommitHasher(Sha256);

impl CommitHasher {
    /// Begins with the header's bytes.
    #[must_use]
    pub fn new(header: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update([2]);
        hasher.update(header);
        Self(hasher)
    }

    /// Takes the next event's leaf hash.
    pub fn leaf(&mut self, leaf: &Digest) {
        self.0.update(leaf.0);
    }

    /// The commit hash.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Encodes one commit right after `expected`, with empty rows and no bodies, and the leaf hash of each event. Called
/// once a batch on the committer thread: everything lands in the one buffer that is written.
///
/// The new head's lineage and boot are those of a `lineage-started` or `hub-started` inside, else as before.
///
/// # Errors
/// [`CodecError::Empty`], [`CodecError::Sequence`] when seqs are not dense after `expected`, [`CodecError::TooLong`]
/// above [`MAX_COMMIT_EVENTS`], [`MAX_COMMIT_BYTES`] or [`MAX_EVENT_FRAME`].
pub fn encode_commit(expected: &Head, events: &[Event]) -> Result<(Commit, Vec<Digest>), CodecError> {
    let last = events.last().ok_or(CodecError::Empty)?;
    if events.len() > MAX_COMMIT_EVENTS {
        return Err(CodecError::TooLong { what: "a commit", len: events.len(), max: MAX_COMMIT_EVENTS });
    }
    let mut frame = Vec::with_capacity(HEADER_LEN + TRAILER_LEN + events.len() * 192);
    frame.resize(HEADER_LEN, 0);
    let mut lengths = Vec::with_capacity(events.len());
    let mut leaves = Vec::with_capacity(events.len());
    let mut head = Head { seq: last.seq, hash: Digest::default(), at: last.at, ..*expected };
    let mut due = expected.seq.next();
    for event in events {
        if event.seq != due {
            return Err(CodecError::Sequence { expected: due, found: event.seq });
        }
        due = due.next();
        note_identity(&mut head, event);
        let start = frame.len();
        let len = codec::encode_event_into(event, &mut frame)?;
        leaves.push(leaf_hash(frame.get(start..).unwrap_or_default()));
        lengths.push((event.seq, u32::try_from(len).map_err(|_| CodecError::Truncated)?));
    }
    let len = frame.len() + TRAILER_LEN;
    if len > MAX_COMMIT_BYTES {
        return Err(CodecError::TooLong { what: "a commit", len, max: MAX_COMMIT_BYTES });
    }
    let header = BlockHeader {
        lineage: head.lineage,
        boot: head.boot,
        first: expected.seq.next(),
        count: u32::try_from(events.len()).map_err(|_| CodecError::Truncated)?,
        previous: expected.hash,
        events_len: u32::try_from(frame.len() - HEADER_LEN).map_err(|_| CodecError::Truncated)?,
    }
    .encode();
    let mut hasher = CommitHasher::new(&header);
    leaves.iter().for_each(|leaf| hasher.leaf(leaf));
    head.hash = hasher.finish();
    if let Some(slot) = frame.get_mut(..HEADER_LEN) {
        slot.copy_from_slice(&header);
    }
    frame.extend_from_slice(&head.hash.0);
    let commit = Commit {
        expected: *expected,
        head,
        frame,
        events: lengths,
        header_len: HEADER_LEN_U32,
        rows: Rows::default(),
        bodies: Vec::new(),
    };
    Ok((commit, leaves))
}

/// The RFC 6962 leaf hash of an event frame (semantics 25).
#[must_use]
pub fn leaf_hash(frame: &[u8]) -> Digest {
    Digest::of(&[&[0], frame])
}

#[expect(clippy::wildcard_enum_match_arm, reason = "two kinds name an identity; no other can")]
fn note_identity(head: &mut Head, event: &Event) {
    match &event.body {
        EventBody::LineageStarted(e) => head.lineage = e.lineage,
        EventBody::HubStarted(e) => head.boot = e.boot,
        _ => {}
    }
}

/// A commit as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedCommit {
    /// Its header.
    pub header: BlockHeader,
    /// The head after it.
    pub head: Head,
    /// Its events with their frames.
    pub events: Vec<StoredEvent>,
}

/// Decodes a whole commit and checks everything that it says of itself: checksums, density, count, lengths, identity
/// and hash. Whether it follows the commit before is [`DecodedCommit::follows`].
///
/// # Errors
/// [`CodecError`] naming what is wrong.
pub fn decode_commit(bytes: &[u8]) -> Result<DecodedCommit, CodecError> {
    let header = BlockHeader::decode(bytes)?;
    let (header_bytes, rest) = bytes.split_at_checked(HEADER_LEN).ok_or(CodecError::Truncated)?;
    let events_len = usize::try_from(header.events_len).unwrap_or(usize::MAX);
    let (mut frames, trailer) = rest.split_at_checked(events_len).ok_or(CodecError::Truncated)?;
    let mut hasher = CommitHasher::new(header_bytes);
    let mut events = Vec::with_capacity(usize::try_from(header.count).unwrap_or(0).min(MAX_COMMIT_EVENTS));
    let mut head = Head { lineage: header.lineage, boot: header.boot, ..Head::default() };
    let mut due = header.first;
    while !frames.is_empty() {
        let (frame, after) = codec::split_event(frames)?;
        let event = codec::decode_event(frame)?;
        if event.seq != due {
            return Err(CodecError::Sequence { expected: due, found: event.seq });
        }
        due = due.next();
        note_identity(&mut head, &event);
        head.seq = event.seq;
        head.at = event.at;
        hasher.leaf(&leaf_hash(frame));
        events.push(StoredEvent { event, frame: Arc::from(frame) });
        frames = after;
    }
    if head.seq != header.last() || events.is_empty() {
        return Err(CodecError::Sequence { expected: header.last(), found: head.seq });
    }
    if head.lineage != header.lineage || head.boot != header.boot {
        return Err(CodecError::Chain);
    }
    head.hash = hasher.finish();
    match trailer.split_at_checked(TRAILER_LEN) {
        None => Err(CodecError::Truncated),
        Some((hash, _)) if hash != head.hash.0 => Err(CodecError::Hash),
        Some((_, [])) => Ok(DecodedCommit { header, head, events }),
        Some((_, more)) => Err(CodecError::Trailing(more.len())),
    }
}

impl DecodedCommit {
    /// Does it go on right after `before`? Lineage and boot may only change by the events that say so.
    ///
    /// # Errors
    /// [`CodecError::Sequence`] or [`CodecError::Chain`].
    pub fn follows(&self, before: &Head) -> Result<(), CodecError> {
        if self.header.first != before.seq.next() {
            return Err(CodecError::Sequence { expected: before.seq.next(), found: self.header.first });
        }
        let mut identity = *before;
        self.events.iter().for_each(|stored| note_identity(&mut identity, &stored.event));
        let same = identity.lineage == self.head.lineage && identity.boot == self.head.boot;
        if self.header.previous == before.hash && same { Ok(()) } else { Err(CodecError::Chain) }
    }

    /// Ledger time of its first event.
    #[must_use]
    pub fn first_at(&self) -> Timestamp {
        self.events.first().map(|stored| stored.event.at).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::store::contract::{chain, event, expiry};

    #[test]
    fn a_commit_reads_back_and_follows_only_the_commit_before_it() {
        let commits = chain(&[3, 1, 700]);
        let mut before = Head::default();
        for commit in &commits {
            let decoded = decode_commit(&commit.frame).unwrap();
            assert_eq!(decoded.head, commit.head);
            assert_eq!(decoded.events.len(), commit.events.len());
            assert_eq!(decoded.follows(&before), Ok(()));
            assert_eq!(decoded.follows(&Head { hash: Digest([1; 32]), ..before }), Err(CodecError::Chain));
            before = decoded.head;
        }
    }

    #[test]
    fn a_commit_with_any_bit_flipped_or_cut_anywhere_is_refused() {
        let frame = chain(&[3]).remove(0).frame;
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_commit(&bad).is_err(), "bit {bit} can be flipped unseen");
        }
        for len in 0..frame.len() {
            assert!(decode_commit(&frame[..len]).is_err(), "cut at {len} unseen");
        }
    }

    #[test]
    fn events_must_be_dense_after_the_expected_head() {
        let gap = [event(1, expiry(1)), event(3, expiry(2))];
        let error = encode_commit(&Head::default(), &gap).unwrap_err();
        assert_eq!(error, CodecError::Sequence { expected: Seq(2), found: Seq(3) });
        assert_eq!(encode_commit(&Head::default(), &[]).unwrap_err(), CodecError::Empty);
    }
}
