//! Slow-down of all servers together, as the calls of one method show it.
//!
//! ```text
//! latencies ─▶ recent: their lower quartile over the last calls ──┐
//!                │ slowly, by time                                ├─▶ is_slow: recent > 4 · usual
//!                └──▶ usual ──────────────────────────────────────┘
//! ```
//!
//! If one server of several is slow, at least one call in four is still fast, and extra requests help. If more than
//! three calls in four take four times as long as usual, hardly any server is fast, and extra requests would only add
//! load. A call that takes longer than the recent quartile is recorded while it still waits, so calls that get no
//! answer count as well.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

/// Part of the calls that are faster than [`Slowdown::recent`].
const QUANTILE: f64 = 0.25;
/// Greatest change of the logarithm of the recent quartile by one call.
const GAIN: f64 = 0.06;
/// Calls before the usual latency is known.
const FIRST_CALLS: u32 = 64;
/// Calls over which the usual latency is an average; afterwards it follows slowly.
const AVERAGED_CALLS: u32 = 1024;
/// Factor between the recent and the usual latency from which all servers count as slow, as a logarithm: 4.
const SLOW_LN: f64 = 2.0 * std::f64::consts::LN_2;
/// Times in which the usual latency doubles and halves at most.
const DOUBLING: Duration = Duration::from_secs(120);
const HALVING: Duration = Duration::from_secs(60);
/// Waiting calls that are watched at most; the others are recorded when they are answered.
const WATCHED_MAX: usize = 128;

/// Record of one method's latencies. Its memory is bounded.
#[derive(Debug, Clone, Default)]
pub(super) struct Slowdown {
    /// Number of calls, up to [`AVERAGED_CALLS`].
    calls: u32,
    /// Logarithms of the latencies in nanoseconds.
    recent_ln: f64,
    usual_ln: f64,
    /// Time of the last change of the usual latency.
    updated_at: Instant,
    /// Waiting calls with their start, the oldest first.
    watched: VecDeque<(u32, Instant)>,
}

impl Slowdown {
    /// Watches a call from its start.
    pub(super) fn watch(&mut self, seq: u32, started_at: Instant) {
        if self.watched.len() < WATCHED_MAX {
            self.watched.push_back((seq, started_at));
        }
    }

    /// Returns the next watched call that takes longer than recent calls; it is watched no more.
    pub(super) fn next_overdue(&mut self, now: Instant) -> Option<(u32, Instant)> {
        let recent = Duration::from_nanos(self.recent_ln.exp() as u64);
        let (_, started_at) = self.watched.front().filter(|_| self.calls >= FIRST_CALLS)?;
        if now.since(*started_at) > recent { self.watched.pop_front() } else { None }
    }

    /// Records the latency of a call, or the time that it has waited so far.
    pub(super) fn record(&mut self, now: Instant, latency: Duration) {
        let latency_ln = (latency.as_nanos().max(1) as f64).ln();
        if self.calls == 0 {
            self.recent_ln = latency_ln;
        }
        // The first steps are larger, so that the quartile does not depend on the first call.
        let gain = GAIN.max(2.0 / f64::from(self.calls + 1));
        self.recent_ln += gain * if latency_ln > self.recent_ln { QUANTILE } else { QUANTILE - 1.0 };
        let elapsed = now.since(self.updated_at).as_secs_f64();
        self.updated_at = self.updated_at.max(now);
        let difference = self.recent_ln - self.usual_ln;
        if self.calls < FIRST_CALLS / 2 {
            self.usual_ln = self.recent_ln;
        } else if self.calls < AVERAGED_CALLS && difference < SLOW_LN {
            self.usual_ln += difference / f64::from(self.calls - FIRST_CALLS / 2 + 1);
        } else {
            let change = |doubling: Duration| elapsed / doubling.as_secs_f64() * std::f64::consts::LN_2;
            self.usual_ln += difference.clamp(-change(HALVING), change(DOUBLING));
        }
        self.calls = (self.calls + 1).min(AVERAGED_CALLS);
    }

    /// Records the latency of a call that only failed answers ended. A failure that is much faster than usual answers says
    /// nothing of how soon servers answer.
    pub(super) fn record_failed(&mut self, now: Instant, latency: Duration) {
        let latency_ln = (latency.as_nanos().max(1) as f64).ln();
        if self.calls < FIRST_CALLS || latency_ln > self.usual_ln - SLOW_LN {
            self.record(now, latency);
        }
    }

