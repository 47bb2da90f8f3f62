//! Membership of a channel in a pool: it follows one server, and another one if that server fails.
//!
//! ```text
//! FollowPool ─► a server: address of the caller's frames      (a stream: its end is the server's, or the caller's)
//!            ◄─ views: the caller's id, the pool's servers ─► caller of cloned calls
//! ```
//!
//! A server that has lost the controller reports this. The channel then looks for a server that has not, and ignores
//! views that are older than its own. While the channel follows no server, calls by frames use the last view. gRPC
//! calls go to the server that is followed. If a server does not answer frames, calls go by gRPC, and frames are tried
//! again after a while.

mod follow;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use pathcall_driver::clone::{CloneCallError, CloneCallerHandle};
use pathcall_endpoint::clone::{CloneAnswer, CloneCall, CloneCallerStats};
use pathcall_proto::manifest::Cloned;
use pathcall_proto::v1::FollowPoolRequest;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tonic::Request;

use self::follow::Follower;
use super::builder::ChannelOptions;
use super::dial::DialOptions;
use super::stats::MethodPolicy;
use super::transport::Transport;
use crate::headers;

/// Options of a pool membership.
#[derive(Debug, Clone)]
pub(super) struct PoolOptions {
    pub(super) options: ChannelOptions,
    /// Connection options for servers.
    pub(super) dial: DialOptions,
    /// Rack of this caller; empty if none is named.
    pub(super) rack: String,
    /// Methods of the pool, each with its hedge budget.
    pub(super) methods: Vec<&'static Cloned>,
}

/// Metadata of a call with which servers let this channel follow the pool. Empty until a server has refused a request
/// without it.
#[derive(Debug, Default)]
struct FollowCredentials {
    /// Whether the follower waits for a call's metadata.
    wanted: AtomicBool,
    call: Mutex<Option<(&'static str, HeaderMap)>>,
    came: Notify,
}

impl FollowCredentials {
    /// Request to follow a pool. Before the first call, the first method of the pool stands for it.
    fn request(&self, first: &'static str, request: FollowPoolRequest) -> Request<FollowPoolRequest> {
        let (path, headers) = lock(&self.call).clone().unwrap_or((first, HeaderMap::new()));
        headers::request_with(&headers, FollowPoolRequest { method: path.into(), ..request })
    }

    /// Metadata of the recorded call.
    fn headers(&self) -> HeaderMap {
        lock(&self.call).as_ref().map(|(_, headers)| headers.clone()).unwrap_or_default()
    }
}

/// Membership of a channel in a pool.
#[derive(Debug)]
pub(super) struct PoolMembership {
    state: watch::Receiver<PoolState>,
    /// Servers for gRPC calls; the followed server is first.
    servers: Arc<Mutex<Vec<Transport>>>,
    /// Servers of the pool's table, in its order; empty if there is no pool.
    members: Arc<Mutex<Vec<Transport>>>,
    past: Arc<Mutex<CloneCallerStats>>,
    methods: Vec<&'static Cloned>,
    credentials: Arc<FollowCredentials>,
    _follow: JoinSet<()>,
}

/// How the channel makes cloned calls.
#[derive(Debug, Clone)]
pub(super) enum PoolState {
    /// Not known yet: the server has not answered whether it is in a pool.
    Unknown,
    /// By frames.
    Frames(Arc<PoolSession>),
    /// By gRPC.
    Plain,
}

/// Caller of the pool.
#[derive(Debug)]
pub(super) struct PoolSession {
    caller: CloneCallerHandle,
    /// Whether any answer has come by frames.
    answered: AtomicBool,
    over: watch::Sender<bool>,
}

impl PoolSession {
    /// Makes a call; `None` if the session has ended, and a later session may make the call.
    pub(super) async fn call(&self, call: CloneCall) -> Option<Result<CloneAnswer, CloneCallError>> {
        let mut over = self.over.subscribe();
        tokio::select! {
            biased;
            answer = self.caller.call(call) => {
                self.answered.fetch_or(answer.is_ok(), Ordering::Relaxed);
                Some(answer).filter(|answer| *answer != Err(CloneCallError::Stopped))
            }
            _ = over.wait_for(|over| *over) => None,
        }
    }

