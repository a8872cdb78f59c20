//! Names that nothing bears, in selections and lists: which was probably meant, and what an id is of.

use serde_json::{Value, json};

use crate::failures::dead_letter;
use crate::world::{Client, World};

async fn hints(client: &Client, select: &Value) -> Value {
    let body = json!({"select": select, "include_ambiguous": true, "dry_run": true});
    let answer = client.post("/v1/replays", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["hints"].clone()
}

/// The same id with two letters in the other order.
fn mistyped(id: &str) -> String {
    let mut bytes = id.as_bytes().to_vec();
    let last = bytes.len() - 1;
    let at = (8..last).rev().find(|at| bytes[*at] != bytes[at - 1]).unwrap();
    bytes.swap(at, at - 1);
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_code_a_label_a_session_a_batch_and_an_id_that_nothing_bears_come_with_what_was_meant() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let labels = json!({"line": "travel"});
    let body = json!({"labels": labels, "session_id": "trip-42"});
    let task = dead_letter(&world.dev, body, ["smtp-down", "smtp-down"]).await;
    let batch = json!({"tasks": [{"capability": "text.count", "idempotent": true}]});
    let batch = world.dev.post("/v1/batches", batch).await.json()["batch_id"].as_str().unwrap().to_owned();

    let dead = json!(["dead-letter"]);
    for (name, value, pointer, parameter, meant) in [
        ("failure_code", json!(["smtp-dwn"]), "/select/failure_code", "failure_code=smtp-dwn", "smtp-down"),
        (
            "failure_code",
            json!(["retries-exausted"]),
            "/select/failure_code",
            "failure_code=retries-exausted",
            "retries-exhausted",
        ),
        ("label", json!({"lines": "travel"}), "/select/label/lines", "label=lines:travel", "line"),
        ("label", json!({"line": "travle"}), "/select/label/line", "label=line:travle", "travel"),
        ("session_id", json!("trip-41"), "/select/session_id", "session_id=trip-41", "trip-42"),
        ("batch_id", json!(mistyped(&batch)), "/select/batch_id", &format!("batch_id={}", mistyped(&batch)), &batch),
    ] {
        let mut select = json!({"state": dead});
        select[name] = value;
        let told = hints(&world.dev, &select).await;
        assert_eq!((&told[0]["pointer"], &told[0]["suggestions"]), (&json!(pointer), &json!([meant])), "{told}");
        let refused = world.dev.post("/v1/replays", json!({"select": select, "reason": "x"})).await;
        let problem = refused.problem(422, "replay-empty");
        assert_eq!((&problem["errors"][1]["pointer"], &problem["suggestions"]), (&json!(pointer), &json!([meant])));
        let page = world.dev.get(&format!("/v1/tasks?{parameter}")).await.json();
        assert_eq!(page["items"], json!([]), "{page}");
        let hint = &page["hints"][0];
        let field = parameter.split('=').next().unwrap();
        assert_eq!((&hint["parameter"], &hint["suggestions"]), (&json!(field), &json!([meant])), "{page}");
    }
    // An id of a task is looked for among others that are there.
    let told = hints(&world.dev, &json!({"reach_ids": [task, mistyped(&task)]})).await;
    assert_eq!(told[0]["suggestions"], json!([task]), "{told}");
    assert_eq!(
        (&told[0]["pointer"], &told[0]["detail"]),
        (&json!("/select/reach_ids"), &json!("one of them is no task here"))
    );
    // Where something is found, or a page is not the first, nobody looks.
    let found = world.dev.get("/v1/tasks?failure_code=smtp-down,smtp-dwn").await.json();
    assert_eq!((found["items"].as_array().unwrap().len(), &found["hints"]), (1, &Value::Null), "{found}");
    let none = world.dev.get("/v1/tasks?state=orphaned").await.json();
    assert_eq!(none["hints"], Value::Null, "nothing is named: {none}");
    let offered = world.dev.get("/v1/tasks?capability=text.cuont&agent_id=f-2").await.json();
    assert_eq!(offered["hints"][0]["suggestions"], json!(["text.count"]), "{offered}");
    assert_eq!(offered["hints"][1]["suggestions"], json!(["f-1"]), "{offered}");
}

#[tokio::test]
async fn semantics_39_a_name_is_suggested_to_those_alone_who_may_see_a_task_that_bears_it() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    dead_letter(&world.dev, json!({}), ["smtp-down", "smtp-down"]).await;
    let blind = world.somebody(json!({"scopes": ["operate"]})).await;
    let limited = json!({"scopes": ["operate", "read"], "capabilities": ["mail.send"]});
    let limited = world.somebody(limited).await;
    for (client, select) in [
        (&blind, json!({"state": ["dead-letter"], "failure_code": ["smtp-dwn"]})),
        (&limited, json!({"state": ["dead-letter"], "failure_code": ["smtp-dwn"], "capability": "mail.send"})),
    ] {
        let told = hints(client, &select).await;
        let hint = told.as_array().unwrap().iter().find(|hint| hint["pointer"] == "/select/failure_code").unwrap();
        assert_eq!((&hint["suggestions"], &hint["not_permitted"]), (&json!([]), &json!(1)), "{told}");
    }
    let elsewhere = world.somebody_in("other", json!({"scopes": ["operate", "read"]})).await;
    let told = hints(&elsewhere, &json!({"state": ["dead-letter"], "failure_code": ["smtp-dwn"]})).await;
    assert_eq!((&told[0]["suggestions"], &told[0]["not_permitted"]), (&json!([]), &Value::Null), "{told}");
}

