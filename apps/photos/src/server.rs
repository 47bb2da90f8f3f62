//! Servers of the service, three in number. Each has all photos and is in the pool; one owns the likes, and each has a
//! part in a search.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use pathcall::delegate::{Directory, NodeConfig, RunningHandlers};
use pathcall::place::{Hardware, PlaceOptions};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};

use apps_report::call_path;

use crate::hops;
use crate::pb::PATHCALL;
use crate::pb::photos_client::PhotosClient;
use crate::pb::photos_server::PhotosServer;
use crate::service::PhotoHandler;

/// Hardware model of each server: the processor makes one picture at a time, the card three.
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

/// Name of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// Start of searches, and owner of the likes.
    Front,
    /// Index of words.
    Index,
    /// Last server of a search, which answers it.
    Archive,
}

/// All names, in the order of a search.
pub const NAMES: [Name; 3] = [Name::Front, Name::Index, Name::Archive];

impl Name {
    /// Name in the directory.
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

/// Running server; dropping the value stops it.
#[derive(Debug)]
pub struct RunningServer {
    /// URL of the server.
    pub url: String,
    /// Pathcall's layer; `None` for plain gRPC.
    pub pathcall: Option<pathcall::Layer>,
    serving: Option<RunningHandlers>,
    _task: JoinSet<Result<(), tonic::transport::Error>>,
}

/// Starts all servers in this process, with the element if there is a controller.
///
/// # Errors
/// Returns an error if no port is free or the controller refuses a server.
pub async fn all(controller: Option<&str>) -> Result<Vec<RunningServer>> {
    let (mut running, directory) = (Vec::new(), Directory::default());
    for name in NAMES {
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        running.push(start(name, at, controller.map_or(ServerLookup::Here(&directory), ServerLookup::At)).await?);
    }
    let nodes = running.iter().filter_map(|server| server.serving.as_ref()).map(RunningHandlers::address);
    directory.set(NAMES.iter().map(|name| name.text().to_owned()).zip(nodes));
    if controller.is_some() {
        for server in &running {
            server.await_all_servers().await;
        }
    }
    Ok(running)
}

/// Starts all servers as plain gRPC.
///
/// # Errors
/// Returns an error if no port is free.
pub async fn plain() -> Result<Vec<RunningServer>> {
    let mut running: Vec<RunningServer> = Vec::new();
    // The last server first: each needs the next one.
    for seed in 0..NAMES.len() as u64 {
        let next = running.last().map(|after| client(&after.url)).transpose()?;
        let (listener, url) = listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).await?;
        let routes = Routes::new(PhotosServer::new(PhotoHandler::plain(seed, next)));
        let mut task = JoinSet::new();
        task.spawn(call_path::serve(routes, None, TcpIncoming::from(listener).with_nodelay(Some(true))));
        running.push(RunningServer { url, pathcall: None, serving: None, _task: task });
    }
    running.reverse();
    Ok(running)
}

fn client(url: &str) -> Result<PhotosClient<Channel>> {
    Ok(PhotosClient::new(Endpoint::from_shared(url.to_owned())?.connect_lazy()))
}

/// Directory of the other servers.
#[derive(Debug, Clone, Copy)]
pub enum ServerLookup<'a> {
    /// The controller has their names.
    At(&'a str),
    /// The servers are in this process.
    Here(&'a Directory),
}

/// Starts a server; port 0 picks a free port.
///
/// # Errors
/// Returns an error if no port is free or the controller refuses the server.
pub async fn start(name: Name, at: SocketAddr, known: ServerLookup<'_>) -> Result<RunningServer> {
    let (listener, url) = listen(at).await?;
    let handlers = hops::handlers(name).node(NodeConfig::default().listen(SocketAddr::new(at.ip(), 0)));
    let handlers = match known {
        ServerLookup::At(controller) => handlers.controller(controller, name.text()),
        ServerLookup::Here(directory) => handlers.directory(directory.clone()),
    };
    let serving = handlers.start().await?;
    let hardware = Hardware::parse("host.yaml", HOST).context("invalid hardware model")?;
    let placing = PlaceOptions::new(hardware).acc(PhotosServer::new(PhotoHandler::accelerator(name as u64)));
    let mut builder = pathcall::Layer::builder(&PATHCALL)
        .advertise(&url)
        .data_address(SocketAddr::new(at.ip(), 0))
        .handlers(serving.clone())
        .place(hops::accelerated(name, placing));
    if let ServerLookup::At(controller) = known {
        builder = builder.controller(controller);
    }
    if name != Name::Front {
        builder = builder.without_maps();
    }
    let pathcall = builder.build().await.with_context(|| format!("cannot start server {name}"))?;
    let routes = Routes::new(PhotosServer::new(PhotoHandler::processor(name as u64)));
    let mut task = JoinSet::new();
    task.spawn(call_path::serve(routes, Some(&pathcall), TcpIncoming::from(listener).with_nodelay(Some(true))));
    Ok(RunningServer { url, pathcall: Some(pathcall), serving: Some(serving), _task: task })
}

impl RunningServer {
    /// Waits until the server knows all servers from the controller.
    pub async fn await_all_servers(&self) {
        if let Some(serving) = &self.serving {
            for name in NAMES {
                serving.directory().wait_for(&name.text().into()).await;
            }
        }
    }

    /// Waits until the controller knows the server by its name.
    pub async fn await_registration(&self, name: Name) {
        if let Some(serving) = &self.serving {
            serving.directory().wait_for(&name.text().into()).await;
        }
    }
}

async fn listen(at: SocketAddr) -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind(at).await.with_context(|| format!("cannot start a gRPC server at {at}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok((listener, url))
}
