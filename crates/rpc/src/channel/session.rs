//! A channel's part in one application: joined at first use, and anew when it is lost.
//!
//! ```text
//! Join ─► server: who I am, where my map frames come from     (a stream: its end is my leave)
//!      ◄─ grant: who I am to be, where the element is         (its end: the server is gone)
//! ```
//!
//! Each time it is joined the caller is a new incarnation, so what was left of the last one on the
//! way can't be taken for its own. A server that does not answer by UDP is joined once more, by a
//! caller whose frames are carried over HTTP/2; a later join tries UDP again.

mod admitted;
mod given_up;
mod join;
mod spent;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use http::HeaderMap;
use pathcall_endpoint::driver::client::MapHandle;
use pathcall_endpoint::map::client::ClientStats;
use pathcall_endpoint::map::{CallError, Operation, Output};
use pathcall_proto::manifest::{Kind, Method};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tonic::{Code, Status};

use super::builder::Options;
use super::stats::{ApplicationStats, CarriedStats, Counter, sum, sum_carried};
use super::transport::Transport;
use crate::application::Application;
use crate::names::Known;
use crate::{headers, status};
use admitted::Admissions;
pub(super) use given_up::GiveUpGuard;
use join::Join;

/// The place of an application in a channel.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) application: Application,
    options: Options,
    current: Mutex<Option<Arc<Session>>>,
    /// Held while the application is joined: calls that come meanwhile wait for it. When that failed last, and how.
    joining: tokio::sync::Mutex<Option<(Instant, Status)>>,
    joins: Counter,
    /// Sessions that were spent, on their way out: whether the server has all that was done in them.
    leaving: tokio::sync::Mutex<Option<JoinHandle<bool>>>,
    /// The server is being told of a sum that was given up.
    giving_up: Mutex<Option<JoinHandle<()>>>,
    /// What the sessions before the current one did.
    past: Mutex<(ClientStats, CarriedStats)>,
    /// The server's incarnation that holds something of this caller.
    invested: Mutex<Option<u32>>,
}

impl Slot {
    pub(super) fn new(application: Application, options: Options) -> Self {
        Self {
            application,
            options,
            current: Mutex::default(),
            joining: tokio::sync::Mutex::default(),
            joins: Counter::default(),
            leaving: tokio::sync::Mutex::default(),
            giving_up: Mutex::default(),
            past: Mutex::default(),
            invested: Mutex::default(),
        }
    }

    /// The session, joined if need be for a call of `method` with these headers.
    pub(super) async fn session(
        self: &Arc<Self>,
        method: &Method,
        headers: &HeaderMap,
        transport: &Transport,
    ) -> Result<Arc<Session>, Status> {
        match self.live() {
            Some(session) => Ok(session),
            // Once for many calls, in a future of its own.
            None => Box::pin(self.joined(method, headers, transport)).await,
        }
    }

