//! What serde_json would take and a ledger must not: the same key twice, and nesting without end.
//!
//! Two parsers that disagree about a duplicate key are how a checked body and a used body come to differ. This is one
//! pass without allocation but for the keys of the objects that are open.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::api::error::{ApiError, ApiResult, Code};

/// The deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 64;
/// Up to here keys are compared one by one, which is quicker than hashing.
const FEW_KEYS: usize = 16;

/// Checks one JSON document: syntax, depth, keys.
pub(super) fn check(bytes: &[u8]) -> ApiResult<()> {
    let mut fault = None;
    let mut document = serde_json::Deserializer::from_slice(bytes);
    let seed = Node { depth: 0, fault: &mut fault };
    let result = seed.deserialize(&mut document).and_then(|()| document.end());
    match (result, fault) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(Fault { code: Code::DuplicateKey, pointer })) => {
            let detail = format!("{} stands twice", super::query::quoted(&pointer));
            Err(ApiError::new(Code::DuplicateKey, detail).at(pointer, "this key stands twice in its object"))
        }
        (Err(_), Some(Fault { code, pointer })) => {
            let detail = format!("something in it lies deeper than {MAX_DEPTH} levels");
            Err(ApiError::new(code, detail).at(pointer, "too deep"))
        }
        (Err(error), None) => Err(ApiError::new(Code::MalformedJson, super::json::shortened(&error.to_string()))),
    }
}

struct Fault {
    code: Code,
    pointer: String,
}

struct Node<'f> {
    depth: usize,
    fault: &'f mut Option<Fault>,
}

impl Node<'_> {
    fn child(&mut self) -> Node<'_> {
        Node { depth: self.depth + 1, fault: self.fault }
    }

    /// On the way out of an error the pointer is put together from the inside.
    fn prefix(&mut self, segment: &dyn fmt::Display) {
        if let Some(fault) = self.fault.as_mut() {
            fault.pointer.insert_str(0, &format!("/{segment}"));
        }
    }

    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        if self.depth < MAX_DEPTH {
            return Ok(());
        }
        *self.fault = Some(Fault { code: Code::JsonTooDeep, pointer: String::new() });
        Err(E::custom("too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.enter()?;
        let mut index = 0usize;
        loop {
            match items.next_element_seed(self.child()) {
                Ok(Some(())) => index += 1,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.prefix(&index);
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        self.enter()?;
        let mut keys = Keys::default();
        while let Some(Key(key)) = entries.next_key::<Key<'de>>()? {
            if keys.has(&key) {
                *self.fault = Some(Fault { code: Code::DuplicateKey, pointer: format!("/{}", escaped(&key)) });
                return Err(A::Error::custom("duplicate key"));
            }
            if let Err(error) = entries.next_value_seed(self.child()) {
                self.prefix(&escaped(&key));
                return Err(error);
            }
            keys.add(key);
        }
        Ok(())
    }
}

/// A key, borrowed where it holds no escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

/// The keys of one open object.
#[derive(Default)]
struct Keys<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> Keys<'de> {
    fn has(&self, key: &str) -> bool {
        self.few.iter().any(|seen| seen == key) || (!self.many.is_empty() && self.many.contains(key))
    }

    fn add(&mut self, key: Cow<'de, str>) {
        if self.few.len() < FEW_KEYS {
            self.few.push(key);
        } else {
            self.many.insert(key);
        }
    }
}

/// One step of a JSON Pointer (RFC 6901), cut at 128 characters.
pub(super) fn escaped(key: &str) -> String {
    let mut out = String::with_capacity(key.len().min(128));
    for c in key.chars().take(128) {
        match c {
            '~' => out.push_str("~0"),
            '/' => out.push_str("~1"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (&'static str, String) {
        let error = check(text.as_bytes()).unwrap_err();
        let json = serde_json::to_value(&error).unwrap();
        let pointer = json.pointer("/errors/0/pointer").and_then(|p| p.as_str()).unwrap_or("").to_owned();
        (error.code().name(), pointer)
    }

    #[test]
    fn the_second_of_two_equal_keys_is_named_by_its_pointer_even_behind_an_escape() {
        assert_eq!(refused(r#"{"a":{"b":1,"b":2}}"#), ("duplicate-key", "/a/b".into()));
        assert_eq!(refused(r#"{"a":[0,{"x/y":1,"\u0078/y":2}]}"#), ("duplicate-key", "/a/1/x~1y".into()));
        let many: Vec<String> = (0..40).chain([30]).map(|n| format!("\"k{n}\":0")).collect();
        assert_eq!(refused(&format!("{{{}}}", many.join(","))), ("duplicate-key", "/k30".into()));
        assert!(check(br#"{"a":{"b":1},"b":{"b":1}}"#).is_ok());
    }

    #[test]
    fn sixty_four_levels_are_taken_and_one_more_is_not() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(check(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(refused(&nested(MAX_DEPTH + 1)).0, "json-too-deep");
        assert_eq!(refused(&"[".repeat(1_000_000)).0, "json-too-deep");
    }

    #[test]
    fn what_is_not_one_json_document_is_malformed() {
        for bad in ["", "{", "{}{}", "{'a':1}", "[1,]", "nul", "\"\\ud800\"", "{\"a\":1e999}"] {
            assert_eq!(refused(bad).0, "malformed-json", "{bad:?}");
        }
    }
}
