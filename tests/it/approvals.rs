//! Tasks that wait for a person, reports that come too often, and refusals that only a longer story brings about.

use agent_reach::ledger::time::Millis;
use serde_json::{Value, json};

use crate::replay_runs::Still;
use crate::replays::{orphans, plan};
use crate::work::{claim, report, submit};
use crate::world::World;

#[tokio::test]
async fn a_sensitive_capability_waits_for_a_persons_word_which_counts_once() {
    let world = World::start().await;
    let dev = &world.dev;
    let offers = json!([{"capability": "pay.out", "sensitive": true}, {"capability": "text.count"}]);
    let body = json!({"agent_id": "w-1", "transport": {"kind": "pull"}, "capabilities": offers});
    assert_eq!(dev.post("/v1/agents", body).await.status, 200);
    let mut held = Vec::new();
    for _ in 0..2 {
        let answer = dev.post("/v1/tasks", json!({"capability": "pay.out"})).await;
        assert_eq!((answer.status, &answer.json()["state"]), (202, &json!("awaiting-approval")), "{}", answer.text);
        held.push(answer.json()["reach_id"].as_str().unwrap().to_owned());
    }
    let wish = json!({"incarnation": 1, "max": 5, "wait_ms": 0});
    let none = dev.post("/v1/agents/w-1/claim", wish).await.json();
    assert_eq!(none["tasks"], json!([]), "nobody gets it before");
    let reader = world.somebody(json!({"scopes": ["submit", "read", "audit"]})).await;
    reader.post(&format!("/v1/tasks/{}/approve", held[0]), Value::Null).await.problem(403, "scope-missing");

    let approved = dev.post(&format!("/v1/tasks/{}/approve", held[0]), Value::Null).await;
    assert_eq!((approved.status, &approved.json()["state"]), (200, &json!("queued")), "{}", approved.text);
    assert!(approved.json()["receipt"]["seq"].is_u64(), "{}", approved.text);
    assert_eq!(claim(dev, "w-1").await["reach_id"], *held[0]);
    let again = dev.post(&format!("/v1/tasks/{}/approve", held[0]), Value::Null).await;
    assert_eq!(again.problem(409, "not-awaiting-approval")["state"], "dispatched");
    // Whoever says no calls it off.
    let refused = dev.post(&format!("/v1/tasks/{}/cancel", held[1]), json!({"reason": "too much"})).await;
    assert_eq!(refused.json()["state"], "cancelled", "{}", refused.text);
    let late = dev.post(&format!("/v1/tasks/{}/approve", held[1]), Value::Null).await;
    assert_eq!(late.problem(409, "not-awaiting-approval")["state"], "cancelled");
    let plain = submit(dev, "text.count", json!(1)).await;
    dev.post(&format!("/v1/tasks/{plain}/approve"), Value::Null).await.problem(409, "not-awaiting-approval");
}

#[tokio::test]
async fn semantics_36_progress_is_kept_once_a_second_and_a_thousand_times_a_task_and_always_answered() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    dev.register("w-1", "text.count").await;
    let body = json!({"capability": "text.count", "work_timeout_ms": 3_600_000, "lifetime_ms": 7_200_000});
    assert_eq!(dev.post("/v1/tasks", body).await.status, 202);
    let task = claim(dev, "w-1").await;
    let path = |op: &str| format!("/v1/tasks/{}/{op}", task["reach_id"].as_str().unwrap());
    assert_eq!(dev.post(&path("ack"), report("w-1", &task, json!({}))).await.status, 200);
    let say = |n: u32| {
        let body = report("w-1", &task, json!({"stage": format!("step-{n}")}));
        let (dev, path) = (dev.clone(), path("progress"));
        async move {
            let answer = dev.post(&path, body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            answer.json()
        }
    };
    let first = say(0).await;
    assert_eq!(first.get("coalesced"), None, "{first}");
    let soon = say(1).await;
    assert_eq!((&soon["coalesced"], &soon["receipt"]), (&json!(true), &first["receipt"]), "{soon}");
    let mut last = first;
    for n in 1..1_000 {
        hub.clock.advance(Millis::secs(1));
        let kept = say(n).await;
        assert_eq!(kept.get("coalesced"), None, "{n}: {kept}");
        assert_ne!(kept["receipt"], last["receipt"]);
        last = kept;
    }
    hub.clock.advance(Millis::secs(1));
    let more = say(1_000).await;
    assert_eq!((&more["coalesced"], &more["receipt"]), (&json!(true), &last["receipt"]), "{more}");
    let done = dev.post(&path("complete"), report("w-1", &task, json!({"result": 1}))).await;
    assert_eq!(done.status, 200, "{}", done.text);
}

#[tokio::test]
async fn a_task_that_may_run_once_is_not_given_back_after_its_ack_and_a_declaration_has_a_size() {
    let world = World::start().await;
    let dev = &world.dev;
    dev.register("w-1", "text.count").await;
    let id = dev.post("/v1/tasks", json!({"capability": "text.count"})).await.json()["reach_id"].clone();
    let task = claim(dev, "w-1").await;
    let path = |op: &str| format!("/v1/tasks/{}/{op}", id.as_str().unwrap());
    assert_eq!(dev.post(&path("ack"), report("w-1", &task, json!({}))).await.status, 200);
    let back = dev.post(&path("release"), report("w-1", &task, json!({}))).await;
    back.problem(409, "already-acknowledged");
    let view = dev.get(&format!("/v1/tasks/{}", id.as_str().unwrap())).await.json();
    assert_eq!(view["state"], "processing", "{view}");
    assert_eq!(dev.post(&path("complete"), report("w-1", &task, json!({"result": 1}))).await.status, 200);

    let tools: Vec<String> = (0..200).map(|n| format!("{n:0>100}")).collect();
    let offers: Vec<Value> = (0..4).map(|n| json!({"capability": format!("text.c-{n}"), "tools": tools})).collect();
    let body = json!({"agent_id": "w-2", "transport": {"kind": "pull"}, "capabilities": offers});
    dev.post("/v1/agents", body).await.problem(422, "declaration-too-large");
    dev.get("/v1/agents/w-2").await.problem(404, "not-found");
}

#[tokio::test]
async fn a_namespace_has_so_many_plans_at_once_and_is_told_what_to_remove() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    // A plan takes one of them at once and the next in a second that never comes.
    orphans(dev, (0..18).map(|n| json!({"payload": n}))).await;
    let mut order = plan(&json!({"state": ["orphaned"]}));
    order["rate_per_s"] = json!(1);
    let mut plans = Vec::new();
    for _ in 0..16 {
        let planned = dev.post("/v1/replays", order.clone()).await;
        assert_eq!(planned.status, 202, "{}", planned.text);
        plans.push(planned.json()["replay_id"].as_str().unwrap().to_owned());
    }
    let full = dev.post("/v1/replays", order.clone()).await.problem(409, "bound-reached");
    assert!(full["detail"].as_str().unwrap().contains("16"), "{full}");
    let ended = dev.post(&format!("/v1/replays/{}/cancel", plans[3]), json!({"reason": "room for another"})).await;
    assert_eq!(ended.status, 200, "{}", ended.text);
    assert_eq!(dev.post("/v1/replays", order).await.status, 202);
}
