//! Servers whose methods may be passed on, and channels to them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use pathcall::Manifest;
use pathcall::delegate::{CallOptions, Handlers, Node, Serving};
use tokio::net::TcpListener;
use tonic::codegen::BoxFuture;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

/// A call whose servers are silent for so long has failed: all parties may share two busy cores.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How applications call, unless they say otherwise.
#[must_use]
pub fn options() -> CallOptions {
    CallOptions::default().timeout(TIMEOUT)
}

/// A server of such methods, and of nothing else. It runs as long as its runtime does.
#[derive(Debug)]
pub struct Host {
    /// Where callers find it.
    pub url: String,
    /// Its handlers: where other servers pass calls on to.
    pub serving: Serving,
}

/// Starts one; port 0 is a free one.
///
/// # Errors
/// When there is no port.
pub fn host(manifest: &'static Manifest, handlers: Handlers, listen: SocketAddr) -> BoxFuture<Host, Error> {
    Box::pin(async move { host_on(manifest, handlers, bind(listen).await?).await })
}

/// A place for a server: its URL is known before it starts.
///
/// # Errors
/// When there is no port.
pub async fn bind(listen: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(listen).await.with_context(|| format!("no gRPC server at {listen}"))
}

/// Starts one at its place.
///
/// # Errors
/// When its node has no port.
pub fn host_on(manifest: &'static Manifest, handlers: Handlers, listener: TcpListener) -> BoxFuture<Host, Error> {
    Box::pin(async move {
        let url = format!("http://{}", listener.local_addr()?);
        let serving = handlers.start().await?;
        let server = pathcall::Server::builder(manifest).handlers(serving.clone()).build().await?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tokio::spawn(crate::way::serve(Routes::default(), Some(&server), incoming));
        Ok(Host { url, serving })
    })
}

/// A channel that connects at its first call, and calls by this node.
///
/// # Errors
/// When the URL is none.
pub fn channel(url: &str, manifest: &'static Manifest, node: &Node, options: CallOptions) -> Result<pathcall::Channel> {
    let builder = pathcall::Channel::builder(url.to_owned(), manifest)?;
    builder.node(node.clone()).call_options(options).connect_lazy().with_context(|| format!("no channel to {url}"))
}
