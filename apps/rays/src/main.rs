//! Distributed ray tracing (DPC §6.3): the scene is cut into slabs, each server has one, and a ray is passed on from
//! slab to slab, bounce after bounce; its colour goes from where it ends to the caller.
//!
//! Rays travel in batches, split where they part. With `--rpc` the caller sends each batch to the next server itself.
//! The image is held, bit for bit, against the one that is rendered here.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use apps_report::digest;
use apps_report::hops::{self, Caller, Host, Place, Report, all};
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

/// Servers that a request may go through, as nodes have it.
const DEPTH_MAX: usize = 64;

/// Renders a scene that is spread over servers.
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Be one of the servers, until killed
    Serve(Serve),
    /// Render the image and check it
    Render(Render),
}

#[derive(Debug, Args)]
struct Serve {
    /// Which one: slab-0, slab-1 and so on
    #[arg(long)]
    name: String,
    /// All servers, the same list for each and for who renders: slab-0=10.0.0.1:7801,slab-1=10.0.0.2:7801,…
    #[arg(long, value_name = "NAME=IP:PORT", value_delimiter = ',', required = true)]
    servers: Vec<Place>,
}

#[derive(Debug, Args)]
struct Render {
    /// Servers that run elsewhere; without any, all run in this process
    #[arg(long, value_name = "NAME=IP:PORT", value_delimiter = ',')]
    servers: Vec<Place>,
    /// Servers in this process
    #[arg(long, default_value_t = 4)]
    slabs: usize,
    /// Hub and spoke: send rays to each server from here; nobody passes them on
    #[arg(long)]
    rpc: bool,
    /// Pixels in a row
    #[arg(long, default_value_t = 480)]
    width: u32,
    /// Rows
    #[arg(long, default_value_t = 300)]
    height: u32,
    /// How often a ray bounces at most
    #[arg(long, default_value_t = 3)]
    bounces: u32,
    /// Rays of one call
    #[arg(long, default_value_t = 2400)]
    batch: u32,
    /// Calls at one time
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// Write the image here (PNG)
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// This host's address, as servers reach it
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    here: IpAddr,
    /// One line of JSON
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Command::parse().what {
        What::Serve(args) => serve(args).await,
        What::Render(args) => render(args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn serve(Serve { name, servers }: Serve) -> Result<()> {
    check(&servers)?;
    let Some(number) = servers.iter().position(|place| place.name == name) else {
        bail!("the list of servers does not have {name:?}");
    };
    let handlers = servers::handlers(Slabs(servers.len()), number, &hops::directory(&servers));
    let host = hops::serve(&name, servers[number].node, handlers, &pb::PATHCALL).await?;
    println!("ready {}", host.place.url);
    std::future::pending().await
}

/// Slabs are numbered as they stand in the list.
fn check(servers: &[Place]) -> Result<()> {
    for (number, place) in servers.iter().enumerate() {
        ensure!(place.name == format!("{SLAB}{number}"), "expected {SLAB}{number} in the list, got {}", place.name);
    }
    Ok(())
}

async fn render(args: Render) -> Result<()> {
    let view = View { width: args.width, height: args.height, bounces: args.bounces };
    let pixels = view.width.checked_mul(view.height);
    ensure!(pixels.is_some_and(|pixels| (1..=1 << 26).contains(&pixels)), "an image has 1 to 2^26 pixels");
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
    ensure!(differing == 0, "{differing} of {} bytes are not those of the image rendered here", rgb.len());

    let mut report = Report::new("rays", args.rpc, latencies, took, (&caller, None, &hosts));
    report.digest = digest(std::iter::once(&*rgb));
    if let Some(path) = args.image {
        image::write(&path, view, &rgb)?;
        report.file = Some(path);
    }
    report.print(args.json);
    Ok(())
}

/// A ray crosses all slabs towards a surface and again towards the light, goes back to the surface, and so on.
fn deep_enough(slabs: usize, bounces: u32) -> Result<()> {
    ensure!(bounces <= BOUNCES_MAX, "at most {BOUNCES_MAX} bounces are followed, got {bounces}");
    let depth = (bounces as usize + 1) * (2 * (slabs - 1) + 1);
    ensure!(depth <= DEPTH_MAX, "{bounces} bounces in {slabs} slabs may take {depth} servers, at most {DEPTH_MAX}");
    Ok(())
}

/// All servers, in this process.
async fn start(slabs: usize) -> Result<Vec<Host>> {
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

/// The pixels of a batch of rays, and how long they took.
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
