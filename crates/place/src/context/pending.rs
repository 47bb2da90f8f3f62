//! Table of the requests of a context that have no answer yet.

use bytes::Bytes;
use pathcall_wire::Instant;

use crate::path::{KindId, PathId};
use crate::select::Ticket;

/// Request, from [`send`](super::PlaceContext::send) to its answer.
#[derive(Debug, Clone)]
pub(super) struct PendingRequest {
    pub(super) tag: u64,
    pub(super) kind: KindId,
    pub(super) payload: Bytes,
    pub(super) ticket: Ticket,
    /// Whether all paths have failed, and the CPUs execute it.
    pub(super) run_on_cpus: bool,
    pub(super) path: Option<PathId>,
    /// Path of the last failed attempt.
    pub(super) failed_path: Option<PathId>,
    pub(super) trip: u8,
    pub(super) attempts: u32,
    /// Time of the call of `send`.
    pub(super) began: Instant,
    /// Start of this attempt.
    pub(super) sent: Instant,
    /// `t1` of this trip, or `t5` of the previous one.
    pub(super) from: Instant,
    /// Time within the hosts so far; `None` if a part was not measured.
    pub(super) intra_ns: Option<u64>,
    /// Reason of the last failure.
    pub(super) reason: String,
    /// Number of its record in the log.
    pub(super) record: u64,
}

/// Number of requests and jobs in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PendingWork {
    /// Requests of this context, in flight or waiting.
    pub requests: usize,
    /// Jobs of its devices, those of other sides' requests included.
    pub jobs: usize,
}

/// Requests by the index of their ticket; an id identifies one attempt.
pub(super) type PendingRequests = SlotTable<PendingRequest>;

/// Values by index. The id of a value has the generation of its slot, too, so that an old id finds nothing.
#[derive(Debug)]
pub(super) struct SlotTable<T> {
    slots: Vec<(u32, Option<T>)>,
    count: usize,
}

impl<T> SlotTable<T> {
    pub(super) fn new(max: usize) -> Self {
        Self { slots: (0..max).map(|_| (0, None)).collect(), count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn has_room(&self) -> bool {
        self.count < self.slots.len()
    }

    /// Fills a free slot.
    pub(super) fn insert(&mut self, at: u32, value: T) {
        self.slots[at as usize].1 = Some(value);
        self.count += 1;
    }

    pub(super) fn id(&self, at: u32) -> u64 {
        (u64::from(self.slots[at as usize].0) << 32) | u64::from(at)
    }

    /// Gives the slot a new id; the highest bit is never set.
    pub(super) fn renew_id(&mut self, at: u32) {
        let (generation, _) = &mut self.slots[at as usize];
        *generation = (*generation + 1) & (u32::MAX >> 1);
    }

    /// Slot with this id, unless the id is old.
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        let at = id as u32;
        let (generation, value) = self.slots.get(at as usize)?;
        (*generation == (id >> 32) as u32 && value.is_some()).then_some(at)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.1.as_mut()
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let value = self.slots.get_mut(at as usize)?.1.take()?;
        self.renew_id(at);
        self.count -= 1;
        Some(value)
    }
}

impl PendingRequests {
    pub(super) fn of_ticket(&self, ticket: Ticket) -> Option<u32> {
        let at = ticket.index();
        (self.slots.get(at)?.1.as_ref()?.ticket == ticket).then_some(at as u32)
    }
}
