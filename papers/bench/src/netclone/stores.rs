//! Figures of real stores: Debian's daemons, one per server, behind the key-value application on six servers, with
//! calls through stubs and the element (NetClone §5.5).
//!
//! Two variants: with waits before each answer, with the paper's jitter, at a load that leaves the processors idle; and
//! raw, where clones and originals share two processors.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, ensure};
use apps_load::{Jitter, LoadPlan, Run, Service, open_loop};
use kv::cluster::{RequestCounts, WorkerConfig};
use kv::objects::OBJECTS;
use kv::{Client, Cluster, Kind, ReadMix, Store, Waits};
use kv_stores::{Daemon, StoreKind};
use pathcall_models::clone::Scheme;
use tokio::runtime::Runtime;

use super::grpc_hedging::{HEDGING, HedgedClient};
use crate::harness::{Bench, Better, Metric, Panel, Panels, PlotLine};
use crate::net::{Network, Stopwatch, runtime};

const SERVERS: usize = 6;
/// Workers per server in the paper (§5.5).
const WORKERS: usize = 8;
const WAITS: Waits = Waits {
    get: Service::Exponential(Duration::from_millis(8)),
    scan: Service::Exponential(Duration::from_millis(40)),
    jitter: Jitter::HIGH,
};
const MIXES: [(f64, &str); 2] = [(0.99, "99 % GET, 1 % SCAN"), (0.90, "90 % GET, 10 % SCAN")];
const SCHEMES: [Scheme; 5] =
    [Scheme::Random, Scheme::ClientClone, Scheme::Clone, Scheme::CloneShortest, Scheme::Automatic];
const LOADS: [f64; 4] = [0.1, 0.3, 0.5, 0.7];
const LOADS_QUICK: [f64; 1] = [0.1];
/// Load of the rows that compare schemes with random, at which the processors are mostly idle.
const LOAD_OF_ROWS: f64 = 0.15;
/// Calls per second without waits.
const RAW: f64 = 1500.0;
/// Maximum ratio of the p99 of GETs to random's, with waits.
const P99_RATIO_MAX: f64 = 0.67;
/// Maximum processor load for that ratio, in percent.
const BUSY_MAX: f64 = 30.0;
/// Maximum second answers received by callers, in percent of the calls.
pub(crate) const REDUNDANT: f64 = 0.1;
/// Default extra requests per call.
const BUDGET: f64 = 1.0;
/// Default bursts of extra requests, and extra requests per second, of a channel with two methods.
const BURST: f64 = 2.0 * 500.0;
const PER_SECOND: f64 = 2.0 * 100.0;
const TIME: Duration = Duration::from_secs(4);
const TIME_QUICK: Duration = Duration::from_millis(150);
/// Time in which an automatic choice learns before it is measured.
const LEARNING: Duration = Duration::from_secs(20);
const WARM: Duration = Duration::from_millis(300);
const OBJECTS_QUICK: u64 = 1_000;
/// Memory of a store in megabytes.
const MEMORY_MB: u32 = 512;

/// Servers with stores, and clients of each scheme.
struct StoreRack<'a> {
    runtime: &'a Runtime,
    /// Clients in the order of [`SCHEMES`].
    clients: Vec<Client>,
    daemons: &'a [Daemon],
    _cluster: Cluster,
}

/// Results at one load.
struct StoreResults {
    run: Run<Kind>,
    extra: f64,
    /// Extra requests that the budget allows: its share of the calls, and its bursts.
    allowed: f64,
    redundant: f64,
    busy: f64,
}

/// Makes the figure of one kind of store.
pub(crate) fn figure(bench: &mut Bench, kind: StoreKind, words: &'static str) -> Result<()> {
    let objects = bench.size(OBJECTS, OBJECTS_QUICK);
    let runtime = runtime()?;
    let (mut daemons, mut stores) = (Vec::new(), Vec::new());
    for _ in 0..SERVERS {
        let Some(daemon) = runtime.block_on(Daemon::start_if_installed(kind, MEMORY_MB))? else {
            bench.print_note(&format!("not made: {} is not installed", kv_stores::daemon::program(kind)));
            return Ok(());
        };
        stores.push(runtime.block_on(fill_store(&daemon, objects))?);
        daemons.push(daemon);
    }
    let network = runtime.block_on(Network::start())?;
    let mut panels = Vec::new();
    let waiting = StoreRack::start(&runtime, &network, &stores, &daemons, Some(WAITS))?;
    let plain = HedgedClient::start(&runtime, &stores, &worker_config(Some(WAITS)))?;
    for (gets, name) in MIXES {
        let mix = ReadMix::new(objects, gets, 1);
        panels.push(waiting.curves(bench, name, &mix, capacity(gets))?);
        let (rate, name) = (capacity(gets) * LOAD_OF_ROWS, format!("{name}, waits, load {LOAD_OF_ROWS}"));
        waiting.rows_against_random(bench, &name, &mix, rate, Some(P99_RATIO_MAX))?;
        waiting.rows_against_hedging(bench, &name, &mix, rate, &plain)?;
    }
    drop((waiting, plain));
    let raw = StoreRack::start(&runtime, &network, &stores, &daemons, None)?;
    for (gets, name) in MIXES {
        let mix = ReadMix::new(objects, gets, 1);
        raw.rows_against_random(bench, &format!("{name}, raw"), &mix, RAW, None)?;
    }
    drop(raw);
    runtime.block_on(network.shutdown());
    for daemon in daemons {
        runtime.block_on(daemon.stop());
    }
    bench.show_panels(Panels { name: "latency", words, panels });
    Ok(())
}

