//! Clone caller: the calls of one endpoint to a pool.
//!
//! ```text
//! start_call ─▶ route ─┬─ through the element: a random group and filter table ─▶ frames
//!                      └─ past it: to one server, or two                        ─▶ frames
//! answers ─▶ the first complete one is the call's ─▶ Answered       deadline ─▶ Failed
//! a failure, if another server may succeed ─▶ hedge at once; the call's answer if no server succeeds (gRPC A6)
//! timer ─▶ repeat, to other servers; if a server works on the call, to that one
//! ```
//!
//! [`route`] chooses the servers, [`outgoing`] writes the frames, [`answers`] handles the answers. [`extra`] decides
//! about all requests beyond one for each call: [`HedgeBudgets`] pay for them, and there are none while [`Slowdown`]
//! shows that all servers are slow. [`HedgeDelay`] is learned; [`ElementHealth`] records whether the element answers, and
//! [`ServerLoads`] what is known of the servers' queues.
//! [`streams`] has the hedges of streaming calls, which go by gRPC.
//! [`held_hedge`] has the hedges that the element holds.
//! [`automatic`] sets the options of calls whose policy a [`PolicyChoice`] chooses.

mod answers;
mod api;
mod automatic;
mod call;
mod element_health;
mod extra;
mod hedge_budget;
mod hedge_delay;
mod held_hedge;
mod latency;
mod latency_record;
mod outgoing;
mod policy;
mod policy_choice;
mod policy_period;
mod route;
mod server_loads;
mod slowdown;
mod streams;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pathcall_wire::clone::ServerReport;
use pathcall_wire::{CloneFlags, CloneFrame, Flags, FrameKind, Instant, Mutant, SplitMix64, mutant};

pub use api::{
    CloneAnswer, CloneCall, CloneCallId, CloneCallerConfig, CloneCallerStats, CloneFailure, Event, RefusedExtra,
    StartError,
};
pub use policy::{ClonePolicy, PolicyReason, PolicyStats};
pub use streams::{StreamCallEnd, StreamCallId, StreamHedges, StreamOptions, StreamStep};

use super::assembly::{self, AddOutcome};
use super::{CloneDestination, Pool};
use crate::tables::FixedHashMap;
use call::Call;
use element_health::ElementHealth;
use hedge_budget::HedgeBudgets;
use hedge_delay::HedgeDelay;
use latency::Latency;
use outgoing::OutgoingRequest;
use policy_choice::PolicyChoice;
use server_loads::ServerLoads;
use slowdown::Slowdown;

/// Obsolete timers, beyond one for each call, before they are removed.
const STALE_MAX: usize = 1024;
/// Repeated and completed calls whose redundant answers are still recognised.
const RETRIED_MAX: usize = 64;

/// Calls of one endpoint to a pool.
#[derive(Debug)]
pub struct CloneCaller {
    config: CloneCallerConfig,
    /// Servers of the previous version: they may still answer.
    previous_servers: Vec<u32>,
    calls: FixedHashMap<u32, Call>,
    last_seq: u32,
    /// Index of the last server in round-robin order.
    last_in_turn: u32,
    random: SplitMix64,
    budgets: HedgeBudgets,
    /// Learned delays of hedges, by budget.
    hedge_delays: Vec<HedgeDelay>,
    /// Latencies that show a slow-down of all servers, by budget.
    slowdowns: Vec<Slowdown>,
    /// Chosen policies of automatic calls, by budget.
    choices: Vec<Option<Box<PolicyChoice>>>,
    element: ElementHealth,
    loads: ServerLoads,
    latency: Latency,
    /// Last calls that were repeated, with the attempt that was answered.
    retried_elsewhere: VecDeque<(u32, u8)>,
    /// Timers by time; obsolete ones are skipped.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
    outgoing: VecDeque<OutgoingRequest>,
    events: VecDeque<Event>,
    stats: CloneCallerStats,
}

impl CloneCaller {
    /// Creates a caller without calls.
    #[must_use]
    pub fn new(now: Instant, config: CloneCallerConfig) -> Self {
        Self {
            previous_servers: Vec::new(),
            calls: FixedHashMap::default(),
            last_seq: config.last_call,
            last_in_turn: 0,
            random: SplitMix64::new(config.seed),
            budgets: HedgeBudgets::new(now, &config.budgets),
            hedge_delays: vec![HedgeDelay::default(); config.budgets.len()],
            slowdowns: vec![Slowdown::default(); config.budgets.len()],
            choices: config.budgets.iter().map(|_| None).collect(),
            element: ElementHealth::new(config.silent_after, config.probe_every),
            loads: ServerLoads::new(config.known_loads, config.report_age_max),
            latency: Latency::default(),
            retried_elsewhere: VecDeque::new(),
            timers: BinaryHeap::new(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            stats: CloneCallerStats::default(),
            config,
        }
    }

    /// Starts a call.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_call(
        &mut self,
        now: Instant,
        CloneCall { request, options }: CloneCall,
    ) -> Result<CloneCallId, StartError> {
        if self.calls.len() >= self.config.calls_max {
            return Err(StartError::CallsFull(self.config.calls_max));
        }
        if self.config.pool.servers.is_empty() {
            return Err(StartError::NoServers);
        }
        let parts = assembly::parts(request.len()).ok_or(StartError::TooLong(request.len()))?;
        let seq = self.next_seq();
        self.stats.calls += 1;
        self.budgets.add_call(now, options.budget);
        self.record_waiting(now, options.budget);
        if let Some(slowdown) = self.slowdowns.get_mut(usize::from(options.budget)) {
            slowdown.watch(seq, now);
        }
        let (options, policy_period) = self.choose_policy(options);
        let mut call = Call::new(request, parts, options, now, now + options.deadline);
        call.policy_period = policy_period;
        self.send_first(now, seq, &mut call);
        self.calls.insert(seq, call);
        self.arm(seq);
        Ok(CloneCallId(seq))
    }

