//! Hedges of the streaming calls of one method, each until its first message.
//!
//! ```text
//! start_call ─▶ next_step ─┬─ Ask: send the call to another server
//!                          ├─ Wait: for an answer, or for a time
//!                          └─ End: no server is left
//! record_first_message ─▶ the stream of this request is the call's, all others are dropped
//! record_failure ─▶ another server is asked, as the hedging policy and the servers allow
//! record_unreached ─▶ another server is asked in place of this one
//! ```
//!
//! Streams go by gRPC and have no frames: this state machine decides when another server is asked, and its user sends
//! the requests. [`HedgeBudgets`] pay for extra requests, [`HedgeDelay`] is learned from the times to the first message,
//! and there are no hedges while [`Slowdown`] shows that all servers are slow, as for calls in frames.

#[cfg(test)]
mod tests;

use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use super::super::{Hedge, HedgeAfter, HedgeBudgetConfig, Pushback};
use super::hedge_budget::{HedgeBudgets, Payment};
use super::hedge_delay::HedgeDelay;
use super::slowdown::Slowdown;
use super::{CloneCallerStats, StartError};
use crate::tables::FixedHashMap;

/// Streaming calls of one method that wait for their first message, at most.
const CALLS_MAX: usize = 1 << 20;
/// Shortest time after which a refused hedge is considered again.
const RECONSIDER_MIN: Duration = Duration::from_millis(2);

/// Number of a streaming call. A later call may reuse the number of an ended one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamCallId(u32);

/// Options of a streaming call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// Hedging policy, if the call is hedged.
    pub hedge: Option<Hedge>,
    /// Units of the budget that one extra request takes.
    pub cost: u16,
    /// Number of servers that may be asked, each once.
    pub servers: usize,
    /// Time left until the deadline; `None`: there is none.
    pub deadline: Option<Duration>,
}

/// Next step of a streaming call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamStep {
    /// Send the call to a server that has not been asked yet, then take the next step.
    Ask,
    /// Wait for an answer, and take the next step at this time at the latest.
    Wait(Option<Instant>),
    /// Every server that was asked has failed, and no other one is asked.
    End,
}

/// End of a streaming call without a first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamCallEnd {
    /// A failed answer is its result.
    Failed,
    /// No server was reached.
    Unreached,
    /// Its deadline has passed, or its caller has dropped it.
    Dropped,
}

/// Hedges of the streaming calls of one method.
#[derive(Debug)]
pub struct StreamHedges {
    budget: HedgeBudgets,
    delay: HedgeDelay,
    slowdown: Slowdown,
    /// Calls without a first message.
    calls: FixedHashMap<u32, StreamCall>,
    last: u32,
    stats: CloneCallerStats,
}

/// Streaming call without a first message.
#[derive(Debug)]
struct StreamCall {
    options: StreamOptions,
    started_at: Instant,
    deadline: Instant,
    /// Servers that have not been asked.
    servers: usize,
    /// Requests sent, and those that wait for an answer.
    sent: u32,
    open: u32,
    /// Requests sent, without those that reached no server.
    attempts: u32,
    /// Whether a server is asked for the first time, or in place of one that was not reached.
    is_unserved: bool,
    /// Whether a server is asked after a failed answer.
    is_failed: bool,
    /// Time of the next hedge, and the start of the wait for it.
    hedge_at: Option<Instant>,
    hedge_since: Instant,
    /// Time before which no other server may be asked, as servers wish.
    not_before: Option<Instant>,
    /// Number of the first hedge because the answer took long.
    first_hedge: Option<u32>,
    /// Whether no first message came within the first learned delay.
    is_overdue: bool,
    /// Whether its latency is recorded in [`Slowdown`].
    latency_recorded: bool,
}

impl StreamHedges {
    /// Creates the hedges of a method with this budget.
    #[must_use]
    pub fn new(now: Instant, budget: HedgeBudgetConfig) -> Self {
        Self {
            budget: HedgeBudgets::new(now, &[budget]),
            delay: HedgeDelay::default(),
            slowdown: Slowdown::default(),
            calls: FixedHashMap::default(),
            last: 0,
            stats: CloneCallerStats::default(),
        }
    }

    /// Starts a call.
    ///
    /// # Errors
    /// [`StartError::CallsFull`].
    pub fn start_call(&mut self, now: Instant, options: StreamOptions) -> Result<StreamCallId, StartError> {
        if self.calls.len() >= CALLS_MAX {
            return Err(StartError::CallsFull(CALLS_MAX));
        }
        self.last = self.last.wrapping_add(1);
        while self.calls.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        self.stats.calls += 1;
        self.budget.add_call(now, 0);
        self.record_waiting(now);
        self.slowdown.watch(self.last, now);
        self.calls.insert(self.last, StreamCall::new(now, options));
        Ok(StreamCallId(self.last))
    }

