//! Requests of the past, so that a late copy of one is not worked on again.

use std::collections::VecDeque;

use super::Key;
use crate::tables::ByName;

/// The last so many requests, and the newest attempt of each that was worked on or cancelled.
#[derive(Debug)]
pub(super) struct Remembered {
    attempts: ByName<Key, u8>,
    order: VecDeque<Key>,
    max: usize,
}

impl Remembered {
    pub(super) fn new(max: usize) -> Self {
        Self {
            attempts: ByName::with_capacity_and_hasher(max, Default::default()),
            order: VecDeque::with_capacity(max),
            max,
        }
    }

    /// Notes that a request is done with.
    pub(super) fn note(&mut self, key: Key, attempt: u8) {
        if let Some(known) = self.attempts.get_mut(&key) {
            *known = attempt.max(*known);
            return;
        }
        if self.order.len() >= self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.attempts.remove(&oldest);
        }
        if self.max > 0 {
            self.attempts.insert(key, attempt);
            self.order.push_back(key);
        }
    }

    /// Whether this attempt, or a later one, is done with.
    pub(super) fn knows(&self, key: &Key, attempt: u8) -> bool {
        self.attempts.get(key).is_some_and(|known| attempt <= *known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way() {
        let key = |seq| Key { caller: 1, incarnation: 1, seq };
        let mut remembered = Remembered::new(2);
        for seq in 1..=3 {
            remembered.note(key(seq), 1);
        }
        remembered.note(key(3), 0);
        assert!(!remembered.knows(&key(1), 0) && remembered.knows(&key(2), 0));
        assert!(remembered.knows(&key(3), 1) && !remembered.knows(&key(3), 2));
        assert_eq!((remembered.attempts.len(), remembered.order.len()), (2, 2));
    }
}
