//! `netrpc-fig7`: messages chosen in a second, and latency, of a log replicated by Paxos (NetRPC Fig. 7).
//!
//! ```text
//! host 1: clients, and the server of votes ══╗
//! hosts 2 to 4: replicas ════════════════════╩══ element, if the case has one, counts the votes
//! ```
//!
//! The peers choose the same messages on the same testbed: the same replicas by plain gRPC, where each acceptor sends
//! its vote to each learner, as libpaxos does; and etcd with three members. Each message is a write of a client that
//! waits for its answer. Each message has a slot of its own, and each vote a call of its own, on both sides.

mod etcd;
mod ours;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use pathcall_testbed::Testbed;

use self::etcd::EtcdCluster;
use self::ours::Replicas;
use crate::harness::{Bench, Better, Curves, Figure, Kind, Metric, PlotLine, Points};
use crate::net::{Stopwatch, percentiles};
use crate::testbed::{ElementTestbed, Hop, has_xdp, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-fig7",
    about: "a log replicated by Paxos with votes counted in the network: messages in a second, and latency",
    kind: Kind::Measured,
    run,
};

/// Hosts of replicas, which follow the host of the clients.
const REPLICAS: usize = 3;
/// Clients at a time where the rate counts.
const CLIENTS: u64 = 32;
/// Writes of a client alone, and of each of many.
const WRITES: Writes = Writes { alone: 400, each: 60 };
const WRITES_QUICK: Writes = Writes { alone: 10, each: 2 };
/// Clients at a time of the points in the picture.
const STEPS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// Bytes of a message.
const BYTES: usize = 64;
/// Limit for hanging of a write.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The paper's rate beside software: 7.86x of libpaxos, 4.93x of DPDK Paxos.
const RATE_RATIO: f64 = 5.0;
const LATENCY_RATIO: f64 = 0.5;

#[derive(Debug, Clone, Copy)]
struct Writes {
    alone: usize,
    each: usize,
}

/// Disk of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// A file system in memory: a crash of the machine loses everything.
    Memory,
    /// Each write is on disk before it counts.
    Real,
}

impl Disk {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "disk in memory",
            Self::Real => "on disk",
        }
    }

    /// New directory for logs of this name.
    fn directory(self, name: &str) -> Result<LogDirectory> {
        let parent = if self == Self::Memory { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let directory = parent.join(format!("pathcall-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(LogDirectory(directory))
    }
}

/// Directory that is deleted on drop.
struct LogDirectory(PathBuf);

impl Drop for LogDirectory {
    fn drop(&mut self) {
        // Remaining files are small.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Side of the figure: replicas that choose messages of clients.
trait ReplicatedLog {
    /// Writes of `clients` at a time, one after the other each; returns the time of each.
    fn write(&self, clients: u64, writes: usize) -> Result<Vec<Duration>>;
    /// Processor time of other processes so far.
    fn cpu(&self) -> Result<Duration>;
    /// Checks that votes were counted where the case says.
    fn check(&self) -> Result<()>;

    /// Median and 99th percentile of a client alone, in microseconds; messages in a second of many clients, and the
    /// processor time of all parties for one, in microseconds.
    fn turn(&self, writes: Writes) -> Result<[f64; 4]> {
        let took = self.write(1, writes.alone)?;
        let [p50, p99] = percentiles(took)?;
        let (watch, before) = (Stopwatch::start(), self.cpu()?);
        let done = self.write(CLIENTS, writes.each)?.len() as f64;
        let ((took, own), outside) = (watch.read(), self.cpu()?.saturating_sub(before));
        self.check()?;
        Ok([p50, p99, done / took.as_secs_f64(), (own + outside).as_secs_f64() * 1e6 / done])
    }

    /// Rate and 99th percentile with more and more clients.
    fn points(&self, writes: Writes) -> Result<Points> {
        let point = |clients: u64| {
            let watch = Stopwatch::start();
            let took = self.write(clients, writes.each)?;
            let rate = took.len() as f64 / watch.read().0.as_secs_f64();
            let [_, p99] = percentiles(took)?;
            Ok((rate, p99 / 1e3))
        };
        let mut points = STEPS.into_iter().map(point).collect::<Result<Points>>()?;
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Ok(points)
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User, Hop::NoElement];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    let missing = etcd::missing();
    if let Some(why) = &missing {
        bench.print_note(&format!("no rows beside etcd: {why}"));
    }
    let writes = bench.size(WRITES, WRITES_QUICK);
    // Rows and lines of the same disk only: what a write to it costs is the same for all.
    for disk in [Disk::Memory, Disk::Real] {
        let plain = Replicas::start(stage(Hop::NoElement)?, disk, false)?;
        let etcd = if missing.is_none() { Some(EtcdCluster::start(stage(Hop::NoElement)?, disk)?) } else { None };
        let mut lines = Vec::new();
        for hop in &hops {
            let ours = Replicas::start(stage(*hop)?, disk, true)?;
            compare(bench, (*hop, disk), "plain gRPC", &ours, &plain, writes)?;
            if let Some(etcd) = &etcd {
                compare(bench, (*hop, disk), "etcd, three members", &ours, etcd, writes)?;
            }
            lines.push(line(hop.name(), &ours, writes)?);
        }
        lines.push(line("plain gRPC", &plain, writes)?);
        if let Some(etcd) = &etcd {
            lines.push(line("etcd", etcd, writes)?);
        }
        let name = if disk == Disk::Memory { "over-rate-memory" } else { "over-rate-disk" };
        let about =
            format!("99th percentile over messages a second, 1 to {CLIENTS} clients at a time, {}", disk.name());
        bench.show(Curves { name, about, x: "messages/s", y: "ms", lines });
    }
    Ok(())
}

fn stage(hop: Hop) -> Result<ElementTestbed> {
    ElementTestbed::start(Testbed::builder().hosts(1 + REPLICAS), hop)
}

fn compare(
    bench: &mut Bench,
    (hop, disk): (Hop, Disk),
    peer_name: &str,
    ours: &impl ReplicatedLog,
    peer: &impl ReplicatedLog,
    writes: Writes,
) -> Result<()> {
    let metric = |what: &str, unit, better| {
        Metric::new(format!("{}, {}, {what}", hop.name(), disk.name()), peer_name, unit, better)
    };
    let (mut p99, mut rate) =
        (metric("p99", "us", Better::Lower), metric(&format!("{CLIENTS} clients"), "messages/s", Better::Higher));
    if hop == Hop::Xdp && peer_name == "plain gRPC" {
        rate = rate.expect(RATE_RATIO);
    } else if hop == Hop::Xdp {
        p99 = p99.expect(LATENCY_RATIO);
    }
    let p50 = metric("p50", "us", Better::Lower);
    let cpu = metric(&format!("{CLIENTS} clients, CPU of all"), "us/message", Better::Lower);
    bench.compare([p50, p99, rate, cpu], || ours.turn(writes), || peer.turn(writes))
}

fn line(name: &str, log: &impl ReplicatedLog, writes: Writes) -> Result<PlotLine> {
    Ok(PlotLine { name: name.to_owned(), points: log.points(writes)? })
}
