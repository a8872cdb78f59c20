//! How an agent feels, as far as the hub saw it.

use serde::Serialize;

use crate::api::App;
use crate::api::error::ApiResult;
use crate::ledger::ids::AgentKey;

/// Volatile figures.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub(super) struct Pulse {}

pub(super) async fn of(_app: &App, _key: AgentKey) -> ApiResult<Pulse> {
    Ok(Pulse::default())
}
