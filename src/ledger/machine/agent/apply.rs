//! The moves of agents: what each event changes, and what is derived from the agents (timers, catalog, drains).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::ids::AgentKey;
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Agent, Declaration, Health, Sensitive, Standing};
use crate::ledger::machine::bounds::Census;
use crate::ledger::machine::catalog::Entry;
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::event::{AgentRegistered, Event, EventBody};
use crate::ledger::machine::step::ImpossibleTransition;

/// Applies an agent's event; `step.rs` sends no other here.
///
/// # Errors
/// [`ImpossibleTransition`] when the event cannot follow on this state: a bug or a damaged log.
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    let key = key_of(event)?;
    match &event.body {
        EventBody::AgentRegistered(body) => registered(state, event, key, body),
        EventBody::AgentUpdated(body) => {
            let declaration = Arc::new(body.declaration.clone());
            change(state, event, key, |agent| agent.declaration = declaration)
        }
        EventBody::AgentDraining(body) => {
            change(state, event, key, |agent| agent.standing = Standing::Draining { until: body.until })
        }
        EventBody::AgentUnhealthy(_) => change(state, event, key, |agent| agent.health = Health::Unhealthy),
        EventBody::AgentLost(_) => change(state, event, key, |agent| agent.health = Health::Lost),
        EventBody::AgentHealthy(_) => change(state, event, key, |agent| {
            if agent.health == Health::Lost {
                agent.returned_at = Some(event.at);
            }
            agent.health = Health::Healthy;
        }),
        EventBody::AgentLeft(_) => change(state, event, key, |agent| agent.standing = Standing::Offline),
        EventBody::AgentDeregistered(_) => change(state, event, key, |agent| agent.standing = Standing::Deregistered),
        EventBody::AgentTold(body) => change(state, event, key, |agent| {
            agent.told.insert((body.task, body.attempt));
        }),
        EventBody::AgentSlotFreed(body) => change(state, event, key, |agent| {
            agent.ghosts.remove(&(body.task, body.attempt));
            agent.told.remove(&(body.task, body.attempt));
        }),
        _ => Err(ImpossibleTransition::of(event, "not an agent's event")),
    }
}

fn key_of(event: &Event) -> Result<AgentKey, ImpossibleTransition> {
    let namespace = event.namespace.clone();
    let names = namespace.zip(event.body.agent().cloned());
    let (namespace, agent_id) = names.ok_or_else(|| ImpossibleTransition::of(event, "no agent is named"))?;
    Ok(AgentKey { namespace, agent_id })
}

fn registered(
    state: &mut State,
    event: &Event,
    key: AgentKey,
    body: &AgentRegistered,
) -> Result<(), ImpossibleTransition> {
    let declaration = Arc::new(body.declaration.clone());
    if state.agents.contains_key(&key) {
        return change(state, event, key, |agent| {
            agent.incarnation = body.incarnation;
            agent.instance.clone_from(&body.instance);
            agent.declaration = declaration;
            agent.health = Health::Healthy;
            agent.standing = Standing::Active;
        });
    }
    let agent = Agent {
        key: key.clone(),
        incarnation: body.incarnation,
        instance: body.instance.clone(),
        declaration,
        health: Health::Healthy,
        standing: Standing::Active,
        held: BTreeSet::new(),
        ghosts: BTreeMap::new(),
        told: BTreeSet::new(),
        registered_at: event.at,
        returned_at: None,
    };
    count(state, &agent);
    state.agents.insert(key.clone(), agent);
    list(state, &key);
    reindex(state, &key);
    Ok(())
}

/// Changes an agent that must be there, and whatever is derived from it.
fn change(
    state: &mut State,
    event: &Event,
    key: AgentKey,
    change: impl FnOnce(&mut Agent),
) -> Result<(), ImpossibleTransition> {
    let agent = state.agents.get_mut(&key).ok_or_else(|| ImpossibleTransition::of(event, "the agent is unknown"))?;
    let before = (listed(agent.standing), Arc::clone(&agent.declaration));
    change(agent);
    let is_listed = listed(agent.standing);
    // An agent that registers again as it was changes nothing for anybody.
    let is_other = before.0 != is_listed || before.1 != agent.declaration;
    match (before.0, is_listed) {
        (Listed::Yes, Listed::No) => state.count_in(&key.namespace, |n| n.agents = n.agents.saturating_sub(1)),
        (Listed::No, Listed::Yes) => state.count_in(&key.namespace, |n| n.agents = n.agents.saturating_add(1)),
        (Listed::Yes, Listed::Yes) | (Listed::No, Listed::No) => {}
    }
    if is_other {
        let was = Listing { key: &key, listed: before.0, declaration: &before.1 };
        unlist(state, &was);
        list(state, &key);
    }
    reindex(state, &key);
    Ok(())
}

