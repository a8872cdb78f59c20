//! What an operator is woken up for: dead letters by the dozen, tasks whose agent is gone, one that is slow.

use serde_json::{Value, json};

use crate::hub::{Hub, post, wait_until};

/// An agent that is only heard of when a test lets it speak; after three intervals of silence it is lost.
pub(crate) fn agent(hub: &Hub, name: &str, capability: &str, interval_ms: u64) {
    let declaration = json!({
        "agent_id": name, "instance": "i", "transport": {"kind": "pull"}, "health": {"interval_ms": interval_ms},
        "max_concurrency": 500, "capabilities": [{"capability": capability}],
    });
    hub.post("/v1/agents", &declaration.to_string());
}

/// Submits so many, all with these fields; their ids in order.
pub(crate) fn submitted(hub: &Hub, capability: &str, count: usize, fields: &Value) -> Vec<String> {
    let mut task = json!({"capability": capability, "reach_timeout_ms": 60_000});
    let more = fields.as_object().cloned().unwrap_or_default();
    task.as_object_mut().expect("an object").extend(more);
    let submit = |_| {
        let answer = hub.post("/v1/tasks", &task.to_string());
        text(&body(&answer), "reach_id")
    };
    (0..count).map(submit).collect()
}

/// The agent takes so many and acknowledges them: it has started. What it was handed, with its leases.
pub(crate) fn started(hub: &Hub, agent: &str, count: usize) -> Vec<Value> {
    let mut held: Vec<Value> = Vec::new();
    while held.len() < count {
        let tasks = take(&hub.url, agent, count - held.len(), 5_000);
        // What is not acknowledged would be handed over again by the next claim.
        report(&hub.url, agent, &tasks, &json!({"op": "ack"}));
        held.extend(tasks);
    }
    held
}

/// What the agent is handed within so long.
pub(crate) fn take(url: &str, agent: &str, most: usize, wait_ms: u64) -> Vec<Value> {
    let claim = json!({"incarnation": 1, "max": most, "wait_ms": wait_ms}).to_string();
    list(&body(&post(url, &format!("/v1/agents/{agent}/claim"), &claim)), "tasks")
}

/// The agent says the same of each.
pub(crate) fn report(url: &str, agent: &str, held: &[Value], what: &Value) {
    let one = |task: &Value| {
        let mut report = what.clone();
        let fields = report.as_object_mut().expect("an object");
        let lease =
            ["reach_id", "attempt", "lease"].map(|name| (name.to_owned(), task.get(name).cloned().expect("it")));
        fields.extend(lease);
        report
    };
    let reports: Vec<Value> = held.iter().map(one).collect();
    let answer =
        post(url, "/v1/work/reports", &json!({"agent_id": agent, "incarnation": 1, "reports": reports}).to_string());
    let outcomes = list(&body(&answer), "outcomes");
    assert!(outcomes.iter().all(|outcome| outcome.get("status").is_some_and(|status| status == 200)), "{outcomes:?}");
}

/// So many dead letters of that capability: idempotent, and failed in every attempt for what they needed from elsewhere.
pub(crate) fn dead_letters(hub: &Hub, agent: &str, capability: &str, count: usize) -> Vec<String> {
    let retry = json!({"max_retries": 1, "base_ms": 1, "cap_ms": 1});
    let ids = submitted(hub, capability, count, &json!({"idempotent": true, "retry": retry}));
    for _attempt in 1..=2 {
        let held = started(hub, agent, count);
        let error = json!({"code": "smtp-down", "message": "connection refused"});
        report(&hub.url, agent, &held, &json!({"op": "fail", "error": error, "retryable": true}));
    }
    until(hub, &ids, "dead-letter");
    ids
}

/// So many tasks that an agent had started when it was lost; without an interval of its own it is so at once.
pub(crate) fn orphans(hub: &Hub, name: &str, capability: &str, count: usize) -> Vec<String> {
    agent(hub, name, capability, 250);
    let ids = submitted(hub, capability, count, &json!({}));
    started(hub, name, count);
    until(hub, &ids, "orphaned");
    ids
}

/// Waits until each is in that state.
pub(crate) fn until(hub: &Hub, ids: &[String], state: &str) {
    wait_until(&format!("{} tasks are {state}", ids.len()), || {
        let there = hub.json(&["tasks", "list", "--state", state, "--limit", "1000"]);
        let there: Vec<String> = there.as_array().into_iter().flatten().map(|task| text(task, "reach_id")).collect();
        ids.iter().all(|id| there.contains(id))
    });
}

/// A field that is text.
pub(crate) fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name} in {value}")).to_owned()
}

fn list(value: &Value, name: &str) -> Vec<Value> {
    value.get(name).and_then(Value::as_array).cloned().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// The JSON of an answer.
fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").expect("a body").1).expect("JSON")
}
