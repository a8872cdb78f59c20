//! The agent's side: claim work, acknowledge it, report on it.
//!
//! A claim carries the reports of the work before it, so that a life costs three calls. What a claim hands over and
//! can't be written to its agent goes back at once (semantics 4).

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::{ClaimRequest, Handed, Intake, Ledger, Verdict};
use crate::ledger::ids::{AgentId, AgentKey, Digest, Incarnation, ReachId};
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::command::{Command, Proposal, Report, Word};
use crate::ledger::machine::event::Actor;
use crate::ledger::planner::{Load, Note};
use crate::ledger::time::Millis;
use crate::scheduler::outbound::wire;

use super::App;
use super::agents::absent;
use super::delivery::{Carried, Outbox};
use super::error::{ApiError, ApiResult, Code, Thing};
use super::extract::{Caller, Id, Json, JsonBytes, NoQuery, expect_content_type, parse, read_body};
use super::reports::{self, MAX_REPORTS, Op, Outcome, Prepared, ReportBody, Reporter, Taken};

/// The longest wait of a claim.
const MAX_WAIT_MS: u64 = 60_000;
/// The most tasks of one claim.
const MAX_CLAIM: u32 = 1_000;
/// Calls that may carry a result are read up to here, so that one that is too large can fail its task instead of being
/// sent again and again (proof 4).
const MAX_COMPLETION: usize = 4 << 20;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(claim))
        .routes(routes!(ack))
        .routes(routes!(progress))
        .routes(routes!(complete))
        .routes(routes!(fail))
        .routes(routes!(release))
        .routes(routes!(bulk))
}

/// A wish for work, with reports on the work before.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimBody<'a> {
    /// Which process of the agent.
    incarnation: u32,
    /// Tasks at most, 1 to 1,000; 1 by default.
    max: Option<u32>,
    /// How long it waits for work, 0 to 60,000; answers at once by default.
    wait_ms: Option<u64>,
    /// Load figures.
    load: Option<LoadBody>,
    /// Reports on tasks that it holds, at most 1,024.
    #[serde(borrow, default)]
    reports: Vec<ReportBody<'a>>,
}

/// Load figures.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadBody {
    /// Tasks waiting inside the agent.
    #[serde(default)]
    queue_depth: u32,
    /// Tasks that it works on.
    #[serde(default)]
    in_flight: u32,
    /// Mean latency of late.
    mean_latency_ms: Option<u64>,
}

/// Reports in bulk.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkBody<'a> {
    /// Who reports.
    agent_id: String,
    /// Which process of it.
    incarnation: u32,
    /// At most 1,024.
    #[serde(borrow)]
    reports: Vec<ReportBody<'a>>,
}

/// An outcome for each report, in order.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Outcomes {
    outcomes: Vec<Outcome>,
}

/// The work, and an outcome for each report.
#[derive(Serialize, ToSchema)]
struct Claimed {
    #[schema(value_type = Vec<Object>)]
    tasks: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outcomes: Vec<Outcome>,
}

/// Asks for work: waits up to `wait_ms`, hands over tasks under leases. An empty list when the wait is over.
#[utoipa::path(
    post, path = "/v1/agents/{agent_id}/claim", operation_id = "claim_tasks", tag = "work", params(("agent_id" = String, Path)), request_body = ClaimBody<'static>,
    responses((status = 200, body = Claimed))
)]
pub(super) async fn claim(
    State(app): State<App>,
    caller: Caller,
    Id(agent): Id<AgentId>,
    NoQuery: NoQuery,
    request: Request,
) -> ApiResult<Response> {
    caller.require(Scope::Work)?;
    caller.may_act_as(&agent)?;
    // Absent where no connection of the hub's own carries the call.
    let outbox = request.extensions().get::<Outbox>().cloned().unwrap_or_default();
    let bytes = report_bytes(&app, request).await?;
    let (who, bulk, request) = asked_for(&caller, agent, &bytes)?;
    let (intakes, slots) = bulk.split();
    // What waits for work keeps no room.
    drop(bytes);
    let answer = app.ledger.work(intakes, Some(request)).await?;
    let outcomes = slots.outcomes(answer.outcomes);
    match answer.claim {
        Some(Ok(handed)) => {
            let agent = caller.agent_key(who.agent);
            let unsent = Unsent { ledger: app.ledger.clone(), agent, incarnation: who.incarnation, tasks: handed };
            hand_over(unsent, outbox, outcomes).await
        }
        // The reports were taken all the same: their outcomes go with the refusal of the claim.
        Some(Err(refusal)) => {
            let key = caller.agent_key(who.agent);
            let refusal = absent::gone(&app, key, refusal).await.of_incarnation(who.incarnation.0);
            if outcomes.is_empty() {
                return Err(refusal);
            }
            let outcomes = serde_json::to_value(&outcomes).unwrap_or_default();
            Err(refusal.fact("outcomes", outcomes))
        }
        None => Err(ApiError::internal()),
    }
}

