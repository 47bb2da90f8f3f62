//! What is played: hosts, calls with the trees that they lead to, and what goes wrong, all from one seed.

use std::time::Duration;

use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_wire::Instant;

use crate::random::{Chance, Random};

/// Depth of a call's tree at most, but for cycles.
pub const DEPTH_MAX: u32 = 12;
/// Requests that one request leads to at most.
pub const FAN_OUT_MAX: u64 = 64;
/// Requests of one call at most.
const REQUESTS_MAX: usize = 400;

/// What a handler does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It replies.
    Reply,
    /// It sends the request with this index on.
    Delegate(usize),
    /// It sends a request to where nobody is.
    Nowhere,
    /// It gets nowhere from now on, and says so.
    Stall,
}

/// How a handler ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It finishes.
    Finish,
    /// It fails with this code.
    Fail(u8),
    /// It never ends.
    Never,
}

/// One request of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPlan {
    /// The host that works on it.
    pub host: usize,
    /// What its handler does, each after a pause.
    pub steps: Vec<(Duration, Action)>,
    /// How it ends, after a pause.
    pub end: (Duration, End),
    /// Servers before it.
    pub depth: u32,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPlan {
    /// The host that calls.
    pub host: usize,
    /// When.
    pub at: Instant,
    /// How.
    pub options: CallOptions,
    /// Its requests; the first few are the caller's own.
    pub requests: Vec<RequestPlan>,
    /// How many those are.
    pub roots: usize,
    /// When the caller gives it up.
    pub aborts: Option<Duration>,
    /// Time that the caller takes for each reply.
    pub consuming: Duration,
}

/// A host's process dies, and another one takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// Which host.
    pub host: usize,
    /// When.
    pub at: Instant,
    /// When the next process runs.
    pub back: Instant,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Hosts: the rates of their clocks in millionths, and requests that each works on at one time.
    pub hosts: Vec<(i64, usize)>,
    /// Whether servers take the oldest call's request first.
    pub oldest_first: bool,
    /// A message is held for the manifest for so long.
    pub flush: Duration,
    /// Calls.
    pub calls: Vec<CallPlan>,
    /// Shortest and longest time of a message on its way.
    pub delay: (Duration, Duration),
    /// Messages lost, while there are faults.
    pub loss: Chance,
    /// Requests that are long: they take time to come, and their servers see that they do.
    pub long: Chance,
    /// Connections that break, both ways, with all that is on its way.
    pub breaks: Vec<(usize, usize, Instant)>,
    /// Processes that die.
    pub crashes: Vec<Crash>,
    /// Messages that a stranger repeats, some long after.
    pub repeats: Chance,
    /// Messages that a stranger makes up.
    pub forged: Chance,
    /// Whether senders hear of messages to where nobody is.
    pub tells: bool,
    /// Faults end here.
    pub faults_until: Instant,
    /// Whether others get in the way, of whom this plan says nothing.
    pub disturbed: bool,
}

impl Plan {
    /// Whether requests may wait for handlers of others.
    pub fn has_queues(&self) -> bool {
        self.hosts.iter().any(|host| host.1 < usize::MAX)
    }

    /// Whether nothing is lost: then each call ends as its tree says.
    pub fn is_calm(&self) -> bool {
        !self.disturbed && self.loss == Chance(0) && self.breaks.is_empty() && self.crashes.is_empty()
    }
}

impl CallPlan {
    /// Whether its tree can't be completed.
    pub fn is_doomed(&self) -> bool {
        self.requests.iter().any(|request| {
            let hopeless = |step: &(Duration, Action)| matches!(step.1, Action::Nowhere | Action::Stall);
            request.end.1 != End::Finish || request.steps.iter().any(hopeless) || request.depth > DEPTH_MAX
        })
    }

    /// Replies of its whole tree.
    pub fn replies(&self) -> usize {
        self.requests.iter().map(RequestPlan::replies).sum()
    }
}

impl RequestPlan {
    /// Replies of it.
    pub fn replies(&self) -> usize {
        self.steps.iter().filter(|step| step.1 == Action::Reply).count()
    }
}

/// The plan of a seed.
#[must_use]
pub fn generate(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let micros = Duration::from_micros;
    let hosts = random.range(2..=9) as usize;
    // Clocks that are up to 10 % apart.
    let clocks = random.happens(Chance::percent(70));
    let queues = random.happens(Chance::percent(50));
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
    let mut plan = Plan {
        seed,
        oldest_first: random.happens(Chance::percent(50)),
        flush: micros(random.pick(&[10, 100, 1000, 100_000])),
        calls,
        delay,
        loss: Chance(0),
        long: Chance(0),
        breaks: Vec::new(),
        crashes: Vec::new(),
        repeats: Chance(random.pick(&[0, 20_000, 200_000])),
        forged: Chance(random.pick(&[0, 20_000, 200_000])),
        tells: random.happens(Chance::percent(50)),
        faults_until,
        disturbed: false,
        hosts,
    };
    if random.happens(Chance::percent(60)) {
        faults(random, &mut plan);
    }
    plan.long = Chance(random.pick(&[0, 0, 2_000, 50_000]));
    plan
}

