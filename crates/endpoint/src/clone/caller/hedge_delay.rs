//! Delay of hedges, learned from calls: a share of the calls takes longer.
//!
//! The delay is the quantile of the latencies that this share exceeds, by stochastic approximation (Robbins and Monro
//! 1951) on a logarithmic scale: a call that takes longer lengthens the delay, a call that does not shortens it. It
//! needs no latency of a call that was answered by another server, and no memory but its last value.
//!
//! A hedge pays if its server answers first. If hedges seldom win, because all servers are equally fast or all are slow,
//! the share becomes smaller, down to one twentieth.

use std::time::Duration;

use pathcall_wire::Instant;

/// Calls of which the first delay is computed; none of them is hedged.
const FIRST_CALLS: u32 = 16;
/// First delay in multiples of their mean latency.
const FIRST_FACTOR: f64 = 4.0;
/// Greatest change of the logarithm of the delay by one call.
const GAIN: f64 = 0.1;
/// Weight of one hedge in the share of hedges that win.
const WIN_WEIGHT: f64 = 1.0 / 32.0;
/// Share of hedges that win, from which hedges get their whole share of the calls.
const WINS_ENOUGH: f64 = 0.2;
/// Least part of that share.
const PART_MIN: f64 = 0.05;
/// Limits of the logarithm of the delay in nanoseconds: 1 us to 1,000 s.
const LOG_RANGE: (f64, f64) = (6.9, 27.6);

/// Delay of the hedges of one method.
#[derive(Debug, Clone)]
pub(super) struct HedgeDelay {
    /// Logarithm of the delay in nanoseconds.
    log_ns: f64,
    /// Number of the first calls, and the sum of their latencies.
    first: (u32, Duration),
    /// Share of hedges that win.
    wins: f64,
}

impl Default for HedgeDelay {
    fn default() -> Self {
        Self { log_ns: LOG_RANGE.1, first: (0, Duration::ZERO), wins: 1.0 }
    }
}

impl HedgeDelay {
    /// The delay; `None` before the first calls are answered.
    pub(super) fn get(&self) -> Option<Duration> {
        (self.first.0 == FIRST_CALLS).then(|| Duration::from_nanos(self.log_ns.exp() as u64))
    }

    /// Time to which a hedge that is due has to wait, because the delay has grown since the call was sent at `since`.
    /// `None`: it waits no longer, and the delay grows, once for each call.
    pub(super) fn wait_longer(
        &mut self,
        now: Instant,
        share: f64,
        since: Instant,
        is_overdue: &mut bool,
    ) -> Option<Instant> {
        if let Some(delay) = self.get().filter(|delay| now.since(since) < *delay) {
            return Some(since + delay);
        }
        if !std::mem::replace(is_overdue, true) {
            self.record_overdue(share);
        }
        None
    }

    /// Records the answer to a call. `wins`: whether it is that of the hedge, if there was one.
    pub(super) fn record_answer(&mut self, latency: Duration, share: f64, wins: Option<bool>, is_overdue: bool) {
        if let Some(wins) = wins {
            self.record_hedge(wins);
        } else if self.get().is_none_or(|delay| latency < delay) {
            self.record_in_time(latency, share);
        } else if !is_overdue {
            self.record_overdue(share);
        }
    }

    /// Records a call that was answered within the delay, or before there was one.
    fn record_in_time(&mut self, latency: Duration, share: f64) {
        let (calls, sum) = &mut self.first;
        if *calls == FIRST_CALLS {
            return self.add(-GAIN * self.part(share));
        }
        (*calls, *sum) = (*calls + 1, sum.saturating_add(latency));
        if *calls == FIRST_CALLS {
            let mean = *sum / FIRST_CALLS;
            self.log_ns = (mean.as_nanos() as f64 * FIRST_FACTOR).ln().clamp(LOG_RANGE.0, LOG_RANGE.1);
        }
    }

    /// Records a call that takes longer than the delay.
    fn record_overdue(&mut self, share: f64) {
        self.add(GAIN * (1.0 - self.part(share)));
    }

