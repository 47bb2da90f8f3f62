//! Delegate caller: the calls of one node.
//!
//! ```text
//! open() ─▶ send() … ─▶ Reply, Reply, … ─▶ Ended: Complete, Failed or Aborted
//!                         └ consumed(): servers may send more
//! ```
//!
//! `completion` decides when all replies have arrived; `ping_rounds` asks, if that takes long, the servers of the
//! remaining requests, and stops them once the call has failed or is aborted; [`trace`] assembles the spans of a traced
//! call. Messages of a call are handled in the order of their arrival.

mod api;
mod call;
mod completion;
mod ping_rounds;
pub mod trace;

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::delegate::{DelegateMessage, ResponseGrant, U24, parse};
use pathcall_wire::{Instant, Mutant, mutant};

pub use api::{
    CallFailure, CallOptions, CallOutcome, CallStatus, CallerEvent, DelegateCallerConfig, DelegateCallerStats,
    SendRequestError,
};

use super::context_map::{ContextMap, Timers, is_mostly_obsolete};
use super::{ContextId, MessageOutbox, PAYLOAD_MAX, PeerNode, status_of};
use call::{Call, State};
use completion::Completion;
use ping_rounds::PingRounds;
use trace::Spans;

/// Mask of call numbers: the remaining bit marks the contexts of the node's worker.
const NUMBER_MASK: u32 = (1 << 31) - 1;

/// Calls of one node.
#[derive(Debug)]
pub struct DelegateCaller {
    config: DelegateCallerConfig,
    last_number: u32,
    calls: ContextMap<Box<Call>>,
    /// Calls in the order of their start, including some ended calls; requests report the oldest one to the servers.
    call_order: VecDeque<ContextId>,
    timers: Timers,
    events: VecDeque<CallerEvent>,
    stats: DelegateCallerStats,
}

impl DelegateCaller {
    /// Creates a caller without calls.
    #[must_use]
    pub fn new(config: DelegateCallerConfig) -> Self {
        Self {
            config,
            last_number: 0,
            calls: ContextMap::default(),
            call_order: VecDeque::new(),
            timers: Timers::default(),
            events: VecDeque::new(),
            stats: DelegateCallerStats::default(),
        }
    }

    /// Opens a call.
    ///
    /// # Errors
    /// [`SendRequestError::CallsFull`].
    pub fn open(&mut self, now: Instant, options: CallOptions) -> Result<ContextId, SendRequestError> {
        if self.calls.len() >= self.config.calls_max {
            return Err(SendRequestError::CallsFull(self.config.calls_max));
        }
        let timeout = options.timeout.min(CallOptions::TIMEOUT_MAX);
        let options = CallOptions { timeout, ..options };
        let id = loop {
            self.last_number = self.last_number.wrapping_add(1) & NUMBER_MASK;
            let id = ContextId::new(self.config.node, self.last_number);
            if self.last_number != 0 && self.config.is_of_shard(id) && !self.calls.contains_key(&id) {
                break id;
            }
        };
        let mut call = Box::new(Call {
            id,
            gc: options.gc_code(),
            options,
            opened: now,
            deadline: options.deadline.map(|time| now + time),
            state: State::Open,
            completion: Completion::new(now, id),
            rounds: PingRounds::new(now, &options),
            spans: options.traced.then(|| Spans::new(now)),
            sent: Vec::new(),
            requests: 0,
            timer: None,
        });
        call.arm(&mut self.timers);
        self.calls.insert(id, call);
        self.call_order.push_back(id);
        if is_mostly_obsolete(self.call_order.len(), self.calls.len()) {
            self.call_order.retain(|id| self.calls.contains_key(id));
        }
        Ok(id)
    }

    /// Sends a request as part of a call; there may be several. A call completes as soon as all requests sent so far
    /// are done: several requests must be sent before the next message is handled, or while others are in progress.
    ///
    /// # Errors
    /// [`SendRequestError`].
    pub fn send(
        &mut self,
        now: Instant,
        call: ContextId,
        to: SocketAddr,
        request: Bytes,
        out: &mut dyn MessageOutbox,
    ) -> Result<(), SendRequestError> {
        let oldest = self.oldest().unwrap_or(call).number();
        let (address, node) = (self.config.address, self.config.node);
        let open = self.calls.get_mut(&call).filter(|call| call.state == State::Open).ok_or(SendRequestError::Ended)?;
        if open.requests >= U24::MAX {
            return Err(SendRequestError::TooMany);
        }
        if request.len() > PAYLOAD_MAX {
            return Err(SendRequestError::TooLong(request.len()));
        }
        open.requests += 1;
        let branch = call.request(open.requests);
        open.completion.expect_own(open.requests);
        open.rounds.add_request(now, branch, to);
        if open.options.once {
            open.sent.push((to, request.clone()));
        }
        let head = open.request(now, open.requests, oldest, address, node);
        out.send(to, &head.encode(), &request);
        Ok(())
    }

