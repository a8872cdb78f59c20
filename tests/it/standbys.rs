//! What comes back after a loss, to whom and how fast: sessions on one standby, and slowly to whoever returns.

use std::time::Duration;

use agent_reach::ledger::time::Millis;
use serde_json::{Value, json};

use crate::fleet::{Seen, Worker, enlist, events, report};
use crate::replay_runs::Still;
use crate::replays::orphans;
use crate::world::{Client, World};

/// Submits tasks and has `holder` begin them; answers its incarnation.
async fn held(world: &World, tasks: &[Value]) -> u64 {
    let incarnation = enlist(&world.dev, "holder", (200, 100)).await;
    for task in tasks {
        let answer = world.dev.post("/v1/tasks", task.clone()).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
    }
    let body = json!({"incarnation": incarnation, "max": 100, "wait_ms": 2_000});
    let claimed = world.dev.post("/v1/agents/holder/claim", body).await.json();
    let claimed = claimed["tasks"].as_array().unwrap().clone();
    assert_eq!(claimed.len(), tasks.len());
    let acked = report(&world.dev, "holder", incarnation, ("ack", &claimed)).await;
    assert!(acked.iter().all(|status| *status == 200), "{acked:?}");
    incarnation
}

/// Waits for the first event of a kind after a place; answers it.
async fn event(world: &World, kind: &str, mut after: u64) -> Value {
    let look = async {
        loop {
            let page = world.dev.get(&format!("/v1/events?after={after}&limit=1000&wait_ms=20000")).await;
            for event in page.text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                after = event["seq"].as_u64().unwrap_or(after);
                if event["kind"] == kind {
                    return event;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look).await.unwrap_or_else(|_| panic!("no {kind}"))
}

/// Waits until so many tasks have succeeded; answers all events.
async fn succeeded(world: &World, count: usize) -> Vec<Value> {
    let mut after = 0;
    for _ in 0..count {
        after = event(world, "task-succeeded", after).await["seq"].as_u64().unwrap();
    }
    events(world, 0).await
}

fn of_session(policy: &str) -> Vec<Value> {
    let task = |n: usize| json!({"capability": "text.count", "payload": n, "idempotent": true, "session_id": "trip", "orphan": policy});
    (0..10).map(task).collect()
}

/// Which agents got what came back.
fn standbys(all: &[Value]) -> Vec<&str> {
    let again = all.iter().filter(|event| event["kind"] == "task-dispatched" && event["agent_id"] != "holder");
    again.map(|event| event["agent_id"].as_str().unwrap()).collect()
}

async fn two_workers(world: &World) -> [Worker; 2] {
    let work = || (Duration::from_millis(20), Seen::default());
    [Worker::start(&world.dev, "s-1", 10, work()).await, Worker::start(&world.dev, "s-2", 10, work()).await]
}

#[tokio::test]
async fn r_rec_3_the_sweep_brings_a_session_of_ten_orphans_to_one_of_two_standbys_that_ask_all_the_while() {
    let world = World::start().await;
    held(&world, &of_session("replay")).await;
    event(&world, "agent-lost", 0).await;
    let workers = two_workers(&world).await;
    let all = succeeded(&world, 10).await;
    let by = standbys(&all);
    assert!(by.len() == 10 && by.iter().all(|agent| *agent == by[0]), "{by:?}");
    workers.into_iter().for_each(Worker::kill);
}

#[tokio::test]
async fn r_rec_3_a_plan_brings_a_session_of_ten_orphans_to_one_of_two_standbys_that_ask_all_the_while() {
    let world = World::start().await;
    held(&world, &of_session("hold")).await;
    event(&world, "agent-lost", 0).await;
    let workers = two_workers(&world).await;
    let order = json!({"select": {"agent_id": "holder"}, "rate_per_s": 100, "reason": "it died"});
    let planned = world.dev.post("/v1/replays", order).await;
    assert_eq!(planned.status, 202, "{}", planned.text);
    let all = succeeded(&world, 10).await;
    let by = standbys(&all);
    assert!(by.len() == 10 && by.iter().all(|agent| *agent == by[0]), "{by:?}");
    workers.into_iter().for_each(Worker::kill);
}

#[tokio::test]
async fn r_rec_6_a_lost_agent_that_returns_gets_one_then_two_then_four_tasks() {
    let world = World::start().await;
    let task = json!({"capability": "text.count", "payload": 1, "idempotent": false, "orphan": "hold"});
    let incarnation = held(&world, std::slice::from_ref(&task)).await;
    event(&world, "agent-lost", 0).await;
    for _ in 0..20 {
        assert_eq!(world.dev.post("/v1/tasks", task.clone()).await.status, 202);
    }
    let mut claimed = Vec::new();
    while claimed.len() < 8 {
        // It asks for as much as there is, and acknowledges what it gets, under its old incarnation.
        let body = json!({"incarnation": incarnation, "max": 20, "wait_ms": 100});
        let answer = world.dev.post("/v1/agents/holder/claim", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let more = answer.json()["tasks"].as_array().unwrap().clone();
        report(&world.dev, "holder", incarnation, ("ack", &more)).await;
        claimed.extend(more);
    }
    let all = events(&world, 0).await;
    let at = |event: &Value| event["at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let healthy = all.iter().find(|event| event["kind"] == "agent-healthy").unwrap();
    let after = all
        .iter()
        .filter(|event| event["kind"] == "task-dispatched" && event["seq"].as_u64() > healthy["seq"].as_u64());
    let after: Vec<i64> = after.map(|event| at(event) - at(healthy)).collect();
    for (seconds, most) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        let given = after.iter().filter(|at| **at < seconds * 1_000).count();
        assert!(given <= most, "{given} within {seconds} s: {after:?}");
    }
    assert!(after.len() >= 8 && after[0] < 1_000, "{after:?}");
}

/// How many of their tasks were replayed.
async fn went(clients: &[&Client]) -> Vec<usize> {
    let mut counts = Vec::new();
    for client in clients {
        let page = client.get("/v1/events?after=0&limit=1000&wait_ms=0").await;
        assert_eq!(page.status, 200, "{}", page.text);
        counts.push(page.text.lines().filter(|line| line.contains("\"kind\":\"task-replayed\"")).count());
    }
    counts
}

/// Lets time pass in small steps until so many in all were replayed; how long that took.
async fn replayed(hub: &Still, clients: &[&Client], count: usize) -> u64 {
    for passed in (0..2_400).map(|step| step * STEP) {
        // The cycle that answers the first question may have looked at the clock before it moved; the second did after.
        for _ in 0..2 {
            hub.world.nudge();
            hub.world.dev.get("/v1/cluster").await;
        }
        let went: usize = went(clients).await.iter().sum();
        assert!(went <= count, "{went} and not {count} have gone after {passed} ms");
        if went == count {
            return passed;
        }
        hub.clock.advance(Millis(STEP));
    }
    panic!("{count} are never replayed");
}

/// One of [`replayed`]'s, in milliseconds.
const STEP: u64 = 25;

#[tokio::test]
async fn r_rec_2_a_changed_rate_of_the_namespace_holds_from_the_sweeps_next_token_on_up_and_down() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    let rate = async |per_second: u32| {
        let body = json!({"policy": {"replays_per_second": per_second}, "reason": "a test"});
        let set = dev.put("/v1/policies", body).await;
        assert_eq!(set.status, 200, "{}", set.text);
    };
    rate(1).await;
    orphans(dev, (0..12).map(|n| json!({"payload": n, "idempotent": true}))).await;
    replayed(&hub, &[dev], 1).await;
    assert_eq!(replayed(&hub, &[dev], 2).await, 1_000, "one a second");
    rate(20).await;
    for n in 3..=8 {
        assert_eq!(replayed(&hub, &[dev], n).await, 50, "twenty a second, from the next token on: the {n}th");
    }
    rate(2).await;
    assert_eq!(replayed(&hub, &[dev], 9).await, 500, "two a second, and what was spent at twenty is not had again");
    assert_eq!(replayed(&hub, &[dev], 10).await, 500);
    rate(40).await;
    assert_eq!(replayed(&hub, &[dev], 11).await, 25);
    rate(1).await;
    assert_eq!(replayed(&hub, &[dev], 12).await, 1_000);
}

#[tokio::test]
async fn r_rec_2_the_sweeps_of_two_namespaces_share_the_hubs_rate_and_have_their_own_where_it_is_more() {
    let hub = Still::new().await;
    let scopes = json!({"scopes": ["register", "submit", "work", "audit"], "agents": ["*"]});
    let other = hub.world.somebody_in("other", scopes).await;
    let both = [&hub.world.dev, &other];
    let rate = async |per_second: u32| {
        let body = json!({"policy": {"replays_per_second": per_second}, "reason": "a test"});
        let set = hub.world.dev.put("/v1/policies/hub", body).await;
        assert_eq!(set.status, 200, "{}", set.text);
    };
    rate(4).await;
    for client in both {
        orphans(client, (0..10).map(|n| json!({"payload": n, "idempotent": true}))).await;
    }
    replayed(&hub, &both, 1).await;
    for n in 2..=8 {
        assert_eq!(replayed(&hub, &both, n).await, 250, "four a second over both: the {n}th");
    }
    assert_eq!(went(&both).await, [4, 4], "one after the other");
    rate(1_000).await;
    // Each has saved up its own burst of five meanwhile.
    replayed(&hub, &both, 18).await;
    assert_eq!(replayed(&hub, &both, 20).await, 50, "twenty a second in each");
}
