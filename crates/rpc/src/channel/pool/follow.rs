//! Follows a server of the pool, whichever is there, and keeps the channel's caller up to date.
//!
//! ```text
//! live: bind ─► anybody lets it follow ─► views ─► the caller
//!                  its stream ends ─► somebody else       it is cut off from the controller ─► a better one
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pathcall_endpoint::clone::{Budget, CallerConfig, CallerStats};
use pathcall_endpoint::driver::clone::{CallerHandle, Table};
use pathcall_endpoint::driver::link::{Link, Sharing};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{FollowPoolRequest, PoolTable, PoolView};
use tokio::sync::watch;
use tonic::{Code, Status, Streaming};

use super::super::transport::Transport;
use super::{Credentials, Session, State, Terms, lock, sum};
use crate::awake::{self, Patience};
use crate::cloned::table;

/// A server that has not answered after this time is not followed.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between requests of the server that is followed: how long an idle caller holds up one that is to end.
const LIVES_PAUSE: Duration = Duration::from_secs(5);
/// Pauses between attempts to follow one: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Pause before a server that does not speak Pathcall, or that no frames reach, is tried again.
const PLAIN_PAUSE: Duration = Duration::from_secs(10);
/// When no server of the pool is reached for so long, calls by frames fail.
const ALONE_MAX: Duration = Duration::from_secs(10);

/// Extra requests of a method at one time, and in a second, that no calls have paid for: when a server dies, those
/// that it had are to be sent again at once.
const BURST: f64 = 500.0;
const PER_SECOND: f64 = 100.0;

/// Why a session has ended.
enum Ended {
    /// The pool, or this caller in it, is another one.
    Anew,
    /// Frames do not get through.
    Silent,
    /// No server is reached.
    Alone,
}

/// What comes of a server that is followed.
enum Heard {
    View(Result<Option<PoolView>, Status>),
    /// It is cut off from the controller, and another one may know the pool better.
    Outdated,
    Nothing,
}

/// Follows a server of the pool, whichever is there.
pub(super) struct Follower {
    pub(super) terms: Terms,
    /// The server that is followed, or was.
    pub(super) transport: Transport,
    /// Those that the user named.
    pub(super) named: Vec<Transport>,
    /// All that are known, those first.
    pub(super) known: Vec<Transport>,
    pub(super) servers: Arc<Mutex<Vec<Transport>>>,
    pub(super) past: Arc<Mutex<CallerStats>>,
    pub(super) credentials: Arc<Credentials>,
    pub(super) tell: watch::Sender<State>,
    /// Servers that were asked whether they know the pool better.
    pub(super) asked: usize,
}

/// Where a caller's frames come from.
#[derive(Debug, Clone, Copy)]
struct Me {
    port: u16,
    incarnation: u32,
}

