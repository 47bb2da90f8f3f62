//! The calls of a node.
//!
//! ```text
//! open() ─▶ send() … ─▶ Reply, Reply, … ─▶ Ended: Complete, Failed or Aborted
//!                         └ consumed(): servers may send more
//! ```
//!
//! [`completion`] knows when all replies are there; [`rounds`] asks, if that takes long, whoever works on the
//! rest, and stops them once the call has failed or is aborted; [`trace`] puts the spans of a traced call
//! together. A call takes what comes in the order in which it comes.

mod completion;
mod rounds;
pub mod trace;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::delegate::message::ended_code;
use pathcall_wire::delegate::{Flags, Grant, Message, Request, U24, parse};
use pathcall_wire::{Instant, Mutant, mutant};

use super::{Context, NodeId, Outbox, Peer, Status, gc_time, micros};
use completion::Completion;
use rounds::Rounds;
use trace::{Spans, Tree};

/// Calls have this bit clear: it is set in the contexts of the node's worker.
const NUMBERS: u32 = (1 << 31) - 1;

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerConfig {
    /// This node's id, another one after every start.
    pub node: NodeId,
    /// Where this node listens: replies go there (DPC §4.2).
    pub address: SocketAddr,
    /// Calls at one time at most.
    pub calls_max: usize,
    /// Incomplete requests of one call at most, and servers that are known of one.
    pub requests_max: u32,
}

impl CallerConfig {
    /// Usual bounds.
    #[must_use]
    pub const fn new(node: NodeId, address: SocketAddr) -> Self {
        Self { node, address, calls_max: 1 << 20, requests_max: 1 << 18 }
    }
}

/// How a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallOptions {
    /// Pause between two rounds of pings, and before the first. Most calls should need less (DPC §4.4.3).
    pub ping_period: Duration,
    /// A request that nobody confirmed for so long fails the call; several ping periods, at most
    /// [`CallOptions::TIMEOUT_MAX`].
    pub timeout: Duration,
    /// The call fails after this time.
    pub deadline: Option<Duration>,
    /// Replies that each server may send before the application takes any; a power of two, at most 2^15.
    pub credit: u32,
    /// Whether servers tell what they did and when (§3.5.2).
    pub traced: bool,
    /// Whether servers record what they did, so that the call can be made again until it is complete (§3.5.3).
    pub once: bool,
}

impl CallOptions {
    /// The longest time-out: servers keep what they know for half as long again at least, and 2^15 ms at most.
    pub const TIMEOUT_MAX: Duration = Duration::from_millis((1 << 15) * 2 / 3);

    /// The code of the time for which servers keep what they know: half as long again as the time-out, for
    /// clocks that differ (DPC §4.4.4).
    fn gc_code(&self) -> u8 {
        (0..15).find(|code| gc_time(*code) >= self.timeout * 3 / 2).unwrap_or(15)
    }

    fn credit_code(&self) -> u8 {
        self.credit.clamp(1, 1 << 15).ilog2() as u8
    }
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            ping_period: Duration::from_millis(200),
            timeout: Duration::from_secs(1),
            deadline: None,
            credit: 32,
            traced: false,
            once: false,
        }
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// A server said so.
    #[error("{}", .0.message)]
    Server(Status),
    /// Nobody confirmed that a request is worked on.
    #[error(
        "a request was not confirmed to be in progress for {millis} ms: has a server or the connection to it failed?"
    )]
    Unconfirmed {
        /// The call's time-out.
        millis: u64,
    },
    /// A request is done but what it led to did not come.
    #[error("a reply was sent but has not come for {millis} ms: has a connection failed?")]
    Lost {
        /// The call's time-out.
        millis: u64,
    },
    /// The first server is not there.
    #[error("nobody is at {0}")]
    Unreachable(SocketAddr),
    /// It took too long.
    #[error("the call took longer than it may")]
    Deadline,
    /// A manifest announces more than a call may have.
    #[error("the call has more than {0} requests that are not done")]
    TooLarge(u32),
}

