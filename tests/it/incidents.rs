//! What operators fear, through the door: a fleet that dies, results that come late, an upgrade under load.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::{Seen, Worker, enlist, events, most_in_a_second, report, submit_batch};
use crate::world::World;

/// Claims `n` tasks for an agent and acknowledges them, as a worker that then dies.
async fn hold(world: &World, agent: &str, n: usize) -> (u64, Vec<Value>) {
    let incarnation = enlist(&world.dev, agent, (250, 500)).await;
    let mut held = Vec::new();
    while held.len() < n {
        let body = json!({"incarnation": incarnation, "max": 500, "wait_ms": 2_000});
        let claimed = world.dev.post(&format!("/v1/agents/{agent}/claim"), body).await.json();
        let tasks = claimed["tasks"].as_array().unwrap().clone();
        assert!(!tasks.is_empty(), "{claimed}");
        assert!(report(&world.dev, agent, incarnation, ("ack", &tasks)).await.iter().all(|status| *status == 200));
        held.extend(tasks);
    }
    (incarnation, held)
}

/// Reads the feed until an event makes `is_enough` say so.
async fn feed_until(world: &World, mut is_enough: impl FnMut(&Value) -> bool) {
    let look = async {
        let mut after = 0;
        loop {
            let page = world.dev.get(&format!("/v1/events?after={after}&limit=1000&wait_ms=20000")).await;
            for event in page.text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                after = event["seq"].as_u64().unwrap_or(after);
                if is_enough(&event) {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(90), look).await.expect("it happens");
}

/// Waits until the feed says that the batch has settled; answers it.
async fn settled(world: &World, batch: &str) -> Value {
    feed_until(world, |event| event["kind"] == "batch-settled" && event["batch_id"] == batch).await;
    world.dev.get(&format!("/v1/batches/{batch}")).await.json()
}

async fn rate(world: &World, per_second: u32) {
    let body = json!({"policy": {"replays_per_second": per_second}, "reason": "a test"});
    assert_eq!(world.dev.put("/v1/policies", body).await.status, 200);
}

fn of_kind<'a>(all: &'a [Value], kind: &str) -> Vec<&'a Value> {
    all.iter().filter(|event| event["kind"] == kind).collect()
}

#[tokio::test]
async fn r1_five_hundred_tasks_of_a_dead_agent_return_to_three_standbys_at_twenty_a_second() {
    let world = World::start().await;
    let batch = submit_batch(&world.dev, 500).await;
    let (_, held) = hold(&world, "holder", 500).await;
    assert_eq!(held.len(), 500);
    let seen = Seen::default();
    let mut standbys = Vec::new();
    for agent in ["s-1", "s-2", "s-3"] {
        let work = (Duration::from_millis(5), Seen::clone(&seen));
        standbys.push(Worker::start(&world.dev, agent, 10, work).await);
    }
    let view = settled(&world, &batch).await;
    assert_eq!(view["by_state"]["succeeded"], 500, "{view}");
    let all = events(&world, 0).await;
    let replayed: Vec<Value> = of_kind(&all, "task-replayed").into_iter().cloned().collect();
    assert_eq!(replayed.len(), 500, "each once");
    let most = most_in_a_second(&replayed);
    assert!(most <= 20 + 5, "{most} in one second");
    assert!(seen.lock().unwrap().values().all(|times| *times == 1), "no standby got one twice");
    assert_eq!(of_kind(&all, "task-retry-scheduled").len(), 0, "no retry was used");
    let standing = of_kind(&all, "agent-lost");
    assert_eq!((standing.len(), standing[0]["agent_id"].as_str()), (1, Some("holder")));
    standbys.into_iter().for_each(Worker::kill);
}

