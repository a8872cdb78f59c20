//! What a refused call is answered: RFC 9457 problems with a stable code, the field at fault and what to do next.
//!
//! Why one type for all of it: a client's mistake must never come out as a 5xx, and a fault of ours never as a 4xx. The
//! one table is [`Code`]; the conversions from the floors below are in `from.rs`; docs/errors.md comes from the table.

mod code;
mod from;

use std::fmt;

use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::ledger::ids::kind_of;
use crate::ledger::time::Millis;

pub use code::Code;

/// One field at fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FieldError {
    /// RFC 6901 JSON Pointer into the body; empty for the whole body.
    pub pointer: String,
    /// What is wrong with it.
    pub detail: String,
}

/// What can be asked for by an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    /// A task.
    Task,
    /// An agent.
    Agent,
    /// A batch.
    Batch,
    /// A callback.
    Callback,
    /// A replay plan.
    Replay,
    /// An access token.
    Token,
    /// A signing secret.
    CallbackSecret,
    /// A namespace that the token does not hold in.
    Namespace,
}

impl Thing {
    /// In a sentence.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Agent => "agent",
            Self::Batch => "batch",
            Self::Callback => "callback",
            Self::Replay => "replay plan",
            Self::Token => "token",
            Self::CallbackSecret => "callback secret",
            Self::Namespace => "namespace",
        }
    }
}

/// Characters of an id that are said again; every id that exists is shorter.
const SHOWN: usize = 256;

/// Why a call was refused. Small to carry around: it lies in a box.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError(Box<Problem>);

#[derive(Debug, Clone, PartialEq)]
struct Problem {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
    suggestions: Vec<String>,
    facts: Vec<(&'static str, Value)>,
    retry_after: Option<Millis>,
    allow: Option<HeaderValue>,
    /// What to do next, where it is not what the code says.
    next: Option<&'static str>,
    /// What was not found, while its id is still to be said.
    absent: Option<Thing>,
}

/// What handlers answer.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// A refusal; `detail` is a sentence about this very case. It must not hold secrets or foreign names.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            suggestions: Vec::new(),
            facts: Vec::new(),
            retry_after: None,
            allow: None,
            next: None,
            absent: None,
        }))
    }

    /// The plain 404, naming what was asked for: absent, foreign and unparsable ids look the same (semantics 37). An id of
    /// another kind is told as such, which its text alone says.
    pub fn not_found(thing: Thing, id: impl fmt::Display) -> Self {
        let asked = id.to_string();
        let shown: String = asked.chars().take(SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let cut = if asked.chars().nth(SHOWN).is_some() { "…" } else { "" };
        let other = kind_of(&asked).filter(|kind| *kind != thing.name());
        let other = other.map_or_else(String::new, |kind| format!(": that is the id of a {kind}"));
        Self::new(Code::NotFound, format!("there is no {} {shown}{cut} here{other}", thing.name()))
    }

    /// The same from where the id is not at hand: whoever has it says it by [`ApiError::named`].
    #[must_use]
    pub fn absent(thing: Thing) -> Self {
        let mut error = Self::new(Code::NotFound, format!("there is no such {} here", thing.name()));
        error.0.absent = Some(thing);
        error
    }

    /// Names what was not found, if it was the `thing` with this id.
    #[must_use]
    pub fn named(self, thing: Thing, id: impl fmt::Display) -> Self {
        if self.0.absent == Some(thing) { Self::not_found(thing, id) } else { self }
    }

    /// A bug: the log says more.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(Code::Internal, "a fault of its own kept the hub from answering this call")
    }

    /// The disk gave something else than what was written: the log says more.
    #[must_use]
    pub fn unreadable() -> Self {
        Self::new(Code::LedgerUnreadable, "something that this call needs could not be read back")
    }

    /// `invalid-field` at one pointer.
    pub fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::new(Code::InvalidField, detail.clone()).at(pointer, detail)
    }

    /// Says what to do next where that is another than the code's own.
    #[must_use]
    pub fn advising(mut self, next: &'static str) -> Self {
        self.0.next = Some(next);
        self
    }

    /// Says of an incarnation that was sent and never given that it was not: that is no older process, but a mistake.
    #[must_use]
    pub fn of_incarnation(mut self, sent: u32) -> Self {
        let current = self.0.facts.iter().find(|(name, _)| *name == "current_incarnation");
        let Some(current) = current.and_then(|(_, value)| value.as_u64()) else { return self };
        if sent > 0 && u64::from(sent) <= current {
            return self;
        }
        self.0.detail =
            format!("incarnation {sent} was never given to a process of this agent; {current} is the current one");
        self.advising("Send the incarnation that the answer to your registration named.")
    }

    /// Goes on with what happened.
    #[must_use]
    pub fn adding(mut self, more: &str) -> Self {
        self.0.detail.push_str(more);
        self
    }

    /// Adds a field at fault.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.0.errors.push(FieldError { pointer: pointer.into(), detail: detail.into() });
        self
    }

    /// Puts `prefix` before every pointer: for items of lists and lines of batches.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        for error in &mut self.0.errors {
            error.pointer.insert_str(0, prefix);
        }
        self
    }

    /// Adds names that may have been meant. Only what this caller may call (semantics 39).
    #[must_use]
    pub fn suggest(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.0.suggestions.extend(names);
        self
    }

    /// Adds a member of its own, such as the current incarnation.
    #[must_use]
    pub fn fact(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.facts.push((name, value.into()));
        self
    }

    /// Says when another try makes sense: `Retry-After` and `retry_after_ms`.
    #[must_use]
    pub fn retry_after(mut self, after: Millis) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// The methods that the path takes, for a 405.
    #[must_use]
    pub fn allow(mut self, methods: HeaderValue) -> Self {
        self.0.allow = Some(methods);
        self
    }

    /// Its code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.0.code
    }

    /// Its HTTP status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.0.code.status()
    }

    /// What happened in this very case.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The problem document as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name(), self.0.detail)
    }
}

