//! The one HTTP client of the hub's own calls.
//!
//! Why an own wrapper: it connects to nothing that the guard did not check, and it can tell "nobody can have seen this
//! request" from "somebody may have" (semantics 8).
//!
//! - A name is resolved once, by [`GuardedResolver`], which hands the connector only addresses that passed; so the
//!   address connected to is one that was checked. Address literals never reach a resolver and are checked before.
//! - No redirects, no proxies from the environment, no retries, no cookies.
//! - A request counts as sent from the moment at which its body is first asked for. The connector does that only on an
//!   open connection, so DNS, connect and TLS failures are *never sent*, and everything after is *maybe*.

use std::any::Any;
use std::error::Error as StdError;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use tokio::time::Instant;

use super::guard::{CheckedUrl, Guard, GuardRefusal, Purpose};

/// A name service answer is waited for this long.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are dropped before a typical server's own limit (5 s), so that a reused one is rarely dying.
const IDLE: Duration = Duration::from_secs(3);
/// After a status that needs no body, so long is spent on reading the rest for the connection's sake.
const DRAIN: Duration = Duration::from_millis(500);

/// Name service, so that tests can bring their own.
pub trait Lookup: Send + Sync {
    /// Every address of a name.
    fn lookup(&self, name: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>>;
}

/// The machine's name service.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, name: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Could anybody have seen the request's body?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// No byte of it left the hub.
    Never,
    /// Nobody knows.
    Maybe,
}

/// What went wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The guard refused the URL or every address of its name.
    Refused(GuardRefusal),
    /// The name could not be resolved.
    Dns,
    /// No connection, or no TLS session.
    Connect,
    /// Time was over.
    Timeout,
    /// The connection broke, or what came was no HTTP.
    Broken,
}

impl Trouble {
    /// A short stable word, as events hold it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.rule.word(),
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
        }
    }
}

/// A request that got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostError {
    /// Could it have been seen?
    pub sent: Sent,
    /// Why.
    pub trouble: Trouble,
}

impl PostError {
    const fn never(trouble: Trouble) -> Self {
        Self { sent: Sent::Never, trouble }
    }
}

/// Bounds of one request.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Until the body begins to leave: resolve, connect, TLS.
    pub connect: Duration,
    /// In all, the answer's body included.
    pub total: Duration,
    /// Bytes of the answer's body at most.
    pub max_body: usize,
}

/// One request to make.
pub struct Outgoing {
    /// What for: which list of networks holds.
    pub purpose: Purpose,
    /// Where to; checked here.
    pub url: String,
    /// Headers besides the usual.
    pub headers: HeaderMap,
    /// The body; JSON.
    pub body: Bytes,
    /// Bounds.
    pub limits: Limits,
    /// Dropped once the body begins to leave: a place in line, held only while connecting.
    pub until_sent: Option<Box<dyn Any + Send + Sync>>,
}

/// The body of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// All of it.
    Whole(Vec<u8>),
    /// More than the bound.
    TooLarge,
    /// It broke off or came too slowly.
    Broken,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// HTTP status.
    pub status: u16,
    /// `Retry-After`, as it came.
    pub retry_after: Option<String>,
    /// `Content-Type`, as it came.
    pub content_type: Option<String>,
    /// Its body.
    pub body: Received,
}

