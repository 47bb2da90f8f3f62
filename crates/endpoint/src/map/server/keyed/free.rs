//! Locks in the element whose holder has left: asks the element, lock by lock, to free them.

use std::collections::VecDeque;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Instant, Kind, MapFlags, MapFrame, MapRepr};

use super::super::super::{Dest, Outbox};
use super::super::{Event, Events, Shared};
use super::KeyedTruth;
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
    sweep: Sweep,
}

impl Freeing {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.sweep.deadline())
    }
}

impl KeyedTruth {
    /// Whether there are locks in the element.
    pub(in super::super) fn has_locks_away(&self, shared: &Shared) -> bool {
        shared.config.locks && shared.config.grant.is_some() && self.table.mapped() > 0
    }

    pub(in super::super) fn gone(&mut self, now: Instant, endpoint: u32, shared: &Shared) {
        if self.has_locks_away(shared) {
            self.freeing.waiting.push_back(endpoint);
            self.free_next(now);
        }
    }

    fn free_next(&mut self, now: Instant) {
        if self.freeing.current.is_none()
            && let Some(endpoint) = self.freeing.waiting.pop_front()
        {
            self.freeing.number = self.freeing.number.wrapping_add(1);
            let sweep = Sweep::new(self.table.mapped(), now, self.timing);
            self.freeing.current = Some(Sweeping { endpoint, sweep });
        }
    }

    /// The element has answered.
    pub(in super::super) fn freed(&mut self, now: Instant, frame: &MapFrame<&[u8]>) -> Option<()> {
        let Freeing { current, number, .. } = &mut self.freeing;
        let Sweeping { sweep, .. } = current.as_mut().filter(|_| frame.base().seq() == *number)?;
        sweep.answered(now, frame.map().index() as usize).then_some(())?;
        if sweep.is_done() {
            *current = None;
            self.free_next(now);
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
        let Some(Sweeping { endpoint, sweep }) = current else { return };
        let answers = sweep.poll(now, |lock| {
            let mut base = shared.base(Kind::MapFree, 0);
            (base.dst, base.dst_incarnation, base.seq) = (base.src, base.src_incarnation, *number);
            let map = MapRepr { flags: MapFlags::BARE, index: lock as u32, threshold: *endpoint, ..MapRepr::default() };
            let len = frame_len(map.flags, 0, 0);
            emit(&base, &map, &mut shared.scratch[..len]);
            shared.send(Dest::Element, len, out);
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
