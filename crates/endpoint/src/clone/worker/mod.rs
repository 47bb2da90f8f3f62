//! Request queue of a server: one dispatcher, `workers` in progress, first come, first served (NetClone §4.2).
//!
//! ```text
//! parts ─▶ receive ─▶ complete requests ─▶ queue ─▶ begin ─▶ PoolRequest … finish ─▶ answer, with the queue's length
//!             ├ a clone while others wait: dropped (§3.4)             └ long: "in progress" report
//!             ├ a copy of a known request: not begun twice; its caller gets a report
//!             └ a cancellation: a waiting request is removed, one in progress becomes unwanted
//! ```

mod api;
mod outgoing;
mod partial_requests;
mod request_queue;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::clone::ServerReport;
use pathcall_wire::{CloneFrame, Flags, FrameKind, Instant, Mutant, clone, mutant};

pub use api::{CloneWorkerConfig, CloneWorkerStats, FailureCause, FinishError, PoolRequest, PoolRequestId};

use super::{CloneDestination, Pushback, assembly};
use outgoing::{OutgoingAnswer, RequestHeader};
use partial_requests::PartialRequests;
use request_queue::{QueuedRequest, RequestHistory, RequestQueue};

/// Obsolete timers, beyond two for each request, before they are removed. Their times come from callers, so they may
/// lie far ahead.
const STALE_MAX: usize = 1024;

/// Cancelled requests kept for the application at most.
const CANCELLED_MAX: usize = 64;

/// Key of a request, common to all its copies and attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RequestKey {
    caller: u32,
    incarnation: u32,
    seq: u32,
}

/// Times that the caller of a request asks for, in µs.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// Time after which the server reports that it works on the request; 0: never.
    patience: u32,
    /// Time for which the element may hold a hedge of the request; 0: it may not.
    hedge_after: u32,
}

impl Asked {
    /// Time after which the server reports that it works on the request. If the element does not hold the hedge that the
    /// caller asks for, the report tells the caller at the time of the hedge.
    fn report_after(self, clo: u8) -> Option<Duration> {
        let unheld = self.hedge_after != 0 && clo == 0 && !mutant::on(Mutant::CloneUnheldHidden);
        let after = if unheld { [self.patience, self.hedge_after] } else { [self.patience, 0] };
        after.into_iter().filter(|time| *time > 0).min().map(|time| Duration::from_micros(time.into()))
    }

    /// Time for which the element has held the request before it came.
    fn held_ns(self, header: RequestHeader) -> u64 {
        let is_hedge = header.clo() == clone::CLONE && !header.is_cloned();
        if is_hedge { u64::from(self.hedge_after) * 1_000 } else { 0 }
    }
}

/// Request queue of one server.
#[derive(Debug)]
pub struct CloneWorker {
    config: CloneWorkerConfig,
    requests: RequestQueue,
    partials: PartialRequests,
    history: RequestHistory,
    /// Times of the in-progress reports; those of completed requests are skipped.
    timers: BinaryHeap<Reverse<(Instant, PoolRequestId)>>,
    outgoing: VecDeque<OutgoingAnswer>,
    /// Requests in progress that became unwanted, not yet reported to the application.
    unwanted: VecDeque<PoolRequestId>,
    /// Requests cancelled while they waited, not yet reported to the application.
    cancelled: VecDeque<PoolRequest>,
    /// Number of requests in progress.
    busy: usize,
    /// Last report of the queue length.
    report: ServerReport,
    stats: CloneWorkerStats,
}

impl CloneWorker {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(config: CloneWorkerConfig) -> Self {
        Self {
            requests: RequestQueue::default(),
            partials: PartialRequests::new(config.partial_max, config.partial_for),
            history: RequestHistory::new(config.remembered),
            timers: BinaryHeap::new(),
            outgoing: VecDeque::new(),
            unwanted: VecDeque::new(),
            cancelled: VecDeque::new(),
            busy: 0,
            report: ServerReport::default(),
            stats: CloneWorkerStats::default(),
            config,
        }
    }

    /// Sets the server's index in the pool.
    pub const fn set_sid(&mut self, sid: u16) {
        self.config.sid = sid;
    }

    /// Handles a frame. An invalid frame, or one for another process, is counted and dropped.
    pub fn receive(&mut self, now: Instant, frame: &[u8]) {
        let Some(frame) = CloneFrame::new_checked(frame).ok().filter(|frame| self.is_for_us(frame)) else {
            self.stats.ignored += 1;
            return;
        };
        let base = frame.base();
        let key = RequestKey { caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq() };
        match frame.kind() {
            FrameKind::CloneCancel => self.cancel(now, key, frame.head().attempt()),
            _ => self.handle_request(now, key, &frame),
        }
    }

