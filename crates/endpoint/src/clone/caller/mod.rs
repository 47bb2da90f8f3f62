//! The calls of one endpoint.
//!
//! ```text
//! ask ─▶ route ─┬─ by the element: a random group and filter table ─▶ frames
//!               └─ past it: to one server, or two                  ─▶ frames
//! answers ─▶ the first whole one is the call's ─▶ Answered        nobody in time ─▶ Failed
//! a failure, and another may do better ─▶ to the next at once; the call's answer if nobody does (gRPC A6)
//! timer ─▶ again, to others; where a server works on it, to that one
//! ```
//!
//! [`route`] decides who is asked, [`frames`] writes what is sent; [`Purses`] pay for all that is sent beyond one
//! request for each call; [`Silence`] knows whether the element answers.

mod api;
mod call;
mod frames;
mod latency;
mod purse;
mod route;
mod silence;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bytes::Bytes;
use pathcall_wire::{CloneFlags, CloneFrame, Flags, Instant, Kind, Mutant, mutant};

pub use api::{Answer, Ask, AskError, CallId, CallerConfig, CallerStats, Event, Failure};

use super::assembly::{self, Taken};
use super::draw::Draw;
use super::{Pool, To};
use crate::tables::ByNumber;
use call::{Call, Said, bit};
use frames::Outgoing;
use latency::Latency;
use purse::Purses;
use silence::Silence;

/// Timers that may be of the past before they are swept out, beyond one for each call.
const STALE_MAX: usize = 1024;
/// Calls that were sent again and are over, whose other answers are looked out for.
const STRAYED_MAX: usize = 64;

/// The calls of one endpoint.
#[derive(Debug)]
pub struct Caller {
    config: CallerConfig,
    /// Servers of the version before: they may still answer.
    before: Vec<u32>,
    calls: ByNumber<u32, Call>,
    last_seq: u32,
    /// The next server, where they are asked in turn.
    turn: u32,
    draw: Draw,
    purses: Purses,
    silence: Silence,
    latency: Latency,
    /// Calls that were sent again, by the attempt that was answered; the last few.
    strayed: VecDeque<(u32, u8)>,
    /// By time; those that are not their call's any more are skipped.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event>,
    stats: CallerStats,
}

impl Caller {
    /// A caller without calls.
    #[must_use]
    pub fn new(now: Instant, config: CallerConfig) -> Self {
        Self {
            before: Vec::new(),
            calls: ByNumber::default(),
            last_seq: config.last_call,
            turn: 0,
            draw: Draw::new(config.seed),
            purses: Purses::new(now, &config.budgets),
            silence: Silence::new(config.silent_after, config.probe_every),
            latency: Latency::default(),
            strayed: VecDeque::new(),
            timers: BinaryHeap::new(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            stats: CallerStats::default(),
            config,
        }
    }

    /// Makes a call.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn ask(&mut self, now: Instant, Ask { request, options }: Ask) -> Result<CallId, AskError> {
        if self.calls.len() >= self.config.calls_max {
            return Err(AskError::CallsFull(self.config.calls_max));
        }
        if self.config.pool.servers.is_empty() {
            return Err(AskError::NoServers);
        }
        let parts = assembly::parts(request.len()).ok_or(AskError::TooLong(request.len()))?;
        let seq = self.next_seq();
        self.stats.calls += 1;
        self.purses.pay_in(now, options.purse);
        let mut call = Call::new(request, parts, options, now, now + options.deadline);
        self.send_first(now, seq, &mut call);
        self.calls.insert(seq, call);
        self.arm(seq);
        Ok(CallId(seq))
    }

    /// The application does not want an answer any more; nothing is told of the call. Servers that may have it are
    /// told, once.
    pub fn give_up(&mut self, call: CallId) {
        if let Some(given_up) = self.calls.remove(&call.0) {
            self.cancel_all(call.0, &given_up);
        }
    }

    /// The pool is another one. Calls that were sent to servers which are gone are sent again.
    pub fn pool(&mut self, now: Instant, pool: Pool) {
        self.before = std::mem::replace(&mut self.config.pool, pool).servers;
        let (before, servers) = (&self.before, &self.config.pool.servers);
        let gone: Vec<u32> = before.iter().copied().filter(|server| !servers.contains(server)).collect();
        if gone.is_empty() {
            return;
        }
        let lost = |call: &Call| call.retry_at.is_some() && gone.iter().any(|server| call.has_asked(*server));
        let mut again: Vec<u32> = self.calls.iter().filter(|(_, call)| lost(call)).map(|(seq, _)| *seq).collect();
        again.sort_unstable();
        for seq in again {
            if let Some(call) = self.calls.get_mut(&seq) {
                call.retry_at = Some(now);
                call.working.retain(|server| !gone.contains(server));
            }
            self.arm(seq);
        }
    }