/// Sets the agent's timer and its place among the draining ones anew. Whoever changes ghosts or standing calls it.
pub(in crate::ledger::machine) fn reindex(state: &mut State, key: &AgentKey) {
    let agent = state.agents.get(key);
    state.due.set(Subject::Agent(key.clone()), agent.and_then(Agent::wake_at));
    match agent.map(|agent| agent.standing) {
        Some(Standing::Draining { .. }) => {
            state.draining.insert(key.clone());
        }
        Some(Standing::Active | Standing::Offline | Standing::Deregistered) | None => {
            state.draining.remove(key);
        }
    }
}

/// Counts an agent that was not known.
fn count(state: &mut State, agent: &Agent) {
    let takes_part = u32::from(listed(agent.standing) == Listed::Yes);
    state.count_in(&agent.key.namespace, |census| {
        census.agent_ids = census.agent_ids.saturating_add(1);
        census.agents = census.agents.saturating_add(takes_part);
    });
}

/// Derives everything that comes from the agents alone (timers, drains, catalog, counts), after a snapshot was read.
pub(in crate::ledger::machine) fn rebuild(state: &mut State) {
    let agents: Vec<Agent> = state.agents.values().cloned().collect();
    state.catalog = Arc::default();
    state.draining.clear();
    let namespaces: Vec<_> = state.census.keys().cloned().collect();
    for namespace in namespaces {
        state.count_in(&namespace, |census| *census = Census { agents: 0, agent_ids: 0, ..*census });
    }
    for agent in agents {
        count(state, &agent);
        let key = agent.key;
        list(state, &key);
        reindex(state, &key);
    }
}

/// Is what it declares on offer? Lost and draining agents count, gone ones do not (semantics 34).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    Yes,
    No,
}

const fn listed(standing: Standing) -> Listed {
    match standing {
        Standing::Active | Standing::Draining { .. } => Listed::Yes,
        Standing::Offline | Standing::Deregistered => Listed::No,
    }
}

/// What stood in the catalog for an agent.
struct Listing<'a> {
    key: &'a AgentKey,
    listed: Listed,
    declaration: &'a Declaration,
}

const fn empty() -> Entry {
    Entry { providers: BTreeSet::new(), schema_sets: BTreeSet::new(), max_pending: 0, sensitive: Sensitive::No }
}

fn list(state: &mut State, key: &AgentKey) {
    let Some(agent) = state.agents.get(key).filter(|agent| listed(agent.standing) == Listed::Yes) else { return };
    // Readers hold the catalog: what is copied is the namespace's list of names and the entries that change.
    let catalog = Arc::make_mut(&mut state.catalog);
    let entries = Arc::make_mut(catalog.entries.entry(key.namespace.clone()).or_default());
    for offer in &agent.declaration.offers {
        let entry = Arc::make_mut(entries.entry(offer.capability.clone()).or_insert_with(|| Arc::new(empty())));
        if entry.providers.insert(key.agent_id.clone()) {
            entry.max_pending = entry.max_pending.saturating_add(u64::from(agent.declaration.max_pending));
        }
        entry.schema_sets.insert(offer.schemas.clone());
        if offer.sensitive == Sensitive::Yes {
            entry.sensitive = Sensitive::Yes;
        }
    }
}

/// Takes an agent's former offers out. What the entry says of all providers is asked of the others only as far as
/// needed: the first that says the same ends the search, so a fleet of equals stays cheap.
fn unlist(state: &mut State, was: &Listing<'_>) {
    if was.listed == Listed::No {
        return;
    }
    let agents = &state.agents;
    let catalog = Arc::make_mut(&mut state.catalog);
    let Some(entries) = catalog.entries.get_mut(&was.key.namespace).map(Arc::make_mut) else { return };
    for offer in &was.declaration.offers {
        let Some(entry) = entries.get_mut(&offer.capability).map(Arc::make_mut) else { continue };
        if entry.providers.remove(&was.key.agent_id) {
            entry.max_pending = entry.max_pending.saturating_sub(u64::from(was.declaration.max_pending));
        }
        if entry.providers.is_empty() {
            entries.remove(&offer.capability);
            continue;
        }
        let providers = &entry.providers;
        let others = || {
            providers.iter().filter_map(|agent_id| {
                let key = AgentKey { namespace: was.key.namespace.clone(), agent_id: agent_id.clone() };
                agents.get(&key)?.offer(&offer.capability)
            })
        };
        if !others().any(|other| other.schemas == offer.schemas) {
            entry.schema_sets.remove(&offer.schemas);
        }
        if offer.sensitive == Sensitive::Yes && !others().any(|other| other.sensitive == Sensitive::Yes) {
            entry.sensitive = Sensitive::No;
        }
    }
    if entries.is_empty() {
        catalog.entries.remove(&was.key.namespace);
    }
}
