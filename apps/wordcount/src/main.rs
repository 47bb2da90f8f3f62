//! Application wordcount: word count over text files with ReduceByKey and Query of NetRPC App. D (AsyncAgtr).
//!
//! Each client counts the words of its share batch by batch and sends the counts; the element adds them; a final query
//! returns all counts, which are compared with a local count.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::call_path::{self, tonic_channel};
use apps_report::party_hosts::PartyHosts;
use apps_report::{Report, digest};
use clap::Parser;
use pathcall::channel::PathStats;
use pathcall::manifest::MapPath;
use pathcall::types::StrintMap;
use prost::Message;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

mod pb {
    pathcall::include_proto!("mr");
}
use pb::map_reduce_client::MapReduceClient;
use pb::map_reduce_server::{MapReduce, MapReduceServer};

mod text;

type Counts = HashMap<String, i64>;

/// Count words in the network
#[derive(Debug, Clone, Parser)]
struct Args {
    /// Text files [default: a text generated from a seed]
    files: Vec<PathBuf>,
    /// Controller; without one, everything is done in software
    #[arg(long)]
    controller: Option<String>,
    /// Path of the additions: automatic, element, software or direct [default: that of the filter]
    #[arg(long, value_name = "PATH", value_parser = call_path::parse_path, conflicts_with = "plain")]
    path: Option<MapPath>,
    /// Plain gRPC: the handler counts
    #[arg(long)]
    plain: bool,
    /// Number of clients that share the text
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// Words of the generated text
    #[arg(long, default_value_t = 400_000, conflicts_with = "files")]
    words: usize,
    /// Words of a batch
    #[arg(long, default_value_t = 4000)]
    batch: usize,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Only serve, at this address, until killed
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["server", "journal", "files"])]
    listen: Option<SocketAddr>,
    /// Only count, at a server elsewhere
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Journal of completed batches, so that a killed run can resume (one client)
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    places: PartyHosts,
}

