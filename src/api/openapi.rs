//! The API's own description: OpenAPI 3.1, and a page to read it without a network.
//!
//! Both come from the routes themselves, so no route can be missing.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::error::Code;
use super::extract::NoQuery;

/// The resource's routes.
pub(in crate::api) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(openapi)).routes(routes!(docs))
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
    for operation in operations(&mut document) {
        problems(operation);
    }
    document
});
fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let items = document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
    items.filter_map(Value::as_object_mut).flat_map(Map::values_mut)
}

/// Every refusal of every operation is a problem document, also where the operation names one status only.
fn problems(operation: &mut Value) {
    let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else { return };
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    for response in responses.values_mut().filter_map(Value::as_object_mut) {
        let of_json = response.get("content").and_then(|content| content.pointer("/application~1json/schema"));
        if of_json == Some(&schema) {
            response.insert("content".to_owned(), json!({"application/problem+json": {"schema": schema}}));
        }
    }
    for (status, description) in [("4XX", "The caller's mistake"), ("5XX", "The hub can't do it, or not now")] {
        let content = json!({"application/problem+json": {"schema": schema}});
        let response = responses.entry(status).or_insert_with(|| json!({"content": content}));
        if response.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
            response["description"] = json!(description);
        }
    }
}

static JSON: LazyLock<Bytes> = LazyLock::new(|| serde_json::to_vec(&*DOCUMENT).unwrap_or_default().into());
static PAGE: LazyLock<Bytes> = LazyLock::new(|| page(&DOCUMENT).into());

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

/// Every code as a table: docs/errors.md is this text.
#[must_use]
pub fn errors_markdown() -> String {
    let mut text = String::from(
        "# Error codes\n\nEvery refusal is an `application/problem+json` document (RFC 9457) with a stable `code`. Codes \
         are added, never renamed.\nThis page is generated from the code; a test compares the two.\n\n\
         | status | code | what | what to do next |\n| --- | --- | --- | --- |\n",
    );
    for code in Code::ALL {
        let (status, name, title, next) = (code.status().as_u16(), code.name(), code.title(), code.next_step());
        let _ = writeln!(text, "| {status} | `{name}` | {title} | {next} |");
    }
    text
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}\
    h2{margin-top:2.5rem;border-bottom:1px solid #d0d7de}code,pre{font:14px ui-monospace,monospace;background:#f6f8fa}\
    pre{padding:.75rem;overflow:auto}details{margin:.5rem 0}table{border-collapse:collapse}td,th{padding:.25rem .6rem;\
    border:1px solid #d0d7de;text-align:left;vertical-align:top}.method{display:inline-block;min-width:4.5rem;font-weight:600}";

fn page(document: &Value) -> String {
    let mut html = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Agent-Reach API</title><style>{STYLE}</style><h1>Agent-Reach API</h1>\
         <p>Generated from <a href=\"/openapi.json\">/openapi.json</a>. Calls carry <code>Authorization: Bearer …</code>; \
         the namespace comes from the token or the <code>Reach-Namespace</code> header.</p><h2>Calls</h2>"
    );
    for (path, item) in document.get("paths").and_then(Value::as_object).into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            operation_html(&mut html, path, method, operation);
        }
    }
    html.push_str("<h2>Shapes</h2>");
    for (name, schema) in document.pointer("/components/schemas").and_then(Value::as_object).into_iter().flatten() {
        let _ = write!(html, "<details id=\"{0}\"><summary><code>{0}</code></summary>", escape(name));
        pretty(&mut html, schema);
        html.push_str("</details>");
    }
    html.push_str("<h2>Error codes</h2><table><tr><th>status<th>code<th>what<th>what to do next");
    for code in Code::ALL {
        let (status, name) = (code.status().as_u16(), code.name());
        let (title, next) = (escape(code.title()), escape(code.next_step()));
        let _ = write!(html, "<tr><td>{status}<td><code>{name}</code><td>{title}<td>{next}");
    }
    html.push_str("</table></html>");
    html
}

fn operation_html(html: &mut String, path: &str, method: &str, operation: &Value) {
    let text = |key: &str| operation.get(key).and_then(Value::as_str).unwrap_or_default();
    let _ = write!(
        html,
        "<details><summary><span class=method>{}</span> <code>{}</code> {}</summary><p>{}</p>",
        escape(&method.to_uppercase()),
        escape(path),
        escape(text("summary")),
        escape(text("description"))
    );
    for (title, key) in [("Parameters", "parameters"), ("Body", "requestBody"), ("Answers", "responses")] {
        if let Some(part) = operation.get(key) {
            let _ = write!(html, "<h4>{title}</h4>");
            pretty(html, part);
        }
    }
    html.push_str("</details>");
}

fn pretty(html: &mut String, value: &Value) {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let _ = write!(html, "<pre>{}</pre>", escape(&text));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_openapi_3_1_and_every_operation_names_its_summary_and_answers() {
        let document = document();
        let version = document.get("openapi").and_then(Value::as_str).unwrap();
        assert!(version.starts_with("3.1"), "{version}");
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                assert!(operation["summary"].is_string(), "{method} {path} has no summary");
                let refused = &operation["responses"]["4XX"]["content"];
                assert!(refused["application/problem+json"].is_object(), "{method} {path}: {refused}");
                assert!(refused["application/json"].is_null(), "{method} {path}: {refused}");
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
                    let name = parameter["name"].as_str().unwrap();
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
