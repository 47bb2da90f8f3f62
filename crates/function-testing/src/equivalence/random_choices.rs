//! Random choices from a seed.

use pathcall_wire::SplitMix64;

/// Choices of a plan, from a seed.
#[derive(Debug, Clone)]
pub struct RandomChoices(SplitMix64);

impl RandomChoices {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// Random number below `number`, which is not 0.
    pub fn below(&mut self, number: u64) -> u64 {
        self.bits() % number
    }

    /// True with probability 1/`times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
}
