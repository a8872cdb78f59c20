//! Who may do what, and what others see of it.

use agent_reach::api::auth::scope::{Allowed, TABLE};
use agent_reach::ledger::machine::access::Scope;
use reqwest::Method;
use serde_json::json;

use crate::world::{Answer, DEV_TOKEN, World};

#[tokio::test]
async fn without_a_valid_token_every_call_but_the_public_ones_is_401() {
    let world = World::start().await;
    let wrong = format!("reachtok_0123456789abcdef_{}", "0".repeat(64));
    let callers = [None, Some(""), Some("wrong"), Some(wrong.as_str()), Some(&DEV_TOKEN[1..])];
    for token in callers {
        let answer = world.with_token(token).get("/v1/agents").await;
        answer.problem(401, "unauthenticated");
        assert!(answer.header("www-authenticate").starts_with("Bearer"), "{:?}", answer.headers);
    }
    for scheme in [format!("Basic {DEV_TOKEN}"), DEV_TOKEN.to_owned()] {
        let call = world.nobody().request(Method::GET, "/v1/agents").header("authorization", scheme);
        Answer::of(call).await.problem(401, "unauthenticated");
    }
    let served = world.nobody().get("/openapi.json").await.json();
    for (method, path, allowed) in TABLE {
        if served["paths"][*path][*method].is_null() {
            continue;
        }
        let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let answer = Answer::of(world.nobody().request(verb, &filled(path))).await;
        match allowed {
            Allowed::Everybody => assert_eq!(answer.status, 200, "{method} {path}"),
            Allowed::AnyOf(_) | Allowed::Everywhere(_) => {
                answer.problem(401, "unauthenticated");
            }
        }
    }
}

/// The path with ids that parse and name nothing.
pub(crate) fn filled(path: &str) -> String {
    path.replace("{reach_id}", "reach_01h455vb4pex5vsknk084sn02q")
        .replace("{batch_id}", "batch_01h455vb4pex5vsknk084sn02q")
        .replace("{callback_id}", "msg_01h455vb4pex5vsknk084sn02q")
        .replace("{replay_id}", "replay_01h455vb4pex5vsknk084sn02q")
        .replace("{agent_id}", "absent")
        .replace("{capability}", "a.b")
        .replace("{token_id}", "absent")
        .replace("{name}", "absent")
}

/// A body that gets through the door of that path; `null` for none.
pub(crate) fn body_for(method: &str, path: &str) -> serde_json::Value {
    match (method, path) {
        ("post", "/v1/agents") => crate::world::registration("a", "a.b"),
        (_, path) if path.ends_with("/breakers/{capability}") => json!({"state": "open", "reason": "test"}),
        (_, path) if path.ends_with("/heartbeat") || path.ends_with("/offline") => json!({"incarnation": 1}),
        (_, path) if path.ends_with("/claim") => json!({"incarnation": 1, "max": 1, "wait_ms": 0}),
        (_, path) if path.ends_with("/ack") || path.ends_with("/release") => {
            json!({"agent_id": "a", "incarnation": 1, "attempt": 1, "lease": "x"})
        }
        (_, path) if path.ends_with("/progress") => {
            json!({"agent_id": "a", "incarnation": 1, "attempt": 1, "lease": "x", "stage": "s"})
        }
        (_, path) if path.ends_with("/complete") => {
            json!({"agent_id": "a", "incarnation": 1, "attempt": 1, "lease": "x", "result": 1})
        }
        (_, path) if path.ends_with("/fail") => json!({"agent_id": "a", "incarnation": 1, "attempt": 1, "lease": "x",
            "error": {"code": "c", "message": "m"}, "retryable": false}),
        ("post", "/v1/work/reports") => json!({"agent_id": "a", "incarnation": 1, "reports": []}),
        ("post", "/v1/tasks" | "/v1/route/explain") => json!({"capability": "a.b", "payload": 1}),
        ("post", "/v1/batches") => json!({"tasks": []}),
        ("post", "/v1/callback-secrets") => json!({"name": "travel"}),
        ("post", "/v1/tokens") => json!({"name": "x", "scopes": ["admin"]}),
        ("put", "/v1/policies/capabilities") => json!({"capability": "text.count", "reason": "test"}),
        ("put", "/v1/policies/routing") => json!({"capability": "text.count", "tiers": true, "reason": "test"}),
        ("post", "/v1/replays") => json!({"select": {"state": ["failed"]}, "reason": "test"}),
        ("patch", _) => json!({"rate_per_s": 5}),
        (_, path) if path.ends_with("/tasks/{reach_id}/redrive") => json!({"reason": "test"}),
        (_, path) if path.ends_with("/resolve") => json!({"resolution": "fail", "reason": "test"}),
        ("put", "/v1/policies/hub") => json!({"policy": {"replays_per_second": 7}, "reason": "test"}),
        ("put", "/v1/policies") => json!({"policy": {}, "reason": "test"}),
        ("post", _) => json!({}),
        _ => serde_json::Value::Null,
    }
}

