//! Five thousand dead letters, died within a few moments and many in each millisecond, are made anew by one plan, while
//! more die and the hub is killed midway: each planned one exactly once (R-REC-4, R3). A cursor over times, which repeats
//! and skips where a page ends within a millisecond, is the classic fault.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::hub::{self, HubProcess};

const DEAD: usize = 5_000;
/// What a page of the list holds: small, so that thousands of the same moment need hundreds of pages.
const PAGE: usize = 7;

/// A task that dies of its wait budget, as nobody serves it in time.
fn doomed(wave: &str) -> Value {
    json!({"capability": "text.count", "payload": {"wave": wave}, "qos": "urgent", "on_wait": "fail",
        "wait_for_agent": true, "labels": {"wave": wave}})
}

/// The first wave, of so many: each is that task but for what is changed of it. All of them are queued at one moment, and
/// so die at one.
pub(crate) async fn die_together(client: &Client, count: usize, change: impl Fn(usize, &mut Value)) {
    let moment = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(10);
    let all: Vec<usize> = (0..count).collect();
    for some in all.chunks(500) {
        let task = |n: &usize| {
            let mut task = doomed("first");
            task["not_before"] = json!(moment.to_string());
            change(*n, &mut task);
            task
        };
        let tasks: Vec<Value> = some.iter().map(task).collect();
        let (status, answer) = client.post("/v1/batches", json!({"tasks": tasks})).await;
        assert!(status < 300, "{answer}");
    }
    let (mut after, mut at) = (0, BTreeMap::<String, usize>::new());
    while at.values().sum::<usize>() < count {
        let path = format!("/v1/events?after={after}&limit=1000&wait_ms=10000");
        let (_, text) = client.call(None, &path).await;
        for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            after = event["seq"].as_u64().unwrap_or(after);
            if event["kind"] == "task-dead-lettered" {
                *at.entry(event["at"].as_str().expect("a time").to_owned()).or_default() += 1;
            }
        }
    }
    let most = at.values().max().copied().unwrap_or(0);
    assert!(most >= 3 * PAGE, "only {most} died in one millisecond: this proves little");
}

/// More die all the while.
async fn go_on_dying(client: Client, stop: Arc<AtomicBool>) -> usize {
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        let (status, _) = client.post("/v1/tasks", doomed("second")).await;
        count += usize::from(status == 202);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    count
}

/// The ids of the first wave, by pages.
pub(crate) async fn listed(client: &Client) -> BTreeSet<String> {
    let (mut ids, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let path = format!("/v1/tasks?state=dead-letter&label=wave:first&limit={PAGE}{cursor}");
        let page = client.get(&path).await;
        for item in page["items"].as_array().expect("items") {
            let id = item["reach_id"].as_str().expect("an id").to_owned();
            assert!(ids.insert(id.clone()), "{id} stands on two pages");
        }
        let Some(next) = page["next_cursor"].as_str() else { return ids };
        cursor = format!("&cursor={next}");
    }
}

/// Serves what comes back.
async fn serve(client: Client, stop: Arc<AtomicBool>) {
    let register = json!({"agent_id": "w-1", "instance": "i", "capabilities": [{"capability": "text.count"}],
        "transport": {"kind": "pull"}, "max_concurrency": 1_000, "max_pending": 100_000});
    let (status, registered) = client.post("/v1/agents", register).await;
    assert_eq!(status, 200, "{registered}");
    let incarnation = registered["incarnation"].clone();
    while !stop.load(Ordering::SeqCst) {
        let body = json!({"incarnation": incarnation, "max": 200, "wait_ms": 500});
        let (_, claimed) = client.post("/v1/agents/w-1/claim", body).await;
        let done = |task: &Value| {
            json!({"op": "complete", "reach_id": task["reach_id"], "attempt": task["attempt"], "lease": task["lease"],
                "result": {"ok": true}})
        };
        let reports: Vec<Value> = claimed["tasks"].as_array().into_iter().flatten().map(done).collect();
        if !reports.is_empty() {
            let body = json!({"agent_id": "w-1", "incarnation": incarnation, "reports": reports});
            client.post("/v1/work/reports", body).await;
        }
    }
}

/// Every item of the plan: task → what was made of it.
async fn items(client: &Client, replay: &str) -> BTreeMap<String, String> {
    let (mut all, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/replays/{replay}/items?limit=500{cursor}")).await;
        for item in page["items"].as_array().expect("items") {
            assert_eq!(item["outcome"], "redriven", "{item}");
            let (task, made) = (item["reach_id"].as_str(), item["redriven_as"].as_str());
            let (task, made) = (task.expect("an id").to_owned(), made.expect("a successor").to_owned());
            assert!(all.insert(task, made).is_none(), "an item stands twice: {item}");
        }
        let Some(next) = page["next_cursor"].as_str() else { return all };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r3_a_plan_over_five_thousand_of_the_same_moment_makes_each_anew_once_through_kills() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut process = HubProcess::start(folder.path(), hub::free_port()).await;
    let client = Client::new(process.url());
    die_together(&client, DEAD, |_, _| {}).await;
    let stop = Arc::new(AtomicBool::new(false));
    let dying = tokio::spawn(go_on_dying(client.clone(), Arc::clone(&stop)));
    let dead = listed(&client).await;
    assert_eq!(dead.len(), DEAD, "a page skipped");
    let select = json!({"state": ["dead-letter"], "label": {"wave": "first"}});
    let order = json!({"select": select, "rate_per_s": 500, "reason": "the downstream is back"});
    let (status, plan) = client.post("/v1/replays", order.clone()).await;
    assert_eq!((status, plan["total"].as_u64()), (202, Some(DEAD as u64)), "{plan}");
    let replay = plan["replay_id"].as_str().expect("an id").to_owned();
    let serving = tokio::spawn(serve(client.clone(), Arc::clone(&stop)));
    let progress = async |least: u64| loop {
        let view = client.get(&format!("/v1/replays/{replay}")).await;
        let redriven = view["redriven"].as_u64().unwrap_or(0);
        if redriven >= least || view["state"] == "completed" {
            return view;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    for midway in [1_000, 3_000] {
        progress(midway).await;
        process.kill();
        process = process.restart().await;
    }
    let view = progress(u64::MAX).await;
    assert_eq!((view["state"].as_str(), view["redriven"].as_u64()), (Some("completed"), Some(DEAD as u64)), "{view}");
    stop.store(true, Ordering::SeqCst);
    let more = dying.await.expect("it dies on");
    serving.await.expect("it serves");
    assert!(more > 50, "only {more} died meanwhile: this proves little");
    let made = items(&client, &replay).await;
    assert_eq!(made.keys().cloned().collect::<BTreeSet<_>>(), dead, "the plan is what was listed");
    assert_eq!(made.values().collect::<BTreeSet<_>>().len(), DEAD, "each has a successor of its own");
    let mut redriven = BTreeMap::<String, usize>::new();
    for event in client.events(0).await.iter().filter(|event| event["kind"] == "task-redriven") {
        *redriven.entry(event["redrive_of"].as_str().expect("an id").to_owned()).or_default() += 1;
    }
    assert_eq!(redriven.keys().cloned().collect::<BTreeSet<_>>(), dead, "none of those that died meanwhile");
    assert!(redriven.values().all(|times| *times == 1), "one was made anew twice");
    let (status, again) = client.post("/v1/replays", order).await;
    assert!(status == 422 || again["total"].as_u64() < Some(DEAD as u64), "the same plan again: {again}");
    process.stop().await;
    hub::verify(folder.path());
}
