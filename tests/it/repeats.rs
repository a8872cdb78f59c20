//! Repeats under an idempotency key: the first answer again, whatever has changed since (S6).

use reqwest::Method;
use serde_json::{Value, json};

use crate::work::{claim, report, submit};
use crate::world::{Answer, Client, World, registration};

async fn keyed(client: &Client, key: &str, body: &Value) -> Answer {
    Answer::of(client.request(Method::POST, "/v1/tasks").header("Idempotency-Key", key).json(body)).await
}

/// The first answer with `replayed` beside it.
fn replayed(first: &Answer) -> Value {
    let mut body = first.json();
    body["replayed"] = json!(true);
    body
}

#[tokio::test]
async fn s6_a_repeat_is_answered_although_the_body_would_be_refused_by_now() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    assert_eq!(world.dev.post("/v1/callback-secrets", json!({"name": "travel"})).await.status, 201);
    let parent = submit(&world.dev, "text.count", json!(0)).await;
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1_200);
    let bodies = [
        json!({"capability": "text.count", "parent": {"reach_id": parent}}),
        json!({"capability": "text.count", "payload": "no number"}),
        json!({"capability": "text.count", "callback": {"url": "http://127.0.0.1:40009/h", "secret_ref": "travel"}}),
        json!({"capability": "text.count", "deadline": end.to_string(), "payload_ref": "s3://x"}),
    ];
    let mut firsts = Vec::new();
    for (n, body) in bodies.iter().enumerate() {
        let first = keyed(&world.dev, &format!("k-{n}"), body).await;
        assert_eq!(first.status, 202, "{}", first.text);
        firsts.push(first);
    }
    // Now nothing of it would be taken any more: parent over, schema stricter, secret gone, deadline past.
    assert_eq!(world.dev.post(&format!("/v1/tasks/{parent}/cancel"), json!({})).await.status, 200);
    assert_eq!(world.dev.delete("/v1/callback-secrets/travel").await.status, 204);
    let mut stricter = registration("w-1", "text.count");
    stricter["capabilities"][0]["input_schema"] = json!({"type": "integer"});
    assert_eq!(world.dev.post("/v1/agents", stricter).await.status, 200);
    let timed = firsts[3].json()["reach_id"].as_str().unwrap().to_owned();
    let over = world.dev.get(&format!("/v1/tasks/{timed}?wait_ms=10000&unless_state=queued")).await.json();
    assert_eq!(over["state"], "expired", "{over}");
    for (n, (body, first)) in bodies.iter().zip(&firsts).enumerate() {
        let again = keyed(&world.dev, &format!("k-{n}"), body).await;
        assert_eq!((again.status, again.json()), (200, replayed(first)), "{n}");
        assert_eq!(again.header("idempotency-replayed"), "true", "{n}");
        let mut other = body.clone();
        other["qos"] = json!("background");
        let other = keyed(&world.dev, &format!("k-{n}"), &other).await;
        other.problem(422, "idempotency-key-reused");
    }
    // A new key is judged by what holds now.
    keyed(&world.dev, "k-9", &bodies[0]).await.problem_at(422, "invalid-field", "/parent/reach_id");
    keyed(&world.dev, "k-9", &bodies[3]).await.problem_at(422, "deadline-past", "/deadline");
}

#[tokio::test]
async fn s6_the_state_in_a_repeat_is_the_first_one() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let body = json!({"capability": "text.count", "not_before": "2026-01-01T00:00:00Z"});
    let first = keyed(&world.dev, "past", &body).await;
    assert_eq!(first.json()["state"], "queued", "not_before has passed: {}", first.text);
    assert_eq!(keyed(&world.dev, "past", &body).await.json(), replayed(&first));
}

