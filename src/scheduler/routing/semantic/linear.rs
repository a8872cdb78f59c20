//! What a capability's own examples teach: one weight a feature and capability, found by a linear support vector
//! machine, one capability against all the others.
//!
//! Why this one: it learns a hundred and fifty capabilities from a hundred sentences each within seconds, an answer costs
//! a few thousand additions, and each answer is a sum whose terms can be shown. The problem is solved in its dual, one
//! example after another (L2 loss), and examples that settle nothing are set aside as it goes; so the work is about
//! six passes over the examples for each capability. The order of the examples is stirred by a fixed rule: the same
//! examples make the same weights, on every machine.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::features::{self, Part};

/// Features kept at most; beyond, those that the fewest examples have are left out.
const MAX_FEATURES: usize = 65_536;
/// Weights kept at most, two bytes each: with many capabilities fewer features are kept.
const MAX_WEIGHTS: usize = 1 << 24;
/// How dear an example on the wrong side is. Of 1, 2 and 4 the best on the data that the threshold was found with.
const COST: f32 = 2.0;
/// Passes over the examples for one capability, at most.
const PASSES: usize = 12;
/// A pass that moves nothing by more than this was the last.
const SETTLED: f32 = 0.1;
/// What a text loses for the share of it that no example has. Found with the threshold.
const STRANGE: f32 = 0.6;
/// What a strange feature counts of that if it may straddle two words, in text without spaces.
const STRADDLING: f32 = 0.25;
/// Among few capabilities a text that says nothing lies near the middle between them. It counts as so far away from each
/// as it would among many. Found with the threshold.
const MODESTY: f32 = 0.7;
/// The largest stored weight.
const FULL: f32 = 32_767.0;

/// The examples as numbers: one row each, of length one.
struct Rows {
    starts: Vec<usize>,
    cells: Vec<(u32, f32)>,
    /// Which capability's.
    of: Vec<usize>,
}

impl Rows {
    fn row(&self, nth: u32) -> &[(u32, f32)] {
        let nth = usize::try_from(nth).unwrap_or(usize::MAX);
        let (from, to) = (self.starts.get(nth), self.starts.get(nth.saturating_add(1)));
        from.zip(to).and_then(|(from, to)| self.cells.get(*from..*to)).unwrap_or_default()
    }
}

/// What was learned of all capabilities with enough examples. The n-th answer is that of the n-th list of examples.
#[derive(Debug, Clone)]
pub(super) struct Linear {
    /// Features that any example has, ascending.
    buckets: Vec<u32>,
    /// How rare each is.
    rarities: Vec<f32>,
    /// How rare a feature is that no example has.
    strange_rarity: f32,
    /// By feature, then by capability.
    weights: Vec<i16>,
    /// What a full weight is worth, by capability.
    scales: Vec<f32>,
    biases: Vec<f32>,
}

/// A text as the learned weights see it: of length one together with what no example has.
#[derive(Debug)]
pub(super) struct Asked {
    cells: Vec<Cell>,
    /// What every margin loses for that.
    lost: f32,
}

/// A feature of a text that examples have.
#[derive(Debug)]
struct Cell {
    place: usize,
    value: f32,
    /// The parts of the text that it comes from, each with its share.
    shares: Vec<(usize, f32)>,
}

/// How much a feature counts in a text.
fn damped(count: f32) -> f32 {
    1.0 + count.max(1.0).ln()
}

/// A count as a figure: far below where that loses anything.
fn figure(count: usize) -> f32 {
    count as f32
}

