//! The edge: an accept loop of its own.
//!
//! Why not `axum::serve`: half-sent requests would stay open for ever, nothing would bound the connections, and hyper
//! alone takes ambiguous framing (proof 3.7). Here a head must arrive in time, a body too (in the extractors), the
//! number of connections is bounded, and [`super::framing`] watches every byte that comes in.
//!
//! This is the hot path of the whole hub, so a call meets one service, one router and no layer that is not needed.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Sleep;
use tower::Service as _;

use super::App;
use super::delivery::Outbox;
use super::framing::Framing;

/// The largest head of a request.
const MAX_HEAD: usize = 64 << 10;
/// The most headers of a request.
const MAX_HEADERS: usize = 64;
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
        let router = super::router(app.clone());
        Ok(Self { listener, router, app })
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
    let outbox = Outbox::default();
    let io = TokioIo::new(Watched {
        stream,
        framing: Framing::default(),
        spoiled: false,
        outbox: outbox.clone(),
        stalled: None,
        app: app.clone(),
    });
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(outbox.clone());
        router.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options.header_timeout)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD)
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

/// A stream whose incoming bytes are watched. At the first ambiguous byte hyper gets a NUL in its place, which no HTTP
/// parser takes, and then the end of the stream: so it answers 400 and closes.
///
/// Outgoing bytes are watched too: a peer that takes none for the body timeout is cut off, and a flush tells the outbox
/// that all it holds has been written.
struct Watched {
    stream: TcpStream,
    framing: Framing,
    spoiled: bool,
    outbox: Outbox,
    /// Running while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    app: App,
}

impl Watched {
    /// Lets a write wait, but not for ever.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.app.options.body_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        std::task::ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes no bytes")))
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.spoiled {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let fresh = buf.filled().get(before..).unwrap_or_default();
        if let Err((at, why)) = self.framing.feed(fresh) {
            tracing::debug!(?why, "ambiguous framing");
            self.app.metrics.malformed.inc();
            self.spoiled = true;
            if let Some(byte) = buf.filled_mut().get_mut(before + at) {
                *byte = 0;
            }
            buf.set_filled(before + at + 1);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes the stream only when its own buffer is empty: then every answer so far is written.
        std::task::ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.outbox.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
