//! What plans answer: to a repeat, to a word that changes nothing, to a look before one, and after its owner is gone.

use serde_json::{Value, json};

use crate::replay_runs::Still;
use crate::replays::{failed, orphans, plan};
use crate::world::{Answer, Client, World};

async fn keyed(client: &Client, key: &str, body: &Value) -> Answer {
    let call = client.request(reqwest::Method::POST, "/v1/replays").header("Idempotency-Key", key);
    Answer::of(call.json(body)).await
}

/// A plan that is paused at once.
async fn paused(client: &Client, select: Value) -> Value {
    let mut body = plan(&select);
    body["rate_per_s"] = json!(1);
    let view = client.post("/v1/replays", body).await.json();
    let path = format!("/v1/replays/{}", view["replay_id"].as_str().unwrap());
    client.post(&format!("{path}/pause"), json!({})).await.json()
}

#[tokio::test]
async fn semantics_31_the_same_key_with_the_same_body_is_the_same_plan_and_with_another_body_refused() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    failed(&world.dev).await;
    let body = json!({"select": {"state": ["failed"]}, "reason": "again"});
    let mut dry = body.clone();
    dry["dry_run"] = json!(true);
    assert_eq!(keyed(&world.dev, "k-1", &dry).await.status, 200, "a dry run binds no key");
    let (one, two) = tokio::join!(keyed(&world.dev, "k-1", &body), keyed(&world.dev, "k-1", &body));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert!([[200, 202], [202, 503]].contains(&statuses), "one of them plans: {} {}", one.text, two.text);
    let first = if one.status == 202 { one } else { two };
    let path = format!("/v1/replays/{}", first.json()["replay_id"].as_str().unwrap());
    for _ in 0..100 {
        if world.dev.get(&format!("{path}?wait_ms=1000")).await.json()["ended_at"].is_string() {
            break;
        }
    }
    // By now it picks nothing any more: the task was redriven.
    let again = keyed(&world.dev, "k-1", &body).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, "true"), "{}", again.text);
    assert_eq!(again.json(), first.json(), "the first body, though the plan has ended");
    let now = world.dev.get(&path).await.json();
    assert_eq!((&now["state"], &now["redriven"]), (&json!("completed"), &json!(1)), "{now}");
    assert_eq!((&again.json()["state"], &again.json()["pending"]), (&json!("running"), &json!(1)), "{}", again.text);
    let mut other = body.clone();
    other["reason"] = json!("another");
    keyed(&world.dev, "k-1", &other).await.problem(422, "idempotency-key-reused");
    let somebody = world.somebody(json!({"scopes": ["operate", "read"]})).await;
    keyed(&somebody, "k-1", &body).await.problem(422, "idempotency-key-reused");
    let task = json!({"capability": "text.count", "idempotency_key": "k-1"});
    world.dev.post("/v1/tasks", task).await.problem(422, "idempotency-key-reused");
    let batch = json!({"idempotency_key": "k-1", "tasks": [{"capability": "text.count"}]});
    world.dev.post("/v1/batches", batch).await.problem(422, "idempotency-key-reused");
    keyed(&world.dev, "\"half", &body).await.problem(400, "invalid-header");
    assert_eq!(world.dev.get("/v1/replays").await.json()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_word_that_changes_nothing_says_so() {
    let world = World::start().await;
    orphans(&world.dev, (0..3).map(|n| json!({"payload": n}))).await;
    let view = paused(&world.dev, json!({"agent_id": "w-1"})).await;
    assert!(view["unchanged"].is_null() && view["receipt"]["seq"].is_u64(), "{view}");
    let path = format!("/v1/replays/{}", view["replay_id"].as_str().unwrap());
    for answer in [
        world.dev.post(&format!("{path}/pause"), json!({})).await,
        world.dev.patch(&path, json!({"rate_per_s": 1})).await,
    ] {
        let view = answer.json();
        assert_eq!((answer.status, &view["unchanged"]), (200, &json!(true)), "{view}");
        assert!(view["receipt"].is_null(), "{view}");
    }
    assert!(world.dev.get(&path).await.json()["unchanged"].is_null());
}

#[tokio::test]
async fn what_a_cancelled_plan_did_not_come_to_reads_as_cancelled() {
    let world = World::start().await;
    orphans(&world.dev, (0..3).map(|n| json!({"payload": n}))).await;
    let view = paused(&world.dev, json!({"agent_id": "w-1"})).await;
    let path = format!("/v1/replays/{}", view["replay_id"].as_str().unwrap());
    let left = view["pending"].clone();
    let ended = world.dev.post(&format!("{path}/cancel"), json!({})).await.json();
    assert_eq!((&ended["pending"], &ended["cancelled"]), (&json!(0), &left), "{ended}");
    let of = |outcome: &str| {
        let (client, path) = (world.dev.clone(), format!("{path}/items?outcome={outcome}"));
        async move { client.get(&path).await.json()["items"].as_array().unwrap().clone() }
    };
    assert_eq!(of("pending").await, Vec::<Value>::new());
    let cancelled = of("cancelled").await;
    assert_eq!(cancelled.len() as u64, left.as_u64().unwrap());
    assert!(
        cancelled.iter().all(|item| item["outcome"] == "cancelled" && item["state"] == "orphaned"),
        "{cancelled:?}"
    );
}

#[tokio::test]
async fn a_dry_run_names_plans_that_are_at_it_and_names_that_nothing_bears() {
    let world = World::start().await;
    orphans(&world.dev, (0..3).map(|n| json!({"payload": n}))).await;
    let view = paused(&world.dev, json!({"agent_id": "w-1"})).await;
    let look = |select: Value| {
        let mut body = plan(&select);
        body["dry_run"] = json!(true);
        let client = world.dev.clone();
        async move { client.post("/v1/replays", body).await.json() }
    };
    let found = look(json!({"agent_id": "w-1"})).await;
    let open = json!([{"replay_id": view["replay_id"], "state": "paused", "shared": view["pending"]}]);
    assert_eq!((&found["open_plans"], &found["hints"]), (&open, &json!([])), "{found}");
    for (select, pointer, meant) in [
        (json!({"capability": "text.cuont"}), "/select/capability", json!(["text.count"])),
        (json!({"agent_id": "w-11"}), "/select/agent_id", json!(["w-1"])),
        (json!({"session_id": "s-1"}), "/select/session_id", json!([])),
    ] {
        let found = look(select.clone()).await;
        let hint = &found["hints"][0];
        assert_eq!((&hint["pointer"], &hint["suggestions"]), (&json!(pointer), &meant), "{found}");
        let refused = world.dev.post("/v1/replays", plan(&select)).await.problem(422, "replay-empty");
        assert!(refused["errors"].as_array().unwrap().iter().any(|at| at["pointer"] == pointer), "{refused}");
    }
}

#[tokio::test]
async fn semantics_39_a_hint_names_no_agent_that_the_token_may_not_see() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let blind = world.somebody(json!({"scopes": ["operate"]})).await;
    let limited = json!({"scopes": ["operate", "read"], "capabilities": ["mail.send"]});
    let limited = world.somebody(limited).await;
    for (client, select) in [
        (&blind, json!({"agent_id": "w-1"})),
        (&blind, json!({"agent_id": "w-11"})),
        (&limited, json!({"agent_id": "w-11", "capability": "mail.send"})),
    ] {
        let mut body = plan(&select);
        body["dry_run"] = json!(true);
        let found = client.post("/v1/replays", body).await.json();
        let hints = found["hints"].as_array().unwrap();
        let hint = hints.iter().find(|hint| hint["pointer"] == "/select/agent_id").unwrap();
        let said = (&hint["detail"], &hint["suggestions"]);
        assert_eq!(said, (&json!("no task of that agent was found in these states"), &json!([])), "{found}");
        let hidden = if select["agent_id"] == "w-11" { json!(1) } else { Value::Null };
        assert_eq!(hint["not_permitted"], hidden, "{found}");
    }
}

