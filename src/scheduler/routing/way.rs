//! How the tasks of a capability are given out: as its rules say (R-RTE-10), and as its agents ask where they say nothing.

use crate::ledger::ids::AgentId;
use crate::ledger::machine::agent::{Offer, Strategy};
use crate::ledger::machine::routing::{RoutingEntry, RoutingRules, Tiers};

/// The strategy and the rules that hold for one decision.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// Which of several candidates.
    pub strategy: Strategy,
    rules: Option<(&'a RoutingRules, u32)>,
}

impl<'a> Way<'a> {
    /// With the rules of the capability, if it has some, and the strategy that most of its agents ask for.
    #[must_use]
    pub fn of(entry: Option<&'a RoutingEntry>, asked: Strategy) -> Self {
        let rules = entry.and_then(|entry| Some((entry.rules.as_deref()?, entry.version)));
        Self::under(rules, asked)
    }

    /// With those rules of that version, or with none.
    #[must_use]
    pub fn under(rules: Option<(&'a RoutingRules, u32)>, asked: Strategy) -> Self {
        let strategy = rules.and_then(|(rules, _)| rules.strategy).unwrap_or(asked);
        Self { strategy, rules }
    }

    /// The version of the rules that hold; `None` where only the agents' word does.
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        self.rules.map(|(_, version)| version)
    }

    /// The weight of an agent, before it is slowed.
    #[must_use]
    pub fn weight(&self, agent: &AgentId, declared: u32) -> u32 {
        let ruled = self.rules.and_then(|(rules, _)| rules.weights.get(agent)).copied();
        ruled.unwrap_or(declared).max(1)
    }

    /// The tier of an offer, the lower the sooner; one for all where priorities are no tiers.
    #[must_use]
    pub fn tier(&self, offer: &Offer) -> u32 {
        self.tier_of(offer.priority)
    }

    /// The tier of a priority.
    #[must_use]
    pub fn tier_of(&self, priority: u32) -> u32 {
        match self.rules.map(|(rules, _)| rules.tiers) {
            Some(Tiers::Yes) => u32::MAX - priority,
            Some(Tiers::No) | None => 0,
        }
    }
}
