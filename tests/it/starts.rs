//! What a start does, in its order (R-REC-1, semantics 8, 21, 32): resolved by rule, paced, and heard only then.

use std::sync::Arc;

use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::time::{Millis, SimClock};
use serde_json::{Value, json};

use crate::fleet::{enlist, events, report};
use crate::replay_runs::Still;
use crate::work::{claim, submit};

/// How many tasks a claim of 200 gets at the moment at which the clock stands; they are acknowledged.
async fn claimed(hub: &Still, agent: &str, incarnation: u64) -> usize {
    let body = json!({"incarnation": incarnation, "max": 200, "wait_ms": 50});
    let answer = hub.world.dev.post(&format!("/v1/agents/{agent}/claim"), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let tasks = answer.json()["tasks"].as_array().unwrap().clone();
    let acked = report(&hub.world.dev, agent, incarnation, ("ack", &tasks)).await;
    assert!(acked.iter().all(|status| *status == 200), "{acked:?}");
    tasks.len()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn r_rec_1_a_start_resolves_by_rule_then_hands_out_at_a_rising_pace_and_gives_every_agent_a_fresh_grace() {
    let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(SimClock::new()));
    let hub = Still::start(&store, &clock).await;
    let dev = &hub.world.dev;
    let incarnation = enlist(dev, "w-1", (1_000, 500)).await;
    let slow = submit(dev, "text.count", json!("in work when the hub fell")).await;
    let held = claim(dev, "w-1").await;
    assert_eq!(report(dev, "w-1", incarnation, ("ack", std::slice::from_ref(&held))).await, [200]);
    let short = json!({"capability": "text.count", "payload": 1, "lifetime_ms": 60_000, "qos": "background"});
    let short = dev.post("/v1/tasks", short).await.json()["reach_id"].as_str().unwrap().to_owned();
    let rest: Vec<Value> =
        (0..300).map(|n| json!({"capability": "text.count", "payload": n, "idempotent": true})).collect();
    assert!(dev.post("/v1/batches", json!({"tasks": rest})).await.status < 300);
    let before = events(&hub.world, 0).await.last().unwrap()["seq"].as_u64().unwrap();
    hub.world.stop().await;
    clock.advance(Millis::secs(3_600));

    let hub = Still::start(&store, &clock).await;
    let dev = &hub.world.dev;
    let ready = dev.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["recovery"]), (200, &json!("done")), "{}", ready.text);
    for (id, state) in [(&slow, "slow-reach"), (&short, "expired")] {
        let path = format!("/v1/tasks/{id}?wait_ms=20000&unless_state=queued");
        let task = dev.get(&path).await.json();
        assert_eq!(task["state"], state, "its time ran out while the hub was down: {task}");
    }
    let found = events(&hub.world, before).await;
    assert_eq!(kinds(&found)[..2], ["hub-stopped", "hub-started"], "{found:?}");
    assert!(!kinds(&found).contains(&"agent-lost"), "an hour without the hub is no silence: {found:?}");

    assert_eq!(claimed(&hub, "w-1", incarnation).await, 20, "no thundering herd: so many at once");
    for (passed, count) in [(500, 100), (1_000, 180)] {
        clock.advance(Millis(passed));
        hub.world.nudge();
        assert_eq!(
            claimed(&hub, "w-1", incarnation).await,
            count,
            "200 in the first second, then 400: all that is left"
        );
    }
    let mut health = Value::Null;
    for _ in 0..60 {
        clock.advance(Millis(500));
        hub.world.nudge();
        health = dev.get("/v1/agents/w-1").await.json()["health"].clone();
    }
    assert_eq!(health, "lost", "its silence counts from the start on");
}
