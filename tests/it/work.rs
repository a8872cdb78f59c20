//! The life of a task by pull: claimed, acknowledged, reported on, and everything that can go wrong in between.

use serde_json::{Value, json};

use crate::world::{Client, World};

/// Submits the smallest task; answers its id.
pub(crate) async fn submit(client: &Client, capability: &str, payload: Value) -> String {
    let answer =
        client.post("/v1/tasks", json!({"capability": capability, "payload": payload, "idempotent": true})).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    answer.json()["reach_id"].as_str().unwrap().to_owned()
}

/// Claims one task; answers it.
pub(crate) async fn claim(client: &Client, agent: &str) -> Value {
    let answer =
        client.post(&format!("/v1/agents/{agent}/claim"), json!({"incarnation": 1, "max": 1, "wait_ms": 5000})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["tasks"][0].clone()
}

/// What a report of the claimed task holds, with more fields.
pub(crate) fn report(agent: &str, claimed: &Value, more: Value) -> Value {
    let mut body =
        json!({"agent_id": agent, "incarnation": 1, "attempt": claimed["attempt"], "lease": claimed["lease"]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn path(claimed: &Value, op: &str) -> String {
    format!("/v1/tasks/{}/{op}", claimed["reach_id"].as_str().unwrap())
}

#[tokio::test]
async fn a_whole_life_by_pull_leaves_its_history_and_its_result() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = submit(&world.dev, "text.count", json!({"text": "成都"})).await;
    let task = claim(&world.dev, "w-1").await;
    assert_eq!((task["reach_id"].as_str(), task["attempt"].as_u64()), (Some(&*id), Some(1)));
    assert_eq!(task["payload"], json!({"text": "成都"}));
    let acked = world.dev.post(&path(&task, "ack"), report("w-1", &task, json!({}))).await;
    assert_eq!((acked.status, acked.json()["state"].as_str()), (200, Some("processing")), "{}", acked.text);
    let progress = json!({"stage": "parse", "percent": 40, "data": {"n": 1}});
    let progressed = world.dev.post(&path(&task, "progress"), report("w-1", &task, progress)).await;
    assert_eq!(progressed.status, 200, "{}", progressed.text);
    let done = world
        .dev
        .post(&path(&task, "complete"), report("w-1", &task, json!({"result": {"n": 2}, "usage": {"tokens": 7}})))
        .await;
    assert_eq!((done.status, done.json()["state"].as_str()), (200, Some("succeeded")), "{}", done.text);
    let receipt = done.json()["receipt"].clone();
    assert_eq!(receipt["hash"].as_str().map(str::len), Some(64), "{receipt}");

    let view = world.dev.get(&format!("/v1/tasks/{id}")).await.json();
    for (pointer, value) in [
        ("/state", json!("succeeded")),
        ("/agent_id", json!("w-1")),
        ("/reach_outcome", json!("delivered")),
        ("/work_outcome", json!("succeeded")),
        ("/result", json!({"n": 2})),
        ("/attempt", json!(1)),
        ("/failure", Value::Null),
    ] {
        assert_eq!(view.pointer(pointer), Some(&value), "{pointer} in {view}");
    }
    assert_eq!(world.dev.get(&format!("/v1/tasks/{id}/result")).await.json(), json!({"n": 2}));
    assert_eq!(world.dev.get(&format!("/v1/tasks/{id}/payload")).await.json(), json!({"text": "成都"}));
    let history = world.dev.get(&format!("/v1/tasks/{id}/history")).await.json();
    let kinds: Vec<_> =
        history["events"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["task-submitted", "task-dispatched", "task-acknowledged", "task-progressed", "task-succeeded"]);
    let last = &history["events"][4];
    assert_eq!((&last["seq"], &last["hash"]), (&receipt["seq"], &receipt["hash"]), "the receipt is the event");
    assert_eq!(history["events"][3]["data"], json!({"n": 1}));
    assert_eq!(last["actor"], json!({"kind": "agent", "agent_id": "w-1", "incarnation": 1}));
}

#[tokio::test]
async fn semantics_14_the_same_outcome_twice_has_one_receipt_and_another_is_a_conflict() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    submit(&world.dev, "text.count", json!(1)).await;
    let task = claim(&world.dev, "w-1").await;
    let complete = |result: Value| report("w-1", &task, json!({"result": result}));
    let first = world.dev.post(&path(&task, "complete"), complete(json!({"a": 1, "b": 2}))).await;
    assert_eq!(first.status, 200, "complete while dispatched is ack and outcome in one: {}", first.text);
    let raw = complete(json!({})).to_string().replace("\"result\":{}", "\"result\": {\"b\":2 ,\"a\":1.0}");
    let again = world.dev.post_raw(&path(&task, "complete"), raw).await;
    assert_eq!((again.status, again.json()), (200, first.json()), "another spelling of the same result");
    let other = world.dev.post(&path(&task, "complete"), complete(json!(3))).await;
    other.problem(409, "outcome-conflict");
    let fail = report("w-1", &task, json!({"error": {"code": "x"}}));
    world.dev.post(&path(&task, "fail"), fail).await.problem(409, "outcome-conflict");
}

#[tokio::test]
async fn a_stale_lease_a_wrong_attempt_and_an_ended_task_are_refused_apart() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = submit(&world.dev, "text.count", json!(1)).await;
    let first = claim(&world.dev, "w-1").await;
    let released = world.dev.post(&path(&first, "release"), report("w-1", &first, json!({}))).await;
    assert_eq!((released.status, released.json()["state"].as_str()), (200, Some("queued")), "{}", released.text);
    let second = claim(&world.dev, "w-1").await;
    assert_eq!(second["attempt"], 2);
    world.dev.post(&path(&first, "ack"), report("w-1", &first, json!({}))).await.problem(409, "lease-superseded");
    let mut forged = second.clone();
    forged["lease"] = json!("not-the-lease");
    world.dev.post(&path(&second, "ack"), report("w-1", &forged, json!({}))).await.problem(409, "lease-superseded");
    let cancelled = world.dev.post(&format!("/v1/tasks/{id}/cancel"), json!({"reason": "changed my mind"})).await;
    assert_eq!((cancelled.status, cancelled.json()["state"].as_str()), (200, Some("cancelled")), "{}", cancelled.text);
    let late = world.dev.post(&path(&second, "complete"), report("w-1", &second, json!({"result": 1}))).await;
    let problem = late.problem(409, "task-terminal");
    assert_eq!(problem["state"], "cancelled");
    let text = world.dev.get(&format!("/v1/tasks/{id}/history?format=text")).await.text;
    assert!(text.contains("task-stale-report-refused") && text.contains("changed my mind"), "{text}");
}

#[tokio::test]
async fn a_result_over_a_mebibyte_fails_its_task_once_and_clearly() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = submit(&world.dev, "text.count", json!(1)).await;
    let task = claim(&world.dev, "w-1").await;
    let large = report("w-1", &task, json!({"result": "x".repeat((2 << 20) + 5)}));
    for _ in 0..2 {
        let answer = world.dev.post(&path(&task, "complete"), large.clone()).await;
        assert_eq!(answer.problem(413, "result-too-large")["state"], "failed");
    }
    let view = world.dev.get(&format!("/v1/tasks/{id}")).await.json();
    assert_eq!((&view["state"], &view["failure"]["code"]), (&json!("failed"), &json!("result-too-large")), "{view}");
    assert!(view["failure"]["message"].as_str().unwrap().contains("bytes"), "{view}");
}

