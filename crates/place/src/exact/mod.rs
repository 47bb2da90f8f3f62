//! The best choice of paths for a known sequence of requests (LEO §III-B1, eq. 1–4).

use crate::path::{KindId, PathId, Paths};

/// A request of a known sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its type.
    pub kind: KindId,
    /// Time from the arrival before it, `Δt`, in nanoseconds; of the first from the backlog's time.
    pub after_ns: u64,
}

/// Paths for a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// A path for each request.
    pub paths: Vec<PathId>,
    /// Sum of all requests' times inside the hosts, in nanoseconds (eq. 3).
    pub total_ns: u64,
    /// No plan is below this, in nanoseconds: equal to `total_ns` where the plan is proven to be the best.
    pub bound_ns: u64,
}

/// Finds the plan with the least sum of times, from a backlog per resource in nanoseconds (empty: all idle).
///
/// Keeps at most `labels_max` partial plans a step; only where that is too few the plan is not proven.
#[must_use]
pub fn solve(_paths: &Paths, _backlog_ns: &[u64], _arrivals: &[Arrival], _labels_max: usize) -> Plan {
    unimplemented!("next commit")
}
