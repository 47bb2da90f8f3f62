//! `netrpc-sync`: sums of the arrays of several workers (SyncAgtr, NetRPC §6.3), through unchanged stubs and an
//! element, compared with plain tonic whose handler sums, with prost's codec of arrays and with ours, and with the same
//! stubs without an element, where the server sums in software. Clear policy *shadow* compared with *copy*.
//!
//! All parties share one process and its processors; their total processor time is a separate row.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::by_network::{ByNetwork, Shadows};
use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{Network, PathcallService, Stopwatch, connect_plain, runtime, serve, serve_plain};
use crate::stubs::pb::PATHCALL;
use crate::stubs::pb::sums_client::SumsClient;
use crate::stubs::pb::sums_server::SumsServer;
use crate::stubs::shadows::shadows_client::ShadowsClient;
use crate::stubs::{Adder, Summer, shadows, stock};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-sync",
    about: "SyncAgtr: arrays of several workers summed through stubs",
    kind: Kind::Measured,
    run,
};

/// Values per array, calls per turn, and expected ratio to plain tonic.
const SIZES: [(usize, usize, f64); 2] = [(64 << 10, 40, 3.0), (1 << 20, 4, 2.5)];
/// Rows of the application: Pathcall's default.
const ROWS: u32 = pathcall::layer::DEFAULT_ROWS;

