//! Elements that did not answer; they are not used for a while.

use std::time::{Duration, Instant};

use pathcall_proto::SILENT_MAX;

/// Time for which a silent element is not used. A restarted element counts as another one.
const SUSPENSION: Duration = Duration::from_secs(10);

/// Starts of elements by boot id, each with the time until which it is not used, in the order in which they became
/// silent.
#[derive(Debug, Default)]
pub(super) struct SilentElements(Vec<(u64, Instant)>);

impl SilentElements {
    /// Adds an element that did not answer. If there are too many for a request to the controller, drops the first.
    pub(super) fn note(&mut self, now: Instant, boot_id: u64) {
        self.0.retain(|&(other, until)| other != boot_id && now < until);
        if self.0.len() == SILENT_MAX {
            self.0.remove(0);
        }
        self.0.push((boot_id, now + SUSPENSION));
    }

    /// Elements that are not used now.
    pub(super) fn starts(&self, now: Instant) -> Vec<u64> {
        self.0.iter().filter(|(_, until)| now < *until).map(|&(boot_id, _)| boot_id).collect()
    }

    /// Time at which the next of them may be used.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.0.iter().map(|&(_, until)| until).find(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_is_suspended_from_its_last_silence() {
        let (mut silent, now) = (SilentElements::default(), Instant::now());
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
        assert!(silent.starts(now + 2 * second + SUSPENSION).is_empty());
        assert_eq!(silent.until(now + 2 * second + SUSPENSION), None);
    }

    #[test]
    fn list_of_silent_elements_is_bounded() {
        let (mut silent, now) = (SilentElements::default(), Instant::now());
        for boot_id in 0..20 {
            silent.note(now, boot_id);
        }
        assert_eq!(silent.starts(now), (4..20).collect::<Vec<_>>());
    }
}
