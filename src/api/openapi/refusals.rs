//! Which refusals a call can meet. They follow from what the call is, in this one place, so no route can forget one; a
//! hook in the tests holds every answer that they see against the document.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use crate::api::error::Code;

/// Adds its refusals to every operation.
pub(super) fn document(document: &mut Value) {
    if let Some(components) = document.get_mut("components") {
        components["responses"] = all();
        components["parameters"] = parameters();
    }
    for (path, item) in document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            let call = Call::of(path, method, operation);
            if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
                for status in call.refusals() {
                    let name = status.as_str();
                    let named = json!({"$ref": format!("#/components/responses/Problem{name}")});
                    responses.entry(name).or_insert(named);
                }
            }
            call.put_parameters(operation);
        }
    }
}

/// What decides how a call can be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trait {
    NeedsToken,
    HasId,
    HasBody,
    Writes,
}

struct Call(Vec<Trait>);

impl Call {
    fn of(path: &str, method: &str, operation: &Value) -> Self {
        let public = operation.get("security").and_then(Value::as_array).is_some_and(|schemes| schemes == &[json!({})]);
        let traits = [
            (Trait::NeedsToken, !public),
            (Trait::HasId, path.contains('{')),
            (Trait::HasBody, operation.get("requestBody").is_some()),
            (Trait::Writes, method != "get" && path != "/v1/route/explain"),
        ];
        Self(traits.into_iter().filter(|(_, has)| *has).map(|(found, _)| found).collect())
    }

    fn refusals(&self) -> Vec<StatusCode> {
        let mut all = vec![
            StatusCode::BAD_REQUEST,
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            StatusCode::INTERNAL_SERVER_ERROR,
        ];
        if self.0.contains(&Trait::NeedsToken) {
            // 404: also for a namespace that the token does not hold in.
            all.extend([StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND]);
            all.push(StatusCode::SERVICE_UNAVAILABLE);
        }
        if self.0.contains(&Trait::HasId) {
            all.push(StatusCode::NOT_FOUND);
        }
        if self.0.contains(&Trait::HasBody) {
            all.extend([StatusCode::REQUEST_TIMEOUT, StatusCode::PAYLOAD_TOO_LARGE]);
            all.extend([StatusCode::UNSUPPORTED_MEDIA_TYPE, StatusCode::UNPROCESSABLE_ENTITY]);
        }
        if self.0.contains(&Trait::Writes) {
            all.extend([StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS, StatusCode::INSUFFICIENT_STORAGE]);
        }
        all
    }

    fn put_parameters(&self, operation: &mut Value) {
        let mut named = vec!["Traceparent"];
        if self.0.contains(&Trait::NeedsToken) {
            named.push("Namespace");
        }
        let Some(operation) = operation.as_object_mut() else { return };
        let list = operation.entry("parameters").or_insert_with(|| json!([]));
        for name in named {
            if let Some(list) = list.as_array_mut() {
                list.push(json!({"$ref": format!("#/components/parameters/{name}")}));
            }
        }
    }
}

/// A problem for each status of the table of codes.
fn all() -> Value {
    let mut all: Map<String, Value> = Map::new();
    for code in Code::ALL {
        let name = format!("Problem{}", code.status().as_str());
        let text = format!("`{}`: {}", code.name(), code.title());
        let response = all.entry(name).or_insert_with(|| {
            json!({
                "description": "",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            })
        });
        let before = response["description"].as_str().unwrap_or_default();
        let separator = if before.is_empty() { "" } else { ". " };
        response["description"] = json!(format!("{before}{separator}{text}"));
    }
    Value::Object(all)
}

fn parameters() -> Value {
    json!({
        "Namespace": {
            "name": "Reach-Namespace", "in": "header", "required": false,
            "description": "The namespace of the call. Needed by tokens that hold in every namespace; a token of one \
                            namespace may leave it out.",
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}, "example": "dev",
        },
        "Traceparent": {
            "name": "traceparent", "in": "header", "required": false,
            "description": "W3C Trace Context: goes with the task to its agent and its callbacks, and is in the answer.",
            "schema": {"type": "string"}, "example": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        },
    })
}