fn scaled_to_one(row: &mut [(u32, f32)]) {
    let length = row.iter().map(|(_, value)| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    for (_, value) in row {
        *value /= length;
    }
}

impl Linear {
    /// Learns from one list of examples a capability. `on_step` hears how many capabilities are learned, and may stop it.
    pub(super) fn learn(examples: &[Vec<&str>], on_step: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Option<Self> {
        let counted: Vec<(usize, Vec<(u32, f32)>)> = examples
            .iter()
            .enumerate()
            .flat_map(|(of, texts)| texts.iter().map(move |text| (of, features::counted(text))))
            .collect();
        let kinds = examples.len();
        let (buckets, rarities) = vocabulary(&counted, MAX_FEATURES.min(MAX_WEIGHTS / kinds.max(1)));
        let mut learned = Self {
            weights: vec![0; buckets.len() * kinds],
            buckets,
            rarities,
            strange_rarity: (1.0 + figure(counted.len())).ln() + 1.0,
            scales: Vec::with_capacity(kinds),
            biases: Vec::with_capacity(kinds),
        };
        let mut rows = Rows { starts: vec![0], cells: Vec::new(), of: Vec::new() };
        for (of, counts) in &counted {
            rows.cells.extend(learned.known(counts));
            let begin = rows.starts.last().copied().unwrap_or_default();
            scaled_to_one(rows.cells.get_mut(begin..).unwrap_or_default());
            rows.starts.push(rows.cells.len());
            rows.of.push(*of);
        }
        drop(counted);
        for kind in 0..kinds {
            let (weights, bias) = one_against_the_rest(&rows, kind, learned.buckets.len());
            learned.keep(kind, kinds, &weights, bias);
            if on_step(kind + 1).is_break() {
                return None;
            }
        }
        Some(learned)
    }

    fn keep(&mut self, kind: usize, kinds: usize, weights: &[f32], bias: f32) {
        let largest = weights.iter().fold(f32::MIN_POSITIVE, |largest, weight| largest.max(weight.abs()));
        for (row, weight) in self.weights.chunks_exact_mut(kinds).zip(weights) {
            if let Some(kept) = row.get_mut(kind) {
                #[expect(clippy::cast_possible_truncation, reason = "rounded, and at most FULL")]
                let rounded = (weight / largest * FULL).round() as i16;
                *kept = rounded;
            }
        }
        self.scales.push(largest / FULL);
        self.biases.push(bias);
    }

    /// Where a feature stands.
    fn place(&self, bucket: u32) -> Option<usize> {
        self.buckets.binary_search(&bucket).ok()
    }

    /// The features that any example has, by place, with how much each counts.
    fn known<'a>(&'a self, counts: &'a [(u32, f32)]) -> impl Iterator<Item = (u32, f32)> + 'a {
        counts.iter().filter_map(|(bucket, count)| {
            let place = self.place(*bucket)?;
            let rarity = self.rarities.get(place)?;
            Some((u32::try_from(place).ok()?, damped(*count) * rarity))
        })
    }

    fn row(&self, place: usize) -> &[i16] {
        let kinds = self.biases.len();
        self.weights.get(place * kinds..(place + 1) * kinds).unwrap_or_default()
    }

    /// A text as the learned weights see it.
    pub(super) fn read(&self, parts: &[Part]) -> Asked {
        let mut found = features::found(parts);
        found.sort_by_key(|one| one.bucket);
        let (mut known, mut strange, mut cells) = (0.0, 0.0, Vec::with_capacity(found.len()));
        for same in found.chunk_by(|a, b| a.bucket == b.bucket) {
            let Some(first) = same.first() else { continue };
            let count: f32 = same.iter().map(|one| one.count).sum();
            let place = self.place(first.bucket);
            let rarity = place.and_then(|place| self.rarities.get(place)).unwrap_or(&self.strange_rarity);
            let value = damped(count) * rarity;
            match place {
                // What straddles two words says nothing by being new.
                None if first.straddles => strange += STRADDLING * value * value,
                None => strange += value * value,
                Some(place) => {
                    known += value * value;
                    let shares = same.iter().map(|one| (one.part, one.count / count)).collect();
                    cells.push(Cell { place, value, shares });
                }
            }
        }
        let all: f32 = known + strange;
        if all > 0.0 {
            cells.iter_mut().for_each(|cell| cell.value /= all.sqrt());
        }
        Asked { cells, lost: if all > 0.0 { STRANGE * strange / all } else { STRANGE } }
    }

    /// How well a text fits each capability: above 0 it is more like its examples than like all others.
    pub(super) fn margins(&self, asked: &Asked) -> Vec<f32> {
        let mut sums = vec![0.0; self.biases.len()];
        for cell in &asked.cells {
            for (sum, weight) in sums.iter_mut().zip(self.row(cell.place)) {
                *sum += cell.value * f32::from(*weight);
            }
        }
        let parts = sums.iter().zip(&self.scales).zip(&self.biases);
        parts.map(|((sum, scale), bias)| sum * scale + bias.min(-MODESTY) - asked.lost).collect()
    }

    /// What each part of a text adds to that capability's margin.
    pub(super) fn because(&self, asked: &Asked, kind: usize) -> BTreeMap<usize, f32> {
        let scale = self.scales.get(kind).copied().unwrap_or_default();
        let mut adds = BTreeMap::new();
        for cell in &asked.cells {
            let weight = f32::from(self.row(cell.place).get(kind).copied().unwrap_or_default());
            for (part, share) in &cell.shares {
                *adds.entry(*part).or_insert(0.0) += cell.value * weight * scale * share;
            }
        }
        adds
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.weights.len() * 2 + (self.buckets.len() + self.rarities.len() + self.scales.len() + self.biases.len()) * 4
    }

    /// Features that it knows.
    pub(super) fn features(&self) -> usize {
        self.buckets.len()
    }
}

/// The features that examples have, ascending, with how rare each is; at most so many, the commonest first.
fn vocabulary(counted: &[(usize, Vec<(u32, f32)>)], most: usize) -> (Vec<u32>, Vec<f32>) {
    let mut seen: Vec<u32> = counted.iter().flat_map(|(_, counts)| counts.iter().map(|(bucket, _)| *bucket)).collect();
    seen.sort_unstable();
    let mut common: Vec<(u32, usize)> = Vec::new();
    for bucket in seen {
        match common.last_mut() {
            Some((last, count)) if *last == bucket => *count += 1,
            Some(_) | None => common.push((bucket, 1)),
        }
    }
    if common.len() > most {
        common.sort_unstable_by_key(|(bucket, count)| (std::cmp::Reverse(*count), *bucket));
        common.truncate(most);
        common.sort_unstable();
    }
    let examples = figure(counted.len());
    common.into_iter().map(|(bucket, count)| (bucket, ((1.0 + examples) / (1.0 + figure(count))).ln() + 1.0)).unzip()
}

/// One example's part in the solution.
#[derive(Clone, Copy)]
struct Example {
    nth: u32,
    /// 1 for the capability's own, -1 for all others.
    sign: f32,
    /// How much it pulls; 0 while it settles nothing.
    pull: f32,
}

/// A fixed stir: it must only not follow the order of the examples.
struct Stir(u64);

impl Stir {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.0 % bound).unwrap_or_default()
    }
}

