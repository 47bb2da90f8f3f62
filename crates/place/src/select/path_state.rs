//! State of one path: queue estimate, slowness against the model, and whether the selector has left it.

use pathcall_wire::{Instant, Mutant, mutant};

use super::Config;
use super::late::{LateAhead, LearnedTimes};
use crate::path::Path;

/// Slowness of a path that is as fast as the model; slowness is in 16ths.
const ONE: u64 = 16;
/// Weight of the selector's own queue: a request waits for it, and makes as many others wait.
const WEIGHT: f64 = 2.0;
/// Limit on the probe interval of a path that is late but does not fail, in multiples of its delay.
const LATE: u64 = 4;
/// The same for a path that is not left because it is late: other messages measure it, too.
const LATE_IN_USE: u64 = 64;
/// Time after a stall in which another one keeps the path left for longer.
const STALL_MEMORY_NS: u64 = 1_000_000_000;
/// Limit on the slowness: 65,536 times.
const SLOWNESS_MAX: u64 = ONE << 16;

/// State of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathState {
    /// `k̂`: estimated number of messages queued on it.
    pub k: u32,
    /// Number of messages in flight.
    pub in_flight: u32,
    /// Messages that were sent, probes included.
    pub sent: u64,
    /// Messages that were answered.
    pub done: u64,
    /// Messages that failed.
    pub failed: u64,
    /// Messages that were sent as probes.
    pub probes: u64,
    /// Number of times that the selector left it.
    pub times_left: u64,
    /// Last measured time within the hosts, in nanoseconds; 0 before the first.
    pub intra_ns: u64,
    /// Last measured end-to-end time, in nanoseconds; 0 before the first.
    pub total_ns: u64,
    /// Slowness in 16ths of the expected time: 16 when all is well.
    pub slowness: u32,
    /// Time of the next probe, if the selector has left the path.
    pub left_until: Option<Instant>,
    /// Times that [`SelectionStrategy::Late`](super::SelectionStrategy::Late) has learnt; `None` with other strategies.
    pub learned: Option<LearnedTimes>,
}

/// Queue ahead of a message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueueAhead {
    /// Messages in flight on its path when it was sent.
    pub(super) messages: u32,
    /// Queue of the selector's own messages, in nanoseconds.
    pub(super) queue_ns: u64,
    /// Time of sending.
    pub(super) sent: Instant,
    /// Load of its device, with late binding.
    pub(super) late: LateAhead,
}

/// Internal state of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathInternals {
    /// Counts and last times; [`Self::state`] adds the other fields.
    counts: PathState,
    pub(super) traverse_ns: u64,
    toll_ns: u64,
    noise_ns: u64,
    /// Number of queued messages of others that the last measured message found.
    seen: u32,
    /// `k̂` as printed.
    late: u32,
    slowness: u64,
    slow: u8,
    /// Whether it is left if it is slow.
    leaves_slow: bool,
    left: bool,
    /// Whether it was left only because of a stall, and is used again after the next answer.
    stalled: bool,
    /// Time of the last stall, and the number of stalls that followed each other closely.
    stalls: (Option<Instant>, u32),
    /// Whether messages have failed or were lost since the last success.
    failing: bool,
    /// Time of the first completion after a stall; messages sent before were delayed by it.
    resumed: Instant,
    /// Whether a message has ended since the path was left.
    moved: bool,
    /// Earliest time of the next probe.
    probe_at: Instant,
    backoff_ns: u64,
    /// Last time that a message ended, or that the first one in flight was sent.
    progress: Instant,
    /// Timeout of a stall, in nanoseconds.
    stall_ns: u64,
    /// Time from which more than the cost must be checked.
    check_at: u64,
    /// Cost without the selector's own queue.
    least_cost: f64,
    /// Cost of each nanosecond of that queue.
    cost_per_ns: f64,
    smoothed_ns: u64,
}

