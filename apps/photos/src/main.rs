//! A photo service whose methods use map, clone, delegate and place: its servers, and callers that check each answer.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use apps_report::nodes;
use apps_report::way::tonic_channel;
use clap::{Args, Parser, Subcommand};
use pathcall::delegate::Trace;
use photos::load::{self, Caller, KINDS, Plan};
use photos::pb::photos_client::PhotosClient;
use photos::pb::{PATHCALL, Words};
use photos::server::{self, Known, Name, Running};
use photos::told::Report;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tonic::Request;

/// Photos that are liked, read, made smaller and found.
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Be one of the three servers, until killed
    Serve(Serve),
    /// Call all methods from several callers, and check each answer
    Demo(Demo),
}

#[derive(Debug, Args)]
struct Serve {
    name: Name,
    /// Address of this host; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    at: SocketAddr,
    /// Controller that has the names of all, and gives the element
    #[arg(long, value_name = "URL")]
    controller: String,
}

#[derive(Debug, Args)]
struct Demo {
    /// Controller; without one everything is done in software
    #[arg(long, value_name = "URL", conflicts_with_all = ["plain", "front"])]
    controller: Option<String>,
    /// Plain gRPC: handlers do the work, and servers ask each other
    #[arg(long, conflicts_with = "front")]
    plain: bool,
    /// The front of servers that run elsewhere; without it, all run in this process
    #[arg(long, value_name = "URL")]
    front: Option<String>,
    /// Callers, each with a channel of its own
    #[arg(long, default_value_t = 3)]
    callers: usize,
    /// Calls of each method by each caller
    #[arg(long, default_value_t = 200)]
    calls: u64,
    /// Goes on until the standard input ends, and then makes one more call of each
    #[arg(long)]
    until_told: bool,
    /// One line of JSON
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Command::parse().what {
        What::Serve(args) => serve(args).await,
        What::Demo(args) => demo(args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn serve(Serve { name, at, controller }: Serve) -> Result<()> {
    let running = server::start(name, at, Known::At(&controller)).await?;
    running.is_known(name).await;
    println!("ready {}", running.url);
    std::future::pending().await
}

async fn demo(args: Demo) -> Result<()> {
    ensure!(args.callers > 0, "--callers: expected at least 1, got 0");
    let servers = match (&args.front, args.plain) {
        (Some(_), _) => Vec::new(),
        (None, true) => server::plain().await?,
        (None, false) => server::all(args.controller.as_deref()).await?,
    };
    let report = if args.plain { plain(&args, &servers).await? } else { pathcall(&args, &servers).await? };
    report.print(args.json);
    Ok(())
}

async fn pathcall(args: &Demo, servers: &[Running]) -> Result<Report> {
    let front = args.front.as_ref().or(servers.first().map(|front| &front.url)).context("no front")?;
    let (mut channels, mut callers) = (Vec::new(), Vec::new());
    for _ in 0..args.callers {
        let channel = pathcall::Channel::builder(front.clone(), &PATHCALL)?.call_options(nodes::options());
        let channel = channel.connect().await?;
        let front = PhotosClient::new(channel.clone());
        callers.push(Caller { readers: vec![front.clone()], front });
        channels.push(channel);
    }
    let outcome = load::run(&callers, &args.plan()).await?;
    let by_element = args.controller.is_some() || args.front.is_some();
    let mut report = Report::new(if by_element { "element" } else { "software" }, &outcome, &channels, servers);
    report.trace = trace(&mut callers[0].front).await?;
    for channel in &channels {
        channel.close().await?;
    }
    Ok(report)
}

async fn plain(args: &Demo, servers: &[Running]) -> Result<Report> {
    let mut callers = Vec::new();
    for _ in 0..args.callers {
        let mut readers = Vec::new();
        for server in servers {
            readers.push(PhotosClient::new(tonic_channel(server.url.clone()).await?));
        }
        callers.push(Caller { front: readers[0].clone(), readers });
    }
    let outcome = load::run(&callers, &args.plan()).await?;
    Ok(Report::new("plain gRPC", &outcome, &[], servers))
}

/// Who did what for a search.
async fn trace(front: &mut PhotosClient<pathcall::Channel>) -> Result<Option<String>> {
    let mut request = Request::new(Words { words: vec!["whale".to_owned()] });
    let trace = Trace::of(&mut request);
    let mut photos = front.find(request).await?.into_inner();
    while photos.message().await?.is_some() {}
    Ok(trace.finished().await.map(|traced| traced.to_string()))
}

impl Demo {
    fn plan(&self) -> Plan {
        let (tell, until) = watch::channel(!self.until_told);
        let done = watch::Sender::new(0);
        if self.until_told {
            tokio::spawn(until_told(tell, done.subscribe(), self.callers as u64 * KINDS.len() as u64));
        }
        Plan { calls: self.calls, until, done }
    }
}

/// Says that calls are under way when some are done, and ends them when the standard input does.
async fn until_told(tell: watch::Sender<bool>, mut done: watch::Receiver<u64>, some: u64) {
    let begins = async {
        // They may have failed before.
        if done.wait_for(|done| *done >= some).await.is_ok() {
            eprintln!("under way");
        }
    };
    let ends = async {
        let mut input = tokio::io::stdin();
        // An input that can't be read has ended.
        while input.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {}
    };
    tokio::join!(begins, ends);
    tell.send_replace(true);
}
