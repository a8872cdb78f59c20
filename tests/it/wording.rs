//! What a refusal says: the very thing, the very value, and the name that was meant.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World, registration};

const ABSENT: &str = "reach_01m8nnzkk1evcsb5b2sv8d9zmf";

fn detail(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap()
}

#[tokio::test]
async fn a_404_names_what_was_asked_for() {
    let world = World::start().await;
    let lease = json!({"agent_id": "w-9", "incarnation": 1, "attempt": 1, "lease": "x"});
    let absent_batch = "batch_01m8nnzkk1evcsb5b2sv8d9zmf";
    let absent_callback = "msg_2yk8a2e1q19202er94psfz3g7w";
    let beat = json!({"incarnation": 1});
    let post = |path: String, body: Value| (Method::POST, path, body);
    let get = |path: String| (Method::GET, path, Value::Null);
    for ((method, path, body), named) in [
        (get(format!("/v1/tasks/{ABSENT}")), format!("task {ABSENT}")),
        (get("/v1/tasks/gibberish".to_owned()), "task gibberish".to_owned()),
        (get(format!("/v1/tasks/{ABSENT}/history")), format!("task {ABSENT}")),
        (get(format!("/v1/tasks/{ABSENT}/explain")), format!("task {ABSENT}")),
        (get(format!("/v1/tasks/{ABSENT}/result")), format!("task {ABSENT}")),
        (get(format!("/v1/batches/{absent_batch}")), format!("batch {absent_batch}")),
        (get("/v1/agents/w-9".to_owned()), "agent w-9".to_owned()),
        (get("/v1/agents/no%20such".to_owned()), "agent no such".to_owned()),
        (post(format!("/v1/tasks/{ABSENT}/cancel"), json!({})), format!("task {ABSENT}")),
        (post(format!("/v1/tasks/{ABSENT}/approve"), json!({})), format!("task {ABSENT}")),
        (post(format!("/v1/tasks/{ABSENT}/ack"), lease), format!("task {ABSENT}")),
        (post("/v1/agents/w-9/heartbeat".to_owned(), beat.clone()), "agent w-9".to_owned()),
        (post("/v1/agents/w-9/claim".to_owned(), beat.clone()), "agent w-9".to_owned()),
        (post("/v1/agents/w-9/offline".to_owned(), beat), "agent w-9".to_owned()),
        (post("/v1/agents/w-9/drain".to_owned(), json!({})), "agent w-9".to_owned()),
        (post(format!("/v1/callbacks/{absent_callback}/redrive"), json!({})), format!("callback {absent_callback}")),
        (post("/v1/callback-secrets/travel/rotate".to_owned(), json!({})), "callback secret travel".to_owned()),
        (post("/v1/tokens/tok_9/rotate".to_owned(), json!({})), "token tok_9".to_owned()),
        ((Method::DELETE, "/v1/tokens/tok_9".to_owned(), Value::Null), "token tok_9".to_owned()),
        ((Method::DELETE, "/v1/agents/w-9".to_owned(), Value::Null), "agent w-9".to_owned()),
        ((Method::DELETE, "/v1/callback-secrets/travel".to_owned(), Value::Null), "callback secret travel".to_owned()),
    ] {
        let mut call = world.dev.request(method, &path);
        if !body.is_null() && !path.ends_with("approve") && !path.ends_with("redrive") {
            call = call.json(&body);
        }
        let problem = Answer::of(call).await.problem(404, "not-found");
        assert!(detail(&problem).contains(&named), "{path}: {problem}");
    }
    let report = json!({"op": "ack", "reach_id": ABSENT, "attempt": 1, "lease": "x"});
    let bulk = json!({"agent_id": "w-9", "incarnation": 1, "reports": [report]});
    let outcomes = world.dev.post("/v1/work/reports", bulk).await.json();
    assert!(outcomes["outcomes"][0]["problem"]["detail"].as_str().unwrap().contains(ABSENT), "{outcomes}");
}

