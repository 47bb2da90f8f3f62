//! Services of a delegate run: replicas, calls that may be made again, and faults, drawn from a random stream of their
//! own. Their hosts come after those of the other calls.

use std::time::Duration;

use pathcall_endpoint::clone::Pushback;
use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::attempts::ATTEMPTS_MAX;
use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_wire::Instant;

use super::super::plan::{
    Crash, DelegateCallPlan, DelegatePlan, HandlerAction, HandlerEnd, RequestPlan, RequestTarget,
};
use crate::random::{Chance, Random};

/// XOR mask of the seed for the services.
const SEED_MASK: u64 = 0x7365_7276_6963_6573;
/// Chance that a run has services.
const HAS_SERVICES: Chance = Chance::percent(40);
/// Limit on the servers between a caller and the last server.
const DEPTH_MAX: u32 = 2;
/// Most attempts of a call.
pub(in super::super) const ATTEMPTS: usize = ATTEMPTS_MAX as usize;

/// Services of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePlan {
    /// First host of the services and of their callers.
    pub first_host: usize,
    /// Hosts of each service.
    pub replicas: Vec<Vec<usize>>,
    /// Calls to the services.
    pub calls: Vec<ServiceCallPlan>,
    /// Further attempts at once that the budget of a caller allows.
    pub burst: u32,
    /// Chance that a message is lost, until the end of the faults.
    pub loss: Chance,
    /// Connections that break at a time, in both directions, with all messages in transit.
    pub breaks: Vec<(usize, usize, Instant)>,
    /// Deaths of processes.
    pub crashes: Vec<Crash>,
    /// Times in which handlers of a host are slow.
    pub slow: Vec<SlowReplica>,
    /// Hosts that report any load.
    pub liars: Vec<usize>,
    /// End of the faults.
    pub faults_until: Instant,
}

/// Call to services, with its attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCallPlan {
    /// Whether it may be executed several times.
    pub idempotent: bool,
    /// Whether it has exactly one reply.
    pub unary: bool,
    /// Its attempts: the same requests, but their handlers may fail in another way.
    pub attempts: [DelegateCallPlan; ATTEMPTS],
    /// Pause that the failing handler of an attempt asks for.
    pub pushbacks: [Option<Pushback>; ATTEMPTS],
}

/// Time in which the handlers of a host are slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowReplica {
    /// Index of the host.
    pub host: usize,
    /// First instant.
    pub from: Instant,
    /// First instant after it.
    pub until: Instant,
    /// Factor by which the pauses of the handlers are longer.
    pub times: u32,
}

impl ServicePlan {
    /// Whether no message is lost and no process dies.
    pub fn is_calm(&self) -> bool {
        self.loss == Chance(0) && self.breaks.is_empty() && self.crashes.is_empty()
    }

    /// Factor by which the handlers of a host are slower now.
    pub fn slowness(&self, now: Instant, host: usize) -> u32 {
        let its = self.slow.iter().filter(|slow| slow.host == host && (slow.from..slow.until).contains(&now));
        its.map(|slow| slow.times).max().unwrap_or(1)
    }

    /// Largest such factor.
    pub fn slowness_max(&self) -> u32 {
        self.slow.iter().map(|slow| slow.times).max().unwrap_or(1)
    }
}

impl ServiceCallPlan {
    /// Host of the caller.
    pub fn host(&self) -> usize {
        self.attempts[0].host
    }

    /// Whether each attempt completes if all servers work.
    pub fn can_complete(&self) -> bool {
        self.attempts.iter().all(|attempt| !attempt.cannot_complete())
    }
}

/// Adds services to the plan of a seed, perhaps.
pub(in super::super) fn add_services(plan: &mut DelegatePlan) {
    let random = &mut Random::new(plan.seed ^ SEED_MASK);
    if !random.happens(HAS_SERVICES) {
        return;
    }
    let (first_host, callers) = (plan.hosts.len(), random.range(1..=2) as usize);
    let mut last = first_host + callers;
    let replicas: Vec<Vec<usize>> = (0..random.range(1..=2))
        .map(|_| {
            let first = last;
            last += random.range(2..=4) as usize;
            (first..last).collect()
        })
        .collect();
    let (clocks, queues) = (random.percent(50), random.percent(50));
    for _ in first_host..last {
        let rate = if clocks { random.range(0..=100_000) as i64 - 50_000 } else { 0 };
        plan.hosts.push((rate, if queues { random.range(1..=3) as usize } else { usize::MAX }));
    }
    // Within the time of one failure, or over several.
    let span = Duration::from_millis(random.pick(&[5, 60, 400, 5_000]));
    let calls = random.pick(&[4, 15, 40]);
    let slow = Chance::percent(random.pick(&[0, 10, 100]));
    let draw = CallDraw { callers: first_host..first_host + callers, services: replicas.len(), span, slow };
    let mut services = ServicePlan {
        first_host,
        calls: (0..calls).map(|_| draw.call(random)).collect(),
        burst: random.pick(&[0, 1, 4, 1_000]),
        loss: Chance(0),
        breaks: Vec::new(),
        crashes: Vec::new(),
        slow: Vec::new(),
        liars: Vec::new(),
        faults_until: Instant(0) + span,
        replicas,
    };
    add_faults(random, last, &mut services);
    plan.services = Some(services);
}

