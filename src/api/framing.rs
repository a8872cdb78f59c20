//! Strict HTTP/1.1 framing: where a request ends must not be a matter of opinion.
//!
//! Why beside hyper: it takes a body length and chunks at once, several hosts and bare line feeds (proof 3.7). A proxy in
//! front may read such bytes as other requests than the hub does, and that is how requests are smuggled. This watches the
//! bytes as they come and names the first one at which they become ambiguous; the server spoils that byte, so hyper
//! answers 400 and closes.
//!
//! Pure: bytes in, a position out. The happy path copies nothing.

/// The longest line of a head or of a chunk's size.
const MAX_LINE: usize = 64 << 10;
/// The longest chunk-size line: 16 hex digits and some extension.
const MAX_CHUNK_LINE: usize = 256;

/// Why bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguous {
    /// A line feed without its carriage return, or the other way round, or a NUL.
    LineEnd,
    /// A line longer than the limit.
    LineTooLong,
    /// A header line that goes on on the next, or has no name.
    Header,
    /// No host, or several.
    Host,
    /// A length that is no number, or stands there twice.
    Length,
    /// Chunked and something else besides, or another coding.
    Coding,
    /// A chunk that does not end where it says.
    Chunk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    RequestLine,
    Headers,
    Fixed(u64),
    ChunkSize,
    ChunkData(u64),
    /// The two bytes after a chunk; how many have come.
    ChunkEnd(u8),
    Trailers,
}

/// Follows one connection's incoming bytes.
#[derive(Debug)]
pub(super) struct Framing {
    part: Part,
    /// The start of a line that has not come whole.
    line: Vec<u8>,
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
    old_version: bool,
}

impl Default for Framing {
    fn default() -> Self {
        Self { part: Part::RequestLine, line: Vec::new(), hosts: 0, length: None, chunked: false, old_version: false }
    }
}

impl Framing {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// The position in `bytes` at which they become ambiguous, and why. Nothing after it may be used.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), (usize, Ambiguous)> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            at += match self.part {
                Part::Fixed(left) => {
                    let taken = take(left, rest.len());
                    self.part = if taken.1 == 0 { Part::RequestLine } else { Part::Fixed(taken.1) };
                    taken.0
                }
                Part::ChunkData(left) => {
                    let taken = take(left, rest.len());
                    self.part = if taken.1 == 0 { Part::ChunkEnd(0) } else { Part::ChunkData(taken.1) };
                    taken.0
                }
                Part::ChunkEnd(seen) => {
                    let wanted = if seen == 0 { b'\r' } else { b'\n' };
                    if rest.first() != Some(&wanted) {
                        return Err((at, Ambiguous::Chunk));
                    }
                    self.part = if seen == 0 { Part::ChunkEnd(1) } else { Part::ChunkSize };
                    1
                }
                Part::RequestLine | Part::Headers | Part::ChunkSize | Part::Trailers => self.feed_line(rest, at)?,
            };
        }
        Ok(())
    }

    /// Takes bytes up to the end of a line; answers how many.
    fn feed_line(&mut self, rest: &[u8], at: usize) -> Result<usize, (usize, Ambiguous)> {
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            if self.line.len() + rest.len() > MAX_LINE {
                return Err((at, Ambiguous::LineTooLong));
            }
            self.line.extend_from_slice(rest);
            return Ok(rest.len());
        };
        let here = rest.get(..end).unwrap_or_default();
        let whole = if self.line.is_empty() {
            self.take_line(here)
        } else {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(here);
            let taken = self.take_line(&line);
            // The buffer is kept for the next split line.
            line.clear();
            self.line = line;
            taken
        };
        whole.map(|()| end + 1).map_err(|why| (at + end, why))
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let line = line.strip_suffix(b"\r").ok_or(Ambiguous::LineEnd)?;
        if line.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return Err(Ambiguous::LineEnd);
        }
        match self.part {
            Part::RequestLine if line.is_empty() => Ok(()),
            Part::RequestLine => {
                *self = Self {
                    part: Part::Headers,
                    line: std::mem::take(&mut self.line),
                    old_version: line.ends_with(b"HTTP/1.0"),
                    ..Self::default()
                };
                Ok(())
            }
            Part::Headers if line.is_empty() => self.end_of_head(),
            Part::Headers => self.header(line),
            Part::ChunkSize => self.chunk_size(line),
            Part::Trailers if line.is_empty() => {
                self.part = Part::RequestLine;
                Ok(())
            }
            Part::Trailers => name_and_value(line).map(|_| ()),
            Part::Fixed(_) | Part::ChunkData(_) | Part::ChunkEnd(_) => Err(Ambiguous::Chunk),
        }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let (name, value) = name_and_value(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).filter(|_| digits);
            // Twice is refused even if both say the same: somebody before us may have read only one.
            match (self.length, number) {
                (None, Some(number)) => self.length = Some(number),
                (Some(_), _) | (None, None) => return Err(Ambiguous::Length),
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Ambiguous::Coding);
            }
            self.chunked = true;
        }
        Ok(())
    }

    fn end_of_head(&mut self) -> Result<(), Ambiguous> {
        if self.hosts > 1 || (self.hosts == 0 && !self.old_version) {
            return Err(Ambiguous::Host);
        }
        self.part = match (self.chunked, self.length) {
            (true, Some(_)) => return Err(Ambiguous::Coding),
            (true, None) if self.old_version => return Err(Ambiguous::Coding),
            (true, None) => Part::ChunkSize,
            (false, None | Some(0)) => Part::RequestLine,
            (false, Some(length)) => Part::Fixed(length),
        };
        Ok(())
    }

    fn chunk_size(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        if line.len() > MAX_CHUNK_LINE {
            return Err(Ambiguous::LineTooLong);
        }
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let valid = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let size = std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        match size.filter(|_| valid) {
            Some(0) => self.part = Part::Trailers,
            Some(size) => self.part = Part::ChunkData(size),
            None => return Err(Ambiguous::Chunk),
        }
        Ok(())
    }
}

