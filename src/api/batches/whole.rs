//! A batch that was read whole: parsed apart from the async threads, for it may be 64 MiB.
//!
//! Items are counted while they are found and the fingerprint is taken task by task, so what parsing needs beside the
//! body itself is little.

use std::fmt;

use axum::body::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tokio::sync::SemaphorePermit;
use utoipa::ToSchema;

use crate::ledger::canonical::{NotCanonical, canonical, canonical_without};
use crate::ledger::ids::Digest;
use crate::ledger::keys::Fingerprinting;

use super::super::error::{ApiError, ApiResult, Code};
use super::super::extract::parse;
use super::super::submission::CallbackBody;
use super::MAX_LINES;
use super::intake::{CHUNK, CHUNK_BYTES, Line};

/// The name under which both forms tell their key.
const KEY: &str = "idempotency_key";

/// A batch as JSON.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchBody<'a> {
    /// Submissions, at most 100,000.
    #[serde(borrow)]
    #[schema(value_type = Vec<crate::api::submission::TaskBody<'static>>)]
    tasks: Tasks<'a>,
    /// Whom to tell when every task has ended.
    callback: Option<CallbackBody>,
    /// Against double submission; the same as the `Idempotency-Key` header.
    idempotency_key: Option<String>,
}

/// What a batch is, besides its tasks: the first line of an NDJSON body may say it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchHead {
    pub callback: Option<CallbackBody>,
    pub idempotency_key: Option<String>,
}

/// The first line of an NDJSON body, if it is about the batch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadLine {
    batch: BatchHead,
}

/// Submissions as they came, counted while they are found.
#[derive(Debug)]
struct Tasks<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Tasks<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counting;
        impl<'de> Visitor<'de> for Counting {
            type Value = Tasks<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut found = Vec::new();
                while let Some(item) = items.next_element()? {
                    if found.len() >= most() {
                        return Err(A::Error::custom(format_args!("has more than {MAX_LINES}")));
                    }
                    found.push(item);
                }
                Ok(Tasks(found))
            }
        }
        deserializer.deserialize_seq(Counting)
    }
}

/// How a batch came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON document.
    Json,
    /// A line a task.
    Lines,
}

impl Form {
    /// Where its callback stands.
    pub(super) const fn callback_at(self) -> &'static str {
        match self {
            Self::Json => "/callback",
            Self::Lines => "/batch/callback",
        }
    }

    /// One of its tasks.
    pub(super) fn line(self, bytes: &Bytes) -> Line<'_> {
        match self {
            Self::Json => Line::Checked(bytes),
            Self::Lines => Line::Raw(bytes),
        }
    }
}

/// A batch, taken apart. Its tasks are parts of the body that came.
#[derive(Debug)]
pub(super) struct Whole {
    pub form: Form,
    pub lines: Vec<Bytes>,
    pub callback: Option<CallbackBody>,
    /// The key, if the body names it.
    pub key: Option<String>,
    /// What the body is compared by, if there is a key (semantics 31).
    pub fingerprint: Option<Digest>,
}

/// Does a header name a key?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// Yes.
    Keyed,
    /// No.
    Unkeyed,
}

/// A large body's turn; small ones have none.
pub(super) type Turn = Option<SemaphorePermit<'static>>;

/// A body that was read whole.
pub(super) struct Given {
    /// It keeps its room with it.
    pub bytes: Bytes,
    pub turn: Turn,
}

/// Does it on a thread of its own: seconds of parsing keep nobody else waiting. The thread keeps the body's turn, also
/// when the caller is gone: it goes on all the same, and others would come beside it.
///
/// # Errors
/// Its own; 500 when the thread is gone.
pub(super) async fn apart(
    given: Given,
    work: impl FnOnce(&Bytes) -> ApiResult<Whole> + Send + 'static,
) -> ApiResult<(Whole, Turn)> {
    let Given { bytes, turn } = given;
    let taken = tokio::task::spawn_blocking(move || work(&bytes).map(|whole| (whole, turn))).await;
    taken.unwrap_or_else(|error| {
        tracing::error!(%error, "a batch could not be taken apart");
        Err(ApiError::internal())
    })
}

