//! The channel's part in a pool: it follows one server, and goes on by another one when that is gone.
//!
//! ```text
//! FollowPool ─► a server: where my frames come from      (a stream: its end is the server's, or mine)
//!            ◄─ views: who I am, who is in the pool and where ─► the caller of cloned calls
//! ```
//!
//! A server that is cut off from the controller says so: then one is looked for that is not, and what is older than
//! what is known is not taken. As long as it follows nobody, calls by frames go on as the pool was last. gRPC calls
//! go to the server that is followed. A server that does not answer by frames is called by gRPC, and tried again
//! after a while.

mod follow;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use pathcall_endpoint::clone::{Answer, Ask, CallerStats};
use pathcall_endpoint::driver::clone::{CallError, CallerHandle};
use pathcall_proto::manifest::Cloned;
use pathcall_proto::v1::FollowPoolRequest;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tonic::Request;

use self::follow::Follower;
use super::builder::Options;
use super::dial::Dial;
use super::transport::Transport;
use crate::headers;

/// How a channel is in a pool.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) options: Options,
    /// How servers are connected to.
    pub(super) dial: Dial,
    /// The methods that the pool answers, and extra requests of each as a share of its calls.
    pub(super) methods: Vec<&'static Cloned>,
}

/// A call by whose metadata servers let this channel follow: none before one has refused it.
#[derive(Debug, Default)]
struct Credentials {
    /// Whether a call's metadata is waited for.
    wanted: AtomicBool,
    call: Mutex<Option<(&'static str, HeaderMap)>>,
    came: Notify,
}

impl Credentials {
    /// A request to follow; the first of the pool's methods stands for a call that is yet to come.
    fn request(&self, first: &'static str, request: FollowPoolRequest) -> Request<FollowPoolRequest> {
        let (path, headers) = lock(&self.call).clone().unwrap_or((first, HeaderMap::new()));
        headers::with(&headers, FollowPoolRequest { method: path.into(), ..request })
    }

    /// The metadata of that call.
    fn headers(&self) -> HeaderMap {
        lock(&self.call).as_ref().map(|(_, headers)| headers.clone()).unwrap_or_default()
    }
}

/// A channel's part in a pool.
#[derive(Debug)]
pub(super) struct Pool {
    state: watch::Receiver<State>,
    /// Servers that gRPC calls can go to, first the one that is followed.
    servers: Arc<Mutex<Vec<Transport>>>,
    past: Arc<Mutex<CallerStats>>,
    credentials: Arc<Credentials>,
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

    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Frames don't get through, or nobody is there: calls go by gRPC for a while.
    pub(super) fn give_up(&self) {
        self.over.send_replace(true);
    }
}

impl Pool {
    /// Begins to follow the first of these servers that lets it.
    pub(super) fn follow(named: Vec<Transport>, terms: Terms) -> Self {
        let (tell, state) = watch::channel(State::Asking);
        let (past, credentials) = (Arc::default(), Arc::<Credentials>::default());
        let servers = Arc::new(Mutex::new(named.clone()));
        let follower = Follower {
            terms,
            transport: named[0].clone(),
            known: named.clone(),
            named,
            servers: Arc::clone(&servers),
            past: Arc::clone(&past),
            credentials: Arc::clone(&credentials),
            tell,
            asked: 0,
        };
        let mut follow = JoinSet::new();
        follow.spawn(follower.run());
        Self { state, servers, past, credentials, _follow: follow }
    }

    /// Notes a call, should servers let this channel follow by its metadata only.
    pub(super) fn offer(&self, method: &'static Cloned, headers: &HeaderMap) {
        let Credentials { wanted, call, came } = &*self.credentials;
        if wanted.load(Ordering::Relaxed) && wanted.swap(false, Ordering::Relaxed) {
            *lock(call) = Some((method.path, headers::of_the_call(headers)));
            came.notify_one();
        }
    }

    /// How calls are made now, as soon as the server has said it; the state it was asked in.
    pub(super) async fn state(&self) -> State {
        let mut state = self.state.clone();
        // The follower lasts as long as this.
        match state.wait_for(|state| !matches!(state, State::Asking)).await {
            Ok(state) => match &*state {
                // A call has found that no frames get through, and the follower has yet to say so: before it ends a
                // session itself it says how calls are made then.
                State::Frames(session) if session.is_over() => State::Plain,
                state => state.clone(),
            },
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
        set_aside: a.set_aside + b.set_aside,
        working: a.working + b.working,
        cancelled: a.cancelled + b.cancelled,
        silent: a.silent + b.silent,
        ignored: a.ignored + b.ignored,
        frames: a.frames + b.frames,
    }
}
