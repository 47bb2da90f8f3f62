//! Model of the keys' values: exact between additions, a range during them.
//!
//! An addition takes effect on a key at some time between its start and its end. So a read value contains every
//! addition that had ended before the read began, and any subset of those that had started before the answer. Of a key
//! that only grows, no read sees less than an earlier one. A *recent* read may miss the additions of the last moments.

use std::collections::BTreeMap;

use pathcall_endpoint::map::lease::READ_LEASE;
use pathcall_endpoint::map::{Key, Operation, ReadMode};
use pathcall_wire::Instant;

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

/// What was known of a key at the start of a read: ended additions, and the least and the greatest value that a read had
/// returned.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownBefore {
    ended: KeyEffects,
    seen: Option<(i64, i64)>,
}

/// What was known at some time, by key.
pub(super) type KeySnapshot = BTreeMap<Key, KnownBefore>;

/// Additions that were begun, and those that have ended, by key.
#[derive(Default)]
pub(super) struct KeyLedger<'a> {
    keys: BTreeMap<&'a Key, KeyModel>,
}

/// Model of one key.
#[derive(Default)]
struct KeyModel {
    begun: KeyEffects,
    ended: KeyEffects,
    /// Ended additions with their times.
    log: Vec<(Instant, i64)>,
    seen: Option<(i64, i64)>,
}

impl KeyModel {
    fn end(&mut self, now: Instant, effect: i64) {
        self.ended.add(effect);
        self.log.push((now, effect));
    }

    fn known(&self) -> KnownBefore {
        KnownBefore { ended: self.ended, seen: self.seen }
    }

    /// Additions that a read in this mode must contain if it begins now, and values that it must not fall behind.
    fn known_to(&self, now: Instant, read: ReadMode) -> KnownBefore {
        if read == ReadMode::Linearizable {
            return self.known();
        }
        let mut ended = self.ended;
        let late = self.log.iter().rev().take_while(|(at, _)| now.since(*at) < READ_LEASE);
        late.for_each(|(_, effect)| ended.subtract(*effect));
        KnownBefore { ended, seen: None }
    }
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
            self.keys.entry(key).or_default().begun.add(effect);
        }
    }

    /// Records the end of an addition.
    pub(super) fn end(&mut self, now: Instant, operation: &Operation) {
        for (key, effect) in effects(operation) {
            if let Some(model) = self.keys.get_mut(key) {
                model.end(now, effect);
            }
        }
    }

    /// Records an addition that was refused for one pair, because the sum would exceed 64 bits. Returns false if no
    /// such sum was possible.
    pub(super) fn refused(&mut self, now: Instant, operation: &Operation, position: usize) -> bool {
        self.end(now, operation);
        let Some((key, effect)) = effects(operation).nth(position) else { return false };
        let Some(KeyModel { begun, ended, log, .. }) = self.keys.get_mut(key) else { return false };
        log.pop();
        let possible = begun.raised > i64::MAX.into() || begun.lowered < i64::MIN.into();
        begun.subtract(effect);
        ended.subtract(effect);
        possible
    }

    /// Resolves a cancelled addition: the value of its marker key shows whether it took effect.
    pub(super) fn resolve(
        &mut self,
        (now, node): (Instant, MapNodeId),
        operation: &'a Operation,
        values: &[(Key, i64)],
    ) -> Result<(), MapViolation> {
        let Some((marker, _)) = effects(operation).find(|(key, _)| marked(key)) else { return Ok(()) };
        match values.iter().find(|(key, _)| key == marker).map_or(0, |(_, value)| *value) {
            1 => self.end(now, operation),
            0 => {
                for (key, effect) in effects(operation) {
                    if let Some(model) = self.keys.get_mut(key) {
                        model.begun.subtract(effect);
                    }
                }
            }
            got => return Err(MapViolation::Value { node, key: marker.clone(), low: 0, high: 1, got }),
        }
        Ok(())
    }

    /// What is known of all keys.
    pub(super) fn snapshot(&self) -> KeySnapshot {
        self.keys.iter().map(|(key, model)| ((*key).clone(), model.known())).collect()
    }

    /// What is known of these keys to a read that begins now.
    pub(super) fn snapshot_for(&self, now: Instant, keys: &[Key], read: ReadMode) -> KeySnapshot {
        let known = |key| self.keys.get(key).map(|model| model.known_to(now, read)).unwrap_or_default();
        keys.iter().map(|key| (key.clone(), known(key))).collect()
    }

    /// Ended additions to the keys of a call, and its own: a read after the addition includes both.
    pub(super) fn snapshot_of(&self, operation: &Operation) -> KeySnapshot {
        if !matches!(operation, Operation::Add { get: true, .. }) {
            return KeySnapshot::new();
        }
        effects(operation)
            .map(|(key, effect)| {
                let mut ended = self.keys.get(key).map(|model| model.ended).unwrap_or_default();
                ended.add(effect);
                (key.clone(), KnownBefore { ended, seen: None })
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

    /// Checks the values that a read returned, key by key; `None` if their number is wrong.
    pub(super) fn check_read(
        &mut self,
        node: MapNodeId,
        before: &KeySnapshot,
        keys: &[Key],
        values: &[i64],
    ) -> Option<Result<(), MapViolation>> {
        if keys.len() != values.len() {
            return None;
        }
        Some(keys.iter().zip(values).try_for_each(|(key, got)| {
            self.check(node, before, key, *got)?;
            if let Some(model) = self.keys.get_mut(key) {
                let (low, high) = model.seen.unwrap_or((*got, *got));
                model.seen = Some((low.min(*got), high.max(*got)));
            }
            Ok(())
        }))
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
        let begun = self.keys.get(key).map(|model| model.begun).unwrap_or_default();
        let KnownBefore { ended, seen } = before.get(key).copied().unwrap_or_default();
        let (mut low, mut high) = (ended.raised + begun.lowered, begun.raised + ended.lowered);
        if let Some((least, greatest)) = seen {
            low = if begun.lowered == 0 { low.max(greatest.into()) } else { low };
            high = if begun.raised == 0 { high.min(least.into()) } else { high };
        }
        if (low..=high).contains(&got.into()) {
            return Ok(());
        }
        Err(MapViolation::Value { node, key: key.clone(), low, high, got })
    }
}