#[tokio::test]
async fn a_late_result_wins_before_the_replay_and_is_refused_after_it() {
    let world = World::start().await;
    rate(&world, 1).await;
    let batch = submit_batch(&world.dev, 6).await;
    let (incarnation, held) = hold(&world, "holder", 6).await;
    // Lost by its silence; the sweep lets one go at once and then one a second.
    let first = held[0]["reach_id"].as_str().unwrap();
    let path = format!("/v1/tasks/{first}?wait_ms=20000&unless_state=processing");
    let replayed = world.dev.get(&path).await.json();
    assert_eq!(replayed["state"], "queued", "{replayed}");
    let last = held[5..].to_vec();
    assert_eq!(report(&world.dev, "holder", incarnation, ("complete", &last)).await, [200], "its lease is valid still");
    assert_eq!(report(&world.dev, "holder", incarnation, ("complete", &held[..1])).await, [409], "its lease has ended");
    let seen = Seen::default();
    let standby = Worker::start(&world.dev, "s-1", 10, (Duration::from_millis(1), Seen::clone(&seen))).await;
    let view = settled(&world, &batch).await;
    assert_eq!(view["by_state"]["succeeded"], 6, "{view}");
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 5, "the one that was done is not done again");
    assert!(!seen.contains_key(last[0]["reach_id"].as_str().unwrap()));
    standby.kill();
}

#[tokio::test]
async fn r_reg_7_a_rolling_upgrade_under_load_loses_interrupts_and_retries_nothing() {
    let world = World::start().await;
    let seen = Seen::default();
    let work = || (Duration::from_millis(40), Seen::clone(&seen));
    let names = ["w-1", "w-2", "w-3"];
    let mut fleet = Vec::new();
    for agent in names {
        fleet.push(Worker::start(&world.dev, agent, 4, work()).await);
    }
    let load = tokio::spawn({
        let dev = world.dev.clone();
        async move {
            let mut batches = Vec::new();
            for _ in 0..40 {
                batches.push(submit_batch(&dev, 10).await);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            batches
        }
    });
    let mut upgraded = Vec::new();
    for (agent, old) in names.into_iter().zip(fleet) {
        let body = json!({"mode": "finish", "grace_ms": 20_000, "reason": "version 2"});
        let drained = world.dev.post(&format!("/v1/agents/{agent}/drain"), body).await;
        assert!(drained.status < 300, "{}", drained.text);
        old.has_left().await;
        upgraded.push(Worker::start(&world.dev, agent, 4, work()).await);
    }
    for batch in load.await.unwrap() {
        let view = settled(&world, &batch).await;
        assert_eq!(view["by_state"]["succeeded"], 10, "{view}");
    }
    let all = events(&world, 0).await;
    for kind in ["task-orphaned", "task-replayed", "task-attempt-failed", "task-retry-scheduled", "agent-lost"] {
        assert_eq!(of_kind(&all, kind).len(), 0, "{kind}");
    }
    assert_eq!(of_kind(&all, "agent-deregistered").len(), 3);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 400);
    assert!(seen.values().all(|times| *times == 1));
    upgraded.into_iter().for_each(Worker::kill);
}

#[tokio::test]
async fn r_reg_6_a_drain_under_load_hands_over_what_can_not_finish_and_uses_no_retry() {
    let world = World::start().await;
    let seen = Seen::default();
    let never = || (Duration::from_secs(600), Seen::clone(&seen));
    let drains = [("w-1", json!({"mode": "finish", "grace_ms": 300})), ("w-2", json!({"mode": "hand-over"}))];
    let mut slow = Vec::new();
    for (agent, _) in &drains {
        slow.push(Worker::start(&world.dev, agent, 8, never()).await);
    }
    let mut batches = vec![submit_batch(&world.dev, 16).await];
    let mut acknowledged = 0;
    feed_until(&world, |event| {
        acknowledged += usize::from(event["kind"] == "task-acknowledged");
        acknowledged == 16
    })
    .await;
    let held = seen.lock().unwrap().clone();
    let mut quick = Vec::new();
    for agent in ["w-3", "w-4"] {
        quick.push(Worker::start(&world.dev, agent, 4, (Duration::from_millis(20), Seen::clone(&seen))).await);
    }
    for (agent, how) in &drains {
        batches.push(submit_batch(&world.dev, 40).await);
        let drained = world.dev.post(&format!("/v1/agents/{agent}/drain"), how.clone()).await;
        assert_eq!(drained.status, 200, "{}", drained.text);
        batches.push(submit_batch(&world.dev, 40).await);
    }
    for batch in &batches {
        let view = settled(&world, batch).await;
        assert_eq!(view["by_state"]["succeeded"], view["total"], "{view}");
    }
    let all = events(&world, 0).await;
    let orphaned = of_kind(&all, "task-orphaned");
    assert_eq!(orphaned.len(), 16);
    assert!(orphaned.iter().all(|event| held.contains_key(event["reach_id"].as_str().unwrap())), "{orphaned:?}");
    let replayed: Vec<Value> = of_kind(&all, "task-replayed").into_iter().cloned().collect();
    assert_eq!(replayed.len(), 16, "each once");
    let most = most_in_a_second(&replayed);
    assert!(most <= 20 + 5, "{most} in one second");
    for kind in ["task-attempt-failed", "task-retry-scheduled", "task-slow", "agent-lost"] {
        assert_eq!(of_kind(&all, kind).len(), 0, "{kind}");
    }
    assert_eq!(of_kind(&all, "agent-deregistered").len(), 2);
    for (id, times) in seen.lock().unwrap().iter() {
        assert_eq!(*times, 1 + u32::from(held.contains_key(id)), "{id}");
    }
    for id in held.keys() {
        let task = world.dev.get(&format!("/v1/tasks/{id}")).await.json();
        assert_eq!((task["attempt"].as_u64(), task["retries_used"].as_u64()), (Some(2), Some(0)), "{task}");
        assert_eq!(task["interruptions"], 0, "a drain is none: {task}");
    }
    slow.into_iter().chain(quick).for_each(Worker::kill);
}

