//! The hub as every other program sees it: HTTP, nothing else. What this client can do, anyone can.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use agent_reach::ledger::ids::Namespace;
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde_json::Value;
use url::Url;

use crate::exit::{Code, Failure, Outcome, Problem};

/// Where a hub listens unless it is told otherwise.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:7676";
/// No single answer takes longer, long-polls aside.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which hub, and as whom.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Connect {
    /// The hub's address; http://127.0.0.1:7676 when absent
    #[arg(long, global = true, env = "REACH_URL", help_heading = "Connection")]
    pub(crate) url: Option<String>,
    /// Bearer token; better through the environment or a file than on a command line
    #[arg(long, global = true, env = "REACH_TOKEN", hide_env_values = true, help_heading = "Connection")]
    pub(crate) token: Option<Secret>,
    /// File with the bearer token
    #[arg(long, global = true, env = "REACH_TOKEN_FILE", help_heading = "Connection")]
    pub(crate) token_file: Option<PathBuf>,
    /// Namespace, for tokens that hold in several
    #[arg(long, global = true, env = "REACH_NAMESPACE", help_heading = "Connection")]
    pub(crate) namespace: Option<Namespace>,
}

/// A text that never shows itself.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that sends it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl std::str::FromStr for Secret {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() { Err("the token is empty".to_owned()) } else { Ok(Self(text.trim().to_owned())) }
    }
}

/// The address of a hub, or what is wrong with it: `127.0.0.1:7676` alone is the commonest mistake.
fn address(url: &str) -> Result<Url, String> {
    let is_usable = |url: &Url| url.has_host() && matches!(url.scheme(), "http" | "https");
    match Url::parse(url) {
        Ok(base) if is_usable(&base) => Ok(base),
        Ok(_) | Err(_)
            if !url.contains("://") && Url::parse(&format!("http://{url}")).is_ok_and(|url| is_usable(&url)) =>
        {
            Err(format!("an address begins with http:// or https://, as in http://{url}"))
        }
        Ok(_) => Err("an http or https address is needed, as in http://127.0.0.1:7676".to_owned()),
        Err(error) => Err(format!("{error}; an address looks like http://127.0.0.1:7676")),
    }
}

/// TLS needs a provider of its cryptography, once a process.
pub(crate) fn install_tls() {
    // Fails only when one is installed already, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// A client of one hub.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<Secret>,
    namespace: Option<Namespace>,
}

impl Client {
    /// Which hub it talks to, without whatever else its URL holds.
    pub(crate) fn url(&self) -> String {
        self.base.origin().ascii_serialization()
    }

    /// A client for what the command line names.
    pub(crate) fn new(connect: &Connect) -> Outcome<Self> {
        let token = match (&connect.token, &connect.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    Failure::Other(Code::Auth, format!("cannot read the token file {}: {error}", path.display()))
                })?;
                let unfit = |error| Failure::Other(Code::Auth, format!("the token file {}: {error}", path.display()));
                Some(text.parse().map_err(unfit)?)
            }
            (None, None) => None,
        };
        let url = connect.url.as_deref().unwrap_or(DEFAULT_URL);
        let mut client = Self::at(url, token)?;
        client.namespace.clone_from(&connect.namespace);
        Ok(client)
    }

    /// A client of the hub at `url`.
    pub(crate) fn at(url: &str, token: Option<Secret>) -> Outcome<Self> {
        let base = address(url).map_err(|why| Failure::Other(Code::Usage, format!("--url {url}: {why}")))?;
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("reach/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Failure::new(error.to_string()))?;
        Ok(Self { http, base, token, namespace: None })
    }

    /// A request to `path`, whose segments are escaped, so that an id cannot name another resource.
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let mut request = self.http.request(method, url).timeout(PATIENCE);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(namespace) = &self.namespace {
            request = request.header("Reach-Namespace", namespace.as_str());
        }
        request
    }

    /// `GET` with a query.
    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Outcome<Value> {
        answer(self.request(Method::GET, path).query(query)).await
    }

    /// `POST` with a JSON body.
    pub(crate) async fn post(&self, path: &[&str], body: &impl Serialize) -> Outcome<Value> {
        answer(self.request(Method::POST, path).json(body)).await
    }

    /// `PUT` with a JSON body.
    pub(crate) async fn put(&self, path: &[&str], body: &impl Serialize) -> Outcome<Value> {
        answer(self.request(Method::PUT, path).json(body)).await
    }

    /// `PATCH` with a JSON body.
    pub(crate) async fn patch(&self, path: &[&str], body: &impl Serialize) -> Outcome<Value> {
        answer(self.request(Method::PATCH, path).json(body)).await
    }

    /// `DELETE`.
    pub(crate) async fn delete(&self, path: &[&str]) -> Outcome<Value> {
        answer(self.request(Method::DELETE, path)).await
    }

    /// Every item of a paged list, at most `limit`, and whether there are more.
    pub(crate) async fn list(&self, path: &[&str], query: &[(&str, String)], limit: usize) -> Outcome<Listing> {
        let mut listing = Listing { items: Vec::new(), more: More::No, hints: Vec::new() };
        let mut cursor: Option<String> = None;
        loop {
            let mut query = query.to_vec();
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            query.push(("limit", limit.saturating_sub(listing.items.len()).clamp(1, 200).to_string()));
            let mut page = self.get(path, &query).await?;
            let hints = page.get_mut("hints").and_then(Value::as_array_mut).map(std::mem::take);
            listing.hints.extend(hints.unwrap_or_default());
            let (items, next) = open_page(page);
            listing.items.extend(items);
            match next {
                Some(_) if listing.items.len() >= limit => {
                    listing.more = More::Yes;
                    return Ok(listing);
                }
                Some(next) => cursor = Some(next),
                None => return Ok(listing),
            }
        }
    }
}

