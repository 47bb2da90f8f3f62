//! Servers of the service in this process, and their clients, with Pathcall or as plain gRPC.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use apps_report::call_path;
use pathcall::channel::CloneOptions;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

use crate::load::{Kind, ReadCall};
use crate::objects::{SCAN, key};
use crate::pb::kv_client::KvClient;
use crate::pb::kv_server::KvServer;
use crate::pb::{Key, Keys, Object, PATHCALL};
use crate::plain::PlainClient;
use crate::service::{KvService, Waits};
use crate::store::Store;

const FREE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Configuration of the servers' work.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerConfig {
    /// Concurrent calls of a server.
    pub workers: usize,
    /// Emulated waits of a server.
    pub waits: Option<Waits>,
    /// Seed of the waits.
    pub seed: u64,
}

/// Running servers; dropping the value stops them.
#[derive(Debug, Default)]
pub struct Cluster {
    urls: Vec<String>,
    /// Layers of the servers; empty for plain gRPC.
    servers: Vec<pathcall::Layer>,
    tasks: JoinSet<Result<(), tonic::transport::Error>>,
}

/// Counts of a client's requests and redundant answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestCounts {
    /// Calls to the pool.
    pub calls: u64,
    /// Extra requests: clones, repeats, hedges.
    pub extra: u64,
    /// Answers to calls that already had one.
    pub redundant: u64,
}

/// Client of a cluster.
#[derive(Debug, Clone)]
pub enum Client {
    /// With Pathcall.
    Pathcall {
        /// Channel below the stub.
        channel: pathcall::Channel,
        /// Stub of the service.
        stub: KvClient<pathcall::Channel>,
    },
    /// Plain gRPC: each call goes to a random server.
    Plain(PlainClient),
}

impl Cluster {
    /// Starts a server on each store, in a pool; with the element if there is a controller.
    ///
    /// # Errors
    /// Returns an error if no port is free or the controller refuses a server.
    pub async fn pathcall(stores: &[Store], work: &WorkerConfig, controller: Option<&str>) -> Result<Self> {
        let mut cluster = Self::default();
        for (nth, store) in stores.iter().enumerate() {
            let (service, at) = (service(store, work, nth), listen(FREE).await?);
            cluster.add_pathcall(at, service, work.workers, controller, "").await?;
        }
        Ok(cluster)
    }

    /// Starts the servers as plain gRPC.
    ///
    /// # Errors
    /// Returns an error if no port is free.
    pub async fn plain(stores: &[Store], work: &WorkerConfig) -> Result<Self> {
        let mut cluster = Self::default();
        for (nth, store) in stores.iter().enumerate() {
            cluster.add_plain(listen(FREE).await?, service(store, work, nth).workers(work.workers));
        }
        Ok(cluster)
    }

    /// Starts one server at its own address: with Pathcall if `controller` is set, with the element of a rack if it names
    /// a controller.
    ///
    /// # Errors
    /// As for several servers.
    pub async fn alone(
        at: SocketAddr,
        store: &Store,
        work: &WorkerConfig,
        controller: Option<Option<&str>>,
        rack: &str,
    ) -> Result<Self> {
        let (at, service, mut cluster) = (listen(at).await?, service(store, work, 0), Self::default());
        match controller {
            Some(controller) => cluster.add_pathcall(at, service, work.workers, controller, rack).await?,
            None => cluster.add_plain(at, service.workers(work.workers)),
        }
        Ok(cluster)
    }

    /// URLs of the servers.
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    async fn add_pathcall(
        &mut self,
        (incoming, url): (TcpIncoming, String),
        service: KvService,
        workers: usize,
        controller: Option<&str>,
        rack: &str,
    ) -> Result<()> {
        let mut builder = pathcall::Layer::builder(&PATHCALL).advertise(&url).workers(workers).rack(rack);
        if let Some(controller) = controller {
            builder = builder.controller(controller);
        }
        let server = builder.build().await?;
        self.tasks.spawn(call_path::serve(Routes::new(KvServer::new(service)), Some(&server), incoming));
        self.urls.push(url);
        self.servers.push(server);
        Ok(())
    }