/// Lines to be proposed together: [`CHUNK`] of them, or as many as are [`CHUNK_BYTES`] or just more.
pub(super) fn chunks(lines: &[Bytes]) -> impl Iterator<Item = &[Bytes]> {
    let mut left = lines;
    std::iter::from_fn(move || {
        let (mut count, mut bytes) = (0, 0);
        for line in left.iter().take(CHUNK) {
            count += 1;
            bytes += line.len();
            if bytes >= CHUNK_BYTES {
                break;
            }
        }
        let (chunk, rest) = left.split_at_checked(count)?;
        left = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Takes a JSON batch apart.
///
/// # Errors
/// What is wrong with it, with a pointer.
pub(super) fn json(body: &Bytes, header: Header, print: Fingerprinting) -> ApiResult<Whole> {
    let BatchBody { tasks: Tasks(tasks), callback, idempotency_key: key } = parse(body)?;
    let keyed = key.is_some() || header == Header::Keyed;
    let fingerprint = if keyed { Some(json_fingerprint(body, &tasks, print).map_err(malformed)?) } else { None };
    let lines = tasks.into_iter().map(|task| body.slice_ref(task.get().as_bytes())).collect();
    Ok(Whole { form: Form::Json, lines, callback, key, fingerprint })
}

fn malformed(error: NotCanonical) -> ApiError {
    ApiError::new(Code::MalformedJson, error.to_string())
}

/// The fingerprint of the document's canonical form without its key, made of its parts.
fn json_fingerprint(body: &[u8], tasks: &[&RawValue], print: Fingerprinting) -> Result<Digest, NotCanonical> {
    /// The rest of the document as it came; a null is not the same as nothing.
    #[derive(Deserialize)]
    struct Rest<'a> {
        #[serde(borrow, default, deserialize_with = "as_it_came")]
        callback: Option<&'a RawValue>,
    }
    fn as_it_came<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
        <&RawValue>::deserialize(deserializer).map(Some)
    }
    let rest: Rest<'_> = serde_json::from_slice(body).map_err(|error| NotCanonical::new(&error))?;
    let mut print = print.with(b"{");
    if let Some(callback) = rest.callback {
        print = print.with(b"\"callback\":").with(&canonical(callback.get().as_bytes())?).with(b",");
    }
    print = print.with(b"\"tasks\":[");
    for (index, task) in tasks.iter().enumerate() {
        if index > 0 {
            print = print.with(b",");
        }
        print = print.with(&canonical(task.get().as_bytes())?);
    }
    Ok(print.with(b"]}").done())
}

/// Takes an NDJSON batch apart.
///
/// # Errors
/// What is wrong with its first line, or that it has too many.
pub(super) fn lines(body: &Bytes, print: Fingerprinting) -> ApiResult<Whole> {
    let mut lines =
        body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).peekable();
    let mut print = print;
    let mut head = None;
    if let Some(first) = lines.peek()
        && let Some(found) = head_line(first)?
    {
        if let Some(spelled) = head_spelled(first).map_err(malformed)? {
            print = print.with(&spelled).with(b"\n");
        }
        head = Some(found);
        lines.next();
    }
    let mut found = Vec::new();
    for line in lines {
        if found.len() >= most() {
            return Err(too_many_lines());
        }
        // A broken line stands for itself: it is refused each time alike.
        print = match canonical(line) {
            Ok(spelled) => print.with(&spelled),
            Err(_) => print.with(line),
        };
        print = print.with(b"\n");
        found.push(body.slice_ref(line));
    }
    let BatchHead { callback, idempotency_key: key } = head.unwrap_or_default();
    Ok(Whole { form: Form::Lines, lines: found, callback, key, fingerprint: Some(print.done()) })
}

/// A head line's canonical form without the key; nothing when nothing else is in it. So a batch is the same wherever
/// its key stands.
fn head_spelled(line: &[u8]) -> Result<Option<Vec<u8>>, NotCanonical> {
    #[derive(Deserialize)]
    struct Batch<'a> {
        #[serde(borrow)]
        batch: &'a RawValue,
    }
    let Batch { batch } = serde_json::from_slice(line).map_err(|error| NotCanonical::new(&error))?;
    let rest = canonical_without(batch.get().as_bytes(), KEY)?;
    Ok((rest != b"{}").then(|| [b"{\"batch\":", &*rest, b"}"].concat()))
}

/// What the batch is, if the first line is about it.
///
/// # Errors
/// What is wrong with such a line.
pub(super) fn head_line(line: &[u8]) -> ApiResult<Option<BatchHead>> {
    #[derive(Deserialize)]
    struct Names {
        batch: Option<serde::de::IgnoredAny>,
    }
    // Cheap to rule out: every other line would have to be parsed twice.
    let start = line.get(..line.len().min(64)).unwrap_or_default();
    if !start.windows(7).any(|window| window == b"\"batch\"") {
        return Ok(None);
    }
    match serde_json::from_slice::<Names>(line) {
        Ok(Names { batch: Some(_) }) => parse::<HeadLine>(line).map(|head| Some(head.batch)),
        Ok(Names { batch: None }) | Err(_) => Ok(None),
    }
}

