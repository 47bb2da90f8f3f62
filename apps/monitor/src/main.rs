//! Application monitor: network monitoring with MonitorCall and Query of NetRPC App. D (KeyValue).
//!
//! Agents read every n-th batch of a packet capture each, and report packets and bytes of each flow; the element adds
//! the reports; a final query returns the table, which is compared with a local count.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::call_path::{Bytes, CallPath, Lanes, Transport, pathcall_channel, tonic_channel};
use apps_report::{Report, digest};
use clap::Parser;
use pathcall::manifest::MapPath;
use pathcall::types::StrintMap;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status};

mod pb {
    pathcall::include_proto!("monitor");
}
use monitor::flow::Flow;
use monitor::{capture, generate};
use pb::monitor_client::MonitorClient;
use pb::monitor_server::{Monitor, MonitorServer};

/// Batches that are read ahead for each agent.
const AHEAD: usize = 4;

type Table = HashMap<String, i64>;

/// Count packets and bytes per flow in the network
#[derive(Debug, Clone, Parser)]
struct Args {
    #[command(flatten)]
    way: CallPath,
    /// Packet capture, pcap or pcapng [default: generated from a seed]
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Seed of the generated capture
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Packets of the generated capture
    #[arg(long, default_value_t = 100_000)]
    packets: usize,
    /// Write the generated capture to this file
    #[arg(long, value_name = "FILE", conflicts_with = "capture")]
    write_capture: Option<PathBuf>,
    /// Number of agents that share the capture
    #[arg(long, default_value_t = 3)]
    agents: usize,
    /// Packets of a report
    #[arg(long, default_value_t = 1000)]
    batch: usize,
}

/// Handler of the service. With Pathcall, only the payload of a call reaches it.
#[derive(Debug, Clone, Default)]
struct Handler {
    table: Arc<Mutex<Table>>,
    bytes: Arc<Bytes>,
}

#[tonic::async_trait]
impl Monitor for Handler {
    async fn monitor_call(&self, request: Request<pb::MonitorRequest>) -> Result<Response<pb::MonitorReply>, Status> {
        let request = request.into_inner();
        self.bytes.count(&request);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, n) in request.kvs.unwrap_or_default().map {
            *table.entry(key).or_default() += n;
        }
        let payload = if request.payload.is_empty() { String::new() } else { expected_reply(&request.payload) };
        Ok(Response::new(pb::MonitorReply { payload }))
    }

    async fn query(&self, _: Request<pb::QueryRequest>) -> Result<Response<pb::QueryReply>, Status> {
        let map = self.table.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Response::new(pb::QueryReply { kvs: Some(StrintMap { map }) }))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    apps_report::exit(env!("CARGO_PKG_NAME"), run(Args::parse()).await)
}

async fn run(args: Args) -> Result<()> {
    let (name, source) = open(&args)?;
    let handler = Handler::default();
    let service = MonitorServer::new(handler.clone()).max_decoding_message_size(usize::MAX);
    let host = args.way.serve(service, &pb::PATHCALL).await?;

    let began = Instant::now();
    let (mut senders, mut agents) = (Vec::new(), JoinSet::new());
    for i in 0..args.agents.max(1) {
        let (sender, batches) = mpsc::channel(AHEAD);
        senders.push(sender);
        let part = agent(host.url.clone(), (args.way.plain, args.way.path), i, batches);
        agents.spawn(args.way.places.clone().client(i, part));
    }
    let batch = args.batch.max(1);
    let read = tokio::task::spawn_blocking(move || read(source, batch, &senders));
    let (mut latencies, mut lanes) = (Vec::new(), Lanes::default());
    while let Some(agent) = agents.join_next().await {
        let (took, worked) = agent??;
        latencies.extend(took);
        lanes.add(worked);
    }
    let took = began.elapsed();
    let seen = read.await?.with_context(|| name.clone())?;
    if let Some(damage) = &seen.end.damage {
        eprintln!("monitor: {name} is damaged after packet {}: {damage}", seen.end.packets);
    }

    let asked = query(host.url.clone(), args.way.plain);
    let table = args.way.places.clone().client(0, asked).await?;
    ensure!(table == seen.table, "wrong table: {} counts, expected {}", table.len(), seen.table.len());

    let mut report = Report::new("monitor", args.way.plain, latencies, took);
    report.server_bytes = host.bytes(&handler.bytes);
    report.element_share = lanes.share();
    let mut sorted: Vec<(&String, [u8; 8])> = table.iter().map(|(key, n)| (key, n.to_be_bytes())).collect();
    sorted.sort();
    report.digest = digest(sorted.iter().flat_map(|(key, n)| [key.as_bytes(), n]));
    report.print(args.way.json);
    if !args.way.json {
        seen.print();
    }
    Ok(())
}

