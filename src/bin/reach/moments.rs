//! Moments as people think of them: how long ago, how long until.

use agent_reach::api::timeline::{millis_between, span};
use agent_reach::ledger::time::{Clock as _, SystemClock};
use jiff::Timestamp;

use crate::ctl::span as span_ms;

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let millis = i64::try_from(SystemClock.wall().0).unwrap_or(0);
    Timestamp::from_millisecond(millis).unwrap_or_default()
}

/// RFC 3339, or a span before now: what an option takes that asks when.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let back = span_ms(text).map_err(|_| "expected RFC 3339, as in 2026-01-31T03:00:00Z, or so long ago, as in 90m")?;
    let back = jiff::SignedDuration::from_millis(i64::try_from(back).unwrap_or(i64::MAX));
    now().checked_sub(back).map_err(|_| "that is too long ago".to_owned())
}

/// `3 m 05 s ago` or `in 2.0 s`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", span(millis_between(now, at)))
    } else {
        format!("{} ago", span(millis_between(at, now)))
    }
}

/// How long ago, for a column: `3 m 05 s`; the text itself where it is no moment.
pub(crate) fn age(text: &str, now: Timestamp) -> String {
    text.parse().map_or_else(|_| text.to_owned(), |at| span(millis_between(at, now)))
}

/// A text with every moment in it put into relation: `… since 2026-01-01T00:00:00.000Z (3 m 05 s ago) for …`.
pub(crate) fn related(text: &str, now: Timestamp) -> String {
    let word = |word: &str| {
        let bare = word.trim_end_matches([',', ';', '.', ')']);
        let looks_like_one = bare.len() >= 20 && bare.ends_with('Z');
        match bare.parse::<Timestamp>() {
            Ok(at) if looks_like_one => {
                format!("{bare} ({}){}", relative(at, now), word.strip_prefix(bare).unwrap_or_default())
            }
            Ok(_) | Err(_) => word.to_owned(),
        }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_in_a_text_is_put_into_relation() {
        let now: Timestamp = "2026-01-01T00:03:05Z".parse().expect("a moment");
        let text = "it waits since 2026-01-01T00:00:00.000Z for a slot until 2026-01-01T00:03:07.000Z, then not";
        assert_eq!(
            related(text, now),
            "it waits since 2026-01-01T00:00:00.000Z (3 m 05 s ago) for a slot until 2026-01-01T00:03:07.000Z (in 2.0 s), then not"
        );
        assert_eq!(age("2026-01-01T00:00:00Z", now), "3 m 05 s");
        assert_eq!(age("-", now), "-");
    }

    #[test]
    fn a_moment_is_rfc_3339_or_so_long_ago() {
        assert_eq!(moment("2026-01-01T00:00:00Z").map(|at| at.to_string()), Ok("2026-01-01T00:00:00Z".to_owned()));
        let ago = now().duration_since(moment("90m").expect("a span")).as_secs();
        assert!((5_399..=5_401).contains(&ago), "{ago}");
        assert!(moment("yesterday").is_err());
    }
}