/// Who claims, what it reports, and what it asks for.
fn asked_for(caller: &Caller, agent: AgentId, bytes: &[u8]) -> ApiResult<(Reporter, Bulk, ClaimRequest)> {
    let body: ClaimBody<'_> = parse(bytes)?;
    let max = body.max.unwrap_or(1);
    if !(1..=MAX_CLAIM).contains(&max) {
        return Err(ApiError::field("/max", format!("is {max}; 1 to {MAX_CLAIM}")));
    }
    let wait = body.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT_MS {
        return Err(ApiError::field("/wait_ms", format!("is {wait}; at most {MAX_WAIT_MS}")));
    }
    let who = Reporter { agent: agent.clone(), incarnation: Incarnation(body.incarnation) };
    let bulk = Bulk::prepare(caller, &who, &body.reports)?;
    let load = body.load.map(|load| Load {
        queue_depth: load.queue_depth,
        in_flight: load.in_flight,
        mean_latency: load.mean_latency_ms.map(Millis),
    });
    let request =
        ClaimRequest { agent: caller.agent_key(agent), incarnation: who.incarnation, max, wait: Millis(wait), load };
    Ok((who, bulk, request))
}

/// Writes the tasks with payloads and leases. From here on the release guard holds them until they have left.
async fn hand_over(guard: Unsent, outbox: Outbox, outcomes: Vec<Outcome>) -> ApiResult<Response> {
    let tasks = wire::hand_over(&guard.ledger, &guard.tasks).await.map_err(|error| match error {
        wire::HandOverError::Unavailable(why) => ApiError::from(why),
        error @ (wire::HandOverError::Missing(_) | wire::HandOverError::Damaged(_)) => {
            tracing::error!(%error, "a task could not be handed over");
            ApiError::unreadable()
        }
    })?;
    let bytes = serde_json::to_vec(&Claimed { tasks, outcomes }).map_err(|error| {
        tracing::error!(%error, "a claim's answer could not be written as JSON");
        ApiError::internal()
    })?;
    let mut response =
        Response::new(axum::body::Body::new(GuardedBody { bytes: Some(bytes.into()), guard: Some(guard), outbox }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response.into_response())
}

/// Tasks handed over whose answer has not left yet. Dropped unsent, it gives them back (semantics 4).
struct Unsent {
    ledger: Ledger,
    agent: AgentKey,
    incarnation: Incarnation,
    tasks: Vec<Handed>,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        let tasks = std::mem::take(&mut self.tasks);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if tasks.is_empty() {
            return;
        }
        let lineage = self.ledger.published().lineage;
        let releases: Vec<Intake> = tasks
            .iter()
            .map(|handed| {
                let report = Report {
                    task: handed.spec.reach_id,
                    agent: self.agent.agent_id.clone(),
                    incarnation: self.incarnation,
                    attempt: handed.attempt,
                    lease: self.ledger.keys().lease_digest(lineage, handed.spec.reach_id, handed.attempt),
                    word: Word::Release { digest: Digest::of(&[b"{}"]), retry_after: None },
                    fact: None,
                };
                let namespace = Some(handed.namespace.clone());
                let command = Command::Report(Box::new(report));
                Intake::from(Proposal { namespace, actor: Actor::Hub, trace: handed.trace, command })
            })
            .collect();
        let ledger = self.ledger.clone();
        // If even this fails, the reach timeout gives them back.
        runtime.spawn(async move { drop(ledger.propose_all(releases).await) });
    }
}

impl Carried for Unsent {
    fn left(mut self: Box<Self>) {
        self.tasks.clear();
    }
}

/// A body whose guard goes to the connection with the bytes.
struct GuardedBody {
    bytes: Option<Bytes>,
    guard: Option<Unsent>,
    outbox: Outbox,
}

impl hyper::body::Body for GuardedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = self.bytes.take();
        if let Some(guard) = self.guard.take() {
            self.outbox.hold(Box::new(guard));
        }
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(0)))
    }
}

