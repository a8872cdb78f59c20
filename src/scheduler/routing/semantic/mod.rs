//! Which capability a free text asks for (R-RTE-4): a rule that can be shown, for Chinese and English, without a model
//! server and without a network.
//!
//! | file | what |
//! | --- | --- |
//! | `features.rs` | what a text is compared by |
//! | [`declared`] | what declarations say |
//! | `linear.rs` | weights learned from the examples of capabilities that have enough of them |
//! | `lexicon.rs` | tags, aliases, names and words, for all the others |
//!
//! Both give one score from 0 to 1 with one threshold: below it nothing fits, and that is said rather than guessed.
//! Everything here is pure: who trains, and when, is `src/scheduler/trainer.rs`.

pub mod declared;
mod features;
mod lexicon;
mod linear;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::ledger::ids::Capability;

use features::Part;
use lexicon::{Lexicon, Match};
use linear::{Asked, Linear};

pub use features::MAX_TEXT;

/// A score below this fits nothing (R-RTE-4).
pub const THRESHOLD: f32 = 0.3;
/// A capability with fewer examples has nothing to learn from: its words speak for it.
pub const LEAST_EXAMPLES: usize = 8;
/// Examples of one capability that are learned from; later ones are passed over.
pub const MAX_EXAMPLES: usize = 256;
/// Examples of a whole namespace that are learned from; beyond, each capability gets an equal share of them.
pub const MAX_ALL_EXAMPLES: usize = 32_768;
/// Capabilities of a namespace that are learned; beyond, the ones with the fewest examples are found by their words.
pub const MAX_LEARNED: usize = 512;
/// Candidates in an answer: the best, and the near misses.
pub const SHOWN: usize = 6;

/// The margin at which a learned capability scores [`THRESHOLD`]. Found on the validation half of CLINC150 (its 150
/// intents as capabilities of 100 examples, `reach bench routing`): the margin below which most questions outside all of
/// them fall, at the price of one question in a hundred that would have been right.
const MARGIN: f32 = -0.72;
/// How steeply the score grows with the margin.
const STEEPNESS: f32 = 2.0;

/// Parts of the score of one that is found by its words (R-RTE-4).
const TAGS: f32 = 0.35;
const WORDS: f32 = 0.35;
const FREE: f32 = 0.15;
const PRIORITY: f32 = 0.15;
/// An alias that is named adds so much.
const ALIAS: f32 = 0.3;
/// The highest priority.
const MAX_PRIORITY: f32 = 1_000.0;
/// Whether one fits is judged as though all were idle and of the usual priority: load and priority decide who comes
/// first, never whether a text is understood.
const USUAL: f32 = FREE + PRIORITY * 100.0 / MAX_PRIORITY;
/// Words shown of those that spoke for a candidate.
const MAX_BECAUSE: usize = 5;

/// What a capability says about itself, from all agents that offer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Which.
    pub capability: Capability,
    /// In a few words.
    pub name: String,
    /// In sentences.
    pub description: String,
    /// `domain/verb/object`.
    pub tags: Vec<String>,
    /// Other names.
    pub aliases: Vec<String>,
    /// What callers say who want it.
    pub examples: Vec<String>,
    /// The highest of its offers, 0 to 1,000.
    pub priority: u32,
}

impl Profile {
    /// One that says nothing but its name.
    #[must_use]
    pub fn new(capability: Capability) -> Self {
        Self {
            capability,
            name: String::new(),
            description: String::new(),
            tags: Vec::new(),
            aliases: Vec::new(),
            examples: Vec::new(),
            priority: 100,
        }
    }
}

/// What was learned from the examples of a namespace's capabilities.
#[derive(Debug, Clone)]
pub struct Learned {
    linear: Linear,
    /// Where each stands in it.
    places: BTreeMap<Capability, usize>,
}

