//! Reads from a replicated key-value store whose servers are disturbed now and then: cloned by the element, not
//! cloned, and by plain gRPC.
//!
//! ```text
//! load (Poisson, Zipf) ─► Client ─► four servers, each four workers ─► Store
//!        └─ each value is held against what was stored; latencies count from when a call was meant to be made
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use apps_load::{Jitter, Latencies, Plan, Run, Service, open_loop};
use clap::{Args, Parser, Subcommand};
use kv::cluster::Work;
use kv::{Client, Cluster, Kind, Mix, Store, Waits, picture};
use pathcall::channel::CloneOptions;
use serde::Serialize;

/// Load that does not count: connections open, the element learns of queues.
const WARM: Duration = Duration::from_millis(300);

/// Reads from a replicated key-value store.
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Be one of the servers, until killed
    Serve(Serve),
    /// Read from servers: cloned, not cloned, and by plain gRPC
    Demo(Demo),
}

#[derive(Debug, Clone, Args)]
struct Working {
    /// Objects in the store
    #[arg(long, default_value_t = 10_000)]
    objects: u64,
    /// Calls that a server works on at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// How long a server waits for an object: fixed:TIME, exp:MEAN or bimodal:TIME,TIME
    #[arg(long, default_value = "exp:4ms")]
    get: Service,
    /// How long for a scan
    #[arg(long, default_value = "exp:20ms")]
    scan: Service,
    /// What disturbs servers: 0.01x15 is 15 times as long with a probability of 0.01, or none
    #[arg(long, default_value = "0.01x15")]
    jitter: Jitter,
    /// All that is drawn is drawn from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
struct Serve {
    /// Address of the gRPC server
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    listen: std::net::SocketAddr,
    /// Controller of the pool; without one it serves alone
    #[arg(long, value_name = "URL", conflicts_with = "plain")]
    controller: Option<String>,
    /// Plain gRPC
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    working: Working,
}

#[derive(Debug, Args)]
struct Demo {
    /// Controller of servers in this process: those of a pool know of each other by it
    #[arg(long, value_name = "URL", required_unless_present = "pool")]
    controller: Option<String>,
    /// A server that runs elsewhere: its pool is read from, not by plain gRPC
    #[arg(long, value_name = "URL", conflicts_with = "controller")]
    pool: Option<String>,
    /// Servers, in this process or elsewhere
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    servers: u16,
    /// Of what the servers could do
    #[arg(long, default_value_t = 0.3)]
    load: f64,
    /// Share of the calls that read one object; the others scan a hundred
    #[arg(long, default_value_t = 0.99)]
    gets: f64,
    /// Seconds of load for each way
    #[arg(long, default_value_t = 2.5)]
    seconds: f64,
    /// The picture of the latencies goes there
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// One line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    working: Working,
}

/// What one way came to.
#[derive(Debug, Serialize)]
struct Way {
    name: &'static str,
    calls: u64,
    calls_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// Requests sent beyond one for each call, for each call.
    extra: Option<f64>,
    /// Hash of the result: equal results, equal digests.
    digest: String,
    #[serde(skip)]
    latencies: Latencies,
}

#[derive(Debug, Serialize)]
struct Report {
    app: &'static str,
    /// Plain gRPC is the last, where there is any.
    ways: Vec<Way>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Command::parse().what {
        What::Serve(args) => serve(args).await,
        What::Demo(args) => demo(args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn serve(args: Serve) -> Result<()> {
    let store = args.working.store().await?;
    let work = args.working.work();
    let controller = (!args.plain).then_some(args.controller.as_deref());
    let cluster = Cluster::alone(args.listen, &store, &work, controller).await?;
    println!("ready {}", cluster.urls()[0]);
    std::future::pending().await
}

async fn demo(args: Demo) -> Result<()> {
    ensure!(args.load > 0.0 && args.load <= 1.0, "--load: expected more than 0 and at most 1, got {}", args.load);
    ensure!((0.0..=1.0).contains(&args.gets), "--gets: expected 0 to 1, got {}", args.gets);
    ensure!(args.seconds > 0.0 && args.seconds <= 3600.0, "--seconds: expected 0 to 3600, got {}", args.seconds);
    let ways = match &args.pool {
        Some(server) => args.elsewhere(server).await?,
        None => args.here().await?,
    };
    if let Some(path) = &args.picture {
        let lines: Vec<_> = ways.iter().map(|way| (way.name, &way.latencies)).collect();
        let title = format!("reads of a replicated store at {:.0} % load", args.load * 100.0);
        picture::draw(path, &title, &lines)?;
    }
    Report { app: "kv", ways }.print(args.json);
    Ok(())
}

impl Working {
    fn work(&self) -> Work {
        let waits = Waits { get: self.get, scan: self.scan, jitter: self.jitter };
        Work { workers: usize::from(self.workers), waits: Some(waits), seed: self.seed }
    }

    /// In memory, filled.
    async fn store(&self) -> Result<Store> {
        let store = Store::memory();
        store.fill(self.objects).await?;
        Ok(store)
    }
}

/// Names and options of the ways that calls go to a pool: as their methods say, and without clones.
fn call_options() -> [(&'static str, Option<CloneOptions>); 2] {
    [("clone", None), ("random", Some(CloneOptions { clone: false, ..CloneOptions::default() }))]
}

impl Demo {
    /// From servers in this process.
    async fn here(&self) -> Result<Vec<Way>> {
        let work = self.working.work();
        let stores = vec![self.working.store().await?; usize::from(self.servers)];
        let (mix, plan, mut ways) = (self.mix(), self.plan(), Vec::new());
        let pathcall = Cluster::pathcall(&stores, &work, self.controller.as_deref()).await?;
        for (name, options) in call_options() {
            ways.push(Way::make(name, &pathcall.client(options).await?, &mix, plan).await?);
        }
        drop(pathcall);
        let plain = Cluster::plain(&stores, &work).await?;
        ways.push(Way::make("plain gRPC", &plain.client(None).await?, &mix, plan).await?);
        Ok(ways)
    }

    /// From the pool of a server.
    async fn elsewhere(&self, server: &str) -> Result<Vec<Way>> {
        let mut ways = Vec::new();
        for (name, options) in call_options() {
            let client = Client::of_pool(server, options).await?;
            ways.push(Way::make(name, &client, &self.mix(), self.plan()).await?);
        }
        Ok(ways)
    }

    fn mix(&self) -> Mix {
        Mix::new(self.working.objects, self.gets, self.working.seed)
    }

    fn plan(&self) -> Plan {
        let Working { get, scan, jitter, workers, seed, .. } = self.working;
        let mean = |service: Service| service.mean().as_secs_f64() * jitter.factor();
        let call = mean(get) * self.gets + mean(scan) * (1.0 - self.gets);
        let capacity = f64::from(self.servers) * f64::from(workers) / call;
        Plan {
            rate: capacity * self.load,
            warm: WARM,
            measured: Duration::from_secs_f64(self.seconds),
            in_flight_max: 10_000,
            seed,
        }
    }
}

impl Way {
    async fn make(name: &'static str, client: &Client, mix: &Mix, plan: Plan) -> Result<Self> {
        let digest = Arc::new(AtomicU64::new(0));
        let run: Run<Kind> = open_loop(plan, |nth| {
            let (client, digest, read) = (client.clone(), digest.clone(), mix.read(nth));
            async move {
                let objects = client.read(nth, read).await?;
                // Calls end in any order.
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
            digest: format!("{:016x}", digest.load(Ordering::Relaxed)),
            latencies: all,
        })
    }
}

/// Of an answer, and of which call's it is.
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
            let Way { name, calls, calls_per_s, p50_us, p99_us, p999_us, .. } = way;
            println!("{name}: {calls} calls, {calls_per_s:.0} a second");
            println!("  p50 {:.2} ms, p99 {:.2} ms, p999 {:.2} ms", p50_us / 1e3, p99_us / 1e3, p999_us / 1e3);
            if let Some(extra) = way.extra {
                println!("  {:.1} % of the requests sent twice", extra * 100.0);
            }
        }
    }
}
