//! Reclaim of locks in the element whose holder has left or lost its lease: finds and frees them, lock by lock.
//!
//! The server first reads a lock register, then frees it for exactly the acquisition that it contained, so a late
//! request never frees a newer grant.

use std::collections::VecDeque;

use pathcall_wire::map::LOCK_PARKED;
use pathcall_wire::{Instant, MapFrame};

use super::super::super::FrameSink;
use super::super::{Event, Events, OwnerContext};
use super::KeyedStore;
use super::lock_queues::send_free_request;
use super::sweep::Sweep;

/// Endpoints whose locks in the element are to be freed.
#[derive(Default)]
pub(super) struct LockReclaim {
    waiting: VecDeque<u32>,
    current: Option<ReclaimSweep>,
    /// Number of the current sweep, to recognise its answers.
    number: u32,
}

/// Reclaim of the locks of one endpoint.
struct ReclaimSweep {
    endpoint: u32,
    /// By row: tag of the acquisition to free; 0 if unknown or none.
    tags: Vec<u32>,
    sweep: Sweep,
}

impl LockReclaim {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.sweep.deadline())
    }

    /// Whether locks of this endpoint are being reclaimed.
    pub(super) fn is_reclaiming(&self, endpoint: u32) -> bool {
        self.waiting.contains(&endpoint) || self.current.as_ref().is_some_and(|current| current.endpoint == endpoint)
    }
}

impl KeyedStore {
    /// Whether locks are in the element.
    pub(in super::super) fn has_locks_in_element(&self, shared: &OwnerContext) -> bool {
        shared.config.locks && shared.config.grant.is_some() && self.table.mapped() > 0
    }

    /// Starts the reclaim of a former caller's locks, when the element does not admit it any more.
    pub(in super::super) fn on_caller_expelled(&mut self, now: Instant, endpoint: u32, shared: &OwnerContext) {
        self.reclaim_from_element(now, endpoint, shared);
    }

    /// Queues the reclaim of an endpoint's locks in the element.
    pub(super) fn reclaim_from_element(&mut self, now: Instant, endpoint: u32, shared: &OwnerContext) {
        if self.has_locks_in_element(shared) && !self.reclaim.waiting.contains(&endpoint) {
            self.reclaim.waiting.push_back(endpoint);
            self.start_next_reclaim(now);
        }
    }

    fn start_next_reclaim(&mut self, now: Instant) {
        if self.reclaim.current.is_none()
            && let Some(endpoint) = self.reclaim.waiting.pop_front()
        {
            self.reclaim.number = self.reclaim.number.wrapping_add(1).max(1);
            let tags = vec![0; self.table.mapped()];
            let sweep = Sweep::new(tags.len(), now, self.timing);
            self.reclaim.current = Some(ReclaimSweep { endpoint, tags, sweep });
        }
    }

    /// Handles the element's answer to a reclaim request.
    pub(in super::super) fn on_freed(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        if base.seq() == 0 {
            return self.on_returned(frame, shared, out);
        }
        let LockReclaim { current, number, .. } = &mut self.reclaim;
        let ReclaimSweep { endpoint, tags, sweep } = current.as_mut().filter(|_| base.seq() == *number)?;
        let (row, owner, tag, grants) = (map.index(), base.slot(), map.para().cast_unsigned(), base.round());
        let asked = tags.get_mut(row as usize)?;
        if *asked != map.tag() {
            return None;
        }
        let theirs = owner == *endpoint && tag & LOCK_PARKED == 0;
        if theirs && *asked != tag {
            *asked = tag;
            sweep.resend_request(now, row as usize);
            return Some(());
        }
        sweep.on_answer(now, row as usize).then_some(())?;
        if sweep.is_done() {
            *current = None;
            self.start_next_reclaim(now);
        }
        if theirs {
            self.on_freed_in_element(row, grants, shared, out);
        } else if tag & LOCK_PARKED != 0 {
            // The server may have missed the release.
            self.park(row, owner, tag & !LOCK_PARKED, grants);
        }
        Some(())
    }

    pub(super) fn poll_reclaim(
        &mut self,
        now: Instant,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
        events: &mut Events,
    ) {
        let LockReclaim { current, number, .. } = &mut self.reclaim;
        let Some(ReclaimSweep { endpoint, tags, sweep }) = current else { return };
        let answers = sweep.poll(now, |lock| {
            send_free_request(*number, lock as u32, (*endpoint, tags[lock]), 0, shared, out);
        });
        if !answers {
            *current = None;
            events.push_back(Event::ElementSilent);
        }
    }

    /// Stops all reclaims at the end of an epoch, which ends all locks in the element.
    pub(super) fn abort_reclaim(&mut self) {
        self.reclaim = LockReclaim { number: self.reclaim.number, ..LockReclaim::default() };
    }
}
