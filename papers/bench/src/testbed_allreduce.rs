//! `testbed-allreduce`: an array of 32-bit integers summed over workers, each on a host with a link of its own,
//! beside the all-reduces of OpenMPI and Gloo over TCP on the same links.
//!
//! A ring moves each array 2(n-1)/n times over every worker's link in either direction, an element once.

use std::time::Duration;

use anyhow::Result;
use pathcall_testbed::Testbed;

use crate::bed::gloo::Gloo;
use crate::bed::mpi::Mpi;
use crate::bed::workers::Workers;
use crate::bed::{Hop, Stage, has_xdp, mbits, stands};
use crate::harness::{Bench, Better, Figure, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "testbed-allreduce",
    about: "32-bit values summed over workers on links of a rate; goodput of each worker",
    run,
};

/// Workers, their links' rate, values of an array, and what is expected beside the better of the
/// peers, and so beside each.
const SETTINGS: [(usize, &str, usize, f64); 2] = [(4, "1gbit", 1 << 20, 1.3), (8, "200mbit", 1 << 18, 1.5)];
const CALLS: usize = 5;
const VALUES_QUICK: usize = 1 << 12;
/// Of the link's rate; of frames with 256 lanes, 87 % are lanes.
const SHARE: f64 = 0.85;

fn run(bench: &mut Bench) -> Result<()> {
    if !stands(bench) {
        return Ok(());
    }
    let mut peers = Vec::new();
    let found: [(&str, Result<Peer>); 2] =
        [("OpenMPI", Mpi::find().map(Peer::Mpi)), ("Gloo", Gloo::find().map(Peer::Gloo))];
    for (name, found) in found {
        match found {
            Ok(peer) => peers.push((name, peer)),
            Err(error) => bench.says(&format!("no rows beside {name}: {error:#}")),
        }
    }
    let mut hops = vec![Hop::User, Hop::Nothing];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    for (workers, rate, values, expected) in SETTINGS {
        let job = Job { workers, rate, values: bench.size(values, VALUES_QUICK), calls: bench.size(CALLS, 1) };
        for hop in &hops {
            job.beside(bench, *hop, &peers, expected)?;
        }
    }
    Ok(())
}

/// Who else reduces.
enum Peer {
    Mpi(Mpi),
    Gloo(Gloo),
}

impl Peer {
    fn turn(&self, bed: &Testbed, workers: usize, values: usize, calls: usize) -> Result<Duration> {
        match self {
            Self::Mpi(mpi) => mpi.turn(bed, workers, values, calls),
            Self::Gloo(gloo) => gloo.turn(bed, workers, values, calls),
        }
    }
}

#[derive(Clone, Copy)]
struct Job {
    workers: usize,
    rate: &'static str,
    values: usize,
    calls: usize,
}

impl Job {
    fn beside(self, bench: &mut Bench, hop: Hop, peers: &[(&str, Peer)], expected: f64) -> Result<()> {
        let Self { workers, rate, values, calls } = self;
        let case = format!("{workers} workers, {rate}, {}", hop.name());
        let stage = self.stage(hop)?;
        let ours = Workers::start(&stage, workers)?;
        let sum = || ours.turn(values, calls);
        let share = Metric::new(&case, "the link", "Mbit/s", Better::Higher).peer_is_limit();
        let share = if hop == Hop::Xdp { share.expect(SHARE) } else { share };
        let link = mbits(rate)?;
        bench.compare([share], || Ok([self.goodput(sum()?)]), || Ok([link]))?;
        let bare = self.stage(Hop::Nothing)?;
        for (name, peer) in peers {
            let goodput = Metric::new(&case, *name, "Mbit/s", Better::Higher).limit(link);
            let goodput = if hop == Hop::Xdp { goodput.expect(expected) } else { goodput };
            // Once up and once down, if a value takes four bytes and nothing else.
            let bytes = Metric::new(format!("{case}, bytes on a link"), *name, "B/B", Better::Lower).limit(2.0);
            let peer = || peer.turn(&bare.bed, workers, values, calls);
            bench.compare(
                [goodput, bytes],
                || self.counted(&stage.bed, calls, sum),
                // One that does not count comes before the others.
                || self.counted(&bare.bed, calls + 1, peer),
            )?;
        }
        Ok(())
    }

    fn stage(self, hop: Hop) -> Result<Stage> {
        Stage::start(Testbed::builder().hosts(Workers::hosts(self.workers)).rate(self.rate)?, hop)
    }

    /// Mbit/s of each worker's values.
    fn goodput(self, took: Duration) -> f64 {
        self.bytes() * 8.0 / took.as_secs_f64() / 1e6
    }

    fn bytes(self) -> f64 {
        (self.values * size_of::<i32>()) as f64
    }

    /// The goodput, and what a worker's link carries both ways for each byte of an array.
    fn counted(self, bed: &Testbed, calls: usize, work: impl Fn() -> Result<Duration>) -> Result<[f64; 2]> {
        let carried = || -> Result<u64> {
            let links = Workers::at(self.workers).map(|k| Ok(bed.link(k)?.traffic()?));
            let links = links.collect::<Result<Vec<_>>>()?;
            Ok(links.iter().map(|link| link.up.bytes + link.down.bytes).sum())
        };
        let before = carried()?;
        let took = work()?;
        let each = (carried()? - before) as f64 / (self.workers * calls) as f64;
        Ok([self.goodput(took), each / self.bytes()])
    }
}
