//! Plan of a delegate run, drawn from a seed: hosts, calls with their request trees, and faults.

use std::time::Duration;

use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_wire::Instant;

use super::services::plan::{ATTEMPTS, ServicePlan, add_services};
use crate::random::{Chance, Random};

/// Limit on the depth of a call's tree, cycles excluded.
pub const DEPTH_MAX: u32 = 12;
/// Limit on the requests that one request sends on.
pub const FAN_OUT_MAX: u64 = 64;
/// Limit on the requests of one call.
const REQUESTS_MAX: usize = 400;
/// Limit on the shards of a host.
const SHARDS_MAX: usize = 4;
/// XOR mask of the seed for the shards.
const SHARDS_MASK: u64 = 0x7368_6172_6473_2121;

/// Step of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerAction {
    /// Send a reply.
    Reply,
    /// Send on the request with this index.
    Delegate(usize),
    /// Send a request to an address without a host.
    Nowhere,
    /// Stop making progress, and report so.
    Stall,
}

/// End of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerEnd {
    /// Finish.
    Finish,
    /// Fail with this code.
    Fail(u8),
    /// Never end.
    Never,
}

/// Destination of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestTarget {
    /// This host.
    Host(usize),
    /// A replica of a service.
    Service {
        /// Index of the service.
        service: usize,
        /// Key that prefers a replica.
        key: Option<u64>,
    },
}

/// Plan of one request of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPlan {
    /// Host that executes it, or service whose replica does.
    pub target: RequestTarget,
    /// Steps of its handler, each after a pause.
    pub steps: Vec<(Duration, HandlerAction)>,
    /// Its end, after a pause.
    pub end: (Duration, HandlerEnd),
    /// Number of servers before it.
    pub depth: u32,
}

/// Plan of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateCallPlan {
    /// Host of the caller.
    pub host: usize,
    /// Start of the call.
    pub at: Instant,
    /// Call options.
    pub options: CallOptions,
    /// Requests of the call; the first `roots` are sent by the caller.
    pub requests: Vec<RequestPlan>,
    /// Number of requests that the caller sends.
    pub roots: usize,
    /// Time from the start to an abort by the caller.
    pub aborts: Option<Duration>,
    /// Time that the caller needs for each reply.
    pub consuming: Duration,
}

/// Death of a host's process, and its restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// Index of the host.
    pub host: usize,
    /// Time of the death.
    pub at: Instant,
    /// Time of the restart.
    pub back: Instant,
}

/// Plan of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatePlan {
    /// Seed of the plan.
    pub seed: u64,
    /// Hosts: clock drift in millionths, and number of worker threads.
    pub hosts: Vec<(i64, usize)>,
    /// Shards of the hosts' nodes; one where none are given.
    pub shards: Vec<usize>,
    /// Whether servers run the oldest call's request first.
    pub oldest_first: bool,
    /// Time for which a message is held back for the manifest.
    pub flush: Duration,
    /// Calls of the run.
    pub calls: Vec<DelegateCallPlan>,
    /// Minimum and maximum of the network delay.
    pub delay: (Duration, Duration),
    /// Chance that a message is lost, until the end of the faults.
    pub loss: Chance,
    /// Chance that a request is long: its transfer takes time, and the server sees the progress.
    pub long: Chance,
    /// Connections that break at a time, in both directions, with all messages in transit.
    pub breaks: Vec<(usize, usize, Instant)>,
    /// Deaths of processes.
    pub crashes: Vec<Crash>,
    /// Chance that the attacker replays a message.
    pub repeats: Chance,
    /// Chance that the attacker forges a message.
    pub forged: Chance,
    /// Whether senders receive an error for a message to an address without a host.
    pub tells: bool,
    /// End of the faults.
    pub faults_until: Instant,
    /// Whether other parts of a combined run may disturb this one.
    pub disturbed: bool,
    /// Services, with hosts, calls and faults of their own.
    pub services: Option<ServicePlan>,
}

impl DelegatePlan {
    /// Shards of a host's process. A host that has several may have another number after a restart.
    pub fn shards(&self, host: usize, incarnation: u32) -> usize {
        match self.shards.get(host) {
            Some(&shards) if shards > 1 => 1 + (shards + incarnation as usize) % SHARDS_MAX,
            _ => 1,
        }
    }

    /// Whether requests may wait for handlers of other requests.
    pub fn has_queues(&self) -> bool {
        self.hosts.iter().any(|host| host.1 < usize::MAX)
    }

    /// Whether no message of a call is lost; then the call ends as planned in its tree.
    pub fn is_calm(&self, call: usize) -> bool {
        let calm = match self.attempt(call) {
            Some(_) => self.services.as_ref().is_some_and(ServicePlan::is_calm),
            None => self.loss == Chance(0) && self.breaks.is_empty() && self.crashes.is_empty(),
        };
        calm && !self.disturbed
    }

    /// Services, if this host is one of theirs.
    pub fn services_of(&self, host: usize) -> Option<&ServicePlan> {
        self.services.as_ref().filter(|services| host >= services.first_host)
    }

