//! A reliable flow: numbered items, a window, retransmission and congestion control (NetRPC §5.1).
//!
//! An item goes in by [`Flow::send`], which numbers it; [`Flow::ack`] takes it out, in any order;
//! [`Flow::due`] names those to be sent again. The flow keeps `seq < oldest unacknowledged + 256`:
//! the element's repeat filter rests on that. What an item looks like on the wire is not its concern.

mod congestion;
mod early;
mod seen;
mod timing;

use std::collections::VecDeque;
use std::time::Duration;

use congestion::{Rtt, Window};
use early::Probe;
use pathcall_wire::{Instant, Mutant, W_MAX, mutant};
pub use seen::{Seen, SeenSet};
pub use timing::Timing;

/// Frames sent later that must be acknowledged before an older one counts as lost.
const REORDER: u64 = 8;
/// Numbers end here, a window before there are none: receivers compare them as they are, so they don't begin anew.
const SEQ_END: u32 = u32::MAX - W_MAX;
/// A flow that has given out so many numbers had better be followed by another, of another caller: half of all.
pub const SPENT: u32 = 1 << 31;
const PLACES: usize = W_MAX as usize;

/// An item in flight.
#[derive(Debug, Clone, Copy)]
struct Entry<T> {
    item: T,
    /// Position among all transmissions of the flow, retransmissions included.
    order: u64,
    sent: Instant,
    /// When anything was last heard of it, or when it was first sent.
    heard: Instant,
    deadline: Instant,
    attempts: u32,
    holds: u32,
    queued: bool,
}

/// What [`Flow::due`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due<T> {
    /// Send this item again, under the same number.
    Again(u32, T),
    /// Nobody answered for the give-up time.
    GiveUp(T),
}

/// One reliable flow; `T` names what was sent, so that it can be sent again.
#[derive(Debug)]
pub struct Flow<T> {
    timing: Timing,
    next_seq: u32,
    oldest: u32,
    ring: Box<[Option<Entry<T>>]>,
    in_flight: u32,
    order: u64,
    /// The last acknowledgement of something in flight, and the latest transmission that had one.
    acked: (Instant, u64),
    window: Window,
    rtt: Rtt,
    /// The end of what is in flight.
    probe: Probe,
    /// Not later than the earliest deadline in the ring.
    wake: Option<Instant>,
    lost: VecDeque<u32>,
}