    async fn joined(
        self: &Arc<Self>,
        method: &Method,
        headers: &HeaderMap,
        transport: &Transport,
    ) -> Result<Arc<Session>, Status> {
        let came = Instant::now();
        let mut joining = self.joining.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        // Who has waited for an attempt in vain has had its own: each would take as long again.
        if let Some((at, failed)) = &*joining
            && *at > came
        {
            return Err(failed.clone());
        }
        self.given_up().await;
        self.follow_last().await;
        let join = Join { application: &self.application, options: &self.options, method, headers, transport };
        let session = match join.run().await {
            Ok(session) => Arc::new(session),
            Err(failed) => {
                let everybodys = matches!(failed.code(), Code::Unavailable | Code::DeadlineExceeded);
                *joining = everybodys.then(|| (Instant::now(), failed.clone()));
                return Err(failed);
            }
        };
        self.joins.add();
        let (admissions, over) = (Arc::clone(&session.admissions), session.over.subscribe());
        tokio::spawn(admissions.keep(over, self.application.name, transport.clone()));
        let (slot, over) = (Arc::downgrade(self), session.over.subscribe());
        let server = (Arc::clone(&session.admissions), transport.clone());
        tokio::spawn(leave_for_shutdown(slot, session.incarnation, over, server));
        *lock(&self.current) = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Notes that the session's server holds something of this caller now.
    pub(super) fn invest(&self, method: &Method, session: &Session) {
        if matches!(method.kind, Kind::Add { .. } | Kind::Count { .. }) {
            lock(&self.invested).get_or_insert(session.server);
        }
    }

    /// The same of a call with an id, past every session.
    pub(super) fn invest_in(&self, server: u32) {
        lock(&self.invested).get_or_insert(server);
    }

    /// A server that started anew has nothing of what its predecessor had in memory: whoever asks
    /// for it is told so, once, and never gets a silent zero (NOTES: "Who owns the truth").
    pub(super) fn check_loss(&self, method: &Method, session: &Session) -> Result<(), Status> {
        let asks = matches!(method.kind, Kind::Query | Kind::Add { get: true, .. } | Kind::Clear);
        let mut invested = lock(&self.invested);
        if asks && invested.is_some_and(|server| server != session.server) {
            *invested = Some(session.server);
            let (path, app) = (method.path, method.app);
            return Err(Status::data_loss(format!(
                "{path}: the server of {app} has started anew, and what this caller had there was only in its memory"
            )));
        }
        Ok(())
    }

    pub(super) fn stats(&self) -> ApplicationStats {
        let current = lock(&self.current).as_ref().map(|session| (session.handle.stats(), session.handle.carried()));
        let (past, current) = (*lock(&self.past), current.unwrap_or_default());
        let (map, carried) = (sum(past.0, current.0), sum_carried(past.1, current.1));
        ApplicationStats { name: self.application.name, joins: self.joins.read(), map, carried }
    }

    fn live(&self) -> Option<Arc<Session>> {
        let mut current = lock(&self.current);
        let session = current.as_mut().filter(|session| !session.is_over())?;
        (!self.is_spent(session)).then(|| Arc::clone(session))
    }

    /// Leaves the application, if it has joined it; whether the server has all that was done.
    pub(super) async fn close(&self) -> bool {
        let _joining = self.joining.lock().await;
        self.given_up().await;
        let ended = lock(&self.current).as_ref().map(|session| session.handle.ended());
        self.retire();
        let before = self.left().await;
        match ended {
            Some(ended) => ended.await && before,
            None => before,
        }
    }

    /// Leaves with the last session, which is over or spent.
    fn retire(&self) {
        if let Some(session) = lock(&self.current).take() {
            let mut past = lock(&self.past);
            let carried = CarriedStats { open: 0, ..session.handle.carried() };
            *past = (sum(past.0, session.handle.stats()), sum_carried(past.1, carried));
        }
    }
}

/// Lets the server end that a session is at, when it takes no requests any more: calls under way are finished, and the next
/// one joins anew. A server that takes them by another connection has closed an old one, not itself.
async fn leave_for_shutdown(
    slot: Weak<Slot>,
    incarnation: u32,
    mut over: watch::Receiver<Option<Arc<str>>>,
    (admissions, transport): (Arc<Admissions>, Transport),
) {
    let mut another = Box::pin(transport.another());
    let slot = loop {
        tokio::select! {
            () = &mut another => {}
            _ = over.wait_for(Option::is_some) => return,
        }
        another = Box::pin(transport.another());
        let Some(slot) = slot.upgrade() else { return };
        if !admissions.lives(slot.application.name, &transport).await {
            break slot;
        }
    };
    let _joining = slot.joining.lock().await;
    let is_current = lock(&slot.current).as_ref().is_some_and(|session| session.incarnation == incarnation);
    if is_current {
        slot.follow_last().await;
    }
}

/// Held only for a moment, by code that does not panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A member of an application.
#[derive(Debug)]
pub(super) struct Session {
    handle: MapHandle,
    /// What this caller goes by.
    endpoint: u32,
    incarnation: u32,
    admissions: Arc<Admissions>,
    /// The server's incarnation.
    pub(super) server: u32,
    /// Numbers that it gave to long keys.
    pub(super) known: Known,
    /// Why it is over, once it is.
    over: watch::Sender<Option<Arc<str>>>,
    /// Reads the join's stream until the map's task has ended; the stream's end is the caller's leave.
    watcher: AbortHandle,
}

impl Session {
    /// Does the operation, and gives up when the session is over.
    pub(super) async fn call(&self, method: &Method, operation: Operation) -> Result<Output, Status> {
        let mut over = self.over.subscribe();
        let outcome = tokio::select! {
            biased;
            outcome = self.handle.call(operation) => outcome,
            reason = over.wait_for(Option::is_some) => {
                let reason = reason.ok().and_then(|reason| reason.clone()).unwrap_or_default();
                return Err(Status::unavailable(format!("{} ({}): {reason}", method.path, method.app)));
            }
        };
        outcome.map_err(|error| {
            // A round that failed is the end of the place in its application: another one is sure.
            let of_round = matches!(method.kind, Kind::Sum { .. })
                && matches!(error, CallError::Disagree { .. } | CallError::Overflow { .. } | CallError::GivenUp);
            if of_round || matches!(error, CallError::Unreachable { .. } | CallError::Spent | CallError::Closed) {
                self.end(error.to_string().into());
            }
            status::of_call(method, &error)
        })
    }

    /// What proves to the server that this caller has joined.
    pub(super) fn secret(&self) -> &[u8] {
        self.admissions.secret()
    }

    /// Puts that in a call's metadata.
    pub(super) fn prove(&self, headers: &mut HeaderMap) {
        headers.extend(self.admissions.header().map(|secret| (headers::SESSION, secret.clone())));
    }

    /// Gives locks back for a caller that is gone.
    pub(super) async fn release(self: Arc<Self>, release: Operation) {
        // What can't be given back any more is lost with the lease.
        let _ = self.handle.call(release).await;
    }

    fn is_over(&self) -> bool {
        self.over.borrow().is_some()
    }

    /// Leaves the application; whoever still waits for an answer is told the reason.
    fn end(&self, reason: Arc<str>) {
        self.over.send_replace(Some(reason));
        self.watcher.abort();
    }
}
