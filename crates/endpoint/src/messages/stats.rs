//! Counters of a node's messages.

use std::ops::AddAssign;

/// Counters of a node's messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages to send.
    pub sent: u64,
    /// Messages received.
    pub arrived: u64,
    /// Messages returned as undelivered.
    pub undelivered: u64,
    /// Messages in flight when their session ended: they may have arrived, or not.
    pub lost: u64,
    /// Parts retransmitted.
    pub retransmits: u64,
    /// Parts received again.
    pub repeats: u64,
    /// Parts refused because of the memory limit.
    pub refused: u64,
    /// Frames that are invalid, or of no session.
    pub ignored: u64,
    /// Frames with a wrong or missing token, or with a token although the node has no key: they are dropped. By TCP,
    /// the connections ended for that.
    pub unauthenticated: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        let Self { sent, arrived, undelivered, lost, retransmits, repeats, refused, ignored, unauthenticated } = other;
        self.sent += sent;
        self.arrived += arrived;
        self.undelivered += undelivered;
        self.lost += lost;
        self.retransmits += retransmits;
        self.repeats += repeats;
        self.refused += refused;
        self.ignored += ignored;
        self.unauthenticated += unauthenticated;
    }
}
