//! What failed in what a plan would act on, by code: the most frequent ones by name, the rest as a number.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Codes that are named.
const NAMED: usize = 20;

/// Items by the code of a failure.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Codes {
    /// The most frequent ones.
    pub(super) named: BTreeMap<String, u32>,
    /// Items of all others.
    pub(super) others: u32,
}

impl Codes {
    /// Of these codes, one for each item that has one.
    pub(super) fn of<'a>(codes: impl Iterator<Item = &'a str>) -> Self {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for code in codes {
            *counts.entry(code).or_default() += 1;
        }
        let mut counts: Vec<(&str, u32)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| Reverse(*count));
        let others = counts.iter().skip(NAMED).map(|(_, count)| count).sum();
        let named = counts.into_iter().take(NAMED).map(|(code, count)| (code.to_owned(), count)).collect();
        Self { named, others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_are_named_and_the_rest_is_a_number() {
        let rare: Vec<String> = (0..30).map(|n| format!("rare-{n}")).collect();
        let all = rare.iter().map(String::as_str).chain(["often"; 5]);
        let codes = Codes::of(all);
        assert_eq!((codes.named.len(), codes.named["often"], codes.others), (NAMED, 5, 11));
        assert_eq!(Codes::of(std::iter::empty()), Codes::default());
    }
}
