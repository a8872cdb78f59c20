//! How the tasks of a capability are given out, as data: set, taken back, undone, and weighed beforehand (R-RTE-10).

use std::collections::BTreeMap;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::extract::{Caller, Json, NoQuery};
use crate::api::near::one_of;
use crate::api::submission::Faults;
use crate::api::wire::{ReceiptBody, why};
use crate::api::{App, render, submit};
use crate::ledger::handle::Unavailable;
use crate::ledger::ids::{AgentId, Capability, Namespace};
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::agent::Strategy;
use crate::ledger::machine::command::Command;
use crate::ledger::machine::routing::{
    MAX_WEIGHT, MAX_WEIGHTS, RoutingByCapability, RoutingChange, RoutingEntry, RoutingRules, Tiers,
};
use crate::scheduler::decisions::{Otherwise, WhatIf, what_if};
use crate::scheduler::plan::Scheduler;

/// Agents that a warning names.
const NAMED: usize = 5;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(replace))
}

/// How the tasks of one capability are to be given out. What is left out is as its agents ask for; all left out takes
/// the rules back.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct ReplaceRouting {
    /// `domain.task_type`
    capability: String,
    /// `weighted-round-robin`, `least-loaded`, `consistent-hash` or `scored`.
    strategy: Option<String>,
    /// Weights in place of the declared ones, by agent: 1 to 1,000, of 256 agents at most.
    #[schema(value_type = Option<BTreeMap<String, u32>>)]
    weights: Option<BTreeMap<String, Value>>,
    /// Does only the highest priority that is open compete?
    tiers: Option<bool>,
    /// Back to the version before; takes no other rules beside it.
    undo: Option<bool>,
    /// Changes nothing and says what it would have made of the last decisions; needs no reason.
    dry_run: Option<bool>,
    /// Why: it stands in the ledger beside who.
    reason: Option<String>,
}

/// The routing rules of a capability.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct RoutingHolding {
    namespace: String,
    capability: String,
    /// Their version, from 1; 0 where there never were any. Every change has the next one.
    version: u32,
    /// Null where its agents' own word holds.
    #[schema(value_type = Option<Object>)]
    rules: Option<Value>,
    /// Versions that can be undone.
    undoable: usize,
    /// It was so already: nothing was written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    unchanged: bool,
    /// What may not be meant so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    warnings: Vec<String>,
    /// For a dry run: what the rules would have made of the last decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    would_have: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
}

/// Replace how the tasks of one capability are given out, or go back to the version before.
///
/// It holds for the next task that is handed over. The same rules again change nothing and have no receipt.
#[utoipa::path(put, path = "/v1/policies/routing", operation_id = "put_routing_policy", tag = "policies",
    request_body = ReplaceRouting, responses((status = 200, body = RoutingHolding)))]
async fn replace(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    Json(body): Json<ReplaceRouting>,
) -> ApiResult<Json<RoutingHolding>> {
    caller.require(Scope::Operate)?;
    let (capability, change) = wanted(&body)?;
    caller.may_call(&capability)?;
    if body.dry_run == Some(true) {
        return foretell(&app, &caller, capability, change).await.map(Json);
    }
    let reason = why(body.reason.as_deref())?;
    let command = Command::SetRouting { capability: capability.clone(), change: change.clone(), reason };
    let released = app.ledger.propose(caller.proposal(command)).await?;
    let namespace = caller.namespace.clone();
    let entry = app.ledger.ask(move |state| Stand::of(state, (namespace, capability), &change)).await?;
    let mut holding = entry.holding();
    holding.unchanged = released.receipt.is_none();
    holding.receipt = released.receipt.map(Into::into);
    Ok(Json(holding))
}

/// What a body asks for.
fn wanted(body: &ReplaceRouting) -> ApiResult<(Capability, RoutingChange)> {
    let mut faults = Faults::default();
    let capability = faults.id::<Capability>("/capability", &body.capability);
    let weights = weights(body.weights.as_ref(), &mut faults);
    let says_more = body.strategy.is_some() || body.weights.is_some() || body.tiers.is_some();
    if body.undo == Some(true) && says_more {
        faults.add("/undo", "goes back to the version before: leave strategy, weights and tiers out");
    }
    faults.into_result().map_err(submit::invalid)?;
    let strategy = body.strategy.as_deref().map(|word| one_of(word, &Strategy::ALL, Strategy::name));
    let strategy = strategy.transpose().map_err(|no| no.at("/strategy"))?;
    let Some(capability) = capability else { return Err(ApiError::field("/capability", "is missing")) };
    if body.undo == Some(true) {
        return Ok((capability, RoutingChange::Undo));
    }
    let tiers = if body.tiers == Some(true) { Tiers::Yes } else { Tiers::No };
    Ok((capability, RoutingChange::Set(RoutingRules { strategy, weights, tiers })))
}

