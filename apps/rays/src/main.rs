//! Application rays: distributed ray tracing (DPC §6.3). The scene is cut into slabs, one for each server. A ray is
//! passed on from slab to slab, bounce after bounce; its colour goes from its last slab to the caller.
//!
//! Rays travel in batches, which are split where rays diverge. With `--rpc` the caller sends each batch to the next
//! server itself. The image is compared, bit for bit, with a local rendering.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use apps_report::digest;
use apps_report::hops::{self, Caller, DelegateServer, HopReport, ServerAddress, all};
use clap::{Args, Parser, Subcommand};
use pathcall::delegate::Directory;
use tokio::task::JoinSet;
use tonic::Status;

mod pb {
    pathcall::include_proto!("rays");
}
use pb::rays_client::RaysClient;
use pb::{Batch, Pixels};

mod image;
mod ray;
mod scene;
mod servers;
mod vector;

use image::{Image, View};
use scene::Slabs;
use servers::{BOUNCES_MAX, SLAB};

/// Limit of servers that a request may pass, as in nodes.
const DEPTH_MAX: usize = 64;

/// Render a scene that is spread over servers
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    what: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run one of the servers until killed
    Serve(Serve),
    /// Render the image and check it
    Render(Render),
}

#[derive(Debug, Args)]
struct Serve {
    /// Name of the server: slab-0, slab-1 and so on
    #[arg(long)]
    name: String,
    /// All servers, with the same list for each server and caller: slab-0=10.0.0.1:7801,slab-1=10.0.0.2:7801,…
    #[arg(long, value_name = "NAME=IP:PORT", value_delimiter = ',', required = true)]
    servers: Vec<ServerAddress>,
}

