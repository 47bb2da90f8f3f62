//! Delegated calls through stubs: handlers, and channels to each server.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use pathcall::Channel;
use pathcall::delegate::{Call, Handlers, Node, NodeConfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

use super::Way;
use crate::dpc::plan::{Place, Plan, Servers};

mod pb {
    pathcall::include_proto!("shapes");
}

pub(super) use pb::plain_client::PlainClient;
pub(super) use pb::plain_server::{Plain, PlainServer};
use pb::shapes_client::ShapesClient;
pub(super) use pb::{Item, Items, Step};

/// Where a server is: its gRPC face, and its node.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    url: String,
    node: SocketAddr,
}

/// Starts one, which runs as long as the runtime does.
pub(crate) async fn serve(at: SocketAddr, plan: Plan, servers: Servers<Server>) -> Result<Server> {
    let visit = move |step: Step, call: Call<Item>| visit(step, call, plan.clone(), servers.clone());
    let node = NodeConfig::default().listen(at);
    let serving = Handlers::new().node(node).handle::<pb::delegated::ShapesVisit, _, _>(visit).start().await?;
    let listener = TcpListener::bind(at).await.context("no port for a server")?;
    let server = Server { url: format!("http://{}", listener.local_addr()?), node: serving.address() };
    let owner = pathcall::Server::builder(&pb::PATHCALL).handlers(serving).build().await?;
    let router = tonic::transport::Server::builder().layer(owner.layer()).add_routes(Routes::default());
    tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))));
    Ok(server)
}

/// Passes a request on and replies, as the shape has it.
async fn visit(step: Step, call: Call<Item>, plan: Plan, servers: Servers<Server>) -> Result<(), Status> {
    let place = read(&step.place)?;
    let (next, replies) = plan.after(&place).map_err(wrong)?;
    for next in next {
        let server = servers.of(&next).map_err(wrong)?;
        call.delegate::<pb::delegated::ShapesVisit>(server.node, &Step { place: next.payload().to_vec() })?;
    }
    for _ in 0..replies {
        call.reply(Item { place: step.place.clone() }).await?;
    }
    Ok(())
}

pub(super) fn read(place: &[u8]) -> Result<Place, Status> {
    Place::read(place).map_err(wrong)
}

pub(super) fn wrong(error: anyhow::Error) -> Status {
    Status::invalid_argument(error.to_string())
}

/// A client.
#[derive(Clone)]
pub(crate) struct Stubs {
    plan: Plan,
    channels: Servers<ShapesClient<Channel>>,
}

impl Stubs {
    pub(crate) async fn start(at: SocketAddr, plan: Plan, servers: &Servers<Server>) -> Result<Self> {
        let (node, _) = Node::start(&NodeConfig::default().listen(at)).await?;
        let channel = |server: &Server| {
            let builder = Channel::builder(server.url.clone(), &pb::PATHCALL)?.node(node.clone());
            Ok(ShapesClient::new(builder.connect_lazy()?))
        };
        let channels = Servers::default();
        channels.are(servers.all().iter().map(channel).collect::<Result<_>>()?);
        Ok(Self { plan, channels })
    }
}

impl Way for Stubs {
    /// A call of a stub has one request: what a client begins with several is several.
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
