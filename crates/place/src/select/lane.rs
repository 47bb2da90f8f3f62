//! What is known of one path: its queue, how much slower it is than the model says, whether it was left.

use pathcall_wire::{Instant, Mutant, mutant};

use super::Config;
use crate::path::Path;

/// A path's slowness when it is as fast as the model says; slowness counts in 16ths.
const ONE: u64 = 16;
/// How much a queue counts that this selector made: who joins it waits as long, and makes as many behind it wait.
const WEIGHT: f64 = 2.0;
/// Probes of a path that is late, and does not fail, are at most so many times its lateness apart.
const LATE: u64 = 4;
/// The slowest that is told apart: 65,536 times.
const SLOWNESS_MAX: u64 = ONE << 16;

/// What a selector knows of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathState {
    /// `k̂`: messages estimated to be queued on it.
    pub k: u32,
    /// Messages in flight.
    pub in_flight: u32,
    /// Messages sent, probes too.
    pub sent: u64,
    /// Messages answered.
    pub done: u64,
    /// Messages that it failed.
    pub failed: u64,
    /// Messages sent to find out whether it is well again.
    pub probes: u64,
    /// Times that it was left.
    pub lefts: u64,
    /// Time inside the hosts that was measured last, in nanoseconds; 0 before the first.
    pub intra_ns: u64,
    /// Time from end to end that was measured last, in nanoseconds; 0 before the first.
    pub total_ns: u64,
    /// How many 16ths of what the model and those ahead explain its messages take: 16 when all is well.
    pub slowness: u32,
    /// When it is probed next, if it was left.
    pub left_until: Option<Instant>,
}

/// What a message meets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ahead {
    /// Messages in flight on its path when it was sent, without it.
    pub(super) messages: u32,
    /// The queue that this selector made, in nanoseconds.
    pub(super) queue_ns: u64,
    /// When it was sent.
    pub(super) sent: Instant,
}

/// One path as the selector keeps it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    pub(super) traverse_ns: u64,
    pub(super) toll_ns: u64,
    noise_ns: u64,
    pub(super) in_flight: u32,
    /// Messages that the last one measured found queued beyond those of this selector.
    seen: u32,
    /// `k̂` as printed.
    late: u32,
    slowness: u64,
    slow: u8,
    left: bool,
    /// Whether it was left as nothing came from it, and for nothing else.
    stalled: bool,
    /// Whether it has failed messages, or lost them, since one ended well.
    failing: bool,
    /// When something came after a stall: what was sent before that was held up by it.
    resumed: Instant,
    /// Whether a message ended since it was left.
    moved: bool,
    /// When a probe may go.
    probe_at: Instant,
    backoff_ns: u64,
    /// When a message ended last, or when the first of those in flight was sent.
    progress: Instant,
    /// Time without an end after which it is left.
    stall_ns: u64,
    /// When there is more to look at than its cost.
    look_at: u64,
    /// Its cost while this selector has no queue there.
    least_cost: f64,
    /// What each nanosecond of that queue adds.
    cost_per_ns: f64,
    smoothed_ns: u64,
    intra_ns: u64,
    pub(super) total_ns: u64,
    sent: u64,
    done: u64,
    failed: u64,
    probes: u64,
    lefts: u64,
}

impl Lane {
    pub(super) fn new(path: &Path, config: &Config) -> Self {
        let smoothed_ns = path.traverse_ns.saturating_add(path.noise_ns);
        Self {
            traverse_ns: path.traverse_ns,
            toll_ns: path.toll_ns.max(1),
            noise_ns: path.noise_ns,
            in_flight: 0,
            seen: 0,
            late: 0,
            slowness: ONE,
            slow: 0,
            left: false,
            stalled: false,
            failing: false,
            resumed: Instant(0),
            moved: false,
            probe_at: Instant(0),
            backoff_ns: config.probe_ns,
            progress: Instant(0),
            stall_ns: stall_ns(smoothed_ns, config),
            look_at: u64::MAX,
            least_cost: path.traverse_ns as i64 as f64 * ONE as f64,
            cost_per_ns: WEIGHT * ONE as f64,
            smoothed_ns,
            intra_ns: 0,
            total_ns: 0,
            sent: 0,
            done: 0,
            failed: 0,
            probes: 0,
            lefts: 0,
        }
    }

