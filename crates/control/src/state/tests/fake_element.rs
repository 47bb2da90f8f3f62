//! Tables of a fake element; checks the effect of each push.

use super::{FakeElement, Push};

impl FakeElement {
    pub(super) fn apply(&mut self, push: Push) {
        match push {
            Push::Retain(keep) => {
                self.applications.retain(|gaid, _| keep.contains(gaid));
                self.groups.retain(|gaid, _| keep.contains(gaid));
                self.pools.retain(|gaid, _| keep.contains(gaid));
            }
            Push::Install(new) => {
                assert!(new.row_base + new.rows <= self.request.rows);
                assert!(new.lane_base + new.rows * new.width <= self.request.lanes);
                for old in self.applications.values().filter(|old| old.gaid != new.gaid) {
                    assert!(are_disjoint(old.row_base, old.rows, new.row_base, new.rows), "rows: {old:?} {new:?}");
                    let (old_len, new_len) = (old.rows * old.width, new.rows * new.width);
                    assert!(are_disjoint(old.lane_base, old_len, new.lane_base, new_len), "lanes: {old:?} {new:?}");
                }
                self.applications.insert(new.gaid, new);
            }
            Push::Remove(gaid) => {
                self.applications.remove(&gaid);
                self.endpoints.retain(|_, endpoint| endpoint.gaid != gaid);
                self.groups.remove(&gaid);
                self.pools.remove(&gaid);
            }
            Push::SetEndpoints(entries) => {
                for new in entries {
                    assert!(new.slot_base + new.slots <= self.request.slots);
                    for old in self.endpoints.values().filter(|old| old.endpoint != new.endpoint) {
                        assert!(
                            are_disjoint(old.slot_base, old.slots, new.slot_base, new.slots),
                            "slots: {old:?} {new:?}"
                        );
                    }
                    let known = self.applications.contains_key(&new.gaid)
                        || self.pools.contains_key(&new.gaid)
                        || self.refused.contains(&new.gaid);
                    assert!(known, "endpoints come after their application");
                    self.endpoints.insert(new.endpoint, new);
                }
            }
            Push::RemoveEndpoints(endpoints) => self.endpoints.retain(|endpoint, _| !endpoints.contains(endpoint)),
            Push::SetGroup { gaid, endpoints } => {
                let known = endpoints.iter().all(|endpoint| self.endpoints.contains_key(endpoint));
                assert!(known || self.refused.contains(&gaid), "a group comes after its endpoints");
                self.groups.insert(gaid, endpoints);
            }
            Push::InstallPool(pool) => {
                assert!(!pool.servers.is_empty(), "{pool:?}");
                if let Some(old) = self.pools.get(&pool.gaid) {
                    assert!(old.version <= pool.version, "{old:?} {pool:?}");
                    assert!(old.version < pool.version || old.servers == pool.servers, "{old:?} {pool:?}");
                }
                self.pools.insert(pool.gaid, pool);
            }
        }
    }
}

/// Whether two ranges are disjoint.
pub(super) fn are_disjoint(a: u32, a_len: u32, b: u32, b_len: u32) -> bool {
    a_len == 0 || b_len == 0 || a + a_len <= b || b + b_len <= a
}
