//! Bearer tokens: drawing, showing once, verifying.
//!
//! A token reads `reachtok_{id}_{secret}`: a public id by which it is looked up and 256 random bits in hex. The ledger
//! holds the SHA-256 of the secret only (R-SEC-1). Hashing without a salt or a slow function is right here because the
//! secret is drawn, not chosen: there is nothing to guess.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::ledger::ids::{Digest, Namespace, TokenId};
use crate::ledger::machine::access::{Access, Reach, Scope, Token};
use crate::ledger::store::place;
use crate::ledger::time::Timestamp;

/// What every token begins with, so that a scanner finds one that leaked.
pub const PREFIX: &str = "reachtok_";
/// The id under which the development token acts; no stored token can take it.
pub const DEV_TOKEN_ID: &str = "dev";
/// The shortest development token (semantics 37).
pub const MIN_DEV_TOKEN: usize = 16;

/// A freshly drawn token; its text is shown once and kept nowhere. `Debug` hides it.
pub struct Minted {
    /// Public part.
    pub id: TokenId,
    /// SHA-256 of the secret part: what the ledger keeps.
    pub secret: Digest,
    text: String,
}

impl fmt::Debug for Minted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Minted").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The machine gave no randomness: nothing secret can be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine gives no randomness")]
pub struct NoEntropy;

impl Minted {
    /// Draws a token with a new id.
    ///
    /// # Errors
    /// [`NoEntropy`] when the machine gives no randomness.
    pub fn draw() -> Result<Self, NoEntropy> {
        let mut id = [0u8; 8];
        getrandom::fill(&mut id).map_err(|_| NoEntropy)?;
        let id = TokenId::new(&hex(&id)).map_err(|_| NoEntropy)?;
        Self::draw_for(id)
    }

    /// Draws a new secret for an id: a rotation.
    ///
    /// # Errors
    /// [`NoEntropy`] when the machine gives no randomness.
    pub fn draw_for(id: TokenId) -> Result<Self, NoEntropy> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).map_err(|_| NoEntropy)?;
        let shown = hex(&bytes);
        let secret = Digest::of(&[shown.as_bytes()]);
        let text = format!("{PREFIX}{id}_{shown}");
        Ok(Self { id, secret, text })
    }

    /// The whole token: for the one answer or file that hands it over.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Writes it to a file that only its owner can read; an existing file is replaced.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write_to(&self, path: &Path) -> std::io::Result<()> {
        place::write_private(path, &path.with_extension("new"), &[self.text.as_bytes(), b"\n"])
    }
}

/// The token of a development hub: every scope, in memory only (semantics 37). `Debug` hides it.
#[derive(Clone)]
pub struct DevToken {
    hash: Digest,
    /// The namespace that calls without `Reach-Namespace` mean.
    pub namespace: Namespace,
}

impl fmt::Debug for DevToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevToken").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// The development token is too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a development token has at least {MIN_DEV_TOKEN} characters")]
pub struct DevTokenTooShort;

impl DevToken {
    /// Takes the token as it is.
    ///
    /// # Errors
    /// [`DevTokenTooShort`] below [`MIN_DEV_TOKEN`] characters.
    pub fn new(text: &str, namespace: Namespace) -> Result<Self, DevTokenTooShort> {
        if text.chars().count() < MIN_DEV_TOKEN {
            return Err(DevTokenTooShort);
        }
        Ok(Self { hash: Digest::of(&[text.as_bytes()]), namespace })
    }
}

/// A token that verified, with what it may do.
#[derive(Debug, Clone)]
pub enum Grant {
    /// The development token: everything.
    Dev(Namespace),
    /// A token of the ledger, as it stood when the call came.
    Stored(Arc<Access>, TokenId),
}

impl Grant {
    /// The token's facts; `None` for the development token.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        match self {
            Self::Dev(_) => None,
            Self::Stored(access, id) => access.tokens.get(id),
        }
    }
}

