//! Who calls, and what they may do.
//!
//! Tokens are facts of the ledger: their hashes, scopes and bounds. Here is the checking: a bearer token is looked up by
//! its public part and its secret compared by hash, in constant time.

pub mod scope;
pub mod token;