impl CallFailure {
    /// The failure as a status of gRPC.
    #[must_use]
    pub fn status(&self) -> Status {
        let code = match self {
            Self::Server(status) => return status.clone(),
            Self::Unconfirmed { .. } | Self::Lost { .. } | Self::Unreachable(_) => Status::UNAVAILABLE,
            Self::Deadline => Status::DEADLINE_EXCEEDED,
            Self::TooLarge(_) => Status::RESOURCE_EXHAUSTED,
        };
        Status::new(code, self.to_string())
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All requests are done, and all their replies are there.
    Complete,
    /// It failed. Servers that still work on it are told to stop.
    Failed(CallFailure),
    /// It was aborted by [`Caller::abort`]. `confirmed`: every server has said that it has stopped.
    Aborted {
        /// Whether no server works on it any more, for sure.
        confirmed: bool,
    },
}

/// Fig. 3.1's status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// Replies are missing, or it is not known whether there are any.
    InProgress,
    /// The call has ended, and its end was an event; or it was never opened.
    Ended,
}

/// What the caller tells its application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallerEvent {
    /// A reply.
    Reply {
        /// Of which call.
        call: Context,
        /// Who sent it, for [`Caller::consumed`].
        from: Option<Context>,
        /// The item.
        item: Bytes,
    },
    /// The call's end; nothing comes after it, but its trace.
    Ended {
        /// Which call.
        call: Context,
        /// How.
        outcome: Outcome,
    },
    /// What servers did for a traced call.
    Trace {
        /// Which call.
        call: Context,
        /// Who did what, when.
        tree: Tree,
    },
}

/// Why a request can't be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The call has ended.
    #[error("the call has ended")]
    Ended,
    /// There are too many calls.
    #[error("{0} calls are in progress, as many as may be")]
    CallsFull(usize),
    /// The call has too many requests.
    #[error("a call has at most {} requests of its caller", U24::MAX)]
    TooMany,
}

/// What a caller has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallerStats {
    /// Calls that ended complete.
    pub complete: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were aborted.
    pub aborted: u64,
    /// Pings sent.
    pub pings: u64,
    /// Messages of no meaning here: of calls that have ended, repeats, forged ones.
    pub ignored: u64,
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Open,
    /// It has failed and may be made again.
    Retryable,
    /// Servers are being told to stop; `told`: the application knows that the call has ended.
    Aborting {
        since: Instant,
        told: bool,
    },
    /// Over; spans may come until then.
    Traced {
        until: Instant,
    },
}

#[derive(Debug)]
struct Call {
    id: Context,
    options: CallOptions,
    opened: Instant,
    deadline: Option<Instant>,
    state: State,
    completion: Completion,
    rounds: Rounds,
    spans: Option<Spans>,
    /// The caller's own requests, kept if they may be sent again.
    sent: Vec<(SocketAddr, Bytes)>,
    requests: u32,
    timer: Option<Instant>,
}

/// The calls of a node.
#[derive(Debug)]
pub struct Caller {
    config: CallerConfig,
    last_number: u32,
    calls: BTreeMap<Context, Call>,
    /// Calls that servers may have to do with, in order: the oldest is told to them.
    open: BTreeSet<Context>,
    timers: BTreeSet<(Instant, Context)>,
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
            calls: BTreeMap::new(),
            open: BTreeSet::new(),
            timers: BTreeSet::new(),
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
        let call = Call {
            id,
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
        };
        self.calls.insert(id, call);
        self.open.insert(id);
        self.arm(id);
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
        let oldest = self.open.first().map_or(call.number(), |oldest| oldest.number());
        let (address, node) = (self.config.address, self.config.node);
        let open = self.calls.get_mut(&call).filter(|call| call.state == State::Open).ok_or(SendError::Ended)?;
        if open.requests >= U24::MAX {
            return Err(SendError::TooMany);
        }
        open.requests += 1;
        let branch = call.request(open.requests);
        open.completion.expect_own(open.requests);
        open.rounds.watch(now, branch, 0, to);
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

