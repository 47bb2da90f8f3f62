//! Counters of votes in the network, as leader and acceptors use them.
//!
//! ```text
//! slot:        first … cleared … settled … proposed ………… cleared + C
//! its counter:       │ clear   │ full    │ in use  │ free  │ in use for an earlier slot
//! ```
//!
//! With C counters ([`ReplicaConfig::counters`]), slot s of a ballot has the counter s mod C. A counter must not get a late vote for its earlier slot.
//! So the leader uses it again only when *every* acceptor has said that none of its votes for the earlier slot is or
//! will be under way ([`CastLedger::settled`]), and the counter is clear. No clock is involved. A new ballot has new
//! counters, so votes of an older ballot do not matter. An acceptor that restarts does not know the votes of its
//! earlier life, so it casts none in a ballot of that life, and never says that it has settled there. The leader then
//! counts by messages, and takes a new ballot when all acceptors are back ([`CounterWindow::tick`]).

use std::collections::BTreeSet;

use super::{BallotNumber, Clear, Mutant, ReplicaConfig, ReplicaId, Slot};

/// Share of the counters that are cleared together, or reported as settled together.
const BATCHES: u64 = 8;
/// Ticks that a leader without free counters waits before it takes a new ballot; doubled while that does not help.
const RENEWAL_TICKS: u32 = 8;
const RENEWAL_TICKS_MAX: u32 = 4096;

/// Votes that an acceptor casts in one ballot.
#[derive(Debug)]
pub(super) struct CastLedger {
    counters: u64,
    ballot: BallotNumber,
    /// All slots below are done: no vote is or will be under way.
    below: Slot,
    /// Casts under way.
    casting: BTreeSet<Slot>,
    /// Slots from `below` on that are done.
    done: BTreeSet<Slot>,
    reported: Slot,
}

impl CastLedger {
    pub(super) fn new(counters: u64) -> Self {
        let (casting, done) = (BTreeSet::new(), BTreeSet::new());
        Self { counters, ballot: BallotNumber::default(), below: 0, casting, done, reported: 0 }
    }

    /// Begins a ballot, if it is new.
    pub(super) fn enter(&mut self, ballot: BallotNumber, first: Slot) {
        if self.ballot < ballot {
            *self = Self { ballot, below: first, reported: first, ..Self::new(self.counters) };
        }
    }

    /// True if the vote for this slot may be cast; it is under way then. A vote is cast once.
    pub(super) fn cast(&mut self, ballot: BallotNumber, slot: Slot) -> bool {
        let new = self.ballot == ballot && slot >= self.below && slot < self.below + 2 * self.counters;
        new && !self.done.contains(&slot) && self.casting.insert(slot)
    }

    /// Notes that no vote for this slot is under way, and that none will be cast. `completed`: the cast has completed.
    pub(super) fn finish(&mut self, ballot: BallotNumber, slot: Slot, completed: bool) {
        if self.ballot != ballot || slot < self.below || slot >= self.below + 4 * self.counters {
            return;
        }
        if completed {
            self.casting.remove(&slot);
        }
        if !self.casting.contains(&slot) {
            self.done.insert(slot);
        }
        while self.done.remove(&self.below) {
            self.below += 1;
        }
    }

    /// Slot below which everything has settled; 0 if that is unknown.
    pub(super) fn settled(&self, ballot: BallotNumber) -> Slot {
        if self.ballot == ballot { self.below } else { 0 }
    }

    /// The same, if it is time to report it.
    pub(super) fn report(&mut self) -> Option<(BallotNumber, Slot)> {
        if self.below < self.reported + (self.counters / BATCHES).max(1) {
            return None;
        }
        self.reported = self.below;
        Some((self.ballot, self.below))
    }
}

/// Counters that a leader may use in its ballot.
#[derive(Debug)]
pub(super) struct CounterWindow {
    config: ReplicaConfig,
    /// First slot of the ballot that is counted.
    first: Slot,
    /// All counters of earlier slots are clear.
    cleared: Slot,
    /// No slot from here on is counted, although counters are free: votes are not counted in time.
    closed: Option<Slot>,
    /// Slots below which each replica has settled.
    settled: Vec<Slot>,
    /// Replicas heard since the last tick, as bits.
    heard: u8,
    clearing: bool,
    stuck_ticks: u32,
    /// See [`RENEWAL_TICKS`].
    pub(super) renewal_ticks: u32,
}

impl CounterWindow {
    pub(super) fn new(config: ReplicaConfig, first: Slot, renewal_ticks: u32) -> Self {
        let settled = vec![0; config.replicas.into()];
        let (closed, renewal_ticks) = (None, renewal_ticks.clamp(RENEWAL_TICKS, RENEWAL_TICKS_MAX));
        let (heard, clearing, stuck_ticks) = (0, false, 0);
        Self { config, first, cleared: first, closed, settled, heard, clearing, stuck_ticks, renewal_ticks }
    }