/// Reports in bulk: those that could be read are proposed, the others answered at once; the order stays.
struct Bulk {
    slots: Vec<(String, Result<Prepared, ApiError>)>,
}

/// Which outcome goes where.
struct Slots(Vec<(String, Result<reports::Size, ApiError>)>);

impl Bulk {
    fn prepare(caller: &Caller, who: &Reporter, given: &[ReportBody<'_>]) -> ApiResult<Self> {
        if given.len() > MAX_REPORTS {
            return Err(ApiError::field("/reports", format!("has {}; at most {MAX_REPORTS}", given.len())));
        }
        let mut slots = Vec::with_capacity(given.len());
        for (index, body) in given.iter().enumerate() {
            let at = format!("/reports/{index}");
            let Some(op) = body.op else { return Err(ApiError::field(format!("{at}/op"), "is missing")) };
            let Some(shown) = body.reach_id.clone() else {
                return Err(ApiError::field(format!("{at}/reach_id"), "is missing"));
            };
            if body.agent_id.as_deref().is_some_and(|agent| agent != who.agent.as_str())
                || body.incarnation.is_some_and(|incarnation| incarnation != who.incarnation.0)
            {
                return Err(ApiError::field(
                    format!("{at}/agent_id"),
                    "all reports of one call are of one agent's process",
                ));
            }
            // An id that does not parse is the same 404 as an absent one (semantics 37).
            let prepared = match shown.parse::<ReachId>() {
                Ok(task) => reports::prepare(caller, who, op, task, body).map_err(|error| error.under(&at)),
                Err(_) => Err(ApiError::not_found(Thing::Task, &shown)),
            };
            slots.push((shown, prepared));
        }
        Ok(Self { slots })
    }

    fn split(self) -> (Vec<Intake>, Slots) {
        let mut intakes = Vec::with_capacity(self.slots.len());
        let mut slots = Vec::with_capacity(self.slots.len());
        for (shown, prepared) in self.slots {
            slots.push((
                shown,
                prepared.map(|prepared| {
                    intakes.push(prepared.intake);
                    prepared.size
                }),
            ));
        }
        (intakes, Slots(slots))
    }
}

impl Slots {
    fn outcomes(self, verdicts: Vec<Verdict>) -> Vec<Outcome> {
        let mut verdicts = verdicts.into_iter();
        let outcome = |size| match verdicts.next() {
            Some(verdict) => reports::taken(verdict, size),
            None => Err(ApiError::new(Code::OutcomeUnknown, "the hub gave no verdict on this report")),
        };
        let mut outcome = outcome;
        let named = |(shown, slot): (String, Result<_, ApiError>)| {
            let said = slot.and_then(&mut outcome).map_err(|error| error.named(Thing::Task, &shown));
            Outcome::new(shown, said)
        };
        self.0.into_iter().map(named).collect()
    }
}

/// Reports in bulk, an outcome each.
#[utoipa::path(
    post, path = "/v1/work/reports", operation_id = "report_work", tag = "work", request_body = BulkBody<'static>,
    responses((status = 200, body = Outcomes))
)]
pub(super) async fn bulk(
    State(app): State<App>,
    caller: Caller,
    NoQuery: NoQuery,
    request: Request,
) -> ApiResult<Json<Outcomes>> {
    caller.require(Scope::Work)?;
    let bytes = report_bytes(&app, request).await?;
    let body: BulkBody<'_> = parse(&bytes)?;
    let who = reporter(&caller, Some(&body.agent_id), Some(body.incarnation))?;
    let (intakes, slots) = Bulk::prepare(&caller, &who, &body.reports)?.split();
    let verdicts = if intakes.is_empty() { Vec::new() } else { app.ledger.propose_all(intakes).await? };
    beat(&app, &caller, &who, &verdicts);
    Ok(Json(Outcomes { outcomes: slots.outcomes(verdicts) }))
}

/// Any accepted call counts as a heartbeat (semantics 3).
fn beat(app: &App, caller: &Caller, who: &Reporter, verdicts: &[Verdict]) {
    if verdicts.iter().any(Result::is_ok) {
        let agent = caller.agent_key(who.agent.clone());
        app.ledger.note(Note::Beat { agent, incarnation: who.incarnation, load: None });
    }
}

