//! Membership of this server in a pool: it joins, works on the requests of its queue, and sends the pool's table to
//! callers.
//!
//! ```text
//! controller ─ grants ─► membership ─┬─► the queue: address of the element, SID of this server
//!                                    └─► views ─► each caller that follows
//! queue ─ requests ─► answer ─► the services of the layer
//! ```
//!
//! The server joins when the layer is put around services: before, it could not answer. While the controller is
//! unreachable, the pool stays as it was, and callers are notified, since another server may have a later table. If the
//! controller registers the server under another endpoint, the membership starts again with another socket; the old
//! queue is drained.

mod answer;
mod view_stream;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pathcall_driver::clone::{CloneWorkerEvents, CloneWorkerHandle, PoolAddresses};
use pathcall_driver::link::Link;
use pathcall_endpoint::clone::{CloneWorkerConfig, MESSAGE_MAX};
use pathcall_proto::v1::{JoinPoolRequest, PoolGrant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::{Status, Streaming};

use self::answer::LateCounter;
use self::view_stream::Followers;
pub(super) use self::view_stream::{Follower, PoolViewStream};
use super::Services;
use super::registration::ControllerLink;
use crate::application::Catalogue;
use crate::cloned;
pub use pathcall_endpoint::clone::CloneWorkerStats;

/// Pauses between attempts to join: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Time limit for draining the queue when the server shuts down.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Configuration of a pool membership.
#[derive(Debug, Clone)]
pub(super) struct PoolMemberConfig {
    pub(super) name: String,
    pub(super) workers: usize,
    /// Maximum number of calls that are worked on at once.
    pub(super) begun_max: usize,
    pub(super) authenticate: bool,
    pub(super) service_address: String,
    /// Rack of this server; empty if none is named.
    pub(super) rack: String,
    /// Local address of frames; any, unless given.
    pub(super) data_address: Option<SocketAddr>,
    pub(super) shared_memory: bool,
}

/// Membership of a server in a pool.
#[derive(Debug)]
pub(super) struct PoolMember {
    shared: Arc<PoolMemberState>,
    started: AtomicBool,
    /// Ends with the layer.
    task: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct PoolMemberState {
    terms: PoolMemberConfig,
    catalogue: Catalogue,
    controller: ControllerLink,
    /// Current grant; none before the first.
    granted: watch::Sender<Option<CurrentGrant>>,
    followers: Followers,
    closed: watch::Receiver<bool>,
    queue: Mutex<Option<CloneWorkerHandle>>,
    late: LateCounter,
}

/// Grant of the controller.
#[derive(Debug, Clone)]
struct CurrentGrant {
    grant: Arc<PoolGrant>,
    /// Whether the controller has been lost since: the pool may have changed.
    outdated: bool,
}

/// Counters of a server's pool membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStats {
    /// Name of the pool.
    pub name: String,
    /// Number of servers in the pool; 0 if this server is not a member.
    pub servers: usize,
    /// Whether an element takes part.
    pub element: bool,
    /// Number of calls that this server works on at once.
    pub workers: usize,
    /// Number of waiting requests.
    pub waiting: usize,
    /// Number of requests whose time expired before a worker was free.
    pub late: u64,
    /// Counters of the queue.
    pub queue: CloneWorkerStats,
}

impl PoolMember {
    /// Name of the pool.
    pub(super) fn name(&self) -> &str {
        &self.shared.terms.name
    }

    /// Whether frames carry tokens.
    pub(super) fn authenticates(&self) -> bool {
        self.shared.terms.authenticate
    }

    pub(super) fn new(
        terms: PoolMemberConfig,
        catalogue: Catalogue,
        controller: ControllerLink,
        closed: watch::Receiver<bool>,
    ) -> Self {
        let (granted, queue) = (watch::Sender::new(None), Mutex::default());
        let late = LateCounter::new(terms.workers);
        let followers = Followers::default();
        let shared =
            Arc::new(PoolMemberState { terms, catalogue, controller, granted, followers, closed, queue, late });
        Self { shared, started: AtomicBool::new(false), task: Mutex::default() }
    }

    /// Joins the pool, with these services; has an effect once.
    pub(super) fn start<S: Services>(&self, services: S) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.started.swap(true, Ordering::Relaxed) {
            let keep = Arc::clone(&self.shared).run(services);
            lock(&self.task).spawn_on(keep, &runtime);
        }
    }

    /// Starts a stream of views for a caller; registers the caller's endpoint.
    pub(super) async fn follow(&self, follower: Follower) -> Result<PoolViewStream, Status> {
        let PoolMemberState { granted, controller, followers, closed, .. } = &*self.shared;
        let followers = followers.clone();
        PoolViewStream::begin(granted.subscribe(), controller.clone(), followers, closed.clone(), follower).await
    }

    pub(super) fn stats(&self) -> PoolStats {
        let granted = self.shared.granted.borrow().clone();
        let table = granted.as_ref().and_then(|granted| granted.grant.pool.as_ref());
        let queue = lock(&self.shared.queue).clone();
        PoolStats {
            name: self.shared.terms.name.clone(),
            servers: table.map_or(0, |table| table.servers.len()),
            element: table.is_some_and(|table| !table.element_address.is_empty()),
            workers: self.shared.terms.workers,
            waiting: queue.as_ref().map_or(0, CloneWorkerHandle::waiting),
            late: self.shared.late.count(),
            queue: queue.map(|queue| queue.stats()).unwrap_or_default(),
        }
    }
}

