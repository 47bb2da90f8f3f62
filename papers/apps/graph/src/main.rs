//! Command `graph`: serves a part of a social network, queries all parts, or does both in one process and compares the
//! latencies of delegated queries and of a hub.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::nodes;
use clap::{Args, Parser, Subcommand};
use graph::network::{Size, SocialNetwork};
use graph::part::NetworkPart;
use graph::query::Query;
use graph::walk::{self, QueryClient, QueryVariant};
use graph::{direct, pb};
use pathcall::delegate::{Directory, NodeConfig};

/// Social network on several servers, with the interactive short queries of LDBC SNB.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves a part of the network
    Serve(ServeArgs),
    /// Sends a query to the servers
    Ask(AskArgs),
    /// Serves and queries in one process: compares answers, prints medians
    Demo(DemoArgs),
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Index of the part: 0 for the first server
    #[arg(long)]
    index: usize,
    /// Addresses of all servers for calls between servers, in order
    #[arg(long, value_delimiter = ',', required = true)]
    nodes: Vec<SocketAddr>,
    /// Address for callers
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    size: Size,
}

#[derive(Debug, Args)]
struct AskArgs {
    /// URLs of the servers, in order
    #[arg(long, value_delimiter = ',', required = true)]
    servers: Vec<String>,
    /// Call each server in turn, without delegation
    #[arg(long)]
    hub: bool,
    /// Address of this host, as seen by the servers
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    at: IpAddr,
    query: Query,
    /// Number of the person or message
    id: u64,
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// Servers that share the network
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    servers: u64,
    /// Calls per query and variant
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
    #[command(flatten)]
    size: Size,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve(args).await,
        Command::Ask(args) => ask(args).await,
        Command::Demo(args) => demo(&args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn serve(args: ServeArgs) -> Result<()> {
    let count = args.nodes.len();
    let listen = *args
        .nodes
        .get(args.index)
        .with_context(|| format!("invalid --index {}: the list has {count} nodes", args.index))?;
    let part = NetworkPart::new(&SocialNetwork::new(&args.size), args.index as u64, count as u64);
    let directory = Directory::of((0..).map(walk::name).zip(args.nodes));
    let node = NodeConfig::default().listen(listen);
    let host = walk::serve(part, node, directory, nodes::bind(args.listen).await?).await?;
    println!("part {} of {count}: {}", args.index, host.url);
    tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
}

async fn ask(args: AskArgs) -> Result<()> {
    let node = walk::node(&NodeConfig::default().listen(SocketAddr::new(args.at, 0))).await?;
    let variant = if args.hub { QueryVariant::Hub } else { QueryVariant::Delegated };
    let rows = QueryClient::new(&args.servers, &node)?.ask(args.query, args.id, variant).await;
    rows.map_err(|status| anyhow::anyhow!("{}", status.message()))?.iter().for_each(print);
    Ok(())
}

async fn demo(args: &DemoArgs) -> Result<()> {
    let network = SocialNetwork::new(&args.size);
    let urls = walk::serve_all(&network, args.servers).await?;
    let node = walk::node(&NodeConfig::default()).await?;
    let asker = QueryClient::new(&urls, &node)?;
    let (persons, messages) = (network.persons.len() as u64, network.messages.len() as u64);
    println!("{persons} persons, {messages} messages on {} servers; medians of {} calls", args.servers, args.calls);
    println!("query   rows   passed on us   hub us");
    for query in Query::ALL {
        let (mut rows, mut times) = (0, [Vec::new(), Vec::new()]);
        for call in 0..args.calls {
            // Ids spread over the whole network.
            let id = call.wrapping_mul(0x9e37_79b9_7f4a_7c15) % if query.is_of_person() { persons } else { messages };
            let expected = direct::answer(&network, query, id).context("an id is missing in the network")?;
            rows += expected.len();
            // The variants take turns.
            for turn in [call % 2, (call + 1) % 2] {
                let variant = [QueryVariant::Delegated, QueryVariant::Hub][turn as usize];
                let began = Instant::now();
                let answer = asker.ask(query, id, variant).await?;
                times[turn as usize].push(began.elapsed());
                ensure!(answer == expected, "{query:?} of {id}, {variant:?}: {answer:?}, expected {expected:?}");
            }
        }
        let [passed, hub] = times.map(median);
        let rows = rows as f64 / args.calls as f64;
        println!("{:<5} {rows:>6.1} {:>14} {:>8}", format!("{query:?}"), passed.as_micros(), hub.as_micros());
    }
    println!("all answers equal those of one process");
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn print(row: &pb::row::Row) {
    use pb::row::Row;
    let label = |person: &Option<pb::Named>| {
        let person = person.clone().unwrap_or_default();
        format!("{} {} ({})", person.first_name, person.last_name, person.person)
    };
    match row {
        Row::Profile(it) => println!(
            "{} {}, {}, born {}, in city {}, since {}, from {} by {}",
            it.first_name, it.last_name, it.gender, it.birthday, it.city, it.created, it.ip, it.browser
        ),
        Row::Recent(it) => {
            println!(
                "{} at {}: {:?}, on post {} of {}",
                it.message,
                it.created,
                it.content,
                it.post,
                label(&it.author)
            );
        }
        Row::Friend(it) => println!("{} since {}", label(&it.person), it.since),
        Row::Content(it) => println!("at {}: {:?}", it.created, it.content),
        Row::Creator(it) => println!("{}", label(&Some(it.clone()))),
        Row::Forum(it) => println!("{:?} ({}), moderated by {}", it.title, it.forum, label(&it.moderator)),
        Row::Reply(it) => {
            let knows = if it.knows { "who know each other" } else { "who do not know each other" };
            println!("{} at {}: {:?} of {}, {knows}", it.comment, it.created, it.content, label(&it.author));
        }
    }
}
