//! A scripted HTTP/1.1 receiver on a local socket, for the tests beside.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// One request as it came.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// What the receiver does with a request.
pub(super) enum Reply {
    /// Answers.
    Status(u16, &'static str, Vec<u8>),
    /// Answers once it is told to.
    Later(Arc<tokio::sync::Notify>, u16, Vec<u8>),
    /// Sends these bytes and closes.
    Raw(Vec<u8>),
    /// Sends a byte now and then, for ever.
    Drip(&'static str),
    /// Says nothing and keeps the connection.
    Hang,
    /// Closes at once.
    Close,
}

pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    pub(super) seen: mpsc::UnboundedReceiver<Seen>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    pub(super) async fn start(script: impl FnMut(&Seen) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (told, seen) = mpsc::unbounded_channel();
        let script = Arc::new(Mutex::new(script));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, told.clone(), Arc::clone(&script)));
            }
        });
        Self { address, seen, task }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) async fn next(&mut self) -> Seen {
        let seen = tokio::time::timeout(Duration::from_secs(20), self.seen.recv()).await;
        seen.expect("a request in time").expect("a request")
    }

    pub(super) fn is_quiet(&mut self) -> bool {
        self.seen.try_recv().is_err()
    }
}

async fn serve(
    mut stream: TcpStream,
    told: mpsc::UnboundedSender<Seen>,
    script: Arc<Mutex<impl FnMut(&Seen) -> Reply>>,
) {
    while let Some(seen) = read(&mut stream).await {
        let reply = (script.lock().expect("not poisoned"))(&seen);
        drop(told.send(seen));
        match reply {
            Reply::Status(status, headers, body) => answer(&mut stream, status, headers, &body).await,
            Reply::Later(told, status, body) => {
                told.notified().await;
                answer(&mut stream, status, "", &body).await;
            }
            Reply::Raw(bytes) => {
                drop(stream.write_all(&bytes).await);
                return;
            }
            Reply::Drip(start) => {
                drop(stream.write_all(start.as_bytes()).await);
                while stream.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                return;
            }
            Reply::Hang => std::future::pending().await,
            Reply::Close => return,
        }
    }
}

async fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n", body.len());
    // A caller that has gone away shows at the next read.
    drop(stream.write_all(head.as_bytes()).await);
    drop(stream.write_all(body).await);
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 8_192];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut seen = Seen { head, body: bytes[end + 4..].to_vec() };
            let len: usize = seen.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            while seen.body.len() < len {
                match stream.read(&mut chunk).await {
                    Ok(0) | Err(_) => return None,
                    Ok(n) => seen.body.extend_from_slice(&chunk[..n]),
                }
            }
            return Some(seen);
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
        }
    }
}

/// A listener that must never be connected to.
pub(super) struct Canary(std::net::TcpListener);

impl Canary {
    pub(super) fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("non-blocking");
        Self(listener)
    }

    pub(super) fn port(&self) -> u16 {
        self.0.local_addr().expect("an address").port()
    }

    /// A loopback connection stands in the listener's backlog as soon as `connect` returned, accepted or not.
    pub(super) fn assert_untouched(&self) {
        let error = self.0.accept().expect_err("somebody connected");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
}
