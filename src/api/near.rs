//! Names that may have been meant when nobody offers what was asked for (R-RTE-1).

use crate::ledger::ids::Capability;

use super::App;
use super::error::{ApiError, ApiResult, Code};
use super::extract::{Caller, quoted};

/// Suggestions at most.
const MOST: usize = 5;
/// Bytes of the longest name that is compared with our own.
const LONGEST: usize = 128;
/// Letters compared at most, so that a refusal stays cheap whatever is registered.
const COMPARED: usize = 4_000_000;

/// The refusal of a capability that nobody offers, with near names that this token may call; the near ones that it may
/// not call are only counted (semantics 39).
#[must_use]
pub fn not_registered(app: &App, caller: &Caller, wanted: &Capability) -> ApiError {
    let Near { shown, hidden } = near(app, caller, wanted);
    let error = ApiError::new(Code::CapabilityNotRegistered, format!("no agent offers {wanted}"))
        .at("/capability", "not registered")
        .suggest(shown);
    if hidden == 0 { error } else { error.fact("not-permitted", hidden) }
}

/// Names near a wanted one.
pub(super) struct Near {
    /// Those that this token may call, the nearest first.
    pub shown: Vec<String>,
    /// How many it may not call.
    pub hidden: usize,
}

impl Near {
    /// None.
    pub(super) const fn none() -> Self {
        Self { shown: Vec::new(), hidden: 0 }
    }
}

/// What is offered here under a name like that.
pub(super) fn near(app: &App, caller: &Caller, wanted: &Capability) -> Near {
    let published = app.ledger.published();
    let mut left = COMPARED;
    let mut near: Vec<(usize, &Capability)> = published
        .catalog
        .in_namespace(&caller.namespace)
        .take_while(|(capability, _)| {
            let cost = wanted.as_str().len() * capability.as_str().len();
            left.checked_sub(cost).is_some_and(|rest| {
                left = rest;
                true
            })
        })
        .filter_map(|(capability, _)| distance(wanted.as_str(), capability.as_str()).map(|far| (far, capability)))
        .collect();
    near.sort();
    let (shown, hidden): (Vec<_>, Vec<_>) = near.into_iter().partition(|(_, name)| caller.bearer().can_call(name));
    let shown = shown.into_iter().take(MOST).map(|(_, name)| name.to_string()).collect();
    Near { shown, hidden: hidden.len() }
}

/// Names like the one that was sent, the nearest first: few letters differ, or one begins with the other.
pub(super) fn alike<'a>(sent: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut left = COMPARED;
    let names = names.into_iter().take_while(|name| {
        let rest = left.checked_sub(sent.len() * name.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let near = names.filter_map(|name| {
        let far = edits(sent, name);
        let is_near = far <= allowed(sent, name) || (far == 2 && letters(sent) == letters(name));
        (is_near || name.starts_with(sent) || sent.starts_with(name)).then_some((far, name))
    });
    let mut near: Vec<(usize, &str)> = near.collect();
    near.sort_unstable();
    near.into_iter().take(MOST).map(|(_, name)| name.to_owned()).collect()
}

/// The letters of a name, whatever their order: two that changed places are two edits, and one slip.
fn letters(name: &str) -> Vec<u8> {
    let mut letters: Vec<u8> = name.bytes().collect();
    letters.sort_unstable();
    letters
}

/// A word that is none of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoSuchWord {
    detail: String,
    meant: Option<&'static str>,
}

impl NoSuchWord {
    /// With the choice, and the one that was meant.
    pub(super) fn new(text: &str, choice: &[&'static str]) -> Self {
        let meant = nearest(text, choice.iter().copied());
        let asked = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
        let detail = format!("there is no {}; {asked}choose from {}", quoted(text), choice.join(", "));
        Self { detail, meant }
    }

    /// The refusal of a parameter.
    pub(super) fn in_query(self, name: &str) -> ApiError {
        ApiError::new(Code::InvalidQuery, format!("{name}: {}", self.detail)).suggest(self.meant.map(str::to_owned))
    }

    /// The refusal of a field.
    pub(super) fn at(self, pointer: &str) -> ApiError {
        ApiError::field(pointer, self.detail).suggest(self.meant.map(str::to_owned))
    }
}

/// The word of a choice.
///
/// # Errors
/// [`NoSuchWord`] for any other.
pub(super) fn one_of<T: Copy>(text: &str, all: &[T], spell: fn(T) -> &'static str) -> Result<T, NoSuchWord> {
    let found = all.iter().copied().find(|known| spell(*known) == text);
    found.ok_or_else(|| NoSuchWord::new(text, &all.iter().map(|known| spell(*known)).collect::<Vec<_>>()))
}

/// The one of our own names that was probably meant: at most a third of the letters differ.
#[must_use]
pub fn nearest<'a>(sent: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |name| how_near(sent, name).map(|far| (far, name));
    names.into_iter().filter_map(near).min().map(|(_, name)| name)
}

/// Those that were probably meant, the nearest first: at most a third of the letters differ, and at most `most`.
pub(super) fn near_ones<'a>(sent: &str, names: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let mut left = COMPARED;
    let names = names.into_iter().take_while(|name| {
        left = left.saturating_sub(sent.len() * name.len());
        left > 0
    });
    let near = names.filter_map(|name| how_near(sent, name).filter(|far| *far <= most).map(|far| (far, name)));
    let mut near: Vec<(usize, &str)> = near.collect();
    near.sort_unstable();
    near.into_iter().map(|(_, name)| name).collect()
}

