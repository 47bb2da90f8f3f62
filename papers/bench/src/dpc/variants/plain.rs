//! Plain tonic: hub and spoke, where the caller calls each server; and nested, where each server calls the next one.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use super::CallVariant;
use super::stubs::{Item, Items, Plain, PlainClient, PlainServer, Step, read, status};
use crate::dpc::plan::{RequestPath, Servers, WorkPlan};
use crate::net::serve_plain_at;

/// Server with the channels to the others.
#[derive(Clone)]
pub(crate) struct PlainHandler {
    plan: WorkPlan,
    channels: Servers<PlainClient<Channel>>,
}

/// Starts a server, which runs as long as the runtime. It can call the others after [`connect_all`].
pub(crate) async fn serve(at: SocketAddr, plan: WorkPlan) -> Result<(String, PlainHandler)> {
    let handler = PlainHandler { plan, channels: Servers::default() };
    Ok((serve_plain_at(at, PlainServer::new(handler.clone())).await?, handler))
}

/// Connects a server to all servers, itself included. Runs on the server's runtime, to which channels are bound.
pub(crate) fn connect_all(handler: &PlainHandler, urls: &[String]) -> Result<()> {
    handler.channels.set(channels(urls)?);
    Ok(())
}

fn channels(urls: &[String]) -> Result<Vec<PlainClient<Channel>>> {
    let channel = |url: &String| Ok(PlainClient::new(Endpoint::from_shared(url.clone())?.connect_lazy()));
    urls.iter().map(channel).collect()
}

#[tonic::async_trait]
impl Plain for PlainHandler {
    async fn ask(&self, request: Request<Step>) -> Result<Response<Item>, Status> {
        Ok(Response::new(Item { place: request.into_inner().place }))
    }

    async fn nest(&self, request: Request<Step>) -> Result<Response<Items>, Status> {
        let place = request.into_inner().place;
        let (next, replies) = self.plan.after(&read(&place)?).map_err(status)?;
        let mut items = vec![Item { place }; replies as usize];
        items.extend(nested(&self.channels, next).await?);
        Ok(Response::new(Items { items }))
    }
}

/// Makes these calls concurrently, and all calls that follow from them.
async fn nested(channels: &Servers<PlainClient<Channel>>, places: Vec<RequestPath>) -> Result<Vec<Item>, Status> {
    let mut asked = JoinSet::new();
    for place in places {
        let mut stub = channels.of(&place).map_err(status)?;
        asked.spawn(async move { stub.nest(step(&place)).await });
    }
    let mut items = Vec::new();
    while let Some(answer) = asked.join_next().await {
        items.extend(answer.map_err(|error| Status::internal(error.to_string()))??.into_inner().items);
    }
    Ok(items)
}

fn step(place: &RequestPath) -> Step {
    Step { place: place.payload().to_vec() }
}

/// Hub and spoke.
#[derive(Clone)]
pub(crate) struct Hub(PlainHandler);

/// Nested calls: each server calls the next one.
#[derive(Clone)]
pub(crate) struct Nested(PlainHandler);

impl Hub {
    pub(crate) fn start(plan: WorkPlan, urls: &[String]) -> Result<Self> {
        let channels = Servers::default();
        channels.set(self::channels(urls)?);
        Ok(Self(PlainHandler { plan, channels }))
    }

    /// Client of nested calls to the same servers.
    pub(crate) fn nested(&self) -> Nested {
        Nested(self.0.clone())
    }
}

impl CallVariant for Hub {
    async fn call(&self, pattern: usize) -> Result<()> {
        let PlainHandler { plan, channels } = &self.0;
        let mut asked = JoinSet::new();
        let mut asks = plan.roots(pattern);
        loop {
            for place in std::mem::take(&mut asks) {
                let mut stub = channels.of(&place)?;
                asked.spawn(async move { stub.ask(step(&place)).await });
            }
            let Some(answer) = asked.join_next().await else { return Ok(()) };
            asks = plan.after(&RequestPath::read(&answer??.into_inner().place)?)?.0;
        }
    }
}

impl CallVariant for Nested {
    async fn call(&self, pattern: usize) -> Result<()> {
        let PlainHandler { plan, channels } = &self.0;
        let replies = nested(channels, plan.roots(pattern)).await?.len() as u64;
        let expected = plan.patterns()[pattern].replies();
        ensure!(replies == expected, "{replies} replies, not {expected}");
        Ok(())
    }
}
