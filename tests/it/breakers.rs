//! Breakers, through the door: five failures keep a capability from an agent, one task tries it out, operators have a word
//! (R-RTE-7, semantics 15).

use std::sync::Arc;

use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::time::{Millis, SimClock};
use serde_json::{Value, json};

use crate::fleet::events;
use crate::replay_runs::Still;
use crate::work::{claim, submit};
use crate::world::{Client, World, registration};

/// A pull agent that offers `a.b` and `c.d`.
async fn enlist(client: &Client, agent: &str) {
    let mut body = registration(agent, "a.b");
    body["capabilities"] = json!([{"capability": "a.b"}, {"capability": "c.d"}]);
    let answer = client.post("/v1/agents", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Acknowledges what the agent claimed and ends it: well, or with a failure of the work itself.
async fn end(client: &Client, agent: &str, claimed: &Value, op: &str) {
    let id = claimed["reach_id"].as_str().unwrap_or_else(|| panic!("nothing was claimed: {claimed}"));
    let mut body =
        json!({"agent_id": agent, "incarnation": 1, "attempt": claimed["attempt"], "lease": claimed["lease"]});
    if op == "fail" {
        body["error"] = json!({"code": "no-such-text", "message": "m"});
        body["retryable"] = json!(false);
    }
    let answer = client.post(&format!("/v1/tasks/{id}/{op}"), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Hands the agent five of `a.b` that it never begins; their ids.
async fn hang(client: &Client, agent: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..5 {
        let task = json!({"capability": "a.b", "payload": n, "reach_timeout_ms": 100});
        ids.push(client.post("/v1/tasks", task).await.json()["reach_id"].as_str().unwrap().to_owned());
    }
    let body = json!({"incarnation": 1, "max": 5, "wait_ms": 5_000});
    let claimed = client.post(&format!("/v1/agents/{agent}/claim"), body).await.json();
    assert_eq!(claimed["tasks"].as_array().unwrap().len(), 5, "{claimed}");
    ids
}

/// Follows the feed until there were so many of a kind.
async fn seen(client: &Client, kind: &str, mut count: usize) {
    let mut after = 0;
    while count > 0 {
        let page = client.get(&format!("/v1/events?after={after}&limit=1000&wait_ms=20000")).await;
        assert!(!page.text.is_empty(), "no more {kind}");
        for event in page.text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            after = event["seq"].as_u64().unwrap_or(after);
            count = count.saturating_sub(usize::from(event["kind"] == kind));
        }
    }
}

async fn call_off(client: &Client, ids: &[String]) {
    for id in ids {
        let answer = client.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}

/// Lets the agent leave five of `a.b` unanswered, which are then called off.
async fn trip(client: &Client, agent: &str) {
    let ids = hang(client, agent).await;
    seen(client, "breaker-opened", 1).await;
    call_off(client, &ids).await;
}

async fn breakers(client: &Client, agent: &str) -> Value {
    client.get(&format!("/v1/agents/{agent}")).await.json()["breakers"].clone()
}

/// What a claim gets without waiting.
async fn at_once(client: &Client, agent: &str) -> Vec<Value> {
    let body = json!({"incarnation": 1, "max": 10, "wait_ms": 0});
    let answer = client.post(&format!("/v1/agents/{agent}/claim"), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["tasks"].as_array().unwrap().clone()
}

async fn set(client: &Client, agent: &str, body: Value) -> crate::world::Answer {
    client.put(&format!("/v1/agents/{agent}/breakers/a.b"), body).await
}

#[tokio::test]
async fn r_rte_7_five_failures_open_a_breaker_that_is_seen_everywhere_and_the_other_capability_goes_on() {
    let world = World::start().await;
    let dev = &world.dev;
    enlist(dev, "w-1").await;
    submit(dev, "a.b", json!("of the past")).await;
    let claimed = claim(dev, "w-1").await;
    end(dev, "w-1", &claimed, "fail").await;
    trip(dev, "w-1").await;
    let found = breakers(dev, "w-1").await;
    assert_eq!((&found[0]["capability"], &found[0]["state"]), (&json!("a.b"), &json!("open")), "{found}");
    assert_eq!(found[0]["tasks"].as_array().unwrap().len(), 5, "{found}");
    assert!(found[0]["until"].is_string() && found[0]["forced"].is_null(), "{found}");

    let waiting = submit(dev, "a.b", json!("waits")).await;
    let other = submit(dev, "c.d", json!("goes on")).await;
    let claimed = claim(dev, "w-1").await;
    assert_eq!(claimed["reach_id"], *other);
    end(dev, "w-1", &claimed, "complete").await;
    let told = dev.get(&format!("/v1/tasks/{waiting}/explain")).await.json();
    let excluded = &told["route"]["excluded"][0];
    assert_eq!((&excluded["agent_id"], &excluded["reason"]), (&json!("w-1"), &json!("breaker-open")), "{told}");
    assert!(told["why"].as_str().unwrap().contains("breaker-open"), "{told}");

    enlist(dev, "w-2").await;
    let claimed = claim(dev, "w-2").await;
    assert_eq!(claimed["reach_id"], *waiting, "another agent takes it");
    let history = dev.get(&format!("/v1/tasks/{waiting}/history")).await.json();
    let dispatched =
        history["events"].as_array().unwrap().iter().find(|event| event["kind"] == "task-dispatched").unwrap();
    assert!(
        dispatched["explanation"]["exclusions"].as_array().unwrap().iter().any(|one| one["reason"] == "breaker-open"),
        "{dispatched}"
    );

    let status = dev.get("/v1/status").await.json();
    assert_eq!(status["breakers"], json!({"open": 1, "half_open": 0, "forced": 0, "agents": ["w-1"]}), "{status}");
    let metrics = dev.get("/metrics").await.text;
    assert!(metrics.contains("reach_breakers{state=\"open\"} 1"), "{metrics}");
    assert!(metrics.contains("reach_breakers{state=\"half-open\"} 0"), "{metrics}");
    let all = events(&world, 0).await;
    let opened = all.iter().find(|event| event["kind"] == "breaker-opened").unwrap();
    assert_eq!((&opened["why"], &opened["actor"]["kind"]), (&json!("failures"), &json!("hub")), "{opened}");

    let order = json!({"select": {"state": ["failed"]}, "reason": "look", "dry_run": true});
    let dry = dev.post("/v1/replays", order).await.json();
    let in_the_way = &dry["open_breakers"];
    assert_eq!(in_the_way.as_array().unwrap().len(), 1, "{dry}");
    assert_eq!((&in_the_way[0]["agent_id"], &in_the_way[0]["capability"]), (&json!("w-1"), &json!("a.b")), "{dry}");
    let others = json!({"select": {"state": ["failed"], "capability": "c.d"}, "reason": "look", "dry_run": true});
    assert_eq!(dev.post("/v1/replays", others).await.json()["open_breakers"], json!([]));
}

#[tokio::test]
async fn semantics_15_failures_of_the_work_itself_open_nothing() {
    let world = World::start().await;
    enlist(&world.dev, "w-1").await;
    for n in 0..6 {
        submit(&world.dev, "a.b", json!(n)).await;
        let claimed = claim(&world.dev, "w-1").await;
        end(&world.dev, "w-1", &claimed, "fail").await;
    }
    assert_eq!(breakers(&world.dev, "w-1").await, json!([]));
}

#[tokio::test]
async fn r_rte_7_an_open_breaker_survives_a_restart_half_opens_for_one_and_closes_by_its_success() {
    let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(SimClock::new()));
    let hub = Still::start(&store, &clock).await;
    enlist(&hub.world.dev, "w-1").await;
    let hung = hang(&hub.world.dev, "w-1").await;
    clock.advance(Millis(100));
    hub.world.nudge();
    seen(&hub.world.dev, "breaker-opened", 1).await;
    call_off(&hub.world.dev, &hung).await;
    let open = breakers(&hub.world.dev, "w-1").await;
    hub.world.stop().await;

    let hub = Still::start(&store, &clock).await;
    let dev = &hub.world.dev;
    assert_eq!(breakers(dev, "w-1").await, open, "as it was before the start");
    for n in 0..3 {
        submit(dev, "a.b", json!(n)).await;
    }
    assert_eq!(at_once(dev, "w-1").await.len(), 0);
    for _ in 0..20 {
        clock.advance(Millis(500));
        hub.world.nudge();
        dev.get("/v1/status").await;
        let beat = json!({"incarnation": 1});
        assert_eq!(dev.post("/v1/agents/w-1/heartbeat", beat).await.status, 200);
    }
    let body = json!({"incarnation": 1, "max": 10, "wait_ms": 5_000});
    let claimed = dev.post("/v1/agents/w-1/claim", body).await.json()["tasks"].as_array().unwrap().clone();
    assert_eq!(claimed.len(), 1, "one tries it out: {claimed:?}");
    let found = breakers(dev, "w-1").await;
    assert_eq!((&found[0]["state"], &found[0]["probe"]), (&json!("half-open"), &claimed[0]["reach_id"]), "{found}");
    end(dev, "w-1", &claimed[0], "complete").await;
    assert_eq!(breakers(dev, "w-1").await, json!([]));
    let body = json!({"incarnation": 1, "max": 10, "wait_ms": 5_000});
    let rest = dev.post("/v1/agents/w-1/claim", body).await.json()["tasks"].as_array().unwrap().len();
    assert_eq!(rest, 2, "the others follow");
    let kinds: Vec<String> = events(&hub.world, 0)
        .await
        .iter()
        .filter_map(|event| event["kind"].as_str().filter(|kind| kind.starts_with("breaker")).map(str::to_owned))
        .collect();
    assert_eq!(kinds, ["breaker-opened", "breaker-half-opened", "breaker-closed"]);
}

#[tokio::test]
async fn an_operators_word_holds_a_breaker_until_another_and_is_told_with_who_and_why() {
    let world = World::start().await;
    let dev = &world.dev;
    enlist(dev, "w-1").await;
    let opened = set(dev, "w-1", json!({"state": "open", "reason": "a bad release"})).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    let view = opened.json();
    assert_eq!((&view["state"], &view["until"]), (&json!("open"), &Value::Null), "{view}");
    assert_eq!(view["forced"]["reason"], "a bad release");
    assert!(view["receipt"]["seq"].is_u64(), "{view}");
    let again = set(dev, "w-1", json!({"state": "open", "reason": "said twice"})).await.json();
    assert_eq!((&again["receipt"], &again["forced"]["reason"]), (&Value::Null, &json!("a bad release")), "{again}");
    submit(dev, "a.b", json!(1)).await;
    assert_eq!(at_once(dev, "w-1").await.len(), 0);
    let closed = set(dev, "w-1", json!({"state": "closed", "reason": "rolled back"})).await.json();
    assert_eq!(closed["state"], "closed", "{closed}");
    let claimed = claim(dev, "w-1").await;
    end(dev, "w-1", &claimed, "complete").await;
    let hung = hang(dev, "w-1").await;
    seen(dev, "task-attempt-failed", 5).await;
    call_off(dev, &hung).await;
    assert_eq!(breakers(dev, "w-1").await[0]["state"], "closed", "whatever fails");
    let given = set(dev, "w-1", json!({"state": "automatic", "reason": "all is well"})).await.json();
    assert_eq!((&given["state"], &given["forced"]), (&json!("closed"), &Value::Null), "{given}");
    assert_eq!(breakers(dev, "w-1").await, json!([]));
    let all = events(&world, 0).await;
    let opened = all.iter().find(|event| event["kind"] == "breaker-opened").unwrap();
    assert_eq!((&opened["actor"]["kind"], &opened["reason"]), (&json!("token"), &json!("a bad release")), "{opened}");
}

#[tokio::test]
async fn an_operators_word_needs_a_reason_an_agent_a_capability_and_the_right_to_both() {
    let world = World::start().await;
    let dev = &world.dev;
    enlist(dev, "w-1").await;
    let word = json!({"state": "open", "reason": "test"});
    set(dev, "nobody", word.clone()).await.problem(404, "not-found");
    for strange in ["x.y", "no-capability"] {
        let path = format!("/v1/agents/w-1/breakers/{strange}");
        dev.put(&path, word.clone()).await.problem(404, "capability-not-offered");
    }
    set(dev, "w-1", json!({"state": "open", "reason": " "})).await.problem_at(422, "invalid-field", "/reason");
    assert_eq!(set(dev, "w-1", json!({"state": "open"})).await.status, 422);
    assert_eq!(set(dev, "w-1", json!({"state": "ajar", "reason": "test"})).await.status, 422);
    let limited = world.somebody(json!({"scopes": ["operate"], "capabilities": ["c.d"]})).await;
    set(&limited, "w-1", word.clone()).await.problem(403, "capability-not-allowed");
    let own = limited.put("/v1/agents/w-1/breakers/c.d", word.clone()).await;
    assert_eq!(own.status, 200, "{}", own.text);
    let elsewhere = world.somebody_in("other", json!({"scopes": ["operate"]})).await;
    set(&elsewhere, "w-1", word).await.problem(404, "not-found");
}
