//! Counters of a simulated network: each vote that arrives is counted once, however late it is.

use std::collections::BTreeMap;

use paxos::consensus::{BallotNumber, Cast, Clear, ReplicaId};

/// Votes that decide: the threshold of the filter.
const THRESHOLD: u32 = 2;

/// Caster that waits for a majority: replica, and the number of its life.
pub(crate) type Caster = (ReplicaId, u32);

#[derive(Debug, Default)]
struct Counter {
    votes: u32,
    waiting: Vec<(Caster, Cast)>,
}

/// Counters of a network.
#[derive(Debug)]
pub(crate) struct Counters {
    number: u64,
    counters: BTreeMap<(BallotNumber, u64), Counter>,
}

impl Counters {
    pub(crate) fn new(number: u64) -> Self {
        Self { number: number.max(1), counters: BTreeMap::new() }
    }

    /// Counts a vote. Returns the votes that are answered: the counter has reached the threshold.
    pub(crate) fn count(&mut self, caster: Caster, cast: Cast) -> Vec<(Caster, Cast)> {
        let counter = self.counters.entry((cast.ballot, cast.slot % self.number)).or_default();
        counter.votes += 1;
        counter.waiting.push((caster, cast));
        if counter.votes >= THRESHOLD { std::mem::take(&mut counter.waiting) } else { Vec::new() }
    }

    /// Clears counters. Votes that wait go on waiting.
    pub(crate) fn clear(&mut self, clear: Clear) {
        for slot in clear.first..clear.end {
            if let Some(counter) = self.counters.get_mut(&(clear.ballot, slot % self.number)) {
                counter.votes = 0;
            }
        }
    }

    /// Forgets all votes, as an element that has failed. Returns the votes that waited: they fail.
    pub(crate) fn fail(&mut self) -> Vec<(Caster, Cast)> {
        std::mem::take(&mut self.counters).into_values().flat_map(|counter| counter.waiting).collect()
    }
}
