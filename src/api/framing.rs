//! Strict HTTP/1.1 framing: where a request ends must not be a matter of opinion.
//!
//! Why beside hyper: it takes a body length and chunks at once, several hosts and bare line feeds (proof 3.7). A proxy in
//! front may read such bytes as other requests than the hub does, and that is how requests are smuggled. This watches the
//! bytes as they come and names the first flaw. It is as strict about a head as hyper is, so that hyper never sees a bad
//! one and the hub itself can say what is wrong, as a problem document.
//!
//! Pure: bytes in, a position out. The happy path copies nothing.

use axum::http::Uri;

use super::error::{ApiError, Code};

/// The largest head of a request, in bytes.
pub(super) const MAX_HEAD: usize = 64 << 10;
/// The most headers of a request.
pub(super) const MAX_HEADERS: usize = 64;
/// The longest chunk-size line: 16 hex digits and some extension.
const MAX_CHUNK_LINE: usize = 256;
/// The longest method.
const MAX_METHOD: usize = 32;

/// Why bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A line feed without its carriage return, or the other way round, or another control character.
    LineEnd,
    /// The first line is not a method, a target and a version with one blank between.
    RequestLine,
    /// Another version than HTTP/1.1 or HTTP/1.0.
    Version,
    /// The head is over [`MAX_HEAD`] or [`MAX_HEADERS`].
    HeadTooLarge,
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

impl Flaw {
    /// What the caller is told.
    pub(super) fn problem(self) -> ApiError {
        let detail = match self {
            Self::LineEnd => "lines end with CR LF and hold no other control characters",
            Self::RequestLine => "the first line is a method, a target and a version, with one blank between",
            Self::Version => "only HTTP/1.1 and HTTP/1.0 are spoken here",
            Self::HeadTooLarge => {
                return ApiError::new(
                    Code::HeadTooLarge,
                    format!("a head has at most {MAX_HEAD} bytes and {MAX_HEADERS} headers"),
                )
                .fact("limit", MAX_HEAD);
            }
            Self::Header => "a header is a name, a colon and a value on one line",
            Self::Host => "exactly one Host is needed",
            Self::Length => "Content-Length is one number, and stands there once",
            Self::Coding => "Transfer-Encoding is chunked alone, without Content-Length",
            Self::Chunk => "a chunk does not end where its size says",
        };
        ApiError::new(Code::MalformedRequest, detail)
    }
}

/// The first flaw, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    /// What is wrong.
    pub flaw: Flaw,
    /// In which part of a request.
    pub place: Place,
}

/// Where a flaw is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a head that begins at this position of the fed bytes, or before them if it is 0. What lies before is good.
    Head(usize),
    /// In a body, at this position.
    Body(usize),
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
    /// Bytes of this head, or of these trailers, so far.
    size: usize,
    headers: usize,
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
    old_version: bool,
}

impl Default for Framing {
    fn default() -> Self {
        Self {
            part: Part::RequestLine,
            line: Vec::new(),
            size: 0,
            headers: 0,
            hosts: 0,
            length: None,
            chunked: false,
            old_version: false,
        }
    }
}

