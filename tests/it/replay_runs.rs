//! Replay plans while they run, in virtual time: at their rate, paused, called off, twice over, through a restart.

use std::sync::Arc;

use agent_reach::hub::{Home, Options};
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::time::{Millis, SimClock};
use serde_json::{Value, json};

use crate::replays::{failed, orphans, plan};
use crate::work::claim;
use crate::world::{Client, World};

/// A hub whose time stands still unless the test lets it pass.
pub(crate) struct Still {
    pub(crate) world: World,
    pub(crate) clock: Arc<SimClock>,
}

impl Still {
    pub(crate) async fn start(store: &Arc<MemoryStore>, clock: &Arc<SimClock>) -> Self {
        let (store, at) = (Arc::clone(store), Arc::clone(clock));
        let change = move |options: &mut Options| {
            options.clock = at;
            if let Home::Given { folder, .. } = &options.home {
                let folder = folder.clone();
                options.home = Home::Given { store, keys: Keys::from_master(&[7; 32]), folder };
            }
        };
        Self { world: World::start_with(change).await, clock: Arc::clone(clock) }
    }

    pub(crate) async fn new() -> Self {
        Self::start(&Arc::new(MemoryStore::new()), &Arc::new(SimClock::new())).await
    }

    /// A quarter of a second passes: as much as a bucket can save.
    pub(crate) fn quarter(&self) {
        self.clock.advance(Millis(250));
        self.world.nudge();
    }

    /// Lets time pass until so many items have their outcome; answers the plan.
    pub(crate) async fn run(&self, path: &str, count: u64) -> Value {
        for _ in 0..200 {
            let view = self.world.dev.get(&format!("{path}?wait_ms=100")).await.json();
            if view["total"].as_u64().unwrap() - view["pending"].as_u64().unwrap() >= count {
                return view;
            }
            self.quarter();
        }
        panic!("{count} items did not settle: {}", self.world.dev.get(path).await.text);
    }

    /// Lets time pass until the task is in that state.
    pub(crate) async fn until(&self, id: &str, state: &str) {
        for _ in 0..100 {
            let view = self.world.dev.get(&format!("/v1/tasks/{id}")).await.json();
            if view["state"] == state {
                return;
            }
            self.quarter();
        }
        panic!("{}", self.world.dev.get(&format!("/v1/tasks/{id}")).await.text);
    }

    async fn start_plan(&self, select: Value, rate: u32) -> String {
        let mut body = plan(&select);
        body["rate_per_s"] = json!(rate);
        let planned = self.world.dev.post("/v1/replays", body).await;
        assert_eq!(planned.status, 202, "{}", planned.text);
        format!("/v1/replays/{}", planned.json()["replay_id"].as_str().unwrap())
    }
}

/// Waits until so many items have their outcome, while time stands still; answers the plan.
async fn settled(client: &Client, path: &str, count: u64) -> Value {
    for _ in 0..100 {
        let view = client.get(&format!("{path}?wait_ms=1000")).await.json();
        if view["total"].as_u64().unwrap() - view["pending"].as_u64().unwrap() >= count {
            return view;
        }
    }
    panic!("{count} items did not settle: {}", client.get(path).await.text);
}

/// How many events of a kind the ledger has.
async fn count(client: &Client, kind: &str) -> usize {
    let events = client.get("/v1/events?after=0&limit=1000").await.text;
    events.lines().filter(|line| line.contains(&format!("\"kind\":\"{kind}\""))).count()
}

#[tokio::test]
async fn r5_a_plan_over_thirty_orphans_runs_at_its_rate_stands_while_paused_and_ends_when_called_off() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    orphans(dev, (0..30).map(|n| json!({"payload": n}))).await;
    let path = hub.start_plan(json!({"agent_id": "w-1"}), 40).await;
    assert_eq!(settled(dev, &path, 10).await["replayed"], 10, "what a quarter of a second saves, at forty a second");
    assert_eq!(dev.post(&format!("{path}/pause"), json!({"reason": "look"})).await.status, 200);
    for _ in 0..4 {
        hub.quarter();
        assert_eq!(dev.get(&path).await.json()["replayed"], 10, "nothing goes while it is paused");
    }
    assert_eq!(dev.post(&format!("{path}/resume"), json!({})).await.status, 200);
    hub.run(&path, 15).await;
    let ended = dev.post(&format!("{path}/cancel"), json!({"reason": "enough"})).await.json();
    assert_eq!(ended["state"], "cancelled", "{ended}");
    let (went, left) = (ended["replayed"].as_u64().unwrap(), ended["cancelled"].as_u64().unwrap());
    assert!(went + left == 30 && left > 0, "{ended}");
    hub.quarter();
    assert_eq!(count(dev, "task-replayed").await as u64, went, "nothing goes once it is called off");
    let held = dev.get("/v1/tasks?state=orphaned").await.json();
    assert_eq!(held["items"].as_array().unwrap().len() as u64, left, "the rest is where it was");
    let figures = dev.get("/metrics").await.text;
    let told =
        [format!("reach_replay_items_total{{outcome=\"replayed\"}} {went}\n"), format!("reach_orphans_held {left}\n")];
    for line in told {
        assert!(figures.contains(&line), "{line} in {figures}");
    }
}

