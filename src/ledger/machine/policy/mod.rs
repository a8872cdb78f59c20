//! Thresholds and bounds as facts, per namespace, changed while running (R-REG-5, R-RTE-10).

pub(in crate::ledger::machine) mod apply;
pub(in crate::ledger::machine) mod decide;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{Capability, Namespace};
use crate::ledger::machine::task::spec::{SlowPolicy, Text};

/// The most missed heartbeats until `unhealthy`.
pub const MAX_MISSED: u32 = 1_000;
/// The most replays a second.
pub const MAX_REPLAY_RATE: u32 = 100_000;
/// The largest lane (semantics 22).
pub const MAX_LANE_BOUND: u32 = 1_000_000;
/// The largest namespace (semantics 22).
pub const MAX_NAMESPACE_BOUND: u32 = 10_000_000;

/// The rules of one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Missed heartbeats until `unhealthy`, 1 to 1,000; default 3 (R-REG-5).
    pub unhealthy_after: u32,
    /// Missed heartbeats until `lost`, more than `unhealthy_after`; default 9 (R-REG-5).
    pub lost_after: u32,
    /// Orphans replayed a second, 1 to 100,000; default 20 (R-REC-2).
    pub replays_per_second: u32,
    /// Queued tasks in one lane; default 100,000 (semantics 22).
    pub lane_bound: u32,
    /// Unfinished tasks in the namespace; default 1,000,000 (semantics 22).
    pub namespace_bound: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            unhealthy_after: 3,
            lost_after: 9,
            replays_per_second: 20,
            lane_bound: 100_000,
            namespace_bound: 1_000_000,
        }
    }
}

/// The rules of the whole hub, over all namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubPolicy {
    /// Replays a second over all namespaces, sweeps and plans together, 1 to 100,000; default 1,000 (R-REC-2): a sixth
    /// of the lives that a hub on two cores carries through, so that an incident in one namespace leaves room for the
    /// daily work of all (docs/performance.md).
    pub replays_per_second: u32,
}

impl Default for HubPolicy {
    fn default() -> Self {
        Self { replays_per_second: 1_000 }
    }
}

/// The longest name of an owner, in bytes.
pub const MAX_OWNER: usize = 128;

/// The rules of one capability, for tasks that say nothing themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityRules {
    /// What happens to a slow task; a hand-over holds for idempotent ones only, others wait (S9).
    pub slow_reach: SlowPolicy,
    /// Who looks after slow tasks: a name for people, at most 128 bytes.
    pub owner: Option<Text>,
}

/// The capabilities with rules of their own.
pub type RulesByCapability = BTreeMap<(Namespace, Capability), CapabilityRules>;

/// Every namespace that departs from the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// By namespace.
    pub by_namespace: BTreeMap<Namespace, Policy>,
}

impl Policies {
    /// The rules that hold in `namespace`.
    #[must_use]
    pub fn of(&self, namespace: &Namespace) -> Policy {
        self.by_namespace.get(namespace).cloned().unwrap_or_default()
    }
}
