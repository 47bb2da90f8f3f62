//! `graph`: serves a part of a social network, asks all parts, or does both in one process and tells how long
//! the queries take passed from server to server, and how long from a hub.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::nodes;
use clap::{Args, Parser, Subcommand};
use graph::part::Part;
use graph::query::Query;
use graph::walk::{self, Asker, Way};
use graph::world::{Size, World};
use graph::{direct, pb};
use pathcall::delegate::{Directory, NodeConfig};

/// A social network on several servers, and the interactive short queries of LDBC SNB.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves a part of the network
    Serve(Serve),
    /// Asks servers
    Ask(Ask),
    /// Serves and asks in one process: compares answers, prints medians
    Demo(Demo),
}

#[derive(Debug, Args)]
struct Serve {
    /// Which part: 0 for the first server
    #[arg(long)]
    index: usize,
    /// Where the servers pass calls on to, all of them, in order
    #[arg(long, value_delimiter = ',', required = true)]
    nodes: Vec<SocketAddr>,
    /// Where callers find this server
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    size: Size,
}

#[derive(Debug, Args)]
struct Ask {
    /// The servers' URLs, in order
    #[arg(long, value_delimiter = ',', required = true)]
    servers: Vec<String>,
    /// Ask each server in turn: the call is not passed on
    #[arg(long)]
    hub: bool,
    /// This host's address, where the servers reach it
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    at: IpAddr,
    query: Query,
    /// The person or message
    id: u64,
}

#[derive(Debug, Args)]
struct Demo {
    /// Servers that share the network
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    servers: u64,
    /// Calls of each query, each way
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

async fn serve(args: Serve) -> Result<()> {
    let count = args.nodes.len();
    let listen = *args.nodes.get(args.index).with_context(|| format!("no node {} among {count}", args.index))?;
    let part = Part::new(&World::new(&args.size), args.index as u64, count as u64);
    let directory = Directory::of((0..).map(walk::name).zip(args.nodes));
    let node = NodeConfig::default().listen(listen);
    let host = walk::serve(part, node, directory, nodes::bind(args.listen).await?).await?;
    println!("part {} of {count}: {}", args.index, host.url);
    tokio::signal::ctrl_c().await.context("no signals")
}

async fn ask(args: Ask) -> Result<()> {
    let node = walk::node(&NodeConfig::default().listen(SocketAddr::new(args.at, 0))).await?;
    let way = if args.hub { Way::Hub } else { Way::PassedOn };
    let rows = Asker::new(&args.servers, &node)?.ask(args.query, args.id, way).await;
    rows.map_err(|status| anyhow::anyhow!("{}", status.message()))?.iter().for_each(print);
    Ok(())
}

async fn demo(args: &Demo) -> Result<()> {
    let world = World::new(&args.size);
    let urls = walk::serve_all(&world, args.servers).await?;
    let node = walk::node(&NodeConfig::default()).await?;
    let asker = Asker::new(&urls, &node)?;
    let (persons, messages) = (world.persons.len() as u64, world.messages.len() as u64);
    println!("{persons} persons, {messages} messages on {} servers; medians of {} calls", args.servers, args.calls);
    println!("query   rows   passed on us   hub us");
    for query in Query::ALL {
        let (mut rows, mut times) = (0, [Vec::new(), Vec::new()]);
        for call in 0..args.calls {
            // Numbers all over the network.
            let id = call.wrapping_mul(0x9e37_79b9_7f4a_7c15) % if query.is_of_person() { persons } else { messages };
            let expected = direct::answer(&world, query, id).context("the network lacks one of its own numbers")?;
            rows += expected.len();
            // Each goes first in turn.
            for turn in [call % 2, (call + 1) % 2] {
                let way = [Way::PassedOn, Way::Hub][turn as usize];
                let began = Instant::now();
                let answer = asker.ask(query, id, way).await?;
                times[turn as usize].push(began.elapsed());
                ensure!(answer == expected, "{query:?} of {id}, {way:?}: {answer:?}, expected {expected:?}");
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
    let who = |person: &Option<pb::Named>| {
        let person = person.clone().unwrap_or_default();
        format!("{} {} ({})", person.first_name, person.last_name, person.person)
    };
    match row {
        Row::Profile(it) => println!(
            "{} {}, {}, born {}, in city {}, since {}, from {} by {}",
            it.first_name, it.last_name, it.gender, it.birthday, it.city, it.created, it.ip, it.browser
        ),
        Row::Recent(it) => {
            println!("{} at {}: {:?}, on post {} of {}", it.message, it.created, it.content, it.post, who(&it.author));
        }
        Row::Friend(it) => println!("{} since {}", who(&it.person), it.since),
        Row::Content(it) => println!("at {}: {:?}", it.created, it.content),
        Row::Creator(it) => println!("{}", who(&Some(it.clone()))),
        Row::Forum(it) => println!("{:?} ({}), moderated by {}", it.title, it.forum, who(&it.moderator)),
        Row::Reply(it) => {
            let knows = if it.knows { "who know each other" } else { "who do not know each other" };
            println!("{} at {}: {:?} of {}, {knows}", it.comment, it.created, it.content, who(&it.author));
        }
    }
}