    /// Whether hardly any server is as fast as usual.
    pub(super) fn is_slow(&self) -> bool {
        self.calls >= FIRST_CALLS && self.recent_ln - self.usual_ln > SLOW_LN && !mutant::on(Mutant::CloneOutageIgnored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathcall_wire::SplitMix64;

    const MS: f64 = 1e6;

    /// Calls at intervals of 1 ms.
    struct Calls {
        slowdown: Slowdown,
        random: SplitMix64,
        now: Instant,
    }

    impl Calls {
        fn new() -> Self {
            Self { slowdown: Slowdown::default(), random: SplitMix64::new(7), now: Instant(0) }
        }

        fn uniform(&mut self) -> f64 {
            f64::from(self.random.below(1 << 30)) / f64::from(1 << 30)
        }

        /// Latency of an exponential distribution, in nanoseconds.
        fn exponential(&mut self, mean: f64) -> f64 {
            -mean * (1.0 - self.uniform()).ln()
        }

        /// Records calls with these latencies; returns after how many of them all servers count as slow, or no more.
        fn make(&mut self, calls: u32, mut latency: impl FnMut(&mut Self) -> f64) -> Option<u32> {
            let before = self.slowdown.is_slow();
            let mut changed = None;
            for call in 0..calls {
                self.now = self.now + Duration::from_millis(1);
                let took = latency(self);
                self.slowdown.record(self.now, Duration::from_nanos(took as u64));
                if self.slowdown.is_slow() != before {
                    changed = changed.or(Some(call));
                }
            }
            changed
        }
    }

    #[test]
    fn fast_failures_hide_no_slow_down_and_change_no_usual_latency() {
        let mut calls = Calls::new();
        calls.make(20_000, |calls| calls.exponential(MS));
        let fail = |calls: &mut Calls| {
            let now = calls.now;
            calls.slowdown.record_failed(now, Duration::from_micros(10));
        };
        // For five minutes, all calls fail at once.
        for _ in 0..300_000 {
            calls.now = calls.now + Duration::from_millis(1);
            fail(&mut calls);
        }
        assert_eq!(calls.make(5_000, |calls| calls.exponential(MS)), None, "the servers are as fast as before");
        // Half of the calls fail at once, the others are ten times as slow.
        let noticed = calls.make(1_000, |calls| {
            fail(calls);
            calls.exponential(10.0 * MS)
        });
        assert!(noticed.is_some_and(|after| after < 300), "{noticed:?}");
    }

    #[test]
    fn tenfold_slow_down_of_all_servers_is_noticed_and_ends() {
        let mut calls = Calls::new();
        assert_eq!(calls.make(20_000, |calls| calls.exponential(MS)), None, "no false alarm");
        let noticed = calls.make(10_000, |calls| calls.exponential(10.0 * MS)).expect("noticed");
        assert!(noticed < 150 && calls.slowdown.is_slow(), "noticed after {noticed} calls");
        let ended = calls.make(10_000, |calls| calls.exponential(MS)).expect("ended");
        assert!(ended < 100 && !calls.slowdown.is_slow(), "ended after {ended} calls");
    }

    #[test]
    fn slow_half_of_the_servers_is_no_slow_down_of_all() {
        let mut calls = Calls::new();
        calls.make(5_000, |calls| calls.exponential(MS));
        let mut slow = 0;
        let one_of_two = |calls: &mut Calls| {
            slow += u32::from(calls.slowdown.is_slow());
            let mean = if calls.random.below(2) == 0 { MS } else { 50.0 * MS };
            calls.exponential(mean)
        };
        calls.make(20_000, one_of_two);
        assert!(slow < 200, "{slow} of 20,000 calls");
    }

    #[test]
    fn bimodal_latencies_are_no_slow_down() {
        let mut calls = Calls::new();
        let bimodal = |calls: &mut Calls| if calls.random.below(10) == 0 { 100.0 * MS } else { MS };
        assert_eq!(calls.make(20_000, bimodal), None);
    }

    #[test]
    fn lasting_slow_down_becomes_usual_after_minutes() {
        let mut calls = Calls::new();
        calls.make(5_000, |_| MS);
        assert!(calls.make(60_000, |_| 10.0 * MS).is_some() && calls.slowdown.is_slow(), "after a minute");
        let usual = calls.make(400_000, |_| 10.0 * MS).expect("usual");
        assert!((60_000..300_000).contains(&usual), "after {usual} ms more");
    }

    #[test]
    fn calls_without_answer_are_overdue_once() {
        let mut slowdown = Slowdown::default();
        (0..AVERAGED_CALLS).for_each(|_| slowdown.record(Instant(0), Duration::from_millis(1)));
        (0..2 * WATCHED_MAX as u32).for_each(|seq| slowdown.watch(seq, Instant(0)));
        assert_eq!(slowdown.next_overdue(Instant(500_000)), None);
        let late = Instant(20_000_000);
        let mut overdue = 0;
        while let Some((seq, started_at)) = slowdown.next_overdue(late) {
            assert_eq!(seq, overdue);
            slowdown.record(late, late.since(started_at));
            overdue += 1;
        }
        assert!(overdue as usize == WATCHED_MAX && slowdown.is_slow());
    }
}
