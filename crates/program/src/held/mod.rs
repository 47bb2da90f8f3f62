//! Held hedges: copies of requests that an element in user space sends to another server after a delay.
//!
//! ```text
//! request ─▶ hold ─▶ held ─┬─ an answer or a cancellation first ─▶ dropped ─┐
//!                          └─ its time comes ─▶ send_due ─▶ sent ───────────┴─▶ known, until the place is reused
//! ```
//!
//! The state machine has no clock and no timer: the element passes the time in, and asks for the [deadline] of the next
//! copy. All memory is allocated at the start, and nothing for a frame. A call stays known after its copy is dropped or
//! sent, so that a repeat of its request is not held again, that all parts of its answer tell the caller the same, and
//! that a cancellation finds the server that has the copy.
//!
//! [deadline]: HeldHedges::deadline

mod due_queue;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use pathcall_wire::{Instant, MAX_FRAME, Mutant, mutant};

use crate::tables::ById;
use crate::{CallName, HedgeCounters};
use due_queue::DueQueue;

/// Sizes of the memory for held hedges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldHedgesSize {
    /// Copies that are held at once, of all pools; each has room for the longest frame.
    pub copies: usize,
    /// Calls that are known: those with a copy, and the last ones without. At least twice as many.
    pub calls: usize,
}

impl HeldHedgesSize {
    /// 8,192 copies: those of 10 ms of 400,000 calls per second of one pool.
    pub const DEFAULT: Self = Self { copies: 1 << 13, calls: 1 << 15 };
}

impl Default for HeldHedgesSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Index of no call.
const NONE: u32 = u32::MAX;

/// Known call.
#[derive(Debug, Clone, Copy)]
struct HeldCall {
    name: CallName,
    /// Next call with the same hash.
    next: u32,
    /// Server that got the request.
    first: u32,
    state: CopyState,
}

/// State of the copy of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyState {
    /// In this buffer, of this length.
    Held { buffer: u32, len: u16 },
    /// Never held, because there was no room.
    Refused,
    /// Dropped, never sent.
    Dropped,
    /// Sent to this server.
    Sent(u32),
}

/// Hedges of one pool.
#[derive(Debug, Clone, Copy, Default)]
struct PoolHedges {
    held: usize,
    counters: HedgeCounters,
}

/// Copies of requests that an element holds.
#[derive(Debug)]
pub struct HeldHedges {
    size: HeldHedgesSize,
    calls: Vec<HeldCall>,
    /// First call of each hash; a power of two.
    heads: Box<[u32]>,
    /// Odd and random, so that nobody can send calls that share a hash (multiply-shift, Dietzfelbinger et al. 1997).
    multiplier: u64,
    due: DueQueue,
    /// Calls without a copy, the oldest first.
    over: VecDeque<u32>,
    /// Buffers of the copies, and the free ones.
    bytes: Box<[u8]>,
    free: Vec<u32>,
    pools: ById<PoolHedges>,
}

impl HeldHedges {
    /// Holder without copies. The memory of the buffers is used only as copies are held.
    #[must_use]
    pub fn new(size: HeldHedgesSize) -> Self {
        let HeldHedgesSize { copies, calls } = size;
        let size = HeldHedgesSize { copies, calls: calls.max(2 * copies) };
        Self {
            size,
            calls: Vec::with_capacity(size.calls),
            heads: vec![NONE; size.calls.next_power_of_two().max(2)].into(),
            multiplier: RandomState::new().hash_one(0) | 1,
            due: DueQueue::new(size.calls, copies),
            over: VecDeque::with_capacity(size.calls),
            bytes: vec![0; copies * MAX_FRAME].into(),
            free: (0..copies as u32).rev().collect(),
            pools: ById::default(),
        }
    }

