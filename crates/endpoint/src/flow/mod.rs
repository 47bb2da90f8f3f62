//! Reliable flow: sequence numbers, window, retransmission and congestion control (NetRPC §5.1).
//!
//! [`Flow::send`] adds an item and assigns its sequence number; [`Flow::ack`] removes it, in any order; [`Flow::due`]
//! returns the items to resend. The flow keeps `seq < oldest unacknowledged + 256`, as the element's repeat filter
//! requires. The flow does not know the encoding of its items.

mod congestion;
mod early_loss;
mod repeat_filter;
mod timing;

use std::collections::VecDeque;
use std::time::Duration;

use congestion::{Rtt, Window};
use early_loss::Probe;
use pathcall_wire::{Instant, Mutant, W_MAX, mutant};
pub use repeat_filter::{FlowRepeatFilter, SeqClass};
pub use timing::FlowTiming;

/// Number of later transmissions that must be acknowledged before an older item counts as lost.
const REORDER: u64 = 8;
/// End of the sequence numbers, one window before the 32-bit maximum. Numbers do not wrap, since receivers compare them
/// directly.
const SEQ_END: u32 = u32::MAX - W_MAX;
/// Number of used sequence numbers, half of all, at which a new caller should replace the flow's caller.
pub const RENEWAL_AT: u32 = 1 << 31;
const RING_LEN: usize = W_MAX as usize;

/// Item in flight.
#[derive(Debug, Clone, Copy)]
struct Entry<T> {
    item: T,
    /// Position among all transmissions of the flow, retransmissions included.
    order: u64,
    sent: Instant,
    /// Time of the last notice about the item, or of its first transmission.
    heard: Instant,
    deadline: Instant,
    attempts: u32,
    holds: u32,
    queued: bool,
    /// Whether the item waits at the peer, and leaves its room in the window to others.
    parked: bool,
}

/// Action that [`Flow::due`] requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due<T> {
    /// Send this item again, with the same sequence number.
    Resend(u32, T),
    /// The item had no answer for the give-up time.
    GiveUp(T),
}

/// Reliable flow. `T` identifies a sent frame, so that the caller can write it again.
#[derive(Debug)]
pub struct Flow<T> {
    timing: FlowTiming,
    next_seq: u32,
    oldest: u32,
    ring: Box<[Option<Entry<T>>]>,
    in_flight: u32,
    /// Number of parked items in flight.
    parked: u32,
    order: u64,
    /// Time of the last acknowledgement, and order of the latest acknowledged transmission.
    acked: (Instant, u64),
    window: Window,
    rtt: Rtt,
    /// Probe of the last item in flight.
    probe: Probe,
    /// Next time to check, at or before the earliest deadline in the ring.
    wake: Option<Instant>,
    lost: VecDeque<u32>,
}

impl<T: Copy> Flow<T> {
    /// Idle flow; sequence numbers start at 1.
    #[must_use]
    pub fn new(timing: FlowTiming) -> Self {
        Self {
            timing,
            next_seq: 1,
            oldest: 1,
            ring: vec![None; RING_LEN].into_boxed_slice(),
            in_flight: 0,
            parked: 0,
            order: 0,
            acked: (Instant(0), 0),
            window: Window::new(timing.congestion_control),
            rtt: Rtt::default(),
            probe: Probe::default(),
            wake: None,
            lost: VecDeque::with_capacity(RING_LEN),
        }
    }

    /// Idle flow whose sequence numbers start at `seq`.
    #[cfg(test)]
    pub(crate) fn starting_at(timing: FlowTiming, seq: u32) -> Self {
        Self { next_seq: seq, oldest: seq, ..Self::new(timing) }
    }

    /// Whether the window has room for another item, and a sequence number is left.
    #[must_use]
    pub fn can_send(&self) -> bool {
        let inside = self.next_seq < self.oldest + W_MAX || mutant::on(Mutant::WindowUnbounded);
        self.in_flight - self.parked < self.window.size() && inside && !self.is_exhausted()
    }

    /// Number of sequence numbers used so far.
    #[must_use]
    pub fn numbers_used(&self) -> u32 {
        self.next_seq - 1
    }

