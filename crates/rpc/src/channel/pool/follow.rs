//! Follower of a pool: it follows one of the pool's servers at a time and updates the channel's caller.
//!
//! ```text
//! run_session: bind ─► follow_any: a server that permits it ─► views ─► the caller
//!                        its stream ends ─► another server       the server has lost the controller ─► a better one
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pathcall_driver::clone::{CloneCallerHandle, PoolAddresses};
use pathcall_driver::link::{Link, SharingRole};
use pathcall_endpoint::clone::{CloneCallerConfig, CloneCallerStats};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{FollowPoolRequest, PoolTable, PoolView};
use tokio::sync::watch;
use tonic::{Code, Status, Streaming};

use super::super::transport::Transport;
use super::{FollowCredentials, PoolOptions, PoolSession, PoolState, lock, sum};
use crate::cloned;
use crate::process_timeout::{self, TimeBudget};

/// Time limit for a server's first view.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of requests that test the followed server: for how long an idle caller delays a server that shuts down.
const TEST_INTERVAL: Duration = Duration::from_secs(5);
/// Pauses between attempts to follow: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Pause before a server without Pathcall, or without answers to frames, is tried again.
const PLAIN_PAUSE: Duration = Duration::from_secs(10);
/// Time without any reachable server after which calls by frames fail.
const NO_SERVER_MAX: Duration = Duration::from_secs(10);

/// Reason for the end of a session.
enum SessionEnd {
    /// The pool, or this caller's membership, has been replaced.
    Replaced,
    /// Frames are not delivered.
    NoFrames,
    /// No server is reachable.
    NoServer,
}

/// Event of the followed server.
enum FollowEvent {
    View(Result<Option<PoolView>, Status>),
    /// The server has lost the controller; another one may have a later view of the pool.
    Outdated,
    Timer,
}

/// Follower of a pool.
pub(super) struct Follower {
    pub(super) terms: PoolOptions,
    /// Server that is followed, or was last.
    pub(super) transport: Transport,
    /// Servers that the user gave.
    pub(super) given: Vec<Transport>,
    /// All known servers, those of the user first.
    pub(super) known: Vec<Transport>,
    pub(super) servers: Arc<Mutex<Vec<Transport>>>,
    /// Servers of the pool's table.
    pub(super) members: Arc<Mutex<Vec<Transport>>>,
    pub(super) past: Arc<Mutex<CloneCallerStats>>,
    pub(super) credentials: Arc<FollowCredentials>,
    pub(super) state_sender: watch::Sender<PoolState>,
    /// Number of servers that were asked for a later view.
    pub(super) asked: usize,
}

/// Source port of a caller's frames, and its incarnation.
#[derive(Debug, Clone, Copy)]
struct CallerAddress {
    port: u16,
    incarnation: u32,
}

