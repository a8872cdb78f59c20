//! Histories and the live feed.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::work::{claim, report, submit};
use crate::world::{Answer, World};

fn events(answer: &Answer) -> Vec<Value> {
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_history_reads_the_same_in_every_format_and_raw_frames_hash_to_their_hash() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = submit(&world.dev, "text.count", json!(1)).await;
    let task = claim(&world.dev, "w-1").await;
    let fail = report("w-1", &task, json!({"error": {"code": "no-such-text", "message": "nothing\nto count"}}));
    assert_eq!(world.dev.post(&format!("/v1/tasks/{id}/fail"), fail).await.status, 200);
    let get = |query: &str| {
        let (client, path) = (world.dev.clone(), format!("/v1/tasks/{id}/history{query}"));
        async move { client.get(&path).await }
    };
    let json = get("").await.json();
    let lines = events(&get("?format=ndjson").await);
    assert_eq!(json["events"].as_array(), Some(&lines));
    let last = lines.last().unwrap();
    assert_eq!(last["failure"], json!({"class": "business", "code": "no-such-text", "message": "nothing\nto count"}));
    let text = get("?format=text").await.text;
    assert_eq!(text.lines().count(), lines.len() + 1, "a text of a caller's breaks no line: {text}");
    for event in get("?encoding=raw").await.json()["events"].as_array().unwrap() {
        use base64::Engine as _;
        let frame = base64::engine::general_purpose::STANDARD.decode(event["frame"].as_str().unwrap()).unwrap();
        let hash = agent_reach::ledger::ids::Digest::of(&[&[0], &frame]);
        assert_eq!(event["hash"], hash.to_string());
    }
    get("?format=xml").await.problem(400, "invalid-query");
    get("?colour=red").await.problem(400, "invalid-query");
}

#[tokio::test]
async fn the_feed_rises_strictly_and_goes_on_where_its_reader_was() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    for n in 0..5 {
        submit(&world.dev, "text.count", json!(n)).await;
    }
    let all = events(&world.dev.get("/v1/events").await);
    let mut paged = Vec::new();
    let mut after = 0;
    loop {
        let page = world.dev.get(&format!("/v1/events?after={after}&limit=2")).await;
        after = page.header("reach-after").parse().unwrap();
        match events(&page) {
            page if page.is_empty() => break,
            page => paged.extend(page),
        }
    }
    assert_eq!(paged, all);
    let seqs: Vec<_> = all.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
    assert!(all.iter().any(|event| event["type"] == "agent.online" && event["agent_id"] == "w-1"));
    let reader = world.dev.clone();
    let waiting = tokio::spawn(async move { reader.get("/v1/events?after=latest&wait_ms=20000").await });
    // Whether it asks before or after, "latest" may be this one: so more than one is submitted until it answers.
    let mut tries = 0;
    while !waiting.is_finished() && tries < 2_000 {
        submit(&world.dev, "text.count", json!("later")).await;
        tries += 1;
    }
    let came = events(&waiting.await.unwrap());
    assert_eq!(came[0]["type"], "task.submitted", "{came:?}");
}

#[tokio::test]
async fn a_reader_ahead_of_the_ledger_is_told_so_and_one_at_its_end_waits() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let all = world.dev.get("/v1/events").await;
    let last: u64 = all.header("reach-after").parse().unwrap();
    let at_the_end = world.dev.get(&format!("/v1/events?after={last}")).await;
    assert_eq!((at_the_end.status, &*at_the_end.text), (200, ""), "nothing yet is no refusal");
    for ahead in [last + 1, last + 1_000_000, u64::MAX] {
        let problem = world.dev.get(&format!("/v1/events?after={ahead}&wait_ms=60000")).await;
        assert_eq!(problem.problem(400, "seq-ahead")["last"], json!(last));
        let by_header = |accept: &str| {
            let call = world.dev.request(Method::GET, "/v1/events").header("accept", accept.to_owned());
            Answer::of(call.header("Last-Event-ID", ahead.to_string()))
        };
        by_header("application/x-ndjson").await.problem(400, "seq-ahead");
        by_header("text/event-stream").await.problem(400, "seq-ahead");
    }
    // What an answer has just told is never ahead.
    for n in 0..50 {
        let receipt = world.dev.post("/v1/tasks", json!({"capability": "text.count", "payload": n})).await.json();
        let seq = receipt["receipt"]["seq"].as_u64().unwrap();
        assert_eq!(world.dev.get(&format!("/v1/events?after={seq}")).await.status, 200);
    }
}

#[tokio::test]
async fn server_sent_events_resume_after_the_last_id() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = submit(&world.dev, "text.count", json!(1)).await;
    let all = events(&world.dev.get("/v1/events").await);
    let submitted = all.iter().find(|event| event["reach_id"] == *id).unwrap()["seq"].as_u64().unwrap();
    let call = world.dev.request(Method::GET, "/v1/events").header("accept", "text/event-stream");
    let mut response = call.header("last-event-id", (submitted - 1).to_string()).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    while !text.contains("data:") {
        let chunk = tokio::time::timeout(Duration::from_secs(10), response.chunk()).await.expect("it streams");
        text.push_str(std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap());
    }
    assert!(text.contains(&format!("id: {submitted}\nevent: task.submitted\ndata: {{\"seq\":{submitted},")), "{text}");
}
