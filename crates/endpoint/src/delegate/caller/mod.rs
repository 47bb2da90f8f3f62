//! The calls of a node.
//!
//! ```text
//! open() ─▶ send() … ─▶ Reply, Reply, … ─▶ Ended: Complete, Failed or Aborted
//!                         └ consumed(): servers may send more
//! ```
//!
//! `completion` knows when all replies are there; `rounds` asks, if that takes long, whoever works on the
//! rest, and stops them once the call has failed or is aborted; [`trace`] puts the spans of a traced call
//! together. A call takes what comes in the order in which it comes.

mod api;
mod call;
mod completion;
mod rounds;
pub mod trace;

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::delegate::{Grant, Message, U24, parse};
use pathcall_wire::{Instant, Mutant, mutant};

pub use api::{CallFailure, CallOptions, CallStatus, CallerConfig, CallerEvent, CallerStats, Outcome, SendError};

use super::table::{ByContext, Timers, is_crowded};
use super::{Context, Outbox, Peer, Status};
use call::{Call, State};
use completion::Completion;
use rounds::Rounds;
use trace::Spans;

/// Calls have this bit clear: it is set in the contexts of the node's worker.
const NUMBERS: u32 = (1 << 31) - 1;

/// The calls of a node.
#[derive(Debug)]
pub struct Caller {
    config: CallerConfig,
    last_number: u32,
    calls: ByContext<Box<Call>>,
    /// Calls in the order in which they began, the oldest of which is told to servers; some are over.
    begun: VecDeque<Context>,
    timers: Timers,
    events: VecDeque<CallerEvent>,
    stats: CallerStats,
}

impl Caller {
    /// A caller without calls.
    #[must_use]
    pub fn new(config: CallerConfig) -> Self {
        Self {
            config,
            last_number: 0,
            calls: ByContext::default(),
            begun: VecDeque::new(),
            timers: Timers::default(),
            events: VecDeque::new(),
            stats: CallerStats::default(),
        }
    }

    /// Begins a call.
    ///
    /// # Errors
    /// [`SendError::CallsFull`].
    pub fn open(&mut self, now: Instant, options: CallOptions) -> Result<Context, SendError> {
        if self.calls.len() >= self.config.calls_max {
            return Err(SendError::CallsFull(self.config.calls_max));
        }
        let timeout = options.timeout.min(CallOptions::TIMEOUT_MAX);
        let options = CallOptions { timeout, ..options };
        let id = loop {
            self.last_number = self.last_number.wrapping_add(1) & NUMBERS;
            let id = Context::new(self.config.node, self.last_number);
            if self.last_number != 0 && !self.calls.contains_key(&id) {
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
            rounds: Rounds::new(now, &options),
            spans: options.traced.then(|| Spans::new(now)),
            sent: Vec::new(),
            requests: 0,
            timer: None,
        });
        call.arm(&mut self.timers);
        self.calls.insert(id, call);
        self.begun.push_back(id);
        if is_crowded(self.begun.len(), self.calls.len()) {
            self.begun.retain(|id| self.calls.contains_key(id));
        }
        Ok(id)
    }

