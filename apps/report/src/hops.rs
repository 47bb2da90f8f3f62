//! Applications whose calls go over several servers: their servers, which may pass a call on; their caller, which
//! can also ask each server itself; what they say of a run.
//!
//! ```text
//! delegate:  caller ─► server ─► server ─► … ─► caller     servers pass the call on
//! rpc:       caller ⇄ server, caller ⇄ server, …           hub and spoke: the caller asks each in turn
//! ```
//!
//! Both ways use the same nodes, the same flows and the same stubs: a call that nobody passes on is a plain remote
//! call.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use pathcall::delegate::{Directory, Handlers, Node, NodeConfig, Serving, Target};
use pathcall::{Channel, Manifest};
use serde::Serialize;
use tonic::{Response, Status, Streaming};

use crate::nodes;

/// Where a server is; on a command line `NAME=IP:PORT`, with its node and its gRPC face at the same port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its name in the directory.
    pub name: String,
    /// Its gRPC face.
    pub url: String,
    /// Its node.
    pub node: SocketAddr,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').ok_or_else(|| format!("expected NAME=IP:PORT, got {text:?}"))?;
        let node = address.parse().map_err(|error| format!("expected IP:PORT, got {address:?}: {error}"))?;
        Ok(Self { name: name.to_owned(), url: format!("http://{address}"), node })
    }
}

/// A directory of these servers.
#[must_use]
pub fn directory(places: &[Place]) -> Directory {
    Directory::of(places.iter().map(|place| (place.name.clone(), place.node)))
}

/// Which of some servers keys belong to, whatever their addresses will be.
#[derive(Debug, Clone)]
pub struct Placement {
    names: Vec<String>,
    /// The port is the name's number.
    directory: Directory,
}

impl Placement {
    /// Of servers with these names, at most 2^16.
    pub fn of(names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<String> = names.into_iter().collect();
        let numbers = (0..=u16::MAX).map(|number| SocketAddr::from(([0, 0, 0, 0], number)));
        let directory = Directory::of(names.iter().cloned().zip(numbers));
        Self { names, directory }
    }

    /// Whether a key belongs to this one, of those whose names begin with `prefix`.
    #[must_use]
    pub fn has(&self, name: &str, prefix: &str, key: &str) -> bool {
        let found = self.directory.find(&Target::key(prefix, key));
        found.is_ok_and(|at| self.names[usize::from(at.port())] == name)
    }
}

/// A server that runs here, as long as the runtime does.
#[derive(Debug)]
pub struct Host {
    /// Where it is.
    pub place: Place,
    serving: Serving,
}

/// Starts a server: a node with these handlers, and its gRPC face. Port 0 takes free ones.
///
/// # Errors
/// When a port is taken.
pub async fn serve(name: &str, at: SocketAddr, handlers: Handlers, manifest: &'static Manifest) -> Result<Host> {
    let node = NodeConfig::default().listen(at);
    let nodes::Host { url, serving } = nodes::host(manifest, handlers.node(node), at).await?;
    Ok(Host { place: Place { name: name.to_owned(), url, node: serving.address() }, serving })
}

/// The places of servers that run here.
#[must_use]
pub fn places(hosts: &[Host]) -> Vec<Place> {
    hosts.iter().map(|host| host.place.clone()).collect()
}

/// A node that calls, and a channel from it to each server.
#[derive(Debug, Clone)]
pub struct Caller {
    node: Node,
    directory: Directory,
    channels: BTreeMap<SocketAddr, Channel>,
}

impl Caller {
    /// A caller on this host, whose address servers reach.
    ///
    /// # Errors
    /// When this host has no such address, or a URL is none. A server that is not there fails the calls.
    pub async fn new(host: IpAddr, servers: &[Place], manifest: &'static Manifest) -> Result<Self> {
        let config = NodeConfig::default().listen(SocketAddr::new(host, 0));
        let (node, _requests) = Node::start(&config).await.with_context(|| format!("no node at {host}"))?;
        let mut channels = BTreeMap::new();
        for server in servers {
            let channel = nodes::channel(&server.url, manifest, &node, nodes::options());
            channels.insert(server.node, channel.with_context(|| format!("no way to {}", server.name))?);
        }
        Ok(Self { node, directory: directory(servers), channels })
    }

