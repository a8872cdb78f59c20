//! Submissions: accepted once, refused clearly, waited for.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::work::{claim, report, submit};
use crate::world::{Answer, World, registration};

#[tokio::test]
async fn semantics_31_a_key_gives_one_task_and_the_first_answer_again() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let body = json!({"capability": "text.count", "payload": {"a": 1, "b": 2}, "idempotency_key": "k-1"});
    let first = world.dev.post("/v1/tasks", body.clone()).await;
    assert_eq!(first.status, 202, "{}", first.text);
    assert!(first.json()["idempotency_key_until"].is_string(), "the window is in the answer: {}", first.text);
    let raw = r#"{"idempotency_key":"k-1","payload":{"b":2.0,"a":1},"capability":"text.count"}"#;
    let again = world.dev.post_raw("/v1/tasks", raw).await;
    let mut expected = first.json();
    expected["replayed"] = json!(true);
    assert_eq!((again.status, again.json()), (200, expected), "another spelling of the same body");
    let mut other = body.clone();
    other["payload"] = json!(3);
    let problem = world.dev.post("/v1/tasks", other).await.problem(422, "idempotency-key-reused");
    assert_eq!(problem["first_fingerprint"].as_str().map(str::len), Some(8), "{problem}");
    let by_header = world.dev.request(Method::POST, "/v1/tasks").header("Idempotency-Key", "\"k-1\"");
    let by_header = Answer::of(by_header.json(&json!({"capability": "text.count", "payload": {"a": 1, "b": 2}}))).await;
    assert_eq!(by_header.json()["reach_id"], first.json()["reach_id"], "header and field are one key");
    let differs = world.dev.request(Method::POST, "/v1/tasks").header("Idempotency-Key", "k-2").json(&body);
    Answer::of(differs).await.problem_at(422, "invalid-field", "/idempotency_key");
    let stranger = world.somebody(json!({"scopes": ["submit"]})).await;
    let problem = stranger.post("/v1/tasks", body).await.problem(422, "idempotency-key-reused");
    assert!(problem["first_fingerprint"].is_null() && problem["reach_id"].is_null(), "{problem}");
}

#[tokio::test]
async fn two_hundred_parallel_posts_with_one_key_are_one_task() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let posts = (0..200).map(|_| {
        let client = world.dev.clone();
        tokio::spawn(async move {
            client
                .post(
                    "/v1/tasks",
                    json!({"capability": "text.count", "payload": [{"x": [1]}], "idempotency_key": "one"}),
                )
                .await
        })
    });
    let mut ids = std::collections::BTreeSet::new();
    let mut fresh = 0;
    for post in posts.collect::<Vec<_>>() {
        let answer = post.await.unwrap();
        assert!(matches!(answer.status, 200 | 202), "{}", answer.text);
        fresh += usize::from(answer.status == 202);
        ids.insert(answer.json()["reach_id"].as_str().unwrap().to_owned());
    }
    assert_eq!((ids.len(), fresh), (1, 1));
    let list = world.dev.get("/v1/tasks").await.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
}