/// Opens the capture. Returns its name and content.
fn open(args: &Args) -> Result<(String, Box<dyn Read + Send>)> {
    if let Some(path) = &args.capture {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        return Ok((name, Box::new(file)));
    }
    let made = generate::capture(args.seed, args.packets)?;
    if let Some(path) = &args.write_capture {
        std::fs::write(path, &made).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok((format!("the capture of seed {}", args.seed), Box::new(Cursor::new(made))))
}

/// Content of the capture, counted locally.
#[derive(Debug, Default)]
struct CountedCapture {
    table: Table,
    end: capture::CaptureEnd,
    /// Packets without a flow.
    other: u64,
}

/// Reads the capture and distributes it in batches.
fn read(
    source: impl Read,
    batch: usize,
    agents: &[mpsc::Sender<Table>],
) -> Result<CountedCapture, capture::CaptureError> {
    let mut seen = CountedCapture::default();
    let (mut counts, mut packets, mut dealt) = (Table::new(), 0, 0);
    let mut deal = |counts: &mut Table| {
        // An agent that is gone has failed, and reports its error itself.
        let _ = agents[dealt % agents.len()].blocking_send(std::mem::take(counts));
        dealt += 1;
    };
    seen.end = capture::read(source, |packet| {
        let Some(flow) = Flow::of(&packet) else {
            seen.other += 1;
            return;
        };
        for (what, n) in [("packets", 1), ("bytes", i64::from(packet.wire_len))] {
            let key = format!("{flow} {what}");
            *seen.table.entry(key.clone()).or_default() += n;
            *counts.entry(key).or_default() += n;
        }
        packets += 1;
        if packets % batch == 0 {
            deal(&mut counts);
        }
    })?;
    if !counts.is_empty() {
        deal(&mut counts);
    }
    Ok(seen)
}

/// Reports batches, the last one with a payload. Returns latencies, and the counts of element and software.
async fn agent(
    url: String,
    (plain, path): (bool, Option<MapPath>),
    index: usize,
    batches: mpsc::Receiver<Table>,
) -> Result<(Vec<Duration>, Lanes)> {
    let mut lanes = Lanes::default();
    if plain {
        return Ok((report(MonitorClient::new(tonic_channel(url).await?), index, batches).await?, lanes));
    }
    let channel = pathcall_channel(url, &pb::PATHCALL, path).await?;
    let latencies = report(MonitorClient::new(channel.clone()), index, batches).await?;
    lanes.count(&channel);
    Ok((latencies, lanes))
}

async fn report<T: Transport>(
    mut client: MonitorClient<T>,
    index: usize,
    mut batches: mpsc::Receiver<Table>,
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while let Some(map) = batches.recv().await {
        let began = Instant::now();
        client.monitor_call(pb::MonitorRequest { kvs: Some(StrintMap { map }), payload: String::new() }).await?;
        latencies.push(began.elapsed());
    }
    let payload = format!("agent {index} sent {} reports", latencies.len());
    let expected = expected_reply(&payload);
    let reply = client.monitor_call(pb::MonitorRequest { kvs: None, payload }).await?.into_inner();
    ensure!(reply.payload == expected, "wrong reply {:?}, expected {expected:?}", reply.payload);
    Ok(latencies)
}

/// Answer of the handler to a payload.
fn expected_reply(payload: &str) -> String {
    format!("noted: {payload}")
}

async fn query(url: String, plain: bool) -> Result<Table> {
    let request = pb::QueryRequest::default();
    let reply = if plain {
        MonitorClient::new(tonic_channel(url).await?).max_decoding_message_size(usize::MAX).query(request).await?
    } else {
        let channel = pathcall::Channel::connect(url, &pb::PATHCALL).await?;
        MonitorClient::new(channel).max_decoding_message_size(usize::MAX).query(request).await?
    };
    Ok(reply.into_inner().kvs.unwrap_or_default().map)
}

impl CountedCapture {
    /// Prints a summary, and the flows with the most bytes.
    fn print(&self) {
        let capture::CaptureEnd { packets, broken, .. } = self.end;
        let flows = self.table.len() / 2;
        println!("  {packets} packets of {flows} flows; skipped: {} of no flow, {broken} broken", self.other);
        let mut flows: Vec<(&str, i64)> =
            self.table.iter().filter_map(|(key, n)| Some((key.strip_suffix(" bytes")?, *n))).collect();
        flows.sort_by_key(|(flow, n)| (-n, *flow));
        for (flow, bytes) in flows.into_iter().take(5) {
            println!("  {bytes:>12} bytes  {flow}");
        }
    }
}
