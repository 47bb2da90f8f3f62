//! Queue of the held calls by time, from which any call can be removed: a binary heap that knows the position of each.

use pathcall_wire::Instant;

/// Position of a call that is not in the queue.
const ABSENT: u32 = u32::MAX;

/// Calls by time, the first one at the front; of equal times, the one that was inserted first.
#[derive(Debug)]
pub(super) struct DueQueue {
    heap: Vec<Due>,
    /// Position of each call in the heap.
    positions: Box<[u32]>,
    inserted: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    order: u64,
    call: u32,
}

impl DueQueue {
    /// Queue for calls with indices below `calls`, of which `most` are in it at once.
    pub(super) fn new(calls: usize, most: usize) -> Self {
        Self { heap: Vec::with_capacity(most), positions: vec![ABSENT; calls].into(), inserted: 0 }
    }

    /// Time and index of the first call.
    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().map(|due| (due.at, due.call))
    }

    /// Inserts a call that is not in the queue.
    pub(super) fn insert(&mut self, call: u32, at: Instant) {
        debug_assert_eq!(self.positions[call as usize], ABSENT, "call {call} is in the queue");
        let order = self.inserted;
        self.inserted += 1;
        self.heap.push(Due { at, order, call });
        self.rise(self.heap.len() - 1);
    }

    /// Removes a call, if it is in the queue.
    pub(super) fn remove(&mut self, call: u32) {
        let position = std::mem::replace(&mut self.positions[call as usize], ABSENT) as usize;
        if position >= self.heap.len() {
            return;
        }
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            // The call that was last in the heap belongs above or below this position; at most one of the two moves it.
            self.rise(position);
            self.sink(position);
        }
    }

    fn rise(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent] <= self.heap[position] {
                break;
            }
            self.swap(parent, position);
            position = parent;
        }
        self.note(position);
    }

    fn sink(&mut self, mut position: usize) {
        loop {
            let children = 2 * position + 1..(2 * position + 3).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { break };
            if self.heap[position] <= self.heap[least] {
                break;
            }
            self.swap(position, least);
            position = least;
        }
        self.note(position);
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.note(one);
        self.note(other);
    }

    fn note(&mut self, position: usize) {
        self.positions[self.heap[position].call as usize] = position as u32;
    }
}
