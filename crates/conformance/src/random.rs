//! Random choices of the tests.

use pathcall_wire::SplitMix64;

/// Choices drawn from a generator.
pub trait RandomChoice {
    /// True with a probability in percent.
    fn percent(&mut self, percent: u32) -> bool;

    /// True with probability 1/`n`.
    fn once_in(&mut self, n: u32) -> bool;

    /// Random item.
    ///
    /// # Panics
    /// If there are no items.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T;

    /// Random item, by weight.
    ///
    /// # Panics
    /// If there are no items.
    fn weighted<T: Copy>(&mut self, from: &[(u32, T)]) -> T;

    /// Value of a lane: usually small, often at a bound of its range.
    fn value(&mut self) -> i32;
}

impl RandomChoice for SplitMix64 {
    fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    fn weighted<T: Copy>(&mut self, from: &[(u32, T)]) -> T {
        let mut at = self.below(from.iter().map(|(weight, _)| weight).sum());
        for (weight, what) in from {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *what,
            }
        }
        from[from.len() - 1].1
    }

    fn value(&mut self) -> i32 {
        match self.below(10) {
            0 => self.pick(&[i32::MAX, i32::MIN, i32::MAX - 1, i32::MIN + 1, i32::MAX / 2 + 1, i32::MIN / 2 - 1]),
            1 => self.bits() as i32,
            _ => self.below(201) as i32 - 100,
        }
    }
}
