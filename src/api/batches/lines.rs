//! An NDJSON body, taken as it streams: a chunk of lines is proposed while the next one arrives.

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use http_body_util::BodyExt as _;

use super::super::App;
use super::super::error::{ApiError, ApiResult, Code};
use super::super::extract::{Caller, MAX_BODY, announced};
use super::intake::{Begun, CHUNK, CHUNK_BYTES, Line, OpenBatch};
use super::whole::{BatchHead, Given, head_line, too_many_lines};
use super::{BatchAnswer, MAX_BATCH, MAX_LINES, callback, keyed_lines, turn};

/// A body may stream for so many body timeouts in all.
const TIMEOUTS: u32 = 10;

/// One line as far as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// All of it.
    Whole(Vec<u8>),
    /// Longer than any submission: so many bytes, none of which was kept.
    Overlong(usize),
}

/// What came and was not taken yet. Whatever comes, it holds a line and a frame at most beside whole lines.
#[derive(Default)]
struct Pending {
    /// The start of a line without its end; holds no line feed.
    buffer: Vec<u8>,
    /// Bytes of an overlong line so far.
    dropped: usize,
    /// Whole lines.
    ready: Vec<Piece>,
    ready_bytes: usize,
    read: usize,
}

enum Frame {
    Data(Bytes),
    End,
    Broken,
}

/// A body with the time that it has.
struct Stream<'a> {
    app: &'a App,
    body: Body,
    until: tokio::time::Instant,
}

impl Stream<'_> {
    async fn next(&mut self) -> ApiResult<Frame> {
        loop {
            let next = tokio::time::Instant::now() + self.app.options.body_timeout;
            let frame = tokio::time::timeout_at(next.min(self.until), self.body.frame()).await;
            return match frame {
                Ok(None) => Ok(Frame::End),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => Ok(Frame::Data(bytes)),
                    Err(_trailers) => continue,
                },
                Ok(Some(Err(_))) => Ok(Frame::Broken),
                Err(_) => Err(ApiError::new(Code::RequestTimeout, "the next line did not come within the time limit")),
            };
        }
    }
}

/// Takes the lines as they come.
///
/// # Errors
/// Why the body as a whole was refused; what was taken by then stands, and the batch is closed.
pub(super) async fn stream(app: &App, caller: &Caller, headers: &HeaderMap, body: Body) -> ApiResult<BatchAnswer> {
    let until = tokio::time::Instant::now() + app.options.body_timeout * TIMEOUTS;
    let mut stream = Stream { app, body, until };
    let mut pending = Pending::default();
    let first = first_line(&mut stream, &mut pending).await?;
    let head = match &first {
        Some(Piece::Whole(line)) => head_line(line)?,
        Some(Piece::Overlong(_)) | None => None,
    };
    if head.as_ref().is_some_and(|head| head.idempotency_key.is_some()) {
        // The key is compared by the whole body: read it whole, as with the header.
        let turn = turn(headers)?;
        let room = app.room.take(announced(headers).unwrap_or(MAX_BATCH).min(MAX_BATCH)).await?;
        let bytes = room.with(rest(&mut stream, first, pending).await?.into());
        return keyed_lines(app, caller, Given { bytes, turn }, None).await;
    }
    let is_head = head.is_some();
    let BatchHead { callback: spec, .. } = head.unwrap_or_default();
    let callback = callback(app, caller, spec.as_ref(), "/batch/callback")?;
    let mut batch = match OpenBatch::begin(app, caller, callback, None).await? {
        Begun::New(batch) => batch,
        Begun::Again(_) => return Err(ApiError::internal()),
    };
    if let Some(first) = first.filter(|_| !is_head) {
        pending.ready.insert(0, first);
    }
    loop {
        if pending.ready.len() >= CHUNK || pending.ready_bytes >= CHUNK_BYTES {
            take(&mut batch, &pending.lines()).await?;
        }
        match stream.next().await? {
            Frame::Data(bytes) => pending.add(&bytes)?,
            Frame::End => break,
            Frame::Broken => {
                // What came whole counts; the guard closes the batch.
                take(&mut batch, &pending.lines()).await?;
                return Err(ApiError::new(Code::MalformedRequest, "the body broke off")
                    .fact("batch_id", batch.id().to_string()));
            }
        }
    }
    pending.end();
    take(&mut batch, &pending.lines()).await?;
    batch.close().await
}

async fn take(batch: &mut OpenBatch<'_>, lines: &[Piece]) -> ApiResult<()> {
    for chunk in lines.chunks(CHUNK) {
        let count = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        if batch.total().saturating_add(count) > MAX_LINES {
            return Err(too_many_lines().fact("batch_id", batch.id().to_string()));
        }
        let lines = chunk.iter().map(|line| match line {
            Piece::Whole(line) => Line::Raw(line),
            Piece::Overlong(len) => Line::Broken(
                ApiError::new(Code::BodyTooLarge, format!("the line has {len} bytes; at most {MAX_BODY}"))
                    .fact("limit", MAX_BODY),
            ),
        });
        batch.take(lines.collect()).await;
    }
    Ok(())
}