impl Framing {
    /// Takes the next bytes; answers how many of them are not of a head that has yet to end.
    ///
    /// # Errors
    /// The first flaw. Nothing after it may be used.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<usize, Refused> {
        let mut at = 0;
        let mut head = self.in_head().then_some(0);
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
                        return Err(Refused { flaw: Flaw::Chunk, place: Place::Body(at) });
                    }
                    self.part = if seen == 0 { Part::ChunkEnd(1) } else { Part::ChunkSize };
                    1
                }
                Part::RequestLine | Part::Headers => {
                    let start = *head.get_or_insert(at);
                    let taken = self.feed_line(rest);
                    let taken = taken.map_err(|(flaw, _)| Refused { flaw, place: Place::Head(start) })?;
                    head = head.filter(|_| self.in_head());
                    taken
                }
                Part::ChunkSize | Part::Trailers => {
                    let taken = self.feed_line(rest);
                    taken.map_err(|(flaw, end)| Refused { flaw, place: Place::Body(at + end) })?
                }
            };
        }
        Ok(head.unwrap_or(bytes.len()))
    }

    /// Has a head begun that has not ended?
    fn in_head(&self) -> bool {
        match self.part {
            Part::Headers => true,
            Part::RequestLine => !self.line.is_empty(),
            Part::Fixed(_) | Part::ChunkSize | Part::ChunkData(_) | Part::ChunkEnd(_) | Part::Trailers => false,
        }
    }

    /// Takes bytes up to the end of a line; answers how many, or the flaw and the line's end.
    fn feed_line(&mut self, rest: &[u8]) -> Result<usize, (Flaw, usize)> {
        let end = rest.iter().position(|byte| *byte == b'\n');
        self.size += end.map_or(rest.len(), |end| end + 1);
        if self.size > MAX_HEAD {
            return Err((Flaw::HeadTooLarge, 0));
        }
        let Some(end) = end else {
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
        whole.map(|()| end + 1).map_err(|flaw| (flaw, end))
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), Flaw> {
        let line = line.strip_suffix(b"\r").ok_or(Flaw::LineEnd)?;
        if line.iter().any(|byte| matches!(byte, 0..=8 | 10..=31 | 127)) {
            return Err(Flaw::LineEnd);
        }
        match self.part {
            // Blank lines between requests count for nothing.
            Part::RequestLine if line.is_empty() => {
                self.size = 0;
                Ok(())
            }
            Part::RequestLine => {
                let (line_so_far, size) = (std::mem::take(&mut self.line), self.size);
                let old_version = request_line(line)?;
                *self = Self { part: Part::Headers, line: line_so_far, size, old_version, ..Self::default() };
                Ok(())
            }
            Part::Headers if line.is_empty() => self.end_of_head(),
            Part::Headers => self.header(line),
            Part::ChunkSize => self.chunk_size(line),
            Part::Trailers if line.is_empty() => {
                self.begin(Part::RequestLine);
                Ok(())
            }
            Part::Trailers => self.counted(line).map(|_| ()),
            Part::Fixed(_) | Part::ChunkData(_) | Part::ChunkEnd(_) => Err(Flaw::Chunk),
        }
    }

    fn begin(&mut self, part: Part) {
        (self.part, self.size, self.headers) = (part, 0, 0);
    }

    /// One more header.
    fn counted<'l>(&mut self, line: &'l [u8]) -> Result<(&'l [u8], &'l [u8]), Flaw> {
        self.headers += 1;
        if self.headers > MAX_HEADERS {
            return Err(Flaw::HeadTooLarge);
        }
        name_and_value(line)
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Flaw> {
        let (name, value) = self.counted(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).filter(|_| digits);
            // Twice is refused even if both say the same: somebody before us may have read only one.
            match (self.length, number) {
                (None, Some(number)) => self.length = Some(number),
                (Some(_), _) | (None, None) => return Err(Flaw::Length),
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Flaw::Coding);
            }
            self.chunked = true;
        }
        Ok(())
    }

    fn end_of_head(&mut self) -> Result<(), Flaw> {
        if self.hosts > 1 || (self.hosts == 0 && !self.old_version) {
            return Err(Flaw::Host);
        }
        self.begin(match (self.chunked, self.length) {
            (true, Some(_)) => return Err(Flaw::Coding),
            (true, None) if self.old_version => return Err(Flaw::Coding),
            (true, None) => Part::ChunkSize,
            (false, None | Some(0)) => Part::RequestLine,
            (false, Some(length)) => Part::Fixed(length),
        });
        Ok(())
    }

    fn chunk_size(&mut self, line: &[u8]) -> Result<(), Flaw> {
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let valid = (1..=15).contains(&digits.len())
            && digits.iter().all(u8::is_ascii_hexdigit)
            && line.len() <= MAX_CHUNK_LINE;
        let size = std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        match size.filter(|_| valid) {
            Some(0) => self.begin(Part::Trailers),
            Some(size) => self.begin(Part::ChunkData(size)),
            None => return Err(Flaw::Chunk),
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

/// Checks a request line; answers whether it is of HTTP/1.0.
fn request_line(line: &[u8]) -> Result<bool, Flaw> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Flaw::RequestLine);
    };
    let old_version = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        other if other.starts_with(b"HTTP/") => return Err(Flaw::Version),
        _ => return Err(Flaw::RequestLine),
    };
    let named = (1..=MAX_METHOD).contains(&method.len()) && method.iter().copied().all(is_token);
    if named && Uri::try_from(target).is_ok() { Ok(old_version) } else { Err(Flaw::RequestLine) }
}