/// Why no client could be made: a fault of the machine.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client can't be set up: {0}")]
pub struct SetupError(#[from] reqwest::Error);

/// The client; cheap to clone.
#[derive(Clone)]
pub struct HttpClient {
    guard: Arc<Guard>,
    // One for each purpose: a pooled connection must not serve the other one, whose list differs.
    callbacks: reqwest::Client,
    agents: reqwest::Client,
}

impl HttpClient {
    /// A client that connects only where `guard` allows.
    ///
    /// # Errors
    /// [`SetupError`] when TLS can't be set up.
    pub fn new(guard: Guard, lookup: Arc<dyn Lookup>) -> Result<Self, SetupError> {
        // Somebody else may have installed it already; then that one serves.
        drop(rustls::crypto::ring::default_provider().install_default());
        let guard = Arc::new(guard);
        let client = |purpose| {
            let resolver = GuardedResolver { guard: Arc::clone(&guard), purpose, lookup: Arc::clone(&lookup) };
            build(resolver)
        };
        Ok(Self { callbacks: client(Purpose::Callback)?, agents: client(Purpose::Agent)?, guard })
    }

    /// The guard that it asks.
    #[must_use]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Posts once; never twice.
    ///
    /// # Errors
    /// [`PostError`] when no answer's status came.
    pub async fn post(&self, request: Outgoing) -> Result<Incoming, PostError> {
        let Outgoing { purpose, url, headers, body, limits, until_sent } = request;
        let url: CheckedUrl =
            self.guard.check_url(&url, purpose).map_err(|refusal| PostError::never(Trouble::Refused(refusal)))?;
        let end = Instant::now() + limits.total;
        let mark = Arc::new(AtomicBool::new(body.is_empty()));
        let body = MarkedBody { bytes: Some(body), mark: Arc::clone(&mark), until_sent };
        let client = match purpose {
            Purpose::Callback => &self.callbacks,
            Purpose::Agent => &self.agents,
        };
        let sending = client.post(url.url().clone()).headers(headers).body(reqwest::Body::wrap(body)).send();
        tokio::pin!(sending);
        let connected_by = tokio::time::sleep(limits.connect.min(limits.total));
        let answer = tokio::select! {
            answer = &mut sending => Some(answer),
            () = connected_by => None,
        };
        let is_sent = || mark.load(Ordering::Acquire);
        let answer = match answer {
            Some(answer) => answer,
            // Nothing polls the request between this look and its drop: never sent it stays.
            None if !is_sent() => return Err(PostError::never(Trouble::Timeout)),
            None => match tokio::time::timeout_at(end, &mut sending).await {
                Ok(answer) => answer,
                Err(_) => return Err(PostError { sent: Sent::Maybe, trouble: Trouble::Timeout }),
            },
        };
        match answer {
            Ok(response) => Ok(receive(response, end, limits.max_body).await),
            Err(error) => {
                let sent = if is_sent() { Sent::Maybe } else { Sent::Never };
                Err(PostError { sent, trouble: trouble(&error, sent) })
            }
        }
    }
}

fn build(resolver: GuardedResolver) -> Result<reqwest::Client, reqwest::Error> {
    let builder = || {
        reqwest::Client::builder()
            .user_agent(concat!("agent-reach/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .retry(reqwest::retry::never())
            .no_proxy()
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(64)
            .tcp_nodelay(true)
            .dns_resolver(resolver.clone())
    };
    builder().build().or_else(|error| {
        // A machine without any root certificate still serves plain HTTP; https then fails, as never sent.
        tracing::warn!(%error, "no root certificates: https destinations can't be reached");
        builder().tls_certs_only([]).build()
    })
}

fn trouble(error: &reqwest::Error, sent: Sent) -> Trouble {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(refusal) = cause.downcast_ref::<GuardRefusal>() {
            return Trouble::Refused(*refusal);
        }
        if cause.is::<LookupFailed>() {
            return Trouble::Dns;
        }
        source = cause.source();
    }
    match sent {
        Sent::Never => Trouble::Connect,
        Sent::Maybe => Trouble::Broken,
    }
}

async fn receive(mut response: reqwest::Response, end: Instant, max_body: usize) -> Incoming {
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (status, retry_after, content_type) = (response.status().as_u16(), text(RETRY_AFTER), text(CONTENT_TYPE));
    // Only results and reasons are read with all the time there is.
    let end = match status {
        200..=299 | 400 | 422 => end,
        _ => end.min(Instant::now() + DRAIN),
    };
    let read = async {
        let mut whole = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if whole.len().saturating_add(chunk.len()) > max_body => return Received::TooLarge,
                Ok(Some(chunk)) => whole.extend_from_slice(&chunk),
                Ok(None) => return Received::Whole(whole),
                Err(_) => return Received::Broken,
            }
        }
    };
    let body = tokio::time::timeout_at(end, read).await.unwrap_or(Received::Broken);
    Incoming { status, retry_after, content_type, body }
}

/// A body that notes when it is first asked for.
struct MarkedBody {
    bytes: Option<Bytes>,
    mark: Arc<AtomicBool>,
    until_sent: Option<Box<dyn Any + Send + Sync>>,
}

impl Body for MarkedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.mark.store(true, Ordering::Release);
        self.until_sent = None;
        Poll::Ready(self.bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX)))
    }
}

/// Resolves once and gives out only what the guard lets through.
#[derive(Clone)]
struct GuardedResolver {
    guard: Arc<Guard>,
    purpose: Purpose,
    lookup: Arc<dyn Lookup>,
}

#[derive(Debug, thiserror::Error)]
#[error("the name could not be resolved")]
struct LookupFailed;

impl reqwest::dns::Resolve for GuardedResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let Self { guard, purpose, lookup } = self.clone();
        let found = lookup.lookup(name.as_str().to_owned());
        Box::pin(async move {
            let found = match tokio::time::timeout(LOOKUP_TIMEOUT, found).await {
                Ok(Ok(found)) if !found.is_empty() => found,
                Ok(Ok(_) | Err(_)) | Err(_) => return Err(LookupFailed.into()),
            };
            let mut allowed: Vec<SocketAddr> = Vec::new();
            let mut refused = None;
            for address in found {
                match guard.check_addr(address, purpose) {
                    // The port comes from the URL.
                    Ok(()) => allowed.push(SocketAddr::new(address, 0)),
                    Err(refusal) => refused = refused.or(Some(refusal)),
                }
            }
            match refused {
                Some(refusal) if allowed.is_empty() => Err(refusal.into()),
                Some(_) | None => Ok(Box::new(allowed.into_iter()) as reqwest::dns::Addrs),
            }
        })
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
