//! Figures of *delegate* (DPC ch. 6): delegated calls, compared with a caller that calls each server.
//!
//! ```text
//! simulated: shapes ─► pathcall_models::delegate::{cost, load, lossy} ─► exact rows, with the times of the thesis
//! real:      shapes ─► plan ─► variants: nodes │ baseline │ stubs │ plain tonic, on a testbed (delegate_testbed)
//! ```
//!
//! A *shape* is a tree of requests: several servers one after the other, a ray, or one of the LDBC short reads. The
//! *baseline* ([`variants::baseline`]) makes plain remote calls on the same transport; its caller makes every call
//! itself.

mod abort;
mod busy;
mod bytes;
mod cores;
mod delegate_testbed;
mod fig6_1;
mod fig6_2;
mod fig6_4;
mod fig6_5;
mod fig6_6;
mod fig6_7;
mod instructions;
mod loss;
mod pipe;
mod plan;
mod replicas;
mod table6_3;
mod testbed;
mod variants;

use anyhow::{Context, Result};
use pathcall_models::delegate::cost::{Cost, ShapeCost, called, delegated};
use pathcall_models::delegate::shapes::{RequestNode, ShortRead, short_reads};

use crate::harness::{Bench, Better, Curves, Figure, Metric, PlotLine, Points};

pub(crate) use instructions::{CallInterface, one_hop};

/// Figures in the order of the thesis: simulated, then real.
pub(crate) const FIGURES: [Figure; 16] = [
    fig6_1::FIGURE,
    fig6_2::FIGURE,
    fig6_4::FIGURE,
    fig6_5::FIGURE,
    fig6_6::FIGURE,
    fig6_7::FIGURE,
    table6_3::FIGURE,
    bytes::FIGURE,
    testbed::FIGURE,
    instructions::FIGURE,
    loss::FIGURE,
    abort::FIGURE,
    replicas::FIGURE,
    busy::FIGURE,
    cores::FIGURE,
    pipe::FIGURE,
];

/// One client and twenty servers (§6.1).
const HOSTS: usize = 21;
/// Calls with random servers, of which the median is taken.
const CALLS: u64 = 101;
/// Peer of simulated calls.
const SIMULATED_PEER: &str = "RPC, simulated";

/// Simulated call, delegated or plain.
type SimulatedCall = fn(&[RequestNode], usize, u64, Cost) -> ShapeCost;

/// Short read with this name.
fn read(name: &str) -> Result<ShortRead> {
    short_reads().into_iter().find(|shape| shape.name == name).with_context(|| format!("no short read {name}"))
}

/// Median of a property of a shape's calls, on simulated hosts with the thesis' times.
fn median(simulate: SimulatedCall, roots: &[RequestNode], of: impl Fn(&ShapeCost) -> u64) -> f64 {
    let mut all: Vec<u64> = (1..=CALLS).map(|seed| of(&simulate(roots, HOSTS, seed, Cost::THESIS))).collect();
    all.sort_unstable();
    all[all.len() / 2] as f64
}

/// Median latency of a call in microseconds.
fn latency(simulate: SimulatedCall, roots: &[RequestNode]) -> f64 {
    median(simulate, roots, |taken| taken.time) / 1e3
}

/// Row of a shape's simulated latency; `reduction`: the thesis' reduction in percent.
fn latency_row(bench: &mut Bench, case: &str, roots: &[RequestNode], reduction: Option<f64>) -> Result<()> {
    let metric = Metric::new(case, SIMULATED_PEER, "us", Better::Lower);
    let metric = reduction.into_iter().fold(metric, |metric, reduction| metric.expect(1.0 - reduction / 100.0));
    bench.compare([metric], || Ok([latency(delegated, roots)]), || Ok([latency(called, roots)]))
}

/// Rows of latency over the size of the shapes, and their lines.
fn latency_rows(
    bench: &mut Bench,
    x: &'static str,
    (sizes, one, several): (&[usize], &str, &str),
    shape: impl Fn(usize) -> Vec<RequestNode>,
    reduction: &[(usize, f64)],
) -> Result<()> {
    for &n in sizes {
        let case = format!("{n} {}", if n == 1 { one } else { several });
        let expected = reduction.iter().find(|(of, _)| *of == n).map(|(_, reduction)| *reduction);
        latency_row(bench, &case, &shape(n), expected)?;
    }
    let line = |name: &str, simulate: SimulatedCall| {
        let points: Points = sizes.iter().map(|n| (*n as f64, latency(simulate, &shape(*n)))).collect();
        PlotLine { name: name.to_owned(), points }
    };
    let lines = vec![line("delegate", delegated), line("RPC", called)];
    let about = "latency in the median, simulated with the thesis' times".to_owned();
    bench.show(Curves { name: "curves", about, x, y: "us", lines });
    Ok(())
}