    /// Where servers are.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// A channel to a server, for a stub.
    ///
    /// # Errors
    /// UNAVAILABLE when there is no such server.
    pub fn channel(&self, target: impl Into<Target>) -> Result<Channel, Status> {
        let target = target.into();
        let channel = self.channels.get(&self.directory.find(&target)?);
        channel.cloned().ok_or_else(|| Status::unavailable(format!("no channel to {target:?}")))
    }
}

/// All items of a stream that ends well.
///
/// # Errors
/// The status with which it ends; what came before is not told, for it may be a part.
pub async fn all<T>(stream: Result<Response<Streaming<T>>, Status>) -> Result<Vec<T>, Status> {
    let mut stream = stream?.into_inner();
    let mut items = Vec::new();
    while let Some(item) = stream.message().await? {
        items.push(item);
    }
    Ok(items)
}

/// A finished run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The application.
    pub app: &'static str,
    /// "delegate" or "rpc".
    pub mode: &'static str,
    /// Calls made, as the application's user counts them: all that answers one question is one.
    pub calls: usize,
    /// Wall time of the calls, in seconds.
    pub seconds: f64,
    /// Calls a second.
    pub calls_per_s: f64,
    /// Median and 99th percentile of a call, in microseconds.
    pub p50_us: u64,
    /// See `p50_us`.
    pub p99_us: u64,
    /// Messages that all nodes sent, those of the protocol itself included; none where servers are elsewhere.
    pub messages: Option<u64>,
    /// Messages that the caller sent or got.
    pub caller_messages: u64,
    /// Hash of the result: equal results, equal digests.
    pub digest: String,
    /// What was made, if it is a file.
    pub file: Option<PathBuf>,
    /// Who did what for one of the calls, as a tree.
    pub trace: Option<String>,
}

impl Report {
    /// A report of calls that took `latencies`, in any order. Messages are those since the nodes started: of the
    /// caller, of another one that servers have, and of the servers that run here.
    #[must_use]
    pub fn new(
        app: &'static str,
        rpc: bool,
        latencies: Vec<Duration>,
        took: Duration,
        (caller, others, hosts): (&Caller, Option<&Caller>, &[Host]),
    ) -> Self {
        let times = super::Report::new(app, rpc, latencies, took);
        let own = caller.node.stats().messages;
        let servers: u64 = hosts.iter().map(|host| host.serving.stats().messages.sent).sum();
        let others = others.map_or(0, |other| other.node.stats().messages.sent);
        Self {
            app,
            mode: if rpc { "rpc" } else { "delegate" },
            calls: times.calls,
            seconds: times.seconds,
            calls_per_s: times.calls_per_s,
            p50_us: times.p50_us,
            p99_us: times.p99_us,
            messages: (!hosts.is_empty()).then_some(own.sent + others + servers),
            caller_messages: own.sent + own.arrived,
            digest: String::new(),
            file: None,
            trace: None,
        }
    }

    /// Prints it: JSON in one line, or for a person.
    pub fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string(self).expect("plain fields"));
            return;
        }
        println!("{} ({}): {} calls in {:.2} s", self.app, self.mode, self.calls, self.seconds);
        println!("  calls/s {:.0}, p50 {} us, p99 {} us", self.calls_per_s, self.p50_us, self.p99_us);
        let messages = self.messages.map_or("-".to_owned(), |messages| messages.to_string());
        println!("  messages {messages}, at the caller {}, result {}", self.caller_messages, self.digest);
        if let Some(file) = &self.file {
            println!("  written to {}", file.display());
        }
        if let Some(trace) = &self.trace {
            print!("one of them, traced:\n{trace}");
        }
    }
}
