//! HTTP/1.1 with as little as it takes: prepared requests, one answer at a time.
//!
//! The load generator runs on the hub's own cores, so whatever it burns is taken from the hub: a general client costs
//! as much as the server it measures. Only for benches; it believes what it reads.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Answers longer than this are refused.
const LONGEST: usize = 64 << 20;

/// One connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer: its status and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    /// HTTP status.
    pub(crate) status: u16,
    /// The body, joined if it came in chunks.
    pub(crate) body: std::borrow::Cow<'a, [u8]>,
}

/// How a body's length is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

impl Wire {
    /// Connects to `HOST:PORT`.
    pub(crate) async fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(16 * 1_024) })
    }

    /// Sends a whole request and reads its whole answer.
    pub(crate) async fn call(&mut self, request: &[u8]) -> io::Result<Reply<'_>> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let (status, framing, body_at) = loop {
            self.fill().await?;
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let (status, framing) = head(self.buffer.get(..end).unwrap_or_default())?;
                break (status, framing, end + 4);
            }
        };
        match framing {
            Framing::Length(length) => {
                while self.buffer.len() < body_at + length {
                    self.fill().await?;
                }
                let body = self.buffer.get(body_at..body_at + length).unwrap_or_default();
                Ok(Reply { status, body: body.into() })
            }
            Framing::Chunked => loop {
                if let Some(body) = join_chunks(self.buffer.get(body_at..).unwrap_or_default())? {
                    return Ok(Reply { status, body: body.into() });
                }
                self.fill().await?;
            },
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.buffer.len() > LONGEST {
            return Err(io::Error::other("the answer is too long"));
        }
        self.buffer.reserve(4 * 1_024);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// A whole request, ready to be sent as often as wanted.
pub(crate) fn request(target: &Target, method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        target.address,
        target.token,
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A request with a JSON body.
pub(crate) fn post_json(target: &Target, path: &str, body: &[u8]) -> Vec<u8> {
    request(target, "POST", path, "application/json", body)
}

/// Which hub, as whom.
#[derive(Clone)]
pub(crate) struct Target {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// Bearer token.
    pub(crate) token: String,
}

fn head(head: &[u8]) -> io::Result<(u16, Framing)> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "not an HTTP/1.1 answer");
    let text = std::str::from_utf8(head).map_err(|_| bad())?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|s| s.parse().ok()).ok_or_else(bad)?;
    let mut framing = Framing::Length(0);
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            framing = Framing::Length(value.trim().parse().map_err(|_| bad())?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked") {
            framing = Framing::Chunked;
        }
    }
    Ok((status, framing))
}

/// The joined body, or `None` while the last chunk has not come.
fn join_chunks(mut rest: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "broken chunks");
    let mut body = Vec::new();
    loop {
        let Some(end) = find(rest, b"\r\n") else { return Ok(None) };
        let size = std::str::from_utf8(rest.get(..end).unwrap_or_default()).map_err(|_| bad())?;
        let size = size.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size.trim(), 16).map_err(|_| bad())?;
        let start = end + 2;
        let Some(chunk) = rest.get(start..start + size) else { return Ok(None) };
        let Some(after) = rest.get(start + size + 2..) else { return Ok(None) };
        if size == 0 {
            return Ok(Some(body));
        }
        body.extend_from_slice(chunk);
        rest = after;
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn answered_with(answer: &'static [u8]) -> (u16, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut seen = [0; 512];
            let n = stream.read(&mut seen).await.expect("a request");
            // Byte by byte, so that nothing depends on how the network cuts it.
            for byte in answer {
                stream.write_all(std::slice::from_ref(byte)).await.expect("writable");
                stream.flush().await.expect("writable");
                tokio::task::yield_now().await;
            }
            seen[..n].to_vec()
        });
        let target = Target { address: address.clone(), token: "t".to_owned() };
        let mut wire = Wire::connect(&address).await.expect("it listens");
        let reply = wire.call(&post_json(&target, "/v1/tasks", b"{}")).await.expect("an answer");
        let (status, body) = (reply.status, reply.body.to_vec());
        let seen = String::from_utf8(server.await.expect("the server ran")).expect("text");
        assert!(seen.starts_with("POST /v1/tasks HTTP/1.1\r\n") && seen.ends_with("Content-Length: 2\r\n\r\n{}"));
        (status, body)
    }

    #[tokio::test]
    async fn an_answer_with_a_length_is_read_whole() {
        let reply = answered_with(b"HTTP/1.1 202 Accepted\r\ncontent-length: 5\r\n\r\nhello").await;
        assert_eq!(reply, (202, b"hello".to_vec()));
    }

    #[tokio::test]
    async fn an_answer_in_chunks_is_joined() {
        let reply =
            answered_with(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
                .await;
        assert_eq!(reply, (200, b"abcde".to_vec()));
    }
}
