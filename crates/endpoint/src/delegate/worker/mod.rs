//! The requests that a node works on.
//!
//! ```text
//! request ─▶ queue ─▶ next() ─▶ handler ─▶ reply(), delegate() ─▶ finish()
//!                                             │
//!              held: one message, until the next one or finish(), for the manifest
//! ```
//!
//! A request is an execution with a context of its own. Requests and responses of it are numbered as they
//! leave. The manifest of the one before, which came with the request, leaves with the first; its own leaves
//! with the last (DPC §4.3.1), so one message is always held until the handler has finished, or for a bounded
//! time: then the manifest goes by a response without content. What was done is kept until nobody asks for
//! it any more (§4.4.4).

mod alarms;
mod api;
mod execution;
mod incoming;
mod outgoing;
mod queued;
pub mod record;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::delegate::U24;
use pathcall_wire::{Instant, Mutant, mutant};

pub use api::{AbortReason, Order, Work, WorkError, WorkerConfig, WorkerEvent, WorkerStats};

use super::table::{ByContext, is_crowded};
use super::{Context, NodeId, Outbox, Peer, RequestId, Status};
use alarms::Alarms;
use execution::{Execution, Phase};
use queued::Queued;
use record::Record;

/// Contexts of workers have this bit: a node that calls as well counts its calls without it.
const OF_WORKER: u32 = 1 << 31;

/// Calls whose abort is remembered at most; the oldest is forgotten for a new one.
const ABORTED_MAX: usize = 1 << 16;
/// Long requests that are on their way at most; others are not confirmed before they are there.
const ARRIVING_MAX: usize = 1 << 12;
/// Callers for which it is remembered up to which call records were forgotten, at most; of others they are kept.
const ENDED_MAX: usize = 1 << 16;

/// The requests that a node works on.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    last_context: u32,
    executions: ByContext<Box<Execution>>,
    by_request: BTreeMap<(Context, RequestId), Context>,
    /// Requests that wait for somebody to work on them, by the order's key and by arrival; and some that were aborted.
    queue: BinaryHeap<Reverse<(u64, u64, Context)>>,
    /// What waits of them.
    queued: Queued,
    arrivals: u64,
    alarms: Alarms,
    aborted_calls: BTreeMap<Context, Instant>,
    /// Long requests that are on their way here, and until when that counts unless they get on.
    arriving: BTreeMap<(Context, RequestId), Instant>,
    /// Callers whose records were forgotten: of calls with lower numbers, all.
    ended_before: BTreeMap<NodeId, u32>,
    aborted_order: VecDeque<(Instant, Context)>,
    events: VecDeque<WorkerEvent>,
    stats: WorkerStats,
}

impl Worker {
    /// A worker that knows of nothing.
    #[must_use]
    pub fn new(config: WorkerConfig) -> Self {
        Self {
            config,
            last_context: 0,
            executions: ByContext::default(),
            by_request: BTreeMap::new(),
            queue: BinaryHeap::new(),
            queued: Queued::default(),
            arrivals: 0,
            alarms: Alarms::new(config.flush),
            aborted_calls: BTreeMap::new(),
            arriving: BTreeMap::new(),
            ended_before: BTreeMap::new(),
            aborted_order: VecDeque::new(),
            events: VecDeque::new(),
            stats: WorkerStats::default(),
        }
    }

    /// Takes a message. What is no message for a worker is counted and dropped.
    pub fn handle(&mut self, now: Instant, from: Peer, message: &Bytes, out: &mut dyn Outbox) {
        self.incoming(now, from, message, out);
    }

