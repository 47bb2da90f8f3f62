//! Plain tonic: hub and spoke, where the caller asks each server; and nested, where each server asks the next.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use super::Way;
use super::stubs::{Item, Items, Plain, PlainClient, PlainServer, Step, read, wrong};
use crate::dpc::plan::{Place, Plan, Servers};
use crate::net::serve_plain_at;

/// A server, and what it needs to ask others.
#[derive(Clone)]
pub(crate) struct Handler {
    plan: Plan,
    channels: Servers<PlainClient<Channel>>,
}

/// Starts one, which runs as long as the runtime does; it asks others once [`meet`] has told it of them.
pub(crate) async fn serve(at: SocketAddr, plan: Plan) -> Result<(String, Handler)> {
    let handler = Handler { plan, channels: Servers::default() };
    Ok((serve_plain_at(at, PlainServer::new(handler.clone())).await?, handler))
}

/// Tells a server of all, itself included. On its own runtime: channels belong to one.
pub(crate) fn meet(handler: &Handler, urls: &[String]) -> Result<()> {
    handler.channels.are(channels(urls)?);
    Ok(())
}

fn channels(urls: &[String]) -> Result<Vec<PlainClient<Channel>>> {
    let channel = |url: &String| Ok(PlainClient::new(Endpoint::from_shared(url.clone())?.connect_lazy()));
    urls.iter().map(channel).collect()
}

#[tonic::async_trait]
impl Plain for Handler {
    async fn ask(&self, request: Request<Step>) -> Result<Response<Item>, Status> {
        Ok(Response::new(Item { place: request.into_inner().place }))
    }

    async fn nest(&self, request: Request<Step>) -> Result<Response<Items>, Status> {
        let place = request.into_inner().place;
        let (next, replies) = self.plan.after(&read(&place)?).map_err(wrong)?;
        let mut items = vec![Item { place }; replies as usize];
        items.extend(nested(&self.channels, next).await?);
        Ok(Response::new(Items { items }))
    }
}

/// Asks all of these at once, and for all that they lead to.
async fn nested(channels: &Servers<PlainClient<Channel>>, places: Vec<Place>) -> Result<Vec<Item>, Status> {
    let mut asked = JoinSet::new();
    for place in places {
        let mut stub = channels.of(&place).map_err(wrong)?;
        asked.spawn(async move { stub.nest(step(&place)).await });
    }
    let mut items = Vec::new();
    while let Some(answer) = asked.join_next().await {
        items.extend(answer.map_err(|error| Status::internal(error.to_string()))??.into_inner().items);
    }
    Ok(items)
}

fn step(place: &Place) -> Step {
    Step { place: place.payload().to_vec() }
}

/// Hub and spoke.
#[derive(Clone)]
pub(crate) struct Hub(Handler);

/// Each server asks the next.
#[derive(Clone)]
pub(crate) struct Nested(Handler);

impl Hub {
    pub(crate) fn start(plan: Plan, urls: &[String]) -> Result<Self> {
        let channels = Servers::default();
        channels.are(self::channels(urls)?);
        Ok(Self(Handler { plan, channels }))
    }

    /// The same client, whose servers ask.
    pub(crate) fn nested(&self) -> Nested {
        Nested(self.0.clone())
    }
}

impl Way for Hub {
    async fn call(&self, pattern: usize) -> Result<()> {
        let Handler { plan, channels } = &self.0;
        let mut asked = JoinSet::new();
        let mut asks = plan.roots(pattern);
        loop {
            for place in std::mem::take(&mut asks) {
                let mut stub = channels.of(&place)?;
                asked.spawn(async move { stub.ask(step(&place)).await });
            }
            let Some(answer) = asked.join_next().await else { return Ok(()) };
            asks = plan.after(&Place::read(&answer??.into_inner().place)?)?.0;
        }
    }
}

impl Way for Nested {
    async fn call(&self, pattern: usize) -> Result<()> {
        let Handler { plan, channels } = &self.0;
        let replies = nested(channels, plan.roots(pattern)).await?.len() as u64;
        let expected = plan.patterns()[pattern].replies();
        ensure!(replies == expected, "{replies} replies, not {expected}");
        Ok(())
    }
}
