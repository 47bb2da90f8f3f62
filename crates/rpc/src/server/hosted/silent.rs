//! Elements that did not answer: they are not asked for again for a while.

use std::time::{Duration, Instant};

use pathcall_proto::SILENT_MAX;

/// How long an element that did not answer is left alone. One that starts anew is another.
const SUSPENSION: Duration = Duration::from_secs(10);

/// Starts of elements by boot id, each with when it may be asked again; the last to fall silent at the end.
#[derive(Debug, Default)]
pub(super) struct Silent(Vec<(u64, Instant)>);

impl Silent {
    /// This one did not answer; of more than a controller takes, the first is forgotten.
    pub(super) fn note(&mut self, now: Instant, boot_id: u64) {
        self.0.retain(|&(other, until)| other != boot_id && now < until);
        if self.0.len() == SILENT_MAX {
            self.0.remove(0);
        }
        self.0.push((boot_id, now + SUSPENSION));
    }

    /// Those that are left alone still.
    pub(super) fn starts(&self, now: Instant) -> Vec<u64> {
        self.0.iter().filter(|(_, until)| now < *until).map(|&(boot_id, _)| boot_id).collect()
    }

    /// When the next of them may be asked again.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.0.iter().map(|&(_, until)| until).find(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_left_alone_for_as_long_from_when_it_was_last_silent() {
        let (mut silent, now) = (Silent::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!((silent.starts(now), silent.until(now)), (vec![], None));
        silent.note(now, 1);
        silent.note(now + second, 2);
        assert_eq!(silent.starts(now + second), [1, 2]);
        assert_eq!(silent.until(now + second), Some(now + SUSPENSION));
        assert_eq!(silent.starts(now + SUSPENSION), [2]);
        assert_eq!(silent.until(now + SUSPENSION), Some(now + second + SUSPENSION));
        silent.note(now + 2 * second, 1);
        assert_eq!(silent.starts(now + second + SUSPENSION), [1]);
        assert_eq!(silent.starts(now + 2 * second + SUSPENSION), []);
        assert_eq!(silent.until(now + 2 * second + SUSPENSION), None);
    }

    #[test]
    fn no_more_are_told_than_a_controller_takes() {
        let (mut silent, now) = (Silent::default(), Instant::now());
        for boot_id in 0..20 {
            silent.note(now, boot_id);
        }
        assert_eq!(silent.starts(now), (4..20).collect::<Vec<_>>());
    }
}
