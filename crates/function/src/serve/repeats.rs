//! Requests that came already: a link may repeat what it carries.

use pathcall_wire::{Mutant, mutant};

/// Requests that are remembered: one that comes again behind so many others is taken for another.
pub const REMEMBERED: usize = 1 << 14;

/// The last requests of an element, by their number; with the period in which each left, as an element that began anew
/// counts from where it may have been before.
#[derive(Debug, Clone)]
pub struct Repeats {
    last: Vec<(u32, u16)>,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { last: vec![(0, 0); REMEMBERED] }
    }
}

impl Repeats {
    /// Whether this request came before; it has now. One without a number (0) never did.
    #[must_use]
    pub fn came(&mut self, number: u32, period: u16) -> bool {
        let last = &mut self.last[number as usize % REMEMBERED];
        let came = number != 0 && *last == (number, period);
        *last = (number, period);
        came && !mutant::on(Mutant::FunctionRepeatsWorkedOn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_is_known_behind_many_others() {
        let mut repeats = Repeats::default();
        assert!(!repeats.came(1, 7));
        for number in 2..=REMEMBERED as u32 {
            assert!(!repeats.came(number, 7));
        }
        assert!(repeats.came(1, 7) && repeats.came(REMEMBERED as u32, 7));
        assert!(!repeats.came(1 + REMEMBERED as u32, 8), "another with the same low bits");
        assert!(!repeats.came(1, 9), "the first of an element that began anew");
        assert!(!repeats.came(0, 0) && !repeats.came(0, 0), "without a number");
    }
}
