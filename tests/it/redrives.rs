//! One ended task made anew, and an operator's word on one that nothing else can decide.

use agent_reach::ledger::time::Millis;
use reqwest::Method;
use serde_json::{Value, json};

use crate::replay_runs::Still;
use crate::replays::{begun, failed, last_seq, orphans, plan, replaced};
use crate::work::{claim, report, submit};
use crate::world::{Answer, World};

#[tokio::test]
async fn semantics_40_a_redriven_task_and_its_successor_name_each_other_and_it_is_done_once() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let first = failed(&world.dev).await;
    let path = format!("/v1/tasks/{first}/redrive");
    let answer = world.dev.post(&path, json!({"reason": "the agent was mended"})).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let redriven = answer.json();
    let second = redriven["reach_id"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("location"), format!("/v1/tasks/{second}"));
    assert_eq!((&redriven["redrive_of"], &redriven["state"]), (&json!(first), &json!("queued")), "{redriven}");
    assert!(redriven["receipt"]["seq"].is_u64(), "{redriven}");
    let get = |id: &str| {
        let (dev, path) = (world.dev.clone(), format!("/v1/tasks/{id}"));
        async move { dev.get(&path).await.json() }
    };
    let (old, new) = (get(&first).await, get(&second).await);
    assert_eq!((&old["state"], &old["redriven_as"]), (&json!("failed"), &json!(second)), "{old}");
    assert_eq!((&new["redrive_of"], &new["redriven_as"]), (&json!(first), &json!(null)), "{new}");
    assert_eq!(world.dev.get(&format!("/v1/tasks/{second}/payload")).await.json(), json!({"n": 1}));
    let again = world.dev.post(&path, json!({"reason": "x"})).await.problem(409, "already-redriven");
    assert_eq!(again["redriven_as"], second);
    for id in [&first, &second] {
        let history = world.dev.get(&format!("/v1/tasks/{id}/history")).await.json();
        let link = history["events"].as_array().unwrap().iter().find(|event| event["kind"] == "task-redriven").cloned();
        let link = link.unwrap_or_else(|| panic!("{history}"));
        assert_eq!((&link["redrive_of"], &link["redriven_as"]), (&json!(first), &json!(second)), "{link}");
    }
    let listed = world.dev.get("/v1/tasks").await.json();
    assert_eq!(
        (&listed["items"][0]["redrive_of"], &listed["items"][1]["redriven_as"]),
        (&json!(first), &json!(second)),
        "{listed}"
    );
    // The second fails too and is made anew: whoever follows comes to the third.
    let task = claim(&world.dev, "f-1").await;
    let fail = report("f-1", &task, json!({"error": {"code": "x"}, "retryable": false}));
    assert_eq!(world.dev.post(&format!("/v1/tasks/{second}/fail"), fail).await.status, 200);
    let third = world.dev.post(&format!("/v1/tasks/{second}/redrive"), json!({"reason": "x"})).await.json();
    for id in [&first, &second] {
        let latest = get(&format!("{id}?follow=latest")).await;
        assert_eq!(latest["reach_id"], third["reach_id"], "{latest}");
    }
    assert_eq!(get(&second).await["redrive_of"], first, "an ended one still says what it was made of");
    world.dev.get(&format!("/v1/tasks/{first}?follow=newest")).await.problem(400, "invalid-query");
}