    /// Begins the next request; `None`: none waits, or the most are in progress.
    pub fn begin_next(&mut self, now: Instant) -> Option<PoolRequest> {
        if self.busy >= self.config.begun_max.max(self.config.workers) {
            return None;
        }
        let (id, queued) = self.requests.begin()?;
        self.busy += 1;
        let request = std::mem::take(&mut queued.payload);
        Some(PoolRequest { id, caller: queued.key.caller, waited: now.since(queued.since), request })
    }

    /// Returns a request in progress whose answer is no longer wanted; each once. It stays in progress until it is
    /// finished or dropped.
    pub fn next_unwanted(&mut self) -> Option<PoolRequestId> {
        self.unwanted.pop_front()
    }

    /// Returns a request that was cancelled before it began; if many are, only some are returned.
    pub fn next_cancelled(&mut self) -> Option<PoolRequest> {
        self.cancelled.pop_front()
    }

    /// Finishes a request: its answer is sent, with the current queue length.
    ///
    /// # Errors
    /// [`FinishError`]. The request has ended all the same, and its caller may ask again.
    pub fn finish(&mut self, id: PoolRequestId, reply: Bytes) -> Result<(), FinishError> {
        let header = self.remove_begun(id)?.header;
        let report = self.next_report(self.queue_length());
        self.answer(header, report, reply)
    }

