//! The register arrays of calls, in stage order.

use pathcall_wire::clone::MAX_SERVERS;

use crate::layout::ARRAYS;
use crate::registers::RegisterArray;

/// Sizes of the tables for calls to pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneSize {
    /// Pools.
    pub pools: usize,
    /// Slots of the table of cloned requests: requests of several parts that arrive at one time.
    pub requests: usize,
    /// Filter tables.
    pub filters: usize,
    /// Slots of each.
    pub slots: usize,
}

impl CloneSize {
    /// Two filter tables, as in the paper (§4.1), of half as many slots, each of which keeps more.
    pub const DEFAULT: Self = Self { pools: 64, requests: 4096, filters: 2, slots: 1 << 16 };
}

impl Default for CloneSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What the first part of a request was found to be: a slot of the table of cloned requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cloned {
    /// The request's id; 0: the slot is free.
    pub req_id: u64,
    /// Its pool.
    pub gaid: u32,
    /// Bit 0: the first of its pair gets it; bit 1: the second does.
    pub to: u8,
}

/// Which answer has passed: a slot of a filter table. The paper keeps the id alone; with the pool no other
/// pool's answers are stopped, with the server the parts of one answer are told from another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fingerprint {
    /// The request's id; 0: the slot is free.
    pub req_id: u64,
    /// Its pool.
    pub gaid: u32,
    /// The server that answered first.
    pub sid: u16,
}

/// All arrays of calls. They take memory with the first pool, and are free again with the last one.
#[derive(Debug)]
pub struct CloneRegisters {
    size: CloneSize,
    /// One: the last number that was given to a request (SEQ).
    pub numbers: RegisterArray<u64>,
    /// By pool and server: requests that wait there (StateT).
    pub loads: RegisterArray<u16>,
    /// The same again (ShadowT).
    pub shadows: RegisterArray<u16>,
    /// By hash of the id.
    pub requests: RegisterArray<Cloned>,
    /// By table and hash of the id (FilterT).
    pub filters: RegisterArray<Fingerprint>,
}

impl CloneRegisters {
    pub(crate) fn new(size: CloneSize) -> Self {
        let [.., numbers, loads, shadows, requests, filters] = &ARRAYS;
        Self {
            size,
            numbers: RegisterArray::new(numbers.stage, 1, 0),
            loads: RegisterArray::new(loads.stage, 0, 0),
            shadows: RegisterArray::new(shadows.stage, 0, 0),
            requests: RegisterArray::new(requests.stage, 0, Cloned::default()),
            filters: RegisterArray::new(filters.stage, 0, Fingerprint::default()),
        }
    }

    /// How large they are, or will be.
    #[must_use]
    pub fn size(&self) -> CloneSize {
        self.size
    }

    /// Takes the memory, if that is not done yet.
    pub(crate) fn provide(&mut self) {
        let CloneSize { pools, requests, filters, slots } = self.size;
        if self.loads.size() < pools * MAX_SERVERS {
            let [.., of_loads, of_shadows, of_requests, of_filters] = &ARRAYS;
            self.loads = RegisterArray::new(of_loads.stage, pools * MAX_SERVERS, 0);
            self.shadows = RegisterArray::new(of_shadows.stage, pools * MAX_SERVERS, 0);
            self.requests = RegisterArray::new(of_requests.stage, requests, Cloned::default());
            self.filters = RegisterArray::new(of_filters.stage, filters * slots, Fingerprint::default());
        }
    }

    /// Gives the memory back, with the last pool; numbers go on.
    pub(crate) fn release(&mut self) {
        let numbers = self.numbers.peek(0, 1)[0];
        *self = Self::new(self.size);
        self.numbers.reset(0, 1, numbers);
    }

    /// Takes the loads of a pool's servers to their new places.
    pub(crate) fn rearrange(&mut self, place: usize, before: &[u32], after: &[u32]) {
        let at = place * MAX_SERVERS;
        for array in [&mut self.loads, &mut self.shadows] {
            let mut known = [0; MAX_SERVERS];
            known.copy_from_slice(array.peek(at, MAX_SERVERS));
            for sid in 0..MAX_SERVERS {
                let server = after.get(sid).and_then(|server| before.iter().position(|other| other == server));
                array.reset(at + sid, 1, server.map_or(0, |sid| known[sid]));
            }
        }
    }
}

/// Where an id belongs among so many slots.
pub(crate) fn place_of(req_id: u64, slots: usize) -> usize {
    // 2^64 / golden ratio: ids that follow each other are far apart.
    let hash = req_id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * slots as u64) >> 32) as usize
}
