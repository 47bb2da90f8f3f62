//! Repeat filter of requests, as a link may duplicate frames.

use pathcall_wire::{Mutant, mutant};

/// Number of remembered requests; a repeat after more requests than this is not recognised.
pub const REMEMBERED: usize = 1 << 14;

/// Numbers of an element's last requests, each with the period in which it was sent, because a restarted element may
/// use numbers from before its restart.
#[derive(Debug, Clone)]
pub struct RequestRepeatFilter {
    last: Vec<(u32, u16)>,
}

impl Default for RequestRepeatFilter {
    fn default() -> Self {
        Self { last: vec![(0, 0); REMEMBERED] }
    }
}

impl RequestRepeatFilter {
    /// Records a request and returns whether it is a repeat; a request without a number (0) never is.
    #[must_use]
    pub fn is_repeat(&mut self, number: u32, period: u16) -> bool {
        let last = &mut self.last[number as usize % REMEMBERED];
        let repeat = number != 0 && *last == (number, period);
        *last = (number, period);
        repeat && !mutant::on(Mutant::FunctionRepeatsWorkedOn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeat_is_recognised_after_many_requests() {
        let mut repeats = RequestRepeatFilter::default();
        assert!(!repeats.is_repeat(1, 7));
        for number in 2..=REMEMBERED as u32 {
            assert!(!repeats.is_repeat(number, 7));
        }
        assert!(repeats.is_repeat(1, 7) && repeats.is_repeat(REMEMBERED as u32, 7));
        assert!(!repeats.is_repeat(1 + REMEMBERED as u32, 8), "different number with the same low bits");
        assert!(!repeats.is_repeat(1, 9), "first request after a restart");
        assert!(!repeats.is_repeat(0, 0) && !repeats.is_repeat(0, 0), "without a number");
    }
}
