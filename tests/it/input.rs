//! What must never come in: every bad body has its own 4xx, names the place, and changes nothing.

use reqwest::Method;
use serde_json::json;

use crate::world::{Answer, World, registration};

#[tokio::test]
async fn a_body_that_is_not_strict_json_is_refused_with_its_place() {
    let world = World::start().await;
    for bad in ["", "{", "[1,]", "{}{}", "{\"agent_id\":\"\\ud800\"}"] {
        world.dev.post_raw("/v1/agents", bad).await.problem(400, "malformed-json");
    }
    world.dev.post_raw("/v1/agents", "[".repeat(100_000)).await.problem(400, "json-too-deep");
    let deep = format!("{{\"ext\":{{\"a\":{}1{}}}}}", "[".repeat(63), "]".repeat(63));
    world.dev.post_raw("/v1/agents", deep).await.problem(400, "json-too-deep");
    let double = r#"{"agent_id":"a","transport":{"kind":"pull","kind":"http"},"capabilities":[]}"#;
    world.dev.post_raw("/v1/agents", double).await.problem_at(400, "duplicate-key", "/transport/kind");
    let escaped = r#"{"agent_id":"a","\u0061gent_id":"b"}"#;
    world.dev.post_raw("/v1/agents", escaped).await.problem_at(400, "duplicate-key", "/agent_id");
}

#[tokio::test]
async fn an_array_in_the_place_of_an_object_is_refused_wherever_it_stands() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let failed = crate::replays::failed(&world.dev).await;
    let before = world.dev.get("/v1/status").await.json()["tasks"].clone();
    let task = |body: serde_json::Value| json!({"capability": "text.count", "payload": 1, "retry": body});
    for (pointer, path, body) in [
        ("", "/v1/tasks", json!(["text.count", null, null, null, 1])),
        ("/retry", "/v1/tasks", task(json!([1]))),
        ("", "/v1/replays", json!([{"state": ["failed"]}, 1, "an array", false, null, false])),
        ("/select", "/v1/replays", json!({"select": [["failed"]], "reason": "an array"})),
        ("", &format!("/v1/tasks/{failed}/redrive"), json!(["an array", false, 1])),
        ("", "/v1/agents/f-1/drain", json!([1, null, "an array"])),
    ] {
        let refused = world.dev.post(path, body).await;
        refused.problem_at(422, "invalid-field", pointer);
        let said = &refused.text;
        assert!(said.contains("expected an object") && !said.contains("struct"), "{path}: {said}");
    }
    let policy = world.dev.put("/v1/policies", json!([[3, 9, 20, 100_000, 1_000_000], "an array"])).await;
    policy.problem_at(422, "invalid-field", "");
    assert_eq!(world.dev.get("/v1/status").await.json()["tasks"], before);
}

#[tokio::test]
async fn an_unknown_missing_or_wrong_field_is_named_by_its_pointer() {
    let world = World::start().await;
    let mut body = registration("weather-1", "weather.forecast");
    body["capabilities"][0]["colour"] = json!("red");
    world.dev.post("/v1/agents", body).await.problem_at(422, "unknown-field", "/capabilities/0/colour");
    let mut body = registration("weather-1", "weather.forecast");
    body.as_object_mut().unwrap().remove("transport");
    world.dev.post("/v1/agents", body).await.problem_at(422, "invalid-field", "/transport");
    for (pointer, path, value) in [
        ("/agent_id", "/agent_id", json!("a/../b")),
        ("/max_concurrency", "/max_concurrency", json!(0)),
        ("/max_concurrency", "/max_concurrency", json!("ten")),
        ("/capabilities/0/capability", "/capabilities/0/capability", json!("weather")),
        ("/capabilities", "/capabilities", json!([])),
        ("/health/interval_ms", "/health", json!({"interval_ms": 1})),
        ("/health/load_threshold", "/health", json!({"load_threshold": 1.5})),
        ("/capabilities/0/tags/0", "/capabilities/0", json!({"capability": "a.b", "tags": ["loose"]})),
        ("/metadata/region", "/metadata", json!({"region": 1})),
    ] {
        let mut body = registration("weather-1", "weather.forecast");
        let parent = path.rsplit_once('/').unwrap();
        match body.pointer_mut(path) {
            Some(slot) => *slot = value,
            None => body.pointer_mut(parent.0).unwrap()[parent.1] = value,
        }
        world.dev.post("/v1/agents", body).await.problem_at(422, "invalid-field", pointer);
    }
    assert_eq!(world.dev.get("/v1/agents").await.json()["items"], json!([]), "nothing was changed");
}

