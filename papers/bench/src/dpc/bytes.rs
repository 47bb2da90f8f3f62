//! `dpc-bytes`: protocol bytes added to a message of a short read, mean and maximum, and bytes of the whole call (§6.5:
//! about a hundred per message).

use anyhow::Result;
use pathcall_models::delegate::baseline::REQUEST_LEN;
use pathcall_models::delegate::cost::{PAYLOAD, ShapeCost, called, delegated};
use pathcall_models::delegate::shapes::{hops, rays, short_reads};

use super::{SIMULATED_PEER, SimulatedCall, median};
use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(super) const FIGURE: Figure = Figure {
    name: "dpc-bytes",
    about: "bytes of messages beside their payloads, counted in the simulator",
    kind: Kind::Counted,
    run,
};

/// Maximum number of bytes that a message exceeds the baseline's message by.
const EXTRA_BYTES_MAX: f64 = 64.0;

fn run(bench: &mut Bench) -> Result<()> {
    let reads = short_reads().into_iter().map(|shape| (shape.name, shape.roots));
    for (name, roots) in reads.chain([("10 hops", hops(10)), ("10 bounces", rays(10))]) {
        let metric = |what: &str, unit| Metric::new(format!("{name}, {what}"), SIMULATED_PEER, unit, Better::Lower);
        let longest =
            metric("longest request", "B").expect((REQUEST_LEN as f64 + EXTRA_BYTES_MAX) / REQUEST_LEN as f64);
        let metrics = [metric("added to a message", "B"), longest, metric("whole call", "B")];
        let count = |play: SimulatedCall| {
            let head = |taken: &ShapeCost| (taken.bytes / taken.messages).saturating_sub(PAYLOAD as u64);
            let longest = |taken: &ShapeCost| taken.heads.0 as u64;
            Ok([median(play, &roots, head), median(play, &roots, longest), median(play, &roots, |taken| taken.bytes)])
        };
        bench.compare(metrics, || count(delegated), || count(called))?;
    }
    Ok(())
}
