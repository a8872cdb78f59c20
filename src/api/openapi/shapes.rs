//! Shapes and examples that the types of the routes can't say: what a claim hands over, lines of NDJSON, bodies to copy.
//!
//! A test sends every example to a real hub; the hook in the tests holds answers against the shapes.

use serde_json::{Value, json};

/// Adds them.
pub(super) fn document(document: &mut Value) {
    put(document, "/components/schemas/ClaimedTask", claimed_task());
    put(document, "/components/schemas/Event", event());
    let of = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    put(document, "/components/schemas/Claimed/properties/tasks/items", of("ClaimedTask"));
    put(document, "/components/schemas/History/properties/events/items", of("Event"));
    for path in ["/paths/~1v1~1events", "/paths/~1v1~1tasks~1{reach_id}~1history"] {
        let at = format!("{path}/get/responses/200/content/application~1x-ndjson");
        put(
            document,
            &at,
            json!({"schema": {"type": "string", "description": "An `Event` a line"}, "itemSchema": of("Event")}),
        );
    }
    let at = "/paths/~1v1~1tasks/post/responses/200";
    let either = json!({"anyOf": [of("Task"), of("Accepted")]});
    put(document, &format!("{at}/content/application~1json/schema"), either);
    put(
        document,
        &format!("{at}/description"),
        json!("With `wait`: the task, which has ended. Or the answer of an earlier call with the same key"),
    );
    let at = "/paths/~1v1~1batches/post/requestBody/content/application~1x-ndjson";
    let schema = json!({"type": "string", "description": NDJSON});
    put(document, at, json!({"schema": schema, "itemSchema": of("TaskBody"), "example": ndjson_example()}));
    for (path, example) in examples() {
        let path = path.replace('/', "~1");
        for method in ["post", "put"] {
            let at = format!("/paths/{path}/{method}/requestBody/content/application~1json/example");
            put(document, &at, example.clone());
        }
    }
}

const NDJSON: &str = "A submission (`TaskBody`) a line. The first line may be about the batch instead: \
                      {\"batch\": {\"callback\": {…}, \"idempotency_key\": \"…\"}}. Blank lines count for nothing; a line \
                      that is refused has its own outcome and does not stop the others.";

/// Sets what stands at a pointer, if its parent is there.
fn put(document: &mut Value, pointer: &str, value: Value) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(parent) = document.pointer_mut(parent).and_then(Value::as_object_mut) {
        parent.insert(name.replace("~1", "/"), value);
    }
}

fn claimed_task() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let maybe = |about: &str| json!({"type": ["string", "null"], "description": about});
    let time = |about: &str| json!({"type": "string", "format": "date-time", "description": about});
    json!({
        "type": "object",
        "description": "A task as its agent gets it, by claim or by push.",
        "required": ["reach_id", "attempt", "lease", "capability", "payload", "deadline", "reach_deadline", "work_timeout_ms"],
        "properties": {
            "reach_id": text("The task."),
            "attempt": {"type": "integer", "minimum": 1, "description": "Which attempt: reports name it."},
            "lease": text("The right to work on this attempt: reports name it."),
            "capability": text("`domain.task_type`"),
            "payload": {"description": "Any JSON, as it was submitted; null without one."},
            "payload_ref": maybe("A reference that the hub never opened."),
            "session_id": maybe("The session."),
            "context_path": maybe("A reference to context."),
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "qos": {"type": "string", "enum": ["urgent", "normal", "background"]},
            "deadline": time("The task's end."),
            "reach_deadline": time("Acknowledge by then."),
            "work_timeout_ms": {"type": "integer", "minimum": 0, "description": "From the acknowledgement on."},
            "replay": {
                "type": ["object", "null"],
                "description": "What an earlier attempt reported last.",
                "properties": {"stage": maybe("The stage."), "percent": {"type": ["integer", "null"]}, "data": {}},
            },
            "traceparent": maybe("The caller's trace."),
        },
    })
}

fn event() -> Value {
    json!({
        "type": "object",
        "description": "An event of the ledger: these fields, and those of its kind. The feed adds `type`; what retention \
                        took is an item of the kind `gap` with `from` and `to`.",
        "required": ["kind"],
        "properties": {
            "seq": {"type": "integer", "minimum": 1, "description": "Its place in the ledger."},
            "at": {"type": "string", "format": "date-time"},
            "kind": {"type": "string", "examples": ["task-submitted"]},
            "type": {"type": "string", "examples": ["task.submitted"]},
            "actor": {"type": "object", "description": "Who did it: `hub`, an agent, or a token with its `token_id` and, until it is revoked, its `name`."},
            "hash": {"type": "string", "description": "RFC 6962 leaf hash of its frame, 64 hex digits."},
            "namespace": {"type": "string"},
            "reach_id": {"type": "string"},
            "session_id": {"type": "string"},
            "batch_id": {"type": "string"},
            "agent_id": {"type": "string"},
            "trace": {"type": "string", "description": "The caller's `traceparent`."},
            "frame": {"type": "string", "description": "With `encoding=raw`: its bytes in base64."},
        },
    })
}

fn task() -> Value {
    json!({
        "capability": "weather.forecast", "payload": {"city": "成都", "days": 3}, "qos": "normal", "idempotent": true,
        "labels": {"line": "travel"}, "wait_for_agent": true,
    })
}

fn ndjson_example() -> String {
    format!(
        "{}\n{}\n",
        task(),
        json!({"capability": "weather.forecast", "payload": {"city": "Oslo"}, "wait_for_agent": true})
    )
}

/// Bodies that work as they are, in an order in which they work.
fn examples() -> Vec<(&'static str, Value)> {
    vec![
        (
            "/v1/agents",
            json!({
                "agent_id": "weather-1",
                "capabilities": [{
                    "capability": "weather.forecast", "description": "Forecast for a city",
                    "input_schema": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}},
                }],
                "transport": {"kind": "pull"}, "max_concurrency": 4,
            }),
        ),
        ("/v1/agents/{agent_id}/heartbeat", json!({"incarnation": 1, "load": {"queue_depth": 0, "in_flight": 1}})),
        ("/v1/tasks", task()),
        ("/v1/route/explain", task()),
        ("/v1/batches", json!({"tasks": [task(), task()]})),
        ("/v1/tasks/{reach_id}/cancel", json!({"reason": "no longer needed"})),
        ("/v1/agents/{agent_id}/claim", json!({"incarnation": 1, "max": 1, "wait_ms": 1000})),
        ("/v1/work/reports", json!({"agent_id": "weather-1", "incarnation": 1, "reports": []})),
        ("/v1/agents/{agent_id}/drain", json!({"grace_ms": 30000, "reason": "a new version"})),
        ("/v1/agents/{agent_id}/offline", json!({"incarnation": 1})),
        ("/v1/callback-secrets", json!({"name": "travel"})),
        ("/v1/callback-secrets/{name}/rotate", json!({"overlap_ms": 86_400_000})),
        ("/v1/policies", json!({"policy": {"lane_bound": 50_000}, "reason": "a smaller queue"})),
        (
            "/v1/replays",
            json!({
                "select": {"state": ["orphaned", "dead-letter"], "agent_id": "weather-1"}, "rate_per_s": 50,
                "reason": "the rack of weather-1 lost power", "dry_run": true,
            }),
        ),
        ("/v1/tokens", json!({"name": "batch-caller", "scopes": ["submit", "read"]})),
        ("/v1/tokens/{token_id}/rotate", json!({"overlap_ms": 3_600_000})),
    ]
}
