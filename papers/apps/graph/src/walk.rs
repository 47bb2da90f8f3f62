//! The queries over servers: passed from one to the next, or by a hub that asks one after the other.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use apps_report::nodes::{self, Host};
use pathcall::delegate::{Call, Directory, Handlers, Node, NodeConfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::Status;

use crate::part::{Part, StepError, about};
use crate::pb::graph_client::GraphClient;
use crate::pb::row::Row;
use crate::pb::step::At;
use crate::pb::{self, Found, Step};
use crate::query::{Query, sort};
use crate::world::World;

/// Who takes a query's steps from one server to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The servers: the call is passed on.
    PassedOn,
    /// The caller, who asks each server: remote calls.
    Hub,
}

/// Starts a server with its part of the network.
///
/// # Errors
/// When it has no port.
pub async fn serve(part: Part, node: NodeConfig, directory: Directory, listener: TcpListener) -> Result<Host> {
    let part = Arc::new(part);
    let servers = part.servers();
    let walk = move |step: Step, call: Call<Found>| {
        let part = Arc::clone(&part);
        async move {
            let at = step.at.ok_or_else(|| refused(StepError::Empty("nothing")))?;
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

/// The name of a server in the directory.
#[must_use]
pub fn name(server: u64) -> String {
    format!("graph-{server}")
}

/// All servers of a network, in this process and on free ports of the loopback; their URLs.
///
/// # Errors
/// When there is no port.
pub async fn serve_all(world: &World, servers: u64) -> Result<Vec<String>> {
    let (directory, mut at, mut urls) = (Directory::default(), Vec::new(), Vec::new());
    for server in 0..servers {
        let part = Part::new(world, server, servers);
        let listener = nodes::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let host = serve(part, NodeConfig::default(), directory.clone(), listener).await?;
        at.push((name(server), host.serving.address()));
        urls.push(host.url);
    }
    directory.set(at);
    Ok(urls)
}

/// Asks servers.
#[derive(Debug, Clone)]
pub struct Asker {
    servers: Vec<GraphClient<pathcall::Channel>>,
}

impl Asker {
    /// One that asks those at these URLs, in the servers' order. They answer to `node`.
    ///
    /// # Errors
    /// When there is none, or what is given is no URL.
    pub fn new(urls: &[String], node: &Node) -> Result<Self> {
        ensure!(!urls.is_empty(), "a network has at least one server");
        let stub = |url: &String| {
            let channel = nodes::channel(url, &pb::PATHCALL, node, nodes::options())?;
            Ok(GraphClient::new(channel).max_decoding_message_size(usize::MAX))
        };
        Ok(Self { servers: urls.iter().map(stub).collect::<Result<_>>()? })
    }

    /// The answer to a query, in order.
    ///
    /// # Errors
    /// NOT_FOUND where there is no such person or message, and whatever a call may fail with.
    pub async fn ask(&self, query: Query, id: u64, way: Way) -> Result<Vec<Row>, Status> {
        let mut rows = Vec::new();
        let hub = way == Way::Hub;
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

    /// All that a step leads to, whoever replies.
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

/// Which of so many servers takes a step.
fn server_of(at: Option<&At>, servers: u64) -> Result<u64, StepError> {
    Ok(about(at.ok_or(StepError::Empty("nothing"))?)? % servers)
}

fn refused(error: StepError) -> Status {
    match error {
        StepError::Missing { .. } => Status::not_found(error.to_string()),
        StepError::Empty(_) => Status::invalid_argument(error.to_string()),
    }
}

/// A node for answers.
///
/// # Errors
/// When there is no port.
pub async fn node(config: &NodeConfig) -> Result<Node> {
    Ok(Node::start(config).await.context("no node for the answers")?.0)
}
