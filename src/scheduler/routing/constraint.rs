//! JSON Schemas that agents declare: compiled, bounded, checked (semantics 18).
//!
//! Why a wrapper: a schema comes from outside and runs over payloads from outside. So its size and depth are bounded, it
//! may not name anything beyond itself, patterns run on a linear-time engine, and a schema that would go round in
//! circles or unfold without end on a single value is refused before it is ever run.
//!
//! Pure: the API calls it on a blocking pool with a time limit, for its cost still grows with payload × schema.

use std::collections::BTreeMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::ledger::ids::Digest;

/// The largest schema, in bytes (semantics 18).
pub const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// The deepest schema: levels of arrays and objects (semantics 18).
pub const MAX_SCHEMA_DEPTH: usize = 32;
/// Violations told at most.
pub const MAX_VIOLATIONS: usize = 16;
/// Subschemas that one value may be held against at once, counted along every path.
pub const MAX_UNFOLDING: u64 = 4_096;
/// Values in a payload up to which all violations are collected; in a larger one only the first is told.
const COLLECT_UP_TO: usize = 10_000;
/// Bytes of one violation's text.
const MAX_DETAIL: usize = 256;

/// Why a schema is not taken: the registering agent's mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaRefusal {
    /// Larger than [`MAX_SCHEMA_BYTES`].
    #[error("a schema has at most {MAX_SCHEMA_BYTES} bytes, this one has {0}")]
    TooLarge(usize),
    /// Not JSON.
    #[error("the schema is not JSON: {0}")]
    NotJson(String),
    /// Deeper than [`MAX_SCHEMA_DEPTH`].
    #[error("a schema has at most {MAX_SCHEMA_DEPTH} levels")]
    TooDeep,
    /// It names something outside itself.
    #[error("{pointer}: only references inside the schema (#…) are followed, not {target:?}")]
    OutsideReference {
        /// Where.
        pointer: String,
        /// What it names.
        target: String,
    },
    /// Its references lead back to the same value without looking into it.
    #[error("{pointer}: the reference leads back to itself")]
    Circular {
        /// Where.
        pointer: String,
    },
    /// One value would be held against too many subschemas.
    #[error("one value would be held against more than {MAX_UNFOLDING} subschemas")]
    TooCostly,
    /// Not a valid JSON Schema.
    #[error("{pointer}: {detail}")]
    Invalid {
        /// Where in the schema.
        pointer: String,
        /// What is wrong.
        detail: String,
    },
}

/// One thing that a payload does wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaViolation {
    /// JSON pointer into the payload.
    pub pointer: String,
    /// The schema's keyword that it does not meet; says nothing of what the payload holds.
    pub keyword: String,
    /// What is wrong, at most 256 bytes; may quote the payload.
    pub detail: String,
}

/// A compiled schema. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    digest: Digest,
}

/// The digest by which events and verdicts name a schema: SHA-256 of its bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> Digest {
    Digest::of(&[bytes])
}

/// Compiles a schema.
///
/// # Errors
/// [`SchemaRefusal`] when it is too large, too deep, not a schema, names something outside itself or would not end.
pub fn compile(bytes: &[u8]) -> Result<Schema, SchemaRefusal> {
    if bytes.len() > MAX_SCHEMA_BYTES {
        return Err(SchemaRefusal::TooLarge(bytes.len()));
    }
    let schema: Value =
        serde_json::from_slice(bytes).map_err(|error| SchemaRefusal::NotJson(clip(error.to_string())))?;
    inspect(&schema, &mut String::new(), 1)?;
    Unfolding { root: &schema, costs: BTreeMap::new(), path: Vec::new() }.cost(&schema, "")?;
    every_root(&schema, "", &mut Unfolding { root: &schema, costs: BTreeMap::new(), path: Vec::new() })?;
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex()).should_validate_formats(false);
    let validator = options.build(&schema).map_err(|error| SchemaRefusal::Invalid {
        pointer: error.instance_path().to_string(),
        detail: clip(error.to_string()),
    })?;
    Ok(Schema { validator, digest: digest(bytes) })
}

impl Schema {
    /// SHA-256 of its bytes.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Holds a payload against the schema.
    ///
    /// # Errors
    /// At most [`MAX_VIOLATIONS`] of what is wrong; of a payload of more than 10,000 values only the first.
    pub fn check(&self, payload: &Value) -> Result<(), Vec<SchemaViolation>> {
        let violation = |error: jsonschema::ValidationError<'_>| SchemaViolation {
            pointer: error.instance_path().to_string(),
            keyword: error
                .schema_path()
                .to_string()
                .rsplit('/')
                .next()
                .map(str::to_owned)
                .map(clip)
                .unwrap_or_default(),
            detail: clip(error.to_string()),
        };
        match self.validator.validate(payload) {
            Ok(()) => Ok(()),
            Err(first) if values_up_to(payload, COLLECT_UP_TO) >= COLLECT_UP_TO => Err(vec![violation(first)]),
            Err(_) => Err(self.validator.iter_errors(payload).take(MAX_VIOLATIONS).map(violation).collect()),
        }
    }
}

