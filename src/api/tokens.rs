//! Tokens: made, rotated, revoked; their secrets shown once and kept nowhere (R-SEC-1).
//!
//! Nobody can hand out more than they have: scopes, namespaces and capabilities of a new token are within its maker's.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::ids::{AgentId, Capability, TokenId};
use crate::ledger::machine::access::{Reach, Scope, Token};
use crate::ledger::machine::command::Command;
use crate::ledger::time::{Millis, Timestamp};

use super::App;
use super::auth::scope;
use super::auth::token::Minted;
use super::error::{ApiError, ApiResult, Code, Thing};
use super::extract::{Caller, Id, Json, MaybeJson, NoQuery, Query, WireTime};
use super::wire::{Cursor, PAGE_BYTES, Page, ROW_BYTES, ReceiptBody, page_size};

/// The old secret holds for an hour beside the new one unless the call says otherwise.
const DEFAULT_OVERLAP: u64 = 3_600_000;
/// At most 7 days.
const MAX_OVERLAP: u64 = 7 * 86_400_000;
/// Patterns and capabilities that one token may name.
const MAX_NAMES: usize = 256;

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(revoke)).routes(routes!(rotate))
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewToken {
    /// What people call it.
    name: String,
    /// `submit`, `register`, `work`, `read`, `audit`, `operate`, `admin`.
    scopes: Vec<String>,
    /// Agents it may act as: exact ids, or one trailing `*`. Default: none.
    agents: Option<Vec<String>>,
    /// Capabilities it may call, decide about and offer. Default: all.
    capabilities: Option<Vec<String>>,
    /// When it ends.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<WireTime>,
    /// `all`: it holds in every namespace and its calls name one. Default: the namespace of this call.
    namespaces: Option<Namespaces>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Namespaces {
    All,
    This,
}

/// A token as it is shown: never its secret.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct TokenBody {
    token_id: String,
    name: String,
    scopes: Vec<&'static str>,
    /// `*` for every namespace.
    namespace: String,
    agents: Vec<String>,
    /// Empty: all.
    capabilities: Vec<String>,
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
}

/// The one answer that holds the secret.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Shown {
    token_id: String,
    /// Shown this once: keep it now.
    token: String,
    /// Until when the secret before it holds.
    #[schema(format = DateTime)]
    overlap_until: Option<String>,
    receipt: Option<ReceiptBody>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Revoked {
    token_id: String,
    receipt: Option<ReceiptBody>,
}

impl TokenBody {
    fn of(token: &Token) -> Self {
        Self {
            token_id: token.id.to_string(),
            name: token.name.to_string(),
            scopes: token.scopes.iter().map(|scope| scope.name()).collect(),
            namespace: match &token.reach {
                Reach::One(namespace) => namespace.to_string(),
                Reach::All => "*".to_owned(),
            },
            agents: token.agents.iter().map(ToString::to_string).collect(),
            capabilities: token.capabilities.iter().map(ToString::to_string).collect(),
            expires_at: token.expires_at.map(|at| at.to_string()),
            created_at: token.created_at.to_string(),
        }
    }
}