/// Who reports, if the token may act as it.
fn reporter(caller: &Caller, agent: Option<&str>, incarnation: Option<u32>) -> ApiResult<Reporter> {
    let Some(agent) = agent else { return Err(ApiError::field("/agent_id", "is missing")) };
    let Some(incarnation) = incarnation else { return Err(ApiError::field("/incarnation", "is missing")) };
    let agent = AgentId::new(agent).map_err(|_| ApiError::not_found(Thing::Agent, agent))?;
    caller.may_act_as(&agent)?;
    Ok(Reporter { agent, incarnation: Incarnation(incarnation) })
}

/// The body of a call that may carry results. Beyond the limit nobody can say which attempt it is about, so nothing
/// moves and the agent is told how to end it.
async fn report_bytes(app: &App, request: Request) -> ApiResult<Bytes> {
    let (parts, body) = request.into_parts();
    expect_content_type(&parts.headers, &["application/json"])?;
    let read = read_body(&parts.headers, body, MAX_COMPLETION, app).await;
    read.map_err(|error| if error.code() == Code::BodyTooLarge { beyond_reading() } else { error })
}

fn beyond_reading() -> ApiError {
    let detail = format!(
        "reports are read up to {MAX_COMPLETION} bytes: nothing was taken and the attempt stands; complete it with a \
         reference to its result, or fail it with the code result-too-large"
    );
    ApiError::new(Code::BodyTooLarge, detail).fact("limit", MAX_COMPLETION)
}

async fn single(app: &App, caller: &Caller, id: ReachId, op: Op, bytes: &[u8]) -> ApiResult<Json<Taken>> {
    caller.require(Scope::Work)?;
    let body: ReportBody<'_> = parse(bytes)?;
    if body.op.is_some_and(|named| named != op)
        || body.reach_id.as_deref().is_some_and(|named| *named != id.to_string())
    {
        return Err(ApiError::field("/op", "the path names op and task"));
    }
    let who = reporter(caller, body.agent_id.as_deref(), body.incarnation)?;
    let prepared = reports::prepare(caller, &who, op, id, &body)?;
    let verdict = app.ledger.propose(prepared.intake).await;
    beat(app, caller, &who, std::slice::from_ref(&verdict));
    reports::taken(verdict, prepared.size).map(Json).map_err(|error| error.named(Thing::Task, id))
}

/// The agent starts: without this answer it must not.
#[utoipa::path(
    post, path = "/v1/tasks/{reach_id}/ack", operation_id = "ack_task", tag = "work", params(("reach_id" = String, Path)), request_body = ReportBody<'static>,
    responses((status = 200, body = Taken))
)]
pub(super) async fn ack(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<Json<Taken>> {
    single(&app, &caller, id, Op::Ack, &bytes).await
}

/// The agent reached a stage.
#[utoipa::path(
    post, path = "/v1/tasks/{reach_id}/progress", operation_id = "report_progress", tag = "work", params(("reach_id" = String, Path)), request_body = ReportBody<'static>,
    responses((status = 200, body = Taken))
)]
pub(super) async fn progress(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<Json<Taken>> {
    single(&app, &caller, id, Op::Progress, &bytes).await
}

/// The agent succeeded.
#[utoipa::path(
    post, path = "/v1/tasks/{reach_id}/complete", operation_id = "complete_task", tag = "work", params(("reach_id" = String, Path)), request_body = ReportBody<'static>,
    responses(
        (status = 200, body = Taken),
    )
)]
pub(super) async fn complete(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
    request: Request,
) -> ApiResult<Json<Taken>> {
    caller.require(Scope::Work)?;
    let bytes = report_bytes(&app, request).await?;
    single(&app, &caller, id, Op::Complete, &bytes).await
}

/// The agent failed.
#[utoipa::path(
    post, path = "/v1/tasks/{reach_id}/fail", operation_id = "fail_task", tag = "work", params(("reach_id" = String, Path)), request_body = ReportBody<'static>,
    responses((status = 200, body = Taken))
)]
pub(super) async fn fail(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<Json<Taken>> {
    single(&app, &caller, id, Op::Fail, &bytes).await
}

/// The agent gives the task back.
#[utoipa::path(
    post, path = "/v1/tasks/{reach_id}/release", operation_id = "release_task", tag = "work", params(("reach_id" = String, Path)), request_body = ReportBody<'static>,
    responses((status = 200, body = Taken))
)]
pub(super) async fn release(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    NoQuery: NoQuery,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<Json<Taken>> {
    single(&app, &caller, id, Op::Release, &bytes).await
}
