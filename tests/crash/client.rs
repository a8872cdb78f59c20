//! Whoever calls the hub while it is killed.

use std::time::Duration;

use serde_json::Value;

use crate::hub::TOKEN;

/// A client that tries again while the hub is away.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
}

impl Client {
    pub(crate) fn new(url: String) -> Self {
        Self { http: reqwest::Client::new(), url }
    }

    pub(crate) async fn call(&self, post: Option<&Value>, path: &str) -> (u16, String) {
        loop {
            let url = format!("{}{path}", self.url);
            let call = match post {
                Some(body) => self.http.post(url).json(body),
                None => self.http.get(url),
            };
            if let Ok(answer) = call.bearer_auth(TOKEN).send().await {
                let status = answer.status().as_u16();
                if let Ok(text) = answer.text().await
                    && status != 503
                {
                    return (status, text);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, text) = self.call(None, path).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let (status, text) = self.call(Some(&body), path).await;
        (status, serde_json::from_str(&text).expect("JSON"))
    }

    /// The same under an idempotency key, tried once; nothing if no answer came.
    pub(crate) async fn keyed_once(&self, path: &str, key: &str, body: &Value) -> Option<(u16, Value)> {
        let call = self.http.post(format!("{}{path}", self.url)).header("Idempotency-Key", key);
        let answer = call.json(body).bearer_auth(TOKEN).send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, serde_json::from_str(&answer.text().await.ok()?).ok()?))
    }

    /// Every durable event after `after`.
    pub(crate) async fn events(&self, mut after: u64) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let (_, text) = self.call(None, &format!("/v1/events?after={after}&limit=1000&wait_ms=0")).await;
            let page: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let Some(last) = page.last().and_then(|event| event["seq"].as_u64()) else { return all };
            after = last;
            all.extend(page);
        }
    }
}
