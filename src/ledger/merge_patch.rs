//! JSON merge patch (RFC 7396) over texts, so that what a patch does not name stays as it was sent.
//!
//! Why not over parsed values: a payload is its caller's, and a number that no machine word holds, the order of its
//! members or the way in which it spells a string or a name must not change with the one field that was wrong. So only the
//! objects on the way to a named member are taken apart, and names are read only to be compared.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::ledger::machine::replay::Skip;
use crate::ledger::machine::task::spec::MAX_PAYLOAD;

/// The longest patch, in bytes: it is kept with its plan.
pub const MAX_PATCH: usize = 64 << 10;
/// Objects inside each other in a patch at most: each costs one more pass over what lies in it.
pub const MAX_PATCH_DEPTH: usize = 16;

/// Why a payload does not come out of its patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotPatched {
    /// It would be longer than a payload may be.
    TooLong,
    /// One of them is no JSON. What was taken in as a payload or as a patch is, so it is damaged.
    NoJson,
}

impl NotPatched {
    /// As an item is left alone for it.
    #[must_use]
    pub const fn skip(self) -> Skip {
        match self {
            Self::TooLong => Skip::PayloadTooLarge,
            Self::NoJson => Skip::PayloadNotInline,
        }
    }
}

/// The payload as the patch makes it, if a payload can be so.
///
/// # Errors
/// [`NotPatched`].
pub fn patched(payload: &[u8], patch: &[u8]) -> Result<Vec<u8>, NotPatched> {
    match merged(payload, patch) {
        Ok(made) if made.len() > MAX_PAYLOAD => Err(NotPatched::TooLong),
        Ok(made) => Ok(made),
        Err(_) => Err(NotPatched::NoJson),
    }
}

/// What the patch makes of a text.
///
/// # Errors
/// When one of them is no JSON, or a name in the patch is no text.
fn merged(target: &[u8], patch: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let (target, patch): (&RawValue, &RawValue) = (serde_json::from_slice(target)?, serde_json::from_slice(patch)?);
    let mut out = String::with_capacity(target.get().len() + patch.get().len());
    merge(Some(target), patch, &mut out)?;
    Ok(out.into_bytes())
}

/// How deep objects lie inside each other in a patch; 0 for one that is no object.
///
/// # Errors
/// When it is no JSON, or one of its names is no text: half of a surrogate pair is in none.
pub fn depth(patch: &[u8]) -> Result<usize, serde_json::Error> {
    fn of(patch: &RawValue, above: usize) -> Result<usize, serde_json::Error> {
        let Some(members) = members(patch)? else { return Ok(above) };
        let mut deepest = above + 1;
        // Beyond the bound nobody needs to know how far.
        if deepest <= MAX_PATCH_DEPTH {
            for (name, value) in members.0 {
                read(name)?;
                deepest = deepest.max(of(value, above + 1)?);
            }
        }
        Ok(deepest)
    }
    of(serde_json::from_slice(patch)?, 0)
}

/// The members of an object in their order, doubles and all, with their names as they are spelt.
struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// A name, borrowed where it holds no escape.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// What a name says.
fn read(name: &RawValue) -> Result<Cow<'_, str>, serde_json::Error> {
    serde_json::from_str(name.get()).map(|Name(name)| name)
}

fn members(value: &RawValue) -> Result<Option<Members<'_>>, serde_json::Error> {
    if value.get().starts_with('{') { serde_json::from_str(value.get()).map(Some) } else { Ok(None) }
}

