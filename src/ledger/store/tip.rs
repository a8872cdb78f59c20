//! The high-water mark: a tiny file outside the database that says how far the ledger had come.
//!
//! Why: a flipped bit or a lost write in the engine's journal makes its recovery cut the journal there, in silence, and
//! open without the acknowledged rest. The mark is written after every commit and flushed at least once a second, so at
//! the next start a ledger that ends before it, or has another hash there, is refused instead of believed.
//!
//! Two slots, written in turn, so that a torn write leaves the other one good:
//! ```text
//! magic "RTIP" │ version u8 │ turn u64 │ seq u64 │ commit hash 32 │ lineage 16 │ boot u32 │ at u64 │ crc32 u32
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Head;
use super::codec::{CodecError, array, be_u32, be_u64, check_version, crc};
use crate::ledger::ids::{Boot, Digest, Lineage, Seq};
use crate::ledger::time::Timestamp;

/// The file's name in the data folder.
pub const TIP_FILE: &str = "tip";

const MAGIC: [u8; 4] = *b"RTIP";
const VERSION: u8 = 1;
const SLOT_LEN: usize = 85;
/// Each slot has its own page, so that one damaged sector can't take both.
const SLOT_STRIDE: u64 = 4_096;
const FILE_LEN: usize = 8_192;

/// Why a mark is not opened, damage aside: a newer program's mark is no damaged one, and must not be replaced.
#[derive(Debug)]
pub enum TipError {
    /// What the disk says.
    Io(io::Error),
    /// A whole slot of a newer version.
    Newer {
        /// Its version.
        found: u8,
        /// The newest that is read.
        newest: u8,
    },
}

impl From<io::Error> for TipError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The open mark.
#[derive(Debug)]
pub struct Tip {
    file: File,
    turn: u64,
}

impl Tip {
    /// Makes a new file that marks `head`, durable before it returns.
    ///
    /// # Errors
    /// What the disk says.
    pub fn create(path: &Path, head: &Head) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        // Written, not only sized: marking a commit must not need a free block on a full disk.
        file.write_all_at(&[0; FILE_LEN], 0)?;
        let mut tip = Self { file, turn: 0 };
        tip.mark(head)?;
        tip.mark(head)?;
        tip.file.sync_all()?;
        Ok(tip)
    }

    /// Opens the file and reads its newest good slot; `None` if there is no file or no good slot.
    ///
    /// # Errors
    /// [`TipError`]: what the disk says; a slot that a newer program wrote, even beside one that can be read.
    pub fn open(path: &Path) -> Result<Option<(Self, Head)>, TipError> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            // A folder in its place is no mark.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let slots = [read_slot(&file, 0)?, read_slot(&file, SLOT_STRIDE)?];
        let newest = slots.into_iter().flatten().max_by_key(|(turn, _)| *turn);
        Ok(newest.map(|(turn, head)| (Self { file, turn }, head)))
    }

    /// Marks `head`; durable with the next [`Tip::flusher`] flush.
    ///
    /// # Errors
    /// What the disk says.
    pub fn mark(&mut self, head: &Head) -> io::Result<()> {
        self.turn = self.turn.saturating_add(1);
        let slot = encode(self.turn, head);
        self.file.write_all_at(&slot, (self.turn % 2) * SLOT_STRIDE)
    }

    /// A second handle of the file: a flush through it does not hold up the next mark.
    ///
    /// # Errors
    /// What the disk says.
    pub fn flusher(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

fn read_slot(file: &File, at: u64) -> Result<Option<(u64, Head)>, TipError> {
    let mut slot = [0; SLOT_LEN];
    match file.read_exact_at(&mut slot, at) {
        Ok(()) => match decode(&slot) {
            Ok(read) => Ok(Some(read)),
            Err(CodecError::Version { version: found, newest, .. }) if found > newest => {
                Err(TipError::Newer { found, newest })
            }
            Err(_) => Ok(None),
        },
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn encode(turn: u64, head: &Head) -> [u8; SLOT_LEN] {
    let mut bytes = Vec::with_capacity(SLOT_LEN);
    bytes.extend_from_slice(&MAGIC);
    bytes.push(VERSION);
    bytes.extend_from_slice(&turn.to_be_bytes());
    bytes.extend_from_slice(&head.seq.0.to_be_bytes());
    bytes.extend_from_slice(&head.hash.0);
    bytes.extend_from_slice(&head.lineage.0);
    bytes.extend_from_slice(&head.boot.0.to_be_bytes());
    bytes.extend_from_slice(&head.at.0.to_be_bytes());
    bytes.extend_from_slice(&crc(&[&bytes]).to_be_bytes());
    let mut slot = [0; SLOT_LEN];
    slot.copy_from_slice(&bytes);
    slot
}

fn decode(slot: &[u8; SLOT_LEN]) -> Result<(u64, Head), CodecError> {
    if !slot.starts_with(&MAGIC) {
        return Err(CodecError::Magic("mark"));
    }
    let (fixed, _) = slot.split_at(SLOT_LEN - 4);
    if be_u32(slot, SLOT_LEN - 4)? != crc(&[fixed]) {
        return Err(CodecError::Checksum("the mark"));
    }
    check_version("the mark", array::<1>(slot, 4)?[0], VERSION)?;
    let head = Head {
        seq: Seq(be_u64(slot, 13)?),
        hash: Digest(array(slot, 21)?),
        lineage: Lineage(array(slot, 53)?),
        boot: Boot(be_u32(slot, 69)?),
        at: Timestamp(be_u64(slot, 73)?),
    };
    Ok((be_u64(slot, 5)?, head))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(n: u64) -> Head {
        Head { seq: Seq(n), hash: Digest([7; 32]), lineage: Lineage([3; 16]), boot: Boot(2), at: Timestamp(n * 10) }
    }

    #[test]
    fn the_newest_mark_is_read_and_a_torn_one_gives_the_mark_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(TIP_FILE);
        assert!(Tip::open(&path).unwrap().is_none());
        let mut tip = Tip::create(&path, &head(1)).unwrap();
        for n in 2..=5 {
            tip.mark(&head(n)).unwrap();
        }
        let (again, newest) = Tip::open(&path).unwrap().unwrap();
        assert_eq!(newest, head(5));
        let torn = (again.turn % 2) * SLOT_STRIDE + 40;
        again.file.write_all_at(&[0xff; 8], torn).unwrap();
        assert_eq!(Tip::open(&path).unwrap().unwrap().1, head(4));
    }
}
