//! What a capability says about itself: its tags, aliases, name and description, and single examples.
//!
//! Why beside the learned weights: whoever registers a capability with three tags and a sentence has given nothing to
//! learn from, and must be found all the same, at once. It is the rule of R-RTE-4: how much of a tag is in the text, how
//! much of the text the capability's own words explain, and whether an alias is named.

use std::collections::{BTreeMap, BTreeSet};

use super::Profile;
use super::features::{Part, is_spaceless, parts, pieces};
use crate::ledger::ids::Capability;

/// Examples of one capability that a text is compared with one by one.
const COMPARED: usize = 32;

/// Words that are in every sentence, whatever it is about.
const EMPTY: &[&str] = &[
    "a", "about", "all", "am", "an", "and", "any", "are", "as", "at", "be", "by", "can", "could", "do", "does", "for",
    "from", "get", "give", "go", "has", "have", "how", "i", "if", "im", "in", "into", "is", "it", "its", "let", "like",
    "make", "me", "my", "need", "not", "of", "on", "one", "or", "our", "out", "please", "should", "so", "some", "tell",
    "that", "the", "their", "them", "there", "these", "they", "this", "to", "up", "us", "use", "want", "was", "we",
    "what", "whats", "when", "where", "which", "who", "will", "with", "would", "you", "your", "一下", "一个", "一份",
    "什么", "他们", "你们", "如何", "帮我", "怎么", "怎样", "我们", "我的", "我要", "所有", "是否", "有没", "本周",
    "生成", "给我", "能否", "请问", "这个", "那个", "需要", "可以", "进行", "把我", "关于", "没有",
];

/// A word without its ending, so that "orders" is "order".
fn stem(word: &str) -> &str {
    let without = |ending: &str| word.strip_suffix(ending).filter(|rest| rest.len() >= 3);
    if word.ends_with("ss") {
        return word;
    }
    without("ings")
        .or_else(|| without("ing"))
        .or_else(|| without("ied"))
        .or_else(|| without("ies"))
        .or_else(|| without("ed"))
        .or_else(|| without("es"))
        .or_else(|| without("s"))
        .or_else(|| without("e"))
        .or_else(|| without("y"))
        .unwrap_or(word)
}

/// The words that a text is about, and for text without spaces each two signs in a row; each with how it reads.
fn terms(parts: &[Part]) -> BTreeMap<Box<str>, Box<str>> {
    let mut terms = BTreeMap::new();
    for part in parts {
        match part {
            Part::Word(word) if word.len() < 2 || EMPTY.contains(&word.as_str()) => {}
            Part::Word(word) => drop(terms.insert(stem(word).into(), word.as_str().into())),
            Part::Run(run) => pieces(run, 2..=2, |pair| {
                if !EMPTY.contains(&pair) {
                    terms.insert(pair.into(), pair.into());
                }
            }),
        }
    }
    terms
}

/// What must all be in a text for a tag's segment, or an alias, to be there.
#[derive(Debug, Clone)]
struct Phrase {
    shown: Box<str>,
    parts: Vec<Part>,
}

impl Phrase {
    fn of(text: &str) -> Option<Self> {
        let parts = parts(text);
        (!parts.is_empty()).then(|| Self { shown: text.trim().into(), parts })
    }

    /// Are its words there, next to each other?
    fn is_in(&self, text: &[Part]) -> bool {
        text.windows(self.parts.len()).any(|window| window.iter().zip(&self.parts).all(|(there, own)| fits(there, own)))
    }
}

fn fits(there: &Part, own: &Part) -> bool {
    match (there, own) {
        (Part::Word(there), Part::Word(own)) => stem(there) == stem(own),
        (Part::Run(there), Part::Run(own)) => there.contains(own.as_str()),
        (Part::Word(_), Part::Run(_)) | (Part::Run(_), Part::Word(_)) => false,
    }
}

#[derive(Debug, Clone, Default)]
struct Entry {
    /// Its own name, `domain.task_type`, as it is written.
    name: Box<str>,
    tags: Vec<Vec<Phrase>>,
    aliases: Vec<Phrase>,
}

/// Where a term stands: in which entry, and in which of its examples, if it is not its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    entry: usize,
    example: Option<usize>,
}

/// How well a text and a capability go together by words, each part from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Match {
    /// The share of its best tag that is in the text.
    pub tags: f32,
    /// The share of the text that its words explain, or how much the text is like one of its examples.
    pub words: f32,
    /// Is an alias in the text?
    pub alias: Option<Box<str>>,
    /// Is the capability itself named?
    pub named: bool,
    /// What was found of it: segments of tags, then words.
    pub because: Vec<(Box<str>, f32)>,
    /// Words of the text that it has, with what each weighs.
    explained: Vec<(Box<str>, f32)>,
}

/// The words of all capabilities of a namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct Lexicon {
    entries: Vec<Entry>,
    places: BTreeMap<Box<str>, Vec<Place>>,
    /// What the terms of each example weigh together.
    examples: BTreeMap<Place, f32>,
}

