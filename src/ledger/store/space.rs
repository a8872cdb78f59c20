//! Room on the disk, and a reserve for the moment when there is none.
//!
//! Why a reserve: a full disk makes the engine stop for good, and even recovery wants a little room to write. A file
//! that holds real blocks can be given back at that moment (semantics 30).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::Space;

/// The reserve's name in the data folder.
pub const RESERVE_FILE: &str = "reserve";
/// Its size unless configured otherwise.
pub const DEFAULT_RESERVE: u64 = 64 * 1024 * 1024;

/// Bytes free and in all on the file system that holds `path`.
///
/// # Errors
/// What the system says.
pub fn space_of(path: &Path) -> io::Result<Space> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(Space { free: stat.f_bavail.saturating_mul(stat.f_frsize), total: stat.f_blocks.saturating_mul(stat.f_frsize) })
}

/// The reserve file.
#[derive(Debug, Clone)]
pub struct Reserve {
    path: PathBuf,
    len: u64,
}

impl Reserve {
    /// The reserve of a data folder; a length of 0 means none.
    #[must_use]
    pub fn new(data: &Path, len: u64) -> Self {
        Self { path: data.join(RESERVE_FILE), len }
    }

    /// Is there one now?
    #[must_use]
    pub fn is_held(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() >= self.len) && self.len > 0
    }

    /// Sets the blocks aside if there is plenty of room (four times the reserve); else leaves it for later.
    ///
    /// # Errors
    /// What the disk says.
    pub fn hold(&self) -> io::Result<()> {
        if self.len == 0 || self.is_held() {
            return Ok(());
        }
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        if space_of(folder)?.free < self.len.saturating_mul(4) {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&self.path)?;
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, self.len) {
            Ok(()) => {}
            // Not every file system can set blocks aside without writing them.
            Err(rustix::io::Errno::OPNOTSUPP) => fill(&file, self.len)?,
            Err(error) => {
                fs::remove_file(&self.path)?;
                return Err(error.into());
            }
        }
        file.sync_all()
    }

    /// Gives the blocks back, so that what must be written at the end can be.
    ///
    /// # Errors
    /// What the disk says.
    pub fn free(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Frees it when less than half of it is free beside it; holds it again when there is plenty.
    ///
    /// # Errors
    /// What the disk says.
    pub fn tend(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        if space_of(folder)?.free < self.len / 2 { self.free() } else { self.hold() }
    }
}

fn fill(mut file: &File, len: u64) -> io::Result<()> {
    let block = [0; 64 * 1024];
    let mut left = len;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(block.split_at(part).0)?;
        left -= part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn semantics_30_the_reserve_holds_real_blocks_and_gives_them_back() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = Reserve::new(folder.path(), 1_048_576);
        reserve.hold().unwrap();
        assert!(reserve.is_held());
        assert!(fs::metadata(folder.path().join(RESERVE_FILE)).unwrap().blocks() * 512 >= 1_048_576);
        reserve.free().unwrap();
        reserve.free().unwrap();
        assert!(!reserve.is_held());
        reserve.tend().unwrap();
        assert!(reserve.is_held(), "held again once there is room");
        let space = space_of(folder.path()).unwrap();
        assert!(space.free > 0 && space.free <= space.total);
    }
}
