//! Replay plans through the door: what they pick and refuse, what they show, an operator's word to them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::work::{claim, report, submit};
use crate::world::{Answer, Client, World, registration};

/// Submits a task that is not idempotent, has the agent begin it, and answers its id.
pub(crate) async fn begun(client: &Client, agent: &str, incarnation: u64, mut body: Value) -> String {
    body["capability"] = json!("text.count");
    let id = client.post("/v1/tasks", body).await.json()["reach_id"].as_str().unwrap().to_owned();
    let asked = json!({"incarnation": incarnation, "max": 1, "wait_ms": 5000});
    let task = client.post(&format!("/v1/agents/{agent}/claim"), asked).await.json()["tasks"][0].clone();
    assert_eq!(task["reach_id"], *id, "{task}");
    let mut ack = report(agent, &task, json!({}));
    ack["incarnation"] = json!(incarnation);
    let acked = client.post(&format!("/v1/tasks/{id}/ack"), ack).await;
    assert_eq!(acked.status, 200, "{}", acked.text);
    id
}

/// Another process takes the agent's id over: what the former one held is orphaned.
pub(crate) async fn replaced(client: &Client, agent: &str) -> u64 {
    let mut body = registration(agent, "text.count");
    body["max_concurrency"] = json!(1000);
    body["instance"] = json!(agent_reach::ledger::ids::ReachId([7; 16]).to_string() + &agent_instance());
    client.post("/v1/agents", body).await.json()["incarnation"].as_u64().unwrap()
}

fn agent_instance() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

/// Held orphans of an agent that was replaced, in the order of their submission.
pub(crate) async fn orphans(client: &Client, bodies: impl IntoIterator<Item = Value>) -> Vec<String> {
    let incarnation = replaced(client, "w-1").await;
    let mut ids = Vec::new();
    for body in bodies {
        ids.push(begun(client, "w-1", incarnation, body).await);
    }
    replaced(client, "w-1").await;
    ids
}

/// A task that has failed for good.
pub(crate) async fn failed(client: &Client) -> String {
    let id = submit(client, "text.count", json!({"n": 1})).await;
    let task = claim(client, "f-1").await;
    let fail = report("f-1", &task, json!({"error": {"code": "x"}, "retryable": false}));
    let answer = client.post(&format!("/v1/tasks/{id}/fail"), fail).await;
    assert_eq!((answer.status, &answer.json()["state"]), (200, &json!("failed")), "{}", answer.text);
    id
}

