//! `dpc-fig6.2`: latency of two hops over the fan-out of the second hop (DPC Fig. 6.2).

use anyhow::Result;
use pathcall_models::delegate::shapes::fan_out;

use crate::harness::{Bench, Figure, Kind};

pub(super) const FIGURE: Figure = Figure {
    name: "dpc-fig6.2",
    about: "latency over fan-out, simulated with the thesis' times",
    kind: Kind::Modelled,
    run,
};

const SERVERS: [usize; 7] = [1, 2, 4, 8, 12, 16, 20];

fn run(bench: &mut Bench) -> Result<()> {
    super::latency_rows(bench, "servers at once", (&SERVERS, "server at once", "servers at once"), fan_out, &[])
}
