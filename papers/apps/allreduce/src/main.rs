//! Command `allreduce`: adds up float32 values of ranks and hosts, and prints times and the devices used.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;

use allreduce::pb::PATHCALL;
use allreduce::pb::sums_server::SumsServer;
use allreduce::run::{AllReduceResults, ExchangeConfig, RunConfig, run};
use allreduce::sums::SumsHandler;
use anyhow::{Result, ensure};
use apps_report::call_path::CallPath as Served;
use clap::{Parser, ValueEnum};
use pathcall_place::SelectionStrategy;
use pathcall_place::device::discover::DeviceChoice;

/// All-reduce over ranks and hosts.
#[derive(Debug, Clone, Parser)]
struct Args {
    #[command(flatten)]
    served: Served,
    /// Number of hosts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    hosts: u8,
    /// Ranks per host
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    ranks: u8,
    /// Run only this host; the others are separate processes
    #[arg(long, requires = "at")]
    host: Option<u8>,
    /// Addresses of the leaders, one per host; by default free ports of this machine
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    at: Vec<SocketAddr>,
    /// Bytes of a rank's values, one run each
    #[arg(long, value_delimiter = ',', default_value = "65536,1048576,16777216")]
    bytes: Vec<usize>,
    /// All-reduce rounds per run
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Exchange between hosts
    #[arg(long, value_enum, default_value_t = ExchangeKind::Ring)]
    across: ExchangeKind,
    /// Device of the leaders: opencl:0, cuda:0, emulated:per-job=TIME
    #[arg(long, value_name = "DEVICE")]
    acc: Option<DeviceChoice>,
    /// Path selection strategy of the leaders, for parts of other hosts
    #[arg(long, value_name = "NAME", default_value = "leo", value_parser = strategy)]
    strategy: SelectionStrategy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExchangeKind {
    /// Parts travel from host to host
    Ring,
    /// An element adds up the parts, or the server
    Map,
}

#[tokio::main]
async fn main() -> ExitCode {
    apps_report::exit(env!("CARGO_PKG_NAME"), run_all(Args::parse()).await)
}

async fn run_all(args: Args) -> Result<()> {
    let hosts = usize::from(args.hosts);
    ensure!(args.host.is_none_or(|host| host < args.hosts), "--host out of range: {hosts} hosts, numbered from 0");
    ensure!(
        args.host.is_none() || args.across == ExchangeKind::Ring,
        "--host needs --across ring: map runs all hosts in one process"
    );
    ensure!(!args.served.plain, "plain gRPC cannot add up values: remove --plain");
    let exchange = match args.across {
        ExchangeKind::Ring if args.at.is_empty() => ExchangeConfig::Ring(free(hosts)?),
        ExchangeKind::Ring => ExchangeConfig::Ring(args.at.clone()),
        ExchangeKind::Map => ExchangeConfig::Map(args.served.serve(SumsServer::new(SumsHandler), &PATHCALL).await?.url),
    };
    let own = args.host.map_or_else(|| (0..hosts).collect(), |host| vec![host.into()]);
    for (at, bytes) in args.bytes.iter().enumerate() {
        let plan = RunConfig {
            name: format!("allreduce-{}-{at}", std::process::id()),
            hosts,
            own: own.clone(),
            ranks: args.ranks.into(),
            values: bytes / 4,
            rounds: args.rounds.max(1),
            acc: args.acc.clone(),
            strategy: args.strategy,
            exchange: exchange.clone(),
        };
        let outcome = tokio::task::spawn_blocking(move || run(&plan)).await??;
        if args.served.json {
            println!("{}", serde_json::to_string(&outcome)?);
        } else {
            print(&outcome);
        }
    }
    Ok(())
}

fn print(outcome: &AllReduceResults) {
    let AllReduceResults { bytes, milliseconds, parts_on_device, parts: [cpu, acc], failed, element_share, .. } =
        outcome;
    let shared = element_share.map_or(String::new(), |share| format!("; {:.0} % in the element", share * 100.0));
    let failed = if *failed > 0 { format!(" ({failed} failed)") } else { String::new() };
    println!(
        "{:>9} KiB: {milliseconds:.3} ms; within hosts {parts_on_device} parts on devices; \
         between hosts {cpu} parts on processors, {acc} on devices{failed}{shared}",
        bytes / 1024
    );
}

fn strategy(name: &str) -> Result<SelectionStrategy, String> {
    let known = || SelectionStrategy::NAMES.map(|(name, _)| name).join(", ");
    SelectionStrategy::named(name).ok_or_else(|| format!("expected one of {}", known()))
}

/// Ports that are currently free.
fn free(hosts: usize) -> Result<Vec<SocketAddr>> {
    let sockets: std::io::Result<Vec<UdpSocket>> =
        (0..hosts).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    Ok(sockets?.iter().map(UdpSocket::local_addr).collect::<std::io::Result<_>>()?)
}