/// Reason for the end of a membership.
enum MembershipEnd {
    /// The server shuts down.
    Closed,
    /// The membership has to start again.
    Restart,
}

impl PoolMemberState {
    /// Stays in the pool until the server shuts down.
    async fn run<S: Services>(self: Arc<Self>, services: S) {
        // Requests that have begun are finished, even after the membership has changed.
        let mut working = JoinSet::new();
        loop {
            match self.run_membership(services.clone(), &mut working).await {
                MembershipEnd::Closed => break,
                MembershipEnd::Restart => {}
            }
            // Remove finished tasks.
            while working.try_join_next().is_some() {}
        }
        self.granted.send_replace(None);
        *lock(&self.queue) = None;
        let drained = async { while working.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN_MAX, drained).await;
    }

    /// Runs one membership: from binding a socket until the endpoint changes.
    async fn run_membership<S: Services>(&self, services: S, working: &mut JoinSet<()>) -> MembershipEnd {
        let mut pause = PAUSE_MIN;
        let link = loop {
            match super::builder::bind(self.terms.data_address, self.terms.shared_memory) {
                Ok(link) => break link,
                Err(error) => {
                    tracing::warn!(pool = self.terms.name, %error, "cannot open a UDP port for the pool's frames")
                }
            }
            if self.pause(&mut pause).await {
                return MembershipEnd::Closed;
            }
        };
        let incarnation = rand::random_range(1..=u32::MAX);
        let address = link.local_addr();
        let Some((grant, mut stream)) = self.join(address, incarnation).await else { return MembershipEnd::Closed };
        let (Some((queue, works)), endpoint) = (self.begin(&grant, incarnation, link), grant.endpoint) else {
            return if self.pause(&mut pause).await { MembershipEnd::Closed } else { MembershipEnd::Restart };
        };
        let gaid = grant.pool.as_ref().map(|table| table.gaid);
        let same =
            |grant: &PoolGrant| grant.endpoint == endpoint && grant.pool.as_ref().map(|table| table.gaid) == gaid;
        *lock(&self.queue) = Some(queue.clone());
        self.publish(grant);
        working.spawn(answer::answer_all(self.catalogue.clone(), services, works, self.late.clone()));
        loop {
            let mut closed = self.closed.clone();
            let grant = tokio::select! {
                grant = stream.message() => grant,
                _ = closed.wait_for(|closed| *closed) => return MembershipEnd::Closed,
            };
            let grant = match grant {
                Ok(Some(grant)) => grant,
                Ok(None) | Err(_) => {
                    tracing::warn!(
                        pool = self.terms.name,
                        "the connection to the controller is lost: keeping the current pool"
                    );
                    self.granted.send_modify(|granted| {
                        if let Some(granted) = granted {
                            granted.outdated = true;
                        }
                    });
                    let Some((grant, again)) = self.join(address, incarnation).await else {
                        return MembershipEnd::Closed;
                    };
                    stream = again;
                    grant
                }
            };
            if !same(&grant) {
                tracing::info!(pool = self.terms.name, "the controller has assigned another endpoint: joining again");
                return MembershipEnd::Restart;
            }
            if let Some((table, sid)) = self.table_and_sid(&grant) {
                queue.renew(table, sid.unwrap_or_default());
            }
            self.publish(grant);
        }
    }

