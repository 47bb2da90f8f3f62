//! Slow time of all servers: the plan of its calls, and the check that none of them is cloned.

use std::time::Duration;

use pathcall_endpoint::clone::{CloneOptions, HedgeBudgetConfig};
use pathcall_wire::{CloneFlags, CloneFrame, Instant};

use super::plan::{CloneCallPlan, CloneCallerPlan, ClonePlan, HEDGE_BUDGETS, SlowTime};
use super::violation::CloneViolation;

/// One plan without faults in this many has a slow time.
const ONE_IN: u64 = 8;
/// Start of its calls, after all others.
const START: Instant = Instant(8_000_000_000);
/// Number of calls before the slow time, in it, and after it.
const CALLS: [u32; 3] = [300, 300, 200];
/// Number of calls after which the caller has noticed that all servers are slow, or fast again.
const NOTICED_AFTER: usize = 180;

/// Adds a slow time to some plans without faults. Each execution then takes ten times as long as the slowest before.
pub(super) fn with_slow_time(mut plan: ClonePlan) -> ClonePlan {
    if !plan.is_calm() || !plan.seed.is_multiple_of(ONE_IN) {
        return plan;
    }
    // Clones to much faster servers would hide the usual latency of a server.
    let service = plan.servers[0].service;
    plan.servers.iter_mut().for_each(|server| server.service = service);
    let slowest = service.1 + plan.delay.1 * 4;
    let (caller, interval) = (plan.callers.len(), slowest * 20);
    let budget = HedgeBudgetConfig { share: 1.0, burst: 1e4, per_second: 0.0 };
    plan.callers.push(CloneCallerPlan { budgets: [budget; HEDGE_BUDGETS], last_call: 0 });
    let at = |nth| START + interval * nth;
    let options = CloneOptions { deadline: Duration::from_secs(4), ..CloneOptions::default() };
    let call = |nth| CloneCallPlan { at: at(nth), caller, options, request: 0, reply: 0, given_up: None };
    plan.calls.extend((0..CALLS.iter().sum()).map(call));
    let [before, slow, _] = CALLS;
    plan.slow = Some(SlowTime { caller, from: at(before), until: at(before + slow), takes: slowest * 10 });
    plan
}

impl ClonePlan {
    /// Service time of an execution that begins in the slow time.
    pub(super) fn slow_service(&self, now: Instant) -> Option<Duration> {
        self.slow.filter(|slow| (slow.from..slow.until).contains(&now)).map(|slow| slow.takes)
    }

    /// Checks that a request may not be cloned while all servers are slow, and may be cloned again afterwards.
    pub(super) fn check_slow_time(&self, call: usize, frame: &CloneFrame<&[u8]>) -> Result<(), CloneViolation> {
        let Some(slow) = self.slow.filter(|slow| slow.caller == self.calls[call].caller) else { return Ok(()) };
        let at = self.calls[call].at;
        let made = |from, until| self.slow_calls(from, until);
        let cloned = frame.head().flags() & CloneFlags::CLONE != 0;
        if made(Instant(0), slow.from) < NOTICED_AFTER || frame.head().attempt() > 0 {
            return Ok(());
        }
        let known_slow = self.is_known_slow(at);
        let known_fast = made(slow.until, at) >= NOTICED_AFTER;
        match cloned {
            true if known_slow => Err(CloneViolation::ClonedSlow(call)),
            false if known_fast && !self.calls[call].options.automatic => Err(CloneViolation::NotCloned(call)),
            _ => Ok(()),
        }
    }

    /// Checks that a caller that knows that all servers are slow sends no hedges.
    pub(super) fn check_slow_hedges(
        &self,
        now: Instant,
        caller: usize,
        hedged: u64,
        before: &mut Option<u64>,
    ) -> Result<(), CloneViolation> {
        let concerns = self.slow.is_some_and(|slow| slow.caller == caller) && self.is_known_slow(now);
        match concerns && hedged > *before.get_or_insert(hedged) {
            true => Err(CloneViolation::HedgedSlow(caller)),
            false => Ok(()),
        }
    }

    /// Whether the caller of the slow time knows that all servers are slow.
    fn is_known_slow(&self, at: Instant) -> bool {
        self.slow.is_some_and(|slow| {
            (slow.from..slow.until).contains(&at) && self.slow_calls(slow.from, at) >= NOTICED_AFTER
        })
    }

    /// Number of calls of the caller of the slow time in a time.
    fn slow_calls(&self, from: Instant, until: Instant) -> usize {
        let caller = self.slow.map(|slow| slow.caller);
        let within = |other: &&CloneCallPlan| Some(other.caller) == caller && (from..until).contains(&other.at);
        self.calls.iter().filter(within).count()
    }
}
