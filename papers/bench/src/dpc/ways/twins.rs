//! The same by plain remote calls on the same transport: the caller asks for all that follows from an answer.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use pathcall_endpoint::driver::line::line;

use super::Way;
use super::twin::TwinNode;
use crate::dpc::plan::{Place, Plan, Servers};

/// Starts a server, which answers whatever it is asked, as long as the runtime runs.
pub(crate) async fn serve(at: SocketAddr) -> Result<SocketAddr> {
    let (node, requests) = TwinNode::start(at).await?;
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

/// A client.
#[derive(Clone)]
pub(crate) struct Twins {
    node: TwinNode,
    plan: Plan,
    servers: Servers,
}

impl Twins {
    pub(crate) async fn start(at: SocketAddr, plan: Plan, servers: Servers) -> Result<Self> {
        let (node, _) = TwinNode::start(at).await?;
        Ok(Self { node, plan, servers })
    }
}

impl Way for Twins {
    async fn call(&self, pattern: usize) -> Result<()> {
        let (answer, mut answers) = line();
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
            asks = self.plan.after(&Place::read(&answered)?)?.0;
        }
    }
}
