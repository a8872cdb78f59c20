//! The key file: secrets that must outlive a restart and must never lie in the ledger (semantics 1, 31).
//!
//! 32 random bytes, from which one key for each purpose is derived by HMAC-SHA-256.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::ledger::ids::{AttemptNo, Digest, LeaseDigest, Lineage, Namespace, ReachId};

/// The hub's keys. `Debug` shows nothing of them.
#[derive(Clone)]
pub struct Keys {
    lease: [u8; 32],
    fingerprint: [u8; 32],
    seal: [u8; 32],
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(hidden)")
    }
}

/// A lease token as it goes to its one agent; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseToken(String);

impl LeaseToken {
    /// The token's text: for the one answer that hands it over.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What the ledger holds of a token that somebody shows.
    #[must_use]
    pub fn digest_of(shown: &str) -> LeaseDigest {
        LeaseDigest(Digest::of(&[shown.as_bytes()]))
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(hidden)")
    }
}

impl Keys {
    /// Derives the keys from the key file's 32 bytes.
    #[must_use]
    pub fn from_master(master: &[u8; 32]) -> Self {
        let derive = |purpose: &str| hmac(master, &[purpose.as_bytes()]).0;
        Self { lease: derive("lease"), fingerprint: derive("fingerprint"), seal: derive("seal") }
    }

    /// The lease of an attempt: base64url of the first 16 bytes of HMAC(lease key, lineage ‖ `reach_id` ‖ attempt).
    #[must_use]
    pub fn lease(&self, lineage: Lineage, task: ReachId, attempt: AttemptNo) -> LeaseToken {
        let mac = hmac(&self.lease, &[&lineage.0, &task.0, &attempt.0.to_be_bytes()]);
        let (head, _) = mac.0.split_at(16);
        LeaseToken(URL_SAFE_NO_PAD.encode(head))
    }

    /// SHA-256 of that lease.
    #[must_use]
    pub fn lease_digest(&self, lineage: Lineage, task: ReachId, attempt: AttemptNo) -> LeaseDigest {
        LeaseToken::digest_of(self.lease(lineage, task, attempt).expose())
    }

    /// Fingerprint of a canonical body in a namespace (semantics 31).
    #[must_use]
    pub fn fingerprint(&self, namespace: &Namespace, canonical: &[u8]) -> Digest {
        self.fingerprinting(namespace).with(canonical).done()
    }

    /// The same of a body that comes in parts, so that its canonical form need not be in memory as a whole.
    #[must_use]
    pub fn fingerprinting(&self, namespace: &Namespace) -> Fingerprinting {
        let key = hmac(&self.fingerprint, &[namespace.as_str().as_bytes()]);
        Fingerprinting(keyed(&key.0))
    }

    /// The key under which callback secrets are sealed.
    #[must_use]
    pub const fn seal_key(&self) -> &[u8; 32] {
        &self.seal
    }
}

/// A fingerprint under way.
pub struct Fingerprinting(Hmac<Sha256>);

impl Fingerprinting {
    /// Takes the next part of the canonical form.
    #[must_use]
    pub fn with(mut self, part: &[u8]) -> Self {
        self.0.update(part);
        self
    }

    /// The fingerprint of all the parts.
    #[must_use]
    pub fn done(self) -> Digest {
        Digest(self.0.finalize().into_bytes().into())
    }
}

impl fmt::Debug for Fingerprinting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprinting(hidden)")
    }
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC fills a key up to its 64-byte block with zeros; doing so here needs no fallible conversion.
    let mut block = [0; 64];
    block.split_at_mut(32).0.copy_from_slice(key);
    Hmac::<Sha256>::new(&block.into())
}

fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> Digest {
    let mut mac = keyed(key);
    for part in parts {
        mac.update(part);
    }
    Digest(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantics_1_a_lease_differs_by_attempt_and_lineage_and_is_never_shown_by_debug() {
        let keys = Keys::from_master(&[7; 32]);
        let task = ReachId([1; 16]);
        let first = keys.lease(Lineage([0; 16]), task, AttemptNo(1));
        assert_eq!(first.expose().len(), 22);
        assert_ne!(first, keys.lease(Lineage([0; 16]), task, AttemptNo(2)));
        assert_ne!(first, keys.lease(Lineage([1; 16]), task, AttemptNo(1)));
        assert_eq!(format!("{first:?} {keys:?}"), "LeaseToken(hidden) Keys(hidden)");
        assert_eq!(LeaseToken::digest_of(first.expose()), keys.lease_digest(Lineage([0; 16]), task, AttemptNo(1)));
    }
}