#[tokio::test]
async fn a_wrong_content_type_is_415_and_an_oversized_body_413() {
    let world = World::start().await;
    for kind in ["text/plain", "application/jsonx", "application/json; charset=utf-16", ""] {
        let call = world.dev.request(Method::POST, "/v1/agents").header("content-type", kind).body("{}");
        Answer::of(call).await.problem(415, "unsupported-media-type");
    }
    let call =
        world.dev.request(Method::POST, "/v1/agents").header("content-type", "Application/JSON; Charset=\"UTF-8\"");
    Answer::of(call.body("{}")).await.problem(422, "invalid-field");
    let big = " ".repeat((1 << 20) + (64 << 10) + 1);
    world.dev.post_raw("/v1/agents", big.clone()).await.problem(413, "body-too-large");
    // Chunked: no length says so beforehand.
    let stream = reqwest::Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>(big)]));
    world.dev.post_raw("/v1/agents", stream).await.problem(413, "body-too-large");
}

#[tokio::test]
async fn unknown_paths_methods_and_query_parameters_are_problems_too() {
    let world = World::start().await;
    world.dev.get("/v1/nothing").await.problem(404, "not-found");
    let answer = Answer::of(world.dev.request(Method::PATCH, "/v1/agents")).await;
    answer.problem(405, "method-not-allowed");
    let allow = answer.header("allow");
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    world.dev.get("/v1/agents?colour=red").await.problem(400, "invalid-query");
    world.dev.get("/v1/agents?limit=0").await.problem(400, "invalid-query");
    world.dev.get("/v1/agents?limit=1&limit=2").await.problem(400, "invalid-query");
    world.dev.get("/v1/agents?cursor=bm90aGluZw").await.problem(400, "invalid-query");
    world.dev.get("/v1/machine?x=1").await.problem(400, "invalid-query");
}

#[tokio::test]
async fn a_time_without_an_offset_is_refused_in_words() {
    let world = World::start().await;
    let body = json!({"name": "x", "scopes": ["read"], "expires_at": "2099-01-01T00:00:00"});
    let answer = world.dev.post("/v1/tokens", body).await;
    answer.problem_at(422, "invalid-field", "/expires_at");
    assert!(answer.text.contains("no offset"), "{}", answer.text);
    for offset in ["+24:00", "-25:59", "+99:00"] {
        let body = json!({"name": "x", "scopes": ["read"], "expires_at": format!("2099-01-01T00:00:00{offset}")});
        world.dev.post("/v1/tokens", body).await.problem_at(422, "invalid-field", "/expires_at");
        let task = json!({"capability": "a.b", "deadline": format!("2099-01-01T00:00:00{offset}")});
        world.dev.post("/v1/tasks", task).await.problem_at(422, "invalid-field", "/deadline");
    }
    let body = json!({"name": "x", "scopes": ["read"], "expires_at": "2099-01-01T00:00:00+08:00"});
    let made = world.dev.post("/v1/tokens", body).await;
    assert_eq!(made.status, 201, "{}", made.text);
}

