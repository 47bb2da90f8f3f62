//! A running controller: its socket, its engine, and the handle that stops both.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pathcall_auth::Security;
use pathcall_proto::v1::controller_server::ControllerServer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::codegen::BoxFuture;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::Error;
use crate::engine::{Engine, Message, draw_key};
use crate::nodes::Nodes;
use crate::service::Service;
use crate::state::Timing;
use crate::store::{Place, Store};

/// How often a silent peer is asked whether it lives, and how long it may take to answer: a peer
/// that is gone without a word is noticed, and its grace period begins, within twice this.
pub const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Calls and streams that one connection may have open.
const STREAMS_MAX: u32 = 16_384;

/// What a controller is started with.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Where registrations are kept.
    pub store: Place,
    /// The times that leases go by.
    pub timing: Timing,
    /// [`KEEP_ALIVE`].
    pub keep_alive: Duration,
    /// Who may take part.
    pub security: Security,
}

/// Each field by a method.
impl Config {
    /// Sets [`Self::store`].
    #[must_use]
    pub fn store(mut self, store: Place) -> Self {
        self.store = store;
        self
    }

    /// Sets [`Self::timing`].
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets [`Self::keep_alive`].
    #[must_use]
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// Sets [`Self::security`].
    #[must_use]
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store: Place::default(),
            timing: Timing::default(),
            keep_alive: KEEP_ALIVE,
            security: Security::default(),
        }
    }
}

/// Listens on `addr`; port 0 takes a free port.
///
/// # Errors
/// When the address can't be had.
pub async fn bind(addr: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(addr).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => Error::PortInUse { addr },
        io::ErrorKind::AddrNotAvailable => Error::NotLocal { addr },
        _ => Error::Bind { addr, source },
    })
}

/// Serves on `listener` until the handle is dropped or shut down. Registrations that the store has
/// are in force again when this returns.
///
/// # Errors
/// When others reach it and it has no certificates, or the store can't be used; nothing is left running.
pub fn serve(listener: TcpListener, config: Config) -> BoxFuture<Handle, Error> {
    Box::pin(async move {
        let addr = listener.local_addr().map_err(|source| Error::Bind { addr: crate::LISTEN_DEFAULT, source })?;
        config.security.check("controller", addr)?;
        let (messages, received) = mpsc::unbounded_channel();
        let place = config.store;
        let security = config.security.clone();
        let opening = tokio::task::spawn_blocking(move || {
            let store = Store::open(&place)?;
            let key = store.nodes_key(draw_key)?;
            let (engine, effects) = Engine::start(store, config.timing, security, received)?;
            Ok::<_, Error>((engine, effects, key))
        });
        let (engine, effects, key) = opening.await.map_err(Error::Defect)??;
        let nodes = Nodes::new(boot_id(), key);
        let service =
            ControllerServer::new(Service::new(messages.downgrade(), Arc::downgrade(&nodes), config.security.scheme()));
        let (failure, failures) = mpsc::channel(2);
        let engine = supervise(failure.clone(), engine.run(effects));

        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::builder()
            .http2_keepalive_interval(Some(config.keep_alive))
            .http2_keepalive_timeout(Some(config.keep_alive))
            .max_concurrent_streams(STREAMS_MAX);
        let url = format!("{}://{addr}", config.security.scheme());
        let security = config.security;
        let server = supervise(failure, async move {
            let stopped = async { drop(stopped.await) };
            security.serve(server, Routes::new(service), listener, stopped).await.map_err(Error::Serve)
        });
        tracing::info!(%addr, "controller started");
        Ok(Handle { addr, url, messages, nodes, stop, engine, server, failures })
    })
}

/// Tells this start of a controller from others.
fn boot_id() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Runs a part of the controller; if it fails, that is reported.
fn supervise<E>(
    failure: mpsc::Sender<Error>,
    part: impl Future<Output = Result<(), E>> + Send + 'static,
) -> JoinHandle<()>
where
    Error: From<E>,
    E: Send + 'static,
{
    let part = tokio::spawn(part);
    tokio::spawn(async move {
        let error = match part.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.into(),
            Err(error) => Error::Defect(error),
        };
        tracing::error!(%error, "the controller has ended");
        // There is room for one of each part.
        let _ = failure.try_send(error);
    })
}

/// A running controller; dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    addr: SocketAddr,
    url: String,
    /// Dropping it ends the engine, and with it all streams.
    messages: mpsc::UnboundedSender<Message>,
    /// The same of those by which nodes are registered.
    nodes: Arc<Nodes>,
    /// Dropping it ends the server once its calls are answered.
    stop: oneshot::Sender<()>,
    engine: JoinHandle<()>,
    server: JoinHandle<()>,
    failures: mpsc::Receiver<Error>,
}

impl Handle {
    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://ip:port`, or `https://ip:port` where certificates are shown, for those who register.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Waits until the controller ends by itself, which it does only for an error: the reason is
    /// returned, once.
    pub async fn failed(&mut self) -> Error {
        match self.failures.recv().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Stops: ends all streams, answers the calls that have begun, and closes socket and store
    /// before it returns. What is registered stays in the store.
    pub async fn shutdown(self) {
        let Self { messages, nodes, stop, engine, server, .. } = self;
        // The engine first: the server waits for its streams, which end with the engine. Neither
        // task can fail: what they supervise has reported it.
        drop((messages, nodes));
        let _ = engine.await;
        drop(stop);
        let _ = server.await;
    }
}
