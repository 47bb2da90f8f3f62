//! Command `chord`: a node of a ring, a look-up, or a whole ring in one process.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::nodes;
use chord::find::{Finder, name, serve, serve_all};
use chord::pb::Owner;
use chord::ring::{Ring, position_of};
use clap::{Args, Parser, Subcommand};
use pathcall::delegate::{Directory, Node, NodeConfig};

/// Ring of nodes, each of which finds the owner of a key.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a node of the ring
    Serve(ServeArgs),
    /// Looks up a key
    Find(FindArgs),
    /// Runs a ring in one process: compares look-ups, prints hops and medians
    Demo(DemoArgs),
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Index of the node in the list: 0 for the first
    #[arg(long)]
    index: usize,
    /// Addresses of all nodes for look-ups between nodes; the address determines the position on the ring
    #[arg(long, value_delimiter = ',', required = true)]
    nodes: Vec<SocketAddr>,
    /// Address for callers
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

#[derive(Debug, Args)]
struct FindArgs {
    /// URL of any node
    #[arg(long)]
    server: String,
    /// Address of this host, as seen by the nodes
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    at: IpAddr,
    key: String,
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// Number of nodes
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=256))]
    nodes: u64,
    /// Look-ups of each variant
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

async fn run_node(args: ServeArgs) -> Result<()> {
    let count = args.nodes.len();
    let listen = *args
        .nodes
        .get(args.index)
        .with_context(|| format!("invalid --index {}: the list has {count} nodes", args.index))?;
    let position = |address: &SocketAddr| position_of(address.to_string().as_bytes());
    let ring = Ring::new(args.nodes.iter().map(position)).context("the ring has no nodes")?;
    let table = ring.table(position(&listen)).context("node is not a member of the ring")?;
    let directory = Directory::of(args.nodes.iter().map(|address| (name(position(address)), *address)));
    let node = NodeConfig::default().listen(listen);
    let host = serve(table, node, directory, nodes::bind(args.listen).await?).await?;
    println!("{}: {}", name(position(&listen)), host.url);
    tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
}

async fn find(args: FindArgs) -> Result<()> {
    let config = NodeConfig::default().listen(SocketAddr::new(args.at, 0));
    let node = Node::start(&config).await.with_context(|| format!("cannot start a node at {}", args.at))?.0;
    let finder = Finder::new(&BTreeMap::from([(0, args.server)]), &node)?;
    let found = finder.find(0, position_of(args.key.as_bytes())).await;
    let found = found.map_err(|status| anyhow::anyhow!("{}", status.message().to_owned()))?;
    println!("{} after {} hops", name(found.node), found.hops);
    Ok(())
}

async fn demo(args: &DemoArgs) -> Result<()> {
    let ring = Ring::hashed(args.nodes).context("the ring has no nodes")?;
    let node = Node::start(&NodeConfig::default()).await.context("cannot start a node for the answers")?.0;
    let finder = Finder::new(&serve_all(&ring).await?, &node)?;
    let mut hops = Vec::new();
    let mut times = [Vec::new(), Vec::new()];
    for i in 0..args.calls {
        let (from, key) = (ring.positions()[i as usize % ring.positions().len()], position_of(&i.to_be_bytes()));
        let mut owners = [Owner::default(), Owner::default()];
        // The variants take turns.
        for variant in [i % 2, (i + 1) % 2].map(|variant| variant as usize) {
            let began = Instant::now();
            owners[variant] = match variant {
                0 => finder.find(from, key).await?,
                _ => finder.find_iteratively(from, key).await?,
            };
            times[variant].push(began.elapsed());
        }
        let [passed, iterative] = owners;
        ensure!(passed == iterative, "{key:016x} from {from:016x}: delegated {passed:?}, iterative {iterative:?}");
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
