//! How an agent goes, and what becomes of what it held: the cause that the ledger keeps, and what a drain tells it
//! (semantics 2, 5, 6 and 40).

use agent_reach::ledger::time::Millis;
use reqwest::Method;
use serde_json::{Value, json};

use crate::fleet::{enlist, events};
use crate::replay_runs::Still;
use crate::replays::{begun, replaced};
use crate::work::submit;
use crate::world::{Answer, Client};

/// The event of that kind in the task's history.
async fn of_history(client: &Client, id: &str, kind: &str) -> Value {
    let history = client.get(&format!("/v1/tasks/{id}/history")).await.json();
    let found = history["events"].as_array().unwrap().iter().find(|event| event["kind"] == kind).cloned();
    found.unwrap_or_else(|| panic!("no {kind} in {history}"))
}

/// What the hub answers to the agent's heartbeat.
async fn beat(client: &Client, agent: &str, body: Value) -> Value {
    let answer = client.post(&format!("/v1/agents/{agent}/heartbeat"), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

#[tokio::test]
async fn r_rec_2_a_history_says_whether_its_agent_was_lost_left_was_replaced_or_was_drained() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    let mut held = Vec::new();
    for agent in ["silent", "polite", "replaced", "drained"] {
        // One after the other, so that each gets its own.
        let incarnation =
            if agent == "silent" { enlist(dev, agent, (250, 1)).await } else { replaced(dev, agent).await };
        held.push(begun(dev, agent, incarnation, json!({"payload": 1, "orphan": "hold"})).await);
        let gone = match agent {
            "polite" => dev.post("/v1/agents/polite/offline", json!({"incarnation": incarnation})).await.status,
            "replaced" => {
                replaced(dev, agent).await;
                dev.post("/v1/agents/replaced/offline", json!({"incarnation": incarnation + 1})).await.status
            }
            "drained" => dev.post("/v1/agents/drained/drain", json!({"mode": "hand-over"})).await.status,
            _ => {
                hub.until(&held[0], "orphaned").await;
                200
            }
        };
        assert_eq!(gone, 200, "{agent}");
    }
    for (id, cause) in held.iter().zip(["agent-lost", "agent-left", "agent-replaced", "agent-drained"]) {
        let orphaned = of_history(dev, id, "task-orphaned").await;
        assert_eq!((&orphaned["cause"], &orphaned["attempt"]), (&json!(cause), &json!(1)), "{orphaned}");
        let view = dev.get(&format!("/v1/tasks/{id}")).await.json();
        let interruptions = u64::from(cause == "agent-lost");
        assert_eq!((&view["state"], &view["interruptions"]), (&json!("orphaned"), &json!(interruptions)), "{view}");
    }
}

#[tokio::test]
async fn r_reg_7_a_drain_without_a_word_lets_work_finish_for_thirty_seconds_and_its_notice_says_until_when() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    let holder = replaced(dev, "holder").await;
    let finishes = begun(dev, "holder", holder, json!({"payload": 1})).await;
    let called_off = begun(dev, "holder", holder, json!({"payload": 2})).await;
    let stays = begun(dev, "holder", holder, json!({"payload": 3, "idempotent": true})).await;
    let listed = |ids: &[&String]| {
        let held: Vec<Value> = ids.iter().map(|id| json!({"reach_id": id, "attempt": 1})).collect();
        json!({"incarnation": holder, "held": held})
    };
    let all = [&finishes, &called_off, &stays];
    assert_eq!(beat(dev, "holder", listed(&all)).await, json!({"drain": null, "cancelled": [], "lost": []}));
    let drained = Answer::of(dev.request(Method::POST, "/v1/agents/holder/drain")).await;
    assert_eq!((drained.status, &drained.json()["standing"]), (200, &json!("draining")), "{}", drained.text);
    let since = events(&hub.world, 0).await.into_iter().find(|event| event["kind"] == "agent-draining").unwrap();
    let moment = |text: &Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let told = beat(dev, "holder", listed(&all)).await;
    assert_eq!(moment(&told["drain"]["until"]) - moment(&since["at"]), 30_000, "{told} after {since}");
    assert_eq!(since["mode"], "finish", "{since}");
    submit(dev, "text.count", json!("not for it")).await;
    let claim = json!({"incarnation": holder, "max": 1, "wait_ms": 0});
    let given = dev.post("/v1/agents/holder/claim", claim).await.json();
    assert_eq!(given, json!({"tasks": []}), "no new work");

    assert_eq!(dev.post(&format!("/v1/tasks/{called_off}/cancel"), json!({})).await.status, 200);
    let strange = "reach_01h455vb4pex5vsknk084sn02q".to_owned();
    let told = beat(dev, "holder", listed(&[&finishes, &called_off, &stays, &strange])).await;
    assert_eq!(told["cancelled"], json!([{"reach_id": called_off, "attempt": 1}]), "{told}");
    assert_eq!(told["lost"], json!([{"reach_id": strange, "attempt": 1}]), "{told}");
    assert!(told["drain"]["until"].is_string(), "{told}");
    // Its last grain of time: it still works, and then it is out and what was left is an orphan.
    for _ in 0..119 {
        hub.clock.advance(Millis(250));
        beat(dev, "holder", listed(&[&finishes, &stays])).await;
    }
    hub.clock.advance(Millis(249));
    assert!(beat(dev, "holder", listed(&[&finishes, &stays])).await["drain"]["until"].is_string());
    hub.clock.advance(Millis(1));
    hub.world.nudge();
    let left = dev.get(&format!("/v1/tasks/{stays}?wait_ms=20000&unless_state=processing")).await.json();
    assert!(left["state"] == "orphaned" || left["state"] == "queued", "{left}");
    let orphaned = of_history(dev, &stays, "task-orphaned").await;
    assert_eq!(moment(&orphaned["at"]) - moment(&since["at"]), 30_000, "{orphaned}");
    let view = dev.get("/v1/agents/holder").await.json();
    assert_eq!(view["standing"], "deregistered", "{view}");
}

#[tokio::test]
async fn semantics_5_a_heartbeat_that_names_an_orphan_of_its_own_takes_it_back_and_one_of_another_process_does_not() {
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    let holder = enlist(dev, "holder", (250, 10)).await;
    let id = begun(dev, "holder", holder, json!({"payload": 1, "orphan": "hold"})).await;
    hub.until(&id, "orphaned").await;
    let held = json!([{"reach_id": id, "attempt": 1}]);
    let told = beat(dev, "holder", json!({"incarnation": holder, "held": held})).await;
    assert_eq!(told, json!({"drain": null, "cancelled": [], "lost": []}));
    let reclaimed = of_history(dev, &id, "task-reclaimed").await;
    assert_eq!(reclaimed["attempt"], 1, "{reclaimed}");
    assert_eq!(dev.get(&format!("/v1/tasks/{id}")).await.json()["state"], "processing");
    // Another process of it has taken nothing over: it names what it may finish, and that stays an orphan.
    let next = enlist(dev, "holder", (250, 10)).await;
    assert!(next > holder);
    let told = beat(dev, "holder", json!({"incarnation": next, "held": held})).await;
    assert_eq!(told, json!({"drain": null, "cancelled": [], "lost": []}));
    assert_eq!(dev.get(&format!("/v1/tasks/{id}")).await.json()["state"], "orphaned");
}
