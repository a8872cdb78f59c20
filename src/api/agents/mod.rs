//! Agents: register, live, drain, leave (R-REG-1 to R-REG-7), and be read (R-REG-11).

pub(in crate::api) mod absent;
pub(in crate::api) mod breakers;
mod declaration;
mod pulse;
mod read;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::{Intake, Refusal};
use crate::ledger::ids::{AgentId, AttemptNo, Digest, Incarnation, ReachId};
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::agent::{DEFAULT_DRAIN_GRACE, DrainMode, Transport};
use crate::ledger::machine::command::{Command, Held};
use crate::ledger::machine::decision::{Answer, Beat, Rejection};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::planner::{Load, Note};
use crate::ledger::store::{Body, BodyKey};
use crate::ledger::time::Millis;
use crate::scheduler::outbound::guard::Purpose;
use crate::scheduler::routing::constraint::compile;

use super::App;
use super::error::{ApiError, ApiResult, Code, Thing};
use super::extract::{Caller, Id, Json, MaybeJson, NoQuery, WithBytes};
use super::wire::ReceiptBody;

use declaration::{NamedSchema, Register};

/// Longest text that a process calls itself.
const MAX_INSTANCE: usize = 128;
/// The longest grace of a drain: a day.
const MAX_GRACE: u64 = 86_400_000;
/// Tasks that one heartbeat may list.
const MAX_HELD: usize = 10_000;
/// What a busy agent's load is taken as: above every threshold.
const BUSY: u32 = 1_000_000;

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(register, read::list))
        .routes(routes!(read::one, deregister))
        .routes(routes!(heartbeat))
        .routes(routes!(drain))
        .routes(routes!(offline))
        .merge(breakers::routes())
}

/// What a registration is answered.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Registered {
    agent_id: String,
    namespace: String,
    /// Fences the older processes under this id.
    incarnation: u32,
    heartbeat_interval_ms: u64,
    receipt: Option<ReceiptBody>,
}

/// Register an agent, or replace its declaration.
#[utoipa::path(post, path = "/v1/agents", operation_id = "register_agent", tag = "agents", request_body = Register,
    responses((status = 200, body = Registered)))]
async fn register(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    WithBytes { value, bytes }: WithBytes<Register>,
) -> ApiResult<Json<Registered>> {
    caller.require(Scope::Register)?;
    let agent = AgentId::new(&value.agent_id).map_err(|error| ApiError::field("/agent_id", error.to_string()))?;
    caller.may_register(&agent)?;
    let instance = instance(value.instance.as_deref())?;
    let declared = value.declare(Digest::of(&[&bytes]))?;
    // Who offers a capability is handed its payloads.
    for (index, offer) in declared.declaration.offers.iter().enumerate() {
        if !caller.bearer().can_call(&offer.capability) {
            let detail = format!("this token may not offer {}", offer.capability);
            let pointer = format!("/capabilities/{index}/capability");
            return Err(ApiError::new(Code::CapabilityNotAllowed, detail).at(pointer, "not allowed"));
        }
    }
    if let Transport::Http { endpoint } = &declared.declaration.transport {
        // semantics 38: judged by its text here; what its name resolves to is judged at each connect.
        app.guard.check_url(endpoint, Purpose::Agent).map_err(|refusal| {
            ApiError::new(Code::EgressBlocked, refusal.to_string()).at("/transport/endpoint", refusal.to_string())
        })?;
    }
    check_schemas(&declared.schemas).await?;
    let mut bodies = vec![named(Digest::of(&[&bytes]), &bytes)];
    bodies.extend(declared.schemas.iter().map(|schema| named(schema.digest, schema.bytes.as_bytes())));
    let interval = declared.declaration.heartbeat_interval;
    let command =
        Command::RegisterAgent { agent: agent.clone(), instance, declaration: Box::new(declared.declaration) };
    let released = app.ledger.propose(Intake { proposal: caller.proposal(command), bodies }).await?;
    let Answer::Registered { incarnation } = released.answer else { return Err(unexpected(&released.answer)) };
    app.ledger.note(Note::Beat { agent: caller.agent_key(agent.clone()), incarnation, load: None });
    Ok(Json(Registered {
        agent_id: agent.to_string(),
        namespace: caller.namespace.to_string(),
        incarnation: incarnation.0,
        heartbeat_interval_ms: interval.0,
        receipt: released.receipt.map(Into::into),
    }))
}

fn instance(text: Option<&str>) -> ApiResult<Option<Text>> {
    let Some(text) = text else { return Ok(None) };
    if text.is_empty() || text.len() > MAX_INSTANCE || text.chars().any(char::is_control) {
        return Err(ApiError::field("/instance", format!("1 to {MAX_INSTANCE} bytes without control characters")));
    }
    Ok(Some(text.into()))
}