impl Pending {
    fn count(&mut self, bytes: &[u8]) -> ApiResult<()> {
        self.read += bytes.len();
        if self.read > MAX_BATCH {
            return Err(ApiError::new(Code::BodyTooLarge, format!("a batch has at most {MAX_BATCH} bytes"))
                .fact("limit", MAX_BATCH));
        }
        Ok(())
    }

    /// Takes a frame, cut into lines. Each byte is looked at once, however frames and lines fall.
    fn add(&mut self, bytes: &[u8]) -> ApiResult<()> {
        self.count(bytes)?;
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            if self.dropped > 0 || self.buffer.len() + part.len() > MAX_BODY {
                self.dropped += std::mem::take(&mut self.buffer).len() + part.len();
            } else {
                self.buffer.extend_from_slice(part);
            }
            if parts.peek().is_some() {
                self.end();
            }
        }
        Ok(())
    }

    /// The line in hand is whole. Blank ones are left out.
    fn end(&mut self) {
        let line = std::mem::take(&mut self.buffer);
        match std::mem::take(&mut self.dropped) {
            0 if line.trim_ascii().is_empty() => {}
            0 => {
                self.ready_bytes += line.len();
                self.ready.push(Piece::Whole(line.trim_ascii().to_vec()));
            }
            dropped => self.ready.push(Piece::Overlong(dropped)),
        }
    }

    /// The whole lines so far.
    fn lines(&mut self) -> Vec<Piece> {
        self.ready_bytes = 0;
        std::mem::take(&mut self.ready)
    }
}

/// The first line that is not blank; `None` when the body has none.
async fn first_line(stream: &mut Stream<'_>, pending: &mut Pending) -> ApiResult<Option<Piece>> {
    while pending.ready.is_empty() {
        match stream.next().await? {
            Frame::Data(bytes) => pending.add(&bytes)?,
            Frame::End => {
                pending.end();
                break;
            }
            Frame::Broken => return Err(ApiError::new(Code::MalformedRequest, "the body broke off")),
        }
    }
    Ok((!pending.ready.is_empty()).then(|| pending.ready.remove(0)))
}

/// The whole body, blank lines left out.
async fn rest(stream: &mut Stream<'_>, first: Option<Piece>, mut pending: Pending) -> ApiResult<Vec<u8>> {
    let mut whole = Vec::new();
    // The first frames hold no overlong line: that would have taken more of them than the first line did.
    for line in first.into_iter().chain(pending.lines()) {
        if let Piece::Whole(line) = line {
            whole.extend(line);
            whole.push(b'\n');
        }
    }
    whole.extend(std::mem::take(&mut pending.buffer));
    loop {
        match stream.next().await? {
            Frame::Data(bytes) => {
                pending.count(&bytes)?;
                whole.extend_from_slice(&bytes);
            }
            Frame::End => return Ok(whole),
            Frame::Broken => return Err(ApiError::new(Code::MalformedRequest, "the body broke off")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(frames: &[&[u8]]) -> Vec<Piece> {
        let mut pending = Pending::default();
        for frame in frames {
            pending.add(frame).unwrap();
        }
        pending.end();
        pending.lines()
    }

    #[test]
    fn lines_are_cut_at_newlines_wherever_frames_end_and_blank_ones_are_left_out() {
        let found = pieces(&[b"{\"a\":", b"1}\r\n\n  \n{\"b\"", b":2}\n{\"c\":3}"]);
        assert_eq!(found, [&b"{\"a\":1}"[..], b"{\"b\":2}", b"{\"c\":3}"].map(|line| Piece::Whole(line.to_vec())));
        assert_eq!(pieces(&[b"\n \n"]), []);
    }

    #[test]
    fn an_overlong_line_is_counted_and_not_kept_and_the_next_one_is_whole() {
        let mut pending = Pending::default();
        let frame = vec![b'x'; 400_000];
        for _ in 0..100 {
            pending.add(&frame).unwrap();
            assert!(pending.buffer.len() <= MAX_BODY, "bounded whatever comes");
        }
        pending.add(b"\n{}\n").unwrap();
        assert_eq!(pending.lines(), [Piece::Overlong(40_000_000), Piece::Whole(b"{}".to_vec())]);
        let just = vec![b' '; MAX_BODY];
        assert_eq!(pieces(&[&just, b"\n"]), [], "blank, and within the limit");
        assert!(pending.add(&vec![b'y'; MAX_BATCH]).is_err(), "the batch's own limit holds");
    }
}