impl NewToken {
    fn check(
        &self,
        caller: &Caller,
        minted: &Minted,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> ApiResult<Token> {
        let name = super::wire::reason("/name", Some(&self.name))?.unwrap_or_else(|| "".into());
        if expires_at.is_some_and(|end| end <= now) {
            return Err(ApiError::field("/expires_at", "lies in the past"));
        }
        let reach = match self.namespaces {
            Some(Namespaces::All) => {
                caller.bearer().require_everywhere(Scope::Admin)?;
                Reach::All
            }
            None | Some(Namespaces::This) => Reach::One(caller.namespace.clone()),
        };
        Ok(Token {
            id: minted.id.clone(),
            name,
            secret: minted.secret,
            previous: None,
            scopes: self.scopes(caller)?,
            reach,
            agents: self.agents()?,
            capabilities: self.capabilities(caller)?,
            expires_at,
            created_at: now,
        })
    }

    fn scopes(&self, caller: &Caller) -> ApiResult<Vec<Scope>> {
        let mut scopes = Vec::new();
        for (index, name) in self.scopes.iter().enumerate() {
            let at = format!("/scopes/{index}");
            let Some(scope) = scope::by_name(name) else {
                return Err(ApiError::field(at, "expected submit, register, work, read, audit, operate or admin"));
            };
            if !caller.bearer().scopes().contains(&scope) {
                return Err(ApiError::new(Code::ScopeMissing, "a token can hand out only scopes of its own")
                    .at(at, "the calling token lacks this scope"));
            }
            scopes.push(scope);
        }
        scopes.sort();
        scopes.dedup();
        if scopes.is_empty() {
            return Err(ApiError::field("/scopes", "at least one"));
        }
        Ok(scopes)
    }

    fn agents(&self) -> ApiResult<Vec<crate::ledger::machine::task::spec::Text>> {
        let patterns = self.agents.as_deref().unwrap_or_default();
        if patterns.len() > MAX_NAMES {
            return Err(ApiError::field("/agents", format!("at most {MAX_NAMES}")));
        }
        let parse = |(index, pattern): (usize, &String)| {
            let plain = pattern.strip_suffix('*').unwrap_or(pattern);
            match AgentId::new(plain) {
                Ok(_) => Ok(pattern.as_str().into()),
                Err(_) if pattern == "*" => Ok("*".into()),
                Err(error) => Err(ApiError::field(format!("/agents/{index}"), error.to_string())),
            }
        };
        patterns.iter().enumerate().map(parse).collect()
    }

    fn capabilities(&self, caller: &Caller) -> ApiResult<Vec<Capability>> {
        let names = self.capabilities.as_deref().unwrap_or_default();
        if names.len() > MAX_NAMES {
            return Err(ApiError::field("/capabilities", format!("at most {MAX_NAMES}")));
        }
        if names.is_empty() && caller.bearer().is_limited() {
            return Err(ApiError::field("/capabilities", "the calling token is limited itself: name some of its own"));
        }
        let parse = |(index, name): (usize, &String)| {
            let at = format!("/capabilities/{index}");
            let capability = Capability::new(name).map_err(|error| ApiError::field(at.clone(), error.to_string()))?;
            if caller.bearer().can_call(&capability) {
                return Ok(capability);
            }
            Err(ApiError::field(at, "the calling token may not call this itself"))
        };
        names.iter().enumerate().map(parse).collect()
    }
}

/// Make a token; its secret is in this answer only.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "create_token", tag = "tokens", request_body = NewToken,
    responses((status = 201, body = Shown)))]
async fn create(State(app): State<App>, caller: Caller, _: NoQuery, Json(body): Json<NewToken>) -> ApiResult<Response> {
    caller.require(Scope::Admin)?;
    let minted = Minted::draw().map_err(|_| ApiError::internal())?;
    let expires_at = body.expires_at.map(|end| app.ledger.from_wall(end.0));
    let token = body.check(&caller, &minted, app.ledger.now(), expires_at)?;
    let released = app.ledger.propose(caller.proposal(Command::CreateToken { token: Box::new(token) })).await?;
    Ok(shown(StatusCode::CREATED, &minted, None, released.receipt.map(Into::into)))
}

