//! A request as its handler sees it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::Instant;
use tokio::sync::{Notify, mpsc};

use super::state::Shared;
use crate::delegate::worker::record::Record;
use crate::delegate::worker::{Work, WorkError};
use crate::delegate::{Context, RequestId, Status};

/// Replies of one request that wait for its caller, beyond which [`Request::reply`] waits too.
const WAITING_MAX: usize = 16;

/// What a node is told of a request that it works on.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Replies have left that waited for a grant, or none does any more; several tasks may wait for that.
    granted: Notify,
    aborted: AtomicBool,
    abort: Notify,
}

impl Waiting {
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.abort.notify_waiters();
        self.granted();
    }

    /// Has all who wait in [`Request::reply`] look again.
    pub(super) fn granted(&self) {
        self.granted.notify_waiters();
    }
}

/// The requests that come to a node.
#[derive(Debug)]
pub struct Requests(pub(super) Arc<Shared>);

impl Requests {
    /// The next request, in the order that the node was told. Cancelling it loses nothing.
    pub async fn receive(&self) -> Request {
        loop {
            if let Some(request) = self.try_receive() {
                return request;
            }
            self.0.work.notified().await;
        }
    }

    /// The next request, if there is one now.
    #[must_use]
    pub fn try_receive(&self) -> Option<Request> {
        let node = &self.0;
        let (work, waiting, now, more) = node.look(|state| {
            // Whoever waits for requests looks often when there is none.
            let now = state.worker.is_waiting().then(|| node.now())?;
            let work = state.worker.next(now)?;
            let waiting = Arc::<Waiting>::default();
            state.requests.insert(work.execution, Arc::clone(&waiting));
            Some((work, waiting, now, state.worker.is_waiting()))
        })?;
        if more {
            node.work.notify_one();
        }
        Some(Request { node: Arc::clone(node), work, waiting, taken: now, over: AtomicBool::new(false) })
    }
}

/// A request that is worked on. Dropped before [`finish`](Self::finish) it fails, and its call with it.
#[derive(Debug)]
pub struct Request {
    node: Arc<Shared>,
    work: Work,
    waiting: Arc<Waiting>,
    taken: Instant,
    over: AtomicBool,
}

