//! Membership of the chain: removes nodes with an expired lease.
//!
//! A node's lease starts when the node sends its renewal. The master counts from the receipt of the renewal, and adds
//! an eighth of the lease. So before the master removes a node, the node knows by its own clock (which may be 5 % off)
//! that it must not answer reads, even if it is alive.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::pb::{Member, View};

/// Owner of the view.
#[derive(Debug)]
pub struct Master {
    view: View,
    /// Time of the last renewal of each member.
    renewed: BTreeMap<u32, Duration>,
    lease: Duration,
    /// Time of the last check.
    checked: Duration,
}

impl Master {
    /// Creates a chain of `members`, from head to tail. Their first lease starts at `by`, when they should have
    /// started.
    #[must_use]
    pub fn new(by: Duration, members: Vec<Member>, lease: Duration) -> Self {
        let renewed = members.iter().map(|member| (member.id, by)).collect();
        Self { view: View { number: 1, members }, renewed, lease, checked: Duration::ZERO }
    }

    /// Current view.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Renews a node's lease; returns the view, or `None` if the node is no member.
    pub fn renew(&mut self, now: Duration, id: u32) -> Option<&View> {
        *self.renewed.get_mut(&id)? = now;
        Some(&self.view)
    }

    /// Removes nodes with an expired lease; true if any was removed. To be called several times per lease: after a
    /// longer pause, the master itself was inactive, and all leases are renewed. If all leases have expired, the master
    /// waits until one is renewed.
    pub fn remove_expired(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.checked) > self.lease / 2 {
            self.renewed.values_mut().for_each(|renewed| *renewed = now.max(*renewed));
        }
        self.checked = now;
        let after = self.lease + self.lease / 8;
        let is_silent = |renewed: &Duration| *renewed + after < now;
        if !self.renewed.values().any(is_silent) || self.renewed.values().all(is_silent) {
            return false;
        }
        self.renewed.retain(|_, renewed| !is_silent(renewed));
        self.view.members.retain(|member| self.renewed.contains_key(&member.id));
        self.view.number += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(80);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ids(master: &Master) -> Vec<u32> {
        master.view().members.iter().map(|member| member.id).collect()
    }

    fn master() -> Master {
        Master::new(ms(0), (0..3).map(|id| Member { id, ..Member::default() }).collect(), LEASE)
    }

    #[test]
    fn silent_node_is_removed_after_lease_plus_eighth() {
        let mut master = master();
        for id in [0, 2] {
            assert_eq!(master.renew(ms(50), id).expect("a member").number, 1);
        }
        assert!(
            [30, 60, 90].iter().all(|at| !master.remove_expired(ms(*at))),
            "the lease plus an eighth has not expired"
        );
        assert!(master.remove_expired(ms(91)));
        assert_eq!((ids(&master), master.view().number), (vec![0, 2], 2));
        assert!(master.renew(ms(92), 1).is_none(), "a removed node stays removed");
        assert!(!master.remove_expired(ms(93)));
    }

    #[test]
    fn inactive_master_renews_all_leases() {
        let mut master = master();
        assert!(!master.remove_expired(ms(10_000)));
        master.renew(ms(10_001), 1).expect("a member");
        assert!([10_030, 10_060, 10_090].iter().all(|at| !master.remove_expired(ms(*at))));
        assert!(master.remove_expired(ms(10_091)));
        assert_eq!(ids(&master), [1]);
    }

    #[test]
    fn master_keeps_view_if_all_leases_expired() {
        let mut master = master();
        assert!((0..100).all(|i| !master.remove_expired(ms(20 * i))));
        master.renew(ms(2_000), 1).expect("a member");
        assert!(master.remove_expired(ms(2_001)));
        assert_eq!(ids(&master), [1]);
    }
}
