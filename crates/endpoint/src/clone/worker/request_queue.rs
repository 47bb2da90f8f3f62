//! Requests that wait or are in progress, and the history of completed ones, by which late copies are ignored.

use std::collections::VecDeque;

use bytes::Bytes;
use pathcall_wire::Instant;

use super::outgoing::RequestHeader;
use super::{PoolRequestId, RequestKey};
use crate::tables::SeededHashMap;

/// Complete request.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) key: RequestKey,
    /// Header of the attempt that is answered: the newest, except for a cloned request, because the element matches the
    /// two answers of a clone by its id.
    pub(super) header: RequestHeader,
    /// Newest attempt received.
    pub(super) newest: u8,
    pub(super) payload: Bytes,
    pub(super) since: Instant,
    pub(super) is_begun: bool,
    /// Whether the caller no longer needs the answer.
    pub(super) unwanted: bool,
    /// Time of the report to the caller that the request is in progress.
    pub(super) report_at: Option<Instant>,
}

/// Requests by id and by key, and the queue of the waiting ones: first come, first served.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_key: SeededHashMap<RequestKey, PoolRequestId>,
    /// Waiting requests in order; ids of removed ones are skipped.
    queue: VecDeque<PoolRequestId>,
    waiting: usize,
    /// Bytes of the waiting requests.
    memory: usize,
}

#[derive(Debug, Default)]
struct Slot {
    /// Number of requests that used the slot: ids of former ones are invalid.
    generation: u32,
    request: Option<QueuedRequest>,
}

/// Ids of removed requests in the queue, beyond one for each waiting request, before they are removed.
const OBSOLETE_MAX: usize = 256;

impl RequestQueue {
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    pub(super) fn find(&self, key: &RequestKey) -> Option<PoolRequestId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn get_mut(&mut self, id: PoolRequestId) -> Option<&mut QueuedRequest> {
        let slot = self.slots.get_mut(id.0 as u32 as usize)?;
        slot.request.as_mut().filter(|_| slot.generation == (id.0 >> 32) as u32)
    }

    /// Appends a request to the queue.
    pub(super) fn push(&mut self, request: QueuedRequest) -> PoolRequestId {
        let at = self.free.pop().unwrap_or(self.slots.len() as u32);
        if at as usize == self.slots.len() {
            self.slots.push(Slot::default());
        }
        let slot = &mut self.slots[at as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let id = PoolRequestId(u64::from(slot.generation) << 32 | u64::from(at));
        self.by_key.insert(request.key, id);
        self.waiting += 1;
        self.memory += request.payload.len();
        slot.request = Some(request);
        self.queue.push_back(id);
        id
    }

    /// Begins the request that has waited longest; the caller takes its payload.
    pub(super) fn begin(&mut self) -> Option<(PoolRequestId, &mut QueuedRequest)> {
        while let Some(id) = self.queue.pop_front() {
            if self.get_mut(id).is_some_and(|request| !request.is_begun) {
                self.waiting -= 1;
                let memory = self.get_mut(id).map_or(0, |request| request.payload.len());
                self.memory -= memory;
                let request = self.get_mut(id)?;
                request.is_begun = true;
                return Some((id, request));
            }
        }
        None
    }

    /// Removes a request.
    pub(super) fn remove(&mut self, id: PoolRequestId) -> Option<QueuedRequest> {
        self.get_mut(id)?;
        let at = id.0 as u32;
        let request = self.slots[at as usize].request.take()?;
        self.free.push(at);
        self.by_key.remove(&request.key);
        if !request.is_begun {
            self.waiting -= 1;
            self.memory -= request.payload.len();
            if self.queue.len() > 2 * self.waiting + OBSOLETE_MAX {
                let mut queue = std::mem::take(&mut self.queue);
                queue.retain(|id| self.get_mut(*id).is_some_and(|request| !request.is_begun));
                self.queue = queue;
            }
        }
        Some(request)
    }
}

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
