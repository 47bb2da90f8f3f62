//! `chord`: a node of a ring, a look-up; or a whole ring in one process.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::nodes;
use chord::find::{Finder, name, serve, serve_all};
use chord::pb::Owner;
use chord::ring::{Ring, place_of};
use clap::{Args, Parser, Subcommand};
use pathcall::delegate::{Directory, Node, NodeConfig};

/// A ring of nodes, each of which finds the owner of a key.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Is a node of the ring
    Serve(Serve),
    /// Looks a key up
    Find(Find),
    /// A ring in one process: compares look-ups, prints hops and medians
    Demo(Demo),
}

#[derive(Debug, Args)]
struct Serve {
    /// Which of the nodes: 0 for the first
    #[arg(long)]
    index: usize,
    /// Where nodes pass look-ups on to, all of them; each is on the ring where its address falls
    #[arg(long, value_delimiter = ',', required = true)]
    nodes: Vec<SocketAddr>,
    /// Where callers find it
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

#[derive(Debug, Args)]
struct Find {
    /// The URL of any node
    #[arg(long)]
    server: String,
    /// This host's address, where the nodes reach it
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    at: IpAddr,
    key: String,
}

#[derive(Debug, Args)]
struct Demo {
    /// Nodes
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=256))]
    nodes: u64,
    /// Look-ups each way
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => run_node(args).await,
        Command::Find(args) => find(args).await,
        Command::Demo(args) => demo(&args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn run_node(args: Serve) -> Result<()> {
    let count = args.nodes.len();
    let listen = *args.nodes.get(args.index).with_context(|| format!("no node {} among {count}", args.index))?;
    let place = |address: &SocketAddr| place_of(address.to_string().as_bytes());
    let ring = Ring::new(args.nodes.iter().map(place)).context("a ring has a node")?;
    let table = ring.table(place(&listen)).context("a member has a table")?;
    let directory = Directory::of(args.nodes.iter().map(|address| (name(place(address)), *address)));
    let node = NodeConfig::default().listen(listen);
    let host = serve(table, node, directory, nodes::bind(args.listen).await?).await?;
    println!("{}: {}", name(place(&listen)), host.url);
    tokio::signal::ctrl_c().await.context("no signals")
}

async fn find(args: Find) -> Result<()> {
    let config = NodeConfig::default().listen(SocketAddr::new(args.at, 0));
    let node = Node::start(&config).await.with_context(|| format!("no node at {}", args.at))?.0;
    let finder = Finder::new(&BTreeMap::from([(0, args.server)]), &node)?;
    let found = finder.find(0, place_of(args.key.as_bytes())).await;
    let found = found.map_err(|status| anyhow::anyhow!("{}", status.message().to_owned()))?;
    println!("{} after {} hops", name(found.node), found.hops);
    Ok(())
}

async fn demo(args: &Demo) -> Result<()> {
    let ring = Ring::hashed(args.nodes).context("a ring has a node")?;
    let node = Node::start(&NodeConfig::default()).await.context("no node for the answers")?.0;
    let finder = Finder::new(&serve_all(&ring).await?, &node)?;
    let mut hops = Vec::new();
    let mut times = [Vec::new(), Vec::new()];
    for i in 0..args.calls {
        let (from, key) = (ring.places()[i as usize % ring.places().len()], place_of(&i.to_be_bytes()));
        let mut owners = [Owner::default(), Owner::default()];
        // Each goes first in turn.
        for way in [i % 2, (i + 1) % 2].map(|way| way as usize) {
            let began = Instant::now();
            owners[way] = match way {
                0 => finder.find(from, key).await?,
                _ => finder.find_iteratively(from, key).await?,
            };
            times[way].push(began.elapsed());
        }
        let [passed, iterative] = owners;
        ensure!(passed == iterative, "{key:016x} from {from:016x}: {passed:?}, and iteratively {iterative:?}");
        ensure!(passed.node == ring.owner(key), "{key:016x} is not owned by {:016x}", passed.node);
        hops.push(passed.hops);
    }
    let [passed, iterative] = times.map(median);
    let mean = f64::from(hops.iter().sum::<u32>()) / hops.len() as f64;
    println!("{} nodes, {} look-ups, each found its owner", args.nodes, args.calls);
    println!("hops {mean:.1} on average, {} at most", hops.iter().max().copied().unwrap_or_default());
    println!("medians: passed on {} us, iterative {} us", passed.as_micros(), iterative.as_micros());
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