impl PathInternals {
    pub(super) fn new(path: &Path, config: &Config, leaves_slow: bool) -> Self {
        let smoothed_ns = path.traverse_ns.saturating_add(path.noise_ns);
        Self {
            counts: PathState::default(),
            traverse_ns: path.traverse_ns,
            toll_ns: path.toll_ns.max(1),
            noise_ns: path.noise_ns,
            seen: 0,
            late: 0,
            slowness: ONE,
            slow: 0,
            leaves_slow,
            left: false,
            stalled: false,
            stalls: (None, 0),
            failing: false,
            resumed: Instant(0),
            moved: false,
            probe_at: Instant(0),
            backoff_ns: config.probe_ns,
            progress: Instant(0),
            stall_ns: stall_ns(smoothed_ns, config),
            check_at: u64::MAX,
            least_cost: path.traverse_ns as i64 as f64 * ONE as f64,
            cost_per_ns: WEIGHT * ONE as f64,
            smoothed_ns,
        }
    }

    /// `k̂`: queued messages of others, at most the messages in flight.
    pub(super) fn estimated_queue(&self) -> u32 {
        if mutant::on(Mutant::PlaceUnclamped) { self.seen } else { self.seen.min(self.counts.in_flight) }
    }

    /// Cost in 16ths of nanoseconds: `k̂ · toll + T` and the selector's own queue, times the slowness.
    pub(super) fn cost(&self, queue_ns: i64) -> f64 {
        self.least_cost + self.cost_per_ns * queue_ns as f64
    }

    /// Cost without the selector's own queue.
    pub(super) fn least_cost(&self) -> f64 {
        self.least_cost
    }

    /// Whether more than the cost must be checked: the path may be stalled, left or slow.
    pub(super) fn needs_check(&self, now: Instant) -> bool {
        now.0 >= self.check_at
    }

    /// Cost with `k̂` as printed.
    pub(super) fn cost_as_printed(&self) -> u64 {
        (u64::from(self.late) * self.toll_ns).saturating_add(self.traverse_ns)
    }

    /// Cost with all messages in flight.
    pub(super) fn cost_of_queue(&self) -> u64 {
        (u64::from(self.counts.in_flight) * self.toll_ns).saturating_add(self.traverse_ns)
    }

    /// Last measured time within the hosts; before the first, the model's.
    pub(super) fn last_intra_ns(&self) -> u64 {
        if self.counts.intra_ns == 0 { self.traverse_ns } else { self.counts.intra_ns }
    }

    /// Last measured end-to-end time; before the first, the model's.
    pub(super) fn last_total_ns(&self) -> u64 {
        if self.counts.total_ns == 0 { self.traverse_ns } else { self.counts.total_ns }
    }

    /// Whether it may be selected; leaves the path if it is stalled.
    pub(super) fn usable(&mut self, now: Instant, config: &Config) -> bool {
        if !self.left && self.counts.in_flight > 0 && self.stalls(now) {
            self.record_stall(now, config);
            self.leave_path(now);
            self.update_cached_costs();
        }
        !self.left
    }

    /// Records a stall. The first one ends with the next answer: the host may have stood still. After stalls that follow
    /// each other closely, the path is probed, and each time later.
    fn record_stall(&mut self, now: Instant, config: &Config) {
        let (last, count) = self.stalls;
        let pause_ns = |count: u32| config.probe_ns.saturating_mul(1 << count.min(32)).min(config.probe_ns_max);
        let memory_ns = STALL_MEMORY_NS.saturating_add(2 * pause_ns(count));
        let count = if last.is_some_and(|last| now.0.saturating_sub(last.0) < memory_ns) { count + 1 } else { 0 };
        self.stalls = (Some(now), count);
        self.stalled = count == 0;
        if count > 0 {
            self.backoff_ns = pause_ns(count);
        }
    }

