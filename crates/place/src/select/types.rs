//! What goes into a selector and what comes out.

use crate::path::{KindId, PathId};

/// How paths are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Least `k̂ · toll + T`; `k̂` from measured times inside the hosts (LEO §III-B2), as `docs/place.md` corrects it.
    Leo,
    /// The same as the paper has it: `k̂` rises by one with each message that took longer than `T`, else it is zero.
    LeoAsPrinted,
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
        /// Requests looked ahead, 1 to 64.
        depth: u8,
    },
}

impl Strategy {
    /// All, with the words for them; [`Self::Horizon`] looks 8 requests ahead.
    pub const WORDS: [(&'static str, Self); 10] = [
        ("leo", Self::Leo),
        ("leo-as-printed", Self::LeoAsPrinted),
        ("shortest-queue", Self::ShortestQueue),
        ("greedy-e2e", Self::GreedyE2e),
        ("greedy-intra", Self::GreedyIntra),
        ("round-robin", Self::RoundRobin),
        ("all-cpu", Self::AllCpu),
        ("all-acc", Self::AllAcc),
        ("migration", Self::Migration),
        ("horizon", Self::Horizon { depth: 8 }),
    ];

    /// As the command line has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        let same = |other: &Self| std::mem::discriminant(other) == std::mem::discriminant(&self);
        Self::WORDS.iter().find(|(_, known)| same(known)).map_or("", |(name, _)| name)
    }

    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == name).map(|(_, strategy)| *strategy)
    }
}

/// Bounds of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Requests that may be in flight or wait at the same time; more are [`Decision::Full`].
    pub in_flight_max: u32,
    /// Times that a request is sent before it is given up.
    pub attempts_max: u8,
    /// A path is left when its messages take so many times what the model and those ahead of them explain; and when
    /// for so many times the usual time from end to end none of its messages ends.
    pub stall_factor: u32,
    /// The shortest time without an end after which a path is left, in nanoseconds.
    pub stall_ns_min: u64,
    /// Slow messages in a row after which a path is left.
    pub slow_max: u8,
    /// First interval between probes of a path that was left or got slow, in nanoseconds; it doubles with each.
    pub probe_ns: u64,
    /// Longest interval between probes, in nanoseconds.
    pub probe_ns_max: u64,
}

impl Config {
    /// The most requests that [`Self::in_flight_max`] can ask for.
    pub const IN_FLIGHT_MAX: u32 = 1 << 24;
}

/// Each field by a method.
impl Config {
    /// Sets [`Self::in_flight_max`].
    #[must_use]
    pub const fn in_flight_max(mut self, in_flight_max: u32) -> Self {
        self.in_flight_max = in_flight_max;
        self
    }

    /// Sets [`Self::attempts_max`].
    #[must_use]
    pub const fn attempts_max(mut self, attempts_max: u8) -> Self {
        self.attempts_max = attempts_max;
        self
    }

    /// Sets [`Self::stall_factor`].
    #[must_use]
    pub const fn stall_factor(mut self, stall_factor: u32) -> Self {
        self.stall_factor = stall_factor;
        self
    }

    /// Sets [`Self::stall_ns_min`].
    #[must_use]
    pub const fn stall_ns_min(mut self, stall_ns_min: u64) -> Self {
        self.stall_ns_min = stall_ns_min;
        self
    }

    /// Sets [`Self::slow_max`].
    #[must_use]
    pub const fn slow_max(mut self, slow_max: u8) -> Self {
        self.slow_max = slow_max;
        self
    }

    /// Sets [`Self::probe_ns`].
    #[must_use]
    pub const fn probe_ns(mut self, probe_ns: u64) -> Self {
        self.probe_ns = probe_ns;
        self
    }

    /// Sets [`Self::probe_ns_max`].
    #[must_use]
    pub const fn probe_ns_max(mut self, probe_ns_max: u64) -> Self {
        self.probe_ns_max = probe_ns_max;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            in_flight_max: 4096,
            attempts_max: 4,
            stall_factor: 8,
            stall_ns_min: 1_000_000,
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
    /// What it is about: requests of types with [`Dependency::Addr`](crate::Dependency) keep their order per address.
    pub address: u64,
    /// The message that it is part of: those with [`Dependency::Msg`](crate::Dependency) keep their order per message.
    pub message: u64,
}

/// Names a request from [`Selector::select`](super::Selector::select) until it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Ticket {
    /// Below [`Config::in_flight_max`], and no other request's at the same time: an index for what the caller keeps.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
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
    /// The path was left, or slow; this request finds out whether it is well again.
    Probe,
    /// A request before it, of the same address or message, is on this path, which keeps their order.
    Follows,
    /// All paths were left; this one is to be probed first.
    LeastBad,
}

/// What becomes of a request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It goes.
    Go(Go),
    /// It waits for requests before it; [`Selector::poll`](super::Selector::poll) will hand it out.
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
    /// The caller no longer wants it, and nobody works on it any more: it is not sent again.
    Abandoned,
}

/// What [`Selector::poll`](super::Selector::poll) hands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Send it now.
    Go(Go),
    /// It failed [`Config::attempts_max`] times, and takes no path any more. Those that have to come after it wait until
    /// [`Selector::done`](super::Selector::done) is told that it is over, in whatever way.
    GivenUp {
        /// The request.
        ticket: Ticket,
    },
}
