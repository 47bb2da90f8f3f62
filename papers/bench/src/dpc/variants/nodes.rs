//! Delegated calls on the node interface, without stubs: [`Node`]s.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use pathcall_driver::node::{Node, NodeConfig, NodeReply, NodeRequest, NodeRequests};
use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome};
use tokio::runtime::Handle;

use super::CallVariant;
use crate::dpc::plan::{RequestPath, Servers, WorkPlan};

/// Starts a server, which runs as long as the runtime.
pub(crate) async fn serve(config: &NodeConfig, plan: WorkPlan, servers: Servers) -> Result<SocketAddr> {
    serve_on(config, &[Handle::current()], plan, servers).await
}

/// Starts a server whose shards run on the given runtimes in turn.
pub(crate) async fn serve_on(
    config: &NodeConfig,
    runtimes: &[Handle],
    plan: WorkPlan,
    servers: Servers,
) -> Result<SocketAddr> {
    let (node, requests) = Node::start_on(config, runtimes).await?;
    for (requests, runtime) in requests.by_shard().into_iter().zip(runtimes.iter().cycle()) {
        runtime.spawn(work_on(requests, plan.clone(), servers.clone()));
    }
    Ok(node.address())
}

async fn work_on(requests: NodeRequests, plan: WorkPlan, servers: Servers) {
    loop {
        let request = requests.receive().await;
        if let Err(error) = work(&request, &plan, &servers) {
            request.fail(&Status::new(Status::INTERNAL, error.to_string()));
        }
    }
}

/// Delegates and replies according to the shape.
fn work(request: &NodeRequest, plan: &WorkPlan, servers: &Servers) -> Result<()> {
    let place = RequestPath::read(request.payload())?;
    let (next, replies) = plan.after(&place)?;
    for next in next {
        request.delegate(servers.of(&next)?, next.payload())?;
    }
    for _ in 0..replies {
        request.reply_now(request.payload().clone())?;
    }
    Ok(request.finish()?)
}

/// Client.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    node: Node,
    plan: WorkPlan,
    servers: Servers,
}

impl Nodes {
    pub(crate) async fn start(config: &NodeConfig, plan: WorkPlan, servers: Servers) -> Result<Self> {
        Self::start_on(config, &[Handle::current()], plan, servers).await
    }

    /// Starts a client whose shards run on the given runtimes in turn.
    pub(crate) async fn start_on(
        config: &NodeConfig,
        runtimes: &[Handle],
        plan: WorkPlan,
        servers: Servers,
    ) -> Result<Self> {
        let (node, _) = Node::start_on(config, runtimes).await?;
        Ok(Self { node, plan, servers })
    }
}

impl CallVariant for Nodes {
    async fn call(&self, pattern: usize) -> Result<()> {
        let roots = self.plan.roots(pattern);
        let requests = roots.iter().map(|root| Ok((self.servers.of(root)?, root.payload())));
        let mut call = self.node.call(CallOptions::default(), requests.collect::<Result<Vec<_>>>()?)?;
        let mut replies = 0;
        loop {
            match call.receive().await {
                NodeReply::Item(_) => replies += 1,
                NodeReply::Ended(CallOutcome::Complete) => break,
                NodeReply::Ended(outcome) => bail!("a call ended: {outcome:?}"),
            }
        }
        let expected = self.plan.patterns()[pattern].replies();
        ensure!(replies == expected, "{replies} replies, not {expected}");
        Ok(())
    }
}
