//! Chain in one process, with nodes that can be killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use apps_report::nodes::{self, NodeServer};
use pathcall::delegate::{Node, NodeConfig};
use tokio::runtime::{Builder, Runtime};

use crate::client::Client;
use crate::pb::Member;
use crate::serve;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Master and nodes on free ports of the loopback.
#[derive(Debug)]
pub struct Cluster {
    master: NodeServer,
    nodes: Vec<Killable>,
    members: Vec<Member>,
    lease: Duration,
    calls: Node,
}

/// Node with its own runtime. Shutting down the runtime stops the node at any point.
#[derive(Debug)]
struct Killable(Option<Runtime>);

impl Killable {
    fn kill(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Cluster {
    /// Starts a chain of `nodes` nodes.
    ///
    /// # Errors
    /// Returns an error if no port is free or no thread can be started.
    pub async fn start(nodes: u32, lease: Duration) -> Result<Self> {
        let listener = nodes::bind(ANY).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (mut members, mut runtimes) = (Vec::new(), Vec::new());
        for id in 0..nodes {
            let runtime =
                Builder::new_multi_thread().worker_threads(1).enable_all().build().context("cannot start a runtime")?;
            let url = url.clone();
            let node = async move { serve::node(id, &url, lease, NodeConfig::default(), ANY).await };
            let started = runtime.spawn(node);
            runtimes.push(Killable(Some(runtime)));
            let host = started.await??;
            members.push(Member { id, node: host.serving.address().to_string(), url: host.url });
        }
        let master = serve::master(members.clone(), lease, listener).await?;
        let calls = Node::start(&NodeConfig::default()).await.context("cannot start a node for calls")?.0;
        Ok(Self { master, nodes: runtimes, members, lease, calls })
    }

    /// Creates a client.
    ///
    /// # Errors
    /// Never, because the URL is valid.
    pub fn client(&self, retry_time: Duration) -> Result<Client> {
        Client::new(&self.master.url, self.calls.clone(), serve::options(self.lease), retry_time)
    }

    /// Initial members, from head to tail.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Kills a node; has no effect on a dead node.
    pub fn kill(&mut self, node: u32) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.kill();
        }
    }
}
