//! `testbed-goodput`: sums of arrays over workers through stubs (SyncAgtr), and word counts (AsyncAgtr), on links of a
//! given rate, compared with plain tonic: goodput, and processor time of all parties.
//!
//! The server's link has the same rate as the others, so the server's saved traffic has an effect.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use pathcall_testbed::{Builder, Testbed};

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::Stopwatch;
use crate::netrpc_async::{CountClient, Counter, batch};
use crate::stubs::pb::PATHCALL;
use crate::stubs::pb::sums_client::SumsClient;
use crate::stubs::pb::sums_server::SumsServer;
use crate::stubs::pb::words_client::WordsClient;
use crate::stubs::pb::words_server::WordsServer;
use crate::stubs::{Adder, Summer, stock};
use crate::testbed::callers::Callers;
use crate::testbed::{ElementTestbed, Hop, has_xdp, mbits, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "testbed-goodput",
    about: "sums and counts through stubs, on links of a rate",
    kind: Kind::Measured,
    run,
};

/// Rates of the links, with the values of an array.
const LINKS: [(Option<&str>, usize); 3] = [(Some("100mbit"), 1 << 15), (Some("1gbit"), 1 << 17), (None, 1 << 17)];
/// Applications, with their rows.
const PARTS: (&pathcall::Manifest, u32) = (&PATHCALL, pathcall::layer::DEFAULT_ROWS);
const VALUES_QUICK: usize = 1 << 10;
const WORKERS: [usize; 3] = [2, 4, 8];
const CALLS: usize = 3;
/// Clients that count words, and their calls.
const CLIENTS: usize = 2;
const CALLS_COUNTING: usize = 20;
/// Words per call.
const BATCH: usize = 1000;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User, Hop::NoElement];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    let calls = bench.size(CALLS, 1);
    let turns = bench.size(CALLS_COUNTING, 1);
    for (rate, values) in LINKS {
        let link = rate.unwrap_or("no rate");
        let testbed = |parties| -> Result<Builder> {
            let testbed = Testbed::builder().hosts(1 + parties);
            Ok(match rate {
                Some(rate) => testbed.rate(rate)?,
                None => testbed,
            })
        };
        let values = bench.size(values, VALUES_QUICK);
        for workers in WORKERS {
            let job = GoodputJob { workers, values, calls };
            let bare = ElementTestbed::start(testbed(workers)?, Hop::NoElement)?;
            let service = stock::sums_server::SumsServer::new(Adder::default()).max_decoding_message_size(usize::MAX);
            let stub = |channel| stock::sums_client::SumsClient::new(channel).max_decoding_message_size(usize::MAX);
            let tonic = Callers::plain(&bare, workers, service, stub)?;
            for hop in &hops {
                let stage = ElementTestbed::start(testbed(workers)?, *hop)?;
                let service = SumsServer::new(Adder::default());
                let stub = |channel| SumsClient::new(channel).max_decoding_message_size(usize::MAX);
                let ours = Callers::pathcall(&stage, PARTS, workers, service, stub)?;
                let metrics = metrics(&format!("{workers} workers, {link}, {}", hop.name()), SUMS, rate)?;
                bench.compare(metrics, || job.turn(&ours, &stage), || job.turn(&tonic, &bare))?;
            }
        }
        let bare = ElementTestbed::start(testbed(CLIENTS)?, Hop::NoElement)?;
        let tonic = Callers::plain(&bare, CLIENTS, WordsServer::new(Counter::default()), WordsClient::new)?;
        for hop in &hops {
            let stage = ElementTestbed::start(testbed(CLIENTS)?, *hop)?;
            let ours =
                Callers::pathcall(&stage, PARTS, CLIENTS, WordsServer::new(Counter::default()), WordsClient::new)?;
            let metrics = metrics(&format!("{CLIENTS} clients count, {link}, {}", hop.name()), COUNTS, rate)?;
            bench.compare(metrics, || count(&ours, &stage, turns), || count(&tonic, &bare, turns))?;
        }
    }
    Ok(())
}

/// Units of a case.
#[derive(Clone, Copy)]
struct Units {
    rate: &'static str,
    cpu: &'static str,
    bytes: &'static str,
    /// Limit in the first unit for full frames of all callers on links of 1 Mbit/s.
    limit: f64,
}

/// A full frame has 256 values, and 1,170 bytes on a link.
const SUMS: Units = Units { rate: "M values/s each", cpu: "ns/value", bytes: "B/value", limit: 256.0 / (1170.0 * 8.0) };
/// A full frame has 32 pairs, and 374 bytes on a link.
const COUNTS: Units =
    Units { rate: "M counts/s", cpu: "ns/count", bytes: "B/count", limit: CLIENTS as f64 * 32.0 / (374.0 * 8.0) };

fn metrics(case: &str, units: Units, rate: Option<&str>) -> Result<[Metric; 3]> {
    let goodput = Metric::new(case, "tonic", units.rate, Better::Higher);
    let goodput = match rate {
        Some(rate) => goodput.limit(mbits(rate)? * units.limit),
        None => goodput,
    };
    Ok([
        goodput,
        Metric::new(format!("{case}, CPU of all"), "tonic", units.cpu, Better::Lower),
        Metric::new(format!("{case}, bytes on all links"), "tonic", units.bytes, Better::Lower),
    ])
}

#[derive(Clone, Copy)]
struct GoodputJob {
    workers: usize,
    values: usize,
    calls: usize,
}

impl GoodputJob {
    /// Millions of each worker's values per second; per value, nanoseconds of all processors and bytes on all links.
    fn turn<S: Summer + Clone>(self, callers: &Callers<S>, stage: &ElementTestbed) -> Result<[f64; 3]> {
        let Self { workers, values, calls } = self;
        // Doubles and three decimal places represent the values exactly, like their sums.
        let part: Arc<Vec<f64>> = Arc::new((0..values).map(|i| (i % 1009) as f64 * 0.125).collect());
        let (before, watch) = (stage.carried()?, Stopwatch::start());
        callers.each(move |mut stub| {
            let part = Arc::clone(&part);
            async move {
                for _ in 0..calls {
                    let sums = stub.sum(workers, part.to_vec()).await?;
                    let right = |(sum, value): (&f64, &f64)| *sum == workers as f64 * value;
                    ensure!(sums.len() == values && sums.iter().zip(&*part).all(right), "wrong sums");
                }
                Ok(())
            }
        })?;
        rates(watch, (stage, before), (values * calls * workers) as f64, workers)
    }
}

/// Millions of counts per second; per count, nanoseconds of all processors and bytes on all links.
fn count<S: CountClient + Clone>(callers: &Callers<S>, stage: &ElementTestbed, calls: usize) -> Result<[f64; 3]> {
    let (before, watch) = (stage.carried()?, Stopwatch::start());
    callers.each(move |mut stub| async move {
        for call in 0..calls {
            let words: HashMap<String, i64> = batch(call);
            stub.count(words).await?;
        }
        Ok(())
    })?;
    rates(watch, (stage, before), (CLIENTS * calls * BATCH) as f64, 1)
}

/// Rate of each party in millions per second; processor time, and bytes on links since `before`.
fn rates(watch: Stopwatch, (stage, before): (&ElementTestbed, u64), done: f64, parties: usize) -> Result<[f64; 3]> {
    let (took, cpu) = watch.read();
    let carried = (stage.carried()? - before) as f64;
    Ok([done / parties as f64 / took.as_secs_f64() / 1e6, cpu.as_nanos() as f64 / done, carried / done])
}
