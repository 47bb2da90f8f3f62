//! Input and output types of the selector.

use crate::path::{KindId, PathId};

/// Strategy of path selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SelectionStrategy {
    /// Least `k̂ · toll + T`, with `k̂` from measured times within the hosts (LEO §III-B2), as corrected in
    /// `docs/place.md`.
    Leo,
    /// Leo as printed: `k̂` rises by one with each message that took longer than `T`, and is reset to zero otherwise.
    LeoAsPrinted,
    /// Late binding: messages wait in one queue, and a device takes one when it has room; estimates are learnt from
    /// answers, and only decide what a device should not take (`docs/place.md`).
    Late,
    /// Least `n · toll + T`, with the path's number of messages in flight `n`.
    ShortestQueue,
    /// Least end-to-end time of the last measurement.
    GreedyE2e,
    /// Least time within the hosts of the last measurement.
    GreedyIntra,
    /// Round robin.
    RoundRobin,
    /// Processor, wherever the request type allows, however slow it is or however often it fails: switches accelerators
    /// off.
    AllCpu,
    /// Accelerator, wherever the request type allows.
    AllAcc,
    /// Accelerator, until measured end-to-end times exceed those at the start; then processor, and back (iPipe as
    /// emulated in LEO §V-A).
    Migration,
    /// Exact solution for the next requests, as predicted from the last ones (§III-B1).
    Horizon {
        /// Look-ahead in requests, 1 to 64.
        depth: u8,
    },
}

impl SelectionStrategy {
    /// All strategies with their names; [`Self::Horizon`] looks 8 requests ahead.
    pub const NAMES: [(&'static str, Self); 11] = [
        ("leo", Self::Leo),
        ("late", Self::Late),
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

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        let same = |other: &Self| std::mem::discriminant(other) == std::mem::discriminant(&self);
        Self::NAMES.iter().find(|(_, known)| same(known)).map_or("", |(name, _)| name)
    }

    /// Strategy with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, strategy)| *strategy)
    }
}

/// Limits of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Limit on the requests in flight or waiting; further ones are [`Decision::Full`].
    pub in_flight_max: u32,
    /// Maximum number of attempts of a request.
    pub attempts_max: u8,
    /// Factor of slowness and of stalls: the selector leaves a path if its messages take this many times the expected
    /// time, or if no message ends within this many times the usual end-to-end time.
    pub stall_factor: u32,
    /// Minimum time without a completion before the selector leaves a path, in nanoseconds.
    pub stall_ns_min: u64,
    /// Number of consecutive slow messages before the selector leaves a path.
    pub slow_max: u8,
    /// First interval between probes of a left or slow path, in nanoseconds; doubles with each probe.
    pub probe_ns: u64,
    /// Limit on the interval between probes, in nanoseconds.
    pub probe_ns_max: u64,
}

impl Config {
    /// Maximum of [`Self::in_flight_max`].
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

/// Request for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectionRequest {
    /// Request type.
    pub kind: KindId,
    /// Address: requests of types with [`Dependency::Addr`](crate::Dependency) keep their order per address.
    pub address: u64,
    /// Message number: requests of types with [`Dependency::Msg`](crate::Dependency) keep their order per message.
    pub message: u64,
}

/// Id of a request, from [`Selector::select`](super::Selector::select) to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Ticket {
    /// Index below [`Config::in_flight_max`], unique among current requests; for tables of the caller.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// Instruction to send a request over a path now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// The path.
    pub path: PathId,
    /// The request.
    pub ticket: Ticket,
    /// Reason of the selection.
    pub reason: SelectionReason,
}

/// Reason of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SelectionReason {
    /// Best path of the strategy.
    Best,
    /// Only path of the request type.
    Only,
    /// Probe of a left or slow path.
    Probe,
    /// An earlier request of the same address or message is on this path, which keeps their order.
    Follows,
    /// All paths were left; this one is the first to be probed.
    LeastBad,
    /// Last attempt of a request that may use several accelerators: on the processor.
    LastAttempt,
}

/// Decision on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Send the request now.
    Send(Dispatch),
    /// The request waits for earlier ones, or for a device; [`Selector::poll`](super::Selector::poll) will return it.
    /// With late binding, call it now, too: a device may take another request.
    Wait {
        /// The request.
        ticket: Ticket,
    },
    /// [`Config::in_flight_max`] is reached: the request was rejected.
    Full,
}

/// Outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The request was answered.
    Done {
        /// Time within the hosts, `(t2−t1) + (t4−t3) + (t6−t5)`, in nanoseconds; `None` if it was not measured.
        intra_ns: Option<u64>,
        /// End-to-end time, in nanoseconds.
        total_ns: u64,
    },
    /// The path failed and the request had no effect: it is sent again.
    Failed,
    /// The caller abandoned the request and it is no longer executed: it is not sent again.
    Abandoned,
}

/// Return value of [`Selector::poll`](super::Selector::poll).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Send the request now.
    Send(Dispatch),
    /// The request has failed [`Config::attempts_max`] times and takes no path any more. Dependent requests wait
    /// until [`Selector::done`](super::Selector::done) reports its end, with any outcome.
    GivenUp {
        /// The request.
        ticket: Ticket,
    },
}
