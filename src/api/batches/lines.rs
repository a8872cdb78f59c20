//! An NDJSON body, taken as it streams: a chunk of lines is proposed while the next one arrives.

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use http_body_util::BodyExt as _;

use super::super::App;
use super::super::error::{ApiError, ApiResult, Code};
use super::super::extract::{Caller, MAX_BODY};
use super::intake::{Begun, CHUNK, Line, OpenBatch};
use super::{BatchAnswer, BatchHead, MAX_BATCH, MAX_LINES, callback, head_line, keyed_lines, room, too_many_lines};

/// What came and is not a whole line yet.
#[derive(Default)]
struct Pending {
    buffer: Vec<u8>,
    read: usize,
}

enum Frame {
    Data(Bytes),
    End,
    Broken,
}

async fn next_frame(app: &App, body: &mut Body) -> ApiResult<Frame> {
    loop {
        let frame = tokio::time::timeout(app.options.body_timeout, body.frame()).await;
        return match frame {
            Ok(None) => Ok(Frame::End),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) => Ok(Frame::Data(bytes)),
                Err(_trailers) => continue,
            },
            Ok(Some(Err(_))) => Ok(Frame::Broken),
            Err(_) => Err(Code::RequestTimeout.into()),
        };
    }
}

/// Takes the lines as they come.
///
/// # Errors
/// Why the body as a whole was refused; what was taken by then stands, and the batch is closed.
pub(super) async fn stream(app: &App, caller: &Caller, headers: &HeaderMap, mut body: Body) -> ApiResult<BatchAnswer> {
    let mut pending = Pending::default();
    let first = first_line(app, &mut body, &mut pending).await?;
    let head = match first.as_deref() {
        Some(line) => head_line(line)?,
        None => None,
    };
    if head.as_ref().is_some_and(|head| head.idempotency_key.is_some()) {
        // The key is compared by the whole body: read it whole, as with the header.
        let _room = room(headers).await?;
        let mut whole = first.unwrap_or_default();
        whole.push(b'\n');
        whole.extend(rest(app, &mut body, pending).await?);
        return keyed_lines(app, caller, whole.into(), None).await;
    }
    let is_head = head.is_some();
    let BatchHead { callback: spec, .. } = head.unwrap_or_default();
    let callback = callback(app, caller, spec.as_ref(), "/batch/callback")?;
    let mut batch = match OpenBatch::begin(app, caller, callback, None).await? {
        Begun::New(batch) => batch,
        Begun::Again(_) => return Err(Code::Internal.into()),
    };
    let mut lines: Vec<Vec<u8>> = first.filter(|_| !is_head).into_iter().collect();
    loop {
        drain(&mut pending.buffer, &mut lines);
        while lines.len() >= CHUNK {
            let now: Vec<_> = lines.drain(..CHUNK).collect();
            take(&mut batch, &now).await?;
        }
        match next_frame(app, &mut body).await? {
            Frame::Data(bytes) => pending.add(&bytes)?,
            Frame::End => break,
            Frame::Broken => {
                // What came whole counts; the guard closes the batch.
                take(&mut batch, &lines).await?;
                return Err(ApiError::new(Code::MalformedRequest, "the body broke off")
                    .fact("batch_id", batch.id().to_string()));
            }
        }
    }
    let last = std::mem::take(&mut pending.buffer);
    if !last.trim_ascii().is_empty() {
        lines.push(last.trim_ascii().to_vec());
    }
    take(&mut batch, &lines).await?;
    batch.close().await
}

async fn take(batch: &mut OpenBatch<'_>, lines: &[Vec<u8>]) -> ApiResult<()> {
    for chunk in lines.chunks(CHUNK) {
        let count = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        if batch.total().saturating_add(count) > MAX_LINES {
            return Err(too_many_lines().fact("batch_id", batch.id().to_string()));
        }
        let lines = chunk.iter().map(|line| match line.len() {
            0..=MAX_BODY => Line::Raw(line),
            len => Line::Broken(
                ApiError::new(Code::BodyTooLarge, format!("the line has {len} bytes; at most {MAX_BODY}"))
                    .fact("limit", MAX_BODY),
            ),
        });
        batch.take(lines.collect()).await;
    }
    Ok(())
}

impl Pending {
    fn add(&mut self, bytes: &[u8]) -> ApiResult<()> {
        self.read += bytes.len();
        if self.read > MAX_BATCH {
            return Err(ApiError::new(Code::BodyTooLarge, format!("a batch has at most {MAX_BATCH} bytes"))
                .fact("limit", MAX_BATCH));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }
}

/// The first line that is not blank; `None` when the body has none.
async fn first_line(app: &App, body: &mut Body, pending: &mut Pending) -> ApiResult<Option<Vec<u8>>> {
    loop {
        while let Some(end) = pending.buffer.iter().position(|byte| *byte == b'\n') {
            let rest = pending.buffer.split_off(end + 1);
            let line = std::mem::replace(&mut pending.buffer, rest);
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line.trim_ascii().to_vec()));
            }
        }
        match next_frame(app, body).await? {
            Frame::Data(bytes) => pending.add(&bytes)?,
            Frame::End => {
                let line = std::mem::take(&mut pending.buffer);
                return Ok(Some(line.trim_ascii().to_vec()).filter(|line| !line.is_empty()));
            }
            Frame::Broken => return Err(ApiError::new(Code::MalformedRequest, "the body broke off")),
        }
    }
}

async fn rest(app: &App, body: &mut Body, mut pending: Pending) -> ApiResult<Vec<u8>> {
    loop {
        match next_frame(app, body).await? {
            Frame::Data(bytes) => pending.add(&bytes)?,
            Frame::End => return Ok(pending.buffer),
            Frame::Broken => return Err(ApiError::new(Code::MalformedRequest, "the body broke off")),
        }
    }
}

/// Moves whole lines out of the buffer.
fn drain(buffer: &mut Vec<u8>, lines: &mut Vec<Vec<u8>>) {
    let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { return };
    let rest = buffer.split_off(end + 1);
    let whole = std::mem::replace(buffer, rest);
    let found = whole.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    lines.extend(found.map(<[u8]>::to_vec));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_newlines_wherever_frames_end_and_blank_ones_are_left_out() {
        let (mut buffer, mut lines) = (Vec::new(), Vec::new());
        for frame in ["{\"a\":", "1}\r\n\n  \n{\"b\"", ":2}\n{\"c\":3}"] {
            buffer.extend_from_slice(frame.as_bytes());
            drain(&mut buffer, &mut lines);
        }
        assert_eq!(lines, vec![b"{\"a\":1}".to_vec(), b"{\"b\":2}".to_vec()]);
        assert_eq!(buffer, b"{\"c\":3}");
    }
}
