//! Extra requests of calls: when the caller sends another one, and when it may not.

use std::time::Duration;

use pathcall_wire::clone::CLONE;
use pathcall_wire::{CloneHeader, Instant, Mutant, mutant};

use super::super::{CloneOptions, HedgeAfter};
use super::hedge_budget::Payment;
use super::held_hedge::was_held;
use super::slowdown::Slowdown;
use super::{Call, CloneCaller};

impl CloneCaller {
    /// Sends a call to another server in addition; false if it was not sent.
    pub(super) fn hedge(&mut self, now: Instant, seq: u32) -> bool {
        let Some(budget) = self.calls.get(&seq).map(|call| call.options.budget) else { return false };
        self.record_waiting(now, budget);
        let Some(mut call) = self.calls.remove(&seq) else { return false };
        let attempts_before = call.attempt;
        call.hedge_at = None;
        if !self.passes_held_hedge(now, &mut call) && call.may_hedge() && !self.waits_longer(now, &mut call) {
            let delay = self.hedge_delay(&call);
            // A hedge that the budget refuses is not retried at once, however short the delay is.
            call.hedge_at = delay.map(|delay| now + delay.max(self.config.retry_min));
            let may = if call.failure.is_some() { Self::spend_extra } else { Self::spend_optional };
            if may(self, now, &call) {
                call.hedge_at = delay.map(|delay| now + delay);
                call.hedge_since = now;
                call.attempt += 1;
                if call.failure.is_some() {
                    self.stats.after_failed += 1;
                    // The servers asked before have answered: this one gets the full time.
                    let pause = self.retry_pause(&call, call.unanswered);
                    call.retry_at = call.retry_at.map(|_| now + pause);
                } else {
                    self.stats.hedged += 1;
                    if call.hedge_attempt == 0 {
                        call.hedge_attempt = call.attempt;
                    }
                }
                if self.uses_element(&call) && self.element.is_responsive() {
                    self.send_by_element(now, seq, &mut call);
                } else {
                    self.send_direct(now, seq, &mut call);
                }
            }
        }
        let sent = call.attempt > attempts_before;
        self.calls.insert(seq, call);
        sent
    }

    /// Delay of the next hedge of a call; `None`: there is none, or it is not known yet.
    pub(super) fn hedge_delay(&self, call: &Call) -> Option<Duration> {
        match call.options.hedge.filter(|_| call.options.idempotent)?.after {
            HedgeAfter::Delay(delay) => Some(delay),
            HedgeAfter::Share(_) => self.hedge_delays.get(usize::from(call.options.budget))?.get(),
        }
    }

    /// Whether a hedge that is due has to wait longer: the learned delay has grown since the call was sent. Otherwise,
    /// the delay grows now.
    pub(super) fn waits_longer(&mut self, now: Instant, call: &mut Call) -> bool {
        let Some(share) = learned_share(call).filter(|_| call.failure.is_none()) else { return false };
        let Some(learned) = self.hedge_delays.get_mut(usize::from(call.options.budget)) else { return false };
        if let Some(later) = learned.wait_longer(now, share, call.hedge_since, &mut call.is_overdue) {
            call.hedge_at = Some(later);
            return true;
        }
        false
    }

    /// Learns the delay of hedges from the answer to a call.
    pub(super) fn learn_from_answer(&mut self, now: Instant, call: &Call, head: CloneHeader<&[u8; CloneHeader::LEN]>) {
        let Some(share) = learned_share(call) else { return };
        let Some(learned) = self.hedge_delays.get_mut(usize::from(call.options.budget)) else { return };
        let wins = match call.hedge_attempt {
            0 if was_held(call, head) => Some(head.clo() == CLONE),
            0 => None,
            hedged => Some(head.attempt() >= hedged || was_held(call, head) && head.clo() == CLONE),
        };
        learned.record_answer(now.since(call.started_at), share, wins, call.is_overdue);
    }

