//! Untracked flows: flows that a handler keeps only in its variables, without an entry.
//!
//! ```text
//! request without an entry, its version and bucket ─► time of the last one ─► old, until it expires
//! ```

use std::collections::HashMap;

use super::flows::{GroupTag, Groups};

/// Time after its last packet during which such a flow counts as present, µs.
pub const LINGER_US: u64 = 60_000_000;

/// Time of the last packet of untracked flows for each group tag: at most two per bucket.
#[derive(Debug, Clone, Default)]
pub struct UntrackedFlows {
    seen_us: HashMap<GroupTag, u64>,
}

impl UntrackedFlows {
    /// Records a packet that was about no entry.
    pub fn record_packet(&mut self, now_us: u64, tag: GroupTag) {
        self.seen_us.insert(tag, now_us);
    }

    /// Forgets the group tags whose flows have ended.
    pub fn expire(&mut self, now_us: u64) {
        self.seen_us.retain(|_, seen_us| now_us < seen_us.saturating_add(LINGER_US));
    }

    /// Number of group tags with such flows that are known only by the previous group.
    #[must_use]
    pub fn old(&self, groups: &Groups) -> u64 {
        self.seen_us.keys().filter(|tag| groups.is_old(**tag)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untracked_flow_expires_after_its_last_packet() {
        let (first, second) = (Groups::new(1, &[7, 8], None), Groups::new(2, &[7], Some((1, &[7, 8]))));
        let mut untracked = UntrackedFlows::default();
        untracked.record_packet(5, (1, 7));
        untracked.record_packet(9, (1, 7));
        untracked.record_packet(6, (1, 8));
        assert_eq!((untracked.old(&first), untracked.old(&second)), (0, 2));
        untracked.expire(6 + LINGER_US);
        assert_eq!(untracked.old(&second), 1);
        untracked.expire(9 + LINGER_US);
        assert_eq!(untracked.old(&second), 0);
    }
}