/// Verifies what a caller shows. Absent, revoked, expired and wrong tokens are one and the same `None`.
#[must_use]
pub fn verify(shown: &str, access: &Arc<Access>, dev: Option<&DevToken>, now: Timestamp) -> Option<Grant> {
    if let Some((id, secret)) = split(shown)
        && let Ok(id) = TokenId::new(id)
        && let Some(token) = access.tokens.get(&id)
    {
        let digest = Digest::of(&[secret.as_bytes()]);
        let current = same(&token.secret, &digest);
        let previous = token.previous.is_some_and(|(old, until)| same(&old, &digest) && now < until);
        let expired = token.expires_at.is_some_and(|end| now >= end);
        return ((current || previous) && !expired).then(|| Grant::Stored(Arc::clone(access), id));
    }
    let dev = dev?;
    same(&dev.hash, &Digest::of(&[shown.as_bytes()])).then(|| Grant::Dev(dev.namespace.clone()))
}

/// The token with every scope everywhere that a first start makes for its operator.
#[must_use]
pub fn admin(minted: &Minted, now: Timestamp) -> Token {
    Token {
        id: minted.id.clone(),
        name: "admin".into(),
        secret: minted.secret,
        previous: None,
        scopes: Scope::ALL.to_vec(),
        reach: Reach::All,
        agents: vec!["*".into()],
        capabilities: Vec::new(),
        expires_at: None,
        created_at: now,
    }
}

fn split(shown: &str) -> Option<(&str, &str)> {
    // The secret is hex, so the last underscore parts the two whatever the id holds.
    shown.strip_prefix(PREFIX)?.rsplit_once('_').filter(|(_, secret)| secret.len() == 64)
}

/// Compares without telling by its time where the first difference is.
fn same(a: &Digest, b: &Digest) -> bool {
    let difference = a.0.iter().zip(b.0.iter()).fold(0u8, |seen, (x, y)| seen | (x ^ y));
    std::hint::black_box(difference) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access_with(token: Token) -> Arc<Access> {
        let mut access = Access::default();
        access.tokens.insert(token.id.clone(), token);
        Arc::new(access)
    }

    #[test]
    fn a_drawn_token_verifies_and_one_changed_character_does_not() {
        let minted = Minted::draw().unwrap();
        let access = access_with(admin(&minted, Timestamp(0)));
        assert!(verify(minted.expose(), &access, None, Timestamp(1)).is_some());
        let mut wrong = minted.expose().to_owned();
        let last = wrong.pop().unwrap();
        wrong.push(if last == '0' { '1' } else { '0' });
        assert!(verify(&wrong, &access, None, Timestamp(1)).is_none());
        assert!(!format!("{minted:?}").contains(minted.expose().rsplit_once('_').unwrap().1));
    }

    #[test]
    fn an_expired_token_and_a_secret_past_its_overlap_do_not_verify() {
        let old = Minted::draw().unwrap();
        let new = Minted::draw_for(old.id.clone()).unwrap();
        let mut token = admin(&new, Timestamp(0));
        token.previous = Some((old.secret, Timestamp(10)));
        token.expires_at = Some(Timestamp(20));
        let access = access_with(token);
        assert!(verify(old.expose(), &access, None, Timestamp(9)).is_some());
        assert!(verify(old.expose(), &access, None, Timestamp(10)).is_none());
        assert!(verify(new.expose(), &access, None, Timestamp(19)).is_some());
        assert!(verify(new.expose(), &access, None, Timestamp(20)).is_none());
    }

    #[test]
    fn semantics_37_the_development_token_is_taken_as_it_is_from_16_characters() {
        let namespace = Namespace::new("dev").unwrap();
        assert!(DevToken::new("fifteen-letters", namespace.clone()).is_err());
        let dev = DevToken::new("sixteen-letters!", namespace).unwrap();
        let access = Arc::new(Access::default());
        assert!(matches!(verify("sixteen-letters!", &access, Some(&dev), Timestamp(0)), Some(Grant::Dev(_))));
        assert!(verify("sixteen-letters?", &access, Some(&dev), Timestamp(0)).is_none());
        assert!(verify("", &access, None, Timestamp(0)).is_none());
    }

    #[test]
    fn a_token_file_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.token");
        let minted = Minted::draw().unwrap();
        minted.write_to(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), minted.expose());
    }
}
