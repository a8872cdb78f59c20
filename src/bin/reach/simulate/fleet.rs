//! Agents as they declare themselves, and the rules by which their hub gives them tasks.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{AgentId, AgentKey, Capability, Digest, Namespace};
use agent_reach::ledger::machine::agent::{
    CapabilityKind, DEFAULT_CONCURRENCY, DEFAULT_PRIORITY, DEFAULT_WEIGHT, Declaration, MAX_PENDING, Offer,
    ProgressRule, Sensitive, Strategy, Transport,
};
use agent_reach::ledger::machine::routing::{RoutingRules, Tiers};
use agent_reach::ledger::time::Millis;
use agent_reach::scheduler::whatif::{Fleet, Worker};
use serde_json::Value;

use crate::client::Client;
use crate::exit::{Code, Outcome};
use crate::output::field;

use super::asked::{text, texts};

/// Agents of a fleet at most.
const MAX_AGENTS: usize = 10_000;

/// A capability that is offered with every default.
pub(super) fn offer(capability: Capability) -> Offer {
    Offer {
        capability,
        kind: CapabilityKind::Service,
        schemas: Vec::new(),
        tools: Vec::new(),
        languages: Vec::new(),
        context_window: None,
        weight: DEFAULT_WEIGHT,
        priority: DEFAULT_PRIORITY,
        strategy: None,
        progress: ProgressRule::Shows,
        sensitive: Sensitive::No,
    }
}

/// An agent that declares every default. It reports no load, so none keeps work from it.
pub(super) fn declaration(offers: Vec<Offer>) -> Declaration {
    Declaration {
        version: None,
        region: None,
        offers,
        transport: Transport::Pull,
        heartbeat_interval: Millis::secs(5),
        max_concurrency: DEFAULT_CONCURRENCY,
        max_pending: MAX_PENDING,
        priority: DEFAULT_PRIORITY,
        load_threshold_milli: 900,
        allowed_callers: Vec::new(),
        body: Digest::default(),
    }
}

/// A fleet, and what is to be said of it.
pub(super) struct Found {
    pub(super) fleet: Fleet,
    pub(super) left_out: Vec<String>,
}

/// Those who took part, and those who are there and could have, with the rules of the namespace.
pub(super) async fn found(client: &Client, namespace: &Namespace, took_part: &BTreeSet<AgentId>) -> Outcome<Found> {
    let listed = client.list(&["v1", "agents"], &[], MAX_AGENTS).await?;
    let (mut names, mut idle) = (took_part.clone(), 0_usize);
    for agent in &listed.items {
        let Some(name) = text(agent, "agent_id").and_then(|name| name.parse::<AgentId>().ok()) else { continue };
        let is_there = text(agent, "health") != Some("lost") && text(agent, "standing") == Some("active");
        if is_there {
            names.insert(name);
        } else if !took_part.contains(&name) {
            idle += 1;
        }
    }
    let (mut workers, mut gone) = (Vec::new(), Vec::new());
    for name in names {
        match client.get(&["v1", "agents", name.as_str()], &[]).await {
            Ok(detail) => workers.push(worker(namespace, name, &detail)),
            Err(failure) if failure.code() == Code::NotFound => gone.push(name.to_string()),
            Err(failure) => return Err(failure),
        }
    }
    let mut left_out = Vec::new();
    if idle > 0 {
        left_out.push(format!("{idle} agents that are lost or drain, and took no part, are not there"));
    }
    if !gone.is_empty() {
        left_out.push(format!("of {} the hub no longer knows what they declared: they are not there", gone.join(", ")));
    }
    let policies = client.get(&["v1", "policies"], &[]).await?;
    Ok(Found { fleet: Fleet { workers, rules: rules(namespace, &policies) }, left_out })
}

fn number(of: &Value, name: &str) -> Option<u32> {
    of.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok())
}

fn worker(namespace: &Namespace, name: AgentId, detail: &Value) -> Worker {
    let declared = detail.get("declaration").cloned().unwrap_or_default();
    let weight = number(&declared, "weight").unwrap_or(DEFAULT_WEIGHT);
    let priority = number(&declared, "priority").unwrap_or(DEFAULT_PRIORITY);
    let capabilities = declared.get("capabilities").and_then(Value::as_array).into_iter().flatten();
    let offers = capabilities.filter_map(|offered| {
        let name = text(offered, "capability").map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("{}.{}", field(offered, "/domain"), field(offered, "/task_type")));
        Some(Offer {
            tools: texts(offered.get("tools")),
            languages: texts(offered.get("languages")),
            context_window: number(offered, "context_window"),
            weight: number(offered, "weight").unwrap_or(weight),
            priority: number(offered, "priority").unwrap_or(priority),
            strategy: strategy(text(offered, "strategy")),
            ..offer(Capability::new(&name).ok()?)
        })
    });
    let declaration = Declaration {
        version: text(&declared, "version").map(Into::into),
        region: text(detail, "region").map(Into::into),
        max_concurrency: number(detail, "max_concurrency").unwrap_or(DEFAULT_CONCURRENCY),
        max_pending: number(detail, "max_pending").unwrap_or(MAX_PENDING),
        priority,
        ..declaration(offers.collect())
    };
    // What waits inside it stands in its recorded times.
    let at_once = declaration.max_concurrency;
    Worker {
        agent: AgentKey { namespace: namespace.clone(), agent_id: name },
        declaration,
        at_once,
        speeds: BTreeMap::new(),
    }
}

fn strategy(name: Option<&str>) -> Option<Strategy> {
    Strategy::ALL.into_iter().find(|one| Some(one.name()) == name)
}

fn rules(namespace: &Namespace, policies: &Value) -> BTreeMap<(Namespace, Capability), RoutingRules> {
    let held = policies.get("routing").and_then(Value::as_object).into_iter().flatten();
    let rule = |(capability, entry): (&String, &Value)| {
        let rules = entry.get("rules").filter(|rules| !rules.is_null())?;
        let weights = rules.get("weights").and_then(Value::as_object).into_iter().flatten();
        let weight =
            |(agent, weight): (&String, &Value)| Some((agent.parse().ok()?, weight.as_u64()?.try_into().ok()?));
        let rules = RoutingRules {
            strategy: strategy(text(rules, "strategy")),
            weights: weights.filter_map(weight).collect(),
            tiers: if rules.get("tiers") == Some(&Value::Bool(true)) { Tiers::Yes } else { Tiers::No },
        };
        Some(((namespace.clone(), Capability::new(capability).ok()?), rules))
    };
    held.filter_map(rule).collect()
}
