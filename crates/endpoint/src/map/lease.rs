//! Leases and fencing tokens: what both ends of a lock agree on.
//!
//! ```text
//! holder   ask ──────────── believes it holds ───────────┤ lost
//! server        hears ──────────────────────────── lends ───────┤ free
//! ```
//!
//! The server counts a lease from when it heard the request, the holder from when it sent it, and only
//! [`held_for`] of it: with clocks that drift by 10 % the holder still gives up first.
//!
//! A fencing token is `epoch | road | count`, from the highest bit on: 30 bits of the epoch, 2 of the
//! road (before the element, in the element, after it), 32 of the grants of this lock there. So it grows
//! from grant to grant of a lock, whoever granted it (NOTES: "Locks and test-and-set").

use std::time::Duration;

/// How long a lock is lent unless its holder's channel asks again.
pub const LEASE: Duration = Duration::from_secs(5);

/// What of a lease its holder may count on: by a clock at 90 % of the true rate it ends before the
/// whole lease by a clock at 110 %.
#[must_use]
pub fn held_for(lease: Duration) -> Duration {
    lease / 5 * 4
}

/// Where locks are kept, in order: the upper half of their fencing tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Era(u32);

impl Era {
    /// The server's locks at the begin of an epoch.
    #[must_use]
    pub const fn of_epoch(epoch: u32) -> Self {
        let most = u32::MAX >> 2;
        Self((if epoch < most { epoch } else { most }) << 2)
    }

    /// The server's locks from now on, in the same epoch or a later one.
    #[must_use]
    pub fn next(self, epoch: u32) -> Self {
        Self::of_epoch(epoch).max(Self((self.0 & !1).saturating_add(2)))
    }

    /// The locks that the element has from now on.
    #[must_use]
    pub const fn of_element(self) -> Self {
        Self(self.0 | 1)
    }

    /// The token of the lock's grant with this number.
    #[must_use]
    pub const fn token(self, grants: u32) -> u64 {
        (self.0 as u64) << 32 | grants as u64
    }

    /// As it travels.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// From what has travelled.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_gives_up_first_though_clocks_drift() {
        for millis in [100, 1_000, 5_000, 60_000] {
            let lease = Duration::from_millis(millis);
            let (slowest, fastest) = (held_for(lease).as_secs_f64() / 0.9, lease.as_secs_f64() / 1.1);
            assert!(slowest < fastest, "{lease:?}: the holder {slowest} s, the server {fastest} s");
        }
    }

    #[test]
    fn tokens_grow_from_road_to_road_and_from_epoch_to_epoch() {
        let first = Era::of_epoch(7);
        let suspended = first.next(7);
        let later = suspended.next(8);
        let eras =
            [first, first.of_element(), suspended, later, later.of_element(), later.next(1), later.next(1).next(9)];
        for pair in eras.windows(2) {
            assert!(pair[0].token(u32::MAX) < pair[1].token(0), "{pair:?}");
        }
        assert_eq!(Era::from_number(first.number()), first);
    }
}
