//! `dpc-table6.3`: messages of the LDBC short reads, in all and at the client (DPC Table 6.3). What is expected is
//! what the table has.

use anyhow::Result;
use pathcall_models::delegate::cost::{called, delegated};
use pathcall_models::delegate::shapes::short_reads;

use super::{Play, TWIN, median};
use crate::harness::{Bench, Better, Figure, Metric};

pub(super) const FIGURE: Figure =
    Figure { name: "dpc-table6.3", about: "messages of LDBC's short reads, counted in the simulator", run };

fn run(bench: &mut Bench) -> Result<()> {
    for shape in short_reads() {
        let metric = |what: &str, table: u64| {
            let metric = Metric::new(format!("{}, {what}", shape.name), TWIN, "messages", Better::Lower);
            metric.expect(table as f64 / shape.rpc as f64)
        };
        let metrics = [metric("all", shape.dpc.0), metric("at the client", shape.dpc.1)];
        let count = |play: Play| {
            let all = median(play, &shape.roots, |taken| taken.messages);
            Ok([all, median(play, &shape.roots, |taken| taken.at_client)])
        };
        bench.compare(metrics, || count(delegated), || count(called))?;
    }
    Ok(())
}
