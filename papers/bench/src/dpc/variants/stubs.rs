//! Delegated calls through stubs: handlers, and channels to each server.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use pathcall::Channel;
use pathcall::delegate::{DelegatedCall, Handlers, Node, NodeConfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

use super::CallVariant;
use crate::dpc::plan::{RequestPath, Servers, WorkPlan};

mod pb {
    pathcall::include_proto!("shapes");
}

pub(in crate::dpc) use pb::plain_client::PlainClient;
pub(in crate::dpc) use pb::plain_server::{Plain, PlainServer};
use pb::shapes_client::ShapesClient;
pub(in crate::dpc) use pb::{Item, Items, Step};

/// Server with its gRPC address and its node address.
#[derive(Debug, Clone)]
pub(crate) struct ServerAddresses {
    url: String,
    node: SocketAddr,
}

/// Starts a server, which runs as long as the runtime.
pub(crate) async fn serve(
    at: SocketAddr,
    plan: WorkPlan,
    servers: Servers<ServerAddresses>,
) -> Result<ServerAddresses> {
    let visit = move |step: Step, call: DelegatedCall<Item>| visit(step, call, plan.clone(), servers.clone());
    let node = NodeConfig::default().listen(at);
    let serving = Handlers::new().node(node).handle::<pb::delegated::ShapesVisit, _, _>(visit).start().await?;
    let listener = TcpListener::bind(at).await.context("cannot bind a server's port")?;
    let server = ServerAddresses { url: format!("http://{}", listener.local_addr()?), node: serving.address() };
    let owner = pathcall::Layer::builder(&pb::PATHCALL).handlers(serving).build().await?;
    let router = tonic::transport::Server::builder().layer(owner.clone()).add_routes(Routes::default());
    tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))));
    Ok(server)
}

/// Delegates and replies according to the shape.
async fn visit(
    step: Step,
    call: DelegatedCall<Item>,
    plan: WorkPlan,
    servers: Servers<ServerAddresses>,
) -> Result<(), Status> {
    let place = read(&step.place)?;
    let (next, replies) = plan.after(&place).map_err(status)?;
    for next in next {
        let server = servers.of(&next).map_err(status)?;
        call.delegate::<pb::delegated::ShapesVisit>(server.node, &Step { place: next.payload().to_vec() })?;
    }
    for _ in 0..replies {
        call.reply(Item { place: step.place.clone() }).await?;
    }
    Ok(())
}

pub(super) fn read(place: &[u8]) -> Result<RequestPath, Status> {
    RequestPath::read(place).map_err(status)
}

pub(super) fn status(error: anyhow::Error) -> Status {
    Status::invalid_argument(error.to_string())
}

/// Client.
#[derive(Clone)]
pub(crate) struct Stubs {
    plan: WorkPlan,
    channels: Servers<ShapesClient<Channel>>,
}

impl Stubs {
    pub(crate) async fn start(at: SocketAddr, plan: WorkPlan, servers: &Servers<ServerAddresses>) -> Result<Self> {
        let (node, _) = Node::start(&NodeConfig::default().listen(at)).await?;
        let channel = |server: &ServerAddresses| {
            let builder = Channel::builder(server.url.clone(), &pb::PATHCALL)?.node(node.clone());
            Ok(ShapesClient::new(builder.connect_lazy()?))
        };
        let channels = Servers::default();
        channels.set(servers.all().iter().map(channel).collect::<Result<_>>()?);
        Ok(Self { plan, channels })
    }
}

impl CallVariant for Stubs {
    /// A call of a stub has one request, so several roots become several calls.
    async fn call(&self, pattern: usize) -> Result<()> {
        let mut calls = JoinSet::new();
        for root in self.plan.roots(pattern) {
            let mut stub = self.channels.of(&root)?;
            calls.spawn(async move {
                let mut items = stub.visit(Step { place: root.payload().to_vec() }).await?.into_inner();
                let mut replies = 0;
                while items.message().await?.is_some() {
                    replies += 1;
                }
                Ok::<u64, Status>(replies)
            });
        }
        let mut replies = 0;
        while let Some(call) = calls.join_next().await {
            replies += call??;
        }
        let expected = self.plan.patterns()[pattern].replies();
        ensure!(replies == expected, "{replies} replies, not {expected}");
        Ok(())
    }
}
