//! Event queue: events by time, and in the order of insertion at equal times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use pathcall_wire::Instant;

/// Queue of events in virtual time.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    inserted: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Instant,
    number: u64,
    event: E,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), inserted: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Schedules `event` at `at`.
    pub fn push(&mut self, at: Instant, event: E) {
        self.inserted += 1;
        self.heap.push(Entry { at, number: self.inserted, event });
    }

    /// Time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Next event.
    #[must_use]
    pub fn peek(&self) -> Option<&E> {
        self.heap.peek().map(|entry| &entry.event)
    }

    /// Moves the next event to `at`, behind all events at that time.
    pub fn postpone(&mut self, at: Instant) {
        if let Some((_, event)) = self.pop() {
            self.push(at, event);
        }
    }

    /// Removes the next event.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

impl<E> Extend<(Instant, E)> for EventQueue<E> {
    fn extend<T: IntoIterator<Item = (Instant, E)>>(&mut self, events: T) {
        events.into_iter().for_each(|(at, event)| self.push(at, event));
    }
}

impl<E> Ord for Entry<E> {
    /// The earliest is the greatest, because the standard heap returns the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_insertion() {
        let mut queue = EventQueue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            queue.push(Instant(at), event);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(at, event)| (at.0, event)).collect();
        assert_eq!(order, [(1, 'a'), (1, 'b'), (5, 'c'), (5, 'd')]);
    }
}