fn faults(random: &mut Random, plan: &mut Plan) {
    plan.loss = Chance(random.pick(&[0, 0, 1_000, 10_000, 50_000]));
    let (hosts, until) = (plan.hosts.len(), plan.faults_until.0);
    for _ in 0..random.pick(&[0, 0, 1, 3, 10]) {
        let (one, other) = (random.index(hosts), random.index(hosts));
        plan.breaks.push((one, other, Instant(random.below(until))));
    }
    for _ in 0..random.pick(&[0, 0, 1, 1, 2, 4]) {
        // About when a call works: before, in the middle of and after its requests.
        let call = random.index(plan.calls.len());
        let within = random.pick(&[300_000, 3_000_000, 60_000_000]);
        let at = Instant(plan.calls[call].at.0 + random.below(within));
        let away = Duration::from_micros(random.pick(&[100, 2_000, 50_000]));
        plan.crashes.push(Crash { host: random.index(hosts), at, back: at + away });
    }
}

fn call(random: &mut Random, hosts: usize, until: Instant) -> CallPlan {
    let ping_period = Duration::from_micros(random.range(2_000..=12_000));
    let once = random.happens(Chance::percent(20));
    let options = CallOptions::default()
        .ping_period(ping_period)
        .timeout(ping_period.mul_f64(random.range(25..=80) as f64 / 10.0))
        // A call that is made again until it is complete takes as long as that.
        .deadline(
            (!once && random.happens(Chance::percent(5))).then(|| Duration::from_micros(random.range(100..=50_000))),
        )
        .credit(random.pick(&[1, 2, 8, 1 << 15]))
        .traced(random.happens(Chance::percent(25)))
        .once(once);
    let mut tree = Tree { hosts, slow: options.timeout, once: options.once, requests: Vec::new() };
    let roots = random.pick(&[1, 1, 1, 2, 5]);
    let shape = Shape::draw(random);
    for _ in 0..roots {
        tree.add(random, 0);
    }
    // Breadth first: each gets its steps when its turn comes.
    let mut next = 0;
    while next < tree.requests.len() {
        tree.grow(random, next, shape);
        next += 1;
    }
    if !options.once && random.happens(Chance::percent(10)) {
        tree.spoil(random);
    }
    CallPlan {
        host: random.index(hosts),
        at: Instant(random.below(until.0 / 2)),
        options,
        requests: tree.requests,
        roots,
        aborts: random.happens(Chance::percent(15)).then(|| {
            let within = random.pick(&[200, 2_000, 20_000, 100_000]);
            Duration::from_micros(random.below(within))
        }),
        consuming: Duration::from_micros(random.pick(&[0, 0, 5, 50, 1_000])),
    }
}

/// What a tree looks like.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Requests that lead to others, among all.
    inner: Chance,
    /// Most requests that one leads to.
    fan_out: u64,
    /// Most replies of one.
    replies: u64,
    /// Requests that take long.
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
        let host = random.index(self.hosts);
        let end = (Duration::ZERO, End::Finish);
        self.requests.push(RequestPlan { host, steps: Vec::new(), end, depth });
        self.requests.len() - 1
    }

    fn grow(&mut self, random: &mut Random, index: usize, shape: Shape) {
        let depth = self.requests[index].depth;
        let room = REQUESTS_MAX.saturating_sub(self.requests.len()) as u64;
        let inner = depth < DEPTH_MAX && random.happens(shape.inner);
        let children = if inner { random.range(1..=shape.fan_out).min(room) } else { 0 };
        let replies = if inner { random.below(shape.replies + 1) } else { random.range(0..=shape.replies) };
        let mut actions: Vec<_> = (0..replies).map(|_| Action::Reply).collect();
        actions.extend((0..children).map(|_| Action::Delegate(self.add(random, depth + 1))));
        random.shuffle(&mut actions);
        let pause = |random: &mut Random| {
            let slow = random.happens(shape.slow);
            if slow { random.up_to(self.slow * 4) } else { random.up_to(Duration::from_micros(60)) }
        };
        self.requests[index].steps = actions.into_iter().map(|action| (pause(random), action)).collect();
        self.requests[index].end.0 = pause(random);
    }

    /// Has one request fail, or two.
    fn spoil(&mut self, random: &mut Random) {
        debug_assert!(!self.once, "what is done once is to be completed");
        let index = random.index(self.requests.len());
        let spoilt = &mut self.requests[index];
        let at = random.index(spoilt.steps.len() + 1);
        match random.below(5) {
            0 => spoilt.end.1 = End::Fail(random.range(1..=16) as u8),
            1 => spoilt.steps.insert(at, (Duration::ZERO, Action::Nowhere)),
            2 => {
                spoilt.steps.insert(at, (Duration::ZERO, Action::Stall));
                spoilt.end.1 = End::Never;
            }
            3 => self.deepen(random, index),
            _ => (spoilt.end.1, spoilt.steps) = (End::Fail(13), Vec::new()),
        }
    }

    /// A cycle: requests one after the other, until it is too deep.
    fn deepen(&mut self, random: &mut Random, mut index: usize) {
        while self.requests[index].depth <= DEPTH_MAX {
            let next = self.add(random, self.requests[index].depth + 1);
            self.requests[index].steps.push((Duration::ZERO, Action::Delegate(next)));
            index = next;
        }
    }
}
