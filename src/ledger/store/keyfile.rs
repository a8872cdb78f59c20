//! The key file: 32 random bytes beside the ledger, never in it (semantics 1).
//!
//! Why it is made together with the ledger: a key file drawn anew beside an old ledger would silently end every lease,
//! forget every fingerprint and lock every sealed secret away. Why it has a checksum: a flipped bit in it would do the
//! same, and nothing else would ever tell.
//!
//! ```text
//! magic "RKEY" │ version u8 │ key 32 │ SHA-256 of all before it
//! ```
//! The first form was the 32 bytes alone; it is still read, and written anew at the next start.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::codec::{array, check_version};
use super::place;
use crate::ledger::ids::Digest;
use crate::ledger::keys::Keys;

/// The file's name in the data folder.
pub const KEY_FILE: &str = "keys";
const DRAFT: &str = "keys.draft";
const MAGIC: [u8; 4] = *b"RKEY";
const VERSION: u8 = 1;
/// The key alone: what the first form was.
const LEN: usize = 32;
const KEY_AT: usize = 5;
const SUM_AT: usize = KEY_AT + LEN;
const FILE_LEN: usize = SUM_AT + 32;

/// Why the key file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It is not there, but a ledger is.
    #[error(
        "the key file {0} is missing beside an existing ledger; put it back from the backup of this data folder, or go \
         on with a new one by `reach repair --accept-loss`, which ends every lease and forgets every callback secret"
    )]
    Missing(PathBuf),
    /// Others may read it.
    #[error("the key file {path} has mode {mode:03o}: group or others may read it; run `chmod 600 {path}`")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not what was written.
    #[error(
        "the key file {path} is damaged: {what}; put it back from the backup of this data folder, or run `reach repair \
         --accept-loss`, which puts a single flipped bit right and else draws a new key: that ends every lease and \
         forgets every callback secret"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Written by a newer program.
    #[error("the key file {path} has version {found}: use the program that wrote it, or a newer one")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u8,
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

/// What a repair did to the key file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mended {
    /// Nothing: it is sound.
    Sound,
    /// One bit was flipped; it is put right, nothing is lost. The damaged file is kept.
    PutRight {
        /// Where.
        kept: PathBuf,
    },
    /// It was past mending: a new key was drawn. A damaged file is kept.
    DrawnAnew {
        /// Where, if there was one.
        kept: Option<PathBuf>,
    },
}

/// In which form a key file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Bare,
    Checked,
}

/// Reads the keys of a data folder; draws them at the very first start, before there is a ledger.
///
/// # Errors
/// [`KeyFileError`]; a file that group or others may read is refused.
pub fn load_or_create(data: &Path) -> Result<Keys, KeyFileError> {
    let path = data.join(KEY_FILE);
    let io = |source| KeyFileError::Io { path: path.clone(), source };
    match File::open(&path) {
        Ok(file) => {
            let (master, form) = read(&path, file)?;
            if form == Form::Bare
                && let Err(error) = create(data, &path, &master)
            {
                // A full disk must not keep the hub shut for that.
                tracing::warn!(%error, "the key file could not be given its checksum; the next start tries again");
            }
            Ok(Keys::from_master(&master))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if data.join(super::LEDGER_FOLDER).exists() {
                return Err(KeyFileError::Missing(path));
            }
            let master = draw()?;
            create(data, &path, &master).map_err(io)?;
            Ok(Keys::from_master(&master))
        }
        Err(error) => Err(io(error)),
    }
}

/// The keys of an existing ledger, if their file is there and sound. Changes nothing.
///
/// # Errors
/// [`KeyFileError`] when it is not.
pub fn load(data: &Path) -> Result<Keys, KeyFileError> {
    let path = data.join(KEY_FILE);
    match File::open(&path) {
        Ok(file) => read(&path, file).map(|(master, _)| Keys::from_master(&master)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(KeyFileError::Missing(path)),
        Err(source) => Err(KeyFileError::Io { path, source }),
    }
}

/// Would [`mend`] have to draw a new key? Changes nothing.
///
/// # Errors
/// [`KeyFileError`] when the file is one that [`mend`] would not touch.
pub fn is_past_mending(data: &Path) -> Result<bool, KeyFileError> {
    match load(data) {
        Ok(_) => Ok(false),
        Err(KeyFileError::Missing(_)) => Ok(true),
        Err(KeyFileError::Damaged { path, .. }) => {
            let bytes = content(&path).map_err(|source| KeyFileError::Io { path, source })?;
            Ok(one_bit_away(&bytes).is_none())
        }
        Err(error) => Err(error),
    }
}

/// Makes the key file usable, at the price of its keys if need be; what was there is kept beside.
///
/// # Errors
/// [`KeyFileError`] when it is open to others, of a newer program, or the disk fails.
pub fn mend(data: &Path) -> Result<Mended, KeyFileError> {
    let path = data.join(KEY_FILE);
    let io = |source| KeyFileError::Io { path: path.clone(), source };
    match load(data) {
        Ok(_) => Ok(Mended::Sound),
        Err(KeyFileError::Missing(_)) => {
            create(data, &path, &draw()?).map_err(io)?;
            Ok(Mended::DrawnAnew { kept: None })
        }
        Err(KeyFileError::Damaged { .. }) => {
            let bytes = content(&path).map_err(io)?;
            let names = (1..).map(|n: u32| data.join(format!("keys.damaged-{n}")));
            let kept = names.into_iter().find(|path| !path.exists()).unwrap_or_else(|| data.join("keys.damaged"));
            let mended = one_bit_away(&bytes);
            let master = if let Some(master) = mended { master } else { draw()? };
            place::rename(&path, &kept).map_err(io)?;
            create(data, &path, &master).map_err(io)?;
            let kept_too = kept.clone();
            Ok(mended.map_or(Mended::DrawnAnew { kept: Some(kept) }, |_| Mended::PutRight { kept: kept_too }))
        }
        Err(error) => Err(error),
    }
}

/// The file's bytes; a folder in its place has none.
fn content(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(Vec::new()),
        read => read,
    }
}