#[tokio::test]
async fn semantics_37_what_is_foreign_is_told_in_the_words_for_what_does_not_exist() {
    let world = World::start().await;
    world.dev.register("w-1", "text.words").await;
    let task = world.dev.post("/v1/tasks", json!({"capability": "text.words"})).await.json();
    let task = task["reach_id"].as_str().unwrap();
    let foreign =
        world.somebody_in("elsewhere", json!({"scopes": ["read", "work", "submit", "operate", "audit"]})).await;
    for (there, nowhere) in [
        (format!("/v1/tasks/{task}"), format!("/v1/tasks/{ABSENT}")),
        (format!("/v1/tasks/{task}/history"), format!("/v1/tasks/{ABSENT}/history")),
        ("/v1/agents/w-1".to_owned(), "/v1/agents/w-2".to_owned()),
    ] {
        let (foreign_text, absent_text) = (foreign.get(&there).await.text, foreign.get(&nowhere).await.text);
        let same = absent_text.replace(ABSENT, task).replace("w-2", "w-1");
        assert_eq!(foreign_text, same, "{there}");
    }
    let lease = json!({"agent_id": "w-1", "incarnation": 1, "attempt": 1, "lease": "x"});
    for (word, body) in [("cancel", json!({})), ("ack", lease)] {
        let there = foreign.post(&format!("/v1/tasks/{task}/{word}"), body.clone()).await.text;
        let nowhere = foreign.post(&format!("/v1/tasks/{ABSENT}/{word}"), body).await.text;
        assert_eq!(there, nowhere.replace(ABSENT, task), "{word}");
    }
    // An agent that this token may not act as, there or not.
    let worker = world.somebody(json!({"scopes": ["work"], "agents": ["v-*"]})).await;
    let there = worker.post("/v1/agents/w-1/heartbeat", json!({"incarnation": 1})).await.text;
    let nowhere = worker.post("/v1/agents/w-2/heartbeat", json!({"incarnation": 1})).await.text;
    assert_eq!(there, nowhere.replace("w-2", "w-1"));
    // A namespace of others, there or not.
    let named = |name: &'static str| foreign.request(Method::GET, "/v1/agents").header("Reach-Namespace", name);
    let (dev, none) = (Answer::of(named("dev")).await, Answer::of(named("nil")).await);
    assert!(dev.text.contains("namespace dev"), "{}", dev.text);
    assert_eq!(dev.text, none.text.replace("nil", "dev"));
}

#[tokio::test]
async fn a_query_value_that_is_none_is_named_with_what_came_and_what_was_expected() {
    let world = World::start().await;
    for (path, said) in [
        ("/v1/tasks?limit=abc", ["limit", "\"abc\"", "a whole number"]),
        ("/v1/tasks?limit=", ["limit", "\"\"", "a whole number"]),
        ("/v1/tasks?limit=-1", ["limit", "\"-1\"", "a whole number"]),
        ("/v1/tasks?limit=99999999999999999999999", ["limit", "99999999999999999999999", "too large"]),
        ("/v1/tasks?limit=501", ["limit", "501", "1 to 500"]),
        ("/v1/tasks?submitted_after=yesterday", ["submitted_after", "\"yesterday\"", "RFC 3339"]),
        ("/v1/tasks?limit=1&limit=2", ["limit", "more than once", ""]),
        ("/v1/tasks?state=queud", ["state", "\"queud\"", "did you mean queued?"]),
        ("/v1/tasks?failure_class=crash", ["failure_class", "\"crash\"", "agent-crash"]),
        ("/v1/tasks?label=line", ["label", "\"line\"", "name:value"]),
        ("/v1/tasks?stat=queued", ["\"stat\"", "did you mean state?", "failure_class"]),
        ("/v1/agents?health=green", ["health", "\"green\"", "healthy"]),
        ("/v1/callbacks?state=dew", ["state", "\"dew\"", "due"]),
        ("/v1/events?wait_ms=abc", ["wait_ms", "\"abc\"", "a whole number"]),
        ("/v1/events?wait_ms=99999999", ["wait_ms", "99999999", "0 to"]),
        ("/v1/events?after=soon", ["after", "\"soon\"", "latest"]),
        ("/v1/events?encoding=hex", ["encoding", "\"hex\"", "raw"]),
        ("/v1/events?limit=0", ["limit", "0", "1 to"]),
        ("/v1/machine?x=1", ["\"x\"", "no query parameters", ""]),
    ] {
        let problem = world.dev.get(path).await.problem(400, "invalid-query");
        for said in said {
            assert!(detail(&problem).contains(said), "{path} does not say {said}: {problem}");
        }
    }
    world.dev.register("w-1", "text.words").await;
    let task = world.dev.post("/v1/tasks", json!({"capability": "text.words"})).await.json();
    let task = task["reach_id"].as_str().unwrap();
    for (query, said) in [
        ("wait_ms=abc", ["wait_ms", "\"abc\"", "a whole number"]),
        ("wait_ms=60001", ["wait_ms", "60001", "0 to 60000"]),
        ("unless_state=queud", ["unless_state", "\"queud\"", "did you mean queued?"]),
        ("follow=first", ["follow", "\"first\"", "latest"]),
    ] {
        let problem = world.dev.get(&format!("/v1/tasks/{task}?{query}")).await.problem(400, "invalid-query");
        for said in said {
            assert!(detail(&problem).contains(said), "{query} does not say {said}: {problem}");
        }
    }
    let problem = world.dev.get(&format!("/v1/tasks/{task}/history?format=xml")).await.problem(400, "invalid-query");
    assert!(detail(&problem).contains("\"xml\"") && detail(&problem).contains("ndjson"), "{problem}");
}

