//! Figures of *delegate* (DPC ch. 6): servers that pass a call on, beside a caller that asks each of them.
//!
//! ```text
//! simulated: shapes ─► pathcall_models::delegate::{cost, load, lossy} ─► exact rows, with the thesis' times
//! real:      shapes ─► plan ─► ways: nodes │ twins │ stubs │ plain tonic, on hosts of a testbed (field)
//! ```
//!
//! A *shape* is a tree of requests: so many servers one after the other, a ray, one of the LDBC short reads.
//! The *twin* is plain remote calls on the same transport, in the same style; its caller asks for everything
//! itself.

mod bytes;
mod field;
mod fig6_1;
mod fig6_2;
mod fig6_4;
mod fig6_5;
mod fig6_6;
mod fig6_7;
mod instructions;
mod loss;
mod plan;
mod table6_3;
mod testbed;
mod ways;

use anyhow::{Context, Result};
use pathcall_models::delegate::cost::{Cost, Taken, called, delegated};
use pathcall_models::delegate::shapes::{Node, Shape, short_reads};

use crate::harness::{Bench, Better, Curves, Figure, Line, Metric, Points};

pub(crate) use instructions::{Face, one_hop};

/// In the order of the thesis: simulated, then real.
pub(crate) const FIGURES: [Figure; 11] = [
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
];

/// A client and twenty servers (§6.1).
const HOSTS: usize = 21;
/// Calls, each to servers drawn anew, of which the median counts.
const CALLS: u64 = 101;
/// What simulated calls are compared with.
const TWIN: &str = "RPC, simulated";

/// One of the two ways to make a call in the simulator.
type Play = fn(&[Node], usize, u64, Cost) -> Taken;

/// One of the short reads.
fn read(name: &str) -> Result<Shape> {
    short_reads().into_iter().find(|shape| shape.name == name).with_context(|| format!("there is no {name}"))
}

/// The median of what a shape's calls take on simulated hosts with the thesis' times.
fn median(play: Play, roots: &[Node], of: impl Fn(&Taken) -> u64) -> f64 {
    let mut all: Vec<u64> = (1..=CALLS).map(|seed| of(&play(roots, HOSTS, seed, Cost::THESIS))).collect();
    all.sort_unstable();
    all[all.len() / 2] as f64
}

/// Microseconds of a call in the median.
fn latency(play: Play, roots: &[Node]) -> f64 {
    median(play, roots, |taken| taken.time) / 1e3
}

/// A row of a shape's latency, simulated; `sooner`: by so many percent, as the thesis has it.
fn latency_row(bench: &mut Bench, case: &str, roots: &[Node], sooner: Option<f64>) -> Result<()> {
    let metric = Metric::new(case, TWIN, "us", Better::Lower);
    let metric = sooner.into_iter().fold(metric, |metric, sooner| metric.expect(1.0 - sooner / 100.0));
    bench.compare([metric], || Ok([latency(delegated, roots)]), || Ok([latency(called, roots)]))
}

/// Rows of latency over what makes shapes larger, and their lines.
fn latency_rows(
    bench: &mut Bench,
    x: &'static str,
    (sizes, one, several): (&[usize], &str, &str),
    shape: impl Fn(usize) -> Vec<Node>,
    sooner: &[(usize, f64)],
) -> Result<()> {
    for &n in sizes {
        let case = format!("{n} {}", if n == 1 { one } else { several });
        let expected = sooner.iter().find(|(of, _)| *of == n).map(|(_, sooner)| *sooner);
        latency_row(bench, &case, &shape(n), expected)?;
    }
    let line = |name: &str, play: Play| {
        let points: Points = sizes.iter().map(|n| (*n as f64, latency(play, &shape(*n)))).collect();
        Line { name: name.to_owned(), points }
    };
    let lines = vec![line("delegate", delegated), line("RPC", called)];
    let about = "latency in the median, simulated with the thesis' times".to_owned();
    bench.show(Curves { name: "curves", about, x, y: "us", lines });
    Ok(())
}