#[tokio::test]
async fn every_row_of_the_scope_table_behaves_as_it_says() {
    let world = World::start().await;
    let served = world.dev.get("/openapi.json").await.json();
    for scope in Scope::ALL {
        let caller = world.somebody(json!({"scopes": [scope.name()], "agents": ["*"]})).await;
        for (method, path, allowed) in TABLE {
            if served["paths"][*path][*method].is_null() {
                continue;
            }
            let may = match allowed {
                Allowed::Everybody => true,
                Allowed::AnyOf(scopes) => scopes.contains(&scope),
                Allowed::Everywhere(_) => false,
            };
            let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let call = caller.request(verb, &filled(path));
            let body = body_for(method, path);
            let call = if body.is_null() { call } else { call.json(&body) };
            let answer = Answer::of(call).await;
            let refused = answer.status == 403;
            assert_eq!(refused, !may, "{method} {path} with {}: {} {}", scope.name(), answer.status, answer.text);
            if refused {
                answer.problem(403, "scope-missing");
            } else {
                assert!(answer.status < 500, "{method} {path}: {}", answer.text);
            }
        }
    }
}

#[tokio::test]
async fn semantics_7_a_token_acts_only_as_the_agents_that_it_names() {
    let world = World::start().await;
    let worker = world.somebody(json!({"scopes": ["register", "work"], "agents": ["weather-*", "text-1"]})).await;
    worker.register("weather-1", "weather.forecast").await;
    worker.register("text-1", "text.count").await;
    world.dev.register("text-2", "text.count").await;
    let refused = worker.post("/v1/agents", crate::world::registration("text-2", "text.count")).await;
    let refused_text = refused.text.clone();
    let refused = refused.problem(404, "not-found");
    // It says what the token allows, and the same of an agent that is there and of one that is not.
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("may not register text-2") && detail.contains("weather-*, text-1"), "{refused}");
    assert_eq!(
        (&refused["errors"][0]["pointer"], &refused["agents"]),
        (&json!("/agent_id"), &json!(["weather-*", "text-1"]))
    );
    let unborn = worker.post("/v1/agents", crate::world::registration("text-3", "text.count")).await;
    assert_eq!(unborn.text.replace("text-3", "text-2"), refused_text);
    let none = world.somebody(json!({"scopes": ["register"]})).await;
    let none =
        none.post("/v1/agents", crate::world::registration("text-3", "text.count")).await.problem(404, "not-found");
    assert!(none["detail"].as_str().unwrap().contains("names no agent"), "{none}");
    let absent = worker.post("/v1/agents/absent/heartbeat", json!({"incarnation": 1})).await;
    for call in ["heartbeat", "offline", "drain"] {
        let body = if call == "drain" { json!({}) } else { json!({"incarnation": 1}) };
        let answer = worker.post(&format!("/v1/agents/text-2/{call}"), body).await;
        assert_eq!((answer.status, answer.unnamed()), (404, absent.unnamed()), "{call}");
    }
    worker.delete("/v1/agents/text-2").await.problem(404, "not-found");
    assert_eq!(worker.post("/v1/agents/weather-1/heartbeat", json!({"incarnation": 1})).await.status, 200);
}

