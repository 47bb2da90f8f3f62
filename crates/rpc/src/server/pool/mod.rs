//! This server's part in a pool: it joins, works on what its queue gives it, and tells callers who else is there.
//!
//! ```text
//! controller ─ grants ─► membership ─┬─► the queue: where the element is, which SID it has
//!                                    └─► views ─► each caller that follows
//! queue ─ requests ─► answer ─► the services of the layer
//! ```
//!
//! It joins when its layer is put around services: before, there is nothing to answer with. While the controller
//! can't be reached everything goes on as it was, and callers are told so: another server may know more. When it is
//! known there under another endpoint than before it begins anew, with another socket; the queue before it is
//! emptied.

mod answer;
mod late;
mod views;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pathcall_endpoint::clone::{MESSAGE_MAX, WorkerConfig};
use pathcall_endpoint::driver::clone::{WorkerHandle, Works};
use pathcall_endpoint::driver::link::Link;
use pathcall_proto::v1::{JoinPoolRequest, PoolGrant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::{Status, Streaming};

use self::late::Late;
use self::views::Followers;
pub(super) use self::views::Views;
use super::registration::Controller;
use super::services::Services;
use crate::application::Catalogue;
use crate::cloned::table;
pub use pathcall_endpoint::clone::WorkerStats;

/// Pauses between attempts to join: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// What is in the queue when the server is to end may take so long.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How a server is in a pool.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) name: String,
    pub(super) workers: usize,
    /// Calls that are worked on at once at most.
    pub(super) begun_max: usize,
    pub(super) authenticate: bool,
    pub(super) service_address: String,
    /// Where frames come in; any, unless given.
    pub(super) data_address: Option<SocketAddr>,
    pub(super) shared_memory: bool,
}

/// A server's part in a pool.
#[derive(Debug)]
pub(super) struct Pooled {
    shared: Arc<Shared>,
    started: AtomicBool,
    /// Ends with the server.
    task: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Shared {
    terms: Terms,
    catalogue: Catalogue,
    controller: Controller,
    /// What is in force; none before the first grant.
    granted: watch::Sender<Option<Granted>>,
    followers: Followers,
    closed: watch::Receiver<bool>,
    queue: Mutex<Option<WorkerHandle>>,
    late: Late,
}

/// What the controller has granted.
#[derive(Debug, Clone)]
struct Granted {
    grant: Arc<PoolGrant>,
    /// Whether nothing has been heard from the controller since: the pool may be another one by now.
    outdated: bool,
}

/// What a server's part in its pool came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStats {
    /// The pool's name.
    pub name: String,
    /// Servers in it; 0: this one is not in it either.
    pub servers: usize,
    /// Whether an element takes part.
    pub element: bool,
    /// Calls that this server works on at once.
    pub workers: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests whose time was over before a worker was free for them.
    pub late: u64,
    /// Of its queue.
    pub queue: WorkerStats,
}

impl Pooled {
    /// The pool's name.
    pub(super) fn name(&self) -> &str {
        &self.shared.terms.name
    }

    /// Whether its frames carry tokens.
    pub(super) fn authenticates(&self) -> bool {
        self.shared.terms.authenticate
    }

    pub(super) fn new(
        terms: Terms,
        catalogue: Catalogue,
        controller: Controller,
        closed: watch::Receiver<bool>,
    ) -> Self {
        let (granted, queue) = (watch::Sender::new(None), Mutex::default());
        let late = Late::new(terms.workers);
        let followers = Followers::default();
        let shared = Arc::new(Shared { terms, catalogue, controller, granted, followers, closed, queue, late });
        Self { shared, started: AtomicBool::new(false), task: Mutex::default() }
    }

    /// Joins, with these services to answer by; once.
    pub(super) fn start<S: Services>(&self, services: S) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.started.swap(true, Ordering::Relaxed) {
            let keep = Arc::clone(&self.shared).keep(services);
            lock(&self.task).spawn_on(keep, &runtime);
        }
    }

    /// Lets a caller follow; its endpoint is registered by this server.
    pub(super) async fn follow(&self, udp: SocketAddr, incarnation: u32) -> Result<Views, Status> {
        let Shared { granted, controller, followers, closed, .. } = &*self.shared;
        let followers = followers.clone();
        Views::begin(granted.subscribe(), controller.clone(), followers, closed.clone(), udp, incarnation).await
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
            waiting: queue.as_ref().map_or(0, WorkerHandle::waiting),
            late: self.shared.late.count(),
            queue: queue.map(|queue| queue.stats()).unwrap_or_default(),
        }
    }
}

/// Why a server is not in its pool.
enum Ended {
    /// It is to end.
    Closed,
    /// It is to begin anew: what there was is no longer so.
    Anew,
}

impl Shared {
    /// Is in the pool until the server is to end.
    async fn keep<S: Services>(self: Arc<Self>, services: S) {
        // Requests that were begun are done, whoever has the queue by then.
        let mut working = JoinSet::new();
        loop {
            match self.live(services.clone(), &mut working).await {
                Ended::Closed => break,
                Ended::Anew => {}
            }
            // What has ended is nothing to wait for.
            while working.try_join_next().is_some() {}
        }
        self.granted.send_replace(None);
        *lock(&self.queue) = None;
        let drained = async { while working.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN_MAX, drained).await;
    }

