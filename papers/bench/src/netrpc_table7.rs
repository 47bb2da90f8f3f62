//! `netrpc-table7`: several concurrent applications on one element (NetRPC Table 7): total throughput, and latency of a
//! call at the same total load.
//!
//! Each application sums arrays of two workers. The throughput is that of closed loops. The latency is measured at a
//! fixed rate well below the throughput, from the scheduled start of a call. On the loopback the processors are the
//! limit; on a testbed, which needs root, the links are.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use pathcall::types::FpArray;
use pathcall_testbed::Testbed;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{Network, runtime, serve};
use crate::stubs::Adder;
use crate::stubs::many::{PATHCALL, Part, Sum};
use crate::stubs::pb::sums_server::SumsServer;
use crate::testbed::callers::Callers;
use crate::testbed::{ElementTestbed, Hop, has_xdp, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-table7",
    about: "1, 4 and 20 applications at once on one element",
    kind: Kind::Measured,
    run,
};

const WORKERS: usize = 2;
/// Rate of the links of a testbed.
const RATE: &str = "100mbit";
/// Number of applications in the baseline.
const BASE: usize = 4;
const VALUES: usize = 16 << 10;
/// Calls of a turn in closed loops, of all applications together.
const CALLS: usize = 200;
/// Calls of a turn on links: enough for the flows' adaptation to a newly shared link to be negligible.
const CALLS_ON_LINKS: usize = 800;
/// Calls at a fixed rate.
const CALLS_PACED: usize = 100;
const CALLS_QUICK: usize = 20;
/// Interval between the calls of a paced turn, of all applications together.
const PACE: Duration = Duration::from_millis(10);
/// Rows per application: twenty applications fit the element's default memory.
const ROWS: u32 = 128;

fn run(bench: &mut Bench) -> Result<()> {
    let (calls, paced) = (bench.size(CALLS, CALLS_QUICK), bench.size(CALLS_PACED, CALLS_QUICK));
    let runtime = runtime()?;
    let network = runtime.block_on(Network::start())?;
    // No call reaches a handler, so the service does not matter.
    let served = runtime.block_on(serve(&PATHCALL, Some(&network), ROWS, SumsServer::new(Adder::default())))?;
    let mut channels = Vec::new();
    for _ in 0..WORKERS {
        channels.push(runtime.block_on(pathcall::Channel::connect(served.url.clone(), &PATHCALL))?);
    }
    let load = SumWorkers { runtime: &runtime, channels };
    let peer = format!("{BASE} applications");
    for (applications, rate, latency) in [(1, None, None), (20, Some(0.95), Some(1.2))] {
        let case = |what: &str| format!("{applications} at once, {what}");
        let expect = |metric: Metric, ratio: Option<f64>| match ratio {
            Some(ratio) => metric.expect(ratio),
            None => metric,
        };
        let metric = expect(Metric::new(case("total rate"), &peer, "sums/s", Better::Higher), rate);
        bench.compare([metric], || load.closed(applications, calls), || load.closed(BASE, calls))?;
        let p50 = expect(Metric::new(case("paced, p50"), &peer, "us", Better::Lower), latency);
        let p99 = Metric::new(case("paced, p99"), &peer, "us", Better::Lower);
        bench.compare([p50, p99], || load.paced(applications, paced), || load.paced(BASE, paced))?;
    }
    runtime.block_on(network.shutdown());
    on_links(bench)
}

/// Closed loops with the links as the limit.
fn on_links(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS_ON_LINKS, CALLS_QUICK);
    if !testbed_available(bench) {
        return Ok(());
    }
    let hop = if has_xdp(bench) { Hop::Xdp } else { Hop::User };
    let stage = ElementTestbed::start(Testbed::builder().hosts(1 + WORKERS).rate(RATE)?, hop)?;
    let service = SumsServer::new(Adder::default());
    let callers = Callers::pathcall(&stage, (&PATHCALL, ROWS), WORKERS, service, |channel| channel)?;
    let rate = |applications: usize| {
        let began = Instant::now();
        callers.each(move |channel| closed_loops(channel, applications, calls))?;
        let sums = calls / applications * applications * VALUES;
        Ok([sums as f64 / began.elapsed().as_secs_f64()])
    };
    for (applications, expected) in [(1, None), (20, Some(0.95))] {
        let case = format!("{applications} at once, {RATE}, {}, total rate", hop.name());
        let metric = Metric::new(case, format!("{BASE} applications"), "sums/s", Better::Higher);
        let metric = expected.map_or(metric.clone(), |ratio| metric.expect(ratio));
        bench.compare([metric], || rate(applications), || rate(BASE))?;
    }
    Ok(())
}

/// One worker's part of closed loops.
async fn closed_loops(channel: pathcall::Channel, applications: usize, calls: usize) -> Result<()> {
    let mut running = JoinSet::new();
    for application in 1..=applications {
        let channel = channel.clone();
        running.spawn(async move {
            for _ in 0..calls / applications {
                sum(&channel, application).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(())
}

struct SumWorkers<'a> {
    runtime: &'a Runtime,
    /// One channel per worker; both are members of all applications.
    channels: Vec<pathcall::Channel>,
}

impl SumWorkers<'_> {
    /// Sums per second of all applications in closed loops.
    fn closed(&self, applications: usize, calls: usize) -> Result<[f64; 1]> {
        self.runtime.block_on(async {
            let began = Instant::now();
            let mut running = JoinSet::new();
            for channel in &self.channels {
                running.spawn(closed_loops(channel.clone(), applications, calls));
            }
            while let Some(done) = running.join_next().await {
                done??;
            }
            let sums = calls / applications * applications * VALUES;
            Ok([sums as f64 / began.elapsed().as_secs_f64()])
        })
    }

    /// Median and 99th percentile, in microseconds, of calls at fixed times, one application after the other.
    fn paced(&self, applications: usize, calls: usize) -> Result<[f64; 2]> {
        self.runtime.block_on(async {
            let began = Instant::now();
            let mut running = JoinSet::new();
            for call in 0..calls {
                let meant = began + PACE * call as u32;
                tokio::time::sleep_until(meant.into()).await;
                for channel in &self.channels {
                    let channel = channel.clone();
                    running.spawn(async move {
                        sum(&channel, call % applications + 1).await?;
                        anyhow::Ok(meant.elapsed())
                    });
                }
            }
            let mut took = Vec::new();
            while let Some(done) = running.join_next().await {
                took.push(done??);
            }
            took.sort_unstable();
            let at = |share: f64| took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e6;
            Ok([at(0.5), at(0.99)])
        })
    }
}

/// One call of one worker.
async fn sum(channel: &pathcall::Channel, application: usize) -> Result<()> {
    let part = Part { values: Some(FpArray { data: (0..VALUES).map(|i| i as f64).collect() }) };
    let mut stub = tonic::client::Grpc::new(channel.clone());
    stub.ready().await?;
    let path = PathAndQuery::try_from(format!("/many.Many/Sum{application}"))?;
    let sum = stub.unary(tonic::Request::new(part), path, ProstCodec::<Part, Sum>::default()).await?;
    let sums = sum.into_inner().values.unwrap_or_default().data;
    let right = sums.len() == VALUES && sums.iter().enumerate().all(|(i, sum)| *sum == (WORKERS * i) as f64);
    ensure!(right, "a wrong sum of application {application}");
    Ok(())
}
