//! Texts that name no capability (R-RTE-4): where they go, why, and what a text is told that fits nothing.

use serde_json::{Value, json};

use crate::world::World;

const REPORT: &str = "帮我生成一份本周销售趋势报告";

fn office() -> Value {
    json!({
        "agent_id": "office-1", "transport": {"kind": "pull"},
        "capabilities": [
            {"capability": "sales.report", "tags": ["分析/趋势/报告"]},
            {"capability": "ops.ticket", "tags": ["执行/工单/推送"]},
            {"capability": "voice.cluster", "tags": ["投诉/聚类/分析"]},
            {"capability": "user.profile", "tags": ["用户/画像/查询"]},
        ],
    })
}

/// Asks until what was declared has been read: a registration is answered before.
async fn understood(world: &World, text: &str, capability: &str) -> Value {
    loop {
        let answer = world.dev.post("/v1/route/explain", json!({"text": text})).await;
        if answer.status == 200 {
            let shown = answer.json();
            if shown["capability"] == capability {
                return shown;
            }
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_text_goes_to_the_capability_that_it_asks_for_and_the_history_says_why() {
    let world = World::start().await;
    world.dev.post("/v1/agents", office()).await.json();
    let shown = understood(&world, REPORT, "sales.report").await;
    assert_eq!(shown["text"]["by"], "words", "{shown}");
    let words: Vec<&Value> =
        shown["text"]["because"].as_array().expect("words").iter().map(|one| &one["words"]).collect();
    assert_eq!(words, ["趋势", "报告"], "each once: {shown}");
    for (text, capability) in [("把订单异常信息推送到运维群", "ops.ticket"), ("用户投诉聚类分析", "voice.cluster")]
    {
        understood(&world, text, capability).await;
    }
    let id = world.dev.post("/v1/tasks", json!({"text": "用户投诉聚类分析"})).await.json()["reach_id"].clone();
    let id = id.as_str().expect("an id");
    let task = world.dev.get(&format!("/v1/tasks/{id}")).await.json();
    assert_eq!(task["capability"], "voice.cluster", "{task}");
    let history = world.dev.get(&format!("/v1/tasks/{id}/history")).await.json();
    let routed = &history["events"][0]["routed_by_text"];
    assert_eq!((&routed["by"], &routed["threshold"]), (&json!("words"), &json!(0.3)), "{history}");
    assert!(routed["score"].as_f64().is_some_and(|score| score >= 0.3), "{history}");
    assert!(routed["near"].as_array().is_some_and(|near| near.iter().any(|one| one["capability"] == "user.profile")));
    let payload = world.dev.get(&format!("/v1/tasks/{id}/payload")).await.json();
    assert_eq!(payload, json!({"text": "用户投诉聚类分析"}), "the agent is told what was said");
}

#[tokio::test]
async fn a_text_that_fits_nothing_is_refused_with_what_came_near_and_a_dry_run_says_the_same() {
    let world = World::start().await;
    world.dev.post("/v1/tasks", json!({"text": REPORT})).await.problem(422, "no-capability-fits");
    world.dev.post("/v1/agents", office()).await.json();
    understood(&world, REPORT, "sales.report").await;
    let problem =
        world.dev.post("/v1/tasks", json!({"text": "明天成都会下雨吗"})).await.problem(422, "no-capability-fits");
    assert_eq!(problem["threshold"], 0.3, "{problem}");
    let near = json!({"text": "paint the mountain with a profile of snow"});
    let problem = world.dev.post("/v1/tasks", near.clone()).await.problem(422, "no-capability-fits");
    assert_eq!(problem["suggestions"], json!(["user.profile"]), "{problem}");
    let dry = world.dev.post("/v1/route/explain", near).await.problem(422, "no-capability-fits");
    assert_eq!(dry["near"], problem["near"], "{dry}");
    world.dev.post("/v1/tasks", json!({"text": "  "})).await.problem_at(422, "invalid-field", "/text");
    let caller = world.somebody(json!({"scopes": ["submit"], "capabilities": ["ops.ticket"]})).await;
    let problem = caller.post("/v1/tasks", json!({"text": REPORT})).await.problem(422, "no-capability-fits");
    assert!(!problem.to_string().contains("sales.report"), "what it may not call it is not told: {problem}");
}

#[tokio::test]
async fn semantics_31_a_text_under_a_key_gives_the_first_task_though_it_fits_nothing_any_more() {
    let world = World::start().await;
    world.dev.post("/v1/agents", office()).await.json();
    understood(&world, REPORT, "sales.report").await;
    let body = json!({"text": REPORT, "idempotency_key": "one"});
    let first = world.dev.post("/v1/tasks", body.clone()).await.json();
    let mut better = office();
    better["capabilities"] = json!([{"capability": "other.thing", "tags": ["销售/趋势/报告"]}]);
    world.dev.post("/v1/agents", better.clone()).await.json();
    understood(&world, REPORT, "other.thing").await;
    let again = world.dev.post("/v1/tasks", body.clone()).await.json();
    assert_eq!((&again["reach_id"], &again["replayed"]), (&first["reach_id"], &json!(true)), "it means another by now");
    better["capabilities"] = json!([{"capability": "far.away", "tags": ["天气/预报/城市"]}]);
    world.dev.post("/v1/agents", better).await.json();
    world.dev.post("/v1/tasks", json!({"text": REPORT})).await.problem(422, "no-capability-fits");
    let again = world.dev.post("/v1/tasks", body).await.json();
    assert_eq!(again["reach_id"], first["reach_id"], "it fits nothing by now");
}

#[tokio::test]
async fn examples_are_learned_beside_the_calls_and_bounded() {
    let world = World::start().await;
    let songs = [
        "play some jazz",
        "play my song",
        "put on the radio",
        "play the next track",
        "play it again",
        "i want to hear the beatles",
        "shuffle my playlist",
        "start the music",
    ];
    let rain = [
        "will it rain today",
        "what is the weather like",
        "is it cold outside",
        "will it snow tomorrow",
        "do i need an umbrella",
        "how windy is it",
        "show the forecast",
        "is it sunny in oslo",
    ];
    let mut declared = office();
    declared["capabilities"] = json!([
        {"capability": "music.play", "examples": songs}, {"capability": "weather.forecast", "examples": rain},
    ]);
    world.dev.post("/v1/agents", declared.clone()).await.json();
    let shown = loop {
        let shown = understood(&world, "play the radio", "music.play").await;
        if shown["text"]["by"] == "examples" {
            break shown;
        }
    };
    assert!(shown["text"]["because"][0]["words"].is_string(), "{shown}");
    declared["capabilities"][0]["examples"] = json!(vec!["x"; 257]);
    world.dev.post("/v1/agents", declared.clone()).await.problem_at(422, "invalid-field", "/capabilities/0/examples");
    declared["capabilities"][0]["examples"] = json!(["x".repeat(1_025)]);
    world.dev.post("/v1/agents", declared).await.problem_at(422, "invalid-field", "/capabilities/0/examples/0");
}
