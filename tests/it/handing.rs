//! Handing work over, and the agents that are not there to take it (semantics 4).

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::work::{claim, submit};
use crate::world::{DEV_TOKEN, World};

/// A socket on which an agent has asked for work.
async fn asking(world: &World, body: &Value) -> TcpStream {
    let address = world.url.strip_prefix("http://").unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    // So what it does not read stays with the hub.
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let mut socket = socket.connect(address.parse().unwrap()).await.unwrap();
    let body = body.to_string();
    let call = format!(
        "POST /v1/agents/w-1/claim HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {DEV_TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(call.as_bytes()).await.unwrap();
    socket
}

/// How many of the large tasks one claim hands over.
const CLAIMED: usize = 8;

/// More payload than the sockets' buffers hold; their tasks would wait an hour for an acknowledgement.
async fn large_tasks(world: &World) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..CLAIMED {
        let body = json!({"capability": "text.count", "payload": "x".repeat(1_000_000), "reach_timeout_ms": 3_600_000});
        let answer = world.dev.post("/v1/tasks", body).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        ids.push(answer.json()["reach_id"].as_str().unwrap().to_owned());
    }
    ids
}

/// Waits until every task is back in the queue.
async fn all_released(world: &World, ids: &[String]) {
    for id in ids {
        let path = format!("/v1/tasks/{id}?wait_ms=8000&unless_state=dispatched");
        let view = world.dev.get(&path).await.json();
        assert!(matches!(view["state"].as_str(), Some("queued" | "retrying")), "{view}");
        assert_eq!(view["attempt"], 1, "{view}");
    }
    let history = world.dev.get(&format!("/v1/tasks/{}/history", ids[0])).await.text;
    assert!(history.contains("task-released") && history.contains(r#""actor":{"kind":"hub"}"#), "{history}");
}

#[tokio::test]
async fn semantics_4_a_claims_answer_that_its_agent_does_not_take_is_released() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let ids = large_tasks(&world).await;
    let mut socket = asking(&world, &json!({"incarnation": 1, "max": 24})).await;
    let mut head = [0; 12];
    socket.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200", "the answer is on its way");
    drop(socket);
    all_released(&world, &ids).await;
}

#[tokio::test]
async fn semantics_4_an_agent_that_stops_reading_is_cut_off_and_its_work_released() {
    let world = World::start_with(|options| options.api.body_timeout = Duration::from_millis(300)).await;
    world.dev.register("w-1", "text.count").await;
    let ids = large_tasks(&world).await;
    let mut socket = asking(&world, &json!({"incarnation": 1, "max": 24})).await;
    let mut head = [0; 12];
    socket.read_exact(&mut head).await.unwrap();
    all_released(&world, &ids).await;
    drop(socket);
}

#[tokio::test]
async fn semantics_4_an_answer_that_was_written_is_not_released() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let body = json!({"capability": "text.count", "reach_timeout_ms": 3_600_000});
    let id = world.dev.post("/v1/tasks", body).await.json()["reach_id"].as_str().unwrap().to_owned();
    let mut socket = asking(&world, &json!({"incarnation": 1})).await;
    let mut text = String::new();
    while !text.contains("\"lease\"") {
        let mut some = [0; 4_096];
        let read = socket.read(&mut some).await.unwrap();
        text.push_str(std::str::from_utf8(&some[..read]).unwrap());
    }
    drop(socket);
    let view = world.dev.get(&format!("/v1/tasks/{id}?wait_ms=300")).await.json();
    assert_eq!((&view["state"], &view["attempt"]), (&json!("dispatched"), &json!(1)), "{view}");
}

#[tokio::test]
async fn semantics_4_an_agent_that_leaves_while_it_waits_takes_its_demand_along() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let socket = asking(&world, &json!({"incarnation": 1, "wait_ms": 30_000})).await;
    drop(socket);
    let id = submit(&world.dev, "text.count", json!(1)).await;
    let task = claim(&world.dev, "w-1").await;
    assert_eq!(task["reach_id"].as_str(), Some(&*id), "{task}");
}
