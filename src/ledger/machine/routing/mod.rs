//! Routing rules as facts: how the tasks of a capability are given out, in its namespace (R-RTE-10).
//!
//! Why beside what agents declare: an operator changes them while the agents run, and says why. Each change is a version
//! that can be taken back; what is left out is as the agents ask for.

pub(in crate::ledger::machine) mod apply;
pub(in crate::ledger::machine) mod decide;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{AgentId, Capability, Namespace};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::Strategy;
use crate::ledger::time::Timestamp;

/// Agents that the rules of one capability give a weight.
pub const MAX_WEIGHTS: usize = 256;
/// The largest weight; the smallest is 1.
pub const MAX_WEIGHT: u32 = 1_000;
/// Versions of one capability's rules that can be taken back.
pub const MAX_UNDO: usize = 8;

/// Does only the highest declared priority that is open compete?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tiers {
    /// All compete.
    #[default]
    No,
    /// The next priority's turn comes when all above are full or excluded.
    Yes,
}

/// How the tasks of one capability are given out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingRules {
    /// The strategy; `None` for what its agents ask for.
    pub strategy: Option<Strategy>,
    /// Weights in place of the declared ones, 1 to [`MAX_WEIGHT`], of at most [`MAX_WEIGHTS`] agents.
    pub weights: BTreeMap<AgentId, u32>,
    /// Are priorities tiers?
    pub tiers: Tiers,
}

/// What an operator wants of the rules of a capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoutingChange {
    /// These; those that say nothing take the rules back.
    Set(RoutingRules),
    /// The version before.
    Undo,
}

/// The rules of one capability, as they stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingEntry {
    /// Their version, from 1; every change has the next one.
    pub version: u32,
    /// The rules; `None` where they were taken back.
    pub rules: Option<Arc<RoutingRules>>,
    /// Since when.
    pub since: Timestamp,
    /// What held before, oldest first, at most [`MAX_UNDO`]: an undo takes the last.
    pub before: Vec<Option<Arc<RoutingRules>>>,
}

/// The capabilities that have, or had, routing rules.
pub type RoutingByCapability = BTreeMap<Namespace, BTreeMap<Capability, RoutingEntry>>;

impl State {
    /// Routing rules by namespace and capability.
    #[must_use]
    pub const fn routing_rules(&self) -> &Arc<RoutingByCapability> {
        &self.routing_rules
    }

    /// The routing rules of a capability; `None` where there never were any.
    #[must_use]
    pub fn routing_of(&self, namespace: &Namespace, capability: &Capability) -> Option<&RoutingEntry> {
        self.routing_rules.get(namespace)?.get(capability)
    }
}