fn merge(target: Option<&RawValue>, patch: &RawValue, out: &mut String) -> Result<(), serde_json::Error> {
    let Some(changes) = members(patch)? else {
        out.push_str(patch.get());
        return Ok(());
    };
    let kept = match target {
        Some(target) => members(target)?.map_or_else(Vec::new, |members| members.0),
        None => Vec::new(),
    };
    // What is no text is the name of no change.
    let names: Vec<Option<Cow<'_, str>>> = kept.iter().map(|(name, _)| read(name).ok()).collect();
    let named = changes.0.iter().map(|(name, value)| Ok((read(name)?, (*name, *value))));
    let named: Vec<(Cow<'_, str>, (&RawValue, &RawValue))> = named.collect::<Result<_, serde_json::Error>>()?;
    let Beside { of_kept, new } = beside(
        names.iter().map(Option::as_deref),
        // Of a name that stands twice the last one holds, as everywhere.
        named.iter().map(|(name, change)| (Some(&**name), *change)).collect(),
    );
    let mut separator = "";
    out.push('{');
    for ((name, value), change) in kept.iter().zip(of_kept) {
        let change = change.map(|(_, change)| change);
        if change.is_some_and(|change| change.get() == "null") {
            continue;
        }
        put_name(&mut separator, name, out);
        match change {
            Some(change) => merge(Some(value), change, out)?,
            None => out.push_str(value.get()),
        }
    }
    for (_, (name, value)) in new.into_iter().filter(|(_, (_, value))| value.get() != "null") {
        put_name(&mut separator, name, out);
        merge(None, value, out)?;
    }
    out.push('}');
    Ok(())
}

/// Changes beside the names that they may change.
struct Beside<K, V> {
    /// For each name that is there what becomes of it.
    of_kept: Vec<Option<V>>,
    /// Changes of names that are not there.
    new: Vec<(K, V)>,
}

/// One look-up a name: an object may hold a hundred thousand members, and a patch some thousands.
fn beside<K: Ord + Copy, V: Copy>(kept: impl Iterator<Item = K>, mut changes: BTreeMap<K, V>) -> Beside<K, V> {
    let mut met = BTreeMap::new();
    let of_kept = kept.map(|name| {
        // A name that stands twice in the payload is changed at both places.
        let Some(change) = changes.remove(&name) else { return met.get(&name).copied() };
        met.insert(name, change);
        Some(change)
    });
    Beside { of_kept: of_kept.collect(), new: changes.into_iter().collect() }
}

fn put_name(separator: &mut &str, name: &RawValue, out: &mut String) {
    out.push_str(separator);
    out.push_str(name.get());
    out.push(':');
    *separator = ",";
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn text(target: &str, patch: &str) -> String {
        String::from_utf8(merged(target.as_bytes(), patch.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn the_cases_of_the_rfcs_appendix_come_out_as_it_says() {
        let cases = [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ];
        for (target, patch, result) in cases {
            assert_eq!(text(target, patch), result, "{target} by {patch}");
        }
    }

    #[test]
    fn what_it_does_not_name_stays_byte_for_byte() {
        let target =
            r#" { "id" : 123456789012345678901234567890, "z":1.10, "q":"\u00e9", "to": {"x" : [1, 2],"host":"old"} } "#;
        let patch = r#"{"to":{"host":"new"}}"#;
        let made = r#"{"id":123456789012345678901234567890,"z":1.10,"q":"\u00e9","to":{"x":[1, 2],"host":"new"}}"#;
        assert_eq!(text(target, patch), made);
        assert_eq!(text(&text(target, patch), patch), made, "twice is as good as once");
        assert_eq!(text(r#"{"a\"b":1,"c":2}"#, r#"{"a\u0022b":3}"#), r#"{"a\"b":3,"c":2}"#);
        assert!(merged(b"{", b"{}").is_err() && merged(b"{}", b"{1}").is_err());
    }

    #[test]
    fn names_stay_as_they_are_spelt_and_one_that_is_no_text_is_in_nobodys_way() {
        let half = r#"{"\ud800":1,"b\u00e9":{"\udc00x":2,"c":3}}"#;
        assert_eq!(text(half, r#"{"bé":{"c":4}}"#), r#"{"\ud800":1,"b\u00e9":{"\udc00x":2,"c":4}}"#);
        assert_eq!(text(half, r#"{"\u0062é":null,"\u006e":5}"#), r#"{"\ud800":1,"\u006e":5}"#);
        for patch in [r#"{"\ud800":1}"#, r#"{"a":{"\ud800":1}}"#] {
            assert!(depth(patch.as_bytes()).is_err(), "a patch says what it means: {patch}");
            assert!(merged(b"{}", patch.as_bytes()).is_err(), "{patch}");
        }
    }

    #[test]
    fn a_payload_that_does_not_come_out_says_why() {
        assert_eq!(patched(b"{}", br#"{"a":1}"#), Ok(br#"{"a":1}"#.to_vec()));
        assert_eq!(patched(b"{", br#"{"a":1}"#), Err(NotPatched::NoJson));
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_PAYLOAD - 8));
        assert_eq!(long.len(), MAX_PAYLOAD);
        assert!(patched(long.as_bytes(), br#"{"b":null}"#).is_ok(), "as long as it may be");
        assert_eq!(patched(long.as_bytes(), br#"{"b":1}"#), Err(NotPatched::TooLong));
    }

    #[test]
    fn the_depth_of_a_patch_is_that_of_its_objects() {
        let nested = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
        for n in [0, 1, 5, MAX_PATCH_DEPTH] {
            assert_eq!(depth(nested(n).as_bytes()).unwrap(), n);
        }
        assert!(depth(nested(100).as_bytes()).unwrap() > MAX_PATCH_DEPTH);
        assert!(
            depth(nested(100_000).as_bytes()).is_err() || depth(nested(100_000).as_bytes()).unwrap() > MAX_PATCH_DEPTH
        );
    }

    /// A name that counts how often it is compared.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Counted<'a>(u32, &'a std::cell::Cell<u64>);

    impl PartialOrd for Counted<'_> {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counted<'_> {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            self.1.set(self.1.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    #[test]
    fn a_payload_of_many_members_is_looked_through_once_and_not_once_a_change() {
        let compared = |kept: u32, changes: u32| {
            let count = std::cell::Cell::new(0);
            // No change meets a member: the worst case for whoever looks through all of them.
            let name = |n: u32| Counted(n, &count);
            let found = beside((0..kept).map(name), (kept..kept + changes).map(|n| (name(n), n)).collect());
            assert!(found.of_kept.iter().all(Option::is_none) && found.new.len() == changes as usize);
            count.get()
        };
        let (one, eightfold) = (compared(8_000, 1_000), compared(64_000, 8_000));
        assert!(eightfold < one * 16, "{one} comparisons, and {eightfold} of eight times as much");
        assert!(eightfold < 72_000 * 64, "{eightfold}");
    }

    #[test]
    fn a_member_that_stands_twice_is_changed_at_both_places_and_taken_away_at_both() {
        assert_eq!(text(r#"{"a":1,"b":2,"a":3}"#, r#"{"a":4}"#), r#"{"a":4,"b":2,"a":4}"#);
        assert_eq!(text(r#"{"a":1,"b":2,"a":3}"#, r#"{"a":null,"c":5}"#), r#"{"b":2,"c":5}"#);
    }

    /// The algorithm as the RFC writes it.
    fn by_values(target: Option<Value>, patch: &Value) -> Value {
        let Value::Object(changes) = patch else { return patch.clone() };
        let mut object = match target {
            Some(Value::Object(object)) => object,
            Some(_) | None => serde_json::Map::new(),
        };
        for (name, change) in changes {
            let old = object.remove(name);
            if !change.is_null() {
                object.insert(name.clone(), by_values(old, change));
            }
        }
        Value::Object(object)
    }

    fn json() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), any::<i32>().prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d\"]", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn it_is_what_the_rfcs_algorithm_makes_of_values(target in json(), patch in json()) {
            let made = text(&target.to_string(), &patch.to_string());
            proptest::prop_assert_eq!(serde_json::from_str::<Value>(&made).unwrap(), by_values(Some(target), &patch));
        }
    }
}
