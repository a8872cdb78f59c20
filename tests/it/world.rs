//! A hub in this process and the callers around it.

use std::sync::Arc;

use agent_reach::api::auth::token::DevToken;
use agent_reach::hub::guardian::Watermarks;
use agent_reach::hub::{FirstToken, Home, Hub, Options};
use agent_reach::ledger::ids::Namespace;
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::launch::ClockLeap;
use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::time::SystemClock;
use agent_reach::scheduler::outbound::guard::{Guard, Loopback};
use agent_reach::scheduler::outbound::hosts::Limits;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

/// The development token of every world.
pub(crate) const DEV_TOKEN: &str = "a-development-token-for-tests";

/// A running hub with an in-memory ledger.
pub(crate) struct World {
    hub: Option<Hub>,
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    /// Calls with the development token.
    pub(crate) dev: Client,
    _folder: tempfile::TempDir,
}

/// Somebody with a token.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl World {
    /// Starts a hub as `--dev` would.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts one whose options the test changes.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Options)) -> Self {
        // Another test of this process may have been first: the provider is the same.
        drop(rustls::crypto::ring::default_provider().install_default());
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options {
            listen: ([127, 0, 0, 1], 0).into(),
            home: Home::Given {
                store: Arc::new(MemoryStore::new()),
                keys: Keys::from_master(&[7; 32]),
                folder: folder.path().to_owned(),
            },
            clock: Arc::new(SystemClock),
            leap: ClockLeap::Refuse,
            store: agent_reach::ledger::store::fjall::Options::default(),
            first_token: FirstToken::None,
            api: agent_reach::api::Options {
                dev: Some(DevToken::new(DEV_TOKEN, Namespace::new("dev").unwrap()).unwrap()),
                ..agent_reach::api::Options::default()
            },
            guard: Guard { loopback: Loopback::Allowed, ..Guard::default() },
            callbacks: Limits::default(),
            alerts: None,
            watermarks: Watermarks::default(),
            snapshot_every: 200_000,
            append_deadline: std::time::Duration::from_secs(10),
            stop_grace: std::time::Duration::from_secs(10),
        };
        change(&mut options);
        let hub = Hub::start(options).await.unwrap();
        let url = format!("http://{}", hub.address());
        let dev = Client { http: reqwest::Client::new(), url: url.clone(), token: Some(DEV_TOKEN.to_owned()) };
        Self { hub: Some(hub), url, dev, _folder: folder }
    }

    /// Stops it cleanly; a test that says nothing more may as well drop it.
    pub(crate) async fn stop(mut self) {
        self.hub.take().unwrap().stop().await.unwrap();
    }

    /// Makes the hub look again, after a test moved its clock.
    pub(crate) fn nudge(&self) {
        self.hub.as_ref().unwrap().ledger().nudge();
    }

    /// The way to everything that the hub knows.
    pub(crate) fn ledger(&self) -> agent_reach::ledger::handle::Ledger {
        self.hub.as_ref().unwrap().ledger().clone()
    }

    /// Waits until the hub fails by itself.
    pub(crate) async fn failed(&mut self) -> agent_reach::ledger::sequencer::Fate {
        self.hub.as_mut().unwrap().failed().await
    }

    /// Somebody without a token.
    pub(crate) fn nobody(&self) -> Client {
        self.with_token(None)
    }

    /// Somebody with another token.
    pub(crate) fn with_token(&self, token: Option<&str>) -> Client {
        Client { token: token.map(str::to_owned), ..self.dev.clone() }
    }

    /// Somebody with a token made for it in the namespace `dev`: `body` beside the name.
    pub(crate) async fn somebody(&self, body: Value) -> Client {
        self.somebody_in("dev", body).await
    }

    /// The same in another namespace.
    pub(crate) async fn somebody_in(&self, namespace: &str, mut body: Value) -> Client {
        body["name"] = json!("somebody");
        let made = self.dev.request(Method::POST, "/v1/tokens").header("Reach-Namespace", namespace).json(&body);
        let made = Answer::of(made).await;
        assert_eq!(made.status, 201, "{}", made.text);
        self.with_token(made.json()["token"].as_str())
    }
}

impl Client {
    /// A call to be built on.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let call = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => call.bearer_auth(token),
            None => call,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::PATCH, path).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::PUT, path).json(&body)).await
    }

    /// A body byte for byte, said to be JSON.
    pub(crate) async fn post_raw(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        Answer::of(self.request(Method::POST, path).header("content-type", "application/json").body(body)).await
    }

    /// Registers a pull agent with one capability; answers its incarnation.
    pub(crate) async fn register(&self, agent: &str, capability: &str) -> u64 {
        let answer = self.post("/v1/agents", registration(agent, capability)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["incarnation"].as_u64().unwrap()
    }
}

/// The smallest registration.
pub(crate) fn registration(agent: &str, capability: &str) -> Value {
    json!({"agent_id": agent, "capabilities": [{"capability": capability}], "transport": {"kind": "pull"}})
}

impl Answer {
    /// Sends a call; its answer must be one that the document knows.
    pub(crate) async fn of(call: RequestBuilder) -> Self {
        let (client, call) = call.build_split();
        let call = call.unwrap();
        let (method, path) = (call.method().clone(), call.url().path().to_owned());
        let response = client.execute(call).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let answer = Self { status, headers, text: response.text().await.unwrap() };
        crate::document::hold(&method, &path, &answer);
        answer
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Its text without the id that a 404 names: what is left may say nothing about whether that exists.
    #[track_caller]
    pub(crate) fn unnamed(&self) -> String {
        const THINGS: [&str; 8] =
            ["task", "agent", "batch", "callback secret", "callback", "replay plan", "token", "namespace"];
        let (before, rest) =
            self.text.split_once("\"detail\":\"there is no ").unwrap_or_else(|| panic!("{}", self.text));
        let (named, after) = rest.split_once(" here\"").unwrap_or_else(|| panic!("{}", self.text));
        let named = named.strip_prefix("such ").unwrap_or(named);
        let thing = THINGS.iter().find(|thing| named.starts_with(**thing)).unwrap_or_else(|| panic!("{named}"));
        format!("{before}{thing}{after}")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// Asserts that it is a problem with that status and code; answers the document.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        for member in ["type", "title", "detail", "next"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member} in {problem}");
        }
        assert_ne!(problem["detail"], problem["title"], "the detail says nothing of its own: {problem}");
        problem
    }

    /// The same with the first pointer.
    #[track_caller]
    pub(crate) fn problem_at(&self, status: u16, code: &str, pointer: &str) {
        let problem = self.problem(status, code);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
}
