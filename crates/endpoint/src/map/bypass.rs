//! Whether frames come past an element that should have met them on their way (inline).

use std::time::Duration;

use pathcall_wire::Instant;

/// Since when such frames come, and the last of them.
#[derive(Debug, Default)]
pub(super) struct Bypass(Option<(Instant, Instant)>);

impl Bypass {
    /// One has come; whether they have for `long`, without a pause as long as that. One now and then is no sign:
    /// it may have been on its way when the element came or went.
    pub(super) fn met(&mut self, now: Instant, long: Duration) -> bool {
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
    fn only_what_lasts_is_a_sign() {
        let (long, at) = (Duration::from_nanos(100), |now| Instant(now));
        let mut bypass = Bypass::default();
        assert!(!bypass.met(at(5), long));
        assert!(!bypass.met(at(200), long), "a pause between");
        assert!(!bypass.met(at(290), long));
        assert!(bypass.met(at(300), long));
        assert!(bypass.met(at(310), long), "and said again");
    }
}
