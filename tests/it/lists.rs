//! Lists: filtered, paged, and whole while writes go on.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::work::{claim, report, submit};
use crate::world::World;

#[tokio::test]
async fn pages_neither_skip_nor_repeat_while_tasks_are_submitted_and_finish() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let mut before = BTreeSet::new();
    for n in 0..30 {
        before.insert(submit(&world.dev, "text.count", json!(n)).await);
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = world.dev.get(&format!("/v1/tasks?limit=4{cursor}")).await.json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|task| task["reach_id"].as_str().unwrap().to_owned()));
        // Between two pages one is submitted, one finishes and one is called off.
        submit(&world.dev, "text.count", json!("new")).await;
        let task = claim(&world.dev, "w-1").await;
        let path = format!("/v1/tasks/{}/complete", task["reach_id"].as_str().unwrap());
        assert_eq!(world.dev.post(&path, report("w-1", &task, json!({}))).await.status, 200);
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let once: BTreeSet<_> = seen.iter().cloned().collect();
    assert_eq!(once.len(), seen.len(), "none twice");
    assert_eq!(once, before, "all that were there, and none that came later");
    assert!(seen.is_sorted_by(|a, b| a > b), "newest first");
}

#[tokio::test]
async fn pages_between_two_times_are_whole_and_end_where_the_times_do() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let mut submitted = BTreeSet::new();
    for n in 0..5 {
        submitted.insert(submit(&world.dev, "text.count", json!(n)).await);
        let task = claim(&world.dev, "w-1").await;
        let path = format!("/v1/tasks/{}/complete", task["reach_id"].as_str().unwrap());
        assert_eq!(world.dev.post(&path, report("w-1", &task, json!({}))).await.status, 200);
    }
    let newest = world.dev.get("/v1/tasks?limit=1").await.json()["items"][0]["submitted_at"].clone();
    let moment: jiff::Timestamp = newest.as_str().unwrap().parse().unwrap();
    let around = |hours: i64| moment + jiff::SignedDuration::from_hours(hours);
    let mut seen = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/tasks?limit=2&submitted_after={}&submitted_before={}{cursor}", around(-1), around(1));
        let page = world.dev.get(&path).await.json();
        let ids = page["items"].as_array().unwrap().iter().map(|task| task["reach_id"].as_str().unwrap().to_owned());
        assert!(ids.into_iter().all(|id| seen.insert(id)), "none twice");
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, submitted);
    for elsewhere in [format!("submitted_after={}", around(3)), format!("submitted_before={}", around(-3))] {
        let page = world.dev.get(&format!("/v1/tasks?{elsewhere}")).await.json();
        assert_eq!((&page["items"], &page["next_cursor"]), (&json!([]), &Value::Null), "{elsewhere}");
    }
}

#[tokio::test]
async fn every_filter_narrows_and_an_unknown_one_is_refused() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    world.dev.register("w-2", "csv.sum").await;
    let labelled = json!({"capability": "csv.sum", "labels": {"line": "travel"}, "session_id": "s-1"});
    let labelled = world.dev.post("/v1/tasks", labelled).await.json()["reach_id"].clone();
    let failed = submit(&world.dev, "text.count", json!(1)).await;
    let task = claim(&world.dev, "w-1").await;
    let fail = report("w-1", &task, json!({"error": {"code": "x"}}));
    assert_eq!(world.dev.post(&format!("/v1/tasks/{failed}/fail"), fail).await.status, 200);
    let ids = |query: &str| {
        let (client, path) = (world.dev.clone(), format!("/v1/tasks?{query}"));
        async move {
            let page = client.get(&path).await;
            assert_eq!(page.status, 200, "{}", page.text);
            page.json()["items"].as_array().unwrap().iter().map(|task| task["reach_id"].clone()).collect::<Vec<Value>>()
        }
    };
    let (labelled, failed) = (vec![labelled], vec![json!(failed)]);
    for (query, expected) in [
        ("state=queued", &labelled),
        ("state=failed,dead-letter", &failed),
        ("capability=csv.sum", &labelled),
        ("label=line:travel", &labelled),
        ("session_id=s-1", &labelled),
        ("failure_class=business", &failed),
        ("agent_id=w-1", &failed),
        ("submitted_after=2020-01-01T00:00:00Z&state=failed", &failed),
    ] {
        assert_eq!(&ids(query).await, expected, "{query}");
    }
    assert!(ids("submitted_before=2020-01-01T00:00:00Z").await.is_empty());
    for bad in
        ["colour=red", "state=quick", "label=line", "limit=0", "cursor=AAAA", "submitted_after=2020-01-01T00:00:00"]
    {
        world.dev.get(&format!("/v1/tasks?{bad}")).await.problem(400, "invalid-query");
    }
    let turned = "submitted_after=2020-01-02T00:00:00Z&submitted_before=2020-01-01T00:00:00Z";
    let refused = world.dev.get(&format!("/v1/tasks?{turned}")).await;
    refused.problem(400, "invalid-query");
    assert!(refused.text.contains("after submitted_after"), "{}", refused.text);
}
