//! Servers of the nodes, and clients for look-ups.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use apps_report::nodes::{self, NodeServer};
use pathcall::delegate::{DelegatedCall, Directory, Handlers, Node, NodeConfig};
use tokio::net::TcpListener;
use tonic::Status;

use crate::pb::chord_client::ChordClient;
use crate::pb::delegated::ChordFind;
use crate::pb::{self, Lookup, Owner};
use crate::ring::{FingerTable, Ring, Route};

/// Maximum number of hops of an iterative look-up.
const HOPS_MAX: u32 = 64;

/// Starts a node. The directory contains the members that the node knows, by [`name`].
///
/// # Errors
/// Returns an error if the port is in use.
pub async fn serve(
    table: FingerTable,
    node: NodeConfig,
    directory: Directory,
    listener: TcpListener,
) -> Result<NodeServer> {
    let table = Arc::new(table);
    let find = move |lookup: Lookup, call: DelegatedCall<Owner>| {
        let table = Arc::clone(&table);
        async move {
            let hops = lookup.hops;
            match table.route(lookup.key) {
                Route::Here => call.reply(Owner { node: table.position(), found: true, hops }).await,
                Route::To(node) if lookup.iterative => call.reply(Owner { node, found: false, hops }).await,
                Route::To(node) => {
                    call.delegate::<ChordFind>(&*name(node), &Lookup { hops: hops.saturating_add(1), ..lookup })
                }
            }
        }
    };
    let handlers = Handlers::new().node(node).directory(directory).handle::<ChordFind, _, _>(find);
    nodes::host_on(&pb::PATHCALL, handlers, listener).await
}

/// Name of a member in directories.
#[must_use]
pub fn name(position: u64) -> String {
    format!("chord-{position:016x}")
}

/// Starts all members of a ring in this process, on free ports of the loopback; returns their URLs by ring position.
///
/// # Errors
/// Returns an error if no port is free.
pub async fn serve_all(ring: &Ring) -> Result<BTreeMap<u64, String>> {
    let (mut hosts, mut directories) = (BTreeMap::new(), Vec::new());
    for position in ring.positions() {
        let table = ring.table(*position).context("node is not a member of the ring")?;
        let directory = Directory::default();
        directories.push((table.fingers().to_vec(), directory.clone()));
        let listener = nodes::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        hosts.insert(*position, serve(table, NodeConfig::default(), directory, listener).await?);
    }
    // Each node knows only its fingers.
    for (fingers, directory) in directories {
        directory.set(fingers.into_iter().map(|position| (name(position), hosts[&position].serving.address())));
    }
    Ok(hosts.into_iter().map(|(position, host)| (position, host.url)).collect())
}

/// Client for look-ups.
#[derive(Debug, Clone)]
pub struct Finder(BTreeMap<u64, ChordClient<pathcall::Channel>>);

impl Finder {
    /// Creates a client of the members at these URLs. The members reply to `node`.
    ///
    /// # Errors
    /// Returns an error if a URL is invalid.
    pub fn new(urls: &BTreeMap<u64, String>, node: &Node) -> Result<Self> {
        let stub = |(position, url): (&u64, &String)| {
            let channel = nodes::channel(url, &pb::PATHCALL, node, nodes::options())?;
            Ok((*position, ChordClient::new(channel)))
        };
        urls.iter().map(stub).collect::<Result<_>>().map(Self)
    }

    /// Finds the owner of a key with one delegated call.
    ///
    /// # Errors
    /// Returns the error of the call.
    pub async fn find(&self, from: u64, key: u64) -> Result<Owner, Status> {
        self.ask(from, Lookup { key, hops: 0, iterative: false }).await
    }

    /// Finds the owner of a key with one call per node: the baseline.
    ///
    /// # Errors
    /// Returns the error of the failed call.
    pub async fn find_iteratively(&self, from: u64, key: u64) -> Result<Owner, Status> {
        let mut node = from;
        for hops in 0..HOPS_MAX {
            let owner = self.ask(node, Lookup { key, hops, iterative: true }).await?;
            if owner.found {
                return Ok(owner);
            }
            node = owner.node;
        }
        Err(Status::internal(format!("owner of {key:016x} not found in {HOPS_MAX} hops")))
    }

    async fn ask(&self, node: u64, lookup: Lookup) -> Result<Owner, Status> {
        let stub = self.0.get(&node).ok_or_else(|| Status::unavailable(format!("no URL of node {}", name(node))))?;
        let owner = stub.clone().find(lookup).await?.into_inner().message().await?;
        owner.ok_or_else(|| Status::internal("the call completed without a reply"))
    }
}