#[tokio::test]
async fn a_corrected_payload_is_checked_like_a_submissions() {
    let world = World::start().await;
    let body = json!({
        "agent_id": "f-1", "transport": {"kind": "pull"}, "capabilities": [{"capability": "text.count",
            "input_schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}],
    });
    assert_eq!(world.dev.post("/v1/agents", body).await.status, 200);
    let first = failed(&world.dev).await;
    let path = format!("/v1/tasks/{first}/redrive");
    let wrong = world.dev.post(&path, json!({"reason": "x", "payload": {"n": "two"}})).await;
    wrong.problem_at(422, "payload-refused", "/payload/n");
    let large = json!({"reason": "x", "payload": {"n": 1, "x": "y".repeat(1 << 20)}});
    world.dev.post(&path, large).await.problem(413, "body-too-large");
    let right = world.dev.post(&path, json!({"reason": "x", "payload": {"n": 2}})).await;
    assert_eq!(right.status, 202, "{}", right.text);
    let task = claim(&world.dev, "f-1").await;
    assert_eq!((&task["reach_id"], &task["payload"]), (&right.json()["reach_id"], &json!({"n": 2})), "{task}");
    let kept = world.dev.get(&format!("/v1/tasks/{first}/payload")).await.json();
    assert_eq!(kept, json!({"n": 1}), "the first keeps its own");
}

#[tokio::test]
async fn what_can_not_be_made_anew_is_refused_with_the_reason() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let queued = submit(&world.dev, "text.count", json!(1)).await;
    let redrive = |id: &str, body: Value| {
        let (dev, path) = (world.dev.clone(), format!("/v1/tasks/{id}/redrive"));
        async move { dev.post(&path, body).await }
    };
    let refused = redrive(&queued, json!({"reason": "x"})).await.problem(409, "not-redrivable");
    assert_eq!(refused["state"], "queued");
    let task = claim(&world.dev, "f-1").await;
    let done = report("f-1", &task, json!({"result": 1}));
    assert_eq!(world.dev.post(&format!("/v1/tasks/{queued}/complete"), done).await.status, 200);
    redrive(&queued, json!({"reason": "x"})).await.problem(409, "not-redrivable");
    let failed = failed(&world.dev).await;
    for reason in [json!(null), json!(""), json!("x".repeat(1_001)), json!(7)] {
        redrive(&failed, json!({"reason": reason})).await.problem_at(422, "invalid-field", "/reason");
    }
    redrive(&failed, json!({})).await.problem_at(422, "invalid-field", "/reason");
    redrive(&failed, json!({"reason": "x", "payloda": 1})).await.problem_at(422, "unknown-field", "/payloda");
    // Begun, never answered for, and given up by an operator: it may have run.
    world.dev.register("w-1", "text.count").await;
    world.dev.post("/v1/agents/f-1/offline", json!({"incarnation": 1})).await;
    let held = orphans(&world.dev, [json!({"payload": 1})]).await.remove(0);
    let fail = json!({"resolution": "fail", "reason": "nobody needs it"});
    assert_eq!(world.dev.post(&format!("/v1/tasks/{held}/resolve"), fail).await.json()["state"], "dead-letter");
    redrive(&held, json!({"reason": "x"})).await.problem(409, "may-have-run");
    let sure = redrive(&held, json!({"reason": "x", "include_ambiguous": true})).await;
    assert_eq!(sure.status, 202, "{}", sure.text);
}

#[tokio::test]
async fn a_task_that_runs_is_made_anew_by_nobody_and_the_refusal_says_where_it_is() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    dev.register("f-1", "text.count").await;
    let body = json!({"capability": "text.count", "payload": 1, "work_timeout_ms": 100});
    let id = dev.post("/v1/tasks", body).await.json()["reach_id"].as_str().unwrap().to_owned();
    let task = claim(dev, "f-1").await;
    for state in ["dispatched", "processing", "slow-reach"] {
        if state == "processing" {
            let acked = dev.post(&format!("/v1/tasks/{id}/ack"), report("f-1", &task, json!({}))).await;
            assert_eq!(acked.status, 200, "{}", acked.text);
        } else if state == "slow-reach" {
            hub.clock.advance(Millis(100));
            hub.world.nudge();
            dev.get(&format!("/v1/tasks/{id}?wait_ms=20000&unless_state=processing")).await;
        }
        let before = last_seq(dev).await;
        let anew = json!({"reason": "x", "include_ambiguous": true});
        let refused = dev.post(&format!("/v1/tasks/{id}/redrive"), anew).await.problem(409, "not-redrivable");
        assert_eq!(refused["state"], state, "{refused}");
        if state != "slow-reach" {
            let refused = dev.post("/v1/replays", plan(&json!({"reach_ids": [id], "state": [state]}))).await;
            assert_eq!(refused.problem(422, "replay-empty")["skipped"], json!({"held-elsewhere": 1}), "{state}");
            let word = json!({"resolution": "hand-over", "reason": "x"});
            let refused = dev.post(&format!("/v1/tasks/{id}/resolve"), word).await.problem(409, "not-resolvable");
            assert!(refused["detail"].as_str().unwrap().contains(state), "{refused}");
        }
        let view = dev.get(&format!("/v1/tasks/{id}")).await.json();
        assert_eq!((&view["state"], last_seq(dev).await), (&json!(state), before), "a refusal did something: {view}");
    }
    // Its agent has heard nothing of all that: its result is taken.
    let done = dev.post(&format!("/v1/tasks/{id}/complete"), report("f-1", &task, json!({"result": 1}))).await;
    assert_eq!((done.status, &done.json()["state"]), (200, &json!("succeeded")), "{}", done.text);
}

