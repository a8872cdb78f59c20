//! Named signing secrets of callbacks: made, rotated, deleted; each shown once (design 4).
//!
//! They lie sealed beside the ledger, never in it; so these calls have no receipts.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::{Phase, Unavailable};
use crate::ledger::ids::Namespace;
use crate::ledger::machine::access::Scope;
use crate::ledger::time::{Millis, Timestamp};
use crate::scheduler::outbound::secrets::{
    DEFAULT_OVERLAP, MAX_OVERLAP, SecretError, SecretName, SecretRefusal, Secrets,
};
use crate::scheduler::outbound::signature::CallbackSecret;

use super::App;
use super::error::{ApiError, ApiResult, Code, Thing};
use super::extract::{Caller, Id, Json, MaybeJson, NoQuery};
use super::wire::Page;

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(rotate)).routes(routes!(delete))
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSecret {
    /// 1 to 64 of `[A-Za-z0-9._-]`.
    name: String,
}

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct RotateSecret {
    /// For how long the old secret signs beside the new one: up to 30 days; default 86,400,000.
    overlap_ms: Option<u64>,
}

/// The one answer that holds the secret.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct ShownSecret {
    name: String,
    /// `whsec_…`, shown this once.
    secret: String,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct SecretBody {
    name: String,
    /// Null for a `default` that was never used.
    #[schema(format = DateTime)]
    created_at: Option<String>,
    /// Secrets that sign now.
    active: usize,
}

impl From<SecretName> for SecretBody {
    fn from(name: SecretName) -> Self {
        Self { name: name.name, created_at: name.created_at.map(|at| at.to_string()), active: name.active }
    }
}

impl From<SecretError> for ApiError {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Refused(SecretRefusal::Unknown) => Self::absent(Thing::CallbackSecret),
            SecretError::Refused(refusal @ SecretRefusal::Taken) => Self::new(Code::NameTaken, refusal.to_string()),
            SecretError::Refused(refusal @ (SecretRefusal::Name | SecretRefusal::TooMany)) => {
                Self::field("/name", refusal.to_string())
            }
            SecretError::Disk(_) | SecretError::Sealed | SecretError::Random(_) => {
                tracing::error!(%error, "callback secrets");
                Self::internal()
            }
        }
    }
}

/// Changes wait for the disk: on a blocking thread.
async fn change<T: Send + 'static>(
    app: &App,
    namespace: &Namespace,
    work: impl FnOnce(&Secrets, &Namespace, Timestamp) -> Result<T, SecretError> + Send + 'static,
) -> ApiResult<T> {
    // They lie beside the ledger, but on the same disk (semantics 30).
    if matches!(app.ledger.published().phase, Phase::DiskFull | Phase::NoRoom) {
        return Err(Unavailable::DiskFull.into());
    }
    let (secrets, namespace, now) = (Arc::clone(&app.secrets), namespace.clone(), app.ledger.now());
    let done = tokio::task::spawn_blocking(move || work(&secrets, &namespace, now)).await;
    Ok(done.map_err(|_| ApiError::internal())??)
}

fn shown(status: StatusCode, name: String, secret: &CallbackSecret) -> Response {
    (status, [(CACHE_CONTROL, "no-store")], Json(ShownSecret { name, secret: secret.expose() })).into_response()
}

/// Make a named secret.
#[utoipa::path(post, path = "/v1/callback-secrets", operation_id = "create_callback_secret", tag = "callback-secrets", request_body = NewSecret,
    responses((status = 201, body = ShownSecret)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    Json(body): Json<NewSecret>,
) -> ApiResult<Response> {
    caller.require(Scope::Admin)?;
    let name = body.name.clone();
    let secret =
        change(&app, &caller.namespace, move |secrets, namespace, now| secrets.create(namespace, &body.name, now))
            .await?;
    Ok(shown(StatusCode::CREATED, name, &secret))
}

/// Names, never secrets.
#[utoipa::path(get, path = "/v1/callback-secrets", operation_id = "list_callback_secrets", tag = "callback-secrets",
    responses((status = 200, body = Page<SecretBody>)))]
async fn list(State(app): State<App>, caller: Caller, _: NoQuery) -> ApiResult<Json<Page<SecretBody>>> {
    caller.require(Scope::Admin)?;
    let names = app.secrets.list(&caller.namespace, app.ledger.now());
    // A namespace has at most a hundred: one page.
    Ok(Json(Page { items: names.into_iter().map(Into::into).collect(), next_cursor: None }))
}

/// Give a name a new secret.
#[utoipa::path(post, path = "/v1/callback-secrets/{name}/rotate", operation_id = "rotate_callback_secret", tag = "callback-secrets",
    request_body = RotateSecret, params(("name" = String, Path)),
    responses((status = 200, body = ShownSecret)))]
async fn rotate(
    State(app): State<App>,
    caller: Caller,
    Id(name): Id<String>,
    _: NoQuery,
    MaybeJson(body): MaybeJson<RotateSecret>,
) -> ApiResult<Response> {
    caller.require(Scope::Admin)?;
    let overlap = Millis(body.overlap_ms.unwrap_or(DEFAULT_OVERLAP.0));
    if overlap > MAX_OVERLAP {
        return Err(ApiError::field("/overlap_ms", format!("at most {}", MAX_OVERLAP.0)));
    }
    let shown_name = name.clone();
    let secret = change(&app, &caller.namespace, move |secrets, namespace, now| {
        in_path_only(secrets.rotate(namespace, &name, overlap, now))
    })
    .await
    .map_err(|error| error.named(Thing::CallbackSecret, &shown_name))?;
    Ok(shown(StatusCode::OK, shown_name, &secret))
}

/// Delete a name at once.
#[utoipa::path(delete, path = "/v1/callback-secrets/{name}", operation_id = "delete_callback_secret", tag = "callback-secrets",
    params(("name" = String, Path)), responses((status = 204)))]
async fn delete(State(app): State<App>, caller: Caller, Id(name): Id<String>, _: NoQuery) -> ApiResult<StatusCode> {
    caller.require(Scope::Admin)?;
    let asked = name.clone();
    change(&app, &caller.namespace, move |secrets, namespace, _| in_path_only(secrets.delete(namespace, &asked)))
        .await
        .map_err(|error| error.named(Thing::CallbackSecret, &name))?;
    Ok(StatusCode::NO_CONTENT)
}

/// A name in a path that could never exist is the same 404 as one that does not (semantics 37).
fn in_path_only<T>(result: Result<T, SecretError>) -> Result<T, SecretError> {
    match result {
        Err(SecretError::Refused(SecretRefusal::Name)) => Err(SecretRefusal::Unknown.into()),
        other => other,
    }
}