pub(super) fn too_many_lines() -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("a batch has at most {MAX_LINES} lines")).fact("limit", MAX_LINES)
}

fn most() -> usize {
    usize::try_from(MAX_LINES).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::ledger::ids::Namespace;
    use crate::ledger::keys::Keys;

    fn print() -> Fingerprinting {
        Keys::from_master(&[7; 32]).fingerprinting(&Namespace::new("dev").unwrap())
    }

    fn of_json(text: &str) -> Digest {
        json(&Bytes::from(text.to_owned()), Header::Keyed, print()).unwrap().fingerprint.unwrap()
    }

    #[tokio::test]
    async fn a_batch_that_nobody_waits_for_any_more_keeps_its_turn_until_it_is_taken_apart() {
        static TURN: Semaphore = Semaphore::const_new(1);
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let given = Given { bytes: Bytes::new(), turn: TURN.try_acquire().ok() };
        let call = apart(given, move |_| {
            told.recv().ok();
            Err(ApiError::internal())
        });
        assert!(call.now_or_never().is_none(), "it is at it, and its caller goes away");
        assert_eq!(TURN.available_permits(), 0);
        drop(tell);
        drop(TURN.acquire().await.unwrap());
    }

    #[test]
    fn semantics_31_the_fingerprint_made_of_parts_is_that_of_the_whole_document() {
        for text in [
            r#"{"tasks":[]}"#,
            r#"{"tasks":[1, {"b":1.0,"a":"\n"}, null]}"#,
            r#"{"idempotency_key":"k","tasks":[{"capability":"x.y"}],"callback":null}"#,
            r#"{ "tasks" : [ 1 ] , "callback" : {"url":"http://a/", "events":["terminal"]} }"#,
        ] {
            let whole = canonical_without(text.as_bytes(), KEY).unwrap();
            assert_eq!(of_json(text), print().with(&whole).done(), "{text}");
        }
    }

    #[test]
    fn semantics_31_lines_have_one_fingerprint_wherever_their_key_stands() {
        let of = |text: &str| lines(&Bytes::from(text.to_owned()), print()).unwrap().fingerprint;
        let plain = of("{\"a\":1}\n");
        assert_eq!(of("{\"batch\":{\"idempotency_key\":\"k\"}}\r\n\n { \"a\" : 1.0 }"), plain);
        assert_ne!(of("{\"batch\":{\"callback\":{\"url\":\"http://a/\",\"events\":[]}}}\n{\"a\":1}\n"), plain);
        assert_ne!(of("{\"a\":1}\n{\"a\":1}\n"), plain);
        assert_eq!(of("{\"a\":\n"), of("{\"a\":"), "a broken line stands for itself");
    }

    #[test]
    fn chunks_are_bounded_in_lines_and_bytes_and_leave_nothing_out() {
        let lines = |count: usize, len: usize| vec![Bytes::from(vec![b' '; len]); count];
        let sizes = |lines: &[Bytes]| chunks(lines).map(<[Bytes]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&lines(600, 10)), [256, 256, 88]);
        assert_eq!(sizes(&lines(5, 600_000)), [2, 2, 1]);
        assert_eq!(sizes(&lines(2, 5 << 20)), [1, 1]);
    }

    #[test]
    fn items_are_counted_while_they_are_found_and_a_broken_one_is_named() {
        let text = format!("{{\"tasks\":[{}1]}}", "1,".repeat(most()));
        let refused = json(&Bytes::from(text), Header::Unkeyed, print()).unwrap_err();
        let told = serde_json::to_value(&refused).unwrap();
        assert_eq!((refused.code(), told["errors"][0]["pointer"].as_str()), (Code::InvalidField, Some("/tasks")));
        assert!(told.to_string().contains("100000"), "{told}");
        for (text, code, pointer) in [
            (r#"{"tasks":[{},{"a":1,"a":2}]}"#, Code::DuplicateKey, "/tasks/1/a"),
            (r#"{"tasks":[],"colour":1}"#, Code::UnknownField, "/colour"),
            (r#"{"tasks":7}"#, Code::InvalidField, "/tasks"),
            (r"{}", Code::InvalidField, "/tasks"),
            (r#"{"tasks":[],"callback":{"url":1}}"#, Code::InvalidField, "/callback/url"),
        ] {
            let refused = json(&Bytes::from(text.to_owned()), Header::Unkeyed, print()).unwrap_err();
            let told = serde_json::to_value(&refused).unwrap();
            assert_eq!((refused.code(), told["errors"][0]["pointer"].as_str()), (code, Some(pointer)), "{text}");
        }
    }
}
