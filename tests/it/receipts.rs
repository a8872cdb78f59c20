//! Semantics 25: every change that was taken is answered with its place in the ledger and the hash of its event.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::api::openapi;
use reqwest::Method;
use serde_json::{Value, json};

use crate::access::filled;
use crate::callbacks::{Receiver, call_back, until_listed};
use crate::replays::{orphans, plan};
use crate::work::{claim, report, submit};
use crate::world::{Answer, World, registration};

/// Calls without a receipt of their own: what changes nothing in the ledger, or is volatile. A claim gives one for each
/// report that it carries.
const WITHOUT: [&str; 6] = [
    "post /v1/route/explain",
    "post /v1/agents/{agent_id}/heartbeat",
    "post /v1/agents/{agent_id}/claim",
    "post /v1/callback-secrets",
    "post /v1/callback-secrets/{name}/rotate",
    "delete /v1/callback-secrets/{name}",
];

/// Makes calls, and keeps the receipts.
struct Clerk {
    world: World,
    called: BTreeSet<String>,
    receipts: BTreeMap<u64, Value>,
}

impl Clerk {
    /// One call, as `method template`, with what its braces stand for; it is taken and has its receipt.
    async fn call(&mut self, call: &str, id: &str, body: Value) -> Value {
        let (method, template) = call.split_once(' ').unwrap();
        let mut path = template.to_owned();
        if let (Some(from), Some(to)) = (template.find('{'), template.find('}')) {
            path.replace_range(from..=to, id);
        }
        let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let built = self.world.dev.request(verb, &filled(&path));
        let answer = Answer::of(if body.is_null() { built } else { built.json(&body) }).await;
        assert!((200..300).contains(&answer.status), "{call}: {} {}", answer.status, answer.text);
        let answer = answer.json();
        match answer["outcomes"].as_array() {
            Some(outcomes) => {
                assert!(!outcomes.is_empty(), "{call}: {answer}");
                outcomes.iter().for_each(|outcome| self.keep(call, outcome));
            }
            None => self.keep(call, &answer),
        }
        self.called.insert(call.to_owned());
        answer
    }

    fn keep(&mut self, call: &str, answer: &Value) {
        let receipt = answer["receipt"].clone();
        assert_eq!(receipt["hash"].as_str().map(str::len), Some(64), "{call}: {answer}");
        let seq = receipt["seq"].as_u64().unwrap_or_else(|| panic!("{call}: {answer}"));
        self.receipts.insert(seq, receipt["hash"].clone());
    }

    async fn agents(&mut self) {
        self.call("post /v1/agents", "", registration("w-1", "text.count")).await;
        // `filled` names the capability.
        self.world.dev.register("b-1", "a.b").await;
        let held = json!({"state": "open", "reason": "test"});
        self.call("put /v1/agents/{agent_id}/breakers/{capability}", "b-1", held).await;
        self.world.dev.register("idle-1", "idle.work").await;
        self.call("post /v1/agents/{agent_id}/offline", "idle-1", json!({"incarnation": 1})).await;
        self.world.dev.register("idle-2", "idle.work").await;
        self.call("post /v1/agents/{agent_id}/drain", "idle-2", json!({"reason": "test"})).await;
        self.world.dev.register("idle-3", "idle.work").await;
        self.call("delete /v1/agents/{agent_id}", "idle-3", Value::Null).await;
    }

    async fn reports(&mut self) {
        let submitted = self.call("post /v1/tasks", "", json!({"capability": "text.count", "idempotent": true})).await;
        let id = submitted["reach_id"].as_str().unwrap().to_owned();
        let task = claim(&self.world.dev, "w-1").await;
        self.call("post /v1/tasks/{reach_id}/ack", &id, report("w-1", &task, json!({}))).await;
        let stage = report("w-1", &task, json!({"stage": "half"}));
        self.call("post /v1/tasks/{reach_id}/progress", &id, stage).await;
        self.call("post /v1/tasks/{reach_id}/release", &id, report("w-1", &task, json!({}))).await;
        let task = claim(&self.world.dev, "w-1").await;
        self.call("post /v1/tasks/{reach_id}/complete", &id, report("w-1", &task, json!({"result": 1}))).await;

        let id = submit(&self.world.dev, "text.count", json!(1)).await;
        let task = claim(&self.world.dev, "w-1").await;
        let fail = json!({"error": {"code": "x"}, "retryable": false});
        self.call("post /v1/tasks/{reach_id}/fail", &id, report("w-1", &task, fail)).await;
        self.call("post /v1/tasks/{reach_id}/redrive", &id, json!({"reason": "test"})).await;

        let task = claim(&self.world.dev, "w-1").await;
        let said = |op: &str| json!({"op": op, "reach_id": task["reach_id"], "attempt": 1, "lease": task["lease"]});
        let bulk = json!({"agent_id": "w-1", "incarnation": 1, "reports": [said("ack"), said("complete")]});
        let outcomes = self.call("post /v1/work/reports", "", bulk).await;
        assert_eq!(outcomes["outcomes"].as_array().map(Vec::len), Some(2));
        let carried = json!({"incarnation": 1, "wait_ms": 0, "reports": [said("complete")]});
        let claimed = self.world.dev.post("/v1/agents/w-1/claim", carried).await.json();
        assert_eq!(claimed["outcomes"][0]["receipt"], outcomes["outcomes"][1]["receipt"], "a repeat: {claimed}");

        let items = json!({"tasks": [{"capability": "text.count"}, {"capability": "text.count"}]});
        let batch = self.call("post /v1/batches", "", items).await;
        let again = self.world.dev.get(&format!("/v1/batches/{}", batch["batch_id"].as_str().unwrap())).await.json();
        assert_eq!(again["outcomes"], batch["outcomes"], "and whenever it is looked at");
        let first = batch["outcomes"][0]["reach_id"].as_str().unwrap().to_owned();
        let begun = self.world.dev.get(&format!("/v1/tasks/{first}/history")).await.json()["events"][0].clone();
        assert_eq!((&begun["kind"], begun["hash"].as_str().map(str::len)), (&json!("task-submitted"), Some(64)));
        self.call("post /v1/tasks/{reach_id}/cancel", &first, json!({})).await;
        let second = batch["outcomes"][1]["reach_id"].as_str().unwrap().to_owned();
        self.world.dev.post(&format!("/v1/tasks/{second}/cancel"), json!({})).await;
    }

