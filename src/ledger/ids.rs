//! Identifiers and digests.
//!
//! Why newtypes: a `ReachId` handed where a `BatchId` belongs must not compile, and an id that prints with its
//! prefix cannot be mistaken in a log. Text ids share one alphabet (`[A-Za-z0-9._:-]{1,128}`) so that no id can
//! carry a path, a control character or a bidirectional trick into a log line, a URL or a file name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The longest text id, in bytes.
pub const MAX_ID_LEN: usize = 128;

/// Why a text is not an id. The API shows a precise refusal for bodies and the plain 404 for paths (semantics 37).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Empty, or longer than [`MAX_ID_LEN`].
    #[error("an id has 1 to {MAX_ID_LEN} characters, this one has {0}")]
    Length(usize),
    /// A character outside `[A-Za-z0-9._:-]`.
    #[error("an id has only letters, digits and . _ : - (found {0:?})")]
    Character(char),
    /// A capability without its two parts.
    #[error("a capability is written domain.task_type")]
    Capability,
    /// Not `prefix_` and 26 characters of base32.
    #[error("expected {0}_ and 26 characters of base32")]
    TypeId(&'static str),
    /// An id, but of another kind of thing.
    #[error("expected {expected}_ and 26 characters of base32; this is the id of a {found}")]
    OtherKind {
        /// The prefix that it should have.
        expected: &'static str,
        /// What it is an id of.
        found: &'static str,
    },
}

fn check_text_id(text: &str) -> Result<(), IdError> {
    if text.is_empty() || text.len() > MAX_ID_LEN {
        return Err(IdError::Length(text.chars().count()));
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-'))) {
        Some(c) => Err(IdError::Character(c)),
        None => Ok(()),
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses the id strictly.
            ///
            /// # Errors
            /// [`IdError`] when the text is empty, too long or has a character outside the alphabet.
            pub fn new(text: &str) -> Result<Self, IdError> {
                check_text_id(text)?;
                Ok(Self(text.into()))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
    };
}

text_id!(
    /// A namespace: nothing of one can be read, changed or inferred from another (R-REG-10).
    Namespace
);
text_id!(
    /// An agent's stable and immutable name inside its namespace (R-REG-1).
    AgentId
);
text_id!(
    /// A session: its tasks stay together and in order (R-RTE-5).
    SessionId
);
text_id!(
    /// The public part of a bearer token, by which it is looked up.
    TokenId
);
text_id!(
    /// What the queue is shared fairly by: the caller's token unless the task names another (design 5).
    FairnessKey
);

/// A capability, `domain.task_type`: what a task needs and an agent offers (R-REG-2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Capability(Arc<str>);

impl Capability {
    /// Parses `domain.task_type`; the first dot parts the two.
    ///
    /// # Errors
    /// [`IdError`] when a part is missing or a character is outside the alphabet.
    pub fn new(text: &str) -> Result<Self, IdError> {
        check_text_id(text)?;
        match text.split_once('.') {
            Some((domain, kind)) if !domain.is_empty() && !kind.is_empty() => Ok(Self(text.into())),
            Some(_) | None => Err(IdError::Capability),
        }
    }

    /// The capability as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capability({})", self.0)
    }
}

impl FromStr for Capability {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

const BASE32: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Writes 16 bytes as the 26 base32 characters of a TypeID (Crockford alphabet, lower case, most significant first).
fn base32(bytes: [u8; 16]) -> String {
    let mut value = u128::from_be_bytes(bytes);
    let mut out = [0u8; 26];
    for slot in out.iter_mut().rev() {
        let index = usize::try_from(value & 31).unwrap_or(0);
        *slot = BASE32.get(index).copied().unwrap_or(b'0');
        value >>= 5;
    }
    out.iter().map(|b| char::from(*b)).collect()
}

fn unbase32(text: &str) -> Option<[u8; 16]> {
    if text.len() != 26 || text.as_bytes().first().is_none_or(|b| *b > b'7') {
        return None;
    }
    let mut value: u128 = 0;
    for byte in text.bytes() {
        let digit = BASE32.iter().position(|b| *b == byte)?;
        value = (value << 5) | u128::try_from(digit).ok()?;
    }
    Some(value.to_be_bytes())
}

/// What has an id with its kind in front.
const KINDS: [(&str, &str); 4] = [
    (ReachId::PREFIX, "task"),
    (BatchId::PREFIX, "batch"),
    (ReplayId::PREFIX, "replay plan"),
    (CallbackId::PREFIX, "callback"),
];

/// What a text is the id of, if it has its kind in front: the text alone says so, whether there is such a thing or not.
#[must_use]
pub fn kind_of(text: &str) -> Option<&'static str> {
    let (prefix, rest) = text.split_once('_')?;
    let (_, kind) = KINDS.iter().find(|(known, _)| *known == prefix)?;
    unbase32(rest).map(|_| *kind)
}

/// Why a text is no id with this prefix.
fn no_type_id(expected: &'static str, text: &str) -> IdError {
    match kind_of(text) {
        Some(found) => IdError::OtherKind { expected, found },
        None => IdError::TypeId(expected),
    }
}

macro_rules! type_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// The prefix before the underscore.
            pub const PREFIX: &'static str = $prefix;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), base32(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix(concat!($prefix, "_"))
                    .and_then(unbase32)
                    .map(Self)
                    .ok_or_else(|| no_type_id($prefix, text))
            }
        }
    };
}