#[tokio::test]
async fn a_result_over_a_mebibyte_ends_its_own_task_only_when_it_comes_in_bulk() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let mut reports = Vec::new();
    for size in [2 << 20, 10] {
        submit(&world.dev, "text.count", json!(size)).await;
        let task = claim(&world.dev, "w-1").await;
        assert_eq!(world.dev.post(&path(&task, "ack"), report("w-1", &task, json!({}))).await.status, 200);
        reports.push(json!({"op": "complete", "reach_id": task["reach_id"], "attempt": 1, "lease": task["lease"],
            "result": "x".repeat(size)}));
    }
    let body = json!({"incarnation": 1, "max": 1, "reports": reports});
    let outcomes = world.dev.post("/v1/agents/w-1/claim", body).await.json()["outcomes"].clone();
    assert_eq!((&outcomes[0]["status"], &outcomes[0]["code"]), (&json!(413), &json!("result-too-large")), "{outcomes}");
    assert_eq!((&outcomes[1]["status"], &outcomes[1]["state"]), (&json!(200), &json!("succeeded")), "{outcomes}");
    let repeated =
        world.dev.post("/v1/work/reports", json!({"agent_id": "w-1", "incarnation": 1, "reports": reports})).await;
    assert_eq!(repeated.json()["outcomes"], outcomes, "S6 of reports: the first answers again");
}

