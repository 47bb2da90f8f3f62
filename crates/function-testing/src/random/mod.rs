//! Programs, and what happens to them, from a string of choices: what holds executions to each other.
//!
//! ```text
//! bytes ─► Choices ─► program: well-typed, of all that the language has ─┐
//!             └─────► steps: packets, entries, registers ────────────────┴─► two executions ─► the same?
//! ```
//!
//! [`function`] has a handler too, for what holds a split to another.
//!
//! Fewer bytes, and smaller ones, make simpler programs: whoever shrinks the string shrinks the program.

mod expr;
mod function;
mod program;
mod statement;
mod step;

pub use function::function;
pub use program::{Limits, program};
pub use step::{Effect, Step, first_difference, steps};

/// A string of bytes as decisions; behind its end all are 0, the simplest.
#[derive(Debug, Clone)]
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Decisions by these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether there are any left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Two strings out of one: the first `part` of 256 of it, and the rest.
    #[must_use]
    pub fn split(&self, part: usize) -> (Self, Self) {
        let (first, rest) = self.bytes.split_at(self.bytes.len() * part / 256);
        (Self::new(first), Self::new(rest))
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((byte, rest)) => {
                self.bytes = rest;
                *byte
            }
            None => 0,
        }
    }

    /// A number below `count`, which is at least 1 and at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// Whether one of `of` times comes true.
    pub fn one_of(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A number of so many bits: often a small or a large one.
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
