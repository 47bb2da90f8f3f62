//! Baseline of delegated calls: plain remote calls on the same transport; the caller makes all calls that follow from
//! an answer.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pathcall_driver::event_channel::event_channel;

use super::CallVariant;
use super::baseline_node::BaselineNode;
use crate::dpc::plan::{RequestPath, Servers, WorkPlan};

/// Starts a server, which answers every request as long as the runtime runs.
pub(crate) async fn serve(at: SocketAddr) -> Result<SocketAddr> {
    let (node, requests) = BaselineNode::start(at, Duration::ZERO).await?;
    let address = node.address();
    tokio::spawn(async move {
        loop {
            let request = requests.receive().await;
            let answer = request.payload().clone();
            request.reply(answer);
        }
    });
    Ok(address)
}

/// Client.
#[derive(Clone)]
pub(crate) struct Baseline {
    node: BaselineNode,
    plan: WorkPlan,
    servers: Servers,
}

impl Baseline {
    pub(crate) async fn start(at: SocketAddr, plan: WorkPlan, servers: Servers) -> Result<Self> {
        let (node, _) = BaselineNode::start(at, Duration::ZERO).await?;
        Ok(Self { node, plan, servers })
    }
}

impl CallVariant for Baseline {
    async fn call(&self, pattern: usize) -> Result<()> {
        let (answer, mut answers) = event_channel();
        let answer = Arc::new(answer);
        let mut open = 0;
        let mut asks = self.plan.roots(pattern);
        loop {
            for ask in std::mem::take(&mut asks) {
                self.node.call(self.servers.of(&ask)?, &ask.payload(), Arc::clone(&answer));
                open += 1;
            }
            if open == 0 {
                return Ok(());
            }
            let answered = poll_fn(|cx| answers.poll_next(cx)).await.context("the node has ended")?;
            open -= 1;
            asks = self.plan.after(&RequestPath::read(&answered)?)?.0;
        }
    }
}
