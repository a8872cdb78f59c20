//! Times on the wire: RFC 3339 with an offset. A time without one means another moment to everybody, so it is refused.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::ledger::time::Timestamp;

/// A wall-clock moment as it came; [`crate::ledger::handle::Ledger::from_wall`] makes ledger time of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireTime(pub Timestamp);

impl WireTime {
    /// Parses RFC 3339 with `Z` or a numeric offset.
    ///
    /// # Errors
    /// A sentence about what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const SHAPE: &str = "expected RFC 3339 with Z or an offset, such as 2026-01-01T12:00:00Z or …+08:00";
        let separator = text.as_bytes().get(10);
        if text.len() > 40 || !matches!(separator, Some(b'T' | b't')) || text.contains('[') {
            return Err(SHAPE);
        }
        let Some(at) = text.parse::<jiff::Timestamp>().ok().filter(|_| has_offset(text)) else {
            let naive = !has_offset(text) && text.parse::<jiff::civil::DateTime>().is_ok();
            return Err(if naive { "the time has no offset: append Z or an offset such as +08:00" } else { SHAPE });
        };
        u64::try_from(at.as_millisecond())
            .map(|millis| Self(Timestamp(millis)))
            .map_err(|_| "the time lies before 1970")
    }
}

/// `Z`, or hours up to 23 and minutes up to 59: the parser knows wider offsets that no RFC 3339 time has.
fn has_offset(text: &str) -> bool {
    let bytes = text.as_bytes();
    match bytes.last_chunk::<6>() {
        _ if bytes.ends_with(b"Z") || bytes.ends_with(b"z") => true,
        Some([b'+' | b'-', h @ b'0'..=b'2', hh @ b'0'..=b'9', b':', b'0'..=b'5', b'0'..=b'9']) => {
            (*h, *hh) < (b'2', b'4')
        }
        Some(_) | None => false,
    }
}

impl fmt::Display for WireTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for WireTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl Serialize for WireTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_needs_its_offset() {
        assert_eq!(WireTime::parse("2026-01-01T00:00:00Z"), Ok(WireTime(Timestamp(1_767_225_600_000))));
        assert_eq!(WireTime::parse("2026-01-01T08:00:00.5+08:00"), Ok(WireTime(Timestamp(1_767_225_600_500))));
        assert!(WireTime::parse("2026-01-01T00:00:00").unwrap_err().contains("no offset"));
        // Beyond what can be told, but not without its offset.
        assert!(WireTime::parse("9999-12-31T23:59:59-23:59").unwrap_err().starts_with("expected RFC 3339"));
        assert!(WireTime::parse("2026-01-01T00:00:00-23:59").is_ok());
        for offset in ["+24:00", "-24:00", "+25:59", "+08", "+0800", "+08:60", "+08:00:30", "+99:99"] {
            assert!(WireTime::parse(&format!("2026-01-01T00:00:00{offset}")).is_err(), "{offset}");
        }
        for bad in ["", "2026-01-01", "now", "2026-01-01 00:00:00Z", "2026-13-01T00:00:00Z", "1960-01-01T00:00:00Z"] {
            assert!(WireTime::parse(bad).is_err(), "{bad}");
        }
    }
}
