//! Delegate worker: the requests that a node processes.
//!
//! ```text
//! request ─▶ queue ─▶ next() ─▶ handler ─▶ reply(), delegate() ─▶ finish()
//!                                             │
//!              held: one message, until the next one or finish(), for the manifest
//! ```
//!
//! Each request is an execution with a context of its own. Its requests and responses are numbered as they leave. The
//! parent's manifest, which came with the request, leaves with the first message; its own manifest leaves with the last
//! one (DPC §4.3.1). So one message is always held until the handler has finished, or for a bounded time: then the
//! manifest leaves in a response without content. A completed execution is kept until no caller asks for it any more
//! (§4.4.4).

mod api;
mod execution;
mod execution_timers;
mod incoming;
mod outgoing;
mod queue_accounting;
pub mod record;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::delegate::U24;
use pathcall_wire::{Instant, Mutant, mutant};

pub use api::{
    AbortReason, DelegateWorkerConfig, DelegateWorkerStats, DelegatedRequest, ExecutionError, RequestOrder, WorkerEvent,
};

use super::context_map::{ContextMap, is_mostly_obsolete};
use super::{ContextId, MessageOutbox, NodeId, PAYLOAD_MAX, PeerNode, RequestId, Status};
use execution::{Execution, Phase};
use execution_timers::ExecutionTimers;
use queue_accounting::QueueAccounting;
use record::RequestRecord;

/// Bit of a worker's contexts: the calls of the same node are numbered without it.
const WORKER_BIT: u32 = 1 << 31;

/// Aborted calls that are remembered at most; a new one evicts the oldest.
const ABORTED_MAX: usize = 1 << 16;
/// Long requests in arrival at most; others are confirmed only when they are complete.
const ARRIVING_MAX: usize = 1 << 12;
/// Callers whose last ended call is remembered at most; records of further callers are kept.
const ENDED_MAX: usize = 1 << 16;

/// Requests that a node processes.
#[derive(Debug)]
pub struct DelegateWorker {
    config: DelegateWorkerConfig,
    last_context: u32,
    executions: ContextMap<Box<Execution>>,
    by_request: BTreeMap<(ContextId, RequestId), ContextId>,
    /// Waiting requests by the key of the order and by arrival; some were aborted.
    queue: BinaryHeap<Reverse<(u64, u64, ContextId)>>,
    /// Counts of the waiting requests.
    queued: QueueAccounting,
    arrivals: u64,
    timers: ExecutionTimers,
    aborted_calls: BTreeMap<ContextId, Instant>,
    /// Long requests in arrival, with the time until which they count as in progress.
    arriving: BTreeMap<(ContextId, RequestId), Instant>,
    /// Callers whose records were deleted, up to this call number.
    records_deleted_up_to: BTreeMap<NodeId, u32>,
    aborted_order: VecDeque<(Instant, ContextId)>,
    events: VecDeque<WorkerEvent>,
    stats: DelegateWorkerStats,
}

impl DelegateWorker {
    /// Creates a worker without requests.
    #[must_use]
    pub fn new(config: DelegateWorkerConfig) -> Self {
        Self {
            config,
            last_context: 0,
            executions: ContextMap::default(),
            by_request: BTreeMap::new(),
            queue: BinaryHeap::new(),
            queued: QueueAccounting::default(),
            arrivals: 0,
            timers: ExecutionTimers::new(config.flush),
            aborted_calls: BTreeMap::new(),
            arriving: BTreeMap::new(),
            records_deleted_up_to: BTreeMap::new(),
            aborted_order: VecDeque::new(),
            events: VecDeque::new(),
            stats: DelegateWorkerStats::default(),
        }
    }

    /// Handles a message. A message that is not for a worker is counted and dropped.
    pub fn handle(&mut self, now: Instant, from: PeerNode, message: &Bytes, out: &mut dyn MessageOutbox) {
        self.handle_incoming(now, from, message, out);
    }