impl Follower {
    /// Never returns; it ends with the channel.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            pause = match self.live().await {
                // At once, and calls wait for it.
                Ok(Ended::Anew) => continue,
                Ok(Ended::Alone) => PAUSE_MIN,
                Ok(Ended::Silent) => PLAIN_PAUSE,
                Err(error) if error.code() == Code::Unimplemented => PLAIN_PAUSE,
                Err(_) => (pause * 2).min(PAUSE_MAX),
            };
            self.tell.send_replace(State::Plain);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Another call may be one that servers let follow.
                () = self.credentials.came.notified() => pause = PAUSE_MIN,
            }
        }
    }

    /// From binding a socket until the caller is another one.
    async fn live(&mut self) -> Result<Ended, Status> {
        let (link, me) = self.bind().await?;
        let (view, mut stream) = self.anybody(me).await?;
        let pool = read(&view)?;
        let (gaid, mut version, endpoint) = (pool.pool.gaid, pool.pool.version, view.endpoint);
        let (mut outdated, mut seek) = (view.outdated, PAUSE_MIN);
        let budget = |share: &f64| Budget { share: *share, burst: BURST, per_second: PER_SECOND };
        let budgets = self.terms.methods.iter().map(|method| budget(&method.budget)).collect();
        let config = CallerConfig::new(endpoint, me.incarnation, pool.pool.clone(), rand::random());
        let key = view.pool.as_ref().and_then(table::key);
        let caller = CallerHandle::spawn(CallerConfig { budgets, ..config }, pool, key, link);
        let caller = caller.busy_poll(self.terms.options.busy_poll);
        let session = Arc::new(Session { caller, heard: AtomicBool::new(false), over: watch::Sender::new(false) });
        self.learn(view.pool.as_ref());
        self.tell.send_replace(State::Frames(Arc::clone(&session)));
        let mut over = session.over.subscribe();
        let mut another = Box::pin(self.transport.another());
        let ended = loop {
            let heard = tokio::select! {
                view = stream.message() => Heard::View(view),
                // The server is to end, and waits for its streams.
                () = &mut another => Heard::View(Ok(None)),
                () = tokio::time::sleep(LIVES_PAUSE) => Heard::Nothing,
                _ = over.wait_for(|over| *over) => break Ended::Silent,
                () = tokio::time::sleep(seek), if outdated => Heard::Outdated,
            };
            // It takes a request to notice that the server is to end, or hangs.
            if matches!(heard, Heard::Nothing) && self.transport.answers(&self.credentials.headers()).await {
                continue;
            }
            let view = match heard {
                Heard::View(Ok(Some(view))) => view,
                Heard::Outdated => match self.better(me, version).await {
                    Some((view, again)) => {
                        (stream, another) = (again, Box::pin(self.transport.another()));
                        view
                    }
                    None => {
                        seek = (seek * 2).min(PAUSE_MAX);
                        continue;
                    }
                },
                // The server is gone, or is to end: another one knows how the pool is.
                Heard::View(Ok(None) | Err(_)) | Heard::Nothing => {
                    drop(stream);
                    match self.somebody(me).await {
                        Some((view, again)) => {
                            (stream, another) = (again, Box::pin(self.transport.another()));
                            view
                        }
                        None => break Ended::Alone,
                    }
                }
            };
            let pool = match read(&view) {
                Ok(pool) if (pool.pool.gaid, view.endpoint) == (gaid, endpoint) => pool,
                Ok(_) | Err(_) => break Ended::Anew,
            };
            (outdated, seek) = (view.outdated, PAUSE_MIN);
            // Who has just been gone to may have yet to hear what another one has said.
            if pool.pool.version >= version {
                version = pool.pool.version;
                session.caller.renew(pool);
                self.learn(view.pool.as_ref());
            }
        };
        let stats = session.caller.stats();
        let mut past = lock(&self.past);
        *past = sum(*past, stats);
        drop(past);
        self.tell.send_replace(if matches!(ended, Ended::Anew) { State::Asking } else { State::Plain });
        session.give_up();
        Ok(ended)
    }

    async fn bind(&self) -> Result<(Link, Me), Status> {
        let unavailable = |error: std::io::Error| Status::unavailable(error.to_string());
        let ip: IpAddr = match self.terms.options.local_address {
            Some(ip) => ip,
            None => self.transport.any_address().await.map_err(unavailable)?,
        };
        let mut link = Link::bind(SocketAddr::new(ip, 0)).map_err(unavailable)?;
        if self.terms.options.shared_memory {
            // A system without it has UDP.
            let _ = link.share_memory(Sharing::Seek);
        }
        let me = Me { port: link.local_addr().port(), incarnation: rand::random_range(1..=u32::MAX) };
        Ok((link, me))
    }

    /// Follows the first that lets it, trying for as long as any of them lives; `None`: none does for long.
    async fn somebody(&mut self, me: Me) -> Option<(PoolView, Streaming<PoolView>)> {
        let mut pause = PAUSE_MIN;
        let mut alone = Patience::new(ALONE_MAX);
        loop {
            match alone.wait(self.anybody(me)).await.ok()? {
                Ok(following) => return Some(following),
                Err(error) if lives(&error) => alone = Patience::new(ALONE_MAX),
                Err(_) => {}
            }
            alone.wait(tokio::time::sleep(pause)).await.ok()?;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Follows the first that lets it: those that were not followed last before the one that was. If none does,
    /// gRPC calls go to one that lives, and what that says is the error.
    async fn anybody(&mut self, me: Me) -> Result<(PoolView, Streaming<PoolView>), Status> {
        let mut candidates: Vec<Transport> = self.known.clone();
        let was = self.transport.uri().clone();
        let fresh = matches!(*self.tell.borrow(), State::Asking);
        candidates.sort_by_key(|one| (one.uri() == &was) != fresh);
        let mut said = Status::unavailable("no server of the pool is known");
        for transport in candidates {
            match self.follow(&transport, me).await {
                Ok(following) => {
                    if *transport.uri() != was {
                        tracing::info!(server = %transport.uri(), "following the pool by another server");
                    }
                    self.transport = transport.clone();
                    self.prefer(transport);
                    return Ok(following);
                }
                Err(error) => {
                    if lives(&error) && !lives(&said) {
                        self.prefer(transport.clone());
                    }
                    if lives(&error) || !lives(&said) {
                        said = error;
                    }
                }
            }
        }
        Err(said)
    }

    /// Follows the next of the others that hears from the controller, or knows of a later version. One at a time, so
    /// that what is followed is not left alone for long.
    async fn better(&mut self, me: Me, version: u32) -> Option<(PoolView, Streaming<PoolView>)> {
        let followed = self.transport.uri().clone();
        let mut others = self.known.iter().filter(|known| *known.uri() != followed);
        let next = others.nth(self.asked % others.clone().count().max(1))?.clone();
        self.asked = self.asked.wrapping_add(1);
        let (view, stream) = self.follow(&next, me).await.ok()?;
        let newer = view.pool.as_ref().is_some_and(|pool| pool.version > version);
        if view.outdated && !newer {
            return None;
        }
        tracing::info!(server = %next.uri(), "following the pool by a server that hears from the controller");
        self.transport = next.clone();
        self.prefer(next);
        Some((view, stream))
    }

    /// Has gRPC calls go there first.
    fn prefer(&self, first: Transport) {
        let others = self.known.iter().filter(|known| known.uri() != first.uri()).cloned().collect::<Vec<_>>();
        *lock(&self.servers) = [&[first][..], &others].concat();
    }

    /// Notes where else the pool can be followed.
    fn learn(&mut self, table: Option<&PoolTable>) {
        let servers = table.into_iter().flat_map(|table| &table.servers);
        let others = servers.filter_map(|server| self.terms.dial.found(&server.service_address));
        let mut known = self.named.clone();
        for endpoint in others {
            let again = self.known.iter().chain([&self.transport]).find(|known| known.uri() == endpoint.uri()).cloned();
            if known.iter().all(|known| known.uri() != endpoint.uri()) {
                known.push(again.unwrap_or_else(|| Transport::lazy(&endpoint)));
            }
        }
        self.known = known;
        self.prefer(self.transport.clone());
    }

    /// Asks a server to be followed.
    async fn follow(&self, transport: &Transport, me: Me) -> Result<(PoolView, Streaming<PoolView>), Status> {
        let first = self.terms.methods.first().map_or("", |method| method.path);
        let request = FollowPoolRequest { udp_port: me.port.into(), incarnation: me.incarnation, ..Default::default() };
        let request = self.credentials.request(first, request);
        let mut client = PeerClient::new(transport.channel());
        let following = async {
            let mut stream = client.follow_pool(request).await?.into_inner();
            let view = stream.message().await?;
            view.map(|view| (view, stream)).ok_or_else(|| Status::unavailable("the server ended the stream"))
        };
        let answer = awake::timeout(FOLLOW_TIMEOUT, following).await;
        let answer = answer.map_err(|_| Status::unavailable(format!("no answer in {} s", FOLLOW_TIMEOUT.as_secs())))?;
        if answer.as_ref().is_err_and(refuses) {
            self.credentials.wanted.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// Whether a server's checks do not let this channel in.
fn refuses(status: &Status) -> bool {
    matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
}

/// Whether it is a server that says so: what is not reached is unavailable.
fn lives(error: &Status) -> bool {
    !matches!(error.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded)
}

fn read(view: &PoolView) -> Result<Table, Status> {
    table::read(view.pool.as_ref().ok_or_else(|| Status::internal("a view of no pool"))?)
}