    /// Records that the application took a reply of this size: its sender may send another one.
    pub fn record_consumed(
        &mut self,
        call: ContextId,
        from: Option<ContextId>,
        bytes: usize,
        out: &mut dyn MessageOutbox,
    ) {
        let Some((open, from)) = self.calls.get_mut(&call).zip(from) else { return };
        let initial = 1 << open.options.credit_code();
        if open.state == State::Open
            && let Some((to, responses)) = open.completion.record_consumed(from, bytes, initial)
        {
            out.send(to, &ResponseGrant { call, context: from, responses }.encode(), &Bytes::new());
        }
    }

    /// Aborts a call and stops its servers (DPC §4.5). [`CallerEvent::Ended`] reports when all servers have stopped,
    /// also for a failed call that could be repeated.
    pub fn abort(&mut self, now: Instant, call: ContextId, out: &mut dyn MessageOutbox) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        if matches!(open.state, State::Open | State::Retryable) {
            open.state = State::Aborting { since: now, reported: false };
            open.rounds.start_stopping(now);
            self.round(now, call, out);
            self.end_if_done(now, call);
        }
    }

    /// Repeats a failed exactly-once call: the same requests, with the same ids.
    ///
    /// # Errors
    /// [`SendRequestError::Ended`]: there is no call that can be repeated.
    pub fn retry(
        &mut self,
        now: Instant,
        call: ContextId,
        out: &mut dyn MessageOutbox,
    ) -> Result<(), SendRequestError> {
        let oldest = self.oldest().unwrap_or(call).number();
        let (address, node) = (self.config.address, self.config.node);
        let again =
            self.calls.get_mut(&call).filter(|call| call.state == State::Retryable).ok_or(SendRequestError::Ended)?;
        again.state = State::Open;
        again.deadline = again.options.deadline.map(|time| now + time);
        again.rounds = PingRounds::new(now, &again.options);
        again.completion.restart(now);
        for (index, (to, payload)) in again.sent.clone().into_iter().enumerate() {
            let number = index as u32 + 1;
            if !again.completion.is_resolved(call.request(number)) {
                again.rounds.add_request(now, call.request(number), to);
            }
            out.send(to, &again.request(now, number, oldest, address, node).encode(), &payload);
        }
        again.arm(&mut self.timers);
        Ok(())
    }

    /// Confirms all requests at an address, because the transport is transferring a long message from or to it.
    pub fn restart_timeouts(&mut self, now: Instant, address: SocketAddr) {
        for call in self.calls.values_mut() {
            call.rounds.restart_timeouts(now, address);
            call.completion.restart_timeouts(now, address);
        }
    }

    /// Handles a message of this caller that the transport certainly did not deliver.
    pub fn undelivered(&mut self, now: Instant, to: SocketAddr, message: &[u8], out: &mut dyn MessageOutbox) {
        if let Ok((DelegateMessage::Request(request), _)) = parse(message) {
            self.fail(now, request.call, CallFailure::Unreachable(to), out);
        }
    }

    /// Status of a call (DPC Fig. 3.1); its outcome is an event.
    #[must_use]
    pub fn status(&self, call: ContextId) -> CallStatus {
        let open = self.calls.get(&call).is_some_and(|call| call.state == State::Open);
        if open { CallStatus::InProgress } else { CallStatus::Ended }
    }

    /// Handles a message. A message that is not for a caller is counted and dropped.
    pub fn handle(&mut self, now: Instant, from: PeerNode, message: &Bytes, out: &mut dyn MessageOutbox) {
        let Ok((parsed, payload)) = parse(message) else {
            self.stats.ignored += 1;
            return;
        };
        let id = match parsed {
            DelegateMessage::Response(response) => response.call,
            DelegateMessage::Fault(fault) => fault.call,
            DelegateMessage::Pong(pong, _) => pong.call,
            DelegateMessage::Span(span) => span.call,
            _ => ContextId::default(),
        };
        // Messages that arrive before a call is repeated are sent again then.
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.state != State::Retryable) else {
            self.stats.ignored += 1;
            return;
        };
        match parsed {
            DelegateMessage::Response(response) => {
                let item = message.slice(payload..);
                let taken = call.completion.response(now, from, &response, call.options.once, self.config.requests_max);
                let Ok(resolved) = taken else {
                    return self.handle_refused(now, id, taken.err(), out);
                };
                resolved.into_iter().flatten().for_each(|branch| call.rounds.remove(branch));
                if !response.null && matches!(call.state, State::Open) {
                    let from = completion::sender(&response);
                    self.events.push_back(CallerEvent::Reply { call: id, from, item });
                }
            }
            DelegateMessage::Fault(fault) if call.state == State::Open => {
                let status = || CallFailure::Server(status_of(&fault, &message.slice(payload..)));
                self.fail(now, id, fault.unreachable.map_or_else(status, CallFailure::DelegatedNowhere), out);
            }
            DelegateMessage::Pong(pong, addresses) => self.pong(now, from, &pong, addresses, out),
            DelegateMessage::Span(span) => {
                let label = String::from_utf8_lossy(&message[payload..]).into_owned();
                call.spans.iter_mut().for_each(|spans| spans.add(now, span.span, from.address, &label));
            }
            _ => self.stats.ignored += 1,
        }
        self.end_if_done(now, id);
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: Instant, out: &mut dyn MessageOutbox) {
        while let Some((at, id)) = self.timers.due(now) {
            let Some(call) = self.calls.get_mut(&id).filter(|call| call.timer == Some(at)) else { continue };
            call.timer = None;
            match call.state {
                State::Open if call.deadline.is_some_and(|deadline| deadline <= now) => {
                    self.fail(now, id, CallFailure::Deadline, out);
                }
                State::Open | State::Aborting { .. } if call.rounds.next() <= now => self.round(now, id, out),
                _ => {}
            }
            self.end_if_done(now, id);
            self.arm(id);
        }
    }

    /// Time of the next poll.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<CallerEvent> {
        self.events.pop_front()
    }

    /// Counters of this caller.
    #[must_use]
    pub fn stats(&self) -> DelegateCallerStats {
        self.stats
    }

    /// Calls in memory: in progress, being stopped, to be repeated, or waiting for their traces.
    #[must_use]
    pub fn known(&self) -> usize {
        self.calls.len()
    }

    /// Returns whether no state of any call is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.call_order.is_empty() && self.timers.is_empty()
    }

    /// Handles a refused response.
    fn handle_refused(
        &mut self,
        now: Instant,
        id: ContextId,
        error: Option<completion::ResponseError>,
        out: &mut dyn MessageOutbox,
    ) {
        self.stats.ignored += 1;
        if error == Some(completion::ResponseError::TooLarge) {
            self.fail(now, id, CallFailure::TooLarge(self.config.requests_max), out);
        }
    }

    /// Ends a call with a failure, and stops its servers.
    fn fail(&mut self, now: Instant, id: ContextId, failure: CallFailure, out: &mut dyn MessageOutbox) {
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.state == State::Open) else { return };
        self.stats.failed += 1;
        self.events.push_back(CallerEvent::Ended { call: id, outcome: CallOutcome::Failed(failure) });
        if call.options.once {
            call.state = State::Retryable;
            return;
        }
        if mutant::on(Mutant::DelegateFailureUntold) {
            return self.end(now, id);
        }
        call.state = State::Aborting { since: now, reported: true };
        call.rounds.start_stopping(now);
        self.round(now, id, out);
        self.end_if_done(now, id);
    }

    /// Ends a call if nothing is missing any more.
    fn end_if_done(&mut self, now: Instant, id: ContextId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let complete = call.completion.is_complete();
        match call.state {
            State::Open if complete && call.requests > 0 => {
                self.stats.complete += 1;
                self.events.push_back(CallerEvent::Ended { call: id, outcome: CallOutcome::Complete });
                self.end(now, id);
            }
            State::Aborting { since, reported } => {
                let (stopped, confirmed) = call.rounds.stopped(&call.completion);
                let late = now.since(since) >= call.options.timeout;
                if !(complete || stopped || late) {
                    return;
                }
                if !reported {
                    let confirmed = complete || stopped && confirmed;
                    self.stats.aborted += 1;
                    let outcome = CallOutcome::Aborted { confirmed };
                    self.events.push_back(CallerEvent::Ended { call: id, outcome });
                }
                self.end(now, id);
            }
            State::Traced { until } => {
                if until <= now || call.spans.as_ref().is_none_or(|spans| spans.is_complete(id, call.requests)) {
                    self.forget(id);
                }
            }
            State::Open | State::Retryable => {}
        }
    }

    /// Ends a call, except for its trace.
    fn end(&mut self, now: Instant, id: ContextId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.spans.is_none() {
            return self.forget(id);
        }
        call.state = State::Traced { until: now + call.options.timeout };
        call.arm(&mut self.timers);
        self.end_if_done(now, id);
    }

    fn forget(&mut self, id: ContextId) {
        let Some(call) = self.calls.remove(&id) else { return };
        if let Some(spans) = call.spans {
            self.events.push_back(CallerEvent::Trace { call: id, tree: spans.tree(id, call.requests) });
        }
        if self.calls.is_empty() {
            self.call_order.clear();
        }
        let calls = &self.calls;
        self.timers.remove_obsolete(calls.len(), |at, id| calls.get(&id).is_some_and(|call| call.timer == Some(at)));
    }

    /// Oldest call that servers may be working on.
    fn oldest(&mut self) -> Option<ContextId> {
        while let Some(id) = self.call_order.front() {
            let over = self.calls.get(id).is_none_or(|call| matches!(call.state, State::Traced { .. }));
            if !over {
                return Some(*id);
            }
            self.call_order.pop_front();
        }
        None
    }

    /// Sets the timer of a call.
    fn arm(&mut self, id: ContextId) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.arm(&mut self.timers);
        }
    }
}
