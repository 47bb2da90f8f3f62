//! Adds up float32 values of ranks and hosts, and says how long it took and who did it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;

use allreduce::pb::PATHCALL;
use allreduce::pb::sums_server::SumsServer;
use allreduce::run::{Outcome, Plan, Way, run};
use allreduce::sums::Handler;
use anyhow::{Result, ensure};
use apps_report::way::Way as Served;
use clap::{Parser, ValueEnum};
use pathcall_place::Strategy;
use pathcall_place::device::discover::Choice;

/// All-reduce over ranks and hosts.
#[derive(Debug, Clone, Parser)]
struct Args {
    #[command(flatten)]
    served: Served,
    /// Hosts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    hosts: u8,
    /// Ranks of each
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    ranks: u8,
    /// Only this host: the others are processes of their own
    #[arg(long, requires = "at")]
    host: Option<u8>,
    /// Where each host's leader listens; free ports of this machine unless given
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    at: Vec<SocketAddr>,
    /// Bytes of a rank's values, in turn
    #[arg(long, value_delimiter = ',', default_value = "65536,1048576,16777216")]
    bytes: Vec<usize>,
    /// Times that each is added up
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How hosts add up
    #[arg(long, value_enum, default_value_t = Across::Ring)]
    across: Across,
    /// A device for the leaders: opencl:0, emulated:per-job=TIME
    #[arg(long, value_name = "DEVICE")]
    acc: Option<Choice>,
    /// How leaders choose between it and the processor for parts of other hosts
    #[arg(long, value_name = "NAME", default_value = "leo", value_parser = strategy)]
    strategy: Strategy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Across {
    /// Parts go from host to host
    Ring,
    /// An element adds them up, or the server
    Map,
}

#[tokio::main]
async fn main() -> ExitCode {
    apps_report::exit(env!("CARGO_PKG_NAME"), all(Args::parse()).await)
}

async fn all(args: Args) -> Result<()> {
    let hosts = usize::from(args.hosts);
    ensure!(args.host.is_none_or(|host| host < args.hosts), "there are {hosts} hosts, numbered from 0");
    ensure!(args.host.is_none() || args.across == Across::Ring, "hosts as processes of their own add up by a ring");
    ensure!(!args.served.plain, "plain gRPC adds nothing up: leave --plain out");
    let way = match args.across {
        Across::Ring if args.at.is_empty() => Way::Ring(free(hosts)?),
        Across::Ring => Way::Ring(args.at.clone()),
        Across::Map => Way::Map(args.served.serve(SumsServer::new(Handler), &PATHCALL).await?.url),
    };
    let own = args.host.map_or_else(|| (0..hosts).collect(), |host| vec![host.into()]);
    for (at, bytes) in args.bytes.iter().enumerate() {
        let plan = Plan {
            name: format!("allreduce-{}-{at}", std::process::id()),
            hosts,
            own: own.clone(),
            ranks: args.ranks.into(),
            values: bytes / 4,
            rounds: args.rounds.max(1),
            acc: args.acc.clone(),
            strategy: args.strategy,
            way: way.clone(),
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

fn print(outcome: &Outcome) {
    let Outcome { bytes, milliseconds, parts_on_device, parts: [cpu, acc], failed, element_share, .. } = outcome;
    let shared = element_share.map_or(String::new(), |share| format!("; {:.0} % in the element", share * 100.0));
    let failed = if *failed > 0 { format!(" ({failed} failed)") } else { String::new() };
    println!(
        "{:>9} KiB: {milliseconds:.3} ms; within hosts {parts_on_device} parts on devices; \
         between hosts {cpu} parts on processors, {acc} on devices{failed}{shared}",
        bytes / 1024
    );
}

fn strategy(name: &str) -> Result<Strategy, String> {
    let known = || Strategy::WORDS.map(|(name, _)| name).join(", ");
    Strategy::named(name).ok_or_else(|| format!("expected one of {}", known()))
}

/// Ports that were free just now.
fn free(hosts: usize) -> Result<Vec<SocketAddr>> {
    let sockets: std::io::Result<Vec<UdpSocket>> =
        (0..hosts).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    Ok(sockets?.iter().map(UdpSocket::local_addr).collect::<std::io::Result<_>>()?)
}
