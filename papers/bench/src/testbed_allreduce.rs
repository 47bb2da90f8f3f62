//! `testbed-allreduce`: sum of an array of 32-bit integers over workers, each on a host with its own link, compared
//! with the all-reduces of OpenMPI and Gloo over TCP on the same links.
//!
//! A ring moves each array 2(n-1)/n times over every worker's link in either direction, an element once.

use std::time::Duration;

use anyhow::Result;
use pathcall_testbed::Testbed;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::testbed::gloo::Gloo;
use crate::testbed::mpi::Mpi;
use crate::testbed::workers::Workers;
use crate::testbed::{ElementTestbed, Hop, has_xdp, mbits, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "testbed-allreduce",
    about: "32-bit values summed over workers on links of a rate; goodput of each worker",
    kind: Kind::Measured,
    run,
};

/// Workers, rate of their links, values of an array, and expected ratio to the better peer, and so to each.
const SETTINGS: [(usize, &str, usize, f64); 2] = [(4, "1gbit", 1 << 20, 1.3), (8, "200mbit", 1 << 18, 1.5)];
const CALLS: usize = 5;
const VALUES_QUICK: usize = 1 << 12;
/// Expected share of the link's rate; 87 % of a frame with 256 lanes are lanes.
const SHARE: f64 = 0.85;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let mut peers = Vec::new();
    let found: [(&str, Result<Peer>); 2] =
        [("OpenMPI", Mpi::find().map(Peer::Mpi)), ("Gloo", Gloo::find().map(Peer::Gloo))];
    for (name, found) in found {
        match found {
            Ok(peer) => peers.push((name, peer)),
            Err(error) => bench.print_note(&format!("no rows beside {name}: {error:#}")),
        }
    }
    let mut hops = vec![Hop::User, Hop::NoElement];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    for (workers, rate, values, expected) in SETTINGS {
        let job = ReduceJob { workers, rate, values: bench.size(values, VALUES_QUICK), calls: bench.size(CALLS, 1) };
        for hop in &hops {
            job.compare(bench, *hop, &peers, expected)?;
        }
    }
    Ok(())
}

/// All-reduce of a peer.
enum Peer {
    Mpi(Mpi),
    Gloo(Gloo),
}

impl Peer {
    fn turn(&self, testbed: &Testbed, workers: usize, values: usize, calls: usize) -> Result<Duration> {
        match self {
            Self::Mpi(mpi) => mpi.turn(testbed, workers, values, calls),
            Self::Gloo(gloo) => gloo.turn(testbed, workers, values, calls),
        }
    }
}

#[derive(Clone, Copy)]
struct ReduceJob {
    workers: usize,
    rate: &'static str,
    values: usize,
    calls: usize,
}

impl ReduceJob {
    fn compare(self, bench: &mut Bench, hop: Hop, peers: &[(&str, Peer)], expected: f64) -> Result<()> {
        let Self { workers, rate, values, calls } = self;
        let case = format!("{workers} workers, {rate}, {}", hop.name());
        let stage = self.stage(hop)?;
        let ours = Workers::start(&stage, workers)?;
        let sum = || ours.turn(values, calls);
        let share = Metric::new(&case, "the link", "Mbit/s", Better::Higher).peer_is_limit();
        let share = if hop == Hop::Xdp { share.expect(SHARE) } else { share };
        let link = mbits(rate)?;
        bench.compare([share], || Ok([self.goodput(sum()?)]), || Ok([link]))?;
        let bare = self.stage(Hop::NoElement)?;
        for (name, peer) in peers {
            let goodput = Metric::new(&case, *name, "Mbit/s", Better::Higher).limit(link);
            let goodput = if hop == Hop::Xdp { goodput.expect(expected) } else { goodput };
            // Once up and once down, if a value takes four bytes and nothing else.
            let bytes = Metric::new(format!("{case}, bytes on a link"), *name, "B/B", Better::Lower).limit(2.0);
            let peer = || peer.turn(&bare.testbed, workers, values, calls);
            bench.compare(
                [goodput, bytes],
                || self.measure(&stage.testbed, calls, sum),
                // Warm-up call before the measured ones.
                || self.measure(&bare.testbed, calls + 1, peer),
            )?;
        }
        Ok(())
    }

    fn stage(self, hop: Hop) -> Result<ElementTestbed> {
        ElementTestbed::start(Testbed::builder().hosts(Workers::hosts(self.workers)).rate(self.rate)?, hop)
    }

    /// Goodput of each worker's values in Mbit/s.
    fn goodput(self, took: Duration) -> f64 {
        self.bytes() * 8.0 / took.as_secs_f64() / 1e6
    }

    fn bytes(self) -> f64 {
        (self.values * size_of::<i32>()) as f64
    }

    /// Goodput, and bytes on a worker's link in both directions per byte of an array.
    fn measure(self, testbed: &Testbed, calls: usize, work: impl Fn() -> Result<Duration>) -> Result<[f64; 2]> {
        let carried = || -> Result<u64> {
            let links = Workers::at(self.workers).map(|k| Ok(testbed.link(k)?.traffic()?));
            let links = links.collect::<Result<Vec<_>>>()?;
            Ok(links.iter().map(|link| link.up.bytes + link.down.bytes).sum())
        };
        let before = carried()?;
        let took = work()?;
        let each = (carried()? - before) as f64 / (self.workers * calls) as f64;
        Ok([self.goodput(took), each / self.bytes()])
    }
}
