//! Counters of a channel.

use std::sync::atomic::{AtomicU64, Ordering};

pub use pathcall_driver::carrier::CarriedStats;
pub use pathcall_endpoint::clone::{CloneCallerStats, ClonePolicy, PolicyReason, PolicyStats, RefusedExtra};
pub use pathcall_endpoint::map::client::ClientStats;

pub use super::paths::{PathStats, PathTime};

/// Counters of a channel and its clones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelStats {
    /// Calls made by plain gRPC.
    pub plain_calls: u64,
    /// Calls of methods with a filter.
    pub filtered_calls: u64,
    /// Calls sent to a pool of servers by frames.
    pub cloned_calls: u64,
    /// Results of the cloned calls, and of streams of the pool, which count as plain calls.
    pub pool: CloneCallerStats,
    /// Policies of the automatic methods that have been called, in order of paths.
    pub policies: Vec<MethodPolicy>,
    /// Delegated calls.
    pub delegated_calls: u64,
    /// Direct calls of methods with a filter: one gRPC call each, which the server's layer executes.
    pub direct_calls: u64,
    /// Calls of a handler after a map operation.
    pub handler_calls: u64,
    /// Completed calls with ids.
    pub idempotent_calls: u64,
    /// Calls that were refused because their message was compressed.
    pub compressed_refused: u64,
    /// Counters by application of the manifest, in order of names.
    pub applications: Vec<ApplicationStats>,
}

/// Policy of an automatic method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodPolicy {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub method: &'static str,
    /// Its policy, why it is chosen, and the periods so far.
    pub stats: PolicyStats,
}

/// Counters of a channel in one application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationStats {
    /// `AppName`.
    pub name: &'static str,
    /// Number of joins.
    pub joins: u64,
    /// Counters of map frames.
    pub map: ClientStats,
    /// Counters of map frames carried over HTTP/2 because UDP is blocked; `open` is 1 while this is the case.
    pub carried: CarriedStats,
    /// Measured times of its calls, by method and size of the message; the channel takes the faster path.
    pub paths: Vec<PathStats>,
}

/// Counters behind [`ChannelStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) plain: Counter,
    pub(super) filtered: Counter,
    pub(super) cloned: Counter,
    pub(super) delegated: Counter,
    pub(super) direct: Counter,
    pub(super) handler: Counter,
    pub(super) idempotent: Counter,
    pub(super) compressed: Counter,
}

impl Counters {
    pub(super) fn read(
        &self,
        applications: impl Iterator<Item = ApplicationStats>,
        pool: CloneCallerStats,
        policies: Vec<MethodPolicy>,
    ) -> ChannelStats {
        ChannelStats {
            plain_calls: self.plain.read(),
            filtered_calls: self.filtered.read(),
            cloned_calls: self.cloned.read(),
            pool,
            policies,
            delegated_calls: self.delegated.read(),
            direct_calls: self.direct.read(),
            handler_calls: self.handler.read(),
            idempotent_calls: self.idempotent.read(),
            compressed_refused: self.compressed.read(),
            applications: applications.collect(),
        }
    }
}

/// Event counter.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sum of the counters of two endpoints.
pub(super) fn sum(a: ClientStats, b: ClientStats) -> ClientStats {
    ClientStats {
        calls: a.calls + b.calls,
        frames_sent: a.frames_sent + b.frames_sent,
        frames_received: a.frames_received + b.frames_received,
        frames_ignored: a.frames_ignored + b.frames_ignored,
        frames_unauthentic: a.frames_unauthentic + b.frames_unauthentic,
        retransmits: a.retransmits + b.retransmits,
        lanes_element: a.lanes_element + b.lanes_element,
        lanes_software: a.lanes_software + b.lanes_software,
        bytes_sent: a.bytes_sent + b.bytes_sent,
        lane_bytes_sent: a.lane_bytes_sent + b.lane_bytes_sent,
    }
}

/// Sum of the carried frames of two endpoints.
pub(super) fn sum_carried(a: CarriedStats, b: CarriedStats) -> CarriedStats {
    CarriedStats {
        open: a.open + b.open,
        frames_in: a.frames_in + b.frames_in,
        frames_out: a.frames_out + b.frames_out,
        lost_full: a.lost_full + b.lost_full,
        foreign: a.foreign + b.foreign,
    }
}
