//! A hub that goes down, that hangs, and that has no room for one more call: who is told what, and what is kept.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use agent_reach::hub::{Home, Options};
use agent_reach::ledger::ids::Seq;
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::machine::event::EventKind;
use agent_reach::ledger::sequencer::{Fate, INBOX};
use agent_reach::ledger::store::Store as _;
use agent_reach::ledger::store::memory::MemoryStore;
use serde_json::{Value, json};

use crate::callbacks::{PATIENCE, Receiver, call_back};
use crate::work::{claim, report};
use crate::world::{Client, World};

/// A hub over a store that the test holds too.
async fn over(store: &Arc<MemoryStore>, change: impl FnOnce(&mut Options)) -> World {
    let store = Arc::clone(store);
    World::start_with(move |options| {
        if let Home::Given { folder, .. } = &options.home {
            let folder = folder.clone();
            options.home = Home::Given { store, keys: Keys::from_master(&[7; 32]), folder };
        }
        change(options);
    })
    .await
}

fn idle() -> Value {
    json!({"capability": "idle.work", "wait_for_agent": true})
}

/// Submits until it is refused; the ids of what was taken, and the refusal's code.
async fn submit_until_refused(client: Client) -> (Vec<String>, String) {
    let mut taken = Vec::new();
    loop {
        let answer = client.post("/v1/tasks", idle()).await;
        if answer.status != 202 {
            assert!(answer.headers.contains_key("retry-after"), "{}", answer.text);
            return (taken, answer.problem(503, "stopping")["code"].as_str().unwrap().to_owned());
        }
        taken.push(answer.json()["reach_id"].as_str().unwrap().to_owned());
    }
}

#[tokio::test]
async fn a_hub_that_stops_under_load_refuses_submits_hands_out_nothing_takes_reports_and_says_goodbye_last() {
    let store = Arc::new(MemoryStore::new());
    let world = over(&store, |options| options.stop_grace = PATIENCE).await;
    let (dev, nobody) = (world.dev.clone(), world.nobody());
    dev.register("w-1", "text.count").await;
    let begun = crate::work::submit(&dev, "text.count", json!(1)).await;
    let held = claim(&dev, "w-1").await;
    let mut receiver = Receiver::answering(None).await;
    call_back(&dev, &receiver.url).await;
    receiver.next().await;
    let load: Vec<_> = (0..4).map(|_| tokio::spawn(submit_until_refused(dev.clone()))).collect();

    // The callback that is not answered keeps the hub draining for as long as the test needs.
    let stopping = tokio::spawn(world.stop());
    let mut taken = Vec::new();
    for caller in load {
        let (ids, _) = tokio::time::timeout(PATIENCE, caller).await.expect("it is refused").unwrap();
        taken.extend(ids);
    }
    let ready = nobody.get("/readyz?verbose").await;
    assert_eq!((ready.status, &ready.json()["phase"]), (503, &json!("draining")), "{}", ready.text);
    let failed: Vec<Value> =
        ready.json()["checks"].as_array().unwrap().iter().filter(|check| check["passed"] == false).cloned().collect();
    assert_eq!(failed, [json!({"check": "not-stopping", "passed": false})]);
    assert_eq!(nobody.get("/livez").await.status, 200, "it lives");
    for (path, body) in [("/v1/batches", json!({"tasks": [idle()]})), ("/v1/tasks", idle())] {
        dev.post(path, body).await.problem(503, "stopping");
    }
    let wish = json!({"incarnation": 1, "max": 5, "wait_ms": 60_000});
    dev.post("/v1/agents/w-1/claim", wish).await.problem(503, "stopping");
    let done = dev.post(&format!("/v1/tasks/{begun}/complete"), report("w-1", &held, json!({"result": 1}))).await;
    assert_eq!((done.status, &done.json()["state"]), (200, &json!("succeeded")), "{}", done.text);
    assert!(!stopping.is_finished(), "what is in flight is waited for");
    receiver.answers.send_replace(Some(204));
    tokio::time::timeout(PATIENCE, stopping).await.expect("it stops").unwrap();

    let events = store.events(Seq(0), 1_000_000).unwrap();
    let kinds: Vec<EventKind> = events.iter().map(|stored| stored.event.body.kind()).collect();
    assert_eq!(kinds.last(), Some(&EventKind::HubStopped));
    assert_eq!(kinds.iter().filter(|kind| **kind == EventKind::TaskDispatched).count(), 1, "nothing was handed out");
    let delivered = kinds.iter().position(|kind| *kind == EventKind::CallbackDelivered);
    let succeeded = kinds.iter().position(|kind| *kind == EventKind::TaskSucceeded);
    assert!(succeeded.is_some() && succeeded < delivered, "the report was taken while it drained");
    let submitted = events.iter().filter(|stored| stored.event.body.kind() == EventKind::TaskSubmitted);
    let submitted: std::collections::BTreeSet<String> =
        submitted.filter_map(|stored| stored.event.body.task()).map(|task| task.to_string()).collect();
    assert!(taken.iter().all(|id| submitted.contains(id)), "every answer that said so is in the ledger");
    assert_eq!(submitted.len(), taken.len() + 2, "and what was refused is not");
}