fn shown(
    status: StatusCode,
    minted: &Minted,
    overlap_until: Option<Timestamp>,
    receipt: Option<ReceiptBody>,
) -> Response {
    let body = Shown {
        token_id: minted.id.to_string(),
        token: minted.expose().to_owned(),
        overlap_until: overlap_until.map(|at| at.to_string()),
        receipt,
    };
    (status, [(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListTokens {
    /// 1 to 500; default 50.
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Tokens of the namespace; those of every namespace only to a caller that holds there.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "list_tokens", tag = "tokens", params(ListTokens),
    responses((status = 200, body = Page<TokenBody>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListTokens>,
) -> ApiResult<Json<Page<TokenBody>>> {
    caller.require(Scope::Admin)?;
    let limit = page_size(query.limit)?;
    let cursors = Cursor::over("tokens", caller.namespace.as_str());
    let after = cursors.position(query.cursor.as_deref())?;
    let access = app.ledger.published().access;
    let mut fitting = access
        .tokens
        .values()
        .filter(|token| after.as_deref().is_none_or(|after| token.id.as_str() > after) && sees(&caller, token));
    let (mut items, mut bytes) = (Vec::new(), 0);
    while items.len() < limit
        && bytes < PAGE_BYTES
        && let Some(token) = fitting.next()
    {
        let names = token.agents.iter().map(|pattern| pattern.len());
        bytes += ROW_BYTES + names.chain(token.capabilities.iter().map(|name| name.as_str().len())).sum::<usize>();
        items.push(TokenBody::of(token));
    }
    let more = fitting.next().is_some();
    let next_cursor = items.last().filter(|_| more).map(|last| cursors.after(&last.token_id));
    Ok(Json(Page { items, next_cursor }))
}

/// May this caller see and change that token?
fn sees(caller: &Caller, token: &Token) -> bool {
    match &token.reach {
        Reach::One(namespace) => *namespace == caller.namespace,
        Reach::All => caller.bearer().require_everywhere(Scope::Admin).is_ok(),
    }
}

/// A token that this caller may change, or the plain 404.
fn within_sight(app: &App, caller: &Caller, id: &TokenId) -> ApiResult<()> {
    let access = app.ledger.published().access;
    let found = access.tokens.get(id).is_some_and(|token| sees(caller, token));
    if found { Ok(()) } else { Err(ApiError::not_found(Thing::Token, id)) }
}

/// A new secret is handed to the caller: so the token may do nothing that the caller may not do itself.
fn within_reach(app: &App, caller: &Caller, id: &TokenId) -> ApiResult<()> {
    let access = app.ledger.published().access;
    let Some(token) = access.tokens.get(id) else { return Err(ApiError::not_found(Thing::Token, id)) };
    if let Some(scope) = token.scopes.iter().find(|scope| !caller.bearer().scopes().contains(scope)) {
        return Err(ApiError::new(Code::ScopeMissing, "a token can take over only scopes of its own")
            .fact("scope", scope.name()));
    }
    let all_of_them = token.capabilities.is_empty() && caller.bearer().is_limited();
    if all_of_them || !token.capabilities.iter().all(|capability| caller.bearer().can_call(capability)) {
        return Err(ApiError::new(Code::CapabilityNotAllowed, "a token can take over only capabilities of its own"));
    }
    Ok(())
}

/// End a token at once.
#[utoipa::path(delete, path = "/v1/tokens/{token_id}", operation_id = "revoke_token", tag = "tokens", params(("token_id" = String, Path)),
    responses((status = 200, body = Revoked)))]
async fn revoke(State(app): State<App>, caller: Caller, Id(id): Id<TokenId>, _: NoQuery) -> ApiResult<Json<Revoked>> {
    caller.require(Scope::Admin)?;
    within_sight(&app, &caller, &id)?;
    let released = app.ledger.propose(caller.proposal(Command::RevokeToken { token: id.clone() })).await;
    let released = released.map_err(|refusal| ApiError::from(refusal).named(Thing::Token, &id))?;
    Ok(Json(Revoked { token_id: id.to_string(), receipt: released.receipt.map(Into::into) }))
}

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Rotate {
    /// For how long the old secret holds beside the new one: up to 7 days; default 3,600,000.
    overlap_ms: Option<u64>,
}

/// Give a token a new secret.
#[utoipa::path(post, path = "/v1/tokens/{token_id}/rotate", operation_id = "rotate_token", tag = "tokens", request_body = Rotate,
    params(("token_id" = String, Path)),
    responses((status = 200, body = Shown)))]
async fn rotate(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TokenId>,
    _: NoQuery,
    MaybeJson(body): MaybeJson<Rotate>,
) -> ApiResult<Response> {
    caller.require(Scope::Admin)?;
    within_sight(&app, &caller, &id)?;
    within_reach(&app, &caller, &id)?;
    let overlap = Millis(body.overlap_ms.unwrap_or(DEFAULT_OVERLAP));
    if overlap.0 > MAX_OVERLAP {
        return Err(ApiError::field("/overlap_ms", format!("at most {MAX_OVERLAP}")));
    }
    let minted = Minted::draw_for(id.clone()).map_err(|_| ApiError::internal())?;
    let command = Command::RotateToken { token: id.clone(), secret: minted.secret, overlap };
    let released = app.ledger.propose(caller.proposal(command)).await;
    let released = released.map_err(|refusal| ApiError::from(refusal).named(Thing::Token, &id))?;
    let access = app.ledger.published().access;
    let until = access.tokens.get(&id).and_then(|token| token.previous).map(|(_, until)| until);
    Ok(shown(StatusCode::OK, &minted, until, released.receipt.map(Into::into)))
}
