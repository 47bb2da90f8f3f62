//! Word count over text files: ReduceByKey and Query of NetRPC App. D (AsyncAgtr).
//!
//! Each client counts the words of its share batch by batch and sends the counts; the element adds
//! them up; a query at the end returns all. The result is held against a count made here.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use apps_report::way::{Bytes, Lanes, Transport, Way};
use apps_report::{Report, digest};
use clap::Parser;
use pathcall::types::StrintMap;
use tonic::{Request, Response, Status};

mod pb {
    pathcall::include_proto!("mr");
}
use pb::map_reduce_client::MapReduceClient;
use pb::map_reduce_server::{MapReduce, MapReduceServer};

mod text;

type Counts = HashMap<String, i64>;

/// Counts words in the network.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// Text files; without any, a text made from a seed
    files: Vec<PathBuf>,
    #[command(flatten)]
    way: Way,
    /// Clients that share the text
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// Words of a batch
    #[arg(long, default_value_t = 4000)]
    batch: usize,
}

/// The service. With Pathcall, a call without untyped content never gets here.
#[derive(Debug, Clone, Default)]
struct Handler {
    counts: Arc<Mutex<Counts>>,
    bytes: Arc<Bytes>,
}

#[tonic::async_trait]
impl MapReduce for Handler {
    async fn reduce_by_key(&self, request: Request<pb::ReduceRequest>) -> Result<Response<pb::ReduceReply>, Status> {
        let request = request.into_inner();
        self.bytes.count(&request);
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
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wordcount: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let text = text::read(&args.files)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let batches: Vec<Counts> = words.chunks(args.batch.max(1)).map(count).collect();
    let mut expected = Counts::new();
    batches.iter().flatten().for_each(|(word, n)| *expected.entry(word.clone()).or_default() += n);

    let handler = Handler::default();
    let service = MapReduceServer::new(handler.clone()).max_decoding_message_size(usize::MAX);
    let host = args.way.serve(service, &pb::PATHCALL).await?;

    let began = Instant::now();
    let shares = split(batches, args.clients.max(1));
    let clients = shares.into_iter().map(|share| tokio::spawn(client(host.url.clone(), args.way.plain, share)));
    let (mut latencies, mut lanes) = (Vec::new(), Lanes::default());
    for client in clients.collect::<Vec<_>>() {
        let (took, worked) = client.await??;
        latencies.extend(took);
        lanes.add(worked);
    }
    let took = began.elapsed();
    let counts = query(&host.url, args.way.plain).await?;
    ensure!(counts == expected, "the counts are wrong: {} words, expected {}", counts.len(), expected.len());

    let mut report = Report::new("wordcount", args.way.plain, latencies, took);
    report.server_bytes = host.bytes(&handler.bytes);
    report.element_share = lanes.share();
    let mut sorted: Vec<(&String, [u8; 8])> = counts.iter().map(|(word, n)| (word, n.to_be_bytes())).collect();
    sorted.sort();
    report.digest = digest(sorted.iter().flat_map(|(word, n)| [word.as_bytes(), n]));
    report.print(args.way.json);
    Ok(())
}

/// Sends a share of the batches; latencies, and where their values were worked on.
async fn client(url: String, plain: bool, batches: Vec<Counts>) -> Result<(Vec<Duration>, Lanes)> {
    let mut lanes = Lanes::default();
    if plain {
        return Ok((send(MapReduceClient::connect(url).await?, batches).await?, lanes));
    }
    let channel = pathcall::Channel::connect(url, &pb::PATHCALL).await?;
    let client = MapReduceClient::new(channel.clone());
    let latencies = send(client, batches).await?;
    lanes.count(&channel);
    Ok((latencies, lanes))
}

async fn send(mut client: MapReduceClient<impl Transport>, batches: Vec<Counts>) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    for map in batches {
        let began = Instant::now();
        client.reduce_by_key(pb::ReduceRequest { kvs: Some(StrintMap { map }) }).await?;
        latencies.push(began.elapsed());
    }
    Ok(latencies)
}

async fn query(url: &str, plain: bool) -> Result<Counts> {
    let request = pb::QueryRequest::default();
    let reply = if plain {
        MapReduceClient::connect(url.to_string()).await?.max_decoding_message_size(usize::MAX).query(request).await?
    } else {
        let channel = pathcall::Channel::connect(url.to_string(), &pb::PATHCALL).await?;
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
