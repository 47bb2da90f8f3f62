//! `dpc-bytes`: bytes that the protocol adds to a message, in the mean of a short read's, and at most; and bytes of
//! the whole call (§6.5: about a hundred a message).

use anyhow::Result;
use pathcall_models::delegate::cost::{PAYLOAD, Taken, called, delegated};
use pathcall_models::delegate::shapes::{hops, rays, short_reads};
use pathcall_models::delegate::twin::REQUEST_LEN;

use super::{Play, TWIN, median};
use crate::harness::{Bench, Better, Figure, Metric};

pub(super) const FIGURE: Figure =
    Figure { name: "dpc-bytes", about: "bytes of messages beside their payloads, counted in the simulator", run };

/// Bytes that a message may be longer than the twin's.
const LONGER: f64 = 64.0;

fn run(bench: &mut Bench) -> Result<()> {
    let reads = short_reads().into_iter().map(|shape| (shape.name, shape.roots));
    for (name, roots) in reads.chain([("10 hops", hops(10)), ("10 bounces", rays(10))]) {
        let metric = |what: &str, unit| Metric::new(format!("{name}, {what}"), TWIN, unit, Better::Lower);
        let longest = metric("longest request", "B").expect((REQUEST_LEN as f64 + LONGER) / REQUEST_LEN as f64);
        let metrics = [metric("added to a message", "B"), longest, metric("whole call", "B")];
        let count = |play: Play| {
            let head = |taken: &Taken| (taken.bytes / taken.messages).saturating_sub(PAYLOAD as u64);
            let longest = |taken: &Taken| taken.heads.0 as u64;
            Ok([median(play, &roots, head), median(play, &roots, longest), median(play, &roots, |taken| taken.bytes)])
        };
        bench.compare(metrics, || count(delegated), || count(called))?;
    }
    Ok(())
}