    /// Sends a request as part of a call; there may be several. A call is complete as soon as all that were sent
    /// are: whoever sends several does so before the next message is handled, or while others are under way.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(
        &mut self,
        now: Instant,
        call: Context,
        to: SocketAddr,
        request: Bytes,
        out: &mut dyn Outbox,
    ) -> Result<(), SendError> {
        let oldest = self.oldest().unwrap_or(call).number();
        let (address, node) = (self.config.address, self.config.node);
        let open = self.calls.get_mut(&call).filter(|call| call.state == State::Open).ok_or(SendError::Ended)?;
        if open.requests >= U24::MAX {
            return Err(SendError::TooMany);
        }
        open.requests += 1;
        let branch = call.request(open.requests);
        open.completion.expect_own(open.requests);
        open.rounds.sent(now, branch, to);
        if open.options.once {
            open.sent.push((to, request.clone()));
        }
        let head = open.request(now, open.requests, oldest, address, node);
        out.send(to, &head.encode(), &request);
        Ok(())
    }

    /// The application has taken a reply: its sender may send another one.
    pub fn consumed(&mut self, call: Context, from: Option<Context>, out: &mut dyn Outbox) {
        let Some((open, from)) = self.calls.get_mut(&call).zip(from) else { return };
        let initial = 1 << open.options.credit_code();
        if open.state == State::Open
            && let Some((to, responses)) = open.completion.consumed(from, initial)
        {
            out.send(to, &Grant { call, context: from, responses }.encode(), &Bytes::new());
        }
    }

    /// Gives a call up: servers are told to stop (DPC §4.5). [`CallerEvent::Ended`] says when they have, also of a
    /// call that has failed and could be made again.
    pub fn abort(&mut self, now: Instant, call: Context, out: &mut dyn Outbox) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        if matches!(open.state, State::Open | State::Retryable) {
            open.state = State::Aborting { since: now, told: false };
            open.rounds.begin_to_stop(now);
            self.round(now, call, out);
            self.settle(now, call);
        }
    }

    /// Makes a call again that failed and is to be done exactly once: the same requests, under the same ids.
    ///
    /// # Errors
    /// [`SendError::Ended`]: there is none that could be made again.
    pub fn retry(&mut self, now: Instant, call: Context, out: &mut dyn Outbox) -> Result<(), SendError> {
        let oldest = self.oldest().unwrap_or(call).number();
        let (address, node) = (self.config.address, self.config.node);
        let again = self.calls.get_mut(&call).filter(|call| call.state == State::Retryable).ok_or(SendError::Ended)?;
        again.state = State::Open;
        again.deadline = again.options.deadline.map(|time| now + time);
        again.rounds = Rounds::new(now, &again.options);
        again.completion.again(now);
        for (index, (to, payload)) in again.sent.clone().into_iter().enumerate() {
            let number = index as u32 + 1;
            if !again.completion.is_resolved(call.request(number)) {
                again.rounds.sent(now, call.request(number), to);
            }
            out.send(to, &again.request(now, number, oldest, address, node).encode(), &payload);
        }
        again.arm(&mut self.timers);
        Ok(())
    }

    /// The transport is in the middle of a long message from or to this address: what is awaited from there is
    /// confirmed.
    pub fn alive(&mut self, now: Instant, address: SocketAddr) {
        for call in self.calls.values_mut() {
            call.rounds.alive(now, address);
            call.completion.alive(now, address);
        }
    }

    /// The transport knows that a message of this caller was not delivered, and never will be.
    pub fn undelivered(&mut self, now: Instant, to: SocketAddr, message: &[u8], out: &mut dyn Outbox) {
        if let Ok((Message::Request(request), _)) = parse(message) {
            self.fail(now, request.call, CallFailure::Unreachable(to), out);
        }
    }

    /// Fig. 3.1's `status`; how a call ended is an event.
    #[must_use]
    pub fn status(&self, call: Context) -> CallStatus {
        let open = self.calls.get(&call).is_some_and(|call| call.state == State::Open);
        if open { CallStatus::InProgress } else { CallStatus::Ended }
    }

    /// Takes a message. What is no message for a caller is counted and dropped.
    pub fn handle(&mut self, now: Instant, from: Peer, message: &Bytes, out: &mut dyn Outbox) {
        let Ok((parsed, payload)) = parse(message) else {
            self.stats.ignored += 1;
            return;
        };
        let id = match parsed {
            Message::Response(response) => response.call,
            Message::Fault(fault) => fault.call,
            Message::Pong(pong, _) => pong.call,
            Message::Span(span) => span.call,
            _ => Context::default(),
        };
        // What comes before a call is made again comes once more then.
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.state != State::Retryable) else {
            self.stats.ignored += 1;
            return;
        };
        match parsed {
            Message::Response(response) => {
                let item = message.slice(payload..);
                let taken = call.completion.response(now, from, &response, call.options.once, self.config.requests_max);
                let Ok(resolved) = taken else {
                    return self.refused(now, id, taken.err(), out);
                };
                resolved.into_iter().flatten().for_each(|branch| call.rounds.done(branch));
                if !response.null && matches!(call.state, State::Open) {
                    let from = completion::sender(&response);
                    self.events.push_back(CallerEvent::Reply { call: id, from, item });
                }
            }
            Message::Fault(fault) if call.state == State::Open => {
                let text = String::from_utf8_lossy(&message[payload..]).into_owned();
                self.fail(now, id, CallFailure::Server(Status::new(fault.code, text)), out);
            }
            Message::Pong(pong, addresses) => self.pong(now, from, &pong, addresses, out),
            Message::Span(span) => {
                let label = String::from_utf8_lossy(&message[payload..]).into_owned();
                call.spans.iter_mut().for_each(|spans| spans.add(now, span.span, from.address, &label));
            }
            _ => self.stats.ignored += 1,
        }
        self.settle(now, id);
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: Instant, out: &mut dyn Outbox) {
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
            self.settle(now, id);
            self.arm(id);
        }
    }

    /// When to poll next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// What the application is told next.
    pub fn next_event(&mut self) -> Option<CallerEvent> {
        self.events.pop_front()
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> CallerStats {
        self.stats
    }

    /// Calls that are known: in progress, being stopped, to be made again, or waiting for their traces.
    #[must_use]
    pub fn known(&self) -> usize {
        self.calls.len()
    }

    /// Whether nothing is known of any call: all have ended, and nobody works on them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.begun.is_empty() && self.timers.is_empty()
    }

    /// A response that was not taken.
    fn refused(&mut self, now: Instant, id: Context, why: Option<completion::Refused>, out: &mut dyn Outbox) {
        self.stats.ignored += 1;
        if why == Some(completion::Refused::TooLarge) {
            self.fail(now, id, CallFailure::TooLarge(self.config.requests_max), out);
        }
    }

    /// Ends a call with a failure; those who still work on it are told to stop.
    fn fail(&mut self, now: Instant, id: Context, failure: CallFailure, out: &mut dyn Outbox) {
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.state == State::Open) else { return };
        self.stats.failed += 1;
        self.events.push_back(CallerEvent::Ended { call: id, outcome: Outcome::Failed(failure) });
        if call.options.once {
            call.state = State::Retryable;
            return;
        }
        if mutant::on(Mutant::DelegateFailureUntold) {
            return self.over(now, id);
        }
        call.state = State::Aborting { since: now, told: true };
        call.rounds.begin_to_stop(now);
        self.round(now, id, out);
        self.settle(now, id);
    }

    /// Ends a call if there is nothing more to wait for.
    fn settle(&mut self, now: Instant, id: Context) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let complete = call.completion.is_complete();
        match call.state {
            State::Open if complete && call.requests > 0 => {
                self.stats.complete += 1;
                self.events.push_back(CallerEvent::Ended { call: id, outcome: Outcome::Complete });
                self.over(now, id);
            }
            State::Aborting { since, told } => {
                let (stopped, confirmed) = call.rounds.stopped(&call.completion);
                let late = now.since(since) >= call.options.timeout;
                if !(complete || stopped || late) {
                    return;
                }
                if !told {
                    let confirmed = complete || stopped && confirmed;
                    self.stats.aborted += 1;
                    let outcome = Outcome::Aborted { confirmed };
                    self.events.push_back(CallerEvent::Ended { call: id, outcome });
                }
                self.over(now, id);
            }
            State::Traced { until } => {
                if until <= now || call.spans.as_ref().is_none_or(|spans| spans.all_there(id, call.requests)) {
                    self.forget(id);
                }
            }
            State::Open | State::Retryable => {}
        }
    }

    /// Nothing of a call is awaited but its trace.
    fn over(&mut self, now: Instant, id: Context) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.spans.is_none() {
            return self.forget(id);
        }
        call.state = State::Traced { until: now + call.options.timeout };
        call.arm(&mut self.timers);
        self.settle(now, id);
    }

    fn forget(&mut self, id: Context) {
        let Some(call) = self.calls.remove(&id) else { return };
        if let Some(spans) = call.spans {
            self.events.push_back(CallerEvent::Trace { call: id, tree: spans.tree(id, call.requests) });
        }
        if self.calls.is_empty() {
            self.begun.clear();
        }
        let calls = &self.calls;
        self.timers.tidy(calls.len(), |at, id| calls.get(&id).is_some_and(|call| call.timer == Some(at)));
    }

    /// The oldest call that servers may have to do with.
    fn oldest(&mut self) -> Option<Context> {
        while let Some(id) = self.begun.front() {
            let over = self.calls.get(id).is_none_or(|call| matches!(call.state, State::Traced { .. }));
            if !over {
                return Some(*id);
            }
            self.begun.pop_front();
        }
        None
    }

    /// Sets a call's timer.
    fn arm(&mut self, id: Context) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.arm(&mut self.timers);
        }
    }
}
