//! Application photos: servers of a photo service with map, clone, delegate and place, and callers that check each
//! answer.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use apps_report::call_path::tonic_channel;
use apps_report::nodes;
use clap::{Args, Parser, Subcommand};
use pathcall::delegate::PendingTrace;
use photos::load::{self, CallPlan, Caller, KINDS, Kind};
use photos::pb::photos_client::PhotosClient;
use photos::pb::{PATHCALL, Words};
use photos::report::Report;
use photos::server::{self, Name, RunningServer, ServerLookup};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tonic::Request;

/// Serve and call a photo service: likes, reads, thumbnails and searches
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    what: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run one of the three servers until killed
    Serve(Serve),
    /// Call all methods from several callers, and check each answer
    Demo(Demo),
}

#[derive(Debug, Args)]
struct Serve {
    name: Name,
    /// Address of this host; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    at: SocketAddr,
    /// Controller with the names of all servers and the element
    #[arg(long, value_name = "URL")]
    controller: String,
}

#[derive(Debug, Args)]
struct Demo {
    /// Controller; without one, everything is done in software
    #[arg(long, value_name = "URL", conflicts_with_all = ["plain", "front"])]
    controller: Option<String>,
    /// Plain gRPC: handlers do the work, and servers call each other
    #[arg(long, conflicts_with = "front")]
    plain: bool,
    /// Front of servers elsewhere; without it, all run in this process
    #[arg(long, value_name = "URL")]
    front: Option<String>,
    /// Number of callers, each with its own channel
    #[arg(long, default_value_t = 3)]
    callers: usize,
    /// Calls of each method by each caller
    #[arg(long, default_value_t = 200)]
    calls: u64,
    /// Kind of the calls, in place of all kinds at once
    #[arg(long, value_name = "KIND")]
    only: Option<Kind>,
    /// Continue until the standard input ends, then make one more call of each
    #[arg(long)]
    until_told: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Command::parse().what {
        Action::Serve(args) => serve(args).await,
        Action::Demo(args) => demo(args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn serve(Serve { name, at, controller }: Serve) -> Result<()> {
    let running = server::start(name, at, ServerLookup::At(&controller)).await?;
    running.await_registration(name).await;
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

async fn pathcall(args: &Demo, servers: &[RunningServer]) -> Result<Report> {
    let front = args.front.as_ref().or(servers.first().map(|front| &front.url)).context("no front server")?;
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

async fn plain(args: &Demo, servers: &[RunningServer]) -> Result<Report> {
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

/// Trace of a search.
async fn trace(front: &mut PhotosClient<pathcall::Channel>) -> Result<Option<String>> {
    let mut request = Request::new(Words { words: vec!["whale".to_owned()] });
    let trace = PendingTrace::of(&mut request);
    let mut photos = front.find(request).await?.into_inner();
    while photos.message().await?.is_some() {}
    Ok(trace.finished().await.map(|traced| traced.to_string()))
}

impl Demo {
    fn plan(&self) -> CallPlan {
        let (tell, until) = watch::channel(!self.until_told);
        let done = watch::Sender::new(0);
        let kinds = self.only.map_or(KINDS.to_vec(), |kind| vec![kind]);
        if self.until_told {
            tokio::spawn(until_told(tell, done.subscribe(), (self.callers * kinds.len()) as u64));
        }
        CallPlan { kinds, calls: self.calls, until, done }
    }
}

/// Prints a line once some calls have completed, and ends the calls when the standard input ends.
async fn until_told(tell: watch::Sender<bool>, mut done: watch::Receiver<u64>, some: u64) {
    let begins = async {
        // The calls may have failed before.
        if done.wait_for(|done| *done >= some).await.is_ok() {
            eprintln!("under way");
        }
    };
    let ends = async {
        let mut input = tokio::io::stdin();
        // An unreadable input has ended.
        while input.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {}
    };
    tokio::join!(begins, ends);
    tell.send_replace(true);
}
