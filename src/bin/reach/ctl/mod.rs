//! The operator's CLI: one file per noun, HTTP only, so what it can do, anyone can.

pub(crate) mod agents;
pub(crate) mod batches;
pub(crate) mod callbacks;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod history;
pub(crate) mod policies;
pub(crate) mod submit;
pub(crate) mod tasks;
pub(crate) mod tokens;

use serde_json::Value;

use crate::client::{Client, Listing, More};
use crate::exit::{Code, Failure, Outcome};
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

/// A column: its heading and where its text lies in an item.
type Column = (&'static str, &'static str);

impl Context {
    /// Prints a list as a table of these columns, or as one JSON array.
    fn print_list(&self, listing: Listing, columns: &[Column]) {
        if self.format == Format::Json {
            return output::json(&Value::Array(listing.items));
        }
        let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let rows: Vec<Vec<String>> = listing
            .items
            .iter()
            .map(|item| columns.iter().map(|(_, pointer)| field(item, pointer)).collect())
            .collect();
        output::table(&head, rows);
        if listing.more == More::Yes {
            self.hint("there are more: raise --limit");
        }
    }

    /// Prints one object: a line a field, or JSON.
    fn print_object(&self, object: &Value) {
        let Some(fields) = object.as_object().filter(|_| self.format == Format::Table) else {
            return output::json(object);
        };
        let rows = fields.iter().filter(|(_, value)| !value.is_null());
        let row = |name: &String| vec![name.clone(), field(object, &format!("/{name}"))];
        output::table(&["field", "value"], rows.map(|(name, _)| row(name)));
    }

    /// A word on stderr, unless the person wants none.
    fn hint(&self, text: &str) {
        if self.chatter == Chatter::Normal && self.format == Format::Table {
            output::note(text);
        }
    }
}

/// JSON from the command line: `-` reads stdin, `@FILE` a file, anything else is the JSON itself.
pub(crate) fn json_argument(name: &str, text: &str) -> Outcome<Value> {
    let usage = |what: String| Failure::Other(Code::Usage, format!("{name}: {what}"));
    let read = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| usage(format!("cannot read {path}: {error}")))?,
        None if text == "-" => std::io::read_to_string(std::io::stdin()).map_err(|error| usage(error.to_string()))?,
        None => text.to_owned(),
    };
    serde_json::from_str(&read).map_err(|error| usage(format!("not JSON: {error}")))
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
    fn spans_have_units() {
        assert_eq!(span("500ms"), Ok(500));
        assert_eq!(span("30"), Ok(30_000));
        assert_eq!(span("24h"), Ok(86_400_000));
        assert!(span("3 weeks").is_err());
        assert!(span("99999999999999999d").is_err());
        assert!(span("").is_err());
    }

    #[test]
    fn json_comes_from_the_argument_or_a_file() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "{\"a\":1}").expect("writable");
        let named = json_argument("--payload", &format!("@{}", file.path().display())).expect("JSON");
        assert_eq!(named, serde_json::json!({"a": 1}));
        let failure = json_argument("--payload", "{").expect_err("not JSON");
        assert_eq!(failure.code(), Code::Usage);
    }
}
