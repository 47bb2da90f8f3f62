//! Locks in the element whose holder has left or lost its lease: finds them, lock by lock, and has them
//! freed.
//!
//! A register is first read, then freed for exactly the acquiring that it named: so a request that
//! comes late frees nobody else's.

use std::collections::VecDeque;

use pathcall_wire::map::LOCK_PARKED;
use pathcall_wire::{Instant, MapFrame};

use super::super::super::Outbox;
use super::super::{Event, Events, Shared};
use super::KeyedTruth;
use super::line::ask_free;
use super::sweep::Sweep;

/// Endpoints whose locks are to be freed.
#[derive(Default)]
pub(super) struct Freeing {
    waiting: VecDeque<u32>,
    current: Option<Sweeping>,
    /// Tells one sweep's answers from another's.
    number: u32,
}

struct Sweeping {
    endpoint: u32,
    /// By row: the acquiring that is to be freed; 0: not known yet, or none.
    tags: Vec<u32>,
    sweep: Sweep,
}

impl Freeing {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.sweep.deadline())
    }

    /// Whether locks of this endpoint are still to be freed.
    pub(super) fn is_about(&self, endpoint: u32) -> bool {
        self.waiting.contains(&endpoint) || self.current.as_ref().is_some_and(|current| current.endpoint == endpoint)
    }
}

impl KeyedTruth {
    /// Whether there are locks in the element.
    pub(in super::super) fn has_locks_away(&self, shared: &Shared) -> bool {
        shared.config.locks && shared.config.grant.is_some() && self.table.mapped() > 0
    }

    /// The element no longer lets in a caller that has left.
    pub(in super::super) fn gone(&mut self, now: Instant, endpoint: u32, shared: &Shared) {
        self.free_away(now, endpoint, shared);
    }

    /// Frees what an endpoint holds in the element.
    pub(super) fn free_away(&mut self, now: Instant, endpoint: u32, shared: &Shared) {
        if self.has_locks_away(shared) && !self.freeing.waiting.contains(&endpoint) {
            self.freeing.waiting.push_back(endpoint);
            self.free_next(now);
        }
    }

    fn free_next(&mut self, now: Instant) {
        if self.freeing.current.is_none()
            && let Some(endpoint) = self.freeing.waiting.pop_front()
        {
            self.freeing.number = self.freeing.number.wrapping_add(1).max(1);
            let tags = vec![0; self.table.mapped()];
            let sweep = Sweep::new(tags.len(), now, self.timing);
            self.freeing.current = Some(Sweeping { endpoint, tags, sweep });
        }
    }

    /// The element has answered.
    pub(in super::super) fn freed(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        if base.seq() == 0 {
            return self.returned(frame, shared, out);
        }
        let Freeing { current, number, .. } = &mut self.freeing;
        let Sweeping { endpoint, tags, sweep } = current.as_mut().filter(|_| base.seq() == *number)?;
        let (row, owner, tag, grants) = (map.index(), base.slot(), map.para().cast_unsigned(), base.round());
        let asked = tags.get_mut(row as usize)?;
        if *asked != map.tag() {
            return None;
        }
        let theirs = owner == *endpoint && tag & LOCK_PARKED == 0;
        if theirs && *asked != tag {
            *asked = tag;
            sweep.ask_again(now, row as usize);
            return Some(());
        }
        sweep.answered(now, row as usize).then_some(())?;
        if sweep.is_done() {
            *current = None;
            self.free_next(now);
        }
        if theirs {
            self.freed_away(row, grants, shared, out);
        } else if tag & LOCK_PARKED != 0 {
            // Its release may never have come here.
            self.park(row, owner, tag & !LOCK_PARKED, grants);
        }
        Some(())
    }

    pub(super) fn poll_freeing(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        out: &mut impl Outbox,
        events: &mut Events,
    ) {
        let Freeing { current, number, .. } = &mut self.freeing;
        let Some(Sweeping { endpoint, tags, sweep }) = current else { return };
        let answers = sweep.poll(now, |lock| {
            ask_free(*number, lock as u32, (*endpoint, tags[lock]), 0, shared, out);
        });
        if !answers {
            *current = None;
            events.push_back(Event::ElementSilent);
        }
    }

    /// The epoch has ended, and with it every lock in the element.
    pub(super) fn forget_freeing(&mut self) {
        self.freeing = Freeing { number: self.freeing.number, ..Freeing::default() };
    }
}
