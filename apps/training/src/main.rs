//! Data-parallel gradient descent (SyncAgtr, NetRPC Fig. 2–4): two workers, each with half of a
//! data set, add their gradients up in the network and take the same step.
//!
//! The loss curve is held, bit for bit, against one worker's that sums the same quantised gradients.

mod model;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::{Report, digest};
use clap::Parser;
use model::{Data, Model};
use pathcall::types::FpArray;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

mod pb {
    pathcall::include_proto!("training");
}
use pb::training_client::TrainingClient;
use pb::training_server::{Training, TrainingServer};

/// Workers: the filter's threshold.
const WORKERS: usize = 2;
/// The filter's Precision, as a factor.
const SCALE: f64 = 1e8;

/// Trains a small network in the network.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// Controller; without one everything is done in software
    #[arg(long)]
    controller: Option<String>,
    /// Plain gRPC: the handler sums
    #[arg(long)]
    plain: bool,
    /// Passes over the data
    #[arg(long, default_value_t = 60)]
    epochs: usize,
    /// One line of JSON
    #[arg(long)]
    json: bool,
}

/// The service. With Pathcall, a call without untyped content never gets here.
#[derive(Debug, Clone)]
struct Handler {
    round: Arc<Mutex<Vec<Vec<f64>>>>,
    full: Arc<Barrier>,
    read: Arc<Barrier>,
    bytes: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl Training for Handler {
    async fn update(&self, request: Request<pb::NewGrad>) -> Result<Response<pb::AgtrGrad>, Status> {
        let request = request.into_inner();
        self.bytes.fetch_add(request.encoded_len() as u64, Ordering::Relaxed);
        let lock = || self.round.lock().unwrap_or_else(PoisonError::into_inner);
        lock().push(request.tensor.unwrap_or_default().data);
        self.full.wait().await;
        let data = sum(&lock());
        if self.read.wait().await.is_leader() {
            lock().clear();
        }
        // Nobody starts the next round before it is empty.
        self.full.wait().await;
        Ok(Response::new(pb::AgtrGrad { tensor: Some(FpArray { data }) }))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("training: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let data = Arc::new(Data::load());
    let handler = Handler {
        round: Arc::default(),
        full: Arc::new(Barrier::new(WORKERS)),
        read: Arc::new(Barrier::new(WORKERS)),
        bytes: Arc::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the server")?;
    let url = format!("http://{}", listener.local_addr()?);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let service = TrainingServer::new(handler.clone());
    let mut server = None;
    if args.plain {
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    } else {
        let mut builder = pathcall::Server::builder(&pb::PATHCALL).advertise(&url);
        if let Some(controller) = &args.controller {
            builder = builder.controller(controller);
        }
        let owner = builder.build().await?;
        let layered = tonic::transport::Server::builder().layer(owner.layer()).add_service(service);
        tokio::spawn(layered.serve_with_incoming(incoming));
        server = Some(owner);
    }

    let expected = one_worker(&data, args.epochs);
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for i in 0..WORKERS {
        workers.spawn(worker(url.clone(), args.plain, data.clone(), i, args.epochs));
    }
    let (mut latencies, mut share, mut losses) = (Vec::new(), (0, 0), Vec::new());
    // Whichever ends first: the others of a round wait for one that failed.
    while let Some(done) = workers.join_next().await {
        let done = done??;
        let same = done.losses.iter().map(|l| l.to_bits()).eq(expected.iter().map(|l| l.to_bits()));
        ensure!(same, "the loss curve differs from one worker's: {:?}, expected {expected:?}", done.losses);
        latencies.extend(done.latencies);
        losses = done.losses;
        share = (share.0 + done.element, share.1 + done.software);
    }
    let took = began.elapsed();

    let mut report = Report::new("training", args.plain, latencies, took);
    report.server_bytes = match &server {
        Some(server) => server.stats().iter().map(|app| app.map.lane_bytes_received).sum(),
        None => handler.bytes.load(Ordering::Relaxed),
    };
    report.element_share = server.is_some().then(|| share.0 as f64 / (share.0 + share.1).max(1) as f64);
    let bits: Vec<[u8; 8]> = losses.iter().map(|loss| loss.to_be_bytes()).collect();
    report.digest = digest(bits.iter().map(|b| &b[..]));
    report.print(args.json);
    if !args.json {
        let (first, last) = (losses.first().unwrap_or(&0.0), losses.last().unwrap_or(&0.0));
        println!("  {} parameters, loss {first:.4} to {last:.4} in {} epochs", Model::SIZE, args.epochs);
    }
    Ok(())
}

struct Done {
    losses: Vec<f64>,
    latencies: Vec<Duration>,
    element: u64,
    software: u64,
}

async fn worker(url: String, plain: bool, data: Arc<Data>, index: usize, epochs: usize) -> Result<Done> {
    let mut done = Done { losses: Vec::new(), latencies: Vec::new(), element: 0, software: 0 };
    let mut model = Model::new();
    let shard = data.shard(index, WORKERS);
    if plain {
        let mut client = TrainingClient::connect(url).await?;
        for _ in 0..epochs {
            // The plain path sums doubles; it is given quantised ones to be comparable.
            let gradient = model.gradient(&shard, data.rows()).into_iter().map(quantise).collect();
            let began = Instant::now();
            let reply = client.update(pb::NewGrad { tensor: Some(FpArray { data: gradient }) }).await?;
            done.step(&mut model, &data, reply.into_inner(), began);
        }
        return Ok(done);
    }
    let channel = pathcall::Channel::connect(url, &pb::PATHCALL).await?;
    let mut client = TrainingClient::new(channel.clone());
    for _ in 0..epochs {
        let gradient = model.gradient(&shard, data.rows());
        let began = Instant::now();
        let reply = client.update(pb::NewGrad { tensor: Some(FpArray { data: gradient }) }).await?;
        done.step(&mut model, &data, reply.into_inner(), began);
    }
    for application in channel.stats().applications {
        done.element += application.map.lanes_element;
        done.software += application.map.lanes_software;
    }
    Ok(done)
}

impl Done {
    fn step(&mut self, model: &mut Model, data: &Data, reply: pb::AgtrGrad, began: Instant) {
        self.latencies.push(began.elapsed());
        model.step(&reply.tensor.unwrap_or_default().data);
        self.losses.push(model.loss(data));
    }
}

/// The same descent by one worker, on the same quantised gradients.
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

/// The nearest multiple of the filter's precision.
fn quantise(value: f64) -> f64 {
    (value * SCALE).round() / SCALE
}

/// Sums quantised values exactly: as integers.
fn sum(parts: &[Vec<f64>]) -> Vec<f64> {
    let lanes = parts.first().map_or(0, Vec::len);
    (0..lanes).map(|i| parts.iter().map(|p| (p[i] * SCALE).round() as i64).sum::<i64>() as f64 / SCALE).collect()
}
