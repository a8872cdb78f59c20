//! `Prefer: wait=N` (RFC 7240).
//!
//! Preferences that are not known are ignored, as the RFC wants it, and of several `wait` the first counts. A `wait` that
//! can't be meant is refused: a caller who waits for an answer would take another one for it.

use axum::http::HeaderMap;

use crate::api::error::{ApiError, ApiResult, Code};

/// The seconds that a caller wants to wait, 1 to `most`.
///
/// # Errors
/// 400 `invalid-header` when `wait` is no such number.
pub fn preferred_wait(headers: &HeaderMap, most: u64) -> ApiResult<Option<u64>> {
    for header in headers.get_all("prefer") {
        let text = header.to_str().map_err(|_| ApiError::new(Code::InvalidHeader, "Prefer is not ASCII"))?;
        for preference in outside_quotes(text, ',') {
            // Parameters of a preference stand behind a semicolon; `wait` has none.
            let named = outside_quotes(preference, ';').into_iter().next().unwrap_or_default();
            let (name, value) = named.split_once('=').unwrap_or((named, ""));
            if name.trim().eq_ignore_ascii_case("wait") {
                return seconds(value.trim(), most).map(Some).ok_or_else(|| {
                    let detail = format!("Prefer: wait is a whole number of seconds, 1 to {most}");
                    ApiError::new(Code::InvalidHeader, detail)
                });
            }
        }
    }
    Ok(None)
}

fn seconds(value: &str, most: u64) -> Option<u64> {
    // A value may stand in quotes: that changes nothing (RFC 7240, section 2).
    let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    let digits = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
    bare.parse().ok().filter(|seconds| digits && (1..=most).contains(seconds))
}

/// Splits at `separator`, but not inside quoted strings.
fn outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if c == separator && !quoted => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> ApiResult<Option<u64>> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("prefer", value.parse().unwrap());
        }
        preferred_wait(&headers, 120)
    }

    #[test]
    fn the_first_wait_counts_wherever_it_stands_and_the_rest_is_ignored() {
        for (values, wanted) in [
            (&["wait=20"][..], Some(20)),
            (&["respond-async, wait=20"], Some(20)),
            (&["WAIT = \"20\" ; x=y"], Some(20)),
            (&["handling=lenient", " , ,wait=7,wait=900"], Some(7)),
            (&["foo=\"a, wait=5; \\\" wait=6\", wait=8"], Some(8)),
            (&["foo; wait=5"], None),
            (&["waiting=5, wait5", ""], None),
            (&[], None),
        ] {
            assert_eq!(of(values).unwrap(), wanted, "{values:?}");
        }
    }

    #[test]
    fn a_wait_that_can_not_be_meant_is_refused() {
        for bad in [
            "wait",
            "wait=",
            "wait=soon",
            "wait=0",
            "wait=121",
            "wait=+5",
            "wait=-1",
            "wait=1.5",
            "wait=\"5",
            "wait=99999999999999999999",
            "wait==5",
        ] {
            assert_eq!(of(&[bad]).unwrap_err().code(), Code::InvalidHeader, "{bad}");
        }
    }
}