    /// Takes the next step of a call.
    pub fn next_step(&mut self, now: Instant, id: StreamCallId) -> StreamStep {
        self.record_waiting(now);
        let Some(mut call) = self.calls.remove(&id.0) else { return StreamStep::End };
        let step = if self.asks_server(now, &mut call) {
            call.record_sent(now, self.hedge_delay(&call));
            StreamStep::Ask
        } else if call.open == 0 && !call.is_unserved && !call.is_failed {
            StreamStep::End
        } else {
            StreamStep::Wait(call.next_action())
        };
        self.calls.insert(id.0, call);
        step
    }

    /// Records that a server answers the request with this number, in the order of [`StreamStep::Ask`]: with a first
    /// message, or with a status that ends the call. Returns the number of the other requests that wait for an answer,
    /// which the user drops.
    pub fn record_first_message(&mut self, now: Instant, id: StreamCallId, request: u32) -> u32 {
        let Some(mut call) = self.calls.remove(&id.0) else { return 0 };
        let others = if mutant::on(Mutant::StreamLosersKept) { 0 } else { call.open.saturating_sub(1) };
        self.stats.answered += 1;
        self.stats.cancelled += u64::from(others);
        if let Some(share) = call.learned_share() {
            let wins = call.first_hedge.map(|first| request >= first);
            self.delay.record_answer(now.since(call.started_at), share, wins, call.is_overdue);
        }
        self.record_latency(now, &mut call);
        others
    }

    /// Records a failed answer: another server may give a better one.
    pub fn record_failure(&mut self, now: Instant, id: StreamCallId, pushback: Option<Pushback>) {
        let Some(call) = self.calls.get_mut(&id.0) else { return };
        call.open = call.open.saturating_sub(1);
        self.stats.set_aside += 1;
        if let Some(pushback) = pushback
            && !mutant::on(Mutant::StreamPushbackIgnored)
        {
            call.push_back(now, pushback);
        }
        if call.has_attempts() && !mutant::on(Mutant::StreamFailureTaken) {
            call.is_failed = !call.is_pushed_back();
            self.stats.refused.pushback += u64::from(call.is_pushed_back());
        }
    }

    /// Records that a server was not reached: it has not had the request, or its connection broke.
    pub fn record_unreached(&mut self, id: StreamCallId) {
        if let Some(call) = self.calls.get_mut(&id.0) {
            call.open = call.open.saturating_sub(1);
            call.attempts = call.attempts.saturating_sub(1);
            call.is_unserved = true;
        }
    }

    /// Asks servers again, this number of them, after none was reached.
    pub fn retry(&mut self, id: StreamCallId, servers: usize) {
        if let Some(call) = self.calls.get_mut(&id.0) {
            (call.servers, call.is_unserved) = (servers, true);
        }
    }

    /// Ends a call without a first message, unless it has ended.
    pub fn end_call(&mut self, now: Instant, id: StreamCallId, end: StreamCallEnd) {
        let Some(mut call) = self.calls.remove(&id.0) else { return };
        self.stats.cancelled += u64::from(call.open);
        match end {
            StreamCallEnd::Failed => {
                self.stats.answered += 1;
                if !std::mem::replace(&mut call.latency_recorded, true) {
                    self.slowdown.record_failed(now, now.since(call.started_at));
                }
            }
            StreamCallEnd::Unreached => self.stats.failed += 1,
            StreamCallEnd::Dropped if now >= call.deadline => {
                self.stats.failed += 1;
                self.record_latency(now, &mut call);
            }
            StreamCallEnd::Dropped => {}
        }
    }

    /// Counters of the calls so far: those of a clone caller that apply to streams. `answered` counts calls with a first
    /// message, or with a status; `cancelled` counts dropped requests.
    #[must_use]
    pub const fn stats(&self) -> CloneCallerStats {
        self.stats
    }

    /// Returns whether no call waits for its first message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether another server is asked now.
    fn asks_server(&mut self, now: Instant, call: &mut StreamCall) -> bool {
        if call.servers == 0 || call.is_pushed_back() {
            (call.is_unserved, call.is_failed, call.hedge_at) = (false, false, None);
        }
        if call.not_before.is_some_and(|at| at > now) {
            return false;
        }
        if std::mem::replace(&mut call.is_unserved, false) {
            return true;
        }
        if std::mem::replace(&mut call.is_failed, false) {
            let paid = call.has_attempts() && self.spend(now, call);
            self.stats.after_failed += u64::from(paid);
            return paid;
        }
        call.hedge_at.is_some_and(|at| at <= now) && self.hedge(now, call)
    }

