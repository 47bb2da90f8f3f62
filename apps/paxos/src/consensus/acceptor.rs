//! Acceptor: promises and accepted values, each on disk before it is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Accepted, BallotNumber, Effects, Mutant, Record, ReplicaConfig, Slot, Value};

/// State of an acceptor. All of it is on disk, as records.
#[derive(Debug, Default)]
pub(super) struct Acceptor {
    promised: BallotNumber,
    accepted: BTreeMap<Slot, (BallotNumber, Value)>,
    /// State of the application after all slots up to the number.
    snapshot: Option<(Slot, Arc<[u8]>)>,
}

impl Acceptor {
    /// Restores the state from the records of an earlier life, in their order.
    pub(super) fn restore(records: impl IntoIterator<Item = Record>) -> Self {
        let mut acceptor = Self::default();
        for record in records {
            match record {
                Record::Promise(ballot) => acceptor.promised = acceptor.promised.max(ballot),
                Record::Accept(Accepted { slot, ballot, value }) => {
                    acceptor.promised = acceptor.promised.max(ballot);
                    acceptor.accepted.insert(slot, (ballot, value));
                }
                Record::Snapshot { upto, state } => acceptor.truncate(upto, state),
            }
        }
        acceptor
    }

    /// Records that restore the present state.
    pub(super) fn records(&self) -> Vec<Record> {
        let snapshot = self.snapshot.iter().map(|(upto, state)| Record::Snapshot { upto: *upto, state: state.clone() });
        let accepted = self.accepted.iter().map(|(slot, (ballot, value))| {
            Record::Accept(Accepted { slot: *slot, ballot: *ballot, value: value.clone() })
        });
        snapshot.chain(accepted).chain([Record::Promise(self.promised)]).collect()
    }

    pub(super) fn promised(&self) -> BallotNumber {
        self.promised
    }

    /// Last slot of the snapshot; 0 without one.
    pub(super) fn truncated(&self) -> Slot {
        self.snapshot.as_ref().map_or(0, |(upto, _)| *upto)
    }

    pub(super) fn snapshot(&self) -> Option<(Slot, Arc<[u8]>)> {
        self.snapshot.clone()
    }

    /// Value accepted in a slot, with its ballot.
    pub(super) fn accepted(&self, slot: Slot) -> Option<&(BallotNumber, Value)> {
        self.accepted.get(&slot)
    }

    /// Phase 1b: promises to accept nothing of a lower ballot. Returns the values accepted from `first` on, or the
    /// ballot that was promised to another leader.
    pub(super) fn prepare(
        &mut self,
        ballot: BallotNumber,
        first: Slot,
        config: &ReplicaConfig,
        effects: &mut Effects,
    ) -> Result<Vec<Accepted>, BallotNumber> {
        if ballot < self.promised {
            return Err(self.promised);
        }
        if ballot > self.promised {
            self.promised = ballot;
            if !config.has(Mutant::PromiseNotOnDisk) {
                effects.records.push(Record::Promise(ballot));
            }
        }
        let accepted = self.accepted.range(first..);
        Ok(accepted
            .map(|(slot, (ballot, value))| Accepted { slot: *slot, ballot: *ballot, value: value.clone() })
            .collect())
    }

    /// Phase 2b: accepts a proposal, unless a higher ballot is promised; then returns that ballot.
    pub(super) fn accept(
        &mut self,
        proposal: &Accepted,
        config: &ReplicaConfig,
        effects: &mut Effects,
    ) -> Result<(), BallotNumber> {
        let Accepted { slot, ballot, ref value } = *proposal;
        if ballot < self.promised && !config.has(Mutant::OldBallotAccepted) {
            return Err(self.promised);
        }
        if slot <= self.truncated() {
            // It is chosen, and a majority answers for it with a snapshot: no leader can choose another value.
            return self.prepare(ballot, slot, config, effects).map(drop);
        }
        self.promised = self.promised.max(ballot);
        let known = self.accepted.get(&slot).is_some_and(|(accepted, _)| *accepted == ballot);
        if !known {
            self.accepted.insert(slot, (ballot, value.clone()));
            effects.records.push(Record::Accept(proposal.clone()));
        }
        Ok(())
    }

    /// Replaces all slots up to `upto`, which are chosen, by the state after them.
    pub(super) fn truncate(&mut self, upto: Slot, state: Arc<[u8]>) {
        if upto > self.truncated() {
            self.accepted = self.accepted.split_off(&(upto + 1));
            self.snapshot = Some((upto, state));
        }
    }
}
