//! `testbed-delegate`: calls over several servers, between hosts with links of one millisecond: delegated calls,
//! compared with the baseline and with plain tonic.
//!
//! The expected reduction is four fifths of the theoretical one: n servers one after the other take n + 1 messages
//! instead of 2n, and so (n + 1)/2n of the time. *Of the limit* is the reached share of that reduction. A message
//! passes two links.

use anyhow::Result;
use pathcall_models::delegate::shapes::{fan_out, hops, rays, short_reads};
use pathcall_testbed::Testbed;

use super::delegate_testbed::DelegateTestbed;
use super::plan::Pattern;
use super::variants::CallVariant;
use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::percentiles;
use crate::testbed::testbed_available;

pub(super) const FIGURE: Figure = Figure {
    name: "testbed-delegate",
    about: "calls over several servers, between hosts of a testbed",
    kind: Kind::Measured,
    run,
};

/// Delay of each link.
const DELAY: &str = "1ms";
const SERVERS: usize = 5;
const CALLS: usize = 40;
const CALLS_QUICK: usize = 3;
/// Expected share of the theoretical reduction.
const SHARE: f64 = 0.8;
/// One hop has no reduction.
const ONE_HOP: f64 = 1.1;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let calls = bench.size(CALLS, CALLS_QUICK);
    let patterns = patterns();
    let hosts = DelegateTestbed::start(Testbed::builder().delay(DELAY)?, SERVERS, &patterns)?;
    let nested = hosts.hub.nested();
    for (number, pattern) in patterns.iter().enumerate() {
        let name = &pattern.name;
        compare_row(bench, &hosts, (pattern, number), calls, name, &hosts.nodes, ("RPC twin", &hosts.baseline))?;
        let stubs = format!("{name}, stubs");
        let tonic = ("tonic, hub and spoke", &hosts.hub);
        compare_row(bench, &hosts, (pattern, number), calls, &stubs, &hosts.stubs, tonic)?;
        compare_row(bench, &hosts, (pattern, number), calls, &stubs, &hosts.stubs, ("tonic, nested", &nested))?;
    }
    Ok(())
}

/// Hops, a look-up, rays, and the short reads.
fn patterns() -> Vec<Pattern> {
    let hops = [1, 2, 3, 5, 10].map(|n| Pattern::new(format!("{n} hop{}", if n == 1 { "" } else { "s" }), hops(n)));
    let look_up = Pattern::new("look-up, 10 documents", fan_out(10));
    let rays = [3, 10].map(|n| Pattern::new(format!("ray, {n} bounces"), rays(n)));
    let reads = short_reads().into_iter().map(|shape| Pattern::new(shape.name, shape.roots));
    hops.into_iter().chain([look_up]).chain(rays).chain(reads).collect()
}

/// Row of one variant compared with another.
fn compare_row(
    bench: &mut Bench,
    hosts: &DelegateTestbed,
    (pattern, number): (&Pattern, usize),
    calls: usize,
    case: &str,
    ours: &impl CallVariant,
    (peer_name, peer): (&str, &impl CallVariant),
) -> Result<()> {
    let bound = pattern.bound();
    let expected = if pattern.depth() == 1 { ONE_HOP } else { 1.0 - SHARE * (1.0 - bound) };
    let metric = Metric::new(case, peer_name, "us", Better::Lower).expect(expected).limit_of_peer(bound);
    let median = |latencies| percentiles(latencies).map(|[p50, _]| [p50]);
    bench.compare(
        [metric],
        || median(hosts.latencies(ours, number, calls)?),
        || median(hosts.latencies(peer, number, calls)?),
    )
}
