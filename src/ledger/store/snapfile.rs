//! Snapshots as files beside the database.
//!
//! Why not in the database: a snapshot of 200,000 live tasks is tens of megabytes. Through the engine it would pass the
//! journal, a memtable and compactions, hold the journal's lock while commits wait, and leave a range full of
//! tombstones when it is replaced. A file is written beside all that, made durable in steps, and takes its place by
//! `rename`; removing the third newest is one `unlink`. Measured limits of the engine's values then do not matter.
//!
//! ```text
//! magic "RSNP" │ version u8 │ seq u64 │ state digest 32 │ length u64 │ crc32 u32 │ bytes │ SHA-256 of all before it
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::codec::{CodecError, array, be_u32, be_u64, check_version, crc};
use super::place;
use crate::ledger::ids::{Digest, Seq};

/// Their folder in the data folder.
pub const SNAPSHOT_FOLDER: &str = "snapshots";
/// So many are kept.
pub const KEPT: usize = 2;

const MAGIC: [u8; 4] = *b"RSNP";
const VERSION: u8 = 1;
const HEADER_LEN: usize = 57;
const DRAFT: &str = "draft";
/// A flush after so many bytes keeps the backlog small that a commit's own flush may have to wait for.
const FLUSH_EVERY: usize = 4 * 1024 * 1024;

/// Writes a snapshot, durable before it returns, and removes all but the newest two.
///
/// # Errors
/// What the disk says; then nothing has changed.
pub fn put(data: &Path, seq: Seq, digest: Digest, bytes: &[u8]) -> io::Result<()> {
    let folder = data.join(SNAPSHOT_FOLDER);
    fs::create_dir_all(&folder)?;
    let header = header(seq, digest, bytes.len() as u64);
    let sum = Digest::of(&[&header, bytes]);
    let draft = folder.join(DRAFT);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&draft)?;
    file.write_all(&header)?;
    for part in bytes.chunks(FLUSH_EVERY) {
        file.write_all(part)?;
        file.sync_data()?;
    }
    file.write_all(&sum.0)?;
    file.sync_all()?;
    place::rename(&draft, &path_of(&folder, seq))?;
    for (_, path) in list(data)?.into_iter().skip(KEPT) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// The snapshots' files, newest first.
///
/// # Errors
/// What the disk says.
pub fn list(data: &Path) -> io::Result<Vec<(Seq, PathBuf)>> {
    let found = numbered(&data.join(SNAPSHOT_FOLDER), "snap")?;
    Ok(found.into_iter().rev().map(|(seq, path)| (Seq(seq), path)).collect())
}

/// The files of a folder that are named by a number, with an extension, by that number; none without the folder.
pub(super) fn numbered(folder: &Path, extension: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let number =
            path.extension().filter(|ext| *ext == extension).and_then(|_| path.file_stem()?.to_str()?.parse().ok());
        if let Some(number) = number {
            found.push((number, path));
        }
    }
    found.sort_by_key(|(number, _)| *number);
    Ok(found)
}

/// Reads one, checking every byte.
///
/// # Errors
/// What the disk says; [`io::ErrorKind::InvalidData`] when it is damaged.
pub fn read(path: &Path) -> io::Result<(Seq, Digest, Vec<u8>)> {
    let mut all = fs::read(path)?;
    let (seq, digest) = parse(&all).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    all.truncate(all.len().saturating_sub(32));
    all.drain(..HEADER_LEN);
    Ok((seq, digest, all))
}

fn path_of(folder: &Path, seq: Seq) -> PathBuf {
    folder.join(format!("{:020}.snap", seq.0))
}

fn header(seq: Seq, digest: Digest, len: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN);
    bytes.extend_from_slice(&MAGIC);
    bytes.push(VERSION);
    bytes.extend_from_slice(&seq.0.to_be_bytes());
    bytes.extend_from_slice(&digest.0);
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(&crc(&[&bytes]).to_be_bytes());
    bytes
}

fn parse(all: &[u8]) -> Result<(Seq, Digest), CodecError> {
    if !all.starts_with(&MAGIC) {
        return Err(CodecError::Magic("snapshot"));
    }
    let fixed = all.get(..HEADER_LEN - 4).ok_or(CodecError::Truncated)?;
    if be_u32(all, HEADER_LEN - 4)? != crc(&[fixed]) {
        return Err(CodecError::Checksum("a snapshot's header"));
    }
    check_version("a snapshot file", array::<1>(all, 4)?[0], VERSION)?;
    let len = usize::try_from(be_u64(all, 45)?).unwrap_or(usize::MAX);
    if all.len() != len.saturating_add(HEADER_LEN + 32) {
        return Err(CodecError::Truncated);
    }
    let (content, sum) = all.split_at_checked(HEADER_LEN + len).ok_or(CodecError::Truncated)?;
    if Digest::of(&[content]).0 != sum {
        return Err(CodecError::Checksum("a snapshot"));
    }
    Ok((Seq(be_u64(all, 5)?), Digest(array(all, 13)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_damaged_byte_of_a_snapshot_is_seen() {
        let data = tempfile::tempdir().unwrap();
        put(data.path(), Seq(4), Digest([1; 32]), b"state").unwrap();
        let path = list(data.path()).unwrap().remove(0).1;
        assert_eq!(read(&path).unwrap(), (Seq(4), Digest([1; 32]), b"state".to_vec()));
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            assert!(read(&path).is_err(), "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert!(read(&path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_draft_left_by_a_crash_is_not_a_snapshot() {
        let data = tempfile::tempdir().unwrap();
        put(data.path(), Seq(4), Digest([1; 32]), b"state").unwrap();
        fs::write(data.path().join(SNAPSHOT_FOLDER).join(DRAFT), b"half").unwrap();
        assert_eq!(list(data.path()).unwrap().len(), 1);
        put(data.path(), Seq(5), Digest([2; 32]), b"later").unwrap();
        assert_eq!(list(data.path()).unwrap().iter().map(|(seq, _)| seq.0).collect::<Vec<_>>(), [5, 4]);
    }
}
