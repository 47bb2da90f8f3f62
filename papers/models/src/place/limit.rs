//! How many messages a second can be made while half of them are answered within a limit.

use super::{Arrivals, Measured, Policy, Run, Setting, measure};

/// A limit on latency, and how it is looked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// Median latency of messages, nanoseconds.
    pub median_ns: u64,
    /// Messages a second that can't be too many, and that can't be too few.
    pub between: (f64, f64),
    /// Messages of a run.
    pub messages: usize,
    /// Halvings of the interval.
    pub steps: u32,
}

/// The most messages a second, of those tried, whose median latency is within the limit.
#[must_use]
pub fn sustained(setting: &Setting, policy: Policy, limit: &Limit, seed: u64) -> f64 {
    let (mut low, mut high) = limit.between;
    for _ in 0..limit.steps {
        let middle = (low + high) / 2.0;
        let run = Run::new(policy, Arrivals::Poisson(middle), limit.messages, seed);
        if within(&measure(setting, &run), limit) { low = middle } else { high = middle }
    }
    low
}

fn within(measured: &Measured, limit: &Limit) -> bool {
    let median = measured.latency.quantile(0.5);
    measured.given_up == 0 && median.as_nanos() <= u128::from(limit.median_ns)
}
