//! Probes, figures, the machine as data, the document, policies.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn probes_need_no_token_and_say_what_they_looked_at() {
    let world = World::start().await;
    let nobody = world.nobody();
    assert_eq!(nobody.get("/livez").await.json(), json!({"live": true}));
    let ready = nobody.get("/readyz?verbose").await;
    assert_eq!(ready.status, 200, "{}", ready.text);
    assert_eq!(ready.header("cache-control"), "no-store");
    assert_eq!(ready.json()["recovery"], "done");
    let checks = ready.json()["checks"].as_array().unwrap().clone();
    assert!(checks.len() >= 4 && checks.iter().all(|check| check["passed"] == true), "{checks:?}");
    let document = nobody.get("/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert!(nobody.get("/docs").await.text.contains("/v1/agents"));
}

#[tokio::test]
async fn figures_count_calls_by_route_and_tell_the_states_gauges() {
    let world = World::start().await;
    world.dev.register("a", "text.count").await;
    world.dev.get("/v1/agents/secret-agent-name").await.problem(404, "not-found");
    let text = world.dev.get("/metrics").await.text;
    for line in [
        "http_server_requests_total{method=\"GET\",route=\"/v1/agents/{agent_id}\",status=\"404\"} 1",
        "reach_agents{namespace=\"dev\",health=\"healthy\",standing=\"active\"} 1",
        "# TYPE http_server_request_duration_seconds histogram",
        "# EOF",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("secret-agent-name"), "no label holds an id");
}

#[tokio::test]
async fn the_machine_is_served_as_the_table_that_apply_obeys() {
    let world = World::start().await;
    let machine = world.dev.get("/v1/machine").await.json();
    let rows = agent_reach::ledger::machine::task::table::rows().count();
    assert_eq!(machine["moves"].as_array().unwrap().len(), rows);
    let cluster = world.dev.get("/v1/cluster").await.json();
    assert_eq!((&cluster["mode"], &cluster["nodes"][0]["boot"]), (&json!("single"), &json!(1)), "{cluster}");
}

#[tokio::test]
async fn a_policy_is_replaced_with_a_reason_and_what_contradicts_itself_is_refused() {
    let world = World::start().await;
    assert_eq!(world.dev.get("/v1/policies").await.json()["policy"]["lost_after"], 9);
    let changed = world.dev.put("/v1/policies", json!({"policy": {"lost_after": 12}, "reason": "slow network"})).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    assert!(changed.json()["receipt"]["seq"].is_u64());
    let policy = world.dev.get("/v1/policies").await.json()["policy"].clone();
    assert_eq!((&policy["lost_after"], &policy["unhealthy_after"]), (&json!(12), &json!(3)));
    let wrong = json!({"policy": {"unhealthy_after": 9, "lost_after": 3}, "reason": "x"});
    world.dev.put("/v1/policies", wrong).await.problem(422, "policy-invalid");
    world.dev.put("/v1/policies", json!({"policy": {}})).await.problem_at(422, "invalid-field", "/reason");
    let elsewhere = world.somebody_in("other", json!({"scopes": ["read"]})).await;
    assert_eq!(elsewhere.get("/v1/policies").await.json()["policy"]["lost_after"], 9);
}
