//! Nodes and callers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use apps_report::nodes::{self, Host};
use pathcall::delegate::{Call, Directory, Handlers, Node, NodeConfig};
use tokio::net::TcpListener;
use tonic::Status;

use crate::pb::chord_client::ChordClient;
use crate::pb::delegated::ChordFind;
use crate::pb::{self, Lookup, Owner};
use crate::ring::{Ring, Route, Table};

/// Hops after which a caller that asks node after node takes the ring for broken.
const HOPS_MAX: u32 = 64;

/// Starts a node. The directory has the members it knows, by [`name`].
///
/// # Errors
/// When it has no port.
pub async fn serve(table: Table, node: NodeConfig, directory: Directory, listener: TcpListener) -> Result<Host> {
    let table = Arc::new(table);
    let find = move |lookup: Lookup, call: Call<Owner>| {
        let table = Arc::clone(&table);
        async move {
            let hops = lookup.hops;
            match table.route(lookup.key) {
                Route::Here => call.reply(Owner { node: table.place(), found: true, hops }).await,
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

/// The name of a member in directories.
#[must_use]
pub fn name(place: u64) -> String {
    format!("chord-{place:016x}")
}

/// All members of a ring, in this process and on free ports of the loopback; their URLs by place.
///
/// # Errors
/// When there is no port.
pub async fn serve_all(ring: &Ring) -> Result<BTreeMap<u64, String>> {
    let (mut hosts, mut directories) = (BTreeMap::new(), Vec::new());
    for place in ring.places() {
        let table = ring.table(*place).context("a member has a table")?;
        let directory = Directory::default();
        directories.push((table.fingers().to_vec(), directory.clone()));
        let listener = nodes::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        hosts.insert(*place, serve(table, NodeConfig::default(), directory, listener).await?);
    }
    // Each knows its fingers, and nobody else.
    for (fingers, directory) in directories {
        directory.set(fingers.into_iter().map(|place| (name(place), hosts[&place].serving.address())));
    }
    Ok(hosts.into_iter().map(|(place, host)| (place, host.url)).collect())
}

/// Looks keys up.
#[derive(Debug, Clone)]
pub struct Finder(BTreeMap<u64, ChordClient<pathcall::Channel>>);

impl Finder {
    /// One that asks the members at these URLs. They answer to `node`.
    ///
    /// # Errors
    /// When what is given is no URL.
    pub fn new(urls: &BTreeMap<u64, String>, node: &Node) -> Result<Self> {
        let stub = |(place, url): (&u64, &String)| {
            let channel = nodes::channel(url, &pb::PATHCALL, node, nodes::options())?;
            Ok((*place, ChordClient::new(channel)))
        };
        urls.iter().map(stub).collect::<Result<_>>().map(Self)
    }

    /// Who owns a key, by one call that goes from node to node.
    ///
    /// # Errors
    /// What the call fails with.
    pub async fn find(&self, from: u64, key: u64) -> Result<Owner, Status> {
        self.ask(from, Lookup { key, hops: 0, iterative: false }).await
    }

    /// The same by a call to each node: the twin.
    ///
    /// # Errors
    /// What a call fails with.
    pub async fn find_iteratively(&self, from: u64, key: u64) -> Result<Owner, Status> {
        let mut node = from;
        for hops in 0..HOPS_MAX {
            let owner = self.ask(node, Lookup { key, hops, iterative: true }).await?;
            if owner.found {
                return Ok(owner);
            }
            node = owner.node;
        }
        Err(Status::internal(format!("{key:016x} was not found in {HOPS_MAX} hops")))
    }

    async fn ask(&self, node: u64, lookup: Lookup) -> Result<Owner, Status> {
        let stub = self.0.get(&node).ok_or_else(|| Status::unavailable(format!("{} is not known", name(node))))?;
        let owner = stub.clone().find(lookup).await?.into_inner().message().await?;
        owner.ok_or_else(|| Status::internal("the call is complete, and nobody replied"))
    }
}
