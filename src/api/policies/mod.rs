//! Rules as data, changed while the hub runs, each change an event with who and why (R-RTE-10).

mod routing;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::ids::Capability;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::command::Command;
use crate::ledger::machine::policy::{CapabilityRules, HubPolicy, MAX_OWNER, Policy};
use crate::ledger::machine::task::spec::Idempotence;

use super::error::{ApiError, ApiResult, Code};
use super::extract::{Bearer, Caller, Json, NoQuery};
use super::near::near;
use super::submission::{Faults, SlowBody, slow_reach};
use super::wire::{ReceiptBody, why};
use super::{App, render};

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(read, replace))
        .routes(routes!(replace_capability))
        .routes(routes!(replace_hub))
        .merge(routing::routes())
}

/// The rules of a namespace. What a change leaves out is set to its default.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
struct PolicyBody {
    /// Missed heartbeats until `unhealthy`; default 3.
    unhealthy_after: u32,
    /// Missed heartbeats until `lost`; default 9.
    lost_after: u32,
    /// Orphans replayed a second; default 20.
    replays_per_second: u32,
    /// Queued tasks in one lane; default 100,000.
    lane_bound: u32,
    /// Unfinished tasks in the namespace; default 1,000,000.
    namespace_bound: u32,
}

impl Default for PolicyBody {
    fn default() -> Self {
        Policy::default().into()
    }
}

impl From<Policy> for PolicyBody {
    fn from(policy: Policy) -> Self {
        let Policy { unhealthy_after, lost_after, replays_per_second, lane_bound, namespace_bound } = policy;
        Self { unhealthy_after, lost_after, replays_per_second, lane_bound, namespace_bound }
    }
}

impl From<PolicyBody> for Policy {
    fn from(body: PolicyBody) -> Self {
        let PolicyBody { unhealthy_after, lost_after, replays_per_second, lane_bound, namespace_bound } = body;
        Self { unhealthy_after, lost_after, replays_per_second, lane_bound, namespace_bound }
    }
}

/// The rules of the whole hub, over all namespaces.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct HubBody {
    /// Replays a second over all namespaces, sweeps and plans together, 1 to 100,000; default 1,000.
    replays_per_second: u32,
}

impl From<HubPolicy> for HubBody {
    fn from(policy: HubPolicy) -> Self {
        let HubPolicy { replays_per_second } = policy;
        Self { replays_per_second }
    }
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Replace {
    policy: PolicyBody,
    /// Why: it stands in the ledger beside who.
    reason: String,
}

/// The rules that hold now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Holding {
    namespace: String,
    policy: PolicyBody,
    /// The rules of the whole hub.
    hub: HubBody,
    /// Rules of capabilities, by capability.
    #[schema(value_type = std::collections::BTreeMap<String, Object>)]
    capabilities: serde_json::Map<String, serde_json::Value>,
    /// How tasks are given out, by capability: the rules with their version.
    #[schema(value_type = std::collections::BTreeMap<String, Object>)]
    routing: serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
}

/// The rules of the call's namespace.
#[utoipa::path(get, path = "/v1/policies", operation_id = "get_policies", tag = "policies",
    responses((status = 200, body = Holding)))]
async fn read(State(app): State<App>, caller: Caller, _: NoQuery) -> ApiResult<Json<Holding>> {
    caller.require_one_of(&[Scope::Read, Scope::Operate])?;
    let policy = app.ledger.published().policies.of(&caller.namespace).into();
    let capabilities = capabilities(&app, &caller);
    let published = app.ledger.published();
    let routing = routing::in_namespace(&published.routing_rules, &caller.namespace);
    let (namespace, hub) = (caller.namespace.to_string(), published.hub_policy.into());
    Ok(Json(Holding { namespace, policy, hub, capabilities, routing, receipt: None }))
}

/// Replace the rules of the call's namespace.
#[utoipa::path(put, path = "/v1/policies", operation_id = "put_policies", tag = "policies", request_body = Replace,
    responses((status = 200, body = Holding)))]
async fn replace(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    Json(body): Json<Replace>,
) -> ApiResult<Json<Holding>> {
    caller.require(Scope::Operate)?;
    over_all(caller.bearer())?;
    let reason = why(Some(&body.reason))?;
    let command = Command::SetPolicy { policy: body.policy.clone().into(), reason };
    let released = app.ledger.propose(caller.proposal(command)).await?;
    Ok(Json(Holding {
        namespace: caller.namespace.to_string(),
        policy: body.policy,
        hub: app.ledger.published().hub_policy.into(),
        capabilities: capabilities(&app, &caller),
        routing: routing::in_namespace(&app.ledger.published().routing_rules, &caller.namespace),
        receipt: released.receipt.map(Into::into),
    }))
}