impl Request {
    /// What is asked for.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.work.payload
    }

    /// The call that it is a part of.
    #[must_use]
    pub fn call(&self) -> Context {
        self.work.call
    }

    /// Which request of the call it is.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.work.request
    }

    /// Servers that it went through before.
    #[must_use]
    pub fn depth(&self) -> u8 {
        self.work.depth
    }

    /// Whether its call is traced.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.work.traced
    }

    /// How much time it had when it was taken; `None`: no limit.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        self.work.deadline.map(|deadline| deadline.since(self.taken))
    }

    /// Sends an item to the caller. Waits, where many of this request wait for the caller to take some; several tasks
    /// may do so at once.
    ///
    /// # Errors
    /// [`WorkError`]: nobody wants it any more, the request is over meanwhile, or there were too many.
    pub async fn reply(&self, item: Bytes) -> Result<(), WorkError> {
        self.reply_now(item)?;
        if self.work.once {
            return Ok(()); // Nothing leaves before all of it is durable: no grant would come.
        }
        let execution = self.work.execution;
        loop {
            // Before it looks: it hears of what changes from here on.
            let granted = self.waiting.granted.notified();
            let waiting = self.node.look(|state| {
                let worker = &state.worker;
                worker.is_working(execution).then(|| worker.waiting(execution))
            });
            if waiting.ok_or(WorkError::Gone)? <= WAITING_MAX {
                return Ok(());
            }
            granted.await;
        }
    }

    /// As [`reply`](Self::reply), and never waits: whoever sends many at once has them all in memory.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn reply_now(&self, item: Bytes) -> Result<(), WorkError> {
        let said = self.node.with(|state, now| {
            let (_, worker, mut out) = state.split(now);
            worker.reply(now, self.work.execution, item, &mut out)
        });
        self.ends_with(said)
    }

    /// Passes a request on to another server, as part of this one.
    ///
    /// # Errors
    /// [`WorkError`]; where the call goes too deep or too wide it fails.
    pub fn delegate(&self, to: SocketAddr, request: Bytes) -> Result<(), WorkError> {
        let said = self.node.with(|state, now| {
            let (_, worker, mut out) = state.split(now);
            worker.delegate(now, self.work.execution, to, request, &mut out)
        });
        self.ends_with(said)
    }

    /// Says that all that it leads to was said: it is done. One that is to be done exactly once has to be
    /// [sealed](Self::seal) instead, and fails.
    ///
    /// # Errors
    /// [`WorkError::Gone`]: it was aborted before.
    pub fn finish(&self) -> Result<(), WorkError> {
        if self.work.once {
            let why = "the call is to be done exactly once, and this server records nothing";
            self.fail(&Status::new(Status::FAILED_PRECONDITION, why));
            return Err(WorkError::Gone);
        }
        self.end().map(drop)
    }

    /// Whether it is to be done exactly once.
    #[must_use]
    pub fn is_once(&self) -> bool {
        self.work.once
    }

    /// Says that all that it leads to was said; nothing of that leaves before [`Sealed::release`], when effect
    /// and record are durable together (DPC §3.5.3). From here on it can't fail but by [`Sealed::discard`]. One
    /// that need not be done exactly once is done at once.
    ///
    /// # Errors
    /// [`WorkError::Gone`]: it was aborted before.
    pub fn seal(&self) -> Result<Sealed, WorkError> {
        let record = self.end()?;
        let decided = record.is_none();
        Ok(Sealed { node: Arc::clone(&self.node), execution: self.work.execution, record, decided })
    }

    /// Whether it is finished, sealed or has failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends it, and its call, with an error.
    pub fn fail(&self, status: &Status) {
        self.over.store(true, Ordering::Release);
        self.node.with(|state, now| {
            state.requests.remove(&self.work.execution);
            let (_, worker, mut out) = state.split(now);
            worker.fail(now, self.work.execution, status, &mut out);
        });
        // Nobody will tell it of its call any more.
        self.waiting.abort();
    }

    /// Whoever worked on it does so no more, by a panic perhaps: unless it is over it fails.
    pub fn forsake(&self) {
        if !self.is_over() {
            let why = if std::thread::panicking() { "the handler panicked" } else { "the handler was dropped" };
            self.fail(&Status::new(Status::INTERNAL, why));
        }
    }

    /// Names its span in the call's trace: the method, say.
    pub fn label(&self, label: &str) {
        self.node.look(|state| state.worker.label(self.work.execution, label));
    }

    /// Says that it gets on, where the node asks for signs of life.
    pub fn progress(&self) {
        self.node.look(|state| state.worker.progress(self.node.now(), self.work.execution));
    }

    /// Whether nobody wants its result any more.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.waiting.aborted.load(Ordering::Acquire)
    }

    /// Until nobody wants its result any more.
    pub async fn aborted(&self) {
        loop {
            let abort = self.waiting.abort.notified();
            if self.is_aborted() {
                return;
            }
            abort.await;
        }
    }

    /// What can't be said has ended the request: nobody waits for a grant any more.
    fn ends_with<T>(&self, said: Result<T, WorkError>) -> Result<T, WorkError> {
        said.inspect_err(|_| self.waiting.granted())
    }

    fn end(&self) -> Result<Option<Record>, WorkError> {
        self.over.store(true, Ordering::Release);
        let record = self.node.with(|state, now| {
            state.requests.remove(&self.work.execution);
            let (_, worker, mut out) = state.split(now);
            worker.finish(now, self.work.execution, &mut out)
        });
        self.waiting.granted();
        record
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.forsake();
    }
}

/// A request that is done, and what it led to is not sent yet. Dropped before it is decided whether its record is
/// durable, it is neither done nor done again by this process: its call fails when nobody has confirmed it for its
/// time-out, each time that it is made, until the node is started anew with what has become durable.
#[derive(Debug)]
pub struct Sealed {
    node: Arc<Shared>,
    execution: Context,
    record: Option<Record>,
    decided: bool,
}

impl Sealed {
    /// What has to become durable together with the effect; `None` where nothing has to.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// Sends what it led to: both are durable.
    pub fn release(mut self) {
        self.decided = true;
        self.node.with(|state, now| {
            let (_, worker, mut out) = state.split(now);
            worker.release(now, self.execution, &mut out);
        });
    }

    /// Neither is durable, for sure: it fails, and is worked on again when its call is made again. One that need
    /// not be done exactly once is done already.
    pub fn discard(mut self, status: &Status) {
        self.decided = true;
        self.node.with(|state, now| {
            let (_, worker, mut out) = state.split(now);
            worker.discard(now, self.execution, status, &mut out);
        });
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        if !self.decided {
            self.node.with(|state, _| state.worker.set_stalled(self.execution, true));
        }
    }
}

/// Records that are needed no more, as they come to be; of a node that was [resumed](super::Node::resume).
#[derive(Debug)]
pub struct Forgotten(pub(super) mpsc::UnboundedReceiver<(Context, RequestId)>);

impl Forgotten {
    /// The next one: the call and its request. Who deletes the record stores the last such call of each caller, for
    /// [`History::ended`](super::History::ended). `None` when the node is gone. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Option<(Context, RequestId)> {
        self.0.recv().await
    }
}
