//! Servers of the service, all in this process, and clients of them: by pathcall, or by plain gRPC.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use apps_load::Random;
use apps_report::way::{self, tonic_channel};
use pathcall::channel::CloneOptions;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

use crate::load::{Kind, Read};
use crate::objects::{SCAN, key};
use crate::pb::kv_client::KvClient;
use crate::pb::kv_server::KvServer;
use crate::pb::{Key, Keys, Object, PATHCALL};
use crate::service::{KvService, Waits};
use crate::store::Store;

const FREE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How servers work.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Calls that a server works on at once.
    pub workers: usize,
    /// What it waits for.
    pub waits: Option<Waits>,
    /// Waits are drawn from this.
    pub seed: u64,
}

/// Servers, as long as it lives.
#[derive(Debug, Default)]
pub struct Cluster {
    urls: Vec<String>,
    /// None of plain ones.
    servers: Vec<pathcall::Server>,
    tasks: JoinSet<Result<(), tonic::transport::Error>>,
}

/// What a client sent, and what came that it did not want.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Calls that went to the pool.
    pub calls: u64,
    /// Requests beyond one for each of them: clones, repeats, hedges.
    pub extra: u64,
    /// Answers to calls that had one.
    pub redundant: u64,
}

/// Reads from a cluster.
#[derive(Debug, Clone)]
pub enum Client {
    /// By pathcall.
    Pathcall {
        /// Under the stub.
        channel: pathcall::Channel,
        /// The stub.
        stub: KvClient<pathcall::Channel>,
    },
    /// By plain gRPC: each call goes to a server at random.
    Plain(Arc<[KvClient<tonic::transport::Channel>]>),
}

impl Cluster {
    /// A server on each store, in a pool; by the element where there is a controller.
    ///
    /// # Errors
    /// When there is no port, or the controller refuses a server.
    pub async fn pathcall(stores: &[Store], work: &Work, controller: Option<&str>) -> Result<Self> {
        let mut cluster = Self::default();
        for (nth, store) in stores.iter().enumerate() {
            let (service, at) = (service(store, work, nth), listen(FREE).await?);
            cluster.add_pathcall(at, service, work.workers, controller).await?;
        }
        Ok(cluster)
    }

    /// The same without pathcall.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn plain(stores: &[Store], work: &Work) -> Result<Self> {
        let mut cluster = Self::default();
        for (nth, store) in stores.iter().enumerate() {
            cluster.add_plain(listen(FREE).await?, service(store, work, nth).workers(work.workers));
        }
        Ok(cluster)
    }

    /// One server at an address of its own, with pathcall if `controller` says so, by the element if it names one.
    ///
    /// # Errors
    /// As for many.
    pub async fn alone(at: SocketAddr, store: &Store, work: &Work, controller: Option<Option<&str>>) -> Result<Self> {
        let (at, service, mut cluster) = (listen(at).await?, service(store, work, 0), Self::default());
        match controller {
            Some(controller) => cluster.add_pathcall(at, service, work.workers, controller).await?,
            None => cluster.add_plain(at, service.workers(work.workers)),
        }
        Ok(cluster)
    }

    /// Where its servers are.
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
    ) -> Result<()> {
        let mut builder = pathcall::Server::builder(&PATHCALL).advertise(&url).workers(workers);
        if let Some(controller) = controller {
            builder = builder.controller(controller);
        }
        let server = builder.build().await?;
        self.tasks.spawn(way::serve(Routes::new(KvServer::new(service)), Some(&server), incoming));
        self.urls.push(url);
        self.servers.push(server);
        Ok(())
    }

    fn add_plain(&mut self, (incoming, url): (TcpIncoming, String), service: KvService) {
        self.tasks.spawn(way::serve(Routes::new(KvServer::new(service)), None, incoming));
        self.urls.push(url);
    }

    /// A client; of pathcall's servers, one whose calls are made as their methods say, or with these options.
    ///
    /// # Errors
    /// When it does not connect.
    pub async fn client(&self, options: Option<CloneOptions>) -> Result<Client> {
        if self.servers.is_empty() {
            let mut stubs = Vec::new();
            for url in &self.urls {
                stubs.push(KvClient::new(tonic_channel(url.clone()).await.context("no plain channel")?));
            }
            return Ok(Client::Plain(stubs.into()));
        }
        Client::of_pool(&self.urls[0], options).await
    }

    /// The servers' ends of pathcall, in the order of their stores; none of plain ones.
    #[must_use]
    pub fn servers(&self) -> &[pathcall::Server] {
        &self.servers
    }
}

impl Client {
    /// Reads from the pool of this server; as [`Cluster::client`].
    ///
    /// # Errors
    /// When it does not connect.
    pub async fn of_pool(server: &str, options: Option<CloneOptions>) -> Result<Self> {
        let mut builder = pathcall::Channel::builder(server.to_owned(), &PATHCALL)?;
        if let Some(options) = options {
            builder = builder.cloned(options);
        }
        let channel = builder.connect().await.context("no channel")?;
        Ok(Self::Pathcall { stub: KvClient::new(channel.clone()), channel })
    }

    /// Makes call number `nth`.
    ///
    /// # Errors
    /// Those of the call; DATA_LOSS when it has not got what a filled store has.
    pub async fn read(&self, nth: u64, read: Read) -> Result<Vec<Object>, Status> {
        let objects = match self {
            Self::Pathcall { stub, .. } => ask(stub.clone(), read).await?,
            Self::Plain(stubs) => {
                let server = Random::new(nth).below(stubs.len() as u64) as usize;
                ask(stubs[server].clone(), read).await?
            }
        };
        if read.is(&objects) { Ok(objects) } else { Err(Status::data_loss(format!("wrong objects for {read:?}"))) }
    }

    /// What it has sent since it connected; nothing is known of plain gRPC, which sends each call once.
    #[must_use]
    pub fn sent(&self) -> Option<Sent> {
        match self {
            Self::Pathcall { channel, .. } => {
                let stats = channel.stats().pool;
                let extra = stats.cloned + stats.twice + stats.repeated + stats.hedged;
                Some(Sent { calls: stats.calls, extra, redundant: stats.redundant })
            }
            Self::Plain(_) => None,
        }
    }
}

async fn ask<T>(mut stub: KvClient<T>, read: Read) -> Result<Vec<Object>, Status>
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

fn service(store: &Store, work: &Work, nth: usize) -> KvService {
    KvService::new(store.clone()).waits(work.waits, work.seed.wrapping_add(nth as u64))
}

async fn listen(at: SocketAddr) -> Result<(TcpIncoming, String)> {
    let listener = TcpListener::bind(at).await.with_context(|| format!("no gRPC server at {at}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok((TcpIncoming::from(listener).with_nodelay(Some(true)), url))
}
