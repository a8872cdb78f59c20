//! Who calls: a verified token, the namespace it means, and what it may do there.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use crate::api::App;
use crate::api::auth::token::{DEV_TOKEN_ID, Grant, verify};
use crate::api::envelope;
use crate::api::error::{ApiError, ApiResult, Code, Thing};
use crate::ledger::ids::{AgentId, AgentKey, Capability, Incarnation, Namespace, TokenId, TraceContext};
use crate::ledger::machine::access::{Reach, Scope};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::Actor;

/// Patterns of a token that a refusal names.
const MOST_TOLD: usize = 20;

/// A verified token, whose namespace need not be known: for calls about the whole hub.
#[derive(Debug, Clone)]
pub struct Bearer {
    grant: Grant,
    /// The namespace that the call names: one that this token holds in.
    named: Option<Namespace>,
    /// The caller's trace, if it sent a valid one.
    pub trace: Option<TraceContext>,
}

/// A verified token and the namespace that the call means.
#[derive(Debug, Clone)]
pub struct Caller {
    bearer: Bearer,
    /// Public id of the token.
    pub token: TokenId,
    /// Where the call acts.
    pub namespace: Namespace,
}

impl FromRequestParts<App> for Bearer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let shown = bearer_token(parts)?;
        let access = app.ledger.published().access;
        let grant = verify(shown, &access, app.options.dev.as_ref(), app.ledger.now()).ok_or_else(not_known)?;
        let trace = envelope::trace(&parts.headers);
        let bearer = Self { grant, named: named_namespace(parts)?, trace };
        // Another's namespace looks like one that does not exist, also to calls that are about no namespace.
        match &bearer.named {
            Some(named) if !bearer.reaches(named) => Err(ApiError::not_found(Thing::Namespace, named)),
            Some(_) | None => Ok(bearer),
        }
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let bearer = Bearer::from_request_parts(parts, app).await?;
        let token = bearer.id();
        let namespace = match (&bearer.named, &bearer.grant, bearer.grant.token().map(|token| &token.reach)) {
            (Some(named), _, _) => named.clone(),
            (None, Grant::Dev(home), _) | (None, Grant::Stored(..), Some(Reach::One(home))) => home.clone(),
            (None, Grant::Stored(..), Some(Reach::All)) => {
                let detail = "the token holds in every namespace, so it does not say which one is meant";
                return Err(ApiError::new(Code::NamespaceMissing, detail));
            }
            (None, Grant::Stored(..), None) => return Err(not_known()),
        };
        Ok(Self { bearer, token, namespace })
    }
}

fn bearer_token(parts: &Parts) -> ApiResult<&str> {
    let refused = |detail| ApiError::new(Code::Unauthenticated, detail);
    let mut shown = parts.headers.get_all(AUTHORIZATION).iter();
    let header = match (shown.next(), shown.next()) {
        (Some(header), None) => header,
        (None, _) => return Err(refused("the call carries no token")),
        (Some(_), Some(_)) => return Err(refused("the call carries more than one token")),
    };
    match header.to_str().ok().and_then(|text| text.split_once(' ')) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        Some(_) | None => Err(refused("what it carries is not the word Bearer and a token")),
    }
}

/// One text for all of it: whether a token ever was one is nobody's business.
fn not_known() -> ApiError {
    ApiError::new(Code::Unauthenticated, "the token is not known here, or it was revoked or has expired")
}

fn named_namespace(parts: &Parts) -> ApiResult<Option<Namespace>> {
    let mut named = parts.headers.get_all("reach-namespace").iter();
    let (first, None) = (named.next(), named.next()) else {
        return Err(ApiError::new(Code::InvalidHeader, "Reach-Namespace is sent more than once"));
    };
    let Some(header) = first else { return Ok(None) };
    let parsed = header.to_str().ok().and_then(|text| Namespace::new(text).ok());
    parsed.map(Some).ok_or_else(|| ApiError::new(Code::InvalidHeader, "Reach-Namespace is not a namespace"))
}

impl Bearer {
    /// Public id of the token.
    #[must_use]
    pub fn id(&self) -> TokenId {
        match &self.grant {
            Grant::Stored(_, id) => id.clone(),
            Grant::Dev(_) => dev_id(),
        }
    }