    /// Whether a request waits for somebody to work on it.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.queued.requests > 0
    }

    /// The next request to work on, if one waits. One whose time is over is not begun.
    pub fn next(&mut self, now: Instant) -> Option<Work> {
        let id = loop {
            let Reverse((key, _, id)) = self.queue.pop()?;
            let Some(execution) = self.executions.get(&id).filter(|e| e.phase == Phase::Queued) else { continue };
            if execution.deadline.is_none_or(|at| at > now) || execution.once {
                if self.config.order == Order::Share {
                    self.queued.begins(key);
                }
                break id;
            }
            self.abort(now, id, AbortReason::Deadline);
        };
        let execution = self.executions.get_mut(&id)?;
        let payload = self.queued.leaves(execution);
        execution.begin(now, self.config.stall);
        let Execution { call, request, deadline, depth, once, traced, .. } = **execution;
        Some(Work { execution: id, call, request, payload, deadline, depth, once, traced })
    }

    /// Sends an item to the caller, in order with the others of this request. It waits for the caller's grant
    /// if more than the first few are on their way; [`Worker::waiting`] says how many do.
    ///
    /// # Errors
    /// [`WorkError`].
    pub fn reply(
        &mut self,
        now: Instant,
        execution: Context,
        item: Bytes,
        out: &mut dyn Outbox,
    ) -> Result<(), WorkError> {
        let working = working(&mut self.executions, now, execution)?;
        if working.responses_in_all() >= U24::MAX - 1 {
            return self.give_up(now, execution, WorkError::TooMany, out);
        }
        working.outgoing.push_back(execution::Outgoing::Reply(item));
        working.pump(now, &self.config, &mut self.alarms, out);
        Ok(())
    }

    /// Sends a request on to another server, as part of this one.
    ///
    /// # Errors
    /// [`WorkError`]; where the call goes too deep or too wide it fails.
    pub fn delegate(
        &mut self,
        now: Instant,
        execution: Context,
        to: SocketAddr,
        request: Bytes,
        out: &mut dyn Outbox,
    ) -> Result<(), WorkError> {
        let depth_max = self.config.depth_max;
        let working = working(&mut self.executions, now, execution)?;
        if working.depth >= depth_max {
            return self.give_up(now, execution, WorkError::Depth(depth_max), out);
        }
        if working.requests_in_all() >= U24::MAX {
            return self.give_up(now, execution, WorkError::TooMany, out);
        }
        working.outgoing.push_back(execution::Outgoing::Request(to, request));
        working.pump(now, &self.config, &mut self.alarms, out);
        Ok(())
    }

    /// Ends the work on a request: all that it leads to was said. If it is to be done exactly once, what this
    /// returns has to become durable together with its effect, and then be released.
    ///
    /// # Errors
    /// [`WorkError::Gone`]: it was aborted before.
    pub fn finish(
        &mut self,
        now: Instant,
        execution: Context,
        out: &mut dyn Outbox,
    ) -> Result<Option<Record>, WorkError> {
        let working = working(&mut self.executions, now, execution)?;
        working.phase = Phase::Finished;
        working.ended = Some(now);
        if working.once {
            return Ok(self.seal(now, execution));
        }
        self.stats.nulls += u64::from(working.pump(now, &self.config, &mut self.alarms, out));
        working.send_span(out);
        Ok(None)
    }

    /// Sends what a request led to that is done exactly once: its record is durable.
    pub fn release(&mut self, now: Instant, execution: Context, out: &mut dyn Outbox) {
        let sealed = self.executions.get_mut(&execution).filter(|e| e.phase == Phase::Sealed);
        let Some(sealed) = sealed else { return };
        let (call, request) = (sealed.call, sealed.request);
        sealed.enter(now, Phase::Recorded, &mut self.alarms);
        self.send_recorded(call, request, out);
        self.executions.get(&execution).inspect(|execution| execution.send_span(out));
    }

    /// What was to be done exactly once took no effect: its record did not become durable, for sure. It fails, and is
    /// worked on again when its call is made again.
    pub fn discard(&mut self, now: Instant, execution: Context, status: &Status, out: &mut dyn Outbox) {
        let Some(sealed) = self.executions.get_mut(&execution).filter(|e| e.phase == Phase::Sealed) else { return };
        // Nothing of it was sent.
        sealed.phase = Phase::Working;
        sealed.packets.clear();
        sealed.sent_to.clear();
        sealed.responses = 0;
        self.fail(now, execution, status, out);
    }

    /// Puts back what the node had recorded before it was started anew.
    pub fn restore(&mut self, now: Instant, record: Record) {
        self.restore_record(now, record);
    }

    /// Puts back, after a restart, up to which call of a caller records were deleted: late copies of requests are
    /// then not taken for new ones.
    pub fn restore_ended(&mut self, last: Context) {
        let before = self.ended_before.entry(last.node()).or_default();
        *before = (*before).max(last.number() + 1);
    }

    /// Ends the work on a request with an error, and with that the call.
    pub fn fail(&mut self, now: Instant, execution: Context, status: &Status, out: &mut dyn Outbox) {
        // What is sealed may have become durable: it says so by `discard` if it has not.
        let fails = |e: &&mut Box<Execution>| e.in_progress() && e.phase != Phase::Sealed;
        let Some(failed) = self.executions.get_mut(&execution).filter(fails) else { return };
        failed.outgoing.clear();
        failed.ended = Some(now);
        if mutant::on(Mutant::DelegateErrorCompletes) {
            failed.phase = Phase::Finished;
            failed.pump(now, &self.config, &mut self.alarms, out);
            return;
        }
        self.queued.leaves(failed);
        failed.enter(now, Phase::Failed(status.code), &mut self.alarms);
        out.send(failed.reply, &failed.fault(status.code).encode(), &super::text(&status.message));
        failed.send_span(out);
    }

    /// What the application says of the health of a handler (DPC §4.4.5): a request that is stalled for as long
    /// as the call's time-out fails it.
    pub fn set_stalled(&mut self, execution: Context, stalled: bool) {
        if let Some(execution) = self.executions.get_mut(&execution) {
            execution.stalled = stalled;
        }
    }

    /// A sign of life of a handler, where [`WorkerConfig::stall`] asks for such; replies and requests are others.
    pub fn progress(&mut self, now: Instant, execution: Context) {
        if let Some(execution) = self.executions.get_mut(&execution) {
            execution.active = now;
        }
    }

    /// Names the span of a request in the call's trace: the method, say.
    pub fn label(&mut self, execution: Context, label: &str) {
        if let Some(execution) = self.executions.get_mut(&execution).filter(|e| e.traced) {
            execution.label = super::text(label);
        }
    }

    /// Replies of a request that wait to be sent, the one that is held included.
    #[must_use]
    pub fn waiting(&self, execution: Context) -> usize {
        self.executions.get(&execution).map_or(0, |execution| execution.outgoing.len())
    }

    /// Whether a request is worked on: neither finished, failed nor aborted.
    #[must_use]
    pub fn is_working(&self, execution: Context) -> bool {
        self.executions.get(&execution).is_some_and(|execution| execution.phase == Phase::Working)
    }

    /// The transport knows that a message of this worker was not delivered, and never will be.
    pub fn undelivered(&mut self, now: Instant, to: SocketAddr, message: &[u8], out: &mut dyn Outbox) {
        self.not_delivered(now, to, message, out);
    }

    /// The transport is in the middle of a long message to here that begins like this: a request that is asked about
    /// meanwhile is in progress, if it has got on within half the call's time-out.
    pub fn arriving(&mut self, now: Instant, head: &[u8]) {
        self.on_its_way(now, head);
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: Instant, out: &mut dyn Outbox) {
        if self.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        while let Some((at, execution)) = self.alarms.flush_due(now) {
            self.flush(now, execution, at, out);
        }
        while let Some((at, execution)) = self.alarms.timers.due(now) {
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

    /// When to poll next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let aborted = self.aborted_order.front().map(|aborted| aborted.0);
        let alarms = super::earlier(self.alarms.next(), aborted);
        // Few have any.
        if self.arriving.is_empty() { alarms } else { super::earlier(alarms, self.arriving.values().copied().min()) }
    }

    /// What the application is told next.
    pub fn next_event(&mut self) -> Option<WorkerEvent> {
        self.events.pop_front()
    }

    /// Requests that are known: worked on, or done and perhaps asked about.
    #[must_use]
    pub fn known(&self) -> usize {
        self.executions.len()
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.stats
    }

    /// Whether nothing is known of any request or call: all was done and forgotten.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { executions, by_request, queue, queued, alarms, arriving, aborted_calls, aborted_order, .. } = self;
        executions.is_empty()
            && by_request.is_empty()
            && queue.is_empty()
            && *queued == Queued::default()
            && alarms.is_empty()
            && arriving.is_empty()
            && aborted_calls.is_empty()
            && aborted_order.is_empty()
    }

    fn give_up(
        &mut self,
        now: Instant,
        execution: Context,
        error: WorkError,
        out: &mut dyn Outbox,
    ) -> Result<(), WorkError> {
        let code = match error {
            WorkError::TooMany => Status::RESOURCE_EXHAUSTED,
            _ => Status::FAILED_PRECONDITION,
        };
        self.fail(now, execution, &Status::new(code, error.to_string()), out);
        Err(error)
    }

    /// A context that no execution has.
    fn new_context(&mut self) -> Context {
        loop {
            self.last_context = self.last_context.wrapping_add(1) | OF_WORKER;
            let context = Context::new(self.config.node, self.last_context);
            if !self.executions.contains_key(&context) {
                return context;
            }
        }
    }
}

/// The execution, if its handler may still say something.
fn working(
    executions: &mut ByContext<Box<Execution>>,
    now: Instant,
    execution: Context,
) -> Result<&mut Execution, WorkError> {
    let execution = executions.get_mut(&execution).ok_or(WorkError::Gone)?;
    if execution.phase != Phase::Working {
        return Err(WorkError::Gone);
    }
    execution.active = now;
    Ok(execution)
}
