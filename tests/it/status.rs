//! One look at a namespace, and the rules of the whole hub.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::replays::{failed, orphans, plan};
use crate::work::{claim, report, submit};
use crate::world::{Answer, Client, World, registration};

async fn unserved(client: &Client) -> Value {
    client.get("/v1/status").await.json()["unserved"].clone()
}

/// A registered agent that holds a begun task, so that a drain of it lasts.
async fn at_work(client: &Client, agent: &str, capability: &str) {
    client.register(agent, capability).await;
    submit(client, capability, json!("at work")).await;
    let task = claim(client, agent).await;
    let ack = format!("/v1/tasks/{}/ack", task["reach_id"].as_str().unwrap());
    assert_eq!(client.post(&ack, report(agent, &task, json!({}))).await.status, 200);
}

#[tokio::test]
async fn tasks_that_nobody_can_take_are_told_by_capability_with_what_is_against_each_agent() {
    let world = World::start().await;
    let dev = &world.dev;
    at_work(dev, "w-1", "a.b").await;
    submit(dev, "a.b", json!("waits")).await;
    assert_eq!(
        unserved(dev).await,
        json!({"tasks": 0, "capabilities": [], "not_permitted": 0, "more": false}),
        "it waits for a claim"
    );

    let far = json!({"capability": "a.b", "payload": 1, "requires": {"region": "mars"}});
    let far = dev.post("/v1/tasks", far).await.json()["reach_id"].clone();
    let found = unserved(dev).await;
    let first = &found["capabilities"][0];
    assert_eq!(
        (&found["tasks"], &first["capability"], &first["tasks"]),
        (&json!(1), &json!("a.b"), &json!(1)),
        "{found}"
    );
    assert_eq!((&first["reach_id"], &first["agents"]), (&far, &json!({"region": 1})), "{found}");
    assert!(first["queued_since"].is_string(), "{found}");

    assert_eq!(dev.post("/v1/agents/w-1/drain", json!({"grace_ms": 60_000})).await.status, 200);
    let found = unserved(dev).await;
    assert_eq!((&found["tasks"], &found["capabilities"][0]["agents"]), (&json!(2), &json!({"draining": 1})), "{found}");

    let alone = json!({"capability": "no.body", "payload": 1, "wait_for_agent": true});
    assert_eq!(dev.post("/v1/tasks", alone).await.status, 202);
    let mut choosy = registration("w-3", "c.d");
    choosy["access"] = json!({"allowed_callers": ["tok_of_another"]});
    assert_eq!(dev.post("/v1/agents", choosy).await.status, 200);
    submit(dev, "c.d", json!(1)).await;
    let found = unserved(dev).await;
    let by_capability: BTreeMap<&str, &Value> = found["capabilities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["capability"].as_str().unwrap(), &one["agents"]))
        .collect();
    let (draining, nobody, choosy) = (json!({"draining": 1}), json!({}), json!({"not-permitted": 1}));
    assert_eq!(by_capability, BTreeMap::from([("a.b", &draining), ("no.body", &nobody), ("c.d", &choosy)]), "{found}");
    assert_eq!(found["tasks"], 4, "{found}");

    let limited = world.somebody(json!({"scopes": ["operate"], "capabilities": ["no.body"]})).await;
    let shown = unserved(&limited).await;
    let names: Vec<&Value> = shown["capabilities"].as_array().unwrap().iter().map(|one| &one["capability"]).collect();
    assert_eq!((names, &shown["not_permitted"]), (vec![&json!("no.body")], &json!(2)), "semantics 39: {shown}");
    let reason = json!({"state": "open", "reason": "r"});
    assert_eq!(dev.put("/v1/agents/w-3/breakers/c.d", reason).await.status, 200);
    let seen = |view: Value| (view["breakers"]["open"].clone(), view["breakers"]["agents"].clone());
    assert_eq!(seen(limited.get("/v1/status").await.json()), (json!(1), json!([])));
    assert_eq!(seen(dev.get("/v1/status").await.json()), (json!(1), json!(["w-3"])));
    dev.put("/v1/agents/w-3/breakers/c.d", json!({"state": "automatic", "reason": "r"})).await;

    dev.register("w-2", "a.b").await;
    let found = unserved(dev).await;
    assert_eq!(found["capabilities"][0]["tasks"], 1, "only what asks for another region is left: {found}");
    let other = world.somebody_in("other", json!({"scopes": ["read"]})).await;
    assert_eq!(unserved(&other).await["tasks"], 0, "nothing of another namespace shows");
}

#[tokio::test]
async fn n1_a_namespace_never_used_says_so_and_names_its_like_only_to_whom_none_is_foreign() {
    let world = World::start().await;
    let dev = &world.dev;
    let in_namespace = async |client: &Client, name: &str| {
        let call = client.request(reqwest::Method::GET, "/v1/status").header("Reach-Namespace", name);
        Answer::of(call).await.json()
    };
    let fresh = dev.get("/v1/status").await.json();
    assert_eq!((&fresh["used"], fresh.get("suggestions")), (&json!(false), None), "{fresh}");
    dev.register("w-1", "a.b").await;
    assert_eq!(dev.get("/v1/status").await.json()["used"], true);
    let misspelt = in_namespace(dev, "dve").await;
    assert_eq!((&misspelt["used"], &misspelt["suggestions"]), (&json!(false), &json!(["dev"])), "{misspelt}");
    let far = in_namespace(dev, "something-else").await;
    assert_eq!((&far["used"], far.get("suggestions")), (&json!(false), None), "{far}");
    let home = world.somebody_in("dve", json!({"scopes": ["read"]})).await;
    let seen = home.get("/v1/status").await.json();
    assert_eq!((&seen["used"], seen.get("suggestions")), (&json!(false), None), "dev is foreign to it: {seen}");
}

#[tokio::test]
async fn a_capability_that_is_offered_no_more_is_refused_with_who_offered_it_last_and_until_when() {
    let world = World::start().await;
    let dev = &world.dev;
    let wanted = || json!({"capability": "a.b", "payload": 1});
    dev.register("w-1", "a.b").await;
    dev.register("w-2", "a.b").await;
    dev.post("/v1/agents/w-1/offline", json!({"incarnation": 1})).await;
    assert_eq!(dev.post("/v1/tasks", wanted()).await.status, 202, "w-2 offers it still");
    assert_eq!(dev.delete("/v1/agents/w-2").await.status, 200);
    let refused = dev.post("/v1/tasks", wanted()).await;
    let problem = refused.json();
    assert_eq!((refused.status, &problem["code"]), (404, &json!("capability-not-registered")), "{problem}");
    let last = &problem["last_offer"];
    assert_eq!((&last["agent_id"], &last["agents"]), (&json!("w-2"), &json!(2)), "{problem}");
    let told = format!(
        "no agent offers a.b now; w-2 offered it until {} and was drained or removed; another one had left before",
        last["until"].as_str().unwrap()
    );
    assert_eq!(problem["detail"], told);

    let caller = world.somebody(json!({"scopes": ["submit"]})).await;
    let problem = caller.post("/v1/tasks", wanted()).await.json();
    assert_eq!(problem["last_offer"]["agent_id"], Value::Null, "who may only submit learns no names: {problem}");
    assert!(!problem["detail"].as_str().unwrap().contains("w-2"), "{problem}");
    let foreign = world.somebody_in("other", json!({"scopes": ["submit", "read"]})).await;
    assert!(foreign.post("/v1/tasks", wanted()).await.json().get("last_offer").is_none());
    let never = dev.post("/v1/tasks", json!({"capability": "a.c", "payload": 1})).await.json();
    assert_eq!((&never["detail"], never.get("last_offer")), (&json!("no agent offers a.c"), None), "{never}");

    assert_eq!(dev.register("w-1", "a.b").await, 2);
    assert_eq!(dev.post("/v1/tasks", wanted()).await.status, 202);
}

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
    let foreign = other.get("/v1/status").await.json();
    assert_eq!(foreign["tasks"], json!({}), "nothing of another namespace shows");
    assert!(foreign.get("alerts").is_none(), "{foreign}");
    assert_eq!(status["alerts"], dev.get("/v1/cluster").await.json()["alerts"], "{status}");
    assert_eq!(status["alerts"]["configured"], false, "{status}");

    let world = World::start().await;
    let dev = &world.dev;
    orphans(dev, [json!({"payload": 1}), json!({"payload": 2, "idempotent": true})]).await;
    let status = dev.get("/v1/status").await.json();
    assert_eq!(status["tasks"]["orphaned"]["count"], 1, "{status}");
    assert_eq!(status["orphans"], json!({"waiting": 0, "held": 1, "superseded": 0, "more": false}), "{status}");
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