    fn add_plain(&mut self, (incoming, url): (TcpIncoming, String), service: KvService) {
        self.tasks.spawn(call_path::serve(Routes::new(KvServer::new(service)), None, incoming));
        self.urls.push(url);
    }

    /// Creates a client; with Pathcall, calls use the methods' options, or these options.
    ///
    /// # Errors
    /// Returns an error if the client does not connect.
    pub async fn client(&self, options: Option<CloneOptions>) -> Result<Client> {
        if self.servers.is_empty() {
            return Ok(Client::Plain(PlainClient::connect(&self.urls).await?));
        }
        Client::of_pool(&self.urls[0], "", options).await
    }

    /// Pathcall's layers, in the order of the stores; empty for plain gRPC.
    #[must_use]
    pub fn servers(&self) -> &[pathcall::Layer] {
        &self.servers
    }
}

impl Client {
    /// Creates a client, in a rack, of the pool of this server, as [`Cluster::client`].
    ///
    /// # Errors
    /// Returns an error if the client does not connect.
    pub async fn of_pool(server: &str, rack: &str, options: Option<CloneOptions>) -> Result<Self> {
        let mut builder = pathcall::Channel::builder(server.to_owned(), &PATHCALL)?.rack(rack);
        if let Some(options) = options {
            builder = builder.cloned(options);
        }
        let channel = builder.connect().await.context("cannot connect to the pool")?;
        Ok(Self::Pathcall { stub: KvClient::new(channel.clone()), channel })
    }

    /// Makes call number `nth`.
    ///
    /// # Errors
    /// Returns the error of the call; DATA_LOSS if the answer differs from a filled store.
    pub async fn read(&self, nth: u64, read: ReadCall) -> Result<Vec<Object>, Status> {
        let objects = match self {
            Self::Pathcall { stub, .. } => ask(stub.clone(), read).await?,
            Self::Plain(client) => client.read(nth, read).await?,
        };
        if read.is(&objects) { Ok(objects) } else { Err(Status::data_loss(format!("wrong objects for {read:?}"))) }
    }

    /// Request counts since the client connected; `None` for plain gRPC without hedging, which sends each call once.
    #[must_use]
    pub fn sent(&self) -> Option<RequestCounts> {
        match self {
            Self::Pathcall { channel, .. } => {
                let stats = channel.stats().pool;
                Some(RequestCounts { calls: stats.calls, extra: stats.extra(), redundant: stats.redundant })
            }
            Self::Plain(client) => client.sent(),
        }
    }
}

/// Makes a call by a stub.
pub(crate) async fn ask<T>(mut stub: KvClient<T>, read: ReadCall) -> Result<Vec<Object>, Status>
where
    T: tonic::client::GrpcService<
            tonic::body::Body,
            ResponseBody = tonic::body::Body,
            Error: Into<tonic::codegen::StdError>,
        >,
{
    let first = key(read.first).to_vec();
    match read.kind {
        Kind::Get => Ok(vec![stub.get(Key { key: first }).await?.into_inner()]),
        Kind::Scan => Ok(stub.scan(Keys { first, count: SCAN }).await?.into_inner().objects),
    }
}

fn service(store: &Store, work: &WorkerConfig, nth: usize) -> KvService {
    KvService::new(store.clone()).waits(work.waits, work.seed.wrapping_add(nth as u64))
}

async fn listen(at: SocketAddr) -> Result<(TcpIncoming, String)> {
    let listener = TcpListener::bind(at).await.with_context(|| format!("cannot start a gRPC server at {at}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok((TcpIncoming::from(listener).with_nodelay(Some(true)), url))
}
