//! Framework of applications with calls over several servers: servers, which may pass a call on; the caller, which can
//! also call each server itself; and the report.
//!
//! ```text
//! delegate:  caller ─► server ─► server ─► … ─► caller     servers pass the call on
//! rpc:       caller ⇄ server, caller ⇄ server, …           hub and spoke: the caller asks each in turn
//! ```
//!
//! Both paths use the same nodes, flows and stubs: a call that no server passes on is a plain remote call.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use pathcall::delegate::{Directory, Handlers, Node, NodeConfig, NodeTarget, RunningHandlers};
use pathcall::{Channel, Manifest};
use serde::Serialize;
use tonic::{Response, Status, Streaming};

use crate::nodes;

/// Address of a server; on a command line `NAME=IP:PORT`, with node and gRPC server on the same port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// Name in the directory.
    pub name: String,
    /// URL of the gRPC server.
    pub url: String,
    /// Address of the node.
    pub node: SocketAddr,
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').ok_or_else(|| format!("expected NAME=IP:PORT, got {text:?}"))?;
        let node = address.parse().map_err(|error| format!("expected IP:PORT, got {address:?}: {error}"))?;
        Ok(Self { name: name.to_owned(), url: format!("http://{address}"), node })
    }
}

/// Directory of these servers.
#[must_use]
pub fn directory(places: &[ServerAddress]) -> Directory {
    Directory::of(places.iter().map(|place| (place.name.clone(), place.node)))
}

/// Assignment of keys to servers, independent of their addresses.
#[derive(Debug, Clone)]
pub struct KeyPlacement {
    names: Vec<String>,
    /// Directory in which the port is the number of the name.
    directory: Directory,
}

impl KeyPlacement {
    /// Assignment to servers with these names, at most 2^16.
    pub fn of(names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<String> = names.into_iter().collect();
        let numbers = (0..=u16::MAX).map(|number| SocketAddr::from(([0, 0, 0, 0], number)));
        let directory = Directory::of(names.iter().cloned().zip(numbers));
        Self { names, directory }
    }

    /// True if a key belongs to this server among those whose names begin with `prefix`.
    #[must_use]
    pub fn has(&self, name: &str, prefix: &str, key: &str) -> bool {
        let found = self.directory.find(&NodeTarget::key(prefix, key));
        found.is_ok_and(|at| self.names[usize::from(at.port())] == name)
    }
}

/// Running server, which ends with the runtime.
#[derive(Debug)]
pub struct DelegateServer {
    /// Address of the server.
    pub place: ServerAddress,
    serving: RunningHandlers,
}

/// Starts a server: a node with these handlers, and a gRPC server. Port 0 picks free ports.
///
/// # Errors
/// Returns an error if a port is taken.
pub async fn serve(
    name: &str,
    at: SocketAddr,
    handlers: Handlers,
    manifest: &'static Manifest,
) -> Result<DelegateServer> {
    let node = NodeConfig::default().listen(at);
    let nodes::NodeServer { url, serving } = nodes::host(manifest, handlers.node(node), at).await?;
    Ok(DelegateServer { place: ServerAddress { name: name.to_owned(), url, node: serving.address() }, serving })
}

/// Addresses of servers in this process.
#[must_use]
pub fn places(hosts: &[DelegateServer]) -> Vec<ServerAddress> {
    hosts.iter().map(|host| host.place.clone()).collect()
}

/// Calling node, with a channel to each server.
#[derive(Debug, Clone)]
pub struct Caller {
    node: Node,
    directory: Directory,
    channels: BTreeMap<SocketAddr, Channel>,
}

impl Caller {
    /// Creates a caller on this host, whose address servers can reach.
    ///
    /// # Errors
    /// Returns an error if this host does not have the address, or a URL is invalid. A missing server fails the calls
    /// later.
    pub async fn new(host: IpAddr, servers: &[ServerAddress], manifest: &'static Manifest) -> Result<Self> {
        let config = NodeConfig::default().listen(SocketAddr::new(host, 0));
        let (node, _requests) = Node::start(&config).await.with_context(|| format!("cannot start a node at {host}"))?;
        let mut channels = BTreeMap::new();
        for server in servers {
            let channel = nodes::channel(&server.url, manifest, &node, nodes::options());
            channels.insert(
                server.node,
                channel.with_context(|| format!("cannot create a channel to server {}", server.name))?,
            );
        }
        Ok(Self { node, directory: directory(servers), channels })
    }

    /// Directory of the servers.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Channel to a server, for a stub.
    ///
    /// # Errors
    /// Returns UNAVAILABLE if the server is unknown.
    pub fn channel(&self, target: impl Into<NodeTarget>) -> Result<Channel, Status> {
        let target = target.into();
        let channel = self.channels.get(&self.directory.find(&target)?);
        channel.cloned().ok_or_else(|| Status::unavailable(format!("no channel to {target:?}")))
    }
}

/// All items of a stream that ends with OK.
///
/// # Errors
/// Returns the final status; earlier items are dropped, as they may be incomplete.
pub async fn all<T>(stream: Result<Response<Streaming<T>>, Status>) -> Result<Vec<T>, Status> {
    let mut stream = stream?.into_inner();
    let mut items = Vec::new();
    while let Some(item) = stream.message().await? {
        items.push(item);
    }
    Ok(items)
}

/// Report of a finished run.
#[derive(Debug, Clone, Serialize)]
pub struct HopReport {
    /// Name of the application.
    pub app: &'static str,
    /// Path: "delegate" or "rpc".
    pub mode: &'static str,
    /// Number of calls from the user's view: all requests for one question are one call.
    pub calls: usize,
    /// Total time of the calls in seconds.
    pub seconds: f64,
    /// Calls per second.
    pub calls_per_s: f64,
    /// Median and 99th percentile of a call in microseconds.
    pub p50_us: u64,
    /// See `p50_us`.
    pub p99_us: u64,
    /// Messages of all nodes, including protocol messages; `None` if servers are elsewhere.
    pub messages: Option<u64>,
    /// Messages that the caller sent or received.
    pub caller_messages: u64,
    /// Hash of the results, equal for equal results.
    pub digest: String,
    /// Output file, if any.
    pub file: Option<PathBuf>,
    /// Trace of one call, as a tree.
    pub trace: Option<String>,
}

impl HopReport {
    /// Creates a report of calls with these latencies, in any order. Messages are counted since the start of the nodes:
    /// of the caller, of a second caller that servers have, and of the servers in this process.
    #[must_use]
    pub fn new(
        app: &'static str,
        rpc: bool,
        latencies: Vec<Duration>,
        took: Duration,
        (caller, others, hosts): (&Caller, Option<&Caller>, &[DelegateServer]),
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

    /// Prints the report: JSON in one line, or text.
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
            print!("trace of one call:\n{trace}");
        }
    }
}
