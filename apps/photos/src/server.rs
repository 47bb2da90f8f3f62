//! The three servers. Each has all photos and is one of the pool; one of them owns the likes, and each has its part in a
//! search.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use pathcall::delegate::{Directory, NodeConfig, Serving};
use pathcall::place::{Hardware, Placing};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};

use apps_report::way;

use crate::hops;
use crate::pb::PATHCALL;
use crate::pb::photos_client::PhotosClient;
use crate::pb::photos_server::PhotosServer;
use crate::service::Part;

/// What each server's host is made of: the processor makes one picture at a time, the card three.
const HOST: &str = "hardware: album
nodes:
  cpu: { role: cpu, slots: 1 }
  card: { role: acc, slots: 3 }
  nic: { role: nic }
  bus: { role: switch }
links:
  - { between: [cpu, bus], bandwidth: 25 GB/s, messages: 40 M/s, latency: 300 ns }
  - { between: [card, bus], bandwidth: 12 GB/s, messages: 10 M/s, latency: 900 ns }
  - { between: [nic, bus], bandwidth: 12.5 GB/s, messages: 60 M/s, latency: 300 ns }
";

/// Which of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// Where searches begin; it owns the likes.
    Front,
    /// Which photos a word finds.
    Index,
    /// It answers searches.
    Archive,
}

/// All, in the order in which a search meets them.
pub const NAMES: [Name; 3] = [Name::Front, Name::Index, Name::Archive];

impl Name {
    /// As others know it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Front => "front",
            Self::Index => "index",
            Self::Archive => "archive",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A server that runs here, as long as this lives.
#[derive(Debug)]
pub struct Running {
    /// Where it is called.
    pub url: String,
    /// None of a plain one.
    pub pathcall: Option<pathcall::Server>,
    serving: Option<Serving>,
    _task: JoinSet<Result<(), tonic::transport::Error>>,
}

/// All of them in this process: by the element if there is a controller.
///
/// # Errors
/// When there is no port, or the controller refuses one.
pub async fn all(controller: Option<&str>) -> Result<Vec<Running>> {
    let (mut running, directory) = (Vec::new(), Directory::default());
    for name in NAMES {
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        running.push(start(name, at, controller.map_or(Known::Here(&directory), Known::At)).await?);
    }
    let nodes = running.iter().filter_map(|server| server.serving.as_ref()).map(Serving::address);
    directory.set(NAMES.iter().map(|name| name.text().to_owned()).zip(nodes));
    if controller.is_some() {
        for server in &running {
            server.knows_all().await;
        }
    }
    Ok(running)
}

/// The same as plain gRPC.
///
/// # Errors
/// When there is no port.
pub async fn plain() -> Result<Vec<Running>> {
    let mut running: Vec<Running> = Vec::new();
    // The last first: each has to know who comes after it.
    for seed in 0..NAMES.len() as u64 {
        let next = running.last().map(|after| client(&after.url)).transpose()?;
        let (listener, url) = listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).await?;
        let routes = Routes::new(PhotosServer::new(Part::plain(seed, next)));
        let mut task = JoinSet::new();
        task.spawn(way::serve(routes, None, TcpIncoming::from(listener).with_nodelay(Some(true))));
        running.push(Running { url, pathcall: None, serving: None, _task: task });
    }
    running.reverse();
    Ok(running)
}

fn client(url: &str) -> Result<PhotosClient<Channel>> {
    Ok(PhotosClient::new(Endpoint::from_shared(url.to_owned())?.connect_lazy()))
}

/// Where a server finds the others.
#[derive(Debug, Clone, Copy)]
pub enum Known<'a> {
    /// The controller has their names.
    At(&'a str),
    /// They are in this process.
    Here(&'a Directory),
}

/// Starts one; port 0 takes a free one.
///
/// # Errors
/// When there is no port, or the controller refuses it.
pub async fn start(name: Name, at: SocketAddr, known: Known<'_>) -> Result<Running> {
    let (listener, url) = listen(at).await?;
    let handlers = hops::handlers(name).node(NodeConfig::default().listen(SocketAddr::new(at.ip(), 0)));
    let handlers = match known {
        Known::At(controller) => handlers.controller(controller, name.text()),
        Known::Here(directory) => handlers.directory(directory.clone()),
    };
    let serving = handlers.start().await?;
    let hardware = Hardware::parse("host.yaml", HOST).context("the host's model")?;
    let placing = Placing::new(hardware).acc(PhotosServer::new(Part::accelerator(name as u64)));
    let mut builder = pathcall::Server::builder(&PATHCALL)
        .advertise(&url)
        .data_address(SocketAddr::new(at.ip(), 0))
        .handlers(serving.clone())
        .place(hops::accelerated(name, placing));
    if let Known::At(controller) = known {
        builder = builder.controller(controller);
    }
    if name != Name::Front {
        builder = builder.without_maps();
    }
    let pathcall = builder.build().await.with_context(|| format!("{name} does not start"))?;
    let routes = Routes::new(PhotosServer::new(Part::processor(name as u64)));
    let mut task = JoinSet::new();
    task.spawn(way::serve(routes, Some(&pathcall), TcpIncoming::from(listener).with_nodelay(Some(true))));
    Ok(Running { url, pathcall: Some(pathcall), serving: Some(serving), _task: task })
}

impl Running {
    /// Waits until the controller has told it of all servers.
    pub async fn knows_all(&self) {
        if let Some(serving) = &self.serving {
            for name in NAMES {
                serving.directory().has(&name.text().into()).await;
            }
        }
    }

    /// Waits until the controller knows it by its name.
    pub async fn is_known(&self, name: Name) {
        if let Some(serving) = &self.serving {
            serving.directory().has(&name.text().into()).await;
        }
    }
}

async fn listen(at: SocketAddr) -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind(at).await.with_context(|| format!("no gRPC server at {at}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok((listener, url))
}
