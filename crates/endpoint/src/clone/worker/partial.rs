//! Requests that have come in part. All attempts of a call ask the same, so their parts go together.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::{CloneFrame, Instant, Mutant, mutant};

use super::super::assembly::{Assembly, Taken};
use super::outgoing::Asked;
use super::{Key, WorkerStats};
use crate::tables::ByName;

/// Requests that have come in part, oldest first.
#[derive(Debug)]
pub(super) struct Partials {
    partials: ByName<Key, Partial>,
    /// Sent when, the last time; some are whole by now, or were sent again, and skipped.
    order: VecDeque<(Instant, Key)>,
    memory: usize,
    max: usize,
    keep: Duration,
}

/// Entries of the order that mean nothing any more, beyond one for each request, before they are swept out.
const GONE_MAX: usize = 64;

#[derive(Debug)]
struct Partial {
    /// Its newest attempt.
    asked: Asked,
    since: Instant,
    assembly: Assembly,
}

impl Partials {
    pub(super) fn new(max: usize, keep: Duration) -> Self {
        Self { partials: ByName::default(), order: VecDeque::new(), memory: 0, max, keep }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partials.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// When the oldest is forgotten; it may be gone before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|(since, _)| *since + self.keep)
    }

    /// Takes a part of a request, which may grow by `room` bytes; the whole of it once it is there.
    pub(super) fn take(
        &mut self,
        now: Instant,
        key: Key,
        asked: Asked,
        frame: &CloneFrame<&[u8]>,
        room: usize,
        stats: &mut WorkerStats,
    ) -> Option<(Asked, Bytes)> {
        let (part, parts) = (frame.head().part(), frame.head().parts());
        if parts == 1 {
            self.forget(&key);
            return Some((asked, Bytes::copy_from_slice(frame.payload())));
        }
        if !self.partials.contains_key(&key) {
            while self.partials.len() >= self.max && self.forget_oldest() {
                stats.expired += 1;
            }
            self.partials.insert(key, Partial { asked, since: now, assembly: Assembly::new(parts) });
            self.queue_up(now, key);
        }
        let newer = self.partials.get(&key).is_some_and(|partial| asked.attempt() > partial.asked.attempt());
        if newer {
            // All of it is on its way once more: what is there is not forgotten in the middle of that.
            self.queue_up(now, key);
        }
        let partial = self.partials.get_mut(&key)?;
        // Parts that came to the element before the first do not know that the request is cloned.
        if (asked.attempt(), asked.clo()) > (partial.asked.attempt(), partial.asked.clo()) {
            partial.asked = asked;
        }
        let before = partial.assembly.memory();
        let end = (usize::from(part) + 1) * pathcall_wire::clone::PART;
        if end.saturating_sub(before) > room {
            stats.overflowed += 1;
            return None;
        }
        let taken = partial.assembly.take(part, parts, frame.payload());
        self.memory = self.memory - before + partial.assembly.memory();
        match taken {
            Taken::Whole(request) => return Some((self.partials.remove(&key)?.asked, request)),
            Taken::Part => {}
            Taken::Repeat => stats.repeats += 1,
            Taken::Refused => stats.ignored += 1,
        }
        None
    }

    /// A request is kept for its time from now on.
    fn queue_up(&mut self, now: Instant, key: Key) {
        let Some(partial) = self.partials.get_mut(&key) else { return };
        partial.since = now;
        if self.order.len() > 2 * self.partials.len() + GONE_MAX {
            let partials = &self.partials;
            self.order.retain(|(since, key)| partials.get(key).is_some_and(|partial| partial.since == *since));
        }
        if !mutant::on(Mutant::ClonePartialKept) {
            self.order.push_back((now, key));
        }
    }

    /// Forgets a request; whether it was there.
    pub(super) fn forget(&mut self, key: &Key) -> bool {
        let gone = self.partials.remove(key);
        self.memory -= gone.as_ref().map_or(0, |partial| partial.assembly.memory());
        gone.is_some()
    }

    /// Forgets what has come in part for too long; how many.
    pub(super) fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        while let Some(&(since, key)) = self.order.front()
            && since + self.keep <= now
        {
            self.order.pop_front();
            expired += u64::from(self.is_of(since, &key) && self.forget(&key));
        }
        expired
    }

    /// Forgets the oldest; false when there is none.
    fn forget_oldest(&mut self) -> bool {
        while let Some((since, key)) = self.order.pop_front() {
            if self.is_of(since, &key) {
                return self.forget(&key);
            }
        }
        false
    }

    /// Whether an entry of the order is that of a request which is here: one of the same name that began later has
    /// an entry of its own.
    fn is_of(&self, since: Instant, key: &Key) -> bool {
        self.partials.get(key).is_some_and(|partial| partial.since == since)
    }
}
