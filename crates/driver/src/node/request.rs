//! Incoming request, as its handler uses it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::Instant;
use tokio::sync::{Notify, mpsc};

use super::shards::{NodeShard, NodeShards};
use pathcall_endpoint::delegate::worker::record::RequestRecord;
use pathcall_endpoint::delegate::worker::{DelegatedRequest, ExecutionError};
use pathcall_endpoint::delegate::{ContextId, RequestId, Status};

/// Replies of one request that may wait for the caller before [`NodeRequest::reply`] waits, too.
const WAITING_REPLIES_MAX: usize = 16;

/// Notifications from the node to a request in progress.
#[derive(Debug, Default)]
pub(super) struct RequestNotifier {
    /// Replies that waited for a grant have left, or none waits any more; several tasks may wait for that.
    granted: Notify,
    aborted: AtomicBool,
    abort: Notify,
}

impl RequestNotifier {
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.abort.notify_waiters();
        self.wake_replies();
    }

    /// Wakes all tasks that wait in [`NodeRequest::reply`].
    pub(super) fn wake_replies(&self) {
        self.granted.notify_waiters();
    }
}

/// Incoming requests of a node, or of one of its shards.
#[derive(Debug)]
pub struct NodeRequests {
    node: Arc<NodeShards>,
    /// The shard, or all of them.
    shard: Option<usize>,
    /// Shard that the next search begins with.
    next: AtomicUsize,
}

impl NodeRequests {
    /// Requests of all shards.
    pub(super) fn of(node: &Arc<NodeShards>) -> Self {
        Self { node: Arc::clone(node), shard: None, next: AtomicUsize::new(0) }
    }

    /// Splits the requests by the shards of the node, for a receiver on the runtime of each shard. Every shard needs its
    /// receiver.
    #[must_use]
    pub fn by_shard(self) -> Vec<Self> {
        let of = |shard| Self { node: Arc::clone(&self.node), shard: Some(shard), next: AtomicUsize::new(0) };
        (0..self.node.all().len()).map(of).collect()
    }

    /// Waits for the next request. A shard gives its requests in the configured order, and shards take turns. Cancel
    /// safe.
    pub async fn receive(&self) -> NodeRequest {
        loop {
            if let Some(request) = self.try_receive() {
                return request;
            }
            self.waiting().await;
        }
    }

    /// Waits until a request waits; another receiver may take it. Cancel safe.
    pub async fn waiting(&self) {
        while !self.is_waiting() {
            self.notification().notified().await;
        }
    }

    fn notification(&self) -> &Notify {
        let group = &self.node.group().request_waiting;
        self.shard.filter(|_| self.node.all().len() > 1).map_or(group, |shard| &self.node.all()[shard].request_waiting)
    }

    fn is_waiting(&self) -> bool {
        let group = self.node.group();
        self.shard.map_or_else(|| group.is_waiting(), |shard| group.loads[shard].is_waiting())
    }

    /// Returns the next request, if there is one now.
    #[must_use]
    pub fn try_receive(&self) -> Option<NodeRequest> {
        let group = self.node.group();
        let request = match self.shard {
            Some(shard) => self.try_receive_of(shard),
            None => {
                let shards = group.loads.len();
                let first = if shards == 1 { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) };
                (0..shards).find_map(|turn| self.try_receive_of(first.wrapping_add(turn) % shards))
            }
        }?;
        if self.is_waiting() {
            self.notification().notify_one();
        }
        Some(request)
    }

    fn try_receive_of(&self, shard: usize) -> Option<NodeRequest> {
        // Handlers poll often while no request waits: avoid the lock and the clock.
        if !self.node.group().loads[shard].is_waiting() {
            return None;
        }
        let node = self.node.shard(shard);
        let received_at = node.now();
        let (request, notifier) = node.with_state(|state| {
            let delegated = state.worker.next(received_at);
            let notifier = Arc::<RequestNotifier>::default();
            if let Some(delegated) = &delegated {
                state.requests.insert(delegated.execution, Arc::clone(&notifier));
            }
            state.record_load();
            Some((delegated?, notifier))
        })?;
        Some(NodeRequest { node, request, notifier, received_at, over: AtomicBool::new(false) })
    }
}

