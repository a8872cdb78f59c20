//! Canonical JSON: one spelling for every equal document, so that two bodies can be compared by a digest.
//!
//! Why: an idempotency key is compared by the body's meaning, not by its white space (semantics 31), and the same
//! outcome said twice must be known as the same (semantics 14). Object keys are sorted by their bytes, numbers that
//! are whole are written without a fraction, and nothing is between the tokens. A key that stands twice in one object
//! is refused: two readers of such a text may see two different documents.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Why a text has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotCanonical(String);

impl NotCanonical {
    /// Why the parser refused it.
    #[must_use]
    pub fn new(error: &serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// A JSON document, ready to be written in its one spelling. Nesting is bounded by the parser (127 levels).
#[derive(Debug, Clone, PartialEq)]
enum Node<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Object(BTreeMap<Cow<'a, str>, Node<'a>>),
}

/// The canonical form of a document.
///
/// # Errors
/// [`NotCanonical`] when it is no JSON, nests too deeply or has a key twice.
pub fn canonical(text: &[u8]) -> Result<Vec<u8>, NotCanonical> {
    let node = parse(text)?;
    let mut out = Vec::with_capacity(text.len());
    node.write(&mut out);
    Ok(out)
}

/// The canonical form of an object without one of its fields.
///
/// # Errors
/// As [`canonical`].
pub fn canonical_without(text: &[u8], field: &str) -> Result<Vec<u8>, NotCanonical> {
    let mut node = parse(text)?;
    if let Node::Object(fields) = &mut node {
        fields.remove(field);
    }
    let mut out = Vec::with_capacity(text.len());
    node.write(&mut out);
    Ok(out)
}

fn parse(text: &[u8]) -> Result<Node<'_>, NotCanonical> {
    serde_json::from_slice(text).map_err(|error| NotCanonical::new(&error))
}

/// Doubles up to here are whole numbers that a 64-bit integer holds exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Node<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Unsigned(n) => out.extend_from_slice(n.to_string().as_bytes()),
            Self::Signed(n) => out.extend_from_slice(n.to_string().as_bytes()),
            Self::Float(n) if n.fract() == 0.0 && n.abs() < EXACT => {
                // `-0.0` is zero.
                out.extend_from_slice(format!("{:.0}", if *n == 0.0 { 0.0 } else { *n }).as_bytes());
            }
            Self::Float(n) => out.extend_from_slice(n.to_string().as_bytes()),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Self::Object(fields) => {
                out.push(b'{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    write_text(key, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x00..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Node::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Node::Signed(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Node::Float(value))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some(Key(key)) = entries.next_key()? {
            let value = entries.next_value()?;
            if let Some(_first) = fields.insert(key.clone(), value) {
                return Err(A::Error::custom(format_args!("the key {key:?} stands twice in one object")));
            }
        }
        Ok(Node::Object(fields))
    }
}

/// An object key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(json: &str) -> String {
        String::from_utf8(canonical(json.as_bytes()).expect("JSON")).expect("UTF-8")
    }

    #[test]
    fn spelling_does_not_matter_but_meaning_does() {
        assert_eq!(text(r#" { "b" : 1.0, "a":[ true,null,"\u6210\n" ] } "#), r#"{"a":[true,null,"成\u000a"],"b":1}"#);
        assert_eq!(text(r#"{"n":{"y":1,"x":2}}"#), text(r#"{ "n": {"x":2, "y":1} }"#));
        assert_ne!(text(r#"{"a":{"b":1},"c":2}"#), text(r#"{"a":{"b":1,"c":2}}"#), "nesting is not flattened");
        assert_ne!(text("18446744073709551615"), text("18446744073709551614"), "64-bit integers stay exact");
        assert_eq!(text("-0.0"), "0");
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_however_it_is_spelled() {
        let refused = canonical(br#"{"a":1,"\u0061":2}"#).expect_err("twice");
        assert!(refused.to_string().contains("stands twice"), "{refused}");
    }

    #[test]
    fn deep_nesting_is_refused_and_does_not_use_up_the_stack() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(canonical(deep.as_bytes()).is_err());
    }

    #[test]
    fn semantics_31_the_key_field_itself_is_left_out() {
        let with = canonical_without(br#"{"idempotency_key":"k","payload":1}"#, "idempotency_key");
        assert_eq!(with, canonical(br#"{"payload":1}"#));
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            ".*".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(".{0,6}", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_canonical_form_means_the_same_and_is_its_own_canonical_form(value in json()) {
            let pretty = serde_json::to_vec_pretty(&value).expect("JSON");
            let once = canonical(&pretty).expect("JSON");
            prop_assert_eq!(&serde_json::from_slice::<serde_json::Value>(&once).expect("JSON"), &value);
            prop_assert_eq!(canonical(&once).expect("JSON"), once);
        }
    }
}
