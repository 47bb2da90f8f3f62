//! `dpc-fig6.6`: time of hosts' processors that the LDBC short reads take, in all, of the client and of the
//! servers (DPC Fig. 6.6).
//!
//! The thesis' bars are not in the text that we have: no row says what is expected.

use anyhow::Result;
use pathcall_models::delegate::cost::{Taken, called, delegated};
use pathcall_models::delegate::shapes::short_reads;

use super::{Play, TWIN, median};
use crate::harness::{Bench, Better, Figure, Metric};

pub(super) const FIGURE: Figure =
    Figure { name: "dpc-fig6.6", about: "processor time of LDBC's short reads, simulated", run };

fn run(bench: &mut Bench) -> Result<()> {
    for shape in short_reads() {
        let metric = |who| Metric::new(format!("{}, {who}", shape.name), TWIN, "us", Better::Lower);
        let parts: [fn(&Taken) -> u64; 3] =
            [|taken| taken.busy.0 + taken.busy.1, |taken| taken.busy.0, |taken| taken.busy.1];
        let busy = |play: Play| Ok(parts.map(|part| median(play, &shape.roots, part) / 1e3));
        bench.compare([metric("all"), metric("client"), metric("servers")], || busy(delegated), || busy(called))?;
    }
    Ok(())
}
