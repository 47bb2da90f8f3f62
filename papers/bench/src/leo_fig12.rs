//! `leo-fig12`: all-reduce in one host, 32-bit floats, 2 and 4 ranks, over the bytes of an array, compared with OpenMPI
//! and Gloo in the same run; and with the limit: a loop that computes the same sums in one process, in two threads.
//!
//! Ranks are processes. Each rank fills its array before each call, as a training step does. Our ranks have the array
//! in shared memory (*registered*) or in their own (*private*), and work in place. OpenMPI's ranks have one array to
//! read and one to write, which is faster. All ranks check each result. The time of a call is that of the slowest rank,
//! from a barrier on; the value of a turn is the median of its calls.

use anyhow::Result;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::reduce;
use crate::testbed::gloo::Gloo;
use crate::testbed::mpi::Mpi;

pub(crate) const FIGURE: Figure = Figure {
    name: "leo-fig12",
    about: "all-reduce of 32-bit floats among processes of one host, registered and private arrays",
    kind: Kind::Measured,
    run,
};

const SIZES: usize = 6;
const BYTES: [(usize, &str); SIZES] = [
    (64 << 10, "64 KB"),
    (256 << 10, "256 KB"),
    (1 << 20, "1 MB"),
    (4 << 20, "4 MB"),
    (16 << 20, "16 MB"),
    (64 << 20, "64 MB"),
];
const BYTES_QUICK: usize = 4 << 10;
/// Total bytes per turn and size.
const TRAFFIC: usize = 256 << 20;
const CALLS: (usize, usize) = (5, 300);
/// Expected ratios to OpenMPI with two ranks: registered arrays from 1 to 16 MB, and private arrays of any size.
const REGISTERED: f64 = 0.5;
const REGISTERED_FROM: usize = 1 << 20;
const REGISTERED_TO: usize = 16 << 20;
const PRIVATE: f64 = 1.0;

enum Peer {
    Mpi(Mpi),
    Gloo(Gloo),
}

impl Peer {
    fn local(&self, ranks: usize, args: &[String]) -> Result<String> {
        match self {
            Self::Mpi(mpi) => mpi.local(ranks, args),
            Self::Gloo(gloo) => gloo.local(ranks, args),
        }
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    let mut peers = Vec::new();
    let found: [(&str, Result<Peer>); 2] = [
        ("OpenMPI", Mpi::compile("reduce", include_str!("../peers/reduce.c")).map(Peer::Mpi)),
        ("Gloo", Gloo::write("reduce", include_str!("../peers/reduce.py")).map(Peer::Gloo)),
    ];
    for (name, found) in found {
        match found {
            Ok(peer) => peers.push((name, peer)),
            Err(error) => bench.print_note(&format!("no rows beside {name}: {error:#}")),
        }
    }
    let sizes = BYTES.map(|(bytes, _)| {
        let (bytes, calls) = (bytes, (TRAFFIC / bytes).clamp(CALLS.0, CALLS.1));
        bench.size((bytes, calls), (bytes / (64 << 10) * BYTES_QUICK, 2))
    });
    for registered in [true, false] {
        let limit = |metric: Metric, _| metric.peer_is_limit();
        let bare = || Ok(sizes.map(|(bytes, calls)| reduce::two_thread_limit(bytes, calls)));
        bench.compare(
            metrics(2, registered, "a bare loop", limit),
            || reduce::medians(&reduce::turn(2, registered, &sizes)?, &sizes),
            bare,
        )?;
    }
    for ranks in [2, 4] {
        for registered in [true, false] {
            for (name, peer) in &peers {
                compare_row(bench, ranks, registered, &sizes, (name, peer))?;
            }
        }
    }
    Ok(())
}

/// Metric of each size.
fn metrics(ranks: usize, registered: bool, peer: &str, more: impl Fn(Metric, usize) -> Metric) -> [Metric; SIZES] {
    let how = if registered { "registered" } else { "private" };
    BYTES.map(|(bytes, size)| {
        more(Metric::new(format!("{ranks} ranks, {how}, {size}"), peer, "us", Better::Lower), bytes)
    })
}

fn compare_row(
    bench: &mut Bench,
    ranks: usize,
    registered: bool,
    sizes: &[(usize, usize); SIZES],
    (name, peer): (&str, &Peer),
) -> Result<()> {
    let expected = |metric: Metric, bytes| match (peer, registered) {
        (Peer::Mpi(_), true) if ranks == 2 && (REGISTERED_FROM..=REGISTERED_TO).contains(&bytes) => {
            metric.expect(REGISTERED)
        }
        (Peer::Mpi(_), false) if ranks == 2 => metric.expect(PRIVATE),
        _ => metric,
    };
    let args: Vec<String> = sizes.iter().flat_map(|(bytes, calls)| [bytes.to_string(), calls.to_string()]).collect();
    bench.compare(
        metrics(ranks, registered, name, expected),
        || reduce::medians(&reduce::turn(ranks, registered, sizes)?, sizes),
        || reduce::medians(&reduce::parse_output(&peer.local(ranks, &args)?)?, sizes),
    )
}
