//! Leader: phase 1 for all open slots at once, and phase 2 for each.

use std::collections::BTreeMap;

use super::counters::CounterWindow;
use super::{
    Accepted, BallotNumber, Message, Mutant, OPEN_MAX, ProposalRefusal, ReplicaConfig, ReplicaId, Slot, Value,
};

/// Promises of a ballot.
#[derive(Debug, Default)]
struct Promises {
    /// Acceptors, as bits.
    from: u8,
    /// Value with the highest ballot in each slot.
    accepted: BTreeMap<Slot, (BallotNumber, Value)>,
    /// Longest snapshot of an acceptor.
    truncated: Slot,
}

/// Slot that is proposed and not chosen.
#[derive(Debug)]
struct Proposal {
    value: Value,
    /// Whether the network counts its votes.
    counted: bool,
    /// Whether it was open at the last tick.
    ticked: bool,
}

#[derive(Debug)]
enum Phase {
    Following,
    /// Phase 1, for the slots from `first` on.
    Preparing {
        first: Slot,
        promises: Promises,
    },
    Leading,
}

/// State of a leader, or of a replica that does not lead.
#[derive(Debug)]
pub(super) struct Leader {
    config: ReplicaConfig,
    ballot: BallotNumber,
    phase: Phase,
    next: Slot,
    open: BTreeMap<Slot, Proposal>,
    counters: CounterWindow,
}

impl Leader {
    pub(super) fn new(config: ReplicaConfig) -> Self {
        let counters = CounterWindow::new(config, 1, 0);
        let (ballot, phase) = (BallotNumber::default(), Phase::Following);
        Self { config, ballot, phase, next: 1, open: BTreeMap::new(), counters }
    }

    /// Ballot of the leader; also of phase 1.
    pub(super) fn ballot(&self) -> BallotNumber {
        self.ballot
    }

    pub(super) fn is_leading(&self) -> bool {
        matches!(self.phase, Phase::Leading)
    }

    pub(super) fn is_following(&self) -> bool {
        matches!(self.phase, Phase::Following)
    }

    pub(super) fn counters(&mut self) -> &mut CounterWindow {
        &mut self.counters
    }

    /// Begins phase 1 with a ballot above all seen ones.
    pub(super) fn campaign(&mut self, seen: BallotNumber, first: Slot) -> Message {
        self.ballot = BallotNumber { round: seen.round.max(self.ballot.round) + 1, leader: self.config.id };
        self.phase = Phase::Preparing { first, promises: Promises::default() };
        self.open.clear();
        Message::Prepare { ballot: self.ballot, first }
    }

    /// Stops leading: another has a higher ballot.
    pub(super) fn step_down(&mut self) {
        self.phase = Phase::Following;
        self.open.clear();
    }

    /// Takes a promise. With a majority of them the replica leads: it proposes what it has to, and returns the requests
    /// and the slot up to which it must first learn values from `from`.
    pub(super) fn promise(
        &mut self,
        from: ReplicaId,
        accepted: Vec<Accepted>,
        truncated: Slot,
    ) -> Option<(Vec<Message>, Slot)> {
        let Phase::Preparing { first, promises } = &mut self.phase else { return None };
        promises.from |= 1 << from;
        promises.truncated = promises.truncated.max(truncated);
        for Accepted { slot, ballot, value } in accepted {
            let best = promises.accepted.entry(slot).or_insert_with(|| (ballot, value.clone()));
            let lowest = self.config.has(Mutant::LowestBallotWins);
            if if lowest { ballot < best.0 } else { ballot > best.0 } {
                *best = (ballot, value);
            }
        }
        if (promises.from.count_ones() as usize) < self.config.majority() {
            return None;
        }
        let (first, Promises { mut accepted, truncated, .. }) = (*first, std::mem::take(promises));
        if self.config.has(Mutant::AcceptedIgnored) {
            accepted.values_mut().for_each(|(_, value)| *value = Value::Noop);
        }
        // Slots up to `truncated` are chosen: of them this replica learns, and must not propose.
        let truncated = if self.config.has(Mutant::TruncatedProposed) { 0 } else { truncated };
        let first = first.max(truncated + 1);
        self.next = accepted.keys().next_back().map_or(first, |last| first.max(last + 1));
        self.phase = Phase::Leading;
        self.counters = CounterWindow::new(self.config, self.next, self.counters.renewal_ticks);
        let values =
            (first..self.next).map(|slot| (slot, accepted.remove(&slot).map_or(Value::Noop, |(_, value)| value)));
        self.open = values.map(|(slot, value)| (slot, Proposal { value, counted: false, ticked: false })).collect();
        Some((self.requests(first - 1), truncated))
    }

    /// Proposes a value in the next slot.
    pub(super) fn propose(&mut self, value: Value, chosen: Slot) -> Result<Message, ProposalRefusal> {
        if !self.is_leading() {
            return Err(ProposalRefusal::NotLeader(None));
        }
        if self.open.len() >= OPEN_MAX {
            return Err(ProposalRefusal::Full);
        }
        let slot = self.next;
        self.next += 1;
        let counted_from = self.counters.counted_from(slot);
        self.open.insert(slot, Proposal { value: value.clone(), counted: counted_from > 0, ticked: false });
        Ok(Message::Accept { proposal: Accepted { slot, ballot: self.ballot, value }, chosen, counted_from })
    }

    /// Removes slots that are chosen.
    pub(super) fn close(&mut self, slot: Slot) {
        self.open.remove(&slot);
    }

    /// Accept requests of all open slots, without counters.
    fn requests(&self, chosen: Slot) -> Vec<Message> {
        let accept = |(slot, open): (&Slot, &Proposal)| {
            let proposal = Accepted { slot: *slot, ballot: self.ballot, value: open.value.clone() };
            Message::Accept { proposal, chosen, counted_from: 0 }
        };
        self.open.iter().map(accept).collect()
    }

    /// Repeats what may be lost. Slots open since the last tick are counted by messages from now on.
    pub(super) fn tick(&mut self, chosen: Slot) -> Vec<Message> {
        match &self.phase {
            Phase::Following => Vec::new(),
            Phase::Preparing { first, .. } => vec![Message::Prepare { ballot: self.ballot, first: *first }],
            Phase::Leading => {
                if self.open.values().any(|open| open.counted && open.ticked) {
                    self.counters.close(self.next);
                }
                let counted_from = self.counters.first();
                let heartbeat = Message::Heartbeat { ballot: self.ballot, chosen, counted_from };
                let late = self.requests(chosen).into_iter().filter(|request| match request {
                    Message::Accept { proposal, .. } => self.open.get(&proposal.slot).is_some_and(|open| open.ticked),
                    _ => true,
                });
                let messages = [heartbeat].into_iter().chain(late).collect();
                self.open.values_mut().for_each(|open| open.ticked = true);
                messages
            }
        }
    }

    /// True if this leader should take a new ballot, to have counters again.
    pub(super) fn wants_new_ballot(&mut self) -> bool {
        let renew = self.is_leading() && self.counters.tick(self.next);
        if renew {
            self.counters.renewal_ticks = self.counters.renewal_ticks.saturating_mul(2);
        }
        renew
    }
}
