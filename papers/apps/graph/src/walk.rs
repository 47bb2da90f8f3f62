//! Queries over servers: delegated from one to the next, or by a hub that calls one after the other.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use apps_report::nodes::{self, NodeServer};
use pathcall::delegate::{DelegatedCall, Directory, Handlers, Node, NodeConfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::Status;

use crate::network::SocialNetwork;
use crate::part::{NetworkPart, StepError, about};
use crate::pb::graph_client::GraphClient;
use crate::pb::row::Row;
use crate::pb::step::At;
use crate::pb::{self, Found, Step};
use crate::query::{Query, sort};

/// Variant of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryVariant {
    /// Delegated call: servers pass the query on.
    Delegated,
    /// Remote calls: the caller calls each server.
    Hub,
}

/// Starts a server with its part of the network.
///
/// # Errors
/// Returns an error if the port is in use.
pub async fn serve(
    part: NetworkPart,
    node: NodeConfig,
    directory: Directory,
    listener: TcpListener,
) -> Result<NodeServer> {
    let part = Arc::new(part);
    let servers = part.servers();
    let walk = move |step: Step, call: DelegatedCall<Found>| {
        let part = Arc::clone(&part);
        async move {
            let at = step.at.ok_or_else(|| refused(StepError::Empty("an unknown query")))?;
            let led = part.step(at).map_err(refused)?;
            let rows = led.rows.into_iter().map(|row| pb::Row { row: Some(row) }).collect();
            let next = led.next.into_iter().map(|at| Step { hub: step.hub, at: Some(at) });
            let mut found = Found { rows, next: Vec::new() };
            if step.hub {
                found.next = next.collect();
            } else {
                for next in next {
                    let to = server_of(next.at.as_ref(), servers).map_err(refused)?;
                    call.delegate::<pb::delegated::GraphWalk>(&*name(to), &next)?;
                }
            }
            if found != Found::default() { call.reply(found).await } else { Ok(()) }
        }
    };
    let handlers = Handlers::new().node(node).directory(directory);
    nodes::host_on(&pb::PATHCALL, handlers.handle::<pb::delegated::GraphWalk, _, _>(walk), listener).await
}

/// Name of a server in the directory.
#[must_use]
pub fn name(server: u64) -> String {
    format!("graph-{server}")
}

/// Starts all servers of a network in this process, on free ports of the loopback; returns their URLs.
///
/// # Errors
/// Returns an error if no port is free.
pub async fn serve_all(network: &SocialNetwork, servers: u64) -> Result<Vec<String>> {
    let (directory, mut at, mut urls) = (Directory::default(), Vec::new(), Vec::new());
    for server in 0..servers {
        let part = NetworkPart::new(network, server, servers);
        let listener = nodes::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let host = serve(part, NodeConfig::default(), directory.clone(), listener).await?;
        at.push((name(server), host.serving.address()));
        urls.push(host.url);
    }
    directory.set(at);
    Ok(urls)
}

/// Client for queries.
#[derive(Debug, Clone)]
pub struct QueryClient {
    servers: Vec<GraphClient<pathcall::Channel>>,
}

impl QueryClient {
    /// Creates a client of the servers at these URLs, in the order of the servers. The servers reply to `node`.
    ///
    /// # Errors
    /// Returns an error if `urls` is empty or contains an invalid URL.
    pub fn new(urls: &[String], node: &Node) -> Result<Self> {
        ensure!(!urls.is_empty(), "a network has at least one server");
        let stub = |url: &String| {
            let channel = nodes::channel(url, &pb::PATHCALL, node, nodes::options())?;
            Ok(GraphClient::new(channel).max_decoding_message_size(usize::MAX))
        };
        Ok(Self { servers: urls.iter().map(stub).collect::<Result<_>>()? })
    }

    /// Answer to a query, in order.
    ///
    /// # Errors
    /// Returns NOT_FOUND if the person or message does not exist, or the error of a failed call.
    pub async fn ask(&self, query: Query, id: u64, variant: QueryVariant) -> Result<Vec<Row>, Status> {
        let mut rows = Vec::new();
        let hub = variant == QueryVariant::Hub;
        let begin = Step { hub, at: Some(query.begin(id)) };
        let mut found = self.clone().walk(begin).await?;
        let mut asked = JoinSet::new();
        loop {
            found.next.into_iter().for_each(|step| drop(asked.spawn(self.clone().walk(step))));
            rows.extend(found.rows.into_iter().filter_map(|row| row.row));
            found = match asked.join_next().await {
                Some(done) => done.map_err(|error| Status::internal(error.to_string()))??,
                None => break,
            };
        }
        sort(&mut rows);
        Ok(rows)
    }

    /// Collects the results of a step and of all steps after it, from any server.
    async fn walk(self, step: Step) -> Result<Found, Status> {
        let server = server_of(step.at.as_ref(), self.servers.len() as u64).map_err(refused)?;
        let mut replies = self.servers[server as usize].clone().walk(step).await?.into_inner();
        let mut all = Found::default();
        while let Some(found) = replies.message().await? {
            all.rows.extend(found.rows);
            all.next.extend(found.next);
        }
        Ok(all)
    }
}

/// Index of the server that executes a step.
fn server_of(at: Option<&At>, servers: u64) -> Result<u64, StepError> {
    Ok(about(at.ok_or(StepError::Empty("an unknown query"))?)? % servers)
}

fn refused(error: StepError) -> Status {
    match error {
        StepError::Missing { .. } => Status::not_found(error.to_string()),
        StepError::Empty(_) => Status::invalid_argument(error.to_string()),
    }
}

/// Starts a delegate node for the answers.
///
/// # Errors
/// Returns an error if no port is free.
pub async fn node(config: &NodeConfig) -> Result<Node> {
    Ok(Node::start(config).await.context("cannot start a node for the answers")?.0)
}
