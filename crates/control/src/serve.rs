//! Running controller: its socket, its engine, and the handle that stops both.

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
use crate::engine::{Engine, Message, random_key};
use crate::nodes::NodeDirectory;
use crate::service::Service;
use crate::state::{LeaseTiming, MemoryPolicy};
use crate::store::{Store, StoreLocation};

/// Default interval and time limit of keep-alive pings to silent peers: the loss of a peer is noticed, and its grace
/// period begins, within twice this time.
pub const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Maximum number of open calls and streams on one connection.
const STREAMS_MAX: u32 = 16_384;

/// Configuration of a controller.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Location of the store.
    pub store: StoreLocation,
    /// Times of leases.
    pub timing: LeaseTiming,
    /// Rules for the memory of elements.
    pub memory: MemoryPolicy,
    /// Interval of keep-alive pings, see [`KEEP_ALIVE`].
    pub keep_alive: Duration,
    /// Certificates and access rules.
    pub security: Security,
}

/// Setters.
impl Config {
    /// Sets [`Self::store`].
    #[must_use]
    pub fn store(mut self, store: StoreLocation) -> Self {
        self.store = store;
        self
    }

    /// Sets [`Self::timing`].
    #[must_use]
    pub fn timing(mut self, timing: LeaseTiming) -> Self {
        self.timing = timing;
        self
    }

    /// Sets [`Self::memory`].
    #[must_use]
    pub fn memory(mut self, memory: MemoryPolicy) -> Self {
        self.memory = memory;
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
            store: StoreLocation::default(),
            timing: LeaseTiming::default(),
            memory: MemoryPolicy::default(),
            keep_alive: KEEP_ALIVE,
            security: Security::default(),
        }
    }
}

/// Listens on `addr`; port 0 selects a free port.
///
/// # Errors
/// The address cannot be used.
pub async fn bind(addr: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(addr).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => Error::PortInUse { addr },
        io::ErrorKind::AddrNotAvailable => Error::NotLocal { addr },
        _ => Error::Bind { addr, source },
    })
}

/// Serves on `listener` until the handle is dropped or shut down. When this returns, the stored registrations are in
/// force again.
///
/// # Errors
/// Other hosts can reach the address and there are no certificates, or the store cannot be used; no task is left
/// running.
pub fn serve(listener: TcpListener, config: Config) -> BoxFuture<Handle, Error> {
    Box::pin(async move {
        let addr = listener.local_addr().map_err(|source| Error::Bind { addr: crate::LISTEN_DEFAULT, source })?;
        config.security.check("controller", addr)?;
        let (messages, received) = mpsc::unbounded_channel();
        let place = config.store;
        let security = config.security.clone();
        let opening = tokio::task::spawn_blocking(move || {
            let store = Store::open(&place)?;
            let key = store.nodes_key(random_key)?;
            let (engine, effects) = Engine::start(store, (config.timing, config.memory), security, received)?;
            Ok::<_, Error>((engine, effects, key))
        });
        let (engine, effects, key) = opening.await.map_err(Error::Defect)??;
        let nodes = NodeDirectory::new(boot_id(), key);
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

/// Random id of this start of the controller.
fn boot_id() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Runs a task of the controller and reports its failure.
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
        // The channel has room for one failure of each task.
        let _ = failure.try_send(error);
    })
}

/// Running controller; dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    addr: SocketAddr,
    url: String,
    /// Dropping it ends the engine, and with it all streams.
    messages: mpsc::UnboundedSender<Message>,
    /// Dropping it ends the streams of registered nodes.
    nodes: Arc<NodeDirectory>,
    /// Dropping it ends the server after its calls.
    stop: oneshot::Sender<()>,
    engine: JoinHandle<()>,
    server: JoinHandle<()>,
    failures: mpsc::Receiver<Error>,
}

impl Handle {
    /// Address on which the controller listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// URL of the controller: `http://ip:port`, or `https://ip:port` with certificates.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Waits until the controller ends because of an error, and returns the error, once.
    pub async fn failed(&mut self) -> Error {
        match self.failures.recv().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Stops the controller: ends all streams, answers the calls in progress, and closes socket and store before it
    /// returns. Registrations stay in the store.
    pub async fn shutdown(self) {
        let Self { messages, nodes, stop, engine, server, .. } = self;
        // The engine first: the server waits for its streams, which end with the engine. Neither task can fail:
        // failures have already been reported.
        drop((messages, nodes));
        let _ = engine.await;
        drop(stop);
        let _ = server.await;
    }
}