/// May the byte stand in a name (RFC 9110, section 5.6.2)?
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

fn name_and_value(line: &[u8]) -> Result<(&[u8], &[u8]), Flaw> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Flaw::Header)?;
    let (name, value) = line.split_at(colon);
    // A blank first is a continued line, a blank before the colon another name to somebody else.
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return Err(Flaw::Header);
    }
    Ok((name, value.strip_prefix(b":").unwrap_or_default().trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the whole at once and byte by byte; both must say the same.
    fn verdict(text: &str) -> Option<Flaw> {
        let whole = Framing::default().feed(text.as_bytes()).err().map(|refused| refused.flaw);
        let mut framing = Framing::default();
        let split = text.as_bytes().iter().find_map(|byte| framing.feed(&[*byte]).err()).map(|refused| refused.flaw);
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
            ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), Flaw::LineEnd),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n".to_owned(), Flaw::LineEnd),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n".to_owned(), Flaw::LineEnd),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), Flaw::Host),
            ("GET / HTTP/1.1\r\nHost: a\r\nHOST: a\r\n\r\n".to_owned(), Flaw::Host),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n".to_owned(), Flaw::Header),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n".to_owned(), Flaw::Header),
            ("GET / HTTP/1.1\r\nHost: a\r\nX(y): b\r\n\r\n".to_owned(), Flaw::Header),
            ("GET  / HTTP/1.1\r\n".to_owned(), Flaw::RequestLine),
            ("GET / FTP/1.1\r\n".to_owned(), Flaw::RequestLine),
            ("G(T / HTTP/1.1\r\n".to_owned(), Flaw::RequestLine),
            ("GET /a\"<b HTTP/1.1\r\n".to_owned(), Flaw::RequestLine),
            ("\r\nPRI * HTTP/2.0\r\n".to_owned(), Flaw::Version),
            (format!("{post}X: {}", "x".repeat(MAX_HEAD)), Flaw::HeadTooLarge),
            (format!("{post}{}", "X: y\r\n".repeat(MAX_HEADERS)), Flaw::HeadTooLarge),
            (format!("{post}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"), Flaw::Coding),
            (format!("{post}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"), Flaw::Coding),
            (format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n"), Flaw::Coding),
            (format!("{post}Transfer-Encoding: xchunked\r\n\r\n"), Flaw::Coding),
            (format!("{post}Content-Length: 3\r\nContent-Length: 3\r\n\r\n"), Flaw::Length),
            (format!("{post}Content-Length: +3\r\n\r\n"), Flaw::Length),
            (format!("{post}Content-Length: 3, 3\r\n\r\n"), Flaw::Length),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n"), Flaw::Chunk),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n"), Flaw::Chunk),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n"), Flaw::LineEnd),
        ] {
            assert_eq!(verdict(&bad), Some(why), "{bad:?}");
        }
    }

    #[test]
    fn a_head_is_held_back_until_it_ends_and_a_flaw_names_where_its_head_begins() {
        let (good, bad) = ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost a\r\n");
        let feed = |text: &str| Framing::default().feed(text.as_bytes());
        assert_eq!(feed(good), Ok(good.len()));
        assert_eq!(feed(&format!("{good}GE")), Ok(good.len()), "the second head has yet to end");
        let refused = Refused { flaw: Flaw::Header, place: Place::Head(good.len()) };
        assert_eq!(feed(&format!("{good}{bad}")), Err(refused));
        let mut framing = Framing::default();
        assert_eq!(framing.feed(b"GET / HTTP/1.1\r\n"), Ok(0));
        assert_eq!(framing.feed(b"Host"), Ok(0));
        assert_eq!(framing.feed(b": a\r\n\r\n"), Ok(7));
        let post = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let refused = Refused { flaw: Flaw::Chunk, place: Place::Body(post.len() + 6) };
        assert_eq!(feed(&format!("{post}3\r\nabcd")), Err(refused));
    }

    #[test]
    fn the_size_of_a_head_is_its_own_and_not_that_of_the_requests_before() {
        let mut framing = Framing::default();
        for _ in 0..5_000 {
            framing.feed(b"\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").unwrap();
            framing
                .feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
                .unwrap();
        }
    }
}
