//! Who holds a key.

use std::collections::BTreeMap;

use pathcall_endpoint::map::Key;

use super::Failure;
use crate::party::Node;

/// Holders, by key.
#[derive(Default)]
pub(super) struct Locks {
    holders: BTreeMap<Key, Holding>,
    /// The last token that was granted, by key.
    tokens: BTreeMap<Key, u64>,
}

/// Who was told that it holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) node: Node,
    /// The step that took it.
    pub(super) step: usize,
}

impl Locks {
    /// A caller was told that it holds these keys. Tokens grow with the grants of a lock.
    pub(super) fn grant(&mut self, node: Node, step: usize, keys: &[Key], tokens: &[u64]) -> Result<(), Failure> {
        for (key, token) in keys.iter().zip(tokens.iter().copied()) {
            if let Some(last) = self.tokens.insert(key.clone(), token).filter(|last| *last >= token) {
                return Err(Failure::TokenOrder { node, key: key.clone(), token, last });
            }
            if let Some(Holding { node: holder, .. }) = self.holders.insert(key.clone(), Holding { node, step }) {
                return Err(Failure::HeldTwice { node, key: key.clone(), holder });
            }
        }
        Ok(())
    }

    /// Who was granted this key and has not begun to give it back.
    pub(super) fn holder(&self, key: &Key) -> Option<Holding> {
        self.holders.get(key).copied()
    }

    /// Its lease has run out: it does not hold the key any more, and knows it.
    pub(super) fn lose(&mut self, key: &Key) {
        self.holders.remove(key);
    }

    /// A caller begins to give back the keys that this step took.
    pub(super) fn release(&mut self, node: Node, step: usize, keys: &[Key]) {
        for key in keys {
            if self.holder(key).is_some_and(|holding| (holding.node, holding.step) == (node, step)) {
                self.holders.remove(key);
            }
        }
    }

    /// A caller is gone: what it held is free.
    pub(super) fn release_all(&mut self, node: Node) {
        self.holders.retain(|_, holding| holding.node != node);
    }
}