/// Items of a list.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The items.
    pub(crate) items: Vec<Value>,
    /// Are there more behind them?
    pub(crate) more: More,
    /// Names of the filter that nothing bears, where nothing was found.
    pub(crate) hints: Vec<Value>,
}

/// Are there more?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// Yes: a larger `--limit` shows them.
    Yes,
    /// No.
    No,
}

/// A page has `items` and, if there are more, a `next_cursor`.
fn open_page(mut page: Value) -> (Vec<Value>, Option<String>) {
    let next = page.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
    let items = page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
    (items.unwrap_or_default(), next)
}

/// Sends, and opens the JSON of a 2xx; anything else is a [`Failure`].
pub(crate) async fn answer(request: RequestBuilder) -> Outcome<Value> {
    let bytes = body(accepted(request).await?).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|error| Failure::new(format!("the hub's answer is not JSON: {error}")))
}

/// Sends, and gives the answer of a 2xx.
pub(crate) async fn accepted(request: RequestBuilder) -> Outcome<Response> {
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let bytes = body(response).await?;
    Err(Failure::Refused(Box::new(Problem::of(status.as_u16(), &bytes))))
}

async fn body(response: Response) -> Outcome<Vec<u8>> {
    Ok(response.bytes().await.map_err(unreachable)?.to_vec())
}

/// A failed call, in a sentence: which address, and what the system said at the bottom of the chain.
pub(crate) fn unreachable(error: reqwest::Error) -> Failure {
    let place = error.url().map(|url| format!("{}://{}", url.scheme(), url.authority())).unwrap_or_default();
    if error.is_timeout() && !error.is_connect() {
        let advice = "It may be stuck, or overloaded: look at its log.";
        return Failure::Other(Code::Unreachable, format!("the hub at {place} did not answer in time\n{advice}"));
    }
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let advice = "Is it running? Start one with `reach serve`.";
    Failure::Other(Code::Unreachable, format!("the hub at {place} does not answer: {cause}\n{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_itself() {
        assert_eq!(format!("{:?}", Secret::new("reach_abc")), "Secret(…)");
    }

    #[test]
    fn an_address_without_its_scheme_is_answered_with_the_whole_one() {
        for host in ["127.0.0.1:7676", "localhost:7676", "hub.example"] {
            let why = address(host).expect_err("no scheme");
            assert_eq!(why, format!("an address begins with http:// or https://, as in http://{host}"));
        }
        assert!(address("ftp://hub.example").expect_err("not http").starts_with("an http or https address is needed"));
        assert!(address("http://").expect_err("no host").ends_with("looks like http://127.0.0.1:7676"));
        assert!(address("https://hub.example/base").is_ok());
    }

    #[test]
    fn an_id_cannot_name_another_resource() {
        install_tls();
        let client = Client::at("http://127.0.0.1:1/base", None).expect("a valid address");
        let request = client.request(Method::GET, &["v1", "tasks", "../agents?x=1"]).build().expect("a valid request");
        assert_eq!(request.url().as_str(), "http://127.0.0.1:1/base/v1/tasks/..%2Fagents%3Fx=1");
    }

    #[tokio::test]
    async fn a_hub_that_hangs_does_not_answer() {
        install_tls();
        let stuck = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", stuck.local_addr().expect("bound"));
        let request = Client::at(&url, None).expect("a valid address").request(Method::GET, &["readyz"]);
        let failure = answer(request.timeout(Duration::from_millis(50))).await.expect_err("nobody answers");
        assert_eq!(failure.code(), Code::Unreachable, "{failure:?}");
    }

    #[test]
    fn a_page_opens_into_items_and_cursor() {
        let (items, next) = open_page(serde_json::json!({"items": [1, 2], "next_cursor": "c"}));
        assert_eq!((items.len(), next.as_deref()), (2, Some("c")));
    }
}
