//! Leases and fencing tokens of locks, common part of caller and server.
//!
//! ```text
//! holder   request ──────────── holds the lock ───────────┤ lost
//! server           receives ──────────────────────── lends ──────┤ free
//! ```
//!
//! The server measures a lease from the receipt of the request. The holder measures it from the transmission, and
//! counts on [`holder_lease`] of it only: even with clocks that drift by 10 % the lease ends first at the holder.
//!
//! A fencing token is `epoch | site | count`, from the highest bit on: 30 bits for the epoch, 2 for the site (server
//! before the element, element, server after the element), 32 for the number of the grant at this site. So the token
//! rises with each grant of a lock, by the server or the element.

use std::time::Duration;

/// Default duration of a lease; the holder's channel renews it.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(5);

/// Time for which a caller may combine the base of a key with its register: the server does not change the base meanwhile.
/// Shorter than the time after which a silent party is given up.
pub const READ_LEASE: Duration = Duration::from_millis(500);

/// Part of a lease that its holder may count on. Measured by a clock at 90 % of the true rate, it ends before the whole
/// lease measured by a clock at 110 %.
#[must_use]
pub fn holder_lease(lease: Duration) -> Duration {
    lease / 5 * 4
}

/// Upper half of fencing tokens: epoch and site of the lock table. Later eras compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Era(u32);

impl Era {
    /// Era of the server's locks at the start of an epoch.
    #[must_use]
    pub const fn of_epoch(epoch: u32) -> Self {
        let most = u32::MAX >> 2;
        Self((if epoch < most { epoch } else { most }) << 2)
    }

    /// Next era of the server's locks, in the same epoch or a later one.
    #[must_use]
    pub fn next(self, epoch: u32) -> Self {
        Self::of_epoch(epoch).max(Self((self.0 & !1).saturating_add(2)))
    }

    /// Era of the locks in the element after this era.
    #[must_use]
    pub const fn of_element(self) -> Self {
        Self(self.0 | 1)
    }

    /// Fencing token of grant number `grants` of a lock.
    #[must_use]
    pub const fn token(self, grants: u32) -> u64 {
        (self.0 as u64) << 32 | grants as u64
    }

    /// Number of the era for frames.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Era from its number.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_ends_first_at_holder_despite_clock_drift() {
        for millis in [100, 1_000, 5_000, 60_000] {
            let lease = Duration::from_millis(millis);
            let (slowest, fastest) = (holder_lease(lease).as_secs_f64() / 0.9, lease.as_secs_f64() / 1.1);
            assert!(slowest < fastest, "{lease:?}: holder {slowest} s, server {fastest} s");
        }
    }

    #[test]
    fn fencing_tokens_rise_across_sites_and_epochs() {
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