impl Follower {
    /// Runs until the channel is dropped.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            pause = match self.run_session().await {
                // Immediately; calls wait for the new session.
                Ok(SessionEnd::Replaced) => continue,
                Ok(SessionEnd::NoServer) => PAUSE_MIN,
                Ok(SessionEnd::NoFrames) => PLAIN_PAUSE,
                Err(error) if error.code() == Code::Unimplemented => PLAIN_PAUSE,
                Err(_) => (pause * 2).min(PAUSE_MAX),
            };
            self.state_sender.send_replace(PoolState::Plain);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Servers may accept the metadata of another call.
                () = self.credentials.came.notified() => pause = PAUSE_MIN,
            }
        }
    }

    /// Runs one session: from binding a socket until the caller is replaced.
    async fn run_session(&mut self) -> Result<SessionEnd, Status> {
        let (link, address) = self.bind().await?;
        let (view, mut stream) = self.follow_any(address).await?;
        let pool = self.read(&view)?;
        let (gaid, mut version, endpoint) = (pool.pool.gaid, pool.pool.version, view.endpoint);
        let (mut outdated, mut seek) = (view.outdated, PAUSE_MIN);
        let budgets = self.terms.methods.iter().map(|method| method.budget).collect();
        let config = CloneCallerConfig::new(endpoint, address.incarnation, pool.pool.clone(), rand::random());
        let key = view.pool.as_ref().and_then(cloned::pool_key);
        let caller = CloneCallerHandle::spawn(CloneCallerConfig { budgets, ..config }, pool, key, link);
        let caller = caller.busy_poll(self.terms.options.busy_poll);
        let session =
            Arc::new(PoolSession { caller, answered: AtomicBool::new(false), over: watch::Sender::new(false) });
        self.update_servers(view.pool.as_ref());
        self.state_sender.send_replace(PoolState::Frames(Arc::clone(&session)));
        let mut over = session.over.subscribe();
        let mut another = Box::pin(self.transport.new_connection());
        let ended = loop {
            let event = tokio::select! {
                view = stream.message() => FollowEvent::View(view),
                // The server is shutting down, and waits for the end of its streams.
                () = &mut another => FollowEvent::View(Ok(None)),
                () = tokio::time::sleep(TEST_INTERVAL) => FollowEvent::Timer,
                _ = over.wait_for(|over| *over) => break SessionEnd::NoFrames,
                () = tokio::time::sleep(seek), if outdated => FollowEvent::Outdated,
            };
            // Only a request shows that the server is shutting down or hangs.
            if matches!(event, FollowEvent::Timer) && self.transport.answers(&self.credentials.headers()).await {
                continue;
            }
            let view = match event {
                FollowEvent::View(Ok(Some(view))) => view,
                FollowEvent::Outdated => match self.follow_better(address, version).await {
                    Some((view, again)) => {
                        (stream, another) = (again, Box::pin(self.transport.new_connection()));
                        view
                    }
                    None => {
                        seek = (seek * 2).min(PAUSE_MAX);
                        continue;
                    }
                },
                // The server has failed or is shutting down: another one has the view of the pool.
                FollowEvent::View(Ok(None) | Err(_)) | FollowEvent::Timer => {
                    drop(stream);
                    match self.follow_until_found(address).await {
                        Some((view, again)) => {
                            (stream, another) = (again, Box::pin(self.transport.new_connection()));
                            view
                        }
                        None => break SessionEnd::NoServer,
                    }
                }
            };
            let pool = match self.read(&view) {
                Ok(pool) if (pool.pool.gaid, view.endpoint) == (gaid, endpoint) => pool,
                Ok(_) | Err(_) => break SessionEnd::Replaced,
            };
            (outdated, seek) = (view.outdated, PAUSE_MIN);
            // The new server may not have received a view that another one has sent.
            if pool.pool.version >= version {
                version = pool.pool.version;
                session.caller.renew(pool);
                self.update_servers(view.pool.as_ref());
            }
        };
        let stats = session.caller.stats();
        let mut past = lock(&self.past);
        *past = sum(*past, stats);
        drop(past);
        self.state_sender.send_replace(if matches!(ended, SessionEnd::Replaced) {
            PoolState::Unknown
        } else {
            PoolState::Plain
        });
        session.end();
        Ok(ended)
    }

    async fn bind(&self) -> Result<(Link, CallerAddress), Status> {
        let unavailable = |error: std::io::Error| Status::unavailable(error.to_string());
        let ip: IpAddr = match self.terms.options.local_address {
            Some(ip) => ip,
            None => self.transport.any_address().await.map_err(unavailable)?,
        };
        let mut link = Link::bind(SocketAddr::new(ip, 0)).map_err(unavailable)?;
        if self.terms.options.shared_memory {
            // On a system without shared memory, frames go by UDP.
            let _ = link.share_memory(SharingRole::Request);
        }
        let address = CallerAddress { port: link.local_addr().port(), incarnation: rand::random_range(1..=u32::MAX) };
        Ok((link, address))
    }

    /// Follows the first server that permits it; keeps trying as long as one of them is alive. `None` if none is, for a
    /// long time.
    async fn follow_until_found(&mut self, address: CallerAddress) -> Option<(PoolView, Streaming<PoolView>)> {
        let mut pause = PAUSE_MIN;
        let mut timer = TimeBudget::new(NO_SERVER_MAX);
        loop {
            match timer.wait(self.follow_any(address)).await.ok()? {
                Ok(following) => return Some(following),
                Err(error) if is_from_server(&error) => timer = TimeBudget::new(NO_SERVER_MAX),
                Err(_) => {}
            }
            timer.wait(tokio::time::sleep(pause)).await.ok()?;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Follows the first server that permits it; the server followed last is tried last. If none does, gRPC calls go to
    /// a server that answers, and its status is the error.
    async fn follow_any(&mut self, address: CallerAddress) -> Result<(PoolView, Streaming<PoolView>), Status> {
        let mut candidates: Vec<Transport> = self.known.clone();
        let was = self.transport.uri().clone();
        let fresh = matches!(*self.state_sender.borrow(), PoolState::Unknown);
        candidates.sort_by_key(|one| (one.uri() == &was) != fresh);
        let mut failure = Status::unavailable("no server of the pool is known");
        for transport in candidates {
            match self.follow(&transport, address).await {
                Ok(following) => {
                    if *transport.uri() != was {
                        tracing::info!(server = %transport.uri(), "following the pool by another server");
                    }
                    self.transport = transport.clone();
                    self.put_first(transport);
                    return Ok(following);
                }
                Err(error) => {
                    if is_from_server(&error) && !is_from_server(&failure) {
                        self.put_first(transport.clone());
                    }
                    if is_from_server(&error) || !is_from_server(&failure) {
                        failure = error;
                    }
                }
            }
        }
        Err(failure)
    }

    /// Follows the next server that has the controller or a later view. Tries one server per call, so that the current
    /// stream does not wait for long.
    async fn follow_better(&mut self, address: CallerAddress, version: u32) -> Option<(PoolView, Streaming<PoolView>)> {
        let followed = self.transport.uri().clone();
        let mut others = self.known.iter().filter(|known| *known.uri() != followed);
        let next = others.nth(self.asked % others.clone().count().max(1))?.clone();
        self.asked = self.asked.wrapping_add(1);
        let (view, stream) = self.follow(&next, address).await.ok()?;
        let newer = view.pool.as_ref().is_some_and(|pool| pool.version > version);
        if view.outdated && !newer {
            return None;
        }
        tracing::info!(server = %next.uri(), "following the pool by a server that is connected to the controller");
        self.transport = next.clone();
        self.put_first(next);
        Some((view, stream))
    }

    /// Makes this the first server for gRPC calls.
    fn put_first(&self, first: Transport) {
        let others = self.known.iter().filter(|known| known.uri() != first.uri()).cloned().collect::<Vec<_>>();
        *lock(&self.servers) = [&[first][..], &others].concat();
    }

    /// Updates the known servers from the pool's table.
    fn update_servers(&mut self, table: Option<&PoolTable>) {
        let servers = table.into_iter().flat_map(|table| &table.servers);
        let others = servers.filter_map(|server| self.terms.dial.pool_target(&server.service_address));
        let (mut known, mut members) = (self.given.clone(), Vec::new());
        for endpoint in others {
            let again = self.known.iter().chain([&self.transport]).find(|known| known.uri() == endpoint.uri()).cloned();
            let member = again.unwrap_or_else(|| Transport::lazy(&endpoint));
            if known.iter().all(|known| known.uri() != endpoint.uri()) {
                known.push(member.clone());
            }
            members.push(member);
        }
        self.known = known;
        *lock(&self.members) = members;
        self.put_first(self.transport.clone());
    }

    /// Reads the pool's servers, and the element of this caller's rack.
    fn read(&self, view: &PoolView) -> Result<PoolAddresses, Status> {
        let table = view.pool.as_ref().ok_or_else(|| Status::internal("the server sent a view without a pool"))?;
        cloned::pool_addresses(table, &self.terms.rack)
    }

    /// Requests to follow the pool at this server.
    async fn follow(
        &self,
        transport: &Transport,
        address: CallerAddress,
    ) -> Result<(PoolView, Streaming<PoolView>), Status> {
        let first = self.terms.methods.first().map_or("", |method| method.path);
        let rack = self.terms.rack.clone();
        let request = FollowPoolRequest {
            udp_port: address.port.into(),
            incarnation: address.incarnation,
            rack,
            ..Default::default()
        };
        let request = self.credentials.request(first, request);
        let mut client = PeerClient::new(transport.channel());
        let following = async {
            let mut stream = client.follow_pool(request).await?.into_inner();
            let view = stream.message().await?;
            view.map(|view| (view, stream)).ok_or_else(|| Status::unavailable("the server ended the stream"))
        };
        let answer = process_timeout::timeout(FOLLOW_TIMEOUT, following).await;
        let answer = answer.map_err(|_| Status::unavailable(format!("no answer in {} s", FOLLOW_TIMEOUT.as_secs())))?;
        if answer.as_ref().is_err_and(is_refusal) {
            self.credentials.wanted.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// Whether the status is a refusal by the server's checks.
fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
}

/// Whether a server sent this status: an unreachable server gives UNAVAILABLE or the like.
fn is_from_server(error: &Status) -> bool {
    !matches!(error.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded)
}
