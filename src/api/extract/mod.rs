//! What handlers take in: who calls, a bounded JSON body, ids in paths, query parameters, times.
//!
//! Why own extractors: axum's answer plain text, take duplicate keys and unknown fields, and know no depth (proof 3.7).

mod caller;
mod json;
mod named;
mod prefer;
mod query;
mod strict;
mod time;
mod unknown;

use std::str::FromStr;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::ledger::ids::{AgentId, BatchId, CallbackId, ReachId, ReplayId, TokenId};

use super::App;
use super::error::{ApiError, Thing};

pub use caller::{Bearer, Caller};
pub use json::{
    Json, JsonBytes, MAX_BODY, MaybeJson, WithBytes, announced, expect_content_type, parse, parse_checked, read_body,
};
pub use prefer::preferred_wait;
pub use query::{NoQuery, Query, outside, quoted, wrong};
pub use strict::MAX_DEPTH;
pub use time::WireTime;

/// What stands for a thing in a path.
pub trait Names {
    /// For what.
    const THING: Thing;
}

impl Names for ReachId {
    const THING: Thing = Thing::Task;
}

impl Names for AgentId {
    const THING: Thing = Thing::Agent;
}

impl Names for BatchId {
    const THING: Thing = Thing::Batch;
}

impl Names for CallbackId {
    const THING: Thing = Thing::Callback;
}

impl Names for ReplayId {
    const THING: Thing = Thing::Replay;
}

impl Names for TokenId {
    const THING: Thing = Thing::Token;
}

/// Only signing secrets are called by whatever their owner likes.
impl Names for String {
    const THING: Thing = Thing::CallbackSecret;
}

/// The one id in a path. What does not parse is the same 404 as what does not exist (semantics 37).
#[derive(Debug, Clone)]
pub struct Id<T>(pub T);

impl<T: FromStr + Names + Send> FromRequestParts<App> for Id<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Ok(Path(text)) = Path::<String>::from_request_parts(parts, app).await else {
            return Err(ApiError::absent(T::THING));
        };
        text.parse().map(Self).map_err(|_| ApiError::not_found(T::THING, &text))
    }
}
