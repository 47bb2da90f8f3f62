//! Hedges that the element holds: the caller grants one with the request, and takes it back if it was not sent.
//!
//! ```text
//! request, with the delay, paid ─┬─ answer that was not cloned: the budget gets the hedge back
//!                                ├─ answer that was cloned, or no answer: the hedge counts as sent
//!                                └─ report that the element holds none: the caller's own timer sends it
//! ```

use pathcall_wire::{CloneFlags, CloneHeader, Instant, Mutant, mutant};

use super::call::bit;
use super::{Call, CloneCaller};

impl CloneCaller {
    /// Sets whether the element holds hedges. It tells the controller, which tells the servers and their callers.
    pub const fn set_element_holds(&mut self, holds: bool) {
        self.config.element_holds = holds;
    }

    /// Delay in µs after which the element may send the first hedge of a call that begins; 0: the caller sends it.
    pub(super) fn grant_hedge(&mut self, now: Instant, call: &mut Call) -> u32 {
        let asks = self.config.element_holds
            && self.element.is_responsive()
            && call.parts == 1
            && call.attempt == 0
            && self.config.pool.servers.len() > 1
            && call.may_hedge();
        let delay = self.hedge_delay(call).filter(|delay| asks && *delay < call.options.deadline);
        let delay = delay.and_then(|delay| u32::try_from(delay.as_micros()).ok());
        let Some(delay) = delay.filter(|delay| *delay > 0) else { return 0 };
        // A clone that is allowed is paid already; the element sends it either at once or later.
        let is_paid = call.reserved & bit(0) != 0;
        if !is_paid && (call.options.clone || !self.may_grant(now, call)) {
            return 0;
        }
        call.reserved |= bit(0);
        call.is_held = true;
        delay
    }

    /// Takes a hedge from the upper half of the budget: the rest is for the hedges and repeats of this caller's own
    /// timers, however many calls are in progress.
    fn may_grant(&mut self, now: Instant, call: &Call) -> bool {
        !self.is_slow(call)
            && (mutant::on(Mutant::CloneHedgeUnpaid)
                || self.budgets.spend_spare(now, call.options.budget, call.options.cost))
    }

    /// Records that the time of a hedge has come which the element holds; returns whether that is so.
    pub(super) fn passes_held_hedge(&mut self, now: Instant, call: &mut Call) -> bool {
        if !call.is_held || call.held_passed || mutant::on(Mutant::CloneHedgedToo) {
            return false;
        }
        // The caller only learns that the call takes long, and sends further hedges if the policy has some.
        if !self.waits_longer(now, call) {
            call.held_passed = true;
            call.hedge_since = now;
            let delay = self.hedge_delay(call).filter(|_| call.may_hedge());
            call.hedge_at = delay.map(|delay| now + delay.max(self.config.retry_min));
        }
        true
    }

    /// Handles a report that a server works on a call: whether the element holds no copy of the request, although the
    /// caller has asked for it.
    pub(super) fn record_not_held(&mut self, now: Instant, seq: u32, head: CloneHeader<&[u8; CloneHeader::LEN]>) {
        if head.attempt() != 0 || head.clo() != 0 {
            return;
        }
        let Some(mut call) = self.calls.remove(&seq) else { return };
        if call.is_held {
            call.is_held = false;
            self.refund(&mut call, 0);
            let due = self.hedge_delay(&call).map_or(now, |delay| call.started_at + delay);
            call.hedge_at = call.may_hedge().then(|| due.max(now));
        }
        self.calls.insert(seq, call);
    }

    /// Counts an extra request that the element has made for an answered call.
    pub(super) fn count_by_element(&mut self, call: &Call, head: CloneHeader<&[u8; CloneHeader::LEN]>) {
        match was_held(call, head) {
            true => self.stats.hedged_by_element += 1,
            false => self.stats.cloned += 1,
        }
    }
}

/// Whether the clone of an answered request was a held hedge, not one that was sent at once.
pub(super) fn was_held(call: &Call, head: CloneHeader<&[u8; CloneHeader::LEN]>) -> bool {
    call.is_held && head.clo() != 0 && head.flags() & CloneFlags::CLONE == 0
}