#[tokio::test]
async fn what_is_wrong_with_a_body_is_told_with_its_pointer_and_leaves_no_task() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let post = |more: Value| {
        let mut body = json!({"capability": "text.count"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let client = world.dev.clone();
        async move { client.post("/v1/tasks", body).await }
    };
    post(json!({"deadline": "2020-01-01T00:00:00Z"})).await.problem_at(422, "deadline-past", "/deadline");
    post(json!({"deadline": "2099-01-01T00:00:00"})).await.problem_at(422, "invalid-field", "/deadline");
    post(json!({"callback": {"url": "http://10.0.0.1/x"}})).await.problem_at(422, "egress-blocked", "/callback/url");
    let secret = json!({"callback": {"url": "https://caller.example/x", "secret_ref": "none"}});
    post(secret).await.problem_at(422, "invalid-field", "/callback/secret_ref");
    let parent = json!({"parent": {"reach_id": "reach_01h455vb4pex5vsknk084sn02q"}});
    post(parent).await.problem_at(422, "invalid-field", "/parent/reach_id");
    post(json!({"retry": {"max": 1}})).await.problem_at(422, "unknown-field", "/retry/max");
    world.dev.post("/v1/tasks", json!({"text": "is it raining"})).await.problem(422, "no-capability-fits");
    let unknown = world
        .dev
        .post("/v1/tasks", json!({"capability": "text.cuont"}))
        .await
        .problem(404, "capability-not-registered");
    assert_eq!(unknown["suggestions"], json!(["text.count"]));
    let large = json!({"capability": "text.count", "payload": "x".repeat(1 << 20)});
    world.dev.post("/v1/tasks", large).await.problem(413, "body-too-large");
    assert_eq!(world.dev.get("/v1/tasks").await.json()["items"], json!([]));
}

#[tokio::test]
async fn semantics_18_a_payload_that_no_schema_accepts_is_refused_with_its_path() {
    let world = World::start().await;
    let mut body = registration("w-1", "weather.forecast");
    body["capabilities"][0]["input_schema"] =
        json!({"type": "object", "properties": {"days": {"type": "integer", "maximum": 7}}, "required": ["city"]});
    assert_eq!(world.dev.post("/v1/agents", body).await.status, 200);
    let bad = json!({"capability": "weather.forecast", "payload": {"city": "x", "days": 9}});
    world.dev.post("/v1/tasks", bad.clone()).await.problem_at(422, "payload-refused", "/payload/days");
    let dry = world.dev.post("/v1/route/explain", bad).await.json();
    assert_eq!(dry["payload"][0]["pointer"], "/payload/days", "{dry}");
    assert_eq!(
        (&dry["payload_asked"], &dry["route"]["excluded"][0]["reason"]),
        (&json!(true), &json!("schema-refused"))
    );
    // Who names no payload asks about the agents alone.
    let dry = world.dev.post("/v1/route/explain", json!({"capability": "weather.forecast"})).await.json();
    assert_eq!((&dry["payload_asked"], &dry["payload"]), (&json!(false), &json!([])), "{dry}");
    assert_eq!(dry["route"]["excluded"][0]["reason"], "no-open-claim", "{dry}");
    submit(&world.dev, "weather.forecast", json!({"city": "x", "days": 3})).await;
    assert_eq!(claim(&world.dev, "w-1").await["payload"], json!({"city": "x", "days": 3}));
}

#[tokio::test]
async fn semantics_18_a_schema_registered_later_is_checked_for_those_who_wait() {
    let world = World::start().await;
    let waits = json!({"capability": "weather.forecast", "payload": {"city": "x"}, "wait_for_agent": true});
    let waits = world.dev.post("/v1/tasks", waits).await;
    assert_eq!(waits.status, 202, "{}", waits.text);
    let mut body = registration("w-1", "weather.forecast");
    body["capabilities"][0]["input_schema"] = json!({"required": ["city"]});
    assert_eq!(world.dev.post("/v1/agents", body).await.status, 200);
    assert_eq!(claim(&world.dev, "w-1").await["reach_id"], waits.json()["reach_id"]);
}

#[tokio::test]
async fn semantics_33_a_synchronous_call_answers_with_the_end_or_after_its_wait() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let worker = world.dev.clone();
    let work = tokio::spawn(async move {
        let task = claim(&worker, "w-1").await;
        let path = format!("/v1/tasks/{}/complete", task["reach_id"].as_str().unwrap());
        worker.post(&path, report("w-1", &task, json!({"result": {"n": 2}}))).await
    });
    let call = |wait: &str| world.dev.request(Method::POST, "/v1/tasks").header("Prefer", wait.to_owned());
    let answer = Answer::of(call("respond-async, wait=20").json(&json!({"capability": "text.count"}))).await;
    assert_eq!((answer.status, &answer.json()["result"]), (200, &json!({"n": 2})), "{}", answer.text);
    assert_eq!(answer.header("preference-applied"), "wait=20");
    assert_eq!(work.await.unwrap().status, 200);
    let late = Answer::of(call("wait=1").json(&json!({"capability": "text.count"}))).await;
    assert_eq!(late.status, 202, "{}", late.text);
    for bad in ["wait=121", "wait=0", "wait=soon", "wait", "wait=+5"] {
        Answer::of(call(bad).json(&json!({"capability": "text.count"}))).await.problem(400, "invalid-header");
    }
    let other = Answer::of(call("handling=strict; wait=5").json(&json!({"capability": "text.count"}))).await;
    assert_eq!((other.status, other.header("preference-applied")), (202, ""), "what is not known is ignored");
}

#[tokio::test]
async fn an_idempotency_key_that_is_half_in_quotes_is_refused() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let send = |path: &str, key: &str| {
        let call = world.dev.request(Method::POST, path).header("Idempotency-Key", key.to_owned());
        Answer::of(call.json(&match path {
            "/v1/tasks" => json!({"capability": "text.count"}),
            _ => json!({"tasks": [{"capability": "text.count"}]}),
        }))
    };
    for bad in ["\"", "\"\"", "\"a\"b\"", "\"a", "a\"", "a\"b", "\"a\\\"", "\"a\\b\"", "a\tb"] {
        for path in ["/v1/tasks", "/v1/batches"] {
            send(path, bad).await.problem(400, "invalid-header");
        }
    }
    let first = send("/v1/tasks", "\"a\\\"b\"").await;
    assert_eq!(first.status, 202, "{}", first.text);
    let body = json!({"capability": "text.count", "idempotency_key": "a\"b"});
    let again = world.dev.post("/v1/tasks", body).await;
    assert_eq!((again.status, &again.json()["reach_id"]), (200, &first.json()["reach_id"]), "{}", again.text);
    assert_eq!(send("/v1/tasks", "plain").await.status, 202);
    assert_eq!(send("/v1/tasks", "\"plain\"").await.status, 200, "the same key in quotes");
}

