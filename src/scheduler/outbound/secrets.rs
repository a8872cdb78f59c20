//! Named callback secrets, by namespace (design 4, `/v1/callback-secrets`).
//!
//! They must survive a restart, must never lie in the ledger, and must be read back to sign; so they lie in one file
//! beside it, sealed under a key of the key file. The file is replaced whole: written beside, fsynced, renamed.
//!
//! ```text
//! "reach-callback-secrets-1\n" · nonce, 12 bytes · ChaCha20-Poly1305 of a JSON book, the first line as associated data
//! ```
//!
//! Calls block on the disk when they change something: shells make them on a blocking thread.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};
use serde::{Deserialize, Serialize};

use super::signature::{CallbackSecret, SECRET_LEN};
use crate::ledger::ids::Namespace;
use crate::ledger::keys::Keys;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::store::place;
use crate::ledger::time::{Millis, Timestamp};

/// The name that every namespace has, used where a callback names none.
pub const DEFAULT: &str = "default";
/// Names in one namespace at most.
pub const MAX_NAMES: usize = 100;
/// A replaced secret signs for 24 h beside the new one, unless the rotation says otherwise.
pub const DEFAULT_OVERLAP: Millis = Millis::secs(24 * 3_600);
/// The longest overlap: 30 days.
pub const MAX_OVERLAP: Millis = Millis::secs(30 * 86_400);
/// Secrets of one name that sign at once; the oldest goes when one more is made.
pub const MAX_ACTIVE: usize = 4;

const MAGIC: &[u8] = b"reach-callback-secrets-1\n";

/// Why a secret was not made, replaced or deleted: the caller's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretRefusal {
    /// 1 to 64 characters of `[A-Za-z0-9._-]`.
    #[error("a secret's name has 1 to 64 letters, digits and . _ -")]
    Name,
    /// It exists.
    #[error("a secret of that name exists; rotate it")]
    Taken,
    /// It does not.
    #[error("no secret of that name exists")]
    Unknown,
    /// The namespace has [`MAX_NAMES`].
    #[error("a namespace has at most {MAX_NAMES} secrets")]
    TooMany,
}

/// Why a call on secrets failed.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The caller's doing.
    #[error(transparent)]
    Refused(#[from] SecretRefusal),
    /// The disk's: nothing was changed.
    #[error("callback secrets could not be written or read: {0}")]
    Disk(#[from] io::Error),
    /// The file is not what this key sealed.
    #[error("the file of callback secrets is damaged, or sealed under another key")]
    Sealed,
    /// No randomness.
    #[error("no random bytes: {0}")]
    Random(String),
}

/// One name, as it may be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretName {
    /// Its name.
    pub name: String,
    /// When its newest secret was made; `None` for a `default` that was never used.
    pub created_at: Option<Timestamp>,
    /// Secrets that sign now.
    pub active: usize,
}

#[derive(Clone, Serialize, Deserialize)]
struct Held {
    secret: String,
    created_at: u64,
    until: Option<u64>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Entry {
    /// Newest first; only older ones have an end.
    held: Vec<Held>,
    /// Has anybody been told the newest?
    told: bool,
}

type Book = BTreeMap<String, BTreeMap<String, Entry>>;

/// Every namespace's secrets.
pub struct Secrets {
    path: PathBuf,
    cipher: ChaCha20Poly1305,
    book: Mutex<Book>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(hidden)")
    }
}

impl Secrets {
    /// Opens the file at `path`, or begins an empty book if there is none.
    ///
    /// # Errors
    /// [`SecretError::Disk`] or [`SecretError::Sealed`].
    pub fn open(path: PathBuf, keys: &Keys) -> Result<Self, SecretError> {
        let cipher = ChaCha20Poly1305::new(keys.seal_key().into());
        let book = match fs::read(&path) {
            Ok(bytes) => unseal(&cipher, &bytes).ok_or(SecretError::Sealed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Book::new(),
            // A folder in its place is damage, too, and no disk's fault.
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Err(SecretError::Sealed),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { path, cipher, book: Mutex::new(book) })
    }

    /// Makes a secret; it is shown here and never again. A `default` that came by itself is shown as it is.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn create(&self, namespace: &Namespace, name: &str, now: Timestamp) -> Result<CallbackSecret, SecretError> {
        check_name(name)?;
        self.change(|book| {
            let names = book.entry(namespace.as_str().to_owned()).or_default();
            let count = names.len();
            match names.get_mut(name) {
                Some(entry) if entry.told => return Err(SecretRefusal::Taken.into()),
                Some(entry) => {
                    entry.told = true;
                    return newest(entry).ok_or(SecretError::Sealed);
                }
                None if count >= MAX_NAMES => return Err(SecretRefusal::TooMany.into()),
                None => {}
            }
            let secret = draw()?;
            let held = vec![Held { secret: secret.expose(), created_at: now.0, until: None }];
            names.insert(name.to_owned(), Entry { held, told: true });
            Ok(secret)
        })
    }

    /// Makes a new secret under a name; the old one signs beside it for `overlap`, at most [`MAX_OVERLAP`].
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn rotate(
        &self,
        namespace: &Namespace,
        name: &str,
        overlap: Millis,
        now: Timestamp,
    ) -> Result<CallbackSecret, SecretError> {
        check_name(name)?;
        self.change(|book| {
            let names = book.entry(namespace.as_str().to_owned()).or_default();
            if name != DEFAULT && !names.contains_key(name) {
                return Err(SecretRefusal::Unknown.into());
            }
            let entry = names.entry(name.to_owned()).or_default();
            let until = now.after(overlap.min(MAX_OVERLAP)).0;
            for held in &mut entry.held {
                held.until = Some(held.until.map_or(until, |earlier| earlier.min(until)));
            }
            entry.held.retain(|held| is_active(held, now));
            entry.held.truncate(MAX_ACTIVE - 1);
            let secret = draw()?;
            entry.held.insert(0, Held { secret: secret.expose(), created_at: now.0, until: None });
            entry.told = true;
            Ok(secret)
        })
    }