impl<T: Copy> Flow<T> {
    /// An idle flow; numbers start at 1.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            next_seq: 1,
            oldest: 1,
            ring: vec![None; PLACES].into_boxed_slice(),
            in_flight: 0,
            order: 0,
            acked: (Instant(0), 0),
            window: Window::new(timing.congestion_control),
            rtt: Rtt::default(),
            probe: Probe::default(),
            wake: None,
            lost: VecDeque::with_capacity(PLACES),
        }
    }

    /// The same, with numbers from `seq` on.
    #[cfg(test)]
    pub(crate) fn starting_at(timing: Timing, seq: u32) -> Self {
        Self { next_seq: seq, oldest: seq, ..Self::new(timing) }
    }

    /// Whether the window has room for another item, and there is a number for it.
    #[must_use]
    pub fn can_send(&self) -> bool {
        let inside = self.next_seq < self.oldest + W_MAX || mutant::on(Mutant::WindowUnbounded);
        self.in_flight < self.window.size() && inside && !self.is_over()
    }

    /// Numbers given out so far.
    #[must_use]
    pub fn numbered(&self) -> u32 {
        self.next_seq - 1
    }

    /// Whether there are no numbers left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.next_seq >= SEQ_END
    }

    /// Items sent and not acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Numbers an item that is sent now.
    ///
    /// # Panics
    /// When [`Flow::can_send`] is false.
    pub fn send(&mut self, now: Instant, item: T) -> u32 {
        assert!(self.can_send(), "window is full");
        let seq = self.next_seq;
        self.next_seq += 1;
        self.in_flight += 1;
        self.order += 1;
        let deadline = now + self.rto(0);
        self.ring[place(seq)] = Some(Entry {
            item,
            order: self.order,
            sent: now,
            heard: now,
            deadline,
            attempts: 1,
            holds: 0,
            queued: false,
        });
        self.wake_by(deadline);
        self.put_probe_off(now);
        seq
    }

    /// The item under this number, if it is in flight.
    #[must_use]
    pub fn item(&self, seq: u32) -> Option<T> {
        self.entry(seq).map(|entry| entry.item)
    }

    /// Takes an acknowledged item out; `None` when it is not in flight (a repeated acknowledgement).
    /// `ecn`: congestion was met on the way.
    pub fn ack(&mut self, now: Instant, seq: u32, ecn: bool) -> Option<T> {
        let entry = *self.entry(seq)?;
        self.ring[place(seq)] = None;
        self.in_flight -= 1;
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
        self.suspect(entry.order);
        self.overtaken(now, &entry);
        self.probe.answered();
        self.put_probe_off(now);
        Some(entry.item)
    }

    /// The peer has the item but can't finish it yet: ask again, ever more slowly, without end. How often it said so.
    pub fn held(&mut self, now: Instant, seq: u32) -> u32 {
        let (first, longest) = self.timing.probe;
        let Some(entry) = self.entry_mut(seq) else { return 0 };
        entry.heard = now;
        let pause = first.saturating_mul(1 << entry.holds.min(16)).min(longest);
        let deadline = now + if mutant::on(Mutant::HeldNeverProbed) { Duration::MAX } else { pause };
        entry.deadline = deadline;
        entry.holds += 1;
        let holds = entry.holds;
        // It may be before all that the flow is to be woken for.
        self.wake_by(deadline);
        holds
    }

    /// Sends the item again at once: it takes another road now.
    pub fn nudge(&mut self, now: Instant, seq: u32) {
        if let Some(entry) = self.entry_mut(seq) {
            entry.heard = now;
            if !entry.queued {
                entry.queued = true;
                self.lost.push_back(seq);
            }
        }
    }

    /// Takes an item out that goes another way, under another number: it says nothing of this one.
    pub fn remove(&mut self, seq: u32) {
        if self.entry(seq).is_none() {
            return;
        }
        self.ring[place(seq)] = None;
        self.in_flight -= 1;
        self.advance();
    }

    /// Items in flight with their numbers, oldest first.
    pub fn items(&self) -> impl Iterator<Item = (u32, T)> + '_ {
        (self.oldest..self.next_seq).filter_map(|seq| Some((seq, self.entry(seq)?.item)))
    }

    /// How long nothing was heard of an item in flight.
    #[must_use]
    pub fn unheard(&self, now: Instant, seq: u32) -> Duration {
        self.entry(seq).map_or(Duration::ZERO, |entry| now.since(entry.heard))
    }

    /// The next item to be sent again, or given up, by now.
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
            return Some(Due::Again(seq, entry.item));
        }
        None
    }

    /// The time-out of what is sent now.
    #[must_use]
    pub fn time_out(&self) -> Duration {
        self.rto(0)
    }

    /// When [`Flow::due`] is to be asked next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.in_flight == 0 { None } else { self.wake }
    }

    /// Queues what has waited too long and finds the next time to look.
    fn expire(&mut self, now: Instant) {
        let mut wake: Option<Instant> = None;
        let mut timed_out = None;
        let (acked_at, acked_order) = self.acked;
        for seq in self.oldest..self.next_seq {
            let Some(entry) = self.entry(seq).filter(|entry| !entry.queued) else { continue };
            // What was sent before it is still being answered: it waits in the same queue, however long
            // that has become (RFC 6298, 5.3).
            let behind = entry.holds == 0 && entry.order > acked_order;
            let patience = if behind { acked_at + self.rto(entry.attempts - 1) } else { entry.deadline };
            let Some(entry) = self.ring[place(seq)].as_mut() else { continue };
            entry.deadline = entry.deadline.max(patience);
            if entry.deadline <= now {
                // Whoever stood still itself, a process that was stopped, a machine that slept, has neither asked nor heard.
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
        self.probe_end(now);
        timed_out.into_iter().for_each(|seq| self.shrink(seq));
    }

    /// Out-of-order acknowledgement: what was sent well before something acknowledged is lost.
    fn suspect(&mut self, acked_order: u64) {
        let oldest = self.oldest;
        if let Some(entry) = self.entry_mut(oldest)
            && entry.order + REORDER <= acked_order
            && !entry.queued
        {
            entry.queued = true;
            self.lost.push_back(oldest);
            self.shrink(oldest);
        }
    }

    /// An item counts as lost.
    fn shrink(&mut self, seq: u32) {
        match self.is_queueless() {
            true => self.window.ease(seq, self.next_seq),
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
        (self.oldest..self.next_seq).contains(&seq).then(|| self.ring[place(seq)].as_ref())?
    }

    fn entry_mut(&mut self, seq: u32) -> Option<&mut Entry<T>> {
        (self.oldest..self.next_seq).contains(&seq).then(|| self.ring[place(seq)].as_mut())?
    }
}

const fn place(seq: u32) -> usize {
    (seq % W_MAX) as usize
}

#[cfg(test)]
mod tests;
