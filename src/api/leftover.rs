//! What is left of a request's body when its answer is ready.
//!
//! A call may be refused before its body was read: for its token, its content type, its size. Most clients write the
//! whole request before they look for an answer, and a socket that is closed on unread bytes takes the answer with it.
//! So a short rest is read and dropped, and the connection goes on; a longer one is answered with `Connection: close`
//! and a lingering close (`socket.rs`).

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};

/// A rest of so many bytes at most is read, and the connection is kept.
const SHORT: usize = 256 << 10;
/// It is waited for so long.
const PATIENCE: Duration = Duration::from_secs(1);

/// A body that a handler never asked for.
struct Rest {
    body: Incoming,
    /// Did anybody ask for its bytes? Before that, a client that expects 100-continue has sent none.
    asked: Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Yes,
    No,
}

/// Where a body goes that was not read to its end.
#[derive(Clone, Default)]
pub(super) struct Leftover(Arc<Mutex<Option<Rest>>>);

impl Leftover {
    /// The body for the handler; what it leaves comes back.
    pub(super) fn lend(&self, body: Incoming) -> Body {
        Body::new(Lent { rest: Some(Rest { body, asked: Asked::No }), home: self.clone() })
    }

    /// Is the body read to its end, or could its rest be read soon? Then the connection may be kept. `waits` says that
    /// the client wanted to be asked for the body.
    pub(super) async fn is_read(&self, waits: Waits) -> bool {
        let Some(mut rest) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() else { return true };
        let never_sent = waits == Waits::Yes && rest.asked == Asked::No;
        if never_sent || usize::try_from(rest.body.size_hint().lower()).is_ok_and(|left| left > SHORT) {
            return false;
        }
        let mut read = 0;
        let drain = async {
            loop {
                match rest.body.frame().await {
                    None => return true,
                    Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
                    Some(Err(_)) => return false,
                }
                if read > SHORT {
                    return false;
                }
            }
        };
        matches!(tokio::time::timeout(PATIENCE, drain).await, Ok(true))
    }
}

/// Does the client wait for 100-continue before it sends the body?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// Yes.
    Yes,
    /// No.
    No,
}

struct Lent {
    rest: Option<Rest>,
    home: Leftover,
}

impl hyper::body::Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(rest) = self.rest.as_mut() else { return Poll::Ready(None) };
        rest.asked = Asked::Yes;
        let frame = std::task::ready!(Pin::new(&mut rest.body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.rest = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |rest| rest.body.size_hint())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take().filter(|rest| !rest.body.is_end_stream()) {
            *self.home.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
        }
    }
}