    /// Deletes a name at once; callbacks that name it can't be signed until it is made again. A deleted `default`
    /// comes back, another, with its next use.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn delete(&self, namespace: &Namespace, name: &str) -> Result<(), SecretError> {
        check_name(name)?;
        self.change(|book| {
            let names = book.get_mut(namespace.as_str());
            match names.and_then(|names| names.remove(name)) {
                Some(_) => Ok(()),
                None => Err(SecretRefusal::Unknown.into()),
            }
        })
    }

    /// Every name of a namespace, in order; `default` always among them.
    #[must_use]
    pub fn list(&self, namespace: &Namespace, now: Timestamp) -> Vec<SecretName> {
        let book = self.lock();
        let names = book.get(namespace.as_str());
        let show = |name: &String, entry: &Entry| SecretName {
            name: name.clone(),
            created_at: entry.held.first().map(|held| Timestamp(held.created_at)),
            active: entry.held.iter().filter(|held| is_active(held, now)).count(),
        };
        let mut shown: Vec<_> = names.into_iter().flatten().map(|(name, entry)| show(name, entry)).collect();
        if !names.is_some_and(|names| names.contains_key(DEFAULT)) {
            let place = shown.partition_point(|entry| entry.name.as_str() < DEFAULT);
            shown.insert(place, SecretName { name: DEFAULT.to_owned(), created_at: None, active: 0 });
        }
        shown
    }

    /// Does a callback's `secret_ref` name something? `default` always does.
    #[must_use]
    pub fn exists(&self, namespace: &Namespace, name: &str) -> bool {
        name == DEFAULT || self.lock().get(namespace.as_str()).is_some_and(|names| names.contains_key(name))
    }

    /// The secrets that sign under a name now, newest first; empty if there is none of that name. Makes `default`
    /// where it is missing.
    ///
    /// # Errors
    /// [`SecretError`], only where `default` had to be made.
    pub fn signing(
        &self,
        namespace: &Namespace,
        name: &Text,
        now: Timestamp,
    ) -> Result<Vec<CallbackSecret>, SecretError> {
        let active = |entry: &Entry| {
            let held = entry.held.iter().filter(|held| is_active(held, now));
            held.filter_map(|held| CallbackSecret::parse(&held.secret)).collect::<Vec<_>>()
        };
        if let Some(entry) = self.lock().get(namespace.as_str()).and_then(|names| names.get(&**name)) {
            return Ok(active(entry));
        }
        if &**name != DEFAULT {
            return Ok(Vec::new());
        }
        self.change(|book| {
            let names = book.entry(namespace.as_str().to_owned()).or_default();
            if let Some(entry) = names.get(DEFAULT) {
                return Ok(active(entry));
            }
            let secret = draw()?;
            let held = vec![Held { secret: secret.expose(), created_at: now.0, until: None }];
            names.insert(DEFAULT.to_owned(), Entry { held, told: false });
            Ok(vec![secret])
        })
    }

    /// Changes a copy, writes it, and only then lets it hold.
    fn change<T>(&self, edit: impl FnOnce(&mut Book) -> Result<T, SecretError>) -> Result<T, SecretError> {
        let mut book = self.lock();
        let mut next = book.clone();
        let answer = edit(&mut next)?;
        self.write(&next)?;
        *book = next;
        Ok(answer)
    }

    fn write(&self, book: &Book) -> Result<(), SecretError> {
        let mut nonce = [0; 12];
        fill(&mut nonce)?;
        let plain = serde_json::to_vec(book).map_err(|error| io::Error::other(error.to_string()))?;
        let payload = Payload { msg: &plain, aad: MAGIC };
        let sealed = self.cipher.encrypt(Nonce::from_slice(&nonce), payload).map_err(|_| SecretError::Sealed)?;
        Ok(place::write_private(&self.path, &self.path.with_extension("new"), &[MAGIC, &nonce, &sealed])?)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unseal(cipher: &ChaCha20Poly1305, bytes: &[u8]) -> Option<Book> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (nonce, sealed) = rest.split_at_checked(12)?;
    let plain = cipher.decrypt(Nonce::from_slice(nonce), Payload { msg: sealed, aad: MAGIC }).ok()?;
    serde_json::from_slice(&plain).ok()
}

fn is_active(held: &Held, now: Timestamp) -> bool {
    held.until.is_none_or(|until| now.0 < until)
}

fn newest(entry: &Entry) -> Option<CallbackSecret> {
    entry.held.first().and_then(|held| CallbackSecret::parse(&held.secret))
}

/// Can a secret have that name?
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    (1..=64).contains(&name.len()) && plain
}

fn check_name(name: &str) -> Result<(), SecretRefusal> {
    if is_name(name) { Ok(()) } else { Err(SecretRefusal::Name) }
}

fn draw() -> Result<CallbackSecret, SecretError> {
    let mut bytes = vec![0; SECRET_LEN];
    fill(&mut bytes)?;
    CallbackSecret::from_bytes(bytes).ok_or(SecretError::Sealed)
}

fn fill(bytes: &mut [u8]) -> Result<(), SecretError> {
    getrandom::fill(bytes).map_err(|error| SecretError::Random(error.to_string()))
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
