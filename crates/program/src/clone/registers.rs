//! Register arrays of calls, in stage order.

use pathcall_wire::clone::{MAX_SERVERS, ServerReport};

use super::Hedges;
use crate::layout::ARRAYS;
use crate::registers::RegisterArray;

/// Sizes of the tables for calls to pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneSize {
    /// Number of pools.
    pub pools: usize,
    /// Slots of the table of cloned requests: multi-part requests that arrive at the same time.
    pub requests: usize,
    /// Number of filter tables.
    pub filters: usize,
    /// Slots of each filter table.
    pub slots: usize,
}

impl CloneSize {
    /// Two filter tables, as in the paper (§4.1), with half as many slots of larger entries.
    pub const DEFAULT: Self = Self { pools: 64, requests: 4096, filters: 2, slots: 1 << 16 };
}

impl Default for CloneSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Decision for the first part of a request: slot of the table of cloned requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClonedRequest {
    /// Id of the request; 0: the slot is free.
    pub req_id: u64,
    /// Pool of the request.
    pub gaid: u32,
    /// Bit 0: the first server of the pair gets the request; bit 1: the second does.
    pub to: u8,
}

/// Fingerprint of an answer that has passed: slot of a filter table. The paper stores the id only; the pool keeps pools
/// apart, and the server distinguishes the parts of one answer from another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fingerprint {
    /// Id of the request; 0: the slot is free.
    pub req_id: u64,
    /// Pool of the request.
    pub gaid: u32,
    /// Server that answered first.
    pub sid: u16,
}

/// All register arrays of calls, allocated with the first pool and freed with the last one.
#[derive(Debug)]
pub struct CloneRegisters {
    size: CloneSize,
    /// One register: the last request number assigned (SEQ).
    pub numbers: RegisterArray<u64>,
    /// Latest report by pool and server (StateT).
    pub loads: RegisterArray<ServerReport>,
    /// Shadow copy of the loads (ShadowT).
    pub shadows: RegisterArray<ServerReport>,
    /// By hash of the id.
    pub requests: RegisterArray<ClonedRequest>,
    /// By filter table and hash of the id (FilterT).
    pub filters: RegisterArray<Fingerprint>,
    /// No register: copies of requests that an element in user space sends later.
    pub(crate) hedges: Hedges,
}

impl CloneRegisters {
    pub(crate) fn new(size: CloneSize) -> Self {
        let [.., numbers, loads, shadows, requests, filters] = &ARRAYS;
        Self {
            size,
            numbers: RegisterArray::new(numbers.stage, 1, 0),
            loads: RegisterArray::new(loads.stage, 0, ServerReport::default()),
            shadows: RegisterArray::new(shadows.stage, 0, ServerReport::default()),
            requests: RegisterArray::new(requests.stage, 0, ClonedRequest::default()),
            filters: RegisterArray::new(filters.stage, 0, Fingerprint::default()),
            hedges: None,
        }
    }

    /// Sizes, also before the allocation.
    #[must_use]
    pub fn size(&self) -> CloneSize {
        self.size
    }

    /// Allocates the memory, if that is not done yet.
    pub(crate) fn provide(&mut self) {
        let CloneSize { pools, requests, filters, slots } = self.size;
        if self.loads.size() < pools * MAX_SERVERS {
            let [.., of_loads, of_shadows, of_requests, of_filters] = &ARRAYS;
            self.loads = RegisterArray::new(of_loads.stage, pools * MAX_SERVERS, ServerReport::default());
            self.shadows = RegisterArray::new(of_shadows.stage, pools * MAX_SERVERS, ServerReport::default());
            self.requests = RegisterArray::new(of_requests.stage, requests, ClonedRequest::default());
            self.filters = RegisterArray::new(of_filters.stage, filters * slots, Fingerprint::default());
        }
    }

    /// Frees the memory with the last pool; the request number and the holder of hedges are kept.
    pub(crate) fn release(&mut self) {
        let numbers = self.numbers.peek(0, 1)[0];
        *self = Self { hedges: self.hedges.take(), ..Self::new(self.size) };
        self.numbers.reset(0, 1, numbers);
    }

    /// Moves the loads of a pool's servers to their new positions.
    pub(crate) fn move_loads(&mut self, place: usize, before: &[u32], after: &[u32]) {
        let at = place * MAX_SERVERS;
        for array in [&mut self.loads, &mut self.shadows] {
            let mut known = [ServerReport::default(); MAX_SERVERS];
            known.copy_from_slice(array.peek(at, MAX_SERVERS));
            for sid in 0..MAX_SERVERS {
                let server = after.get(sid).and_then(|server| before.iter().position(|other| other == server));
                array.reset(at + sid, 1, server.map_or(ServerReport::default(), |sid| known[sid]));
            }
        }
    }
}

/// Slot of an id in a table of `slots` slots.
pub(crate) fn slot_of(req_id: u64, slots: usize) -> usize {
    // 2^64 / golden ratio: consecutive ids are far apart.
    let hash = req_id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * slots as u64) >> 32) as usize
}