    /// Time of the next copy to send.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| at)
    }

    /// Number of copies that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.size.copies - self.free.len()
    }

    /// Counters of each pool that had held copies, unordered.
    pub fn counters(&self) -> impl Iterator<Item = (u32, HedgeCounters)> {
        self.pools.iter().map(|(gaid, pool)| (*gaid, pool.counters))
    }

    /// Counters of one pool.
    #[must_use]
    pub fn counters_of(&self, gaid: u32) -> HedgeCounters {
        self.pools.get(&gaid).map_or_else(HedgeCounters::default, |pool| pool.counters)
    }

    /// Sends the copies whose time has come. `send` gets the copy and the server that has the request; it returns the
    /// server that the copy went to, `None` if there is none.
    pub fn send_due(&mut self, now: Instant, mut send: impl FnMut(&mut [u8], u32) -> Option<u32>) {
        while let Some((at, index)) = self.due.first()
            && at <= now
        {
            let HeldCall { first, state, name, .. } = self.calls[index as usize];
            let CopyState::Held { buffer, len } = state else { return debug_assert!(false, "{state:?} is due") };
            let start = buffer as usize * MAX_FRAME;
            let sent = send(&mut self.bytes[start..start + usize::from(len)], first);
            let state = sent.map_or(CopyState::Dropped, CopyState::Sent);
            self.release(index, state);
            let counters = &mut self.pools.entry(name.gaid).or_default().counters;
            counters.hedges_sent += u64::from(sent.is_some());
            counters.hedges_lost += u64::from(sent.is_none());
        }
    }

    /// Forgets the counters and copies of a pool.
    pub fn forget_pool(&mut self, gaid: u32) {
        for index in 0..self.calls.len() as u32 {
            if self.calls[index as usize].name.gaid == gaid {
                self.drop_copy(index);
            }
        }
        self.pools.remove(&gaid);
    }

    fn find(&self, name: &CallName) -> Option<u32> {
        let mut at = self.heads[self.hash(name)];
        while at != NONE {
            let call = &self.calls[at as usize];
            if call.name == *name {
                return Some(at);
            }
            at = call.next;
        }
        None
    }

    fn hash(&self, name: &CallName) -> usize {
        let ends = u64::from(name.caller) << 32 | u64::from(name.seq);
        let mixed = (ends ^ u64::from(name.gaid).rotate_left(16)).wrapping_mul(self.multiplier);
        (mixed >> (u64::BITS - self.heads.len().ilog2())) as usize
    }

    /// Adds a call, in the place of the oldest one without a copy if all places are in use.
    fn insert(&mut self, call: HeldCall) -> Option<u32> {
        let index = if self.calls.len() < self.size.calls {
            self.calls.push(call);
            self.calls.len() as u32 - 1
        } else {
            let oldest = self.over.pop_front()?;
            self.unlink(oldest);
            self.calls[oldest as usize] = call;
            oldest
        };
        let hash = self.hash(&call.name);
        self.calls[index as usize].next = std::mem::replace(&mut self.heads[hash], index);
        Some(index)
    }

    fn unlink(&mut self, index: u32) {
        let HeldCall { name, next, .. } = self.calls[index as usize];
        let hash = self.hash(&name);
        if self.heads[hash] == index {
            self.heads[hash] = next;
            return;
        }
        let mut at = self.heads[hash];
        while at != NONE && self.calls[at as usize].next != index {
            at = self.calls[at as usize].next;
        }
        if let Some(before) = self.calls.get_mut(at as usize) {
            before.next = next;
        }
    }

    /// Drops the copy of a call, if it is held.
    fn drop_copy(&mut self, index: u32) {
        let HeldCall { name, state, .. } = self.calls[index as usize];
        if matches!(state, CopyState::Held { .. }) {
            self.release(index, CopyState::Dropped);
            if let Some(pool) = self.pools.get_mut(&name.gaid) {
                pool.counters.hedges_dropped += 1;
            }
        }
    }

    /// Frees the buffer of a call.
    fn release(&mut self, index: u32, state: CopyState) {
        let call = &mut self.calls[index as usize];
        let CopyState::Held { buffer, .. } = std::mem::replace(&mut call.state, state) else { return };
        self.due.remove(index);
        self.free.push(buffer);
        self.over.push_back(index);
        if let Some(pool) = self.pools.get_mut(&call.name.gaid) {
            pool.held -= 1;
        }
    }

    /// Holds a copy of a request that leaves for server `first`, for this many microseconds; a copy of a call that is
    /// known already is not held again. Returns whether a copy of the call is held, or was.
    pub(crate) fn hold(&mut self, now: Instant, name: CallName, delay_us: u32, first: u32, request: &[u8]) -> bool {
        if let Some(known) = self.find(&name) {
            let state = self.calls[known as usize].state;
            if matches!(state, CopyState::Held { .. }) || !mutant::on(Mutant::CloneHeldTwice) {
                return state != CopyState::Refused;
            }
        }
        let pool = self.pools.entry(name.gaid).or_default();
        // A pool gets at most as many buffers as are left for others (dynamic thresholds, Choudhury and Hahne 1998).
        let fits = pool.held < self.free.len() && request.len() <= MAX_FRAME;
        let Some(buffer) = self.free.pop_if(|_| fits) else {
            pool.counters.hedges_full += 1;
            // A late repeat of the request must not be held either.
            if let Some(index) = self.insert(HeldCall { name, next: NONE, first, state: CopyState::Refused }) {
                self.over.push_back(index);
            }
            return false;
        };
        (pool.held, pool.counters.hedges_held) = (pool.held + 1, pool.counters.hedges_held + 1);
        let start = buffer as usize * MAX_FRAME;
        self.bytes[start..start + request.len()].copy_from_slice(request);
        let state = CopyState::Held { buffer, len: request.len() as u16 };
        let Some(index) = self.insert(HeldCall { name, next: NONE, first, state }) else { return false };
        let delay_us = if mutant::on(Mutant::CloneHedgeEarly) { delay_us / 2 } else { delay_us };
        self.due.insert(index, now + Duration::from_micros(delay_us.into()));
        true
    }

    /// Drops the copy of a call that has an answer. Returns whether the call is known and no copy of it was sent.
    pub(crate) fn answer(&mut self, name: CallName) -> bool {
        let Some(index) = self.find(&name) else { return false };
        if !mutant::on(Mutant::CloneHedgeKept) {
            self.drop_copy(index);
        }
        self.calls[index as usize].state == CopyState::Dropped
    }

    /// Drops the copy of a cancelled call. If it was sent, and `server` is one of the two servers that have the call,
    /// returns the other one.
    pub(crate) fn cancel(&mut self, name: CallName, server: u32) -> Option<u32> {
        let index = self.find(&name)?;
        self.drop_copy(index);
        let HeldCall { first, state, .. } = self.calls[index as usize];
        match state {
            CopyState::Sent(second) if server == first => Some(second),
            CopyState::Sent(second) if server == second => Some(first),
            _ => None,
        }
    }

    /// Whether no call is known.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}
