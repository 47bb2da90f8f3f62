//! Values of keys while additions are under way: exact between calls, a range during them.
//!
//! A call takes effect on a key some time between its start and its end. So when a value is asked
//! for, everything that had ended before counts, and of what had started by the answer any part
//! may.

use std::collections::BTreeMap;

use pathcall_endpoint::map::{Key, Operation};

use super::Failure;
use crate::party::Node;
use crate::scenario::{marked, modified};

/// Sums of what raises and what lowers a key.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    raised: i128,
    lowered: i128,
}

impl Tally {
    fn add(&mut self, effect: i64) {
        *(if effect >= 0 { &mut self.raised } else { &mut self.lowered }) += i128::from(effect);
    }

    fn subtract(&mut self, effect: i64) {
        *(if effect >= 0 { &mut self.raised } else { &mut self.lowered }) -= i128::from(effect);
    }
}

/// What had taken effect for sure, by key, at some time.
pub(super) type Snapshot = BTreeMap<Key, Tally>;

/// What was begun and what has ended, by key.
#[derive(Default)]
pub(super) struct KeyLedger<'a> {
    keys: BTreeMap<&'a Key, (Tally, Tally)>,
}

/// A call's pairs with what they add.
fn effects(operation: &Operation) -> impl Iterator<Item = (&Key, i64)> {
    let (pairs, modify) = match operation {
        Operation::Add { pairs, modify, .. } => (pairs.as_slice(), *modify),
        _ => (&[][..], Default::default()),
    };
    pairs.iter().map(move |(key, value)| (key, modified(*value, modify)))
}

impl<'a> KeyLedger<'a> {
    /// An addition starts.
    pub(super) fn begin(&mut self, operation: &'a Operation) {
        for (key, effect) in effects(operation) {
            self.keys.entry(key).or_default().0.add(effect);
        }
    }

    /// An addition has taken effect.
    pub(super) fn end(&mut self, operation: &Operation) {
        for (key, effect) in effects(operation) {
            if let Some((_, ended)) = self.keys.get_mut(key) {
                ended.add(effect);
            }
        }
    }

    /// An addition has taken effect but for one pair, whose sum would have left 64 bits; false if
    /// it could not have.
    pub(super) fn refused(&mut self, operation: &Operation, position: usize) -> bool {
        self.end(operation);
        let Some((key, effect)) = effects(operation).nth(position) else { return false };
        let Some((begun, ended)) = self.keys.get_mut(key) else { return false };
        let possible = begun.raised > i64::MAX.into() || begun.lowered < i64::MIN.into();
        begun.subtract(effect);
        ended.subtract(effect);
        possible
    }

    /// A cancelled addition either took effect or did not: its marker says which.
    pub(super) fn resolve(
        &mut self,
        node: Node,
        operation: &'a Operation,
        values: &[(Key, i64)],
    ) -> Result<(), Failure> {
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
            got => return Err(Failure::Value { node, key: marker.clone(), low: 0, high: 1, got }),
        }
        Ok(())
    }

    /// What has ended, of all keys.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.keys.iter().map(|(key, (_, ended))| ((*key).clone(), *ended)).collect()
    }

    /// What has ended, of a call's keys, with the call's own effect: it asks for the value after it.
    pub(super) fn snapshot_of(&self, operation: &Operation) -> Snapshot {
        if !matches!(operation, Operation::Add { get: true, .. }) {
            return Snapshot::new();
        }
        effects(operation)
            .map(|(key, effect)| {
                let mut ended = self.keys.get(key).map(|(_, ended)| *ended).unwrap_or_default();
                ended.add(effect);
                (key.clone(), ended)
            })
            .collect()
    }

    /// Checks the values that a call got, pair by pair; `None`: there are not as many.
    pub(super) fn check_values(
        &self,
        node: Node,
        before: &Snapshot,
        operation: &Operation,
        values: &[i64],
    ) -> Option<Result<(), Failure>> {
        let keys = effects(operation).map(|(key, _)| key);
        if keys.size_hint().0 != values.len() {
            return None;
        }
        Some(keys.zip(values).try_for_each(|(key, got)| self.check(node, before, key, *got)))
    }

    /// Checks the answer to a query for some keys, or for all.
    pub(super) fn check_query(
        &self,
        node: Node,
        before: &Snapshot,
        asked: Option<&[Key]>,
        values: &[(Key, i64)],
    ) -> Result<(), Failure> {
        let values: BTreeMap<&Key, i64> = values.iter().map(|(key, value)| (key, *value)).collect();
        let known: Vec<&Key> = match asked {
            Some(keys) => keys.iter().collect(),
            None => self.keys.keys().copied().collect(),
        };
        // A key without an answer has no value yet.
        known.iter().try_for_each(|key| self.check(node, before, key, values.get(key).copied().unwrap_or(0)))?;
        values.iter().try_for_each(|(key, value)| self.check(node, before, key, *value))
    }

    fn check(&self, node: Node, before: &Snapshot, key: &Key, got: i64) -> Result<(), Failure> {
        let (begun, _) = self.keys.get(key).copied().unwrap_or_default();
        let ended = before.get(key).copied().unwrap_or_default();
        let (low, high) = (ended.raised + begun.lowered, begun.raised + ended.lowered);
        if (low..=high).contains(&got.into()) {
            return Ok(());
        }
        Err(Failure::Value { node, key: key.clone(), low, high, got })
    }
}