#[tokio::test]
async fn r2_plans_and_the_sweep_over_the_same_five_hundred_dispatch_each_once_and_together_keep_the_rate() {
    let world = World::start().await;
    rate(&world, 100).await;
    let batch = submit_batch(&world.dev, 500).await;
    hold(&world, "holder", 500).await;
    // As soon as they are orphaned, an operator in a hurry makes a faster plan of the same, and one more to be sure: the
    // namespace's rate is then the plans', and the sweep goes first within its own.
    feed_until(&world, |event| event["kind"] == "agent-lost").await;
    let mut plans = Vec::new();
    for reason in ["the fleet died", "once more, to be sure"] {
        let order = json!({"select": {"agent_id": "holder"}, "rate_per_s": 200, "reason": reason});
        let plan = world.dev.post("/v1/replays", order).await;
        assert_eq!(plan.status, 202, "{}", plan.text);
        plans.push(plan.json()["replay_id"].as_str().unwrap().to_owned());
    }
    let seen = Seen::default();
    let mut standbys = Vec::new();
    for agent in ["s-1", "s-2", "s-3"] {
        let work = (Duration::from_millis(1), Seen::clone(&seen));
        standbys.push(Worker::start(&world.dev, agent, 10, work).await);
    }
    let view = settled(&world, &batch).await;
    assert_eq!(view["by_state"]["succeeded"], 500, "{view}");
    let all = events(&world, 0).await;
    let replayed: Vec<Value> = of_kind(&all, "task-replayed").into_iter().cloned().collect();
    assert_eq!(replayed.len(), 500, "each once, whoever was first");
    let most = most_in_a_second(&replayed);
    assert!(most <= 200 + 50, "{most} in one second");
    let again: Vec<&Value> =
        of_kind(&all, "task-dispatched").into_iter().filter(|event| event["agent_id"] != "holder").collect();
    let each: BTreeSet<&str> = again.iter().map(|event| event["reach_id"].as_str().unwrap()).collect();
    assert_eq!((again.len(), each.len()), (500, 500), "each dispatched once more");
    for agent in ["s-1", "s-2", "s-3"] {
        assert!(again.iter().any(|event| event["agent_id"] == agent), "{agent} got none");
    }
    assert_eq!(seen.lock().unwrap().len(), 500);
    assert!(seen.lock().unwrap().values().all(|times| *times == 1));
    let mut by_plans = 0;
    for plan in plans {
        let view = completed(&world, &plan).await;
        let skipped: u64 = view["skipped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        let went = view["replayed"].as_u64().unwrap();
        assert_eq!(Some(went + skipped), view["total"].as_u64(), "{view}");
        by_plans += went;
    }
    assert!(0 < by_plans && by_plans < 500, "the sweep and the plans were at it together: {by_plans} by plans");
    standbys.into_iter().for_each(Worker::kill);
}

/// Waits until the plan has completed; answers it.
async fn completed(world: &World, plan: &str) -> Value {
    let completed = async {
        loop {
            let view = world.dev.get(&format!("/v1/replays/{plan}?wait_ms=20000")).await.json();
            if view["state"] == "completed" {
                return view;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), completed).await.expect("it completes")
}
