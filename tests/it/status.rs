//! One look at a namespace, and the rules of the whole hub.

use serde_json::json;

use crate::replays::{failed, orphans, plan};
use crate::work::{claim, report, submit};
use crate::world::World;

#[tokio::test]
async fn the_figures_of_a_namespace_are_of_one_moment_and_count_what_has_left_memory() {
    let world = World::start().await;
    let dev = &world.dev;
    let empty = dev.get("/v1/status").await.json();
    assert_eq!((&empty["namespace"], &empty["tasks"], &empty["redriven"]), (&json!("dev"), &json!({}), &json!(0)));
    dev.register("f-1", "text.count").await;
    let first = failed(dev).await;
    failed(dev).await;
    submit(dev, "text.count", json!(1)).await;
    let task = claim(dev, "f-1").await;
    let done = format!("/v1/tasks/{}/complete", task["reach_id"].as_str().unwrap());
    assert_eq!(dev.post(&done, report("f-1", &task, json!({"result": 1}))).await.status, 200);
    submit(dev, "text.count", json!(2)).await;
    let status = dev.get("/v1/status").await.json();
    let count = |state: &str| status["tasks"][state]["count"].as_u64();
    assert_eq!((count("failed"), count("succeeded"), count("queued")), (Some(2), Some(1), Some(1)), "{status}");
    assert!(status["tasks"]["failed"]["last_ended_at"].is_string(), "{status}");
    assert!(status["tasks"]["queued"].get("last_ended_at").is_none(), "{status}");
    assert_eq!((&status["agents"], &status["redriven"]), (&json!({"healthy": 1}), &json!(0)), "{status}");
    let again = dev.post(&format!("/v1/tasks/{first}/redrive"), json!({"reason": "mended"})).await;
    assert_eq!(again.status, 202, "{}", again.text);
    let status = dev.get("/v1/status").await.json();
    assert_eq!((&status["redriven"], &status["tasks"]["queued"]["count"]), (&json!(1), &json!(2)), "{status}");
    let other = world.somebody_in("other", json!({"scopes": ["read"]})).await;
    assert_eq!(other.get("/v1/status").await.json()["tasks"], json!({}), "nothing of another namespace shows");

    let world = World::start().await;
    let dev = &world.dev;
    orphans(dev, [json!({"payload": 1}), json!({"payload": 2, "idempotent": true})]).await;
    let status = dev.get("/v1/status").await.json();
    assert_eq!(status["tasks"]["orphaned"]["count"], 1, "{status}");
    assert_eq!(status["orphans"], json!({"waiting": 0, "held": 1, "more": false}), "the other came back: {status}");
}

#[tokio::test]
async fn r_rec_2_the_rate_over_all_namespaces_is_a_rule_of_the_hub_and_bounds_every_plan() {
    let world = World::start().await;
    let dev = &world.dev;
    orphans(dev, (0..3).map(|n| json!({"payload": n}))).await;
    assert_eq!(dev.get("/v1/policies").await.json()["hub"], json!({"replays_per_second": 1_000}));
    let to = |rate: u64| json!({"policy": {"replays_per_second": rate}, "reason": "slow agents"});
    let set = dev.put("/v1/policies/hub", to(10)).await;
    assert_eq!((set.status, &set.json()["policy"]), (200, &json!({"replays_per_second": 10})), "{}", set.text);
    assert!(set.json()["receipt"]["seq"].is_u64(), "{}", set.text);
    assert_eq!(dev.get("/v1/policies").await.json()["hub"], json!({"replays_per_second": 10}));
    let mut fast = plan(&json!({"agent_id": "w-1"}));
    fast["rate_per_s"] = json!(11);
    dev.post("/v1/replays", fast.clone()).await.problem_at(422, "invalid-field", "/rate_per_s");
    fast["rate_per_s"] = json!(10);
    assert_eq!(dev.post("/v1/replays", fast).await.status, 202);
    for rate in [0, 100_001] {
        dev.put("/v1/policies/hub", to(rate)).await.problem(422, "policy-invalid");
    }
    dev.put("/v1/policies/hub", json!({"policy": {"replays_per_second": 5}})).await.problem(422, "invalid-field");
    let home = world.somebody(json!({"scopes": ["operate", "read"]})).await;
    home.put("/v1/policies/hub", to(10)).await.problem(403, "scope-missing");
}
