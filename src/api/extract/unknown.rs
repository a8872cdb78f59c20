//! A field or word that does not exist: which was meant, and which there are. Serde tells all of it, in one sentence.

use crate::api::near;

use super::query::quoted;

/// What was sent, and what could have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unknown<'a> {
    sent: &'a str,
    known: Vec<&'a str>,
}

impl<'a> Unknown<'a> {
    /// Reads ``unknown field `x`, expected one of `a`, `b` ``.
    pub(super) fn field(said: &'a str) -> Option<Self> {
        Self::read(said, "unknown field `")
    }

    /// Reads ``unknown variant `x`, expected `a` or `b` ``.
    pub(super) fn word(said: &'a str) -> Option<Self> {
        Self::read(said, "unknown variant `")
    }

    fn read(said: &'a str, what: &str) -> Option<Self> {
        let (_, rest) = said.split_once(what)?;
        // From the end: what was sent may hold anything, our own names hold no quotes.
        let (sent, choice) = rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no "))?;
        Some(Self { sent, known: choice.split('`').skip(1).step_by(2).collect() })
    }

    /// The name that was meant, if one is near.
    pub(super) fn meant(&self) -> Option<String> {
        near::nearest(self.sent, self.known.iter().copied()).map(str::to_owned)
    }

    /// In a sentence: that there is none, what was meant, and the whole choice.
    pub(super) fn told(&self, none: &str, choice: &str) -> String {
        let sent = quoted(self.sent);
        let all = self.known.join(", ");
        match self.meant() {
            _ if self.known.is_empty() => format!("{none} {sent}; none is taken here"),
            Some(name) => format!("{none} {sent}; did you mean {name}? {choice} {all}"),
            None => format!("{none} {sent}; {choice} {all}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_cannot_pretend_to_be_the_choice() {
        let said = "unknown field `a`, expected `b`` and`, expected one of `payload`, `qos`";
        let unknown = Unknown::field(said).expect("a choice");
        assert_eq!((unknown.sent, unknown.known), ("a`, expected `b`` and", vec!["payload", "qos"]));
        let none = Unknown::field("unknown field `x`, there are no fields").expect("no choice");
        assert_eq!(
            none.told("there is no field", "the fields here are"),
            "there is no field \"x\"; none is taken here"
        );
        assert_eq!(
            Unknown::word("unknown variant `urgnet`, expected `urgent` or `normal`").unwrap().meant().unwrap(),
            "urgent"
        );
        assert_eq!(Unknown::field("missing field `x`"), None);
    }
}