#[tokio::test]
async fn semantics_37_ids_that_do_not_parse_are_the_same_404_as_absent_ones() {
    let world = World::start().await;
    world.dev.register("weather-1", "weather.forecast").await;
    let elsewhere = world.somebody_in("other", json!({"scopes": ["read", "work"], "agents": ["*"]})).await;
    let absent = world.dev.get("/v1/agents/nobody").await;
    absent.problem(404, "not-found");
    for path in ["a%2fb", "..%2f..", "a%00b", "a%0d%0ab", "%e2%80%ae", "%ff", &"x".repeat(129)] {
        let answer = world.dev.get(&format!("/v1/agents/{path}")).await;
        assert_eq!((answer.status, answer.unnamed()), (404, absent.unnamed()), "{path}");
        assert!(!answer.text.contains(char::is_control), "{path}");
    }
    let foreign = elsewhere.get("/v1/agents/weather-1").await;
    assert_eq!((foreign.status, foreign.unnamed()), (404, absent.unnamed()), "another namespace's looks absent");
    assert_eq!(foreign.headers.keys().count(), absent.headers.keys().count());
    let beat = elsewhere.post("/v1/agents/weather-1/heartbeat", json!({"incarnation": 1})).await;
    assert_eq!((beat.status, beat.unnamed()), (404, absent.unnamed()));
}

#[tokio::test]
async fn a_schema_that_is_unsafe_or_broken_is_refused_where_it_stands() {
    let world = World::start().await;
    for (schema, word) in [
        (json!({"$ref": "https://elsewhere.example/schema"}), "references"),
        (json!({"type": "colour"}), ""),
        (json!({"description": "x".repeat(70_000)}), "bytes"),
    ] {
        let mut body = registration("weather-1", "weather.forecast");
        body["capabilities"][0]["input_schema"] = schema;
        let answer = world.dev.post("/v1/agents", body).await;
        answer.problem_at(422, "schema-invalid", "/capabilities/0/input_schema");
        assert!(answer.text.contains(word), "{}", answer.text);
    }
}

#[tokio::test]
async fn the_registration_of_the_contract_is_taken_as_it_stands() {
    let world = World::start().await;
    let body = json!({"agent_id": "weather-1", "name": "Weather", "version": "2.1.0", "owner": "team", "contact": "a@b.example",
        "capabilities": [{"capability": "weather.forecast", "kind": "service", "name": "Forecast", "description": "…",
            "tags": ["weather/read/forecast"], "aliases": ["wetter"], "examples": [{"city": "成都"}],
            "input_schema": {"type": "object"}, "output_schema": {}, "output_format": "json", "languages": ["zh"],
            "tools": ["t"], "context_window": 8192, "weight": 10, "priority": 100}],
        "transport": {"kind": "pull"}, "health": {"interval_ms": 5000, "probe": "/healthz", "load_threshold": 0.9},
        "max_concurrency": 10, "max_pending": 1000, "priority": 100, "access": {"allowed_callers": ["dev"]},
        "metadata": {"region": "cn-east"}, "ext": {"any": [1]}});
    let answer = world.dev.post("/v1/agents", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let names: Vec<String> = answer.json().as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["agent_id", "heartbeat_interval_ms", "incarnation", "namespace", "receipt"]);
}