impl std::error::Error for ApiError {}

/// The RFC 9457 document; a bulk answer holds the same under `problem`.
impl Serialize for ApiError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let problem = &*self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &problem.code.type_uri())?;
        map.serialize_entry("title", problem.code.title())?;
        map.serialize_entry("status", &problem.code.status().as_u16())?;
        map.serialize_entry("code", problem.code.name())?;
        map.serialize_entry("detail", &problem.detail)?;
        map.serialize_entry("next", problem.next.unwrap_or_else(|| problem.code.next_step()))?;
        if !problem.errors.is_empty() {
            map.serialize_entry("errors", &problem.errors)?;
        }
        if !problem.suggestions.is_empty() {
            map.serialize_entry("suggestions", &problem.suggestions)?;
        }
        if let Some(after) = problem.retry_after {
            map.serialize_entry("retry_after_ms", &after.0)?;
        }
        for (name, value) in &problem.facts {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.to_bytes()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.0.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.0.div_ceil(1_000).max(1)));
        }
        if let Some(allow) = self.0.allow {
            headers.insert(ALLOW, allow);
        }
        if self.0.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"agent-reach\""));
        }
        if self.0.code == Code::UnsupportedEncoding {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        response
    }
}

/// What paths that do not exist are answered.
pub(in crate::api) async fn no_such_path() -> ApiError {
    ApiError::new(Code::NotFound, "there is no such path")
        .advising("Look the path up: /openapi.json lists them all, /docs shows them to people.")
}

/// What a method is answered that the path does not take. axum adds the `Allow` header.
pub(in crate::api) async fn no_such_method(method: Method) -> ApiError {
    ApiError::new(Code::MethodNotAllowed, format!("this path does not take {method}"))
}

/// The shape of a problem, for the OpenAPI document.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub struct ProblemSchema {
    /// A URI for the kind of problem; never changes.
    pub r#type: String,
    /// Short; never changes.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// A stable word.
    pub code: String,
    /// What happened in this very case.
    pub detail: String,
    /// What to do next.
    pub next: String,
    /// Fields at fault.
    #[schema(required = false)]
    pub errors: Vec<FieldError>,
    /// Names that may have been meant.
    #[schema(required = false)]
    pub suggestions: Vec<String>,
    /// When another try makes sense.
    #[schema(required = false)]
    pub retry_after_ms: u64,
}