impl Lexicon {
    /// Of those profiles, in their order. Of those that have learned weights it keeps only what names them.
    pub(super) fn of(profiles: &[Profile], has_learned: &dyn Fn(&Capability) -> bool) -> Self {
        let mut lexicon = Self::default();
        for (entry, profile) in profiles.iter().enumerate() {
            if has_learned(&profile.capability) {
                lexicon.entries.push(Entry::of(profile));
                continue;
            }
            let own = [&profile.name, &profile.description].into_iter().chain(&profile.tags).chain(&profile.aliases);
            let own: Vec<Part> = own.flat_map(|text| parts(text)).chain(parts(profile.capability.as_str())).collect();
            lexicon.put(Place { entry, example: None }, &own);
            for (example, text) in profile.examples.iter().take(COMPARED).enumerate() {
                lexicon.put(Place { entry, example: Some(example) }, &parts(text));
            }
            lexicon.entries.push(Entry::of(profile));
        }
        let mut weights = BTreeMap::new();
        for places in lexicon.places.values() {
            let weight = lexicon.rarity(places);
            for place in places.iter().filter(|place| place.example.is_some()) {
                *weights.entry(*place).or_insert(0.0) += weight;
            }
        }
        lexicon.examples = weights;
        lexicon
    }

    fn put(&mut self, place: Place, text: &[Part]) {
        for term in terms(text).into_keys() {
            self.places.entry(term).or_default().push(place);
        }
    }

    /// How much a term says: more, the fewer capabilities have it.
    fn rarity(&self, places: &[Place]) -> f32 {
        let having = places.iter().map(|place| place.entry).collect::<BTreeSet<_>>().len();
        (1.0 + (1.0 + self.entries.len() as f32) / (1.0 + having as f32)).ln()
    }

    /// How a text goes together with each entry.
    pub(super) fn matches(&self, text: &str, asked: &[Part]) -> Vec<Match> {
        // Every capability's name has a dot.
        let plain = text.contains(['.', '\u{ff0e}']).then(|| super::features::plain(text).collect::<String>());
        let mut matches: Vec<Match> =
            self.entries.iter().map(|entry| entry.named_in(asked, plain.as_deref())).collect();
        let mut whole = 0.0;
        let mut shared: BTreeMap<Place, f32> = BTreeMap::new();
        for (term, shown) in terms(asked) {
            let places = self.places.get(&term).map(Vec::as_slice).unwrap_or_default();
            let weight = self.rarity(places);
            // Half of the pairs without spaces straddle two words: one that nobody has says half as much.
            let straddles = places.is_empty() && term.chars().all(is_spaceless);
            whole += if straddles { weight / 2.0 } else { weight };
            let mut told = None;
            for place in places {
                *shared.entry(*place).or_default() += weight;
                if told != Some(place.entry) {
                    told = Some(place.entry);
                    if let Some(found) = matches.get_mut(place.entry) {
                        found.explained.push((shown.clone(), weight));
                    }
                }
            }
        }
        for (place, weight) in shared {
            let Some(found) = matches.get_mut(place.entry) else { continue };
            let other = self.examples.get(&place).copied().unwrap_or(whole);
            let alike = if place.example.is_some() { 2.0 * weight / (whole + other) } else { weight / whole };
            found.words = found.words.max(alike.min(1.0));
        }
        for found in &mut matches {
            // What a term says is a share of the words' part; a tag's segment may be a word of the text as well.
            for (word, weight) in std::mem::take(&mut found.explained) {
                let share = weight / whole.max(f32::MIN_POSITIVE);
                match found.because.iter_mut().find(|(known, _)| *known == word) {
                    Some((_, all)) => *all += share,
                    None => found.because.push((word, share)),
                }
            }
        }
        matches
    }

    /// Terms and the places where they stand.
    pub(super) fn size(&self) -> usize {
        self.places.iter().map(|(term, places)| term.len() + places.len() * size_of::<Place>()).sum()
    }
}

impl Entry {
    fn of(profile: &Profile) -> Self {
        Self {
            name: profile.capability.as_str().to_lowercase().into(),
            tags: profile.tags.iter().map(|tag| tag.split('/').filter_map(Phrase::of).collect()).collect(),
            aliases: profile.aliases.iter().filter_map(|alias| Phrase::of(alias)).collect(),
        }
    }

    /// Is its own name there, whole?
    fn is_named_in(&self, plain: &str) -> bool {
        let edge =
            |sign: Option<char>| sign.is_none_or(|sign| !(sign.is_ascii_alphanumeric() || "._:-".contains(sign)));
        plain.match_indices(&*self.name).any(|(at, name)| {
            let before = plain.get(..at).and_then(|text| text.chars().next_back());
            let after = plain.get(at + name.len()..).unwrap_or_default();
            // A full stop may end the sentence.
            edge(before) && edge(after.strip_prefix(['.', ':']).unwrap_or(after).chars().next())
        })
    }

    /// What of its names, tags and aliases is in the text.
    fn named_in(&self, asked: &[Part], plain: Option<&str>) -> Match {
        let mut found = Match {
            named: plain.is_some_and(|plain| self.is_named_in(plain)),
            alias: self.aliases.iter().find(|alias| alias.is_in(asked)).map(|alias| alias.shown.clone()),
            ..Match::default()
        };
        let mut best = Vec::new();
        for tag in &self.tags {
            let there: Vec<&Phrase> = tag.iter().filter(|segment| segment.is_in(asked)).collect();
            let share = there.len() as f32 / tag.len().max(1) as f32;
            if share > found.tags {
                found.tags = share;
                best = there.iter().map(|segment| (segment.shown.clone(), 1.0 / tag.len().max(1) as f32)).collect();
            }
        }
        found.because = best;
        found
    }
}