    /// First slot that is counted; 0 if none is.
    pub(super) fn first(&self) -> Slot {
        if self.config.counters > 0 { self.first } else { 0 }
    }

    /// What an accept request for a new slot says: see [`super::Message::Accept`].
    pub(super) fn counted_from(&self, slot: Slot) -> Slot {
        let reuse = if self.config.has(Mutant::CounterReusedEarly) { 4 } else { 1 };
        let free = slot < self.cleared + reuse * self.config.counters && self.closed.is_none_or(|closed| slot < closed);
        if free { self.first() } else { 0 }
    }

    /// Closes the window: slot `slot` and later ones are not counted until the next ballot.
    pub(super) fn close(&mut self, slot: Slot) {
        self.closed.get_or_insert(slot);
    }

    /// Notes that a replica has settled. Returns counters to clear.
    pub(super) fn settle(&mut self, from: ReplicaId, below: Slot) -> Option<(Slot, Slot)> {
        self.heard |= 1 << from;
        let settled = self.settled.get_mut(usize::from(from))?;
        *settled = below.max(*settled);
        let all = self.settled.iter().copied().min().unwrap_or(0);
        let counters = self.config.counters;
        if self.clearing || counters == 0 || all < self.cleared + (counters / BATCHES).max(1) {
            return None;
        }
        self.clearing = true;
        Some((self.cleared, all.min(self.cleared + counters)))
    }

    /// Notes that counters are clear.
    pub(super) fn clear(&mut self, clear: Clear) {
        if clear.first == self.cleared {
            self.cleared = clear.end;
            self.clearing = false;
            self.renewal_ticks = RENEWAL_TICKS;
        }
    }

    /// Ticks. True if a new ballot would help: the next slot has no counter for long, and all acceptors answer.
    pub(super) fn tick(&mut self, next: Slot) -> bool {
        let all = (1_u16 << self.config.replicas) - 1;
        let stuck = self.config.counters > 0 && self.counted_from(next) == 0 && u16::from(self.heard) == all;
        self.heard = 0;
        self.stuck_ticks = if stuck { self.stuck_ticks + 1 } else { 0 };
        self.stuck_ticks >= self.renewal_ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: u64 = 64;
    const BATCH: u64 = COUNTERS / BATCHES;
    const BALLOT: BallotNumber = BallotNumber { round: 1, leader: 0 };

    fn config() -> ReplicaConfig {
        ReplicaConfig { id: 0, replicas: 3, counters: COUNTERS, mutant: None }
    }

    #[test]
    fn ledger_settles_without_gaps_and_casts_once() {
        let mut ledger = CastLedger::new(COUNTERS);
        ledger.enter(BALLOT, 5);
        assert!(ledger.cast(BALLOT, 5) && ledger.cast(BALLOT, 7));
        assert!(!ledger.cast(BALLOT, 5), "a vote is cast once");
        ledger.finish(BALLOT, 7, true);
        assert_eq!(ledger.settled(BALLOT), 5);
        ledger.finish(BALLOT, 5, false);
        assert_eq!(ledger.settled(BALLOT), 5, "the cast is under way");
        ledger.finish(BALLOT, 5, true);
        assert_eq!(ledger.settled(BALLOT), 6);
        // Slot 6 is chosen without a vote of this acceptor: it never casts one.
        ledger.finish(BALLOT, 6, false);
        assert_eq!(ledger.settled(BALLOT), 8);
        assert!(!ledger.cast(BALLOT, 6));
        assert_eq!(ledger.settled(BallotNumber { round: 2, leader: 0 }), 0);
    }

    #[test]
    fn window_opens_when_all_have_settled_and_counters_are_clear() {
        let mut window = CounterWindow::new(config(), 11, 0);
        assert_eq!([window.counted_from(11 + COUNTERS - 1), window.counted_from(11 + COUNTERS)], [11, 0]);
        assert_eq!(window.settle(0, 11 + BATCH), None);
        assert_eq!(window.settle(1, 11 + BATCH), None);
        assert_eq!(window.settle(2, 11 + BATCH), Some((11, 11 + BATCH)));
        assert_eq!(window.counted_from(11 + COUNTERS), 0, "not clear yet");
        window.clear(Clear { ballot: BALLOT, first: 11, end: 11 + BATCH });
        assert_eq!([window.counted_from(11 + COUNTERS), window.counted_from(11 + COUNTERS + BATCH)], [11, 0]);
    }

    #[test]
    fn silent_acceptor_prevents_new_ballot() {
        let mut window = CounterWindow::new(config(), 1, 0);
        window.close(1);
        for _ in 0..2 * RENEWAL_TICKS {
            (0..2).for_each(|id| assert_eq!(window.settle(id, 0), None));
            assert!(!window.tick(1));
        }
        let renewed = (0..RENEWAL_TICKS).map(|_| {
            (0..3).for_each(|id| assert_eq!(window.settle(id, 0), None));
            window.tick(1)
        });
        assert_eq!(renewed.filter(|renewed| *renewed).count(), 1);
    }
}
