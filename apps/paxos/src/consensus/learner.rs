//! Learner: votes of acceptors by slot and ballot, and the chosen values in the order of their slots.

use std::collections::BTreeMap;

use super::{BallotNumber, Mutant, OPEN_MAX, ReplicaConfig, ReplicaId, Slot, Step, VALUES_MAX, Value};

/// Distance from the last applied slot in which votes are counted: others may be ahead of this learner.
const VOTES_MAX: u64 = 4 * OPEN_MAX as u64;

/// What a learner knows of a slot that is not applied.
#[derive(Debug, Default)]
struct OpenSlot {
    /// Voters of each ballot, as bits.
    votes: BTreeMap<BallotNumber, u8>,
    /// Ballot in which a value was chosen, while the value itself is unknown.
    decided: Option<BallotNumber>,
    chosen: Option<Value>,
}

/// State of a learner.
#[derive(Debug)]
pub(super) struct Learner {
    config: ReplicaConfig,
    /// All slots up to this one are applied.
    applied: Slot,
    open: BTreeMap<Slot, OpenSlot>,
    /// Applied values that are in no snapshot, for replicas that miss them.
    kept: BTreeMap<Slot, Value>,
    /// All slots up to this one are chosen, as others say.
    known: Slot,
}

impl Learner {
    /// Learner after the slots of a snapshot.
    pub(super) fn new(config: ReplicaConfig, applied: Slot) -> Self {
        Self { config, applied, open: BTreeMap::new(), kept: BTreeMap::new(), known: applied }
    }

    pub(super) fn applied(&self) -> Slot {
        self.applied
    }

    /// True if the value of this slot is known.
    pub(super) fn is_chosen(&self, slot: Slot) -> bool {
        slot <= self.applied || self.open.get(&slot).is_some_and(|open| open.chosen.is_some())
    }

    /// Counts a vote. Returns true if it makes a majority.
    pub(super) fn vote(&mut self, from: ReplicaId, slot: Slot, ballot: BallotNumber) -> bool {
        let Some(open) = self.open(slot) else { return false };
        let voters = open.votes.entry(ballot).or_default();
        *voters |= 1 << from;
        let voters = *voters;
        let added = open.votes.values().fold(0, |all, voters| all | voters);
        let counted = if self.config.has(Mutant::BallotsAdded) { added } else { voters };
        counted.count_ones() as usize >= self.config.majority()
    }

    /// Notes that a value was chosen in this ballot. `accepted` is what the own acceptor has in the slot.
    pub(super) fn decide(&mut self, slot: Slot, ballot: BallotNumber, accepted: Option<&(BallotNumber, Value)>) {
        if let Some(open) = self.open(slot) {
            // Every value accepted in a later ballot is the chosen one too, so the lowest ballot is met soonest.
            open.decided = Some(open.decided.map_or(ballot, |decided| decided.min(ballot)));
            self.match_accepted(slot, accepted);
        }
    }

    /// Takes the accepted value of a decided slot: of the deciding ballot, or of a later one, which has the same value.
    pub(super) fn match_accepted(&mut self, slot: Slot, accepted: Option<&(BallotNumber, Value)>) {
        let Some((ballot, value)) = accepted else { return };
        let decided = self.open.get(&slot).and_then(|open| open.decided);
        if decided.is_some_and(|decided| *ballot >= decided) {
            self.choose(slot, value.clone());
        }
    }

    /// Notes the chosen value of a slot.
    pub(super) fn choose(&mut self, slot: Slot, value: Value) {
        if let Some(open) = self.open(slot) {
            open.votes.clear();
            open.chosen.get_or_insert(value);
        }
    }

    /// Notes that all slots up to this one are chosen, as another says.
    pub(super) fn know(&mut self, chosen: Slot) {
        self.known = self.known.max(chosen);
    }

    /// First slot with a missing value, if a later one, or this one, is chosen.
    pub(super) fn missing(&self) -> Option<Slot> {
        let next = self.applied + 1;
        let known =
            self.known > self.applied || self.open.values().any(|open| open.decided.is_some() || open.chosen.is_some());
        known.then_some(next)
    }

    /// Moves chosen values to the application, in the order of the slots.
    pub(super) fn apply(&mut self, steps: &mut Vec<Step>) {
        while let Some(value) = self.open.get_mut(&(self.applied + 1)).and_then(|open| open.chosen.take()) {
            self.applied += 1;
            self.open.remove(&self.applied);
            self.kept.insert(self.applied, value.clone());
            steps.push(Step::Apply { slot: self.applied, value });
        }
    }

    /// Applied values from `first` on, at most [`VALUES_MAX`]; `None` if they are in a snapshot only.
    pub(super) fn values(&self, first: Slot) -> Option<Vec<Value>> {
        let stored = self.kept.first_key_value().map_or(self.applied + 1, |(slot, _)| *slot);
        (first >= stored).then(|| self.kept.range(first..).take(VALUES_MAX).map(|(_, value)| value.clone()).collect())
    }

    /// Forgets the values of a snapshot.
    pub(super) fn truncate(&mut self, upto: Slot) {
        self.kept = self.kept.split_off(&(upto + 1));
        if upto > self.applied {
            self.applied = upto;
            self.open = self.open.split_off(&(upto + 1));
        }
    }

    /// State of a slot that is not applied; `None` if the slot is too far ahead.
    fn open(&mut self, slot: Slot) -> Option<&mut OpenSlot> {
        let near = slot > self.applied && slot <= self.applied + VOTES_MAX;
        near.then(|| self.open.entry(slot).or_default())
    }
}
