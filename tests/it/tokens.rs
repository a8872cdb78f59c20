//! Tokens and callback secrets: shown once, rotated with overlap, revoked at once (R-SEC-1).

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_token_is_shown_once_works_and_is_dead_right_after_its_revocation() {
    let world = World::start().await;
    let made = world.dev.post("/v1/tokens", json!({"name": "reader", "scopes": ["read"]})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.header("cache-control"), "no-store");
    let (made, text) = (made.json(), made.json()["token"].as_str().unwrap().to_owned());
    assert!(made["receipt"]["seq"].is_u64() && made["receipt"]["hash"].as_str().unwrap().len() == 64, "{made}");
    let reader = world.with_token(Some(&text));
    assert_eq!(reader.get("/v1/agents").await.status, 200);
    let listed = world.dev.get("/v1/tokens").await;
    assert_eq!(listed.json()["items"][0]["name"], "reader");
    let secret = text.rsplit_once('_').unwrap().1;
    assert!(!listed.text.contains(secret), "a list shows no secret");
    let id = made["token_id"].as_str().unwrap();
    let revoked = world.dev.delete(&format!("/v1/tokens/{id}")).await;
    assert_eq!(revoked.status, 200, "{}", revoked.text);
    reader.get("/v1/agents").await.problem(401, "unauthenticated");
    world.dev.delete(&format!("/v1/tokens/{id}")).await.problem(404, "not-found");
}

#[tokio::test]
async fn both_secrets_hold_while_a_rotation_overlaps_and_only_the_new_one_without_overlap() {
    let world = World::start().await;
    let made = world.dev.post("/v1/tokens", json!({"name": "reader", "scopes": ["read"]})).await.json();
    let first = world.with_token(made["token"].as_str());
    let rotate = format!("/v1/tokens/{}/rotate", made["token_id"].as_str().unwrap());
    let second = world.dev.post(&rotate, json!({})).await;
    assert_eq!(second.status, 200, "{}", second.text);
    let second = world.with_token(second.json()["token"].as_str());
    assert_eq!(first.get("/v1/agents").await.status, 200);
    assert_eq!(second.get("/v1/agents").await.status, 200);
    let third = world.dev.post(&rotate, json!({"overlap_ms": 0})).await.json();
    second.get("/v1/agents").await.problem(401, "unauthenticated");
    first.get("/v1/agents").await.problem(401, "unauthenticated");
    assert_eq!(world.with_token(third["token"].as_str()).get("/v1/agents").await.status, 200);
    world.dev.post(&rotate, json!({"overlap_ms": 700_000_000})).await.problem_at(422, "invalid-field", "/overlap_ms");
}

#[tokio::test]
async fn nobody_hands_out_more_than_they_have() {
    let world = World::start().await;
    let admin = world.somebody(json!({"scopes": ["admin", "read"], "capabilities": ["text.count"]})).await;
    let token = |body: serde_json::Value| admin.post("/v1/tokens", body);
    token(json!({"name": "x", "scopes": ["submit"], "capabilities": ["text.count"]})).await.problem_at(
        403,
        "scope-missing",
        "/scopes/0",
    );
    token(json!({"name": "x", "scopes": ["read"]})).await.problem_at(422, "invalid-field", "/capabilities");
    token(json!({"name": "x", "scopes": ["read"], "capabilities": ["other.thing"]})).await.problem_at(
        422,
        "invalid-field",
        "/capabilities/0",
    );
    token(json!({"name": "x", "scopes": ["read"], "capabilities": ["text.count"], "namespaces": "all"}))
        .await
        .problem(403, "scope-missing");
    let made = token(json!({"name": "x", "scopes": ["read"], "capabilities": ["text.count"]})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let elsewhere = world.somebody_in("other", json!({"scopes": ["admin"]})).await;
    let id = made.json()["token_id"].as_str().unwrap().to_owned();
    elsewhere.delete(&format!("/v1/tokens/{id}")).await.problem(404, "not-found");
    assert_eq!(elsewhere.get("/v1/tokens").await.json()["items"].as_array().unwrap().len(), 1, "its own only");
}

#[tokio::test]
async fn a_callback_secret_is_shown_once_and_names_never_leave_their_namespace() {
    let world = World::start().await;
    let made = world.dev.post("/v1/callback-secrets", json!({"name": "travel"})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert!(made.json()["secret"].as_str().unwrap().starts_with("whsec_"));
    world.dev.post("/v1/callback-secrets", json!({"name": "travel"})).await.problem(409, "name-taken");
    world.dev.post("/v1/callback-secrets", json!({"name": "a/b"})).await.problem_at(422, "invalid-field", "/name");
    let listed = world.dev.get("/v1/callback-secrets").await;
    assert!(!listed.text.contains("whsec_"), "{}", listed.text);
    let names: Vec<_> = listed.json()["items"].as_array().unwrap().iter().map(|item| item["name"].clone()).collect();
    assert_eq!(names, ["default", "travel"]);
    let rotated = world.dev.post("/v1/callback-secrets/travel/rotate", json!({})).await;
    assert_ne!(rotated.json()["secret"], made.json()["secret"]);
    let elsewhere = world.somebody_in("other", json!({"scopes": ["admin"]})).await;
    elsewhere.delete("/v1/callback-secrets/travel").await.problem(404, "not-found");
    world.dev.delete("/v1/callback-secrets/a%2fb").await.problem(404, "not-found");
    assert_eq!(world.dev.delete("/v1/callback-secrets/travel").await.status, 204);
}

#[tokio::test]
async fn nobody_takes_over_a_token_that_can_do_more_by_rotating_it() {
    let world = World::start().await;
    let strong = json!({"name": "x", "scopes": ["submit", "read"], "agents": ["w-*"]});
    let strong = world.dev.post("/v1/tokens", strong).await.json();
    let rotate = format!("/v1/tokens/{}/rotate", strong["token_id"].as_str().unwrap());
    let weak = world.somebody(json!({"scopes": ["admin", "read"]})).await;
    weak.post(&rotate, json!({})).await.problem(403, "scope-missing");
    let narrow = world.somebody(json!({"scopes": ["admin", "read", "submit"], "capabilities": ["text.count"]})).await;
    narrow.post(&rotate, json!({})).await.problem(403, "capability-not-allowed");
    let equal = world.somebody(json!({"scopes": ["admin", "read", "submit"]})).await;
    assert_eq!(equal.post(&rotate, json!({})).await.status, 200);
    // Ending one is always within an admin's right.
    assert_eq!(weak.delete(rotate.strip_suffix("/rotate").unwrap()).await.status, 200);
}
