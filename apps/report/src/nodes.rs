//! Servers with delegated methods, and channels to them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use pathcall::Manifest;
use pathcall::delegate::{CallOptions, Handlers, Node, RunningHandlers};
use tokio::net::TcpListener;
use tonic::codegen::BoxFuture;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

/// Time after which a call with silent servers fails: all parties may share two busy cores.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Default call options of applications.
#[must_use]
pub fn options() -> CallOptions {
    CallOptions::default().timeout(TIMEOUT)
}

/// Server with delegated methods only, which ends with its runtime.
#[derive(Debug)]
pub struct NodeServer {
    /// URL for callers.
    pub url: String,
    /// Handlers, to which other servers pass calls on.
    pub serving: RunningHandlers,
}

/// Starts a server; port 0 picks a free port.
///
/// # Errors
/// Returns an error if no port is free.
pub fn host(manifest: &'static Manifest, handlers: Handlers, listen: SocketAddr) -> BoxFuture<NodeServer, Error> {
    Box::pin(async move { host_on(manifest, handlers, bind(listen).await?).await })
}

/// Binds the socket of a server, so that its URL is known before it starts.
///
/// # Errors
/// Returns an error if no port is free.
pub async fn bind(listen: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(listen).await.with_context(|| format!("cannot start a gRPC server at {listen}"))
}

/// Starts a server on its socket.
///
/// # Errors
/// Returns an error if its node has no port.
pub fn host_on(manifest: &'static Manifest, handlers: Handlers, listener: TcpListener) -> BoxFuture<NodeServer, Error> {
    Box::pin(async move {
        let url = format!("http://{}", listener.local_addr()?);
        let serving = handlers.start().await?;
        let server = pathcall::Layer::builder(manifest).handlers(serving.clone()).build().await?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tokio::spawn(crate::call_path::serve(Routes::default(), Some(&server), incoming));
        Ok(NodeServer { url, serving })
    })
}

/// Channel that connects on its first call and uses this node.
///
/// # Errors
/// Returns an error if the URL is invalid.
pub fn channel(url: &str, manifest: &'static Manifest, node: &Node, options: CallOptions) -> Result<pathcall::Channel> {
    let builder = pathcall::Channel::builder(url.to_owned(), manifest)?;
    builder
        .node(node.clone())
        .call_options(options)
        .connect_lazy()
        .with_context(|| format!("cannot create a channel to {url}"))
}