    /// From binding a socket until its endpoint is another one.
    async fn live<S: Services>(&self, services: S, working: &mut JoinSet<()>) -> Ended {
        let mut pause = PAUSE_MIN;
        let link = loop {
            match super::builder::bind(self.terms.data_address, self.terms.shared_memory) {
                Ok(link) => break link,
                Err(error) => tracing::warn!(pool = self.terms.name, %error, "no UDP port for a pool's frames"),
            }
            if self.pause(&mut pause).await {
                return Ended::Closed;
            }
        };
        let incarnation = rand::random_range(1..=u32::MAX);
        let address = link.local_addr();
        let Some((grant, mut stream)) = self.join(address, incarnation).await else { return Ended::Closed };
        let (Some((queue, works)), endpoint) = (self.begin(&grant, incarnation, link), grant.endpoint) else {
            return if self.pause(&mut pause).await { Ended::Closed } else { Ended::Anew };
        };
        let gaid = grant.pool.as_ref().map(|table| table.gaid);
        let same =
            |grant: &PoolGrant| grant.endpoint == endpoint && grant.pool.as_ref().map(|table| table.gaid) == gaid;
        *lock(&self.queue) = Some(queue.clone());
        self.tell(grant);
        working.spawn(answer::all(self.catalogue.clone(), services, works, self.late.clone()));
        loop {
            let mut closed = self.closed.clone();
            let grant = tokio::select! {
                grant = stream.message() => grant,
                _ = closed.wait_for(|closed| *closed) => return Ended::Closed,
            };
            let grant = match grant {
                Ok(Some(grant)) => grant,
                Ok(None) | Err(_) => {
                    tracing::warn!(pool = self.terms.name, "the controller is gone: the pool stays as it was");
                    self.granted.send_modify(|granted| {
                        if let Some(granted) = granted {
                            granted.outdated = true;
                        }
                    });
                    let Some((grant, again)) = self.join(address, incarnation).await else { return Ended::Closed };
                    stream = again;
                    grant
                }
            };
            if !same(&grant) {
                tracing::info!(
                    pool = self.terms.name,
                    "known to the controller under another endpoint: beginning anew"
                );
                return Ended::Anew;
            }
            if let Some((table, sid)) = place(&grant) {
                queue.renew(table, sid.unwrap_or_default());
            }
            self.tell(grant);
        }
    }

    /// Tells those who follow.
    fn tell(&self, grant: PoolGrant) {
        self.granted.send_replace(Some(Granted { grant: Arc::new(grant), outdated: false }));
    }

    /// A queue for the grant, if it can be used.
    fn begin(&self, grant: &PoolGrant, incarnation: u32, link: Link) -> Option<(WorkerHandle, Works)> {
        let Some((table, Some(sid))) = place(grant) else {
            tracing::warn!(pool = self.terms.name, ?grant, "the controller grants a place in a pool that is none");
            return None;
        };
        let key = grant.pool.as_ref().and_then(table::key);
        let Terms { workers, begun_max, .. } = self.terms;
        let config = WorkerConfig::new(table.pool.gaid, grant.endpoint, incarnation, sid, workers);
        let config = WorkerConfig { begun_max, ..config };
        tracing::info!(pool = self.terms.name, servers = table.pool.servers.len(), "joined a pool");
        Some(WorkerHandle::spawn(config, table, key, link))
    }

    /// Joins, trying until it is in; `None`: the server is to end.
    async fn join(&self, address: SocketAddr, incarnation: u32) -> Option<(PoolGrant, Streaming<PoolGrant>)> {
        let (mut pause, mut said) = (PAUSE_MIN, None);
        loop {
            match self.attempt(address, incarnation).await {
                Ok(joined) => return Some(joined),
                // Said once, not at each attempt.
                Err(error) if said.as_deref() != Some(error.message()) => {
                    tracing::warn!(pool = self.terms.name, "not in the pool: {}", error.message());
                    said = Some(error.message().to_owned());
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
            let ip = self.controller.reached_from().await;
            address.set_ip(ip.map_err(|error| Status::unavailable(error.to_string()))?);
        }
        let Terms { name, authenticate, service_address, .. } = &self.terms;
        let request = JoinPoolRequest {
            name: name.clone(),
            data_address: address.to_string(),
            incarnation,
            service_address: service_address.clone(),
            authenticate: *authenticate,
        };
        self.controller.join_pool(request).await
    }

    /// Waits a while, longer each time; whether the server is to end.
    async fn pause(&self, pause: &mut Duration) -> bool {
        let mut closed = self.closed.clone();
        let over = tokio::time::timeout(*pause, closed.wait_for(|closed| *closed)).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
        // A sender that is gone is a server that has ended.
        over.is_ok()
    }
}

/// Who is where, and this server's own place, if it has one now.
fn place(grant: &PoolGrant) -> Option<(pathcall_endpoint::driver::clone::Table, Option<u16>)> {
    let table = table::read(grant.pool.as_ref()?).ok()?;
    let sid = table.pool.servers.iter().position(|server| *server == grant.endpoint);
    Some((table, sid.and_then(|sid| u16::try_from(sid).ok())))
}

/// What a message may take of a reply's bytes.
const REPLY_MAX: usize = MESSAGE_MAX;

/// Held only for a moment, by code that does not panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
