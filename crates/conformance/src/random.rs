//! The one source of chance: a seeded generator whose output is the same on every machine.

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of this seed.
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

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.bits() as u32) * u64::from(n)) >> 32) as u32
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u32) as usize
    }

    /// Whether what happens in so many of a hundred cases happens.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// Whether what happens once in `n` cases happens.
    pub fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// One of these, evenly.
    ///
    /// # Panics
    /// When there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// One of these, each as often as its weight says.
    ///
    /// # Panics
    /// When there are none.
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

    /// A lane's value: mostly small, often at an end of its range.
    pub fn value(&mut self) -> i32 {
        match self.below(10) {
            0 => self.pick(&[i32::MAX, i32::MIN, i32::MAX - 1, i32::MIN + 1, i32::MAX / 2 + 1, i32::MIN / 2 - 1]),
            1 => self.bits() as i32,
            _ => self.below(201) as i32 - 100,
        }
    }
}
