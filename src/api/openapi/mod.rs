//! The API's own description: OpenAPI 3.1, and a page to read it without a network.
//!
//! Both come from the routes themselves, so no route can be missing.

mod page;
mod refusals;
mod shapes;
mod webhooks;

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::extract::{Json, NoQuery};

pub use page::errors_markdown;

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(openapi)).routes(routes!(docs)).routes(routes!(index))
}

/// The document, made once.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let (_, document) = super::routes().split_for_parts();
    let mut document = serde_json::to_value(document).unwrap_or_default();
    if let Some(root) = document.as_object_mut() {
        root.insert(
            "info".to_owned(),
            json!({"title": "Agent-Reach", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "Apache-2.0"},
                   "description": "Async tasks by capability, routed to agents, followed and proved."}),
        );
        root.insert("security".to_owned(), json!([{"bearer": []}]));
        if let Some(components) = root.entry("components").or_insert_with(|| json!({})).as_object_mut() {
            components.insert("securitySchemes".to_owned(), json!({"bearer": {"type": "http", "scheme": "bearer"}}));
        }
    }
    refusals::document(&mut document);
    shapes::document(&mut document);
    webhooks::document(&mut document);
    document
});

static JSON: LazyLock<Bytes> = LazyLock::new(|| serde_json::to_vec(&*DOCUMENT).unwrap_or_default().into());
static PAGE: LazyLock<Bytes> = LazyLock::new(|| page::page(&DOCUMENT).into());

/// The OpenAPI 3.1 document of every route.
#[must_use]
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "docs", security(()),
    responses((status = 200, content_type = "application/json", body = Object)))]
async fn openapi(_: NoQuery) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], JSON.clone()).into_response()
}

/// Where to go from here.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
struct Index {
    name: &'static str,
    version: &'static str,
    /// A page to read.
    docs: &'static str,
    /// This API as OpenAPI 3.1.
    openapi: &'static str,
    /// Figures for Prometheus.
    metrics: &'static str,
    /// Is the process there?
    live: &'static str,
    /// Does it take work?
    ready: &'static str,
}

/// Where to go from here.
#[utoipa::path(get, path = "/", tag = "docs", security(()), responses((status = 200, body = Index)))]
async fn index(_: NoQuery) -> Json<Index> {
    Json(Index {
        name: "Agent-Reach",
        version: env!("CARGO_PKG_VERSION"),
        docs: "/docs",
        openapi: "/openapi.json",
        metrics: "/metrics",
        live: "/livez",
        ready: "/readyz",
    })
}

/// A page to read.
#[utoipa::path(get, path = "/docs", tag = "docs", security(()),
    responses((status = 200, content_type = "text/html", body = String)))]
async fn docs(_: NoQuery) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
    ];
    (headers, PAGE.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::error::Code;
    use super::*;

    /// Clients are generated from them; OpenAPI 3.1 requires that they differ.
    #[test]
    fn every_operation_has_an_id_of_its_own_that_names_its_thing() {
        let mut seen = BTreeSet::new();
        for (path, item) in document()["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(!path.starts_with("/v1/") || id.contains('_'), "{path}: {id}");
                assert!(seen.insert(id.clone()), "{path}: {id} is there twice");
            }
        }
    }

    #[test]
    fn the_document_is_openapi_3_1_and_every_operation_names_its_summary_and_answers() {
        let document = document();
        let version = document.get("openapi").and_then(Value::as_str).unwrap();
        assert!(version.starts_with("3.1"), "{version}");
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                assert!(operation["summary"].is_string(), "{method} {path} has no summary");
                let responses = operation["responses"].as_object().unwrap();
                assert!(responses.keys().all(|status| status.parse::<u16>().is_ok()), "{method} {path}: {responses:?}");
                for status in ["400", "431", "500"] {
                    let named = &responses[status];
                    assert_eq!(named["$ref"], format!("#/components/responses/Problem{status}"), "{method} {path}");
                }
            }
        }
        assert!(!String::from_utf8_lossy(&PAGE).contains("https://"), "the page needs no network");
    }

    #[test]
    fn a_path_parameter_stands_in_its_path_and_a_query_parameter_is_optional() {
        let mut wrong = Vec::new();
        let mut queries = 0;
        for (path, item) in document()["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    let Some(name) = parameter["name"].as_str() else { continue };
                    let stands = path.contains(&format!("{{{name}}}"));
                    let right = match parameter["in"].as_str().unwrap() {
                        "path" => stands,
                        "query" => !stands && parameter["required"] != true,
                        other => other == "header",
                    };
                    queries += usize::from(parameter["in"] == "query");
                    if !right {
                        wrong.push(format!("{method} {path}: {name} in {}", parameter["in"]));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(queries > 20, "the query parameters are gone: {queries}");
    }

    #[test]
    fn the_page_of_error_codes_is_the_table_in_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
        let wanted = errors_markdown();
        if std::env::var_os("REACH_FIX").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/docs")).unwrap();
            std::fs::write(path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(found == wanted, "docs/errors.md is stale: run the tests with REACH_FIX=1");
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len(), "two codes share a name");
    }
}
