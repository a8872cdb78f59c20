//! What a push agent's HTTP answer means (semantics 8): a pure table.
//!
//! | answer | means |
//! | --- | --- |
//! | 202 | acknowledged; it will report later |
//! | 200, 201 and other 2xx | done, the body is the result |
//! | 204, 205, or an empty body | done, without a result |
//! | 409 | it had been done before: succeeded, empty, flagged |
//! | 400, 422 and other 4xx | failed for good |
//! | 425, 429, 503 | not now: never started, no attempt is used |
//! | 3xx, 401, 403, 404 | never started, class `network` |
//! | 408, 500, 502, 504, other 5xx | ambiguous: it may have run |
//! | no answer | by whether a byte of the body may have left |

use serde::Deserialize;

use super::http::{Incoming, PostError, Received, Sent, Trouble};
use crate::ledger::machine::task::FailureClass;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::{Millis, Timestamp};

/// A result is at most 1 MiB.
pub const MAX_RESULT: usize = 1 << 20;
/// An error message is cut to this many bytes.
pub const MAX_MESSAGE: usize = 4_096;

/// What a push came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// It works on it.
    Acknowledged,
    /// It is done.
    Done {
        /// The result's JSON, if there is one.
        result: Option<Vec<u8>>,
    },
    /// It had been done before.
    AlreadyDone,
    /// It failed for good.
    Failed {
        /// To what the failure is attributed.
        class: FailureClass,
        /// A stable code, ours or the agent's.
        code: Text,
        /// The agent's words.
        message: Option<String>,
    },
    /// Nobody started it.
    NeverStarted {
        /// To what that is attributed.
        class: FailureClass,
        /// A stable code.
        code: Text,
        /// Not earlier than after this.
        retry_after: Option<Millis>,
        /// Did the agent say "not now"?
        said: Said,
    },
    /// It may have run.
    Ambiguous {
        /// To what that is attributed.
        class: FailureClass,
        /// A stable code.
        code: Text,
    },
}

/// Who kept the task from starting?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The agent, for now: 429 or 503.
    NotNow,
    /// Something else.
    Nothing,
}

/// Reads an answer. `wall` is for a `Retry-After` that names a date.
#[must_use]
pub fn meaning(answer: Result<Incoming, PostError>, wall: Timestamp) -> Meaning {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return without_answer(error),
    };
    let code: Text = format!("http-{}", answer.status).into();
    let network =
        |code| Meaning::NeverStarted { class: FailureClass::Network, code, retry_after: None, said: Said::Nothing };
    match answer.status {
        202 => Meaning::Acknowledged,
        204 | 205 => Meaning::Done { result: None },
        200..=299 => result(answer),
        300..=399 | 401 | 403 | 404 => network(code),
        409 => Meaning::AlreadyDone,
        408 | 504 => Meaning::Ambiguous { class: FailureClass::AgentTimeout, code },
        425 | 429 | 503 => Meaning::NeverStarted {
            class: FailureClass::AgentOverload,
            code,
            retry_after: answer.retry_after.as_deref().and_then(|text| retry_after(text, wall)),
            said: Said::NotNow,
        },
        400..=499 => refusal(answer, code),
        502 => Meaning::Ambiguous { class: FailureClass::Network, code },
        _ => Meaning::Ambiguous { class: FailureClass::AgentCrash, code },
    }
}

fn without_answer(error: PostError) -> Meaning {
    let code: Text = error.trouble.word().into();
    match error.sent {
        Sent::Maybe => {
            let class = match error.trouble {
                Trouble::Timeout => FailureClass::AgentTimeout,
                Trouble::Refused(_) | Trouble::Dns | Trouble::Connect | Trouble::Broken => FailureClass::Network,
            };
            Meaning::Ambiguous { class, code }
        }
        Sent::Never => {
            let (class, code) = match error.trouble {
                Trouble::Refused(refusal) => (FailureClass::Policy, format!("egress-{}", refusal.rule.word()).into()),
                Trouble::Dns | Trouble::Connect | Trouble::Timeout | Trouble::Broken => (FailureClass::Network, code),
            };
            Meaning::NeverStarted { class, code, retry_after: None, said: Said::Nothing }
        }
    }
}