fn run(bench: &mut Bench) -> Result<()> {
    let runtime = runtime()?;
    for workers in [2, 4] {
        for (values, calls, expected) in SIZES {
            let calls = bench.size(calls, 1);
            let job = SumJob { workers, values, calls };
            // One element per application, because each application needs an element's whole memory.
            let networks = [runtime.block_on(Network::start())?, runtime.block_on(Network::start())?];
            let service = || SumsServer::new(Adder::default());
            let with_element = runtime.block_on(serve(&PATHCALL, Some(&networks[0]), ROWS, service()))?;
            let answered = ByNetwork::<Shadows>::default();
            let by_shadow = runtime.block_on(serve(&shadows::PATHCALL, Some(&networks[1]), ROWS, answered))?;
            let without = runtime.block_on(serve(&PATHCALL, None, ROWS, service()))?;
            let mut element = runtime.block_on(job.pathcall(&with_element))?;
            let mut software = runtime.block_on(job.pathcall(&without))?;
            let mut shadow = runtime.block_on(job.shadow(&by_shadow))?;
            let mut bulk = runtime.block_on(job.bulk())?;
            let mut prost = runtime.block_on(job.stock())?;
            let (stock, ours, soft) = ("tonic, prost's codec", "tonic, our codec", "no element");
            bench.compare(job.metrics(stock, Some(expected)), || element.turn(&runtime), || prost.turn(&runtime))?;
            bench.compare(job.metrics(ours, None), || element.turn(&runtime), || bulk.turn(&runtime))?;
            bench.compare(job.metrics(soft, None), || element.turn(&runtime), || software.turn(&runtime))?;
            let case = format!("{}, shadow", job.case());
            let beside = |peer, expected| metrics(&case, peer, expected);
            bench.compare(beside(stock, Some(expected)), || shadow.turn(&runtime), || prost.turn(&runtime))?;
            bench.compare(beside("copy", None), || shadow.turn(&runtime), || element.turn(&runtime))?;
            networks.into_iter().for_each(|network| runtime.block_on(network.shutdown()));
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct SumJob {
    workers: usize,
    values: usize,
    calls: usize,
}

/// Connected workers of a job.
struct Team<S> {
    job: SumJob,
    stubs: Vec<S>,
}

fn metrics(case: &str, peer: &str, expected: Option<f64>) -> [Metric; 2] {
    let rate = Metric::new(case, peer, "sums/s", Better::Higher);
    let rate = expected.map_or(rate.clone(), |expected| rate.expect(expected));
    [rate, Metric::new(format!("{case}, CPU of all"), peer, "ns/sum", Better::Lower)]
}

impl SumJob {
    fn case(&self) -> String {
        let size =
            if self.values >= 1 << 20 { format!("{}M", self.values >> 20) } else { format!("{}k", self.values >> 10) };
        format!("{}-to-1, {size} values", self.workers)
    }

    fn metrics(&self, peer: &str, expected: Option<f64>) -> [Metric; 2] {
        metrics(&self.case(), peer, expected)
    }

    async fn pathcall(self, served: &PathcallService) -> Result<Team<SumsClient<pathcall::Channel>>> {
        let mut stubs = Vec::new();
        for _ in 0..self.workers {
            let channel = pathcall::Channel::connect(served.url.clone(), &PATHCALL).await?;
            stubs.push(SumsClient::new(channel).max_decoding_message_size(usize::MAX));
        }
        Ok(Team { job: self, stubs })
    }

    async fn shadow(self, served: &PathcallService) -> Result<Team<ShadowsClient<pathcall::Channel>>> {
        let mut stubs = Vec::new();
        for _ in 0..self.workers {
            let channel = pathcall::Channel::connect(served.url.clone(), &shadows::PATHCALL).await?;
            stubs.push(ShadowsClient::new(channel).max_decoding_message_size(usize::MAX));
        }
        Ok(Team { job: self, stubs })
    }

    async fn bulk(self) -> Result<Team<SumsClient<tonic::transport::Channel>>> {
        let service = SumsServer::new(Adder::default()).max_decoding_message_size(usize::MAX);
        let url = serve_plain(service).await?;
        let mut stubs = Vec::new();
        for _ in 0..self.workers {
            stubs.push(SumsClient::new(connect_plain(&url).await?).max_decoding_message_size(usize::MAX));
        }
        Ok(Team { job: self, stubs })
    }

    async fn stock(self) -> Result<Team<stock::sums_client::SumsClient<tonic::transport::Channel>>> {
        use stock::sums_client::SumsClient;
        let service = stock::sums_server::SumsServer::new(Adder::default()).max_decoding_message_size(usize::MAX);
        let url = serve_plain(service).await?;
        let mut stubs = Vec::new();
        for _ in 0..self.workers {
            stubs.push(SumsClient::new(connect_plain(&url).await?).max_decoding_message_size(usize::MAX));
        }
        Ok(Team { job: self, stubs })
    }
}

impl<S: Summer + Sync> Team<S> {
    /// Runs the calls of all workers; returns sums per second and processor time.
    fn turn(&mut self, runtime: &Runtime) -> Result<[f64; 2]> {
        let SumJob { workers, values, calls } = self.job;
        let part: Vec<f64> = (0..values).map(value).collect();
        // A call consumes its array, so arrays are created before the clock starts.
        let shares: Vec<Vec<Vec<f64>>> = (0..workers).map(|_| vec![part.clone(); calls]).collect();
        let expected: Arc<Vec<f64>> = Arc::new(part.iter().map(|value| workers as f64 * value).collect());
        let stubs = std::mem::take(&mut self.stubs);
        runtime
            .block_on(async {
                let watch = Stopwatch::start();
                let mut running = JoinSet::new();
                for (mut stub, share) in stubs.into_iter().zip(shares) {
                    let expected = expected.clone();
                    running.spawn(async move {
                        for part in share {
                            let sums = stub.sum(workers, part).await?;
                            // Results are dropped, because memory for all of them would distort the measurement.
                            ensure!(sums == *expected, "wrong sums of {workers} workers");
                        }
                        anyhow::Ok(stub)
                    });
                }
                while let Some(stub) = running.join_next().await {
                    self.stubs.push(stub??);
                }
                let (took, cpu) = watch.read();
                let sums = (values * calls) as f64;
                anyhow::Ok([sums / took.as_secs_f64(), cpu.as_nanos() as f64 / sums])
            })
            .with_context(|| format!("{workers} workers, {values} values"))
    }
}

/// Value that doubles and three decimal places represent exactly, like its sums.
fn value(index: usize) -> f64 {
    (index % 1009) as f64 * 0.125
}
