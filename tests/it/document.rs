//! The document against the hub: every answer that any test sees is held against /openapi.json (status, content type,
//! shape), and every example in it is sent.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use agent_reach::api::openapi;
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World};

/// Compiled schemas of answers by method, path, status and content type.
static SCHEMAS: LazyLock<Mutex<HashMap<String, Arc<jsonschema::Validator>>>> = LazyLock::new(Mutex::default);

/// The template of the document that a path fits: one without ids before one with.
fn template(path: &str) -> Option<&'static str> {
    let fits = |template: &str| {
        let (mut left, mut right) = (template.split('/'), path.split('/'));
        loop {
            match (left.next(), right.next()) {
                (None, None) => return true,
                (Some(name), Some(given)) if name == given || (name.starts_with('{') && !given.is_empty()) => {}
                _ => return false,
            }
        }
    };
    let templates = openapi::document()["paths"].as_object().unwrap().keys().map(String::as_str);
    templates.filter(|template| fits(template)).min_by_key(|template| template.matches('{').count())
}

/// What a `$ref` names.
fn resolved(value: &'static Value) -> &'static Value {
    match value["$ref"].as_str() {
        Some(name) => openapi::document().pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("{name}")),
        None => value,
    }
}

/// Holds an answer against the document.
pub(crate) fn hold(method: &Method, path: &str, answer: &Answer) {
    let Some(template) = template(path) else { return assert_eq!(answer.status, 404, "{path} is undocumented") };
    let method = if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_lowercase() };
    let called = format!("{method} {template}");
    let operation = &openapi::document()["paths"][template][&method];
    if operation.is_null() {
        return assert_eq!(answer.status, 405, "{called} is undocumented");
    }
    let response = resolved(&operation["responses"][answer.status.to_string()]);
    assert!(!response.is_null(), "{called} answered {}, which is undocumented: {}", answer.status, answer.text);
    let kind = answer.header("content-type").split(';').next().unwrap_or_default().to_owned();
    let content = &response["content"];
    if content.is_null() {
        return assert!(answer.text.is_empty(), "{called} {}: {}", answer.status, answer.text);
    }
    let media = &content[&kind];
    assert!(!media.is_null(), "{called} {} as {kind:?} is undocumented: {content}", answer.status);
    let (schema, documents): (_, Vec<&str>) = match kind.as_str() {
        "application/x-ndjson" => (&media["itemSchema"], answer.text.lines().collect()),
        kind if kind.ends_with("json") && !answer.text.is_empty() => (&media["schema"], vec![&answer.text]),
        _ => return,
    };
    let key = format!("{called} {} {kind}", answer.status);
    let known = SCHEMAS.lock().unwrap().get(&key).cloned();
    let schema = known.unwrap_or_else(|| compile(key.clone(), schema));
    for document in documents {
        let instance: Value = serde_json::from_str(document).unwrap();
        let faults: Vec<String> =
            schema.iter_errors(&instance).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
        assert!(faults.is_empty(), "{key}: {faults:#?} in {instance:#}");
    }
}

fn compile(key: String, schema: &Value) -> Arc<jsonschema::Validator> {
    let mut whole = schema.clone();
    whole["components"] = openapi::document()["components"].clone();
    let compiled = Arc::new(jsonschema::validator_for(&whole).unwrap_or_else(|error| panic!("{key}: {error}")));
    SCHEMAS.lock().unwrap().insert(key, Arc::clone(&compiled));
    compiled
}

#[tokio::test]
async fn every_example_of_the_document_works() {
    let world = World::start().await;
    let mut examples: Vec<(String, Method, Value)> = Vec::new();
    for (path, item) in openapi::document()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let example = &operation["requestBody"]["content"]["application/json"]["example"];
            let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            if !example.is_null() {
                examples.push((path.clone(), verb, example.clone()));
            }
        }
    }
    assert!(examples.len() > 12, "{}", examples.len());
    // Whatever another example needs comes first.
    let first = ["/v1/agents", "/v1/tasks", "/v1/callback-secrets", "/v1/tokens"];
    examples.sort_by_key(|(path, ..)| (!first.contains(&path.as_str()), path.ends_with("/offline"), path.clone()));
    let registration = examples[0].2.clone();
    let (mut task, mut token) = (String::new(), String::new());
    for (path, method, body) in examples {
        let filled = path.replace("{agent_id}", "weather-1").replace("{reach_id}", &task);
        let filled = filled.replace("{name}", "travel").replace("{token_id}", &token);
        if path.ends_with("/drain") {
            // A drain without work takes the agent out: the examples after it need another.
            let world = World::start().await;
            assert_eq!(world.dev.post("/v1/agents", registration.clone()).await.status, 200);
            let answer = world.dev.post(&filled, body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            continue;
        }
        let answer = Answer::of(world.dev.request(method, &filled).json(&body)).await;
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.text);
        match path.as_str() {
            "/v1/tasks" => task = answer.json()["reach_id"].as_str().unwrap().to_owned(),
            "/v1/tokens" => token = answer.json()["token_id"].as_str().unwrap().to_owned(),
            _ => {}
        }
    }
    let lines = &openapi::document()["paths"]["/v1/batches"]["post"]["requestBody"]["content"]["application/x-ndjson"];
    let lines = lines["example"].as_str().unwrap();
    let call = world.dev.request(Method::POST, "/v1/batches").header("content-type", "application/x-ndjson");
    let answer = Answer::of(call.body(lines)).await;
    assert_eq!((answer.status, &answer.json()["refused"]), (202, &json!(0)), "{}", answer.text);
}

#[tokio::test]
async fn the_root_says_where_to_go() {
    let world = World::start().await;
    let root = world.nobody().get("/").await.json();
    for name in ["docs", "openapi", "metrics", "live", "ready"] {
        assert_eq!(world.dev.get(root[name].as_str().unwrap()).await.status, 200, "{name}");
    }
}