#[tokio::test]
async fn a_completion_beyond_reading_says_how_to_end_the_attempt() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = submit(&world.dev, "text.count", json!(1)).await;
    let task = claim(&world.dev, "w-1").await;
    let huge = report("w-1", &task, json!({"result": "x".repeat(5 << 20)}));
    let problem = world.dev.post(&path(&task, "complete"), huge).await.problem(413, "body-too-large");
    assert!(problem["detail"].as_str().unwrap().contains("result-too-large"), "{problem}");
    assert_eq!(world.dev.get(&format!("/v1/tasks/{id}")).await.json()["state"], "dispatched", "the attempt stands");
    let error = json!({"error": {"code": "result-too-large"}});
    assert_eq!(world.dev.post(&path(&task, "fail"), report("w-1", &task, error)).await.json()["state"], "failed");
}

#[tokio::test]
async fn reports_in_bulk_and_inside_a_claim_have_an_outcome_each() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    for n in 0..3 {
        submit(&world.dev, "text.count", json!(n)).await;
    }
    let claimed =
        world.dev.post("/v1/agents/w-1/claim", json!({"incarnation": 1, "max": 3, "wait_ms": 5000})).await.json();
    let tasks = claimed["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 3, "{claimed}");
    let item = |n: usize, op: &str, more: Value| {
        let mut item = json!({"op": op, "reach_id": tasks[n]["reach_id"], "attempt": tasks[n]["attempt"], "lease": tasks[n]["lease"]});
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        item
    };
    let reports = json!([
        item(0, "complete", json!({"result": 1})),
        item(1, "fail", json!({"error": {"code": "broken", "message": "no"}})),
        {"op": "ack", "reach_id": "reach_nonsense", "attempt": 1, "lease": "x"},
        item(2, "complete", json!({"stage": "not its field"})),
    ]);
    let bulk = world
        .dev
        .post("/v1/work/reports", json!({"agent_id": "w-1", "incarnation": 1, "reports": reports}))
        .await
        .json();
    let statuses: Vec<_> = bulk["outcomes"].as_array().unwrap().iter().map(|o| o["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 404, 422], "{bulk}");
    assert_eq!(bulk["outcomes"][3]["problem"]["errors"][0]["pointer"], "/reports/3/stage");
    let inside = json!({"incarnation": 1, "max": 1, "reports": [item(2, "complete", json!({"result": null}))]});
    let claimed = world.dev.post("/v1/agents/w-1/claim", inside).await.json();
    assert_eq!((&claimed["tasks"], &claimed["outcomes"][0]["state"]), (&json!([]), &json!("succeeded")), "{claimed}");
}

#[tokio::test]
async fn semantics_7_a_token_acts_only_as_its_agents() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    submit(&world.dev, "text.count", json!(1)).await;
    let task = claim(&world.dev, "w-1").await;
    let other = world.somebody(json!({"scopes": ["work"], "agents": ["v-*"]})).await;
    let mut body = report("w-1", &task, json!({}));
    other.post(&path(&task, "ack"), body.clone()).await.problem(404, "not-found");
    other.post("/v1/agents/w-1/claim", json!({"incarnation": 1})).await.problem(404, "not-found");
    body["incarnation"] = json!(9);
    let fenced = world.dev.post(&path(&task, "ack"), body).await;
    assert_eq!(fenced.status, 409, "{}", fenced.text);
}

#[tokio::test]
async fn cancel_and_completion_race_and_exactly_one_wins() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    for n in 0..20 {
        let id = submit(&world.dev, "text.count", json!(n)).await;
        let task = claim(&world.dev, "w-1").await;
        let cancel = format!("/v1/tasks/{id}/cancel");
        let complete = path(&task, "complete");
        let (cancelled, completed) = tokio::join!(
            world.dev.post(&cancel, json!({})),
            world.dev.post(&complete, report("w-1", &task, json!({"result": 1}))),
        );
        let state = world.dev.get(&format!("/v1/tasks/{id}")).await.json()["state"].clone();
        match (cancelled.status, completed.status) {
            (200, 409) => assert_eq!(state, "cancelled"),
            (409, 200) => assert_eq!(state, "succeeded"),
            other => panic!("{other:?} and the task is {state}: {} {}", cancelled.text, completed.text),
        }
    }
}

