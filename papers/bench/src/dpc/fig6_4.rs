//! `dpc-fig6.4`: latency of a ray over its bounces (DPC Fig. 6.4).

use anyhow::Result;
use pathcall_models::delegate::shapes::rays;

use crate::harness::{Bench, Figure, Kind};

pub(super) const FIGURE: Figure = Figure {
    name: "dpc-fig6.4",
    about: "latency of a ray over its bounces, simulated with the thesis' times",
    kind: Kind::Modelled,
    run,
};

const BOUNCES: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 40];
/// Bounces, with the thesis' reduction of latency in percent.
const REDUCTIONS: [(usize, f64); 1] = [(10, 48.0)];

fn run(bench: &mut Bench) -> Result<()> {
    super::latency_rows(bench, "bounces", (&BOUNCES, "bounce", "bounces"), rays, &REDUCTIONS)
}
