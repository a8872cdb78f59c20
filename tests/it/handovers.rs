//! What comes back, to whom: what a standby is told of it, what keeps it from one, and who gets no more of a capability.

use std::sync::Arc;

use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::time::{Millis, SimClock};
use reqwest::Method;
use serde_json::{Value, json};

use crate::alerts::Pager;
use crate::fleet::{enlist, events};
use crate::replay_runs::Still;
use crate::replays::{begun, plan, replaced};
use crate::work::submit;
use crate::world::{Answer, Client, World, registration};

/// Hands the agent one task, waiting for it if there is none yet.
async fn claimed(client: &Client, agent: &str, incarnation: u64) -> Value {
    let asked = json!({"incarnation": incarnation, "max": 1, "wait_ms": 5_000});
    let answer = client.post(&format!("/v1/agents/{agent}/claim"), asked).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["tasks"][0].clone()
}

/// What the agent gets without waiting.
async fn at_once(client: &Client, agent: &str, incarnation: u64) -> Vec<Value> {
    let asked = json!({"incarnation": incarnation, "max": 10, "wait_ms": 0});
    let answer = client.post(&format!("/v1/agents/{agent}/claim"), asked).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["tasks"].as_array().unwrap().clone()
}

/// The agent's word on a task that it holds.
async fn say(client: &Client, (agent, incarnation): (&str, u64), task: &Value, (op, more): (&str, Value)) -> Answer {
    let id = task["reach_id"].as_str().unwrap_or_else(|| panic!("nothing was claimed: {task}"));
    let mut body = json!({
        "agent_id": agent, "incarnation": incarnation, "attempt": task["attempt"], "lease": task["lease"]
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    client.post(&format!("/v1/tasks/{id}/{op}"), body).await
}

#[tokio::test]
async fn r_rec_3_a_standby_is_told_the_last_stage_its_data_and_the_context_also_after_a_restart() {
    let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(SimClock::new()));
    let hub = Still::start(&store, &clock).await;
    let holder = enlist(&hub.world.dev, "holder", (250, 10)).await;
    let body = json!({"capability": "text.count", "payload": {"trip": 42}, "idempotent": true,
        "context_path": "s3://ctx/42"});
    let id = hub.world.dev.post("/v1/tasks", body).await.json()["reach_id"].as_str().unwrap().to_owned();
    let first = claimed(&hub.world.dev, "holder", holder).await;
    assert_eq!((&first["replay"], &first["context_path"]), (&Value::Null, &json!("s3://ctx/42")), "{first}");
    let who = ("holder", holder);
    assert_eq!(say(&hub.world.dev, who, &first, ("ack", json!({}))).await.status, 200);
    for (stage, percent) in [("parse", 10), ("book", 60)] {
        let progress = json!({"stage": stage, "percent": percent, "data": {"done": [stage]}});
        let answer = say(&hub.world.dev, who, &first, ("progress", progress)).await;
        assert_eq!((answer.status, &answer.json()["coalesced"]), (200, &Value::Null), "{}", answer.text);
        clock.advance(Millis(1_000));
    }
    hub.world.stop().await;

    let hub = Still::start(&store, &clock).await;
    let dev = &hub.world.dev;
    hub.until(&id, "queued").await;
    let standby = enlist(dev, "s-1", (250, 10)).await;
    let second = claimed(dev, "s-1", standby).await;
    let told = json!({"stage": "book", "percent": 60, "data": {"done": ["book"]}});
    for (member, value) in [
        ("reach_id", json!(id)),
        ("attempt", json!(2)),
        ("replay", told.clone()),
        ("context_path", json!("s3://ctx/42")),
        ("payload", json!({"trip": 42})),
    ] {
        assert_eq!(second[member], value, "{member} in {second}");
    }
    // One that dies without a word of its own on the work leaves the next one what it was told itself.
    assert_eq!(say(dev, ("s-1", standby), &second, ("ack", json!({}))).await.status, 200);
    hub.until(&id, "queued").await;
    let standby = enlist(dev, "s-2", (250, 10)).await;
    let third = claimed(dev, "s-2", standby).await;
    assert_eq!((&third["attempt"], &third["replay"]), (&json!(3), &told), "{third}");
}

#[tokio::test]
async fn r_rec_3_a_standby_that_is_called_is_told_the_last_stage_and_the_context_too() {
    let world = World::start().await;
    let holder = enlist(&world.dev, "holder", (5_000, 10)).await;
    let body = json!({"capability": "text.count", "payload": 1, "idempotent": true, "context_path": "s3://ctx/42"});
    let id = world.dev.post("/v1/tasks", body).await.json()["reach_id"].clone();
    let first = claimed(&world.dev, "holder", holder).await;
    let progress = json!({"stage": "book", "percent": 60, "data": {"seat": "12A"}});
    for (op, more) in [("ack", json!({})), ("progress", progress.clone())] {
        assert_eq!(say(&world.dev, ("holder", holder), &first, (op, more)).await.status, 200, "{op}");
    }
    let mut called = Pager::start().await;
    let mut standby = registration("s-1", "text.count");
    standby["transport"] = json!({"kind": "http", "endpoint": format!("http://{}/work", called.address)});
    let registered = world.dev.post("/v1/agents", standby).await;
    assert_eq!(registered.status, 200, "{}", registered.text);
    let left = world.dev.post("/v1/agents/holder/offline", json!({"incarnation": holder})).await;
    assert_eq!(left.status, 200, "{}", left.text);
    let call = called.seen.recv().await.unwrap().json();
    for (member, value) in
        [("reach_id", id), ("attempt", json!(2)), ("replay", progress), ("context_path", json!("s3://ctx/42"))]
    {
        assert_eq!(call[member], value, "{member} in {call}");
    }
}

#[tokio::test]
async fn r_rte_7_what_comes_back_waits_while_the_breaker_of_its_only_standby_is_open_and_goes_once_it_is_closed() {
    let world = World::start().await;
    let dev = &world.dev;
    let holder = replaced(dev, "holder").await;
    let swept = begun(dev, "holder", holder, json!({"payload": 1, "idempotent": true})).await;
    let planned = begun(dev, "holder", holder, json!({"payload": 2})).await;
    let standby = dev.register("s-1", "text.count").await;
    let breaker = "/v1/agents/s-1/breakers/text.count";
    let opened = dev.put(breaker, json!({"state": "open", "reason": "a bad release"})).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    let left = dev.post("/v1/agents/holder/offline", json!({"incarnation": holder})).await;
    assert_eq!(left.status, 200, "{}", left.text);
    let order = plan(&json!({"reach_ids": [planned]}));
    assert_eq!(dev.post("/v1/replays", order).await.status, 202);
    for id in [&swept, &planned] {
        let view = dev.get(&format!("/v1/tasks/{id}?wait_ms=20000&unless_state=orphaned")).await.json();
        assert_eq!(view["state"], "queued", "{view}");
    }
    assert_eq!(at_once(dev, "s-1", standby).await, [] as [Value; 0], "it asks, and its breaker is open");
    for id in [&swept, &planned] {
        let told = dev.get(&format!("/v1/tasks/{id}/explain")).await.json();
        assert_eq!(told["route"]["counts"]["breaker-open"], 1, "{told}");
    }
    let closed = dev.put(breaker, json!({"state": "closed", "reason": "rolled back"})).await;
    assert_eq!(closed.status, 200, "{}", closed.text);
    for id in [&swept, &planned] {
        let task = claimed(dev, "s-1", standby).await;
        assert_eq!((&task["reach_id"], &task["attempt"]), (&json!(id), &json!(2)), "{task}");
        assert_eq!(say(dev, ("s-1", standby), &task, ("ack", json!({}))).await.status, 200);
    }
    let all = events(&world, 0).await;
    let closed = all.iter().find(|event| event["kind"] == "breaker-closed").unwrap()["seq"].as_u64();
    let given = all.iter().filter(|event| event["kind"] == "task-dispatched" && event["agent_id"] == "s-1");
    let given: Vec<_> = given.map(|event| event["seq"].as_u64()).collect();
    assert!(given.len() == 2 && given.iter().all(|seq| *seq > closed), "{given:?} and {closed:?}");
}

/// A task that the agent has begun, and whose work time is over.
async fn overdue(hub: &Still, (agent, incarnation): (&str, u64), more: Value) -> Value {
    let mut body = json!({"capability": "text.count", "payload": 1, "work_timeout_ms": 100});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let dev = &hub.world.dev;
    assert_eq!(dev.post("/v1/tasks", body).await.status, 202);
    let task = claimed(dev, agent, incarnation).await;
    assert_eq!(say(dev, (agent, incarnation), &task, ("ack", json!({}))).await.status, 200);
    hub.clock.advance(Millis(100));
    hub.world.nudge();
    let path = format!("/v1/tasks/{}?wait_ms=20000&unless_state=processing", task["reach_id"].as_str().unwrap());
    assert_eq!(dev.get(&path).await.json()["state"], "slow-reach");
    task
}

async fn state(client: &Client, task: &Value) -> String {
    let view = client.get(&format!("/v1/tasks/{}", task["reach_id"].as_str().unwrap())).await.json();
    view["state"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn r_sch_11_an_agent_with_an_overdue_task_gets_no_more_while_another_can_serve_and_does_when_none_can() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    let slow = enlist(dev, "slow", (5_000, 10)).await;
    let late = overdue(&hub, ("slow", slow), json!({"idempotent": true})).await;
    let other = enlist(dev, "other", (5_000, 10)).await;
    for n in 0..3 {
        submit(dev, "text.count", json!(n)).await;
    }
    assert_eq!(at_once(dev, "slow", slow).await, [] as [Value; 0], "the other is about to ask");
    assert_eq!(at_once(dev, "other", other).await.len(), 3);
    // Whoever could serve says goodbye, and what it had not begun is back in the queue.
    let left = dev.post("/v1/agents/other/offline", json!({"incarnation": other})).await;
    assert_eq!(left.status, 200, "{}", left.text);
    let given = at_once(dev, "slow", slow).await;
    assert_eq!(given.len(), 3, "nobody else can: {given:?}");
    for task in &given {
        assert_eq!(say(dev, ("slow", slow), task, ("complete", json!({"result": 1}))).await.status, 200);
    }
    enlist(dev, "other", (5_000, 10)).await;
    submit(dev, "text.count", json!(3)).await;
    assert_eq!(at_once(dev, "slow", slow).await, [] as [Value; 0], "it is overdue still");
    assert_eq!(say(dev, ("slow", slow), &late, ("complete", json!({"result": 1}))).await.status, 200);
    assert_eq!(at_once(dev, "slow", slow).await.len(), 1, "its word clears it");
}

#[tokio::test]
async fn s9_a_plan_hands_slow_tasks_over_with_a_word_on_what_may_have_run_and_ends_their_old_leases() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    let who = ("holder", enlist(dev, "holder", (5_000, 10)).await);
    let safe = overdue(&hub, who, json!({"idempotent": true})).await;
    let unsafe_one = overdue(&hub, who, json!({"idempotent": false})).await;
    let select = json!({"state": ["slow-reach"], "agent_id": "holder"});
    let wordless = json!({"select": select, "reason": "it hangs", "dry_run": true});
    let found = dev.post("/v1/replays", wordless).await.json();
    assert_eq!((&found["total"], &found["by_state"]), (&json!(1), &json!({"slow-reach": 1})), "{found}");
    assert_eq!(found["skipped"], json!([{"reason": "may-have-run", "count": 1}]), "{found}");
    let planned = dev.post("/v1/replays", plan(&select)).await;
    assert_eq!(planned.status, 202, "{}", planned.text);
    let path = format!("/v1/replays/{}", planned.json()["replay_id"].as_str().unwrap());
    let view = hub.run(&path, 2).await;
    assert_eq!((&view["replayed"], &view["state"]), (&json!(2), &json!("completed")), "{view}");
    let standby = ("s-1", enlist(dev, "s-1", (5_000, 10)).await);
    for old in [&safe, &unsafe_one] {
        let late = say(dev, who, old, ("complete", json!({"result": "late"}))).await;
        late.problem(409, "lease-superseded");
        let task = claimed(dev, "s-1", standby.1).await;
        assert_eq!((&task["reach_id"], &task["attempt"]), (&old["reach_id"], &json!(2)), "{task}");
        let done = say(dev, standby, &task, ("complete", json!({"result": "done"}))).await;
        assert_eq!((done.status, &done.json()["state"]), (200, &json!("succeeded")), "{}", done.text);
    }
    assert_eq!(at_once(dev, "s-1", standby.1).await, [] as [Value; 0], "each went once");
}

#[tokio::test]
async fn s9_an_operators_word_on_a_slow_task_waits_for_it_hands_it_over_or_gives_it_up() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    let who = ("holder", enlist(dev, "holder", (5_000, 10)).await);
    for (word, after, late, second) in [
        ("wait", "slow-reach", None, "succeeded"),
        ("hand-over", "queued", Some("lease-superseded"), "queued"),
        ("fail", "dead-letter", Some("task-terminal"), "dead-letter"),
    ] {
        let task = overdue(&hub, who, json!({"idempotent": false})).await;
        let path = format!("/v1/tasks/{}", task["reach_id"].as_str().unwrap());
        let resolve = |body: Value| {
            let call = dev.request(Method::POST, &format!("{path}/resolve")).json(&body);
            Answer::of(call)
        };
        resolve(json!({"resolution": word})).await.problem_at(422, "invalid-field", "/reason");
        assert_eq!(state(dev, &task).await, "slow-reach", "{word} without a reason");
        let said = resolve(json!({"resolution": word, "reason": "looked at it"})).await;
        assert_eq!((said.status, said.json()["state"].as_str()), (200, Some(after)), "{word}: {}", said.text);
        let result = say(dev, who, &task, ("complete", json!({"result": "late"}))).await;
        match late {
            Some(code) => drop(result.problem(409, code)),
            None => assert_eq!(result.status, 200, "{}", result.text),
        }
        assert_eq!(state(dev, &task).await, second, "{word}");
        if second == "queued" {
            let called_off = dev.post(&format!("{path}/cancel"), json!({})).await;
            assert_eq!(called_off.status, 200, "{}", called_off.text);
        }
    }
}