    /// Gives a call up: servers are told to stop (DPC §4.5). [`CallerEvent::Ended`] says when they have.
    pub fn abort(&mut self, now: Instant, call: Context, out: &mut dyn Outbox) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        if matches!(open.state, State::Open | State::Retryable) {
            open.state = State::Aborting { since: now, told: false };
            self.round(now, call, out);
            self.settle(now, call);
        }
    }

    /// Makes a call again that failed and is to be done exactly once: the same requests, under the same ids.
    ///
    /// # Errors
    /// [`SendError::Ended`]: there is none that could be made again.
    pub fn retry(&mut self, now: Instant, call: Context, out: &mut dyn Outbox) -> Result<(), SendError> {
        let oldest = self.open.first().map_or(call.number(), |oldest| oldest.number());
        let (address, node) = (self.config.address, self.config.node);
        let again = self.calls.get_mut(&call).filter(|call| call.state == State::Retryable).ok_or(SendError::Ended)?;
        again.state = State::Open;
        again.deadline = again.options.deadline.map(|time| now + time);
        again.rounds = Rounds::new(now, &again.options);
        again.completion.again(now);
        for (index, (to, payload)) in again.sent.clone().into_iter().enumerate() {
            let number = index as u32 + 1;
            if !again.completion.is_resolved(call.request(number)) {
                again.rounds.watch(now, call.request(number), 0, to);
            }
            out.send(to, &again.request(now, number, oldest, address, node).encode(), &payload);
        }
        self.arm(call);
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
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            let Some(call) = self.calls.get_mut(&id) else { continue };
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
        self.timers.first().map(|timer| timer.0)
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

    /// Whether nothing is known of any call: all have ended, and nobody works on them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.open.is_empty() && self.timers.is_empty()
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
            return self.arm(id);
        }
        call.state = State::Aborting { since: now, told: true };
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
        self.open.remove(&id);
        call.state = State::Traced { until: now + call.options.timeout };
        self.arm(id);
        self.settle(now, id);
    }

    fn forget(&mut self, id: Context) {
        let Some(call) = self.calls.remove(&id) else { return };
        self.open.remove(&id);
        if let Some(timer) = call.timer {
            self.timers.remove(&(timer, id));
        }
        if let Some(spans) = call.spans {
            self.events.push_back(CallerEvent::Trace { call: id, tree: spans.tree(id, call.requests) });
        }
    }

    /// Sets a call's timer.
    fn arm(&mut self, id: Context) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let next = match call.state {
            State::Open => Some(call.deadline.into_iter().fold(call.rounds.next(), Instant::min)),
            State::Aborting { since, .. } => Some(call.rounds.next().min(since + call.options.timeout)),
            State::Traced { until } => Some(until),
            State::Retryable => None,
        };
        if next != call.timer {
            if let Some(old) = call.timer {
                self.timers.remove(&(old, id));
            }
            call.timer = next;
            self.timers.extend(next.map(|at| (at, id)));
        }
    }
}

impl Call {
    /// The head of the `number`th request.
    fn request(&self, now: Instant, number: u32, oldest: u32, reply: SocketAddr, node: NodeId) -> Request {
        let (traced, once) = (self.options.traced, self.options.once);
        let oldest = if mutant::on(Mutant::DelegateEndedTooSoon) { self.id.number() } else { oldest };
        Request {
            flags: if traced { Flags::TRACED } else { 0 } | if once { Flags::ONCE } else { 0 },
            call: self.id,
            request: self.id.request(number).inherited(0),
            depth: 0,
            gc: self.options.gc_code(),
            credit: self.options.credit_code(),
            ended: ended_code(self.id.number(), oldest),
            deadline: self.deadline.map_or(u32::MAX, |at| micros(at.since(now))),
            age: micros(now.since(self.opened)),
            reply,
            sender: node,
            manifest: None,
        }
    }
}