    /// Whether a probe is due. `slow`: also for a path that is only slow.
    pub(super) fn probe_due(&self, now: Instant, slow: bool) -> bool {
        let idle = self.counts.in_flight == 0 || (self.left && self.moved);
        idle && now >= self.probe_at
            && (self.left || (slow && self.slowness > ONE))
            && !mutant::on(Mutant::PlaceNeverProbed)
    }

    /// Whether it was left, or is slow.
    pub(super) fn is_left_or_slow(&self) -> bool {
        self.left || self.slowness > ONE
    }

    pub(super) fn is_left(&self) -> bool {
        self.left
    }

    /// Time at which it is stalled, if no message ends until then.
    pub(super) fn stalls_at(&self) -> Option<Instant> {
        let waits = self.counts.in_flight > 0 && !self.left;
        waits.then(|| Instant(self.progress.0.saturating_add(self.stall_ns).saturating_add(1)))
    }

    pub(super) fn probe_at(&self) -> Instant {
        self.probe_at
    }

    /// Records that a message is sent; returns the number of messages ahead of it.
    pub(super) fn sent(&mut self, now: Instant) -> u32 {
        let ahead = self.counts.in_flight;
        if ahead == 0 {
            self.progress = now;
        }
        if !self.left {
            self.probe_at = Instant(now.0.saturating_add(self.backoff_ns));
        }
        self.counts.in_flight += 1;
        self.counts.sent += 1;
        self.update_cached_costs();
        ahead
    }

    /// Records that the next message is a probe. `turns`: number of paths that share the probes of an accelerator.
    pub(super) fn probes(&mut self, now: Instant, turns: u64, config: &Config) {
        self.counts.probes += 1;
        self.moved = false;
        // A probe of a path that is only late costs as much as its delay; on a failing path the message is lost.
        let late_ns = self.counts.total_ns.saturating_mul(if self.leaves_slow { LATE } else { LATE_IN_USE });
        let most = match self.failing {
            true => config.probe_ns_max,
            false => late_ns.clamp(config.probe_ns.min(config.probe_ns_max), config.probe_ns_max),
        };
        self.backoff_ns = self.backoff_ns.saturating_mul(2).min(most);
        self.probe_at = Instant(now.0.saturating_add(self.backoff_ns.saturating_mul(turns)));
    }

    /// Makes a left path due for a probe.
    pub(super) fn probe_soon(&mut self, now: Instant) {
        if self.left {
            self.probe_at = self.probe_at.min(now);
        }
    }

    /// Records that a message was answered.
    pub(super) fn done(
        &mut self,
        now: Instant,
        ahead: &QueueAhead,
        intra_ns: Option<u64>,
        total_ns: u64,
        config: &Config,
    ) {
        // Only the first of the messages delayed by a stall counts for the slowness.
        let held_up = ahead.sent < self.resumed;
        if self.stalls(now) {
            self.resumed = now;
        }
        self.ended(now);
        self.counts.done += 1;
        self.failing = false;
        if self.stalled {
            (self.left, self.stalled) = (false, false);
        }
        self.counts.total_ns = total_ns;
        // Smoothing as of round-trip times in a transport.
        self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + total_ns / 8;
        self.stall_ns = stall_ns(self.smoothed_ns, config);
        if let Some(intra_ns) = intra_ns {
            self.measured(now, ahead, intra_ns, held_up, config);
        } else if self.left {
            self.resume_path(config);
        }
        self.update_cached_costs();
    }

    /// Records that a message failed; the selector leaves the path.
    pub(super) fn fails(&mut self, now: Instant) {
        self.ended(now);
        self.counts.failed += 1;
        (self.failing, self.stalled) = (true, false);
        if !mutant::on(Mutant::PlaceFailedKept) {
            self.leave_path(now);
        }
        self.update_cached_costs();
    }

