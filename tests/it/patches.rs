//! Plans that put payloads right: the patch, what today's schemas say of it, and that it comes through a restart.

use std::sync::Arc;

use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::time::SimClock;
use serde_json::{Value, json};

use crate::replay_runs::Still;
use crate::work::{claim, report, submit};
use crate::world::{Client, World};

/// An agent that takes what has a whole number `n`, and from its second registration on also a `host`.
async fn worker(client: &Client, required: &[&str]) {
    let schema = json!({"type": "object", "required": required,
        "properties": {"n": {"type": "integer"}, "host": {"type": "string"}}});
    let body = json!({"agent_id": "f-1", "transport": {"kind": "pull"}, "max_concurrency": 100, "instance": "one",
        "capabilities": [{"capability": "text.count", "input_schema": schema}]});
    let answer = client.post("/v1/agents", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// A task of that payload that has failed with that code.
async fn failed_with(client: &Client, payload: Value, code: &str) -> String {
    let id = submit(client, "text.count", payload).await;
    let task = claim(client, "f-1").await;
    assert_eq!(task["reach_id"], *id, "{task}");
    let fail = report("f-1", &task, json!({"error": {"code": code}, "retryable": false}));
    let answer = client.post(&format!("/v1/tasks/{id}/fail"), fail).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    id
}

fn patching(patch: Value) -> Value {
    json!({"select": {"state": ["failed"]}, "reason": "the host was wrong", "payload_patch": patch})
}

pub(crate) async fn ended(client: &Client, path: &str) -> Value {
    for _ in 0..100 {
        let view = client.get(&format!("{path}?wait_ms=1000")).await.json();
        if view["ended_at"].is_string() {
            return view;
        }
    }
    panic!("{path} does not end: {}", client.get(path).await.text);
}

pub(crate) async fn planned(client: &Client, body: Value) -> (String, Value) {
    let answer = client.post("/v1/replays", body).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let view = answer.json();
    (format!("/v1/replays/{}", view["replay_id"].as_str().unwrap()), view)
}

#[tokio::test]
async fn a_plan_puts_many_payloads_right_and_leaves_alone_with_a_reason_what_it_can_not() {
    let world = World::start().await;
    worker(&world.dev, &["n"]).await;
    let good = failed_with(&world.dev, json!({"n": 1, "host": "old", "keep": [1.5, {"a": null}]}), "x").await;
    let with = |body: Value| {
        let mut body = body;
        body["capability"] = json!("text.count");
        body
    };
    let long = failed_with(&world.dev, json!({"n": 2, "x": "y".repeat((1 << 20) - 40)}), "x").await;
    let by_reference = world.dev.post("/v1/tasks", with(json!({"payload_ref": "s3://a/b"}))).await.json();
    let by_reference = by_reference["reach_id"].as_str().unwrap().to_owned();
    let task = claim(&world.dev, "f-1").await;
    let fail = report("f-1", &task, json!({"error": {"code": "x"}, "retryable": false}));
    assert_eq!(world.dev.post(&format!("/v1/tasks/{by_reference}/fail"), fail).await.status, 200);

    let mut dry = patching(json!({"host": "a-new-host-with-a-long-name", "x": null}));
    dry["payload_patch"] = json!({"host": "a-new-host-with-a-name-of-more-than-forty-bytes-in-all"});
    let order = dry.clone();
    dry["dry_run"] = json!(true);
    let found = world.dev.post("/v1/replays", dry.clone()).await.json();
    for (pointer, value) in [
        ("/total", json!(3)),
        ("/would_act_on", json!(1)),
        ("/payload_patch/accepted", json!(1)),
        ("/payload_patch/refused", json!(2)),
        (
            "/would_skip",
            json!([{"reason": "payload-not-inline", "count": 1}, {"reason": "payload-too-large", "count": 1}]),
        ),
        ("/sample/0/payload/host", json!("old")),
        ("/sample/0/payload_patched/host", order["payload_patch"]["host"].clone()),
        ("/sample/2/skipped", json!("payload-not-inline")),
    ] {
        assert_eq!(found.pointer(pointer), Some(&value), "{pointer} in {found}");
    }
    let blind = world.somebody(json!({"scopes": ["operate"]})).await.post("/v1/replays", dry).await.json();
    assert!(
        blind["sample"][0]["payload"].is_null() && blind["total"] == 3,
        "who may not read payloads sees none: {blind}"
    );

    assert_eq!(found["payload_patch"]["in_no_payload"], json!([]), "{found}");

    let (path, view) = planned(&world.dev, order.clone()).await;
    assert_eq!(view["payload_patch"], order["payload_patch"], "{view}");
    assert_eq!(view["select"]["state"], json!(["failed"]), "{view}");
    let view = ended(&world.dev, &path).await;
    let skipped = json!({"payload-not-inline": 1, "payload-too-large": 1});
    assert_eq!((&view["redriven"], &view["skipped"]), (&json!(1), &skipped), "{view}");
    let task = claim(&world.dev, "f-1").await;
    let made = json!({"n": 1, "host": order["payload_patch"]["host"], "keep": [1.5, {"a": null}]});
    assert_eq!(task["payload"], made, "{task}");
    let items = world.dev.get(&format!("{path}/items")).await.json();
    assert_eq!(items["items"][0]["redriven_as"], task["reach_id"], "{items}");
    let of = |id: &str| {
        let (client, path) = (world.dev.clone(), format!("/v1/tasks/{id}/payload"));
        async move { client.get(&path).await.json() }
    };
    assert_eq!(of(&good).await["host"], "old", "the first keeps its own");
    assert_eq!(of(task["reach_id"].as_str().unwrap()).await, made);
    assert_eq!(world.dev.get(&format!("/v1/tasks/{long}")).await.json()["state"], "failed");
    let events = world.dev.get("/v1/events?after=0&limit=1000").await.text;
    let planned = events.lines().find(|line| line.contains(r#""kind":"replay-planned""#)).unwrap();
    let planned: Value = serde_json::from_str(planned).unwrap();
    assert!(planned["payload_patch"]["digest"].is_string(), "the event names it: {planned}");
    assert!(!planned.to_string().contains("a-new-host"), "and says nothing of it: {planned}");
}

#[tokio::test]
async fn what_todays_schemas_refuse_is_left_alone_and_a_patch_makes_them_take_it() {
    let world = World::start().await;
    worker(&world.dev, &["n"]).await;
    let first = failed_with(&world.dev, json!({"n": 1}), "x").await;
    worker(&world.dev, &["n", "host"]).await;

    let refused = world.dev.post(&format!("/v1/tasks/{first}/redrive"), json!({"reason": "again"})).await;
    refused.problem(422, "payload-refused");
    let plain = json!({"select": {"state": ["failed"]}, "reason": "again"});
    let mut dry = plain.clone();
    dry["dry_run"] = json!(true);
    let found = world.dev.post("/v1/replays", dry).await.json();
    assert_eq!(found["would_skip"], json!([{"reason": "not-accepted", "count": 1}]), "{found}");
    assert!(found["sample"][0]["refused"].as_str().unwrap().contains("host"), "{found}");
    let (path, _) = planned(&world.dev, plain).await;
    assert_eq!(ended(&world.dev, &path).await["skipped"], json!({"not-accepted": 1}));

    let (path, _) = planned(&world.dev, patching(json!({"host": 7}))).await;
    assert_eq!(ended(&world.dev, &path).await["skipped"], json!({"not-accepted": 1}), "a patch may be wrong, too");
    let (path, _) = planned(&world.dev, patching(json!({"host": "new"}))).await;
    assert_eq!(ended(&world.dev, &path).await["redriven"], 1);
    let task = claim(&world.dev, "f-1").await;
    assert_eq!(task["payload"], json!({"n": 1, "host": "new"}), "{task}");
    let already = world.dev.post(&format!("/v1/tasks/{first}/redrive"), json!({"reason": "again"})).await;
    already.problem(409, "already-redriven");
}

#[tokio::test]
async fn a_patch_that_is_none_or_meets_what_goes_back_as_it_is_is_refused() {
    let world = World::start().await;
    let post = |body: Value| world.dev.post("/v1/replays", body);
    let mut deep = json!(1);
    for _ in 0..17 {
        deep = json!({"a": deep});
    }
    for patch in [json!(1), json!([1]), json!("a"), json!({}), json!({"a": "b".repeat(64 << 10)}), deep] {
        post(patching(patch)).await.problem_at(422, "invalid-field", "/payload_patch");
    }
    let mut orphaned = patching(json!({"a": 1}));
    orphaned["select"] = json!({"state": ["failed", "orphaned"]});
    post(orphaned).await.problem_at(422, "invalid-field", "/payload_patch");
    let mut dry = patching(json!({"a": 1}));
    (dry["select"], dry["dry_run"]) = (json!({"capability": "text.count"}), json!(true));
    assert_eq!(post(dry).await.status, 200, "without a state it is for all that is made anew");
}

#[tokio::test]
async fn a_patched_plan_goes_on_after_a_restart_and_makes_nothing_twice() {
    let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(SimClock::new()));
    let hub = Still::start(&store, &clock).await;
    worker(&hub.world.dev, &["n"]).await;
    for n in 0..6 {
        failed_with(&hub.world.dev, json!({"n": n, "host": "old"}), "x").await;
    }
    let mut body = patching(json!({"host": "new"}));
    body["rate_per_s"] = json!(4);
    let (path, _) = planned(&hub.world.dev, body).await;
    let before = hub.run(&path, 2).await;
    assert!(before["redriven"].as_u64() < Some(6), "{before}");
    hub.world.stop().await;

    let hub = Still::start(&store, &clock).await;
    let view = hub.run(&path, 6).await;
    assert_eq!((&view["redriven"], &view["payload_patch"]), (&json!(6), &json!({"host": "new"})), "{view}");
    let items = hub.world.dev.get(&format!("{path}/items")).await.json();
    for (n, item) in (0..).zip(items["items"].as_array().unwrap()) {
        let made = item["redriven_as"].as_str().unwrap();
        let payload = hub.world.dev.get(&format!("/v1/tasks/{made}/payload")).await.json();
        assert_eq!(payload, json!({"n": n, "host": "new"}), "{item}");
    }
    let events = hub.world.dev.get("/v1/events?after=0&limit=1000").await.text;
    let redriven = events.lines().filter(|line| line.contains(r#""kind":"task-redriven""#)).count();
    assert_eq!(redriven, 6);
}

#[tokio::test]
async fn a_selection_by_the_code_of_a_failure_takes_those_alone() {
    let world = World::start().await;
    worker(&world.dev, &["n"]).await;
    let wanted = failed_with(&world.dev, json!({"n": 1}), "no-such-host").await;
    failed_with(&world.dev, json!({"n": 2}), "too-long").await;
    let select = json!({"state": ["failed"], "failure_code": ["no-such-host", "no-such-host", "else"]});
    let body = json!({"select": select, "reason": "x", "dry_run": true});
    let found = world.dev.post("/v1/replays", body).await.json();
    assert_eq!((&found["total"], &found["sample"][0]["reach_id"]), (&json!(1), &json!(wanted)), "{found}");
    let post = |codes: Value| {
        let body = json!({"select": {"state": ["failed"], "failure_code": codes}, "reason": "x"});
        world.dev.post("/v1/replays", body)
    };
    for (codes, at) in
        [(json!([]), ""), (json!(vec!["x"; 51]), ""), (json!([""]), "/0"), (json!(["x", "y".repeat(129)]), "/1")]
    {
        post(codes).await.problem_at(422, "invalid-field", &format!("/select/failure_code{at}"));
    }
    let (_, view) = planned(&world.dev, json!({"select": select, "reason": "x"})).await;
    assert_eq!(view["select"]["failure_code"], json!(["else", "no-such-host"]), "{view}");
}

#[tokio::test]
async fn what_a_plan_makes_anew_is_asked_for_a_schema_that_came_after_the_plan() {
    let world = World::start().await;
    worker(&world.dev, &["n"]).await;
    for n in 0..3 {
        failed_with(&world.dev, json!({"n": n}), "x").await;
    }
    let (path, _) = planned(&world.dev, json!({"select": {"state": ["failed"]}, "reason": "x", "rate_per_s": 1})).await;
    assert_eq!(world.dev.post(&format!("{path}/pause"), json!({})).await.status, 200);
    // Another schema, which takes them as well.
    let schema = json!({"type": "object", "required": ["n"], "title": "the next one"});
    let body = json!({"agent_id": "f-1", "transport": {"kind": "pull"}, "max_concurrency": 100, "instance": "one",
        "capabilities": [{"capability": "text.count", "input_schema": schema}]});
    assert_eq!(world.dev.post("/v1/agents", body).await.status, 200);
    assert_eq!(world.dev.patch(&path, json!({"rate_per_s": 100})).await.status, 200);
    let resume = world.dev.request(reqwest::Method::POST, &format!("{path}/resume"));
    assert_eq!(crate::world::Answer::of(resume).await.status, 200);
    assert_eq!(ended(&world.dev, &path).await["redriven"], 3);
    let mut there = std::collections::BTreeSet::new();
    for _ in 0..6 {
        let asked = json!({"incarnation": 1, "max": 10, "wait_ms": 5000});
        let answer = world.dev.post("/v1/agents/f-1/claim", asked).await.json();
        for task in answer["tasks"].as_array().unwrap() {
            let id = task["reach_id"].as_str().unwrap().to_owned();
            let acked = world.dev.post(&format!("/v1/tasks/{id}/ack"), report("f-1", task, json!({}))).await;
            assert_eq!(acked.status, 200, "{}", acked.text);
            there.insert(id);
        }
        if there.len() == 3 {
            return;
        }
    }
    panic!("{} of 3 are handed out", there.len());
}

#[tokio::test]
async fn nothing_that_payloads_hold_is_told_to_a_token_that_may_not_read_them() {
    let world = World::start().await;
    worker(&world.dev, &["n"]).await;
    let id = failed_with(&world.dev, json!({"n": 1, "host": "a-host-that-is-secret"}), "x").await;
    let (path, _) = planned(&world.dev, {
        let mut body = patching(json!({"host": "a-patch-that-is-secret"}));
        body["rate_per_s"] = json!(1);
        body
    })
    .await;
    // From now on a host is a number: the kept payload is refused, and complaints quote it.
    let schema = json!({"type": "object", "properties": {"host": {"type": "integer"}}});
    let agent = json!({"agent_id": "f-1", "transport": {"kind": "pull"}, "max_concurrency": 100, "instance": "one",
        "capabilities": [{"capability": "text.count", "input_schema": schema}]});
    ended(&world.dev, &path).await;
    let anew = claim(&world.dev, "f-1").await;
    let done = format!("/v1/tasks/{}/complete", anew["reach_id"].as_str().unwrap());
    assert_eq!(world.dev.post(&done, report("f-1", &anew, json!({"result": 1}))).await.status, 200);
    let other = failed_with(&world.dev, json!({"n": 2, "host": "a-host-that-is-secret"}), "y").await;
    assert_eq!(world.dev.post("/v1/agents", agent).await.status, 200);
    let dry = json!({"select": {"state": ["failed"], "failure_code": ["y"]}, "reason": "x", "dry_run": true});
    let redrive = format!("/v1/tasks/{other}/redrive");
    let seen = world.dev.post("/v1/replays", dry.clone()).await.json();
    assert!(seen["sample"][0]["refused"].as_str().unwrap().contains("secret"), "who may read is told: {seen}");
    let seen = world.dev.post(&redrive, json!({"reason": "x"})).await;
    assert!(seen.problem(422, "payload-refused").to_string().contains("secret"), "{}", seen.text);

    let blind = world.somebody(json!({"scopes": ["operate"]})).await;
    let found = blind.post("/v1/replays", dry).await;
    let told = &found.json()["sample"][0]["refused"];
    assert_eq!(told, "/payload/host is not what the schema's type wants", "{}", found.text);
    let refused = blind.post(&redrive, json!({"reason": "x"})).await;
    refused.problem_at(422, "payload-refused", "/payload/host");
    let (paused, _) = planned(&world.dev, {
        let mut body = patching(json!({"host": "a-patch-that-is-secret"}));
        body["select"]["failure_code"] = json!(["y"]);
        body["rate_per_s"] = json!(1);
        body
    })
    .await;
    let rate = blind.patch(&paused, json!({"rate_per_s": 2})).await;
    let cancel = blind.post(&format!("{paused}/cancel"), json!({})).await;
    for answer in [found, refused, rate, cancel] {
        assert!(!answer.text.contains("secret"), "{}", answer.text);
    }
    assert!(world.dev.get(&paused).await.text.contains("secret"), "who may read sees the patch");
    assert_ne!(id, other);
}

#[tokio::test]
async fn a_patch_that_names_what_no_payload_has_is_told_so_with_what_was_meant() {
    let world = World::start().await;
    worker(&world.dev, &["n"]).await;
    failed_with(&world.dev, json!({"n": 1, "to": {"host": "old"}}), "x").await;
    failed_with(&world.dev, json!({"n": 2, "to": {"host": "old", "port": 25}}), "x").await;
    let mut dry = patching(json!({"to": {"hsot": "new", "port": 26}, "xy/z": null, "money": {"z": 1}}));
    dry["dry_run"] = json!(true);
    let found = world.dev.post("/v1/replays", dry.clone()).await.json();
    let told = json!([
        {"pointer": "/payload_patch/money", "suggestions": []},
        {"pointer": "/payload_patch/to/hsot", "suggestions": ["host"]},
        {"pointer": "/payload_patch/xy~1z", "suggestions": []},
    ]);
    assert_eq!(found["payload_patch"]["in_no_payload"], told, "{found}");
    assert_eq!(found["payload_patch"]["looked_at"], 2, "{found}");
    let blind = world.somebody(json!({"scopes": ["operate"]})).await.post("/v1/replays", dry).await.json();
    assert_eq!(blind["payload_patch"], json!({"accepted": 2, "refused": 0}), "who may not read payloads: {blind}");
}

#[tokio::test]
async fn a_dry_run_of_what_would_all_be_left_alone_acts_on_nothing() {
    let world = World::start().await;
    worker(&world.dev, &["n"]).await;
    failed_with(&world.dev, json!({"n": 1}), "x").await;
    let mut dry = patching(json!({"n": "no number"}));
    dry["dry_run"] = json!(true);
    let found = world.dev.post("/v1/replays", dry).await.json();
    assert_eq!((&found["total"], &found["would_act_on"]), (&json!(1), &json!(0)), "{found}");
    assert_eq!(found["would_skip"], json!([{"reason": "not-accepted", "count": 1}]), "{found}");
}
