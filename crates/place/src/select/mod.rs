//! Which path each request takes (LEO §III-B2), and in which order requests that depend on each other may go.
//!
//! ```text
//! request ── select ──┬─ Go: send it on this path now
//!                     ├─ Wait: it comes out of `poll` when those before it are done
//!                     └─ Full: too many are in flight; ask again after `done`
//! outcome ── done ────── then drain `poll`: what was released, what is sent again, what is given up
//! ```
//!
//! The caller passes time in, sends what it is told to send, and reports each outcome once. Nothing here allocates after
//! [`Selector::new`].

use pathcall_wire::Instant;

use crate::path::{KindId, PathId, Paths};

/// How paths are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Least `k̂ · toll + T`; `k̂` from measured times inside the hosts (LEO §III-B2).
    Leo,
    /// Least `n · toll + T`, where `n` are the path's messages in flight.
    ShortestQueue,
    /// Least time measured last, end to end.
    GreedyE2e,
    /// Least time measured last, inside the hosts.
    GreedyIntra,
    /// One after the other.
    RoundRobin,
    /// Over the processor wherever a type of request can.
    AllCpu,
    /// Over the accelerator wherever a type of request can.
    AllAcc,
    /// All over the accelerator, until times measured end to end exceed those at the start; then over the processor,
    /// and back (as LEO §V-A emulates iPipe).
    Migration,
    /// The exact best of the next requests, as the last ones foretell them (§III-B1).
    Horizon {
        /// Requests looked ahead, at least 1.
        depth: u8,
    },
}

/// Bounds of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Requests that may be in flight or wait at the same time; more are [`Decision::Full`].
    pub in_flight_max: u32,
    /// Times that a request is sent before it is given up.
    pub attempts_max: u8,
    /// A path whose messages take this many times what the model says is left.
    pub stall_factor: u32,
    /// Slow messages in a row after which a path is left.
    pub slow_max: u8,
    /// First interval between probes of a path that was left, in nanoseconds; it doubles with each that is slow.
    pub probe_ns: u64,
    /// Longest interval between probes, in nanoseconds.
    pub probe_ns_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            in_flight_max: 4096,
            attempts_max: 4,
            stall_factor: 8,
            slow_max: 4,
            probe_ns: 1_000_000,
            probe_ns_max: 1_000_000_000,
        }
    }
}

/// A request that wants a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Its type.
    pub kind: KindId,
    /// What it is about: requests of a type with [`Dependency::Addr`](crate::Dependency) keep their order per address.
    pub address: u64,
    /// The message that it is part of: those with [`Dependency::Msg`](crate::Dependency) keep their order per message.
    pub message: u64,
}

/// Names a request from [`Selector::select`] until it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Send this request on this path now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Go {
    /// The path.
    pub path: PathId,
    /// The request.
    pub ticket: Ticket,
    /// Why this path.
    pub why: Why,
}

/// Why a path was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// The strategy has it for the best.
    Best,
    /// The type of request has no other.
    Only,
    /// The path was left; this request finds out whether it is well again.
    Probe,
    /// A request before it, of the same address or message, is on this path, which keeps their order.
    Follows,
    /// All paths were left; this one is due first.
    LeastBad,
}

/// What becomes of a request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It goes.
    Go(Go),
    /// It waits for requests before it; [`Selector::poll`] will hand it out.
    Wait {
        /// The request.
        ticket: Ticket,
    },
    /// [`Config::in_flight_max`] requests are in flight or wait: this one was not taken in.
    Full,
}

/// How sending a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is answered.
    Done {
        /// Time inside the hosts, `(t2−t1) + (t4−t3) + (t6−t5)`, in nanoseconds; none where it was not measured.
        intra_ns: Option<u64>,
        /// Time from end to end, in nanoseconds.
        total_ns: u64,
    },
    /// The path failed, the request had no effect: it is to be sent again.
    Failed,
    /// The caller no longer wants it: it is not sent again.
    Abandoned,
}

/// What [`Selector::poll`] hands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Send it now.
    Go(Go),
    /// It failed [`Config::attempts_max`] times; its ticket is no longer valid.
    GivenUp {
        /// The request.
        ticket: Ticket,
    },
}

/// What a selector knows of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathState {
    /// `k̂`: messages estimated to be queued on it.
    pub k: u32,
    /// Messages in flight.
    pub in_flight: u32,
    /// Messages sent, probes too.
    pub sent: u64,
    /// Messages answered.
    pub done: u64,
    /// Messages that it failed.
    pub failed: u64,
    /// Messages sent to find out whether it is well again.
    pub probes: u64,
    /// Times that it was left.
    pub lefts: u64,
    /// Time inside the hosts that was measured last, in nanoseconds; 0 before the first.
    pub intra_ns: u64,
    /// Time from end to end that was measured last, in nanoseconds; 0 before the first.
    pub total_ns: u64,
    /// When it is probed next, if it was left.
    pub left_until: Option<Instant>,
}

/// Chooses paths for an application's requests.
#[derive(Debug)]
pub struct Selector {
    states: Vec<PathState>,
}

impl Selector {
    /// A selector for paths; allocates all that it will ever need.
    #[must_use]
    pub fn new(_paths: &Paths, _strategy: Strategy, _config: Config) -> Self {
        unimplemented!("next commit")
    }

    /// Decides for one request.
    pub fn select(&mut self, _now: Instant, _request: &Request) -> Decision {
        unimplemented!("next commit")
    }

    /// Takes in how sending a request ended; false for a ticket that is not in flight. Drain [`Self::poll`] after it.
    pub fn done(&mut self, _now: Instant, _ticket: Ticket, _outcome: Outcome) -> bool {
        unimplemented!("next commit")
    }

    /// The next request that was released, or given up.
    pub fn poll(&mut self, _now: Instant) -> Option<Released> {
        unimplemented!("next commit")
    }

    /// What is known of a path.
    #[must_use]
    pub fn state(&self, path: PathId) -> &PathState {
        &self.states[usize::from(path.0)]
    }

    /// Requests in flight or waiting.
    #[must_use]
    pub fn held(&self) -> u32 {
        unimplemented!("next commit")
    }

    /// For [`Strategy::Horizon`]: the requests that will come after the next one, with the time between each and the one
    /// before it, in nanoseconds. Takes the place of what the last requests foretell, until the next call.
    pub fn foresee(&mut self, _upcoming: &[(u64, KindId)]) {
        unimplemented!("next commit")
    }
}
