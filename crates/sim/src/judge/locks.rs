//! Who holds a key.

use std::collections::BTreeMap;

use pathcall_endpoint::map::Key;

use super::Failure;
use crate::party::Node;

/// Holders, by key.
#[derive(Default)]
pub(super) struct Locks {
    holders: BTreeMap<Key, Node>,
}

impl Locks {
    /// A caller was told that it holds these keys.
    pub(super) fn grant(&mut self, node: Node, keys: &[Key]) -> Result<(), Failure> {
        for key in keys {
            if let Some(holder) = self.holders.insert(key.clone(), node) {
                return Err(Failure::HeldTwice { node, key: key.clone(), holder });
            }
        }
        Ok(())
    }

    /// A caller begins to give these keys back.
    pub(super) fn release(&mut self, keys: &[Key]) {
        for key in keys {
            self.holders.remove(key);
        }
    }

    /// A caller is gone: what it held is free.
    pub(super) fn release_all(&mut self, node: Node) {
        self.holders.retain(|_, holder| *holder != node);
    }
}
