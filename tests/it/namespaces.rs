//! N1: what belongs to another namespace looks the same as what does not exist, on every call.

use reqwest::Method;
use serde_json::{Value, json};

use crate::work::{claim, report, submit};
use crate::world::{Answer, Client, World};

/// Every call that names a task, a batch, a callback or a plan, with a body where it takes one.
fn calls(
    task: &str,
    (batch, callback, plan): (&str, &str, &str),
    report: &Value,
) -> Vec<(Method, String, Option<Value>)> {
    let mut calls = Vec::new();
    for read in ["", "/result", "/payload", "/history", "/explain"] {
        calls.push((Method::GET, format!("/v1/tasks/{task}{read}"), None));
    }
    calls.push((Method::GET, format!("/v1/tasks/{task}?wait_ms=1000"), None));
    calls.push((Method::POST, format!("/v1/tasks/{task}/cancel"), Some(json!({}))));
    calls.push((Method::POST, format!("/v1/tasks/{task}/approve"), None));
    for op in ["ack", "progress", "complete", "release"] {
        calls.push((Method::POST, format!("/v1/tasks/{task}/{op}"), Some(report.clone())));
    }
    let mut fail = report.clone();
    fail["error"] = json!({"code": "x"});
    calls.push((Method::POST, format!("/v1/tasks/{task}/fail"), Some(fail)));
    calls.push((Method::POST, format!("/v1/tasks/{task}/redrive"), Some(json!({"reason": "x"}))));
    calls.push((Method::POST, format!("/v1/tasks/{task}/redrive"), Some(json!({"reason": "x", "payload": 1}))));
    let resolve = json!({"reason": "x", "resolution": "fail"});
    calls.push((Method::POST, format!("/v1/tasks/{task}/resolve"), Some(resolve)));
    for read in ["", "?wait_ms=1000", "/items"] {
        calls.push((Method::GET, format!("/v1/replays/{plan}{read}"), None));
    }
    for word in ["pause", "resume", "cancel"] {
        calls.push((Method::POST, format!("/v1/replays/{plan}/{word}"), None));
    }
    calls.push((Method::PATCH, format!("/v1/replays/{plan}"), Some(json!({"rate_per_s": 5}))));
    calls.push((Method::GET, format!("/v1/batches/{batch}"), None));
    calls.push((Method::POST, format!("/v1/callbacks/{callback}/redrive"), None));
    calls
}

async fn call(client: &Client, (method, path, body): &(Method, String, Option<Value>)) -> Answer {
    let call = client.request(method.clone(), path);
    Answer::of(match body {
        Some(body) => call.json(body),
        None => call,
    })
    .await
}

#[tokio::test]
async fn n1_foreign_and_absent_are_the_same_404_on_every_call() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let callback = json!({"url": "http://127.0.0.1:40009/hook"});
    let batch = json!({"tasks": [{"capability": "text.count"}], "callback": callback});
    let batch = world.dev.post("/v1/batches", batch).await.json();
    let task = claim(&world.dev, "w-1").await;
    let own = report("w-1", &task, json!({}));
    let ended = world.dev.post("/v1/tasks", json!({"capability": "text.count", "callback": callback})).await.json();
    let ended = ended["reach_id"].as_str().unwrap().to_owned();
    assert_eq!(world.dev.post(&format!("/v1/tasks/{ended}/cancel"), json!({})).await.status, 200);
    let due = world.dev.get("/v1/callbacks").await.json();
    let due = due["items"][0]["callback_id"].as_str().unwrap().to_owned();
    let failed = submit(&world.dev, "text.count", json!(1)).await;
    world.dev.register("w-2", "text.count").await;
    let held = claim(&world.dev, "w-2").await;
    let fail = report("w-2", &held, json!({"error": {"code": "x"}}));
    assert_eq!(world.dev.post(&format!("/v1/tasks/{failed}/fail"), fail).await.status, 200);
    let plan = json!({"select": {"state": ["failed"]}, "reason": "x"});
    let plan = world.dev.post("/v1/replays", plan).await.json()["replay_id"].as_str().unwrap().to_owned();
    let scopes = json!(["submit", "register", "work", "read", "audit", "operate"]);
    let foreign = world.somebody_in("other", json!({"scopes": scopes, "agents": ["*"]})).await;
    foreign.register("w-1", "text.count").await;
    let batch = batch["batch_id"].as_str().unwrap();
    let absent = "01h455vb4pex5vsknk084sn02q";
    let nowhere = (format!("batch_{absent}"), format!("msg_{absent}"), format!("replay_{absent}"));
    let nowhere = calls(&format!("reach_{absent}"), (&nowhere.0, &nowhere.1, &nowhere.2), &own);
    let nonsense = calls("reach_nonsense", ("batch_x", "..%2f", "replay_x"), &own);
    for task in [task["reach_id"].as_str().unwrap(), &ended] {
        let there = calls(task, (batch, &due, &plan), &own);
        for ((there, nowhere), nonsense) in there.iter().zip(&nowhere).zip(&nonsense) {
            let expected = call(&foreign, nowhere).await;
            expected.problem(404, "not-found");
            assert_eq!(call(&foreign, there).await.unnamed(), expected.unnamed(), "{there:?}");
            assert_eq!(call(&foreign, nonsense).await.unnamed(), expected.unnamed(), "{nonsense:?}");
        }
    }
    for list in ["/v1/tasks", "/v1/callbacks", "/v1/replays"] {
        assert_eq!(foreign.get(list).await.json()["items"], json!([]), "{list}");
    }
    let feed = foreign.get("/v1/events").await.text;
    assert!(feed.contains("agent-registered") && !feed.contains("task-") && !feed.contains("hub-started"), "{feed}");
    let parent = json!({"capability": "text.count", "parent": {"reach_id": ended}});
    foreign.post("/v1/tasks", parent).await.problem_at(422, "invalid-field", "/parent/reach_id");
    assert_eq!(world.dev.get(&format!("/v1/tasks/{ended}")).await.json()["state"], "cancelled");
    submit(&foreign, "text.count", json!(1)).await;
}