    /// Whether a hedge that is due is sent.
    fn hedge(&mut self, now: Instant, call: &mut StreamCall) -> bool {
        call.hedge_at = None;
        if !call.has_attempts() || mutant::on(Mutant::StreamNeverHedged) {
            return false;
        }
        if let Some(share) = call.learned_share()
            && let Some(later) = self.delay.wait_longer(now, share, call.hedge_since, &mut call.is_overdue)
        {
            call.hedge_at = Some(later);
            return false;
        }
        let slow = self.slowdown.is_slow() && !mutant::on(Mutant::StreamOutageIgnored);
        self.stats.refused.outage += u64::from(slow);
        if !slow && self.spend(now, call) {
            self.stats.hedged += 1;
            call.first_hedge.get_or_insert(call.sent);
            return true;
        }
        call.hedge_at = self.hedge_delay(call).map(|delay| now + delay.max(RECONSIDER_MIN));
        false
    }

    /// Takes an extra request from the budget; returns whether it may be sent.
    fn spend(&mut self, now: Instant, call: &StreamCall) -> bool {
        match self.budget.spend(now, 0, call.options.cost) {
            _ if mutant::on(Mutant::StreamBudgetIgnored) => return true,
            Payment::Paid => return true,
            Payment::Spent => self.stats.refused.budget += 1,
            Payment::TooDear => self.stats.refused.dear += 1,
        }
        false
    }

    /// Delay of the next hedge of a call; `None`: there is none, or it is not known yet.
    fn hedge_delay(&self, call: &StreamCall) -> Option<Duration> {
        match call.options.hedge?.after {
            HedgeAfter::Delay(delay) => Some(delay),
            HedgeAfter::Share(_) => self.delay.get(),
        }
    }

    /// Records the latencies of watched calls that wait long.
    fn record_waiting(&mut self, now: Instant) {
        while let Some((id, started_at)) = self.slowdown.next_overdue(now) {
            let waiting = self.calls.get_mut(&id).filter(|call| call.started_at == started_at);
            if waiting.is_some_and(|call| !std::mem::replace(&mut call.latency_recorded, true)) {
                self.slowdown.record(now, now.since(started_at));
            }
        }
    }

    /// Records the latency of a call that ends, unless it is recorded.
    fn record_latency(&mut self, now: Instant, call: &mut StreamCall) {
        if !std::mem::replace(&mut call.latency_recorded, true) {
            self.slowdown.record(now, now.since(call.started_at));
        }
    }
}

impl StreamCall {
    fn new(now: Instant, options: StreamOptions) -> Self {
        Self {
            options,
            started_at: now,
            deadline: options.deadline.map_or(Instant(u64::MAX), |left| now + left),
            servers: options.servers,
            sent: 0,
            open: 0,
            attempts: 0,
            is_unserved: true,
            is_failed: false,
            hedge_at: None,
            hedge_since: now,
            not_before: None,
            first_hedge: None,
            is_overdue: false,
            latency_recorded: false,
        }
    }

    /// Records a request, and when the next hedge follows.
    fn record_sent(&mut self, now: Instant, hedge_delay: Option<Duration>) {
        self.servers -= 1;
        self.sent += 1;
        self.open += 1;
        self.attempts += 1;
        self.hedge_since = now;
        self.hedge_at = hedge_delay.filter(|_| self.has_attempts()).map(|delay| now + delay);
    }

    /// Returns whether the hedging policy and the servers' number allow another attempt.
    fn has_attempts(&self) -> bool {
        self.servers > 0 && self.options.hedge.is_some_and(|hedge| self.attempts < u32::from(hedge.max_attempts))
    }

    /// Records when another server may be asked.
    fn push_back(&mut self, now: Instant, pushback: Pushback) {
        let not_before = match pushback {
            Pushback::After(time) => now + time,
            Pushback::Never => Instant(u64::MAX),
        };
        self.not_before = self.not_before.max(Some(not_before));
    }

    /// Returns whether servers wish that no other one is asked before the deadline.
    fn is_pushed_back(&self) -> bool {
        self.not_before.is_some_and(|at| at >= self.deadline)
    }

    /// Time of the next step; `None`: only an answer leads to one.
    fn next_action(&self) -> Option<Instant> {
        if self.is_unserved || self.is_failed {
            return self.not_before;
        }
        self.hedge_at.max(self.not_before.filter(|_| self.hedge_at.is_some()))
    }

    /// Share of the calls to hedge, if the delay is learned.
    fn learned_share(&self) -> Option<f64> {
        self.options.hedge?.after.share()
    }
}