#[tokio::test]
async fn semantics_40_what_is_made_anew_has_all_of_its_attempts_and_its_lifetime_again() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    dev.register("f-1", "text.count").await;
    let body = json!({"capability": "text.count", "payload": 1, "idempotent": true, "lifetime_ms": 60_000,
        "retry": {"max_retries": 1, "base_ms": 100, "cap_ms": 100}});
    let submitted = dev.post("/v1/tasks", body).await.json();
    let mut id = submitted["reach_id"].as_str().unwrap().to_owned();
    for life in 0..2 {
        for attempt in 1..=2 {
            let task = claim(dev, "f-1").await;
            assert_eq!((&task["reach_id"], &task["attempt"]), (&json!(id), &json!(attempt)), "life {life}");
            let fail = report("f-1", &task, json!({"error": {"code": "x"}, "retryable": true}));
            assert_eq!(dev.post(&format!("/v1/tasks/{id}/fail"), fail).await.status, 200);
            hub.until(&id, ["queued", "dead-letter"][attempt - 1]).await;
        }
        let spent = dev.get(&format!("/v1/tasks/{id}")).await.json();
        assert_eq!((&spent["attempt"], &spent["retries_used"]), (&json!(2), &json!(1)), "{spent}");
        hub.clock.advance(Millis(10_000));
        let made = dev.post(&format!("/v1/tasks/{id}/redrive"), json!({"reason": "mended"})).await;
        assert_eq!(made.status, 202, "{}", made.text);
        id = made.json()["reach_id"].as_str().unwrap().to_owned();
        let fresh = dev.get(&format!("/v1/tasks/{id}")).await.json();
        assert_eq!(
            (&fresh["attempt"], &fresh["retries_used"], &fresh["interruptions"]),
            (&json!(0), &json!(0), &json!(0)),
            "{fresh}"
        );
        let moment = |text: &Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
        assert_eq!(moment(&fresh["deadline"]) - moment(&fresh["submitted_at"]), 60_000, "{fresh}");
        assert!(moment(&fresh["deadline"]) - moment(&spent["deadline"]) >= 10_000, "{fresh} after {spent}");
    }
}

