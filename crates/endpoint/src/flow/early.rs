//! What is lost is found before its time-out (RFC 8985), where the receiver acknowledges all at once.
//!
//! ```text
//! 1 2 3 4 ─▶ acknowledged: 1 3      2 was overtaken by 3: lost, a quarter of a round trip later
//!         ─▶ acknowledged: 1 2      nothing more comes: 4 again, a probe; its acknowledgement tells of 3
//! ```
//!
//! A probe is one frame and no sign of congestion: a receiver that was away for a while costs one frame, not a
//! window of them.

use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use super::{Entry, Flow};

/// So many items of a window that wait in queues on the way say that there is a queue.
const QUEUED: f64 = 3.0;

/// When the end of what is in flight is sent again.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// `None`: nothing is known of the path yet, or nothing is to be probed.
    at: Option<Instant>,
    /// Probes since something was acknowledged.
    sent: u32,
}

impl Probe {
    /// Something was acknowledged.
    pub(super) fn answered(&mut self) {
        self.sent = 0;
    }
}

impl<T: Copy> Flow<T> {
    /// What was sent before something that is acknowledged is waited for no longer than its order may have been
    /// changed on the way.
    pub(super) fn overtaken(&mut self, now: Instant, acked: &Entry<T>) {
        let (Some(_), Some((mean, _))) = (self.timing.early, self.rtt.smoothed()) else { return };
        // Of something sent twice, the first may have been acknowledged: what was sent in between is not overtaken.
        let first = acked.attempts > 1 && now.since(acked.sent) < self.rtt.least();
        if first || mutant::on(Mutant::FlowOvertakenWaits) {
            return;
        }
        let patience = mean + mean / 4;
        for seq in self.oldest..self.next_seq {
            let Some(entry) = self.entry_mut(seq) else { continue };
            if entry.order > acked.order && entry.attempts == 1 {
                // So was all that follows.
                break;
            }
            if entry.order < acked.order && entry.holds == 0 {
                entry.deadline = entry.deadline.min(entry.sent + patience);
                let deadline = entry.deadline;
                self.wake_by(deadline);
            }
        }
    }

    /// Something was sent or acknowledged: the pause before a probe begins anew.
    pub(super) fn put_probe_off(&mut self, now: Instant) {
        self.probe.at = match self.probe_pause() {
            Some(pause) if self.in_flight > 0 => Some(now + pause),
            _ => None,
        };
        self.probe.at.into_iter().for_each(|at| self.wake_by(at));
    }

    /// Sends the last item in flight again if its time has come, which is the next time to look otherwise.
    pub(super) fn probe_end(&mut self, now: Instant) {
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
            self.put_probe_off(now);
        } else {
            self.wake_by(at);
        }
    }

    /// Whether round trips take hardly longer than they can (TCP Veno, Fu and Liew 2003), and answers come.
    pub(super) fn is_queueless(&self) -> bool {
        let (Some(_), Some((mean, _))) = (self.timing.early, self.rtt.smoothed()) else { return false };
        let waiting = mean.saturating_sub(self.rtt.least()).as_secs_f64() / mean.as_secs_f64();
        self.probe.sent == 0 && f64::from(self.in_flight) * waiting < QUEUED
    }

    /// Two round trips or what they vary by, twice as long after each probe (RFC 8985, 7.2; RFC 9002, 6.2.1).
    fn probe_pause(&self) -> Option<Duration> {
        let least = self.timing.early.filter(|_| !mutant::on(Mutant::FlowEndNotProbed))?;
        let (mean, deviation) = self.rtt.smoothed()?;
        let pause = mean + (deviation * 4).max(mean).max(least);
        Some(pause.saturating_mul(1 << self.probe.sent.min(16)).min(self.timing.rto_max))
    }
}