fn worker_config(waits: Option<Waits>) -> WorkerConfig {
    WorkerConfig { workers: WORKERS, waits, seed: 1 }
}

async fn fill_store(daemon: &Daemon, objects: u64) -> Result<Store> {
    let store = daemon.store().await.map_err(anyhow::Error::from_boxed)?;
    store.fill(objects).await?;
    Ok(store)
}

/// Calls per second that the servers sustain with waits.
fn capacity(gets: f64) -> f64 {
    let mean = |service: Service| service.mean().as_secs_f64() * WAITS.jitter.factor();
    (SERVERS * WORKERS) as f64 / (mean(WAITS.get) * gets + mean(WAITS.scan) * (1.0 - gets))
}

impl<'a> StoreRack<'a> {
    fn start(
        runtime: &'a Runtime,
        network: &Network,
        stores: &[Store],
        daemons: &'a [Daemon],
        waits: Option<Waits>,
    ) -> Result<Self> {
        let work = worker_config(waits);
        let controller = network.url();
        runtime.block_on(async {
            let cluster = Cluster::pathcall(stores, &work, Some(&controller)).await?;
            let mut clients = Vec::new();
            for scheme in SCHEMES {
                clients.push(cluster.client(Some(scheme.options())).await?);
            }
            Ok(Self { runtime, clients, daemons, _cluster: cluster })
        })
    }

    fn run(&self, scheme: Scheme, mix: &ReadMix, plan: LoadPlan) -> Result<StoreResults> {
        let place = SCHEMES.iter().position(|one| *one == scheme);
        let client = &self.clients[place.expect("a scheme of the figure")];
        let sent = || client.sent().unwrap_or_default();
        let (before, stores, watch) = (sent(), self.stores_cpu()?, Stopwatch::start());
        let run = self.runtime.block_on(open_loop(plan, |nth| {
            let (client, read) = (client.clone(), mix.read(nth));
            async move { client.read(nth, read).await.map(|_| read.kind) }
        }));
        let ((took, cpu), stores) = (watch.read(), self.stores_cpu()?.saturating_sub(stores));
        if let Some(why) = &run.why {
            ensure!(run.failed == 0, "{} calls failed: {why}", run.failed);
        }
        let after = sent();
        let calls = (after.calls - before.calls).max(1) as f64;
        let of_calls = |of: fn(&RequestCounts) -> u64| (of(&after) - of(&before)) as f64 / calls;
        let allowed = BUDGET + (BURST + PER_SECOND * took.as_secs_f64()) / calls;
        let processors = std::thread::available_parallelism()?.get() as f64;
        let busy = (cpu + stores).as_secs_f64() / took.as_secs_f64() / processors;
        let (extra, redundant) = (of_calls(|sent| sent.extra), of_calls(|sent| sent.redundant));
        Ok(StoreResults { extra, allowed, redundant, busy, run })
    }

    /// Processor time of the daemons.
    fn stores_cpu(&self) -> Result<Duration> {
        let of = |daemon: &Daemon| daemon.process().map_or(Ok(Duration::ZERO), crate::net::process_cpu);
        self.daemons.iter().map(of).sum()
    }

    /// 99th percentiles of GETs of each scheme over load, one run each.
    fn curves(&self, bench: &Bench, name: &str, mix: &ReadMix, capacity: f64) -> Result<Panel> {
        let (loads, wanted) = (bench.size(&LOADS[..], &LOADS_QUICK), bench.schemes());
        let mut lines = Vec::new();
        for scheme in SCHEMES.into_iter().filter(|scheme| wanted.contains(scheme)) {
            bench.print_note(&format!("{name}: {scheme}"));
            let point = |load: &f64| {
                let results = self.run(scheme, mix, plan(bench, capacity * load, 1))?;
                Ok((results.run.rate(), results.of_gets(0.99)))
            };
            let points = loads.iter().map(point).collect::<Result<_>>()?;
            lines.push(PlotLine { name: scheme.name().to_owned(), points });
        }
        let title = format!("{name}, with waits");
        Ok(Panel { title, x: "calls answered a second", y: "p99 of GETs, ms", logarithmic: true, lines })
    }

