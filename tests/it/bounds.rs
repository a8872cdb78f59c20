//! What a bound does when it is reached: a clear answer, nothing lost, and everything taken again by itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_reach::hub::{FirstToken, Home, Options};
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::store::{Space, Store as _};
use serde_json::{Value, json};

use crate::work::report;
use crate::world::{Answer, World, registration};

const POLICY: &str = "/v1/policies";

async fn submit(world: &World, qos: &str) -> Answer {
    world.dev.post("/v1/tasks", json!({"capability": "slow.work", "qos": qos, "wait_for_agent": true})).await
}

/// A hub over this store, whose other files are in this folder.
fn home(store: &Arc<MemoryStore>, folder: &Path) -> impl FnOnce(&mut Options) + use<> {
    let (store, folder) = (Arc::clone(store), folder.to_owned());
    move |options| options.home = Home::Given { store, keys: Keys::from_master(&[7; 32]), folder }
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

fn registered(agent: &str, max_pending: u32) -> Value {
    let mut body = registration(agent, "slow.work");
    (body["max_concurrency"], body["max_pending"]) = (json!(1), json!(max_pending));
    body
}

#[tokio::test]
async fn semantics_22_what_its_agents_let_wait_bounds_a_capability_lowest_class_first() {
    let world = World::start().await;
    assert_eq!(world.dev.post("/v1/agents", registered("slow-1", 20)).await.status, 200);
    for (qos, taken) in [("background", 16), ("normal", 3), ("urgent", 1)] {
        for n in 0..=taken {
            let answer = submit(&world, qos).await;
            if n < taken {
                assert_eq!(answer.status, 202, "{qos} {n}: {}", answer.text);
                continue;
            }
            let problem = answer.problem(429, "queue-full");
            assert_eq!(problem["bound"], "agent", "{problem}");
            assert!(answer.headers.contains_key("retry-after"), "a 429 says when to come back");
        }
    }
    let batch = json!({"tasks": [{"capability": "slow.work"}]});
    let batch = world.dev.post("/v1/batches", batch).await.json();
    assert_eq!(batch["outcomes"][0]["problem"]["code"], "queue-full", "{batch}");

    assert_eq!(world.dev.post("/v1/agents", registered("slow-2", 20)).await.status, 200);
    assert_eq!(submit(&world, "background").await.status, 202, "21 of 40 may wait");
}

#[tokio::test]
async fn semantics_22_an_agent_holds_no_more_than_its_max_pending_and_room_comes_back_with_each_end() {
    let world = World::start().await;
    let mut body = registered("slow-1", 2);
    body["max_concurrency"] = json!(10);
    assert_eq!(world.dev.post("/v1/agents", body).await.status, 200);
    for _ in 0..2 {
        assert_eq!(submit(&world, "urgent").await.status, 202);
    }
    submit(&world, "urgent").await.problem(429, "queue-full");
    let wish = json!({"incarnation": 1, "max": 10, "wait_ms": 5000});
    let claimed = world.dev.post("/v1/agents/slow-1/claim", wish).await.json();
    let tasks = claimed["tasks"].as_array().unwrap().clone();
    assert!((1..=2).contains(&tasks.len()), "{claimed}");
    submit(&world, "urgent").await.problem(429, "queue-full");
    let done = report("slow-1", &tasks[0], json!({"result": 1}));
    let path = format!("/v1/tasks/{}/complete", tasks[0]["reach_id"].as_str().unwrap());
    assert_eq!(world.dev.post(&path, done).await.status, 200);
    assert_eq!(submit(&world, "urgent").await.status, 202, "one has ended, one may come");
}

#[tokio::test]
async fn semantics_30_a_full_disk_refuses_submits_serves_reads_and_resumes_by_itself() {
    let store = Arc::new(MemoryStore::new());
    let world = World::start_with(home(&store, &tempfile::tempdir().unwrap().keep())).await;
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
async fn semantics_30_a_full_disk_refuses_whatever_would_write_secrets_included() {
    let store = Arc::new(MemoryStore::new());
    let world = World::start_with(home(&store, &tempfile::tempdir().unwrap().keep())).await;
    let made = world.dev.post("/v1/callback-secrets", json!({"name": "travel"})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    store.set_space(Some(Space { free: 1 << 30, total: 1 << 40 }));
    until_status(&world, 507).await;
    let agent = json!({"agent_id": "late-1", "transport": {"kind": "pull"}, "capabilities": [{"capability": "x.y"}]});
    for (path, body) in [
        ("/v1/agents", agent),
        ("/v1/callback-secrets", json!({"name": "other"})),
        ("/v1/callback-secrets/travel/rotate", json!({})),
        ("/v1/tokens", json!({"name": "ops", "scopes": ["read"]})),
        ("/v1/batches", json!({"tasks": [{"capability": "text.count", "wait_for_agent": true}]})),
    ] {
        let refused = world.dev.post(path, body).await;
        assert_eq!((refused.status, &refused.json()["code"]), (507, &json!("disk-full")), "{path}: {}", refused.text);
    }
    let policy = world.dev.put(POLICY, json!({"reason": "test", "policy": {"lane_bound": 7}})).await;
    assert_eq!(policy.status, 507, "{}", policy.text);
    let gone = world.dev.request(reqwest::Method::DELETE, "/v1/callback-secrets/travel").send().await.unwrap();
    assert_eq!(gone.status(), 507);
}

#[tokio::test]
async fn semantics_30_a_start_on_a_full_disk_serves_reads_writes_nothing_and_goes_on_when_there_is_room() {
    let store = Arc::new(MemoryStore::new());
    let folder = tempfile::tempdir().unwrap().keep();
    let world = World::start_with(home(&store, &folder)).await;
    let first = submit(&world, "normal").await.json();
    let id = first["reach_id"].as_str().unwrap();
    world.stop().await;
    let before = store.head();
    store.set_space(Some(Space { free: 1 << 30, total: 1 << 40 }));
    let world = World::start_with(home(&store, &folder)).await;
    assert_eq!(world.dev.get(&format!("/v1/tasks/{id}")).await.status, 200, "reads go on");
    let ready = world.dev.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["phase"]), (503, &json!("disk-full")), "{}", ready.text);
    let refused = submit(&world, "normal").await;
    assert_eq!((refused.status, &refused.json()["code"]), (507, &json!("disk-full")));
    let cancelled = world.dev.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
    assert_eq!(cancelled.status, 507, "before its first event a start takes nothing: {}", cancelled.text);
    world.stop().await;
    assert_eq!(store.head(), before, "nothing was written, not even a goodbye");
    let world = World::start_with(home(&store, &folder)).await;
    store.set_space(Some(Space { free: 1 << 39, total: 1 << 40 }));
    until_status(&world, 202).await;
    assert_eq!(world.dev.get("/readyz").await.status, 200);
    let boot = world.dev.get("/v1/cluster").await.json()["nodes"][0]["boot"].clone();
    assert_eq!(boot, json!(2), "the start that never began took no number");
    let cancelled = world.dev.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
}

#[tokio::test]
async fn semantics_30_a_start_that_had_room_at_last_and_fails_all_the_same_ends_the_hub() {
    let store = Arc::new(MemoryStore::new());
    store.set_space(Some(Space { free: 1 << 30, total: 1 << 40 }));
    let folder = tempfile::tempdir().unwrap();
    // The first token can't be written there.
    std::fs::create_dir(folder.path().join("admin-token")).unwrap();
    let at_home = home(&store, folder.path());
    let mut world = World::start_with(move |options| {
        options.first_token = FirstToken::Write;
        at_home(options);
    })
    .await;
    store.set_space(Some(Space { free: 1 << 39, total: 1 << 40 }));
    let fate =
        tokio::time::timeout(Duration::from_secs(20), world.failed()).await.expect("it does not stand half open");
    assert!(fate.to_string().contains("admin-token"), "{fate}");
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
