//! Memory is bounded whatever callers do: bodies and connections (docs/bounds.md).

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::world::{Answer, DEV_TOKEN, World};

/// Payload bytes of the tasks here.
const LARGE: usize = 1_000_000;

async fn large_task(world: &World) -> Answer {
    world.dev.post("/v1/tasks", json!({"capability": "text.count", "payload": "x".repeat(LARGE)})).await
}

/// A connection on which a call with a token has begun.
async fn begin(world: &World, path: &str, announced: usize) -> TcpStream {
    let address = world.url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {DEV_TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {announced}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

#[tokio::test]
async fn a_hundred_callers_that_never_end_their_requests_and_a_thousand_idle_ones_stop_nobody() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let address = world.url.strip_prefix("http://").unwrap();
    let mut open = Vec::new();
    for n in 0..100 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let text = if n % 2 == 0 { "POST /v1/tasks HTTP/1.1\r\nHo" } else { "G" };
        socket.write_all(text.as_bytes()).await.unwrap();
        open.push(socket);
        let mut socket = begin(&world, "/v1/tasks", LARGE).await;
        socket.write_all(&vec![b' '; 10_000]).await.unwrap();
        open.push(socket);
    }
    for _ in 0..1_000 {
        open.push(TcpStream::connect(address).await.unwrap());
    }
    let start = Instant::now();
    assert_eq!(large_task(&world).await.status, 202);
    assert_eq!(world.dev.get("/v1/tasks").await.json()["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(world.dev.get("/livez").await.status, 200);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    drop(open);
}

#[tokio::test]
async fn bodies_of_the_whole_hub_have_one_budget_and_small_calls_need_none_of_it() {
    let world = World::start_with(|options| options.api.body_memory = 2 << 20).await;
    world.dev.register("w-1", "text.count").await;
    let one = begin(&world, "/v1/tasks", LARGE).await;
    let two = begin(&world, "/v1/tasks", LARGE).await;
    let refused = loop {
        // The two may not have asked yet.
        let answer = large_task(&world).await;
        if answer.status != 202 {
            break answer;
        }
    };
    refused.problem(503, "busy");
    assert_eq!(refused.header("retry-after"), "2");
    let small = world.dev.post("/v1/tasks", json!({"capability": "text.count"})).await;
    assert_eq!(small.status, 202, "a small call needs no room: {}", small.text);
    drop((one, two));
    let taken = loop {
        let answer = large_task(&world).await;
        if answer.status != 503 {
            break answer;
        }
    };
    assert_eq!(taken.status, 202, "room comes back with a broken connection: {}", taken.text);
}

/// Waits until so many tasks are in a state, while none of the calls that wait has ended.
async fn until(world: &World, state: &str, tasks: usize, waiting: &mut [JoinHandle<Answer>]) {
    loop {
        let found = world.dev.get(&format!("/v1/tasks?state={state}")).await.json();
        if found["items"].as_array().map(Vec::len) == Some(tasks) {
            return;
        }
        if let Some(ended) = waiting.iter_mut().find(|call| call.is_finished()) {
            panic!("one has ended: {:?}", ended.await);
        }
    }
}

#[tokio::test]
async fn a_call_that_waits_for_its_tasks_end_keeps_no_room() {
    let world = World::start_with(|options| options.api.body_memory = 2 << 20).await;
    world.dev.register("w-1", "text.count").await;
    let body = json!({"capability": "text.count", "payload": "x".repeat(LARGE)});
    let call = |_| world.dev.request(Method::POST, "/v1/tasks").header("prefer", "wait=60").json(&body);
    let mut waiting: Vec<_> = (0..4).map(|n| tokio::spawn(Answer::of(call(n)))).collect();
    until(&world, "queued", 4, &mut waiting).await;
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn a_call_that_waits_for_work_keeps_no_room() {
    let world = World::start_with(|options| options.api.body_memory = 2 << 20).await;
    world.dev.register("w-1", "text.count").await;
    for _ in 0..4 {
        world.dev.post("/v1/tasks", json!({"capability": "text.count"})).await;
    }
    let path = "/v1/agents/w-1/claim";
    let claimed = world.dev.post(path, json!({"incarnation": 1, "max": 4})).await.json();
    // What is handed over and not acknowledged would be handed over again.
    for task in claimed["tasks"].as_array().unwrap() {
        let ack = json!({"agent_id": "w-1", "incarnation": 1, "attempt": 1, "lease": task["lease"]});
        let path = format!("/v1/tasks/{}/ack", task["reach_id"].as_str().unwrap());
        assert_eq!(world.dev.post(&path, ack).await.status, 200);
    }
    let call = |task: &Value| {
        let done = json!({"op": "complete", "reach_id": task["reach_id"], "attempt": 1, "lease": task["lease"],
            "result": "y".repeat(LARGE)});
        let body = json!({"incarnation": 1, "max": 1, "wait_ms": 60_000, "reports": [done]});
        tokio::spawn(Answer::of(world.dev.request(Method::POST, path).json(&body)))
    };
    let mut waiting: Vec<_> = claimed["tasks"].as_array().unwrap().iter().map(call).collect();
    assert_eq!(waiting.len(), 4);
    until(&world, "succeeded", 4, &mut waiting).await;
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn an_unknown_state_or_class_in_a_list_is_answered_with_the_choice() {
    let world = World::start().await;
    let answer = world.dev.get("/v1/tasks?state=running").await;
    let problem = answer.problem(400, "invalid-query");
    let detail = problem["detail"].as_str().unwrap();
    for word in ["running", "queued", "processing", "slow-reach", "dead-letter"] {
        assert!(detail.contains(word), "{detail}");
    }
    let answer = world.dev.get("/v1/tasks?failure_class=bad").await;
    assert!(
        answer.problem(400, "invalid-query")["detail"].as_str().unwrap().contains("agent-crash"),
        "{}",
        answer.text
    );
}
