//! Who offers what: derived from the agents, shared with readers that must not ask the sequencer for every submission.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::ids::{AgentId, Capability, Digest, Namespace};
use crate::ledger::machine::agent::Sensitive;

/// One registered capability: some agent that is neither offline nor deregistered declares it (semantics 34).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Who declares it, lost ones included.
    pub providers: BTreeSet<AgentId>,
    /// For every provider the schemas that a payload must pass there; one set each, without doubles.
    pub schema_sets: BTreeSet<Vec<Digest>>,
    /// Tasks that all providers together may have pending: the sum of their `max_pending` (semantics 22).
    pub max_pending: u64,
    /// Does any provider hold its tasks for approval?
    pub sensitive: Sensitive,
}

/// Every registered capability.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    /// By namespace and capability. Shared part by part: readers keep what they have while one entry changes.
    pub entries: BTreeMap<Namespace, Arc<BTreeMap<Capability, Arc<Entry>>>>,
}

impl Catalog {
    /// The entry of a capability.
    #[must_use]
    pub fn of(&self, namespace: &Namespace, capability: &Capability) -> Option<&Entry> {
        self.entries.get(namespace)?.get(capability).map(Arc::as_ref)
    }

    /// Every capability of a namespace, by name.
    pub fn in_namespace<'a>(&'a self, namespace: &'a Namespace) -> impl Iterator<Item = (&'a Capability, &'a Entry)> {
        let entries = self.entries.get(namespace).into_iter().flat_map(|entries| entries.iter());
        entries.map(|(capability, entry)| (capability, &**entry))
    }
}
