//! The task state machine as data: the very table that `apply` obeys.

use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::machine::access::Scope;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::table;

use super::App;
use super::error::ApiResult;
use super::extract::{Bearer, Json, NoQuery};

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(machine))
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Machine {
    states: Vec<MachineState>,
    moves: Vec<Move>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct MachineState {
    name: &'static str,
    terminal: bool,
}

/// One allowed move. Whatever is not listed cannot happen.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Move {
    /// Null before the submission.
    from: Option<&'static str>,
    event: &'static str,
    to: &'static str,
    why: &'static str,
}

/// States and moves.
#[utoipa::path(get, path = "/v1/machine", operation_id = "get_machine", tag = "docs",
    responses((status = 200, body = Machine)))]
async fn machine(bearer: Bearer, _: NoQuery) -> ApiResult<Json<Machine>> {
    bearer.require(Scope::Read)?;
    let states = StatusKind::ALL.into_iter();
    Ok(Json(Machine {
        states: states.map(|kind| MachineState { name: kind.name(), terminal: kind.is_terminal() }).collect(),
        moves: table::rows()
            .map(|row| Move {
                from: row.from.map(StatusKind::name),
                event: row.event.name(),
                to: row.to.name(),
                why: row.why,
            })
            .collect(),
    }))
}
