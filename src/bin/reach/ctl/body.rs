//! The body of a call: fields of ours, and JSON of whoever types, which goes as it was written.
//!
//! Why apart: on its way through values a number of more digits than a machine's own would change, and a decimal would
//! lose its last zeros.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::exit::{Code, Failure, Outcome};

/// A JSON object.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Body {
    #[serde(flatten)]
    ours: Map<String, Value>,
    #[serde(flatten)]
    typed: BTreeMap<String, Box<RawValue>>,
}

impl Body {
    /// Puts a field of ours in the place of any of that name; what was not given is left to the hub.
    pub(crate) fn put(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.typed.remove(name);
            self.ours.insert(name.to_owned(), value.into());
        }
    }

    /// The same for what somebody typed.
    pub(crate) fn put_typed(&mut self, name: &str, value: Option<Box<RawValue>>) {
        if let Some(value) = value {
            self.ours.remove(name);
            self.typed.insert(name.to_owned(), value);
        }
    }
}

/// JSON from the command line: `-` reads stdin, `@FILE` a file, anything else is the JSON itself.
pub(crate) fn json_argument(name: &str, text: &str) -> Outcome<Box<RawValue>> {
    let usage = |what: String| Failure::Other(Code::Usage, format!("{name}: {what}"));
    let read = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| usage(format!("cannot read {path}: {error}")))?,
        None if text == "-" => std::io::read_to_string(std::io::stdin()).map_err(|error| usage(error.to_string()))?,
        None => text.to_owned(),
    };
    serde_json::from_str(&read).map_err(|error| usage(format!("not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_comes_from_the_argument_or_a_file() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "{\"a\":1}").expect("writable");
        let named = json_argument("--payload", &format!("@{}", file.path().display())).expect("JSON");
        assert_eq!(named.get(), "{\"a\":1}");
        let failure = json_argument("--payload", "{").expect_err("not JSON");
        assert_eq!(failure.code(), Code::Usage);
    }

    #[test]
    fn what_was_typed_goes_as_it_was_written() {
        let typed = "{\"id\": 123456789012345678901234567890, \"price\": 1.50}";
        let mut body = Body::default();
        body.put("reason", Some("r"));
        body.put("rate_per_s", None::<u32>);
        body.put_typed("payload", Some(json_argument("--payload", typed).expect("JSON")));
        let sent = serde_json::to_string(&body).expect("JSON");
        assert_eq!(sent, format!("{{\"reason\":\"r\",\"payload\":{typed}}}"));
    }

    #[test]
    fn a_name_stands_once_and_the_last_word_holds() {
        let mut body = Body::default();
        body.put("qos", Some("urgent"));
        body.put_typed("qos", Some(json_argument("--set", "7").expect("JSON")));
        assert_eq!(serde_json::to_string(&body).expect("JSON"), "{\"qos\":7}");
        body.put("qos", Some("normal"));
        assert_eq!(serde_json::to_string(&body).expect("JSON"), "{\"qos\":\"normal\"}");
    }
}
