//! Model of the locks' holders.

use std::collections::BTreeMap;

use pathcall_endpoint::map::Key;

use super::MapViolation;
use crate::map::node::MapNodeId;

/// Holders and fencing tokens, by key.
#[derive(Default)]
pub(super) struct Locks {
    holders: BTreeMap<Key, LockHolder>,
    /// Fencing token of the last grant, by key.
    tokens: BTreeMap<Key, u64>,
}

/// Caller that holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockHolder {
    pub(super) node: MapNodeId,
    /// Step that took the lock.
    pub(super) step: usize,
}

impl Locks {
    /// Records a grant of these keys. Fencing tokens grow with the grants of a lock.
    pub(super) fn grant(
        &mut self,
        node: MapNodeId,
        step: usize,
        keys: &[Key],
        tokens: &[u64],
    ) -> Result<(), MapViolation> {
        for (key, token) in keys.iter().zip(tokens.iter().copied()) {
            if let Some(last) = self.tokens.insert(key.clone(), token).filter(|last| *last >= token) {
                return Err(MapViolation::TokenOrder { node, key: key.clone(), token, last });
            }
            if let Some(LockHolder { node: holder, .. }) = self.holders.insert(key.clone(), LockHolder { node, step }) {
                return Err(MapViolation::HeldTwice { node, key: key.clone(), holder });
            }
        }
        Ok(())
    }

    /// Holder of this key that has not begun to release it.
    pub(super) fn holder(&self, key: &Key) -> Option<LockHolder> {
        self.holders.get(key).copied()
    }

    /// Removes the holder of a key: its lease has expired, and it knows.
    pub(super) fn lose(&mut self, key: &Key) {
        self.holders.remove(key);
    }

    /// Records that a caller begins to release the keys of a step.
    pub(super) fn release(&mut self, node: MapNodeId, step: usize, keys: &[Key]) {
        for key in keys {
            if self.holder(key).is_some_and(|holding| (holding.node, holding.step) == (node, step)) {
                self.holders.remove(key);
            }
        }
    }

    /// Releases all locks of a caller that has left.
    pub(super) fn release_all(&mut self, node: MapNodeId) {
        self.holders.retain(|_, holding| holding.node != node);
    }
}