    /// Returns whether a request waits to be processed.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.queued.requests > 0
    }

    /// Number of requests that wait to be processed.
    #[must_use]
    pub fn waiting_requests(&self) -> usize {
        self.queued.requests
    }

    /// Begins the next waiting request. A request whose deadline has passed is not begun.
    pub fn next(&mut self, now: Instant) -> Option<DelegatedRequest> {
        let id = loop {
            let Reverse((key, _, id)) = self.queue.pop()?;
            let Some(execution) = self.executions.get(&id).filter(|e| e.phase == Phase::Queued) else { continue };
            if execution.deadline.is_none_or(|at| at > now) || execution.once {
                if self.config.order == RequestOrder::FairShare {
                    self.queued.advance_to(key);
                }
                break id;
            }
            self.abort(now, id, AbortReason::Deadline);
        };
        let execution = self.executions.get_mut(&id)?;
        let payload = self.queued.remove(execution);
        execution.begin(now, self.config.stall);
        let Execution { call, request, deadline, depth, once, traced, .. } = **execution;
        Some(DelegatedRequest { execution: id, call, request, payload, deadline, depth, once, traced })
    }

    /// Sends an item to the caller, in order with the other items of this request. It waits for the caller's grant if
    /// more than the credit are in flight; [`DelegateWorker::waiting`] returns how many wait.
    ///
    /// # Errors
    /// [`ExecutionError`].
    pub fn reply(
        &mut self,
        now: Instant,
        execution: ContextId,
        item: Bytes,
        out: &mut dyn MessageOutbox,
    ) -> Result<(), ExecutionError> {
        let executing = executing(&mut self.executions, now, execution)?;
        if item.len() > PAYLOAD_MAX {
            return self.fail_with(now, execution, ExecutionError::TooLong(item.len()), out);
        }
        if executing.responses_in_all() >= U24::MAX - 1 {
            return self.fail_with(now, execution, ExecutionError::TooMany, out);
        }
        executing.outgoing.push_back(execution::OutgoingMessage::Reply(item));
        executing.pump(now, &self.config, &mut self.timers, out);
        Ok(())
    }

    /// Delegates a request to another server, as part of this one.
    ///
    /// # Errors
    /// [`ExecutionError`]; a call that goes too deep or too wide fails.
    pub fn delegate(
        &mut self,
        now: Instant,
        execution: ContextId,
        to: SocketAddr,
        request: Bytes,
        out: &mut dyn MessageOutbox,
    ) -> Result<(), ExecutionError> {
        let depth_max = self.config.depth_max;
        let executing = executing(&mut self.executions, now, execution)?;
        if executing.depth >= depth_max {
            return self.fail_with(now, execution, ExecutionError::Depth(depth_max), out);
        }
        if request.len() > PAYLOAD_MAX {
            return self.fail_with(now, execution, ExecutionError::TooLong(request.len()), out);
        }
        if executing.requests_in_all() >= U24::MAX {
            return self.fail_with(now, execution, ExecutionError::TooMany, out);
        }
        executing.outgoing.push_back(execution::OutgoingMessage::Request(to, request));
        executing.pump(now, &self.config, &mut self.timers, out);
        Ok(())
    }

    /// Finishes a request: all its messages were given. If it is an exactly-once request, the returned record has to
    /// become durable together with the effect, and then be released.
    ///
    /// # Errors
    /// [`ExecutionError::Ended`]: the request was aborted before.
    pub fn finish(
        &mut self,
        now: Instant,
        execution: ContextId,
        out: &mut dyn MessageOutbox,
    ) -> Result<Option<RequestRecord>, ExecutionError> {
        let executing = executing(&mut self.executions, now, execution)?;
        executing.phase = Phase::Finished;
        executing.ended = Some(now);
        if executing.once {
            return Ok(self.prepare(now, execution));
        }
        self.stats.nulls += u64::from(executing.pump(now, &self.config, &mut self.timers, out));
        executing.send_span(out);
        Ok(None)
    }

    /// Sends the messages of an exactly-once request, whose record is durable.
    pub fn release(&mut self, now: Instant, execution: ContextId, out: &mut dyn MessageOutbox) {
        let prepared = self.executions.get_mut(&execution).filter(|e| e.phase == Phase::Prepared);
        let Some(prepared) = prepared else { return };
        let (call, request) = (prepared.call, prepared.request);
        prepared.enter_phase(now, Phase::Recorded, &mut self.timers);
        self.send_recorded(call, request, out);
        self.executions.get(&execution).inspect(|execution| execution.send_span(out));
    }

    /// Fails an exactly-once request without effect: its record certainly did not become durable. It runs again when
    /// its call is repeated.
    pub fn discard(&mut self, now: Instant, execution: ContextId, status: &Status, out: &mut dyn MessageOutbox) {
        let Some(prepared) = self.executions.get_mut(&execution).filter(|e| e.phase == Phase::Prepared) else { return };
        // None of its messages was sent.
        prepared.phase = Phase::Working;
        prepared.recorded.clear();
        prepared.sent_to.clear();
        prepared.reset_responses();
        self.fail(now, execution, status, out);
    }

    /// Restores a record of the process before a restart.
    pub fn restore(&mut self, now: Instant, record: RequestRecord) {
        self.restore_record(now, record);
    }

    /// Restores, after a restart, the last call of a caller up to which records were deleted: late copies of its
    /// requests are then not taken for new ones.
    pub fn restore_ended(&mut self, last: ContextId) {
        let before = self.records_deleted_up_to.entry(last.node()).or_default();
        *before = (*before).max(last.number() + 1);
    }

    /// Fails a request, and its call, with an error.
    pub fn fail(&mut self, now: Instant, execution: ContextId, status: &Status, out: &mut dyn MessageOutbox) {
        // The record of a prepared request may have become durable: only `discard` fails it.
        let fails = |e: &&mut Box<Execution>| e.in_progress() && e.phase != Phase::Prepared;
        let Some(failed) = self.executions.get_mut(&execution).filter(fails) else { return };
        failed.outgoing.clear();
        failed.ended = Some(now);
        if mutant::on(Mutant::DelegateErrorCompletes) {
            failed.phase = Phase::Finished;
            failed.pump(now, &self.config, &mut self.timers, out);
            return;
        }
        self.queued.remove(failed);
        failed.enter_phase(now, Phase::Failed(status.code), &mut self.timers);
        failed.send_failure(status, None, out);
        failed.send_span(out);
    }

    /// Sets the health of a handler as the application sees it (DPC §4.4.5): a request that is stalled for as long as
    /// the call's timeout fails the call.
    pub fn set_stalled(&mut self, execution: ContextId, stalled: bool) {
        if let Some(execution) = self.executions.get_mut(&execution) {
            execution.stalled = stalled;
        }
    }

    /// Records progress of a handler, for [`DelegateWorkerConfig::stall`]; replies and requests are progress as well.
    pub fn record_progress(&mut self, now: Instant, execution: ContextId) {
        if let Some(execution) = self.executions.get_mut(&execution) {
            execution.active = now;
        }
    }

    /// Sets the label of a request's span in the trace: the method, for example.
    pub fn set_label(&mut self, execution: ContextId, label: &str) {
        if let Some(execution) = self.executions.get_mut(&execution).filter(|e| e.traced) {
            execution.label = super::status_text(label);
        }
    }

    /// Number of replies of a request that wait to be sent, the held one included.
    #[must_use]
    pub fn waiting(&self, execution: ContextId) -> usize {
        self.executions.get(&execution).map_or(0, |execution| execution.outgoing.len())
    }

    /// Returns whether a request is in progress: neither finished, failed nor aborted.
    #[must_use]
    pub fn is_working(&self, execution: ContextId) -> bool {
        self.executions.get(&execution).is_some_and(|execution| execution.phase == Phase::Working)
    }

    /// Handles a message of this worker that the transport certainly did not deliver.
    pub fn undelivered(&mut self, now: Instant, to: SocketAddr, message: &[u8], out: &mut dyn MessageOutbox) {
        self.handle_undelivered(now, to, message, out);
    }

    /// Records that the transport is receiving a long message with this head: a request in arrival counts as in
    /// progress for half the call's timeout.
    pub fn arriving(&mut self, now: Instant, head: &[u8]) {
        self.record_arriving(now, head);
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: Instant, out: &mut dyn MessageOutbox) {
        if self.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        while let Some((at, execution)) = self.timers.flush_due(now) {
            self.flush(now, execution, at, out);
        }
        while let Some((at, execution)) = self.timers.timers.due(now) {
            self.due(now, execution, at);
        }
        self.arriving.retain(|_, until| *until > now);
        while let Some(&(until, call)) = self.aborted_order.front()
            && until <= now
        {
            self.aborted_order.pop_front();
            if self.aborted_calls.get(&call) == Some(&until) {
                self.aborted_calls.remove(&call);
            }
        }
    }

    /// Time of the next poll.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let aborted = self.aborted_order.front().map(|aborted| aborted.0);
        let timers = super::earlier(self.timers.next(), aborted);
        // Few workers have a request in arrival.
        if self.arriving.is_empty() { timers } else { super::earlier(timers, self.arriving.values().copied().min()) }
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<WorkerEvent> {
        self.events.pop_front()
    }

    /// Requests in memory: in progress, or completed and perhaps asked about.
    #[must_use]
    pub fn known(&self) -> usize {
        self.executions.len()
    }

    /// Counters of this worker.
    #[must_use]
    pub fn stats(&self) -> DelegateWorkerStats {
        self.stats
    }

    /// Returns whether no state of any request or call is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { executions, by_request, queue, queued, timers, arriving, aborted_calls, aborted_order, .. } = self;
        executions.is_empty()
            && by_request.is_empty()
            && queue.is_empty()
            && *queued == QueueAccounting::default()
            && timers.is_empty()
            && arriving.is_empty()
            && aborted_calls.is_empty()
            && aborted_order.is_empty()
    }

    fn fail_with(
        &mut self,
        now: Instant,
        execution: ContextId,
        error: ExecutionError,
        out: &mut dyn MessageOutbox,
    ) -> Result<(), ExecutionError> {
        let code = match error {
            ExecutionError::TooMany | ExecutionError::TooLong(_) => Status::RESOURCE_EXHAUSTED,
            _ => Status::FAILED_PRECONDITION,
        };
        self.fail(now, execution, &Status::new(code, error.to_string()), out);
        Err(error)
    }

    /// Returns a context that no execution uses.
    fn new_context(&mut self) -> ContextId {
        loop {
            self.last_context = self.last_context.wrapping_add(1) | WORKER_BIT;
            let context = ContextId::new(self.config.node, self.last_context);
            if !self.executions.contains_key(&context) {
                return context;
            }
        }
    }
}

/// Returns the execution, if its handler is still running.
fn executing(
    executions: &mut ContextMap<Box<Execution>>,
    now: Instant,
    execution: ContextId,
) -> Result<&mut Execution, ExecutionError> {
    let execution = executions.get_mut(&execution).ok_or(ExecutionError::Ended)?;
    if execution.phase != Phase::Working {
        return Err(ExecutionError::Ended);
    }
    execution.active = now;
    Ok(execution)
}