/// Handler of the service. With Pathcall, a call without untyped content does not reach it.
#[derive(Debug, Clone, Default)]
struct Handler {
    counts: Arc<Mutex<Counts>>,
    bytes: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl MapReduce for Handler {
    async fn reduce_by_key(&self, request: Request<pb::ReduceRequest>) -> Result<Response<pb::ReduceReply>, Status> {
        let request = request.into_inner();
        self.bytes.fetch_add(request.encoded_len() as u64, Ordering::Relaxed);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (word, n) in request.kvs.unwrap_or_default().map {
            *counts.entry(word).or_default() += n;
        }
        Ok(Response::new(pb::ReduceReply::default()))
    }

    async fn query(&self, _: Request<pb::QueryRequest>) -> Result<Response<pb::QueryReply>, Status> {
        let map = self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Response::new(pb::QueryReply { kvs: Some(StrintMap { map }) }))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    apps_report::exit(env!("CARGO_PKG_NAME"), run(Args::parse()).await)
}

async fn run(args: Args) -> Result<()> {
    let handler = Handler::default();
    if let Some(address) = args.listen {
        let (url, _server) = serve(&args, &handler, address).await?;
        println!("ready {url}");
        return std::future::pending().await;
    }
    let text = text::read(&args.files, args.words)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let batches: Vec<Counts> = words.chunks(args.batch.max(1)).map(count).collect();
    let mut expected = Counts::new();
    batches.iter().flatten().for_each(|(word, n)| *expected.entry(word.clone()).or_default() += n);

    let (url, server) = match &args.server {
        Some(url) => (url.clone(), None),
        None => {
            let (args, handler) = (args.clone(), handler.clone());
            let address = (args.places.serve_at, 0).into();
            args.places.clone().serve(async move { serve(&args, &handler, address).await }).await?
        }
    };

    let began = Instant::now();
    // A journal belongs to one client.
    let clients = if args.journal.is_some() { 1 } else { args.clients.max(1) };
    let shares = split(batches, clients);
    let clients = shares.into_iter().enumerate().map(|(index, share)| {
        let part = client(url.clone(), (args.plain, args.path), args.journal.clone(), share);
        tokio::spawn(args.places.clone().client(index, part))
    });
    let (mut latencies, mut share, mut paths) = (Vec::new(), (0, 0), Vec::new());
    for client in clients.collect::<Vec<_>>() {
        let sent = client.await??;
        latencies.extend(sent.latencies);
        share = (share.0 + sent.element, share.1 + sent.software);
        paths.extend(sent.paths);
    }
    let took = began.elapsed();
    let counts = args.places.clone().client(0, query(url.clone(), args.plain)).await?;
    ensure!(counts == expected, "wrong counts: {} words, expected {}", counts.len(), expected.len());

    let mut report = Report::new("wordcount", args.plain, latencies, took);
    report.server_bytes = match &server {
        Some(server) => server.stats().iter().map(|app| app.map.lane_bytes_received + app.direct.bytes).sum(),
        None => handler.bytes.load(Ordering::Relaxed),
    };
    report.element_share = server.is_some().then(|| share.0 as f64 / (share.0 + share.1).max(1) as f64);
    let mut sorted: Vec<(&String, [u8; 8])> = counts.iter().map(|(word, n)| (word, n.to_be_bytes())).collect();
    sorted.sort();
    report.digest = digest(sorted.iter().flat_map(|(word, n)| [word.as_bytes(), n]));
    report.print(args.json);
    if !args.json {
        paths.iter().for_each(|path| println!("  {path}"));
    }
    Ok(())
}

/// Starts the server, on a runtime that keeps it.
async fn serve(args: &Args, handler: &Handler, address: SocketAddr) -> Result<(String, Option<pathcall::Layer>)> {
    let listener = TcpListener::bind(address).await.context("cannot bind the server's port")?;
    let url = format!("http://{}", listener.local_addr()?);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let routes = Routes::new(MapReduceServer::new(handler.clone()).max_decoding_message_size(usize::MAX));
    if args.plain {
        tokio::spawn(call_path::serve(routes, None, incoming));
        return Ok((url, None));
    }
    let mut builder = pathcall::Layer::builder(&pb::PATHCALL).advertise(&url).path(args.path);
    if let Some(controller) = &args.controller {
        builder = builder.controller(controller);
    }
    let owner = builder.build().await?;
    tokio::spawn(call_path::serve(routes, Some(&owner), incoming));
    Ok((url, Some(owner)))
}

/// Results of a client.
#[derive(Debug, Default)]
struct Sent {
    latencies: Vec<Duration>,
    /// Values added by the element, and in software.
    element: u64,
    software: u64,
    /// Measured times of the paths of calls.
    paths: Vec<String>,
}

/// Sends a share of the batches.
async fn client(
    url: String,
    (plain, path): (bool, Option<MapPath>),
    journal: Option<PathBuf>,
    batches: Vec<Counts>,
) -> Result<Sent> {
    let mut latencies = Vec::new();
    if plain {
        let mut client = MapReduceClient::new(tonic_channel(url).await?);
        for map in batches {
            let began = Instant::now();
            client.reduce_by_key(pb::ReduceRequest { kvs: Some(StrintMap { map }) }).await?;
            latencies.push(began.elapsed());
        }
        return Ok(Sent { latencies, ..Sent::default() });
    }
    let mut builder = pathcall::Channel::builder(url, &pb::PATHCALL)?.path(path);
    let named = journal.is_some();
    if let Some(journal) = journal {
        builder = builder.journal(journal);
    }
    let channel = builder.connect().await?;
    let mut client = MapReduceClient::new(channel.clone());
    for (number, map) in batches.into_iter().enumerate() {
        let began = Instant::now();
        let mut request = Request::new(pb::ReduceRequest { kvs: Some(StrintMap { map }) });
        if named {
            // The same text makes the same batches: a resumed run gives each the id that it had.
            request.metadata_mut().insert(pathcall::channel::CALL_ID, number.into());
        }
        client.reduce_by_key(request).await?;
        latencies.push(began.elapsed());
    }
    let stats = channel.stats();
    let sum = |f: fn(&pathcall::channel::ClientStats) -> u64| stats.applications.iter().map(|a| f(&a.map)).sum();
    let paths = stats.applications.iter().flat_map(|application| &application.paths).map(PathStats::to_string);
    Ok(Sent {
        latencies,
        element: sum(|map| map.lanes_element),
        software: sum(|map| map.lanes_software),
        paths: paths.collect(),
    })
}

async fn query(url: String, plain: bool) -> Result<Counts> {
    let request = pb::QueryRequest::default();
    let reply = if plain {
        MapReduceClient::new(tonic_channel(url).await?).max_decoding_message_size(usize::MAX).query(request).await?
    } else {
        let channel = pathcall::Channel::connect(url, &pb::PATHCALL).await?;
        MapReduceClient::new(channel).max_decoding_message_size(usize::MAX).query(request).await?
    };
    Ok(reply.into_inner().kvs.unwrap_or_default().map)
}

fn count(words: &[&str]) -> Counts {
    let mut counts = Counts::new();
    words.iter().for_each(|word| *counts.entry((*word).to_string()).or_default() += 1);
    counts
}

fn split(batches: Vec<Counts>, clients: usize) -> Vec<Vec<Counts>> {
    let mut shares = vec![Vec::new(); clients];
    batches.into_iter().enumerate().for_each(|(i, batch)| shares[i % clients].push(batch));
    shares
}
