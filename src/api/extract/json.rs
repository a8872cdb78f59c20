//! A bounded, strict JSON body: content type, size, time to arrive, depth, keys, fields; each refused with its pointer.

use std::fmt::Write as _;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_path_to_error::Segment;

use crate::api::App;
use crate::api::error::{ApiError, ApiResult, Code};

use super::named::Named;
use super::strict;
use super::unknown::Unknown;

/// A request body: a payload of 1 MiB and 64 KiB around it (semantics 32).
pub const MAX_BODY: usize = (1 << 20) + (64 << 10);

/// A JSON body as `T`, which must deny unknown fields; as an answer, `T` as JSON.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

/// As [`Json`], with the bytes as they came: for fingerprints.
#[derive(Debug, Clone)]
pub struct WithBytes<T> {
    /// Parsed.
    pub value: T,
    /// As it came.
    pub bytes: Bytes,
}

/// A JSON body as it came, for handlers that parse it borrowing from it with [`parse`].
#[derive(Debug, Clone)]
pub struct JsonBytes(pub Bytes);

impl FromRequest<App> for JsonBytes {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        json_bytes(request, app).await.map(Self)
    }
}

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let bytes = json_bytes(request, app).await?;
        parse(&bytes).map(Self)
    }
}

/// As [`Json`] for calls whose fields may all be left out: then the body may be too.
#[derive(Debug, Clone)]
pub struct MaybeJson<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<App> for MaybeJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        if axum::body::HttpBody::is_end_stream(request.body()) && !request.headers().contains_key(CONTENT_TYPE) {
            return Ok(Self(T::default()));
        }
        Json::from_request(request, app).await.map(|Json(body)| Self(body))
    }
}

impl<T: DeserializeOwned> FromRequest<App> for WithBytes<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let bytes = json_bytes(request, app).await?;
        Ok(Self { value: parse(&bytes)?, bytes })
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => {
                let mut response = Response::new(Body::from(bytes));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Err(error) => {
                tracing::error!(%error, "an answer could not be written as JSON");
                ApiError::internal().into_response()
            }
        }
    }
}

async fn json_bytes(request: Request, app: &App) -> ApiResult<Bytes> {
    let (parts, body) = request.into_parts();
    expect_content_type(&parts.headers, &["application/json"])?;
    read_body(&parts.headers, body, MAX_BODY, app).await
}

/// Checks the content type against those taken here; answers which one it is.
///
/// # Errors
/// 415 `unsupported-media-type`, naming them; 415 `unsupported-encoding` for a compressed body.
pub fn expect_content_type(headers: &HeaderMap, taken: &[&'static str]) -> ApiResult<&'static str> {
    let plain = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        let detail = "the body is compressed, or said to be";
        return Err(ApiError::new(Code::UnsupportedEncoding, detail));
    }
    let mut all = headers.get_all(CONTENT_TYPE).iter();
    let sent = match (all.next(), all.next()) {
        (Some(one), None) => one.to_str().unwrap_or(""),
        _ => "",
    };
    let mut parts = sent.split(';');
    let kind = parts.next().unwrap_or("").trim();
    // JSON is UTF-8 (RFC 8259); a parameter that says otherwise is refused, not guessed at.
    let charset_fits = parts.all(|parameter| match parameter.trim().split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
            value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        Some(_) | None => true,
    });
    taken
        .iter()
        .copied()
        .find(|name| charset_fits && name.eq_ignore_ascii_case(kind))
        .ok_or_else(|| ApiError::new(Code::UnsupportedMediaType, format!("send {} in UTF-8", taken.join(" or "))))
}

/// The length of the body, if it was told.
#[must_use]
pub fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok())
}

/// Reads a whole body of at most `limit` bytes within the hub's body timeout. While it is large it has its room.
///
/// # Errors
/// 413 `body-too-large`, 503 `busy` when bodies have no room, 408 `request-timeout`, 400 when the connection breaks.
pub async fn read_body(headers: &HeaderMap, body: Body, limit: usize, app: &App) -> ApiResult<Bytes> {
    let too_large = || ApiError::new(Code::BodyTooLarge, format!("the limit is {limit} bytes")).fact("limit", limit);
    let announced = announced(headers);
    if announced.is_some_and(|len| len > limit) {
        return Err(too_large());
    }
    let room = app.room.take(announced.unwrap_or(limit)).await?;
    let collected = http_body_util::Limited::new(body, limit).collect();
    match tokio::time::timeout(app.options.body_timeout, collected).await {
        Ok(Ok(whole)) => Ok(room.with(whole.to_bytes())),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(ApiError::new(Code::MalformedRequest, "the body broke off")),
        Err(_) => {
            let within = app.options.body_timeout.as_secs();
            Err(ApiError::new(Code::RequestTimeout, format!("the body was not there after {within} s")))
        }
    }
}

/// Parses one JSON document strictly: depth, duplicate keys, then `T` with its unknown fields.
///
/// # Errors
/// 400 for what is not such JSON, 422 for fields, each with its pointer.
pub fn parse<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> ApiResult<T> {
    strict::check(bytes)?;
    parse_checked(bytes)
}

/// As [`parse`], for a part of a document that was checked as a whole.
///
/// # Errors
/// 422 for fields, each with its pointer.
pub fn parse_checked<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> ApiResult<T> {
    // The happy path pays nothing for the path to an error; a bad body is parsed once more to find it.
    let mut document = serde_json::Deserializer::from_slice(bytes);
    let parsed = T::deserialize(Named(&mut document)).and_then(|parsed| document.end().map(|()| parsed));
    parsed.map_err(|first| explain::<T>(bytes, &first))
}

fn explain<'de, T: Deserialize<'de>>(bytes: &'de [u8], first: &serde_json::Error) -> ApiError {
    let deserializer = &mut serde_json::Deserializer::from_slice(bytes);
    let (pointer, message) = match serde_path_to_error::deserialize::<_, T>(Named(deserializer)) {
        Ok(_) => (String::new(), first.to_string()),
        Err(error) => (pointer_of(error.path()), error.inner().to_string()),
    };
    let message = without_place(&message);
    if let Some(unknown) = Unknown::field(message) {
        let detail = unknown.told("there is no field", "the fields here are");
        return ApiError::new(Code::UnknownField, detail).at(pointer, "unknown").suggest(unknown.meant());
    }
    if let Some(unknown) = Unknown::word(message) {
        let detail = unknown.told("there is no", "choose from");
        return ApiError::field(pointer, detail).suggest(unknown.meant());
    }
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    let pointer = match missing {
        Some(name) => format!("{pointer}/{name}"),
        None => pointer,
    };
    ApiError::field(pointer, shortened(&in_words(message)))
}

/// The name of a type of ours says nothing to whoever sent the body.
fn in_words(message: &str) -> String {
    match message.split_once(", expected struct ") {
        Some((what, _)) => format!("{what}, expected an object"),
        None => message.to_owned(),
    }
}

fn pointer_of(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                let _ = write!(pointer, "/{index}");
            }
            Segment::Map { key } => {
                let _ = write!(pointer, "/{}", strict::escaped(key));
            }
            // A variant's name is not a step of the document, and an unknown one has no name.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

fn without_place(message: &str) -> &str {
    message.rfind(" at line ").and_then(|end| message.get(..end)).unwrap_or(message)
}

/// Messages may quote what was sent: cut them.
pub(super) fn shortened(message: &str) -> String {
    const MOST: usize = 300;
    if message.chars().count() <= MOST {
        return message.to_owned();
    }
    message.chars().take(MOST).chain("…".chars()).collect()
}
