//! The channel's part in a pool: it follows one server, and goes on by another one when that is gone.
//!
//! ```text
//! FollowPool ─► a server: where my frames come from      (a stream: its end is the server's, or mine)
//!            ◄─ views: who I am, who is in the pool and where ─► the caller of cloned calls
//! ```
//!
//! As long as it follows nobody, calls by frames go on as the pool was last. gRPC calls go to the server that is
//! followed. A server that does not answer by frames is called by gRPC, and tried again after a while.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pathcall_endpoint::clone::{Answer, Ask, Budget, CallerConfig, CallerStats};
use pathcall_endpoint::driver::clone::{CallError, CallerHandle, Table};
use pathcall_endpoint::driver::link::{Link, Sharing};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{FollowPoolRequest, PoolTable, PoolView};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::{Code, Status, Streaming};

use super::builder::{self, Options};
use super::transport::Transport;
use crate::cloned::table;

/// A server that has not answered after this time is not followed.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses between attempts to follow one: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Pause before a server that does not speak Pathcall, or that no frames reach, is tried again.
const PLAIN_PAUSE: Duration = Duration::from_secs(10);
/// When no server of the pool is reached for so long, calls by frames fail.
const ALONE_MAX: Duration = Duration::from_secs(10);

/// Extra requests at one time, and in a second, that no calls have paid for: when a server dies, those that it had are
/// to be sent again at once.
const BURST: f64 = 500.0;
const PER_SECOND: f64 = 100.0;

/// How a channel is in a pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) options: Options,
    /// Extra requests, as a share of the calls.
    pub(super) budget: f64,
    /// What stands where the element stands: a coordinator, to be compared with.
    pub(super) coordinator: Option<SocketAddr>,
}

/// A channel's part in a pool.
#[derive(Debug)]
pub(super) struct Pool {
    state: watch::Receiver<State>,
    /// Servers that gRPC calls can go to, first the one that is followed.
    servers: Arc<Mutex<Vec<Transport>>>,
    past: Arc<Mutex<CallerStats>>,
    _follow: JoinSet<()>,
}

/// How cloned calls are made now.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// The server has yet to say whether it is in a pool.
    Asking,
    /// By frames.
    Frames(Arc<Session>),
    /// By gRPC.
    Plain,
}

/// A caller of the pool.
#[derive(Debug)]
pub(super) struct Session {
    caller: CallerHandle,
    /// Whether any frame has come back.
    heard: AtomicBool,
    over: watch::Sender<bool>,
}

impl Session {
    /// Makes a call; `None`: the session is over, and another one may make it.
    pub(super) async fn ask(&self, ask: Ask) -> Option<Result<Answer, CallError>> {
        let mut over = self.over.subscribe();
        tokio::select! {
            biased;
            answer = self.caller.ask(ask) => {
                self.heard.fetch_or(answer.is_ok(), Ordering::Relaxed);
                Some(answer).filter(|answer| *answer != Err(CallError::Stopped))
            }
            _ = over.wait_for(|over| *over) => None,
        }
    }

    /// Whether frames are known to get through.
    pub(super) fn has_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// As [`has_heard`](Self::has_heard), of words that a call is worked on as well.
    pub(super) fn anything_came(&self) -> bool {
        let CallerStats { answered, redundant, working, .. } = self.caller.stats();
        answered + redundant + working > 0
    }

    /// Frames don't get through, or nobody is there: calls go by gRPC for a while.
    pub(super) fn give_up(&self) {
        self.over.send_replace(true);
    }
}

impl Pool {
    /// Begins to follow the server of `transport`.
    pub(super) fn follow(transport: Transport, terms: Terms) -> Self {
        let (tell, state) = watch::channel(State::Asking);
        let past = Arc::default();
        let servers = Arc::new(Mutex::new(vec![transport.clone()]));
        let follower = Follower {
            terms,
            known: vec![transport.clone()],
            transport,
            servers: Arc::clone(&servers),
            past: Arc::clone(&past),
            tell,
        };
        let mut follow = JoinSet::new();
        follow.spawn(follower.run());
        Self { state, servers, past, _follow: follow }
    }

    /// How calls are made now, as soon as the server has said it; the state it was asked in.
    pub(super) async fn state(&self) -> State {
        let mut state = self.state.clone();
        // The follower lasts as long as this.
        match state.wait_for(|state| !matches!(state, State::Asking)).await {
            Ok(state) => state.clone(),
            Err(_) => State::Plain,
        }
    }

    /// The server that gRPC calls go to.
    pub(super) fn transport(&self) -> Transport {
        lock(&self.servers)[0].clone()
    }

    /// It, and the others of the pool as far as they are known.
    pub(super) fn transports(&self) -> Vec<Transport> {
        lock(&self.servers).clone()
    }

    pub(super) fn stats(&self) -> CallerStats {
        let now = match &*self.state.borrow() {
            State::Frames(session) => session.caller.stats(),
            State::Asking | State::Plain => CallerStats::default(),
        };
        sum(*lock(&self.past), now)
    }
}

/// Why a session has ended.
enum Ended {
    /// The pool, or this caller in it, is another one.
    Anew,
    /// Frames do not get through.
    Silent,
    /// No server is reached.
    Alone,
}

/// Follows a server of the pool, whichever is there.
struct Follower {
    terms: Terms,
    /// The server that is followed, or was.
    transport: Transport,
    /// All that are known; the first is the one that the user named.
    known: Vec<Transport>,
    servers: Arc<Mutex<Vec<Transport>>>,
    past: Arc<Mutex<CallerStats>>,
    tell: watch::Sender<State>,
}

