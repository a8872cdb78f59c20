//! The key file: 32 random bytes beside the ledger, never in it (semantics 1).
//!
//! Why it is made together with the ledger: a key file drawn anew beside an old ledger would silently end every lease,
//! forget every fingerprint and lock every sealed secret away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::ledger::keys::Keys;

/// The file's name in the data folder.
pub const KEY_FILE: &str = "keys";
const DRAFT: &str = "keys.draft";
const LEN: usize = 32;

/// Why the key file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It is not there, but a ledger is.
    #[error("the key file {0} is missing beside an existing ledger; put it back from the backup of this data folder")]
    Missing(PathBuf),
    /// Others may read it.
    #[error("the key file {path} has mode {mode:03o}: group or others may read it; run `chmod 600 {path}`")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not 32 bytes.
    #[error("the key file {path} has {len} bytes, not {LEN}; put it back from the backup of this data folder")]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length.
        len: u64,
    },
    /// The disk failed.
    #[error("the key file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the disk says.
        source: io::Error,
    },
    /// The machine gives no random bytes.
    #[error("no random bytes for the key file: {0}")]
    Random(String),
}

/// Reads the keys of a data folder; draws them at the very first start, before there is a ledger.
///
/// # Errors
/// [`KeyFileError`]; a file that group or others may read is refused.
pub fn load_or_create(data: &Path) -> Result<Keys, KeyFileError> {
    let path = data.join(KEY_FILE);
    let io = |source| KeyFileError::Io { path: path.clone(), source };
    match File::open(&path) {
        Ok(file) => read(&path, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if data.join(super::LEDGER_FOLDER).exists() {
                return Err(KeyFileError::Missing(path));
            }
            let mut master = [0; LEN];
            getrandom::fill(&mut master).map_err(|error| KeyFileError::Random(error.to_string()))?;
            create(data, &path, &master).map_err(io)?;
            Ok(Keys::from_master(&master))
        }
        Err(error) => Err(io(error)),
    }
}

fn read(path: &Path, mut file: File) -> Result<Keys, KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), source };
    let metadata = file.metadata().map_err(io)?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode });
    }
    if metadata.len() != LEN as u64 {
        return Err(KeyFileError::Length { path: path.to_owned(), len: metadata.len() });
    }
    let mut master = [0; LEN];
    file.read_exact(&mut master).map_err(io)?;
    Ok(Keys::from_master(&master))
}

fn create(data: &Path, path: &Path, master: &[u8; LEN]) -> io::Result<()> {
    fs::create_dir_all(data)?;
    let draft = data.join(DRAFT);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(master)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::ledger::ids::{AttemptNo, Lineage, ReachId};

    fn lease(keys: &Keys) -> String {
        keys.lease(Lineage([1; 16]), ReachId([2; 16]), AttemptNo(1)).expose().to_owned()
    }

    #[test]
    fn semantics_1_the_keys_outlive_a_restart_and_differ_between_data_folders() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = load_or_create(one.path()).unwrap();
        assert_eq!(lease(&first), lease(&load_or_create(one.path()).unwrap()));
        assert_ne!(lease(&first), lease(&load_or_create(two.path()).unwrap()));
        assert_eq!(fs::metadata(one.path().join(KEY_FILE)).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_file_that_others_may_read_is_refused_with_the_command_that_mends_it() {
        let folder = tempfile::tempdir().unwrap();
        load_or_create(folder.path()).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o644] {
            fs::set_permissions(folder.path().join(KEY_FILE), fs::Permissions::from_mode(mode)).unwrap();
            let error = load_or_create(folder.path()).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_missing_or_cut_key_file_beside_a_ledger_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(crate::ledger::store::LEDGER_FOLDER)).unwrap();
        assert!(matches!(load_or_create(folder.path()), Err(KeyFileError::Missing(_))));
        fs::write(folder.path().join(KEY_FILE), [1; 31]).unwrap();
        fs::set_permissions(folder.path().join(KEY_FILE), fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(load_or_create(folder.path()), Err(KeyFileError::Length { len: 31, .. })));
    }
}
