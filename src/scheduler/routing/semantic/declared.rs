//! What a declaration says that texts are compared with, and what all declarations of a namespace say together.
//!
//! Why from the whole declaration and not from the ledger's compact one: rules need no words, and an event must stay small.
//! The door has checked every bound; what does not fit all the same is passed over, for a guess needs no error.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::{MAX_EXAMPLES, Profile};
use crate::ledger::ids::Capability;

/// The texts of one declaration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
struct Declaration {
    #[serde(default)]
    capabilities: Vec<Declared>,
    priority: Option<u32>,
}

#[derive(Deserialize)]
struct Declared {
    capability: Option<String>,
    domain: Option<String>,
    task_type: Option<String>,
    name: Option<String>,
    description: Option<String>,
    tags: Option<Vec<String>>,
    aliases: Option<Vec<String>>,
    examples: Option<Vec<Value>>,
    priority: Option<u32>,
}

/// The priority of what names none.
const USUAL_PRIORITY: u32 = 100;

impl Texts {
    /// Of a declaration as it came.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        let Ok(declaration) = serde_json::from_slice::<Declaration>(body) else { return Self::default() };
        let usual = declaration.priority.unwrap_or(USUAL_PRIORITY);
        Self { profiles: declaration.capabilities.into_iter().filter_map(|one| one.profile(usual)).collect() }
    }

    /// Keeps the names of the capabilities and nothing else.
    pub fn forget(&mut self) {
        for profile in &mut self.profiles {
            *profile = Profile { priority: profile.priority, ..Profile::new(profile.capability.clone()) };
        }
    }

    /// Bytes of text, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let list = |texts: &[String]| texts.iter().map(|text| text.len() + size_of::<String>()).sum::<usize>();
        let one = |profile: &Profile| {
            let lists = list(&profile.tags) + list(&profile.aliases) + list(&profile.examples);
            size_of::<Profile>() + profile.name.len() + profile.description.len() + lists
        };
        self.profiles.iter().map(one).sum()
    }
}

impl Declared {
    fn profile(self, usual: u32) -> Option<Profile> {
        let named = match (self.capability, self.domain, self.task_type) {
            (Some(whole), _, _) => whole,
            (None, Some(domain), Some(task_type)) => format!("{domain}.{task_type}"),
            (None, _, _) => return None,
        };
        // Examples may be any JSON; a text is one that a caller might say.
        let text = |example: Value| match example {
            Value::String(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        };
        Some(Profile {
            name: self.name.unwrap_or_default(),
            description: self.description.unwrap_or_default(),
            tags: self.tags.unwrap_or_default(),
            aliases: self.aliases.unwrap_or_default(),
            examples: self.examples.into_iter().flatten().filter_map(text).collect(),
            priority: self.priority.unwrap_or(usual),
            ..Profile::new(Capability::new(&named).ok()?)
        })
    }
}

/// What all of them say of each capability, by name: every text once, of examples as many as are learned from.
#[must_use]
pub fn merged<'a>(all: impl Iterator<Item = &'a Texts>) -> Vec<Profile> {
    let mut together: BTreeMap<&Capability, (Profile, BTreeSet<&str>)> = BTreeMap::new();
    for profile in all.flat_map(|texts| &texts.profiles) {
        let (kept, seen) = together
            .entry(&profile.capability)
            .or_insert_with(|| (Profile { priority: 0, ..Profile::new(profile.capability.clone()) }, BTreeSet::new()));
        kept.priority = kept.priority.max(profile.priority);
        for (whole, part) in [(&mut kept.name, &profile.name), (&mut kept.description, &profile.description)] {
            // Another agent's words beside the first one's, up to a few of them.
            if !part.is_empty() && !whole.contains(part.as_str()) && whole.len() < super::MAX_TEXT {
                if !whole.is_empty() {
                    whole.push('\n');
                }
                whole.push_str(part);
            }
        }
        for (list, more) in [(&mut kept.tags, &profile.tags), (&mut kept.aliases, &profile.aliases)] {
            for text in more {
                if list.len() < MAX_EXAMPLES && !list.contains(text) {
                    list.push(text.clone());
                }
            }
        }
        for example in &profile.examples {
            if kept.examples.len() < MAX_EXAMPLES && seen.insert(example) {
                kept.examples.push(example.clone());
            }
        }
    }
    together.into_values().map(|(profile, _)| profile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_agents_say_of_one_capability_is_said_once() {
        let one = Texts::of(
            r#"{"capabilities":[{"capability":"a.b","name":"Books","tags":["x/y/z"],"examples":["one","two",{"n":1},3]}]}"#
                .as_bytes(),
        );
        let other = Texts::of(
            r#"{"priority":300,"capabilities":[{"domain":"a","task_type":"b","name":"Books","description":"Reads",
                "tags":["x/y/z"],"aliases":["lib"],"examples":["two","three"]},{"capability":"c.d"}]}"#
                .as_bytes(),
        );
        let merged = merged([&one, &other].into_iter());
        assert_eq!(merged.len(), 2);
        let first = &merged[0];
        assert_eq!(
            (first.capability.as_str(), first.name.as_str(), first.description.as_str()),
            ("a.b", "Books", "Reads")
        );
        assert_eq!((first.tags.len(), first.aliases.len(), first.priority), (1, 1, 300));
        assert_eq!(first.examples, ["one", "two", "three"], "what is no text is no example to learn from");
    }

    #[test]
    fn what_was_forgotten_keeps_its_name() {
        let mut texts = Texts::of(br#"{"capabilities":[{"capability":"a.b","description":"long"}]}"#);
        let before = texts.bytes();
        texts.forget();
        assert!(texts.bytes() < before);
        assert_eq!(merged([&texts].into_iter())[0].capability.as_str(), "a.b");
        assert_eq!(Texts::of(b"no JSON"), Texts::default());
    }
}