#[tokio::test]
async fn semantics_11_a_capabilitys_rules_hold_for_slow_tasks_that_say_nothing_and_name_their_owner() {
    let world = World::start().await;
    let path = "/v1/policies/capabilities";
    let rules = json!({"capability": "text.count", "slow_reach": {"policy": "hand-over", "after_ms": 200},
        "owner": "text desk", "reason": "it hangs now and then"});
    let set = world.dev.put(path, rules).await;
    assert_eq!((set.status, set.json()["rules"]["owner"].as_str()), (200, Some("text desk")), "{}", set.text);
    let shown = world.dev.get("/v1/policies").await.json();
    assert_eq!(shown["capabilities"]["text.count"]["slow_reach"]["policy"], "hand-over");
    world.dev.register("w-1", "text.count").await;
    let short = json!({"capability": "text.count", "idempotent": true, "work_timeout_ms": 100});
    let id = world.dev.post("/v1/tasks", short).await.json()["reach_id"].as_str().unwrap().to_owned();
    let task = claim(&world.dev, "w-1").await;
    world.dev.post(&self::path(&task, "ack"), report("w-1", &task, json!({}))).await;
    let left =
        async |state: &str| world.dev.get(&format!("/v1/tasks/{id}?wait_ms=9000&unless_state={state}")).await.json();
    let view = left("processing").await;
    assert_eq!((view["state"].as_str(), view["waits"]["owner"].as_str()), (Some("slow-reach"), Some("text desk")));
    let view = left("slow-reach").await;
    assert_eq!(view["state"], "retrying", "handed over by the rule");
    let own = json!({"capability": "text.count", "slow_reach": {"policy": "fail", "after_ms": 1}});
    let own = world.dev.post("/v1/tasks", own).await.json()["reach_id"].as_str().unwrap().to_owned();
    let history = world.dev.get(&format!("/v1/tasks/{own}/history")).await.json();
    assert_eq!(history["events"][0]["slow_reach"]["policy"], "fail", "a task's own word goes before");
    let bare = json!({"capability": "text.count"});
    let bare = world.dev.post("/v1/tasks", bare).await.json()["reach_id"].as_str().unwrap().to_owned();
    let history = world.dev.get(&format!("/v1/tasks/{bare}/history")).await.json();
    assert_eq!(history["events"][0]["slow_reach"]["policy"], "wait", "a hand-over could start it twice");
    for (wrong, pointer) in [
        (json!({"capability": "nodot", "reason": "x"}), "/capability"),
        (json!({"capability": "a.b", "owner": "me", "reason": "x"}), "/owner"),
        (
            json!({"capability": "a.b", "slow_reach": {"policy": "wait", "after_ms": 5}, "reason": "x"}),
            "/slow_reach/after_ms",
        ),
        (json!({"capability": "a.b", "slow_reach": {"policy": "wait"}}), "/reason"),
    ] {
        world.dev.put(path, wrong).await.problem_at(422, "invalid-field", pointer);
    }
}