    /// Fails a request, so that another server's answer is preferred; the reply contains the error, and becomes the
    /// answer of the call if no other comes. `pushback` tells the caller when it may ask another server.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn fail(
        &mut self,
        id: PoolRequestId,
        reply: Bytes,
        cause: FailureCause,
        pushback: Option<Pushback>,
    ) -> Result<(), FinishError> {
        let header = self.remove_begun(id)?.header;
        let marked = cause != FailureCause::Request || header.is_cloned();
        self.stats.failed += u64::from(marked);
        let header = if marked { header.failed(pushback) } else { header };
        let waiting = match cause {
            FailureCause::Server => self.queue_length().max(1),
            FailureCause::Request | FailureCause::Policy => self.queue_length(),
        };
        let report = self.next_report(waiting);
        self.answer(header, report, reply)
    }

    /// Ends a request without an answer; its caller may ask again.
    pub fn drop_request(&mut self, id: PoolRequestId) {
        // A request that is not in progress is ignored.
        let _ = self.remove_begun(id);
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: Instant) {
        while let Some(&Reverse((at, id))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let due = self.requests.get_mut(id).filter(|request| request.report_at == Some(at));
            if let Some(header) = due.map(|request| (request.report_at = None, request.header).1) {
                self.report_working(header);
            }
        }
        self.stats.expired += self.partials.expire(now);
    }

    /// Writes the next frame; `None`: there is none for now.
    pub fn transmit(&mut self, _now: Instant, out: &mut [u8]) -> Option<(CloneDestination, usize)> {
        loop {
            match self.outgoing.front_mut()?.emit(&self.config, out) {
                Some(sent) => return Some(sent),
                None => drop(self.outgoing.pop_front()),
            }
        }
    }

    /// Time of the next poll; it may be early.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let report = self.timers.peek().map(|Reverse((at, _))| *at);
        report.into_iter().chain(self.partials.deadline()).min()
    }

    /// Counters of this queue.
    #[must_use]
    pub const fn stats(&self) -> CloneWorkerStats {
        self.stats
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.requests.waiting()
    }

    /// Queue length reported to the element (STATE): waiting requests, and requests in progress beyond the workers.
    fn queue_length(&self) -> usize {
        self.requests.waiting() + self.busy.saturating_sub(self.config.workers)
    }

    /// Number of requests in progress.
    #[must_use]
    pub const fn busy(&self) -> usize {
        self.busy
    }

    /// Bytes of waiting and partial requests.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.requests.memory() + self.partials.memory()
    }

    /// Returns whether there is no request, partial or complete.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.len() == 0 && self.partials.is_empty() && self.outgoing.is_empty()
    }

    fn next_report(&mut self, waiting: usize) -> ServerReport {
        self.report = self.report.next(u16::try_from(waiting).unwrap_or(u16::MAX));
        self.report
    }

    fn is_for_us(&self, frame: &CloneFrame<&[u8]>) -> bool {
        let base = frame.base();
        matches!(frame.kind(), FrameKind::CloneRequest | FrameKind::CloneCancel)
            && base.gaid() == self.config.gaid
            && base.dst() == self.config.endpoint
            && [0, self.config.incarnation].contains(&base.dst_incarnation())
            && !base.has(Flags::FROM_SERVER)
    }

    fn handle_request(&mut self, now: Instant, key: RequestKey, frame: &CloneFrame<&[u8]>) {
        let header = RequestHeader::new(frame);
        if let Some(id) = self.requests.find(&key) {
            return self.handle_repeat(id, header);
        }
        if self.history.contains(&key, header.attempt()) && !mutant::on(Mutant::CloneWorkedTwice) {
            self.stats.repeats += 1;
            return;
        }
        // A hedge waits like any other request.
        let unwanted = header.is_cloned() && header.clo() == clone::CLONE && self.queue_length() > 0;
        if unwanted && !mutant::on(Mutant::CloneQueuedBusy) {
            self.stats.clones_dropped += u64::from(frame.head().part() == 0);
            return;
        }
        let room = self.config.memory_max.saturating_sub(self.memory());
        let full = self.requests.waiting() >= self.config.queue_max && !mutant::on(Mutant::CloneQueueUnbounded);
        if full || frame.payload().len() > room {
            self.stats.overflowed += 1;
            return;
        }
        if let Some((header, request)) = self.partials.add_part(now, key, header, frame, room, &mut self.stats) {
            let asked = Asked { patience: frame.head().patience(), hedge_after: frame.base().round() };
            self.enqueue(now, key, header, request, asked);
        }
    }

    fn answer(&mut self, header: RequestHeader, report: ServerReport, reply: Bytes) -> Result<(), FinishError> {
        let parts = assembly::parts(reply.len()).ok_or(FinishError::TooLong(reply.len()))?;
        self.stats.answered += 1;
        self.stats.idle += u64::from(report.state == 0);
        self.outgoing.push_back(OutgoingAnswer::new(FrameKind::CloneReply, header, report, reply, parts));
        Ok(())
    }

    /// Queues a complete request.
    fn enqueue(&mut self, now: Instant, key: RequestKey, header: RequestHeader, request: Bytes, asked: Asked) {
        self.stats.queued += 1;
        self.stats.clones += u64::from(header.clo() == clone::CLONE);
        let report_after = asked.report_after(header.clo());
        let report_at = report_after.map(|after| now + after);
        let newest = header.attempt();
        let id = self.requests.push(QueuedRequest {
            key,
            header,
            newest,
            payload: request,
            since: Instant(now.0.saturating_sub(asked.held_ns(header))),
            is_begun: false,
            unwanted: false,
            report_at,
        });
        self.timers.extend(report_at.map(|at| Reverse((at, id))));
        if self.timers.len() > 2 * self.requests.len() + STALE_MAX {
            let requests = &mut self.requests;
            self.timers.retain(|Reverse((at, id))| {
                requests.get_mut(*id).is_some_and(|request| request.report_at == Some(*at))
            });
        }
    }

    /// Handles a copy of a known request: the newest attempt is answered. A cloned request keeps the id of its clone as
    /// long as attempts come through the element: with another id the element could not match the other server's
    /// answer.
    fn handle_repeat(&mut self, id: PoolRequestId, header: RequestHeader) {
        self.stats.repeats += 1;
        let Some(request) = self.requests.get_mut(id).filter(|request| header.attempt() > request.newest) else {
            return;
        };
        request.newest = header.attempt();
        let before = request.header;
        if before.clo() == 0 || !(before.by_element() && header.by_element()) {
            request.header = header;
        }
        if before.by_element() && !header.by_element() {
            // The caller bypasses an element that seems silent. This report shows the caller that the element answers.
            self.report_working(before);
        }
        self.report_working(header);
    }

    /// Reports to a caller that its request is in progress.
    fn report_working(&mut self, header: RequestHeader) {
        self.stats.working += 1;
        let report = self.next_report(self.queue_length());
        self.outgoing.push_back(OutgoingAnswer::new(FrameKind::CloneWorking, header, report, Bytes::new(), 1));
    }

    /// Handles a cancellation: a request that has not begun is removed.
    fn cancel(&mut self, now: Instant, key: RequestKey, attempt: u8) {
        self.partials.forget(&key);
        if let Some(id) = self.requests.find(&key)
            && let Some(request) = self.requests.get_mut(id)
        {
            if !request.is_begun {
                let removed = self.requests.remove(id).filter(|_| self.cancelled.len() < CANCELLED_MAX);
                if let Some(QueuedRequest { key, since, payload: request, .. }) = removed {
                    self.cancelled.push_back(PoolRequest { id, caller: key.caller, waited: now.since(since), request });
                }
                self.stats.cancelled += 1;
            } else if !std::mem::replace(&mut request.unwanted, true) {
                self.unwanted.push_back(id);
            }
        }
        self.history.record(key, attempt);
    }

    /// Removes a request in progress.
    fn remove_begun(&mut self, id: PoolRequestId) -> Result<QueuedRequest, FinishError> {
        self.requests.get_mut(id).filter(|request| request.is_begun).ok_or(FinishError::Unknown(id))?;
        let request = self.requests.remove(id).ok_or(FinishError::Unknown(id))?;
        self.busy -= 1;
        if request.unwanted {
            self.unwanted.retain(|unwanted| *unwanted != id);
        }
        self.history.record(request.key, request.newest);
        Ok(request)
    }
}
