//! Application training: data-parallel gradient descent (SyncAgtr, NetRPC Fig. 2–4). Two workers, each with half of a
//! data set, sum their gradients in the network and take the same step.
//!
//! The loss curve is compared, bit for bit, with that of one worker which sums the same quantised gradients.
//!
//! With `--values`, four workers sum gradients of a larger model, without the model: see [`large`].

mod large;
mod model;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use apps_report::call_path::{Bytes, CallPath, Lanes, Transport, tonic_channel};
use apps_report::{Report, digest};
use clap::Parser;
use model::{Data, Model};
use pathcall::types::{FpArray, FpArray32};
use tokio::sync::Barrier;
use tokio::task::{JoinSet, spawn_blocking};
use tonic::{Request, Response, Status};

mod pb {
    pathcall::include_proto!("training");
}
use pb::training_client::TrainingClient;
use pb::training_server::{Training, TrainingServer};

/// Number of workers: the filter's threshold.
const WORKERS: usize = 2;
/// Factor of the filter's Precision.
const SCALE: f64 = 1e8;

/// Train a small neural network with in-network sums
#[derive(Debug, Clone, Parser)]
struct Args {
    #[command(flatten)]
    way: CallPath,
    /// Passes over the data
    #[arg(long, default_value_t = 60)]
    epochs: usize,
    /// Sum gradients with this number of values, of four bytes each, instead of training; four workers
    #[arg(long, value_name = "N")]
    values: Option<usize>,
    /// Sums of such gradients
    #[arg(long, default_value_t = 3, requires = "values")]
    rounds: usize,
}

/// Handler of the service. With Pathcall, a call without untyped content does not reach it.
#[derive(Debug, Clone)]
struct Handler {
    round: Arc<Round<f64>>,
    large: Arc<Round<f32>>,
    bytes: Arc<Bytes>,
}

/// Gradients of one step, one per worker.
#[derive(Debug)]
struct Round<T> {
    parts: Mutex<Vec<Vec<T>>>,
    full: Barrier,
    read: Barrier,
}

impl<T> Round<T> {
    fn new(workers: usize) -> Self {
        Self { parts: Mutex::default(), full: Barrier::new(workers), read: Barrier::new(workers) }
    }

    /// Sum of this worker's part and the others', once all are there.
    async fn sum(&self, part: Vec<T>, sum: fn(&[Vec<T>]) -> Vec<T>) -> Vec<T> {
        let lock = || self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        lock().push(part);
        self.full.wait().await;
        let data = sum(&lock());
        if self.read.wait().await.is_leader() {
            lock().clear();
        }
        // No worker starts the next round before this one is empty.
        self.full.wait().await;
        data
    }
}

#[tonic::async_trait]
impl Training for Handler {
    async fn update(&self, request: Request<pb::NewGrad>) -> Result<Response<pb::AgtrGrad>, Status> {
        let request = request.into_inner();
        self.bytes.count(&request);
        let data = self.round.sum(request.tensor.unwrap_or_default().data, sum).await;
        Ok(Response::new(pb::AgtrGrad { tensor: Some(FpArray { data }) }))
    }

