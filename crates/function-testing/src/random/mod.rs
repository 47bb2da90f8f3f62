//! Random programs and steps from a string of choices, for comparisons of executions.
//!
//! ```text
//! bytes ─► Choices ─► program: well-typed, with all constructs ─┐
//!             └─────► steps: packets, entries, registers ───────┴─► two executions ─► equal?
//! ```
//!
//! [`function`] adds a handler, for comparisons of splits.
//!
//! Fewer and smaller bytes give simpler programs, so that shrinking the string shrinks the program.

mod expr;
mod function;
mod program;
mod statement;
mod step;

pub use function::function;
pub use program::{ProgramLimits, program};
pub use step::{FunctionEffect, FunctionStep, first_difference, steps};

/// Byte string as decisions; beyond its end all are 0, the simplest choice.
#[derive(Debug, Clone)]
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Decisions from these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// True if no bytes are left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Two strings: the first `part`/256 of the bytes, and the rest.
    #[must_use]
    pub fn split(&self, part: usize) -> (Self, Self) {
        let (first, rest) = self.bytes.split_at(self.bytes.len() * part / 256);
        (Self::new(first), Self::new(rest))
    }

    /// Next byte.
    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((byte, rest)) => {
                self.bytes = rest;
                *byte
            }
            None => 0,
        }
    }

    /// Number below `count`, which is 1 to 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// True with probability 1/`of`.
    pub fn one_of(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// Random item.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Number of `width` bits, often small or large.
    pub fn number(&mut self, width: u16) -> u128 {
        let mask = if width >= 128 { u128::MAX } else { (1 << width) - 1 };
        let value = match self.below(8) {
            0..=3 => u128::from(self.byte() % 4),
            4 => mask - u128::from(self.byte() % 4).min(mask),
            5 => 1 << (u16::from(self.byte()) % width),
            _ => (0..width.div_ceil(8)).fold(0, |value: u128, _| value << 8 | u128::from(self.byte())),
        };
        value & mask
    }
}
