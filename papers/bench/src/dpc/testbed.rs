//! `testbed-delegate`: calls over several servers, between hosts whose links take a millisecond: passed on, beside
//! the twin and plain tonic.
//!
//! What is expected is four fifths of what there is to gain: n servers one after the other take n + 1 messages of
//! 2n, and so (n + 1)/2n of the time. *Of the limit* is how much of that is reached. A message passes two links.

use anyhow::Result;
use pathcall_models::delegate::shapes::{fan_out, hops, rays, short_reads};
use pathcall_testbed::Testbed;

use super::field::Field;
use super::plan::Pattern;
use super::ways::Way;
use crate::bed::stands;
use crate::harness::{Bench, Better, Figure, Metric};
use crate::net::percentiles;

pub(super) const FIGURE: Figure =
    Figure { name: "testbed-delegate", about: "calls over several servers, between hosts of a testbed", run };

/// Of each link.
const DELAY: &str = "1ms";
const SERVERS: usize = 5;
const CALLS: usize = 40;
const CALLS_QUICK: usize = 3;
/// What is to be reached of what there is to gain.
const SHARE: f64 = 0.8;
/// At one hop there is nothing to gain.
const ONE_HOP: f64 = 1.1;

fn run(bench: &mut Bench) -> Result<()> {
    if !stands(bench) {
        return Ok(());
    }
    let calls = bench.size(CALLS, CALLS_QUICK);
    let patterns = patterns();
    let field = Field::start(Testbed::builder().delay(DELAY)?, SERVERS, &patterns)?;
    let nested = field.hub.nested();
    for (number, pattern) in patterns.iter().enumerate() {
        let name = &pattern.name;
        beside(bench, &field, (pattern, number), calls, name, &field.nodes, ("RPC twin", &field.twins))?;
        let stubs = format!("{name}, stubs");
        let tonic = ("tonic, hub and spoke", &field.hub);
        beside(bench, &field, (pattern, number), calls, &stubs, &field.stubs, tonic)?;
        beside(bench, &field, (pattern, number), calls, &stubs, &field.stubs, ("tonic, nested", &nested))?;
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

/// A row of one way beside another.
fn beside(
    bench: &mut Bench,
    field: &Field,
    (pattern, number): (&Pattern, usize),
    calls: usize,
    case: &str,
    ours: &impl Way,
    (peer_name, peer): (&str, &impl Way),
) -> Result<()> {
    let bound = pattern.bound();
    let expected = if pattern.depth() == 1 { ONE_HOP } else { 1.0 - SHARE * (1.0 - bound) };
    let metric = Metric::new(case, peer_name, "us", Better::Lower).expect(expected).limit_of_peer(bound);
    let median = |took| percentiles(took).map(|[p50, _]| [p50]);
    bench.compare([metric], || median(field.took(ours, number, calls)?), || median(field.took(peer, number, calls)?))
}