    /// Asks another server after the only one asked has failed: the element might have asked two. The failed server may
    /// wish that this happens later.
    pub(super) fn ask_another_server(&mut self, now: Instant, seq: u32, call: &mut Call, failed: u32) {
        let CloneOptions { clone, automatic, idempotent, hedge, .. } = call.options;
        let may = (clone || automatic) && idempotent && hedge.is_none() && call.requests == 1 && call.attempt < u8::MAX;
        call.record_asked(failed);
        let another = self.config.pool.servers.iter().any(|server| !call.has_asked(*server));
        if !may || !another {
            return;
        }
        if call.is_pushed_back() {
            self.stats.refused.pushback += 1;
        } else if call.not_before > now {
            (call.ask_after, call.retry_at) = (Some(failed), Some(call.not_before));
        } else if self.spend_extra(now, call) {
            call.attempt += 1;
            self.stats.after_failed += 1;
            let pause = self.retry_pause(call, call.unanswered);
            call.retry_at = call.retry_at.map(|_| now + pause);
            self.send_direct(now, seq, call);
        }
    }

    /// Takes an extra request that only shortens the latency, a clone or a hedge; returns whether it may be sent. If all
    /// servers are slow, it would add load and shorten nothing.
    pub(super) fn spend_optional(&mut self, now: Instant, call: &Call) -> bool {
        let slow = self.is_slow(call);
        self.stats.refused.outage += u64::from(slow);
        !slow && self.spend_extra(now, call)
    }

    /// Whether all servers are slow, so that a call has no clones and hedges.
    pub(super) fn is_slow(&self, call: &Call) -> bool {
        let slowdown = self.slowdowns.get(usize::from(call.options.budget));
        let ignored =
            self.config.extra_while_slow || call.policy_period.is_some() && mutant::on(Mutant::CloneAutomaticOutage);
        !ignored && slowdown.is_some_and(Slowdown::is_slow)
    }

    /// Takes an extra request from the budget of the call; returns whether it may be sent.
    pub(super) fn spend_extra(&mut self, now: Instant, call: &Call) -> bool {
        match self.budgets.spend(now, call.options.budget, call.options.cost) {
            Payment::Paid => return true,
            Payment::Spent => self.stats.refused.budget += 1,
            Payment::TooDear => self.stats.refused.dear += 1,
        }
        false
    }

    /// Records the latencies of watched calls that wait long.
    pub(super) fn record_waiting(&mut self, now: Instant, budget: u8) {
        let Some(slowdown) = self.slowdowns.get_mut(usize::from(budget)) else { return };
        while let Some((seq, started_at)) = slowdown.next_overdue(now) {
            let waiting = self.calls.get_mut(&seq).filter(|call| call.started_at == started_at);
            if waiting.is_some_and(|call| !std::mem::replace(&mut call.latency_recorded, true)) {
                slowdown.record(now, now.since(started_at));
            }
        }
    }

    /// Records the latency of a call that ends with a failure, unless it is recorded.
    pub(super) fn record_failed(&mut self, now: Instant, call: &mut Call) {
        if let Some(slowdown) = self.slowdowns.get_mut(usize::from(call.options.budget))
            && !std::mem::replace(&mut call.latency_recorded, true)
        {
            slowdown.record_failed(now, now.since(call.started_at));
        }
    }

    /// Records the latency of a call that ends, unless it is recorded.
    pub(super) fn record_latency(&mut self, now: Instant, call: &mut Call) {
        if let Some(slowdown) = self.slowdowns.get_mut(usize::from(call.options.budget))
            && !std::mem::replace(&mut call.latency_recorded, true)
        {
            slowdown.record(now, now.since(call.started_at));
        }
    }
}

/// Share of the calls to hedge, if the delay is learned.
fn learned_share(call: &Call) -> Option<f64> {
    call.options.hedge?.after.share()
}