/// The key, if the file is sound but for one bit: the checksum is long enough to be sure.
fn one_bit_away(bytes: &[u8]) -> Option<[u8; LEN]> {
    let mut bytes = Some(bytes).filter(|bytes| bytes.len() == FILE_LEN)?.to_vec();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            *bytes.get_mut(place)? ^= 1 << bit;
            if let Ok(master) = parse(&bytes) {
                return Some(master);
            }
            *bytes.get_mut(place)? ^= 1 << bit;
        }
    }
    None
}

fn read(path: &Path, file: File) -> Result<([u8; LEN], Form), KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), source };
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(KeyFileError::Damaged { path: path.to_owned(), what: "it is a folder, not a file".to_owned() });
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::with_capacity(FILE_LEN);
    file.take(FILE_LEN as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() == LEN && !bytes.starts_with(&MAGIC) {
        let damaged = |_| KeyFileError::Damaged { path: path.to_owned(), what: "it is cut short".to_owned() };
        return Ok((array(&bytes, 0).map_err(damaged)?, Form::Bare));
    }
    match parse(&bytes) {
        Ok(master) => Ok((master, Form::Checked)),
        Err(Fault::Newer(found)) => Err(KeyFileError::Newer { path: path.to_owned(), found }),
        Err(Fault::Damaged(what)) => Err(KeyFileError::Damaged { path: path.to_owned(), what }),
    }
}

enum Fault {
    Newer(u8),
    Damaged(String),
}

fn parse(bytes: &[u8]) -> Result<[u8; LEN], Fault> {
    let damaged = |what: &str| Fault::Damaged(what.to_owned());
    if bytes.len() != FILE_LEN {
        return Err(Fault::Damaged(format!("it has {} bytes, not {FILE_LEN}", bytes.len())));
    }
    let (content, sum) = bytes.split_at(SUM_AT);
    if Digest::of(&[content]).0 != sum {
        return Err(damaged("its checksum does not fit"));
    }
    if !content.starts_with(&MAGIC) {
        return Err(damaged("it does not begin as a key file does"));
    }
    let version = array::<1>(content, MAGIC.len()).map_err(|_| damaged("it is cut short"))?[0];
    check_version("a key file", version, VERSION).map_err(|_| Fault::Newer(version))?;
    array(content, KEY_AT).map_err(|_| damaged("it is cut short"))
}

fn draw() -> Result<[u8; LEN], KeyFileError> {
    let mut master = [0; LEN];
    getrandom::fill(&mut master).map_err(|error| KeyFileError::Random(error.to_string()))?;
    Ok(master)
}

fn encode(master: &[u8; LEN]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FILE_LEN);
    bytes.extend_from_slice(&MAGIC);
    bytes.push(VERSION);
    bytes.extend_from_slice(master);
    let sum = Digest::of(&[&bytes]);
    bytes.extend_from_slice(&sum.0);
    bytes
}

fn create(data: &Path, path: &Path, master: &[u8; LEN]) -> io::Result<()> {
    fs::create_dir_all(data)?;
    place::write_private(path, &data.join(DRAFT), &[&encode(master)])
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
        put(folder.path(), &[1; 31]);
        assert!(matches!(load_or_create(folder.path()), Err(KeyFileError::Damaged { .. })));
    }

    fn put(folder: &Path, bytes: &[u8]) {
        fs::write(folder.join(KEY_FILE), bytes).unwrap();
        fs::set_permissions(folder.join(KEY_FILE), fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn a_key_file_of_the_first_form_opens_and_is_given_its_checksum() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &[7; LEN]);
        let first = load_or_create(folder.path()).unwrap();
        assert_eq!(lease(&first), lease(&Keys::from_master(&[7; LEN])));
        assert_eq!(fs::read(folder.path().join(KEY_FILE)).unwrap(), encode(&[7; LEN]));
        assert_eq!(fs::metadata(folder.path().join(KEY_FILE)).unwrap().mode() & 0o777, 0o600);
        assert_eq!(lease(&first), lease(&load_or_create(folder.path()).unwrap()));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_refused_and_a_single_bit_is_put_right() {
        let folder = tempfile::tempdir().unwrap();
        let good = encode(&[7; LEN]);
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1 << (place % 8);
            put(folder.path(), &bad);
            assert!(matches!(load_or_create(folder.path()), Err(KeyFileError::Damaged { .. })), "byte {place}");
            assert!(matches!(mend(folder.path()).unwrap(), Mended::PutRight { .. }), "byte {place}");
            assert_eq!(fs::read(folder.path().join(KEY_FILE)).unwrap(), good);
            put(folder.path(), &good[..place]);
            assert!(matches!(load_or_create(folder.path()), Err(KeyFileError::Damaged { .. })), "cut at {place}");
        }
        put(folder.path(), b"past mending");
        let Mended::DrawnAnew { kept: Some(kept) } = mend(folder.path()).unwrap() else { panic!("drawn anew") };
        assert_eq!(fs::read(kept).unwrap(), b"past mending");
        assert_ne!(lease(&load_or_create(folder.path()).unwrap()), lease(&Keys::from_master(&[7; LEN])));
    }
}
