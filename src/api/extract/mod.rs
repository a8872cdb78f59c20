//! What handlers take in: who calls, a bounded JSON body, ids in paths, query parameters, times.
//!
//! Why own extractors: axum's answer plain text, take duplicate keys and unknown fields, and know no depth (proof 3.7).

mod caller;
mod json;
mod prefer;
mod strict;
mod time;

use std::str::FromStr;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::App;
use super::error::{ApiError, Code};

pub use caller::{Bearer, Caller};
pub use json::{
    Json, JsonBytes, MAX_BODY, MaybeJson, WithBytes, announced, expect_content_type, parse, parse_checked, read_body,
};
pub use prefer::preferred_wait;
pub use strict::MAX_DEPTH;
pub use time::WireTime;

/// The one id in a path. What does not parse is the same 404 as what does not exist (semantics 37).
#[derive(Debug, Clone)]
pub struct Id<T>(pub T);

impl<T: FromStr + Send> FromRequestParts<App> for Id<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Ok(Path(text)) = Path::<String>::from_request_parts(parts, app).await else {
            return Err(ApiError::not_found());
        };
        text.parse().map(Self).map_err(|_| ApiError::not_found())
    }
}

/// Query parameters; `T` must deny unknown fields.
#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        axum::extract::Query::<T>::try_from_uri(&parts.uri).map(|query| Self(query.0)).map_err(|rejection| {
            let text = rejection.body_text();
            let detail = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            ApiError::new(Code::InvalidQuery, json::shortened(detail))
        })
    }
}

/// For calls that take no query parameters: any is refused.
#[derive(Debug, Clone, Copy)]
pub struct NoQuery;

impl FromRequestParts<App> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        match parts.uri.query() {
            None | Some("") => Ok(Self),
            Some(_) => Err(ApiError::new(Code::InvalidQuery, "this call takes no query parameters")),
        }
    }
}