fn weights(given: Option<&BTreeMap<String, Value>>, faults: &mut Faults) -> BTreeMap<AgentId, u32> {
    let Some(given) = given else { return BTreeMap::new() };
    if given.len() > MAX_WEIGHTS {
        faults.add("/weights", format!("names {} agents; {MAX_WEIGHTS} at most", given.len()));
    }
    if !given.is_empty() && given.values().all(|weight| weight.as_f64() == Some(0.0)) {
        faults.add("/weights", "would leave no agent that gets any work");
    }
    let mut weights = BTreeMap::new();
    for (name, value) in given {
        let pointer = format!("/weights/{}", crate::api::submission::escape(name));
        let agent = faults.id::<AgentId>(&pointer, name);
        let weight = value.as_u64().and_then(|weight| u32::try_from(weight).ok());
        let weight = weight.filter(|weight| (1..=MAX_WEIGHT).contains(weight));
        if weight.is_none() {
            faults.add(&pointer, "a weight is a whole number, 1 to 1,000; who is to get nothing has a breaker");
        }
        weights.extend(agent.zip(weight));
    }
    weights
}

/// How the rules of a capability stand, and what may not be meant so.
struct Stand {
    of: (Namespace, Capability),
    entry: Option<RoutingEntry>,
    warnings: Vec<String>,
}

impl Stand {
    fn of(state: &Ledgered, of: (Namespace, Capability), change: &RoutingChange) -> Self {
        let entry = state.routing_of(&of.0, &of.1).cloned();
        let warnings = match change {
            RoutingChange::Set(rules) => doubts(state, &of, rules),
            RoutingChange::Undo => Vec::new(),
        };
        Self { of, entry, warnings }
    }

    fn holding(self) -> RoutingHolding {
        let Self { of: (namespace, capability), entry, warnings } = self;
        let entry = entry.unwrap_or_default();
        RoutingHolding {
            namespace: namespace.to_string(),
            capability: capability.to_string(),
            version: entry.version,
            rules: entry.rules.as_deref().map(render::routing_rules),
            undoable: entry.before.len(),
            unchanged: false,
            warnings,
            would_have: None,
            receipt: None,
        }
    }
}

/// Weights that nobody has now: a name may be misspelt, or its agent not there yet.
fn doubts(state: &Ledgered, of: &(Namespace, Capability), rules: &RoutingRules) -> Vec<String> {
    let offers = |agent: &&AgentId| {
        let key = crate::ledger::ids::AgentKey { namespace: of.0.clone(), agent_id: (*agent).clone() };
        state.agent(&key).is_some_and(|agent| agent.offer(&of.1).is_some())
    };
    let idle = rules.weights.keys().filter(|agent| !offers(agent)).take(NAMED);
    idle.map(|agent| format!("{agent} does not offer {}: its weight counts once it does", of.1)).collect()
}

/// What a change would have made of the last decisions; nothing is changed.
async fn foretell(
    app: &App,
    caller: &Caller,
    capability: Capability,
    change: RoutingChange,
) -> ApiResult<RoutingHolding> {
    let of = (caller.namespace.clone(), capability);
    let to = change.clone();
    let asked = app.ledger.ask_planner::<Scheduler, _>(move |state, scheduler| {
        (scheduler.decisions().of(&of), Stand::of(state, of, &to))
    });
    let (last, stand) = asked.await?.ok_or(Unavailable::Starting)?;
    let entry = stand.entry.as_ref();
    let now = entry.and_then(|entry| entry.rules.as_deref());
    let wanted = match &change {
        RoutingChange::Set(rules) => Some(rules).filter(|rules| **rules != RoutingRules::default()),
        RoutingChange::Undo => match entry.and_then(|entry| entry.before.last()) {
            Some(before) => before.as_deref(),
            None => return Err(ApiError::new(Code::NothingToUndo, "no version before it is kept")),
        },
    };
    let shown = shown(&what_if(&last, wanted, now), wanted);
    Ok(RoutingHolding { would_have: Some(shown), ..stand.holding() })
}

/// A report on the last decisions.
fn shown(found: &WhatIf, wanted: Option<&RoutingRules>) -> Value {
    let share = |(agent, (was, would_be)): (&AgentId, &(usize, usize))| json!({"agent_id": agent.as_str(), "was": was, "would_be": would_be});
    let other = |other: &Otherwise| {
        json!({
            "reach_id": other.task.to_string(),
            "at": other.at.to_string(),
            "was": other.was.as_str(),
            "would_be": other.would_be.as_str(),
        })
    };
    json!({
        "rules": wanted.map(render::routing_rules),
        "decisions": found.decisions,
        "changed": found.changed,
        "not_weighed": found.not_weighed,
        "since": found.since.map(|since| since.to_string()),
        "shares": found.shares.iter().map(share).collect::<Vec<_>>(),
        "newest": found.newest.iter().map(other).collect::<Vec<_>>(),
    })
}

/// The routing rules of every capability of a namespace that has, or had, some.
pub(super) fn in_namespace(all: &RoutingByCapability, namespace: &Namespace) -> Map<String, Value> {
    let view = |(capability, entry): (&Capability, &RoutingEntry)| {
        let shown = json!({
            "version": entry.version,
            "since": entry.since.to_string(),
            "rules": entry.rules.as_deref().map(render::routing_rules),
            "undoable": entry.before.len(),
        });
        (capability.to_string(), shown)
    };
    all.get(namespace).into_iter().flatten().map(view).collect()
}