#[tokio::test]
async fn a_plan_goes_on_when_its_owners_token_is_revoked_and_another_operator_stops_it() {
    let hub = Still::new().await;
    let world = &hub.world;
    orphans(&world.dev, (0..6).map(|n| json!({"payload": n}))).await;
    let token = json!({"name": "night", "scopes": ["operate", "read"]});
    let made = world.dev.request(reqwest::Method::POST, "/v1/tokens").header("Reach-Namespace", "dev").json(&token);
    let made = Answer::of(made).await.json();
    let operator = world.with_token(made["token"].as_str());
    let mut body = plan(&json!({"agent_id": "w-1"}));
    body["rate_per_s"] = json!(1);
    let planned = operator.post("/v1/replays", body).await;
    assert_eq!(planned.status, 202, "{}", planned.text);
    let path = format!("/v1/replays/{}", planned.json()["replay_id"].as_str().unwrap());
    let id = made["token_id"].as_str().unwrap();
    let revoked = world.dev.delete(&format!("/v1/tokens/{id}")).await;
    assert!(revoked.status < 300, "{}", revoked.text);
    assert_eq!(operator.get(&path).await.status, 401);
    let view = hub.run(&path, 2).await;
    assert_eq!((&view["state"], &view["by"]["token_id"]), (&json!("running"), &json!(id)), "{view}");
    let stopped = world.dev.post(&format!("{path}/cancel"), json!({})).await.json();
    assert_eq!(stopped["state"], "cancelled", "{stopped}");
}