/// Compares names on a thread that may be kept busy: up to [`COMPARED`] letters a name take some milliseconds, for which no
/// other call and least of all the sequencer should wait.
///
/// # Errors
/// 500 if the thread fails.
pub(super) async fn aside<T: Send + 'static>(compare: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
    tokio::task::spawn_blocking(compare).await.map_err(|_| ApiError::internal())
}

/// Letters that may differ.
fn allowed(sent: &str, name: &str) -> usize {
    (sent.len().max(name.len()) / 3).max(1)
}

/// Do they not differ too much in length alone? Costs nothing, so it may be asked on the sequencer's thread.
pub(super) fn may_be_near(sent: &str, name: &str) -> bool {
    // Longer than this no name of ours is, so nothing is near.
    sent.len() <= LONGEST && sent.len().abs_diff(name.len()) <= allowed(sent, name)
}

/// How many letters differ, if it is a third at most.
fn how_near(sent: &str, name: &str) -> Option<usize> {
    may_be_near(sent, name).then(|| edits(sent, name)).filter(|far| *far <= allowed(sent, name))
}

/// How far apart two names are, if they are near: at most a third of the letters differ, or they share the domain.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let far = edits(wanted, name);
    let same_domain = wanted.split('.').next() == name.split('.').next();
    (far <= allowed(wanted, name) || same_domain).then_some(far)
}

/// Levenshtein distance; ids are ASCII and at most 128 bytes.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (slot, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let best = (*slot + 1).min(left + 1).min(diagonal + usize::from(x != y));
            diagonal = std::mem::replace(slot, best);
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_near_and_another_word_is_not() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("weather.forecast", "weather.forecast"), 0);
        assert_eq!(distance("weather.forcast", "weather.forecast"), Some(1));
        assert!(distance("weather.x", "weather.forecast").is_some(), "the same domain");
        assert_eq!(distance("weather.forecast", "text.count"), None);
        assert_eq!(nearest("payloda", ["payload", "payload_ref", "qos"]), Some("payload"));
        assert_eq!(nearest("colour", ["payload", "qos"]), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), ["payload"]), None);
        assert_eq!(alike("amce", ["zeta", "acme-prod", "acme", "am"]), ["acme", "am"]);
        assert_eq!(alike("acme", ["acme-prod", "acne"]), ["acne", "acme-prod"]);
        assert_eq!(alike("dve", ["dev", "dog"]), ["dev"]);
    }
}