fn clip(mut text: String) -> String {
    if text.len() > MAX_DETAIL {
        let mut end = MAX_DETAIL;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

/// Values in `payload`, counted no further than `limit`.
fn values_up_to(payload: &Value, limit: usize) -> usize {
    let mut seen = 0;
    let mut left = vec![payload];
    while let Some(value) = left.pop() {
        seen += 1;
        if seen >= limit {
            break;
        }
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => left.extend(fields.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    seen
}

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Depth and references.
fn inspect(value: &Value, pointer: &mut String, depth: usize) -> Result<(), SchemaRefusal> {
    let children: Vec<(String, &Value)> = match value {
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        Value::Object(fields) => {
            for name in REFERENCES {
                if let Some(Value::String(target)) = fields.get(name)
                    && !target.starts_with('#')
                {
                    let (pointer, target) = (format!("{pointer}/{name}"), clip(target.clone()));
                    return Err(SchemaRefusal::OutsideReference { pointer, target });
                }
            }
            fields.iter().map(|(name, field)| (escape(name), field)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
    };
    if depth > MAX_SCHEMA_DEPTH {
        return Err(SchemaRefusal::TooDeep);
    }
    for (name, child) in children {
        let end = pointer.len();
        pointer.push('/');
        pointer.push_str(&name);
        inspect(child, pointer, depth + 1)?;
        pointer.truncate(end);
    }
    Ok(())
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Counts how many subschemas one value is held against: through references and the keywords that stay at the value.
struct Unfolding<'a> {
    root: &'a Value,
    costs: BTreeMap<String, u64>,
    path: Vec<String>,
}

/// Keywords whose subschema is held against the same value.
const IN_PLACE_ONE: [&str; 4] = ["not", "if", "then", "else"];
const IN_PLACE_LIST: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const IN_PLACE_MAP: [&str; 2] = ["dependentSchemas", "dependencies"];

impl<'a> Unfolding<'a> {
    fn cost(&mut self, schema: &'a Value, pointer: &str) -> Result<u64, SchemaRefusal> {
        let Value::Object(fields) = schema else { return Ok(1) };
        if let Some(cost) = self.costs.get(pointer) {
            return Ok(*cost);
        }
        if self.path.iter().any(|other| other == pointer) {
            return Err(SchemaRefusal::Circular { pointer: pointer.to_owned() });
        }
        self.path.push(pointer.to_owned());
        let mut total: u64 = 1;
        for (at, child) in self.in_place(fields, pointer) {
            total = total.saturating_add(self.cost(child, &at)?);
            if total > MAX_UNFOLDING {
                return Err(SchemaRefusal::TooCostly);
            }
        }
        self.path.pop();
        self.costs.insert(pointer.to_owned(), total);
        Ok(total)
    }

    fn in_place(&self, fields: &'a serde_json::Map<String, Value>, pointer: &str) -> Vec<(String, &'a Value)> {
        let mut children = Vec::new();
        for name in REFERENCES {
            if let Some(Value::String(target)) = fields.get(name) {
                children.extend(self.target(target));
            }
        }
        for name in IN_PLACE_ONE {
            children.extend(fields.get(name).map(|child| (format!("{pointer}/{name}"), child)));
        }
        for name in IN_PLACE_LIST {
            let items = fields.get(name).and_then(Value::as_array).into_iter().flatten();
            children.extend(items.enumerate().map(|(at, child)| (format!("{pointer}/{name}/{at}"), child)));
        }
        for name in IN_PLACE_MAP {
            let entries = fields.get(name).and_then(Value::as_object).into_iter().flatten();
            children.extend(entries.map(|(key, child)| (format!("{pointer}/{name}/{}", escape(key)), child)));
        }
        children
    }

    /// Where a reference leads: a pointer, or an anchor somewhere in the schema.
    fn target(&self, reference: &str) -> Option<(String, &'a Value)> {
        let fragment = reference.strip_prefix('#')?;
        if fragment.is_empty() || fragment.starts_with('/') {
            let pointer = percent_decoded(fragment);
            return self.root.pointer(&pointer).map(|found| (pointer, found));
        }
        find_anchor(self.root, fragment, String::new())
    }
}

/// Every object of a schema document as the beginning of an unfolding: references may lead to any of them.
fn every_root<'a>(value: &'a Value, pointer: &str, unfolding: &mut Unfolding<'a>) -> Result<(), SchemaRefusal> {
    match value {
        Value::Object(fields) => {
            unfolding.cost(value, pointer)?;
            fields
                .iter()
                .try_for_each(|(name, child)| every_root(child, &format!("{pointer}/{}", escape(name)), unfolding))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, child)| every_root(child, &format!("{pointer}/{at}"), unfolding)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn find_anchor<'a>(value: &'a Value, anchor: &str, pointer: String) -> Option<(String, &'a Value)> {
    match value {
        Value::Object(fields) => {
            let is_named = |name| fields.get(name).and_then(Value::as_str).is_some_and(|text| text == anchor);
            if is_named("$anchor") || is_named("$dynamicAnchor") {
                return Some((pointer, value));
            }
            fields.iter().find_map(|(name, child)| find_anchor(child, anchor, format!("{pointer}/{}", escape(name))))
        }
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(at, child)| find_anchor(child, anchor, format!("{pointer}/{at}")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let decoded = match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(high).zip(digit(low)).map(|(high, low)| (high * 16 + low, after))
            }
            _ => None,
        };
        let (byte, after) = decoded.unwrap_or((*first, tail));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compiled(schema: &Value) -> Result<Schema, SchemaRefusal> {
        compile(schema.to_string().as_bytes())
    }

    #[test]
    fn a_payload_is_checked_and_every_error_names_its_path() {
        let schema = compiled(&json!({"type": "object", "required": ["city"],
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 14}}}))
        .unwrap();
        assert_eq!(schema.check(&json!({"city": "成都", "days": 3})), Ok(()));
        let mut pointers: Vec<String> =
            schema.check(&json!({"city": 4, "days": 30})).unwrap_err().into_iter().map(|v| v.pointer).collect();
        pointers.sort();
        assert_eq!(pointers, ["/city", "/days"]);
    }

    #[test]
    fn at_most_sixteen_violations_are_told_and_of_a_huge_payload_only_the_first() {
        let schema = compiled(&json!({"items": {"type": "string"}})).unwrap();
        assert_eq!(schema.check(&json!(vec![1; 100])).unwrap_err().len(), MAX_VIOLATIONS);
        assert_eq!(schema.check(&json!(vec![1; 20_000])).unwrap_err().len(), 1);
    }

    #[test]
    fn semantics_18_a_schema_is_at_most_64_kib_and_32_levels() {
        let wide = json!({"description": "x".repeat(MAX_SCHEMA_BYTES)});
        assert!(matches!(compiled(&wide), Err(SchemaRefusal::TooLarge(_))));
        let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({"not": inner}));
        assert!(compiled(&nested(MAX_SCHEMA_DEPTH)).is_ok());
        assert_eq!(compiled(&nested(MAX_SCHEMA_DEPTH + 1)).unwrap_err(), SchemaRefusal::TooDeep);
    }

    #[test]
    fn semantics_18_references_stay_inside_the_schema() {
        for target in ["http://example.org/s", "other.json", "file:///etc/passwd", "/x"] {
            let schema = json!({"properties": {"a": {"$ref": target}}});
            let refusal = compiled(&schema).unwrap_err();
            assert!(
                matches!(refusal, SchemaRefusal::OutsideReference { ref pointer, .. } if pointer == "/properties/a/$ref")
            );
        }
        let inside = json!({"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}});
        let schema = compiled(&inside).unwrap();
        assert!(schema.check(&json!([1, 2])).is_ok() && schema.check(&json!(["a"])).is_err());
    }

    #[test]
    fn a_schema_that_leads_back_to_the_same_value_is_refused_and_a_recursive_one_is_not() {
        for circular in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/%24defs/a"}}}}),
            json!({"$anchor": "here", "if": {"$ref": "#here"}}),
        ] {
            assert!(matches!(compiled(&circular), Err(SchemaRefusal::Circular { .. })), "{circular}");
        }
        let tree = compiled(&json!({"properties": {"next": {"$ref": "#"}}, "required": ["value"]})).unwrap();
        assert!(tree.check(&json!({"value": 1, "next": {"value": 2}})).is_ok());
        assert!(tree.check(&json!({"value": 1, "next": {}})).is_err());
    }

    #[test]
    fn a_schema_that_unfolds_without_end_is_refused() {
        let mut defs = serde_json::Map::new();
        defs.insert("d0".to_owned(), json!({"type": "string"}));
        for n in 1..40 {
            let below = json!({"$ref": format!("#/$defs/d{}", n - 1)});
            defs.insert(format!("d{n}"), json!({"allOf": [below.clone(), below]}));
        }
        let bomb = json!({"$defs": defs, "$ref": "#/$defs/d39"});
        assert_eq!(compiled(&bomb).unwrap_err(), SchemaRefusal::TooCostly);
    }

    #[test]
    fn semantics_18_patterns_run_in_linear_time() {
        let schema = compiled(&json!({"pattern": "^(a+)+$"})).unwrap();
        assert!(schema.check(&json!(format!("{}!", "a".repeat(50_000)))).is_err());
        assert!(matches!(compiled(&json!({"pattern": "(?=a)b"})), Err(SchemaRefusal::Invalid { .. })));
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        assert!(matches!(compile(b"{"), Err(SchemaRefusal::NotJson(_))));
        assert!(matches!(compiled(&json!({"type": "nonsense"})), Err(SchemaRefusal::Invalid { .. })));
        assert_eq!(compile(b"true").unwrap().digest(), Digest::of(&[b"true"]));
    }
}
