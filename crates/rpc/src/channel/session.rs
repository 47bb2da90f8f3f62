//! Membership of a channel in one application: joined at the first call, and again when it is lost.
//!
//! ```text
//! Join ─► server: endpoint, address of its map frames         (a stream: its end is the caller's leave)
//!      ◄─ grant: id, address of the element                   (its end: the server has failed)
//! ```
//!
//! With each join the caller is a new incarnation, so frames of an earlier one are not taken for its own. If the server
//! does not answer by UDP, the channel joins once more, and its frames are carried over HTTP/2. A later join tries UDP
//! again.
//!
//! A session whose sequence numbers are used up is replaced. The old session ends by itself, once its calls have ended
//! and the server has the values that only the element had.

mod admissions;
mod carry;
mod continuity;
mod gradients;
mod guards;
mod join;
mod resume;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use pathcall_driver::client::MapHandle;
use pathcall_endpoint::map::client::ClientStats;
use pathcall_endpoint::map::{CallError, Operation, Output};
use pathcall_proto::manifest::{Kind, Method};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::sleep;
use tonic::{Code, Status};

use super::builder::ChannelOptions;
use super::paths::{CallPath, MeasuredPaths, PathChoice, ServerLocation};
use super::stats::{ApplicationStats, CarriedStats, Counter, sum, sum_carried};
use super::transport::Transport;
use crate::application::Application;
use crate::key_numbers::KnownKeyNumbers;
use crate::request::Request;
use crate::{headers, status};
use admissions::Admissions;
use continuity::SumPosition;
use gradients::KeptGradients;
pub(super) use guards::{LockReleaseGuard, SumCancelGuard};
use join::JoinAttempt;

/// Time for which an exhausted worker stays, where only workers have the sums (not with clear policy *copy*): another worker
/// may have missed the last sum, and the worker that joins next would begin with it.
const LINGER: Duration = Duration::from_secs(1);
/// Interval at which the end of its calls is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Application of a channel, with its current session.
#[derive(Debug)]
pub(super) struct ChannelApplication {
    pub(super) application: Application,
    pub(super) options: ChannelOptions,
    current: Mutex<Option<Arc<MapSession>>>,
    /// Held during a join: other calls wait. Contains time and status of the last failure.
    joining: tokio::sync::Mutex<Option<(Instant, Status)>>,
    joins: Counter,
    /// Exhausted sessions that are leaving; the result tells whether the server has all their values.
    leaving: tokio::sync::Mutex<Option<JoinHandle<bool>>>,
    /// Task that reports a cancelled sum to the server.
    cancelling: Mutex<Option<JoinHandle<()>>>,
    /// Counters of earlier sessions.
    past: Mutex<(ClientStats, CarriedStats)>,
    /// Incarnation of the server that has state of this caller.
    stateful_server: Mutex<Option<u32>>,
    /// Where the next sum begins; none before the first sum, and after a failed one.
    sum_position: Mutex<Option<SumPosition>>,
    /// Measured times of methods whose calls have a choice of paths.
    measured: Mutex<BTreeMap<&'static str, MeasuredPaths>>,
    /// What this worker keeps of its gradients; held during a sum of one.
    gradients: tokio::sync::Mutex<KeptGradients>,
}

impl ChannelApplication {
    pub(super) fn new(application: Application, options: ChannelOptions) -> Self {
        Self {
            application,
            options,
            current: Mutex::default(),
            joining: tokio::sync::Mutex::default(),
            joins: Counter::default(),
            leaving: tokio::sync::Mutex::default(),
            cancelling: Mutex::default(),
            past: Mutex::default(),
            stateful_server: Mutex::default(),
            sum_position: Mutex::default(),
            measured: Mutex::default(),
            gradients: tokio::sync::Mutex::default(),
        }
    }

    /// Current session; joins first if there is none, for a call of `method` with these headers.
    pub(super) async fn session(
        self: &Arc<Self>,
        method: &Method,
        headers: &HeaderMap,
        transport: &Transport,
    ) -> Result<Arc<MapSession>, Status> {
        match self.live() {
            Some(session) => Ok(session),
            // Needed once for many calls, so in a boxed future.
            None => Box::pin(self.joined(method, headers, transport)).await,
        }
    }

