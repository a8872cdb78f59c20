//! What operators ask after an incident by what failed: the hub's own code of an end, and the agents' of the attempts.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::patches::{ended, planned};
use crate::replays::{failed, orphans, replaced};
use crate::work::{claim, report};
use crate::world::{Client, World};

/// Submits a task that may be tried twice; answers its id.
pub(crate) async fn tried_twice(client: &Client, mut body: Value) -> String {
    body["capability"] = json!("text.count");
    body["idempotent"] = json!(true);
    body["retry"] = json!({"max_retries": 1, "base_ms": 1, "cap_ms": 1});
    let answer = client.post("/v1/tasks", body).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    answer.json()["reach_id"].as_str().unwrap().to_owned()
}

/// The agent gets the next task and fails it with that code.
pub(crate) async fn fails(client: &Client, code: &str) -> Value {
    let task = claim(client, "f-1").await;
    let error = json!({"code": code, "message": format!("{code} it said")});
    let fail = report("f-1", &task, json!({"error": error, "retryable": true}));
    let path = format!("/v1/tasks/{}/fail", task["reach_id"].as_str().unwrap_or_else(|| panic!("{task}")));
    let answer = client.post(&path, fail).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// A dead letter whose attempts failed with these codes.
pub(crate) async fn dead_letter(client: &Client, body: Value, codes: [&str; 2]) -> String {
    let id = tried_twice(client, body).await;
    fails(client, codes[0]).await;
    assert_eq!(fails(client, codes[1]).await["state"], "dead-letter");
    id
}

async fn picked(client: &Client, select: Value) -> (Value, BTreeSet<String>) {
    let answer = client.post("/v1/replays", json!({"select": select, "dry_run": true})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let found = answer.json();
    let ids = found["sample"].as_array().unwrap().iter().map(|item| item["reach_id"].as_str().unwrap().to_owned());
    (found.clone(), ids.collect())
}

async fn listed(client: &Client, query: &str) -> BTreeSet<String> {
    let answer = client.get(&format!("/v1/tasks?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let items = answer.json()["items"].as_array().unwrap().clone();
    items.iter().map(|task| task["reach_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_dead_letter_is_found_by_its_own_code_and_by_that_of_its_last_attempt() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let row = dead_letter(&world.dev, json!({}), ["smtp-slow", "smtp-down"]).await;
    // Nobody listens there, so this one stays in memory.
    let callback = json!({"url": "http://127.0.0.1:40009/hook"});
    let live = dead_letter(&world.dev, json!({"callback": callback}), ["smtp-slow", "smtp-down"]).await;
    let other = dead_letter(&world.dev, json!({}), ["smtp-down", "smtp-full"]).await;
    let cancelled = tried_twice(&world.dev, json!({})).await;
    fails(&world.dev, "smtp-down").await;
    assert_eq!(world.dev.post(&format!("/v1/tasks/{cancelled}/cancel"), json!({})).await.status, 200);

    let both = BTreeSet::from([row.clone(), live.clone()]);
    let dead = json!(["dead-letter"]);
    let (found, ids) = picked(&world.dev, json!({"state": dead, "failure_code": ["smtp-down"]})).await;
    assert_eq!((&found["total"], &ids), (&json!(2), &both), "{found}");
    let (found, ids) = picked(&world.dev, json!({"state": dead, "failure_code": ["retries-exhausted"]})).await;
    assert_eq!(ids, both.iter().cloned().chain([other.clone()]).collect(), "{found}");
    let (found, _) = picked(&world.dev, json!({"state": dead, "failure_code": ["smtp-slow"]})).await;
    assert_eq!(found["total"], 0, "that was an attempt before the last: {found}");
    let named = json!({"reach_ids": [row, other], "failure_code": ["smtp-full"]});
    let (found, ids) = picked(&world.dev, named).await;
    let left_alone = json!([{"reason": "not-applicable", "count": 1}]);
    assert_eq!((&found["skipped"], &ids), (&left_alone, &BTreeSet::from([other.clone()])), "{found}");

    let all: BTreeSet<String> = [&row, &live, &cancelled].into_iter().cloned().collect();
    assert_eq!(listed(&world.dev, "failure_code=smtp-down").await, all);
    assert_eq!(listed(&world.dev, "failure_code=smtp-down,smtp-full&state=dead-letter").await.len(), 3);
    assert_eq!(listed(&world.dev, "failure_code=retries-exhausted,cancelled").await.len(), 4);
    assert!(listed(&world.dev, "failure_code=smtp-slow").await.is_empty());
    let many = vec!["x"; 51].join(",");
    for wrong in ["", ",", "a,,b", &many, &"y".repeat(129)] {
        world.dev.get(&format!("/v1/tasks?failure_code={wrong}")).await.problem(400, "invalid-query");
    }
    // Page by page, over what is in memory and what is not.
    let mut seen = BTreeSet::new();
    let mut cursor = String::new();
    for _ in 0..20 {
        let page = world.dev.get(&format!("/v1/tasks?failure_code=smtp-down&limit=1{cursor}")).await.json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|task| task["reach_id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, all);
}

#[tokio::test]
async fn a_class_is_found_the_same_way_however_long_before_the_end_the_attempt_failed() {
    let world = World::start().await;
    let incarnation = replaced(&world.dev, "f-1").await;
    let id = tried_twice(&world.dev, json!({"orphan": "hold"})).await;
    let next = || {
        let asked = json!({"incarnation": incarnation, "max": 1, "wait_ms": 5000});
        let dev = world.dev.clone();
        async move { dev.post("/v1/agents/f-1/claim", asked).await.json()["tasks"][0].clone() }
    };
    let of = |task: &Value, more: Value| {
        let mut body = report("f-1", task, more);
        body["incarnation"] = json!(incarnation);
        body
    };
    let task = next().await;
    let fail = of(&task, json!({"error": {"code": "smtp-down"}, "retryable": true}));
    assert_eq!(world.dev.post(&format!("/v1/tasks/{id}/fail"), fail).await.status, 200);
    let task = next().await;
    assert_eq!(world.dev.post(&format!("/v1/tasks/{id}/ack"), of(&task, json!({}))).await.status, 200);
    replaced(&world.dev, "f-1").await;
    let word = json!({"resolution": "fail", "reason": "nobody needs it"});
    let given_up = world.dev.post(&format!("/v1/tasks/{id}/resolve"), word).await;
    assert_eq!((given_up.status, &given_up.json()["state"]), (200, &json!("dead-letter")), "{}", given_up.text);
    let only = BTreeSet::from([id]);
    for narrowed in ["failure_class=agent-crash", "failure_class=business", "failure_code=smtp-down"] {
        assert_eq!(listed(&world.dev, narrowed).await, only, "{narrowed}");
    }
    let select = json!({"state": ["dead-letter"], "failure_class": ["business"], "failure_code": ["smtp-down"]});
    let body = json!({"select": select, "include_ambiguous": true, "dry_run": true});
    let found = world.dev.post("/v1/replays", body).await.json();
    assert_eq!((&found["total"], &found["by_failure_class"]), (&json!(1), &json!({"agent-crash": 1})), "{found}");
    assert!(listed(&world.dev, "failure_class=network").await.is_empty());
}

/// One failure more of a task that fails for good.
async fn fails_for_good(client: &Client) {
    let task = claim(client, "f-1").await;
    let fail = report("f-1", &task, json!({"error": {"code": "x"}, "retryable": false}));
    let path = format!("/v1/tasks/{}/fail", task["reach_id"].as_str().unwrap_or_else(|| panic!("{task}")));
    assert_eq!(client.post(&path, fail).await.status, 200);
}

/// A plan over that one task, when it is through; the plan's id, and the task that was made.
async fn anew_by_plan(client: &Client, task: &str, mut body: Value) -> (String, String) {
    (body["select"], body["reason"]) = (json!({"reach_ids": [task]}), json!("n was wrong"));
    let (path, _) = planned(client, body).await;
    let view = ended(client, &path).await;
    let items = client.get(&format!("{path}/items")).await.json();
    let made = items["items"][0]["redriven_as"].as_str().unwrap_or_else(|| panic!("{items}")).to_owned();
    (view["replay_id"].as_str().unwrap().to_owned(), made)
}

#[tokio::test]
async fn semantics_40_a_task_that_was_made_anew_says_of_what_by_whom_why_and_with_which_payload() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let operator = world.somebody(json!({"scopes": ["operate", "read", "audit"]})).await;
    let first = failed(&world.dev).await;
    let order = json!({"reason": "the agent was mended", "payload": {"n": 2}});
    let second = operator.post(&format!("/v1/tasks/{first}/redrive"), order).await.json()["reach_id"].clone();
    let second = second.as_str().unwrap().to_owned();
    fails_for_good(&world.dev).await;
    let (patching, third) = anew_by_plan(&operator, &second, json!({"payload_patch": {"n": 3}})).await;
    fails_for_good(&world.dev).await;
    let (plain, fourth) = anew_by_plan(&operator, &third, json!({})).await;

    let shown = |id: &str| {
        let (dev, path) = (world.dev.clone(), format!("/v1/tasks/{id}"));
        async move { dev.get(&path).await.json()["redrive"].clone() }
    };
    assert_eq!(shown(&first).await, Value::Null);
    for (task, of, plan, reason, payload) in [
        (&second, &first, None, "the agent was mended", "replaced"),
        (&third, &second, Some(&patching), "n was wrong", "patched"),
        (&fourth, &third, Some(&plain), "n was wrong", "kept"),
    ] {
        let redrive = shown(task).await;
        assert_eq!((&redrive["of"], &redrive["payload"]), (&json!(of), &json!(payload)), "{redrive}");
        assert_eq!((&redrive["reason"], &redrive["by"]["name"]), (&json!(reason), &json!("somebody")), "{redrive}");
        assert_eq!((&redrive["replay_id"], redrive["at"].is_string()), (&json!(plan), true), "{redrive}");
        let payload = match payload {
            "replaced" => ", with another payload",
            "patched" => ", its payload patched",
            _ => "",
        };
        let by = plan.map_or_else(String::new, |plan| format!(" by {plan} of somebody"));
        let how = format!("{by}{payload}: {reason}");
        let text = |id: &str| {
            let (dev, path) = (world.dev.clone(), format!("/v1/tasks/{id}/history?format=text"));
            async move { dev.get(&path).await.text }
        };
        let told = text(task).await;
        assert!(told.contains(&format!("made of {of}{how}\n")) && !told.contains(&format!("anew as {task}")), "{told}");
        let told = text(of).await;
        assert!(told.contains(&format!("made anew as {task}{how}\n")), "{told}");
    }
    let listed = world.dev.get("/v1/tasks").await.text;
    assert!(!listed.contains("\"redrive\":"), "{listed}");
}

#[tokio::test]
async fn explain_says_why_a_task_was_given_up_in_its_agents_words_and_what_to_do_about_it() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let explained = |id: &str| {
        let (dev, path) = (world.dev.clone(), format!("/v1/tasks/{id}/explain"));
        async move { dev.get(&path).await.json() }
    };
    let dead = dead_letter(&world.dev, json!({}), ["smtp-slow", "smtp-down"]).await;
    let told = explained(&dead).await;
    let why = told["why"].as_str().unwrap();
    assert!(
        why.contains("retries-exhausted (business); attempt 2 failed: smtp-down (business): smtp-down it said"),
        "{told}"
    );
    let unblock = told["unblock"].to_string();
    for command in [
        format!("`reach tasks redrive {dead} --reason WHY`"),
        format!("`reach tasks redrive {dead} --payload JSON --reason WHY`"),
        "`reach replay plan --state dead-letter --capability text.count --failure-code smtp-down --dry-run`".to_owned(),
    ] {
        assert!(unblock.contains(&command), "{command} in {told}");
    }
    let anew = world.dev.post(&format!("/v1/tasks/{dead}/redrive"), json!({"reason": "x"})).await.json();
    let anew = anew["reach_id"].as_str().unwrap();
    let told = explained(&dead).await;
    assert!(told["unblock"][0].as_str().unwrap().contains(&format!("made anew as {anew}")), "{told}");
    assert_eq!(told["unblock"].as_array().unwrap().len(), 1, "{told}");
    // What fails for good has one message, its own.
    let task = claim(&world.dev, "f-1").await;
    let error = json!({"code": "no-such-host", "message": "mail-9 is unknown"});
    let fail = report("f-1", &task, json!({"error": error, "retryable": false}));
    assert_eq!(world.dev.post(&format!("/v1/tasks/{anew}/fail"), fail).await.status, 200);
    let told = explained(anew).await;
    let why = told["why"].as_str().unwrap();
    assert!(why.ends_with("no-such-host (business): mail-9 is unknown") && why.starts_with("it is failed"), "{told}");
    // What may have run takes a word more.
    world.dev.post("/v1/agents/f-1/offline", json!({"incarnation": 1})).await;
    let held = orphans(&world.dev, [json!({"payload": 1})]).await.remove(0);
    let fail = json!({"resolution": "fail", "reason": "nobody needs it"});
    assert_eq!(world.dev.post(&format!("/v1/tasks/{held}/resolve"), fail).await.status, 200);
    let told = explained(&held).await;
    assert!(
        told["unblock"].to_string().contains(&format!("redrive {held} --include-ambiguous --reason WHY")),
        "{told}"
    );
}

#[tokio::test]
async fn r_rec_3_explain_does_not_advise_to_redrive_what_a_newer_task_of_its_session_has_overtaken() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let older = dead_letter(&world.dev, json!({"session_id": "trip-1"}), ["x", "x"]).await;
    let newer = tried_twice(&world.dev, json!({"session_id": "trip-1"})).await;
    let task = claim(&world.dev, "f-1").await;
    let done = world.dev.post(&format!("/v1/tasks/{newer}/complete"), report("f-1", &task, json!({"result": 1}))).await;
    assert_eq!(done.status, 200, "{}", done.text);
    world.dev.post(&format!("/v1/tasks/{older}/redrive"), json!({"reason": "x"})).await.problem(409, "superseded");
    let alone = dead_letter(&world.dev, json!({}), ["x", "x"]).await;
    let dry = json!({"select": {"reach_ids": [older, alone]}, "dry_run": true});
    let looked = world.dev.post("/v1/replays", dry).await.json();
    assert_eq!((&looked["total"], &looked["would_skip"]), (&json!(2), &json!([{"reason": "superseded", "count": 1}])));
    let told = world.dev.get(&format!("/v1/tasks/{older}/explain")).await.json();
    let unblock = told["unblock"].to_string();
    assert!(unblock.contains(&newer) && !unblock.contains("reach tasks redrive"), "{told}");
}

#[tokio::test]
async fn a_dry_run_counts_by_code_the_most_frequent_first_and_only_for_those_who_may_read() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    for n in 0..24 {
        // The first code is that of three, every other one of a single task.
        let code = if n < 3 { "smtp-down".to_owned() } else { format!("code-{n}") };
        dead_letter(&world.dev, json!({}), [&code, &code]).await;
    }
    let body = json!({"select": {"state": ["dead-letter"]}, "dry_run": true});
    let found = world.dev.post("/v1/replays", body.clone()).await.json();
    let codes = found["by_failure_code"].as_object().unwrap();
    assert_eq!(
        (codes.len(), &codes["smtp-down"], &found["other_failure_codes"]),
        (20, &json!(3), &json!(2)),
        "{found}"
    );
    let told: u64 = codes.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(told + 2, found["total"].as_u64().unwrap(), "{found}");
    let blind = world.somebody(json!({"scopes": ["operate"]})).await.post("/v1/replays", body).await.json();
    assert_eq!((&blind["total"], &blind["by_failure_code"]), (&json!(24), &Value::Null), "{blind}");
}
