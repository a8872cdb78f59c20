//! The engine's tables, read block by block from outside it.
//!
//! Why: one damaged byte in a table's index, filter or footer keeps the whole database shut, although every block of
//! data in it is sound and has a checksum of its own. Here blocks are found by their own headers alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lsm_tree::coding::Decode as _;
use lsm_tree::table::block::decoder::ParsedItem as _;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, DataBlock};
use lsm_tree::{CompressionType, InternalValue, ValueType};

use super::fjall_journal::{Flaw, Then};
use super::fjall_open::quietly;

const MAGIC: &[u8; 4] = b"LSM\x03";

/// The tables of an engine's folder with the number of their keyspace, in order.
pub(super) fn tables(ledger: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for space in in_folder(&ledger.join("keyspaces"))? {
        let number = space.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        if let Some(number) = number {
            let tables = in_folder(&space.join("tables"))?.into_iter().filter(|path| !path.is_dir());
            found.extend(tables.map(|path| (number, path)));
        }
    }
    found.sort();
    Ok(found)
}

fn in_folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// What a table holds.
pub(super) enum Found {
    /// A change of a key.
    Item(InternalValue),
    /// Damage.
    Flaw(Flaw),
}

/// Gives every item of every sound block of data to `each`, and names what is not sound.
pub(super) fn walk<E>(bytes: &[u8], mut each: impl FnMut(Found) -> Result<(), E>) -> Result<(), E> {
    let flaw = |offset: usize, what| Found::Flaw(Flaw { offset: offset as u64, what, then: Then::Sound });
    let (mut at, mut in_data) = (0, true);
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(header) = header(rest) else {
            let next = next_header(bytes, at + 1);
            if in_data {
                // Blocks of data lie one behind the other, and then those of the index: what is between was one.
                each(flaw(at, "a block's header is damaged"))?;
            }
            at = next.unwrap_or(bytes.len());
            in_data = false;
            continue;
        };
        in_data = header.block_type == BlockType::Data;
        match items(rest, &header) {
            Some(items) => items.into_iter().try_for_each(|item| each(Found::Item(item)))?,
            None => each(flaw(at, "a block's checksum does not fit"))?,
        }
        let len = Header::serialized_len() + usize::try_from(header.data_length).unwrap_or(usize::MAX);
        at = at.saturating_add(len);
    }
    Ok(())
}

fn header(mut bytes: &[u8]) -> Option<Header> {
    // It has a checksum of its own.
    Header::decode_from(&mut bytes).ok()
}

fn next_header(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let places = rest.windows(MAGIC.len()).enumerate().filter(|(_, window)| window == MAGIC);
    places.map(|(offset, _)| from + offset).find(|at| bytes.get(*at..).and_then(header).is_some())
}

/// The items of a block of data, none of another one; `None` if it is damaged.
fn items(mut rest: &[u8], header: &Header) -> Option<Vec<InternalValue>> {
    let is_data = header.block_type == BlockType::Data;
    // The header does not say whether a block is compressed, but for one in many thousands its lengths do.
    let is_plain = header.data_length == header.uncompressed_length;
    let compression = if is_plain { CompressionType::None } else { CompressionType::Lz4 };
    let read = || {
        let block = Block::from_reader(&mut rest, compression).ok()?;
        if !is_data {
            return Some(Vec::new());
        }
        let block = DataBlock::new(block);
        Some(block.iter().map(|item| item.materialize(block.as_slice())).collect())
    };
    quietly(read).ok().flatten()
}

/// Does this item remove its key?
pub(super) fn is_removal(item: &InternalValue) -> bool {
    match item.key.value_type {
        ValueType::Tombstone | ValueType::WeakTombstone => true,
        ValueType::Value | ValueType::Indirection => false,
    }
}
