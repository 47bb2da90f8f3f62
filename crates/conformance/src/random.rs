//! Random generator of the tests, with the same output on every machine.

/// SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.bits() as u32) * u64::from(n)) >> 32) as u32
    }

    /// Index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u32) as usize
    }

    /// True with a probability in percent.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// True with probability 1/`n`.
    pub fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// Random item.
    ///
    /// # Panics
    /// If there are no items.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Random item, by weight.
    ///
    /// # Panics
    /// If there are no items.
    pub fn weighted<T: Copy>(&mut self, from: &[(u32, T)]) -> T {
        let mut at = self.below(from.iter().map(|(weight, _)| weight).sum());
        for (weight, what) in from {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *what,
            }
        }
        from[from.len() - 1].1
    }

    /// Value of a lane: usually small, often at a bound of its range.
    pub fn value(&mut self) -> i32 {
        match self.below(10) {
            0 => self.pick(&[i32::MAX, i32::MIN, i32::MAX - 1, i32::MIN + 1, i32::MAX / 2 + 1, i32::MIN / 2 - 1]),
            1 => self.bits() as i32,
            _ => self.below(201) as i32 - 100,
        }
    }
}
