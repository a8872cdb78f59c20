//! The caller's side of callbacks: a receiver that believes nothing but a valid signature (Standard Webhooks).
//!
//! It refuses every fiftieth message once, as real receivers do, so that a second try must come with the same id, the
//! same content and a fresh signature.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use agent_reach::ledger::time::{Clock as _, SystemClock};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::exit::{Failure, Outcome};

/// A signature older or newer than that is refused.
const TOLERANCE_S: u64 = 300;
/// A longer body is refused.
const LONGEST: usize = 2 << 20;
/// One first try in so many is refused on purpose.
const REFUSE_ONE_IN: usize = 50;

/// What one message said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// `task.succeeded` …
    pub(crate) kind: String,
    /// Which task.
    pub(crate) reach_id: String,
    digest: [u8; 32],
}

/// What has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inbox {
    /// By `webhook-id`, as first accepted.
    pub(crate) messages: BTreeMap<String, Message>,
    /// Deliveries in all.
    pub(crate) deliveries: u64,
    /// Deliveries without a valid signature.
    pub(crate) invalid: u64,
    /// The same id with another content.
    pub(crate) changed: u64,
    /// First tries refused on purpose.
    pub(crate) refused: u64,
    seen: BTreeMap<String, [u8; 32]>,
}

/// A running receiver.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Where it listens.
    pub(crate) url: String,
    inbox: Arc<Mutex<Inbox>>,
    secret: Arc<Mutex<Option<Vec<u8>>>>,
    accepting: JoinHandle<()>,
}

