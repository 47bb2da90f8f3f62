//! Plan of a clone run, drawn from a seed.

use std::time::Duration;

use pathcall_endpoint::clone::{Balance, CloneOptions, Hedge, HedgeAfter, HedgeBudgetConfig, Pushback};
use pathcall_program::CloneSize;
use pathcall_wire::Instant;
use pathcall_wire::clone::PART;

pub use super::automatic::SlowWay;
use super::holding::HoldPlan;
use super::racks::RackAssignment;
use super::streams::StreamPlan;
use crate::random::{Chance, Random};

/// Plan of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ClonePlan {
    /// Seed of the plan.
    pub seed: u64,
    /// Servers, members of the pool or not.
    pub servers: Vec<ServerPlan>,
    /// Callers.
    pub callers: Vec<CloneCallerPlan>,
    /// Calls, in the order of their start.
    pub calls: Vec<CloneCallPlan>,
    /// Sizes of the element's tables.
    pub size: CloneSize,
    /// Last request number that the element has assigned.
    pub numbered: u64,
    /// Minimum and maximum of the network delay. Frames may overtake each other.
    pub delay: (Duration, Duration),
    /// Chance that a frame is lost, until [`ClonePlan::faults_until`].
    pub loss: Chance,
    /// Chance that a frame is duplicated, until then.
    pub repeat: Chance,
    /// Chance of a copy that arrives much later.
    pub late: Chance,
    /// Chance that the attacker sends a forged version of a frame.
    pub forged: Chance,
    /// End of the faults.
    pub faults_until: Instant,
    /// Incidents by time.
    pub incidents: Vec<(Instant, CloneIncident)>,
    /// Time in which all servers are slow.
    pub slow: Option<SlowTime>,
    /// Time in which the way through the element is slow.
    pub slow_way: Option<SlowWay>,
    /// Racks, if there are two.
    pub racks: Option<RackAssignment>,
    /// Hedges that elements hold, if they do.
    pub holding: Option<HoldPlan>,
    /// Streaming calls.
    pub streams: Option<StreamPlan>,
}

/// Time in which all servers are slow together, and a caller that makes calls before, in and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowTime {
    /// Index of the caller.
    pub caller: usize,
    /// Start.
    pub from: Instant,
    /// End.
    pub until: Instant,
    /// Service time of each execution.
    pub takes: Duration,
}

/// Plan of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPlan {
    /// Number of worker threads.
    pub workers: usize,
    /// Limit on queued requests.
    pub queue_max: usize,
    /// Minimum and maximum of the service time.
    pub service: (Duration, Duration),
    /// Whether it is in the pool from the start.
    pub member: bool,
    /// Server state that it reports in place of the true one.
    pub reported_state: Option<u16>,
    /// Chance that an execution fails on this server only.
    pub fails: Chance,
}

/// Plan of a caller.
#[derive(Debug, Clone, PartialEq)]
pub struct CloneCallerPlan {
    /// Hedge budgets, by number.
    pub budgets: [HedgeBudgetConfig; HEDGE_BUDGETS],
    /// Call number before its first call.
    pub last_call: u32,
}

/// Number of hedge budgets of a caller.
pub const HEDGE_BUDGETS: usize = 2;

/// Plan of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneCallPlan {
    /// Start of the call.
    pub at: Instant,
    /// Index of the caller.
    pub caller: usize,
    /// Call options.
    pub options: CloneOptions,
    /// Length of the request in bytes.
    pub request: usize,
    /// Length of the answer in bytes.
    pub reply: usize,
    /// Time after which the application cancels the call.
    pub given_up: Option<Duration>,
}

/// Incident at the element or at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneIncident {
    /// The element loses all state and is silent until it is configured again.
    Restart {
        /// Time of silence; `None`: for good.
        silent: Option<Duration>,
    },
    /// The element of the second rack loses all state, in the same way.
    RestartSecond {
        /// Time of silence; `None`: for good.
        silent: Option<Duration>,
    },
    /// A server process dies and leaves the pool. If it comes back, a new process joins.
    Kill {
        /// Index of the server.
        server: usize,
        /// Time until a new process starts.
        back: Option<Duration>,
    },
    /// A server joins the pool, or leaves it in order.
    Move {
        /// Index of the server.
        server: usize,
    },
}