    /// Refuses a token without `scope`.
    ///
    /// # Errors
    /// 403 `scope-missing`, naming the scope.
    pub fn require(&self, scope: Scope) -> ApiResult<()> {
        match self.grant.token() {
            Some(token) if !token.scopes.contains(&scope) => {
                Err(ApiError::new(Code::ScopeMissing, format!("this call needs the scope {}", scope.name()))
                    .fact("scope", scope.name()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a token that does not hold in every namespace.
    ///
    /// # Errors
    /// 403 `scope-missing`.
    pub fn require_everywhere(&self, scope: Scope) -> ApiResult<()> {
        self.require(scope)?;
        match self.grant.token().map(|token| &token.reach) {
            Some(Reach::One(_)) => Err(ApiError::new(
                Code::ScopeMissing,
                format!("this call needs the scope {} over all namespaces", scope.name()),
            )),
            Some(Reach::All) | None => Ok(()),
        }
    }

    /// May it act in that namespace?
    #[must_use]
    pub fn reaches(&self, namespace: &Namespace) -> bool {
        match self.grant.token().map(|token| &token.reach) {
            Some(Reach::One(home)) => home == namespace,
            Some(Reach::All) | None => true,
        }
    }

    /// Does it hold in every namespace, so that no name of one is foreign to it?
    #[must_use]
    pub fn is_everywhere(&self) -> bool {
        match self.grant.token().map(|token| &token.reach) {
            Some(Reach::One(_)) => false,
            Some(Reach::All) | None => true,
        }
    }

    /// The scopes that it has.
    #[must_use]
    pub fn scopes(&self) -> &[Scope] {
        self.grant.token().map_or(&Scope::ALL, |token| &token.scopes)
    }

    /// A command about the whole hub, as this token's doing.
    #[must_use]
    pub fn proposal(&self, command: Command) -> Proposal {
        Proposal { namespace: None, actor: Actor::Token(self.id()), trace: self.trace, command }
    }

    /// Is it limited to some capabilities?
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.grant.token().is_some_and(|token| !token.capabilities.is_empty())
    }

    /// The capabilities that it is limited to; `None` if it may call all.
    #[must_use]
    pub fn capabilities(&self) -> Option<&[Capability]> {
        self.grant.token().map(|token| &*token.capabilities).filter(|some| !some.is_empty())
    }

    /// May it call the capability?
    #[must_use]
    pub fn can_call(&self, capability: &Capability) -> bool {
        self.grant.token().is_none_or(|token| token.capabilities.is_empty() || token.capabilities.contains(capability))
    }

    /// May it act as that agent (semantics 7)?
    #[must_use]
    pub fn can_act_as(&self, agent: &AgentId) -> bool {
        self.grant.token().is_none_or(|token| {
            token.scopes.contains(&Scope::Admin)
                || token.agents.iter().any(|pattern| match pattern.strip_suffix('*') {
                    Some(prefix) => agent.as_str().starts_with(prefix),
                    None => agent.as_str() == &**pattern,
                })
        })
    }
}

impl Caller {
    /// Refuses a token without `scope`.
    ///
    /// # Errors
    /// 403 `scope-missing`, naming the scope.
    pub fn require(&self, scope: Scope) -> ApiResult<()> {
        self.bearer.require(scope)
    }

    /// Refuses a token that has none of `scopes`.
    ///
    /// # Errors
    /// 403 `scope-missing`, naming the first.
    pub fn require_one_of(&self, scopes: &[Scope]) -> ApiResult<()> {
        if scopes.iter().any(|scope| self.bearer.scopes().contains(scope)) {
            return Ok(());
        }
        scopes.first().map_or(Ok(()), |scope| self.require(*scope))
    }

    /// Refuses a token that may not act as that agent (semantics 7).
    ///
    /// # Errors
    /// The plain 404, as for an agent that does not exist.
    pub fn may_act_as(&self, agent: &AgentId) -> ApiResult<()> {
        if self.bearer.can_act_as(agent) { Ok(()) } else { Err(ApiError::not_found(Thing::Agent, agent)) }
    }

    /// Refuses to let a token register an agent that it may not act as (semantics 7), and says which it may: who starts a
    /// worker has mistyped its name, or was given the wrong token. The answer is the same whether such an agent exists.
    ///
    /// # Errors
    /// 404 with the token's own patterns.
    pub fn may_register(&self, agent: &AgentId) -> ApiResult<()> {
        if self.bearer.can_act_as(agent) {
            return Ok(());
        }
        let patterns = self.bearer.grant.token().map(|token| &*token.agents).unwrap_or_default();
        let told: Vec<&str> = patterns.iter().take(MOST_TOLD).map(|pattern| &**pattern).collect();
        let more = if patterns.len() > MOST_TOLD { ", …" } else { "" };
        let allowed = match told.as_slice() {
            [] => "it names no agent".to_owned(),
            some => format!("it acts as {}{more} only", some.join(", ")),
        };
        Err(ApiError::new(Code::NotFound, format!("this token may not register {agent}: {allowed}"))
            .at("/agent_id", "not one that the token acts as")
            .fact("agents", told)
            .advising("Register under an id that the token names, or have one made whose `agents` include it."))
    }

    /// Refuses a token whose capabilities do not include this one. Asked before whether anybody offers it, so the
    /// answer tells nothing about that.
    ///
    /// # Errors
    /// 403 `capability-not-allowed`.
    pub fn may_call(&self, capability: &Capability) -> ApiResult<()> {
        if self.bearer.can_call(capability) {
            return Ok(());
        }
        Err(ApiError::new(Code::CapabilityNotAllowed, format!("this token may not call {capability}"))
            .at("/capability", "not allowed"))
    }

    /// The token behind the call.
    #[must_use]
    pub const fn bearer(&self) -> &Bearer {
        &self.bearer
    }

    /// The caller's trace.
    #[must_use]
    pub const fn trace(&self) -> Option<TraceContext> {
        self.bearer.trace
    }

    /// The agent of that id in the call's namespace.
    #[must_use]
    pub fn agent_key(&self, agent: AgentId) -> AgentKey {
        AgentKey { namespace: self.namespace.clone(), agent_id: agent }
    }

    /// A command as this token's doing.
    #[must_use]
    pub fn proposal(&self, command: Command) -> Proposal {
        self.propose_as(Actor::Token(self.token.clone()), command)
    }

    /// A command as an agent's doing.
    #[must_use]
    pub fn agent_proposal(&self, agent: AgentId, incarnation: Incarnation, command: Command) -> Proposal {
        self.propose_as(Actor::Agent { agent_id: agent, incarnation }, command)
    }

    fn propose_as(&self, actor: Actor, command: Command) -> Proposal {
        Proposal { namespace: Some(self.namespace.clone()), actor, trace: self.bearer.trace, command }
    }
}

/// The reserved id of the development token.
fn dev_id() -> TokenId {
    use std::sync::LazyLock;
    static DEV: LazyLock<TokenId> =
        LazyLock::new(|| TokenId::new(DEV_TOKEN_ID).expect("the reserved id is inside the alphabet"));
    DEV.clone()
}
