//! Application kv: reads from a replicated key-value store with occasionally slow servers, with clones by the element,
//! without clones, and as plain gRPC, with and without hedging.
//!
//! ```text
//! load (Poisson, Zipf) ─► Client ─► four servers, each four workers ─► Store
//!        └─ each value is compared with the stored one; latencies start at the planned time of the call
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use apps_load::{Jitter, Latencies, LoadPlan, Run, Service, open_loop};
use clap::{Args, Parser, Subcommand};
use kv::cluster::WorkerConfig;
use kv::plain::PlainClient;
use kv::{Client, Cluster, Kind, ReadMix, Store, Waits, picture};
use pathcall::channel::{Balance, CloneOptions};
use serde::Serialize;

/// Quantile of the latencies of plain gRPC after which the hedging client sends a call again.
const HEDGED_FROM: f64 = 0.95;
/// Warm-up that is not measured: connections open, and the element learns queue lengths.
const WARM: Duration = Duration::from_millis(300);

/// Read from a replicated key-value store
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    what: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run one of the servers until killed
    Serve(Serve),
    /// Read from servers: with clones, without clones, and as plain gRPC, with and without hedging
    Demo(Demo),
}

#[derive(Debug, Clone, Args)]
struct StoreArgs {
    /// Objects in the store
    #[arg(long, default_value_t = 10_000)]
    objects: u64,
    /// Concurrent calls of a server
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Service time of an object: fixed:TIME, exp:MEAN or bimodal:TIME,TIME
    #[arg(long, default_value = "exp:4ms")]
    get: Service,
    /// Service time of a scan
    #[arg(long, default_value = "exp:20ms")]
    scan: Service,
    /// Jitter of servers: 0.01x15 is 15 times the service time with probability 0.01; or none
    #[arg(long, default_value = "0.01x15")]
    jitter: Jitter,
    /// Seed of all random values
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
struct Serve {
    /// Address of the gRPC server
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    listen: std::net::SocketAddr,
    /// Controller of the pool; without one, the server is alone
    #[arg(long, value_name = "URL", conflicts_with = "plain")]
    controller: Option<String>,
    /// Serve as plain gRPC
    #[arg(long)]
    plain: bool,
    /// Rack of the server
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    rack: String,
    #[command(flatten)]
    working: StoreArgs,
}

#[derive(Debug, Args)]
struct Demo {
    /// Controller for servers in this process, by which the servers of a pool know each other
    #[arg(long, value_name = "URL", required_unless_present = "pool")]
    controller: Option<String>,
    /// Server elsewhere whose pool is read from
    #[arg(long, value_name = "URL", conflicts_with = "controller")]
    pool: Option<String>,
    /// Rack of the client
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, requires = "pool")]
    rack: String,
    /// Servers elsewhere that are read from as plain gRPC
    #[arg(long, value_name = "URL", value_delimiter = ',', requires = "pool")]
    plain: Vec<String>,
    /// Number of servers, in this process or elsewhere
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    servers: u16,
    /// Load as a share of the servers' capacity
    #[arg(long, default_value_t = 0.3)]
    load: f64,
    /// Share of calls that read one object; the others scan a hundred
    #[arg(long, default_value_t = 0.99)]
    gets: f64,
    /// Seconds of load for each path
    #[arg(long, default_value_t = 2.5)]
    seconds: f64,
    /// Number of times that all paths are measured in turn; quantiles are medians over these rounds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Leave out the path to a random server of the pool
    #[arg(long)]
    no_random: bool,
    /// Output file for the chart of latencies
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    working: StoreArgs,
}

/// Result of one path.
#[derive(Debug, Serialize)]
struct PathResult {
    name: &'static str,
    calls: u64,
    calls_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// Extra requests per call, also of the warm-up.
    extra: Option<f64>,
    /// Time after which gRPC hedging sends a call again.
    hedging_delay_us: Option<f64>,
    /// Hash of the results, equal for equal results.
    digest: String,
    #[serde(skip)]
    latencies: Latencies,
}

