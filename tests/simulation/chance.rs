//! Chance from a seed: the same seed always draws the same, on every machine.

/// A SplitMix64 generator.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0_3635_dcf9_3c1b)
    }

    pub(crate) const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0..bound`; 0 for an empty range.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        let draw = self.draw();
        if bound == 0 { 0 } else { draw % bound }
    }

    /// In `from..=to`.
    pub(crate) const fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// As a small number.
    pub(crate) fn small(&mut self, from: u32, to: u32) -> u32 {
        u32::try_from(self.between(u64::from(from), u64::from(to))).unwrap_or(to)
    }

    /// True in so many of a thousand cases.
    pub(crate) const fn hits(&mut self, of_a_thousand: u64) -> bool {
        self.below(1_000) < of_a_thousand
    }

    /// One of them.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let len = u64::try_from(from.len()).unwrap_or(1);
        let index = usize::try_from(self.below(len)).unwrap_or(0);
        from.get(index).expect("there is something to pick from")
    }
}