#[tokio::test]
async fn a_body_whose_fields_may_all_be_left_out_may_be_left_out() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let id = crate::work::submit(&world.dev, "text.count", json!(1)).await;
    assert_eq!(world.dev.post("/v1/callback-secrets", json!({"name": "a"})).await.status, 201);
    let paths =
        [format!("/v1/tasks/{id}/cancel"), "/v1/callback-secrets/a/rotate".into(), "/v1/agents/w-1/drain".into()];
    for path in paths {
        let typed = world.dev.request(Method::POST, &path).header("content-type", "text/plain").body("{}");
        Answer::of(typed).await.problem(415, "unsupported-media-type");
        let answer = Answer::of(world.dev.request(Method::POST, &path)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
    Answer::of(world.dev.request(Method::POST, "/v1/tasks")).await.problem(415, "unsupported-media-type");
}

#[tokio::test]
async fn whatever_stands_in_a_path_or_query_is_answered_by_a_problem_on_every_route() {
    let world = World::start().await;
    let paths = agent_reach::api::openapi::document()["paths"].as_object().unwrap();
    let mut with_ids = 0;
    for (path, item) in paths {
        for method in item.as_object().unwrap().keys() {
            let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let call = |path: String| {
                let body = crate::access::body_for(method, &path);
                let call = world.dev.request(verb.clone(), &path);
                Answer::of(if body.is_null() { call } else { call.json(&body) })
            };
            if let (Some(start), Some(end)) = (path.find('{'), path.find('}')) {
                with_ids += 1;
                for id in ["%ff", "%00", "%e2%80%ae", "a%2fb", "..%2f..", "%c0%af", "%zz", "%", "\u{202e}"] {
                    let answer = call(format!("{}{id}{}", &path[..start], &path[end + 1..])).await;
                    answer.problem(404, "not-found");
                }
            }
            for query in ["%ff=1", "x=%ff", "unknown=1", "%zz", "limit=1&limit=1", "="] {
                let answer = call(format!("{}?{query}", crate::access::filled(path))).await;
                assert_eq!(answer.header("content-type"), "application/problem+json", "{method} {path}?{query}");
                // What a path without its thing is asked is judged after the query.
                answer.problem(400, "invalid-query");
            }
        }
    }
    assert!(with_ids > 15, "{with_ids}");
}

#[tokio::test]
async fn a_compressed_body_is_refused_on_every_route_that_takes_one() {
    let world = World::start().await;
    let paths = agent_reach::api::openapi::document()["paths"].as_object().unwrap();
    let mut seen = 0;
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            if operation["requestBody"].is_null() {
                continue;
            }
            seen += 1;
            let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let call = |coding: &str| {
                let call = world.dev.request(verb.clone(), &crate::access::filled(path));
                let call =
                    call.header("content-type", "application/json").header("content-encoding", coding.to_owned());
                Answer::of(call.body("{}"))
            };
            for coding in ["gzip", "br", "identity, gzip", ""] {
                let answer = call(coding).await;
                answer.problem(415, "unsupported-encoding");
                assert_eq!(answer.header("accept-encoding"), "identity");
            }
            assert_ne!(call("Identity").await.status, 415, "{method} {path}");
        }
    }
    assert!(seen > 12, "{seen}");
}

#[tokio::test]
async fn a_callers_trace_is_in_every_answer_and_goes_on_with_its_task() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let traced = |method: Method, path: &str| world.dev.request(method, path).header("traceparent", TRACE);
    let task = traced(Method::POST, "/v1/tasks").json(&json!({"capability": "text.count"}));
    let task = Answer::of(task).await;
    assert_eq!((task.status, task.header("traceparent")), (202, TRACE));
    for (path, status) in [("/v1/tasks", 200), ("/v1/nothing", 404), ("/livez", 200), ("/v1/agents?x=1", 400)] {
        let answer = Answer::of(traced(Method::GET, path)).await;
        assert_eq!((answer.status, answer.header("traceparent")), (status, TRACE), "{path}");
    }
    assert_eq!(world.dev.get("/livez").await.header("traceparent"), "", "none is made up");
    for bad in ["", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "x"] {
        let call = world.dev.request(Method::GET, "/livez").header("traceparent", bad);
        let answer = Answer::of(call).await;
        assert_eq!((answer.status, answer.header("traceparent")), (200, ""), "{bad:?}");
    }
    assert_eq!(crate::work::claim(&world.dev, "w-1").await["traceparent"], TRACE);
    let history = world.dev.get(&format!("/v1/tasks/{}/history", task.json()["reach_id"].as_str().unwrap())).await;
    assert_eq!(history.json()["events"][0]["trace"], TRACE, "{}", history.text);
}

#[tokio::test]
async fn a_start_at_or_after_the_end_has_the_code_that_the_list_names() {
    let world = World::start().await;
    let answer = world.dev.post("/v1/agents", registration("weather-1", "weather.forecast")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = json!({"capability": "weather.forecast", "payload": {}, "lifetime_ms": 1000,
        "not_before": "2126-01-20T00:00:00Z"});
    world.dev.post("/v1/tasks", body.clone()).await.problem_at(422, "not-before-after-deadline", "/not_before");
    let batch = world.dev.post("/v1/batches", json!({"tasks": [body]})).await;
    assert_eq!(batch.json()["outcomes"][0]["problem"]["code"], "not-before-after-deadline", "{}", batch.text);
}
