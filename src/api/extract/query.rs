//! Query parameters: a refusal names the parameter, what came and what was expected.

use std::fmt;
use std::ops::RangeInclusive;

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use crate::api::App;
use crate::api::error::{ApiError, Code};

use super::json::shortened;
use super::unknown::Unknown;

/// Characters of a value that are said again.
const SHOWN: usize = 80;

/// Query parameters; `T` must deny unknown fields.
#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        axum::extract::Query::<T>::try_from_uri(&parts.uri).map(|query| Self(query.0)).map_err(|rejection| {
            let text = rejection.body_text();
            refusal(&parts.uri, text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text))
        })
    }
}

/// For calls that take no query parameters: any is refused.
#[derive(Debug, Clone, Copy)]
pub struct NoQuery;

impl FromRequestParts<App> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        match given(&parts.uri).next() {
            None => Ok(Self),
            Some((name, _)) => Err(ApiError::new(
                Code::InvalidQuery,
                format!("this call takes no query parameters, and {} came", quoted(&name)),
            )),
        }
    }
}

/// A query parameter that is wrong: what came, and what is expected.
pub fn wrong(name: &str, came: Option<&str>, expected: impl fmt::Display) -> ApiError {
    let came = quoted(came.unwrap_or_default());
    ApiError::new(Code::InvalidQuery, format!("{name}: {came} came; expected {expected}"))
}

/// A number in a query that is not within its bounds.
pub fn outside<N: fmt::Display>(name: &str, came: N, bounds: RangeInclusive<N>) -> ApiError {
    let detail = format!("{name}: {came} came; expected {} to {}", bounds.start(), bounds.end());
    ApiError::new(Code::InvalidQuery, detail)
}

fn given(uri: &Uri) -> impl Iterator<Item = (String, String)> {
    let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    pairs.map(|(name, value)| (name.into_owned(), value.into_owned()))
}

/// A short text in quotes, in which nothing steers a terminal.
pub fn quoted(text: &str) -> String {
    let cut = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("{:?}{cut}", text.chars().take(SHOWN).collect::<String>())
}

/// The refusal of what serde says about a query, in which the name of the parameter comes first.
fn refusal(uri: &Uri, said: &str) -> ApiError {
    if let Some(unknown) = Unknown::field(said) {
        let detail = unknown.told("there is no parameter", "the parameters here are");
        return ApiError::new(Code::InvalidQuery, detail).suggest(unknown.meant());
    }
    let found = given(uri).find_map(|(name, value)| {
        let why = said.strip_prefix(name.as_str())?.strip_prefix(": ")?.to_owned();
        Some((name, value, why))
    });
    let Some((name, value, why)) = found else {
        let twice = said.split_once("duplicate field `").and_then(|(_, rest)| rest.strip_suffix('`'));
        return ApiError::new(
            Code::InvalidQuery,
            match twice {
                Some(name) => format!("{name}: it came more than once; expected once"),
                None => shortened(said),
            },
        );
    };
    if why.starts_with("duplicate field") {
        return ApiError::new(Code::InvalidQuery, format!("{name}: it came more than once; expected once"));
    }
    let expected = match why.as_str() {
        "invalid digit found in string" | "cannot parse integer from empty string" => "a whole number",
        "number too large to fit in target type" => "a whole number, and this one is too large",
        "number too small to fit in target type" => "a whole number, and this one is too small",
        "provided string was not `true` or `false`" => "true or false",
        other => other.strip_prefix("expected ").unwrap_or(other),
    };
    wrong(&name, Some(&value), shortened(expected))
}