#[tokio::test]
async fn an_id_of_another_kind_is_told_as_what_it_is_wherever_it_is_named() {
    let world = World::start().await;
    let ids = ["reach", "batch", "replay"].map(|kind| format!("{kind}_01h455vb4pex5vsknk084sn02q"));
    let [task, batch, plan] = &ids;
    let of = |kind: &str| format!("this is the id of a {kind}");
    for (select, pointer, kind) in [
        (json!({"reach_ids": [task, plan]}), "/select/reach_ids/1", "replay plan"),
        (json!({"reach_ids": [batch]}), "/select/reach_ids/0", "batch"),
        (json!({"batch_id": task}), "/select/batch_id", "task"),
    ] {
        let refused = world.dev.post("/v1/replays", json!({"select": select, "reason": "x"})).await;
        refused.problem_at(422, "invalid-field", pointer);
        assert!(refused.text.contains(&of(kind)), "{}", refused.text);
    }
    let listed = world.dev.get(&format!("/v1/tasks?batch_id={task}")).await;
    let detail = listed.problem(400, "invalid-query")["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(&of("task")) && !detail.contains("expected expected"), "{detail}");
    for (path, kind) in [
        (format!("/v1/tasks/{plan}"), "replay plan"),
        (format!("/v1/tasks/{batch}/history"), "batch"),
        (format!("/v1/replays/{task}"), "task"),
        (format!("/v1/batches/{plan}"), "replay plan"),
        (format!("/v1/agents/{task}"), "task"),
    ] {
        let detail = world.dev.get(&path).await.problem(404, "not-found")["detail"].as_str().unwrap().to_owned();
        assert!(detail.ends_with(&format!(": that is the id of a {kind}")), "{path}: {detail}");
    }
    let absent = world.dev.get(&format!("/v1/tasks/{task}")).await.problem(404, "not-found");
    assert!(absent["detail"].as_str().unwrap().ends_with("here"), "{absent}");
    for (select, kind) in [(json!({"agent_id": task}), "task"), (json!({"session_id": batch}), "batch")] {
        let told = hints(&world.dev, &select).await;
        assert!(told[0]["detail"].as_str().unwrap().ends_with(&format!("; that is the id of a {kind}")), "{told}");
    }
}
