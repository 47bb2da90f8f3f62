//! Seeded random numbers for the choice of groups and servers.

/// Seeded generator (SplitMix64), not for secrets.
#[derive(Debug, Clone)]
pub(super) struct SeededRng(u64);

impl SeededRng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// Returns a number below `n`; 0 when `n` is 0.
    pub(super) fn number_below(&mut self, n: u32) -> u32 {
        (((self.next_bits() >> 32) * u64::from(n)) >> 32) as u32
    }

    /// Picks one of the matching values uniformly; `None` if none matches.
    pub(super) fn pick(&mut self, from: &[u32], matches: impl Fn(u32) -> bool) -> Option<u32> {
        let count = from.iter().filter(|one| matches(**one)).count();
        let nth = self.number_below(count as u32) as usize;
        from.iter().copied().filter(|one| matches(*one)).nth(nth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform() {
        let mut rng = SeededRng::new(7);
        let mut counts = [0_u32; 5];
        for _ in 0..50_000 {
            counts[rng.number_below(5) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!(rng.pick(&[3, 4, 5], |one| one == 4), Some(4));
        assert_eq!((rng.pick(&[3], |one| one == 4), rng.number_below(0)), (None, 0));
    }
}