    /// All calls; each attempt of a call to services is one.
    pub fn all_calls(&self) -> impl Iterator<Item = &DelegateCallPlan> {
        let services = self.services.iter().flat_map(|services| &services.calls);
        self.calls.iter().chain(services.flat_map(|call| &call.attempts))
    }

    /// Call with this index among [all calls](Self::all_calls).
    pub fn call(&self, index: usize) -> &DelegateCallPlan {
        match self.attempt(index) {
            Some((call, attempt)) => &self.services.as_ref().expect("it has attempts").calls[call].attempts[attempt],
            None => &self.calls[index],
        }
    }

    /// Call to services and attempt of it that this index is, among [all calls](Self::all_calls).
    pub fn attempt(&self, index: usize) -> Option<(usize, usize)> {
        index.checked_sub(self.calls.len()).map(|index| (index / ATTEMPTS, index % ATTEMPTS))
    }

    /// Index of an attempt of a call to services, among [all calls](Self::all_calls).
    pub fn index_of_attempt(&self, call: usize, attempt: usize) -> usize {
        self.calls.len() + call * ATTEMPTS + attempt
    }
}

impl DelegateCallPlan {
    /// Whether its tree cannot be completed.
    pub fn cannot_complete(&self) -> bool {
        self.requests.iter().any(|request| {
            let hopeless =
                |step: &(Duration, HandlerAction)| matches!(step.1, HandlerAction::Nowhere | HandlerAction::Stall);
            request.end.1 != HandlerEnd::Finish || request.steps.iter().any(hopeless) || request.depth > DEPTH_MAX
        })
    }

    /// Number of replies of its tree.
    pub fn replies(&self) -> usize {
        self.requests.iter().map(RequestPlan::replies).sum()
    }
}

impl RequestPlan {
    /// Number of replies that it sends.
    pub fn replies(&self) -> usize {
        self.steps.iter().filter(|step| step.1 == HandlerAction::Reply).count()
    }
}

/// Generates the plan of a seed.
#[must_use]
pub fn generate(seed: u64) -> DelegatePlan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let micros = Duration::from_micros;
    let hosts = random.range(2..=9) as usize;
    // Clock rates differ by up to 10 %.
    let clocks = random.percent(70);
    let queues = random.percent(50);
    let hosts: Vec<_> = (0..hosts)
        .map(|_| {
            let rate = if clocks { random.range(0..=100_000) as i64 - 50_000 } else { 0 };
            (rate, if queues { random.range(1..=6) as usize } else { usize::MAX })
        })
        .collect();
    let calls = random.range(1..=6);
    let faults_until = Instant(random.range(30..=150) * 1_000_000);
    let calls: Vec<_> = (0..calls).map(|_| call(random, hosts.len(), faults_until)).collect();
    let shortest = micros(random.range(5..=50));
    let delay = (shortest, shortest + micros(random.pick(&[0, 20, 200, 800])));
    let mut plan = DelegatePlan {
        seed,
        oldest_first: random.percent(50),
        flush: micros(random.pick(&[10, 100, 1000, 100_000])),
        calls,
        delay,
        loss: Chance(0),
        long: Chance(0),
        breaks: Vec::new(),
        crashes: Vec::new(),
        repeats: Chance(random.pick(&[0, 20_000, 200_000])),
        forged: Chance(random.pick(&[0, 20_000, 200_000])),
        tells: random.percent(50),
        faults_until,
        disturbed: false,
        services: None,
        shards: Vec::new(),
        hosts,
    };
    if random.percent(60) {
        faults(random, &mut plan);
    }
    plan.long = Chance(random.pick(&[0, 0, 2_000, 50_000]));
    add_shards(&mut plan);
    add_services(&mut plan);
    plan
}

/// Gives hosts several shards, from a random stream of their own.
fn add_shards(plan: &mut DelegatePlan) {
    let random = &mut Random::new(plan.seed ^ SHARDS_MASK);
    if random.percent(40) {
        plan.shards = plan.hosts.iter().map(|_| random.range(1..=SHARDS_MAX as u64) as usize).collect();
    }
}

fn faults(random: &mut Random, plan: &mut DelegatePlan) {
    plan.loss = Chance(random.pick(&[0, 0, 1_000, 10_000, 50_000]));
    let (hosts, until) = (plan.hosts.len(), plan.faults_until.0);
    for _ in 0..random.pick(&[0, 0, 1, 3, 10]) {
        let (one, other) = (random.index(hosts), random.index(hosts));
        plan.breaks.push((one, other, Instant(random.below(until))));
    }
    for _ in 0..random.pick(&[0, 0, 1, 1, 2, 4]) {
        // Around the time of a call: before, during and after its requests.
        let call = random.index(plan.calls.len());
        let within = random.pick(&[300_000, 3_000_000, 60_000_000]);
        let at = Instant(plan.calls[call].at.0 + random.below(within));
        let away = Duration::from_micros(random.pick(&[100, 2_000, 50_000]));
        plan.crashes.push(Crash { host: random.index(hosts), at, back: at + away });
    }
}

