//! `dpc-fig6.5`: latency of the LDBC short reads (DPC Fig. 6.5).

use anyhow::Result;
use pathcall_models::delegate::shapes::short_reads;

use crate::harness::{Bench, Figure, Kind};

pub(super) const FIGURE: Figure = Figure {
    name: "dpc-fig6.5",
    about: "latency of LDBC's short reads, simulated with the thesis' times",
    kind: Kind::Modelled,
    run,
};

/// Reduction of latency in the thesis, in percent (§6.4).
const REDUCTIONS: [(&str, f64); 3] = [("IS2", 49.0), ("IS3", 24.0), ("IS7", 44.0)];

fn run(bench: &mut Bench) -> Result<()> {
    for shape in short_reads() {
        let reduction = REDUCTIONS.iter().find(|(name, _)| *name == shape.name).map(|(_, reduction)| *reduction);
        super::latency_row(bench, shape.name, &shape.roots, reduction)?;
    }
    Ok(())
}