impl Learned {
    /// Learns; `None` when fewer than two capabilities have [`LEAST_EXAMPLES`], or `on_step` stopped it. `on_step` hears
    /// how many are learned and how many there are.
    #[must_use]
    pub fn learn(profiles: &[Profile], on_step: &mut dyn FnMut(usize, usize) -> ControlFlow<()>) -> Option<Self> {
        let mut rich: Vec<&Profile> = profiles.iter().filter(|one| one.examples.len() >= LEAST_EXAMPLES).collect();
        if rich.len() > MAX_LEARNED {
            rich.sort_by_key(|one| std::cmp::Reverse(one.examples.len()));
            rich.truncate(MAX_LEARNED);
            rich.sort_by(|a, b| a.capability.cmp(&b.capability));
        }
        if rich.len() < 2 {
            return None;
        }
        let all: usize = rich.iter().map(|one| one.examples.len().min(MAX_EXAMPLES)).sum();
        let each = if all > MAX_ALL_EXAMPLES { MAX_ALL_EXAMPLES / rich.len() } else { MAX_EXAMPLES };
        let examples: Vec<Vec<&str>> =
            rich.iter().map(|one| one.examples.iter().take(each).map(String::as_str).collect()).collect();
        let linear = Linear::learn(&examples, &mut |done| on_step(done, rich.len()))?;
        let places = rich.iter().enumerate().map(|(place, one)| (one.capability.clone(), place)).collect();
        Some(Self { linear, places })
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.linear.bytes()
    }

    /// Features that it knows.
    #[must_use]
    pub fn features(&self) -> usize {
        self.linear.features()
    }

    /// Capabilities that it knows.
    #[must_use]
    pub fn capabilities(&self) -> usize {
        self.places.len()
    }
}

/// By what a candidate was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The text names it, `domain.task_type`.
    Name,
    /// Its examples.
    Examples,
    /// Its tags, aliases and words.
    Words,
}

impl By {
    /// Name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Examples => "examples",
            Self::Words => "words",
        }
    }
}

/// A capability that a text may mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Which.
    pub capability: Capability,
    /// From 0 to 1.
    pub score: f32,
    /// May it be routed to?
    pub fits: bool,
    /// By what it was found.
    pub by: By,
    /// The score's parts.
    pub parts: Vec<(&'static str, f32)>,
    /// What in the text spoke for it, the strongest first, with what each added.
    pub because: Vec<(Box<str>, f32)>,
}

impl Candidate {
    /// With that share of its agents' slots free; only one that is found by its words is weighed by it.
    pub fn weigh(&mut self, free: f32) {
        if self.by == By::Words {
            if let Some(part) = self.parts.iter_mut().find(|(name, _)| *name == "free") {
                part.1 = FREE * free;
            }
            self.score = self.parts.iter().map(|(_, part)| part).sum::<f32>().min(1.0);
        }
    }
}

/// The best first: what fits before what does not.
pub fn in_order(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| {
        b.fits.cmp(&a.fits).then(b.score.total_cmp(&a.score)).then_with(|| a.capability.cmp(&b.capability))
    });
}

/// Finds the capability that a text asks for, in one namespace.
#[derive(Debug, Clone)]
pub struct Router {
    capabilities: Vec<(Capability, u32)>,
    lexicon: Arc<Lexicon>,
    learned: Option<Arc<Learned>>,
}

impl Router {
    /// For those capabilities, with what was learned of them, or of an earlier set: the others are found by their words.
    #[must_use]
    pub fn new(profiles: &[Profile], learned: Option<Arc<Learned>>) -> Self {
        let has_learned =
            |capability: &Capability| learned.as_ref().is_some_and(|learned| learned.places.contains_key(capability));
        Self {
            capabilities: profiles.iter().map(|one| (one.capability.clone(), one.priority)).collect(),
            lexicon: Arc::new(Lexicon::of(profiles, &has_learned)),
            learned,
        }
    }

    /// What was learned, for the next set.
    #[must_use]
    pub fn learned(&self) -> Option<&Arc<Learned>> {
        self.learned.as_ref()
    }

