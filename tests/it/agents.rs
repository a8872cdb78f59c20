//! Agents through the door: register, fence, live, drain, leave, be read.

use serde_json::{Value, json};

use crate::world::{World, registration};

#[tokio::test]
async fn semantics_2_the_same_instance_keeps_its_incarnation_and_another_fences_it() {
    let world = World::start().await;
    let with = |instance: &str| {
        let mut body = registration("weather-1", "weather.forecast");
        body["instance"] = json!(instance);
        body
    };
    let first = world.dev.post("/v1/agents", with("p1")).await.json();
    assert_eq!(first["incarnation"], 1, "{first}");
    assert_eq!(first["heartbeat_interval_ms"], 5_000);
    assert_eq!(first["namespace"], "dev");
    assert_eq!(world.dev.post("/v1/agents", with("p1")).await.json()["incarnation"], 1);
    assert_eq!(world.dev.post("/v1/agents", with("p2")).await.json()["incarnation"], 2);
    for call in ["heartbeat", "offline"] {
        let answer = world.dev.post(&format!("/v1/agents/weather-1/{call}"), json!({"incarnation": 1})).await;
        let problem = answer.problem(409, "incarnation-superseded");
        assert_eq!(problem["current_incarnation"], 2);
    }
    let beat = world.dev.post("/v1/agents/weather-1/heartbeat", json!({"incarnation": 2})).await;
    assert_eq!(beat.json(), json!({"drain": null, "cancelled": [], "lost": []}));
}

#[tokio::test]
async fn one_agent_shows_its_whole_declaration_but_never_its_endpoint() {
    let world = World::start().await;
    let body = json!({
        "agent_id": "weather-1", "instance": "p1", "name": "Weather", "version": "2.1.0", "owner": "team", "contact": "x",
        "capabilities": [{"domain": "weather", "task_type": "forecast", "kind": "service", "name": "Forecast",
            "description": "d", "tags": ["weather/get/forecast"], "aliases": ["天气"], "examples": [{"city": "成都"}],
            "input_schema": {"type": "object"}, "output_schema": {"type": "object"}, "output_format": "json",
            "languages": ["zh"], "tools": ["maps"], "context_window": 8192, "weight": 10, "priority": 100,
            "strategy": "least-loaded", "constraints": {"required": ["city"]}, "progress_extends": true,
            "sensitive": false}],
        "transport": {"kind": "http", "endpoint": "http://127.0.0.1:9001/reach"},
        "health": {"interval_ms": 1000, "probe": "/healthz", "load_threshold": 0.9},
        "max_concurrency": 3, "max_pending": 100, "priority": 7,
        "access": {"allowed_callers": ["abc"]}, "metadata": {"region": "cn-east", "rack": 4}, "ext": {"cost": "low"}
    });
    let registered = world.dev.post("/v1/agents", body.clone()).await;
    assert_eq!(registered.status, 200, "{}", registered.text);
    let load = json!({"incarnation": 1, "load": {"queue_depth": 2, "in_flight": 1, "mean_latency_ms": 12}});
    assert_eq!(world.dev.post("/v1/agents/weather-1/heartbeat", load).await.status, 200);
    let answer = world.dev.get("/v1/agents/weather-1").await;
    let agent = answer.json();
    assert!(!answer.text.contains("9001"), "{}", answer.text);
    for (pointer, value) in [
        ("/agent_id", json!("weather-1")),
        ("/health", json!("healthy")),
        ("/standing", json!("active")),
        ("/transport", json!("http")),
        ("/version", json!("2.1.0")),
        ("/region", json!("cn-east")),
        ("/max_concurrency", json!(3)),
        ("/heartbeat_interval_ms", json!(1000)),
        ("/held", json!(0)),
        ("/declaration/ext/cost", json!("low")),
        ("/declaration/capabilities/0/aliases/0", json!("天气")),
        ("/load/queue_depth", json!(2)),
        ("/work_latency/samples", json!(0)),
        ("/failure_rate", json!(null)),
    ] {
        assert_eq!(agent.pointer(pointer), Some(&value), "{pointer} in {agent}");
    }
}

