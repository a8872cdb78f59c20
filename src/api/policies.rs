//! Rules as data, changed while the hub runs, each change an event with who and why (R-RTE-10).

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::machine::access::Scope;
use crate::ledger::machine::command::Command;
use crate::ledger::machine::policy::Policy;

use super::App;
use super::error::{ApiError, ApiResult};
use super::extract::{Caller, Json, NoQuery};
use super::wire::ReceiptBody;

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(read, replace))
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
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
}

/// The rules of the call's namespace.
#[utoipa::path(get, path = "/v1/policies", operation_id = "get_policies", tag = "policies",
    responses((status = 200, body = Holding)))]
async fn read(State(app): State<App>, caller: Caller, _: NoQuery) -> ApiResult<Json<Holding>> {
    caller.require_one_of(&[Scope::Read, Scope::Operate])?;
    let policy = app.ledger.published().policies.of(&caller.namespace).into();
    Ok(Json(Holding { namespace: caller.namespace.to_string(), policy, receipt: None }))
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
    let reason =
        super::wire::reason("/reason", Some(&body.reason))?.ok_or_else(|| ApiError::field("/reason", "say why"))?;
    let command = Command::SetPolicy { policy: body.policy.clone().into(), reason };
    let released = app.ledger.propose(caller.proposal(command)).await?;
    Ok(Json(Holding {
        namespace: caller.namespace.to_string(),
        policy: body.policy,
        receipt: released.receipt.map(Into::into),
    }))
}