    /// Takes a frame. What is none, or not for this process, is counted and dropped.
    pub fn receive(&mut self, now: Instant, frame: &[u8]) {
        let Some(frame) = CloneFrame::new_checked(frame).ok().filter(|frame| self.is_for_us(frame)) else {
            self.stats.ignored += 1;
            return;
        };
        let (seq, head) = (frame.base().seq(), frame.head());
        if head.switch_id() != 0 {
            self.silence.heard();
        }
        let Some(call) = self.calls.get_mut(&seq) else {
            if frame.kind() == Kind::CloneReply && head.part() == 0 {
                self.redundant(seq, head.attempt());
            }
            return;
        };
        if head.attempt() > call.attempt {
            self.stats.ignored += 1;
            return;
        }
        if frame.kind() == Kind::CloneWorking {
            return self.works_on(now, seq, frame.base().src());
        }
        match call.take(&frame) {
            Taken::Whole(reply) if head.flags() & CloneFlags::FAILED != 0 && !mutant::on(Mutant::CloneFailureTaken) => {
                self.set_aside(now, seq, &frame, reply);
            }
            Taken::Whole(reply) => self.answered(now, seq, &frame, reply),
            Taken::Refused => self.stats.ignored += 1,
            Taken::Part | Taken::Repeat => {}
        }
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: Instant) {
        while let Some(&Reverse((at, seq))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let Some(call) = self.calls.get_mut(&seq).filter(|call| call.timer == at) else { continue };
            call.timer = Instant(u64::MAX);
            if call.deadline <= now {
                if !mutant::on(Mutant::CloneNeverFails) {
                    self.fail(seq);
                    continue;
                }
                call.deadline = Instant(u64::MAX);
            }
            let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            // A failure is given out only when there is nobody else to be asked.
            let hedges = due(call.hedge_at) && (call.failure.is_some() || !due(call.retry_at));
            if hedges {
                self.hedge(now, seq);
            } else if due(call.retry_at) {
                self.send_again(now, seq);
            }
            self.arm(seq);
        }
    }

    /// Writes the next frame; `None`: there is none for now.
    pub fn transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<(To, usize)> {
        loop {
            let next = self.outgoing.front_mut()?;
            let call = self.calls.get(&next.seq);
            let Some(len) = next.emit(now, &self.config, call, out) else {
                self.outgoing.pop_front();
                continue;
            };
            self.stats.frames += 1;
            return Some((next.to, len));
        }
    }