    async fn joined(
        self: &Arc<Self>,
        method: &Method,
        headers: &HeaderMap,
        transport: &Transport,
    ) -> Result<Arc<MapSession>, Status> {
        let came = Instant::now();
        let mut joining = self.joining.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        // A call that waited for a failed attempt shares its failure; attempts of its own would take as long again.
        if let Some((at, failed)) = &*joining
            && *at > came
        {
            return Err(failed.clone());
        }
        self.wait_for_cancellation().await;
        self.retire_last().await;
        let sums = *lock(&self.sum_position);
        let (application, options) = (&self.application, &self.options);
        let join = JoinAttempt { application, options, method, headers, transport, sums };
        let session = match join.run().await {
            Ok(session) => Arc::new(session),
            Err(failed) => {
                let is_shared_failure = matches!(failed.code(), Code::Unavailable | Code::DeadlineExceeded);
                *joining = is_shared_failure.then(|| (Instant::now(), failed.clone()));
                return Err(failed);
            }
        };
        self.joins.add();
        let (admissions, over) = (Arc::clone(&session.admissions), session.over.subscribe());
        tokio::spawn(admissions.renew(over, self.application.name, transport.clone()));
        // A session that can continue waits for another server instead.
        if session.suspended.is_none() {
            let (application, over) = (Arc::downgrade(self), session.over.subscribe());
            let server = (Arc::clone(&session.admissions), transport.clone());
            tokio::spawn(leave_at_shutdown(application, session.incarnation, over, server));
        }
        *lock(&self.current) = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Chooses the path of a call with this message, of which `len` bytes count. `has_id`: the call has an id.
    pub(super) fn choose_path(&self, method: &Method, message: &Bytes, len: usize, has_id: bool) -> PathChoice {
        let pinned = self.options.path.unwrap_or(method.map_path);
        let current = lock(&self.current).clone();
        let server = current.as_ref().map_or(ServerLocation::OtherHost, |session| session.location());
        let reads = server == ServerLocation::BehindElement && self.application.reads_by_element();
        PathChoice::without_measurement(method, pinned, len, (has_id, reads)).unwrap_or_else(|| {
            if current.as_ref().is_some_and(|session| session.suspended.is_some()) {
                // Frames are repeated at another server, where each takes effect once; a direct call fails.
                return PathChoice::only(CallPath::Frames);
            }
            // The caller of a malformed message gets its error from the path.
            let values = || Request::new(method, message).ok().and_then(|request| request.typed).map_or(0, |t| t.len());
            lock(&self.measured).entry(method.path).or_insert_with(MeasuredPaths::new).choose(len, server, values)
        })
    }

    /// Records the time of a successful call that began then.
    pub(super) fn record_time(&self, method: &Method, choice: PathChoice, began: Instant) {
        if choice.is_measured()
            && let Some(measured) = lock(&self.measured).get_mut(method.path)
        {
            measured.record(choice, began.elapsed());
        }
    }

    pub(super) fn stats(&self) -> ApplicationStats {
        let current =
            lock(&self.current).as_ref().map(|session| (session.handle.stats(), session.handle.carried_stats()));
        let (past, current) = (*lock(&self.past), current.unwrap_or_default());
        let (map, carried) = (sum(past.0, current.0), sum_carried(past.1, current.1));
        let paths = lock(&self.measured).iter().flat_map(|(method, measured)| measured.report(method)).collect();
        ApplicationStats { name: self.application.name, joins: self.joins.read(), map, carried, paths }
    }

    fn live(&self) -> Option<Arc<MapSession>> {
        let mut current = lock(&self.current);
        let session = current.as_mut().filter(|session| !session.is_over())?;
        (!self.is_exhausted(session)).then(|| Arc::clone(session))
    }

    /// Leaves the application, if joined. Returns whether the server has all values.
    pub(super) async fn close(&self) -> bool {
        let _joining = self.joining.lock().await;
        self.wait_for_cancellation().await;
        let ended = lock(&self.current).as_ref().map(|session| session.handle.ended());
        self.retire();
        let before = self.wait_until_left().await;
        match ended {
            Some(ended) => ended.await && before,
            None => before,
        }
    }

    /// Drops the current session, which has ended or is exhausted.
    fn retire(&self) {
        if let Some(session) = lock(&self.current).take() {
            let mut past = lock(&self.past);
            let carried = CarriedStats { open: 0, ..session.handle.carried_stats() };
            *past = (sum(past.0, session.handle.stats()), sum_carried(past.1, carried));
        }
    }

    /// Whether another session must replace this one. Not yet, if a call that has this session may still take a lock in
    /// it, which would be lost.
    fn is_exhausted(&self, session: &mut Arc<MapSession>) -> bool {
        // The order matters: once no call has the session, all locks taken in it are known.
        let may_lock = self.application.takes_locks && Arc::get_mut(session).is_none();
        !may_lock && session.handle.is_spent()
    }

    /// Retires the last session, which has ended, is exhausted, or whose server is shutting down.
    async fn retire_last(&self) {
        if self.application.threshold > 0 {
            self.linger().await;
        }
        let spent = lock(&self.current).as_ref().filter(|session| !session.is_over()).map(|last| last.handle.ended());
        self.retire();
        if let Some(ended) = spent {
            let mut leaving = self.leaving.lock().await;
            let before = leaving.take();
            *leaving = Some(tokio::spawn(async move {
                let before = match before {
                    Some(before) => before.await.unwrap_or(false),
                    None => true,
                };
                ended.await && before
            }));
        }
        if self.application.threshold > 0 {
            // A worker's place is free once its last holder has left.
            self.wait_until_left().await;
        }
    }

    /// Keeps an exhausted session until its calls have ended, of which one may make several sums, and, with clear policies
    /// *shadow* and *lazy*, other workers have had the time to get its sums.
    async fn linger(&self) {
        let Some(last) = lock(&self.current).clone() else { return };
        // One reference here and one in its place: no call has it.
        while !last.is_over() && Arc::strong_count(&last) > 2 {
            sleep(POLL_INTERVAL).await;
        }
        if self.application.clear.is_by_element() && !last.is_over() {
            sleep(LINGER).await;
        }
    }

    /// Waits until exhausted sessions have left. Returns whether the server has all their values.
    async fn wait_until_left(&self) -> bool {
        let mut leaving = self.leaving.lock().await;
        let Some(session) = leaving.as_mut() else { return true };
        let all = session.await.unwrap_or(false);
        *leaving = None;
        all
    }
}

/// Leaves a session when its server shuts down: calls in progress finish, and the next call joins again. A server that
/// accepts requests on another connection has closed a connection only and is not shutting down.
async fn leave_at_shutdown(
    application: Weak<ChannelApplication>,
    incarnation: u32,
    mut over: watch::Receiver<Option<Arc<str>>>,
    (admissions, transport): (Arc<Admissions>, Transport),
) {
    let mut another = Box::pin(transport.new_connection());
    let application = loop {
        tokio::select! {
            () = &mut another => {}
            _ = over.wait_for(Option::is_some) => return,
        }
        another = Box::pin(transport.new_connection());
        let Some(application) = application.upgrade() else { return };
        if !admissions.is_alive(application.application.name, &transport).await {
            break application;
        }
    };
    let _joining = application.joining.lock().await;
    let is_current = lock(&application.current).as_ref().is_some_and(|session| session.incarnation == incarnation);
    if is_current {
        application.retire_last().await;
    }
}

/// Held briefly, by code that does not panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Session of a member of an application.
#[derive(Debug)]
pub(super) struct MapSession {
    handle: MapHandle,
    /// Id of this caller.
    endpoint: u32,
    incarnation: u32,
    admissions: Arc<Admissions>,
    /// Id of the server's state: its incarnation, unless the state is in a store.
    pub(super) server: u32,
    /// Number of the first chunk of the session's sums.
    start_chunk: u64,
    /// If the session continues with another server when this one ends: whether it waits for that server.
    suspended: Option<watch::Receiver<bool>>,
    /// Whether the frames go by an element.
    by_element: Arc<AtomicBool>,
    /// Whether the server is on this host.
    is_local: bool,
    /// Numbers that the server assigned to long keys.
    pub(super) known: KnownKeyNumbers,
    /// Reason of the session's end, once it has ended.
    over: watch::Sender<Option<Arc<str>>>,
    /// Task that reads the join's stream until the map's task has ended. The end of the stream is the caller's leave.
    watcher: AbortHandle,
}

impl MapSession {
    /// Executes an operation, and tells `begun` the number of a sum's first chunk; fails if the session ends.
    pub(super) async fn call(
        &self,
        method: &Method,
        operation: Operation,
        begun: impl FnOnce(u64),
    ) -> Result<Output, Status> {
        let mut over = self.over.subscribe();
        let outcome = tokio::select! {
            biased;
            outcome = self.handle.call_at(operation, begun) => outcome,
            reason = over.wait_for(Option::is_some) => {
                let reason = reason.ok().and_then(|reason| reason.clone()).unwrap_or_default();
                return Err(Status::unavailable(format!("{} ({}): {reason}", method.path, method.app)));
            }
        };
        outcome.map_err(|error| {
            // After a failed round, only a new membership is in step with the other workers.
            let of_round = matches!(method.kind, Kind::Sum { .. })
                && matches!(error, CallError::Disagree { .. } | CallError::Overflow { .. } | CallError::SumAbandoned);
            if of_round
                || matches!(error, CallError::Unreachable { .. } | CallError::SequenceExhausted | CallError::Closed)
            {
                self.end(error.to_string().into());
            }
            status::of_call(method, &error)
        })
    }

    fn location(&self) -> ServerLocation {
        match (self.by_element.load(Ordering::Relaxed), self.is_local) {
            (true, _) => ServerLocation::BehindElement,
            (false, true) => ServerLocation::ThisHost,
            (false, false) => ServerLocation::OtherHost,
        }
    }

    /// Secret that proves the membership to the server.
    pub(super) fn secret(&self) -> &[u8] {
        self.admissions.secret()
    }

    /// Adds the secret to a call's metadata.
    pub(super) fn prove(&self, headers: &mut HeaderMap) {
        headers.extend(self.admissions.header().map(|secret| (headers::SESSION, secret.clone())));
    }

    /// Waits while the session waits for another server.
    pub(super) async fn continued(&self) {
        if let Some(mut suspended) = self.suspended.clone() {
            // The sender is dropped when the session ends.
            let _ = suspended.wait_for(|suspended| !suspended).await;
        }
    }

    fn is_over(&self) -> bool {
        self.over.borrow().is_some()
    }

    /// Leaves the application. Waiting calls fail with the reason.
    fn end(&self, reason: Arc<str>) {
        self.over.send_replace(Some(reason));
        self.watcher.abort();
    }
}