#[tokio::test]
async fn s6_a_repeat_of_a_synchronous_call_says_that_it_is_one() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let sync = || {
        let call =
            world.dev.request(Method::POST, "/v1/tasks").header("Idempotency-Key", "k").header("Prefer", "wait=20");
        Answer::of(call.json(&json!({"capability": "text.count"})))
    };
    let work = async {
        let task = claim(&world.dev, "w-1").await;
        let id = task["reach_id"].as_str().unwrap().to_owned();
        let done = report("w-1", &task, json!({"result": 5}));
        assert_eq!(world.dev.post(&format!("/v1/tasks/{id}/complete"), done).await.status, 200);
    };
    let (first, ()) = tokio::join!(sync(), work);
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""), "{}", first.text);
    let again = sync().await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, "true"), "{}", again.text);
    assert_eq!((again.header("preference-applied"), &again.json()["result"]), ("wait=20", &json!(5)));
}

#[tokio::test]
async fn s6_a_repeated_batch_has_every_outcome_of_the_first_refused_lines_too() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let one = json!({"capability": "text.count", "payload": 1, "idempotency_key": "line"});
    let tasks = json!([{"capability": "text.count"}, {"capability": "none.such"}, one, one, {"capability": "text.count", "qos": "soon"},
        {"capability": "text.count", "payload_ref": "s3://x"}]);
    let body = json!({"tasks": tasks});
    let post = || Answer::of(world.dev.request(Method::POST, "/v1/batches").header("Idempotency-Key", "b").json(&body));
    let first = post().await;
    assert_eq!(first.status, 202, "{}", first.text);
    let batch = first.json();
    assert_eq!((&batch["total"], &batch["refused"], &batch["by_state"]), (&json!(6), &json!(2), &json!({"queued": 3})));
    assert_eq!(batch["outcomes"][3]["reach_id"], batch["outcomes"][2]["reach_id"], "one key, one task: {batch}");
    assert_eq!(batch["outcomes"][3]["replayed"], true, "{batch}");
    // Tasks move on, and the refused capability appears: the answer stays.
    world.dev.register("w-2", "none.such").await;
    let id = batch["outcomes"][0]["reach_id"].as_str().unwrap();
    assert_eq!(world.dev.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.status, 200);
    let again = post().await;
    assert_eq!((again.status, again.json()), (200, replayed(&first)));
    let view = world.dev.get(&format!("/v1/batches/{}", batch["batch_id"].as_str().unwrap())).await.json();
    assert_eq!(view["outcomes"], batch["outcomes"], "the batch itself tells them too");
    assert_eq!(view["by_state"], json!({"cancelled": 1, "queued": 2}), "{view}");
}

#[tokio::test]
async fn s6_parallel_batches_with_one_key_all_get_the_whole_answer() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let tasks: Vec<Value> = (0..2_000).map(|n| json!({"capability": "text.count", "payload": n})).collect();
    let body = json!({"tasks": tasks});
    let posts = (0..4).map(|_| {
        let call = world.dev.request(Method::POST, "/v1/batches").header("Idempotency-Key", "b").json(&body);
        Answer::of(call)
    });
    let answers = futures_util::future::join_all(posts).await;
    for answer in &answers {
        assert!(matches!(answer.status, 200 | 202), "{}", answer.text);
        let batch = answer.json();
        assert_eq!((&batch["total"], &batch["batch_id"]), (&json!(2_000), &answers[0].json()["batch_id"]));
        assert_eq!(batch["outcomes"].as_array().map(Vec::len), Some(2_000));
    }
    assert_eq!(answers.iter().filter(|answer| answer.status == 202).count(), 1);
}

#[tokio::test]
async fn a_batch_of_nothing_but_repeats_is_settled_at_once() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let one = json!({"capability": "text.count", "idempotency_key": "line"});
    assert_eq!(world.dev.post("/v1/tasks", one.clone()).await.status, 202);
    let batch = world.dev.post("/v1/batches", json!({"tasks": [one]})).await.json();
    assert_eq!(
        (&batch["settled"], &batch["by_state"], &batch["refused"]),
        (&json!(true), &json!({}), &json!(0)),
        "{batch}"
    );
}
