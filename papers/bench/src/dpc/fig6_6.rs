//! `dpc-fig6.6`: processor time of hosts for the LDBC short reads: total, client and servers (DPC Fig. 6.6).
//!
//! The text of the thesis does not contain the values of its bars, so the rows have no expected ratio.

use anyhow::Result;
use pathcall_models::delegate::cost::{ShapeCost, called, delegated};
use pathcall_models::delegate::shapes::short_reads;

use super::{SIMULATED_PEER, SimulatedCall, median};
use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(super) const FIGURE: Figure =
    Figure { name: "dpc-fig6.6", about: "processor time of LDBC's short reads, simulated", kind: Kind::Modelled, run };

fn run(bench: &mut Bench) -> Result<()> {
    for shape in short_reads() {
        let metric = |who| Metric::new(format!("{}, {who}", shape.name), SIMULATED_PEER, "us", Better::Lower);
        let parts: [fn(&ShapeCost) -> u64; 3] =
            [|taken| taken.busy.0 + taken.busy.1, |taken| taken.busy.0, |taken| taken.busy.1];
        let busy = |play: SimulatedCall| Ok(parts.map(|part| median(play, &shape.roots, part) / 1e3));
        bench.compare([metric("all"), metric("client"), metric("servers")], || busy(delegated), || busy(called))?;
    }
    Ok(())
}
