//! Two thousand dead letters whose payloads one plan puts right. The hub is killed while the plan is being made, again and
//! again, and while it runs: there is one plan or none, and in the end each item has one successor with the payload that
//! the patch makes of its own (R3, R-REC-4).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_reach::ledger::time::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::client::Client;
use crate::hub::{self, HubProcess};
use crate::redrive::{die_together, listed};

const DEAD: usize = 2_000;
/// Those of them whose payload lies elsewhere: every so many.
const BY_REFERENCE: usize = 50;
/// What a page of the items holds.
const PAGE: usize = 7;
/// When the hub is killed while the plan is being made, in tenths of the time that a look at it takes.
const TENTHS: [u32; 6] = [1, 3, 5, 8, 10, 12];

fn payload(n: usize) -> Value {
    json!({"n": n, "host": "old", "drop": {"x": [1]}, "keep": {"list": [1.5, null], "deep": {"n": n, "old": true}}})
}

/// What becomes of it.
fn patched(n: &Value) -> Value {
    json!({"n": n, "host": "new", "keep": {"list": [1.5, null], "deep": {"n": n, "new": [0]}}})
}

fn order() -> Value {
    json!({"select": {"state": ["dead-letter"], "label": {"wave": "first"}}, "rate_per_s": 400,
        "reason": "the host was wrong",
        "payload_patch": {"host": "new", "drop": null, "keep": {"deep": {"old": null, "new": [0]}}}})
}

/// What became of an item: its successor, or why there is none.
type Outcome = Result<String, String>;

async fn items(client: &Client, replay: &str) -> BTreeMap<String, Outcome> {
    let (mut all, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/replays/{replay}/items?limit={PAGE}{cursor}")).await;
        for item in page["items"].as_array().expect("items") {
            let text = |name: &str| item[name].as_str().map(str::to_owned);
            let outcome = text("redriven_as").ok_or_else(|| text("skipped").expect("a reason"));
            let task = text("reach_id").expect("an id");
            assert!(all.insert(task, outcome).is_none(), "an item stands twice: {item}");
        }
        let Some(next) = page["next_cursor"].as_str() else { return all };
        cursor = format!("&cursor={next}");
    }
}

/// Kills the hub while it makes the plan, again and again. At every start there is one whole plan or none.
async fn kill_while_it_is_made(client: &Client, mut process: HubProcess, key: &str) -> HubProcess {
    let mut look = order();
    look["dry_run"] = json!(true);
    let began = SystemClock.monotonic();
    let (status, found) = client.post("/v1/replays", look).await;
    let took = Duration::from_millis(SystemClock.monotonic().0 - began.0);
    let patch = &found["payload_patch"];
    let fits = (json!(DEAD - DEAD / BY_REFERENCE), json!(DEAD / BY_REFERENCE));
    assert_eq!((status, (&patch["accepted"], &patch["refused"])), (200, (&fits.0, &fits.1)), "{found}");
    let new = &patch["in_no_payload"][0];
    assert_eq!(new["pointer"], "/payload_patch/keep/deep/new", "none has it yet: {found}");
    let (mut without, mut unanswered) = (0, 0);
    for tenths in TENTHS {
        let (caller, key) = (client.clone(), key.to_owned());
        let call = tokio::spawn(async move { caller.keyed_once("/v1/replays", &key, &order()).await });
        // Time is the fault here.
        tokio::time::sleep(took * tenths / 10).await;
        process.kill();
        process = process.restart().await;
        unanswered += usize::from(call.await.expect("the caller lives").is_none());
        let plans = client.get("/v1/replays").await;
        let plans = plans["items"].as_array().expect("plans");
        without += usize::from(plans.is_empty());
        assert!(plans.len() <= 1 && plans.iter().all(|plan| plan["total"] == DEAD), "{plans:?}");
    }
    let told = format!("{without} kills left no plan and {unanswered} no answer");
    assert!(without > 0 && unanswered > 0, "none came while the plan was made: {told}: this proves little");
    process
}

/// The payloads of those tasks.
async fn payloads(client: &Client, tasks: Vec<String>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for some in tasks.chunks(16) {
        let reads = some
            .iter()
            .map(|task| async move { (task.clone(), client.get(&format!("/v1/tasks/{task}/payload")).await) });
        all.extend(futures_util::future::join_all(reads).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r3_a_plan_that_patches_two_thousand_payloads_is_made_once_and_patches_each_once_through_kills() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let process = HubProcess::start(folder.path(), hub::free_port()).await;
    let client = Client::new(process.url());
    die_together(&client, DEAD, |n, task| {
        if n % BY_REFERENCE == 0 {
            task.as_object_mut().expect("an object").remove("payload");
            task["payload_ref"] = json!("s3://payloads/1");
        } else {
            task["payload"] = payload(n);
        }
    })
    .await;
    let dead = listed(&client).await;
    assert_eq!(dead.len(), DEAD);
    let mut process = kill_while_it_is_made(&client, process, "the-plan").await;
    let plan = loop {
        match client.keyed_once("/v1/replays", "the-plan", &order()).await {
            Some((200 | 202, plan)) => break plan,
            Some((503, _)) | None => tokio::time::sleep(Duration::from_millis(20)).await,
            Some(refused) => panic!("{refused:?}"),
        }
    };
    let replay = plan["replay_id"].as_str().expect("an id").to_owned();
    let progress = async |least: u64| loop {
        let view = client.get(&format!("/v1/replays/{replay}")).await;
        if view["redriven"].as_u64() >= Some(least) || view["state"] == "completed" {
            return view;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    for midway in [300, 900, 1_500] {
        let view = progress(midway).await;
        assert_ne!(view["state"], "completed", "it was too fast for a kill: {view}");
        process.kill();
        process = process.restart().await;
    }
    let view = progress(u64::MAX).await;
    let apart = DEAD / BY_REFERENCE;
    assert_eq!(view["redriven"], DEAD - apart, "{view}");
    assert_eq!(view["skipped"], json!({"payload-not-inline": apart}), "{view}");
    let items = items(&client, &replay).await;
    assert_eq!(items.keys().cloned().collect::<BTreeSet<_>>(), dead, "the plan is what was listed");
    let made: BTreeMap<&String, &String> =
        items.iter().filter_map(|(task, outcome)| Some((task, outcome.as_ref().ok()?))).collect();
    let mut links = Vec::new();
    for event in client.events(0).await.iter().filter(|event| event["kind"] == "task-redriven") {
        let text = |name: &str| event[name].as_str().expect("an id").to_owned();
        links.push((text("redrive_of"), text("redriven_as")));
    }
    links.sort();
    let told: Vec<(String, String)> = made.iter().map(|(task, made)| ((*task).clone(), (*made).clone())).collect();
    assert_eq!(links, told, "each has one successor, and no other task was made");
    let first = payloads(&client, made.keys().map(|task| (*task).clone()).collect()).await;
    let second = payloads(&client, made.values().map(|task| (*task).clone()).collect()).await;
    let mut seen = BTreeSet::new();
    for (task, made) in made {
        let n = first[task]["n"].clone();
        assert_eq!(first[task], payload(usize::try_from(n.as_u64().expect("a number")).expect("small")), "{task}");
        assert_eq!(second[made], patched(&n), "{task} as {made}");
        assert!(seen.insert(n.as_u64()), "{n} stands twice");
    }
    process.stop().await;
    hub::verify(folder.path());
}
