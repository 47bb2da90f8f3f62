//! Clear policies *shadow* and *lazy* at a worker (NetRPC §5.2.2): the element sends the sums to the workers, not to the
//! server.
//!
//! ```text
//! chunks  │ start - ahead …   │ start …            │
//!         │ others may miss   │ in flight or done  │   ahead: half of the rows
//! ```
//!
//! A worker that sends chunk c has all results before c - ahead, so all workers have the results before c - 2 ahead. So
//! the row of chunk c, which is that of chunk c - 2 ahead, may be cleared. When an epoch ends, only workers have the
//! sums that other workers miss. So each worker keeps the last sums of each row from the element, and sends them to the
//! server on request.
//!
//! With *lazy*, ahead is all rows, and the row of chunk c is that of chunk c - ahead. The worker that sends chunk c first
//! has the sums of chunk c - ahead, and clears them in the element. It keeps them until it has those of chunk c; then
//! all workers have sent chunk c, so none of them misses the earlier sums.

use std::collections::VecDeque;

/// Last sums of each row from the element.
pub(super) struct SumHistory {
    rows: Vec<RowSums>,
    /// Chunks that the server has requested.
    requested: VecDeque<u64>,
}

/// Last sums of a row.
#[derive(Clone, Default)]
struct RowSums {
    chunk: u64,
    tag: u32,
    /// Encoded sums; empty if there are none.
    lanes: Vec<u8>,
}

impl SumHistory {
    pub(super) fn new(rows: u32) -> Self {
        Self { rows: vec![RowSums::default(); rows as usize], requested: VecDeque::new() }
    }

    /// Makes room for the sums of more rows in a new epoch. With fewer rows, other workers may still miss sums of the
    /// earlier epoch.
    pub(super) fn grow(&mut self, rows: u32) {
        if rows as usize <= self.rows.len() {
            return;
        }
        let kept = std::mem::replace(&mut self.rows, vec![RowSums::default(); rows as usize]);
        for sums in kept.into_iter().filter(|sums| !sums.lanes.is_empty()) {
            let chunk = sums.chunk;
            *self.row(chunk) = sums;
        }
    }

    pub(super) fn store(&mut self, chunk: u64, tag: u32, lanes: &[u8]) {
        let sums = self.row(chunk);
        (sums.chunk, sums.tag) = (chunk, tag);
        sums.lanes.clear();
        sums.lanes.extend_from_slice(lanes);
    }

    /// Records a request of the server for a chunk's sums.
    pub(super) fn request(&mut self, chunk: u64) {
        let has = self.get(chunk).is_some();
        if has && self.requested.len() < self.rows.len() && !self.requested.contains(&chunk) {
            self.requested.push_back(chunk);
        }
    }

    /// Next requested chunk.
    pub(super) fn next_requested(&mut self) -> Option<u64> {
        self.requested.pop_front()
    }

    /// Tag and lanes of a chunk's sums.
    pub(super) fn get(&self, chunk: u64) -> Option<(u32, &[u8])> {
        let sums = &self.rows[(chunk % self.rows.len() as u64) as usize];
        (sums.chunk == chunk && !sums.lanes.is_empty()).then_some((sums.tag, &sums.lanes))
    }

    fn row(&mut self, chunk: u64) -> &mut RowSums {
        let rows = self.rows.len() as u64;
        &mut self.rows[(chunk % rows) as usize]
    }
}