    /// `k̂`: messages queued beyond those that this selector knows of, never more than are in flight.
    pub(super) fn k(&self) -> u32 {
        if mutant::on(Mutant::PlaceUnclamped) { self.seen } else { self.seen.min(self.in_flight) }
    }

    /// `k̂ · toll + T` and the queue that is known, as slow as it is, in 16ths of nanoseconds.
    pub(super) fn cost(&self, queue_ns: i64) -> f64 {
        self.least_cost + self.cost_per_ns * queue_ns as f64
    }

    /// The same without the queue that is known.
    pub(super) fn least_cost(&self) -> f64 {
        self.least_cost
    }

    /// Whether there is more to look at than its cost: it may stall, was left, or is slow.
    pub(super) fn look_due(&self, now: Instant) -> bool {
        now.0 >= self.look_at
    }

    /// The same with `k̂` as printed.
    pub(super) fn cost_as_printed(&self) -> u64 {
        (u64::from(self.late) * self.toll_ns).saturating_add(self.traverse_ns)
    }

    /// The same with all that are in flight.
    pub(super) fn cost_of_queue(&self) -> u64 {
        (u64::from(self.in_flight) * self.toll_ns).saturating_add(self.traverse_ns)
    }

    /// Time inside the hosts that was measured last; before the first what the model says.
    pub(super) fn last_intra_ns(&self) -> u64 {
        if self.intra_ns == 0 { self.traverse_ns } else { self.intra_ns }
    }

    /// The same from end to end.
    pub(super) fn last_total_ns(&self) -> u64 {
        if self.total_ns == 0 { self.traverse_ns } else { self.total_ns }
    }

    /// Whether it may be chosen; leaves it if it stalls.
    pub(super) fn usable(&mut self, now: Instant) -> bool {
        if !self.left && self.in_flight > 0 && self.stalls(now) {
            self.leave(now);
            self.stalled = true;
            self.settle();
        }
        !self.left
    }

    /// Whether a request should find out if it is well again; `slow`: of a path that is only slow, too.
    pub(super) fn probe_due(&self, now: Instant, slow: bool) -> bool {
        let idle = self.in_flight == 0 || (self.left && self.moved);
        idle && now >= self.probe_at
            && (self.left || (slow && self.slowness > ONE))
            && !mutant::on(Mutant::PlaceNeverProbed)
    }

    /// Whether it was left, or is slow.
    pub(super) fn unwell(&self) -> bool {
        self.left || self.slowness > ONE
    }

    pub(super) fn left(&self) -> bool {
        self.left
    }

    pub(super) fn probe_at(&self) -> Instant {
        self.probe_at
    }

    /// Notes that a message was sent; how many are ahead of it on this path.
    pub(super) fn sent(&mut self, now: Instant) -> u32 {
        let ahead = self.in_flight;
        if ahead == 0 {
            self.progress = now;
        }
        if !self.left {
            self.probe_at = Instant(now.0.saturating_add(self.backoff_ns));
        }
        self.in_flight += 1;
        self.sent += 1;
        self.settle();
        ahead
    }

    /// Notes that the message to be sent is a probe.
    pub(super) fn probes(&mut self, now: Instant, config: &Config) {
        self.probes += 1;
        self.moved = false;
        // Of a path that is only late a probe costs no more than its lateness; one that fails costs a message.
        let most = match self.failing {
            true => config.probe_ns_max,
            false => {
                self.total_ns.saturating_mul(LATE).clamp(config.probe_ns.min(config.probe_ns_max), config.probe_ns_max)
            }
        };
        self.backoff_ns = self.backoff_ns.saturating_mul(2).min(most);
        self.probe_at = Instant(now.0.saturating_add(self.backoff_ns));
    }

    /// Notes that a message ended well.
    pub(super) fn done(&mut self, now: Instant, ahead: &Ahead, intra_ns: Option<u64>, total_ns: u64, config: &Config) {
        // Of all that a stall held up the first says how slow the path is, and the others nothing more.
        let held_up = ahead.sent < self.resumed;
        if self.stalls(now) {
            self.resumed = now;
        }
        self.ended(now);
        self.done += 1;
        self.failing = false;
        if self.stalled {
            (self.left, self.stalled) = (false, false);
        }
        self.total_ns = total_ns;
        // As a transport smooths its round-trip times.
        self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + total_ns / 8;
        self.stall_ns = stall_ns(self.smoothed_ns, config);
        if let Some(intra_ns) = intra_ns {
            self.measured(now, ahead, intra_ns, held_up, config);
        } else if self.left {
            self.come_back(config);
        }
        self.settle();
    }