fn add_faults(random: &mut Random, hosts: usize, services: &mut ServicePlan) {
    let (first_host, until) = (services.first_host, services.faults_until.0);
    let replicas: Vec<usize> = services.replicas.iter().flatten().copied().collect();
    let any = |random: &mut Random| first_host + random.index(hosts - first_host);
    if random.percent(25) {
        services.loss = Chance(random.pick(&[2_000, 30_000]));
    }
    for _ in 0..random.pick(&[0, 0, 0, 2, 6]) {
        services.breaks.push((any(random), any(random), Instant(random.below(until))));
    }
    for _ in 0..random.pick(&[0, 1, 1, 2, 4]) {
        let host = if random.percent(8) { any(random) } else { random.pick(&replicas) };
        let call = random.index(services.calls.len());
        let at = services.calls[call].attempts[0].at + random.up_to(Duration::from_millis(3));
        let away = Duration::from_micros(random.pick(&[100, 5_000, 300_000, 2_500_000]));
        services.crashes.push(Crash { host, at, back: at + away });
    }
    for _ in 0..random.pick(&[0, 0, 1, 2]) {
        let from = Instant(random.below(until));
        let until = from + random.up_to(Duration::from_millis(100));
        services.slow.push(SlowReplica { host: random.pick(&replicas), from, until, times: random.pick(&[5, 40]) });
    }
    if random.percent(25) {
        services.liars.push(random.pick(&replicas));
    }
}

/// Parameters of the calls of a run.
struct CallDraw {
    callers: std::ops::Range<usize>,
    services: usize,
    span: Duration,
    /// Chance of a long pause of a handler.
    slow: Chance,
}

impl CallDraw {
    fn call(&self, random: &mut Random) -> ServiceCallPlan {
        let (idempotent, unary) = (random.percent(75), random.percent(60));
        let ping_period = Duration::from_micros(random.range(2_000..=6_000));
        let options = CallOptions::default()
            .ping_period(ping_period)
            .timeout(ping_period.mul_f64(random.range(25..=50) as f64 / 10.0))
            .deadline(random.percent(15).then(|| Duration::from_micros(random.range(1_000..=100_000))))
            .credit(random.pick(&[1, 8, 1 << 15]))
            .traced(random.percent(10));
        let mut requests = Vec::new();
        let roots = if unary { 1 } else { random.pick(&[1, 1, 3]) };
        (0..roots).for_each(|_| self.add(random, &mut requests, 0));
        let mut next = 0;
        while next < requests.len() {
            self.grow(random, &mut requests, next, unary);
            next += 1;
        }
        let call = DelegateCallPlan {
            host: self.callers.start + random.index(self.callers.len()),
            at: Instant(0) + random.up_to(self.span),
            options,
            requests,
            roots,
            aborts: None,
            consuming: Duration::ZERO,
        };
        let mut attempts: [DelegateCallPlan; ATTEMPTS] = std::array::from_fn(|_| call.clone());
        let mut pushbacks = [None; ATTEMPTS];
        if random.percent(12) {
            for (attempt, pushback) in attempts.iter_mut().zip(&mut pushbacks) {
                if random.percent(70) {
                    *pushback = fail(random, attempt);
                }
            }
        }
        ServiceCallPlan { idempotent, unary, attempts, pushbacks }
    }

    fn add(&self, random: &mut Random, requests: &mut Vec<RequestPlan>, depth: u32) {
        let key = random.percent(20).then(|| random.below(20));
        let target = RequestTarget::Service { service: random.index(self.services), key };
        requests.push(RequestPlan { target, steps: Vec::new(), end: (Duration::ZERO, HandlerEnd::Finish), depth });
    }

    /// Adds the replies and the further requests of a request. Only the last one of a unary call replies.
    fn grow(&self, random: &mut Random, requests: &mut Vec<RequestPlan>, index: usize, unary: bool) {
        let depth = requests[index].depth;
        let (most, replies) = if unary { (1, 0) } else { (2, random.below(4)) };
        let children = if depth < DEPTH_MAX { random.below(most + 1) } else { 0 };
        let replies = if unary && children == 0 { 1 } else { replies };
        let mut actions: Vec<_> = (0..replies).map(|_| HandlerAction::Reply).collect();
        for _ in 0..children {
            actions.push(HandlerAction::Delegate(requests.len()));
            self.add(random, requests, depth + 1);
        }
        random.shuffle(&mut actions);
        let pause = |random: &mut Random| {
            let longest = if random.happens(self.slow) { 5_000 } else { 60 };
            random.up_to(Duration::from_micros(longest))
        };
        requests[index].steps = actions.into_iter().map(|action| (pause(random), action)).collect();
        requests[index].end.0 = pause(random);
    }
}

/// Makes one request of an attempt fail; returns the pause that its server asks for.
fn fail(random: &mut Random, attempt: &mut DelegateCallPlan) -> Option<Pushback> {
    let code = random.pick(&[Status::UNAVAILABLE, Status::UNAVAILABLE, Status::UNAVAILABLE, Status::INTERNAL]);
    let failing = random.index(attempt.requests.len());
    attempt.requests[failing].end.1 = HandlerEnd::Fail(code);
    if random.percent(50) {
        attempt.requests[failing].steps.clear();
    }
    let after = Duration::from_millis(random.range(0..=120));
    random.pick(&[None, Some(Pushback::After(after)), Some(Pushback::Never)])
}