/// Refuses rules that hold for all capabilities to a token that is limited to some.
fn over_all(bearer: &Bearer) -> ApiResult<()> {
    if bearer.is_limited() {
        let detail = "this token is limited to some capabilities, and these rules hold for all";
        return Err(ApiError::new(Code::CapabilityNotAllowed, detail));
    }
    Ok(())
}

/// The rules of every capability of the call's namespace that has some.
fn capabilities(app: &App, caller: &Caller) -> serde_json::Map<String, serde_json::Value> {
    let rules = app.ledger.published().capability_rules;
    let here = rules.iter().filter(|((namespace, _), _)| *namespace == caller.namespace);
    here.map(|((_, capability), of)| (capability.to_string(), render::rules(of))).collect()
}

/// The rules of one capability, for tasks that say nothing themselves.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct ReplaceCapability {
    /// `domain.task_type`
    capability: String,
    /// What happens to a slow task; absent or null takes the rules back.
    slow_reach: Option<SlowBody>,
    /// Who looks after slow tasks: a name for people, at most 128 bytes.
    owner: Option<String>,
    /// Why: it stands in the ledger beside who.
    reason: String,
}

/// The rules of a capability that hold from now on.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct CapabilityHolding {
    namespace: String,
    capability: String,
    /// Null when it has none of its own.
    #[schema(value_type = Option<Object>)]
    rules: Option<serde_json::Value>,
    /// Does anybody offer it? Rules may come before the first agent, or stand under a misspelt name.
    registered: bool,
    /// If nobody does: names that may have been meant, of those that this token may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    suggestions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
}

/// Replace the rules of one capability.
///
/// They hold for tasks that are submitted from now on and say nothing themselves. A hand-over holds for idempotent
/// tasks only; the others wait.
#[utoipa::path(put, path = "/v1/policies/capabilities", operation_id = "put_capability_policy", tag = "policies",
    request_body = ReplaceCapability, responses((status = 200, body = CapabilityHolding)))]
async fn replace_capability(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    Json(body): Json<ReplaceCapability>,
) -> ApiResult<Json<CapabilityHolding>> {
    caller.require(Scope::Operate)?;
    let mut faults = Faults::default();
    let capability = faults.id::<Capability>("/capability", &body.capability);
    let slow_reach = body.slow_reach.as_ref().map(|slow| slow_reach(Some(slow), Idempotence::Declared, &mut faults));
    if body.owner.is_some() && body.slow_reach.is_none() {
        faults.add("/owner", "belongs to a slow_reach policy");
    }
    let owner = faults.text("/owner", body.owner.as_deref(), MAX_OWNER);
    faults.into_result().map_err(super::submit::invalid)?;
    let Some(capability) = capability else { return Err(ApiError::field("/capability", "is missing")) };
    caller.may_call(&capability)?;
    let reason = why(Some(&body.reason))?;
    let rules = slow_reach.map(|slow_reach| CapabilityRules { slow_reach, owner });
    let shown = rules.as_ref().map(render::rules);
    let command = Command::SetCapabilityPolicy { capability: capability.clone(), rules, reason };
    let released = app.ledger.propose(caller.proposal(command)).await?;
    let registered = app.ledger.published().catalog.of(&caller.namespace, &capability).is_some();
    Ok(Json(CapabilityHolding {
        namespace: caller.namespace.to_string(),
        capability: capability.to_string(),
        rules: shown,
        registered,
        suggestions: if registered { Vec::new() } else { near(&app, &caller, &capability).shown },
        receipt: released.receipt.map(Into::into),
    }))
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct ReplaceHub {
    policy: HubBody,
    /// Why: it stands in the ledger beside who.
    reason: String,
}

/// The rules of the whole hub that hold from now on.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct HubHolding {
    policy: HubBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
}

/// Replace the rules of the whole hub. They hold for the next replay.
#[utoipa::path(put, path = "/v1/policies/hub", operation_id = "put_hub_policy", tag = "policies",
    request_body = ReplaceHub, responses((status = 200, body = HubHolding)))]
async fn replace_hub(
    State(app): State<App>,
    bearer: Bearer,
    _: NoQuery,
    Json(body): Json<ReplaceHub>,
) -> ApiResult<Json<HubHolding>> {
    bearer.require_everywhere(Scope::Operate)?;
    over_all(&bearer)?;
    let reason = why(Some(&body.reason))?;
    let policy = HubPolicy { replays_per_second: body.policy.replays_per_second };
    let command = Command::SetHubPolicy { policy, reason };
    let released = app.ledger.propose(bearer.proposal(command)).await?;
    Ok(Json(HubHolding { policy: body.policy, receipt: released.receipt.map(Into::into) }))
}