#[tokio::test]
async fn r_rec_5_a_held_orphan_goes_on_by_an_operators_word_only() {
    let world = World::start().await;
    let ids = orphans(&world.dev, [json!({"payload": 1}), json!({"payload": 2})]).await;
    let explained = world.dev.get(&format!("/v1/tasks/{}/explain", ids[0])).await.json();
    assert!(explained["unblock"][0].as_str().unwrap().contains("an operator resolves it"), "{explained}");
    let figures = world.dev.get("/metrics").await.text;
    assert!(figures.contains("reach_orphans_held 2\n") && figures.contains("reach_orphans_waiting 0\n"), "{figures}");
    let recovery = world.dev.get("/v1/cluster").await.json()["recovery"].clone();
    assert_eq!((&recovery["orphans_held"], &recovery["phase"]), (&json!(2), &json!("done")), "{recovery}");
    let reader = world.somebody(json!({"scopes": ["read"]})).await;
    assert!(reader.get("/v1/cluster").await.json()["recovery"].is_null(), "one namespace learns nothing of others");
    let resolve = |id: &str, resolution: &str| {
        let body = json!({"resolution": resolution, "reason": "looked at it"});
        world.dev.request(Method::POST, &format!("/v1/tasks/{id}/resolve")).json(&body)
    };
    let waits = Answer::of(resolve(&ids[0], "wait")).await.problem(409, "not-resolvable");
    assert!(waits["detail"].as_str().unwrap().contains("orphaned"), "{waits}");
    let over = Answer::of(resolve(&ids[0], "hand-over")).await;
    assert_eq!((over.status, &over.json()["state"]), (200, &json!("queued")), "{}", over.text);
    assert!(over.json()["receipt"]["seq"].is_u64(), "{}", over.text);
    let given_up = Answer::of(resolve(&ids[1], "fail")).await;
    assert_eq!((given_up.status, &given_up.json()["state"]), (200, &json!("dead-letter")), "{}", given_up.text);
    Answer::of(resolve(&ids[1], "fail")).await.problem(409, "not-resolvable");
    Answer::of(resolve(&ids[1], "forget")).await.problem_at(422, "invalid-field", "/resolution");
    let path = format!("/v1/tasks/{}/resolve", ids[0]);
    world.dev.post(&path, json!({"resolution": "fail"})).await.problem_at(422, "invalid-field", "/reason");
    let history = world.dev.get(&format!("/v1/tasks/{}/history", ids[0])).await.json();
    let word = history["events"].as_array().unwrap().iter().find(|event| event["kind"] == "task-resolved").cloned();
    let word = word.unwrap_or_else(|| panic!("{history}"));
    assert_eq!((&word["resolution"], &word["reason"]), (&json!("hand-over"), &json!("looked at it")), "{word}");
}

#[tokio::test]
async fn r_rec_3_an_orphan_behind_a_newer_success_of_its_session_waits_for_a_word_and_says_why() {
    let world = World::start().await;
    let incarnation = replaced(&world.dev, "w-1").await;
    let of_trip = |n: u32| json!({"payload": n, "idempotent": true, "session_id": "trip-1"});
    let older = begun(&world.dev, "w-1", incarnation, of_trip(1)).await;
    let newer = submit_to(&world, of_trip(2)).await;
    let asked = json!({"incarnation": incarnation, "max": 1, "wait_ms": 5000});
    let task = world.dev.post("/v1/agents/w-1/claim", asked).await.json()["tasks"][0].clone();
    assert_eq!(task["reach_id"], newer, "{task}");
    let mut done = report("w-1", &task, json!({"result": 1}));
    done["incarnation"] = json!(incarnation);
    assert_eq!(world.dev.post(&format!("/v1/tasks/{newer}/complete"), done).await.status, 200);
    let gone = world.dev.post("/v1/agents/w-1/offline", json!({"incarnation": incarnation})).await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    let held = event_of(&world, "task-replay-held").await;
    assert_eq!((&held["reach_id"], &held["reason"]), (&json!(older), &json!("superseded")), "{held}");
    assert_eq!(held["superseded_by"], newer, "{held}");
    let shown = world.dev.get(&format!("/v1/tasks/{older}")).await.json();
    assert_eq!((&shown["state"], &shown["waits"]["superseded_by"]), (&json!("orphaned"), &json!(newer)), "{shown}");
    assert_eq!(shown["waits"]["for"], "agent-or-operator", "{shown}");
    let listed = world.dev.get("/v1/tasks?state=orphaned").await.json();
    assert_eq!(listed["items"][0]["waits"], shown["waits"], "{listed}");
    let explained = world.dev.get(&format!("/v1/tasks/{older}/explain")).await.json();
    assert!(explained["why"].as_str().unwrap().contains(&newer), "{explained}");
    assert!(explained["unblock"][0].as_str().unwrap().contains("an operator resolves it"), "{explained}");
    let figures = world.dev.get("/metrics").await.text;
    assert!(figures.contains("reach_orphans_held 1\n") && figures.contains("reach_orphans_waiting 0\n"), "{figures}");
    // A plan leaves it alone, too, and says so before; a word on the task itself acts.
    let order = |dry_run: bool| {
        let select = json!({"reach_ids": [older]});
        json!({"select": select, "reason": "all of it", "include_ambiguous": true, "dry_run": dry_run})
    };
    let looked = world.dev.post("/v1/replays", order(true)).await.json();
    assert_eq!(looked["would_skip"], json!([{"reason": "superseded", "count": 1}]), "{looked}");
    assert_eq!(looked["sample"][0]["skipped"], "superseded", "{looked}");
    let order = order(false);
    let status = world.dev.get("/v1/status").await.json();
    let expected = json!({"waiting": 0, "held": 1, "superseded": 1, "more": false});
    assert_eq!(status["orphans"], expected, "no plan decides it: {status}");
    assert_eq!(world.dev.post("/v1/replays", order).await.status, 202);
    assert_eq!(event_of(&world, "replay-item-skipped").await["skipped"], "superseded");
    let word = json!({"resolution": "hand-over", "reason": "both are wanted"});
    let over = world.dev.post(&format!("/v1/tasks/{older}/resolve"), word).await;
    assert_eq!((over.status, &over.json()["state"]), (200, &json!("queued")), "{}", over.text);
}