#[derive(Debug, Serialize)]
struct Report {
    app: &'static str,
    /// Results of all paths; plain gRPC is last, if used.
    ways: Vec<PathResult>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Command::parse().what {
        Action::Serve(args) => serve(args).await,
        Action::Demo(args) => demo(args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn serve(args: Serve) -> Result<()> {
    let store = args.working.store().await?;
    let work = args.working.work();
    let controller = (!args.plain).then_some(args.controller.as_deref());
    let cluster = Cluster::alone(args.listen, &store, &work, controller, &args.rack).await?;
    println!("ready {}", cluster.urls()[0]);
    std::future::pending().await
}

async fn demo(args: Demo) -> Result<()> {
    ensure!(args.load > 0.0 && args.load <= 1.0, "--load: expected more than 0 and at most 1, got {}", args.load);
    ensure!((0.0..=1.0).contains(&args.gets), "--gets: expected 0 to 1, got {}", args.gets);
    ensure!(args.seconds > 0.0 && args.seconds <= 3600.0, "--seconds: expected 0 to 3600, got {}", args.seconds);
    let ways = match &args.pool {
        Some(server) => args.measure(server, &args.plain).await?,
        None => args.measure_local().await?,
    };
    if let Some(path) = &args.picture {
        let lines: Vec<_> = ways.iter().map(|way| (way.name, &way.latencies)).collect();
        let title = format!("reads of a replicated store at {:.0} % load", args.load * 100.0);
        picture::draw(path, &title, &lines)?;
    }
    Report { app: "kv", ways }.print(args.json);
    Ok(())
}

impl StoreArgs {
    fn work(&self) -> WorkerConfig {
        let waits = Waits { get: self.get, scan: self.scan, jitter: self.jitter };
        WorkerConfig { workers: usize::from(self.workers), waits: Some(waits), seed: self.seed }
    }

    /// Creates a filled store in memory.
    async fn store(&self) -> Result<Store> {
        let store = Store::memory();
        store.fill(self.objects).await?;
        Ok(store)
    }
}

/// Path to a random server of the pool.
const RANDOM: &str = "random";

/// Names and options of the paths to a pool: with clones, of which the slower is cancelled, and the shorter queue where
/// a call is not cloned; and with a random server.
fn call_options() -> [(&'static str, Option<CloneOptions>); 2] {
    let clone = CloneOptions { balance: Balance::Shortest, cancel: true, ..CloneOptions::default() };
    [("clone", Some(clone)), (RANDOM, Some(CloneOptions { clone: false, ..CloneOptions::default() }))]
}

impl Demo {
    /// Measures servers in this process.
    async fn measure_local(&self) -> Result<Vec<PathResult>> {
        let work = self.working.work();
        let stores = vec![self.working.store().await?; usize::from(self.servers)];
        let pathcall = Cluster::pathcall(&stores, &work, self.controller.as_deref()).await?;
        let plain = Cluster::plain(&stores, &work).await?;
        self.measure(&pathcall.urls()[0], plain.urls()).await
    }

    /// Measures the pool of this server, and servers as plain gRPC, if there are any.
    async fn measure(&self, server: &str, plain: &[String]) -> Result<Vec<PathResult>> {
        let mut clients = Vec::new();
        for (name, options) in call_options() {
            if name != RANDOM || !self.no_random {
                clients.push((name, Client::of_pool(server, &self.rack, options).await?));
            }
        }
        let plain = match plain {
            [] => None,
            urls => Some(PlainClient::connect(urls).await?),
        };
        let (mix, plan, mut rounds) = (self.mix(), self.plan(), Vec::new());
        for _ in 0..self.rounds {
            let mut ways = Vec::new();
            for (name, client) in &clients {
                ways.push(PathResult::make(name, client, &mix, plan).await?);
            }
            if let Some(client) = &plain {
                let plain = PathResult::make("plain gRPC", &Client::Plain(client.clone()), &mix, plan).await?;
                let delay = plain.latencies.quantile(HEDGED_FROM);
                let hedged =
                    PathResult::make("gRPC hedging", &Client::Plain(client.hedging(delay)), &mix, plan).await?;
                ways.extend([PathResult { hedging_delay_us: Some(delay.as_secs_f64() * 1e6), ..hedged }, plain]);
            }
            rounds.push(ways);
        }
        let count = rounds.first().map_or(0, Vec::len);
        (0..count).map(|nth| PathResult::of_rounds(rounds.iter().map(|ways| &ways[nth]).collect())).collect()
    }

    fn mix(&self) -> ReadMix {
        ReadMix::new(self.working.objects, self.gets, self.working.seed)
    }

    fn plan(&self) -> LoadPlan {
        let StoreArgs { get, scan, jitter, workers, seed, .. } = self.working;
        let mean = |service: Service| service.mean().as_secs_f64() * jitter.factor();
        let call = mean(get) * self.gets + mean(scan) * (1.0 - self.gets);
        let capacity = f64::from(self.servers) * f64::from(workers) / call;
        LoadPlan {
            rate: capacity * self.load,
            warm: WARM,
            measured: Duration::from_secs_f64(self.seconds),
            in_flight_max: 10_000,
            seed,
        }
    }
}

impl PathResult {
    /// Result of several rounds: all calls together, and medians of the rounds' rates and quantiles.
    fn of_rounds(rounds: Vec<&Self>) -> Result<Self> {
        let median = |of: &dyn Fn(&Self) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(|round| of(round)).collect();
            values.sort_unstable_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let [first, ..] = rounds[..] else { bail!("no rounds") };
        let mut latencies = Latencies::default();
        for round in &rounds {
            latencies.add(&round.latencies);
            let Self { name, digest, .. } = round;
            ensure!(*digest == first.digest, "{name}: results differ between rounds");
        }
        Ok(Self {
            name: first.name,
            calls: rounds.iter().map(|round| round.calls).sum(),
            calls_per_s: median(&|round| round.calls_per_s),
            p50_us: median(&|round| round.p50_us),
            p99_us: median(&|round| round.p99_us),
            p999_us: median(&|round| round.p999_us),
            // Counted since the client connected.
            extra: rounds.last().and_then(|round| round.extra),
            hedging_delay_us: first.hedging_delay_us.map(|_| median(&|round| round.hedging_delay_us.unwrap_or(0.0))),
            digest: first.digest.clone(),
            latencies,
        })
    }

    async fn make(name: &'static str, client: &Client, mix: &ReadMix, plan: LoadPlan) -> Result<Self> {
        let digest = Arc::new(AtomicU64::new(0));
        let run: Run<Kind> = open_loop(plan, |nth| {
            let (client, digest, read) = (client.clone(), digest.clone(), mix.read(nth));
            async move {
                let objects = client.read(nth, read).await?;
                // Calls may end in any order.
                digest.fetch_add(hash(nth, &objects), Ordering::Relaxed);
                Ok::<_, tonic::Status>(read.kind)
            }
        })
        .await;
        if let Some(why) = run.why {
            bail!("{name}: {} of {} calls failed: {why}", run.failed, run.failed + run.latencies.len() as u64);
        }
        let all = run.all();
        let us = |share| all.quantile(share).as_secs_f64() * 1e6;
        Ok(Self {
            name,
            calls: run.answered(),
            calls_per_s: run.rate(),
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            extra: client.sent().map(|sent| sent.extra as f64 / sent.calls.max(1) as f64),
            hedging_delay_us: None,
            digest: format!("{:016x}", digest.load(Ordering::Relaxed)),
            latencies: all,
        })
    }
}

/// Hash of an answer and its call number.
fn hash(nth: u64, objects: &[kv::pb::Object]) -> u64 {
    let bytes = objects.iter().flat_map(|object| [&object.key, &object.value]).flatten();
    // FNV-1a.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let call = nth.to_be_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, mix);
    bytes.copied().fold(call, mix)
}

impl Report {
    fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string(self).expect("plain fields"));
            return;
        }
        for way in &self.ways {
            let PathResult { name, calls, calls_per_s, p50_us, p99_us, p999_us, .. } = way;
            println!("{name}: {calls} calls, {calls_per_s:.0} a second");
            println!("  p50 {:.2} ms, p99 {:.2} ms, p999 {:.2} ms", p50_us / 1e3, p99_us / 1e3, p999_us / 1e3);
            if let Some(extra) = way.extra {
                println!("  {:.1} % of the requests sent twice", extra * 100.0);
            }
        }
    }
}
