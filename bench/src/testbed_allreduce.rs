//! `testbed-allreduce`: an array of 32-bit integers summed over workers, each on a host with a link of its own,
//! beside OpenMPI's all-reduce over TCP on the same links.
//!
//! A ring moves each array 2(n-1)/n times over every worker's link in either direction, an element once.

use anyhow::Result;
use pathcall_testbed::{Rate, Testbed};

use crate::bed::mpi::Mpi;
use crate::bed::workers::Workers;
use crate::bed::{Hop, Stage, has_xdp, stands};
use crate::harness::{Bench, Better, Figure, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "testbed-allreduce",
    about: "32-bit values summed over workers on links of a rate; goodput of each worker",
    run,
};

/// Workers, their links' rate, values of an array, and what is expected beside OpenMPI.
const SETTINGS: [(usize, &str, usize, f64); 2] = [(4, "1gbit", 1 << 20, 1.3), (8, "200mbit", 1 << 18, 1.5)];
const CALLS: usize = 5;
const VALUES_QUICK: usize = 1 << 12;
/// Of the link's rate; of frames with 256 lanes, 87 % are lanes.
const SHARE: f64 = 0.85;

fn run(bench: &mut Bench) -> Result<()> {
    if !stands(bench) {
        return Ok(());
    }
    let mpi = match Mpi::find() {
        Ok(mpi) => Some(mpi),
        Err(error) => {
            bench.says(&format!("no rows beside OpenMPI: {error:#}"));
            None
        }
    };
    let mut hops = vec![Hop::User, Hop::Nothing];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    for (workers, rate, values, expected) in SETTINGS {
        let job = Job { workers, rate, values: bench.size(values, VALUES_QUICK), calls: bench.size(CALLS, 1) };
        for hop in &hops {
            job.beside(bench, *hop, mpi.as_ref(), expected)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Job {
    workers: usize,
    rate: &'static str,
    values: usize,
    calls: usize,
}

impl Job {
    fn beside(self, bench: &mut Bench, hop: Hop, mpi: Option<&Mpi>, expected: f64) -> Result<()> {
        let Self { workers, rate, values, calls } = self;
        let case = format!("{workers} workers, {rate}, {}", hop.name());
        let stage = self.stage(hop)?;
        let ours = Workers::start(&stage, workers)?;
        let sum = || ours.turn(values, calls);
        let share = Metric::new(&case, "the link", "Mbit/s", Better::Higher).peer_is_limit();
        let share = if hop == Hop::Xdp { share.expect(SHARE) } else { share };
        let link = rate.parse::<Rate>()?.bits() as f64 / 1e6;
        bench.compare([share], || Ok([self.goodput(sum()?)]), || Ok([link]))?;
        let Some(mpi) = mpi else { return Ok(()) };
        let bare = self.stage(Hop::Nothing)?;
        let goodput = Metric::new(&case, "OpenMPI", "Mbit/s", Better::Higher);
        let goodput = if hop == Hop::Xdp { goodput.expect(expected) } else { goodput };
        let bytes = Metric::new(format!("{case}, bytes on a link"), "OpenMPI", "B/B", Better::Lower);
        let peer = || mpi.turn(&bare.bed, workers, values, calls);
        bench.compare(
            [goodput, bytes],
            || self.counted(&stage.bed, calls, sum),
            // One that does not count comes before the others.
            || self.counted(&bare.bed, calls + 1, peer),
        )
    }

    fn stage(self, hop: Hop) -> Result<Stage> {
        Stage::start(Testbed::builder().hosts(Workers::hosts(self.workers)).rate(self.rate)?, hop)
    }

    /// Mbit/s of each worker's values.
    fn goodput(self, took: std::time::Duration) -> f64 {
        self.bytes() * 8.0 / took.as_secs_f64() / 1e6
    }

    fn bytes(self) -> f64 {
        (self.values * size_of::<i32>()) as f64
    }

    /// The goodput, and what a worker's link carries both ways for each byte of an array.
    fn counted(self, bed: &Testbed, calls: usize, work: impl Fn() -> Result<std::time::Duration>) -> Result<[f64; 2]> {
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
