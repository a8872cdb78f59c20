//! Tokens as facts: hashes, scopes and bounds. Verification is the API's; here lies what it verifies against.

pub(in crate::ledger::machine) mod apply;
pub(in crate::ledger::machine) mod decide;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{Capability, Digest, Namespace, TokenId};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::Timestamp;

/// What a token may do (R-SEC-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Submit and cancel tasks.
    Submit,
    /// Register and deregister agents.
    Register,
    /// Heartbeat, claim and report.
    Work,
    /// Read tasks, agents and batches.
    Read,
    /// Read histories and the event feed.
    Audit,
    /// Drain, redrive, approve, change policies.
    Operate,
    /// Manage tokens and secrets.
    Admin,
}

impl Scope {
    /// Every scope, in the order of R-SEC-1.
    pub const ALL: [Self; 7] =
        [Self::Submit, Self::Register, Self::Work, Self::Read, Self::Audit, Self::Operate, Self::Admin];

    /// Name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Register => "register",
            Self::Work => "work",
            Self::Read => "read",
            Self::Audit => "audit",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// Where a token holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// One namespace.
    One(Namespace),
    /// Every namespace; the call names it in `Reach-Namespace`.
    All,
}

/// One token: never the secret, only its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Public part, by which it is looked up.
    pub id: TokenId,
    /// What people call it.
    pub name: Text,
    /// SHA-256 of the secret part.
    pub secret: Digest,
    /// The secret before the last rotation, valid until then.
    pub previous: Option<(Digest, Timestamp)>,
    /// What it may do, sorted.
    pub scopes: Vec<Scope>,
    /// Where it holds.
    pub reach: Reach,
    /// Agents it may act as: exact ids, or one trailing `*` (semantics 7).
    pub agents: Vec<Text>,
    /// Capabilities it may call; empty means all.
    pub capabilities: Vec<Capability>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// All tokens that are not revoked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// By public part.
    pub tokens: BTreeMap<TokenId, Token>,
}
