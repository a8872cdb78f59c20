//! Samples of routing rules.

use std::collections::BTreeMap;

use agent_reach::ledger::ids::{AgentId, Capability};
use agent_reach::ledger::machine::agent::Strategy;
use agent_reach::ledger::machine::event::*;
use agent_reach::ledger::machine::routing::{RoutingRules, Tiers};

use super::agent;

pub(super) fn routing() -> Vec<EventBody> {
    let changed = |version, rules, undoes| {
        let (capability, reason) = (Capability::new("weather.forecast").unwrap(), "a launch".into());
        RoutingRulesChanged { capability, version, rules, undoes, reason }.into()
    };
    let rules = |strategy, weights: &[(AgentId, u32)], tiers| {
        Some(RoutingRules { strategy, weights: weights.iter().cloned().collect::<BTreeMap<_, _>>(), tiers })
    };
    let weights = [(agent(), 20), (AgentId::new("weather-2").unwrap(), 1_000)];
    let mut all: Vec<EventBody> = Strategy::ALL
        .into_iter()
        .zip(1..)
        .map(|(strategy, version)| changed(version, rules(Some(strategy), &weights, Tiers::Yes), None))
        .collect();
    all.push(changed(5, rules(None, &[], Tiers::Yes), Some(4)));
    all.push(changed(6, rules(None, &weights, Tiers::No), None));
    all.push(changed(7, None, None));
    all
}
