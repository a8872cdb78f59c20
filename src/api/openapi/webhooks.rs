//! What the hub itself sends: callbacks to callers, tasks and cancellations to push agents.

use serde_json::{Value, json};

use crate::scheduler::outbound::alerts::rules::Kind;

/// Adds them.
pub(super) fn document(document: &mut Value) {
    let Some(root) = document.as_object_mut() else { return };
    if let Some(schemas) = root.get_mut("components").and_then(|all| all.get_mut("schemas")) {
        schemas["CallbackMessage"] = message();
        schemas["AlertMessage"] = alert_message();
    }
    root.insert(
        "webhooks".to_owned(),
        json!({"callback": callback(), "alert": alert(), "dispatch": dispatch(), "cancel": cancel()}),
    );
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

fn signed() -> Vec<Value> {
    vec![
        header("webhook-id", "The same on every try: de-duplicate by it."),
        header("webhook-timestamp", "Unix seconds of this try."),
        header(
            "webhook-signature",
            "`v1,` and base64 of HMAC-SHA-256 over `id.timestamp.body`, one for each active secret, blanks between.",
        ),
    ]
}

fn alert() -> Value {
    json!({"post": {
        "summary": "A person is needed, as Standard Webhooks have it, at `alerts.url`",
        "description": "Sent at least once, until it is answered 2xx, at most ten minutes apart; 400, 413 or 422 three times \
                        ends it; `Retry-After` is honoured. What happens often in one place is one message.",
        "parameters": signed(),
        "requestBody": of("AlertMessage"),
        "responses": {"2XX": {"description": "Taken"}},
    }})
}

fn alert_message() -> Value {
    let kinds: Vec<String> = Kind::ALL.iter().map(|kind| kind.name().to_owned()).collect();
    let or_null = |about: &str| json!({"type": ["string", "null"], "description": about});
    json!({
        "type": "object", "required": ["type", "timestamp", "data"],
        "properties": {
            "type": {"type": "string", "examples": ["alert.dead-letter"]},
            "timestamp": {"type": "string", "format": "date-time"},
            "data": {
                "type": "object",
                "required": ["kind", "state", "namespace", "capability", "owner", "count", "summary", "why", "first", "last",
                    "named", "seq", "last_seq", "since", "until", "what_to_do"],
                "properties": {
                    "kind": {"type": "string", "description": "New ones may come.", "examples": kinds},
                    "state": or_null("`firing` or `resolved`, of a condition"),
                    "namespace": or_null("Where; null for what concerns the whole hub"),
                    "capability": or_null("Of which capability"),
                    "owner": or_null("Who looks after it, by the capability's rules"),
                    "count": {"type": "integer", "description": "How many, gathered in one window"},
                    "summary": {"type": "string", "description": "For one line of a pager"},
                    "why": {"type": "string", "description": "Of the first; of a condition, of the last"},
                    "first": or_null("Id of a task, an agent, a callback, a plan"),
                    "last": or_null("Id of the last one"),
                    "named": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
                    "seq": {"type": "integer", "description": "The first event"},
                    "last_seq": {"type": "integer"},
                    "since": {"type": "string", "format": "date-time"},
                    "until": {"type": "string", "format": "date-time"},
                    "left_behind": {
                        "type": "object", "description": "What lost agents left behind",
                        "required": ["replayed_by_itself", "held"],
                        "properties": {"replayed_by_itself": {"type": "integer"}, "held": {"type": "integer"}},
                    },
                    "what_to_do": {"type": "array", "items": {"type": "string"}, "description": "Commands"},
                },
            },
        },
    })
}

fn callback() -> Value {
    json!({"post": {
        "summary": "A callback, as Standard Webhooks have it",
        "description": "Sent at least once, for 24 hours, until it is answered 2xx; 410 ends it; `Retry-After` is honoured.",
        "parameters": traced(signed()),
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
