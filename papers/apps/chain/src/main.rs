//! Command `chain`: a master, a node, a client, or all in one process with a killed node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::nodes;
use chain::client::Client;
use chain::cluster::Cluster;
use chain::pb::Member;
use chain::pb::update::Effect;
use chain::{serve, sim};
use clap::{Args, Parser, Subcommand};
use pathcall::delegate::{Node, NodeConfig};

/// Key-value store that is replicated along a chain of nodes.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the master: removes crashed nodes from the chain
    Master(MasterArgs),
    /// Runs a node of the chain
    Serve(ServeArgs),
    /// Sets the value of a key
    Put {
        #[command(flatten)]
        ask: ClientArgs,
        key: String,
        value: String,
    },
    /// Appends to the value of a key
    Append {
        #[command(flatten)]
        ask: ClientArgs,
        key: String,
        value: String,
    },
    /// Prints the value of a key
    Get {
        #[command(flatten)]
        ask: ClientArgs,
        key: String,
    },
    /// Runs a chain in one process: prints medians, kills a node, checks the values
    Demo(DemoArgs),
    /// Checks simulated chains for linearizability, one per seed
    Sim {
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
    },
}

#[derive(Debug, Args)]
struct MasterArgs {
    /// Address for other nodes and address for callers of each node, from head to tail
    #[arg(long = "node", value_name = "NODE/LISTEN", required = true, value_parser = node_and_listen)]
    nodes: Vec<(SocketAddr, SocketAddr)>,
    #[arg(long, default_value = "127.0.0.1:7800")]
    listen: SocketAddr,
    #[command(flatten)]
    lease: Lease,
}

#[derive(Debug, Clone, Copy, Args)]
struct Lease {
    /// Lease: a node that is silent for this time has crashed, in milliseconds
    #[arg(long = "lease", value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=10_000))]
    ms: u64,
}

impl Lease {
    fn time(self) -> Duration {
        Duration::from_millis(self.ms)
    }
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Index in the master's list: 0 for the head
    #[arg(long)]
    id: u32,
    /// Address for other nodes
    #[arg(long)]
    node: SocketAddr,
    /// Address for callers
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7800")]
    master: String,
    #[command(flatten)]
    lease: Lease,
}

#[derive(Debug, Args)]
struct ClientArgs {
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7800")]
    master: String,
    /// Address of this host, as seen by the nodes
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    at: IpAddr,
    /// Time for which failed calls are repeated, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=3600))]
    give_up: u64,
    #[command(flatten)]
    lease: Lease,
}

#[derive(Debug, Args)]
struct DemoArgs {
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=32))]
    nodes: u32,
    /// Writes of each variant
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    #[command(flatten)]
    lease: Lease,
}

fn main() -> ExitCode {
    apps_report::exit(env!("CARGO_PKG_NAME"), run(Cli::parse().command))
}

#[tokio::main]
async fn run(command: Command) -> Result<()> {
    match command {
        Command::Master(args) => master(args).await,
        Command::Serve(args) => {
            let node = NodeConfig::default().listen(args.node);
            let host = serve::node(args.id, &args.master, args.lease.time(), node, args.listen).await?;
            println!("node {}: {}", args.id, host.url);
            tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
        }
        Command::Put { ask, key, value } => write(ask, &key, Effect::Put(value)).await,
        Command::Append { ask, key, value } => write(ask, &key, Effect::Append(value)).await,
        Command::Get { ask, key } => {
            let value = client(&ask).await?.read(&key).await.map_err(status_error)?;
            println!("{}", value.with_context(|| format!("{key:?} has no value"))?);
            Ok(())
        }
        Command::Demo(args) => demo(args).await,
        Command::Sim { seeds } => {
            for seed in 0..seeds {
                sim::run(seed, None).map_err(anyhow::Error::msg)?;
            }
            println!("{seeds} chains, all histories are linearizable");
            Ok(())
        }
    }
}

async fn master(args: MasterArgs) -> Result<()> {
    let member = |(id, (node, listen)): (u32, (SocketAddr, SocketAddr))| Member {
        id,
        node: node.to_string(),
        url: format!("http://{listen}"),
    };
    let members = (0..).zip(args.nodes).map(member).collect();
    let host = serve::master(members, args.lease.time(), nodes::bind(args.listen).await?).await?;
    println!("master: {}", host.url);
    tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
}

async fn client(ask: &ClientArgs) -> Result<Client> {
    let config = NodeConfig::default().listen(SocketAddr::new(ask.at, 0));
    let node = Node::start(&config).await.with_context(|| format!("cannot start a node at {}", ask.at))?.0;
    Client::new(&ask.master, node, serve::options(ask.lease.time()), Duration::from_secs(ask.give_up))
}

async fn write(ask: ClientArgs, key: &str, effect: Effect) -> Result<()> {
    println!("{}", client(&ask).await?.write(key, effect).await.map_err(status_error)?);
    Ok(())
}

async fn demo(args: DemoArgs) -> Result<()> {
    let mut cluster = Cluster::start(args.nodes, args.lease.time()).await?;
    let mut client = cluster.client(Duration::from_secs(30))?;
    client.write("demo", Effect::Put(String::new())).await.map_err(status_error)?;
    let mut times = [Vec::new(), Vec::new()];
    for call in 0..args.calls {
        // The variants take turns.
        for nested in [call % 2 == 0, call % 2 == 1] {
            client.nest(nested);
            let began = Instant::now();
            client.write("demo", Effect::Append("x".to_owned())).await.map_err(status_error)?;
            times[usize::from(nested)].push(began.elapsed());
        }
    }
    let [passed, nested] = times.map(median);
    println!("{} nodes, medians of {} writes", args.nodes, args.calls);
    println!("passed on {} us, nested {} us", passed.as_micros(), nested.as_micros());
    client.nest(false);
    cluster.kill(0);
    let began = Instant::now();
    let value = client.write("demo", Effect::Append("x".to_owned())).await.map_err(status_error)?;
    println!("the head is killed: the next write took {} ms", began.elapsed().as_millis());
    let expected = 2 * args.calls as usize + 1;
    ensure!(value.len() == expected, "{} updates took effect, expected {expected}", value.len());
    println!("{expected} updates, each took effect once");
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn status_error(status: tonic::Status) -> anyhow::Error {
    anyhow::anyhow!("{}", status.message().to_owned())
}

fn node_and_listen(text: &str) -> Result<(SocketAddr, SocketAddr), String> {
    let (node, listen) = text.split_once('/').ok_or("as 127.0.0.1:7801/127.0.0.1:7901")?;
    let address = |text: &str| text.parse().map_err(|error| format!("{text:?}: {error}"));
    Ok((address(node)?, address(listen)?))
}
