//! Array addition of a caller: its values, and the tags and lanes of its chunks.

use std::collections::BTreeMap;
use std::ops::Range;

use pathcall_wire::ForwardTarget;

use super::super::{CallId, MapClient};
use super::SumCalls;
use crate::map::key::tag;
use crate::map::{Lanes, Modify};

/// Array addition in progress.
pub(super) struct SumCall {
    pub(super) id: CallId,
    /// Values to add; lanes of complete chunks are replaced by their sums.
    pub(super) lanes: Lanes,
    /// Sums of chunks of which a part is missing.
    pub(super) parts: BTreeMap<u64, Vec<i64>>,
    pub(super) modify: Modify,
    pub(super) threshold: u32,
    pub(super) to: ForwardTarget,
    /// Tag of the only chunk, if a level passes it up.
    pub(super) passed: Option<u32>,
    /// Number of the first chunk.
    pub(super) first: u64,
    /// Number of chunks without a result.
    pub(super) left: u32,
    /// Whether the call was cancelled.
    pub(super) detached: bool,
}

impl SumCall {
    /// Call of `chunks` chunks.
    pub(super) fn new(
        id: CallId,
        lanes: Lanes,
        modify: Modify,
        (threshold, to): (u32, ForwardTarget),
        chunks: u32,
    ) -> Self {
        let parts = BTreeMap::new();
        Self { id, lanes, parts, modify, threshold, to, passed: None, first: 0, left: chunks, detached: false }
    }

    /// Tag of a chunk, equal in all contributions.
    pub(super) fn tag(&self, chunk: u64) -> u32 {
        let own = || tag((chunk - self.first) as u32, self.lanes.len(), self.modify);
        let tag = self.passed.unwrap_or_else(own);
        if self.to == ForwardTarget::Server { !tag } else { tag }
    }

    /// Range of a chunk's lanes in the call.
    pub(super) fn range(&self, chunk: u64, width: usize) -> Range<usize> {
        let at = (chunk - self.first) as usize * width;
        at..(at + width).min(self.lanes.len())
    }
}

impl SumCalls {
    /// Starts the sum of one chunk with this tag.
    fn pass(&mut self, id: CallId, lanes: Lanes, threshold: u32, tag: u32) {
        assert!(lanes.len() <= self.width, "a level has rows as wide as those of the level above");
        let (modify, to) = (Modify::default(), ForwardTarget::All);
        self.queue(SumCall { passed: Some(tag), ..SumCall::new(id, lanes, modify, (threshold, to), 1) });
    }
}

impl MapClient {
    /// Starts the sum of one chunk that workers of this caller have summed: the caller is a level (`map::level`). The
    /// chunk has the tag that a worker of the level above gives it.
    ///
    /// # Panics
    /// If there are more lanes than a row of the level above has.
    pub(in crate::map) fn pass_sum(&mut self, id: CallId, lanes: Lanes, threshold: u32, tag: u32) {
        match &self.broken {
            Some(error) => self.finish(id, Err(error.clone())),
            None => self.sums.pass(id, lanes, threshold, tag),
        }
    }
}
