//! What is wrong with a body, field by field: each with the JSON pointer of the field at fault (RFC 6901).

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use crate::api::extract::WireTime;
use crate::ledger::ids::IdError;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::{Millis, Timestamp};

/// One field at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// JSON pointer to it.
    pub pointer: String,
    /// What is wrong with it.
    pub detail: String,
}

/// Faults as they are found: all of them are told at once.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

/// No more faults are told than this.
const MAX_TOLD: usize = 32;

impl Faults {
    /// One more.
    pub(crate) fn add(&mut self, pointer: &str, detail: impl Into<String>) {
        if self.0.len() < MAX_TOLD {
            self.0.push(Fault { pointer: pointer.to_owned(), detail: detail.into() });
        }
    }

    /// Nothing wrong?
    ///
    /// # Errors
    /// Every fault that was found.
    pub(crate) fn into_result(self) -> Result<(), Vec<Fault>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }

    /// An id, strictly parsed.
    pub(crate) fn id<T: FromStr<Err = IdError>>(&mut self, pointer: &str, text: &str) -> Option<T> {
        match text.parse() {
            Ok(id) => Some(id),
            Err(error) => {
                self.add(pointer, error.to_string());
                None
            }
        }
    }

    /// Text of 1 to `max` bytes without control characters.
    pub(crate) fn text(&mut self, pointer: &str, text: Option<&str>, max: usize) -> Option<Text> {
        let text = text?;
        if text.is_empty() || text.len() > max {
            self.add(pointer, format!("has {} bytes; 1 to {max}", text.len()));
            return None;
        }
        if text.chars().any(char::is_control) {
            self.add(pointer, "has a control character");
            return None;
        }
        Some(Arc::from(text))
    }

    /// A span of time in milliseconds within bounds.
    pub(crate) fn span(
        &mut self,
        pointer: &str,
        given: Option<u64>,
        bounds: RangeInclusive<u64>,
        default: Millis,
    ) -> Millis {
        match given {
            None => default,
            Some(ms) if bounds.contains(&ms) => Millis(ms),
            Some(ms) => {
                self.add(pointer, format!("is {ms}; {} to {} milliseconds", bounds.start(), bounds.end()));
                default
            }
        }
    }

    /// A wall-clock moment. One without an offset would mean another moment in another place, so it is refused.
    pub(crate) fn moment(&mut self, pointer: &str, text: Option<&str>) -> Option<Timestamp> {
        let text = text?;
        match WireTime::parse(text) {
            Ok(at) => Some(at.0),
            Err(why) => {
                self.add(pointer, why);
                None
            }
        }
    }
}

/// A key as a segment of a JSON pointer (RFC 6901, section 3).
pub(crate) fn escape(key: &str) -> String {
    key.chars().take(128).collect::<String>().replace('~', "~0").replace('/', "~1")
}