/// Request in progress. Dropping it before [`finish`](Self::finish) fails it, and its call with it.
#[derive(Debug)]
pub struct NodeRequest {
    node: NodeShard,
    request: DelegatedRequest,
    notifier: Arc<RequestNotifier>,
    received_at: Instant,
    over: AtomicBool,
}

impl NodeRequest {
    /// Payload of the request.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.request.payload
    }

    /// Call to which the request belongs.
    #[must_use]
    pub fn call(&self) -> ContextId {
        self.request.call
    }

    /// Id of the request within the call.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.request.request
    }

    /// Number of servers that the request passed through before.
    #[must_use]
    pub fn depth(&self) -> u8 {
        self.request.depth
    }

    /// Returns whether the call is traced.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.request.traced
    }

    /// Time that was left when the request was received; `None`: no limit.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        self.request.deadline.map(|deadline| deadline.since(self.received_at))
    }

    /// Sends an item to the caller. Waits while too many items wait for the caller's grants; several tasks may do so at
    /// once.
    ///
    /// # Errors
    /// [`ExecutionError`]: the call was aborted, the request has ended, or it has sent too many items.
    pub async fn reply(&self, item: Bytes) -> Result<(), ExecutionError> {
        self.reply_now(item)?;
        if self.request.once {
            return Ok(()); // No message leaves before the record is durable: no grant would come.
        }
        let execution = self.request.execution;
        loop {
            // Register before checking, so that no change is missed.
            let granted = self.notifier.granted.notified();
            let waiting = self.node.with_state(|state| {
                let worker = &state.worker;
                worker.is_working(execution).then(|| worker.waiting(execution))
            });
            if waiting.ok_or(ExecutionError::Ended)? <= WAITING_REPLIES_MAX {
                return Ok(());
            }
            granted.await;
        }
    }

    /// Sends an item as [`reply`](Self::reply) does, without waiting: all items are held in memory until they leave.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn reply_now(&self, item: Bytes) -> Result<(), ExecutionError> {
        let result = self.node.with(|state, now| {
            let (_, worker, mut out) = state.split(now);
            worker.reply(now, self.request.execution, item, &mut out)
        });
        self.wake_on_error(result)
    }

    /// Delegates a request to another server, as part of this one.
    ///
    /// # Errors
    /// [`ExecutionError`]; a call that goes too deep or too wide fails.
    pub fn delegate(&self, to: SocketAddr, request: Bytes) -> Result<(), ExecutionError> {
        let result = self.node.with(|state, now| {
            let (_, worker, mut out) = state.split(now);
            worker.delegate(now, self.request.execution, to, request, &mut out)
        });
        self.wake_on_error(result)
    }

    /// Finishes the request: all its replies and delegations were made. An exactly-once request has to be
    /// [prepared](Self::prepare) instead, and fails here.
    ///
    /// # Errors
    /// [`ExecutionError::Ended`]: the request was aborted before.
    pub fn finish(&self) -> Result<(), ExecutionError> {
        if self.request.once {
            let reason = "exactly-once calls need a server that records requests";
            self.fail(&Status::new(Status::FAILED_PRECONDITION, reason));
            return Err(ExecutionError::Ended);
        }
        self.end().map(drop)
    }

    /// Returns whether the request belongs to an exactly-once call.
    #[must_use]
    pub fn is_once(&self) -> bool {
        self.request.once
    }

    /// Finishes an exactly-once request, and holds its messages until [`PreparedRequest::release`] confirms that effect
    /// and record are durable together (DPC §3.5.3). From here on it can fail only by [`PreparedRequest::discard`]. Any
    /// other request finishes at once.
    ///
    /// # Errors
    /// [`ExecutionError::Ended`]: the request was aborted before.
    pub fn prepare(&self) -> Result<PreparedRequest, ExecutionError> {
        let record = self.end()?;
        let decided = record.is_none();
        Ok(PreparedRequest { node: self.node.clone(), execution: self.request.execution, record, decided })
    }

    /// Returns whether the request is finished, prepared or has failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Fails the request, and its call, with an error.
    pub fn fail(&self, status: &Status) {
        self.over.store(true, Ordering::Release);
        self.node.with(|state, now| {
            state.requests.remove(&self.request.execution);
            let (_, worker, mut out) = state.split(now);
            worker.fail(now, self.request.execution, status, &mut out);
        });
        // The node sends no more notifications to the request.
        self.notifier.abort();
    }

    /// Fails the request unless it is over: its handler was dropped by a panic, or by a server that stops.
    pub fn on_handler_dropped(&self) {
        if !self.is_over() {
            let (code, reason) = match std::thread::panicking() {
                true => (Status::INTERNAL, "the handler panicked"),
                false => (Status::UNAVAILABLE, "the handler was dropped"),
            };
            self.fail(&Status::new(code, reason));
        }
    }

    /// Sets the name of the request's span in the call's trace: the method, for example.
    pub fn set_label(&self, label: &str) {
        self.node.with_state(|state| state.worker.set_label(self.request.execution, label));
    }

    /// Reports progress of the handler, for nodes that check for stalled handlers.
    pub fn record_progress(&self) {
        self.node.with_state(|state| state.worker.record_progress(self.node.now(), self.request.execution));
    }

    /// Returns whether the request was aborted.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.notifier.aborted.load(Ordering::Acquire)
    }

    /// Waits until the request is aborted.
    pub async fn aborted(&self) {
        loop {
            let abort = self.notifier.abort.notified();
            if self.is_aborted() {
                return;
            }
            abort.await;
        }
    }

    /// Wakes the waiting tasks after an error, because the error has ended the request.
    fn wake_on_error<T>(&self, result: Result<T, ExecutionError>) -> Result<T, ExecutionError> {
        result.inspect_err(|_| self.notifier.wake_replies())
    }

    fn end(&self) -> Result<Option<RequestRecord>, ExecutionError> {
        self.over.store(true, Ordering::Release);
        let record = self.node.with(|state, now| {
            state.requests.remove(&self.request.execution);
            let (_, worker, mut out) = state.split(now);
            worker.finish(now, self.request.execution, &mut out)
        });
        self.notifier.wake_replies();
        record
    }
}