impl Receiver {
    /// Listens on a free loopback port.
    pub(crate) async fn start() -> Outcome<Self> {
        let failed = |error: std::io::Error| Failure::new(format!("the callback receiver cannot listen: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let url = format!("http://{}/hook", listener.local_addr().map_err(failed)?);
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let secret = Arc::new(Mutex::new(None));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&inbox), Arc::clone(&secret)));
        Ok(Self { url, inbox, secret, accepting })
    }

    /// From now on messages must be signed with this `whsec_…` secret.
    pub(crate) fn trust(&self, secret: &str) -> Outcome {
        let key = key_of(secret).ok_or_else(|| Failure::new("the hub's callback secret is not a whsec_ secret"))?;
        *self.secret.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(())
    }

    /// What has come so far.
    pub(crate) fn inbox(&self) -> Inbox {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many messages have come.
    pub(crate) fn count(&self) -> usize {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).messages.len()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

type Shared<T> = Arc<Mutex<T>>;

async fn accept(listener: TcpListener, inbox: Shared<Inbox>, secret: Shared<Option<Vec<u8>>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (inbox, secret) = (Arc::clone(&inbox), Arc::clone(&secret));
        tokio::spawn(async move {
            let service = service_fn(move |request| take(request, Arc::clone(&inbox), Arc::clone(&secret)));
            drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn take(
    request: Request<Incoming>,
    inbox: Shared<Inbox>,
    secret: Shared<Option<Vec<u8>>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let status = match Limited::new(body, LONGEST).collect().await {
        Err(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Ok(body) => {
            let key = secret.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let now = SystemClock.wall().0 / 1_000;
            let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.take(key.as_deref(), &parts.headers, &body.to_bytes(), now)
        }
    };
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    Ok(response)
}

impl Inbox {
    fn take(&mut self, key: Option<&[u8]>, headers: &HeaderMap, body: &[u8], now_s: u64) -> StatusCode {
        self.deliveries += 1;
        let Some(id) = key.and_then(|key| verified(key, headers, body, now_s)) else {
            self.invalid += 1;
            return StatusCode::UNAUTHORIZED;
        };
        let digest: [u8; 32] = Sha256::digest(body).into();
        let first = !self.seen.contains_key(&id);
        if *self.seen.entry(id.clone()).or_insert(digest) != digest {
            self.changed += 1;
        }
        if first && self.seen.len().is_multiple_of(REFUSE_ONE_IN) {
            self.refused += 1;
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        let told: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |at: &str| told.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let message = Message { kind: text("/type"), reach_id: text("/data/reach_id"), digest };
        self.messages.entry(id).or_insert(message);
        StatusCode::OK
    }
}

/// The message id, if one of the signatures is valid and fresh.
fn verified(key: &[u8], headers: &HeaderMap, body: &[u8], now_s: u64) -> Option<String> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let (id, at) = (header("webhook-id")?, header("webhook-timestamp")?);
    if at.parse::<u64>().ok()?.abs_diff(now_s) > TOLERANCE_S {
        return None;
    }
    header("webhook-signature")?.split(' ').find_map(|signature| {
        let signature = STANDARD.decode(signature.strip_prefix("v1,")?).ok()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
        mac.update(format!("{id}.{at}.").as_bytes());
        mac.update(body);
        mac.verify_slice(&signature).ok()
    })?;
    Some(id.to_owned())
}

fn key_of(secret: &str) -> Option<Vec<u8>> {
    STANDARD.decode(secret.strip_prefix("whsec_")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NOW: u64 = 1_767_225_600;

    /// Signed by another implementation of the standard.
    fn signed(id: &str, at: u64, body: &[u8]) -> HeaderMap {
        let signer = standardwebhooks::Webhook::new(SECRET).expect("a good secret");
        let at = i64::try_from(at).expect("a near moment");
        let signature = signer.sign(id, at, body).expect("it signs");
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", id.parse().expect("ascii"));
        headers.insert("webhook-timestamp", at.to_string().parse().expect("ascii"));
        headers.insert("webhook-signature", format!("v1,AAAA {signature}").parse().expect("ascii"));
        headers
    }

    fn took(inbox: &mut Inbox, headers: &HeaderMap, body: &[u8]) -> StatusCode {
        inbox.take(key_of(SECRET).as_deref(), headers, body, NOW)
    }

    #[test]
    fn a_valid_signature_is_believed_once_per_id() {
        let mut inbox = Inbox::default();
        let body = br#"{"type":"task.succeeded","data":{"reach_id":"reach_x"}}"#;
        assert_eq!(took(&mut inbox, &signed("msg_1", NOW, body), body), StatusCode::OK);
        assert_eq!(took(&mut inbox, &signed("msg_1", NOW + 9, body), body), StatusCode::OK);
        assert_eq!((inbox.messages.len(), inbox.deliveries, inbox.changed), (1, 2, 0));
        assert_eq!(inbox.messages["msg_1"].reach_id, "reach_x");
    }

    #[test]
    fn a_forged_altered_or_stale_message_is_refused() {
        let mut inbox = Inbox::default();
        let headers = signed("msg_1", NOW, b"{}");
        assert_eq!(took(&mut inbox, &headers, b"{} "), StatusCode::UNAUTHORIZED);
        let stale = signed("msg_2", NOW - 301, b"{}");
        assert_eq!(took(&mut inbox, &stale, b"{}"), StatusCode::UNAUTHORIZED);
        assert_eq!(took(&mut inbox, &HeaderMap::new(), b"{}"), StatusCode::UNAUTHORIZED);
        assert_eq!((inbox.invalid, inbox.messages.len()), (3, 0));
    }

    #[test]
    fn the_same_id_with_another_content_is_counted() {
        let mut inbox = Inbox::default();
        took(&mut inbox, &signed("msg_1", NOW, b"{}"), b"{}");
        took(&mut inbox, &signed("msg_1", NOW, b"[]"), b"[]");
        assert_eq!(inbox.changed, 1);
    }

    #[test]
    fn one_first_try_in_fifty_is_refused_and_its_second_accepted() {
        let mut inbox = Inbox::default();
        for n in 1..=50 {
            let id = format!("msg_{n}");
            let status = took(&mut inbox, &signed(&id, NOW, b"{}"), b"{}");
            assert_eq!(status == StatusCode::OK, n < 50);
        }
        assert_eq!(took(&mut inbox, &signed("msg_50", NOW, b"{}"), b"{}"), StatusCode::OK);
        assert_eq!((inbox.refused, inbox.messages.len()), (1, 50));
    }
}
