//! The edge: an accept loop of its own.
//!
//! Why not `axum::serve`: half-sent requests would stay open for ever, nothing would bound the connections, and hyper
//! alone takes ambiguous framing (proof 3.7). Here a head must arrive in time, a body too (in the extractors), the
//! number of connections is bounded, [`super::socket`] watches every byte, and an answer that comes before its request
//! was read can be read by the client all the same ([`super::leftover`]).
//!
//! This is the hot path of the whole hub, so a call meets one service, one router and no layer that is not needed.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, EXPECT};
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower::Service as _;

use super::App;
use super::framing::{MAX_HEAD, MAX_HEADERS};
use super::leftover::{Leftover, Waits};
use super::socket::{Link, Watched};

/// hyper's own buffer of one connection, each way: room for the largest head, whose bytes come whole. Without it 408 KiB.
const MAX_BUFFER: usize = 2 * MAX_HEAD;
/// After an accept that failed (no file handles left) the loop breathes before it tries again.
const BREATHE: Duration = Duration::from_millis(50);

/// The listening API.
pub struct Server {
    listener: TcpListener,
    router: axum::Router,
    app: App,
}

impl Server {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn bind(address: SocketAddr, app: App) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self::with_router(listener, super::router(app.clone()), app))
    }

    /// The same with a router that a test made.
    pub(super) const fn with_router(listener: TcpListener, router: axum::Router, app: App) -> Self {
        Self { listener, router, app }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` is done; then takes no new connection and lets open calls finish within the grace.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let most = u32::try_from(self.app.options.max_connections).unwrap_or(u32::MAX >> 4);
        let slots = Arc::new(Semaphore::new(usize::try_from(most).unwrap_or(usize::MAX >> 4)));
        let (close, closing) = watch::channel(());
        tokio::pin!(shutdown);
        loop {
            let next = tokio::select! {
                biased;
                () = &mut shutdown => break,
                next = self.next_connection(&slots) => next,
            };
            let Some((stream, slot)) = next else { continue };
            let (router, app, closing) = (self.router.clone(), self.app.clone(), closing.clone());
            tokio::spawn(async move {
                app.metrics.connections.inc();
                serve(stream, router, &app, closing).await;
                app.metrics.connections.dec();
                drop(slot);
            });
        }
        drop(self.listener);
        drop(close);
        // Every connection holds a slot; all of them free means all of them gone.
        if tokio::time::timeout(self.app.options.shutdown_grace, slots.acquire_many(most)).await.is_err() {
            tracing::warn!("open calls did not finish within the grace");
        }
    }

    async fn next_connection(&self, slots: &Arc<Semaphore>) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
        let slot = Arc::clone(slots).acquire_owned().await.ok()?;
        match self.listener.accept().await {
            Ok((stream, _)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection was gone at once");
                    return None;
                }
                Some((stream, slot))
            }
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                tokio::time::sleep(BREATHE).await;
                None
            }
        }
    }
}

async fn serve(stream: TcpStream, router: axum::Router, app: &App, mut closing: watch::Receiver<()>) {
    let link = Link::default();
    let io = TokioIo::new(Watched::new(stream, link.clone(), app.clone()));
    let service = service_fn(move |request| answer(router.clone(), link.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options.header_timeout)
        // Above the hub's own limits, whose refusals say more.
        .max_headers(2 * MAX_HEADERS)
        .max_header_size(2 * MAX_HEAD)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(io, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        // The sender is dropped at a stop: that is the signal.
        _ = closing.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// One call. Whatever it is answered, its client can read it.
async fn answer(mut router: axum::Router, link: Link, request: Request<Incoming>) -> Result<Response, Infallible> {
    if let Some(flaw) = link.flaw_of(&request) {
        return Ok(last(flaw.problem().into_response()));
    }
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(link.outbox.clone());
    if body.is_end_stream() {
        return router.call(Request::from_parts(parts, Body::empty())).await;
    }
    let waits = if parts.headers.contains_key(EXPECT) { Waits::Yes } else { Waits::No };
    let leftover = Leftover::default();
    let response = router.call(Request::from_parts(parts, leftover.lend(body))).await?;
    if !link.is_broken() && leftover.is_read(waits).await {
        return Ok(response);
    }
    link.linger();
    Ok(last(response))
}

/// The last answer on its connection, and says so.
fn last(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
