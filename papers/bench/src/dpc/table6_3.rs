//! `dpc-table6.3`: messages of the LDBC short reads, in total and at the client (DPC Table 6.3). The expected values
//! are those of the table.

use anyhow::Result;
use pathcall_models::delegate::cost::{called, delegated};
use pathcall_models::delegate::shapes::short_reads;

use super::{SIMULATED_PEER, SimulatedCall, median};
use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(super) const FIGURE: Figure = Figure {
    name: "dpc-table6.3",
    about: "messages of LDBC's short reads, counted in the simulator",
    kind: Kind::Counted,
    run,
};

fn run(bench: &mut Bench) -> Result<()> {
    for shape in short_reads() {
        let metric = |what: &str, table: u64| {
            let metric = Metric::new(format!("{}, {what}", shape.name), SIMULATED_PEER, "messages", Better::Lower);
            metric.expect(table as f64 / shape.rpc as f64)
        };
        let metrics = [metric("all", shape.dpc.0), metric("at the client", shape.dpc.1)];
        let count = |play: SimulatedCall| {
            let all = median(play, &shape.roots, |taken| taken.messages);
            Ok([all, median(play, &shape.roots, |taken| taken.at_client)])
        };
        bench.compare(metrics, || count(delegated), || count(called))?;
    }
    Ok(())
}
