//! The simulator's model of a rack at the paper's scale, as figures ask it: one load, one seed.

use std::time::Duration;

use pathcall_models::clone::Scheme;
use pathcall_models::clone::{Bed, Run, Workload, measure};

/// Probabilities of jitter, which makes a call take 15 times as long (NetClone §5.1.2).
pub(crate) const HIGH: f64 = 0.01;
pub(crate) const LOW: f64 = 0.001;

/// A workload with its name in the paper.
pub(crate) type Named = (&'static str, Workload);

/// Exp(25).
pub(crate) const fn exp(jitter: f64) -> Named {
    ("Exp(25)", Workload::exponential(25, jitter))
}

/// Bimodal(90 %-25, 10 %-250).
pub(crate) const fn bimodal(jitter: f64) -> Named {
    ("Bimodal(25, 250)", Workload::bimodal(25, 250, jitter))
}

/// Six servers, or fewer, of 15 workers each.
pub(crate) fn rack(servers: usize) -> Bed {
    Bed { workers: vec![15; servers], ..Bed::default() }
}

/// The paper's six servers.
pub(crate) fn paper() -> Bed {
    rack(6)
}

/// What was seen at one load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Calls answered in a second.
    pub(crate) rate: f64,
    pub(crate) p99_us: f64,
    /// Requests that came to servers beyond one for each call, as a share of the calls.
    pub(crate) extra: f64,
    /// Answers that came to callers that had one, as a share of the calls.
    pub(crate) redundant: f64,
    /// Share of the answers that said that nobody waits.
    pub(crate) empty: f64,
}

/// About so many calls, at this load.
pub(crate) fn at(bed: &Bed, workload: Workload, scheme: Scheme, load: f64, calls: usize, seed: u64) -> Point {
    let duration = Duration::from_secs_f64(calls as f64 / (load * bed.capacity(&workload)));
    let measured = measure(bed, &Run { scheme, workload, load, seed, duration });
    let of_calls = |count: u64| count as f64 / measured.calls.max(1) as f64;
    Point {
        rate: measured.throughput,
        p99_us: measured.latency.quantile(0.99).as_secs_f64() * 1e6,
        extra: of_calls(measured.extra),
        redundant: of_calls(measured.redundant),
        empty: measured.idle as f64 / measured.answers.max(1) as f64,
    }
}
