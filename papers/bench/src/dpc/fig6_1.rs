//! `dpc-fig6.1`: latency over the number of servers that a call passes one after the other (DPC Fig. 6.1).

use anyhow::Result;
use pathcall_models::delegate::shapes::hops;

use crate::harness::{Bench, Figure, Kind};

pub(super) const FIGURE: Figure = Figure {
    name: "dpc-fig6.1",
    about: "latency over hops, simulated with the thesis' times",
    kind: Kind::Modelled,
    run,
};

const HOPS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 40];
/// Hops, with the thesis' reduction of latency in percent.
const REDUCTIONS: [(usize, f64); 2] = [(2, 18.0), (10, 42.0)];

fn run(bench: &mut Bench) -> Result<()> {
    super::latency_rows(bench, "hops", (&HOPS, "hop", "hops"), hops, &REDUCTIONS)
}
