//! What a text is compared by: whole words, pairs of words, and pieces of words, each hashed to a number.
//!
//! Words alone miss "booking" beside "book" and every typing error; pieces of two to four letters forgive both. Text
//! without spaces between its words (Chinese, Japanese) has no words to find without a dictionary: there every one,
//! two and three signs in a row count, which holds nearly every word of the language.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The longest text that is looked at, in bytes; what comes after it says little about what is wanted.
pub const MAX_TEXT: usize = 4_096;
/// Features are numbers below this: a million, so that two rarely share one.
const BUCKETS: u64 = 1 << 20;
/// A word counts for so many pieces of one.
const WORD_WEIGHT: f32 = 2.0;
/// Letters in a piece of a word, at most; the word's two edges count as letters.
const LONGEST_PIECE: usize = 4;
/// The shortest piece.
const SHORTEST_PIECE: usize = 2;
/// Signs in a row, at most, in text without spaces.
const LONGEST_RUN: usize = 3;

/// Seeds that keep apart what is spelt alike.
const WORD: u64 = 1;
const PAIR: u64 = 2;
const PIECE: u64 = 3;
const RUN: u64 = 4;

/// A part of a text between spaces and punctuation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// A word, in small letters.
    Word(String),
    /// A stretch of a script that puts no spaces between its words.
    Run(String),
}

impl Part {
    /// As it reads.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Word(text) | Self::Run(text) => text,
        }
    }
}

/// Is that a sign of a script without spaces?
pub(super) const fn is_spaceless(sign: char) -> bool {
    matches!(sign, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

/// The text as it is compared: small letters, wide forms as plain ones, at most [`MAX_TEXT`] bytes.
pub(super) fn plain(text: &str) -> impl Iterator<Item = char> + '_ {
    let end = text.floor_char_boundary(MAX_TEXT);
    let narrow = |sign: char| match sign {
        '\u{ff01}'..='\u{ff5e}' => u32::from(sign).checked_sub(0xfee0).and_then(char::from_u32).unwrap_or(sign),
        other => other,
    };
    text.get(..end).unwrap_or_default().chars().map(narrow).flat_map(char::to_lowercase)
}

/// Takes a text apart.
pub(super) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut word, mut run) = (String::new(), String::new());
    for sign in plain(text).chain([' ']) {
        if is_spaceless(sign) {
            run.push(sign);
        } else if !run.is_empty() {
            parts.push(Part::Run(std::mem::take(&mut run)));
        }
        if sign.is_alphanumeric() && !is_spaceless(sign) {
            word.push(sign);
        } else if !word.is_empty() && !matches!(sign, '\'' | '\u{2019}') {
            parts.push(Part::Word(std::mem::take(&mut word)));
        }
    }
    parts
}

/// A feature found in a text: its number, how much it counts, which part of the text it comes from, and whether it may
/// straddle two words, for nothing says where they begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    pub bucket: u32,
    pub count: f32,
    pub part: usize,
    pub straddles: bool,
}

fn bucket(text: &str, seed: u64) -> u32 {
    u32::try_from(xxh3_64_with_seed(text.as_bytes(), seed) % BUCKETS).unwrap_or_default()
}

/// Every feature of a text, as often as it is there.
pub(super) fn found(parts: &[Part]) -> Vec<Found> {
    let mut all = Vec::with_capacity(parts.len() * 16);
    let mut edged = String::new();
    // The first word pairs with the beginning and the last with the end: "how" means most where it begins a question.
    let mut before = Some("");
    for (part, text) in parts.iter().enumerate() {
        let mut add = |bucket, count, straddles| all.push(Found { bucket, count, part, straddles });
        match text {
            Part::Word(word) => {
                add(bucket(word, WORD), WORD_WEIGHT, false);
                if let Some(before) = before {
                    edged.clear();
                    edged.extend([before, " ", word]);
                    add(bucket(&edged, PAIR), WORD_WEIGHT, false);
                }
                edged.clear();
                edged.extend([" ", word, " "]);
                pieces(&edged, SHORTEST_PIECE..=LONGEST_PIECE, |piece| add(bucket(piece, PIECE), 1.0, false));
                before = Some(word);
            }
            Part::Run(run) => {
                pieces(run, 1..=LONGEST_RUN, |piece| {
                    let signs = piece.chars().count();
                    add(bucket(piece, RUN), if signs == 2 { WORD_WEIGHT } else { 1.0 }, signs > 1);
                });
                before = None;
            }
        }
    }
    if let (Some(last), Some(part)) = (before, parts.len().checked_sub(1)) {
        all.push(Found { bucket: bucket(&format!("{last} "), PAIR), count: WORD_WEIGHT, part, straddles: false });
    }
    all
}

/// Every piece of so many signs.
pub(super) fn pieces<'a>(text: &'a str, lengths: std::ops::RangeInclusive<usize>, mut give: impl FnMut(&'a str)) {
    for (start, _) in text.char_indices() {
        let rest = text.get(start..).unwrap_or_default();
        let ends = rest.char_indices().map(|(at, sign)| at + sign.len_utf8()).enumerate();
        for (nth, end) in ends.take(*lengths.end()) {
            if nth + 1 >= *lengths.start() {
                give(rest.get(..end).unwrap_or_default());
            }
        }
    }
}

/// The features of a text by number, each once, with how much it counts.
pub(super) fn counted(text: &str) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = found(&parts(text)).into_iter().map(|one| (one.bucket, one.count)).collect();
    all.sort_unstable_by_key(|(bucket, _)| *bucket);
    all.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_apart(text: &str) -> Vec<String> {
        parts(text).iter().map(|part| part.as_str().to_owned()).collect()
    }

    #[test]
    fn words_and_runs_without_spaces_are_taken_apart_in_their_order() {
        assert_eq!(
            taken_apart("What's the WEATHER, in 成都today？"),
            ["whats", "the", "weather", "in", "成都", "today"]
        );
        assert_eq!(taken_apart("ＧＰＵ监控abc"), ["gpu", "监控", "abc"]);
        assert_eq!(taken_apart(" ,。"), Vec::<String>::new());
    }

    #[test]
    fn pieces_have_the_lengths_that_were_asked_for() {
        let mut seen = Vec::new();
        pieces("销售趋势", 2..=3, |piece| seen.push(piece));
        assert_eq!(seen, ["销售", "销售趋", "售趋", "售趋势", "趋势"]);
    }

    #[test]
    fn a_feature_is_counted_once_with_all_that_it_counts() {
        let counted = counted("go go");
        assert_eq!(counted.iter().filter(|(_, count)| *count == 2.0 * WORD_WEIGHT).count(), 1, "the word: {counted:?}");
        assert!(counted.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn a_text_is_cut_at_its_bound_between_two_signs() {
        let long = "成".repeat(MAX_TEXT);
        assert_eq!(plain(&long).count(), MAX_TEXT / '成'.len_utf8());
    }
}
