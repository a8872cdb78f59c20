//! Batches: an outcome a line, whatever a line holds and however the connection ends.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::world::{Answer, Client, DEV_TOKEN, World};

async fn lines(client: &Client, body: String) -> Answer {
    let call = client.request(Method::POST, "/v1/batches").header("content-type", "application/x-ndjson");
    Answer::of(call.body(body)).await
}

fn line(n: usize) -> Value {
    json!({"capability": "text.count", "payload": n})
}

#[tokio::test]
async fn a_json_batch_answers_each_task_and_settles_when_all_have_ended() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let bad = json!({"capability": "text.count", "qos": "soon"});
    let answer = world.dev.post("/v1/batches", json!({"tasks": [line(0), bad, line(2)]})).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let batch = answer.json();
    assert_eq!(
        (&batch["total"], &batch["refused"], &batch["settled"]),
        (&json!(3), &json!(1), &json!(false)),
        "{batch}"
    );
    assert_eq!(batch["outcomes"][1]["problem"]["errors"][0]["pointer"], "/qos", "{batch}");
    let id = batch["batch_id"].as_str().unwrap().to_owned();
    for index in [0, 2] {
        let task = batch["outcomes"][index]["reach_id"].as_str().unwrap();
        assert_eq!(world.dev.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await.status, 200);
    }
    let view = world.dev.get(&format!("/v1/batches/{id}?outcomes=true")).await.json();
    assert_eq!((&view["settled"], &view["by_state"]), (&json!(true), &json!({"cancelled": 2})), "{view}");
    let indexes: Vec<_> = view["outcomes"].as_array().unwrap().iter().map(|o| o["index"].as_u64().unwrap()).collect();
    assert_eq!(indexes, [0, 1, 2], "{view}");
    assert_eq!(view["outcomes"], batch["outcomes"], "{view}");
}

#[tokio::test]
async fn semantics_32_ndjson_lines_stand_for_themselves_and_the_first_may_be_about_the_batch() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let mut body = String::from("{\"batch\":{\"callback\":{\"url\":\"http://127.0.0.1:40009/hook\"}}}\n");
    for n in 0..600 {
        let text = match n {
            7 => "{broken".to_owned(),
            300 => json!({"capability": "none.such"}).to_string(),
            n => line(n).to_string(),
        };
        body.push_str(&format!("{text}\r\n\n"));
    }
    let answer = lines(&world.dev, body).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let batch = answer.json();
    assert_eq!((&batch["total"], &batch["refused"]), (&json!(600), &json!(2)));
    assert_eq!(batch["outcomes"][7]["problem"]["code"], "malformed-json");
    assert_eq!(batch["outcomes"][300]["problem"]["code"], "capability-not-registered");
    assert_eq!(batch["outcomes"].as_array().unwrap().len(), 600);
    let view = world.dev.get(&format!("/v1/batches/{}", batch["batch_id"].as_str().unwrap())).await.json();
    assert_eq!((&view["phase"], &view["accepted"]), (&json!("closed"), &json!(598)), "{view}");
    let refused = lines(&world.dev, json!({"batch": {"callback": {"url": "http://10.1.1.1/"}}}).to_string()).await;
    refused.problem_at(422, "egress-blocked", "/batch/callback/url");
    let unknown = lines(&world.dev, json!({"batch": {"callbacks": []}}).to_string()).await;
    unknown.problem_at(422, "unknown-field", "/batch/callbacks");
}

#[tokio::test]
async fn semantics_31_a_batch_with_a_key_is_taken_once_in_both_forms() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let keyed = |kind: &str, key: &str, body: String| {
        let call = world.dev.request(Method::POST, "/v1/batches").header("content-type", kind.to_owned());
        Answer::of(call.header("Idempotency-Key", key.to_owned()).body(body))
    };
    let whole = json!({"tasks": [line(0), line(1)]}).to_string();
    let first = keyed("application/json", "b-1", whole.clone()).await.json();
    let again = keyed("application/json", "b-1", whole).await;
    assert_eq!((again.status, &again.json()["replayed"]), (200, &json!(true)), "{}", again.text);
    assert_eq!(again.json()["outcomes"], first["outcomes"]);
    keyed("application/json", "b-1", json!({"tasks": [line(5)]}).to_string())
        .await
        .problem(422, "idempotency-key-reused");
    let some = format!("{}\n{}\n", line(0), line(1));
    let first = keyed("application/x-ndjson", "b-2", some.clone()).await.json();
    assert_eq!(keyed("application/x-ndjson", "b-2", some.clone()).await.json()["batch_id"], first["batch_id"]);
    let inside = format!("{}\n{some}", json!({"batch": {"idempotency_key": "b-3"}}));
    let first = lines(&world.dev, inside.clone()).await.json();
    let again = lines(&world.dev, inside).await;
    assert_eq!((again.status, &again.json()["batch_id"]), (200, &first["batch_id"]), "{}", again.text);
    let tasks = world.dev.get("/v1/tasks").await.json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(6), "{tasks}");
}

