//! One connection's bytes, both ways, between the socket and hyper.
//!
//! Coming in: [`super::framing`] watches them, and a head is passed on only when it has come whole and is good. In the
//! place of the first bad one hyper gets a request that only this module makes, so the refusal is answered in its turn,
//! behind the answers to the requests before it. In the place of the first bad byte of a body it gets a NUL, which no
//! reader of chunks takes.
//!
//! Going out: a peer that takes none for the body timeout is cut off; a flush tells the outbox that all it holds has
//! been written. An answer that came before its request was read ends with a lingering close: the hub says that it is
//! done and reads on for a while, for a socket that is closed with unread bytes takes the answer back.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::App;
use super::batches::MAX_BATCH;
use super::delivery::Outbox;
use super::framing::{Flaw, Framing, Place};

/// A lingering close reads on for so many bytes at most: twice the longest body.
const LINGER: usize = 2 * MAX_BATCH;
/// Path of the request that stands for a refused one.
const REFUSED: &str = "/-refused";
/// That request.
const STAND_IN: &[u8] = b"GET /-refused HTTP/1.1\r\nhost: -\r\nconnection: close\r\n\r\n";

/// What the two ends of a connection tell each other.
#[derive(Clone, Default)]
pub(super) struct Link {
    /// What answers carry whose bytes are not written yet.
    pub outbox: Outbox,
    flaw: Arc<Mutex<Option<Flaw>>>,
    lingers: Arc<AtomicBool>,
    broken: Arc<AtomicBool>,
}

impl Link {
    /// Why this request is refused, if it stands for one whose head was bad.
    pub(super) fn flaw_of<B>(&self, request: &Request<B>) -> Option<Flaw> {
        if request.uri().path() != REFUSED {
            return None;
        }
        *self.flaw.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection ends with unread bytes: it is closed so that its last answer can be read.
    pub(super) fn linger(&self) {
        self.lingers.store(true, Ordering::Relaxed);
    }

    /// Is a body broken, so that nothing more can be read?
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn refuse(&self, flaw: Flaw) {
        *self.flaw.lock().unwrap_or_else(PoisonError::into_inner) = Some(flaw);
        self.linger();
    }
}

/// What is read after a flaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Onward {
    /// No flaw so far: what the peer sends.
    Open,
    /// Nothing: the stand-in is the last request.
    Quiet,
    /// The end of the stream.
    End,
}

/// How far the close has come.
enum Close {
    Open,
    /// The hub's side is closed; the peer's bytes are read and dropped.
    Lingers {
        read: usize,
        until: Pin<Box<Sleep>>,
    },
    Done,
}

/// A watched stream.
pub(super) struct Watched {
    stream: TcpStream,
    framing: Framing,
    /// The start of a head that has not come whole.
    held: Vec<u8>,
    /// Good bytes that hyper has not taken yet, and how far it has.
    ready: (Vec<u8>, usize),
    onward: Onward,
    link: Link,
    /// Running while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    close: Close,
    app: App,
}

impl Watched {
    /// Watches a stream.
    pub(super) fn new(stream: TcpStream, link: Link, app: App) -> Self {
        Self {
            stream,
            framing: Framing::default(),
            held: Vec::new(),
            ready: (Vec::new(), 0),
            onward: Onward::Open,
            link,
            stalled: None,
            close: Close::Open,
            app,
        }
    }

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

    /// Gives hyper what is ready for it.
    fn give(&mut self, buf: &mut ReadBuf<'_>) {
        if self.ready.0.is_empty() {
            return;
        }
        let left = self.ready.0.get(self.ready.1..).unwrap_or_default();
        let now = left.get(..left.len().min(buf.remaining())).unwrap_or_default();
        buf.put_slice(now);
        self.ready.1 += now.len();
        if self.ready.1 >= self.ready.0.len() {
            self.ready = (Vec::new(), 0);
        }
    }

    /// Judges the bytes of `buf` from `before` on and leaves those there that hyper may have now.
    fn judge(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let fresh = buf.filled_mut().get_mut(before..).unwrap_or_default();
        let good = match self.framing.feed(fresh) {
            Ok(good) => {
                let held = self.held.len();
                self.held.extend_from_slice(fresh.get(good..).unwrap_or_default());
                if held > 0 && good > 0 {
                    // A head that had begun before has ended: it goes first.
                    let begun = self.held.split_off(held);
                    let mut ready = std::mem::replace(&mut self.held, begun);
                    ready.extend_from_slice(fresh.get(..good).unwrap_or_default());
                    self.ready = (ready, 0);
                    0
                } else {
                    good
                }
            }
            Err(refused) => {
                tracing::debug!(?refused, "malformed request");
                self.app.metrics.malformed.inc();
                self.link.refuse(refused.flaw);
                let mut ready = std::mem::take(&mut self.held);
                match refused.place {
                    Place::Head(start) => {
                        if start == 0 {
                            ready.clear();
                        }
                        ready.extend_from_slice(fresh.get(..start).unwrap_or_default());
                        ready.extend_from_slice(STAND_IN);
                        self.onward = Onward::Quiet;
                    }
                    Place::Body(at) => {
                        ready.extend_from_slice(fresh.get(..at).unwrap_or_default());
                        ready.push(0);
                        self.link.broken.store(true, Ordering::Relaxed);
                        self.onward = Onward::End;
                    }
                }
                self.ready = (ready, 0);
                0
            }
        };
        buf.set_filled(before + good);
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            self.give(buf);
            if buf.filled().len() > before || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            match self.onward {
                Onward::Open => {}
                // The answer to the stand-in closes the connection; nothing is to wake hyper before.
                Onward::Quiet => return Poll::Pending,
                Onward::End => return Poll::Ready(Ok(())),
            }
            std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            if buf.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            self.judge(buf, before);
        }
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
        self.link.outbox.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if matches!(this.close, Close::Open) {
            std::task::ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.close = if this.link.lingers.load(Ordering::Relaxed) {
                Close::Lingers { read: 0, until: Box::pin(tokio::time::sleep(this.patience())) }
            } else {
                Close::Done
            };
        }
        let Close::Lingers { read, until } = &mut this.close else { return Poll::Ready(Ok(())) };
        let mut some = [0; 4_096];
        while *read < LINGER {
            let mut buf = ReadBuf::new(&mut some);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => *read += buf.filled().len(),
                Poll::Ready(_) => break,
                Poll::Pending => {
                    std::task::ready!(until.as_mut().poll(cx));
                    break;
                }
            }
        }
        this.close = Close::Done;
        Poll::Ready(Ok(()))
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

impl Watched {
    /// A lingering close may last as long as an idle connection.
    fn patience(&self) -> Duration {
        self.app.options.header_timeout
    }
}