#[tokio::test]
async fn semantics_38_an_endpoint_that_the_hub_may_not_call_is_refused_at_registration() {
    let world = World::start().await;
    for endpoint in
        ["http://169.254.169.254/latest", "http://10.0.0.1/x", "ftp://example.com/", "http://u:p@example.com/"]
    {
        let mut body = registration("weather-1", "weather.forecast");
        body["transport"] = json!({"kind": "http", "endpoint": endpoint});
        world.dev.post("/v1/agents", body).await.problem_at(422, "egress-blocked", "/transport/endpoint");
    }
}

#[tokio::test]
async fn a_list_pages_without_a_gap_or_a_repeat_and_narrows() {
    let world = World::start().await;
    for n in 0..7 {
        let capability = if n % 2 == 0 { "text.count" } else { "text.sum" };
        world.dev.register(&format!("agent-{n}"), capability).await;
    }
    let elsewhere = world.somebody_in("zzz", json!({"scopes": ["register", "read"], "agents": ["*"]})).await;
    elsewhere.register("agent-3", "text.count").await;
    let mut seen = Vec::new();
    let mut next = String::from("/v1/agents?limit=3");
    loop {
        let page = world.dev.get(&next).await.json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|a| a["agent_id"].as_str().unwrap().to_owned()));
        // A write between two pages.
        world.dev.register("agent-0", "text.count").await;
        match page["next_cursor"].as_str() {
            Some(cursor) => next = format!("/v1/agents?limit=3&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, (0..7).map(|n| format!("agent-{n}")).collect::<Vec<_>>());
    let some = world.dev.get("/v1/agents?capability=text.sum&health=healthy").await.json();
    assert_eq!(some["items"].as_array().unwrap().len(), 3);
    assert_eq!(elsewhere.get("/v1/agents").await.json()["items"].as_array().unwrap().len(), 1);
    world.dev.get("/v1/agents?health=green").await.problem(400, "invalid-query");
}

#[tokio::test]
async fn an_idle_agent_that_drains_or_leaves_is_out_and_may_register_again() {
    let world = World::start().await;
    world.dev.register("a", "text.count").await;
    let left = world.dev.post("/v1/agents/a/offline", json!({"incarnation": 1})).await;
    assert_eq!(left.json()["standing"], "offline", "{}", left.text);
    assert!(left.json()["receipt"]["seq"].is_u64(), "{}", left.text);
    world.dev.post("/v1/agents/a/heartbeat", json!({"incarnation": 1})).await.problem(409, "agent-not-registered");
    assert_eq!(world.dev.get("/v1/agents").await.json()["items"], json!([]));
    assert_eq!(world.dev.get("/v1/agents?standing=offline").await.json()["items"][0]["agent_id"], "a");
    assert_eq!(world.dev.register("a", "text.count").await, 2);
    let drained = world.dev.post("/v1/agents/a/drain", json!({"mode": "finish", "reason": "upgrade"})).await;
    assert_eq!(drained.status, 200, "{}", drained.text);
    world.dev.post("/v1/agents/a/drain", json!({"grace_ms": 86_400_001})).await.problem_at(
        422,
        "invalid-field",
        "/grace_ms",
    );
    assert_eq!(world.dev.register("a", "text.count").await, 3);
    assert_eq!(world.dev.delete("/v1/agents/a").await.json()["standing"], "deregistered");
    world.dev.delete("/v1/agents/absent").await.problem(404, "not-found");
}

#[tokio::test]
async fn semantics_38_a_probe_is_a_plain_path_on_the_endpoints_origin() {
    let world = World::start().await;
    let with = |transport: Value, probe: &str| {
        let mut body = registration("w-1", "text.count");
        (body["transport"], body["health"]) = (transport, json!({"probe": probe}));
        world.dev.post("/v1/agents", body)
    };
    let push = json!({"kind": "http", "endpoint": "http://127.0.0.1:9009/reach"});
    for wrong in [
        "healthz",
        "//elsewhere.example/",
        "/\r\nHost: elsewhere",
        "/a b",
        "/a/../admin",
        "/..",
        "/a/%2E%2e/admin",
        "/%2e./x",
        "/a%2f..%2fb",
        "/a\\..\\b",
        "/x#y",
        "/x\u{202e}",
        "/a%0d%0ab",
        "http://elsewhere.example/",
    ] {
        for transport in [push.clone(), json!({"kind": "pull"})] {
            with(transport, wrong).await.problem_at(422, "invalid-field", "/health/probe");
        }
    }
    for right in ["/healthz", "/", "/v1/health?deep=1", "/a..b/.well-known/x", "/%E6%88%90"] {
        assert_eq!(with(push.clone(), right).await.status, 200, "{right}");
    }
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_answered_with_the_one_that_was_meant_to_those_who_may_see_it() {
    let world = World::start().await;
    world.dev.register("weather-1", "text.count").await;
    let blind = world.somebody(json!({"scopes": ["operate"], "agents": ["*"]})).await;
    let bound = world.somebody(json!({"scopes": ["operate", "read"], "agents": ["text-*"]})).await;
    let drain = "/v1/agents/waether-1/drain";
    for answer in [
        world.dev.get("/v1/agents/waether-1").await,
        world.dev.post(drain, json!({"reason": "upgrade"})).await,
        world.dev.delete("/v1/agents/waether-1").await,
        world.dev.put("/v1/agents/waether-1/breakers/text.count", json!({"state": "open", "reason": "x"})).await,
    ] {
        let problem = answer.problem(404, "not-found");
        assert_eq!(problem["detail"], "there is no agent waether-1 here", "{problem}");
        assert_eq!(problem["suggestions"], json!(["weather-1"]), "{problem}");
    }
    let unseen = blind.post(drain, json!({})).await.problem(404, "not-found");
    assert_eq!((&unseen["suggestions"], &unseen["not-permitted"]), (&Value::Null, &json!(1)), "{unseen}");
    // One that the token may not act as looks like one that is not there, and like no other.
    let foreign = bound.post("/v1/agents/weather-1/drain", json!({})).await;
    assert_eq!(foreign.unnamed(), bound.post(drain, json!({})).await.unnamed());
    assert_eq!(foreign.json()["suggestions"], Value::Null);
    let elsewhere = world.somebody_in("other", json!({"scopes": ["operate", "read"], "agents": ["*"]})).await;
    let other = elsewhere.get("/v1/agents/waether-1").await.problem(404, "not-found");
    assert_eq!((&other["suggestions"], &other["not-permitted"]), (&Value::Null, &Value::Null), "{other}");
}

#[tokio::test]
async fn an_agent_that_was_told_to_go_and_speaks_again_is_told_so_and_not_to_come_back() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let drained = world.dev.post("/v1/agents/w-1/drain", json!({"reason": "upgrade"})).await.json();
    assert_eq!(drained["standing"], "deregistered", "{drained}");
    let speaks = async |call: &str, body: Value| world.dev.post(&format!("/v1/agents/w-1/{call}"), body).await;
    for (call, body) in [
        ("heartbeat", json!({"incarnation": 1})),
        ("claim", json!({"incarnation": 1, "wait_ms": 0})),
        ("offline", json!({"incarnation": 1})),
        ("drain", json!({})),
    ] {
        let gone = speaks(call, body).await.problem(409, "agent-not-registered");
        let (detail, next) = (gone["detail"].as_str().unwrap(), gone["next"].as_str().unwrap());
        assert!(detail.contains("drained or removed") && !detail.contains("goodbye"), "{call}: {gone}");
        assert!(next.starts_with("Stop this process"), "{call}: {gone}");
        assert_eq!(gone["standing"], "deregistered", "{gone}");
    }
    assert_eq!(world.dev.register("w-1", "text.count").await, 2);
    assert_eq!(speaks("offline", json!({"incarnation": 2})).await.status, 200);
    let gone = speaks("heartbeat", json!({"incarnation": 2})).await.problem(409, "agent-not-registered");
    assert!(gone["detail"].as_str().unwrap().contains("said goodbye"), "{gone}");
    assert!(gone["next"].as_str().unwrap().contains("register it again"), "{gone}");
    assert_eq!(gone["standing"], "offline", "{gone}");
}
