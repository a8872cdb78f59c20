//! Copies of a data folder, holes left as holes.
//!
//! Why: the engine's recovery cuts journals in place, so whoever wants to look at a damaged folder looks at a copy and
//! leaves the evidence alone. Journals are 64 MiB of mostly nothing; only blocks that hold something are copied.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const BLOCK: usize = 64 * 1024;

/// Copies a folder with everything in it; files in `immutable` folders are linked where the file system can.
///
/// # Errors
/// What the disk says.
pub(super) fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if is_immutable(&entry.path()) && fs::hard_link(entry.path(), &target).is_ok() {
            // The engine writes a table once and only ever unlinks it: a link is as good as a copy, and costs nothing.
        } else {
            copy_sparse(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn is_immutable(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|folder| folder == "tables")
}

fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let (source, target) = (File::open(from)?, File::create(to)?);
    let len = source.metadata()?.len();
    target.set_len(len)?;
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    while at < len {
        let read = source.read_at(&mut block, at)?;
        let Some(bytes) = block.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        if bytes.iter().any(|byte| *byte != 0) {
            target.write_all_at(bytes, at)?;
        }
        at += read as u64;
    }
    Ok(())
}