#[tokio::test]
async fn semantics_39_a_namespace_is_named_or_comes_from_the_token_and_another_is_404() {
    let world = World::start().await;
    let home = world.somebody_in("home", json!({"scopes": ["read"]})).await;
    let with = |namespace: &str| home.request(Method::GET, "/v1/agents").header("Reach-Namespace", namespace);
    assert_eq!(Answer::of(with("home")).await.status, 200);
    Answer::of(with("other")).await.problem(404, "not-found");
    Answer::of(with("a b")).await.problem(400, "invalid-header");
    let everywhere = world.somebody(json!({"scopes": ["read", "operate"], "namespaces": "all"})).await;
    everywhere.get("/v1/agents").await.problem(400, "namespace-missing");
    assert_eq!(everywhere.get("/metrics").await.status, 200);
    home.get("/metrics").await.problem(403, "scope-missing");
    // Calls about no namespace judge the header as all others do.
    for path in ["/metrics", "/v1/cluster", "/v1/machine", "/v1/tasks"] {
        let named = |caller: &crate::world::Client, namespace: &str| {
            Answer::of(caller.request(Method::GET, path).header("Reach-Namespace", namespace.to_owned()))
        };
        for bad in ["../x", "", "a b", "a,b"] {
            named(&everywhere, bad).await.problem(400, "invalid-header");
        }
        named(&home, "other").await.problem(404, "not-found");
        assert_eq!(named(&everywhere, "home").await.status, 200, "{path}");
        let twice = everywhere.request(Method::GET, path).header("Reach-Namespace", "a").header("Reach-Namespace", "a");
        Answer::of(twice).await.problem(400, "invalid-header");
    }
}

#[tokio::test]
async fn r_sec_1_a_token_for_some_capabilities_decides_nothing_about_tasks_of_others() {
    let world = World::start().await;
    world.dev.register("f-1", "text.count").await;
    let failed = crate::replays::failed(&world.dev).await;
    let held = crate::replays::orphans(&world.dev, [json!({"payload": 1})]).await.remove(0);
    let limited = world.somebody(json!({"scopes": ["submit", "operate", "read"], "capabilities": ["other.cap"]})).await;
    let why = || json!({"reason": "mine"});
    let rules = json!({"capability": "text.count", "slow_reach": {"policy": "wait"}, "reason": "mine"});
    let over = |select: serde_json::Value| crate::replays::plan(&select);
    for (path, body) in [
        (format!("/v1/tasks/{failed}/redrive"), why()),
        (format!("/v1/tasks/{held}/resolve"), json!({"resolution": "hand-over", "reason": "mine"})),
        (format!("/v1/tasks/{held}/cancel"), why()),
        (format!("/v1/tasks/{held}/approve"), json!(null)),
        ("/v1/replays".to_owned(), over(json!({"state": ["failed"], "capability": "text.count"}))),
        ("/v1/replays".to_owned(), over(json!({"state": ["failed"]}))),
    ] {
        limited.post(&path, body).await.problem(403, "capability-not-allowed");
    }
    limited.put("/v1/policies/capabilities", rules).await.problem(403, "capability-not-allowed");
    // Who offers it would be handed its payloads.
    let worker = json!({"scopes": ["register", "work"], "agents": ["*"], "capabilities": ["other.cap"]});
    let worker = world.somebody(worker).await;
    let offers = |capability: &str| {
        let offers = [json!({"capability": "other.cap"}), json!({"capability": capability})];
        json!({"agent_id": "l-1", "transport": {"kind": "pull"}, "max_concurrency": 1, "capabilities": offers})
    };
    let refused = worker.post("/v1/agents", offers("text.count")).await;
    refused.problem_at(403, "capability-not-allowed", "/capabilities/1/capability");
    let own = json!({"agent_id": "l-1", "transport": {"kind": "pull"}, "max_concurrency": 1,
        "capabilities": [{"capability": "other.cap"}]});
    assert_eq!(worker.post("/v1/agents", own).await.status, 200);
    for more in [json!({"undo": true}), json!({"dry_run": true}), json!({"tiers": true})] {
        let mut routing = json!({"capability": "text.count", "reason": "mine"});
        routing.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        limited.put("/v1/policies/routing", routing).await.problem(403, "capability-not-allowed");
    }
    limited.post(&format!("/v1/tasks/{}/cancel", filled("{reach_id}")), why()).await.problem(404, "not-found");
    assert_eq!(world.dev.get(&format!("/v1/tasks/{held}")).await.json()["state"], "orphaned");
    let allowed = world.somebody(json!({"scopes": ["operate"], "capabilities": ["text.count"]})).await;
    assert_eq!(allowed.post(&format!("/v1/tasks/{failed}/redrive"), why()).await.status, 202);
}
