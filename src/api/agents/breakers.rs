//! Breakers as operators see them, and an operator's word on one (R-RTE-7).

use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::App;
use crate::api::error::{ApiError, ApiResult, Code, Thing};
use crate::api::extract::{Caller, Json, NoQuery};
use crate::api::render;
use crate::api::wire::{ReceiptBody, why};
use crate::ledger::handle::Refusal;
use crate::ledger::ids::{AgentId, AgentKey, Capability};
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::breaker::{Breaker, BreakerKey, BreakerWord, Stand};
use crate::ledger::machine::command::Command;
use crate::ledger::machine::decision::Rejection;

/// The resource's routes.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(set))
}

/// A breaker: whether an agent gets tasks of one capability.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Breaker)]
pub(in crate::api) struct BreakerView {
    capability: String,
    /// `open`, `half-open` (one task at a time tries the agent out) or `closed`.
    state: &'static str,
    /// When it half-opens; null where it does not by itself.
    #[schema(format = DateTime)]
    until: Option<String>,
    /// Since when it stands so; null for one that was never open in this process of the agent.
    #[schema(format = DateTime)]
    since: Option<String>,
    /// The attempts that opened it last, oldest first, at most five.
    #[schema(value_type = Vec<Object>)]
    tasks: Vec<Value>,
    /// The task that tries the agent out now.
    probe: Option<String>,
    /// The operator's word that holds it open or closed; null where the rule decides.
    forced: Option<ForcedView>,
}

/// An operator's word on a breaker.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = BreakerForced)]
struct ForcedView {
    #[schema(value_type = Object)]
    by: Value,
    reason: String,
}

impl BreakerView {
    /// One that stands in the state; a closed one does not.
    pub(in crate::api) fn new(capability: &Capability, breaker: Option<&Breaker>) -> Self {
        let stand = breaker.map(|breaker| breaker.stand);
        let failures = breaker.into_iter().flat_map(|breaker| &breaker.failures);
        let forced = breaker.and_then(|breaker| breaker.forced.as_ref());
        Self {
            capability: capability.to_string(),
            state: stand.map_or("closed", Stand::name),
            until: breaker.and_then(Breaker::wake_at).map(|until| until.to_string()),
            since: breaker.map(|breaker| breaker.since.to_string()),
            tasks: failures.copied().map(render::attempt).collect(),
            probe: match stand {
                Some(Stand::HalfOpen { probe }) => probe.map(|probe| probe.task.to_string()),
                Some(Stand::Open { .. } | Stand::HeldClosed) | None => None,
            },
            forced: forced.map(|word| ForcedView { by: render::actor(&word.by), reason: word.reason.to_string() }),
        }
    }

    /// Those of an agent that are not simply closed.
    pub(super) fn all_of(state: &Ledgered, agent: &AgentKey) -> Vec<Self> {
        state.breakers_of(agent).map(|(capability, breaker)| Self::new(capability, Some(breaker))).collect()
    }
}

/// The two ids in the path.
struct Which {
    agent: AgentId,
    capability: Capability,
}

impl FromRequestParts<App> for Which {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Ok(Path((agent, capability))) = Path::<(String, String)>::from_request_parts(parts, app).await else {
            return Err(ApiError::absent(Thing::Agent));
        };
        let agent = AgentId::new(&agent).map_err(|_| ApiError::not_found(Thing::Agent, &agent))?;
        let capability = Capability::new(&capability);
        let no_name = |_| ApiError::new(Code::CapabilityNotOffered, "this is no capability's name");
        Ok(Self { agent, capability: capability.map_err(no_name)? })
    }
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct SetBreaker {
    state: BreakerWordBody,
    /// Why: it stands in the ledger beside who.
    reason: String,
}

#[derive(Debug, Clone, Copy, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
enum BreakerWordBody {
    /// Nothing goes until another word.
    Open,
    /// All go, whatever fails, until another word.
    Closed,
    /// The rule decides again; one that was held open half-opens first.
    Automatic,
}

/// A breaker as it stands from now on.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct BreakerSet {
    agent_id: String,
    #[serde(flatten)]
    breaker: BreakerView,
    /// Null where it stood so already.
    receipt: Option<ReceiptBody>,
}

/// Hold an agent's breaker for one capability open or closed, or give it back to the rule.
///
/// The agent's other capabilities go on. The same word again changes nothing.
#[utoipa::path(put, path = "/v1/agents/{agent_id}/breakers/{capability}", operation_id = "set_breaker", tag = "agents",
    request_body = SetBreaker, params(("agent_id" = String, Path), ("capability" = String, Path)),
    responses((status = 200, body = BreakerSet)))]
async fn set(
    State(app): State<App>,
    caller: Caller,
    Which { agent, capability }: Which,
    _: NoQuery,
    Json(body): Json<SetBreaker>,
) -> ApiResult<Json<BreakerSet>> {
    caller.require(Scope::Operate)?;
    caller.may_call(&capability)?;
    let reason = why(Some(&body.reason))?;
    let word = match body.state {
        BreakerWordBody::Open => BreakerWord::Open,
        BreakerWordBody::Closed => BreakerWord::Closed,
        BreakerWordBody::Automatic => BreakerWord::Automatic,
    };
    let command = Command::SetBreaker { agent: agent.clone(), capability: capability.clone(), word, reason };
    let released = match app.ledger.propose(caller.proposal(command)).await {
        Ok(released) => released,
        Err(Refusal::Rejected(Rejection::AgentUnknown)) => {
            return Err(super::absent::unknown(&app, &caller, &agent).await);
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let key = BreakerKey { agent: caller.agent_key(agent.clone()), capability };
    let breaker = app.ledger.ask(move |state| BreakerView::new(&key.capability, state.breaker(&key))).await?;
    let receipt = released.receipt.map(Into::into);
    Ok(Json(BreakerSet { agent_id: agent.to_string(), breaker, receipt }))
}

/// A breaker that stands in the way of some work.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = BreakerInTheWay)]
pub(in crate::api) struct InTheWay {
    agent_id: String,
    #[serde(flatten)]
    breaker: BreakerView,
}

/// The breakers of a namespace that are open or half-open, of those capabilities if some are named; at most `most`.
pub(in crate::api) fn in_the_way(
    state: &Ledgered,
    namespace: &crate::ledger::ids::Namespace,
    takes: impl Fn(&Capability) -> bool,
    most: usize,
) -> Vec<InTheWay> {
    let of_agents = state.breakers().iter().skip_while(|(agent, _)| agent.namespace < *namespace);
    let of_agents = of_agents.take_while(|(agent, _)| agent.namespace == *namespace);
    let all = of_agents.flat_map(|(agent, breakers)| breakers.iter().map(move |of| (agent, of)));
    let wanted = all.filter(|(_, (capability, breaker))| breaker.stand != Stand::HeldClosed && takes(capability));
    let view = |(agent, (capability, breaker)): (&AgentKey, (&Capability, &Breaker))| InTheWay {
        agent_id: agent.agent_id.to_string(),
        breaker: BreakerView::new(capability, Some(breaker)),
    };
    wanted.take(most).map(view).collect()
}
