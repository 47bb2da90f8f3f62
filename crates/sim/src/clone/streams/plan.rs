//! Plan of the streaming calls of a clone run. It is drawn from a generator of its own, so that other plans do not change.

use std::time::Duration;

use pathcall_endpoint::clone::{Hedge, HedgeAfter, HedgeBudgetConfig};
use pathcall_wire::Instant;

use crate::clone::ClonePlan;
use crate::random::{Chance, Random};

/// One plan in this many has streaming calls.
const ONE_IN: u64 = 3;
/// One plan in this many of those without faults has a slow time.
const SLOW_ONE_IN: u64 = 8;
/// Start of the slow time's calls, after all others.
const SLOW_START: Instant = Instant(8_000_000_000);
/// Number of calls before the slow time, in it, and after it.
const SLOW_CALLS: [usize; 3] = [300, 300, 200];
/// Number of slow calls after which the caller has noticed that all servers are slow.
const NOTICED_AFTER: usize = 180;
/// Factor on the longest time to a first message, in the slow time.
const SLOW_FACTOR: u32 = 10;

/// Streaming calls of one method, made by one caller.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamPlan {
    /// Calls, in the order of their start.
    pub calls: Vec<StreamCallPlan>,
    /// Budget of the method.
    pub budget: HedgeBudgetConfig,
    /// Minimum and maximum of the delay between caller and servers.
    pub delay: (Duration, Duration),
    /// Minimum and maximum of the time from a request to the first message.
    pub first: (Duration, Duration),
    /// Time between two messages.
    pub gap: Duration,
    /// Chance that a server answers with a failure.
    pub fails: Chance,
    /// Chance that a connection breaks before the first message.
    pub breaks: Chance,
    /// Time in which all servers are slow.
    pub slow: Option<(Instant, Instant)>,
}

/// Streaming call.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamCallPlan {
    /// Start of the call.
    pub at: Instant,
    /// Hedging policy.
    pub hedge: Hedge,
    /// Units of the budget that an extra request takes.
    pub cost: u16,
    /// Time after which the caller drops the call; `None`: never.
    pub dropped: Option<Duration>,
    /// Number of messages.
    pub messages: u32,
}

/// Adds streaming calls to some plans.
pub(in crate::clone) fn with_streams(mut plan: ClonePlan) -> ClonePlan {
    let mut random = Random::new(plan.seed ^ 0x7374_7265_616d_7321);
    if random.below(ONE_IN) == 0 {
        plan.streams = Some(generate(&mut random, plan.is_calm(), plan.delay));
    }
    plan
}

fn generate(random: &mut Random, calm: bool, delay: (Duration, Duration)) -> StreamPlan {
    let count = random.range(1..=30) as usize;
    let generous = random.percent(60);
    let first = Duration::from_micros(random.pick(&[100, 1_000, 5_000]));
    let budget = match generous {
        true => HedgeBudgetConfig { share: 1.0, burst: 1e4, per_second: 10.0 },
        false => HedgeBudgetConfig {
            share: random.pick(&[0.0, 0.1, 0.5]),
            burst: random.range(1..=4) as f64,
            per_second: random.pick(&[0.0, 1.0, 10.0]),
        },
    };
    let faulty = |random: &mut Random| if calm { Chance(0) } else { random.pick(&[0, 10, 40].map(Chance::percent)) };
    let mut plan = StreamPlan {
        calls: (0..count).map(|_| call(random, first, calm)).collect(),
        budget,
        delay,
        first: (first, first * random.range(1..=20) as u32),
        gap: Duration::from_micros(random.pick(&[0, 50, 4_000])),
        fails: faulty(random),
        breaks: faulty(random),
        slow: None,
    };
    if calm && random.below(SLOW_ONE_IN) == 0 {
        plan.add_slow_time();
    }
    plan.calls.sort_by_key(|call| call.at);
    plan
}

fn call(random: &mut Random, first: Duration, calm: bool) -> StreamCallPlan {
    let after = match random.percent(70) {
        true => HedgeAfter::Delay(first * random.range(1..=8) as u32),
        false => HedgeAfter::Share(random.pick(&[20, 100, 500])),
    };
    StreamCallPlan {
        at: Instant(0) + random.up_to(Duration::from_millis(1_200)),
        hedge: Hedge { after, max_attempts: random.range(1..=4) as u8 },
        cost: random.pick(&[1, 1, 3]),
        dropped: (!calm && random.percent(20)).then(|| random.up_to(first * 20)),
        messages: random.pick(&[0, 1, 2, 7]),
    }
}

impl StreamPlan {
    /// Adds a time in which every request takes ten times as long as the slowest before, with calls before, in and after
    /// it. Only then do these calls take longer than the hedging delay.
    fn add_slow_time(&mut self) {
        self.budget = HedgeBudgetConfig { share: 1.0, burst: 1e4, per_second: 0.0 };
        self.first.0 = self.first.1;
        let slowest = self.slowest();
        let at = |nth: usize| SLOW_START + slowest * 4 * nth as u32;
        let hedge = Hedge { after: HedgeAfter::Delay(slowest * 2), max_attempts: 2 };
        let call = |nth| StreamCallPlan { at: at(nth), hedge, cost: 1, dropped: None, messages: 1 };
        self.calls.extend((0..SLOW_CALLS.iter().sum()).map(call));
        let [before, slow, _] = SLOW_CALLS;
        self.slow = Some((at(before), at(before + slow)));
    }

    /// Longest time from a call to its first message, outside the slow time.
    fn slowest(&self) -> Duration {
        self.first.1 + self.delay.1 * 2
    }

    /// Time to the first message of a request in the slow time.
    pub(super) fn slow_first(&self, now: Instant) -> Option<Duration> {
        self.is_slow(now).then(|| self.slowest() * SLOW_FACTOR)
    }

    /// Whether servers are slow.
    fn is_slow(&self, now: Instant) -> bool {
        self.slow.is_some_and(|(from, until)| (from..until).contains(&now))
    }

    /// Whether the caller knows that all servers are slow.
    pub(super) fn is_known_slow(&self, now: Instant) -> bool {
        let slow = |call: &&StreamCallPlan| self.is_slow(call.at) && call.at <= now;
        self.is_slow(now) && self.calls.iter().filter(slow).count() >= NOTICED_AFTER
    }

    /// Whether the budget suffices for all extra requests.
    pub(super) fn is_generous(&self) -> bool {
        self.budget.burst > 1e3
    }
}