#[tokio::test]
async fn semantics_31_an_ndjson_batch_is_the_same_wherever_its_key_stands() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let send = |key: Option<&'static str>, head: Value| {
        let call = world.dev.request(Method::POST, "/v1/batches").header("content-type", "application/x-ndjson");
        let call = key.into_iter().fold(call, |call, key| call.header("Idempotency-Key", key));
        let head = if head.is_null() { String::new() } else { format!("{}\n", json!({"batch": head})) };
        Answer::of(call.body(format!("{head}{}\n", line(0))))
    };
    let is_again = |again: &Answer, first: &Answer| {
        assert_eq!((again.status, &again.json()["batch_id"]), (200, &first.json()["batch_id"]), "{}", again.text);
    };
    let first = send(Some("k-1"), Value::Null).await;
    assert_eq!(first.status, 202, "{}", first.text);
    is_again(&send(None, json!({"idempotency_key": "k-1"})).await, &first);
    is_again(&send(Some("k-1"), json!({"idempotency_key": "k-1"})).await, &first);
    is_again(&send(Some("k-1"), json!({})).await, &first);
    let hook = json!({"url": "http://127.0.0.1:40009/hook"});
    let other = send(None, json!({"idempotency_key": "k-1", "callback": hook})).await;
    other.problem(422, "idempotency-key-reused");
    let first = send(None, json!({"callback": hook, "idempotency_key": "k-2"})).await;
    assert_eq!(first.status, 202, "{}", first.text);
    is_again(&send(Some("k-2"), json!({"callback": hook})).await, &first);
}

#[tokio::test]
async fn a_json_batch_is_refused_with_the_index_and_path_of_what_is_wrong() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let post = |text: String| async { world.dev.post_raw("/v1/batches", text).await };
    let many = post(format!("{{\"tasks\":[{}1]}}", "1,".repeat(4_000_000))).await;
    many.problem_at(422, "invalid-field", "/tasks");
    assert!(many.text.contains("100000"), "{}", many.text);
    let good = line(0);
    post(format!("{{\"tasks\":[{good},{{\"a\":{{\"b\":1,\"b\":2}}}}]}}")).await.problem_at(
        400,
        "duplicate-key",
        "/tasks/1/a/b",
    );
    post(format!("{{\"tasks\":[{good}],\"colour\":1}}")).await.problem_at(422, "unknown-field", "/colour");
    post("{\"tasks\":7}".to_owned()).await.problem_at(422, "invalid-field", "/tasks");
    post("{}".to_owned()).await.problem_at(422, "invalid-field", "/tasks");
    post(format!("{{\"tasks\":[{good},]}}")).await.problem(400, "malformed-json");
    let some = post(format!("{{\"tasks\":[{good},{{\"capability\":7}},{good}]}}")).await.json();
    assert_eq!((&some["refused"], &some["outcomes"][1]["index"]), (&json!(1), &json!(1)), "{some}");
    assert_eq!(some["outcomes"][1]["problem"]["errors"][0]["pointer"], "/capability", "{some}");
}

#[tokio::test]
async fn semantics_32_a_batch_whose_connection_breaks_is_closed_with_what_came_whole() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let address = world.url.strip_prefix("http://").unwrap();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/batches HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {DEV_TOKEN}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: 10000000\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let body: String = (0..300).map(|n| format!("{}\n", line(n))).collect();
    socket.write_all(body.as_bytes()).await.unwrap();
    socket.write_all(b"{\"capability\":\"text.co").await.unwrap();
    socket.flush().await.unwrap();
    drop(socket);
    // The feed says when it is closed: no sleeping.
    let mut after = 0;
    let closed = loop {
        let answer = world.dev.get(&format!("/v1/events?after={after}&wait_ms=10000")).await;
        assert!(!answer.text.is_empty(), "nothing more came and the batch is not closed");
        after = answer.header("reach-after").parse().unwrap();
        let events = answer.text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        if let Some(closed) = events.into_iter().find(|event| event["kind"] == "batch-closed") {
            break closed;
        }
    };
    assert_eq!((&closed["total"], &closed["refused"]), (&json!(300), &json!(0)), "{closed}");
}