    /// Whether no sequence numbers are left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.next_seq >= SEQ_END
    }

    /// Number of items sent and not acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Adds an item that is sent now, and returns its sequence number.
    ///
    /// # Panics
    /// If [`Flow::can_send`] is false.
    pub fn send(&mut self, now: Instant, item: T) -> u32 {
        assert!(self.can_send(), "window is full");
        let seq = self.next_seq;
        self.next_seq += 1;
        self.in_flight += 1;
        self.order += 1;
        let deadline = now + self.rto(0);
        self.ring[ring_index(seq)] = Some(Entry {
            item,
            order: self.order,
            sent: now,
            heard: now,
            deadline,
            attempts: 1,
            holds: 0,
            queued: false,
            parked: false,
        });
        self.wake_by(deadline);
        self.postpone_probe(now);
        seq
    }

    /// Item with this sequence number, if in flight.
    #[must_use]
    pub fn item(&self, seq: u32) -> Option<T> {
        self.entry(seq).map(|entry| entry.item)
    }

    /// Removes an acknowledged item and returns it; `None` for a repeated acknowledgement. `ecn`: the frame or its
    /// acknowledgement has a congestion mark.
    pub fn ack(&mut self, now: Instant, seq: u32, ecn: bool) -> Option<T> {
        let entry = *self.entry(seq)?;
        self.ring[ring_index(seq)] = None;
        self.in_flight -= 1;
        self.parked -= u32::from(entry.parked);
        self.advance();
        self.acked = (now, self.acked.1.max(entry.order));
        if entry.attempts == 1 && entry.holds == 0 {
            self.rtt.sample(now.since(entry.sent));
        }
        if ecn {
            self.window.shrink(seq, self.next_seq);
        } else {
            self.window.grow();
        }
        self.mark_overtaken_lost(entry.order);
        self.shorten_overtaken_deadlines(now, &entry);
        self.probe.on_ack();
        self.postpone_probe(now);
        Some(entry.item)
    }

    /// Records that the peer holds the item and cannot finish it yet. The flow asks again with growing pauses, without
    /// limit. Returns the number of such notices.
    pub fn mark_held(&mut self, now: Instant, seq: u32) -> u32 {
        let (first, longest) = self.timing.probe;
        let Some(entry) = self.entry_mut(seq) else { return 0 };
        entry.heard = now;
        let pause = first.saturating_mul(1 << entry.holds.min(16)).min(longest);
        let deadline = now + if mutant::on(Mutant::HeldNeverProbed) { Duration::MAX } else { pause };
        entry.deadline = deadline;
        entry.holds += 1;
        let holds = entry.holds;
        // The new deadline may be earlier than all others.
        self.wake_by(deadline);
        holds
    }

    /// Lets other items have the room of a held item in the window: nothing of it is in the network, and it may wait
    /// until they have arrived.
    pub fn park(&mut self, seq: u32) {
        if let Some(entry) = self.entry_mut(seq)
            && !std::mem::replace(&mut entry.parked, true)
        {
            self.parked += 1;
        }
    }

    /// Resends the item at once, for example because its path has changed.
    pub fn resend_now(&mut self, now: Instant, seq: u32) {
        if let Some(entry) = self.entry_mut(seq) {
            entry.heard = now;
            if !entry.queued {
                entry.queued = true;
                self.lost.push_back(seq);
            }
        }
    }

    /// Removes an item that is sent in another form with another sequence number. This counts neither as acknowledged
    /// nor as lost.
    pub fn remove(&mut self, seq: u32) {
        let Some(entry) = self.entry(seq) else { return };
        self.parked -= u32::from(entry.parked);
        self.ring[ring_index(seq)] = None;
        self.in_flight -= 1;
        self.advance();
    }

    /// Items in flight with their sequence numbers, oldest first.
    pub fn items(&self) -> impl Iterator<Item = (u32, T)> + '_ {
        (self.oldest..self.next_seq).filter_map(|seq| Some((seq, self.entry(seq)?.item)))
    }

    /// Time since the last notice about an item in flight.
    #[must_use]
    pub fn silence(&self, now: Instant, seq: u32) -> Duration {
        self.entry(seq).map_or(Duration::ZERO, |entry| now.since(entry.heard))
    }

    /// Next item to resend or to give up.
    pub fn due(&mut self, now: Instant) -> Option<Due<T>> {
        if self.wake.is_some_and(|wake| wake <= now) {
            self.expire(now);
        }
        while let Some(seq) = self.lost.pop_front() {
            let give_up = self.timing.give_up;
            let Some(entry) = self.entry(seq).copied() else { continue };
            if now.since(entry.heard) >= give_up {
                return Some(Due::GiveUp(entry.item));
            }
            self.order += 1;
            let (order, deadline) = (self.order, now + self.rto(entry.attempts));
            if let Some(entry) = self.entry_mut(seq) {
                *entry = Entry {
                    order,
                    deadline: if entry.holds > 0 { entry.deadline.max(deadline) } else { deadline },
                    sent: now,
                    attempts: entry.attempts + 1,
                    queued: false,
                    ..*entry
                };
                let deadline = entry.deadline;
                self.wake_by(deadline);
            }
            return Some(Due::Resend(seq, entry.item));
        }
        None
    }

    /// Retransmission timeout of an item that is sent now.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.rto(0)
    }

    /// Next time at which the caller must call [`Flow::due`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.in_flight == 0 { None } else { self.wake }
    }

    /// Queues items whose deadline has passed, and computes the next time to check.
    fn expire(&mut self, now: Instant) {
        let mut wake: Option<Instant> = None;
        let mut timed_out = None;
        let (acked_at, acked_order) = self.acked;
        for seq in self.oldest..self.next_seq {
            let Some(entry) = self.entry(seq).filter(|entry| !entry.queued) else { continue };
            // Earlier transmissions are still being acknowledged: the item waits in the same queue of the network
            // (RFC 6298, 5.3).
            let is_queued_behind = entry.holds == 0 && entry.order > acked_order;
            let extended = if is_queued_behind { acked_at + self.rto(entry.attempts - 1) } else { entry.deadline };
            let Some(entry) = self.ring[ring_index(seq)].as_mut() else { continue };
            entry.deadline = entry.deadline.max(extended);
            if entry.deadline <= now {
                // A process that was stopped has not asked in this time, so the time does not count as silence.
                entry.heard = now.min(entry.heard + now.since(entry.deadline));
                entry.queued = true;
                self.lost.push_back(seq);
                if entry.holds == 0 {
                    timed_out = Some(seq);
                }
            } else {
                wake = Some(wake.map_or(entry.deadline, |w| w.min(entry.deadline)));
            }
        }
        self.wake = wake;
        self.send_due_probe(now);
        timed_out.into_iter().for_each(|seq| self.shrink(seq));
    }

    /// Marks the oldest item as lost if [`REORDER`] later transmissions are acknowledged. A parked item has arrived.
    fn mark_overtaken_lost(&mut self, acked_order: u64) {
        let oldest = self.oldest;
        if let Some(entry) = self.entry_mut(oldest)
            && entry.order + REORDER <= acked_order
            && !entry.queued
            && !entry.parked
        {
            entry.queued = true;
            self.lost.push_back(oldest);
            self.shrink(oldest);
        }
    }

    /// Shrinks the window for a lost item.
    fn shrink(&mut self, seq: u32) {
        match self.has_empty_queue() {
            true => self.window.shrink_slightly(seq, self.next_seq),
            false => self.window.shrink(seq, self.next_seq),
        }
    }

    fn advance(&mut self) {
        while self.oldest < self.next_seq && self.entry(self.oldest).is_none() {
            self.oldest += 1;
        }
    }

    fn rto(&self, attempts: u32) -> Duration {
        let base = self.rtt.rto().unwrap_or(self.timing.rto_initial).max(self.timing.rto_min);
        base.saturating_mul(1 << attempts.min(6)).min(self.timing.rto_max)
    }

    fn wake_by(&mut self, deadline: Instant) {
        self.wake = Some(self.wake.map_or(deadline, |w| w.min(deadline)));
    }

    fn entry(&self, seq: u32) -> Option<&Entry<T>> {
        (self.oldest..self.next_seq).contains(&seq).then(|| self.ring[ring_index(seq)].as_ref())?
    }

    fn entry_mut(&mut self, seq: u32) -> Option<&mut Entry<T>> {
        (self.oldest..self.next_seq).contains(&seq).then(|| self.ring[ring_index(seq)].as_mut())?
    }
}

const fn ring_index(seq: u32) -> usize {
    (seq % W_MAX) as usize
}

#[cfg(test)]
mod tests;