/// End of the faults of plans that have some.
const FAULTS: Duration = Duration::from_millis(1_500);

/// Generates the plan of a seed.
#[must_use]
pub fn generate(seed: u64) -> ClonePlan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let calm = random.percent(25);
    let servers = servers(random, calm);
    let count = random.range(1..=40) as usize;
    let generous = calm || random.percent(70);
    let budget = |random: &mut Random| match generous {
        true => HedgeBudgetConfig { share: 1.0, burst: 10.0 * count as f64, per_second: 10.0 },
        false => HedgeBudgetConfig {
            share: random.pick(&[0.0, 0.1, 0.5]),
            burst: random.range(1..=4) as f64,
            per_second: random.pick(&[0.0, 1.0, 10.0]),
        },
    };
    let callers: Vec<CloneCallerPlan> = (0..random.range(1..=3))
        .map(|_| CloneCallerPlan {
            budgets: [budget(random), budget(random)],
            last_call: random.pick(&[0, u32::MAX - 5]),
        })
        .collect();
    let alike = random.percent(60).then(|| any_options(random));
    let small = random.percent(50);
    let mut calls: Vec<CloneCallPlan> = (0..count).map(|_| call(random, callers.len(), alike, small)).collect();
    if calm {
        for call in &mut calls {
            (call.options.deadline, call.given_up) = (Duration::from_secs(4), None);
        }
    }
    calls.extend((0..callers.len()).flat_map(last_calls));
    calls.sort_by_key(|call| call.at);
    let chance = |random: &mut Random, most: u64| match calm {
        true => Chance(0),
        false => Chance(random.range(0..=most) as u32),
    };
    let (loss, repeat) = (chance(random, 150_000), chance(random, 100_000));
    let (late, forged) = (chance(random, 20_000), chance(random, 100_000));
    let shortest = Duration::from_micros(random.pick(&[5, 50, 500]));
    let size = CloneSize {
        pools: 1,
        requests: random.pick(&[1, 8, 4096]),
        filters: random.pick(&[1, 2]),
        slots: if calm { 1 << 16 } else { random.pick(&[1, 2, 64, 1 << 12]) },
    };
    ClonePlan {
        seed,
        incidents: if calm { Vec::new() } else { incidents(random, &servers) },
        servers,
        callers,
        calls,
        size,
        numbered: random.pick(&[0, (1 << 63) - 4, 77]),
        delay: (shortest, shortest * random.range(1..=6) as u32),
        loss,
        repeat,
        late,
        forged,
        faults_until: Instant(0) + if calm { Duration::ZERO } else { FAULTS },
        slow: None,
        slow_way: None,
        racks: None,
        holding: None,
        streams: None,
    }
}

impl ClonePlan {
    /// Whether a caller makes calls after the faults, through which it detects the element again.
    pub(super) fn ends_calmly(&self, caller: usize) -> bool {
        self.calls.iter().filter(|call| call.caller == caller && call.at >= LAST).count() > 2
    }

    /// Whether no fault is injected.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.faults_until == Instant(0)
    }
}

/// Pushback in the failed answers to a call.
pub(super) fn pushback(call: usize) -> Option<Pushback> {
    match call % 8 {
        3 => Some(Pushback::After(Duration::from_millis(2))),
        5 => Some(Pushback::Never),
        _ => None,
    }
}

fn servers(random: &mut Random, calm: bool) -> Vec<ServerPlan> {
    let count = random.range(1..=8) as usize;
    let mut servers: Vec<ServerPlan> = (0..count)
        .map(|_| {
            let (shortest, times) = random.pick(&[(10, 20), (100, 1), (100, 20), (3_000, 3)]);
            let shortest = Duration::from_micros(shortest);
            ServerPlan {
                workers: random.range(1..=4) as usize,
                queue_max: if calm { 1_000 } else { random.pick(&[1, 3, 100]) },
                service: (shortest, shortest * times),
                member: random.percent(80),
                reported_state: random.percent(8).then(|| random.pick(&[0, 1, u16::MAX])),
                fails: random.pick(&[Chance(0), Chance::percent(20), Chance::percent(100)]),
            }
        })
        .collect();
    servers[0].member = true;
    servers
}

