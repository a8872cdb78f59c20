//! How a file or a folder takes its place: by `rename`, durable before it counts.
//!
//! Why one function: a `rename` is in memory until its folder is flushed. After a power cut a file that somebody was told
//! of (an admin token, a key, a secret) would be gone, or be the old one, while the ledger already speaks of the new. So
//! nobody else renames, and a lint holds it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Moves `from` to `to` and flushes the folder of `to`; of `from` too, if that is another. What stood at `to` is replaced.
///
/// # Errors
/// What the disk says. If the flush failed, the move was made and may be gone after a power cut.
#[expect(clippy::disallowed_methods, reason = "the one place that renames")]
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder_of(to)?;
    if from.parent() == to.parent() { Ok(()) } else { sync_folder_of(from) }
}

/// Writes a file that only its owner can read, through `draft` beside it: never half of it, never with other
/// permissions, and durable before this returns. What stood at `path` is replaced.
///
/// # Errors
/// What the disk says; then `path` is as it was, but for a failed last flush.
pub fn write_private(path: &Path, draft: &Path, parts: &[&[u8]]) -> io::Result<()> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()?;
    rename(draft, path)
}

/// Makes the names in a folder durable.
///
/// # Errors
/// What the disk says.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_folder(folder.unwrap_or_else(|| Path::new(".")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_private_file_replaces_what_stood_there_and_a_leftover_draft_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (path, draft) = (folder.path().join("token"), folder.path().join("token.new"));
        for stale in [&path, &draft] {
            fs::write(stale, "old").unwrap();
            fs::set_permissions(stale, fs::Permissions::from_mode(0o644)).unwrap();
        }
        write_private(&path, &draft, &[b"new", b" one"]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new one");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!draft.exists());
    }

    #[test]
    fn what_cannot_take_its_place_leaves_what_stood_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "old").unwrap();
        write_private(&path, &folder.path().join("nowhere").join("draft"), &[b"new"]).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
}
