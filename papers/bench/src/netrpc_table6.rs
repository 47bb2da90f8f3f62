//! `netrpc-table6`: sums of two workers' arrays by clear policy (NetRPC Table 6): latency of a round, and goodput, with
//! *shadow* and *lazy* compared with *copy*. With both the element answers alone. *shadow* needs two rows where *copy*
//! and *lazy* need one: with as many chunks in flight, *shadow* has twice the rows here.

use anyhow::Result;
use pathcall_endpoint::map::ClearPolicy;
use pathcall_testbed::Testbed;
use pathcall_wire::LINEAR_LANES;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::testbed::workers::Workers;
use crate::testbed::{ElementTestbed, Hop, has_xdp, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-table6",
    about: "rounds and goodput of two workers, by clear policy",
    kind: Kind::Measured,
    run,
};

const WORKERS: usize = 2;
const VALUES: usize = 1 << 18;
const VALUES_QUICK: usize = 1 << 12;
/// Calls of a turn for goodput, and of a turn for single rounds.
const CALLS: usize = 4;
const ROUNDS: usize = 2_000;
const ROUNDS_QUICK: usize = 20;
/// Policies that are compared with *copy*: name, ratio of the paper's latencies (24 and 22 µs to 74 µs), and of its
/// goodputs (lazy without overflow).
const POLICIES: [(ClearPolicy, &str, f64, f64); 2] =
    [(ClearPolicy::Shadow, "shadow", 0.32, 1.0), (ClearPolicy::Lazy, "lazy", 0.30, 1.0)];

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    let (values, calls) = (bench.size(VALUES, VALUES_QUICK), bench.size(CALLS, 1));
    let rounds = bench.size(ROUNDS, ROUNDS_QUICK);
    for hop in hops {
        let copy = SumSetup::start(hop, ClearPolicy::Copy)?;
        for (clear, name, faster, more) in POLICIES {
            let policy = SumSetup::start(hop, clear)?;
            let metric =
                |what: &str, unit, better| Metric::new(format!("{name}: {what}, {}", hop.name()), "copy", unit, better);
            let round = metric("a round of 256 values", "us", Better::Lower).expect(faster);
            bench.compare([round], || policy.round(rounds), || copy.round(rounds))?;
            let goodput = metric("goodput, no rate", "Mbit/s", Better::Higher).expect(more);
            bench.compare([goodput], || policy.goodput(values, calls), || copy.goodput(values, calls))?;
        }
    }
    Ok(())
}

/// Two workers and their server on their own testbed.
struct SumSetup {
    workers: Workers,
    /// Stage of the workers; dropped last.
    _stage: ElementTestbed,
}

impl SumSetup {
    fn start(hop: Hop, clear: ClearPolicy) -> Result<Self> {
        let stage = ElementTestbed::start(Testbed::builder().hosts(Workers::hosts(WORKERS)), hop)?;
        Ok(Self { workers: Workers::clearing(&stage, WORKERS, clear)?, _stage: stage })
    }

    /// Microseconds per round, in sequence.
    fn round(&self, rounds: usize) -> Result<[f64; 1]> {
        Ok([self.workers.turn(LINEAR_LANES, rounds)?.as_secs_f64() * 1e6])
    }

    /// Goodput of each worker's values in Mbit/s.
    fn goodput(&self, values: usize, calls: usize) -> Result<[f64; 1]> {
        let took = self.workers.turn(values, calls)?;
        Ok([(values * size_of::<i32>()) as f64 * 8.0 / took.as_secs_f64() / 1e6])
    }
}
