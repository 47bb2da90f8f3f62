//! Whether a call looks for its answer once before it waits.
//!
//! An element in the kernel of the same machine answers within the system call that sends the frame: then
//! the answer is there, and a look is all it takes. Elsewhere a look costs a system call for nothing. So
//! calls look as long as that finds something, and now and then to see whether it does again.

use std::sync::atomic::{AtomicU32, Ordering};

/// Calls without a look after looks in vain.
const PAUSE_CALLS: u32 = 63;
/// Looks in vain, one after the other, that are followed by a pause.
const VAIN_MAX: u32 = 4;

/// Shared by all calls of a caller: what they do to each other's counts is no more than a look too many.
#[derive(Debug, Default)]
pub(super) struct Eager {
    /// Looks in vain since one found something.
    vain: AtomicU32,
    /// Calls that will not look.
    pause: AtomicU32,
}

impl Eager {
    /// Whether this call looks.
    pub(super) fn looks(&self) -> bool {
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0
    }

    /// Whether its look found the answer.
    pub(super) fn found(&self, found: bool) {
        let vain = if found { 0 } else { self.vain.load(Ordering::Relaxed).saturating_add(1) };
        self.vain.store(vain, Ordering::Relaxed);
        if vain >= VAIN_MAX {
            self.pause.store(PAUSE_CALLS, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many calls, those that look.
    fn looks(eager: &Eager, calls: u32, found: bool) -> u32 {
        let look = |_: &u32| {
            let looks = eager.looks();
            if looks {
                eager.found(found);
            }
            looks
        };
        (0..calls).filter(look).count() as u32
    }

    #[test]
    fn calls_look_as_long_as_it_finds_something() {
        let eager = Eager::default();
        assert_eq!(looks(&eager, 1000, true), 1000);
        assert_eq!(looks(&eager, VAIN_MAX, false), VAIN_MAX);
        assert_eq!(looks(&eager, PAUSE_CALLS, false), 0);
        assert_eq!(looks(&eager, 2 * (PAUSE_CALLS + 1), false), 2, "now and then one");
        assert_eq!(looks(&eager, 1000, true), 1000, "it finds something again");
    }
}