    /// Rows of each scheme compared with random.
    fn rows_against_random(
        &self,
        bench: &mut Bench,
        name: &str,
        mix: &ReadMix,
        rate: f64,
        bar: Option<f64>,
    ) -> Result<()> {
        let wanted = bench.schemes();
        for scheme in SCHEMES.into_iter().filter(|scheme| *scheme != Scheme::Random && wanted.contains(scheme)) {
            self.learn(bench, scheme, mix, rate)?;
            let of = |what: &str, unit| {
                Metric::new(format!("{name}: {scheme}, {what}"), Scheme::Random.name(), unit, Better::Lower)
            };
            let p99 = of("p99 of GETs", "ms");
            // The expected ratio concerns schemes of the element.
            let bar = bar.filter(|_| scheme != Scheme::ClientClone);
            // Limits do not depend on the scheme.
            let beside = |what: &str, unit, limit: &str| {
                Metric::new(format!("{name}: {scheme}, {what}"), limit, unit, Better::Lower)
            };
            let most = |what: &str, unit, limit: &str| beside(what, unit, limit).expect(1.0);
            let redundant = beside("redundant answers", "%", "at most");
            let metrics = [
                bar.map_or(p99.clone(), |bar| p99.expect(bar)),
                of("p50 of GETs", "ms"),
                most("extra requests", "a call", "the budget"),
                // Clients that clone receive all answers.
                if scheme == Scheme::ClientClone { redundant } else { redundant.expect(1.0) },
                bar.map_or(of("processors busy", "%"), |_| most("processors busy", "%", "at most")),
            ];
            let (seeds, plan) = ([Cell::default(), Cell::default()], plan(bench, rate, 0));
            // Limit of extra requests in the last turn.
            let allowed = Cell::new(BUDGET);
            let turn = |scheme, seed: &Cell<u64>| {
                seed.set(seed.get() + 1);
                let results = self.run(scheme, mix, LoadPlan { seed: seed.get(), ..plan })?;
                allowed.set(results.allowed);
                ensure!(
                    results.extra <= results.allowed,
                    "{} extra requests a call, not {}",
                    results.extra,
                    results.allowed
                );
                Ok([
                    results.of_gets(0.99),
                    results.of_gets(0.5),
                    results.extra,
                    results.redundant * 100.0,
                    results.busy * 100.0,
                ])
            };
            let random = || {
                let [p99, p50, .., busy] = turn(Scheme::Random, &seeds[1])?;
                Ok([p99, p50, allowed.get(), REDUNDANT, if bar.is_some() { BUSY_MAX } else { busy }])
            };
            bench.compare(metrics, || turn(scheme, &seeds[0]), random)?;
        }
        Ok(())
    }

    /// Makes calls that are not measured, if the scheme learns from them.
    fn learn(&self, bench: &Bench, scheme: Scheme, mix: &ReadMix, rate: f64) -> Result<()> {
        if scheme == Scheme::Automatic {
            let measured = bench.size(LEARNING, TIME_QUICK);
            self.run(scheme, mix, LoadPlan { measured, ..plan(bench, rate, u64::MAX) })?;
        }
        Ok(())
    }

    /// Rows of the element's schemes compared with gRPC's hedging policy, without Pathcall.
    fn rows_against_hedging(
        &self,
        bench: &mut Bench,
        name: &str,
        mix: &ReadMix,
        rate: f64,
        plain: &HedgedClient,
    ) -> Result<()> {
        let wanted = bench.schemes();
        let schemes = [Scheme::Clone, Scheme::CloneShortest, Scheme::Automatic];
        for scheme in schemes.into_iter().filter(|scheme| wanted.contains(scheme)) {
            self.learn(bench, scheme, mix, rate)?;
            let metrics = [("p99 of GETs", "ms"), ("p50 of GETs", "ms"), ("extra requests", "a call")]
                .map(|(what, unit)| Metric::new(format!("{name}: {scheme}, {what}"), HEDGING, unit, Better::Lower));
            let (seeds, plan) = ([Cell::default(), Cell::default()], plan(bench, rate, 0));
            let next = |seed: &Cell<u64>| {
                seed.set(seed.get() + 1);
                LoadPlan { seed: seed.get(), ..plan }
            };
            let ours = || {
                let results = self.run(scheme, mix, next(&seeds[0]))?;
                Ok([results.of_gets(0.99), results.of_gets(0.5), results.extra])
            };
            bench.compare(metrics, ours, || plain.run(self.runtime, mix, next(&seeds[1])))?;
        }
        Ok(())
    }
}

impl StoreResults {
    /// Latency quantile of GETs in milliseconds.
    fn of_gets(&self, share: f64) -> f64 {
        of_gets(&self.run, share)
    }
}

/// Latency quantile of GETs in milliseconds.
pub(super) fn of_gets(run: &Run<Kind>, share: f64) -> f64 {
    run.latencies.get(&Kind::Get).map_or(0.0, |gets| gets.quantile(share).as_secs_f64() * 1e3)
}

fn plan(bench: &Bench, rate: f64, seed: u64) -> LoadPlan {
    LoadPlan { rate, warm: WARM, measured: bench.size(TIME, TIME_QUICK), in_flight_max: 10_000, seed }
}
