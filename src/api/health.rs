//! Probes and figures: is it alive, is it ready, what is it doing.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::Phase;
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;

use crate::scheduler::outbound::alerts::board::Standing;

use super::App;
use super::error::ApiResult;
use super::extract::{Bearer, Json, NoQuery, Query};
use super::metrics;

/// A sequencer that does not answer a question by then is not ready.
const ASK_WITHIN: Duration = Duration::from_secs(2);
/// Overdue callbacks counted at most.
const COUNTED: usize = 10_000;

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(live)).routes(routes!(ready)).routes(routes!(figures)).routes(routes!(cluster))
}

/// The phase's name on the wire.
pub(super) const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Open => "open",
        Phase::Draining => "draining",
        Phase::DiskLow => "disk-low",
        Phase::DiskFull | Phase::NoRoom => "disk-full",
        Phase::Stopped => "stopped",
    }
}

/// How far recovery is, on the wire.
const fn recovery_name(phase: Phase) -> &'static str {
    match phase {
        Phase::NoRoom => "waiting-for-room",
        Phase::Starting => "resolving",
        Phase::Open | Phase::Draining | Phase::DiskLow | Phase::DiskFull | Phase::Stopped => "done",
    }
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Live {
    live: bool,
}

/// The process answers.
#[utoipa::path(get, path = "/livez", tag = "health", security(()), responses((status = 200, body = Live)))]
async fn live(_: NoQuery) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(Live { live: true })).into_response()
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Verbosity {
    /// Lists the checks one by one.
    verbose: Option<String>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Ready {
    ready: bool,
    /// `starting`, `open`, `draining`, `disk-low`, `disk-full` or `stopped`.
    phase: &'static str,
    /// How far recovery is: `waiting-for-room` on the disk, `resolving` what was in flight, or `done`. While the log is
    /// folded nothing answers.
    recovery: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<Vec<Check>>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Check {
    check: &'static str,
    passed: bool,
}

/// It takes work: recovery is done, the ledger can be written, it is not going down.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), params(Verbosity),
    responses((status = 200, body = Ready), (status = 503, body = Ready)))]
async fn ready(State(app): State<App>, Query(query): Query<Verbosity>) -> Response {
    let phase = app.ledger.published().phase;
    let answers = tokio::time::timeout(ASK_WITHIN, app.ledger.ask(|state| state.seq())).await;
    let checks = vec![
        Check { check: "recovery-done", passed: !matches!(phase, Phase::Starting | Phase::NoRoom) },
        Check { check: "sequencer-answers", passed: matches!(answers, Ok(Ok(_))) },
        Check { check: "ledger-writable", passed: !matches!(phase, Phase::DiskFull | Phase::NoRoom | Phase::Stopped) },
        Check { check: "not-stopping", passed: !matches!(phase, Phase::Draining | Phase::Stopped) },
    ];
    let passed = checks.iter().all(|check| check.passed);
    let status = if passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose = query.verbose.is_some_and(|value| value != "false" && value != "0");
    let checks = verbose.then_some(checks);
    let body = Ready { ready: passed, phase: phase_name(phase), recovery: recovery_name(phase), checks };
    (status, [(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

/// Figures for Prometheus. They count over all namespaces, so the token must hold in all of them.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "health",
    responses((status = 200, content_type = "application/openmetrics-text", body = String)))]
async fn figures(State(app): State<App>, bearer: Bearer, _: NoQuery) -> ApiResult<Response> {
    bearer.require_everywhere(Scope::Operate)?;
    let text = app.metrics.render(&app.ledger, app.alerts.as_deref()).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")], text).into_response())
}

/// The nodes of the hub: here one.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Cluster {
    mode: &'static str,
    lineage: String,
    nodes: Vec<Node>,
    /// What recovery has before it, over all namespaces; shown to tokens with `operate` in all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<RecoveryView>,
    /// How telling alerts goes; shown to the same tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    alerts: Option<AlertsView>,
}

/// How telling alerts goes, since the start.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
#[schema(as = Alerts)]
pub(super) struct AlertsView {
    /// Is `alerts.url` set?
    configured: bool,
    /// Host and port of the receiver.
    to: Option<String>,
    /// Messages that are not told yet.
    waiting: usize,
    #[schema(format = DateTime)]
    last_told_at: Option<String>,
    /// Since when nothing is taken, if the last try failed.
    #[schema(format = DateTime)]
    failing_since: Option<String>,
    /// Why the last try failed: `http-500`, `connect`, `timeout`, `secret-missing` and the like.
    last_error: Option<String>,
}

/// How telling alerts goes.
pub(super) fn alerts(app: &App) -> AlertsView {
    let Some(board) = &app.alerts else { return AlertsView::default() };
    let Standing { to, waiting, last_told_at, failing_since, last_error } = board.standing();
    AlertsView {
        configured: true,
        to: Some(to),
        waiting,
        last_told_at: last_told_at.map(|at| at.to_string()),
        failing_since: failing_since.map(|at| at.to_string()),
        last_error,
    }
}

/// What recovery has before it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Recovery)]
struct RecoveryView {
    /// `waiting-for-room`, `resolving` or `done`.
    phase: &'static str,
    /// Orphaned tasks that the sweep will replay.
    orphans_waiting: usize,
    /// Orphaned tasks that go on by an operator's word only.
    orphans_held: usize,
    /// Replay plans that run.
    replays_running: usize,
    /// Replay plans that are paused.
    replays_paused: usize,
    /// Callbacks whose next try is due, counted up to 10,000.
    callbacks_overdue: usize,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Node {
    role: &'static str,
    boot: u32,
    /// Last durable event.
    seq: u64,
    #[schema(format = DateTime)]
    at: String,
    phase: &'static str,
    version: &'static str,
}

async fn recovery(app: &App) -> ApiResult<RecoveryView> {
    let standing = metrics::recovery(&app.ledger).await?;
    let now = app.ledger.now();
    let overdue =
        move |state: &Ledgered| state.callbacks_due().iter().take_while(|(at, _)| *at <= now).take(COUNTED).count();
    Ok(RecoveryView {
        phase: recovery_name(app.ledger.published().phase),
        orphans_waiting: standing.waiting,
        orphans_held: standing.held,
        replays_running: standing.running,
        replays_paused: standing.paused,
        callbacks_overdue: app.ledger.ask(overdue).await?,
    })
}

/// Who keeps the ledger, and how far it is.
#[utoipa::path(get, path = "/v1/cluster", operation_id = "get_cluster", tag = "health",
    responses((status = 200, body = Cluster)))]
async fn cluster(State(app): State<App>, bearer: Bearer, _: NoQuery) -> ApiResult<Json<Cluster>> {
    bearer.require(Scope::Read)?;
    let boot = app.ledger.ask(|state| state.boot()).await?;
    let published = app.ledger.published();
    let (recovery, alerts) = match bearer.require_everywhere(Scope::Operate) {
        Ok(()) => (Some(recovery(&app).await?), Some(alerts(&app))),
        Err(_) => (None, None),
    };
    Ok(Json(Cluster {
        recovery,
        alerts,
        mode: "single",
        lineage: published.lineage.to_string(),
        nodes: vec![Node {
            role: "writer",
            boot: boot.0,
            seq: published.seq.0,
            at: published.at.to_string(),
            phase: phase_name(published.phase),
            version: env!("CARGO_PKG_VERSION"),
        }],
    }))
}
