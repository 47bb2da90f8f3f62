//! Access of the figures to the simulated rack at the paper's scale: one load, one seed.

use std::time::Duration;

use pathcall_models::clone::Scheme;
use pathcall_models::clone::{CloneRun, CloneTestbed, HEDGED_AFTER, Workload, measure};

/// Probabilities of jitter, which lengthens a call by a factor of 15 (NetClone §5.1.2).
pub(crate) const HIGH: f64 = 0.01;
pub(crate) const LOW: f64 = 0.001;

/// Workload with its name in the paper.
pub(crate) type NamedWorkload = (&'static str, Workload);

/// Exp(25).
pub(crate) const fn exp(jitter: f64) -> NamedWorkload {
    ("Exp(25)", Workload::exponential(25, jitter))
}

/// Bimodal(90 %-25, 10 %-250).
pub(crate) const fn bimodal(jitter: f64) -> NamedWorkload {
    ("Bimodal(25, 250)", Workload::bimodal(25, 250, jitter))
}

/// Rack of `servers` servers with 15 workers each.
pub(crate) fn rack(servers: usize) -> CloneTestbed {
    CloneTestbed { workers: vec![15; servers], ..CloneTestbed::default() }
}

/// Rack of the paper, with six servers.
pub(crate) fn paper() -> CloneTestbed {
    rack(6)
}

/// Results at one load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Calls answered per second.
    pub(crate) rate: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Requests received by servers beyond one per call, as a share of the calls.
    pub(crate) extra: f64,
    /// Second answers received by callers, as a share of the calls.
    pub(crate) redundant: f64,
    /// Share of the answers that report an empty queue.
    pub(crate) empty: f64,
}

/// Runs about `calls` calls at this load.
pub(crate) fn at(
    testbed: &CloneTestbed,
    workload: Workload,
    scheme: Scheme,
    load: f64,
    calls: usize,
    seed: u64,
) -> Point {
    let run = CloneRun { scheme, workload, load, hedged_after: HEDGED_AFTER, seed, duration: Duration::ZERO };
    of_run(testbed, run, calls)
}

/// Makes about `calls` calls by this run.
pub(crate) fn of_run(testbed: &CloneTestbed, run: CloneRun, calls: usize) -> Point {
    let duration = Duration::from_secs_f64(calls as f64 / (run.load * testbed.capacity(&run.workload)));
    let measured = measure(testbed, &CloneRun { duration, ..run });
    let of_calls = |count: u64| count as f64 / measured.calls.max(1) as f64;
    Point {
        rate: measured.throughput,
        p50_us: measured.latency.quantile(0.5).as_secs_f64() * 1e6,
        p99_us: measured.latency.quantile(0.99).as_secs_f64() * 1e6,
        extra: of_calls(measured.extra),
        redundant: of_calls(measured.redundant),
        empty: measured.idle as f64 / measured.answers.max(1) as f64,
    }
}