impl Drop for NodeRequest {
    fn drop(&mut self) {
        self.on_handler_dropped();
    }
}

/// Finished request whose messages are held back until its record is durable. If it is dropped undecided, this process
/// neither completes nor repeats the request: its call fails at its timeout, each time that it is made, until the node
/// restarts with the durable records.
#[derive(Debug)]
pub struct PreparedRequest {
    node: NodeShard,
    execution: ContextId,
    record: Option<RequestRecord>,
    decided: bool,
}

impl PreparedRequest {
    /// Record to store durably together with the effect; `None` for a request that is not exactly-once.
    #[must_use]
    pub fn record(&self) -> Option<&RequestRecord> {
        self.record.as_ref()
    }

    /// Sends the held messages: effect and record are durable.
    pub fn release(mut self) {
        self.decided = true;
        self.node.with(|state, now| {
            let (_, worker, mut out) = state.split(now);
            worker.release(now, self.execution, &mut out);
        });
    }

    /// Fails the request: neither effect nor record is durable. It runs again when its call is made again. A request
    /// that is not exactly-once is already done.
    pub fn discard(mut self, status: &Status) {
        self.decided = true;
        self.node.with(|state, now| {
            let (_, worker, mut out) = state.split(now);
            worker.discard(now, self.execution, status, &mut out);
        });
    }
}

impl Drop for PreparedRequest {
    fn drop(&mut self) {
        if !self.decided {
            self.node.with(|state, _| state.worker.set_stalled(self.execution, true));
        }
    }
}

/// Receiver of the ids of obsolete records, of a node that was [resumed](super::Node::resume).
#[derive(Debug)]
pub struct ObsoleteRecords(pub(super) mpsc::UnboundedReceiver<(ContextId, RequestId)>);

impl ObsoleteRecords {
    /// Waits for the next obsolete record: its call and request. The application that deletes the record stores the last
    /// such call of each caller, for [`RecordHistory::ended`](super::RecordHistory::ended). `None` when the node has
    /// ended. Cancel safe.
    pub async fn next(&mut self) -> Option<(ContextId, RequestId)> {
        self.0.recv().await
    }
}