    /// Records the answer to a hedged call: whether it is that of the hedge.
    fn record_hedge(&mut self, wins: bool) {
        self.wins += WIN_WEIGHT * (f64::from(u8::from(wins)) - self.wins);
    }

    /// Share of the calls that are hedged now.
    fn part(&self, share: f64) -> f64 {
        share * (self.wins / WINS_ENOUGH).clamp(PART_MIN, 1.0)
    }

    fn add(&mut self, change: f64) {
        self.log_ns = (self.log_ns + change).clamp(LOG_RANGE.0, LOG_RANGE.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathcall_wire::SplitMix64;

    /// Makes calls with these latencies at the first server and at another one. Returns the share that is hedged, and
    /// the share of the hedges that win.
    fn make_calls(delay: &mut HedgeDelay, calls: u32, mut latency: impl FnMut() -> f64) -> (f64, f64) {
        const SHARE: f64 = 0.05;
        let (mut hedged, mut won) = (0, 0);
        for _ in 0..calls {
            let (first, other) = (latency(), latency());
            let after = delay.get().map_or(f64::INFINITY, |after| after.as_secs_f64());
            if first <= after {
                delay.record_in_time(Duration::from_secs_f64(first), SHARE);
                continue;
            }
            delay.record_overdue(SHARE);
            delay.record_hedge(after + other < first);
            hedged += 1;
            won += u32::from(after + other < first);
        }
        (f64::from(hedged) / f64::from(calls), f64::from(won) / f64::from(hedged.max(1)))
    }

    fn uniform(random: &mut SplitMix64) -> f64 {
        f64::from(random.below(1 << 30)) / f64::from(1 << 30)
    }

    #[test]
    fn share_is_hedged_whatever_the_distribution() {
        let exponential = |random: &mut SplitMix64| -1e-3 * (1.0 - uniform(random)).ln();
        let bimodal = |random: &mut SplitMix64| if uniform(random) < 0.96 { 25e-6 } else { 250e-6 };
        let pauses =
            |random: &mut SplitMix64| 1e-3 * (1.0 + uniform(random)) * if uniform(random) < 0.02 { 50.0 } else { 1.0 };
        let shapes: [fn(&mut SplitMix64) -> f64; 3] = [exponential, bimodal, pauses];
        for (at, shape) in shapes.into_iter().enumerate() {
            let (mut delay, mut random) = (HedgeDelay::default(), SplitMix64::new(7));
            make_calls(&mut delay, 5_000, || shape(&mut random));
            let (hedged, won) = make_calls(&mut delay, 50_000, || shape(&mut random));
            assert!((0.03..0.07).contains(&hedged) && won > 0.2, "shape {at}: {hedged} hedged, {won} won");
        }
    }

    #[test]
    fn hedges_that_never_win_become_rare() {
        let mut delay = HedgeDelay::default();
        make_calls(&mut delay, 5_000, || 1e-3);
        let (hedged, won) = make_calls(&mut delay, 50_000, || 1e-3);
        assert!(hedged < 0.004 && won == 0.0, "{hedged} hedged, {won} won");
    }

    #[test]
    fn few_hedges_follow_when_all_servers_become_slow_at_once() {
        let (mut delay, mut random) = (HedgeDelay::default(), SplitMix64::new(7));
        let mut latency = |mean: f64| -mean * (1.0 - uniform(&mut random)).ln();
        make_calls(&mut delay, 5_000, || latency(1e-3));
        let (hedged, _) = make_calls(&mut delay, 1_000, || latency(10e-3));
        assert!(hedged < 0.1, "{hedged}");
        let (hedged, _) = make_calls(&mut delay, 5_000, || latency(1e-3));
        assert!(hedged < 0.05, "{hedged}");
    }

    #[test]
    fn first_calls_are_not_hedged() {
        let mut delay = HedgeDelay::default();
        for _ in 0..FIRST_CALLS {
            assert_eq!(delay.get(), None);
            delay.record_in_time(Duration::from_millis(1), 0.05);
        }
        let first = delay.get().expect("a delay").as_micros();
        assert!((3_990..=4_000).contains(&first), "{first}");
    }
}
