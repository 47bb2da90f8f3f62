//! `testbed-goodput`: arrays summed over workers through stubs (SyncAgtr), and words counted (AsyncAgtr), on
//! links of a rate, beside plain tonic: what gets done, and the processor time that it takes of all parties.
//!
//! The link of the server is like any other: what it need not receive from every worker shows.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use pathcall_testbed::{Builder, Testbed};

use crate::bed::callers::Callers;
use crate::bed::{Hop, Stage, has_xdp, mbits, stands};
use crate::harness::{Bench, Better, Figure, Metric};
use crate::net::Watch;
use crate::netrpc_async::{Client, Counter, batch};
use crate::stubs::pb::PATHCALL;
use crate::stubs::pb::sums_client::SumsClient;
use crate::stubs::pb::sums_server::SumsServer;
use crate::stubs::pb::words_client::WordsClient;
use crate::stubs::pb::words_server::WordsServer;
use crate::stubs::{Adder, Summer, stock};

pub(crate) const FIGURE: Figure =
    Figure { name: "testbed-goodput", about: "sums and counts through stubs, on links of a rate", run };

/// Rates of the links, with values of an array there.
const LINKS: [(Option<&str>, usize); 3] = [(Some("100mbit"), 1 << 15), (Some("1gbit"), 1 << 17), (None, 1 << 17)];
/// The applications, with the rows that each asks for.
const PARTS: (&pathcall::Manifest, u32) = (&PATHCALL, pathcall::server::ROWS);
const VALUES_QUICK: usize = 1 << 10;
const WORKERS: [usize; 3] = [2, 4, 8];
const CALLS: usize = 3;
/// Clients that count words, and their calls.
const CLIENTS: usize = 2;
const CALLS_COUNTING: usize = 20;
/// Words of a call.
const BATCH: usize = 1000;

fn run(bench: &mut Bench) -> Result<()> {
    if !stands(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User, Hop::Nothing];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    let calls = bench.size(CALLS, 1);
    let turns = bench.size(CALLS_COUNTING, 1);
    for (rate, values) in LINKS {
        let link = rate.unwrap_or("no rate");
        let bed = |parties| -> Result<Builder> {
            let bed = Testbed::builder().hosts(1 + parties);
            Ok(match rate {
                Some(rate) => bed.rate(rate)?,
                None => bed,
            })
        };
        let values = bench.size(values, VALUES_QUICK);
        for workers in WORKERS {
            let job = Job { workers, values, calls };
            let bare = Stage::start(bed(workers)?, Hop::Nothing)?;
            let service = stock::sums_server::SumsServer::new(Adder::default()).max_decoding_message_size(usize::MAX);
            let stub = |channel| stock::sums_client::SumsClient::new(channel).max_decoding_message_size(usize::MAX);
            let tonic = Callers::plain(&bare, workers, service, stub)?;
            for hop in &hops {
                let stage = Stage::start(bed(workers)?, *hop)?;
                let service = SumsServer::new(Adder::default());
                let stub = |channel| SumsClient::new(channel).max_decoding_message_size(usize::MAX);
                let ours = Callers::pathcall(&stage, PARTS, workers, service, stub)?;
                let metrics = metrics(&format!("{workers} workers, {link}, {}", hop.name()), SUMS, rate)?;
                bench.compare(metrics, || job.turn(&ours, &stage), || job.turn(&tonic, &bare))?;
            }
        }
        let bare = Stage::start(bed(CLIENTS)?, Hop::Nothing)?;
        let tonic = Callers::plain(&bare, CLIENTS, WordsServer::new(Counter::default()), WordsClient::new)?;
        for hop in &hops {
            let stage = Stage::start(bed(CLIENTS)?, *hop)?;
            let ours =
                Callers::pathcall(&stage, PARTS, CLIENTS, WordsServer::new(Counter::default()), WordsClient::new)?;
            let metrics = metrics(&format!("{CLIENTS} clients count, {link}, {}", hop.name()), COUNTS, rate)?;
            bench.compare(metrics, || count(&ours, &stage, turns), || count(&tonic, &bare, turns))?;
        }
    }
    Ok(())
}

/// How a case is measured.
#[derive(Clone, Copy)]
struct Units {
    rate: &'static str,
    cpu: &'static str,
    bytes: &'static str,
    /// Of the first unit, what a link of 1 Mbit/s can take of full frames at the callers, all together.
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
struct Job {
    workers: usize,
    values: usize,
    calls: usize,
}

impl Job {
    /// Millions of each worker's values a second; for one of them, nanoseconds of all processors and bytes of all
    /// links.
    fn turn<S: Summer + Clone>(self, callers: &Callers<S>, stage: &Stage) -> Result<[f64; 3]> {
        let Self { workers, values, calls } = self;
        // Doubles and three decimal places hold them exactly, as they do their sums.
        let part: Arc<Vec<f64>> = Arc::new((0..values).map(|i| (i % 1009) as f64 * 0.125).collect());
        let (before, watch) = (stage.carried()?, Watch::start());
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

/// Millions of counts a second; for one of them, nanoseconds of all processors and bytes of all links.
fn count<S: Client + Clone>(callers: &Callers<S>, stage: &Stage, calls: usize) -> Result<[f64; 3]> {
    let (before, watch) = (stage.carried()?, Watch::start());
    callers.each(move |mut stub| async move {
        for call in 0..calls {
            let words: HashMap<String, i64> = batch(call);
            stub.count(words).await?;
        }
        Ok(())
    })?;
    rates(watch, (stage, before), (CLIENTS * calls * BATCH) as f64, 1)
}

/// A rate of each of some parties, in millions a second, the time of processors, and what links have carried
/// since then.
fn rates(watch: Watch, (stage, before): (&Stage, u64), done: f64, parties: usize) -> Result<[f64; 3]> {
    let (took, cpu) = watch.read();
    let carried = (stage.carried()? - before) as f64;
    Ok([done / parties as f64 / took.as_secs_f64() / 1e6, cpu.as_nanos() as f64 / done, carried / done])
}