#[tokio::test]
async fn r_rec_3_an_orphan_that_its_policy_holds_says_as_well_that_its_session_has_gone_on() {
    let world = World::start().await;
    let incarnation = replaced(&world.dev, "w-1").await;
    let of_trip = |n: u32| json!({"payload": n, "session_id": "trip-1"});
    let older = begun(&world.dev, "w-1", incarnation, of_trip(1)).await;
    let newer = submit_to(&world, of_trip(2)).await;
    let asked = json!({"incarnation": incarnation, "max": 1, "wait_ms": 5000});
    let task = world.dev.post("/v1/agents/w-1/claim", asked).await.json()["tasks"][0].clone();
    let mut done = report("w-1", &task, json!({"result": 1}));
    done["incarnation"] = json!(incarnation);
    assert_eq!(world.dev.post(&format!("/v1/tasks/{newer}/complete"), done).await.status, 200);
    let gone = world.dev.post("/v1/agents/w-1/offline", json!({"incarnation": incarnation})).await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    let shown = world.dev.get(&format!("/v1/tasks/{older}")).await.json();
    assert_eq!((&shown["state"], &shown["waits"]["superseded_by"]), (&json!("orphaned"), &json!(newer)), "{shown}");
    let listed = world.dev.get("/v1/tasks?state=orphaned").await.json();
    assert_eq!(listed["items"][0]["waits"], shown["waits"], "{listed}");
    let explained = world.dev.get(&format!("/v1/tasks/{older}/explain")).await.json();
    assert!(explained["why"].as_str().unwrap().contains(&newer), "{explained}");
    let remedy = explained["unblock"][0].as_str().unwrap();
    assert!(remedy.contains("an operator resolves it") && !remedy.contains("include_ambiguous"), "{explained}");
}

async fn submit_to(world: &World, mut body: Value) -> String {
    body["capability"] = json!("text.count");
    world.dev.post("/v1/tasks", body).await.json()["reach_id"].as_str().unwrap().to_owned()
}

/// The first event of a kind, as soon as the feed has it.
async fn event_of(world: &World, kind: &str) -> Value {
    let mut after = 0;
    loop {
        let page = world.dev.get(&format!("/v1/events?after={after}&wait_ms=10000")).await;
        let items: Vec<Value> = page.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!items.is_empty(), "{kind} does not come");
        if let Some(found) = items.iter().find(|event| event["kind"] == kind) {
            return found.clone();
        }
        after = items.last().unwrap()["seq"].as_u64().unwrap();
    }
}
