//! What the hub itself sends: callbacks to callers, tasks and cancellations to push agents.

use serde_json::{Value, json};

/// Adds them.
pub(super) fn document(document: &mut Value) {
    let Some(root) = document.as_object_mut() else { return };
    if let Some(schemas) = root.get_mut("components").and_then(|all| all.get_mut("schemas")) {
        schemas["CallbackMessage"] = message();
    }
    root.insert("webhooks".to_owned(), json!({"callback": callback(), "dispatch": dispatch(), "cancel": cancel()}));
}

fn header(name: &str, about: &str) -> Value {
    json!({"name": name, "in": "header", "required": true, "description": about, "schema": {"type": "string"}})
}

fn of(name: &str) -> Value {
    json!({"required": true, "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}}})
}

fn traced(mut parameters: Vec<Value>) -> Vec<Value> {
    parameters.push(json!({"$ref": "#/components/parameters/Traceparent"}));
    parameters
}

fn callback() -> Value {
    json!({"post": {
        "summary": "A callback, as Standard Webhooks have it",
        "description": "Sent at least once, for 24 hours, until it is answered 2xx; 410 ends it; `Retry-After` is honoured.",
        "parameters": traced(vec![
            header("webhook-id", "The same on every try: de-duplicate by it."),
            header("webhook-timestamp", "Unix seconds of this try."),
            header("webhook-signature", "`v1,` and base64 of HMAC-SHA-256 over `id.timestamp.body`, one for each active \
                                         secret, blanks between."),
        ]),
        "requestBody": of("CallbackMessage"),
        "responses": {"2XX": {"description": "Taken"}, "410": {"description": "Send no more"}},
    }})
}

fn dispatch() -> Value {
    json!({"post": {
        "summary": "A task for a push agent, at its endpoint",
        "parameters": traced(vec![
            header("Reach-Id", "The task."),
            header("Reach-Attempt", "Which attempt."),
            header("Reach-Lease", "The right to work on it."),
            header("Reach-Deadline", "The task's end."),
            header("Idempotency-Key", "Task and attempt."),
        ]),
        "requestBody": of("ClaimedTask"),
        "responses": {
            "200": {"description": "Done, with the result as JSON; 201 too"},
            "202": {"description": "Acknowledged: reports follow"},
            "204": {"description": "Done, without a result"},
            "400": {"description": "Failed for good; 422 too"},
            "409": {"description": "Was done already"},
            "429": {"description": "Not now; 503 too, with `Retry-After`"},
        },
    }})
}

fn cancel() -> Value {
    json!({"post": {
        "summary": "A push agent is told to stop, at its endpoint",
        "parameters": [header("Reach-Event", "`cancel`")],
        "requestBody": {"required": true, "content": {"application/json": {"schema": {
            "type": "object", "required": ["reach_id", "attempt"],
            "properties": {"reach_id": {"type": "string"}, "attempt": {"type": "integer"}},
        }}}},
        "responses": {"2XX": {"description": "Understood"}},
    }})
}

fn message() -> Value {
    json!({
        "type": "object", "required": ["type", "timestamp", "data"],
        "properties": {
            "type": {"type": "string", "examples": ["task.succeeded", "batch.settled"]},
            "timestamp": {"type": "string", "format": "date-time"},
            "data": {"anyOf": [
                {
                    "type": "object", "description": "About a task",
                    "required": ["reach_id", "state", "attempt", "seq", "labels", "failure"],
                    "properties": {
                        "reach_id": {"type": "string"},
                        "state": {"type": "string"},
                        "attempt": {"type": ["integer", "null"]},
                        "seq": {"type": "integer", "description": "The event that it tells of."},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        "result": {"description": "Any JSON of up to 16 KiB; a longer one is at `result_url`."},
                        "result_url": {"type": "string"},
                        "failure": {
                            "type": ["object", "null"], "required": ["class", "code"],
                            "properties": {
                                "class": {"type": "string"}, "code": {"type": "string"},
                                "message": {"type": ["string", "null"]},
                            },
                        },
                        "stage": {"type": "string"},
                        "percent": {"type": "integer"},
                    },
                },
                {
                    "type": "object", "description": "About a batch",
                    "required": ["batch_id", "seq", "total", "refused", "by_state"],
                    "properties": {
                        "batch_id": {"type": "string"},
                        "seq": {"type": "integer"},
                        "total": {"type": "integer"},
                        "refused": {"type": "integer"},
                        "by_state": {"type": "object", "additionalProperties": {"type": "integer"}},
                    },
                },
            ]},
        },
    })
}
