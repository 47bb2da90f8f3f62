//! `netrpc-table7`: several concurrent applications on one element (NetRPC Table 7): total rate of calls, and latency
//! of a call at the same total load.
//!
//! The applications are of the paper's four types in equal numbers: sums of arrays of two workers (SyncAgtr), counts
//! (AsyncAgtr), counts that are read (KeyValue), locks (Agreement). The calls of a type are the same for any number of
//! applications, which share them. The rate is that of closed loops. The latency is measured at a fixed rate well below
//! it, from the scheduled start of a call. On the loopback the processors are the limit; on a testbed, which needs
//! root, the links are.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use pathcall::types::{FpArray, StrintMap};
use pathcall_testbed::Testbed;
use prost::Message;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use crate::by_network::{ByNetwork, Many};
use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{Network, percentiles, runtime, serve};
use crate::stubs::many::{Done, PATHCALL, Pairs, Part, Sum, Wanted};
use crate::testbed::callers::Callers;
use crate::testbed::{ElementTestbed, Hop, has_xdp, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-table7",
    about: "4 and 20 applications of four types at once on one element",
    kind: Kind::Measured,
    run,
};

const WORKERS: usize = 2;
/// Rate of the links of a testbed.
const RATE: &str = "100mbit";
/// Number of applications in the baseline, one of each type, and of ours, five of each.
const BASE: usize = 4;
const MANY: usize = 20;
/// Values of an array, pairs of counts, pairs of a report.
const VALUES: usize = 16 << 10;
const COUNTS: usize = 1_000;
const REPORTED: usize = 100;
/// Reports for each read.
const REPORTS_PER_READ: usize = 8;
/// Different locks of a worker in an application.
const LOCKS: usize = 16;
/// Turns of calls in closed loops: see [`AppType::calls`].
const ROUNDS: usize = 2;
/// On links: enough for the flows' adaptation to a newly shared link to be negligible.
const ROUNDS_ON_LINKS: usize = 8;
/// Calls at a fixed rate.
const CALLS_PACED: usize = 240;
const CALLS_QUICK: usize = 40;
/// Interval between the calls of a paced turn, of all applications together.
const PACE: Duration = Duration::from_millis(8);
/// Rows per application: twenty applications fit the element's default memory.
const ROWS: u32 = 128;

/// Type of an application (NetRPC §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AppType {
    Sum,
    Count,
    KeyValue,
    Lock,
}

impl AppType {
    const ALL: [Self; BASE] = [Self::Sum, Self::Count, Self::KeyValue, Self::Lock];

    /// Type of an application, by its number from 1: the order of the build script.
    fn of(application: usize) -> Self {
        Self::ALL[(application - 1) % BASE]
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sum => "sums",
            Self::Count => "counts",
            Self::KeyValue => "reports and reads",
            Self::Lock => "locks",
        }
    }

    /// Calls of a worker in a round of closed loops, to all applications of the type: calls of each type take about as
    /// long.
    fn calls(self) -> usize {
        match self {
            Self::Lock => 200,
            _ => 50,
        }
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    let (rounds, paced) = (bench.size(ROUNDS, 1), bench.size(CALLS_PACED, CALLS_QUICK));
    let runtime = runtime()?;
    let network = runtime.block_on(Network::start())?;
    let served = runtime.block_on(serve(&PATHCALL, Some(&network), ROWS, ByNetwork::<Many>::default()))?;
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let channel = runtime.block_on(pathcall::Channel::connect(served.url.clone(), &PATHCALL))?;
        workers.push(Worker::new(number, channel));
    }
    let load = Workers { runtime: &runtime, workers };
    let peer = format!("{BASE} applications");
    let metric = Metric::new(format!("{MANY} at once, total rate"), &peer, "calls/s", Better::Higher).expect(0.95);
    bench.compare([metric], || load.closed(MANY, rounds), || load.closed(BASE, rounds))?;
    let metrics = AppType::ALL.map(|app_type| {
        let case = format!("{MANY} at once, paced, {}, p50", app_type.name());
        Metric::new(case, &peer, "us", Better::Lower).expect(1.2)
    });
    bench.compare(metrics, || load.paced(MANY, paced), || load.paced(BASE, paced))?;
    runtime.block_on(network.shutdown());
    on_links(bench)
}

/// Closed loops with the links as the limit.
fn on_links(bench: &mut Bench) -> Result<()> {
    let rounds = bench.size(ROUNDS_ON_LINKS, 1);
    if !testbed_available(bench) {
        return Ok(());
    }
    let hop = if has_xdp(bench) { Hop::Xdp } else { Hop::User };
    let stage = ElementTestbed::start(Testbed::builder().hosts(1 + WORKERS).rate(RATE)?, hop)?;
    let service = ByNetwork::<Many>::default();
    let number = std::cell::Cell::new(0);
    let worker = |channel| Worker::new(number.replace(number.get() + 1), channel);
    let callers = Callers::pathcall(&stage, (&PATHCALL, ROWS), WORKERS, service, worker)?;
    let rate = |applications: usize| {
        let began = Instant::now();
        callers.each(move |worker| worker.closed_loops(applications, rounds))?;
        Ok([calls_of_all(rounds) / began.elapsed().as_secs_f64()])
    };
    let case = format!("{MANY} at once, {RATE}, {}, total rate", hop.name());
    let metric = Metric::new(case, format!("{BASE} applications"), "calls/s", Better::Higher).expect(0.95);
    bench.compare([metric], || rate(MANY), || rate(BASE))
}

/// Calls of all workers in closed loops.
fn calls_of_all(rounds: usize) -> f64 {
    (WORKERS * rounds * AppType::ALL.map(AppType::calls).iter().sum::<usize>()) as f64
}

