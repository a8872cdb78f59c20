//! The independent checker: asks the public API, knows nothing of the hub's code, and believes no count of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::hub::TOKEN;
use crate::load::{Promises, Receipt};

const TERMINAL: [&str; 5] = ["task-succeeded", "task-failed", "task-dead-lettered", "task-expired", "task-cancelled"];

struct Reader {
    http: reqwest::Client,
    url: String,
}

impl Reader {
    async fn get(&self, path: &str) -> (u16, Value) {
        let sent = self.http.get(format!("{}{path}", self.url)).bearer_auth(TOKEN).send().await.expect("an answer");
        let status = sent.status().as_u16();
        (status, sent.json().await.unwrap_or(Value::Null))
    }

    async fn text(&self, path: &str) -> String {
        let sent = self.http.get(format!("{}{path}", self.url)).bearer_auth(TOKEN).send().await.expect("an answer");
        sent.text().await.expect("a body")
    }
}

/// Every promise that does not hold, in words.
pub(crate) async fn check(url: &str, promises: &Promises) -> Vec<String> {
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().expect("a client");
    let reader = Reader { http, url: url.to_owned() };
    let mut broken = promises.broken.clone();
    let events = whole_feed(&reader, &mut broken).await;
    for (key, (id, receipt)) in &promises.accepted {
        check_receipt(&events, receipt, "task-submitted", id, &mut broken);
        let (status, history) = reader.get(&format!("/v1/tasks/{id}/history")).await;
        if status != 200 {
            broken.push(format!("{key}: {id} was acknowledged and is gone ({status})"));
            continue;
        }
        check_history(id, &history, &mut broken);
    }
    let mut ids: Vec<&String> = promises.accepted.values().map(|(id, _)| id).collect();
    ids.sort();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        broken.push("S6: two keys share one task".to_owned());
    }
    let submitted = events.values().filter(|event| event["kind"] == "task-submitted").count();
    if submitted < promises.accepted.len() {
        broken.push(format!("the feed has {submitted} submissions, {} were acknowledged", promises.accepted.len()));
    }
    for ((id, attempt), receipt) in &promises.acked {
        check_receipt(&events, receipt, "task-acknowledged", id, &mut broken);
        check_attempt(&events, receipt, *attempt, &mut broken);
    }
    for ((id, attempt), receipt) in &promises.done {
        check_receipt(&events, receipt, "task-succeeded", id, &mut broken);
        check_attempt(&events, receipt, *attempt, &mut broken);
    }
    broken
}

/// The whole feed, page by page: dense from 1, times never falling (D2, T1).
async fn whole_feed(reader: &Reader, broken: &mut Vec<String>) -> BTreeMap<u64, Value> {
    let mut events = BTreeMap::new();
    let mut after = 0_u64;
    let mut at = String::new();
    loop {
        let page = reader.text(&format!("/v1/events?after={after}&limit=1000")).await;
        let mut grown = false;
        for line in page.lines().filter(|line| !line.trim().is_empty()) {
            let event: Value = serde_json::from_str(line).expect("a line of the feed is JSON");
            let Some(seq) = event["seq"].as_u64() else { continue };
            if seq != after + 1 {
                broken.push(format!("D2: the feed jumps from {after} to {seq}"));
            }
            let now = event["at"].as_str().unwrap_or_default().to_owned();
            if now < at {
                broken.push(format!("T1: time falls at {seq}"));
            }
            at = now;
            after = seq;
            grown = true;
            events.insert(seq, event);
        }
        if !grown {
            return events;
        }
    }
}

fn check_receipt(events: &BTreeMap<u64, Value>, receipt: &Receipt, kind: &str, id: &str, broken: &mut Vec<String>) {
    let Some(event) = events.get(&receipt.seq) else {
        broken.push(format!("D1: the receipt of {id} names seq {}, which is not there", receipt.seq));
        return;
    };
    if event["hash"] != receipt.hash.as_str() || event["kind"] != kind || event["reach_id"] != id {
        broken.push(format!("D1: the receipt of {id} ({kind}) names another event: {event}"));
    }
}

fn check_attempt(events: &BTreeMap<u64, Value>, receipt: &Receipt, attempt: u64, broken: &mut Vec<String>) {
    if events.get(&receipt.seq).is_some_and(|event| event["attempt"] != attempt) {
        broken.push(format!("S1: the outcome at {} carries another attempt than {attempt}", receipt.seq));
    }
}

/// Exactly one terminal event, dispatches dense from 1, nothing that moves the task after its end (S1, S2, S4, S10).
fn check_history(id: &str, history: &Value, broken: &mut Vec<String>) {
    let empty = Vec::new();
    let events = history["events"].as_array().unwrap_or(&empty);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
    let ends = kinds.iter().filter(|kind| TERMINAL.contains(kind)).count();
    if ends != 1 {
        broken.push(format!("S1: {id} has {ends} terminal events: {kinds:?}"));
    }
    let dispatched = events.iter().filter(|event| event["kind"] == "task-dispatched");
    for (expected, event) in (1_u64..).zip(dispatched) {
        if event["attempt"] != expected {
            broken.push(format!("S4: {id} has attempt {} where {expected} is due", event["attempt"]));
        }
    }
    let acks = kinds.iter().filter(|kind| **kind == "task-acknowledged").count();
    if acks > 1 {
        broken.push(format!("S10: {id} was acknowledged {acks} times though no agent died: {kinds:?}"));
    }
    let end = kinds.iter().position(|kind| TERMINAL.contains(kind)).unwrap_or(kinds.len());
    let moved =
        kinds.iter().skip(end + 1).find(|kind| !kind.starts_with("callback") && **kind != "task-stale-report-refused");
    if let Some(kind) = moved {
        broken.push(format!("S2: {id} has {kind} after its end"));
    }
}