/// How many of `here` bytes belong to what is left, and what is left then.
fn take(left: u64, here: usize) -> (usize, u64) {
    match usize::try_from(left) {
        Ok(left) if left <= here => (left, 0),
        Ok(_) | Err(_) => (here, left.saturating_sub(u64::try_from(here).unwrap_or(u64::MAX))),
    }
}

fn name_and_value(line: &[u8]) -> Result<(&[u8], &[u8]), Ambiguous> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Ambiguous::Header)?;
    let (name, value) = line.split_at(colon);
    // A blank first is a continued line, a blank before the colon another name to somebody else.
    if name.is_empty() || name.iter().any(|byte| byte.is_ascii_whitespace()) {
        return Err(Ambiguous::Header);
    }
    Ok((name, value.strip_prefix(b":").unwrap_or_default().trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the whole at once and byte by byte; both must say the same.
    fn verdict(text: &str) -> Option<Ambiguous> {
        let whole = Framing::default().feed(text.as_bytes()).err().map(|(_, why)| why);
        let mut framing = Framing::default();
        let split = text.as_bytes().iter().find_map(|byte| framing.feed(&[*byte]).err()).map(|(_, why)| why);
        assert_eq!(whole, split, "{text:?}");
        whole
    }

    #[test]
    fn plain_pipelined_and_chunked_requests_pass() {
        for good in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\nGET / HTTP/1.0\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n\n\0\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n\n\0\n\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n",
        ] {
            assert_eq!(verdict(good), None, "{good:?}");
        }
    }

    #[test]
    fn what_two_readers_could_read_as_two_things_is_refused() {
        let post = "POST / HTTP/1.1\r\nHost: a\r\n";
        for (bad, why) in [
            ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), Ambiguous::LineEnd),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n".to_owned(), Ambiguous::LineEnd),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n".to_owned(), Ambiguous::LineEnd),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), Ambiguous::Host),
            ("GET / HTTP/1.1\r\nHost: a\r\nHOST: a\r\n\r\n".to_owned(), Ambiguous::Host),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n".to_owned(), Ambiguous::Header),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n".to_owned(), Ambiguous::Header),
            (format!("{post}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"), Ambiguous::Coding),
            (format!("{post}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"), Ambiguous::Coding),
            (format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n"), Ambiguous::Coding),
            (format!("{post}Transfer-Encoding: xchunked\r\n\r\n"), Ambiguous::Coding),
            (format!("{post}Content-Length: 3\r\nContent-Length: 3\r\n\r\n"), Ambiguous::Length),
            (format!("{post}Content-Length: +3\r\n\r\n"), Ambiguous::Length),
            (format!("{post}Content-Length: 3, 3\r\n\r\n"), Ambiguous::Length),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n"), Ambiguous::Chunk),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n"), Ambiguous::Chunk),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n"), Ambiguous::LineEnd),
        ] {
            assert_eq!(verdict(&bad), Some(why), "{bad:?}");
        }
    }

    #[test]
    fn the_position_named_is_the_byte_that_makes_it_ambiguous() {
        let text = b"GET / HTTP/1.1\nHost: a\n\n";
        assert_eq!(Framing::default().feed(text), Err((14, Ambiguous::LineEnd)));
    }
}
