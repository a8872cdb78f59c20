//! Events of tokens and rules: who may do what, and under which bounds.

use crate::ledger::ids::{Capability, Digest, TokenId};
use crate::ledger::machine::access::Token;
use crate::ledger::machine::policy::{CapabilityRules, HubPolicy, Policy};
use crate::ledger::machine::routing::RoutingRules;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::Timestamp;

event_structs! {
    /// A token was made.
    TokenCreated {
        /// The token: hash, scopes, bounds.
        token: Token,
    }
    /// Its secret was replaced; the old one holds for a while.
    TokenRotated {
        /// Which token.
        token: TokenId,
        /// SHA-256 of the new secret.
        secret: Digest,
        /// Until when the old one holds.
        overlap_until: Timestamp,
    }
    /// It is no longer valid, at once.
    TokenRevoked {
        /// Which token.
        token: TokenId,
    }
    /// The rules of one capability of a namespace changed, or ended.
    CapabilityPolicyChanged {
        /// Which capability.
        capability: Capability,
        /// The new rules; `None` for those of the namespace alone.
        rules: Option<CapabilityRules>,
        /// Why.
        reason: Text,
    }
    /// How the tasks of one capability are given out changed.
    RoutingRulesChanged {
        /// Which capability.
        capability: Capability,
        /// The version that holds from now on.
        version: u32,
        /// The new rules; `None` where they were taken back.
        rules: Option<RoutingRules>,
        /// The version that was undone, if this is one that held before.
        undoes: Option<u32>,
        /// Why.
        reason: Text,
    }
    /// The rules of the whole hub changed.
    HubPolicyChanged {
        /// The new rules.
        policy: HubPolicy,
        /// Why.
        reason: Text,
    }
    /// The rules of a namespace changed.
    PolicyChanged {
        /// The new rules.
        policy: Policy,
        /// Why.
        reason: Text,
    }
}