/// The weights of one capability's examples against all others, and the bias.
fn one_against_the_rest(rows: &Rows, kind: usize, features: usize) -> (Vec<f32>, f32) {
    const SOFT: f32 = 0.5 / COST;
    let mut weights = vec![0.0_f32; features];
    let mut bias = 0.0_f32;
    let mut active: Vec<Example> = (0_u32..)
        .zip(&rows.of)
        .map(|(nth, of)| Example { nth, sign: if *of == kind { 1.0 } else { -1.0 }, pull: 0.0 })
        .collect();
    let mut stir = Stir(0x9e37_79b9_7f4a_7c15 ^ u64::try_from(kind).unwrap_or_default());
    let mut aside = f32::INFINITY;
    for _ in 0..PASSES {
        for last in (1..active.len()).rev() {
            active.swap(last, stir.below(last + 1));
        }
        let (mut highest, mut farthest) = (f32::NEG_INFINITY, 0.0_f32);
        active.retain_mut(|example| {
            let row = rows.row(example.nth);
            let at = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
            let value = |weights: &[f32], place: u32| weights.get(at(place)).copied().unwrap_or_default();
            let margin = bias + row.iter().map(|(place, x)| value(&weights, *place) * x).sum::<f32>();
            let slope = example.sign * margin - 1.0 + SOFT * example.pull;
            if example.pull == 0.0 && slope > aside {
                return false;
            }
            let downhill = if example.pull == 0.0 { slope.min(0.0) } else { slope };
            highest = highest.max(downhill);
            farthest = farthest.max(downhill.abs());
            if downhill.abs() > 1e-6 {
                // A row has length one, and the bias is one cell more.
                let pull = (example.pull - slope / (2.0 + SOFT)).max(0.0);
                let step = (pull - example.pull) * example.sign;
                example.pull = pull;
                bias += step;
                for (place, x) in row {
                    if let Some(weight) = weights.get_mut(at(*place)) {
                        *weight += step * x;
                    }
                }
            }
            true
        });
        aside = if highest <= 0.0 { f32::INFINITY } else { highest };
        if farthest < SETTLED {
            break;
        }
    }
    (weights, bias)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLIGHTS: &[&str] = &["book me a flight to rome", "i need a plane ticket", "reserve a flight for monday"];
    const WEATHER: &[&str] = &["will it rain today", "what is the weather like", "how cold is it outside"];

    fn learned() -> Linear {
        let examples = [FLIGHTS.to_vec(), WEATHER.to_vec()];
        Linear::learn(&examples, &mut |_| ControlFlow::Continue(())).expect("nobody stops it")
    }

    #[test]
    fn its_own_examples_are_on_the_right_side() {
        let learned = learned();
        for (kind, texts) in [FLIGHTS, WEATHER].into_iter().enumerate() {
            for text in texts {
                let margins = learned.margins(&learned.read(&features::parts(text)));
                assert!(margins[kind] > margins[1 - kind] + 1.5, "{text}: {margins:?}");
            }
        }
    }

    #[test]
    fn what_was_never_seen_is_like_nothing() {
        let learned = learned();
        let strange = learned.margins(&learned.read(&features::parts("股票代码查询")));
        assert!(strange.iter().all(|margin| *margin < -0.5), "{strange:?}");
    }

    #[test]
    fn the_same_examples_make_the_same_weights() {
        assert_eq!(learned().weights, learned().weights);
    }

    #[test]
    fn the_words_that_speak_for_it_are_those_of_its_examples() {
        let learned = learned();
        let parts = features::parts("a flight in the rain");
        let asked = learned.read(&parts);
        let (flight, rain) = (learned.because(&asked, 0), learned.because(&asked, 1));
        assert!(flight[&1] > 0.1 && rain[&4] > 0.1, "{flight:?} {rain:?}");
        assert!(flight[&4] < flight[&1] && rain[&1] < rain[&4], "{flight:?} {rain:?}");
    }

    #[test]
    fn learning_stops_when_it_is_told_to() {
        let examples = [FLIGHTS.to_vec(), WEATHER.to_vec()];
        assert!(Linear::learn(&examples, &mut |_| ControlFlow::Break(())).is_none());
    }

    #[test]
    fn the_commonest_features_are_kept_when_there_are_too_many() {
        let counted = [(0, vec![(1, 1.0), (5, 1.0)]), (0, vec![(3, 1.0), (5, 1.0)]), (1, vec![(1, 1.0), (5, 1.0)])];
        let (buckets, rarities) = vocabulary(&counted, 2);
        assert_eq!(buckets, [1, 5]);
        assert!(rarities[0] > rarities[1]);
    }
}
