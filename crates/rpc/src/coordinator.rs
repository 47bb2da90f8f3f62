//! A coordinator of a pool: what clones calls in a host, where NetClone does it in the network (LÆDGE; NetClone
//! §2.2). To be compared with; channels go by it with [`Builder::coordinator`](crate::channel::builder::Builder::coordinator)
//! and [`Scheme::Coordinator`](crate::channel::Scheme::Coordinator).
//!
//! ```text
//! channels ── requests ─► Coordinator ── to two idle servers, one, or nobody yet ─► servers
//!          ◄─ answers ───     ▲       ◄── every answer ────────────────────────────
//!                             └─ FollowPool: who is in the pool, and where
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use pathcall_endpoint::clone::CoordinatorConfig;
pub use pathcall_endpoint::clone::CoordinatorStats;
use pathcall_endpoint::driver::clone::CoordinatorHandle;
use pathcall_endpoint::driver::link::Link;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{FollowPoolRequest, PoolView};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use crate::cloned::table;

/// Requests that wait at most; others are asked again by their callers.
const QUEUE_MAX: usize = 1 << 14;
/// A request that no server has answered for so long is taken for lost.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// What frames say that they came by. Elements are numbered from 1.
const SWITCH_ID: u16 = u16::MAX;
/// Pause before the pool is followed again.
const AGAIN: Duration = Duration::from_millis(200);

/// A running coordinator; dropping it stops it.
#[derive(Debug)]
pub struct Coordinator {
    address: SocketAddr,
    handle: CoordinatorHandle,
    _follow: JoinSet<()>,
}

impl Coordinator {
    /// Coordinates the pool of the server at `http://host:port`, from this UDP address. A server has so many workers,
    /// see [`server::Builder::workers`](crate::server::Builder::workers).
    ///
    /// # Errors
    /// When the server is not reached or in no pool, or the address can't be had.
    pub async fn start(server: &str, listen: SocketAddr, workers: usize) -> Result<Self, Status> {
        let unavailable = |error: &dyn std::fmt::Display| Status::unavailable(format!("{server}: {error}"));
        let endpoint = Endpoint::from_shared(server.to_owned()).map_err(|error| unavailable(&error))?;
        let channel = endpoint.connect().await.map_err(|error| unavailable(&error))?;
        let link =
            Link::bind(listen).map_err(|error| Status::unavailable(format!("no UDP port at {listen}: {error}")))?;
        let address = link.local_addr();
        let me = FollowPoolRequest { udp_port: address.port().into(), incarnation: rand::random_range(1..=u32::MAX) };
        let (view, stream) = follow(&channel, me).await?;
        let said = view.pool.as_ref().ok_or_else(|| Status::internal("a view of no pool"))?;
        let table = table::read(said)?;
        let config = CoordinatorConfig {
            pool: table.pool.clone(),
            switch_id: SWITCH_ID,
            workers: workers.max(1),
            queue_max: QUEUE_MAX,
            lost_after: LOST_AFTER,
            seed: rand::random(),
        };
        let handle = CoordinatorHandle::spawn(config, table, table::key(said), link);
        let mut follow = JoinSet::new();
        follow.spawn(keep(channel, me, stream, handle.clone()));
        Ok(Self { address, handle, _follow: follow })
    }

    /// Where requests go.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> CoordinatorStats {
        self.handle.stats()
    }
}

/// Tells the coordinator of changes of its pool, as long as it is there.
async fn keep(channel: Channel, me: FollowPoolRequest, mut stream: Streaming<PoolView>, handle: CoordinatorHandle) {
    loop {
        while let Ok(Some(view)) = stream.message().await {
            if let Some(Ok(table)) = view.pool.as_ref().map(table::read) {
                handle.renew(table);
            }
        }
        stream = loop {
            tokio::time::sleep(AGAIN).await;
            if let Ok((view, again)) = follow(&channel, me).await {
                if let Some(Ok(table)) = view.pool.as_ref().map(table::read) {
                    handle.renew(table);
                }
                break again;
            }
        };
    }
}

async fn follow(channel: &Channel, me: FollowPoolRequest) -> Result<(PoolView, Streaming<PoolView>), Status> {
    let mut stream = PeerClient::new(channel.clone()).follow_pool(me).await?.into_inner();
    let view = stream.message().await?;
    view.map(|view| (view, stream)).ok_or_else(|| Status::unavailable("the server ended the stream"))
}