    /// Records that a message was abandoned.
    pub(super) fn abandoned(&mut self) {
        if !mutant::on(Mutant::PlaceAbandonedKept) {
            self.counts.in_flight -= 1;
        }
        self.failing |= self.left;
        self.update_cached_costs();
    }

    pub(super) fn state(&self) -> PathState {
        PathState {
            k: self.estimated_queue(),
            slowness: self.slowness as u32,
            left_until: self.left.then_some(self.probe_at),
            ..self.counts
        }
    }

    /// Updates the estimates with a measured time within the hosts.
    fn measured(&mut self, now: Instant, ahead: &QueueAhead, intra_ns: u64, held_up: bool, config: &Config) {
        self.counts.intra_ns = intra_ns;
        self.late = if intra_ns > self.traverse_ns { self.late.saturating_add(1) } else { 0 };
        let expected = self.traverse_ns.saturating_add(ahead.queue_ns);
        let on_time = expected.saturating_add(self.noise_ns);
        // A time within the noise does not indicate a queue.
        let queue = if intra_ns > on_time { (intra_ns - expected) / self.toll_ns } else { 0 };
        self.seen = u32::try_from(queue).unwrap_or(u32::MAX).min(ahead.messages);

        if held_up {
            return;
        }
        // The rest, beyond the messages ahead, is the slowness of the path. It may at most double with each message,
        // to limit the effect of an outlier.
        let explained = on_time.saturating_add(u64::from(ahead.messages) * self.toll_ns).max(1);
        let ratio = match intra_ns <= explained {
            true => ONE,
            false => (intra_ns.saturating_mul(ONE) / explained).clamp(ONE, SLOWNESS_MAX),
        };
        let ratio = if mutant::on(Mutant::PlaceSlowKept) { ONE } else { ratio };
        self.slowness = ((self.slowness + ratio) / 2).min(2 * self.slowness);
        let slow = self.leaves_slow && ratio >= u64::from(config.stall_factor.max(1)) * ONE;
        self.slow = if slow { self.slow.saturating_add(1) } else { 0 };
        if self.slow >= config.slow_max.max(1) {
            self.leave_path(now);
        } else if !slow {
            if self.left {
                self.slowness = ratio;
                self.resume_path(config);
            }
            if ratio == ONE {
                self.backoff_ns = config.probe_ns;
            }
        }
    }

    /// Whether no message has ended for the stall timeout.
    fn stalls(&self, now: Instant) -> bool {
        now.0.saturating_sub(self.progress.0) > self.stall_ns && !mutant::on(Mutant::PlaceStallKept)
    }

    fn ended(&mut self, now: Instant) {
        self.counts.in_flight -= 1;
        self.progress = now;
        self.moved = true;
    }

    /// Updates the cached values for selections.
    fn update_cached_costs(&mut self) {
        self.check_at = match self.counts.in_flight {
            _ if self.is_left_or_slow() => 0,
            0 => u64::MAX,
            _ => self.progress.0.saturating_add(self.stall_ns),
        };
        let without_ns =
            self.traverse_ns as i64 as f64 + f64::from(self.estimated_queue()) * self.toll_ns as i64 as f64;
        let slowness = self.slowness as i64 as f64;
        (self.least_cost, self.cost_per_ns) = (without_ns * slowness, WEIGHT * slowness);
    }

    fn leave_path(&mut self, now: Instant) {
        if !self.left {
            self.left = true;
            self.moved = false;
            self.counts.times_left += 1;
            self.probe_at = Instant(now.0.saturating_add(self.backoff_ns));
        }
    }

    fn resume_path(&mut self, config: &Config) {
        (self.left, self.stalled, self.slow) = (false, false, 0);
        self.backoff_ns = config.probe_ns;
    }
}

/// Timeout of a stall, from the usual time.
fn stall_ns(usual_ns: u64, config: &Config) -> u64 {
    usual_ns.saturating_mul(u64::from(config.stall_factor)).max(config.stall_ns_min)
}
