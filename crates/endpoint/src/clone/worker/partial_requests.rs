//! Partial requests. All attempts of a call carry the same request, so their parts are combined.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::{CloneFrame, Instant, Mutant, mutant};

use super::super::assembly::{AddOutcome, Assembly};
use super::outgoing::RequestHeader;
use super::{CloneWorkerStats, RequestKey};
use crate::tables::SeededHashMap;

/// Partial requests, oldest first.
#[derive(Debug)]
pub(super) struct PartialRequests {
    partials: SeededHashMap<RequestKey, Partial>,
    /// Times of the last attempts; entries of completed or repeated requests are skipped.
    order: VecDeque<(Instant, RequestKey)>,
    memory: usize,
    max: usize,
    keep: Duration,
}

/// Obsolete entries of the order, beyond one for each request, before they are removed.
const OBSOLETE_MAX: usize = 64;

#[derive(Debug)]
struct Partial {
    /// Header of the newest attempt.
    header: RequestHeader,
    since: Instant,
    assembly: Assembly,
}

impl PartialRequests {
    pub(super) fn new(max: usize, keep: Duration) -> Self {
        Self { partials: SeededHashMap::default(), order: VecDeque::new(), memory: 0, max, keep }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partials.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Time at which the oldest is dropped; it may be complete before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|(since, _)| *since + self.keep)
    }

    /// Adds a part of a request, which may grow by `room` bytes; returns the request when it is complete.
    pub(super) fn add_part(
        &mut self,
        now: Instant,
        key: RequestKey,
        header: RequestHeader,
        frame: &CloneFrame<&[u8]>,
        room: usize,
        stats: &mut CloneWorkerStats,
    ) -> Option<(RequestHeader, Bytes)> {
        let (part, parts) = (frame.head().part(), frame.head().parts());
        if parts == 1 {
            self.forget(&key);
            return Some((header, Bytes::copy_from_slice(frame.payload())));
        }
        if !self.partials.contains_key(&key) {
            while self.partials.len() >= self.max && self.forget_oldest() {
                stats.expired += 1;
            }
            self.partials.insert(key, Partial { header, since: now, assembly: Assembly::new(parts) });
            self.restart_expiry(now, key);
        }
        let newer = self.partials.get(&key).is_some_and(|partial| header.attempt() > partial.header.attempt());
        if newer {
            // The whole request is on its way again: the existing parts must not expire meanwhile.
            self.restart_expiry(now, key);
        }
        let partial = self.partials.get_mut(&key)?;
        // Parts that the element received before the first part do not carry the clone flag.
        if (header.attempt(), header.clo()) > (partial.header.attempt(), partial.header.clo()) {
            partial.header = header;
        }
        let before = partial.assembly.memory();
        let end = (usize::from(part) + 1) * pathcall_wire::clone::PART;
        if end.saturating_sub(before) > room {
            stats.overflowed += 1;
            return None;
        }
        let taken = partial.assembly.add(part, parts, frame.payload());
        self.memory = self.memory - before + partial.assembly.memory();
        match taken {
            AddOutcome::Complete(request) => return Some((self.partials.remove(&key)?.header, request)),
            AddOutcome::Incomplete => {}
            AddOutcome::Duplicate => stats.repeats += 1,
            AddOutcome::Rejected => stats.ignored += 1,
        }
        None
    }

    /// Restarts the expiry time of a request.
    fn restart_expiry(&mut self, now: Instant, key: RequestKey) {
        let Some(partial) = self.partials.get_mut(&key) else { return };
        partial.since = now;
        if self.order.len() > 2 * self.partials.len() + OBSOLETE_MAX {
            let partials = &self.partials;
            self.order.retain(|(since, key)| partials.get(key).is_some_and(|partial| partial.since == *since));
        }
        if !mutant::on(Mutant::ClonePartialKept) {
            self.order.push_back((now, key));
        }
    }

    /// Drops a request; returns whether it was there.
    pub(super) fn forget(&mut self, key: &RequestKey) -> bool {
        let removed = self.partials.remove(key);
        self.memory -= removed.as_ref().map_or(0, |partial| partial.assembly.memory());
        removed.is_some()
    }

    /// Drops expired requests; returns their number.
    pub(super) fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        while let Some(&(since, key)) = self.order.front()
            && since + self.keep <= now
        {
            self.order.pop_front();
            expired += u64::from(self.is_current(since, &key) && self.forget(&key));
        }
        expired
    }

    /// Drops the oldest request; false when there is none.
    fn forget_oldest(&mut self) -> bool {
        while let Some((since, key)) = self.order.pop_front() {
            if self.is_current(since, &key) {
                return self.forget(&key);
            }
        }
        false
    }

    /// Returns whether an entry of the order belongs to a current request: a later request with the same key has an
    /// entry of its own.
    fn is_current(&self, since: Instant, key: &RequestKey) -> bool {
        self.partials.get(key).is_some_and(|partial| partial.since == since)
    }
}
