//! `netrpc-fig10`: throughput of SyncAgtr over the loss rate of the links (NetRPC Fig. 10), compared with no loss.
//!
//! Two workers and their server on links whose rate is the limit, not the processors. Each link loses its share in
//! either direction: a round has two frames up and two down at the workers, and one in each direction at the server;
//! each can be lost.

use anyhow::Result;
use pathcall_testbed::Testbed;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::testbed::workers::{VALUES_SHARE, Workers};
use crate::testbed::{ElementTestbed, Hop, has_xdp, mbits, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-fig10",
    about: "throughput of two workers over the loss rate of their links",
    kind: Kind::Measured,
    run,
};

const LOSSES: [&str; 4] = ["0.001%", "0.01%", "0.1%", "1%"];
const RATE: &str = "100mbit";
const WORKERS: usize = 2;
const VALUES: usize = 1 << 18;
const VALUES_QUICK: usize = 1 << 12;
const CALLS: usize = 4;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let (values, calls) = (bench.size(VALUES, VALUES_QUICK), bench.size(CALLS, 1));
    let losses = bench.size(&LOSSES[..], &LOSSES[3..]);
    let limit = mbits(RATE)? * VALUES_SHARE;
    let mut hops = vec![Hop::User, Hop::NoElement];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    let stage = |hop, loss| {
        ElementTestbed::start(Testbed::builder().hosts(Workers::hosts(WORKERS)).rate(RATE)?.loss(loss)?, hop)
    };
    let goodput = |workers: &Workers| -> Result<[f64; 1]> {
        let bits = (values * size_of::<i32>() * 8) as f64;
        Ok([bits / workers.turn(values, calls)?.as_secs_f64() / 1e6])
    };
    for hop in hops {
        let whole = stage(hop, "0%")?;
        let whole = (Workers::start(&whole, WORKERS)?, whole);
        for loss in losses {
            let lossy = stage(hop, loss)?;
            let lossy = (Workers::start(&lossy, WORKERS)?, lossy);
            let case = format!("{loss} lost, {}", hop.name());
            let metric = Metric::new(case, "no loss", "Mbit/s", Better::Higher).limit(limit);
            bench.compare([metric], || goodput(&lossy.0), || goodput(&whole.0))?;
        }
    }
    Ok(())
}
