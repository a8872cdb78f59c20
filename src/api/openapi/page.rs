//! The document as a page to read without a network, and the table of error codes.

use std::fmt::Write as _;

use serde_json::Value;

use crate::api::error::Code;

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

pub(super) fn page(document: &Value) -> String {
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
