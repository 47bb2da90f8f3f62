//! Model of path selection at the scale of microseconds: the real selector on two hosts in virtual time, on testbeds
//! like the paper's (LEO §V-A).
//!
//! ```text
//! arrivals ─▶ selector ─▶ requester's nodes and links ─▶ network, 3 to 9 µs ─▶ responder's ─▶ network ─▶ answer
//!                ▲                                                                                         │
//!                └──────────── time inside the hosts, from header and time stamps ◀───────────────────────┘
//! ```
//!
//! Nodes and links process as many messages at the same time as they have slots. Values that the paper does not give
//! are assumed and named: see [`testbeds`].

mod limit;
mod model;
pub mod testbeds;

use pathcall_place::{Config, KindId, PathId, Paths, SelectionStrategy};
use pathcall_sim::random::Random;

pub use limit::{LatencyLimit, sustained};
pub use pathcall_sim::place::{NetworkModel, StationFault, StationFaultKind};

use crate::histogram::Histogram;
use crate::zipf::Zipf;

/// Hosts, application and traffic.
#[derive(Debug, Clone)]
pub struct PlaceSetup {
    /// Application on the hosts.
    pub paths: Paths,
    /// Traffic of requests.
    pub traffic: Traffic,
    /// Network between the hosts, and variation of its delay.
    pub network: NetworkModel,
    /// Maximum error of a measured time inside the hosts, caused by time stamps, nanoseconds.
    pub noise_ns: u64,
}

/// Requests of a run.
#[derive(Debug, Clone)]
pub struct Traffic {
    /// Request types with their shares.
    pub kinds: Vec<(KindId, f64)>,
    /// Popularity of addresses; `None`: uniform.
    pub zipf: Option<Zipf>,
    /// Number of addresses.
    pub addresses: u64,
    /// Requests per message: the chunks of a file.
    pub parts: usize,
}

/// Method of path selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathPolicy {
    /// Strategy of the selector.
    Strategy(SelectionStrategy),
    /// Exact optimum over the next requests, which are known.
    Lookahead {
        /// Number of requests looked ahead.
        depth: u8,
    },
    /// Exact optimum over all requests, which are known. The order of requests to one address does not matter.
    Optimum,
}

/// Arrival process of messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Open loop: this many messages per second on average.
    Poisson(f64),
    /// Closed loop: this many messages at the same time.
    Window(usize),
}

/// Parameters of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceRun {
    /// Method of path selection.
    pub policy: PathPolicy,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Number of messages. The first tenth is not measured.
    pub messages: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Limits of the selector. The limit of requests is ignored: the selector takes all requests of the run.
    pub config: Config,
    /// Faults of stations, by their index in [`Paths::resources`].
    pub faults: Vec<(usize, StationFault)>,
}

/// Results of a run, for messages made after the first tenth.
#[derive(Debug, Clone, Default)]
pub struct PlaceResults {
    /// Latency of a message, from its scheduled start to the answer of its last request.
    pub latency: Histogram,
    /// Time of a request inside the hosts, waiting included.
    pub intra: Histogram,
    /// Messages answered per second, while messages are made.
    pub throughput: f64,
    /// Requests sent on each path.
    pub requests_by_path: Vec<u64>,
    /// Requests that took another path than the request of the same type before.
    pub changes: u64,
    /// Requests sent, with time and path.
    pub sent: Vec<(u64, PathId)>,
    /// Requests abandoned.
    pub abandoned: u64,
    /// Start times of the first and the last measured message, and the messages answered by then.
    made: Option<(u64, u64)>,
    first: usize,
    ends: Vec<u64>,
}

/// Requests over which a share is measured.
const SETTLED: usize = 30;

/// Runs messages on two hosts. The result is deterministic.
#[must_use]
pub fn measure(setting: &PlaceSetup, run: &PlaceRun) -> PlaceResults {
    model::PlaceModel::new(setting, run).run()
}

impl PlaceRun {
    /// Creates a run with `messages` messages and one method of path selection.
    #[must_use]
    pub fn new(policy: PathPolicy, arrivals: Arrivals, messages: usize, seed: u64) -> Self {
        Self { policy, arrivals, messages, seed, config: Config::default(), faults: Vec::new() }
    }
}

impl Traffic {
    fn kind(&self, random: &mut Random) -> KindId {
        let mut left = random.unit() * self.kinds.iter().map(|(_, share)| share).sum::<f64>();
        let drawn = self.kinds.iter().find(|(_, share)| {
            left -= share;
            left < 0.0
        });
        drawn.or(self.kinds.last()).map_or(KindId(0), |(kind, _)| *kind)
    }

    fn address(&self, random: &mut Random) -> u64 {
        match &self.zipf {
            Some(zipf) => zipf.draw(random),
            None => random.below(self.addresses),
        }
    }
}

impl PlaceResults {
    /// Requests sent.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests_by_path.iter().sum()
    }

    /// Path changes per thousand requests.
    #[must_use]
    pub fn changes_in_thousand(&self) -> f64 {
        self.changes as f64 * 1e3 / self.requests().max(1) as f64
    }

    /// Requests sent from time `ns` until the share of `path` first falls to its final value plus 50 %.
    #[must_use]
    pub fn requests_until_settled(&self, ns: u64, path: PathId) -> usize {
        let after: Vec<bool> = self.sent.iter().filter(|(at, _)| *at >= ns).map(|(_, taken)| *taken == path).collect();
        let share = |taken: &[bool]| taken.iter().filter(|taken| **taken).count() as f64 / taken.len().max(1) as f64;
        let settled = share(&after[after.len() / 2..]) * 1.5;
        // In such a short window, one request more is not significant.
        let most = settled + 1.0 / SETTLED as f64;
        after.windows(SETTLED).position(|window| share(window) <= most).unwrap_or(after.len())
    }

    fn record_made(&mut self, now: u64, message: usize, of: usize) {
        self.first = of / 10;
        if message >= self.first {
            let (first, _) = self.made.unwrap_or((now, now));
            self.made = Some((first, now));
        }
    }

    fn record_sent(&mut self, now: u64, path: PathId, changed: bool) {
        self.requests_by_path[usize::from(path.0)] += 1;
        self.changes += u64::from(changed);
        self.sent.push((now, path));
    }

    fn record_answer(&mut self, now: u64, intra_ns: u64) {
        if self.made.is_some_and(|(first, _)| now >= first) {
            self.intra.record(std::time::Duration::from_nanos(intra_ns));
        }
    }

    fn record_done(&mut self, now: u64, message: usize, latency_ns: u64) {
        if message >= self.first {
            self.latency.record(std::time::Duration::from_nanos(latency_ns));
        }
        self.ends.push(now);
    }

    fn finish(&mut self) {
        let Some((first, last)) = self.made else { return };
        let within = self.ends.iter().filter(|end| (first..last).contains(*end)).count();
        self.throughput = within as f64 * 1e9 / (last - first).max(1) as f64;
        self.ends = Vec::new();
    }
}
