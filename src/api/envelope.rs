//! What every call has around it, whatever its route: it is counted, its caller's trace is in the answer, and a panic in
//! it is an answer too.

use std::panic::AssertUnwindSafe;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;

use crate::ledger::ids::TraceContext;

use super::App;
use super::error::ApiError;

/// The header of W3C Trace Context.
const TRACEPARENT: &str = "traceparent";

/// Puts the envelope around a call.
pub(super) async fn wrap(State(app): State<App>, request: Request, next: Next) -> Response {
    // Paths that match no route count as one, so that nobody can make labels.
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let method = known_method(request.method());
    let trace = trace(request.headers());
    let start = tokio::time::Instant::now();
    let mut response = caught(method, &route, next.run(request)).await;
    app.metrics.count(method, route, response.status().as_u16(), start.elapsed().as_secs_f64());
    if let Some(trace) = trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok()) {
        response.headers_mut().insert(TRACEPARENT, trace);
    }
    response
}

/// The caller's trace. What does not parse is ignored, never refused (W3C Trace Context, section 4.3).
pub(super) fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get(TRACEPARENT)?.to_str().ok()?.parse().ok()
}

/// A bug in a handler costs its own call and no other: the panic is logged and answered as the hub's mistake.
async fn caught(method: &str, route: &str, call: impl Future<Output = Response>) -> Response {
    let panic = match AssertUnwindSafe(call).catch_unwind().await {
        Ok(response) => return response,
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<&str>().copied();
    let what = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    tracing::error!(method, route, panic = what, "a call panicked");
    ApiError::internal().into_response()
}

fn known_method(method: &axum::http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
