//! Calls whose policy their caller chooses: the plan of a time in which the way through the element is slow, and the check
//! that the caller finds the way past it.

use std::time::Duration;

use pathcall_endpoint::clone::{Balance, CloneOptions, HedgeBudgetConfig};
use pathcall_wire::{CloneFlags, CloneFrame, Instant};

use super::plan::{CloneCallPlan, CloneCallerPlan, ClonePlan, HEDGE_BUDGETS};
use super::violation::CloneViolation;

/// Of this many plans, one has some automatic calls, and one without faults a time with a slow way.
const ONE_IN: u64 = 8;
/// Start of that time, after all other calls.
const START: Instant = Instant(8_000_000_000);
/// Service time in it.
const SERVICE: Duration = Duration::from_micros(10);
/// Number of calls in it, and of the last ones, by which the caller has made its choice.
const CALLS: (usize, usize) = (2_000, 500);
/// Part of these that have to go past the element.
const DIRECT_MIN: f64 = 0.6;

/// Time in which a caller chooses between policies that go through the element and one that does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowWay {
    /// Index of the caller.
    pub caller: usize,
    /// Delay of each frame to the element, in addition to that of the network.
    pub delay: Duration,
}

/// Makes the calls of some plans automatic, and adds a time with a slow way through the element to others.
pub(super) fn with_automatic_calls(mut plan: ClonePlan) -> ClonePlan {
    match plan.seed % ONE_IN {
        5 => plan.calls.iter_mut().filter(|call| call.caller == 0).for_each(|call| make_automatic(&mut call.options)),
        // The slow time of all servers.
        0 if plan.seed.is_multiple_of(2 * ONE_IN) => {
            let caller = plan.slow.map(|slow| slow.caller);
            let slow = plan.calls.iter_mut().filter(|call| Some(call.caller) == caller);
            slow.for_each(|call| make_automatic(&mut call.options));
        }
        4 if plan.is_calm() => add_slow_way(&mut plan),
        _ => {}
    }
    plan
}

/// A policy replaces these options.
fn make_automatic(options: &mut CloneOptions) {
    *options = CloneOptions {
        automatic: true,
        clone: false,
        send_to_two: false,
        balance: Balance::Random,
        hedge: None,
        cancel: true,
        ..*options
    };
}

fn add_slow_way(plan: &mut ClonePlan) {
    let (caller, delay) = (plan.callers.len(), plan.delay.1 / 4);
    let budget = HedgeBudgetConfig { share: 1.0, burst: 1e4, per_second: 0.0 };
    plan.callers.push(CloneCallerPlan { budgets: [budget; HEDGE_BUDGETS], last_call: 0 });
    // More calls are in progress than a period counts, and servers are idle.
    let interval = (8 * SERVICE).max(plan.delay.1 / 12);
    let mut options = CloneOptions { deadline: Duration::from_secs(4), ..CloneOptions::default() };
    make_automatic(&mut options);
    let at = |nth: usize| START + interval * nth as u32;
    let call = |nth| CloneCallPlan { at: at(nth), caller, options, request: 0, reply: 0, given_up: None };
    plan.calls.extend((0..CALLS.0).map(call));
    plan.slow_way = Some(SlowWay { caller, delay });
}

impl ClonePlan {
    /// Whether the way through the element is slow. Then no execution fails, and servers report their true state.
    pub(super) fn is_way_slow(&self, now: Instant) -> bool {
        self.slow_way.is_some() && now >= START
    }

    /// Delay of a frame to the element, in addition to that of the network.
    pub(super) fn element_delay(&self, now: Instant) -> Duration {
        self.slow_way.filter(|_| now >= START).map_or(Duration::ZERO, |way| way.delay)
    }

    /// Service time of an execution while the way is slow.
    pub(super) fn slow_way_service(&self, now: Instant) -> Option<Duration> {
        self.is_way_slow(now).then_some(SERVICE)
    }
}

/// Calls that have to go past the element.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DirectCalls {
    all: usize,
    direct: usize,
}

impl DirectCalls {
    /// Records the first request of a call.
    pub(super) fn record(&mut self, plan: &ClonePlan, call: usize, frame: &CloneFrame<&[u8]>) {
        let Some(way) = plan.slow_way.filter(|way| way.caller == plan.calls[call].caller) else { return };
        let first = frame.head().attempt() == 0 && frame.head().part() == 0;
        let last = plan.calls[call..].iter().filter(|later| later.caller == way.caller).count() <= CALLS.1;
        if first && last {
            self.all += 1;
            self.direct += usize::from(frame.head().flags() & CloneFlags::DIRECT != 0);
        }
    }

    /// Checks that the caller has left the slow way.
    pub(super) fn check(self) -> Result<(), CloneViolation> {
        match (self.direct as f64) < DIRECT_MIN * self.all as f64 {
            true => Err(CloneViolation::SlowWay { direct: self.direct, all: self.all }),
            false => Ok(()),
        }
    }
}
