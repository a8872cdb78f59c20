//! The operator's CLI: one file per noun, HTTP only, so what it can do, anyone can.

pub(crate) mod agents;
mod alerts;
pub(crate) mod batches;
pub(crate) mod body;
mod breakers;
pub(crate) mod callbacks;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod history;
pub(crate) mod policies;
pub(crate) mod replay;
mod routing;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod tasks;
pub(crate) mod tokens;
mod unborne;
mod unserved;
mod unused;

use serde_json::Value;

use crate::client::{Client, Listing, More};
use crate::moments;
use crate::output::{self, Chatter, Format, field};

/// What every command of the CLI has at hand.
#[derive(Debug)]
pub(crate) struct Context {
    /// The hub.
    pub(crate) client: Client,
    /// How data is printed.
    pub(crate) format: Format,
    /// How much is said beside it.
    pub(crate) chatter: Chatter,
}

/// A column: its heading, and its text for an item.
type Column = (&'static str, fn(&Value) -> String);

/// Fields that are for programs, or too long to be read in a table.
const NOT_FOR_EYES: [&str; 2] = ["declaration", "receipt"];
/// What is said beside a list that was cut by its limit.
const MORE: &str = "there are more: raise --limit";
/// What somebody else's JSON is in: shown as it is.
const OPAQUE: [&str; 3] = ["result", "payload", "data"];

impl Context {
    /// Prints a list as a table of these columns, or as one JSON array.
    async fn print_list(&self, listing: Listing, columns: &[Column]) {
        let (listed, more) = (listing.items.len(), listing.more);
        let unborne = unborne::lines(&listing.hints);
        match self.format {
            Format::Json => output::json(&Value::Array(listing.items)),
            Format::Table if listed == 0 => {
                self.hint("none");
                unborne.iter().for_each(|line| self.hint(line));
            }
            Format::Table => {
                let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
                let row = |item: &Value| columns.iter().map(|(_, text)| text(item)).collect();
                output::table(&head, listing.items.iter().map(row).collect::<Vec<Vec<String>>>());
            }
        }
        if self.chatter == Chatter::Quiet {
            return;
        }
        // A script must be able to see that it has not read all, and that it has probably looked in the wrong place.
        if more == More::Yes {
            output::note(MORE);
        }
        if listed == 0 {
            self.note_unused().await;
        }
    }

    /// Says so where nothing was found because nothing ever was in the namespace.
    async fn note_unused(&self) {
        if self.chatter == Chatter::Normal
            && let Some(told) = unused::of_empty_list(&self.client).await
        {
            output::note(&told);
        }
    }

    /// The same beside a refusal, of which a script reads the whole of stderr.
    pub(crate) async fn hint_unused(&self) {
        if self.format == Format::Table {
            self.note_unused().await;
        }
    }

    /// Prints one object: a line a field, or JSON.
    fn print_object(&self, object: &Value) {
        if self.format == Format::Json || !object.is_object() {
            return output::json(object);
        }
        let now = moments::now();
        let rows = facts(object).into_iter().map(|(name, value)| (name, moments::related(&value, now)));
        output::card(&rows.collect::<Vec<_>>());
    }

    /// Says that something was done: in words, or as the hub's answer.
    fn print_done(&self, answer: &Value, words: &str) {
        match self.format {
            Format::Json if answer.is_null() => output::json(&serde_json::json!({})),
            Format::Json => output::json(answer),
            Format::Table => self.hint(words),
        }
    }

    /// A word on stderr, unless the person wants none.
    fn hint(&self, text: &str) {
        if self.chatter == Chatter::Normal && self.format == Format::Table {
            output::note(text);
        }
    }
}

/// Names and values of an object, what lies one deeper as `outer.inner`; nothing for what is absent or empty.
fn facts(object: &Value) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let shown = |name: &str, value: &Value| !value.is_null() && !NOT_FOR_EYES.contains(&name);
    for (name, value) in object.as_object().into_iter().flatten().filter(|(name, value)| shown(name, value)) {
        match value {
            Value::Object(inner) if !OPAQUE.contains(&name.as_str()) => {
                let inner = inner.iter().filter(|(_, value)| !value.is_null());
                facts.extend(inner.map(|(deeper, value)| (format!("{name}.{deeper}"), field(value, ""))));
            }
            Value::Array(items) if items.is_empty() => {}
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                facts.push((name.clone(), field(value, "")));
            }
        }
    }
    facts
}

/// How long ago the moment in that field was.
fn age(item: &Value, pointer: &str) -> String {
    moments::age(&field(item, pointer), moments::now())
}

/// A span like `500ms`, `30s`, `5m`, `24h`, `7d`; a bare number is seconds. In milliseconds.
pub(crate) fn span(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(digits).unwrap_or_default();
    let factor = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("{unit:?} is no unit: use ms, s, m, h or d")),
    };
    let number: u64 = digits.parse().map_err(|_| "expected a number and a unit, such as 30s".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "that is too long".to_owned())
}

/// `name=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected name=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_flat_and_without_what_is_empty() {
        let object = serde_json::json!({"a": 1, "none": null, "labels": {}, "callback": {"state": "due", "next": null},
            "result": {"x": 1}, "list": [], "declaration": {"long": true}});
        let shown: Vec<String> = facts(&object).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown, ["a=1", "callback.state=due", "result={\"x\":1}"]);
    }

    #[test]
    fn spans_have_units() {
        assert_eq!(span("500ms"), Ok(500));
        assert_eq!(span("30"), Ok(30_000));
        assert_eq!(span("24h"), Ok(86_400_000));
        assert!(span("3 weeks").is_err());
        assert!(span("99999999999999999d").is_err());
        assert!(span("").is_err());
    }
}