    /// Notes that a message failed: the path is left.
    pub(super) fn fails(&mut self, now: Instant) {
        self.ended(now);
        self.failed += 1;
        (self.failing, self.stalled) = (true, false);
        if !mutant::on(Mutant::PlaceFailedKept) {
            self.leave(now);
        }
        self.settle();
    }

    /// Notes that nobody waits for a message any more.
    pub(super) fn abandoned(&mut self) {
        if !mutant::on(Mutant::PlaceAbandonedKept) {
            self.in_flight -= 1;
        }
        self.failing |= self.left;
        self.settle();
    }

    pub(super) fn state(&self) -> PathState {
        PathState {
            k: self.k(),
            in_flight: self.in_flight,
            sent: self.sent,
            done: self.done,
            failed: self.failed,
            probes: self.probes,
            lefts: self.lefts,
            intra_ns: self.intra_ns,
            total_ns: self.total_ns,
            slowness: self.slowness as u32,
            left_until: self.left.then_some(self.probe_at),
        }
    }

    /// Takes in a time inside the hosts.
    fn measured(&mut self, now: Instant, ahead: &Ahead, intra_ns: u64, held_up: bool, config: &Config) {
        self.intra_ns = intra_ns;
        self.late = if intra_ns > self.traverse_ns { self.late.saturating_add(1) } else { 0 };
        let expected = self.traverse_ns.saturating_add(ahead.queue_ns);
        let on_time = expected.saturating_add(self.noise_ns);
        // What is within the noise says nothing of a queue.
        let queue = if intra_ns > on_time { (intra_ns - expected) / self.toll_ns } else { 0 };
        self.seen = u32::try_from(queue).unwrap_or(u32::MAX).min(ahead.messages);

        if held_up {
            return;
        }
        // What those ahead of it don't explain is the path's own slowness. It may double with each message, so that one
        // outlier does little.
        let explained = on_time.saturating_add(u64::from(ahead.messages) * self.toll_ns).max(1);
        let ratio = match intra_ns <= explained {
            true => ONE,
            false => (intra_ns.saturating_mul(ONE) / explained).clamp(ONE, SLOWNESS_MAX),
        };
        let ratio = if mutant::on(Mutant::PlaceSlowKept) { ONE } else { ratio };
        self.slowness = ((self.slowness + ratio) / 2).min(2 * self.slowness);
        let slow = ratio >= u64::from(config.stall_factor.max(1)) * ONE;
        self.slow = if slow { self.slow.saturating_add(1) } else { 0 };
        if self.slow >= config.slow_max.max(1) {
            self.leave(now);
        } else if !slow {
            if self.left {
                self.slowness = ratio;
                self.come_back(config);
            }
            if ratio == ONE {
                self.backoff_ns = config.probe_ns;
            }
        }
    }

    /// Whether nothing came from it for so long, with messages in flight.
    fn stalls(&self, now: Instant) -> bool {
        now.0.saturating_sub(self.progress.0) > self.stall_ns
    }

    fn ended(&mut self, now: Instant) {
        self.in_flight -= 1;
        self.progress = now;
        self.moved = true;
    }

    /// Keeps up what each request asks for.
    fn settle(&mut self) {
        self.look_at = match self.in_flight {
            _ if self.unwell() => 0,
            0 => u64::MAX,
            _ => self.progress.0.saturating_add(self.stall_ns),
        };
        let without_ns = self.traverse_ns as i64 as f64 + f64::from(self.k()) * self.toll_ns as i64 as f64;
        let slowness = self.slowness as i64 as f64;
        (self.least_cost, self.cost_per_ns) = (without_ns * slowness, WEIGHT * slowness);
    }

    fn leave(&mut self, now: Instant) {
        if !self.left {
            self.left = true;
            self.moved = false;
            self.lefts += 1;
            self.probe_at = Instant(now.0.saturating_add(self.backoff_ns));
        }
    }

    fn come_back(&mut self, config: &Config) {
        (self.left, self.stalled, self.slow) = (false, false, 0);
        self.backoff_ns = config.probe_ns;
    }
}

/// Time without an end after which a path is left.
fn stall_ns(usual_ns: u64, config: &Config) -> u64 {
    usual_ns.saturating_mul(u64::from(config.stall_factor)).max(config.stall_ns_min)
}