fn result(answer: Incoming) -> Meaning {
    let failed = |class, code: &str| Meaning::Failed { class, code: code.into(), message: None };
    let too_large = || failed(FailureClass::Policy, "result-too-large");
    let bytes = match answer.body {
        Received::Whole(bytes) => bytes,
        Received::TooLarge => return too_large(),
        // It said that it is done, but not what came out.
        Received::Broken => return Meaning::Ambiguous { class: FailureClass::Network, code: "broken".into() },
    };
    if bytes.is_empty() {
        return Meaning::Done { result: None };
    }
    if serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() {
        return Meaning::Done { result: Some(bytes) };
    }
    // Plain text is a result too; a document that claims to be JSON and is none is not.
    let is_text = answer.content_type.is_some_and(|kind| kind.trim_start().starts_with("text/"));
    let text = if is_text { std::str::from_utf8(&bytes).ok() } else { None };
    match text.and_then(|text| serde_json::to_vec(text).ok()) {
        Some(json) if json.len() <= MAX_RESULT => Meaning::Done { result: Some(json) },
        Some(_) => too_large(),
        None => failed(FailureClass::Schema, "result-not-json"),
    }
}

#[derive(Deserialize)]
struct Said4xx {
    error: Option<Reason>,
    code: Option<String>,
    message: Option<String>,
    detail: Option<String>,
    title: Option<String>,
}

#[derive(Deserialize)]
struct Reason {
    code: Option<String>,
    message: Option<String>,
}

/// Our own `fail` body, a bare `{code, message}`, a problem document, or text.
fn refusal(answer: Incoming, fallback: Text) -> Meaning {
    let bytes = match answer.body {
        Received::Whole(bytes) => bytes,
        Received::TooLarge | Received::Broken => Vec::new(),
    };
    let (code, message) = match serde_json::from_slice::<Said4xx>(&bytes) {
        Ok(said) => {
            let (inner_code, inner_message) = said.error.map_or((None, None), |reason| (reason.code, reason.message));
            (inner_code.or(said.code), inner_message.or(said.message).or(said.detail).or(said.title))
        }
        Err(_) => (None, std::str::from_utf8(&bytes).ok().filter(|text| !text.is_empty()).map(str::to_owned)),
    };
    let code = code.filter(|code| is_code(code)).map_or(fallback, |code| code.into());
    Meaning::Failed { class: FailureClass::Business, code, message: message.map(|text| cut(&text).to_owned()) }
}

fn is_code(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
}

/// The longest part of a text that fits into [`MAX_MESSAGE`] bytes.
#[must_use]
pub fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_MESSAGE)).unwrap_or("")
}