    async fn operators(&mut self) {
        let offer = json!([{"capability": "pay.out", "sensitive": true}]);
        let body = json!({"agent_id": "p-1", "transport": {"kind": "pull"}, "capabilities": offer});
        self.call("post /v1/agents", "", body).await;
        let held = self.call("post /v1/tasks", "", json!({"capability": "pay.out"})).await;
        self.call("post /v1/tasks/{reach_id}/approve", held["reach_id"].as_str().unwrap(), Value::Null).await;

        let dev = self.world.dev.clone();
        dev.post("/v1/agents/w-1/offline", json!({"incarnation": 1})).await;
        let left = orphans(&dev, (0..9).map(|n| json!({"payload": n}))).await;
        let word = json!({"resolution": "fail", "reason": "test"});
        self.call("post /v1/tasks/{reach_id}/resolve", &left[0], word).await;
        let mut order = plan(&json!({"state": ["orphaned"]}));
        order["rate_per_s"] = json!(1);
        let planned = self.call("post /v1/replays", "", order).await;
        let id = planned["replay_id"].as_str().unwrap().to_owned();
        self.call("post /v1/replays/{replay_id}/pause", &id, json!({"reason": "test"})).await;
        self.call("patch /v1/replays/{replay_id}", &id, json!({"rate_per_s": 2})).await;
        self.call("post /v1/replays/{replay_id}/resume", &id, json!({"reason": "test"})).await;
        self.call("post /v1/replays/{replay_id}/cancel", &id, json!({"reason": "test"})).await;

        let receiver = Receiver::answering(Some(410)).await;
        call_back(&dev, &receiver.url).await;
        let gone = until_listed(&dev, "gone", 1).await.remove(0);
        self.call("post /v1/callbacks/{callback_id}/redrive", gone["callback_id"].as_str().unwrap(), json!({})).await;
    }

    async fn rules(&mut self) {
        let why = "test";
        self.call("put /v1/policies", "", json!({"policy": {"lost_after": 12}, "reason": why})).await;
        self.call("put /v1/policies/hub", "", json!({"policy": {"replays_per_second": 7}, "reason": why})).await;
        let slow = json!({"capability": "text.count", "slow_reach": {"policy": "wait"}, "reason": why});
        self.call("put /v1/policies/capabilities", "", slow).await;
        let tiers = json!({"capability": "text.count", "tiers": true, "reason": why});
        self.call("put /v1/policies/routing", "", tiers).await;
        let made = self.call("post /v1/tokens", "", json!({"name": "x", "scopes": ["read"]})).await;
        let id = made["token_id"].as_str().unwrap();
        self.call("post /v1/tokens/{token_id}/rotate", id, json!({})).await;
        self.call("delete /v1/tokens/{token_id}", id, Value::Null).await;
    }
}

#[tokio::test]
async fn semantics_25_every_change_that_is_taken_has_its_receipt_and_the_receipt_is_its_event() {
    let world = World::start().await;
    let mut clerk = Clerk { world, called: BTreeSet::new(), receipts: BTreeMap::new() };
    clerk.agents().await;
    clerk.reports().await;
    clerk.operators().await;
    clerk.rules().await;
    let mut changes = BTreeSet::new();
    for (path, item) in openapi::document()["paths"].as_object().unwrap() {
        changes
            .extend(item.as_object().unwrap().keys().filter(|method| *method != "get").map(|m| format!("{m} {path}")));
    }
    changes.retain(|call| !WITHOUT.contains(&call.as_str()));
    assert_eq!(clerk.called, changes, "what the document knows as a change was made here");

    let (mut after, mut held) = (0, 0);
    loop {
        let page = clerk.world.dev.get(&format!("/v1/events?after={after}&limit=500")).await.text;
        for event in page.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            after = event["seq"].as_u64().unwrap();
            if let Some(hash) = clerk.receipts.get(&after) {
                assert_eq!(event["hash"], *hash, "{event}");
                held += 1;
            }
        }
        if page.is_empty() {
            break;
        }
    }
    // Those of the whole hub's rules and of tokens may belong to no namespace.
    assert!(held >= 25 && held <= clerk.receipts.len(), "{held} of {}", clerk.receipts.len());
}
