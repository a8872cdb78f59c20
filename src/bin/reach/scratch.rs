//! A folder of one's own that is gone when its owner is.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::exit::{Failure, Outcome};

/// A temporary folder that only its owner may enter; removed on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    keep: Keep,
}

/// What becomes of the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It stays, for a look afterwards.
    Yes,
    /// It goes.
    No,
}

impl Scratch {
    /// A fresh folder under the system's temporary one, or under `parent`.
    pub(crate) fn new(parent: Option<&Path>, purpose: &str, keep: Keep) -> Outcome<Self> {
        let mut bytes = [0_u8; 6];
        getrandom::fill(&mut bytes).map_err(|error| Failure::new(format!("no randomness: {error}")))?;
        let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("reach-{purpose}-{name}"));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| Failure::new(format!("cannot create {}: {error}", path.display())))?;
        Ok(Self { path, keep })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file or folder inside.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.keep == Keep::No {
            drop(std::fs::remove_dir_all(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_is_gone_with_its_owner_unless_kept() {
        let scratch = Scratch::new(None, "test", Keep::No).expect("a folder");
        let path = scratch.path().to_owned();
        std::fs::write(scratch.join("a"), "b").expect("writable");
        drop(scratch);
        assert!(!path.exists());
    }
}