    /// Whether frames are known to be delivered.
    pub(super) fn has_answers(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Whether any frame has come back: an answer, or a report that a call is worked on.
    pub(super) fn has_received(&self) -> bool {
        let CloneCallerStats { answered, redundant, working, .. } = self.caller.stats();
        answered + redundant + working > 0
    }

    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Ends the session: frames are not delivered. Calls go by gRPC for a while.
    pub(super) fn end(&self) {
        self.over.send_replace(true);
    }
}

impl PoolMembership {
    /// Starts to follow the pool at the first of these servers that permits it.
    pub(super) fn follow(given: Vec<Transport>, terms: PoolOptions) -> Self {
        let (state_sender, state) = watch::channel(PoolState::Unknown);
        let (past, credentials) = (Arc::default(), Arc::<FollowCredentials>::default());
        let (servers, members) = (Arc::new(Mutex::new(given.clone())), Arc::default());
        let methods = terms.methods.clone();
        let follower = Follower {
            terms,
            transport: given[0].clone(),
            known: given.clone(),
            given,
            servers: Arc::clone(&servers),
            members: Arc::clone(&members),
            past: Arc::clone(&past),
            credentials: Arc::clone(&credentials),
            state_sender,
            asked: 0,
        };
        let mut follow = JoinSet::new();
        follow.spawn(follower.run());
        Self { state, servers, members, past, methods, credentials, _follow: follow }
    }

    /// Records the call's metadata if the follower needs it.
    pub(super) fn note_call(&self, method: &'static Cloned, headers: &HeaderMap) {
        let FollowCredentials { wanted, call, came } = &*self.credentials;
        if wanted.load(Ordering::Relaxed) && wanted.swap(false, Ordering::Relaxed) {
            *lock(call) = Some((method.path, headers::application_metadata(headers)));
            came.notify_one();
        }
    }

    /// How calls are made now. Waits until the server has answered.
    pub(super) async fn state(&self) -> PoolState {
        let mut state = self.state.clone();
        // The follower lives as long as `self`.
        match state.wait_for(|state| !matches!(state, PoolState::Unknown)).await {
            Ok(state) => match &*state {
                // A call has found that frames are not delivered, and the follower has not changed the state yet. When
                // the follower ends a session itself, it changes the state first.
                PoolState::Frames(session) if session.is_over() => PoolState::Plain,
                state => state.clone(),
            },
            Err(_) => PoolState::Plain,
        }
    }

    /// Server for gRPC calls.
    pub(super) fn transport(&self) -> Transport {
        lock(&self.servers)[0].clone()
    }

    /// Server for gRPC calls, followed by the other known servers of the pool.
    pub(super) fn transports(&self) -> Vec<Transport> {
        lock(&self.servers).clone()
    }

    /// Servers of the pool's table, each once; empty if there is no pool.
    pub(super) fn members(&self) -> Vec<Transport> {
        lock(&self.members).clone()
    }

    /// Policies of automatic methods, each with the hedge budget of its index.
    pub(super) fn policies(&self) -> Vec<MethodPolicy> {
        let PoolState::Frames(session) = &*self.state.borrow() else { return Vec::new() };
        let policy = |(budget, method): (u8, &&'static Cloned)| {
            Some(MethodPolicy { method: method.path, stats: session.caller.policy(budget)? })
        };
        (0..=u8::MAX).zip(&self.methods).filter_map(policy).collect()
    }

    pub(super) fn stats(&self) -> CloneCallerStats {
        let now = match &*self.state.borrow() {
            PoolState::Frames(session) => session.caller.stats(),
            PoolState::Unknown | PoolState::Plain => CloneCallerStats::default(),
        };
        sum(*lock(&self.past), now)
    }
}

/// Held briefly, by code that does not panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sum of the counters of two callers.
pub(super) fn sum(a: CloneCallerStats, b: CloneCallerStats) -> CloneCallerStats {
    CloneCallerStats {
        calls: a.calls + b.calls,
        answered: a.answered + b.answered,
        failed: a.failed + b.failed,
        cloned: a.cloned + b.cloned,
        second_requests: a.second_requests + b.second_requests,
        repeated: a.repeated + b.repeated,
        reminded: a.reminded + b.reminded,
        hedged: a.hedged + b.hedged,
        hedged_by_element: a.hedged_by_element + b.hedged_by_element,
        after_failed: a.after_failed + b.after_failed,
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
