//! Memory is bounded whatever callers do: bodies, answers and connections (docs/bounds.md).

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

fn payload_bytes(tasks: &Value) -> usize {
    tasks.as_array().unwrap().iter().map(|task| task["payload"].to_string().len()).sum()
}

/// An agent that holds as many as there are.
async fn hungry(world: &World) {
    let agent = json!({"agent_id": "w-1", "capabilities": [{"capability": "text.count"}],
        "transport": {"kind": "pull"}, "max_concurrency": 1_000});
    assert_eq!(world.dev.post("/v1/agents", agent).await.status, 200);
}

#[tokio::test]
async fn one_claim_hands_over_at_most_8_mib_and_the_rest_stays_in_the_queue_in_its_order() {
    let world = World::start().await;
    hungry(&world).await;
    let mut sent = Vec::new();
    for _ in 0..20 {
        let task = large_task(&world).await;
        assert_eq!(task.status, 202, "{}", task.text);
        sent.push(task.json()["reach_id"].clone());
    }
    let claim = json!({"incarnation": 1, "max": 1_000});
    let mut seen = Vec::new();
    while seen.len() < sent.len() {
        let answer = world.dev.post("/v1/agents/w-1/claim", claim.clone()).await.json();
        let tasks = answer["tasks"].as_array().unwrap();
        assert!(!tasks.is_empty() && payload_bytes(&answer["tasks"]) <= 8 << 20, "{} tasks", tasks.len());
        assert!(tasks.len() > 5 || seen.len() + tasks.len() == sent.len(), "as many as fit: {}", tasks.len());
        let left = world.dev.get("/v1/tasks?state=queued").await.json()["items"].as_array().unwrap().len();
        assert_eq!(seen.len() + tasks.len() + left, sent.len(), "no lease is given for what is not sent");
        let again = world.dev.post("/v1/agents/w-1/claim", claim.clone()).await.json();
        assert_eq!(again["tasks"].as_array().map(Vec::len), Some(tasks.len()), "the same again until they are taken");
        for task in tasks {
            seen.push(task["reach_id"].clone());
            let ack = json!({"agent_id": "w-1", "incarnation": 1, "attempt": 1, "lease": task["lease"]});
            let path = format!("/v1/tasks/{}/ack", task["reach_id"].as_str().unwrap());
            assert_eq!(world.dev.post(&path, ack).await.status, 200);
        }
    }
    assert_eq!(seen, sent, "each once, in the order of the queue");
}

#[tokio::test]
async fn pages_of_large_rows_end_after_8_mib_with_a_cursor_and_so_does_the_feed() {
    const AGENTS: usize = 350;
    let world = World::start().await;
    let long = "x".repeat(120);
    let offers: Vec<Value> = (0..200).map(|n| json!({"capability": format!("{n:03}.{long}")})).collect();
    for n in 0..AGENTS {
        let agent = json!({"agent_id": format!("w-{n:03}"), "capabilities": offers, "transport": {"kind": "pull"}});
        assert_eq!(world.dev.post("/v1/agents", agent).await.status, 200);
    }
    let (mut seen, mut pages, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let page = world.dev.get(&format!("/v1/agents?limit=500{cursor}")).await;
        assert!(page.text.len() <= 9 << 20, "{}", page.text.len());
        let page = page.json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|agent| agent["agent_id"].to_string()));
        pages += 1;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!((seen.len(), pages), (AGENTS, 2));
    assert!(seen.is_sorted_by(|a, b| a < b));
    let (mut seqs, mut pages, mut after) = (Vec::new(), 0, 0);
    loop {
        let page = world.dev.get(&format!("/v1/events?encoding=raw&after={after}")).await;
        assert!(page.text.len() <= 9 << 20, "{}", page.text.len());
        if page.text.is_empty() {
            break;
        }
        after = page.header("reach-after").parse::<u64>().unwrap();
        let events: Vec<Value> = page.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        seqs.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
        pages += 1;
    }
    assert!(pages > 2 && seqs.len() >= AGENTS, "{pages} pages, {} events", seqs.len());
    assert!(seqs.is_sorted_by(|a, b| a < b), "none twice");
    assert_eq!(seqs.last(), Some(&after));
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
