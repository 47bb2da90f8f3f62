//! Delegated calls on the node interface, without stubs: [`Node`]s.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use pathcall_driver::node::{Node, NodeConfig, NodeReply, NodeRequest};
use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome};

use super::CallVariant;
use crate::dpc::plan::{RequestPath, Servers, WorkPlan};

/// Starts a server, which runs as long as the runtime.
pub(crate) async fn serve(config: &NodeConfig, plan: WorkPlan, servers: Servers) -> Result<SocketAddr> {
    let (node, requests) = Node::start(config).await?;
    let address = node.address();
    tokio::spawn(async move {
        loop {
            let request = requests.receive().await;
            if let Err(error) = work(&request, &plan, &servers) {
                request.fail(&Status::new(Status::INTERNAL, error.to_string()));
            }
        }
    });
    Ok(address)
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
        let (node, _) = Node::start(config).await?;
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