async fn dry_run(client: &Client, select: Value) -> Value {
    let answer = client.post("/v1/replays", json!({"select": select, "reason": "look", "dry_run": true})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// A plan whose word includes what may have run.
pub(crate) fn plan(select: &Value) -> Value {
    json!({"select": select, "reason": "the rack lost power", "include_ambiguous": true})
}

/// The last place in the ledger: the same before and after a call that changed nothing.
pub(crate) async fn last_seq(client: &Client) -> Value {
    client.get("/v1/cluster").await.json()["nodes"][0]["seq"].clone()
}

/// A plan that stands still from the first moment on: its rate would take hours for the first item after the burst.
async fn paused(client: &Client, select: Value) -> Value {
    let mut body = plan(&select);
    body["rate_per_s"] = json!(1);
    let planned = client.post("/v1/replays", body).await;
    assert_eq!(planned.status, 202, "{}", planned.text);
    let path = format!("/v1/replays/{}/pause", planned.json()["replay_id"].as_str().unwrap());
    let paused = client.post(&path, json!({"reason": "look first"})).await;
    assert_eq!((paused.status, &paused.json()["state"]), (200, &json!("paused")), "{}", paused.text);
    paused.json()
}

#[tokio::test]
async fn r_rec_4_a_dry_run_counts_and_samples_in_the_order_of_submission_and_keeps_nothing() {
    let world = World::start().await;
    let sessions = [Some("s-1"), None, Some("s-1"), Some("s-2"), None];
    let ids = orphans(&world.dev, sessions.map(|session| json!({"session_id": session, "payload": 1}))).await;
    let before = last_seq(&world.dev).await;
    let select = json!({"agent_id": "w-1"});
    let found = dry_run(&world.dev, select.clone()).await;
    for (pointer, value) in [
        ("/dry_run", json!(true)),
        ("/total", json!(0)),
        ("/ambiguous", json!(5)),
        ("/skipped", json!([{"reason": "may-have-run", "count": 5}])),
        ("/estimate_s", json!(0)),
        ("/rate_per_s", json!(20)),
    ] {
        assert_eq!(found.pointer(pointer), Some(&value), "{pointer} in {found}");
    }
    let mut body = plan(&select);
    (body["dry_run"], body["rate_per_s"]) = (json!(true), json!(2));
    let found = world.dev.post("/v1/replays", body).await.json();
    for (pointer, value) in [
        ("/total", json!(5)),
        ("/by_state", json!({"orphaned": 5})),
        ("/by_action", json!({"replay": 5})),
        ("/ambiguous", json!(5)),
        ("/skipped", json!([])),
        ("/sessions", json!(1)),
        ("/estimate_s", json!(3)),
        ("/sample/0/session_id", json!("s-1")),
        ("/sample/0/capability", json!("text.count")),
        ("/position", before.clone()),
    ] {
        assert_eq!(found.pointer(pointer), Some(&value), "{pointer} in {found}");
    }
    let sample: Vec<&str> =
        found["sample"].as_array().unwrap().iter().map(|item| item["reach_id"].as_str().unwrap()).collect();
    assert_eq!(sample, ids.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(last_seq(&world.dev).await, before, "a dry run wrote something");
    assert_eq!(world.dev.get("/v1/replays").await.json()["items"], json!([]));
}

#[tokio::test]
async fn r_rec_4_a_plan_is_frozen_and_shown_the_same_everywhere() {
    let world = World::start().await;
    let ids = orphans(&world.dev, (0..4).map(|n| json!({"payload": n}))).await;
    let view = paused(&world.dev, json!({"agent_id": "w-1"})).await;
    let id = view["replay_id"].as_str().unwrap();
    for (pointer, value) in [
        ("/total", json!(4)),
        ("/rate_per_s", json!(1)),
        ("/include_ambiguous", json!(true)),
        ("/select", json!({"agent_id": "w-1", "state": ["orphaned"]})),
        ("/reason", json!("the rack lost power")),
        ("/by/kind", json!("token")),
        ("/ended_at", json!(null)),
    ] {
        assert_eq!(view.pointer(pointer), Some(&value), "{pointer} in {view}");
    }
    let went = view["total"].as_u64().unwrap() - view["pending"].as_u64().unwrap();
    assert!(went <= 1, "a second has not passed: {view}");
    let mut shown = view.clone();
    assert!(shown.as_object_mut().unwrap().remove("receipt").is_some(), "{view}");
    assert_eq!(world.dev.get(&format!("/v1/replays/{id}")).await.json(), shown);
    assert_eq!(world.dev.get("/v1/replays?state=paused").await.json()["items"], json!([shown]));
    assert_eq!(world.dev.get("/v1/replays?state=running").await.json()["items"], json!([]));
    let mut items = Vec::new();
    let mut path = format!("/v1/replays/{id}/items?limit=3");
    loop {
        let page = world.dev.get(&path).await.json();
        items.extend(page["items"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => path = format!("/v1/replays/{id}/items?limit=3&cursor={next}"),
            None => break,
        }
    }
    let listed: Vec<&str> = items.iter().map(|item| item["reach_id"].as_str().unwrap()).collect();
    assert_eq!(listed, ids.iter().map(String::as_str).collect::<Vec<_>>());
    assert!((0..).zip(&items).all(|(n, item)| item["index"] == n && item["action"] == "replay"), "{items:?}");
    let pending = world.dev.get(&format!("/v1/replays/{id}/items?outcome=pending")).await.json();
    assert_eq!(pending["items"].as_array().unwrap().len() as u64, view["pending"].as_u64().unwrap());
    world.dev.get(&format!("/v1/replays/{id}/items?outcome=done")).await.problem(400, "invalid-query");
    world.dev.get("/v1/replays?state=done").await.problem(400, "invalid-query");
    world.dev.get(&format!("/v1/replays/{id}?wait_ms=60001")).await.problem(400, "invalid-query");
}

#[tokio::test]
async fn an_operators_words_to_a_plan_are_taken_once_and_a_finished_one_takes_none() {
    let world = World::start().await;
    orphans(&world.dev, (0..3).map(|n| json!({"payload": n}))).await;
    let view = paused(&world.dev, json!({"agent_id": "w-1"})).await;
    let path = format!("/v1/replays/{}", view["replay_id"].as_str().unwrap());
    assert!(view["receipt"]["seq"].is_u64(), "{view}");
    let again = world.dev.post(&format!("{path}/pause"), json!({})).await.json();
    assert!(again["receipt"].is_null(), "pausing twice is harmless and leaves no event: {again}");
    let rate = world.dev.patch(&path, json!({"rate_per_s": 7})).await;
    assert_eq!((rate.status, &rate.json()["rate_per_s"]), (200, &json!(7)), "{}", rate.text);
    assert_eq!(rate.json()["state"], "paused");
    for rate in [json!(0), json!(-1), json!(1e9), json!("fast"), json!(100_001), json!(null)] {
        world.dev.patch(&path, json!({"rate_per_s": rate})).await.problem_at(422, "invalid-field", "/rate_per_s");
    }
    // A long-poll answers with the change and not at its end.
    let waiting = world.dev.clone();
    let waits = format!("{path}?wait_ms=60000");
    let waiting = tokio::spawn(async move { waiting.get(&waits).await.json() });
    assert_eq!(world.dev.post(&format!("{path}/cancel"), json!({"reason": "enough"})).await.status, 200);
    assert_eq!(waiting.await.unwrap()["state"], "cancelled");
    let (ended, before) = (world.dev.get(&path).await.json(), last_seq(&world.dev).await);
    assert_eq!((&ended["state"], &ended["estimate_s"]), (&json!("cancelled"), &json!(0)), "{ended}");
    assert!(ended["ended_at"].is_string() && ended["cancelled"].as_u64() >= Some(2), "{ended}");
    assert_eq!(world.dev.get("/v1/replays?state=cancelled").await.json()["items"], json!([ended]));
    for word in ["pause", "resume", "cancel"] {
        let problem = world.dev.post(&format!("{path}/{word}"), json!({})).await;
        let problem = match word {
            "resume" => Answer::of(world.dev.request(reqwest::Method::POST, &format!("{path}/resume"))).await,
            _ => problem,
        };
        assert_eq!(problem.problem(409, "replay-ended")["state"], "cancelled", "{word}");
    }
    world.dev.patch(&path, json!({"rate_per_s": 3})).await.problem(409, "replay-ended");
    let absent = "/v1/replays/replay_01h455vb4pex5vsknk084sn02q";
    world.dev.get(absent).await.problem(404, "not-found");
    world.dev.post(&format!("{absent}/cancel"), json!({})).await.problem(404, "not-found");
    assert_eq!(
        (world.dev.get(&path).await.json(), last_seq(&world.dev).await),
        (ended, before),
        "a refusal did something"
    );
}

#[tokio::test]
async fn what_makes_no_plan_is_refused_with_where_and_why_and_changes_nothing() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    failed(&world.dev).await;
    let before = last_seq(&world.dev).await;
    let post = |body: Value| world.dev.post("/v1/replays", body);
    let with = |name: &str, value: Value| {
        let mut body = json!({"select": {"state": ["failed"]}, "reason": "x"});
        body[name] = value;
        body
    };
    for (body, pointer) in [
        (json!({"select": {}, "reason": "x"}), "/select"),
        (json!({"reason": "x"}), "/select"),
        (json!({"select": {"state": ["failed"]}}), "/reason"),
        (with("reason", json!("")), "/reason"),
        (with("reason", json!("  ")), "/reason"),
        (with("reason", json!("x".repeat(1_001))), "/reason"),
        (with("reason", json!("a\u{7}")), "/reason"),
        (with("rate_per_s", json!(0)), "/rate_per_s"),
        (with("rate_per_s", json!(-5)), "/rate_per_s"),
        (with("rate_per_s", json!(1e9)), "/rate_per_s"),
        (with("rate_per_s", json!(1_000_000_000)), "/rate_per_s"),
        (with("rate_per_s", json!("20")), "/rate_per_s"),
        (with("include_ambiguous", json!("yes")), "/include_ambiguous"),
        (with("select", json!({"state": []})), "/select/state"),
        (with("select", json!({"state": ["failed", "orphan"]})), "/select/state/1"),
        (with("select", json!({"failure_class": ["busines"]})), "/select/failure_class/0"),
        (with("select", json!({"capability": "nope"})), "/select/capability"),
        (with("select", json!({"batch_id": "batch_x"})), "/select/batch_id"),
        (with("select", json!({"incarnation": 1})), "/select/incarnation"),
        (with("select", json!({"reach_ids": []})), "/select/reach_ids"),
        (with("select", json!({"reach_ids": ["reach_x"]})), "/select/reach_ids/0"),
        (with("select", json!({"reach_ids": vec!["x"; 10_001]})), "/select/reach_ids"),
        (with("select", json!({"submitted_after": "2026-01-01T00:00:00"})), "/select/submitted_after"),
        (with("select", json!({"label": {"a": 7}})), "/select/label/a"),
    ] {
        post(body.clone()).await.problem_at(422, "invalid-field", pointer);
        assert_eq!(last_seq(&world.dev).await, before, "{body}");
    }
    let turned = json!({"submitted_after": "2026-02-01T00:00:00Z", "submitted_before": "2026-01-01T00:00:00Z"});
    post(with("select", turned)).await.problem_at(422, "invalid-field", "/select/submitted_before");
    let unknown = post(with("select", json!({"agents_id": "w-1"}))).await;
    unknown.problem_at(422, "unknown-field", "/select/agents_id");
    assert_eq!(unknown.json()["suggestions"], json!(["agent_id"]));
    let meant = post(with("select", json!({"state": ["orphan"]}))).await;
    assert_eq!(meant.json()["suggestions"], json!(["orphaned"]), "{}", meant.text);
    post(with("dry", json!(true))).await.problem_at(422, "unknown-field", "/dry");
    world.dev.post_raw("/v1/replays", "{").await.problem(400, "malformed-json");
    assert_eq!(last_seq(&world.dev).await, before, "a refusal wrote something");
    assert_eq!(world.dev.get("/v1/replays").await.json()["items"], json!([]));
    assert_eq!(post(with("reason", json!("it is there"))).await.status, 202, "and there was something to plan");
}

#[tokio::test]
async fn a_plan_over_nothing_says_what_it_would_have_left_alone() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let done = failed(&world.dev).await;
    let redriven = world.dev.post(&format!("/v1/tasks/{done}/redrive"), json!({"reason": "x"})).await;
    assert_eq!(redriven.status, 202, "{}", redriven.text);
    let queued = redriven.json()["reach_id"].clone();
    let select = json!({"reach_ids": [done, queued, "reach_01h455vb4pex5vsknk084sn02q"]});
    let before = last_seq(&world.dev).await;
    let refused = world.dev.post("/v1/replays", plan(&select)).await;
    let problem = refused.problem(422, "replay-empty");
    assert_eq!(last_seq(&world.dev).await, before);
    let skipped = json!({"already-redriven": 1, "not-applicable": 1, "unknown": 1});
    assert_eq!((&problem["skipped"], &problem["errors"][0]["pointer"]), (&skipped, &json!("/select")), "{problem}");
    let found = dry_run(&world.dev, json!({"state": ["failed", "queued"]})).await;
    assert_eq!(
        found["skipped"],
        json!([{"reason": "moved-on", "count": 1}, {"reason": "already-redriven", "count": 1}]),
        "{found}"
    );
}

#[tokio::test]
async fn n1_a_plan_picks_nothing_of_another_namespace_and_cannot_tell_it_from_nothing() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let batch = json!({"tasks": [{"capability": "text.count", "idempotent": true}]});
    let batch = world.dev.post("/v1/batches", batch).await.json()["batch_id"].clone();
    let held = claim(&world.dev, "f-1").await;
    let fail = report("f-1", &held, json!({"error": {"code": "x"}}));
    let path = format!("/v1/tasks/{}/fail", held["reach_id"].as_str().unwrap());
    assert_eq!(world.dev.post(&path, fail).await.status, 200);
    let other = world.somebody_in("other", json!({"scopes": ["operate", "read"]})).await;
    let states = json!(["failed"]);
    let before = last_seq(&world.dev).await;
    for (there, nowhere) in [
        (json!({"reach_ids": [held["reach_id"]]}), json!({"reach_ids": ["reach_01h455vb4pex5vsknk084sn02q"]})),
        (json!({"batch_id": batch}), json!({"batch_id": "batch_01h455vb4pex5vsknk084sn02q"})),
        (json!({"agent_id": "f-1"}), json!({"agent_id": "nobody"})),
        (json!({"capability": "text.count"}), json!({"capability": "no.such"})),
    ] {
        let mut answers = BTreeSet::new();
        for mut select in [there.clone(), nowhere] {
            select["state"] = states.clone();
            let mut found = dry_run(&other, select.clone()).await;
            found["position"] = json!(0);
            answers.insert(found.to_string());
            answers.insert(found.to_string());
            other.post("/v1/replays", plan(&select)).await.problem(422, "replay-empty");
        }
        assert_eq!(answers.len(), 1, "{answers:?}");
        let mut own = there;
        own["state"] = states.clone();
        assert_eq!(dry_run(&world.dev, own).await["by_action"], json!({"redrive": 1}));
    }
    assert_eq!(last_seq(&world.dev).await, before, "a refusal wrote something");
}

#[tokio::test]
async fn r_rec_4_a_plan_picks_by_the_process_that_held_them() {
    let world = World::start().await;
    let mut of = Vec::new();
    for n in 1..=2 {
        let incarnation = replaced(&world.dev, "w-1").await;
        assert_eq!(incarnation, n);
        of.push(begun(&world.dev, "w-1", incarnation, json!({"payload": n})).await);
    }
    replaced(&world.dev, "w-1").await;
    for (incarnation, id) in (1..).zip(&of) {
        let mut look = plan(&json!({"agent_id": "w-1", "incarnation": incarnation}));
        look["dry_run"] = json!(true);
        let found = world.dev.post("/v1/replays", look).await.json();
        assert_eq!((&found["total"], &found["sample"][0]["reach_id"]), (&json!(1), &json!(id)), "{found}");
    }
    let nothing = plan(&json!({"agent_id": "w-1", "incarnation": 3}));
    world.dev.post("/v1/replays", nothing).await.problem(422, "replay-empty");
    let second = world.dev.post("/v1/replays", plan(&json!({"agent_id": "w-1", "incarnation": 2}))).await;
    assert_eq!(second.status, 202, "{}", second.text);
    let view = world.dev.get(&format!("/v1/tasks/{}?wait_ms=20000&unless_state=orphaned", of[1])).await.json();
    assert_eq!(view["state"], "queued", "{view}");
    assert_eq!(world.dev.get(&format!("/v1/tasks/{}", of[0])).await.json()["state"], "orphaned");
}

#[tokio::test]
async fn r4_who_waits_behind_a_task_of_its_session_says_behind_which() {
    let world = World::start().await;
    let of_session = |idempotent: bool| json!({"payload": {"n": 1}, "session_id": "s-1", "idempotent": idempotent});
    let ids = orphans(&world.dev, [of_session(false), of_session(true)]).await;
    let explained = world.dev.get(&format!("/v1/tasks/{}/explain", ids[1])).await.json();
    let behind = format!("it waits behind {} which is held", ids[0]);
    assert!(explained["unblock"].to_string().contains(&behind), "{explained}");
    assert_eq!(world.dev.get(&format!("/v1/tasks/{}", ids[1])).await.json()["state"], "orphaned");
    // Without a word on what may have run the first is left alone, and the second waits for it.
    let order = json!({"select": {"session_id": "s-1"}, "reason": "look", "rate_per_s": 100});
    let planned = world.dev.post("/v1/replays", order).await.json();
    assert_eq!(planned["total"], 1, "{planned}");
    let path = format!("/v1/replays/{}", planned["replay_id"].as_str().unwrap());
    let shown = loop {
        let shown = world.dev.get(&path).await.json();
        if shown.get("waiting_for").is_some() {
            break shown;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(shown["waiting_for"], json!({"sessions": 1, "reach_id": ids[0]}), "{shown}");
    assert_eq!((&shown["estimate_s"], &shown["pending"]), (&Value::Null, &json!(1)), "{shown}");
    let listed = world.dev.get("/v1/replays").await.json();
    assert_eq!(listed["items"][0]["waiting_for"], shown["waiting_for"], "{listed}");
    // The word on the first lets the line go on: the second is called, by whoever comes first.
    let word = json!({"resolution": "fail", "reason": "it did run"});
    let resolved = world.dev.post(&format!("/v1/tasks/{}/resolve", ids[0]), word).await;
    assert_eq!(resolved.status, 200, "{}", resolved.text);
    loop {
        let ended = world.dev.get(&path).await.json();
        if ended["state"] == "completed" {
            assert!(ended.get("waiting_for").is_none(), "{ended}");
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
