//! Search for the highest message rate within a latency limit.

use super::{Arrivals, PathPolicy, PlaceResults, PlaceRun, PlaceSetup, measure};

/// Latency limit, and parameters of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyLimit {
    /// Limit of the median latency, nanoseconds.
    pub median_ns: u64,
    /// Bounds of the search, messages per second: a sustainable rate, and an unsustainable one.
    pub bounds: (f64, f64),
    /// Messages per run.
    pub messages: usize,
    /// Bisection steps.
    pub steps: u32,
}

/// Highest message rate of the search with a median latency within the limit.
#[must_use]
pub fn sustained(setting: &PlaceSetup, policy: PathPolicy, limit: &LatencyLimit, seed: u64) -> f64 {
    let (mut low, mut high) = limit.bounds;
    for _ in 0..limit.steps {
        let middle = (low + high) / 2.0;
        let run = PlaceRun::new(policy, Arrivals::Poisson(middle), limit.messages, seed);
        if within(&measure(setting, &run), limit) { low = middle } else { high = middle }
    }
    low
}

fn within(measured: &PlaceResults, limit: &LatencyLimit) -> bool {
    let median = measured.latency.quantile(0.5);
    measured.abandoned == 0 && median.as_nanos() <= u128::from(limit.median_ns)
}
