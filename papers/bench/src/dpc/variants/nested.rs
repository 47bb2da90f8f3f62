//! Nested calls on the transport of delegated calls: each server calls the next one, and answers when it has the answer.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pathcall_driver::event_channel::event_channel;

use super::CallVariant;
use super::baseline_node::{BaselineNode, BaselineRequest};
use crate::dpc::plan::{RequestPath, Servers, WorkPlan};

/// Client, and what a server needs to call other servers.
#[derive(Clone)]
pub(crate) struct NestedCaller {
    node: BaselineNode,
    plan: WorkPlan,
    servers: Servers,
}

/// Starts a server, which runs as long as the runtime.
pub(crate) async fn serve(at: SocketAddr, busy_poll: Duration, plan: WorkPlan, servers: Servers) -> Result<SocketAddr> {
    let (node, requests) = BaselineNode::start(at, busy_poll).await?;
    let address = node.address();
    let caller = NestedCaller { node, plan, servers };
    tokio::spawn(async move {
        loop {
            let request = requests.receive().await;
            tokio::spawn(answer(caller.clone(), request));
        }
    });
    Ok(address)
}

/// Answers after all calls that follow from the request; not at all if one of them fails.
async fn answer(caller: NestedCaller, request: BaselineRequest) -> Result<()> {
    let place = RequestPath::read(request.payload())?;
    caller.call_all(caller.plan.after(&place)?.0).await?;
    let answer = request.payload().clone();
    request.reply(answer);
    Ok(())
}

impl NestedCaller {
    pub(crate) async fn start(at: SocketAddr, busy_poll: Duration, plan: WorkPlan, servers: Servers) -> Result<Self> {
        let (node, _) = BaselineNode::start(at, busy_poll).await?;
        Ok(Self { node, plan, servers })
    }

    /// Makes these calls concurrently.
    async fn call_all(&self, places: Vec<RequestPath>) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let (answer, mut answers) = event_channel();
        let answer = Arc::new(answer);
        for place in &places {
            self.node.call(self.servers.of(place)?, &place.payload(), Arc::clone(&answer));
        }
        for _ in &places {
            poll_fn(|cx| answers.poll_next(cx)).await.context("the node has ended")?;
        }
        Ok(())
    }
}

impl CallVariant for NestedCaller {
    async fn call(&self, pattern: usize) -> Result<()> {
        self.call_all(self.plan.roots(pattern)).await
    }
}