#[derive(Debug, Args)]
struct Render {
    /// Servers elsewhere; without any, all run in this process
    #[arg(long, value_name = "NAME=IP:PORT", value_delimiter = ',')]
    servers: Vec<ServerAddress>,
    /// Number of servers in this process
    #[arg(long, default_value_t = 4)]
    slabs: usize,
    /// Baseline, hub and spoke: send rays to each server from here; no server passes them on
    #[arg(long)]
    rpc: bool,
    /// Width in pixels
    #[arg(long, default_value_t = 480)]
    width: u32,
    /// Height in pixels
    #[arg(long, default_value_t = 300)]
    height: u32,
    /// Limit of bounces of a ray
    #[arg(long, default_value_t = 3)]
    bounces: u32,
    /// Rays of one call
    #[arg(long, default_value_t = 2400)]
    batch: u32,
    /// Concurrent calls
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// Output file for the image (PNG)
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Address of this host, as servers reach it
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    here: IpAddr,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Command::parse().what {
        Action::Serve(args) => serve(args).await,
        Action::Render(args) => render(args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn serve(Serve { name, servers }: Serve) -> Result<()> {
    check(&servers)?;
    let Some(number) = servers.iter().position(|place| place.name == name) else {
        bail!("server {name:?} is not in the list --servers");
    };
    let handlers = servers::handlers(Slabs(servers.len()), number, &hops::directory(&servers));
    let host = hops::serve(&name, servers[number].node, handlers, &pb::PATHCALL).await?;
    println!("ready {}", host.place.url);
    std::future::pending().await
}

/// Checks that slabs are numbered in the order of the list.
fn check(servers: &[ServerAddress]) -> Result<()> {
    for (number, place) in servers.iter().enumerate() {
        ensure!(place.name == format!("{SLAB}{number}"), "expected {SLAB}{number} in the list, got {}", place.name);
    }
    Ok(())
}

async fn render(args: Render) -> Result<()> {
    let view = View { width: args.width, height: args.height, bounces: args.bounces };
    let pixels = view.width.checked_mul(view.height);
    ensure!(pixels.is_some_and(|pixels| (1..=1 << 26).contains(&pixels)), "invalid image size (1 to 2^26 pixels)");
    let hosts = if args.servers.is_empty() { start(args.slabs.max(1)).await? } else { Vec::new() };
    let places = if hosts.is_empty() { args.servers } else { hops::places(&hosts) };
    check(&places)?;
    deep_enough(places.len(), view.bounces)?;
    let caller = Caller::new(args.here, &places, &pb::PATHCALL).await?;

    let first = view.first(Slabs(places.len()));
    let (mut image, mut latencies, mut calls) = (Image::new(view), Vec::new(), JoinSet::new());
    let began = Instant::now();
    let mut batches = view.batches(args.batch);
    loop {
        while calls.len() < args.at_once.max(1)
            && let Some(batch) = batches.next()
        {
            calls.spawn(call(caller.clone(), args.rpc, first, batch));
        }
        let Some(done) = calls.join_next().await else { break };
        let (pixels, took) = done?.context("a batch of rays")?;
        pixels.iter().try_for_each(|pixels| image.set(pixels))?;
        if latencies.is_empty() && !args.json {
            println!("{} servers, the first rays are back", places.len());
        }
        latencies.push(took);
    }
    let took = began.elapsed();
    let rgb = image.complete()?;
    let expected = view.render();
    let differing = rgb.iter().zip(&expected).filter(|(got, expected)| got != expected).count();
    ensure!(differing == 0, "{differing} of {} bytes differ from the local rendering", rgb.len());

    let mut report = HopReport::new("rays", args.rpc, latencies, took, (&caller, None, &hosts));
    report.digest = digest(std::iter::once(&*rgb));
    if let Some(path) = args.image {
        image::write(&path, view, &rgb)?;
        report.file = Some(path);
    }
    report.print(args.json);
    Ok(())
}

/// Checks the depth: a ray may cross all slabs to a surface and again to the light, return to the surface, and so on.
fn deep_enough(slabs: usize, bounces: u32) -> Result<()> {
    ensure!(bounces <= BOUNCES_MAX, "invalid number of bounces {bounces} (at most {BOUNCES_MAX})");
    let depth = (bounces as usize + 1) * (2 * (slabs - 1) + 1);
    ensure!(depth <= DEPTH_MAX, "{bounces} bounces in {slabs} slabs may pass {depth} servers (at most {DEPTH_MAX})");
    Ok(())
}

/// Starts all servers in this process.
async fn start(slabs: usize) -> Result<Vec<DelegateServer>> {
    let directory = Directory::default();
    let mut hosts = Vec::new();
    for number in 0..slabs {
        let handlers = servers::handlers(Slabs(slabs), number, &directory);
        let at = (Ipv4Addr::LOCALHOST, 0).into();
        hosts.push(hops::serve(&format!("{SLAB}{number}"), at, handlers, &pb::PATHCALL).await?);
    }
    directory.set(hosts.iter().map(|host| (host.place.name.clone(), host.place.node)));
    Ok(hosts)
}

/// Makes a call. Returns the pixels of a batch of rays, and the duration.
async fn call(caller: Caller, rpc: bool, first: usize, batch: Batch) -> Result<(Vec<Pixels>, Duration), Status> {
    let began = Instant::now();
    let pixels = if rpc { send_to_each(&caller, first, batch).await } else { send_once(&caller, first, batch).await }?;
    Ok((pixels, began.elapsed()))
}

async fn send_once(caller: &Caller, first: usize, batch: Batch) -> Result<Vec<Pixels>, Status> {
    let channel = caller.channel(&*format!("{SLAB}{first}"))?;
    all(RaysClient::new(channel).trace(batch).await).await
}

async fn send_to_each(caller: &Caller, first: usize, batch: Batch) -> Result<Vec<Pixels>, Status> {
    let (mut calls, mut pixels) = (JoinSet::new(), Vec::new());
    let send = |slab: usize, batch| {
        let channel = caller.channel(&*format!("{SLAB}{slab}"))?;
        Ok::<_, Status>(async move { all(RaysClient::new(channel).advance(batch).await).await })
    };
    calls.spawn(send(first, batch)?);
    while let Some(advanced) = calls.join_next().await {
        for part in advanced.map_err(|error| Status::internal(error.to_string()))?? {
            pixels.extend(part.pixels);
            if let Some(rays) = part.rays {
                calls.spawn(send(part.slab as usize, rays)?);
            }
        }
    }
    Ok(pixels)
}
