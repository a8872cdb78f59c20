//! Who may say what to a plan, what a repeat of its order gets, and the rate that it really has.

use std::sync::Arc;

use agent_reach::hub::Home;
use serde_json::{Value, json};

use crate::gate::GatedStore;
use crate::replays::{failed, plan};
use crate::world::{Answer, Client, World};

async fn keyed(client: &Client, path: &str, key: &str, body: &Value) -> Answer {
    let call = client.request(reqwest::Method::POST, path).header("Idempotency-Key", key);
    Answer::of(call.json(body)).await
}

/// A paused plan over failed tasks of `text.count`; answers its path.
async fn paused(client: &Client) -> String {
    client.register("f-1", "text.count").await;
    for _ in 0..5 {
        failed(client).await;
    }
    let mut body = plan(&json!({"state": ["failed"], "capability": "text.count"}));
    body["rate_per_s"] = json!(1);
    let planned = client.post("/v1/replays", body).await;
    assert_eq!(planned.status, 202, "{}", planned.text);
    let path = format!("/v1/replays/{}", planned.json()["replay_id"].as_str().unwrap());
    let still = client.post(&format!("{path}/pause"), json!({})).await;
    assert_eq!(still.status, 200, "{}", still.text);
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn semantics_31_a_repeat_that_comes_while_the_first_plan_sends_its_items_is_never_told_that_there_are_none() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let mut tasks = Vec::new();
    for _ in 0..10 {
        tasks.push(failed(&world.dev).await);
    }
    for (round, task) in tasks.iter().enumerate() {
        let body = json!({"select": {"reach_ids": [task]}, "reason": "again", "rate_per_s": 1000});
        let key = format!("k-{round}");
        let calls = (0..16).map(|_| keyed(&world.dev, "/v1/replays", &key, &body));
        for answer in futures_util::future::join_all(calls).await {
            assert!(matches!(answer.status, 200 | 202 | 503), "round {round}: {} {}", answer.status, answer.text);
        }
        let again = keyed(&world.dev, "/v1/replays", &key, &body).await;
        assert_eq!(again.status, 200, "{}", again.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semantics_31_a_repeat_that_read_its_key_before_the_first_call_bound_it_gets_that_ones_plan() {
    let (store, mut gate) = GatedStore::holding("race");
    let world = World::start_with(|options| {
        if let Home::Given { store: place, .. } = &mut options.home {
            *place = Arc::new(store);
        }
    })
    .await;
    world.dev.register("f-1", "text.count").await;
    let select = json!({"reach_ids": [failed(&world.dev).await]});
    let post = || {
        let (client, body) = (world.dev.clone(), plan(&select));
        async move { keyed(&client, "/v1/replays", "race", &body).await }
    };
    let early = tokio::spawn(post());
    gate.reached().await;
    let first = post().await;
    assert_eq!(first.status, 202, "{}", first.text);
    let replay = first.json()["replay_id"].clone();
    let path = format!("/v1/replays/{}", replay.as_str().unwrap());
    while world.dev.get(&format!("{path}?wait_ms=10000")).await.json()["state"] != "completed" {}
    // By now there is nothing left that its selection could pick.
    gate.open();
    let early = early.await.unwrap();
    assert_eq!((early.status, early.header("idempotency-replayed")), (200, "true"), "{}", early.text);
    assert_eq!(early.json()["replay_id"], replay);
}

#[tokio::test]
async fn a_token_for_some_capabilities_stops_any_plan_and_sets_going_only_those_over_its_own() {
    let world = World::start().await;
    let path = paused(&world.dev).await;
    let other = world.somebody(json!({"scopes": ["operate", "read"], "capabilities": ["other.cap"]})).await;
    let own = world.somebody(json!({"scopes": ["operate", "read"], "capabilities": ["text.count"]})).await;
    other.post(&format!("{path}/resume"), json!({})).await.problem(403, "capability-not-allowed");
    other.patch(&path, json!({"rate_per_s": 1000})).await.problem(403, "capability-not-allowed");
    let view = world.dev.get(&path).await.json();
    assert_eq!((&view["state"], &view["rate_per_s"]), (&json!("paused"), &json!(1)), "{view}");
    assert_eq!(own.patch(&path, json!({"rate_per_s": 2})).await.json()["rate_per_s"], 2);
    // A plan over all capabilities is nobody's who is limited to some.
    let mut all = plan(&json!({"state": ["failed"]}));
    all["rate_per_s"] = json!(1);
    let all = world.dev.post("/v1/replays", all).await.json();
    let all = format!("/v1/replays/{}", all["replay_id"].as_str().unwrap());
    own.patch(&all, json!({"rate_per_s": 3})).await.problem(403, "capability-not-allowed");
    // To stop is everybody's.
    assert_eq!(other.post(&format!("{path}/pause"), json!({})).await.status, 200);
    assert_eq!(other.post(&format!("{path}/cancel"), json!({})).await.json()["state"], "cancelled");
    // A foreign plan stays one that there is not.
    let foreign = world.somebody_in("else", json!({"scopes": ["operate"], "capabilities": ["text.count"]})).await;
    foreign.post(&format!("{path}/resume"), json!({})).await.problem(404, "not-found");
}

#[tokio::test]
async fn a_token_for_some_capabilities_sets_no_rules_for_a_whole_namespace_or_hub() {
    let world = World::start().await;
    let limited = world.somebody(json!({"scopes": ["operate"], "capabilities": ["text.count"]})).await;
    let body = json!({"policy": {"replays_per_second": 1000}, "reason": "faster"});
    limited.put("/v1/policies", body.clone()).await.problem(403, "capability-not-allowed");
    let policy = world.dev.get("/v1/policies").await.json();
    assert_eq!(policy["policy"]["replays_per_second"], 20, "{policy}");
    assert_eq!(world.dev.put("/v1/policies", body).await.status, 200);
}

#[tokio::test]
async fn the_body_of_a_resume_is_looked_at_as_that_of_a_pause_is() {
    let world = World::start().await;
    let path = format!("{}/resume", paused(&world.dev).await);
    world.dev.post(&path, json!({"nonsense": 1})).await.problem(422, "unknown-field");
    world.dev.post_raw(&path, "[1,2").await.problem(400, "malformed-json");
    world.dev.post(&path, json!({"reason": ""})).await.problem_at(422, "invalid-field", "/reason");
    let view = world.dev.post(&path, json!({"reason": "the rack is back"})).await;
    assert_eq!(view.status, 200, "{}", view.text);
    let plan = view.json()["replay_id"].clone();
    let events = world.dev.get("/v1/events?after=0&limit=1000").await.text;
    let told = events.lines().find(|line| line.contains(r#""kind":"replay-resumed""#)).unwrap();
    assert!(told.contains(plan.as_str().unwrap()) && told.contains("the rack is back"), "{told}");
}

#[tokio::test]
async fn the_rate_of_a_plan_that_names_none_is_what_the_whole_hub_lets_through() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let hub = json!({"policy": {"replays_per_second": 4}, "reason": "the database is slow"});
    assert_eq!(world.dev.put("/v1/policies/hub", hub.clone()).await.status, 200);
    let mut tasks = Vec::new();
    for _ in 0..8 {
        tasks.push(failed(&world.dev).await);
    }
    let select = json!({"reach_ids": tasks});
    let look = json!({"select": select, "dry_run": true, "reason": "look"});
    let dry = world.dev.post("/v1/replays", look).await.json();
    assert_eq!((&dry["rate_per_s"], &dry["estimate_s"]), (&json!(4), &json!(2)), "{dry}");
    let made = world.dev.post("/v1/replays", plan(&select)).await.json();
    assert_eq!(made["rate_per_s"], 4, "{made}");
    // One that is older than the hub's rule says what it takes by now.
    let mut hub = hub;
    hub["policy"]["replays_per_second"] = json!(1);
    assert_eq!(world.dev.put("/v1/policies/hub", hub).await.status, 200);
    let made = format!("/v1/replays/{}", made["replay_id"].as_str().unwrap());
    let view = world.dev.post(&format!("{made}/pause"), json!({})).await.json();
    assert_eq!((&view["rate_per_s"], &view["estimate_s"]), (&json!(4), &view["pending"]), "{view}");
}

#[tokio::test]
async fn a_look_needs_no_reason_and_a_plan_does() {
    let world = World::start().await;
    let mut body = json!({"select": {"state": ["failed"]}, "dry_run": true});
    let looked = world.dev.post("/v1/replays", body.clone()).await;
    assert_eq!((looked.status, &looked.json()["dry_run"]), (200, &json!(true)), "{}", looked.text);
    body["reason"] = json!("");
    world.dev.post("/v1/replays", body.clone()).await.problem_at(422, "invalid-field", "/reason");
    body["dry_run"] = json!(false);
    body.as_object_mut().unwrap().remove("reason");
    world.dev.post("/v1/replays", body).await.problem_at(422, "invalid-field", "/reason");
}

#[tokio::test]
async fn semantics_31_a_key_belongs_to_a_token_and_the_refusal_says_so_and_nothing_of_the_body() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    failed(&world.dev).await;
    let other = world.somebody(json!({"scopes": ["operate", "read", "submit"]})).await;
    for (path, key, body) in [
        ("/v1/replays", "p", json!({"select": {"state": ["failed"]}, "reason": "again"})),
        ("/v1/tasks", "t", json!({"capability": "text.count"})),
        ("/v1/batches", "b", json!({"tasks": [{"capability": "text.count"}]})),
    ] {
        let first = keyed(&world.dev, path, key, &body).await;
        assert!(first.status < 300, "{}", first.text);
        let refused = keyed(&other, path, key, &body).await.problem(422, "idempotency-key-reused");
        let (title, detail) = (refused["title"].as_str().unwrap(), refused["detail"].as_str().unwrap());
        assert!(!title.contains("another body") && detail.contains("another token"), "{refused}");
        assert!(refused["first_fingerprint"].is_null(), "{refused}");
    }
}