/// Start of the last calls.
const LAST: Instant = Instant((FAULTS.as_millis() as u64 + 400) * 1_000_000);

/// Calls through the element after the end of the faults.
fn last_calls(caller: usize) -> impl Iterator<Item = CloneCallPlan> {
    let options = CloneOptions { through_element: true, deadline: Duration::from_secs(4), ..CloneOptions::default() };
    // The callers take turns, so that a queue of length one has room for each call.
    let first = LAST + Duration::from_millis(40) * caller as u32;
    let at = move |nth: u32| first + Duration::from_millis(150) * nth;
    (0..4).map(move |nth| CloneCallPlan { at: at(nth), caller, options, request: 0, reply: 0, given_up: None })
}

fn call(random: &mut Random, callers: usize, alike: Option<CloneOptions>, small: bool) -> CloneCallPlan {
    let mut options = alike.unwrap_or_else(|| any_options(random));
    options.idempotent = random.percent(85);
    options.cancel = random.percent(30);
    options.budget = random.below(HEDGE_BUDGETS as u64) as u8;
    options.patience = random.pick(&[None, Some(Duration::ZERO), Some(Duration::from_micros(500))]);
    options.deadline = Duration::from_millis(random.pick(&[5, 100, 1_000, 4_000, 4_000]));
    let len = |random: &mut Random| match random.below(10) {
        0..=5 => random.below(200) as usize,
        _ if small => random.below(PART as u64) as usize,
        6..=7 => PART + random.range(0..=1) as usize,
        8 => random.below(5 * PART as u64) as usize,
        _ => random.below(64 * PART as u64) as usize,
    };
    let latest = Duration::from_millis(random.pick(&[2, 200, 1_800]));
    let mut call = CloneCallPlan {
        at: Instant(0) + random.up_to(latest),
        caller: random.index(callers),
        options,
        request: len(random),
        reply: len(random),
        given_up: random.percent(4).then(|| random.up_to(Duration::from_millis(5))),
    };
    // No draw of its own: other draws would change.
    call.options.cost = if call.request % 4 == 3 { 3 } else { 1 };
    call
}

fn any_options(random: &mut Random) -> CloneOptions {
    let after = match random.range(0..=50) {
        even if even % 2 == 0 => HedgeAfter::Delay(Duration::from_micros(even * 100)),
        odd => HedgeAfter::Share(odd as u16 * 10),
    };
    let hedge = Hedge { after, max_attempts: random.range(1..=4) as u8 };
    CloneOptions {
        clone: random.percent(60),
        send_to_two: random.percent(15),
        balance: random.pick(&[Balance::Random, Balance::Shortest, Balance::RoundRobin]),
        through_element: random.percent(30),
        hedge: random.percent(20).then_some(hedge),
        ..CloneOptions::default()
    }
}

fn incidents(random: &mut Random, servers: &[ServerPlan]) -> Vec<(Instant, CloneIncident)> {
    let mut incidents = Vec::new();
    let time = |random: &mut Random| Instant(0) + random.up_to(FAULTS * 2 / 3);
    let pause = |random: &mut Random| random.up_to(FAULTS / 4);
    if random.percent(30) {
        let silent = (!random.percent(25)).then(|| pause(random));
        incidents.push((time(random), CloneIncident::Restart { silent }));
    }
    for (server, plan) in servers.iter().enumerate() {
        if random.percent(15) {
            // The first server always comes back, so that the pool never stays empty.
            let back = (server == 0 || random.percent(60)).then(|| pause(random));
            incidents.push((time(random), CloneIncident::Kill { server, back }));
        } else if server > 0 && (random.percent(20) || !plan.member) {
            incidents.push((time(random), CloneIncident::Move { server }));
        }
    }
    incidents.sort_by_key(|(at, _)| *at);
    incidents
}