#[tokio::test]
async fn r3_the_same_plan_twice_lets_each_task_go_once() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    let tasks = orphans(dev, (0..20).map(|n| json!({"payload": n}))).await;
    let select = json!({"agent_id": "w-1"});
    let (first, second) = (hub.start_plan(select.clone(), 40).await, hub.start_plan(select, 40).await);
    let total = |view: &Value| view["total"].as_u64().unwrap();
    let items = total(&dev.get(&second).await.json());
    let second = hub.run(&second, items).await;
    let first = hub.run(&first, 20).await;
    assert_eq!(count(dev, "task-replayed").await, 20);
    let went = |view: &Value| view["replayed"].as_u64().unwrap();
    assert_eq!(went(&first) + went(&second), 20, "{first} {second}");
    let left = |view: &Value| view["skipped"]["moved-on"].as_u64().unwrap_or(0);
    assert_eq!(left(&first) + left(&second), total(&second), "{first} {second}");
    assert_eq!((&first["state"], &second["state"]), (&json!("completed"), &json!("completed")));
    // A second run by an operator's word: the history says whose, by which plan, and why.
    let history = dev.get(&format!("/v1/tasks/{}/history", tasks[0])).await.json();
    let replayed = history["events"].as_array().unwrap().iter().find(|event| event["kind"] == "task-replayed").unwrap();
    let plans = [&first["replay_id"], &second["replay_id"]];
    assert!(plans.contains(&&replayed["replay_id"]), "{replayed}");
    let told = (&replayed["reason"], &replayed["ordered_by"]["token_id"]);
    assert_eq!(told, (&first["reason"], &json!("dev")), "{replayed}");
    let text = dev.get(&format!("/v1/tasks/{}/history?format=text", tasks[0])).await.text;
    assert!(text.contains(&format!("by {} of dev", replayed["replay_id"].as_str().unwrap())), "{text}");
}

#[tokio::test]
async fn r_rec_4_what_has_failed_is_made_anew_once_each_with_its_callback_and_its_items_say_as_what() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    dev.register("f-1", "text.count").await;
    let mut first = vec![failed(dev).await];
    for _ in 0..2 {
        first.push(failed(dev).await);
    }
    let callback = json!({"url": "http://127.0.0.1:40009/hook"});
    let body = json!({"capability": "text.count", "payload": 7, "callback": callback});
    let told = dev.post("/v1/tasks", body).await.json()["reach_id"].as_str().unwrap().to_owned();
    let task = claim(dev, "f-1").await;
    let fail = crate::work::report("f-1", &task, json!({"error": {"code": "x"}, "retryable": false}));
    assert_eq!(dev.post(&format!("/v1/tasks/{told}/fail"), fail).await.status, 200);
    first.push(told);
    let path = hub.start_plan(json!({"state": ["failed"]}), 40).await;
    let view = hub.run(&path, 4).await;
    assert_eq!((&view["redriven"], &view["state"]), (&json!(4), &json!("completed")), "{view}");
    let items = dev.get(&format!("{path}/items")).await.json()["items"].clone();
    for (id, item) in first.iter().zip(items.as_array().unwrap()) {
        assert_eq!((&item["reach_id"], &item["outcome"]), (&json!(id), &json!("redriven")), "{item}");
        let made = dev.get(&format!("/v1/tasks/{}", item["redriven_as"].as_str().unwrap())).await.json();
        assert_eq!((&made["redrive_of"], &made["state"]), (&json!(id), &json!("queued")), "{made}");
        assert_eq!(dev.get(&format!("/v1/tasks/{id}")).await.json()["redriven_as"], item["redriven_as"]);
    }
    for _ in 0..4 {
        let task = claim(dev, "f-1").await;
        let path = format!("/v1/tasks/{}/complete", task["reach_id"].as_str().unwrap());
        let done = dev.post(&path, crate::work::report("f-1", &task, json!({"result": 1}))).await;
        assert_eq!(done.status, 200, "{}", done.text);
    }
    let last = items[3]["redriven_as"].as_str().unwrap();
    let made = dev.get(&format!("/v1/tasks/{last}")).await.json();
    assert!(made["callback"]["callback_id"].is_string(), "its caller is told of the second end too: {made}");
    let again = dev.post("/v1/replays", plan(&json!({"state": ["failed"]}))).await;
    assert_eq!(again.problem(422, "replay-empty")["skipped"], json!({"already-redriven": 4}));
}

#[tokio::test]
async fn r_rec_4_a_plan_goes_on_after_a_restart_and_does_nothing_twice() {
    let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(SimClock::new()));
    let hub = Still::start(&store, &clock).await;
    orphans(&hub.world.dev, (0..20).map(|n| json!({"payload": n}))).await;
    let path = hub.start_plan(json!({"agent_id": "w-1"}), 40).await;
    assert_eq!(settled(&hub.world.dev, &path, 10).await["replayed"], 10);
    hub.world.stop().await;
    let hub = Still::start(&store, &clock).await;
    let dev = &hub.world.dev;
    assert_eq!(dev.get(&path).await.json()["replayed"], 10, "it stands where it stood");
    let view = hub.run(&path, 20).await;
    assert_eq!((&view["replayed"], &view["state"]), (&json!(20), &json!("completed")), "{view}");
    assert_eq!(count(dev, "task-replayed").await, 20);
}
