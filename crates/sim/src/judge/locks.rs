//! Who holds a key, and who has counted it.

use std::collections::BTreeMap;

use pathcall_endpoint::map::Key;

use super::Failure;
use crate::party::Node;

/// Holders and counts, by key.
#[derive(Default)]
pub(super) struct Locks {
    holders: BTreeMap<Key, Node>,
    /// How many have begun to count a key, and how many were told that theirs was forwarded.
    counts: BTreeMap<Key, (u32, u32)>,
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

    /// A caller begins to count these keys.
    pub(super) fn count(&mut self, keys: &[Key]) {
        for key in keys {
            self.counts.entry(key.clone()).or_default().0 += 1;
        }
    }

    /// A caller was told that `CntFwd` forwards its message.
    pub(super) fn forwarded(&mut self, node: Node, keys: &[Key], threshold: u32) -> Result<(), Failure> {
        for key in keys {
            let (counted, forwarded) = self.counts.entry(key.clone()).or_default();
            *forwarded += 1;
            if *counted < threshold {
                return Err(Failure::CountedEarly { node, key: key.clone(), counted: *counted, threshold });
            }
        }
        Ok(())
    }

    /// Exactly one message was forwarded for every key.
    pub(super) fn forwarded_once(&self) -> Result<(), Failure> {
        match self.counts.iter().find(|(_, (_, forwarded))| *forwarded != 1) {
            Some((key, (_, times))) => Err(Failure::Forwarded { key: key.clone(), times: *times }),
            None => Ok(()),
        }
    }
}