#[tokio::test]
async fn an_unknown_field_or_word_is_answered_with_the_one_that_was_meant_and_all_there_are() {
    let world = World::start().await;
    let task = |field: &str, value: Value| json!({"capability": "a.b", field: value});
    let problem = world.dev.post("/v1/tasks", task("payloda", json!({}))).await.problem(422, "unknown-field");
    assert_eq!((&problem["suggestions"], &problem["errors"][0]["pointer"]), (&json!(["payload"]), &json!("/payloda")));
    for field in ["capability", "payload", "wait_for_agent", "callback", "idempotency_key"] {
        assert!(detail(&problem).contains(field), "{field} is not in {problem}");
    }
    let problem = world.dev.post("/v1/tasks", task("qos", json!("urgnet"))).await.problem(422, "invalid-field");
    assert_eq!((&problem["suggestions"], &problem["errors"][0]["pointer"]), (&json!(["urgent"]), &json!("/qos")));
    assert!(detail(&problem).contains("background"), "{problem}");
    let mut body = registration("w-1", "text.words");
    body["capabilities"][0]["colour"] = json!("red");
    let problem = world.dev.post("/v1/agents", body).await.problem(422, "unknown-field");
    assert!(problem["suggestions"].is_null() && detail(&problem).contains("input_schema"), "{problem}");
    // What was sent is quoted, and cut.
    let problem = world.dev.post("/v1/tasks", task(&"x".repeat(100_000), json!(1))).await.problem(422, "unknown-field");
    assert!(detail(&problem).len() < 2_000, "{problem}");
}

#[tokio::test]
async fn a_401_says_what_is_wrong_with_the_token_and_not_whose_it_was() {
    let world = World::start().await;
    let bare = world.nobody().request(Method::GET, "/v1/agents");
    let problem = Answer::of(bare).await.problem(401, "unauthenticated");
    assert!(detail(&problem).contains("no token"), "{problem}");
    let problem = world.with_token(Some("nonsense")).get("/v1/agents").await.problem(401, "unauthenticated");
    assert!(detail(&problem).contains("revoked") && detail(&problem).contains("expired"), "{problem}");
    let basic = world.nobody().request(Method::GET, "/v1/agents").header("Authorization", "Basic YTpi");
    let problem = Answer::of(basic).await.problem(401, "unauthenticated");
    assert!(detail(&problem).contains("Bearer"), "{problem}");
}

#[tokio::test]
async fn an_incarnation_that_was_never_given_is_no_older_process() {
    let world = World::start().await;
    world.dev.register("w-1", "a.b").await;
    for sent in [0, 7] {
        for call in ["heartbeat", "offline", "claim"] {
            let answer = world.dev.post(&format!("/v1/agents/w-1/{call}"), json!({"incarnation": sent})).await;
            let problem = answer.problem(409, "incarnation-superseded");
            let told = format!("incarnation {sent} was never given to a process of this agent; 1 is the current one");
            assert_eq!(detail(&problem), told, "{call}");
            assert!(problem["next"].as_str().unwrap().contains("the answer to your registration"), "{call}: {problem}");
        }
    }
    let mut next = registration("w-1", "a.b");
    next["instance"] = json!("another");
    assert_eq!(world.dev.post("/v1/agents", next).await.status, 200);
    let answer = world.dev.post("/v1/agents/w-1/heartbeat", json!({"incarnation": 1})).await;
    assert_eq!(detail(&answer.problem(409, "incarnation-superseded")), "incarnation 2 holds this agent id now");
}

#[tokio::test]
async fn a_path_that_does_not_exist_is_looked_up_and_no_id_is_checked() {
    let world = World::start().await;
    let problem = world.dev.get("/v1/task").await.problem(404, "not-found");
    assert_eq!(detail(&problem), "there is no such path");
    assert!(problem["next"].as_str().unwrap().contains("/openapi.json"), "{problem}");
}