fn call(random: &mut Random, hosts: usize, until: Instant) -> DelegateCallPlan {
    let ping_period = Duration::from_micros(random.range(2_000..=12_000));
    let once = random.percent(20);
    let options = CallOptions::default()
        .ping_period(ping_period)
        .timeout(ping_period.mul_f64(random.range(25..=80) as f64 / 10.0))
        // An exactly-once call is retried until it is complete, so it has no deadline.
        .deadline((!once && random.percent(5)).then(|| Duration::from_micros(random.range(100..=50_000))))
        .credit(random.pick(&[1, 2, 8, 1 << 15]))
        .traced(random.percent(25))
        .once(once);
    let mut tree = Tree { hosts, slow: options.timeout, once: options.once, requests: Vec::new() };
    let roots = random.pick(&[1, 1, 1, 2, 5]);
    let shape = Shape::draw(random);
    for _ in 0..roots {
        tree.add(random, 0);
    }
    // Breadth first: the loop also visits the requests that it adds.
    let mut next = 0;
    while next < tree.requests.len() {
        tree.grow(random, next, shape);
        next += 1;
    }
    if !options.once && random.percent(10) {
        tree.add_failures(random);
    }
    DelegateCallPlan {
        host: random.index(hosts),
        at: Instant(random.below(until.0 / 2)),
        options,
        requests: tree.requests,
        roots,
        aborts: random.percent(15).then(|| {
            let within = random.pick(&[200, 2_000, 20_000, 100_000]);
            Duration::from_micros(random.below(within))
        }),
        consuming: Duration::from_micros(random.pick(&[0, 0, 5, 50, 1_000])),
    }
}

/// Shape of a tree.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Chance that a request sends others on.
    inner: Chance,
    /// Limit on the requests that one request sends on.
    fan_out: u64,
    /// Limit on the replies of one request.
    replies: u64,
    /// Chance of a long pause.
    slow: Chance,
}

impl Shape {
    fn draw(random: &mut Random) -> Self {
        Self {
            inner: Chance::percent(random.pick(&[20, 60, 90, 100])),
            fan_out: random.pick(&[1, 1, 2, 3, 8, FAN_OUT_MAX]),
            replies: random.pick(&[0, 1, 1, 2, 20]),
            slow: Chance::percent(random.pick(&[0, 0, 2, 10])),
        }
    }
}

struct Tree {
    hosts: usize,
    slow: Duration,
    once: bool,
    requests: Vec<RequestPlan>,
}

impl Tree {
    fn add(&mut self, random: &mut Random, depth: u32) -> usize {
        let target = RequestTarget::Host(random.index(self.hosts));
        let end = (Duration::ZERO, HandlerEnd::Finish);
        self.requests.push(RequestPlan { target, steps: Vec::new(), end, depth });
        self.requests.len() - 1
    }

    fn grow(&mut self, random: &mut Random, index: usize, shape: Shape) {
        let depth = self.requests[index].depth;
        let room = REQUESTS_MAX.saturating_sub(self.requests.len()) as u64;
        let inner = depth < DEPTH_MAX && random.happens(shape.inner);
        let children = if inner { random.range(1..=shape.fan_out).min(room) } else { 0 };
        let replies = if inner { random.below(shape.replies + 1) } else { random.range(0..=shape.replies) };
        let mut actions: Vec<_> = (0..replies).map(|_| HandlerAction::Reply).collect();
        actions.extend((0..children).map(|_| HandlerAction::Delegate(self.add(random, depth + 1))));
        random.shuffle(&mut actions);
        let pause = |random: &mut Random| {
            let slow = random.happens(shape.slow);
            if slow { random.up_to(self.slow * 4) } else { random.up_to(Duration::from_micros(60)) }
        };
        self.requests[index].steps = actions.into_iter().map(|action| (pause(random), action)).collect();
        self.requests[index].end.0 = pause(random);
    }

    /// Makes one request fail, or several.
    fn add_failures(&mut self, random: &mut Random) {
        debug_assert!(!self.once, "call that is executed once must complete");
        let index = random.index(self.requests.len());
        let spoilt = &mut self.requests[index];
        let at = random.index(spoilt.steps.len() + 1);
        match random.below(5) {
            0 => spoilt.end.1 = HandlerEnd::Fail(random.range(1..=16) as u8),
            1 => spoilt.steps.insert(at, (Duration::ZERO, HandlerAction::Nowhere)),
            2 => {
                spoilt.steps.insert(at, (Duration::ZERO, HandlerAction::Stall));
                spoilt.end.1 = HandlerEnd::Never;
            }
            3 => self.add_cycle(random, index),
            _ => (spoilt.end.1, spoilt.steps) = (HandlerEnd::Fail(13), Vec::new()),
        }
    }

    /// Adds a cycle: requests in a chain until the depth limit is exceeded.
    fn add_cycle(&mut self, random: &mut Random, mut index: usize) {
        while self.requests[index].depth <= DEPTH_MAX {
            let next = self.add(random, self.requests[index].depth + 1);
            self.requests[index].steps.push((Duration::ZERO, HandlerAction::Delegate(next)));
            index = next;
        }
    }
}
