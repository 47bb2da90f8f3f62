//! Application lookup: indexed look-up over a set of real documents (DPC §2.3, Fig. 1.1).
//!
//! Words are spread over index servers, documents over stores. A query goes to the index server of one of its words,
//! which passes it on to the servers of the other words, with the remaining documents; the last one passes it on to the
//! stores of these documents, which reply to the caller. With `--rpc` the caller asks each server itself. Each result
//! is compared with a scan of all documents.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use apps_report::digest;
use apps_report::hops::{self, Caller, DelegateServer, HopReport, KeyPlacement, ServerAddress};
use clap::{Args, Parser, Subcommand};
use pathcall::delegate::Directory;
use prost::Message;

mod pb {
    pathcall::include_proto!("lookup");
}

mod caller;
mod documents;
mod servers;

use documents::Document;

/// Look words up in documents that are spread over servers
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    what: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run one of the servers until killed
    Serve(Serve),
    /// Ask for the documents with all of some words
    Ask(Ask),
    /// Ask many questions and check each answer
    Demo(Demo),
}

#[derive(Debug, Args)]
struct Serve {
    /// Name of the server: index-… or store-…
    #[arg(long)]
    name: String,
    #[command(flatten)]
    servers: Servers,
    #[command(flatten)]
    documents: Documents,
}

#[derive(Debug, Args)]
struct Ask {
    words: Vec<String>,
    /// Ask once more, and print a trace of the servers
    #[arg(long, conflicts_with = "rpc")]
    trace: bool,
    #[command(flatten)]
    servers: Servers,
    #[command(flatten)]
    way: QueryArgs,
}

#[derive(Debug, Args)]
struct Demo {
    /// Servers elsewhere, as for `ask`; without any, all run in this process
    #[arg(long, value_name = "NAME=IP:PORT", value_delimiter = ',')]
    servers: Vec<ServerAddress>,
    #[command(flatten)]
    documents: Documents,
    #[command(flatten)]
    way: QueryArgs,
    /// Number of index servers in this process, and of stores
    #[arg(long, default_value_t = 4)]
    each: usize,
    /// Number of questions
    #[arg(long, default_value_t = 300)]
    queries: u64,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Servers {
    /// All servers, with the same list for each server and caller: index-0=10.0.0.1:7801,store-0=10.0.0.2:7801,…
    #[arg(long, value_name = "NAME=IP:PORT", value_delimiter = ',', required = true)]
    servers: Vec<ServerAddress>,
}

#[derive(Debug, Args)]
struct Documents {
    /// Folder of the documents: all text files below it
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))]
    documents: PathBuf,
}

#[derive(Debug, Args)]
struct QueryArgs {
    /// Baseline, hub and spoke: ask each server from here; no server passes a query on
    #[arg(long)]
    rpc: bool,
    /// Limit of documents of a query
    #[arg(long, default_value_t = 10)]
    limit: u32,
    /// Address of this host, as servers reach it
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    here: IpAddr,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Command::parse().what {
        Action::Serve(args) => serve(args).await,
        Action::Ask(args) => ask(args).await,
        Action::Demo(args) => demo(args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn serve(Serve { name, servers: Servers { servers }, documents }: Serve) -> Result<()> {
    let Some(own) = servers.iter().find(|place| place.name == name) else {
        bail!("server {name:?} is not in the list --servers");
    };
    let documents = documents::read(&documents.documents)?;
    let placement = KeyPlacement::of(servers.iter().map(|place| place.name.clone()));
    let handlers = servers::handlers(&name, &placement, &documents, &hops::directory(&servers))?;
    let host = hops::serve(&name, own.node, handlers, &pb::PATHCALL).await?;
    println!("ready {}", host.place.url);
    std::future::pending().await
}

async fn ask(Ask { words, trace, servers: Servers { servers }, way }: Ask) -> Result<()> {
    let words: Vec<String> = words.iter().flat_map(|words| documents::words(words)).collect();
    let caller = Caller::new(way.here, &servers, &pb::PATHCALL).await?;
    for found in caller::look_up(&caller, way.rpc, caller::query(&words, way.limit)).await? {
        println!("{}: {}\n    {}", found.path, found.title, found.snippet);
    }
    if trace && let Some(traced) = caller::trace(&caller, caller::query(&words, way.limit)).await? {
        print!("{traced}");
    }
    Ok(())
}

async fn demo(args: Demo) -> Result<()> {
    let documents = documents::read(&args.documents.documents)?;
    let hosts = if args.servers.is_empty() { start(&documents, args.each.max(1)).await? } else { Vec::new() };
    let places = if hosts.is_empty() { args.servers } else { hops::places(&hosts) };
    let caller = Caller::new(args.way.here, &places, &pb::PATHCALL).await?;

    let (mut latencies, mut results) = (Vec::new(), Vec::new());
    for number in 0..args.queries {
        let words = question(&documents, number);
        let began = Instant::now();
        let found = caller::look_up(&caller, args.way.rpc, caller::query(&words, args.way.limit)).await;
        latencies.push(began.elapsed());
        let found = found.with_context(|| format!("query {words:?}"))?;
        let expected = documents::scan(&documents, &words, args.way.limit as usize);
        ensure!(found == expected, "query {words:?}: expected {expected:?}, got {found:?}");
        results.extend(found.iter().map(Message::encode_to_vec));
        if number == 0 && !args.json {
            println!("{} documents on {} servers, the first question is answered", documents.len(), places.len());
        }
    }
    let took = latencies.iter().sum();
    let mut report = HopReport::new("lookup", args.way.rpc, latencies, took, (&caller, None, &hosts));
    report.digest = digest(results.iter().map(Vec::as_slice));
    if !args.way.rpc {
        let query = caller::query(&question(&documents, 0), args.way.limit);
        report.trace = caller::trace(&caller, query).await?.map(|traced| traced.to_string());
    }
    report.print(args.json);
    Ok(())
}

/// Starts all servers in this process.
async fn start(documents: &[Document], each: usize) -> Result<Vec<DelegateServer>> {
    let names = |role: &'static str| (0..each).map(move |number| format!("{role}{number}"));
    let names: Vec<String> = names(servers::INDEX).chain(names(servers::STORE)).collect();
    let (placement, directory) = (KeyPlacement::of(names.iter().cloned()), Directory::default());
    let mut hosts = Vec::new();
    for name in &names {
        let handlers = servers::handlers(name, &placement, documents, &directory)?;
        hosts.push(hops::serve(name, (Ipv4Addr::LOCALHOST, 0).into(), handlers, &pb::PATHCALL).await?);
    }
    directory.set(hosts.iter().map(|host| (host.place.name.clone(), host.place.node)));
    Ok(hosts)
}

/// Three words of a document; in every fourth question, one word is of another document, so that the answer may be
/// empty.
fn question(texts: &[Document], number: u64) -> Vec<String> {
    let draw = |nth: u64, below: usize| (mix(number * 8 + nth) % below.max(1) as u64) as usize;
    let of = |text: usize, nth: u64| {
        let words = &texts[text].words;
        words.iter().nth(draw(nth, words.len())).cloned()
    };
    let text = draw(0, texts.len());
    let third = if number % 4 == 3 { draw(1, texts.len()) } else { text };
    let mut words: Vec<String> = [of(text, 2), of(text, 3), of(third, 4)].into_iter().flatten().collect();
    if words.is_empty() {
        words.push("pathcall".to_owned());
    }
    words
}

/// Output function of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