struct Workers<'a> {
    runtime: &'a Runtime,
    /// All workers are members of all applications.
    workers: Vec<Worker>,
}

impl Workers<'_> {
    /// Calls per second of all applications in closed loops.
    fn closed(&self, applications: usize, rounds: usize) -> Result<[f64; 1]> {
        self.runtime.block_on(async {
            let began = Instant::now();
            let mut running = JoinSet::new();
            for worker in &self.workers {
                running.spawn(worker.clone().closed_loops(applications, rounds));
            }
            all(running).await?;
            Ok([calls_of_all(rounds) / began.elapsed().as_secs_f64()])
        })
    }

    /// Median of the calls of each type at fixed times, in microseconds, one application after the other.
    fn paced(&self, applications: usize, calls: usize) -> Result<[f64; BASE]> {
        let took = self.runtime.block_on(async {
            let began = Instant::now();
            let mut running = JoinSet::new();
            for call in 0..calls {
                let (meant, application) = (began + PACE * call as u32, call % applications + 1);
                tokio::time::sleep_until(meant.into()).await;
                for worker in &self.workers {
                    let worker = worker.clone();
                    running.spawn(async move {
                        worker.call(application, call / applications).await?;
                        anyhow::Ok((AppType::of(application), meant.elapsed()))
                    });
                }
            }
            all(running).await
        })?;
        let mut medians = [0.0; BASE];
        for (median, app_type) in medians.iter_mut().zip(AppType::ALL) {
            let of_type = took.iter().filter(|(one, _)| *one == app_type).map(|(_, took)| *took);
            [*median, _] = percentiles(of_type.collect())?;
        }
        Ok(medians)
    }
}

async fn all<T: 'static>(mut running: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut results = Vec::new();
    while let Some(done) = running.join_next().await {
        results.push(done??);
    }
    Ok(results)
}

/// One worker of all applications.
#[derive(Clone)]
struct Worker {
    number: usize,
    channel: pathcall::Channel,
    /// Reports of each application, begun and completed.
    reports: Arc<[[AtomicI64; 2]; MANY]>,
}

impl Worker {
    fn new(number: usize, channel: pathcall::Channel) -> Self {
        Self { number, channel, reports: Arc::default() }
    }

    /// Calls of all applications, each in a closed loop.
    async fn closed_loops(self, applications: usize, rounds: usize) -> Result<()> {
        let mut running = JoinSet::new();
        for application in 1..=applications {
            let worker = self.clone();
            let calls = rounds * AppType::of(application).calls() * BASE / applications;
            running.spawn(async move {
                for call in 0..calls {
                    worker.call(application, call).await?;
                }
                anyhow::Ok(())
            });
        }
        all(running).await.map(drop)
    }

    async fn call(&self, application: usize, call: usize) -> Result<()> {
        match AppType::of(application) {
            AppType::Sum => self.sum(application).await,
            AppType::Count => {
                let counts = pairs((0..COUNTS).map(|word| format!("word-{word}")));
                self.unary::<_, Done>(&format!("Count{application}"), counts).await.map(drop)
            }
            AppType::KeyValue => self.report(application, call).await,
            AppType::Lock => {
                let lock = || pairs([format!("lock-{}-{}", self.number, call % LOCKS)]);
                self.unary::<_, Done>(&format!("Lock{application}"), lock()).await?;
                self.unary::<_, Done>(&format!("Release{application}"), lock()).await.map(drop)
            }
        }
    }

    async fn sum(&self, application: usize) -> Result<()> {
        let part = Part { values: Some(FpArray { data: (0..VALUES).map(|i| i as f64).collect() }) };
        let sum: Sum = self.unary(&format!("Sum{application}"), part).await?;
        let sums = sum.values.unwrap_or_default().data;
        let right = sums.len() == VALUES && sums.iter().enumerate().all(|(i, sum)| *sum == (WORKERS * i) as f64);
        ensure!(right, "a wrong sum of application {application}");
        Ok(())
    }

    /// Adds to this worker's keys. Some calls read them instead: reports that have completed are in the values.
    async fn report(&self, application: usize, call: usize) -> Result<()> {
        let [begun, completed] = &self.reports[application - 1];
        let key = |i: usize| format!("key-{}-{i}", self.number);
        if call % REPORTS_PER_READ != REPORTS_PER_READ - 1 {
            begun.fetch_add(1, Ordering::SeqCst);
            self.unary::<_, Done>(&format!("Report{application}"), pairs((0..REPORTED).map(key))).await?;
            completed.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        let least = completed.load(Ordering::SeqCst);
        let read: Pairs = self.unary(&format!("Read{application}"), Wanted {}).await?;
        let (values, most) = (read.pairs.unwrap_or_default().map, begun.load(Ordering::SeqCst));
        let value = |i| values.get(&key(i)).copied().unwrap_or_default();
        let right = (0..REPORTED).map(value).all(|value| (least..=most).contains(&value));
        ensure!(right, "a wrong value of application {application}, not {least} to {most}");
        Ok(())
    }

    async fn unary<Q: Message + 'static, R: Message + Default + 'static>(&self, method: &str, request: Q) -> Result<R> {
        let mut stub = tonic::client::Grpc::new(self.channel.clone());
        stub.ready().await?;
        let path = PathAndQuery::try_from(format!("/many.Many/{method}"))?;
        Ok(stub.unary(tonic::Request::new(request), path, ProstCodec::<Q, R>::default()).await?.into_inner())
    }
}

/// Pairs with these keys, and ones.
fn pairs(keys: impl IntoIterator<Item = String>) -> Pairs {
    let map: HashMap<String, i64> = keys.into_iter().map(|key| (key, 1)).collect();
    Pairs { pairs: Some(StrintMap { map }) }
}
