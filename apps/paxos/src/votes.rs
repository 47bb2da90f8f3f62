//! Server of the votes' application: the network, or Pathcall's layer here, counts; no handler is called.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use apps_report::call_path;
use pathcall::manifest::MapPath;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::pb;
use crate::pb::votes_server::{Votes, VotesServer};

/// Rows of the application in an element: counters of several ballots.
pub const ROWS: u32 = 4096;

/// Settings of the server.
#[derive(Debug, Clone)]
pub struct VotesOptions {
    /// Address to serve at.
    pub listen: SocketAddr,
    /// Controller, which has an element.
    pub controller: Option<String>,
    /// Path of the votes, or that of the filter.
    pub path: Option<MapPath>,
}

/// Running server; dropping it stops it.
#[derive(Debug)]
pub struct VotesServing {
    /// URL of the server.
    pub url: String,
    serving: JoinHandle<()>,
    /// Layer that owns the application.
    pub layer: pathcall::Layer,
}

impl Drop for VotesServing {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Starts the server.
///
/// # Errors
/// Returns an error if the address is in use, or the controller refuses the application.
pub async fn serve(options: VotesOptions) -> Result<VotesServing> {
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot start the server of votes at {}", options.listen))?;
    let url = format!("http://{}", listener.local_addr()?);
    let mut builder = pathcall::Layer::builder(&pb::PATHCALL).advertise(&url).memory(ROWS).path(options.path);
    if let Some(controller) = &options.controller {
        builder = builder.controller(controller);
    }
    let layer = builder.build().await?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = call_path::serve(Routes::new(VotesServer::new(NoHandler)), Some(&layer), incoming);
    // The replicas count by messages when this server has ended.
    Ok(VotesServing { url, serving: tokio::spawn(async move { drop(serving.await) }), layer })
}

/// Handler that is never called: requests have only typed fields.
#[derive(Debug, Clone, Copy)]
struct NoHandler;

#[tonic::async_trait]
impl Votes for NoHandler {
    async fn cast(&self, _: Request<pb::Vote>) -> Result<Response<pb::Decided>, Status> {
        Err(Status::unimplemented("votes need a channel of Pathcall"))
    }

    async fn clear(&self, _: Request<pb::Counters>) -> Result<Response<pb::Cleared>, Status> {
        Err(Status::unimplemented("counters need a channel of Pathcall"))
    }
}