/// Where a caller's frames come from.
#[derive(Debug, Clone, Copy)]
struct Me {
    port: u16,
    incarnation: u32,
}

impl Follower {
    /// Never returns; it ends with the channel.
    async fn run(mut self) {
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
            tokio::time::sleep(pause).await;
        }
    }

    /// From binding a socket until the caller is another one.
    async fn live(&mut self) -> Result<Ended, Status> {
        let (link, me) = self.bind().await?;
        let (view, mut stream) = self.anybody(me).await?;
        let pool = read(&view, self.terms.coordinator)?;
        let (gaid, endpoint) = (pool.pool.gaid, view.endpoint);
        let budget = Budget { share: self.terms.budget, burst: BURST, per_second: PER_SECOND };
        let config = CallerConfig::new(endpoint, me.incarnation, pool.pool.clone(), rand::random());
        let key = view.pool.as_ref().and_then(table::key);
        let caller = CallerHandle::spawn(CallerConfig { budget, ..config }, pool, key, link);
        let caller = caller.busy_poll(self.terms.options.busy_poll);
        let session = Arc::new(Session { caller, heard: AtomicBool::new(false), over: watch::Sender::new(false) });
        self.learn(view.pool.as_ref());
        self.tell.send_replace(State::Frames(Arc::clone(&session)));
        let mut over = session.over.subscribe();
        let ended = loop {
            let view = tokio::select! {
                view = stream.message() => view,
                _ = over.wait_for(|over| *over) => break Ended::Silent,
            };
            let view = match view {
                Ok(Some(view)) => view,
                // The server is gone, or is to end: another one knows how the pool is.
                Ok(None) | Err(_) => match self.somebody(me).await {
                    Some((view, again)) => {
                        stream = again;
                        view
                    }
                    None => break Ended::Alone,
                },
            };
            match read(&view, self.terms.coordinator) {
                Ok(pool) if (pool.pool.gaid, view.endpoint) == (gaid, endpoint) => session.caller.renew(pool),
                Ok(_) | Err(_) => break Ended::Anew,
            }
            self.learn(view.pool.as_ref());
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
        let mut heard = Instant::now();
        while heard.elapsed() < ALONE_MAX {
            match self.anybody(me).await {
                Ok(following) => return Some(following),
                Err(error) if lives(&error) => heard = Instant::now(),
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        None
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
            match follow(&transport, me).await {
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

    /// Has gRPC calls go there first.
    fn prefer(&self, first: Transport) {
        let others = self.known.iter().filter(|known| known.uri() != first.uri()).cloned().collect::<Vec<_>>();
        *lock(&self.servers) = [&[first][..], &others].concat();
    }

    /// Notes where else the pool can be followed.
    fn learn(&mut self, table: Option<&PoolTable>) {
        let named = self.known[0].clone();
        let servers = table.into_iter().flat_map(|table| &table.servers);
        let others = servers.filter_map(|server| builder::endpoint(&server.service_address));
        let mut known = vec![named];
        for endpoint in others {
            let again = self.known.iter().chain([&self.transport]).find(|known| known.uri() == endpoint.uri()).cloned();
            if known.iter().all(|known| known.uri() != endpoint.uri()) {
                known.push(again.unwrap_or_else(|| Transport::lazy(&endpoint)));
            }
        }
        self.known = known;
        self.prefer(self.transport.clone());
    }
}

/// Asks a server to be followed.
async fn follow(transport: &Transport, me: Me) -> Result<(PoolView, Streaming<PoolView>), Status> {
    let request = FollowPoolRequest { udp_port: me.port.into(), incarnation: me.incarnation };
    let mut client = PeerClient::new(transport.channel());
    let first = async {
        let mut stream = client.follow_pool(request).await?.into_inner();
        let view = stream.message().await?;
        view.map(|view| (view, stream)).ok_or_else(|| Status::unavailable("the server ended the stream"))
    };
    match tokio::time::timeout(FOLLOW_TIMEOUT, first).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Status::unavailable(format!("no answer in {} s", FOLLOW_TIMEOUT.as_secs()))),
    }
}

/// Whether it is a server that says so: what is not reached is unavailable.
fn lives(error: &Status) -> bool {
    !matches!(error.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded)
}

fn read(view: &PoolView, coordinator: Option<SocketAddr>) -> Result<Table, Status> {
    let said = view.pool.as_ref().ok_or_else(|| Status::internal("a view of no pool"))?;
    let table = table::read(said)?;
    Ok(Table { element: coordinator.or(table.element), ..table })
}

/// Held only for a moment, by code that does not panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counts of two callers together.
fn sum(a: CallerStats, b: CallerStats) -> CallerStats {
    CallerStats {
        calls: a.calls + b.calls,
        answered: a.answered + b.answered,
        failed: a.failed + b.failed,
        cloned: a.cloned + b.cloned,
        twice: a.twice + b.twice,
        repeated: a.repeated + b.repeated,
        hedged: a.hedged + b.hedged,
        refused: a.refused + b.refused,
        redundant: a.redundant + b.redundant,
        working: a.working + b.working,
        cancelled: a.cancelled + b.cancelled,
        silent: a.silent + b.silent,
        ignored: a.ignored + b.ignored,
        frames: a.frames + b.frames,
    }
}