fn named(digest: Digest, bytes: &[u8]) -> (BodyKey, Body) {
    (BodyKey::Named(digest), Body { salt: [0; 16], bytes: bytes.into() })
}

/// Compiles every schema off the async threads: a bad one must not stall other calls.
async fn check_schemas(schemas: &[NamedSchema]) -> ApiResult<()> {
    if schemas.is_empty() {
        return Ok(());
    }
    let schemas = schemas.to_vec();
    let checked = tokio::task::spawn_blocking(move || {
        schemas.iter().try_for_each(|schema| {
            compile(schema.bytes.as_bytes()).map(|_| ()).map_err(|refusal| {
                ApiError::new(Code::SchemaInvalid, refusal.to_string()).at(schema.pointer.clone(), refusal.to_string())
            })
        })
    });
    checked.await.map_err(|_| ApiError::internal())?
}

/// A core's answer of another kind than the command's: a bug.
pub(in crate::api) fn unexpected(answer: &Answer) -> ApiError {
    tracing::error!(?answer, "the core gave an answer of another kind");
    ApiError::internal()
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Heartbeat {
    incarnation: u32,
    load: Option<LoadBody>,
    /// `busy` keeps new work away until another heartbeat says otherwise.
    availability: Option<Availability>,
    /// What it holds, after a restart of the hub or a loss of contact.
    held: Option<Vec<HeldBody>>,
}

#[derive(Debug, Clone, Copy, Deserialize, utoipa::ToSchema)]
#[schema(as = HeartbeatLoad)]
#[serde(deny_unknown_fields)]
struct LoadBody {
    #[serde(default)]
    queue_depth: u32,
    #[serde(default)]
    in_flight: u32,
    mean_latency_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Availability {
    Available,
    Busy,
}

#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct HeldBody {
    reach_id: String,
    attempt: u32,
}

/// What a heartbeat is answered: read it, it says what to stop.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct BeatBody {
    /// Set while the agent drains: finish by then.
    drain: Option<DrainNotice>,
    /// Work that ended without the agent's word: stop it.
    cancelled: Vec<HeldBody>,
    /// Listed work whose lease is no longer valid: stop it.
    lost: Vec<HeldBody>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct DrainNotice {
    #[schema(format = DateTime)]
    until: String,
}

impl HeldBody {
    fn parse((index, held): (usize, &Self)) -> ApiResult<Held> {
        let task = held.reach_id.parse::<ReachId>();
        let task = task.map_err(|e| ApiError::field(format!("/held/{index}/reach_id"), e.to_string()))?;
        Ok(Held { task, attempt: AttemptNo(held.attempt) })
    }

    fn show((task, attempt): (ReachId, AttemptNo)) -> Self {
        Self { reach_id: task.to_string(), attempt: attempt.0 }
    }
}

impl Heartbeat {
    fn load(&self) -> Option<Load> {
        let load = self.load.map(|load| Load {
            queue_depth: load.queue_depth,
            in_flight: load.in_flight,
            mean_latency: load.mean_latency_ms.map(Millis),
        });
        match self.availability {
            Some(Availability::Busy) => Some(Load { in_flight: BUSY, ..load.unwrap_or_default() }),
            Some(Availability::Available) => Some(load.unwrap_or_default()),
            None => load,
        }
    }
}

/// Say that the process lives.
#[utoipa::path(post, path = "/v1/agents/{agent_id}/heartbeat", operation_id = "send_heartbeat", tag = "agents", request_body = Heartbeat,
    params(("agent_id" = String, Path)),
    responses((status = 200, body = BeatBody)))]
