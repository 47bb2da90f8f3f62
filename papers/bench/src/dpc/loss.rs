//! `dpc-loss`: calls through three servers on links that lose one in a hundred frames, beside the same without loss.
//!
//! In the simulator, with the real sessions: how much longer the slowest in a hundred calls take. On a testbed, many
//! at once: how many calls fail, beside links that lose nothing, and beside plain tonic on the same links. (Another
//! implementation of delegated calls fails 3.8 % of these.)

use std::time::Duration;

use anyhow::Result;
use pathcall_models::delegate::lossy::{self, Chance, Setting};
use pathcall_models::delegate::shapes::hops;
use pathcall_testbed::Testbed;

use super::field::Field;
use super::plan::Pattern;
use super::ways::Way;
use crate::bed::stands;
use crate::harness::{Bench, Better, Figure, Metric};
use crate::net::percentiles;

pub(super) const FIGURE: Figure =
    Figure { name: "dpc-loss", about: "calls of three hops where each link loses 1 %: how many fail, how late", run };

const HOPS: usize = 3;
/// What each link loses, in either direction; a message passes two.
const LOSS: &str = "1%";
const LOSS_SIMULATED: Chance = Chance::percent(1);
const CALLS: usize = 20_000;
const CALLS_QUICK: usize = 1_000;
const AT_ONCE: usize = 64;
/// As many times the time without loss as the slowest in a hundred may take.
const SLOWER: f64 = 3.0;
/// Simulated links' delays, and pauses between the begins of calls, in microseconds.
const SIMULATED: [(u64, u64); 3] = [(50, 1_000), (50, 40), (5_000, 5_000)];

fn run(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    for (delay_us, pause_us) in SIMULATED {
        simulated(bench, calls, Duration::from_micros(delay_us), Duration::from_micros(pause_us))?;
    }
    if !stands(bench) {
        return Ok(());
    }
    let patterns = [Pattern::new("3 hops", hops(HOPS))];
    let field = |loss| Field::start(Testbed::builder().wired().loss(loss)?, HOPS, &patterns);
    let (lossy, whole) = (field(LOSS)?, field("0%")?);
    let ours = |field: &Field| outcome(field, &field.nodes, calls);
    let peer = |field: &Field| outcome(field, &field.hub, calls);
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

/// One for each of the rows.
fn outcome(field: &Field, way: &impl Way, calls: usize) -> Result<[f64; 4]> {
    let turn = field.calls(way, 0, calls, AT_ONCE)?;
    for error in &turn.failed {
        eprintln!("a call failed: {error:#}");
    }
    let (complete, rate) = (turn.took.len() as f64, turn.took.len() as f64 / turn.elapsed.as_secs_f64());
    let [p50, p99] = percentiles(turn.took)?;
    Ok([complete, p50, p99, rate])
}

fn simulated(bench: &mut Bench, calls: usize, delay: Duration, pause: Duration) -> Result<()> {
    let play = |loss| lossy::play(Setting { hops: HOPS as u8, calls, pause, delay, loss, seed: 1 });
    let case = format!("{HOPS} hops, simulated, links of {delay:?}, a call each {pause:?}");
    let metric = |what: &str, unit, better| Metric::new(format!("{case}, {what}"), "no loss", unit, better);
    let metrics = [
        metric(&format!("complete of {calls}"), "calls", Better::Higher).expect(1.0),
        metric("p50", "us", Better::Lower),
        metric("p99", "us", Better::Lower).expect(SLOWER),
        metric("p99.9", "us", Better::Lower),
    ];
    let turn = |loss| {
        let calls = play(loss);
        let us = |share| calls.quantile(share).as_secs_f64() * 1e6;
        Ok([calls.complete as f64, us(0.5), us(0.99), us(0.999)])
    };
    bench.compare(metrics, || turn(LOSS_SIMULATED), || turn(Chance(0)))
}
