//! Late binding in the selector: requests enter the common queue, and devices pull them.

use pathcall_wire::{Instant, Mutant, mutant};

use super::common_queue::CommonQueue;
use super::late::QueueEnd;
use super::{Decision, Dispatch, SelectedRequest, SelectionState, Selector};
use crate::path::KindId;

impl Selector {
    /// Time at which [`Self::poll`] must be called if nothing happens before: requests wait for a device that may stand
    /// still.
    #[must_use]
    pub fn poll_at(&self) -> Option<Instant> {
        let queue = self.queue.as_ref().filter(|_| !mutant::on(Mutant::PlaceStallUnpolled))?;
        self.chooser.stalls_at(queue)
    }

    /// Number of requests that wait for a device.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.queue.as_ref().map_or(0, CommonQueue::waiting)
    }

    /// Selects the path of a request that needs no order, or puts it into the common queue.
    pub(super) fn select_late(&mut self, now: Instant, at: u32) -> Decision {
        self.enter_queue(at);
        let kind = self.held[at as usize].kind;
        self.chooser.begin_round();
        // Older messages may wait for the same device.
        let alone = self.queue.as_ref().filter(|queue| queue.waiting() == 1);
        match alone.and_then(|queue| self.chooser.pull(now, kind, queue, 0)) {
            Some((_, path, reason)) => {
                self.leave_queue(at);
                Decision::Send(self.record_dispatch(now, at, path, reason))
            }
            None => Decision::Wait { ticket: self.ticket(at) },
        }
    }

    /// Takes the next request from the common queue whose device has room. The outer `None`: all have to wait; the
    /// inner one: the request has to wait for others again.
    pub(super) fn pull(&mut self, now: Instant) -> Option<Option<Dispatch>> {
        let mut kind = None;
        self.chooser.begin_round();
        loop {
            let queue = self.queue.as_ref().filter(|_| !mutant::on(Mutant::PlaceQueueForgotten))?;
            let oldest = queue.oldest(kind)?;
            kind = Some(oldest);
            let first = queue.first(oldest)?;
            let attempts = self.held[first as usize].attempts;
            let Some((end, path, reason)) = self.chooser.pull(now, KindId(oldest as u16), queue, attempts) else {
                continue;
            };
            let at = if end == QueueEnd::First { first } else { queue.last(oldest)? };
            self.leave_queue(at);
            if self.order.is_free(at) {
                return Some(Some(self.send_released(now, at, path, reason)));
            }
            self.chooser.not_sent();
            self.held[at as usize].state = SelectionState::Waiting;
            self.wake(at);
            return Some(None);
        }
    }

    pub(super) fn enter_queue(&mut self, at: u32) {
        let SelectedRequest { kind, attempts, .. } = self.held[at as usize];
        self.held[at as usize].state = SelectionState::Queued;
        if let Some(queue) = &mut self.queue {
            queue.push(usize::from(kind.0), at, attempts > 0);
        }
    }

    pub(super) fn leave_queue(&mut self, at: u32) {
        let kind = self.held[at as usize].kind;
        if let Some(queue) = &mut self.queue {
            queue.remove(usize::from(kind.0), at);
        }
    }
}