async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    Id(agent): Id<AgentId>,
    _: NoQuery,
    Json(body): Json<Heartbeat>,
) -> ApiResult<Json<BeatBody>> {
    caller.require(Scope::Work)?;
    caller.may_act_as(&agent)?;
    let incarnation = Incarnation(body.incarnation);
    let held = match &body.held {
        None => None,
        Some(held) if held.len() > MAX_HELD => {
            return Err(ApiError::field("/held", format!("at most {MAX_HELD} items")));
        }
        Some(held) => Some(held.iter().enumerate().map(HeldBody::parse).collect::<ApiResult<Vec<_>>>()?),
    };
    let command = Command::Heartbeat { agent: agent.clone(), incarnation, held };
    let released = match app.ledger.propose(caller.agent_proposal(agent.clone(), incarnation, command)).await {
        Ok(released) => released,
        Err(refusal) => {
            let key = caller.agent_key(agent);
            return Err(absent::gone(&app, key, refusal).await.of_incarnation(body.incarnation));
        }
    };
    app.ledger.note(Note::Beat { agent: caller.agent_key(agent), incarnation, load: body.load() });
    let Answer::Beat(Beat { drain_until, cancelled, lost }) = released.answer else {
        return Err(unexpected(&released.answer));
    };
    Ok(Json(BeatBody {
        drain: drain_until.map(|until| DrainNotice { until: until.to_string() }),
        cancelled: cancelled.into_iter().map(HeldBody::show).collect(),
        lost: lost.into_iter().map(HeldBody::show).collect(),
    }))
}

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Drain {
    /// Up to a day; default 30,000.
    grace_ms: Option<u64>,
    mode: Option<DrainModeBody>,
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
enum DrainModeBody {
    /// Running work may finish within the grace.
    Finish,
    /// It is handed over now.
    HandOver,
}

/// What a change of an agent's standing is answered.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Standing {
    agent_id: String,
    standing: &'static str,
    receipt: Option<ReceiptBody>,
}

/// No new work; running work may finish.
#[utoipa::path(post, path = "/v1/agents/{agent_id}/drain", operation_id = "drain_agent", tag = "agents", request_body = Drain,
    params(("agent_id" = String, Path)),
    responses((status = 200, body = Standing)))]
async fn drain(
    State(app): State<App>,
    caller: Caller,
    Id(agent): Id<AgentId>,
    _: NoQuery,
    MaybeJson(body): MaybeJson<Drain>,
) -> ApiResult<Json<Standing>> {
    caller.require_one_of(&[Scope::Operate, Scope::Register])?;
    caller.may_act_as(&agent)?;
    let grace = Millis(body.grace_ms.unwrap_or(DEFAULT_DRAIN_GRACE.0));
    if grace.0 > MAX_GRACE {
        return Err(ApiError::field("/grace_ms", format!("at most {MAX_GRACE}")));
    }
    let mode = match body.mode {
        None | Some(DrainModeBody::Finish) => DrainMode::Finish,
        Some(DrainModeBody::HandOver) => DrainMode::HandOver,
    };
    let reason = super::wire::reason("/reason", body.reason.as_deref())?;
    change(&app, &caller, agent.clone(), Command::DrainAgent { agent, mode, grace, reason }).await
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Offline {
    incarnation: u32,
}

/// Say goodbye: out of routing at once.
#[utoipa::path(post, path = "/v1/agents/{agent_id}/offline", operation_id = "take_agent_offline", tag = "agents", request_body = Offline,
    params(("agent_id" = String, Path)),
    responses((status = 200, body = Standing)))]
async fn offline(
    State(app): State<App>,
    caller: Caller,
    Id(agent): Id<AgentId>,
    _: NoQuery,
    Json(body): Json<Offline>,
) -> ApiResult<Json<Standing>> {
    caller.require_one_of(&[Scope::Work, Scope::Register])?;
    caller.may_act_as(&agent)?;
    let incarnation = Incarnation(body.incarnation);
    let changed = change(&app, &caller, agent.clone(), Command::AgentOffline { agent, incarnation }).await;
    changed.map_err(|error| error.of_incarnation(body.incarnation))
}

/// Take an agent out of the registry; its history stays.
#[utoipa::path(delete, path = "/v1/agents/{agent_id}", operation_id = "deregister_agent", tag = "agents",
    params(("agent_id" = String, Path)),
    responses((status = 200, body = Standing)))]
async fn deregister(
    State(app): State<App>,
    caller: Caller,
    Id(agent): Id<AgentId>,
    _: NoQuery,
) -> ApiResult<Json<Standing>> {
    caller.require(Scope::Register)?;
    caller.may_act_as(&agent)?;
    change(&app, &caller, agent.clone(), Command::DeregisterAgent { agent }).await
}

async fn change(app: &App, caller: &Caller, agent: AgentId, command: Command) -> ApiResult<Json<Standing>> {
    let key = caller.agent_key(agent.clone());
    let released = match app.ledger.propose(caller.proposal(command)).await {
        Ok(released) => released,
        Err(Refusal::Rejected(Rejection::AgentUnknown)) => return Err(absent::unknown(app, caller, &agent).await),
        Err(refusal) => return Err(absent::gone(app, key, refusal).await),
    };
    let standing = app.ledger.ask(move |state| state.agent(&key).map(|agent| agent.standing.name())).await?;
    let standing = standing.ok_or_else(|| ApiError::not_found(Thing::Agent, &agent))?;
    Ok(Json(Standing { agent_id: agent.to_string(), standing, receipt: released.receipt.map(Into::into) }))
}
