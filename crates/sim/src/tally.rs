//! What is counted in a run.

use std::ops::AddAssign;
use std::time::Duration;

/// Counts of one run, or of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Calls that ended or were cancelled.
    pub calls: u64,
    /// Frames sent over links.
    pub frames: u64,
    /// Frames lost: by chance, damaged, on links that were cut or in full queues.
    pub lost: u64,
    /// Those of them that were lost on links that were cut.
    pub cut: u64,
    /// Frames that arrived twice.
    pub repeated: u64,
    /// Copies that arrived hundreds of frames later.
    pub late: u64,
    /// Damaged and forged frames and junk that arrived.
    pub hostile: u64,
    /// Frames that were refused for their token, as far as those who refused them still live.
    pub unauthentic: u64,
    /// Times that a host stood still.
    pub pauses: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Frames that met congestion.
    pub marked: u64,
    /// Frames that callers sent again.
    pub retransmits: u64,
    /// Lanes and pairs that took effect in the element.
    pub lanes_element: u64,
    /// Lanes and pairs that took effect in software.
    pub lanes_software: u64,
    /// Bytes of lanes that callers sent, each counted once.
    pub lane_bytes_sent: u64,
    /// Bytes of lanes that came to owners.
    pub lane_bytes_received: u64,
    /// Keys that gave their registers to others.
    pub keys_evicted: u64,
    /// Frames that were to be worked on in passing.
    pub inline: u64,
    /// Those of them that no element met.
    pub bare: u64,
    /// Times that an owner went on without an element that was silent.
    pub suspended: u64,
    /// Virtual time.
    pub virtual_time: Duration,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.frames += other.frames;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.late += other.late;
        self.hostile += other.hostile;
        self.unauthentic += other.unauthentic;
        self.pauses += other.pauses;
        self.cut += other.cut;
        self.reordered += other.reordered;
        self.marked += other.marked;
        self.retransmits += other.retransmits;
        self.lanes_element += other.lanes_element;
        self.lanes_software += other.lanes_software;
        self.lane_bytes_sent += other.lane_bytes_sent;
        self.lane_bytes_received += other.lane_bytes_received;
        self.keys_evicted += other.keys_evicted;
        self.inline += other.inline;
        self.bare += other.bare;
        self.suspended += other.suspended;
        self.virtual_time += other.virtual_time;
    }
}