    /// Cancels a call, which then has no event. Each server that may have the request gets one cancellation.
    pub fn cancel(&mut self, now: Instant, call: CloneCallId) {
        if let Some(cancelled_call) = self.calls.remove(&call.0) {
            self.record_end(now, &cancelled_call);
            self.forget_requests(&cancelled_call);
            self.cancel_all(call.0, &cancelled_call);
        }
    }

    /// Sets the pool. Calls that were sent to servers no longer in it are repeated.
    pub fn set_pool(&mut self, now: Instant, pool: Pool) {
        self.previous_servers = std::mem::replace(&mut self.config.pool, pool).servers;
        let (previous_servers, servers) = (&self.previous_servers, &self.config.pool.servers);
        self.loads.retain(servers);
        let removed: Vec<u32> = previous_servers.iter().copied().filter(|server| !servers.contains(server)).collect();
        if removed.is_empty() {
            return;
        }
        let lost = |call: &Call| call.retry_at.is_some() && removed.iter().any(|server| call.has_asked(*server));
        let mut again: Vec<u32> = self.calls.iter().filter(|(_, call)| lost(call)).map(|(seq, _)| *seq).collect();
        again.sort_unstable();
        for seq in again {
            if let Some(call) = self.calls.get_mut(&seq) {
                call.retry_at = Some(now);
                call.working.retain(|server| !removed.contains(server));
            }
            self.arm(seq);
        }
    }

    /// Handles a frame. An invalid frame, or one for another process, is counted and dropped.
    pub fn receive(&mut self, now: Instant, frame: &[u8]) {
        let Some(frame) = CloneFrame::new_checked(frame).ok().filter(|frame| self.is_for_us(frame)) else {
            self.stats.ignored += 1;
            return;
        };
        let (seq, head) = (frame.base().seq(), frame.head());
        if head.switch_id() != 0 {
            self.element.record_answer();
        }
        let (base, report) = (frame.base(), ServerReport { number: frame.base().round(), state: head.state() });
        self.loads.record_report(now, base.src(), base.src_incarnation(), report);
        let Some(call) = self.calls.get_mut(&seq) else {
            if frame.kind() == FrameKind::CloneReply && head.part() == 0 {
                self.handle_redundant(seq, head.attempt());
            }
            return;
        };
        if head.attempt() > call.attempt {
            self.stats.ignored += 1;
            return;
        }
        if frame.kind() == FrameKind::CloneWorking {
            self.record_not_held(now, seq, head);
            return self.record_working_server(now, seq, frame.base().src());
        }
        match call.add_part(&frame) {
            AddOutcome::Complete(reply)
                if head.flags() & CloneFlags::FAILED != 0 && !mutant::on(Mutant::CloneFailureTaken) =>
            {
                self.handle_failure(now, seq, &frame, reply);
            }
            AddOutcome::Complete(reply) => self.handle_answer(now, seq, &frame, reply),
            AddOutcome::Rejected => self.stats.ignored += 1,
            AddOutcome::Incomplete | AddOutcome::Duplicate => {}
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
                    self.fail(now, seq);
                    continue;
                }
                call.deadline = Instant(u64::MAX);
            }
            let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            // A failure becomes the answer only when no other server can be asked.
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
    pub fn transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<(CloneDestination, usize)> {
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

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Time of the next poll; it may be early.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Counters of this caller.
    #[must_use]
    pub const fn stats(&self) -> CloneCallerStats {
        self.stats
    }

    /// Returns whether no call is in progress.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns whether calls go through the element: it answers, as far as this caller knows.
    #[must_use]
    pub const fn by_element(&self) -> bool {
        self.element.is_responsive()
    }

    /// Pool that the caller knows.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
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
        let server = self.config.pool.servers.contains(&base.src()) || self.previous_servers.contains(&base.src());
        matches!(frame.kind(), FrameKind::CloneReply | FrameKind::CloneWorking)
            && base.gaid() == self.config.pool.gaid
            && base.dst() == self.config.endpoint
            && base.has(Flags::FROM_SERVER)
            && incarnation
            && server
    }

    /// Sets the timer of a call.
    fn arm(&mut self, seq: u32) {
        let Some(call) = self.calls.get_mut(&seq) else { return };
        let next = call.next_action();
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