    /// What the application is told next.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to poll next; it may be early.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> CallerStats {
        self.stats
    }

    /// Whether nothing is known of any call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether calls go by way of the element: it answers, as far as is known.
    #[must_use]
    pub const fn by_element(&self) -> bool {
        self.silence.answers()
    }

    /// The pool as it is known here.
    #[must_use]
    pub const fn servers(&self) -> &Pool {
        &self.config.pool
    }

    fn next_seq(&mut self) -> u32 {
        loop {
            self.last_seq = self.last_seq.wrapping_add(1);
            if self.last_seq != 0 && !self.calls.contains_key(&self.last_seq) {
                return self.last_seq;
            }
        }
    }

    fn is_for_us(&self, frame: &CloneFrame<&[u8]>) -> bool {
        let base = frame.base();
        let incarnation = base.dst_incarnation() == self.config.incarnation || mutant::on(Mutant::CloneIncarnation);
        let server = self.config.pool.servers.contains(&base.src()) || self.before.contains(&base.src());
        matches!(frame.kind(), Kind::CloneReply | Kind::CloneWorking)
            && base.gaid() == self.config.pool.gaid
            && base.dst() == self.config.endpoint
            && base.has(Flags::FROM_SERVER)
            && incarnation
            && server
    }

    /// A server says that it works on a call.
    fn works_on(&mut self, now: Instant, seq: u32, server: u32) {
        let pause = |call: &Call| self.pause(call, 1).max(call.spread(now));
        let Some(pause) = self.calls.get(&seq).map(pause) else { return };
        let Some(call) = self.calls.get_mut(&seq) else { return };
        self.stats.working += 1;
        call.works(server);
        call.unanswered = 0;
        call.retry_at = call.retry_at.map(|_| now + pause);
        self.arm(seq);
    }

    /// A call has its answer.
    fn answered(&mut self, now: Instant, seq: u32, frame: &CloneFrame<&[u8]>, reply: Bytes) {
        let twice = mutant::on(Mutant::CloneAnsweredTwice);
        let Some(mut call) = self.calls.remove(&seq) else { return };
        let (head, cloned) = (frame.head(), frame.head().clo() != 0);
        if !cloned {
            self.pay_back(&mut call, head.attempt());
        }
        if head.attempt() == 0 {
            self.latency.measured(now.since(call.made));
        }
        if call.options.cancel {
            self.cancel_others(seq, &call, frame);
        }
        if call.strayed && head.attempt() < call.attempt {
            self.latency.sent_in_vain();
        } else if call.strayed {
            self.strayed.truncate(STRAYED_MAX - 1);
            self.strayed.push_front((seq, head.attempt()));
        }
        self.give(now, seq, &call, Said { reply, server: frame.base().src(), cloned });
        if twice {
            self.calls.insert(seq, call);
        }
    }

    /// An answer to a call that had one.
    fn redundant(&mut self, seq: u32, attempt: u8) {
        self.stats.redundant += 1;
        let late = |(of, answered): &(u32, u8)| *of == seq && *answered != attempt;
        if let Some(at) = self.strayed.iter().position(late) {
            self.strayed.remove(at);
            self.latency.sent_in_vain();
        }
    }

    /// A server could not do it. Who else may is asked at once, and whoever works on it is waited for (gRPC A6).
    fn set_aside(&mut self, now: Instant, seq: u32, frame: &CloneFrame<&[u8]>, reply: Bytes) {
        let Some(mut call) = self.calls.remove(&seq) else { return };
        let (attempt, server) = (frame.head().attempt(), frame.base().src());
        let cloned = frame.head().flags() & CloneFlags::CLONE != 0;
        if call.fails(attempt, Said { reply, server, cloned }) {
            self.stats.set_aside += 1;
            call.works_no_more(server);
            if !cloned {
                self.pay_back(&mut call, attempt);
            }
            if call.may_hedge() {
                call.hedge_at = Some(now);
            } else if !cloned {
                self.clone_late(now, seq, &mut call, server);
            }
        }
        let over = call.has_failed() && !call.may_hedge();
        self.calls.insert(seq, call);
        if over { self.end_as_failed(now, seq) } else { self.arm(seq) }
    }

    /// A call ends with the failure that it has.
    fn end_as_failed(&mut self, now: Instant, seq: u32) {
        if let Some(mut call) = self.calls.remove(&seq)
            && let Some(said) = call.failure.take()
        {
            self.give(now, seq, &call, said);
        }
    }

    /// What was paid for an attempt's clone is paid back: there was none.
    fn pay_back(&mut self, call: &mut Call, attempt: u8) {
        if call.reserved & bit(attempt) != 0 {
            call.reserved &= !bit(attempt);
            self.purses.pay_back(call.options.purse);
        }
    }

    /// A call ends with this answer.
    fn give(&mut self, now: Instant, seq: u32, call: &Call, answer: Said) {
        let Said { reply, server, cloned } = answer;
        self.stats.answered += 1;
        self.stats.cloned += u64::from(cloned);
        let requests = call.requests + u32::from(cloned);
        let answer = Answer { reply, server, latency: now.since(call.made), cloned, requests };
        self.events.push_back(Event::Answered(CallId(seq), answer));
    }

    /// Nobody answered a call in time.
    fn fail(&mut self, seq: u32) {
        let Some(call) = self.calls.remove(&seq) else { return };
        self.stats.failed += 1;
        if call.options.cancel {
            self.cancel_all(seq, &call);
        }
        let failure = Failure::Deadline { after: call.options.deadline, requests: call.requests };
        self.events.push_back(Event::Failed(CallId(seq), failure));
    }

    /// Sets a call's timer.
    fn arm(&mut self, seq: u32) {
        let Some(call) = self.calls.get_mut(&seq) else { return };
        let next = call.next();
        if next == call.timer {
            return;
        }
        call.timer = next;
        self.timers.push(Reverse((next, seq)));
        if self.timers.len() > 4 * self.calls.len() + STALE_MAX {
            let calls = &self.calls;
            self.timers.retain(|Reverse((at, seq))| calls.get(seq).is_some_and(|call| call.timer == *at));
        }
    }
}