#[tokio::test]
async fn a_commit_that_hangs_is_seen_by_whoever_asks_and_ends_the_hub() {
    let store = Arc::new(MemoryStore::new());
    let mut world = over(&store, |options| options.append_deadline = Duration::from_secs(3)).await;
    assert_eq!(world.nobody().get("/readyz").await.status, 200);
    store.hold_appends();
    let dev = world.dev.clone();
    let hanging = tokio::spawn(async move { dev.post("/v1/tasks", idle()).await });
    let nobody = world.nobody();
    let seen = tokio::time::timeout(PATIENCE, async {
        loop {
            let ready = nobody.get("/readyz?verbose").await;
            if ready.status == 503 {
                return ready.json();
            }
        }
    });
    let (seen, fate) = tokio::join!(seen, tokio::time::timeout(PATIENCE, world.failed()));
    let seen = seen.expect("a probe is refused");
    let failed: Vec<&Value> =
        seen["checks"].as_array().unwrap().iter().filter(|check| check["passed"] == false).collect();
    assert_eq!(failed, [&json!({"check": "sequencer-answers", "passed": false})], "{seen}");
    let Fate::Disk(why) = fate.expect("the watchdog speaks") else { panic!("it is the disk's fault") };
    assert!(why.contains("has not returned"), "{why}");
    assert!(!hanging.is_finished(), "nothing is answered before it is durable");
    store.let_appends_go();
    assert_eq!(tokio::time::timeout(PATIENCE, hanging).await.expect("an answer").unwrap().status, 202);
}

#[tokio::test]
async fn semantics_22_a_full_command_queue_is_busy_and_says_when_to_come_back() {
    let world = World::start().await;
    let ledger = world.ledger();
    let (began, begins) = tokio::sync::oneshot::channel();
    let (go_on, held) = mpsc::channel::<()>();
    let asked = tokio::spawn({
        let ledger = ledger.clone();
        async move {
            let question = move |_: &_| {
                began.send(()).unwrap();
                held.recv().unwrap_err();
            };
            ledger.ask(question).await
        }
    });
    begins.await.unwrap();
    (0..INBOX).for_each(|_| ledger.nudge());
    for (path, body) in [("/v1/tasks", idle()), ("/v1/agents", crate::world::registration("w-1", "text.count"))] {
        let answer = world.dev.post(path, body).await;
        answer.problem(503, "busy");
        let after: u64 = answer.header("retry-after").parse().expect("a number of seconds");
        assert!(after >= 1, "{after}");
        assert_eq!(answer.json().get("reach_id"), None, "a refused task has no id");
    }
    drop(go_on);
    asked.await.unwrap().unwrap();
    let answer = tokio::time::timeout(PATIENCE, async {
        loop {
            let answer = world.dev.post("/v1/tasks", idle()).await;
            if answer.status != 503 {
                return answer;
            }
        }
    });
    assert_eq!(answer.await.expect("room comes back by itself").status, 202);
}
