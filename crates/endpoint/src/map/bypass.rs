//! Detector of frames that bypass an inline element.

use std::time::Duration;

use pathcall_wire::Instant;

/// Times of the first and the last frame of an uninterrupted bypass.
#[derive(Debug, Default)]
pub(super) struct Bypass(Option<(Instant, Instant)>);

impl Bypass {
    /// Records a frame that bypassed the element. Returns whether such frames have arrived for the time `long` without
    /// a pause of that length. Single frames do not count: the element may have come or gone while they were in flight.
    pub(super) fn observe(&mut self, now: Instant, long: Duration) -> bool {
        let (first, last) = self.0.unwrap_or((now, now));
        let first = if now.since(last) < long { first } else { now };
        self.0 = Some((first, now));
        now.since(first) >= long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lasting_bypass_is_reported() {
        let (long, at) = (Duration::from_nanos(100), |now| Instant(now));
        let mut bypass = Bypass::default();
        assert!(!bypass.observe(at(5), long));
        assert!(!bypass.observe(at(200), long), "a pause in between");
        assert!(!bypass.observe(at(290), long));
        assert!(bypass.observe(at(300), long));
        assert!(bypass.observe(at(310), long), "reported again");
    }
}