/// `Retry-After`: seconds, or a date that is compared with the wall clock. At most 24 h; `None` if it says neither.
#[must_use]
pub fn retry_after(text: &str, wall: Timestamp) -> Option<Millis> {
    const LONGEST: Millis = Millis::secs(24 * 3_600);
    let text = text.trim();
    let wait = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        Millis(text.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1_000))
    } else {
        let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Timestamp(u64::try_from(at.as_millisecond()).unwrap_or(0)).since(wall)
    };
    Some(wait.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::super::guard::{GuardRefusal, Rule};
    use super::*;

    fn answer(status: u16, body: &str) -> Result<Incoming, PostError> {
        Ok(Incoming { status, retry_after: None, content_type: None, body: Received::Whole(body.as_bytes().to_vec()) })
    }

    fn word(meaning: &Meaning) -> String {
        match meaning {
            Meaning::Acknowledged => "acknowledged".to_owned(),
            Meaning::Done { result } => format!("done {}", String::from_utf8_lossy(result.as_deref().unwrap_or(b"-"))),
            Meaning::AlreadyDone => "already-done".to_owned(),
            Meaning::Failed { class, code, message } => {
                format!("failed {} {code} {}", class.name(), message.as_deref().unwrap_or("-"))
            }
            Meaning::NeverStarted { class, code, said, .. } => {
                format!("never {} {code} {}", class.name(), if *said == Said::NotNow { "busy" } else { "-" })
            }
            Meaning::Ambiguous { class, code } => format!("ambiguous {} {code}", class.name()),
        }
    }

    #[test]
    fn semantics_8_every_status_has_its_one_meaning() {
        for (status, body, expected) in [
            (202, "ignored", "acknowledged"),
            (200, "{\"a\":1}", "done {\"a\":1}"),
            (201, " [1] ", "done  [1] "),
            (203, "null", "done null"),
            (200, "", "done -"),
            (204, "", "done -"),
            (200, "{\"a\":", "failed schema result-not-json -"),
            (409, "", "already-done"),
            (400, "", "failed business http-400 -"),
            (400, "no such city", "failed business http-400 no such city"),
            (422, r#"{"error":{"code":"bad-city","message":"成都?"}}"#, "failed business bad-city 成都?"),
            (400, r#"{"code":"a b","detail":"d"}"#, "failed business http-400 d"),
            (413, "", "failed business http-413 -"),
            (429, "", "never agent-overload http-429 busy"),
            (503, "", "never agent-overload http-503 busy"),
            (301, "", "never network http-301 -"),
            (308, "", "never network http-308 -"),
            (401, "", "never network http-401 -"),
            (403, "", "never network http-403 -"),
            (404, "", "never network http-404 -"),
            (408, "", "ambiguous agent-timeout http-408"),
            (500, "", "ambiguous agent-crash http-500"),
            (501, "", "ambiguous agent-crash http-501"),
            (502, "", "ambiguous network http-502"),
            (504, "", "ambiguous agent-timeout http-504"),
            (599, "", "ambiguous agent-crash http-599"),
        ] {
            assert_eq!(word(&meaning(answer(status, body), Timestamp(0))), expected, "{status} {body}");
        }
    }

    #[test]
    fn semantics_8_without_an_answer_only_what_never_left_is_never_started() {
        let refusal = Trouble::Refused(GuardRefusal { rule: Rule::Metadata });
        for (sent, trouble, expected) in [
            (Sent::Never, Trouble::Connect, "never network connect -"),
            (Sent::Never, Trouble::Dns, "never network dns -"),
            (Sent::Never, Trouble::Timeout, "never network timeout -"),
            (Sent::Never, refusal, "never policy egress-metadata -"),
            (Sent::Maybe, Trouble::Timeout, "ambiguous agent-timeout timeout"),
            (Sent::Maybe, Trouble::Broken, "ambiguous network broken"),
        ] {
            assert_eq!(word(&meaning(Err(PostError { sent, trouble }), Timestamp(0))), expected);
        }
    }

    #[test]
    fn a_result_that_is_too_large_fails_and_one_that_broke_off_is_ambiguous() {
        let with = |body| Ok(Incoming { status: 200, retry_after: None, content_type: None, body });
        assert_eq!(word(&meaning(with(Received::TooLarge), Timestamp(0))), "failed policy result-too-large -");
        assert_eq!(word(&meaning(with(Received::Broken), Timestamp(0))), "ambiguous network broken");
        let text = Incoming {
            status: 200,
            retry_after: None,
            content_type: Some("text/plain; charset=utf-8".to_owned()),
            body: Received::Whole("a \"b\"".as_bytes().to_vec()),
        };
        assert_eq!(word(&meaning(Ok(text), Timestamp(0))), r#"done "a \"b\"""#);
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date_and_cut() {
        let wall = Timestamp(784_111_777_000);
        for (text, expected) in [
            ("5", Some(5_000)),
            (" 0 ", Some(0)),
            ("99999999999999999999999", Some(86_400_000)),
            ("Sun, 06 Nov 1994 08:49:57 GMT", Some(20_000)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(text, wall), expected.map(Millis), "{text:?}");
        }
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let long = "成".repeat(2_000);
        assert_eq!(cut(&long).len(), 4_095);
        assert_eq!(cut("short"), "short");
    }
}
