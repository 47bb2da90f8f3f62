//! Early loss detection before the timeout (RFC 8985), for receivers that acknowledge each item at once.
//!
//! ```text
//! 1 2 3 4 ─▶ acknowledged: 1 3      3 overtook 2: 2 is lost after a quarter of a round trip
//!         ─▶ acknowledged: 1 2      no more acknowledgements: probe with 4; its acknowledgement shows the loss of 3
//! ```
//!
//! A probe is one frame and does not shrink the window. So a receiver that pauses causes one extra frame, not a window
//! of them.

use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use super::{Entry, Flow};

/// Number of items waiting in network queues from which on the path counts as queued.
const QUEUED: f64 = 3.0;

/// Probe timer of the last item in flight.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Time of the next probe; `None` before the first round-trip sample, and if no item is in flight.
    at: Option<Instant>,
    /// Probes since the last acknowledgement.
    sent: u32,
}

impl Probe {
    /// Resets the number of probes after an acknowledgement.
    pub(super) fn on_ack(&mut self) {
        self.sent = 0;
    }
}

impl<T: Copy> Flow<T> {
    /// Shortens the deadlines of items sent before an acknowledged item to the time that reordering may take.
    pub(super) fn shorten_overtaken_deadlines(&mut self, now: Instant, acked: &Entry<T>) {
        let (Some(_), Some((mean, _))) = (self.timing.early, self.rtt.smoothed()) else { return };
        // The acknowledgement may be for the first transmission; then items sent in between are not overtaken.
        let is_for_first = acked.attempts > 1 && now.since(acked.sent) < self.rtt.minimum();
        if is_for_first || mutant::on(Mutant::FlowOvertakenWaits) {
            return;
        }
        let reorder_time = mean + mean / 4;
        for seq in self.oldest..self.next_seq {
            let Some(entry) = self.entry_mut(seq) else { continue };
            if entry.order > acked.order && entry.attempts == 1 {
                // All later items were sent after the acknowledged one, too.
                break;
            }
            if entry.order < acked.order && entry.holds == 0 {
                entry.deadline = entry.deadline.min(entry.sent + reorder_time);
                let deadline = entry.deadline;
                self.wake_by(deadline);
            }
        }
    }

    /// Restarts the probe timer after a transmission or an acknowledgement.
    pub(super) fn postpone_probe(&mut self, now: Instant) {
        self.probe.at = match self.probe_pause() {
            Some(pause) if self.in_flight > 0 => Some(now + pause),
            _ => None,
        };
        self.probe.at.into_iter().for_each(|at| self.wake_by(at));
    }

    /// Queues the last item in flight as a probe if the timer has expired; otherwise wakes the flow at that time.
    pub(super) fn send_due_probe(&mut self, now: Instant) {
        let Some(at) = self.probe.at else { return };
        if at <= now && self.in_flight > 0 {
            let probed = |seq: &u32| self.entry(*seq).is_some_and(|entry| entry.holds == 0);
            let last = (self.oldest..self.next_seq).rev().find(probed);
            if let Some(seq) = last
                && let Some(entry) = self.entry_mut(seq)
                && !std::mem::replace(&mut entry.queued, true)
            {
                self.lost.push_back(seq);
            }
            self.probe.sent += 1;
            self.postpone_probe(now);
        } else {
            self.wake_by(at);
        }
    }

    /// Whether round trips are close to their minimum (TCP Veno, Fu and Liew 2003) and acknowledgements arrive.
    pub(super) fn has_empty_queue(&self) -> bool {
        let (Some(_), Some((mean, _))) = (self.timing.early, self.rtt.smoothed()) else { return false };
        let waiting = mean.saturating_sub(self.rtt.minimum()).as_secs_f64() / mean.as_secs_f64();
        self.probe.sent == 0 && f64::from(self.in_flight) * waiting < QUEUED
    }

    /// Pause before a probe: about two round trips, doubled after each probe (RFC 8985, 7.2; RFC 9002, 6.2.1).
    fn probe_pause(&self) -> Option<Duration> {
        let least = self.timing.early.filter(|_| !mutant::on(Mutant::FlowEndNotProbed))?;
        let (mean, deviation) = self.rtt.smoothed()?;
        let pause = mean + (deviation * 4).max(mean).max(least);
        Some(pause.saturating_mul(1 << self.probe.sent.min(16)).min(self.timing.rto_max))
    }
}