#[tokio::test]
async fn explain_names_the_only_reason_for_which_a_task_waits() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = submit(&world.dev, "text.count", json!(1)).await;
    let explain = || async {
        let task = world.dev.get(&format!("/v1/tasks/{id}/explain")).await.json();
        let dry = world.dev.post("/v1/route/explain", json!({"capability": "text.count"})).await.json();
        assert_eq!(task["route"]["only_reason"], dry["route"]["only_reason"], "{task} {dry}");
        (task["why"].as_str().unwrap().to_owned(), task["route"]["only_reason"].clone())
    };
    let (why, only) = explain().await;
    assert_eq!(only, "no-open-claim");
    assert!(why.contains("the only one that offers it is w-1") && why.contains("(no-open-claim)"), "{why}");
    world.dev.register("w-2", "text.count").await;
    let (why, only) = explain().await;
    assert_eq!(only, "no-open-claim");
    assert!(why.contains("none of the 2") && why.contains("no-open-claim"), "{why}");
    let drained = world.dev.post("/v1/agents/w-1/drain", json!({})).await;
    assert_eq!(drained.status, 200, "{}", drained.text);
    let (why, only) = explain().await;
    assert!(only.is_null() && !why.contains("no-open-claim"), "two reasons: {why}");
    assert_eq!(world.dev.post("/v1/agents/w-2/drain", json!({})).await.status, 200);
    let (why, only) = explain().await;
    assert_eq!(only, "not-registered", "they hold nothing and are gone: {why}");
    let other = json!({"capability": "text.other", "wait_for_agent": true});
    let none = world.dev.post("/v1/route/explain", other).await.json();
    assert!(none["route"]["only_reason"].is_null(), "{none}");
}

#[tokio::test]
async fn a_long_poll_answers_at_a_change() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = submit(&world.dev, "text.count", json!(1)).await;
    let (looker, path) = (world.dev.clone(), format!("/v1/tasks/{id}?wait_ms=30000&unless_state=queued"));
    let look = tokio::spawn(async move { looker.get(&path).await });
    let cancelled = world.dev.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    let seen = tokio::time::timeout(Duration::from_secs(10), look).await.expect("woken, not timed out").unwrap();
    assert_eq!(seen.json()["state"], "cancelled", "{}", seen.text);
}

#[tokio::test]
async fn r_sub_7_a_child_is_cut_to_its_parent_and_a_short_parent_is_warned_of() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let parent = json!({"capability": "text.count", "lifetime_ms": 60000, "work_timeout_ms": 1000});
    let parent = world.dev.post("/v1/tasks", parent).await.json();
    let child = json!({"capability": "text.count", "work_timeout_ms": 900, "parent": {"reach_id": parent["reach_id"]}});
    let child = world.dev.post("/v1/tasks", child).await.json();
    assert_eq!(child["deadline"], parent["deadline"], "{child}");
    let warnings = child["warnings"].to_string();
    assert!(warnings.contains("cut to the parent's") && warnings.contains("1.5 times"), "{warnings}");
}

#[tokio::test]
async fn an_explanation_says_what_would_unblock_a_waiting_task() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = submit(&world.dev, "text.count", json!(1)).await;
    let explained = world.dev.get(&format!("/v1/tasks/{id}/explain")).await.json();
    assert_eq!(explained["route"]["excluded"][0]["reason"], "no-open-claim", "{explained}");
    assert!(explained["unblock"][0].as_str().unwrap().contains("claims"), "{explained}");
    claim(&world.dev, "w-1").await;
    let explained = world.dev.get(&format!("/v1/tasks/{id}/explain")).await.json();
    assert_eq!(explained["last_dispatch"]["agent_id"], "w-1", "{explained}");
    assert!(explained["route"].is_null(), "{explained}");
}

#[tokio::test]
async fn a_deadline_further_than_a_task_may_live_is_cut_and_the_answer_says_so() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let submit = |body: Value| world.dev.post("/v1/tasks", body);
    let far = json!({"capability": "text.count", "deadline": "2099-01-01T00:00:00Z"});
    let answer = submit(far.clone()).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    assert!(answer.json()["warnings"].to_string().contains("30 days"), "{}", answer.text);
    let mut asked = far;
    asked["lifetime_ms"] = json!(60_000);
    let answer = submit(asked).await;
    assert_eq!((answer.status, &answer.json()["warnings"]), (202, &Value::Null), "the earlier, as asked");
}
