//! History of completed requests, by which late copies are ignored.

use std::collections::VecDeque;

use super::RequestKey;
use crate::tables::SeededHashMap;

/// Latest requests, with the newest attempt of each that was completed or cancelled.
#[derive(Debug)]
pub(super) struct RequestHistory {
    attempts: SeededHashMap<RequestKey, u8>,
    order: VecDeque<RequestKey>,
    max: usize,
}

impl RequestHistory {
    pub(super) fn new(max: usize) -> Self {
        Self {
            attempts: SeededHashMap::with_capacity_and_hasher(max, Default::default()),
            order: VecDeque::with_capacity(max),
            max,
        }
    }

    /// Records a completed or cancelled request.
    pub(super) fn record(&mut self, key: RequestKey, attempt: u8) {
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

    /// Returns whether this attempt, or a later one, was completed or cancelled.
    pub(super) fn contains(&self, key: &RequestKey, attempt: u8) -> bool {
        self.attempts.get(key).is_some_and(|known| attempt <= *known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_request_is_forgotten() {
        let key = |seq| RequestKey { caller: 1, incarnation: 1, seq };
        let mut history = RequestHistory::new(2);
        for seq in 1..=3 {
            history.record(key(seq), 1);
        }
        history.record(key(3), 0);
        assert!(!history.contains(&key(1), 0) && history.contains(&key(2), 0));
        assert!(history.contains(&key(3), 1) && !history.contains(&key(3), 2));
        assert_eq!((history.attempts.len(), history.order.len()), (2, 2));
    }
}
