//! Model of the keys' values: exact between additions, a range during them.
//!
//! An addition takes effect on a key at some time between its start and its end. So a read value contains every
//! addition that had ended before the read began, and any subset of those that had started before the answer.

use std::collections::BTreeMap;

use pathcall_endpoint::map::{Key, Operation};

use super::MapViolation;
use crate::map::node::MapNodeId;
use crate::map::scenario::{marked, modified};

/// Sums of the positive and the negative additions to a key.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeyEffects {
    raised: i128,
    lowered: i128,
}

impl KeyEffects {
    fn add(&mut self, effect: i64) {
        *(if effect >= 0 { &mut self.raised } else { &mut self.lowered }) += i128::from(effect);
    }

    fn subtract(&mut self, effect: i64) {
        *(if effect >= 0 { &mut self.raised } else { &mut self.lowered }) -= i128::from(effect);
    }
}

/// Additions that had ended at some time, by key.
pub(super) type KeySnapshot = BTreeMap<Key, KeyEffects>;

/// Additions that were begun, and those that have ended, by key.
#[derive(Default)]
pub(super) struct KeyLedger<'a> {
    keys: BTreeMap<&'a Key, (KeyEffects, KeyEffects)>,
}

/// Pairs of an addition, with the added values.
fn effects(operation: &Operation) -> impl Iterator<Item = (&Key, i64)> {
    let (pairs, modify) = match operation {
        Operation::Add { pairs, modify, .. } => (pairs.as_slice(), *modify),
        _ => (&[][..], Default::default()),
    };
    pairs.iter().map(move |(key, value)| (key, modified(*value, modify)))
}

impl<'a> KeyLedger<'a> {
    /// Records the start of an addition.
    pub(super) fn begin(&mut self, operation: &'a Operation) {
        for (key, effect) in effects(operation) {
            self.keys.entry(key).or_default().0.add(effect);
        }
    }

    /// Records the end of an addition.
    pub(super) fn end(&mut self, operation: &Operation) {
        for (key, effect) in effects(operation) {
            if let Some((_, ended)) = self.keys.get_mut(key) {
                ended.add(effect);
            }
        }
    }

    /// Records an addition that was refused for one pair, because the sum would exceed 64 bits. Returns false if no
    /// such sum was possible.
    pub(super) fn refused(&mut self, operation: &Operation, position: usize) -> bool {
        self.end(operation);
        let Some((key, effect)) = effects(operation).nth(position) else { return false };
        let Some((begun, ended)) = self.keys.get_mut(key) else { return false };
        let possible = begun.raised > i64::MAX.into() || begun.lowered < i64::MIN.into();
        begun.subtract(effect);
        ended.subtract(effect);
        possible
    }

    /// Resolves a cancelled addition: the value of its marker key shows whether it took effect.
    pub(super) fn resolve(
        &mut self,
        node: MapNodeId,
        operation: &'a Operation,
        values: &[(Key, i64)],
    ) -> Result<(), MapViolation> {
        let Some((marker, _)) = effects(operation).find(|(key, _)| marked(key)) else { return Ok(()) };
        match values.iter().find(|(key, _)| key == marker).map_or(0, |(_, value)| *value) {
            1 => self.end(operation),
            0 => {
                for (key, effect) in effects(operation) {
                    if let Some((begun, _)) = self.keys.get_mut(key) {
                        begun.subtract(effect);
                    }
                }
            }
            got => return Err(MapViolation::Value { node, key: marker.clone(), low: 0, high: 1, got }),
        }
        Ok(())
    }

    /// Ended additions of all keys.
    pub(super) fn snapshot(&self) -> KeySnapshot {
        self.keys.iter().map(|(key, (_, ended))| ((*key).clone(), *ended)).collect()
    }

    /// Ended additions to the keys of a call, and its own: a read after the addition includes both.
    pub(super) fn snapshot_of(&self, operation: &Operation) -> KeySnapshot {
        if !matches!(operation, Operation::Add { get: true, .. }) {
            return KeySnapshot::new();
        }
        effects(operation)
            .map(|(key, effect)| {
                let mut ended = self.keys.get(key).map(|(_, ended)| *ended).unwrap_or_default();
                ended.add(effect);
                (key.clone(), ended)
            })
            .collect()
    }

    /// Checks the values that a call returned, pair by pair; `None` if their number is wrong.
    pub(super) fn check_values(
        &self,
        node: MapNodeId,
        before: &KeySnapshot,
        operation: &Operation,
        values: &[i64],
    ) -> Option<Result<(), MapViolation>> {
        let keys = effects(operation).map(|(key, _)| key);
        if keys.size_hint().0 != values.len() {
            return None;
        }
        Some(keys.zip(values).try_for_each(|(key, got)| self.check(node, before, key, *got)))
    }

    /// Checks the answer to a query of some keys, or of all.
    pub(super) fn check_query(
        &self,
        node: MapNodeId,
        before: &KeySnapshot,
        asked: Option<&[Key]>,
        values: &[(Key, i64)],
    ) -> Result<(), MapViolation> {
        let values: BTreeMap<&Key, i64> = values.iter().map(|(key, value)| (key, *value)).collect();
        let known: Vec<&Key> = match asked {
            Some(keys) => keys.iter().collect(),
            None => self.keys.keys().copied().collect(),
        };
        // A key without an answer has no value yet.
        known.iter().try_for_each(|key| self.check(node, before, key, values.get(key).copied().unwrap_or(0)))?;
        values.iter().try_for_each(|(key, value)| self.check(node, before, key, *value))
    }

    fn check(&self, node: MapNodeId, before: &KeySnapshot, key: &Key, got: i64) -> Result<(), MapViolation> {
        let (begun, _) = self.keys.get(key).copied().unwrap_or_default();
        let ended = before.get(key).copied().unwrap_or_default();
        let (low, high) = (ended.raised + begun.lowered, begun.raised + ended.lowered);
        if (low..=high).contains(&got.into()) {
            return Ok(());
        }
        Err(MapViolation::Value { node, key: key.clone(), low, high, got })
    }
}