    /// Publishes the grant to the callers that follow.
    fn publish(&self, grant: PoolGrant) {
        self.granted.send_replace(Some(CurrentGrant { grant: Arc::new(grant), outdated: false }));
    }

    /// Starts a queue for the grant, if it is valid.
    fn begin(&self, grant: &PoolGrant, incarnation: u32, link: Link) -> Option<(CloneWorkerHandle, CloneWorkerEvents)> {
        let Some((table, Some(sid))) = self.table_and_sid(grant) else {
            tracing::warn!(pool = self.terms.name, ?grant, "the controller granted an invalid pool");
            return None;
        };
        let key = grant.pool.as_ref().and_then(cloned::pool_key);
        let PoolMemberConfig { workers, begun_max, .. } = self.terms;
        let config = CloneWorkerConfig::new(table.pool.gaid, grant.endpoint, incarnation, sid, workers);
        let config = CloneWorkerConfig { begun_max, ..config };
        tracing::info!(pool = self.terms.name, servers = table.pool.servers.len(), "joined a pool");
        Some(CloneWorkerHandle::spawn(config, table, key, link))
    }

    /// Joins, with retries; `None` when the server shuts down.
    async fn join(&self, address: SocketAddr, incarnation: u32) -> Option<(PoolGrant, Streaming<PoolGrant>)> {
        let (mut pause, mut last_error) = (PAUSE_MIN, None);
        loop {
            match self.attempt(address, incarnation).await {
                Ok(joined) => return Some(joined),
                // Logged once, not at each attempt.
                Err(error) if last_error.as_deref() != Some(error.message()) => {
                    tracing::warn!(pool = self.terms.name, "cannot join the pool: {}", error.message());
                    last_error = Some(error.message().to_owned());
                }
                Err(_) => {}
            }
            if self.pause(&mut pause).await {
                return None;
            }
        }
    }

    async fn attempt(
        &self,
        mut address: SocketAddr,
        incarnation: u32,
    ) -> Result<(PoolGrant, Streaming<PoolGrant>), Status> {
        if address.ip().is_unspecified() {
            let ip = self.controller.local_ip().await;
            address.set_ip(ip.map_err(|error| Status::unavailable(error.to_string()))?);
        }
        let PoolMemberConfig { name, authenticate, service_address, rack, .. } = &self.terms;
        let request = JoinPoolRequest {
            name: name.clone(),
            data_address: address.to_string(),
            incarnation,
            service_address: service_address.clone(),
            authenticate: *authenticate,
            rack: rack.clone(),
        };
        self.controller.join_pool(request).await
    }

    /// Table of the pool, and this server's SID, if it has one.
    fn table_and_sid(&self, grant: &PoolGrant) -> Option<(PoolAddresses, Option<u16>)> {
        let table = cloned::pool_addresses(grant.pool.as_ref()?, &self.terms.rack).ok()?;
        let sid = table.pool.servers.iter().position(|server| *server == grant.endpoint);
        Some((table, sid.and_then(|sid| u16::try_from(sid).ok())))
    }

    /// Waits, longer each time; true when the server shuts down.
    async fn pause(&self, pause: &mut Duration) -> bool {
        let mut closed = self.closed.clone();
        let over = tokio::time::timeout(*pause, closed.wait_for(|closed| *closed)).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
        // A dropped sender means that the layer has been dropped.
        over.is_ok()
    }
}

/// Maximum size of a reply's message, bytes.
const REPLY_MAX: usize = MESSAGE_MAX;

/// Held briefly, by code that does not panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