    /// Bytes that it holds, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lexicon.size() + self.learned.as_ref().map_or(0, |learned| learned.bytes())
    }

    /// The capabilities that a text may ask for, the best first, at most [`SHOWN`]; of those that are `admitted`.
    #[must_use]
    pub fn ask(&self, text: &str, admitted: &dyn Fn(&Capability) -> bool) -> Vec<Candidate> {
        let parts = features::parts(text);
        let asked = self.learned.as_ref().map(|learned| (learned, learned.linear.read(&parts)));
        let margins = asked.as_ref().map(|(learned, asked)| learned.linear.margins(asked)).unwrap_or_default();
        let margin = |capability: &Capability| {
            let place = self.learned.as_ref()?.places.get(capability)?;
            margins.get(*place).copied()
        };
        let matches = self.lexicon.matches(text, &parts);
        let known = self.capabilities.iter().zip(matches).filter(|((capability, _), _)| admitted(capability));
        let mut candidates: Vec<Candidate> = known
            .map(|((capability, priority), found)| match (found.named, margin(capability)) {
                (true, _) => Candidate {
                    capability: capability.clone(),
                    score: 1.0,
                    fits: true,
                    by: By::Name,
                    parts: vec![("name", 1.0)],
                    because: vec![(capability.as_str().into(), 1.0)],
                },
                (false, Some(margin)) => by_examples(capability, margin, found),
                (false, None) => by_words(capability, *priority, found),
            })
            .filter(|candidate| candidate.fits || !candidate.because.is_empty() || candidate.by == By::Examples)
            .collect();
        in_order(&mut candidates);
        candidates.truncate(SHOWN);
        if let Some((learned, asked)) = &asked {
            for candidate in candidates.iter_mut().filter(|candidate| candidate.by == By::Examples) {
                learned.tell(candidate, asked, &parts);
            }
        }
        candidates
    }
}

impl Learned {
    /// Adds which words of the text spoke for one that was found by its examples.
    fn tell(&self, candidate: &mut Candidate, asked: &Asked, parts: &[Part]) {
        let Some(place) = self.places.get(&candidate.capability) else { return };
        let adds = self.linear.because(asked, *place);
        let told = adds.into_iter().filter(|(_, add)| *add > 0.0);
        let told = told.filter_map(|(part, add)| Some((parts.get(part)?.as_str().into(), add)));
        candidate.because.extend(told);
        shown(&mut candidate.because);
    }
}

fn shown(because: &mut Vec<(Box<str>, f32)>) {
    because.sort_by(|a, b| b.1.total_cmp(&a.1));
    because.truncate(MAX_BECAUSE);
}

/// The score of a margin: [`THRESHOLD`] at [`MARGIN`].
fn score_of(margin: f32) -> f32 {
    let at_margin = (THRESHOLD / (1.0 - THRESHOLD)).ln();
    1.0 / (1.0 + (-(STEEPNESS * (margin - MARGIN) + at_margin)).exp())
}

fn by_examples(capability: &Capability, margin: f32, found: Match) -> Candidate {
    let mut parts = vec![("examples", score_of(margin))];
    let mut because = Vec::new();
    if let Some(alias) = found.alias {
        parts.push(("alias", ALIAS));
        because.push((alias, ALIAS));
    }
    let score = parts.iter().map(|(_, part)| part).sum::<f32>().min(1.0);
    Candidate { capability: capability.clone(), score, fits: score >= THRESHOLD, by: By::Examples, parts, because }
}

fn by_words(capability: &Capability, priority: u32, found: Match) -> Candidate {
    let alias = if found.alias.is_some() { ALIAS } else { 0.0 };
    let evidence = TAGS * found.tags + WORDS * found.words + alias;
    let priority = PRIORITY * (priority as f32 / MAX_PRIORITY).min(1.0);
    let parts = vec![
        ("tags", TAGS * found.tags),
        ("words", WORDS * found.words),
        ("alias", alias),
        ("free", FREE),
        ("priority", priority),
    ];
    let mut because = found.because;
    because.iter_mut().for_each(|(_, share)| *share *= WORDS);
    because.extend(found.alias.map(|alias| (alias, ALIAS)));
    shown(&mut because);
    let score = parts.iter().map(|(_, part)| part).sum::<f32>().min(1.0);
    Candidate {
        capability: capability.clone(),
        score,
        fits: evidence > 0.0 && evidence + USUAL >= THRESHOLD,
        by: By::Words,
        parts,
        because,
    }
}
