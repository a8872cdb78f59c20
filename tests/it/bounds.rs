//! What a bound does when it is reached: a clear answer, nothing lost, and everything taken again by itself.

use std::sync::Arc;
use std::time::Duration;

use agent_reach::hub::Home;
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::store::Space;
use agent_reach::ledger::store::memory::MemoryStore;
use serde_json::{Value, json};

use crate::world::{Answer, World};

const POLICY: &str = "/v1/policies";

async fn submit(world: &World, qos: &str) -> Answer {
    world.dev.post("/v1/tasks", json!({"capability": "slow.work", "qos": qos, "wait_for_agent": true})).await
}

/// Asks until the answer is the wanted one; the guardian looks at the disk four times a second.
async fn until_status(world: &World, wanted: u16) -> Answer {
    for _ in 0..100 {
        let answer = submit(world, "normal").await;
        if answer.status == wanted {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no submission was ever answered {wanted}");
}

#[tokio::test]
async fn semantics_22_a_full_lane_refuses_background_first_and_says_when_to_come_back() {
    let world = World::start().await;
    let changed = world.dev.put(POLICY, json!({"reason": "a small lane", "policy": {"lane_bound": 20}})).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    for n in 0..16 {
        assert_eq!(submit(&world, "background").await.status, 202, "background {n}");
    }
    for (qos, taken) in [("background", 0), ("normal", 3), ("urgent", 1)] {
        for n in 0..=taken {
            let answer = submit(&world, qos).await;
            let expected = if n < taken { 202 } else { 429 };
            assert_eq!(answer.status, expected, "{qos} {n}: {}", answer.text);
            if expected == 429 {
                assert_eq!(answer.json()["code"], "queue-full");
                assert!(answer.headers.contains_key("retry-after"), "a 429 says when to come back");
                assert_eq!(answer.json().get("reach_id"), None, "a refused task has no id");
            }
        }
    }
    let queued = world.dev.get("/v1/tasks?state=queued&limit=100").await.json();
    assert_eq!(queued["items"].as_array().map(Vec::len), Some(20), "what was accepted is there, no more");
}

#[tokio::test]
async fn semantics_30_a_full_disk_refuses_submits_serves_reads_and_resumes_by_itself() {
    let store = Arc::new(MemoryStore::new());
    let given = Arc::clone(&store);
    let world = World::start_with(move |options| {
        let folder = tempfile::tempdir().unwrap().keep();
        options.home = Home::Given { store: given, keys: Keys::from_master(&[7; 32]), folder };
    })
    .await;
    let first = submit(&world, "normal").await.json();
    store.set_space(Some(Space { free: 1 << 30, total: 1 << 40 }));
    let refused = until_status(&world, 507).await;
    assert_eq!(refused.json()["code"], "disk-full");
    assert_eq!(refused.json().get("reach_id"), None, "a refused task has no id");
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(world.dev.get("/readyz").await.status, 503);
    let id = first["reach_id"].as_str().unwrap();
    assert_eq!(world.dev.get(&format!("/v1/tasks/{id}")).await.status, 200, "reads go on");
    let cancelled = world.dev.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
    assert_eq!(cancelled.status, 200, "what frees room is taken: {}", cancelled.text);
    store.set_space(Some(Space { free: 1 << 39, total: 1 << 40 }));
    until_status(&world, 202).await;
    assert_eq!(world.dev.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_policy_that_contradicts_itself_is_refused_and_changes_nothing() {
    let world = World::start().await;
    let before = world.dev.get(POLICY).await.json();
    for policy in
        [json!({"unhealthy_after": 9, "lost_after": 3}), json!({"lane_bound": 0}), json!({"replays_per_second": 0})]
    {
        let refused = world.dev.put(POLICY, json!({"reason": "wrong", "policy": policy})).await;
        assert_eq!(refused.status, 422, "{}", refused.text);
    }
    let unreasoned = world.dev.put(POLICY, json!({"policy": {"lane_bound": 7}})).await;
    assert_eq!(unreasoned.status, 422, "who and why: {}", unreasoned.text);
    assert_eq!(world.dev.get(POLICY).await.json(), before);
    assert_ne!(before, Value::Null);
}
