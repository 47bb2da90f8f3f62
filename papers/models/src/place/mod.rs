//! What choosing paths gains at the scale of microseconds: the real selector on two hosts in virtual time, on beds like
//! the paper's (LEO §V-A).
//!
//! ```text
//! arrivals ─▶ selector ─▶ requester's nodes and links ─▶ network, 3 to 9 µs ─▶ responder's ─▶ network ─▶ answer
//!                ▲                                                                                         │
//!                └──────────── time inside the hosts, as header and time stamps tell it ◀──────────────────┘
//! ```
//!
//! Nodes and links work on one message after the other in as many slots as they have. What the paper does not give is
//! assumed, and named: see [`beds`].

pub mod beds;
mod limit;
mod model;

use pathcall_place::{Config, KindId, PathId, Paths, Strategy};
use pathcall_sim::random::Random;

pub use limit::{Limit, sustained};
pub use pathcall_sim::place::{Between, Spell, Trouble};

use crate::histogram::Histogram;
use crate::zipf::Zipf;

/// Hosts, application, and what is asked of it.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The application on the hosts.
    pub paths: Paths,
    /// What is asked.
    pub traffic: Traffic,
    /// What lies between the hosts, and how regular they are.
    pub between: Between,
    /// What time stamps add at most to a time inside the hosts, nanoseconds.
    pub noise_ns: u64,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Traffic {
    /// Types of requests with their shares.
    pub kinds: Vec<(KindId, f64)>,
    /// Which addresses are asked for how often; all alike, without it.
    pub zipf: Option<Zipf>,
    /// How many there are, then.
    pub addresses: u64,
    /// Requests of a message: the chunks of a file.
    pub parts: usize,
}

/// Who chooses paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A selector.
    Strategy(Strategy),
    /// The exact best of the next requests, which are known.
    Foreseen {
        /// Requests looked ahead.
        depth: u8,
    },
    /// The exact best of all requests, which are known: whatever the order of requests to one address.
    Known,
}

/// When messages are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// So many a second on average, whatever becomes of them.
    Poisson(f64),
    /// So many at one time, and one more for each that is done.
    Window(usize),
}

/// What is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Who chooses.
    pub policy: Policy,
    /// The load.
    pub arrivals: Arrivals,
    /// Messages made. The first tenth is not measured.
    pub messages: usize,
    /// Where chance comes from.
    pub seed: u64,
    /// The selector's bounds, but for the number of requests, which is as large as it takes.
    pub config: Config,
    /// What befalls which station, by its place in [`Paths::resources`].
    pub spells: Vec<(usize, Spell)>,
}

/// What came out, of messages that were made after the first tenth.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// From when a message was to be made until all its requests were answered.
    pub latency: Histogram,
    /// Of a request: inside the hosts, its wait for others included.
    pub intra: Histogram,
    /// Messages answered in a second, while messages were made.
    pub throughput: f64,
    /// Requests sent on each path, of all.
    pub taken: Vec<u64>,
    /// Requests that took another path than the one of their type before them, of all.
    pub changes: u64,
    /// Requests sent, with the time and the path.
    pub sent: Vec<(u64, PathId)>,
    /// Requests given up.
    pub given_up: u64,
    /// When the first and the last measured message was made, and those answered by then.
    made: Option<(u64, u64)>,
    first: usize,
    ends: Vec<u64>,
}

/// Requests by which a share is told.
const SETTLED: usize = 30;

/// Runs messages on two hosts: the same each time.
#[must_use]
pub fn measure(setting: &Setting, run: &Run) -> Measured {
    model::Model::new(setting, run).run()
}

impl Run {
    /// So many messages by a policy.
    #[must_use]
    pub fn new(policy: Policy, arrivals: Arrivals, messages: usize, seed: u64) -> Self {
        Self { policy, arrivals, messages, seed, config: Config::default(), spells: Vec::new() }
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

impl Measured {
    /// Requests sent.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.taken.iter().sum()
    }

    /// How many of a thousand requests took another path than the one before them.
    #[must_use]
    pub fn changes_in_thousand(&self) -> f64 {
        self.changes as f64 * 1e3 / self.requests().max(1) as f64
    }

    /// How many requests were sent, from a time on, until a path got no larger a share of them than it gets in the end,
    /// give or take a half.
    #[must_use]
    pub fn settles(&self, ns: u64, path: PathId) -> usize {
        let after: Vec<bool> = self.sent.iter().filter(|(at, _)| *at >= ns).map(|(_, taken)| *taken == path).collect();
        let share = |taken: &[bool]| taken.iter().filter(|taken| **taken).count() as f64 / taken.len().max(1) as f64;
        let settled = share(&after[after.len() / 2..]) * 1.5;
        // Of a window so short, one more says nothing.
        let most = settled + 1.0 / SETTLED as f64;
        after.windows(SETTLED).position(|window| share(window) <= most).unwrap_or(after.len())
    }

    fn made(&mut self, now: u64, message: usize, of: usize) {
        self.first = of / 10;
        if message >= self.first {
            let (first, _) = self.made.unwrap_or((now, now));
            self.made = Some((first, now));
        }
    }

    fn goes(&mut self, now: u64, path: PathId, changed: bool) {
        self.taken[usize::from(path.0)] += 1;
        self.changes += u64::from(changed);
        self.sent.push((now, path));
    }

    fn answered(&mut self, now: u64, intra_ns: u64) {
        if self.made.is_some_and(|(first, _)| now >= first) {
            self.intra.record(std::time::Duration::from_nanos(intra_ns));
        }
    }

    fn done(&mut self, now: u64, message: usize, latency_ns: u64) {
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
