//! Path of an application's calls, and its server, started for that path.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Error, Result};
use clap::Args;
use pathcall::Manifest;
use pathcall::channel::ClientStats;
use pathcall::manifest::MapPath;
use prost::Message;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};

use crate::party_hosts::PartyHosts;

/// Options of every application.
#[derive(Debug, Clone, Args)]
pub struct CallPath {
    /// Controller; without one, everything is done in software
    #[arg(long, value_name = "URL", conflicts_with = "plain")]
    pub controller: Option<String>,
    /// Path of the calls with a filter: automatic, element, software or direct [default: that of the filter]
    #[arg(long, value_name = "PATH", value_parser = parse_path, conflicts_with = "plain")]
    pub path: Option<MapPath>,
    /// Plain gRPC: the handler does the work
    #[arg(long)]
    pub plain: bool,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Hosts of the parties
    #[command(flatten)]
    pub places: PartyHosts,
}

/// Parses the name of a path.
///
/// # Errors
/// The names of all paths.
pub fn parse_path(name: &str) -> Result<MapPath, String> {
    let names = MapPath::ALL.map(MapPath::name).join(", ");
    MapPath::ALL.into_iter().find(|path| path.name() == name).ok_or_else(|| format!("expected one of {names}"))
}

/// Transport of a stub: a [`pathcall::Channel`], or tonic's own channel.
pub trait Transport: GrpcService<Body, ResponseBody = Body, Future: Send> + Clone + Send + 'static {}

impl<T> Transport for T where T: GrpcService<Body, ResponseBody = Body, Future: Send> + Clone + Send + 'static {}

/// Server on a free port.
#[derive(Debug)]
pub struct AppServer {
    /// URL of the server.
    pub url: String,
    server: Option<pathcall::Layer>,
}

impl CallPath {
    /// Starts a service, with Pathcall's layer unless the path is plain gRPC. It ends with the runtime.
    ///
    /// # Errors
    /// Returns an error if no port is free, or the controller refuses an application.
    pub async fn serve<S>(&self, service: S, manifest: &'static Manifest) -> Result<AppServer>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = std::convert::Infallible, Future: Send>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
    {
        self.places.serve(self.serve_here(Routes::new(service), manifest)).await
    }

    fn serve_here(&self, routes: Routes, manifest: &'static Manifest) -> BoxFuture<AppServer, Error> {
        let way = self.clone();
        Box::pin(async move {
            let listener =
                TcpListener::bind((way.places.serve_at, 0)).await.context("cannot bind the server's port")?;
            let url = format!("http://{}", listener.local_addr()?);
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            if way.plain {
                tokio::spawn(serve(routes, None, incoming));
                return Ok(AppServer { url, server: None });
            }
            let mut builder = pathcall::Layer::builder(manifest).advertise(&url).path(way.path);
            if let Some(controller) = &way.controller {
                builder = builder.controller(controller);
            }
            let server = builder.build().await?;
            tokio::spawn(serve(routes, Some(&server), incoming));
            Ok(AppServer { url, server: Some(server) })
        })
    }
}

/// Channel of Pathcall whose calls take this path, or that of their filter.
///
/// # Errors
/// Returns an error if no server answers at this URL.
pub fn pathcall_channel(
    url: String,
    manifest: &'static Manifest,
    path: Option<MapPath>,
) -> BoxFuture<pathcall::Channel, Error> {
    Box::pin(async move { Ok(pathcall::Channel::builder(url, manifest)?.path(path).connect().await?) })
}

/// Serves these routes, with Pathcall's layer or without, while polled. Boxed like [`tonic_channel`]: so the code below
/// is compiled once, and not with each application.
pub fn serve(
    routes: Routes,
    server: Option<&pathcall::Layer>,
    incoming: TcpIncoming,
) -> BoxFuture<(), tonic::transport::Error> {
    let builder = tonic::transport::Server::builder();
    match server.cloned() {
        None => Box::pin({ builder }.add_routes(routes).serve_with_incoming(incoming)),
        Some(layer) => Box::pin(builder.layer(layer).add_routes(routes).serve_with_incoming(incoming)),
    }
}

/// Channel of tonic.
///
/// # Errors
/// Returns an error if no server answers at this URL.
pub fn tonic_channel(url: String) -> BoxFuture<Channel, Error> {
    Box::pin(async move { Ok(Endpoint::from_shared(url)?.connect().await?) })
}

impl AppServer {
    /// Bytes of calls that reached the server: as map frames, and counted by handlers in `handled`.
    #[must_use]
    pub fn bytes(&self, handled: &Bytes) -> u64 {
        let applications = self.server.as_ref().map(pathcall::Layer::stats).unwrap_or_default();
        let frames: u64 = applications.iter().map(|app| app.map.lane_bytes_received + app.direct.bytes).sum();
        frames + handled.0.load(Ordering::Relaxed)
    }
}

/// Counter of bytes that reach a handler.
#[derive(Debug, Default)]
pub struct Bytes(AtomicU64);

impl Bytes {
    /// Counts a request.
    pub fn count(&self, request: &impl Message) {
        self.0.fetch_add(request.encoded_len() as u64, Ordering::Relaxed);
    }
}

/// Counts of values by place of processing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lanes {
    element: u64,
    software: u64,
}

impl Lanes {
    /// Adds the counts of a channel and its clones.
    pub fn count(&mut self, channel: &pathcall::Channel) {
        let applications = channel.stats().applications;
        let sum = |f: fn(&ClientStats) -> u64| applications.iter().map(|a| f(&a.map)).sum::<u64>();
        self.element += sum(|map| map.lanes_element);
        self.software += sum(|map| map.lanes_software);
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.element += other.element;
        self.software += other.software;
    }

    /// Share of the element, 0 to 1; `None` without values.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        let all = self.element + self.software;
        (all > 0).then(|| self.element as f64 / all as f64)
    }
}
