//! Routing rules, through the door: strategies, weights and tiers as data, versioned, undone, weighed beforehand; and
//! agents that are slower than ever (R-RTE-3, R-RTE-6, R-RTE-8, R-RTE-10).

use agent_reach::ledger::time::Millis;
use serde_json::{Value, json};

use crate::fleet::events;
use crate::replay_runs::Still;
use crate::work::{claim, report, submit};
use crate::world::{Answer, Client, World, registration};

async fn put(client: &Client, more: Value) -> Answer {
    let mut body = json!({"capability": "a.b", "reason": "a launch"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.put("/v1/policies/routing", body).await
}

async fn rule(client: &Client, more: Value) -> Value {
    let answer = put(client, more).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

async fn held(client: &Client) -> Value {
    client.get("/v1/policies").await.json()["routing"].clone()
}

async fn enlist(client: &Client, agent: &str, priority: u32) {
    let mut body = registration(agent, "a.b");
    body["priority"] = json!(priority);
    let answer = client.post("/v1/agents", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// One task from its submission to its end, by whichever of them asks.
async fn one(client: &Client, agent: &str) -> String {
    let task = submit(client, "a.b", json!(1)).await;
    let claimed = claim(client, agent).await;
    assert_eq!(claimed["reach_id"], *task);
    for (op, more) in [("ack", json!({})), ("complete", json!({"result": 1}))] {
        let answer = client.post(&format!("/v1/tasks/{task}/{op}"), report(agent, &claimed, more)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    task
}

async fn dispatched(client: &Client, task: &str) -> Value {
    let history = client.get(&format!("/v1/tasks/{task}/history")).await.json();
    let all = history["events"].as_array().unwrap().clone();
    all.into_iter().find(|event| event["kind"] == "task-dispatched").unwrap()["explanation"].clone()
}

#[tokio::test]
async fn r_rte_10_rules_are_versions_with_who_and_why_that_can_be_undone() {
    let world = World::start().await;
    let dev = &world.dev;
    enlist(dev, "w-1", 100).await;
    assert_eq!(held(dev).await, json!({}));
    let set = rule(dev, json!({"strategy": "consistent-hash", "weights": {"w-1": 20}})).await;
    let rules = json!({"strategy": "consistent-hash", "weights": {"w-1": 20}, "tiers": false});
    assert_eq!((&set["version"], &set["rules"], &set["undoable"]), (&json!(1), &rules, &json!(1)), "{set}");
    assert!(set["receipt"]["seq"].is_u64() && set.get("warnings").is_none(), "{set}");
    let again = rule(dev, json!({"strategy": "consistent-hash", "weights": {"w-1": 20}, "tiers": false})).await;
    assert_eq!((&again["version"], &again["unchanged"]), (&json!(1), &json!(true)), "{again}");
    assert!(again.get("receipt").is_none(), "{again}");
    let set = rule(dev, json!({"tiers": true, "weights": {"w-9": 5}})).await;
    assert!(set["warnings"][0].as_str().unwrap().contains("w-9"), "{set}");
    let shown = held(dev).await;
    assert_eq!((&shown["a.b"]["version"], &shown["a.b"]["rules"]["tiers"]), (&json!(2), &json!(true)), "{shown}");
    let undone = rule(dev, json!({"undo": true})).await;
    assert_eq!((&undone["version"], &undone["rules"]), (&json!(3), &rules), "{undone}");
    let undone = rule(dev, json!({"undo": true})).await;
    assert_eq!((&undone["version"], &undone["rules"], &undone["undoable"]), (&json!(4), &Value::Null, &json!(0)));
    put(dev, json!({"undo": true})).await.problem(409, "nothing-to-undo");
    put(dev, json!({"undo": true, "dry_run": true})).await.problem(409, "nothing-to-undo");
    let all = events(&world, 0).await;
    let changes: Vec<&Value> = all.iter().filter(|event| event["kind"] == "routing-rules-changed").collect();
    let versions: Vec<&Value> = changes.iter().map(|event| &event["version"]).collect();
    assert_eq!(versions, [&json!(1), &json!(2), &json!(3), &json!(4)]);
    assert_eq!((&changes[0]["rules"], &changes[0]["reason"]), (&rules, &json!("a launch")), "{}", changes[0]);
    assert_eq!((&changes[2]["undoes"], &changes[0]["actor"]["kind"]), (&json!(2), &json!("token")));
}

#[tokio::test]
async fn r_rte_10_rules_that_can_not_hold_are_refused_with_the_reason_and_nothing_changes() {
    let world = World::start().await;
    let dev = &world.dev;
    rule(dev, json!({"strategy": "scored"})).await;
    let before = held(dev).await;
    let many: Value = (0..257).map(|n| (format!("w-{n}"), json!(1))).collect::<serde_json::Map<_, _>>().into();
    for (wrong, pointer) in [
        (json!({"weights": {"w-1": 0, "w-2": 5}}), "/weights/w-1"),
        (json!({"weights": {"w-1": -1}}), "/weights/w-1"),
        (json!({"weights": {"w-1": "NaN"}}), "/weights/w-1"),
        (json!({"weights": {"w-1": null}}), "/weights/w-1"),
        (json!({"weights": {"w-1": 2.5}}), "/weights/w-1"),
        (json!({"weights": {"w-1": 1_001}}), "/weights/w-1"),
        (json!({"weights": {"no name": 5}}), "/weights/no name"),
        (json!({"weights": many}), "/weights"),
        (json!({"weights": {"w-1": 0, "w-2": 0}}), "/weights"),
        (json!({"strategy": "least-loades"}), "/strategy"),
        (json!({"capability": "nothing"}), "/capability"),
        (json!({"undo": true, "tiers": true}), "/undo"),
        (json!({"reason": ""}), "/reason"),
        (json!({"reason": null, "tiers": true}), "/reason"),
    ] {
        let answer = put(dev, wrong.clone()).await;
        let problem = answer.problem(422, "invalid-field");
        let at: Vec<&str> =
            problem["errors"].as_array().unwrap().iter().filter_map(|e| e["pointer"].as_str()).collect();
        assert!(at.contains(&pointer), "{wrong}: {problem}");
    }
    let near = put(dev, json!({"strategy": "least-loades"})).await.json();
    assert_eq!(near["suggestions"], json!(["least-loaded"]), "{near}");
    put(dev, json!({"tires": true})).await.problem(422, "unknown-field");
    assert_eq!(held(dev).await, before);
}

#[tokio::test]
async fn r_rte_8_explanations_say_the_strategy_the_version_of_its_rules_and_every_part_of_a_score() {
    let world = World::start().await;
    let dev = &world.dev;
    enlist(dev, "w-1", 500).await;
    let task = one(dev, "w-1").await;
    let why = dispatched(dev, &task).await;
    assert_eq!((&why["strategy"], &why["rules_version"]), (&json!("weighted-round-robin"), &Value::Null), "{why}");
    rule(dev, json!({"strategy": "scored"})).await;
    let task = one(dev, "w-1").await;
    let why = dispatched(dev, &task).await;
    assert_eq!((&why["strategy"], &why["rules_version"]), (&json!("scored"), &json!(1)), "{why}");
    let part = |name: &str| why["score"][name].as_f64();
    let told = ["points", "capability", "priority", "load", "failures"].map(part);
    assert_eq!(told, [Some(110.0), Some(100.0), Some(10.0), Some(0.0), Some(0.0)], "{why}");
    let waits = submit(dev, "a.b", json!(2)).await;
    let told = dev.get(&format!("/v1/tasks/{waits}/explain")).await.json();
    let route = &told["route"];
    assert_eq!((&route["strategy"], &route["rules_version"]), (&json!("scored"), &json!(1)), "{told}");
    let dry = dev.post("/v1/route/explain", json!({"capability": "a.b"})).await.json();
    assert_eq!((&dry["route"]["strategy"], &dry["route"]["rules_version"]), (&json!("scored"), &json!(1)), "{dry}");
    // A standby that asks gets nothing while one of a higher tier is about to.
    rule(dev, json!({"tiers": true})).await;
    let claimed = claim(dev, "w-1").await;
    assert_eq!(claimed["reach_id"], *waits);
    enlist(dev, "standby", 100).await;
    submit(dev, "a.b", json!(3)).await;
    let at_once = json!({"incarnation": 1, "max": 1, "wait_ms": 0});
    let nothing = dev.post("/v1/agents/standby/claim", at_once).await.json();
    assert_eq!(nothing["tasks"], json!([]), "{nothing}");
}

#[tokio::test]
async fn r_rte_10_a_dry_run_says_what_the_last_decisions_would_have_been_and_changes_nothing() {
    let world = World::start().await;
    let dev = &world.dev;
    for agent in ["w-1", "w-2"] {
        enlist(dev, agent, 100).await;
    }
    // While both ask, the round decides: each gets one.
    let ask = |agent: &'static str| claim(dev, agent);
    let (one, other, _) = tokio::join!(ask("w-1"), ask("w-2"), async {
        loop {
            let route = dev.post("/v1/route/explain", json!({"capability": "a.b"})).await.json();
            if route["route"]["candidates"].as_array().unwrap().len() == 2 {
                break;
            }
        }
        submit(dev, "a.b", json!(1)).await;
        submit(dev, "a.b", json!(2)).await;
    });
    assert!(one["reach_id"].is_string() && other["reach_id"].is_string(), "{one} {other}");
    let dry = json!({"capability": "a.b", "weights": {"w-2": 1_000}, "dry_run": true});
    let answer = dev.put("/v1/policies/routing", dry).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let found = answer.json();
    let would_have = &found["would_have"];
    assert_eq!((&would_have["decisions"], &would_have["changed"]), (&json!(2), &json!(1)), "{found}");
    assert_eq!(would_have["newest"][0]["reach_id"].as_str().map(|id| id.starts_with("reach_")), Some(true), "{found}");
    assert_eq!(would_have["rules"]["weights"], json!({"w-2": 1_000}), "{found}");
    assert!(found.get("receipt").is_none() && found["version"] == 0, "{found}");
    assert_eq!(held(dev).await, json!({}));
    let none = dev.put("/v1/policies/routing", json!({"capability": "c.d", "tiers": true, "dry_run": true})).await;
    assert_eq!(none.json()["would_have"]["decisions"], 0);
}

#[tokio::test]
async fn r_rte_6_an_agent_slower_than_three_times_its_own_p99_says_so_until_it_recovers() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    enlist(dev, "w-1", 100).await;
    let work = async |n: u32, span: u64| {
        for _ in 0..n {
            let task = submit(dev, "a.b", json!(1)).await;
            let claimed = claim(dev, "w-1").await;
            assert_eq!(claimed["reach_id"], *task);
            for (op, more) in [("ack", json!({})), ("complete", json!({"result": 1}))] {
                let answer = dev.post(&format!("/v1/tasks/{task}/{op}"), report("w-1", &claimed, more)).await;
                assert_eq!(answer.status, 200, "{}", answer.text);
                if op == "ack" {
                    hub.clock.advance(Millis(span));
                }
            }
        }
        dev.get("/v1/agents/w-1").await.json()["slowed"].clone()
    };
    assert_eq!(work(108, 100).await, Value::Null);
    let slowed = work(5, 400).await;
    assert_eq!(slowed["recent_ms"], 400, "{slowed}");
    assert!(slowed["usual_p99_ms"].as_u64().is_some_and(|p99| (100..113).contains(&p99)), "{slowed}");
    let task = one(dev, "w-1").await;
    let why = dispatched(dev, &task).await;
    assert_eq!((&why["score"]["slowed"], &why["score"]["weight"]), (&json!(0.5), &json!(5)), "{why}");
    assert_eq!(work(4, 100).await, Value::Null);
}