    async fn update_large(&self, request: Request<pb::LargeGrad>) -> Result<Response<pb::LargeSum>, Status> {
        let request = request.into_inner();
        self.bytes.count(&request);
        let data = self.large.sum(request.tensor.unwrap_or_default().data, large::sum).await;
        Ok(Response::new(pb::LargeSum { tensor: Some(FpArray32 { data }) }))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    apps_report::exit(env!("CARGO_PKG_NAME"), run(Args::parse()).await)
}

async fn run(args: Args) -> Result<()> {
    let handler = Handler {
        round: Arc::new(Round::new(WORKERS)),
        large: Arc::new(Round::new(large::WORKERS)),
        bytes: Arc::default(),
    };
    let server = TrainingServer::new(handler.clone()).max_decoding_message_size(usize::MAX);
    let host = args.way.serve(server, &pb::PATHCALL).await?;
    if let Some(values) = args.values {
        let (report, lanes) = large::run(&args.way, &host.url, values, args.rounds).await?;
        let report = Report { server_bytes: host.bytes(&handler.bytes), element_share: lanes.share(), ..report };
        report.print(args.way.json);
        return Ok(());
    }

    let data = Arc::new(Data::load());
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for i in 0..WORKERS {
        let part = worker(host.url.clone(), args.way.plain, data.clone(), i, args.epochs);
        workers.spawn(args.way.places.clone().client(i, part));
    }
    let (mut latencies, mut lanes, mut curves) = (Vec::new(), Lanes::default(), Vec::new());
    // The first result of any worker: the others wait for one that failed.
    while let Some(done) = workers.join_next().await {
        let done = done??;
        latencies.extend(done.latencies);
        curves.push(done.losses);
        lanes.add(done.lanes);
    }
    let took = began.elapsed();

    let losses = one_worker(&data, args.epochs);
    for curve in &curves {
        let same = curve.iter().map(|l| l.to_bits()).eq(losses.iter().map(|l| l.to_bits()));
        ensure!(same, "the loss curve differs from one worker's: {curve:?}, expected {losses:?}");
    }

    let mut report = Report::new("training", args.way.plain, latencies, took);
    report.server_bytes = host.bytes(&handler.bytes);
    report.element_share = lanes.share();
    let bits: Vec<[u8; 8]> = losses.iter().map(|loss| loss.to_be_bytes()).collect();
    report.digest = digest(bits.iter().map(|b| &b[..]));
    report.print(args.way.json);
    if !args.way.json {
        let (first, last) = (losses.first().unwrap_or(&0.0), losses.last().unwrap_or(&0.0));
        println!("  {} parameters, loss {first:.4} to {last:.4} in {} epochs", Model::SIZE, args.epochs);
    }
    Ok(())
}

struct Done {
    losses: Vec<f64>,
    latencies: Vec<Duration>,
    lanes: Lanes,
}

async fn worker(url: String, plain: bool, data: Arc<Data>, index: usize, epochs: usize) -> Result<Done> {
    if plain {
        // Plain gRPC sums doubles; they are quantised for comparison.
        let descent = Descent::new(data, index, quantise);
        return descend(TrainingClient::new(tonic_channel(url).await?), descent, epochs).await;
    }
    let channel = pathcall::Channel::connect(url, &pb::PATHCALL).await?;
    let client = TrainingClient::new(channel.clone());
    let mut done = descend(client, Descent::new(data, index, |value| value), epochs).await?;
    done.lanes.count(&channel);
    Ok(done)
}

/// Steps of one worker. They are computed outside of the runtime's tasks, which have to answer the other workers.
async fn descend(mut client: TrainingClient<impl Transport>, mut descent: Descent, epochs: usize) -> Result<Done> {
    let mut latencies = Vec::new();
    let mut sum = None;
    for _ in 0..epochs {
        let gradient;
        (descent, gradient) = spawn_blocking(move || {
            descent.step(sum);
            let gradient = descent.gradient();
            (descent, gradient)
        })
        .await?;
        let began = Instant::now();
        let reply = client.update(pb::NewGrad { tensor: Some(FpArray { data: gradient }) }).await?;
        latencies.push(began.elapsed());
        sum = Some(reply.into_inner().tensor.unwrap_or_default().data);
    }
    descent.step(sum);
    Ok(Done { losses: descent.losses, latencies, lanes: Lanes::default() })
}

/// Computation of one worker.
struct Descent {
    data: Arc<Data>,
    shard: Data,
    model: Model,
    losses: Vec<f64>,
    /// Converts each gradient value for sending.
    convert: fn(f64) -> f64,
}

impl Descent {
    fn new(data: Arc<Data>, index: usize, convert: fn(f64) -> f64) -> Self {
        let shard = data.shard(index, WORKERS);
        Self { data, shard, model: Model::new(), losses: Vec::new(), convert }
    }

    /// Takes a step by the sum of all gradients; there is none before the first step.
    fn step(&mut self, sum: Option<Vec<f64>>) {
        if let Some(sum) = sum {
            self.model.step(&sum);
            self.losses.push(self.model.loss(&self.data));
        }
    }

    fn gradient(&self) -> Vec<f64> {
        self.model.gradient(&self.shard, self.data.rows()).into_iter().map(self.convert).collect()
    }
}

/// Same descent by one worker, on the same quantised gradients.
fn one_worker(data: &Data, epochs: usize) -> Vec<f64> {
    let mut model = Model::new();
    (0..epochs)
        .map(|_| {
            let parts = (0..WORKERS).map(|i| model.gradient(&data.shard(i, WORKERS), data.rows()));
            let parts: Vec<Vec<f64>> = parts.map(|g| g.into_iter().map(quantise).collect()).collect();
            model.step(&sum(&parts));
            model.loss(data)
        })
        .collect()
}

/// Nearest multiple of the filter's precision.
fn quantise(value: f64) -> f64 {
    (value * SCALE).round() / SCALE
}

/// Exact sum of quantised values, as integers.
fn sum(parts: &[Vec<f64>]) -> Vec<f64> {
    let lanes = parts.first().map_or(0, Vec::len);
    (0..lanes).map(|i| parts.iter().map(|p| (p[i] * SCALE).round() as i64).sum::<i64>() as f64 / SCALE).collect()
}
