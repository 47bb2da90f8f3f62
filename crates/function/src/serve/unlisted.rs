//! Flows that a handler keeps in its variables alone: no entry says that they are there.
//!
//! ```text
//! request that was about no entry, its version and bucket ─► last seen ─► old, until none has come for long
//! ```

use std::collections::HashMap;

use super::flows::{Came, Groups};

/// What a handler's variables have of a flow stays with it while its packets come at least as often as this, microseconds.
pub const LINGER_US: u64 = 60_000_000;

/// When packets of such flows last came, by what they came with: as many as groups have buckets, twice.
#[derive(Debug, Clone, Default)]
pub struct Unlisted {
    seen_us: HashMap<Came, u64>,
}

impl Unlisted {
    /// A packet that was about no entry has come.
    pub fn came(&mut self, now_us: u64, came: Came) {
        self.seen_us.insert(came, now_us);
    }

    /// Time has passed.
    pub fn expire(&mut self, now_us: u64) {
        self.seen_us.retain(|_, seen_us| now_us < seen_us.saturating_add(LINGER_US));
    }

    /// Buckets with such flows that are known only by the group before.
    #[must_use]
    pub fn old(&self, groups: &Groups) -> u64 {
        self.seen_us.keys().filter(|came| groups.is_old(**came)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_there_while_its_packets_come() {
        let (first, second) = (Groups::new(1, &[7, 8], None), Groups::new(2, &[7], Some((1, &[7, 8]))));
        let mut unlisted = Unlisted::default();
        unlisted.came(5, (1, 7));
        unlisted.came(9, (1, 7));
        unlisted.came(6, (1, 8));
        assert_eq!((unlisted.old(&first), unlisted.old(&second)), (0, 2));
        unlisted.expire(6 + LINGER_US);
        assert_eq!(unlisted.old(&second), 1);
        unlisted.expire(9 + LINGER_US);
        assert_eq!(unlisted.old(&second), 0);
    }
}
