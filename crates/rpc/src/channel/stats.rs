//! What went through a channel.

use std::sync::atomic::{AtomicU64, Ordering};

pub use pathcall_endpoint::clone::CallerStats;
pub use pathcall_endpoint::driver::carrier::CarriedStats;
pub use pathcall_endpoint::map::client::ClientStats;

/// Counts of a channel and its clones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelStats {
    /// Calls of methods without a filter.
    pub plain_calls: u64,
    /// Calls of methods with a filter.
    pub filtered_calls: u64,
    /// Calls that went to a pool of servers by frames.
    pub cloned_calls: u64,
    /// What became of them.
    pub pool: CallerStats,
    /// Calls that servers may pass on.
    pub delegated_calls: u64,
    /// Calls that were followed by one of the handler.
    pub handler_calls: u64,
    /// Calls with ids that are done.
    pub named_calls: u64,
    /// Calls refused because their message was compressed.
    pub compressed_refused: u64,
    /// One for each application of the manifest, by name.
    pub applications: Vec<ApplicationStats>,
}

/// A channel's part in one application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationStats {
    /// `AppName`.
    pub name: &'static str,
    /// Times it was joined.
    pub joins: u64,
    /// What travelled as map frames.
    pub map: ClientStats,
    /// What of that went over HTTP/2 because UDP did not get through; `open` says whether it does now.
    pub carried: CarriedStats,
}

/// The counters behind [`ChannelStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) plain: Counter,
    pub(super) filtered: Counter,
    pub(super) cloned: Counter,
    pub(super) delegated: Counter,
    pub(super) handler: Counter,
    pub(super) named: Counter,
    pub(super) compressed: Counter,
}

impl Counters {
    pub(super) fn read(&self, applications: impl Iterator<Item = ApplicationStats>, pool: CallerStats) -> ChannelStats {
        ChannelStats {
            plain_calls: self.plain.read(),
            filtered_calls: self.filtered.read(),
            cloned_calls: self.cloned.read(),
            pool,
            delegated_calls: self.delegated.read(),
            handler_calls: self.handler.read(),
            named_calls: self.named.read(),
            compressed_refused: self.compressed.read(),
            applications: applications.collect(),
        }
    }
}

/// Counts up.
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

/// The counts of two endpoints together.
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

/// What was carried for two endpoints together.
pub(super) fn sum_carried(a: CarriedStats, b: CarriedStats) -> CarriedStats {
    CarriedStats {
        open: a.open + b.open,
        frames_in: a.frames_in + b.frames_in,
        frames_out: a.frames_out + b.frames_out,
        lost_full: a.lost_full + b.lost_full,
        foreign: a.foreign + b.foreign,
    }
}
