//! `dpc-loss`: calls through three servers on links with 1 % loss, compared with the same calls without loss.
//!
//! In the simulator with the real sessions: ratio of the 99th percentiles. On a testbed with many concurrent calls:
//! failed calls, compared with links without loss, and with plain tonic on the same links. (Another implementation of
//! delegated calls fails 3.8 % of these.)
//! implementation of delegated calls fails 3.8 % of these.)

use std::time::Duration;

use anyhow::Result;
use pathcall_models::delegate::lossy::{self, Chance, LossySetup};
use pathcall_models::delegate::shapes::hops;
use pathcall_testbed::Testbed;

use super::delegate_testbed::DelegateTestbed;
use super::plan::Pattern;
use super::variants::CallVariant;
use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::percentiles;
use crate::testbed::testbed_available;

pub(super) const FIGURE: Figure = Figure {
    name: "dpc-loss",
    about: "calls of three hops where each link loses 1 %: how many fail, how late",
    kind: Kind::Measured,
    run,
};

const HOPS: usize = 3;
/// Loss of each link, in either direction. A message passes two links.
const LOSS: &str = "1%";
const LOSS_SIMULATED: Chance = Chance::percent(1);
const CALLS: usize = 20_000;
const CALLS_QUICK: usize = 1_000;
const AT_ONCE: usize = 64;
/// Maximum ratio of the 99th percentile to the latency without loss.
const P99_RATIO_MAX: f64 = 3.0;
/// Delays of simulated links, and pauses between the starts of calls, in microseconds.
const SIMULATED: [(u64, u64); 3] = [(50, 1_000), (50, 40), (5_000, 5_000)];

fn run(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    for (delay_us, pause_us) in SIMULATED {
        simulated(bench, calls, Duration::from_micros(delay_us), Duration::from_micros(pause_us))?;
    }
    if !testbed_available(bench) {
        return Ok(());
    }
    let patterns = [Pattern::new("3 hops", hops(HOPS))];
    let hosts = |loss| DelegateTestbed::start(Testbed::builder().wired().loss(loss)?, HOPS, &patterns);
    let (lossy, whole) = (hosts(LOSS)?, hosts("0%")?);
    let ours = |hosts: &DelegateTestbed| outcome(hosts, &hosts.nodes, calls);
    let peer = |hosts: &DelegateTestbed| outcome(hosts, &hosts.hub, calls);
    bench.compare(metrics(calls, "no loss"), || ours(&lossy), || ours(&whole))?;
    bench.compare(metrics(calls, "tonic, hub and spoke"), || ours(&lossy), || peer(&lossy))
}

/// Rows of real calls.
fn metrics(calls: usize, peer: &str) -> [Metric; 4] {
    let metric = |what: &str, unit, better| Metric::new(format!("{HOPS} hops, {what}"), peer, unit, better);
    [
        metric(&format!("complete of {calls}"), "calls", Better::Higher).expect(1.0),
        metric("p50", "us", Better::Lower),
        metric("p99", "us", Better::Lower),
        metric("rate", "calls/s", Better::Higher),
    ]
}

/// Value of each row of [`metrics`].
fn outcome(hosts: &DelegateTestbed, variant: &impl CallVariant, calls: usize) -> Result<[f64; 4]> {
    let turn = hosts.calls(variant, 0, calls, AT_ONCE)?;
    for error in &turn.failed {
        eprintln!("a call failed: {error:#}");
    }
    let (complete, rate) = (turn.latencies.len() as f64, turn.latencies.len() as f64 / turn.elapsed.as_secs_f64());
    let [p50, p99] = percentiles(turn.latencies)?;
    Ok([complete, p50, p99, rate])
}

fn simulated(bench: &mut Bench, calls: usize, delay: Duration, pause: Duration) -> Result<()> {
    let play = |loss| lossy::play(LossySetup { hops: HOPS as u8, calls, pause, delay, loss, seed: 1 });
    let case = format!("{HOPS} hops, simulated, links of {delay:?}, a call each {pause:?}");
    let metric = |what: &str, unit, better| {
        Metric::new(format!("{case}, {what}"), "no loss", unit, better).kind(Kind::Simulated)
    };
    let metrics = [
        metric(&format!("complete of {calls}"), "calls", Better::Higher).expect(1.0),
        metric("p50", "us", Better::Lower),
        metric("p99", "us", Better::Lower).expect(P99_RATIO_MAX),
        metric("p99.9", "us", Better::Lower),
    ];
    let turn = |loss| {
        let calls = play(loss);
        let us = |share| calls.quantile(share).as_secs_f64() * 1e6;
        Ok([calls.complete as f64, us(0.5), us(0.99), us(0.999)])
    };
    bench.compare(metrics, || turn(LOSS_SIMULATED), || turn(Chance(0)))
}
