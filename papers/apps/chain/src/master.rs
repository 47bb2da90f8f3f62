//! Who is in the chain: removes nodes that have not renewed their lease.
//!
//! A node's lease runs from when it *asked* for it; the master counts from when it heard that, and longer by an
//! eighth. So when it removes a node, that knows (by its own clock, which may be 5 % off) that it may no longer
//! answer reads, even if it only seemed to have crashed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::pb::{Member, View};

/// Keeps the view.
#[derive(Debug)]
pub struct Master {
    view: View,
    /// When each member was last heard of.
    heard: BTreeMap<u32, Duration>,
    lease: Duration,
    /// When it last looked who is silent.
    looked: Duration,
}

impl Master {
    /// A chain of these, from head to tail; they count as heard of at `by`, when they should have started.
    #[must_use]
    pub fn new(by: Duration, members: Vec<Member>, lease: Duration) -> Self {
        let heard = members.iter().map(|member| (member.id, by)).collect();
        Self { view: View { number: 1, members }, heard, lease, looked: Duration::ZERO }
    }

    /// The view.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// A node is alive: the view, or nothing if it is no member.
    pub fn renew(&mut self, now: Duration, id: u32) -> Option<&View> {
        *self.heard.get_mut(&id)? = now;
        Some(&self.view)
    }

    /// Removes nodes whose lease is over; whether there are any. Called several times a lease: if it was not, the
    /// master itself was away, and all count as heard of. Where none is left that was heard of, it waits for one.
    pub fn remove_silent(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.looked) > self.lease / 2 {
            self.heard.values_mut().for_each(|heard| *heard = now.max(*heard));
        }
        self.looked = now;
        let after = self.lease + self.lease / 8;
        let is_silent = |heard: &Duration| *heard + after < now;
        if !self.heard.values().any(is_silent) || self.heard.values().all(is_silent) {
            return false;
        }
        self.heard.retain(|_, heard| !is_silent(heard));
        self.view.members.retain(|member| self.heard.contains_key(&member.id));
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
    fn a_silent_node_is_removed_after_its_lease_and_an_eighth() {
        let mut master = master();
        for id in [0, 2] {
            assert_eq!(master.renew(ms(50), id).expect("a member").number, 1);
        }
        assert!([30, 60, 90].iter().all(|at| !master.remove_silent(ms(*at))), "just then it may still be heard of");
        assert!(master.remove_silent(ms(91)));
        assert_eq!((ids(&master), master.view().number), (vec![0, 2], 2));
        assert!(master.renew(ms(92), 1).is_none(), "it does not come back");
        assert!(!master.remove_silent(ms(93)));
    }

    #[test]
    fn a_master_that_was_away_removes_nobody_for_that() {
        let mut master = master();
        assert!(!master.remove_silent(ms(10_000)));
        master.renew(ms(10_001), 1).expect("a member");
        assert!([10_030, 10_060, 10_090].iter().all(|at| !master.remove_silent(ms(*at))));
        assert!(master.remove_silent(ms(10_091)));
        assert_eq!(ids(&master), [1]);
    }

    #[test]
    fn when_nobody_is_heard_of_nobody_is_removed() {
        let mut master = master();
        assert!((0..100).all(|i| !master.remove_silent(ms(20 * i))));
        master.renew(ms(2_000), 1).expect("a member");
        assert!(master.remove_silent(ms(2_001)));
        assert_eq!(ids(&master), [1]);
    }
}
