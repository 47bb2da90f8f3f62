//! Clear policy *shadow* at a worker (NetRPC §5.2.2): the element says the sums, and the server never sees them.
//!
//! ```text
//! chunks  │ start - ahead …   │ start …            │
//!         │ others may lack   │ in flight, or done │   ahead: half of the rows
//! ```
//!
//! Who sends chunk c has all results before c - ahead, so everybody has those before c - 2 ahead: its row, which is
//! that of chunk c - 2 ahead, may be cleared. When an epoch ends, what one worker has and another lacks is nowhere else:
//! each worker keeps the last sums of each row that came from the element, and hands them to the server when it asks.

use std::collections::VecDeque;

/// The last sums of each row that came from the element.
pub(super) struct Kept {
    rows: Vec<Sums>,
    /// Chunks that the server has asked for.
    asked: VecDeque<u64>,
}

#[derive(Clone, Default)]
struct Sums {
    chunk: u64,
    tag: u32,
    /// As they came; empty: none yet.
    lanes: Vec<u8>,
}

impl Kept {
    pub(super) fn new(rows: u64) -> Self {
        Self { rows: vec![Sums::default(); rows as usize], asked: VecDeque::new() }
    }

    pub(super) fn keep(&mut self, chunk: u64, tag: u32, lanes: &[u8]) {
        let sums = self.row(chunk);
        (sums.chunk, sums.tag) = (chunk, tag);
        sums.lanes.clear();
        sums.lanes.extend_from_slice(lanes);
    }

    /// The server wants a chunk's sums.
    pub(super) fn ask(&mut self, chunk: u64) {
        let has = self.get(chunk).is_some();
        if has && self.asked.len() < self.rows.len() && !self.asked.contains(&chunk) {
            self.asked.push_back(chunk);
        }
    }

    /// A chunk that the server wants.
    pub(super) fn next_asked(&mut self) -> Option<u64> {
        self.asked.pop_front()
    }

    /// Tag and lanes of a chunk's sums.
    pub(super) fn get(&self, chunk: u64) -> Option<(u32, &[u8])> {
        let sums = &self.rows[(chunk % self.rows.len() as u64) as usize];
        (sums.chunk == chunk && !sums.lanes.is_empty()).then_some((sums.tag, &sums.lanes))
    }

    fn row(&mut self, chunk: u64) -> &mut Sums {
        let rows = self.rows.len() as u64;
        &mut self.rows[(chunk % rows) as usize]
    }
}