type_id!(
    /// A task's id: a UUIDv7 in TypeID form, so ids sort by time (design 4).
    ReachId,
    "reach"
);
type_id!(
    /// A batch's id.
    BatchId,
    "batch"
);
type_id!(
    /// A replay plan's id.
    ReplayId,
    "replay"
);
type_id!(
    /// A callback's id, the `webhook-id` of every try: stable over retries, derived from lineage and the seq it tells.
    CallbackId,
    "msg"
);

impl CallbackId {
    /// The id of the callback that tells the event at `seq`: the same event always gives the same id (C1).
    #[must_use]
    pub fn of(lineage: Lineage, seq: Seq) -> Self {
        let digest = Digest::of(&[b"callback", &lineage.0, &seq.0.to_be_bytes()]);
        let mut id = [0; 16];
        id.copy_from_slice(digest.0.split_at(16).0);
        Self(id)
    }
}

impl ReplayId {
    /// The id of the task that this plan makes of an ended one. Derived, so that a plan that goes on after a crash makes
    /// the same one, and with the plan's own time in front, so that ids still sort by time.
    #[must_use]
    pub fn successor(self, of: ReachId) -> ReachId {
        let digest = Digest::of(&[b"redrive", &self.0, &of.0]);
        let mut id = self.0;
        for (to, from) in id.iter_mut().zip(digest.0).skip(TIME_LEN) {
            *to = from;
        }
        // A UUIDv7 still (RFC 9562): version 7 and variant 10.
        let [_, _, _, _, _, _, version, _, variant, ..] = &mut id;
        *version = 0x70 | (*version & 0x0f);
        *variant = 0x80 | (*variant & 0x3f);
        ReachId(id)
    }
}

/// Bytes of a UUIDv7 that are its time in milliseconds.
const TIME_LEN: usize = 6;

/// An event's place in the ledger: global, dense from 1 (D2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl Seq {
    /// The place after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The n-th dispatch of a task, dense from 1: the fencing token (S4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct AttemptNo(pub u32);

impl AttemptNo {
    /// The attempt after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The n-th process under one agent id, from 1; fences the older ones (R-REG-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Incarnation(pub u32);

/// The n-th start of the hub on one data folder, from 1; never falls (D2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Boot(pub u32);

/// The identity of one unbroken history (semantics 24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Lineage(pub [u8; 16]);

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

/// W3C trace id and span id of the caller, as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// Trace id, not all zero.
    pub trace_id: [u8; 16],
    /// The caller's span id.
    pub span_id: [u8; 8],
    /// Trace flags.
    pub flags: u8,
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        write_hex(f, &self.trace_id)?;
        f.write_str("-")?;
        write_hex(f, &self.span_id)?;
        write!(f, "-{:02x}", self.flags)
    }
}

impl FromStr for TraceContext {
    type Err = IdError;
    /// Parses a version-00 `traceparent` (W3C Trace Context, section 3.2).
    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = IdError::TypeId("traceparent");
        let mut parts = text.split('-');
        let (Some("00"), Some(trace), Some(span), Some(flags), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad);
        };
        let (Some(trace_id), Some(span_id), Some([flags])) = (unhex::<16>(trace), unhex::<8>(span), unhex::<1>(flags))
        else {
            return Err(bad);
        };
        if trace_id == [0; 16] || span_id == [0; 8] {
            return Err(bad);
        }
        Ok(Self { trace_id, span_id, flags })
    }
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// SHA-256 over the parts laid end to end.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl FromStr for Digest {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        unhex::<32>(text).map(Self).ok_or(IdError::TypeId("sha256"))
    }
}

/// SHA-256 of a lease token: all that the ledger ever holds of a lease (semantics 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LeaseDigest(pub Digest);

/// An agent inside its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AgentKey {
    /// The namespace that it is reachable in.
    pub namespace: Namespace,
    /// Its stable id.
    pub agent_id: AgentId,
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or('0');
    // Written at once: every answer holds a receipt's hash, and formatting byte by byte showed in the profile.
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    f.write_str(&text)
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != N * 2 || !text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return None;
    }
    let mut out = [0; N];
    for (slot, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *slot = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_id_prints_and_parses_to_the_same_id() {
        let id = ReachId([0x01, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xff]);
        let text = id.to_string();
        assert_eq!(text.len(), "reach_".len() + 26);
        assert_eq!(text.parse::<ReachId>(), Ok(id));
        assert!(text.parse::<BatchId>().is_err());
        assert!("reach_81h455vb4pex5vsknk084sn02q".parse::<ReachId>().is_err(), "more than 128 bits");
    }

    #[test]
    fn a_text_id_refuses_what_could_travel_into_a_path_or_a_log() {
        for bad in ["", "a/b", "..\\x", "a\0", "a\r\nb", "\u{202e}a", "a b", &"x".repeat(129)] {
            assert!(AgentId::new(bad).is_err(), "{bad:?}");
        }
        assert!(AgentId::new("weather-1.eu:2_b").is_ok());
        assert_eq!(Capability::new("weather"), Err(IdError::Capability));
    }

    #[test]
    fn a_traceparent_round_trips_and_zero_ids_are_refused() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(text.parse::<TraceContext>().map(|t| t.to_string()).as_deref(), Ok(text));
        assert!("00-00000000000000000000000000000000-00f067aa0ba902b7-01".parse::<TraceContext>().is_err());
    }
}
